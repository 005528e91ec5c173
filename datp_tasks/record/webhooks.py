"""Webhooks for people: deliveries and their attempts, dead letters, and the secrets that sign."""

from __future__ import annotations

import base64
import logging
import secrets
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine

from datp_tasks.clock import Clock
from datp_tasks.errors import SealError, WebhookBusy, WebhookErased, WebhookUnknown
from datp_tasks.model.actor import Actor
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.operator_actions import note_operator_action
from datp_tasks.record.queries import Queries
from datp_tasks.record.webhook_queue import DEAD, Member, Receiver, subject_of
from datp_tasks.seals.keyring import KeyRing, key_id_of, needed

log = logging.getLogger("datp.webhooks")

STATES = ("pending", "delivered", "dead", "cancelled")
TABLE, COLUMN = "webhook_secret", "secret"
SECRET_PREFIX = "whsec_"
SECRET_BYTES = 32
#: A day for all receivers of an owner to learn a new secret.
SECRET_OVERLAP_S = 86_400
#: How many sign at once; a rotation beyond that retires the oldest.
ACTIVE_SECRETS_MAX = 5


class Query(Queries, topic="webhooks"):
    list_deliveries: str
    of_endpoint: str
    find: str
    payload: str
    attempts: str
    redeliver: str
    redeliver_dead: str
    active_secrets: str
    add_secrets: str
    retire_secrets: str
    retire_surplus: str
    secrets: str
    lag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    id: str
    tx_id: str
    sequence: int
    kind: str
    owner: str
    url: str
    state: str
    attempts: int
    #: When it is due, while it is pending.
    next_at: datetime
    #: It waits because its target is disabled.
    held: bool
    created_at: datetime
    first_attempt_at: datetime | None
    finished_at: datetime | None
    last_status: int | None
    last_error: str | None
    #: The registered endpoint that it is for; None for the URL of a transaction.
    endpoint_id: str | None = None


@dataclass(frozen=True, slots=True)
class DeliveryAttempt:
    attempt: int
    sender: str
    begun_at: datetime
    #: None: it is on its way, or its sender is gone.
    ended_at: datetime | None
    http_status: int | None
    error: str | None
    took_ms: int | None


@dataclass(frozen=True, slots=True)
class Secret:
    secret: str
    created_at: datetime
    #: From then on it signs nothing; None for the current one.
    retired_at: datetime | None


class Webhooks:
    def __init__(self, engine: Engine, clock: Clock, ring: KeyRing | None = None) -> None:
        self._engine = engine
        self._clock = clock
        self._ring = ring
        self._alerts = Alerts(engine, clock)

    # Deliveries.

    def lag_s(self) -> float:
        """How long the most overdue delivery has been due; 0 if none is."""
        with self._engine.connect() as connection:
            return float(connection.exec_driver_sql(Query.lag, self._values()).scalar_one())

    def deliveries(
        self,
        *,
        state: str | None = None,
        owner: str | None = None,
        tx_id: str | None = None,
        before: Delivery | None = None,
        rows_max: int = 100,
    ) -> list[Delivery]:
        """The newest first; `before` is the last of the page before."""
        values = self._values(state=state, owner=owner, tx_id=tx_id, limit=rows_max)
        values |= {
            "before": before.created_at if before else None,
            "before_id": before.id if before else "",
        }
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(Query.list_deliveries, values)
            return [Delivery(**row._mapping) for row in rows]

    def of_endpoint(
        self, endpoint_id: str, *, before: Delivery | None = None, rows_max: int = 100
    ) -> list[Delivery]:
        """The newest first; `before` is the last of the page before."""
        values = {"endpoint_id": endpoint_id, "limit": rows_max}
        values |= {
            "before": before.created_at if before else None,
            "before_id": before.id if before else "",
        }
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(Query.of_endpoint, values)
            return [Delivery(**row._mapping) for row in rows]

    def find(self, id: str, *, owner: str | None = None) -> Delivery:
        """One delivery, or WebhookUnknown; with an owner, only if it is that owner's."""
        with self._engine.connect() as connection:
            row = connection.exec_driver_sql(Query.find, {"id": id, "owner": owner}).first()
        if row is None:
            raise WebhookUnknown(f"there is no webhook delivery {id!r:.100}")
        return Delivery(**row._mapping)

    def payload(self, id: str) -> str:
        """The body that every attempt sends."""
        self.find(id)
        with self._engine.connect() as connection:
            return str(connection.exec_driver_sql(Query.payload, {"id": id}).scalar_one())

    def attempts(self, id: str, *, rows_max: int = 100) -> list[DeliveryAttempt]:
        """The last attempts, the newest first."""
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(Query.attempts, {"id": id, "limit": rows_max})
            return [DeliveryAttempt(*row) for row in rows]

    def redeliver(
        self, id: str, *, owner: str | None = None, actor: Actor | None = None, reason: str = ""
    ) -> Member:
        """Send it again, with the same id and body and a full number of tries.

        Put what this returns on the schedule; without that it is found overdue, seconds later.
        """
        found = self.find(id, owner=owner)
        with self._engine.begin() as connection:
            row = connection.exec_driver_sql(Query.redeliver, self._values(id=id)).first()
            if row is None:
                if found.state == "pending":
                    raise WebhookBusy(f"{id} is pending and due now; it is being sent")
                raise WebhookErased(f"what {id} said was erased; there is nothing to send")
            if actor or owner is None:
                self._clear(connection, {(row.owner, row.target)})
            self._note(connection, actor, "webhook.redeliver", id, reason=reason or None)
        return row.tx_id, row.sequence, row.owner

    def redeliver_dead(
        self, *, owner: str | None = None, actor: Actor | None = None, rows_max: int = 1_000
    ) -> list[Member]:
        """Send dead letters again, the oldest first; those that are due now."""
        values = self._values(owner=owner, limit=rows_max)
        with self._engine.begin() as connection:
            rows = connection.exec_driver_sql(Query.redeliver_dead, values).all()
            if actor or owner is None:
                self._clear(connection, {(row.owner, row.target) for row in rows})
            if rows:
                self._note(connection, actor, "webhook.redeliver-dead", owner or "*")
        return [(row.tx_id, row.sequence, row.owner) for row in rows]

    # Secrets.

    def signing_secrets(self, owners: set[str]) -> dict[str, list[str]]:
        """What signs for each owner now, the newest first. Who has none gets one.

        Without a key ring none is made: what would be signed with it waits for one.
        """
        found = self._active(owners)
        missing = sorted(owners - found.keys())
        if missing and self._ring is not None:
            made = [self._sealed(owner, new_secret()) for owner in missing]
            with self._engine.begin() as connection:
                connection.exec_driver_sql(
                    Query.add_secrets, self._values(owner=missing, secret=made)
                )
            found = self._active(owners)
        return found

    def rotate(
        self,
        owner: str,
        *,
        overlap_s: float,
        actor: Actor | None = None,
        reason: str | None = None,
    ) -> str:
        """A new secret; the old one signs too for `overlap_s` more, while receivers change."""
        made = new_secret()
        with self._engine.begin() as connection:
            values = self._values(owner=owner, overlap_s=overlap_s)
            connection.exec_driver_sql(Query.retire_secrets, values)
            added = self._values(owner=[owner], secret=[self._sealed(owner, made)])
            if connection.exec_driver_sql(Query.add_secrets, added).rowcount == 0:
                raise WebhookBusy(f"the secret of {owner} is being rotated by another process")
            surplus = self._values(owner=owner, secrets_max=ACTIVE_SECRETS_MAX)
            connection.exec_driver_sql(Query.retire_surplus, surplus)
            self._note(connection, actor, "webhook.rotate-secret", owner, reason)
        return made

    def secret_times(self, owner: str) -> list[tuple[datetime, datetime | None]]:
        """When each was made and retires, the newest first; no key ring is needed for it."""
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(Query.secrets, {"owner": owner})
            return [(row.created_at, row.retired_at) for row in rows]

    def secrets(self, owner: str) -> list[Secret]:
        """All of an owner, the newest first, those that are retired too."""
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(Query.secrets, {"owner": owner})
            return [
                Secret(self._opened(owner, row.secret), row.created_at, row.retired_at)
                for row in rows
            ]

    def _active(self, owners: set[str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        with self._engine.connect() as connection:
            for row in connection.exec_driver_sql(
                Query.active_secrets, self._values(owner=sorted(owners))
            ):
                try:
                    secret = self._opened(row.owner, row.secret)
                except SealError as error:
                    # One owner's secret that cannot be read must not keep others from being told.
                    log.error("the webhook secret of %s cannot be read: %s", row.owner, error)
                    found.setdefault(row.owner, [])
                    continue
                found.setdefault(row.owner, []).append(secret)
        return found

    def _clear(self, connection: Connection, receivers: set[Receiver]) -> None:
        """Only for an operator: an owner that tries again closes no alert of the operator's."""
        for each in receivers:
            self._alerts.clear_alert(DEAD, subject_of(each), connection=connection)

    def _sealed(self, owner: str, secret: str) -> str:
        return needed(self._ring, "a webhook secret").seal(secret, TABLE, COLUMN, owner)

    def _opened(self, owner: str, stored: str) -> str:
        """Rows of releases without a key ring are plain, and stay readable."""
        if not key_id_of(stored):
            return stored
        return needed(self._ring, "a webhook secret").open(stored, TABLE, COLUMN, owner)

    def _note(
        self,
        connection: Connection,
        actor: Actor | None,
        action: str,
        subject: str,
        reason: str | None = None,
    ) -> None:
        now = self._clock.now()
        note_operator_action(connection, actor, action, subject, reason=reason, now=now)

    def _values(self, **values: Any) -> dict[str, Any]:
        return {**values, "now": self._clock.now()}


def new_secret() -> str:
    """256 bits, spelled as Standard Webhooks spells them."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()
