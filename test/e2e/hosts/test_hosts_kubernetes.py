"""The example for Kubernetes: its schema, and its pods' start, with hosts made of namespaces for pods."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

from hosts_job import ROOT
from netns import Network

sys.path.append(str(Path(__file__).parent.parent))

from test_other_starters import RANK, told

EXAMPLES = ROOT / "examples" / "kubernetes"
MANIFEST = EXAMPLES / "job.yaml"
VERSION = "1.32"

# The fields of v2beta1 beside the pods' templates, from the operator's types of version 0.8.
REPLICAS = {"replicas": int, "restartPolicy": str, "template": dict}
MPI_JOB = {
    "slotsPerWorker": int,
    "runLauncherAsWorker": bool,
    "runPolicy": {
        "cleanPodPolicy": str, "ttlSecondsAfterFinished": int, "activeDeadlineSeconds": int, "backoffLimit": int,
        "schedulingPolicy": dict, "suspend": bool, "managedBy": str,
    },
    "mpiReplicaSpecs": {"Launcher": REPLICAS, "Worker": REPLICAS},
    "sshAuthMountPath": str,
    "launcherCreationPolicy": str,
    "mpiImplementation": str,
}  # fmt: skip

# With its first process all of it ends.
CONTAINER = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")

# What a kubelet does before the container's command: volumes, and the names of a cluster's name server.
POD = """
mount -t tmpfs none /run
mkdir -p /run/secrets/horovod /run/horovod
cp "$1" /run/secrets/horovod/token
chmod 444 /run/secrets/horovod/token
mount --bind "$2" /etc/hosts
exec sh -ec "$3"
"""


def test_the_manifest_is_what_kubernetes_takes() -> None:
    import kubernetes_validate
    import yaml

    documents = list(yaml.safe_load_all(MANIFEST.read_text()))
    assert [one["kind"] for one in documents] == ["Service", "Job"]
    for one in documents:
        kubernetes_validate.validate(one, VERSION, strict=True)
    service, job = documents
    pod = job["spec"]["template"]["spec"]
    assert pod["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    mounts = {mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
    assert mounts == {volume["name"] for volume in pod["volumes"]}


def check_fields(value: object, fields: object, at: str) -> None:
    if isinstance(fields, type):
        assert isinstance(value, fields), f"{at}: {value!r}"
        return
    assert isinstance(value, dict), at
    assert isinstance(fields, dict)
    for name, part in value.items():
        assert name in fields, f"{at}.{name} is not a field of an MPIJob"
        check_fields(part, fields[name], f"{at}.{name}")


def test_the_manifest_is_what_the_mpi_operator_takes() -> None:
    import kubernetes_validate
    import yaml

    job = yaml.safe_load((EXAMPLES / "mpijob.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v2beta1", "MPIJob")
    check_fields(job["spec"], MPI_JOB, "spec")
    for name, replicas in job["spec"]["mpiReplicaSpecs"].items():
        # The operator makes a pod of it, which is what Kubernetes judges; its own restartPolicy stands beside the template.
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name.lower()}, "spec": replicas["template"]["spec"]}
        kubernetes_validate.validate(pod, VERSION, strict=True)


def pods_script_and_variables() -> tuple[str, dict[str, str]]:
    """Read without a parser of YAML, which not every machine has."""
    text = MANIFEST.read_text()
    script = re.search(r"args:\n +- \|\n(.*?)\n +env:\n", text, re.DOTALL)
    assert script is not None
    return textwrap.dedent(script[1]), dict(re.findall(r'- \{name: (HOROVOD_\w+), value: "?([^"}]*)"?\}', text))


def test_the_ranks_of_the_pods_find_rank_0_by_its_name(network: Network, tmp_path: Path, horovodrun_path: str) -> None:
    script, variables = pods_script_and_variables()
    assert variables["HOROVOD_SIZE"] == "2"
    a, b = network.hosts["a"], network.hosts["b"]
    (tmp_path / "out").mkdir()
    (tmp_path / "train.py").write_text("import sys; sys.argv.append('out')\n" + RANK)
    (tmp_path / "token").write_text(os.urandom(32).hex() + "\n")
    (tmp_path / "hosts").write_text(f"127.0.0.1 localhost\n{a.address} train-0.train\n{b.address} train-1.train\n")
    path = f"{Path(horovodrun_path).parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    volumes = [str(tmp_path / "token"), str(tmp_path / "hosts")]
    # The last rank's pod is first, and looks for a rank 0 that is not there yet.
    pods = [
        subprocess.Popen(
            host.enter(*CONTAINER, "env", "-C", str(tmp_path), "sh", "-ec", POD, "sh", *volumes, script),
            env={**os.environ, **variables, "PATH": path, "JOB_COMPLETION_INDEX": index, "HOROVOD_START_TIMEOUT": "60"},
            stderr=subprocess.PIPE, text=True,
        )
        for index, host in (("1", b), ("0", a))
    ]
    for pod in pods:
        _, err = pod.communicate(timeout=90)
        assert pod.returncode == 0, err
    assert told(tmp_path / "out") == dict.fromkeys((0, 1), "2 0 1 3.0 3.0")
