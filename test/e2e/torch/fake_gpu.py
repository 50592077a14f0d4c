"""The fake CUDA driver's GPUs and the fake NCCL (test/support/fake_gpu) from Python. A GPU runs test/gpu."""

from __future__ import annotations

import ctypes
from typing import Any

import torch


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


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype, _capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class OnGpu:
    """Some float32 in a row on a GPU, as a torch for CUDA shows its tensors to C (`__dlpack_c_exchange_api__`)."""

    def __init__(self, gpu: int, address: int, count: int) -> None:
        self.gpu, self.address, self.shape = gpu, address, (ctypes.c_int64 * 1)(count)

    def is_neg(self) -> bool:
        return False


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(_DLTensor))
def _show(tensor: OnGpu, to: Any) -> int:
    to[0] = _DLTensor(tensor.address, 2, tensor.gpu, 1, 2, 32, 1, ctypes.addressof(tensor.shape), None, 0)
    return 0


class _Table(ctypes.Structure):
    """A DLPackExchangeAPI."""

    _fields_ = [("version", ctypes.c_uint32 * 2), ("others", ctypes.c_void_p * 4), ("show", ctypes.c_void_p)]


_table = _Table((1, 3), (None,) * 4, ctypes.cast(_show, ctypes.c_void_p))
_name = b"dlpack_exchange_api"  # the capsule keeps its address
OnGpu.__dlpack_c_exchange_api__ = _capsule(ctypes.addressof(_table), _name, None)  # type: ignore[attr-defined]


def values_of(handle: Any, gpu: int, count: int) -> list[float]:
    """The result of an operation, which the core has put on that GPU."""
    capsule = handle.output_dlpack()
    result = _DLTensor.from_address(_get_pointer(capsule, b"dltensor"))
    assert (result.device_type, result.device) == (2, gpu)
    return values_at(result.data, count)
