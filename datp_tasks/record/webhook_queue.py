"""Webhooks on their way: what may be sent now, by whom, and what became of it.

SQL is the record and Redis the schedule. Every method takes many and commits once; none is needed
twice, and repeating one is harmless.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Engine

from datp_tasks.clock import Clock
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.queries import Queries

#: Kinds of alerts; the subject of both is an owner and a target (`subject_of`).
DISABLED, DEAD = "webhook-target-disabled", "webhook-dead"

#: A transaction, the number of its event, and whose it is.
Member = tuple[str, int, str]
#: An owner and one of its targets. What one owner does to a target says nothing to another.
Receiver = tuple[str, str]


class Query(Queries, topic="webhook_queue"):
    look: str
    claim: str
    settle: str
    hold: str
    bury: str
    overdue: str
    disable: str
    probe: str
    enable: str
    release: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A delivery that has not ended, as it was looked at."""

    id: str
    member: Member
    owner: str
    url: str
    target: str
    attempts: int
    #: Seconds until it is due; 0 if it is.
    wait_s: float
    #: Its target has failed too often, and until when nothing is sent there.
    is_broken: bool
    disabled_s: float
    #: Seconds since it was asked for.
    age_s: float

    @property
    def receiver(self) -> Receiver:
        return self.owner, self.target


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedDelivery:
    """One attempt that this sender, and no other, must make now."""

    id: str
    member: Member
    owner: str
    url: str
    target: str
    payload: str
    #: Number of the attempt, and which try it is since it was last asked for.
    attempt: int
    try_number: int
    #: The time, as the database has it.
    at: datetime
    #: Its target is disabled: this attempt finds out whether it is back.
    is_probe: bool
    #: The registered endpoint that it is for; None for the URL of a transaction.
    endpoint_id: str | None = None

    @property
    def receiver(self) -> Receiver:
        return self.owner, self.target


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryOutcome:
    """What became of an attempt."""

    claimed: ClaimedDelivery
    #: `delivered`, `dead`, or `pending` for one that is tried again after `wait_s`.
    state: str
    wait_s: float = 0.0
    status: int | None = None
    error: str | None = None
    took_ms: int = 0
    #: Whether that speaks against its target.
    is_fault: bool = False


class WebhookQueue:
    def __init__(self, engine: Engine, clock: Clock, sender: str = "") -> None:
        self._engine = engine
        self._clock = clock
        self._sender = sender
        self._alerts = Alerts(engine, clock)

    def look(self, ids: Sequence[str]) -> list[Waiting]:
        """Those that have not ended, in the order in which they are due."""
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(Query.look, self._values(id=list(ids)))
            return [
                Waiting(
                    id=row.id,
                    member=(row.tx_id, row.sequence, row.owner),
                    owner=row.owner,
                    url=row.url,
                    target=row.target,
                    attempts=row.attempts,
                    wait_s=row.wait_s,
                    is_broken=row.is_broken,
                    disabled_s=row.disabled_s or 0.0,
                    age_s=row.age_s,
                )
                for row in rows
            ]

    def claim(self, chosen: Sequence[Waiting], hold_s: float) -> list[ClaimedDelivery]:
        """Take attempts; no other sender gets one of them before `hold_s` is over."""
        probes = {each.id for each in chosen if each.is_broken}
        values = self._values(
            id=[each.id for each in chosen],
            attempts=[each.attempts for each in chosen],
            hold_s=hold_s,
            sender=self._sender,
        )
        with self._engine.begin() as connection:
            rows = connection.exec_driver_sql(Query.claim, values)
            return [
                ClaimedDelivery(
                    id=row.id,
                    member=(row.tx_id, row.sequence, row.owner),
                    owner=row.owner,
                    url=row.url,
                    target=row.target,
                    payload=row.payload,
                    attempt=row.attempts,
                    try_number=row._mapping["try"],
                    at=row.at,
                    is_probe=row.id in probes,
                    endpoint_id=row.endpoint_id,
                )
                for row in rows
            ]

    def settle(self, outcomes: Sequence[DeliveryOutcome]) -> set[str]:
        """Write down what became of attempts; the ids of those that were still up to them."""
        values = self._values(
            id=[each.claimed.id for each in outcomes],
            attempt=[each.claimed.attempt for each in outcomes],
            state=[each.state for each in outcomes],
            wait_s=[each.wait_s for each in outcomes],
            status=[each.status for each in outcomes],
            error=[each.error for each in outcomes],
            took_ms=[each.took_ms for each in outcomes],
        )
        with self._engine.begin() as connection:
            return {row.id for row in connection.exec_driver_sql(Query.settle, values)}

    def hold(self, held: Sequence[tuple[str, float]]) -> None:
        """Put off deliveries whose target is disabled; that costs them no attempt."""
        values = self._values(id=[id for id, _ in held], wait_s=[wait_s for _, wait_s in held])
        with self._engine.begin() as connection:
            connection.exec_driver_sql(Query.hold, values)

    def bury(self, ids: Sequence[str]) -> None:
        """Give up deliveries whose target was disabled for too long."""
        with self._engine.begin() as connection:
            connection.exec_driver_sql(Query.bury, self._values(id=list(ids)))

    def overdue(self, overdue_s: float, rows_max: int) -> list[Member]:
        """Deliveries that no sender has taken although they are due: the oldest of each owner."""
        values = self._values(overdue_s=overdue_s, limit=rows_max)
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(Query.overdue, values)
            return [(row.tx_id, row.sequence, row.owner) for row in rows]

    # Targets of an owner.

    def disable(self, receiver: Receiver, disable_s: float, reason: str) -> bool:
        """Send nothing there for a while; True if something was, until now."""
        values = self._of(receiver, disable_s=disable_s, reason=reason)
        with self._engine.begin() as connection:
            is_new = connection.exec_driver_sql(Query.disable, values).scalar_one()
            if is_new:
                subject = subject_of(receiver)
                self._alerts.raise_alert(DISABLED, subject, reason, connection=connection)
            return bool(is_new)

    def probe(self, receiver: Receiver, hold_s: float) -> bool:
        """Whether this sender may try if a disabled target is back."""
        with self._engine.begin() as connection:
            values = self._of(receiver, hold_s=hold_s)
            return connection.exec_driver_sql(Query.probe, values).first() is not None

    def enable(self, receiver: Receiver) -> list[Member] | None:
        """It is back: what waited for it is due now. None if it was not disabled."""
        values = self._of(receiver)
        with self._engine.begin() as connection:
            if connection.exec_driver_sql(Query.enable, values).first() is None:
                return None
            self._alerts.clear_alert(DISABLED, subject_of(receiver), connection=connection)
            rows = connection.exec_driver_sql(Query.release, values)
            return [(row.tx_id, row.sequence, row.owner) for row in rows]

    def alarm_dead(self, receiver: Receiver, reason: str) -> bool:
        """A delivery was given up; True unless the operator knows of that target already."""
        return self._alerts.raise_alert(DEAD, subject_of(receiver), reason)

    def _of(self, receiver: Receiver, **values: Any) -> dict[str, Any]:
        return self._values(owner=receiver[0], target=receiver[1], **values)

    def _values(self, **values: Any) -> dict[str, Any]:
        return {**values, "now": self._clock.now()}


def subject_of(receiver: Receiver) -> str:
    """How alerts name a target of an owner."""
    return f"{receiver[0]} {receiver[1]}"


def webhook_id(member: Member) -> str:
    """The `webhook-id` of a notification, the same in every attempt."""
    return f"msg_{member[0]}_{member[1]}"
