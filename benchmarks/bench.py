"""What every part is given: servers, both sides under comparison, and a place to report to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from benchmarks.celery_chain import Chain
from benchmarks.engine import Engine
from benchmarks.report import Report
from benchmarks.stack import Stack

T = TypeVar("T")


@dataclass
class Bench:
    """One for each part: what it holds ends with the part."""

    stack: Stack
    report: Report
    #: Small numbers: shows that everything works, not how fast it is.
    quick: bool = False
    #: Sizes at which a part takes many minutes.
    long: bool = False

    @cached_property
    def engine(self) -> Engine:
        return Engine(self.stack)

    @cached_property
    def chain(self) -> Chain:
        return Chain(self.stack)

    def choose(self, full: T, quick: T, long: T | None = None) -> T:
        if self.quick:
            return quick
        return long if self.long and long is not None else full

    def close(self) -> None:
        # Only what the part has used was ever made.
        for name in ("engine", "chain"):
            if name in self.__dict__:
                self.__dict__[name].close()
        self.stack.stop_all()
