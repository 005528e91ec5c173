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
    stack: Stack
    report: Report
    #: Small numbers: shows that everything works, not how fast it is.
    quick: bool = False

    @cached_property
    def engine(self) -> Engine:
        return Engine(self.stack)

    @cached_property
    def chain(self) -> Chain:
        return Chain(self.stack)

    def choose(self, full: T, quick: T) -> T:
        return quick if self.quick else full
