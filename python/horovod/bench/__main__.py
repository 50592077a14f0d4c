"""`python -m horovod.bench gpu` and `network`; see horovod.bench.gpu and horovod.bench.network."""

from __future__ import annotations

import sys

from horovod.bench import gpu, network

_PROGRAMS = {"gpu": gpu.main, "network": network.main}


def main(arguments: list[str]) -> int:
    if arguments and arguments[0] in _PROGRAMS:
        return _PROGRAMS[arguments[0]](arguments[1:])
    given = f"not {arguments[0]!r}" if arguments else "as the first argument"
    print(f"horovod.bench: expected gpu or network, {given}: python -m horovod.bench gpu --help", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
