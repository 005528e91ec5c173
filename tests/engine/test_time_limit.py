"""A time limit ends with its block: nothing is raised in what follows."""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from datp_tasks.engine import time_limit
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


class Dropped:
    """Something that a callback of a weak reference tells of."""


def callback_beyond_the_limit(_: object) -> None:
    """No exception gets out of here."""
    until_s = time.monotonic() + 0.1
    while time.monotonic() < until_s:
        some_bytecodes()


def lose_the_first(seconds: float) -> None:
    with TimeLimit()(0.02):
        dropped = Dropped()
        reference = weakref.ref(dropped, callback_beyond_the_limit)
        del dropped
        assert reference() is None
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            some_bytecodes()


def test_a_limit_that_passes_in_a_callback_of_a_weak_reference_counts_after_it() -> None:
    with pytest.raises(StepTimeout):
        lose_the_first(1.0)
    assert isinstance(in_a_thread(lambda: lose_the_first(1.0)), StepTimeout)


def test_a_block_that_ends_in_such_a_callback_raises_nothing_later() -> None:
    def work() -> None:
        lose_the_first(0.0)
        until_s = time.monotonic() + 0.05
        while time.monotonic() < until_s:
            some_bytecodes()

    work()
    assert in_a_thread(work) is None


def test_a_hook_that_replaced_ours_is_replaced_and_may_call_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", heard.append)
    time_limit._Losses.install()
    ours = sys.unraisablehook
    monkeypatch.setattr(sys, "unraisablehook", lambda told: ours(told))
    time_limit._Losses.install()
    assert isinstance(sys.unraisablehook, time_limit._Losses)
    told: Any = SimpleNamespace(exc_type=ValueError)
    sys.unraisablehook(told)
    assert heard == [told]


def test_a_timeout_that_is_lost_while_its_block_ends_blocks_nothing() -> None:
    def lose() -> None:
        injection = time_limit._Injection(60)
        injection._timer.cancel()
        with injection._lock:
            injection._start_again()
        injection.end()

    thread = threading.Thread(target=lose, daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive()
