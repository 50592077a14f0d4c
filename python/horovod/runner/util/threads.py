"""Threads that call a function now, when an event is set, or for each of many arguments."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

__all__ = ["execute_function_multithreaded", "in_thread", "on_event"]


def in_thread(
    target: Callable[..., Any],
    args: tuple[Any, ...] = (),
    name: str | None = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Starts a thread, called `name`, that calls `target(*args)`, and returns it.

    `daemon`: the process does not wait for it. `silent`: an exception of the target is not printed. ValueError if
    `args` is no tuple.
    """
    if not isinstance(args, tuple):
        raise ValueError(f"args is {args!r}, expected a tuple; of one value: (value,)")

    def call() -> None:
        try:
            target(*args)
        except BaseException:
            if not silent:
                traceback.print_exc()

    thread = threading.Thread(target=call, name=name, daemon=daemon)
    thread.start()
    return thread


def on_event(
    event: threading.Event | None,
    func: Callable[..., Any],
    args: tuple[Any, ...] = (),
    stop: threading.Event | None = None,
    check_stop_interval_s: float = 1.0,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Starts a thread that calls `func(*args)` once `event` is set, or ends without it once `stop` is set.

    It looks at `stop` every `check_stop_interval_s` seconds. ValueError: no event; args that are no tuple; no `stop`
    for a thread that is no daemon, which the process would wait for. `daemon`, `silent`: see in_thread.
    """
    if event is None:
        raise ValueError("event is None, expected a threading.Event")
    if not isinstance(args, tuple):
        raise ValueError(f"args is {args!r}, expected a tuple; of one value: (value,)")
    if stop is None and not daemon:
        raise ValueError("stop is None, expected a threading.Event for a thread that is no daemon")

    def wait_and_call() -> None:
        interval = None if stop is None else check_stop_interval_s
        while not event.wait(interval):
            if stop is not None and stop.is_set():
                return
        func(*args)

    return in_thread(wait_and_call, daemon=daemon, silent=silent)


def execute_function_multithreaded(
    fn: Callable[..., Any],
    args_list: Sequence[Sequence[Any]],
    block_until_all_done: bool = True,
    max_concurrent_executions: int = 1000,
) -> dict[int, Any]:
    """Calls `fn(*args)` for each of `args_list`, at most `max_concurrent_executions` at a time, in threads.

    Returns the results by their index in `args_list`; without `block_until_all_done` those that are there when all
    calls have been handed to threads. The first exception is raised.
    """
    if not args_list:
        return {}
    pool = ThreadPoolExecutor(max_workers=min(max_concurrent_executions, len(args_list)))
    try:
        calls = [pool.submit(fn, *args) for args in args_list]
        return {index: call.result() for index, call in enumerate(calls) if block_until_all_done or call.done()}
    finally:
        pool.shutdown(wait=block_until_all_done)
