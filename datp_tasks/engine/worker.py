"""A worker: one thread's engine, put together, with a node of its own."""

from __future__ import annotations

import json
import random

from datp_tasks.archive.alerts import Alerts
from datp_tasks.archive.begun import BegunSteps
from datp_tasks.archive.record import Record
from datp_tasks.bells.costs import CostBook
from datp_tasks.bells.ringer import Ringer
from datp_tasks.clock import Clock
from datp_tasks.engine.commit import Settler
from datp_tasks.engine.context import SwitchValue
from datp_tasks.engine.decide import Digester, Pipelines
from datp_tasks.engine.execute import Performer
from datp_tasks.engine.late_success import LateDesk
from datp_tasks.engine.registry import Registry
from datp_tasks.engine.reporter import Reporter
from datp_tasks.engine.run import Run
from datp_tasks.engine.state_cache import StateCache
from datp_tasks.engine.watched import HopSpans, TracedPerformer, WatchedHop
from datp_tasks.errors import StepError, SwitchInvalid
from datp_tasks.ledger.desk import Ledger
from datp_tasks.ledger.words import Batch, NewBatch
from datp_tasks.live.store import LiveStore
from datp_tasks.live.words import Refused
from datp_tasks.model.payload import checked
from datp_tasks.model.switch import switch_json
from datp_tasks.observe.task_events import TaskEvents
from datp_tasks.observe.tracing import Tracing
from datp_tasks.settings import Settings


class Worker:
    def __init__(
        self,
        *,
        settings: Settings,
        clock: Clock,
        live: LiveStore,
        record: Record,
        ringer: Ringer,
        costs: CostBook,
        pipelines: Pipelines,
        registry: Registry,
        node: str,
        groups: frozenset[str] = frozenset(),
        ledger: Ledger | None = None,
        rng: random.Random | None = None,
        events: TaskEvents | None = None,
        tracing: Tracing | None = None,
    ) -> None:
        self.node = node
        self._settings = settings
        self._live = live
        self._ringer = ringer
        self._ledger = ledger
        self._reporter = Reporter(live, record)
        spans = HopSpans(tracing, node) if tracing else None
        hands = (self._hands_of, self._reporter.report_held)
        parts = (settings, clock, record.engine, registry, *hands)
        performer = TracedPerformer(spans, *parts) if spans else Performer(*parts)
        digester = Digester(settings, pipelines, registry, rng or random.Random())
        cache = StateCache(settings.state_cache_entries_max)
        settler = Settler(
            live=live,
            record=record,
            ringer=ringer,
            pipelines=pipelines,
            registry=registry,
            digester=digester,
            cache=cache,
            node=node,
            groups=groups,
            late=LateDesk(record, Alerts(record.engine, clock), pipelines, performer),
        )
        self.hop = WatchedHop(
            events=events,
            spans=spans,
            settings=settings,
            live=live,
            pipelines=pipelines,
            registry=registry,
            performer=performer,
            digester=digester,
            settler=settler,
            costs=costs,
            cache=cache,
            begun=BegunSteps(record.engine, clock),
            node=node,
        )

    def _hands_of(self, run: Run) -> RunHands:
        return RunHands(run, self._live, self._settings, self._ledger, self._reporter)


class RunHands:
    """What a step can do to its own transaction while it runs."""

    __slots__ = ("_ledger", "_live", "_reporter", "_run", "_settings")

    def __init__(
        self,
        run: Run,
        live: LiveStore,
        settings: Settings,
        ledger: Ledger | None,
        reporter: Reporter,
    ) -> None:
        self._reporter = reporter
        self._run = run
        self._live = live
        self._settings = settings
        self._ledger = ledger

    def report(self, report: object) -> None:
        limits = {"bytes_max": self._settings.progress_bytes_max, "depth_max": 8}
        _, text = checked(report, what="progress", **limits)
        self._reporter.report(self._run, text)

    def set_switch(self, name: str, value: SwitchValue) -> None:
        run = self._run
        answer = self._live.set_switch(run.tx_id, name, switch_json(name, value))
        if isinstance(answer, Refused) and answer.word not in ("SET", "NO_CHANGE"):
            raise SwitchInvalid(f"switch {name!r} was not set: {answer.word.lower()}")
        run.switches = {**run.switches, name: json.dumps(value)}

    def submit_batch(self, service_id: str, batch_id: str, payload: bytes, switch: str) -> Batch:
        if self._ledger is None:
            raise StepError("this worker has no way to ledgers")
        run = self._run
        new = NewBatch(
            service_id=service_id,
            batch_id=batch_id,
            payload=payload,
            owner=run.fields.get("owner", ""),
            tx_id=run.tx_id,
            switch=switch,
        )
        self._ledger.intake.submit(new)
        return self._ledger.batches.find(service_id, batch_id)

    def now_ms(self) -> int:
        return self._live.server_now_ms()
