"""The tables of API keys, owners and idempotency keys."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    CheckConstraint,
    Column,
    DateTime,
    Double,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)


def declare(metadata: MetaData) -> None:
    """Add the tables to the others of the record."""
    #: A key itself is stored nowhere, only a keyed hash of it.
    Table(
        "api_key",
        metadata,
        Column("id", Text, primary_key=True),
        Column("owner", Text, nullable=False),
        #: As releases before roles read it: `operator` for admins, else `client`.
        Column("scope", Text, nullable=False),
        #: NULL: a client's.
        Column("role", Text),
        #: A list of texts; NULL: what is safe by default.
        Column("grants", JSON),
        Column("name", Text),
        Column("secret_hash", Text, nullable=False),
        Column("created_at", DateTime(timezone=True), nullable=False),
        Column("expires_at", DateTime(timezone=True)),
        Column("revoked_at", DateTime(timezone=True)),
        #: To the minute, so that a busy key is not written with every request.
        Column("last_used_at", DateTime(timezone=True)),
        #: When its hash was made anew: its end is of an earlier pepper, which no process may know.
        Column("followed_at", DateTime(timezone=True)),
        CheckConstraint("scope IN ('client', 'operator')", name="api_key_scope"),
        CheckConstraint("role IN ('viewer', 'operator', 'approver', 'admin')", name="api_key_role"),
        Index("api_key_owner", "owner"),
        Index("api_key_followed", "id", postgresql_where=text("followed_at IS NOT NULL")),
    )
    #: What an owner may do, where that differs from the settings.
    Table(
        "owner_limit",
        metadata,
        Column("owner", Text, primary_key=True),
        Column("requests_per_s", Double),
        Column("burst_max", Integer),
        Column("in_flight_max", Integer),
        Column("changed_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
        CheckConstraint("requests_per_s > 0", name="owner_limit_requests"),
        CheckConstraint("burst_max > 0", name="owner_limit_burst"),
        CheckConstraint("in_flight_max >= 0", name="owner_limit_in_flight"),
    )
    #: Requests that are done once, and what they were answered.
    Table(
        "idempotency_key",
        metadata,
        Column("owner", Text, nullable=False),
        Column("key", Text, nullable=False),
        Column("request_hash", Text, nullable=False),
        Column("begun_at", DateTime(timezone=True), nullable=False),
        #: Until then the process that took it may be at work.
        Column("held_until", DateTime(timezone=True), nullable=False),
        #: NULL: not answered yet.
        Column("status", Integer),
        Column("headers", JSON),
        #: NULL: an answer that is not kept, or one that showed a transaction.
        Column("body", Text),
        Column("tx_id", Text),
        PrimaryKeyConstraint("owner", "key"),
        CheckConstraint("(status IS NULL) = (headers IS NULL)", name="idempotency_key_answered"),
        Index("idempotency_key_age", "begun_at"),
    )
