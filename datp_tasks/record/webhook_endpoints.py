"""Webhook endpoints: where an owner wants to be told of the events of all its transactions.

An endpoint has its own place in the feed (record/event_feed.py). Deliveries are made from there,
and the place moves in the same commit: each event is one delivery, whatever crashes. An owner
without endpoints costs nothing, and neither accepting nor ending a transaction knows of them.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine

from datp_tasks.clock import Clock
from datp_tasks.errors import WebhookBusy, WebhookInvalid, WebhookUnknown
from datp_tasks.model.actor import Actor
from datp_tasks.model.payload import encode
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.event_feed import PAYEE_COMPLETED
from datp_tasks.record.feed_places import FeedPlace
from datp_tasks.record.operator_actions import note_operator_action
from datp_tasks.record.queries import Queries
from datp_tasks.record.webhook_queue import Member

#: Kind of alert; its subject is an owner and an endpoint.
ENDPOINT_GONE = "webhook-endpoint-gone"


class Query(Queries, topic="webhook_endpoints"):
    list_endpoints: str
    find: str
    hold_owner: str
    count: str
    add: str
    change: str
    move_pending: str
    cancel_pending: str
    disable: str
    delete: str
    drop_secrets: str
    due: str
    lock: str
    advance: str
    replay: str
    advance_replay: str
    end_replay: str
    add_deliveries: str


@dataclass(frozen=True, slots=True)
class EndpointReplay:
    """What happened in this time is told again; so far up to this place."""

    place: FeedPlace
    since: datetime
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    id: str
    owner: str
    url: str
    #: Of events; empty: all of its own transactions.
    types: tuple[str, ...]
    description: str
    enabled: bool
    #: Why it is disabled, if it was not disabled by a person.
    disabled_reason: str | None
    created_at: datetime
    updated_at: datetime
    place: FeedPlace
    replay: EndpointReplay | None

    @property
    def signer(self) -> str:
        return signer_of(self.id)

    def wants(self, type: str) -> bool:
        """What other owners do is told only to an endpoint that names the type."""
        return type in self.types or (not self.types and type != PAYEE_COMPLETED)


def new_endpoint_id() -> str:
    return f"ep_{secrets.token_hex(12)}"


def signer_of(endpoint_id: str) -> str:
    """The name under which its secrets are kept. No owner can have such a name."""
    return f":endpoint:{endpoint_id}"


class Endpoints:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._alerts = Alerts(engine, clock)

    # For people and programs.

    def find_all(
        self,
        *,
        owner: str | None = None,
        after: tuple[str, str] | None = None,
        rows_max: int = 1_000,
    ) -> list[Endpoint]:
        """The oldest first; `after` is the time and the id of the last of the page before."""
        after_at, after_id = after or (None, "")
        with self._engine.connect() as connection:
            values = {"owner": owner, "limit": rows_max, "after": after_at, "after_id": after_id}
            return [
                _endpoint(row) for row in connection.exec_driver_sql(Query.list_endpoints, values)
            ]

    def find(self, id: str, *, owner: str | None = None) -> Endpoint:
        """One endpoint, or WebhookUnknown; with an owner, only if it is that owner's."""
        with self._engine.connect() as connection:
            row = connection.exec_driver_sql(Query.find, {"id": id, "owner": owner}).first()
        if row is None:
            raise WebhookUnknown(f"there is no webhook endpoint {id!r:.100}")
        return _endpoint(row)

    def add(
        self,
        owner: str,
        url: str,
        *,
        id: str,
        types: Sequence[str] = (),
        description: str = "",
        endpoints_max: int,
        actor: Actor | None = None,
        reason: str | None = None,
    ) -> Endpoint:
        """It is told of what commits from now on."""
        with self._engine.begin() as connection:
            connection.exec_driver_sql(Query.hold_owner, {"owner": owner})
            count = connection.exec_driver_sql(Query.count, {"owner": owner}).scalar_one()
            if count >= endpoints_max:
                raise WebhookInvalid(f"{owner} has {count} endpoints, which is as many as may be")
            values = self._values(id=id, owner=owner, url=url, description=description)
            values["types"] = encode(list(types))
            row = connection.exec_driver_sql(Query.add, values).one()
            self._note(connection, actor, "webhook-endpoint.add", id, reason)
        return _endpoint(row)

    def change(
        self,
        id: str,
        *,
        url: str | None = None,
        types: Sequence[str] | None = None,
        description: str | None = None,
        enabled: bool | None = None,
        actor: Actor | None = None,
        reason: str | None = None,
    ) -> Endpoint:
        """What waits goes to a new URL; what waits for one that is disabled is not sent."""
        values = self._values(id=id, url=url, description=description, enabled=enabled)
        values["types"] = None if types is None else encode(list(types))
        with self._engine.begin() as connection:
            if connection.exec_driver_sql(Query.change, values).rowcount == 0:
                raise WebhookUnknown(f"there is no webhook endpoint {id!r:.100}")
            if url is not None:
                connection.exec_driver_sql(Query.move_pending, values)
            if enabled is False:
                connection.exec_driver_sql(Query.cancel_pending, values)
            self._note(connection, actor, "webhook-endpoint.change", id, reason)
        found = self.find(id)
        if enabled:
            self._alerts.clear_alert(ENDPOINT_GONE, _subject(found.owner, id))
        return found

    def delete(self, id: str, *, actor: Actor | None = None, reason: str | None = None) -> None:
        found = self.find(id)
        values = self._values(id=id, signer=found.signer)
        with self._engine.begin() as connection:
            connection.exec_driver_sql(Query.delete, values)
            connection.exec_driver_sql(Query.cancel_pending, values)
            connection.exec_driver_sql(Query.drop_secrets, values)
            subject = _subject(found.owner, id)
            self._alerts.clear_alert(ENDPOINT_GONE, subject, connection=connection)
            self._note(connection, actor, "webhook-endpoint.delete", id, reason)

    def take_back(self, owner: str, id: str, *, actor: Actor | None = None) -> None:
        """An endpoint whose addition failed, or was not answered, is gone with its secrets."""
        values = self._values(id=id, owner=owner, signer=signer_of(id))
        with self._engine.begin() as connection:
            # An addition that PostgreSQL still works on is over then, one way or the other.
            connection.exec_driver_sql(Query.hold_owner, values)
            if connection.exec_driver_sql(Query.delete, values).rowcount:
                connection.exec_driver_sql(Query.cancel_pending, values)
                reason = "its addition was not answered"
                self._note(connection, actor, "webhook-endpoint.delete", id, reason)
            connection.exec_driver_sql(Query.drop_secrets, values)

    def begin_replay(
        self,
        id: str,
        replay: EndpointReplay,
        *,
        actor: Actor | None = None,
        reason: str | None = None,
    ) -> None:
        """Tell again what happened in that time, and what was not told then."""
        since, until = replay.since, replay.until
        values = {"id": id, "since": since, "until": until, **_columns(replay.place)}
        with self._engine.begin() as connection:
            if connection.exec_driver_sql(Query.replay, values).first() is None:
                raise WebhookBusy(f"{id} is disabled, or a replay of it goes on")
            self._note(connection, actor, "webhook-endpoint.replay", id, reason)

    def add_test(
        self, endpoint: Endpoint, tx_id: str, payload: str, *, actor: Actor | None = None
    ) -> Member:
        """A delivery that is about no transaction."""
        with self._engine.begin() as connection:
            told = [(tx_id, f"test_{secrets.token_hex(8)}", payload)]
            [member] = self._add(connection, endpoint, told, kind="test")
            self._note(connection, actor, "webhook-endpoint.test", endpoint.id, None)
        return member

    # For the sender and the feeder.

    def disable(self, id: str, reason: str, *, target: str) -> bool:
        """Its receiver at this URL wants nothing any more; True if it was enabled, and has not been
        given another URL since."""
        values = self._values(id=id, reason=reason, target=target)
        with self._engine.begin() as connection:
            row = connection.exec_driver_sql(Query.disable, values).first()
            if row is None:
                return False
            connection.exec_driver_sql(Query.cancel_pending, values)
            subject = _subject(row.owner, id)
            self._alerts.raise_alert(ENDPOINT_GONE, subject, reason, connection=connection)
        return True

    def due(self, endpoints_max: int) -> list[str]:
        """Endpoints that have something to be told."""
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(Query.due, {"limit": endpoints_max})
            return [row.id for row in rows]

    @contextmanager
    def feeding(self, id: str) -> Iterator[Feeding | None]:
        """The only one that feeds it until the commit; None if another process does."""
        with self._engine.begin() as connection:
            row = connection.exec_driver_sql(Query.lock, {"id": id}).first()
            yield None if row is None else Feeding(self, connection, _endpoint(row))

    def _add(
        self,
        connection: Connection,
        endpoint: Endpoint,
        told: Sequence[tuple[str, str, str]],
        *,
        kind: str = "event",
        again: bool = False,
    ) -> list[Member]:
        values = self._values(
            tx_id=[tx_id for tx_id, _, _ in told],
            event_id=[event_id for _, event_id, _ in told],
            payload=[payload for _, _, payload in told],
            kind=kind,
            owner=endpoint.owner,
            url=endpoint.url,
            endpoint_id=endpoint.id,
            again=again,
        )
        rows = connection.exec_driver_sql(Query.add_deliveries, values)
        return [(row.tx_id, row.sequence, row.owner) for row in rows]

    def _note(
        self,
        connection: Connection,
        actor: Actor | None,
        action: str,
        subject: str,
        reason: str | None,
    ) -> None:
        now = self._clock.now()
        note_operator_action(connection, actor, action, subject, reason=reason, now=now)

    def _values(self, **values: Any) -> dict[str, Any]:
        return {**values, "now": self._clock.now()}


@dataclass(frozen=True, slots=True)
class Feeding:
    """One endpoint whose row is locked: what is told and where it goes on are one commit."""

    _store: Endpoints
    _connection: Connection
    endpoint: Endpoint

    def add(self, told: Sequence[tuple[str, str, str]], *, again: bool = False) -> list[Member]:
        """Deliveries of (transaction, event, body); those that are due from the commit on."""
        if not told:
            return []
        return self._store._add(self._connection, self.endpoint, told, again=again)

    def advance(self, place: FeedPlace) -> None:
        self._execute(Query.advance, place)

    def advance_replay(self, place: FeedPlace) -> None:
        self._execute(Query.advance_replay, place)

    def end_replay(self) -> None:
        self._connection.exec_driver_sql(Query.end_replay, {"id": self.endpoint.id})

    def _execute(self, sql: str, place: FeedPlace) -> None:
        values = {"id": self.endpoint.id, **_columns(place)}
        self._connection.exec_driver_sql(sql, values)


def _subject(owner: str, id: str) -> str:
    return f"{owner} {id}"


def _columns(place: FeedPlace) -> dict[str, Any]:
    return {"xact": str(place.xact), "part": place.part, "row_id": place.id}


def _endpoint(row: Any) -> Endpoint:
    replay = None
    if row.replay_to is not None:
        place = FeedPlace(int(row.replay_xact), row.replay_part, row.replay_row_id)
        replay = EndpointReplay(place, row.replay_from, row.replay_to)
    return Endpoint(
        id=row.id,
        owner=row.owner,
        url=row.url,
        types=tuple(json.loads(row.types)),
        description=row.description,
        enabled=row.enabled,
        disabled_reason=row.disabled_reason,
        created_at=row.created_at,
        updated_at=row.updated_at,
        place=FeedPlace(int(row.xact), row.part, row.row_id),
        replay=replay,
    )
