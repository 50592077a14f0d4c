"""Ctrl-C while a framework waits for other ranks: see "Interrupts and exits" in docs/design/tensorflow.md.

Python handles signals between its own instructions. While the main thread is inside TensorFlow or JAX it executes none,
and what it waits for cannot be cancelled. So a thread is notified of the signal and ends our waits with an error; then
the framework returns, and Python raises KeyboardInterrupt.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading

from horovod._common.native import core

# How long the main thread may take to handle the signal itself, which it does unless it is inside the framework.
_PATIENCE_S = 0.2

_TO_KEYBOARD_INTERRUPT = (core.raise_interrupt, signal.default_int_handler)


class InterruptWatch:
    """Ends waits when the main thread gets a SIGINT that is to become KeyboardInterrupt.

    Made on the main thread: Python lets no other one set the wakeup descriptor. A descriptor that was set before still
    gets every signal. Signal handlers of the program are not replaced: they run when the operation has ended, because
    only the program knows what should happen then. close() may be called on any thread, once.
    """

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._closing = False
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, core.raise_interrupt)
        self._before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._watch, name="hvd-interrupt", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, and restores handler and descriptor unless somebody has replaced them since."""
        self._restore_handlers(self._before)
        self._closing = True
        self._writer.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join()
        self._reader.close()
        self._writer.close()

    def close_in_child(self) -> None:
        """In a forked child: closes its copies of the sockets. A shutdown() of them would reach the parent's thread."""
        self._restore_handlers(-1)
        self._reader.close()
        self._writer.close()

    def _restore_handlers(self, wakeup_fd: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # a later signal finds the socket closed, which is harmless
        if signal.getsignal(signal.SIGINT) is core.raise_interrupt:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        found = signal.set_wakeup_fd(-1)
        signal.set_wakeup_fd(wakeup_fd if found == self._writer.fileno() else found)

    def _watch(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are the main thread's
        raised = core.raised_interrupts()
        while signals := self._receive():
            if signal.SIGINT in signals and signal.getsignal(signal.SIGINT) in _TO_KEYBOARD_INTERRUPT:
                if core.raised_interrupts() == raised:  # else Python has raised it already
                    self._end_waits()
                    self._receive(socket.MSG_DONTWAIT)  # the same signal, if its handler was deferred
                raised = core.raised_interrupts()

    def _receive(self, flags: int = 0) -> bytes:
        try:
            signals = self._reader.recv(4096, flags)
        except BlockingIOError:
            return b""
        if self._before >= 0:
            # A full or closed socket loses the signal for its owner, as it would without us.
            with contextlib.suppress(OSError):
                os.write(self._before, signals)
        return signals

    def _end_waits(self) -> None:
        core.ask_main_thread()
        if core.main_thread_answers(_PATIENCE_S):
            return
        core.interrupt_waits()
        # Until the main thread executes Python code again, none of the operations that it starts may wait.
        while not core.main_thread_answers(_PATIENCE_S):
            if self._closing:
                core.allow_waits()
                return
            core.ask_main_thread()
