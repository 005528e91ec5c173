"""Books on which several sides take turns, audited after each turn."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from benchmarks.books import Data, check_books, transfers
from benchmarks.rounds import Side
from benchmarks.stack import Stack


class AuditedBooks:
    """Counts what all sides have moved, and audits after each."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._committed = 0
        self._marks = (f"mark{number}" for number in count())

    def audited(self, work: Callable[[str, list[Data]], float]) -> Side:
        def side(wanted: int) -> float:
            per_s = work(next(self._marks), transfers(wanted, seed=self._committed))
            self._committed += wanted
            check_books(self._stack.engine, self._committed)
            return per_s

        return side
