"""The fake CUDA driver's GPUs and the fake NCCL (test/support/fake_gpu) from Python. A GPU runs test/gpu."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent.parent.parent


def build(folder: Path, name: str, parts: str, *flags: str) -> str:
    """Compiled as one file, as CMake does it, which takes a fourth of the time."""
    library = folder / f"lib{name}.so"
    subprocess.run(
        ["c++", "-std=c++20", "-shared", "-fPIC", "-fvisibility=hidden", "-pthread", f"-I{ROOT}", f"-I{ROOT}/runtime/include",
         "-o", library, "-x", "c++", "-", "-x", "none", *flags],
        input="".join(f'#include "test/support/fake_gpu/fake_{part}.cc"\n' for part in parts.split()),
        text=True, check=True, timeout=240,
    )  # fmt: skip
    return str(library)


def build_driver(folder: Path) -> str:
    return build(folder, "fake_cuda", "driver driver_memory machine")


def build_nccl(folder: Path) -> str:
    """Finds the driver in the same folder."""
    flags = (f"-L{folder}", "-lfake_cuda", f"-Wl,-rpath,{folder}")
    return build(folder, "fake_nccl", "agreement communicator group nccl nccl_controls nccl_members", *flags)


def load_driver(file: str) -> Any:
    fake = ctypes.CDLL(file)
    for name in ("fake_cuda_memory", "fake_cuda_stream"):
        getattr(fake, name).restype = ctypes.c_void_p
    fake.fake_cuda_memory.argtypes = [ctypes.c_int, ctypes.c_size_t]
    fake.fake_cuda_breaches.restype = ctypes.c_char_p
    for name in ("fake_cuda_synchronize", "fake_cuda_end_stream", "fake_cuda_hold"):
        getattr(fake, name).argtypes = [ctypes.c_void_p]
    fake.fake_cuda_set_capturing.argtypes = [ctypes.c_void_p, ctypes.c_int]
    return fake


def load_nccl(file: str) -> Any:
    fake = ctypes.CDLL(file)
    fake.fake_nccl_breaches.restype = ctypes.c_char_p
    return fake


def put(fake: Any, gpu: int, values: torch.Tensor) -> int:
    """The address of a copy on that GPU."""
    address = fake.fake_cuda_memory(gpu, values.nbytes)
    ctypes.memmove(address, values.data_ptr(), values.nbytes)
    return int(address)


def values_at(address: int, count: int, dtype: torch.dtype = torch.float32) -> list[float]:
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return list(torch.frombuffer(memory, dtype=dtype).tolist())


class _Managed(ctypes.Structure):
    """The beginning of a DLManagedTensor."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device", ctypes.c_int32)]


_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def values_of(handle: Any, gpu: int, count: int) -> list[float]:
    """The result of an operation, which the core has put on that GPU."""
    capsule = handle.output_dlpack()
    result = _Managed.from_address(_get_pointer(capsule, b"dltensor"))
    assert (result.device_type, result.device) == (2, gpu)
    return values_at(result.data, count)
