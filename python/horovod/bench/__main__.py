"""`python -m horovod.bench gpu`; see horovod.bench.gpu."""

from __future__ import annotations

import sys

from horovod.bench import gpu


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["gpu"]:
        return gpu.main(arguments[1:])
    given = f"not {arguments[0]!r}" if arguments else "as the first argument"
    print(f"horovod.bench: expected gpu, {given}: python -m horovod.bench gpu --help", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
