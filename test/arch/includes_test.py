"""The architecture as a test: which folder may include which. docs/ARCHITECTURE.md explains the table.

Also checked, with their allow-lists: getenv, sleeps, and third-party libraries outside their one folder; and that the
table of failpoints is that of the code.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent

# Folder -> folders it may include besides itself, runtime/base and the public headers. Closed under nothing: what is not
# written here is not allowed.
NEGOTIATION_CORE = ["runtime/wire", "runtime/topology"]
ALLOWED: dict[str, list[str]] = {
    "runtime/base": [],
    "runtime/include/horovod": [],
    "runtime/crypto": [],
    "runtime/tls": ["runtime/crypto"],
    "runtime/admission": [],
    "runtime/config": [],
    "runtime/loop": [],
    "runtime/wire": [],
    "runtime/topology": [],
    "runtime/negotiation": [*NEGOTIATION_CORE, "runtime/collectives/kernels"],
    "runtime/fusion": ["runtime/wire"],
    "runtime/autotune": [],
    "runtime/transport": ["runtime/transport/*", "runtime/crypto", "runtime/loop", "runtime/tls"],
    "runtime/transport/net": ["runtime/tls"],
    "runtime/transport/auth": ["runtime/transport/net", "runtime/admission", "runtime/crypto", "runtime/loop", "runtime/tls"],
    "runtime/transport/control": ["runtime/transport/net", "runtime/loop"],
    "runtime/transport/data": ["runtime/transport/net", "runtime/transport/auth", "runtime/crypto", "runtime/loop"],
    "runtime/collectives": ["runtime/topology", "runtime/collectives/kernels"],
    "runtime/collectives/kernels": [],
    "runtime/collectives/gloo": ["runtime/collectives", "runtime/collectives/kernels", "runtime/transport/data"],
    "runtime/collectives/cuda": ["runtime/collectives", "runtime/collectives/kernels"],
    "runtime/collectives/shm": ["runtime/collectives", "runtime/collectives/kernels", "runtime/crypto"],
    "runtime/collectives/nccl": ["runtime/collectives", "runtime/collectives/kernels", "runtime/collectives/cuda"],
    "runtime/recorder": [],
    "runtime/engine": [
        *NEGOTIATION_CORE, "runtime/autotune", "runtime/negotiation", "runtime/fusion", "runtime/transport", "runtime/transport/*", "runtime/collectives",
        "runtime/collectives/kernels", "runtime/collectives/cuda", "runtime/collectives/nccl", "runtime/collectives/gloo",
        "runtime/collectives/shm", "runtime/recorder",
        "runtime/config", "runtime/crypto", "runtime/loop", "rendezvous/client",
    ],
    "rendezvous/kv": ["rendezvous/protocol"],
    "rendezvous/protocol": ["runtime/crypto"],
    "rendezvous/server": ["rendezvous/kv", "rendezvous/protocol", "runtime/admission", "runtime/crypto", "runtime/tls"],
    "rendezvous/client": ["rendezvous/protocol", "runtime/crypto", "runtime/tls"],
    "launcher": ["launcher/*", "runtime/config"],
    "launcher/hosts": ["runtime/config"],
    "launcher/binding": [],
    "launcher/environment": ["launcher/hosts", "runtime/config"],
    "launcher/plan": ["launcher/binding", "launcher/environment", "launcher/hosts", "runtime/config"],
    "launcher/cli": [
        "launcher/binding", "launcher/environment", "launcher/hosts", "launcher/plan", "rendezvous/server", "runtime/config", "runtime/crypto",
    ],
    "launcher/protocol": ["launcher/binding", "rendezvous/protocol", "runtime/crypto"],
    "launcher/process": ["runtime/loop"],
    "launcher/elastic": ["launcher/hosts", "rendezvous/protocol", "runtime/config"],
    "launcher/ssh": ["launcher/hosts", "launcher/plan", "launcher/process"],
    "launcher/agent": ["launcher/binding", "launcher/environment", "launcher/fleet", "launcher/hosts", "launcher/process", "launcher/protocol",
                       "rendezvous/protocol", "runtime/config", "runtime/crypto", "runtime/loop"],
    "launcher/network": ["launcher/process", "launcher/ssh", "runtime/loop"],
    "launcher/join": ["launcher/environment", "launcher/hosts", "launcher/plan", "launcher/process", "rendezvous/client", "runtime/admission",
                      "runtime/config", "runtime/crypto", "runtime/loop"],
    "launcher/fleet": ["launcher/join", "launcher/process", "launcher/protocol", "launcher/ssh", "runtime/crypto", "runtime/loop"],
    "launcher/streams": ["launcher/plan", "launcher/process", "runtime/loop"],
    "launcher/inspect": ["launcher/process", "runtime/loop"],
    "launcher/discovery": ["launcher/elastic", "launcher/hosts", "launcher/network", "launcher/process", "runtime/loop"],
    "launcher/doctor": ["launcher/hosts", "launcher/plan", "launcher/process", "runtime/loop"],
    "launcher/job": ["launcher/discovery", "launcher/elastic", "launcher/environment", "launcher/fleet", "launcher/hosts", "launcher/inspect",
                     "launcher/join",
                     "launcher/network", "launcher/plan", "launcher/process", "launcher/protocol", "launcher/ssh", "launcher/streams",
                     "rendezvous/kv", "rendezvous/protocol", "rendezvous/server", "runtime/crypto", "runtime/loop"],
    "starters": ["rendezvous/client", "rendezvous/server", "runtime/config", "runtime/crypto", "runtime/transport/net"],
    "python/src": ["python/src/mxnet", "python/src/xla", "rendezvous/server", "runtime/config", "runtime/crypto", "starters"],
    "python/src/xla": ["python/src"],
    "python/src/mxnet": ["python/src"],
    "python/src/tensorflow": ["python/src", "python/src/xla"],
}

# What launcher and rendezvous share of runtime/: parts that know nothing of ranks. The only arrow the other way is the
# engine's to the rendezvous' client, with which a rank joins.
SHARED = {"runtime/base", "runtime/admission", "runtime/config", "runtime/crypto", "runtime/loop", "runtime/tls"}
ENGINE_TO_RENDEZVOUS = ("runtime/engine", "rendezvous/client")

# Pattern -> folders (or files) that may contain it.
CONFINED = {
    r"\b(secure_)?getenv\s*\(": ["runtime/config/env_reader.cc"],
    r"\bsetenv\s*\(": [],
    r"sleep_for|\busleep\s*\(|\bnanosleep\s*\(|[^_a-z]sleep\s*\(": [],
    # The engine works on tensors through collectives::Memory, whatever memory they are in. What the control tree reduces is bytes of messages.
    r"\bkernels::(reduce|scale|copy|combine|add_dots)\w*\(": ["runtime/collectives", "runtime/negotiation/small_tensor.cc"],
    r"#include <gloo/": ["runtime/transport/data", "runtime/collectives/gloo"],
    r"#include <boost/": ["rendezvous/server", "runtime/transport/net/frame_check.h"],
    r"#include <openssl/": ["runtime/crypto", "runtime/tls"],
    r"#include <spdlog/": ["runtime/base/log.cc"],
    r"#include <hwloc": ["launcher/agent"],
    r"#include <yaml-cpp/": ["launcher/cli"],
    r"#include <nvtx3/": ["runtime/recorder/operation_ranges.cc"],
    r"#include <nlohmann/": ["launcher/doctor", "launcher/job", "runtime/recorder"],
    r"#include <pybind11/": ["python/src"],
}

FAILPOINT_TABLE = "runtime/base/failpoint.h"
PRODUCT = ("runtime", "rendezvous", "launcher", "starters", "python/src")


def product_files() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *PRODUCT],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()
    return [Path(name) for name in listed if name.endswith((".h", ".cc", ".inc")) and (ROOT / name).exists()]


def table_errors() -> list[str]:
    """Whether the table itself has one arrow each way between the parts of the product."""
    errors = []
    for folder, rules in ALLOWED.items():
        part = folder.split("/")[0]
        for rule in rules:
            if part in ("launcher", "rendezvous") and rule.startswith("runtime/") and rule not in SHARED:
                errors.append(f"the table: {folder} may include {rule}, which is not shared")
            if part == "runtime" and not rule.startswith("runtime/") and (folder, rule) != ENGINE_TO_RENDEZVOUS:
                errors.append(f"the table: {folder} may include {rule}, an arrow out of runtime/")
    return errors


def may_include(folder: str, target: str) -> bool:
    if target in (folder, "runtime/include/horovod"):
        return True
    if target == "runtime/base":
        return folder != "runtime/include/horovod"  # the public headers are closed: they stand without ours
    rules = ALLOWED[folder]
    return any(target == rule or (rule.endswith("/*") and target.startswith(rule[:-1])) for rule in rules)


def include_errors(path: Path, text: str) -> list[str]:
    folder = path.parent.as_posix()
    if folder not in ALLOWED:
        return [f"{path}: folder {folder} is not in the table of {Path(__file__).name}"]
    errors = []
    for target in re.findall(r'^#include "([^"]+)"', text, re.MULTILINE):
        target_folder = Path(target).parent.as_posix()
        if target_folder == "horovod":
            target_folder = "runtime/include/horovod"
        elif not (ROOT / target).exists():
            errors.append(f"{path}: includes {target}, which is no path from the top")
            continue
        if not may_include(folder, target_folder):
            errors.append(f"{path}: {folder} may not include {target_folder} ({target})")
    return errors


def confined_errors(path: Path, text: str) -> list[str]:
    errors = []
    for pattern, places in CONFINED.items():
        if any(path.as_posix() == place or path.as_posix().startswith(place + "/") for place in places):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            code = line.split("//")[0]
            if re.search(pattern, code):
                errors.append(f"{path}:{number}: '{code.strip()}' belongs in {places or 'no product code'}")
    return errors


def failpoint_errors(files: list[Path]) -> list[str]:
    """Every row of the table is one place in the code, and the other way round."""
    table = (ROOT / FAILPOINT_TABLE).read_text(encoding="utf-8")
    rows = re.findall(r'\{"([^"]+)", Kind::', table)
    used: list[str] = []
    for path in files:
        if path.as_posix() != FAILPOINT_TABLE:
            text = (ROOT / path).read_text(encoding="utf-8")
            used += re.findall(r'\bHVD_FAILPOINT(?:_RETURN|_CALL|_IO)?\(\s*"([^"]+)"', text)
    errors = [f"failpoint {name} stands {rows.count(name)} times in the table and {used.count(name)} times in the code"
              for name in sorted({*rows, *used}) if (rows.count(name), used.count(name)) != (1, 1)]
    if len(rows) < 50:
        errors.append(f"{FAILPOINT_TABLE} has {len(rows)} failpoints, fewer than 50: was it read at all?")
    return errors


def main() -> int:
    files = product_files()
    errors = table_errors() + failpoint_errors(files)
    for path in files:
        text = (ROOT / path).read_text(encoding="utf-8")
        errors += include_errors(path, text) + confined_errors(path, text)
    print("\n".join(errors))
    print(f"{len(files)} files, {len(errors)} errors")
    return 1 if errors or not files else 0


if __name__ == "__main__":
    sys.exit(main())
