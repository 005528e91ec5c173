"""A time limit ends with its block: nothing is raised in what follows."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from datp_tasks.engine.time_limit import TimeLimit
from datp_tasks.errors import StepTimeout


def in_a_thread(work: Callable[[], object]) -> BaseException | None:
    """What the work raises in a thread that is not the main one."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised[0] if raised else None


def some_bytecodes() -> int:
    return sum(number for number in range(1_000))


def spin_for_ever(limit: TimeLimit) -> None:
    with limit(0.01):
        while True:
            some_bytecodes()


class LateTimer(threading.Timer):
    """A timer that was about to act when it was cancelled."""

    def cancel(self) -> None:
        super().cancel()
        self.function(*self.args, **self.kwargs)


def test_a_timer_that_acts_while_it_is_cancelled_raises_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threading, "Timer", LateTimer)

    def work() -> None:
        with TimeLimit()(60):
            pass
        some_bytecodes()

    assert in_a_thread(work) is None


def test_a_block_after_one_that_took_too_long_is_not_interrupted() -> None:
    def spin() -> None:
        limit = TimeLimit()
        with pytest.raises(StepTimeout):
            spin_for_ever(limit)
        with limit(60):
            some_bytecodes()
        some_bytecodes()

    assert in_a_thread(spin) is None
