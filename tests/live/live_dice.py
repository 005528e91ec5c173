"""Choices for the state machine: what happens next, and what each operation needs for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from random import Random
from typing import TypeVar

from datp_tasks.model.state import (
    BEGIN,
    CLOSE,
    CRASH,
    UNDONE,
    Delta,
    State,
    apply,
    called,
    decided,
    done,
    ending,
    erred,
    passed,
    returned,
    slept,
)
from datp_tasks.model.status import Status
from tests.support.live_states import NODES

T = TypeVar("T")

STACK_MAX = 3


class Dice:
    """Chooses what an operation needs. The same seed chooses the same."""

    def __init__(self, seed: str) -> None:
        self._random = Random(seed)

    def weighted(self, weights: Mapping[str, int]) -> str:
        return self._random.choices(list(weights), list(weights.values()))[0]

    def one_of(self, those: Sequence[T]) -> T:
        return self._random.choice(those)

    def likely(self, those: Sequence[T], is_likely: Callable[[T], bool]) -> T:
        """Three times in four one of those that something can be done with, if there are any."""
        good = [each for each in those if is_likely(each)]
        return self.one_of(good if good and self._random.random() < 0.75 else those)

    def yes(self) -> bool:
        return self._random.random() < 0.5

    def node(self) -> str:
        return self.one_of(NODES)

    def switch(self) -> str:
        return self.one_of(["kyc", "limit", "third"])

    def deltas(self, state: State, *, may_begin: bool = True) -> tuple[Delta, ...]:
        """Up to two that can happen to this state, one after the other."""
        changed, chosen = deepcopy(state), []
        for _ in range(self.one_of([0, 1, 1, 2])):
            delta = self.one_of(_possible(changed, self._random.randrange(1_000), may_begin))
            # As if it had come from outside: nothing is shared with the copy.
            chosen.append(delta if delta is BEGIN else deepcopy(delta))
            apply(changed, delta)
        return tuple(chosen)


def _possible(state: State, number: int, may_begin: bool) -> list[Delta]:
    data = {
        "n": number,
        "big": 9007199254740993,
        "money": "0.10",
        "text": "é\n@1 0 0\u2028",
        "l": [],
    }
    found = [CLOSE, CRASH, slept(1.5, "kyc"), erred("a\nb", 1, still_open=bool(number % 2))]
    found += [BEGIN] if may_begin else []
    found.append(decided("done", "why\\n", data))
    if state.ending is None:
        found += [done(data, undoable=bool(number % 2)), passed(undoable=bool(number % 3))]
        found.append(ending(Status.FAILED, "no", data, rollback=True, undo_current=number % 2 == 0))
        found += [called("child", "v2", data)] if len(state.stack) < STACK_MAX else []
        found += [returned()] if len(state.stack) > 1 else []
    elif state.undo:
        found.append(UNDONE)
    return found
