"""The hop as people see it: a line in the log, Celery's task events, spans, and how busy it is.

The hop itself knows nothing of all this. With events and traces off, a round pays for two looks
at flags; the line in the log is one for a whole vector.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from celery import current_task

from datp_tasks.bells.broker import shown_ids
from datp_tasks.engine.execute import Performer
from datp_tasks.engine.hop import Hop, Pairs
from datp_tasks.engine.outcomes import Broken, Doubt, Ended, Outcome, Unanswered
from datp_tasks.engine.pulse import Load
from datp_tasks.engine.registry import StepType
from datp_tasks.engine.run import Run
from datp_tasks.observe.task_events import TaskEvents
from datp_tasks.observe.tracing import Tracing

if TYPE_CHECKING:
    from opentelemetry.trace import Span

log = logging.getLogger("datp.hop")

FAILED = (Broken, Doubt, Ended, Unanswered)


class HopSpans:
    """The open hop spans of one worker, by transaction."""

    def __init__(self, tracing: Tracing, node: str) -> None:
        self.tracing = tracing
        self._node = node
        self._open: dict[str, Span] = {}

    def begin(self, runs: Sequence[Run]) -> None:
        for run in runs:
            text = run.fields.get("trace")
            if text:
                span = self.tracing.start_hop(
                    text,
                    {
                        "datp.tx_id": run.tx_id,
                        "datp.fence": run.fence,
                        "datp.node": self._node,
                        "datp.group": run.group,
                        "datp.place": run.fields.get("place", ""),
                        "datp.vector": len(runs),
                    },
                )
                if span is not None:
                    self._open[run.tx_id] = span

    def keep(self, runs: Sequence[Run]) -> None:
        """The hops of all others are over."""
        staying = {run.tx_id for run in runs}
        for tx_id in [tx_id for tx_id in self._open if tx_id not in staying]:
            self._open.pop(tx_id).end()

    def step(self, run: Run) -> AbstractContextManager[Span | None]:
        hop = self._open.get(run.tx_id)
        if hop is None:
            return nullcontext()
        return self.tracing.step(
            hop,
            {
                "datp.tx_id": run.tx_id,
                "datp.fence": run.fence,
                "datp.step_type": run.action.step_type,
                "datp.path": run.action.path,
                "datp.kind": run.action.kind,
                "datp.attempt": run.state.attempt,
            },
        )


class TracedPerformer(Performer):
    """Calls steps inside spans; made only where tracing is on."""

    def __init__(self, spans: HopSpans, *parts: Any) -> None:
        super().__init__(*parts)
        self.spans = spans

    def perform(self, run: Run) -> Outcome:
        with self.spans.step(run) as span:
            return self._marked(span, super().perform(run))

    async def perform_async(self, run: Run) -> Outcome:
        with self.spans.step(run) as span:
            return self._marked(span, await super().perform_async(run))

    def _marked(self, span: Span | None, outcome: Outcome) -> Outcome:
        if span is not None:
            span.set_attribute("datp.outcome", type(outcome).__name__.lower())
            if isinstance(outcome, FAILED):
                self.spans.tracing.mark_failed(span, outcome.note)
        return outcome


class WatchedHop(Hop):
    def __init__(self, *, events: TaskEvents | None, spans: HopSpans | None, **engine: Any) -> None:
        super().__init__(**engine)
        self._events = events
        self._spans = spans
        self._round = 0
        self._claims: list[Run] = []
        self._hops = self._transactions = 0
        self._busy_s = 0.0

    def load(self) -> Load:
        return Load(bool(self.in_hand), self._hops, self._transactions, self._busy_s)

    def run(self, step_type: StepType, pairs: Pairs) -> int:
        began_s = time.perf_counter()
        self._round = 0
        try:
            claimed = super().run(step_type, pairs)
        finally:
            if self._spans is not None:
                self._spans.keep([])
            took_s = time.perf_counter() - began_s
            self._busy_s += took_s
        self._hops += 1
        self._transactions += claimed
        if log.isEnabledFor(logging.INFO):
            self._say(step_type, len(pairs), took_s)
        self._claims = []
        return claimed

    def claim(self, step_type: StepType, pairs: Pairs) -> list[Run]:
        runs = self._claims = super().claim(step_type, pairs)
        if self._spans is not None:
            self._spans.begin(runs)
        return runs

    def perform(self, runs: list[Run]) -> list[Run]:
        self._round += 1
        if self._spans is not None:
            self._spans.keep(runs)
        if not self._events:
            return super().perform(runs)
        return self._perform_with_events(runs, self._events)

    def _say(self, step_type: StepType, rung: int, took_s: float) -> None:
        """One line for all; one alone is named, and at DEBUG every transition has its line."""
        claims = self._claims
        about: dict[str, Any] = {"event": "hop.done", "stepType": step_type.name}
        about |= {"rung": rung, "claimed": len(claims), "ms": round(took_s * 1_000, 3)}
        if len(claims) == 1:
            about |= {"tx": claims[0].tx_id, "fence": claims[0].fence}
        shown = claims[0].tx_id if len(claims) == 1 else f"{len(claims)} of {rung} transactions"
        log.info("hop from %s with %s: %.1f ms", step_type.name, shown, took_s * 1e3, extra=about)

    def _perform_with_events(self, runs: list[Run], events: TaskEvents) -> list[Run]:
        """The events that a message for each step type would have made.

        The first round is the task of the message that came, whose events Celery sends; only
        what broke in it is shown apart, because to Celery the hop did well.
        """
        parent = str(current_task.request.id or "") if current_task else ""
        kinds: dict[str, list[Run]] = {}
        for run in runs:
            kinds.setdefault(self._registry.get(run.action.step_type).task_name, []).append(run)

        def received(task: str) -> str:
            members = kinds[task]
            ids = shown_ids(run.tx_id for run in members)
            retries = max(run.state.errors for run in members)
            return events.received(task, ids, parent=parent, retries=retries)

        shown = {} if self._round == 1 else {task: received(task) for task in kinds}
        began_s = time.perf_counter()
        performed = super().perform(runs)
        took_s = time.perf_counter() - began_s
        for task, members in kinds.items():
            failed = [run for run in members if isinstance(run.outcome, FAILED)]
            if failed:
                events.failed(shown.get(task) or received(task), _why(failed, len(members)))
            elif task in shown:
                events.succeeded(shown[task], str(len(members)), took_s)
        return performed


def _why(failed: Sequence[Run], of: int) -> str:
    first = failed[0]
    note = getattr(first.outcome, "note", "")
    return f"{len(failed)} of {of} transactions, first {first.tx_id}: {note}"
