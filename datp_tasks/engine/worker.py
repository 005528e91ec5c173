"""A worker: one thread's engine, put together, with a node of its own."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence

from datp_tasks.engine import state_cache
from datp_tasks.engine.calls import StepCaller
from datp_tasks.engine.commit import Committer, StopRules
from datp_tasks.engine.context import SwitchValue
from datp_tasks.engine.decide import Decider
from datp_tasks.engine.execute import Executor
from datp_tasks.engine.hop import Hop, Stages
from datp_tasks.engine.hop_observer import HopObserver
from datp_tasks.engine.late_success import LateSuccesses
from datp_tasks.engine.outcomes import SwitchNotKept
from datp_tasks.engine.points_of_no_return import PointsOfNoReturn
from datp_tasks.engine.reporter import Reporter
from datp_tasks.engine.run import Run
from datp_tasks.engine.state_cache import StateCache
from datp_tasks.engine.worker_parts import Bells, StepResources, Stores, ThisNode
from datp_tasks.errors import StaleFence, StepError, SwitchInvalid
from datp_tasks.failpoints import reach
from datp_tasks.ledger.batch_types import LedgerBatch, NewBatch
from datp_tasks.live.live_types import Refused
from datp_tasks.model.actor import Actor
from datp_tasks.model.approval import STEP, Approval, Ask, Need
from datp_tasks.model.payload import checked
from datp_tasks.model.switch import switch_json
from datp_tasks.observe.logs import hide
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.approvals import ApprovalStore
from datp_tasks.record.bulk_transfers import BulkRecord, TransferStanding
from datp_tasks.record.database import ALL_IN_USE, is_conflict, is_outage, passing_reason
from datp_tasks.record.effects import EffectStore
from datp_tasks.record.linked import Leg, LinkedTransactions, LinkVerdict
from datp_tasks.record.points import Points
from datp_tasks.record.signals import Signal, Signals
from datp_tasks.record.sql_errors import OperationalError, PoolTimeout
from datp_tasks.record.step_starts import BegunSteps
from datp_tasks.settings import Settings


class Worker:
    def __init__(
        self,
        settings: Settings,
        this: ThisNode,
        *,
        stores: Stores,
        resources: StepResources,
        bells: Bells,
        observer: HopObserver,
    ) -> None:
        self.node = this.name
        self.observer = observer
        live, record, pipelines = stores.live, stores.record, stores.pipelines
        approvals = ApprovalStore(record.engine, stores.clock)
        points = PointsOfNoReturn(Points(record.engine, stores.clock), this.steps)
        reporter = Reporter(live, record)
        services = WorkerServices(stores, resources, settings, reporter, approvals, points)
        caller = StepCaller(settings, this.steps, services, observer)
        begun = BegunSteps(record.engine)
        effects = EffectStore(record.engine, stores.clock)
        self._executor = Executor(settings, live, begun, effects, caller)
        decider = Decider(settings, pipelines, this.steps, random.Random())
        cache = StateCache(state_cache.ENTRIES_MAX, kept_s=state_cache.KEPT_S)
        late = LateSuccesses(record, Alerts(record.engine, stores.clock), pipelines, caller)
        committer = Committer(
            this=this,
            stores=stores,
            ringer=bells.ringer,
            decider=decider,
            cache=cache,
            stop_rules=StopRules(points, late),
        )
        self.hop = Hop(
            this=this,
            stores=stores,
            bells=bells,
            stages=Stages(self._executor, decider, committer, points),
            cache=cache,
            observer=observer,
        )

    def close(self) -> None:
        """This worker runs no more hops; its event loop, if it has one, must not outlive it."""
        self._executor.loop.stop()


#: A report is a line for a person, and every one is a row and a webhook.
PROGRESS_BYTES_MAX = 16_384
PROGRESS_DEPTH_MAX = 8
#: What people are asked about a sealed transaction.
SEALED_NOTE = "what it asks for is sealed; `datp unmask` shows it to an admin"


class WorkerServices:
    """What steps can do to their own transactions while they run."""

    def __init__(
        self,
        stores: Stores,
        resources: StepResources,
        settings: Settings,
        reporter: Reporter,
        approvals: ApprovalStore,
        points: PointsOfNoReturn,
    ) -> None:
        self._points = points
        self._bulks = BulkRecord(stores.record)
        self._linked = LinkedTransactions(stores.record.engine, stores.clock)
        self._live = stores.live
        self._secrets = resources.secrets
        self._settings = settings
        self._ledger = resources.ledger
        self._reporter = reporter
        self._approvals = approvals
        self._signals = Signals(stores.record.engine, stores.clock)

    def report(self, run: Run, report: object) -> None:
        limits = {"bytes_max": PROGRESS_BYTES_MAX, "depth_max": PROGRESS_DEPTH_MAX}
        _, text = checked(report, what="progress", **limits)
        self._reporter.report(run, text if run.edge is None else run.edge.seal_text(text))

    def report_held(self, run: Run) -> None:
        self._reporter.report_held(run)

    def commit_to_finish(self, run: Run, *, in_sql: bool) -> None:
        self._points.commit_to_finish(run, in_sql=in_sql)

    def join_link(self, run: Run, link: str, legs: int, *, expires_in_s: float) -> bool:
        try:
            expires_at = self._linked.join(_leg(run), link, legs, expires_in_s=expires_in_s)
        except OperationalError as error:
            if not (is_outage(error) or is_conflict(error)):
                raise
            return False
        run.expires_at_ms = round(expires_at.timestamp() * 1_000)
        return True

    def commit_link(self, run: Run, link: str) -> LinkVerdict:
        run.asked_for_point = True
        try:
            verdict = self._linked.commit(_leg(run), link)
            if verdict.word == "commit":
                self._points.commit_to_finish(run, in_sql=False)
        except OperationalError as error:
            # It may be decided already: a leg that gave up now would end otherwise than the others.
            if not (is_outage(error) or is_conflict(error)):
                raise
            return LinkVerdict("wait")
        return verdict

    def standing_of(self, run: Run, tx_ids: Sequence[str]) -> Mapping[str, TransferStanding] | None:
        try:
            return self._bulks.standing(run.fields.get("owner", ""), tx_ids)
        except OperationalError as error:
            if not is_outage(error):
                raise
            return None

    def set_switch(self, run: Run, name: str, value: SwitchValue) -> None:
        text = switch_json(name, value)
        # One that was removed is kept in SQL without a value.
        before = run.switches.get(name, "")
        if run.switch_seq and before != text:
            self._replace(Signal(run.tx_id, name, before, replaced_seq=run.switch_seq + 1))
            reach("switch.after_sql")
        answer = self._live.set_switch(run.tx_id, name, text, fence=run.fence)
        if isinstance(answer, Refused) and answer.word == "STALE":
            raise StaleFence
        if isinstance(answer, Refused) and answer.word not in ("SET", "NO_CHANGE"):
            raise SwitchInvalid(f"switch {name!r} was not set: {answer.word.lower()}")
        run.switches = {**run.switches, name: json.dumps(value)}

    def _replace(self, signal: Signal) -> None:
        """SQL first: what outside had set must not be set again after a loss of Redis.

        Should Redis not get or lose what the step sets, its number there stays lower, and what
        outside had set counts. It may get a higher one, if outside sets others meanwhile.
        """
        try:
            self._signals.replace(signal)
        except PoolTimeout as error:
            # No outage: a pool that is too small stays too small, so this try has failed.
            raise StepError(f"{ALL_IN_USE}; switch {signal.name!r} was not set") from error
        except OperationalError as error:
            reason = passing_reason(error)
            if not reason:
                raise
            raise SwitchNotKept(f"{reason}; switch {signal.name!r} was not set") from error

    def submit_batch(
        self, run: Run, service_id: str, batch_id: str, payload: bytes, switch: str
    ) -> LedgerBatch:
        if self._ledger is None:
            raise StepError("this worker has no way to ledgers")
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

    def ask_approval(self, run: Run, step_key: str, note: str, need: Need) -> Approval:
        owner = run.fields.get("owner", "")
        ask = Ask(
            action=STEP,
            subject=run.tx_id,
            params={"note": note if run.edge is None else run.edge.seal(note)},
            version=step_key,
            # It may say what is in the data.
            reason=note if run.edge is None else SEALED_NOTE,
            pipeline=run.fields.get("pipeline"),
        )
        with self._approvals.writing() as connection:
            # Asked for in the name of the owner: its own keys cannot agree.
            actor = Actor(name=f"owner {owner}", owner=owner)
            number, _ = self._approvals.ask(connection, actor, ask, need, step_key)
        self._approvals.expire_if_due(number)
        return self._approvals.one(number)

    def now_ms(self) -> int:
        return self._live.server_now_ms()

    def http_hosts(self) -> tuple[str, ...]:
        return self._settings.http_hosts

    def secret(self, name: str) -> str:
        value = self._secrets.value(name)
        # From here on it is in the hands of a step, which may put it into a line of the log.
        hide(value)
        return value


def _leg(run: Run) -> Leg:
    return Leg(run.tx_id, run.fields.get("owner", ""), run.fence)
