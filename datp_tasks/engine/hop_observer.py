"""The hop as people see it: a line in the log, Celery's task events, spans, and how busy it is.

With events and traces off, a round pays for two looks at flags; the line in the log is one for a
whole vector.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from celery import current_task

from datp_tasks.bells.broker import shown_ids
from datp_tasks.engine.heartbeat import Load
from datp_tasks.engine.observer import Observer
from datp_tasks.engine.outcomes import Broken, Doubt, Ended, Outcome, Unanswered
from datp_tasks.engine.registry import Registry, StepType
from datp_tasks.engine.run import Run
from datp_tasks.live.event_counts import PIPELINE, EventCounts
from datp_tasks.model.outcome import Call
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


class HopObserver(Observer):
    def __init__(
        self,
        registry: Registry,
        events: TaskEvents | None,
        spans: HopSpans | None,
        counts: EventCounts | None = None,
    ) -> None:
        self._counts = counts
        self._registry = registry
        self._events = events
        self._spans = spans
        self.traces = spans is not None
        self._began_s = self._round_began_s = 0.0
        self._round = 0
        self._claims: Sequence[Run] = ()
        #: Events of the round that runs: the id that was shown, and its transactions, by task.
        self._shown: dict[str, tuple[str, list[Run]]] = {}
        self._hops = self._transactions = 0
        self._busy_s = 0.0

    def load(self) -> Load:
        return Load(bool(self._began_s), self._hops, self._transactions, self._busy_s)

    def hop_began(self, step_type: StepType, rung: int) -> None:
        self._began_s = time.perf_counter()
        self._round = 0
        self._claims = ()

    def claimed(self, runs: Sequence[Run]) -> None:
        self._claims = runs
        if self._counts is not None:
            self._count_pipelines((run, run.state.frame.pipeline) for run in runs if _is_new(run))
        if self._spans is not None:
            self._spans.begin(runs)

    def hop_ended(self, step_type: StepType, rung: int) -> None:
        took_s = time.perf_counter() - self._began_s
        if self._spans is not None:
            self._spans.keep([])
        self._began_s = 0.0
        self._busy_s += took_s
        self._hops += 1
        self._transactions += len(self._claims)
        if log.isEnabledFor(logging.INFO):
            self._log(step_type, rung, took_s)
        self._claims = ()

    def _log(self, step_type: StepType, rung: int, took_s: float) -> None:
        """One line for all; one alone is named, and at DEBUG every transition has its line."""
        claims = self._claims
        about: dict[str, Any] = {"event": "hop.done", "stepType": step_type.name}
        about |= {"rung": rung, "claimed": len(claims), "ms": round(took_s * 1_000, 3)}
        if len(claims) == 1:
            about |= {"tx": claims[0].tx_id, "fence": claims[0].fence}
        shown = claims[0].tx_id if len(claims) == 1 else f"{len(claims)} of {rung} transactions"
        log.info("hop from %s with %s: %.1f ms", step_type.name, shown, took_s * 1e3, extra=about)

    # Spans.

    def step(self, run: Run) -> AbstractContextManager[Any]:
        return self._spans.step(run) if self._spans else nullcontext()

    def step_ended(self, span: Any, outcome: Outcome) -> None:
        if span is not None and self._spans is not None:
            span.set_attribute("datp.outcome", type(outcome).__name__.lower())
            if isinstance(outcome, FAILED):
                self._spans.tracing.mark_failed(span, outcome.note)

    # Events: those that a message for each step type would have made.

    def round_began(self, runs: Sequence[Run]) -> None:
        self._round += 1
        if self._spans is not None and self._round > 1:
            self._spans.keep(runs)
        if not self._events:
            return
        kinds: dict[str, list[Run]] = {}
        for run in runs:
            kinds.setdefault(self._registry.get(run.action.step_type).task_name, []).append(run)
        # The first round is the task of the message that came, whose events Celery sends.
        self._shown = {
            task: ("" if self._round == 1 else self._received(task, members), members)
            for task, members in kinds.items()
        }
        self._round_began_s = time.perf_counter()

    def _count_pipelines(self, begun: Iterable[tuple[Run, str]]) -> None:
        assert self._counts is not None
        found = Counter(
            (run.group, pipeline, run.fields.get("owner", "")) for run, pipeline in begun
        )
        for label, times in found.items():
            self._counts.add(PIPELINE, *label, times=times)

    def round_ended(self, runs: Sequence[Run]) -> None:
        if self._counts is not None:
            self._count_pipelines(
                (run, run.outcome.pipeline) for run in runs if type(run.outcome) is Call
            )
        if not self._events:
            return
        took_s = time.perf_counter() - self._round_began_s
        shown, self._shown = self._shown, {}
        for task, (event_id, members) in shown.items():
            failed = [run for run in members if isinstance(run.outcome, FAILED)]
            if failed:
                # Also in the first round: to Celery the hop did well.
                told = event_id or self._received(task, members)
                self._events.failed(told, _why(failed, len(members)))
            elif event_id:
                self._events.succeeded(event_id, str(len(members)), took_s)

    def _received(self, task: str, members: Sequence[Run]) -> str:
        assert self._events is not None
        parent = str(current_task.request.id or "") if current_task else ""
        ids = shown_ids(run.tx_id for run in members)
        retries = max(run.state.errors for run in members)
        return self._events.received(task, ids, parent=parent, retries=retries)


def _is_new(run: Run) -> bool:
    """Neither a worker before nor an earlier hop has begun it."""
    stack = run.state.stack
    is_first = len(stack) == 1 and stack[0].index == 0
    return is_first and "begun" not in run.fields and not run.crashed


def _why(failed: Sequence[Run], of: int) -> str:
    first = failed[0]
    note = getattr(first.outcome, "note", "")
    return f"{len(failed)} of {of} transactions, first {first.tx_id}: {note}"
