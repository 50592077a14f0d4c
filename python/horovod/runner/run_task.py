"""The program of a rank of horovod.run(): main() calls the function that comes on the standard input.

Started by horovodrun alone, with --results-fd; see horovod._function_job for what travels.
"""

from __future__ import annotations

import os
import stat
import sys

from horovod._function_job import _message

_RESULT_FD = 4  # launcher/protocol/messages.h: kResultFd


def _take_result_pipe() -> int:
    """The pipe for the report, which programs that the function starts do not inherit."""
    try:
        is_pipe = stat.S_ISFIFO(os.fstat(_RESULT_FD).st_mode)
    except OSError:
        is_pipe = False
    if not is_pipe:
        sys.exit("horovod.runner.run_task is the program that horovod.run() starts on every rank; call horovod.run()")
    os.set_inheritable(_RESULT_FD, False)
    return _RESULT_FD


def _read_task() -> bytes:
    """The task; the standard input is empty after that."""
    with os.fdopen(os.dup(0), "rb") as stdin:
        size = int.from_bytes(_message.read_exactly(stdin, _message.SIZE_BYTES), "little")
        if size > _message.LARGEST_TASK:
            raise ValueError(f"a task of {size} bytes, at most {_message.LARGEST_TASK} are sent")
        payload = _message.read_exactly(stdin, size)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return payload


def main() -> None:
    result_fd = _take_result_pipe()
    try:
        task = _message.load_task(_read_task())
        try:
            value = task.func(*task.args, **task.kwargs)
        except SystemExit as leaving:
            if leaving.code not in (None, 0):
                raise
            value = None
        report = _message.dump_report(_message.Report(value))
    except BaseException as error:
        # First the report: what is raised here ends the other ranks too, and theirs are to come later.
        _message.write_all(result_fd, _message.with_size(_message.dump_failure(error)))
        raise
    _message.write_all(result_fd, _message.with_size(report))
    os.close(result_fd)


if __name__ == "__main__":
    main()
