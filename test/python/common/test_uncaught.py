"""What other ranks are told of an uncaught exception, and when."""

from __future__ import annotations

import re
import sys
from typing import Any

import pytest


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """Stands for the program's own excepthook; what it printed."""
    printed: list[BaseException] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: printed.append(error))
    return printed


def test_an_uncaught_exception_is_printed_as_before_and_announced(hook: list[BaseException], fake: Any) -> None:
    error = KeyError("oops")
    sys.excepthook(KeyError, error, None)
    assert hook == [error]
    assert fake.core.announced == ["uncaught exception KeyError: 'oops'"]


def test_it_is_announced_even_when_printing_fails(monkeypatch: pytest.MonkeyPatch, fake_uninitialized: Any) -> None:
    def broken(kind: Any, error: Any, trace: Any) -> None:
        raise OSError("stderr is gone")

    monkeypatch.setattr(sys, "excepthook", broken)
    fake_uninitialized.hvd.init()
    with pytest.raises(OSError, match="stderr is gone"):
        sys.excepthook(ValueError, ValueError("x"), None)
    assert fake_uninitialized.core.announced == ["uncaught exception ValueError: x"]


def test_the_hook_is_installed_once(hook: list[BaseException], fake: Any) -> None:
    installed = sys.excepthook
    fake.hvd.init()
    fake.hvd.shutdown()
    fake.hvd.init()
    assert sys.excepthook is installed


@pytest.mark.parametrize(("error", "told"), [(KeyboardInterrupt(), "KeyboardInterrupt"), (ValueError("x" * 900), None)])
def test_what_is_told_is_short(hook: list[BaseException], fake: Any, error: BaseException, told: str | None) -> None:
    sys.excepthook(type(error), error, None)
    assert len(fake.core.announced[0]) < 600
    if told:
        assert fake.core.announced == [f"uncaught exception {told}"]


def test_of_a_long_text_both_ends_are_told(hook: list[BaseException], fake: Any) -> None:
    """TensorFlow's errors begin with the place and end with the reason."""
    error = ValueError("the place" + "x" * 900 + "the reason")
    sys.excepthook(ValueError, error, None)
    assert re.fullmatch("uncaught exception ValueError: the placex+ ... x+the reason", fake.core.announced[0])


def test_at_a_prompt_an_exception_ends_nothing(
    hook: list[BaseException], fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    sys.excepthook(KeyError, KeyError("oops"), None)
    assert fake.core.announced == []


def test_at_exit_the_last_exception_counts(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program with an excepthook of its own, installed after ours."""
    basics = fake.hvd.mpi_ops._basics
    monkeypatch.setattr(sys, "last_value", None, raising=False)
    basics._shutdown_at_exit()
    assert fake.core.announced == []
    fake.hvd.init()
    monkeypatch.setattr(sys, "last_value", RuntimeError("late"), raising=False)
    basics._shutdown_at_exit()
    assert fake.core.announced == ["uncaught exception RuntimeError: late"]


def test_the_echo_of_another_ranks_exception_is_one_line(
    hook: list[BaseException], fake: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def raised(text: str) -> BaseException:
        try:
            raise fake.hvd.HorovodInternalError(text)
        except fake.hvd.HorovodInternalError as error:
            return error

    echo = raised("node x: rank 3 is lost: uncaught exception KeyError: 'a'")
    sys.excepthook(type(echo), echo, echo.__traceback__)
    assert hook == []
    printed = capsys.readouterr().err
    where = rf"stopped at {__file__}:\d+, in raised: HorovodInternalError: "
    assert re.fullmatch(where + r"rank 3 is lost: uncaught exception KeyError: 'a'\n", printed), printed
    gone = raised("hvd.init(): rendezvous a:1 /v1/join: this process may not go on: its slot was removed: host b left")
    sys.excepthook(type(gone), gone, gone.__traceback__)
    assert hook == []
    printed = capsys.readouterr().err
    assert re.fullmatch(where + r"its slot was removed: host b left\n", printed), printed
    monkeypatch.setenv("HOROVOD_LOG_LEVEL", "DEBUG")
    sys.excepthook(type(echo), echo, echo.__traceback__)
    monkeypatch.delenv("HOROVOD_LOG_LEVEL")
    other = raised("rank 3 is lost: its process ended")
    sys.excepthook(type(other), other, other.__traceback__)
    assert hook == [echo, other]
