"""A time limit ends with its block: nothing is raised in what follows."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable

import pytest

from datp_tasks.engine.time_limit import TimeLimit
from datp_tasks.errors import StepTimeout

GRACE_S = 10.0
GIVE_UP_S = 3.0


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
        with TimeLimit(GRACE_S)(60):
            pass
        some_bytecodes()

    assert in_a_thread(work) is None


def test_a_block_after_one_that_took_too_long_is_not_interrupted() -> None:
    def spin() -> None:
        limit = TimeLimit(GRACE_S)
        with pytest.raises(StepTimeout):
            spin_for_ever(limit)
        with limit(60):
            some_bytecodes()
        some_bytecodes()

    assert in_a_thread(spin) is None


class Garbage:
    """Something whose end is told to a callback; what that raises is printed and lost."""


def lose_the_first_timeout(limit: TimeLimit, lost: list[float]) -> None:
    """A block that takes too long, and meets the alarm in a weakref callback."""

    def end_of_garbage(_: object) -> None:
        while not lost:
            try:
                some_bytecodes()
            except StepTimeout:
                lost.append(time.monotonic())
                raise

    ends_s = time.monotonic() + GIVE_UP_S
    garbage = Garbage()
    reference = weakref.ref(garbage, end_of_garbage)
    with limit(0.02):
        del garbage
        while time.monotonic() < ends_s:
            some_bytecodes()
    assert reference


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("where", ["main thread", "another thread"])
def test_a_timeout_that_was_lost_in_a_callback_comes_again(where: str) -> None:
    lost: list[float] = []

    def work() -> None:
        limit = TimeLimit(grace_s=0.1)
        with pytest.raises(StepTimeout):
            lose_the_first_timeout(limit, lost)
        limit.disarm()

    if where == "main thread":
        work()
    else:
        assert in_a_thread(work) is None
    assert len(lost) == 1


def test_a_step_that_cleans_up_after_its_time_limit_is_left_alone_for_a_while() -> None:
    limit, cleaned = TimeLimit(grace_s=1.0), []

    def step() -> None:
        with limit(0.01):
            try:
                while True:
                    some_bytecodes()
            finally:
                time.sleep(0.1)
                cleaned.append(True)

    with pytest.raises(StepTimeout):
        step()
    assert cleaned == [True]


def test_after_a_block_that_was_cut_off_the_alarm_does_not_come_again() -> None:
    limit = TimeLimit(grace_s=0.04)
    with pytest.raises(StepTimeout):
        spin_for_ever(limit)
    time.sleep(0.05)
    with limit(60):
        time.sleep(0.05)
    limit.disarm()


def test_an_alarm_that_comes_before_its_block_begins_does_not_come_again() -> None:
    limit = TimeLimit(grace_s=0.04)
    with pytest.raises(StepTimeout), limit(1e-6):
        time.sleep(1)
    time.sleep(0.05)
    limit.disarm()
