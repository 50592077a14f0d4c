"""What a waiting thread does of an operation keeps no other Python thread from running."""

from __future__ import annotations

import ctypes
import mmap
import subprocess
import threading
from pathlib import Path

import pytest
import torch

import horovod.torch as hvd

pytestmark = pytest.mark.two_ranks

BYTES = 1 << 20  # more than is copied at submission, and so little that callers exchange it


@pytest.fixture
def slow_page(tmp_path: Path) -> ctypes.CDLL:
    library = tmp_path / "slow_page.so"
    source = Path(__file__).with_name("slow_page.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, source], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.slow_page_begin.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    return loaded


@pytest.mark.usefixtures("several_ranks", "one_host")  # between hosts a lane copies, which never has the GIL
def test_a_large_tensor_is_copied_without_the_gil(slow_page: ctypes.CDLL) -> None:
    """Another thread lets the copy go on; that it is this thread that copies is asserted."""
    memory = mmap.mmap(-1, BYTES)
    tensor = torch.frombuffer(memory, dtype=torch.float32)
    tensor.fill_(1.0)
    for _ in range(4):  # then it is cached, and has a slot
        hvd.allreduce(tensor, op=hvd.Sum, name="slow page")
    is_over = threading.Event()

    def let_it_go_on() -> None:
        while not slow_page.slow_page_toucher() and not is_over.wait(0.001):
            pass
        slow_page.slow_page_release()

    thread = threading.Thread(target=let_it_go_on)
    thread.start()
    assert slow_page.slow_page_begin(tensor.data_ptr(), BYTES) == 0
    total = hvd.allreduce(tensor, op=hvd.Sum, name="slow page")
    was_let_go = slow_page.slow_page_end()
    is_over.set()
    thread.join()
    assert slow_page.slow_page_toucher() == threading.get_native_id(), "the waiting thread does not copy"
    assert was_let_go, "no other thread has run while it was copied"
    assert torch.equal(total, torch.full_like(total, float(hvd.size())))
