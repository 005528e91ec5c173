"""What operators did, and why. Rows are only ever added."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine

from datp_tasks.model.actor import Actor
from datp_tasks.model.notes import clean_note
from datp_tasks.model.payload import encode
from datp_tasks.record.queries import Queries


class Query(Queries, topic="operator_actions"):
    add: str


def note_action(
    connection: Connection,
    *,
    actor: Actor,
    action: str,
    subject: str,
    reason: str | None,
    details: Mapping[str, Any] | None = None,
    now: datetime | None = None,
) -> None:
    """As part of the transaction that does it; `now` is the time that a test injects."""
    add_action(
        connection,
        actor=actor,
        action=action,
        subject=subject,
        reason=None if reason is None else clean_note(reason),
        details=details,
        now=now,
    )


def note_operator_action(
    connection: Connection,
    actor: Actor | None,
    action: str,
    subject: str,
    *,
    reason: str | None,
    now: datetime | None,
) -> None:
    """The same, if an operator did it: what owners do with what is theirs is not audited."""
    if actor is not None:
        note_action(connection, actor=actor, action=action, subject=subject, reason=reason, now=now)


def add_action(
    connection: Connection,
    *,
    actor: Actor,
    action: str,
    subject: str,
    reason: str | None,
    details: Mapping[str, Any] | None = None,
    now: datetime | None = None,
) -> None:
    """The same for texts that were checked before and may be longer than a note."""
    values = {
        "actor": clean_note(actor.name),
        "key_id": actor.key_id,
        "request_id": actor.request_id,
        "address": actor.address,
        "action": action,
        "subject": subject,
        "reason": reason,
        "details": None if details is None else encode(dict(details)),
        "now": now,
    }
    connection.exec_driver_sql(Query.add, values)


def record_action(engine: Engine, **what: Any) -> None:
    with engine.begin() as connection:
        note_action(connection, **what)
