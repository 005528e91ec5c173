"""What is in flight, what is in doubt, and whether everything is where it should be."""

from __future__ import annotations

from dataclasses import dataclass, field

from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.live.invariants import Violation, check_all
from datp_tasks.live.store import LiveStore
from datp_tasks.model.status import Status
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.database import translate_outage
from datp_tasks.record.journal import Journal
from datp_tasks.transactions.views import view_of_copy


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
    #: A step was begun and not closed: only it can have had an effect that is not recorded.
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


class Doctor:
    def __init__(
        self, *, live: LiveStore, journal: Journal, alerts: Alerts, node_stale_ms: int
    ) -> None:
        self._live = live
        self._journal = journal
        self._alerts = alerts
        self._node_stale_ms = node_stale_ms

    def diagnose(self) -> Diagnosis:
        """What is in flight and in doubt, and whether everything is where it should be."""
        live = self._live
        outgoing = ArchiveFeed(live)
        with translate_outage():
            behind = self._journal.marks()
            alerts = self._alerts.open_alerts()
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
        live = self._live
        outgoing = ArchiveFeed(live)
        listed = live.listed("processingZ", rows_max=rows_max)
        states = outgoing.states([tx for tx, _ in listed])
        silent_since_ms = live.server_now_ms() - self._node_stale_ms
        nodes = sorted({fields["node"] for fields in states if "node" in fields})
        beats = live.beats(nodes)
        beating = {n for n, beat in zip(nodes, beats, strict=True) if (beat or 0) > silent_since_ms}
        return [
            InFlight(
                tx_id=tx,
                node=fields["node"],
                place=fields.get("place", ""),
                step_type=fields.get("stepType", ""),
                since_ms=int(since_ms),
                orphaned=fields["node"] not in beating,
                mid_step=view_of_copy(fields).state.open,
            )
            for (tx, since_ms), fields in zip(listed, states, strict=True)
            if "node" in fields
        ]

    def in_doubt(self, *, rows_max: int = 1_000) -> list[InDoubt]:
        """What waits for a decision, longest first."""
        live = self._live
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
