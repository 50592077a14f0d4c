"""Which variables travel to ranks, and what a starter's variables say."""

from __future__ import annotations

import re

from horovod import _env

__all__ = ["IGNORE_REGEXES", "get_env_rank_and_size", "is_exportable"]

# They match from the start of a name. horovodrun goes by the same rule: launcher/environment.
IGNORE_REGEXES = {"BASH_FUNC_.*", "OLDPWD", ".*CUDA_VISIBLE_DEVICES", "_HOROVOD_SECRET_KEY"}

_PAIRS = (
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


def is_exportable(v: str) -> bool:
    """Whether the variable named `v` travels from the launcher to ranks."""
    return not any(re.match(pattern, v) for pattern in IGNORE_REGEXES)


def get_env_rank_and_size() -> tuple[int, int]:
    """This process's rank and size by the variables of horovodrun, Open MPI or PMI; (0, 1) without any.

    RuntimeError if one of a pair is set, and the other is not.
    """
    for rank_name, size_name in _PAIRS:
        rank, size = _env.get(rank_name), _env.get(size_name)
        if rank is not None and size is not None:
            return int(rank), int(size)
        if rank is not None or size is not None:
            there, missing = (rank_name, size_name) if size is None else (size_name, rank_name)
            raise RuntimeError(f"{there} is set, and {missing} is not")
    return 0, 1
