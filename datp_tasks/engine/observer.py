"""Where others can look on while the engine works: logs, Celery's task events, spans.

The engine calls an observer and does nothing with what it answers. This one sees nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from datp_tasks.engine.outcomes import Outcome
from datp_tasks.engine.registry import StepType
from datp_tasks.engine.run import Run


class Observer:
    #: Whether `step` wants to be called for every step: it costs time.
    traces = False

    def hop_began(self, step_type: StepType, rung: int) -> None:
        """A bell for so many transactions has come."""

    def claimed(self, runs: Sequence[Run]) -> None:
        """These are this worker's now."""

    def round_began(self, runs: Sequence[Run]) -> None:
        """The steps of these are about to be called."""

    def round_ended(self, runs: Sequence[Run]) -> None:
        """The steps of these were called and have outcomes."""

    def step(self, run: Run) -> AbstractContextManager[Any]:
        """Entered around the call of one step."""
        return nullcontext()

    def step_ended(self, span: Any, outcome: Outcome) -> None:
        """What came of it; `span` is what `step` gave."""

    def hop_ended(self, step_type: StepType, rung: int) -> None:
        """All transactions have left, or the hop broke off."""
