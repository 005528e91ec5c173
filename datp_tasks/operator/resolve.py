"""The in-doubt desk: what was in flight, what is in doubt, and deciding it.

Part of the client. Nothing here guesses: a transaction in doubt waits until somebody says what
became of its step, and the audit table keeps who said so and why.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from datp_tasks.errors import (
    DecisionInvalid,
    TransactionError,
    TransactionFinal,
    TransactionUnknown,
)
from datp_tasks.failpoints import reach
from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.live.invariants import Violation, check_all
from datp_tasks.live.types import Bell, Held
from datp_tasks.model.notes import clean_note
from datp_tasks.model.payload import Json, NotJson, checked
from datp_tasks.model.plan import Action, next_action
from datp_tasks.model.state import CLOSE, Delta, apply, decided, ending
from datp_tasks.model.status import Status
from datp_tasks.model.view import View
from datp_tasks.operator.audit import AuditMethods
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.database import translate_outage
from datp_tasks.record.journal import Journal
from datp_tasks.record.operator_actions import record_action
from datp_tasks.record.step_starts import BegunSteps
from datp_tasks.runtime.container import Container
from datp_tasks.transactions.restore import LOST

Decision = Literal["done", "redo", "fail"]
DECISIONS = ("done", "redo", "fail")


@dataclass(frozen=True, slots=True)
class InFlight:
    """A transaction that a worker has, or had when it was lost."""

    tx_id: str
    node: str
    #: pipeline/step index, and the type of the step.
    place: str
    step_type: str
    since_ms: int
    #: The node does not beat any more.
    orphaned: bool
    #: A step was begun and not closed: only it can have had an effect that nobody recorded.
    mid_step: bool


@dataclass(frozen=True, slots=True)
class InDoubt:
    tx_id: str
    place: str
    step_type: str
    since_ms: int
    why: str


@dataclass(slots=True)
class Diagnosis:
    """Everything that `datp doctor` shows."""

    in_flight: list[InFlight] = field(default_factory=list)
    in_doubt: list[InDoubt] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)
    #: List -> how many transactions are in it.
    sizes: dict[str, int] = field(default_factory=dict)
    #: Entries that SQL does not have yet.
    journal_backlog: int = 0
    #: Shards in which Redis has lost writes that are not repaired yet.
    lost_shards: list[str] = field(default_factory=list)
    open_alerts: int = 0

    @property
    def orphaned(self) -> list[InFlight]:
        """What the reaper will take over from nodes that are gone."""
        return [each for each in self.in_flight if each.orphaned]

    @property
    def is_healthy(self) -> bool:
        troubles = (self.orphaned, self.in_doubt, self.violations, self.lost_shards)
        return not (any(troubles) or self.open_alerts)


class DeskMethods(AuditMethods):
    """Part of the client."""

    _connections: Container

    # Looking.

    def doctor(self) -> Diagnosis:
        """What is in flight and in doubt, and whether everything is where it should be."""
        connections = self._connections
        live = connections.live
        outgoing = ArchiveFeed(live)
        with translate_outage():
            behind = Journal(connections.engine, connections.clock).marks()
            alerts = Alerts(connections.engine, connections.clock).open_alerts()
        # After those of SQL: the archiver moves the marks in Redis first.
        marks = outgoing.marks()
        return Diagnosis(
            in_flight=self.in_flight(),
            in_doubt=self.in_doubt(),
            violations=check_all(live),
            sizes=live.sizes(),
            journal_backlog=outgoing.journal_length(),
            lost_shards=[s for s, mark in sorted(behind.items()) if marks.get(s, mark) < mark],
            open_alerts=len(alerts),
        )

    def in_flight(self, *, rows_max: int = 1_000) -> list[InFlight]:
        """What workers have, longest first; with nodes that are gone marked."""
        live, stale_ms = self._connections.live, self._connections.settings.node_stale_ms
        outgoing = ArchiveFeed(live)
        listed = live.listed("processingZ", rows_max=rows_max)
        copies = outgoing.copies([tx for tx, _ in listed])
        silent_since_ms = live.server_now_ms() - stale_ms
        nodes = sorted({fields["node"] for fields, _ in copies if "node" in fields})
        beats = live.redis.zmscore(live.keys.nodes, nodes) if nodes else []
        beating = {n for n, beat in zip(nodes, beats, strict=True) if (beat or 0) > silent_since_ms}
        return [
            InFlight(
                tx_id=tx,
                node=fields["node"],
                place=fields.get("place", ""),
                step_type=fields.get("stepType", ""),
                since_ms=int(since_ms),
                orphaned=fields["node"] not in beating,
                mid_step=View.from_fields(fields, deltas).state.open,
            )
            for (tx, since_ms), (fields, deltas) in zip(listed, copies, strict=True)
            if "node" in fields
        ]

    def in_doubt(self, *, rows_max: int = 1_000) -> list[InDoubt]:
        """What waits for a decision, longest first."""
        live = self._connections.live
        listed = live.listed("exceptionZ", rows_max=rows_max)
        names = ("status", "place", "stepType", "problem")
        found = live.named_many([tx for tx, _ in listed], names)
        return [
            InDoubt(
                tx_id=tx,
                place=fields.get("place", ""),
                step_type=fields.get("stepType", ""),
                since_ms=int(since_ms),
                why=fields.get("problem", ""),
            )
            for (tx, since_ms), fields in zip(listed, found, strict=True)
            if fields.get("status") == Status.IN_DOUBT
        ]

    # Deciding.

    def resolve(
        self,
        tx_id: str,
        decision: Decision,
        *,
        reason: str,
        output: Json | None = None,
        actor: str = "local",
    ) -> None:
        """Say what became of the step of a transaction that is in doubt.

        `done`: it took effect, with this output (None: its input goes on). `redo`: it had no
        effect, run it. `fail`: it failed; what was done before is rolled back. For a rollback in
        doubt, `fail` gives up rolling back and ends the transaction as internal-error.
        """
        if decision not in DECISIONS:
            raise DecisionInvalid(f"decide done, redo or fail, was {decision!r}")
        if not reason.strip():
            raise DecisionInvalid("a decision needs a reason: it is kept in the audit table")
        output = self._checked_output(decision, output)
        view = self._in_doubt_view(tx_id)
        made, action = next_action(view.state, self._connections.catalogue.version)
        deltas = [*made, *_decision_deltas(decision, clean_note(reason), output, action)]
        for delta in deltas[len(made) :]:
            apply(view.state, delta)
        if decision == "redo":
            self._forget_begun(tx_id, view, action)
        fence = self._decide_in_sql(tx_id, view.fence, decision, reason, actor, action)
        reach("resolve.after_sql")
        held = Held(tx_id, fence, tuple(deltas))
        to = action.position("admin") if action.kind != "end" else None
        bell = self._connections.live.resolve(held, view.version, view.state.to_json(), to)
        if not isinstance(bell, Bell):
            raise TransactionError(f"{tx_id} has changed meanwhile ({bell.word}); look again")
        Alerts(self._connections.engine, self._connections.clock).clear_alert(LOST, tx_id)
        self._connections.ringer.ring([bell])

    def _checked_output(self, decision: Decision, output: Json | None) -> Json | None:
        if output is None:
            return None
        if decision == "redo":
            raise DecisionInvalid("a step that is run again makes its own output")
        settings = self._connections.settings
        try:
            return checked(
                output,
                what="output",
                bytes_max=settings.output_bytes_max,
                depth_max=settings.input_depth_max,
            )[0]
        except NotJson as error:
            raise DecisionInvalid(str(error)) from None

    def _in_doubt_view(self, tx_id: str) -> View:
        fields, deltas = ArchiveFeed(self._connections.live).copies([tx_id])[0]
        if fields.get("status") == Status.IN_DOUBT:
            return View.from_fields(fields, deltas)
        with translate_outage():
            found = self._connections.record.summaries([tx_id])
        if not found:
            raise TransactionUnknown(f"there is no transaction {tx_id!r}")
        if found[0].is_final:
            raise TransactionFinal(f"{tx_id} has ended: {found[0].status}")
        status = fields.get("status", found[0].status)
        raise TransactionError(f"{tx_id} is not in doubt; it is {status}")

    def _forget_begun(self, tx_id: str, view: View, action: Action) -> None:
        key = f"{tx_id}:{action.path}#{view.state.errors}.{view.state.sleeps}"
        BegunSteps(self._connections.engine, self._connections.clock).forget(tx_id, key)

    def _decide_in_sql(
        self, tx_id: str, fence: int, decision: Decision, reason: str, actor: str, action: Action
    ) -> int:
        """The audit row, and the status in SQL; the new fence."""
        connections = self._connections
        details = {"decision": decision, "step": action.place, "type": action.step_type}
        with translate_outage():
            now_ms = max(fence, connections.live.server_now_ms())
            raised = connections.record.raise_fences([(tx_id, now_ms)])
            if tx_id not in raised:
                raise TransactionError(f"{tx_id} has ended, or somebody has it just now")
            record_action(
                connections.engine,
                actor=actor,
                action="resolve",
                subject=tx_id,
                reason=reason,
                details=details,
            )
            connections.record.mark(tx_id, raised[tx_id], Status.QUEUED, f"resolved: {reason}")
        return raised[tx_id]


def _decision_deltas(
    decision: Decision, reason: str, output: Json | None, action: Action
) -> list[Delta]:
    if decision == "redo":
        return [CLOSE]
    if decision == "done":
        return [decided("done", reason, output)]
    if action.kind == "undo":
        return [ending(Status.INTERNAL_ERROR, f"not rolled back: {reason}", output)]
    return [decided("failed", reason, output)]
