"""The tables of events and webhooks."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Identity,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from datp_tasks.record.column_types import Xid8


def declare(metadata: MetaData) -> None:
    """Add the tables to the others of the record."""
    _declare_events(metadata)
    _declare_deliveries(metadata)
    _declare_attempts(metadata)
    _declare_receivers(metadata)
    _declare_endpoints(metadata)


def _moment(name: str, *, nullable: bool = True) -> Column[object]:
    return Column(name, DateTime(timezone=True), nullable=nullable)


def _declare_events(metadata: MetaData) -> None:
    #: Progress reports, numbered without a gap. The last event of a transaction has no row here:
    #: its number is `event_count + 1`, and what it says is in the summary.
    Table(
        "tx_event",
        metadata,
        Column("tx_id", Text, nullable=False),
        Column("sequence", Integer, nullable=False),
        Column("kind", Text, nullable=False),
        Column("payload", JSON, nullable=False),
        _moment("created_at", nullable=False),
        #: Its place in the feed (record/event_feed.py); rows of before the feed have none.
        Column("owner", Text),
        Column("xact", Xid8, server_default=text("pg_current_xact_id()")),
        #: From the sequence tx_event_id.
        Column("id", BigInteger),
        PrimaryKeyConstraint("tx_id", "sequence"),
        CheckConstraint("sequence >= 1", name="tx_event_sequence"),
        CheckConstraint("kind IN ('progress', 'payee')", name="tx_event_kind"),
        Index("tx_event_feed", "xact", "id", postgresql_where=text("owner IS NOT NULL")),
        Index(
            "tx_event_owner_feed",
            "owner",
            "xact",
            "id",
            postgresql_where=text("owner IS NOT NULL"),
        ),
    )


def _declare_deliveries(metadata: MetaData) -> None:
    #: One notification to one URL; `payload` is what every attempt sends, byte by byte.
    Table(
        "webhook_delivery",
        metadata,
        #: The `webhook-id`.
        Column("id", Text, primary_key=True),
        Column("tx_id", Text, nullable=False),
        Column("sequence", Integer, nullable=False),
        Column("kind", Text, nullable=False),
        Column("owner", Text, nullable=False),
        Column("url", Text, nullable=False),
        #: The URL without its query: what can be broken, and what has a limit of its own.
        Column("target", Text, nullable=False),
        Column("payload", Text, nullable=False),
        Column("state", Text, nullable=False, server_default=text("'pending'")),
        #: Every attempt so far; those from before it was asked for again do not count as tries.
        Column("attempts", Integer, nullable=False, server_default=text("0")),
        Column("attempts_before", Integer, nullable=False, server_default=text("0")),
        #: When the present round of tries began: its creation, or when it was asked for again.
        _moment("begun_at", nullable=False),
        _moment("next_at", nullable=False),
        #: It waits because its target is disabled.
        Column("held", Boolean, nullable=False, server_default=text("false")),
        _moment("created_at", nullable=False),
        _moment("first_attempt_at"),
        _moment("finished_at"),
        Column("last_status", Integer),
        Column("last_error", Text),
        #: For a registered endpoint, of which event; `sequence` is then a drawn number, far
        #: above that of any event.
        Column("endpoint_id", Text),
        Column("event_id", Text),
        UniqueConstraint("tx_id", "sequence", name="webhook_delivery_event"),
        CheckConstraint(
            "kind IN ('progress', 'final', 'event', 'test')", name="webhook_delivery_kind"
        ),
        CheckConstraint(
            "state IN ('pending', 'delivered', 'dead', 'cancelled')", name="webhook_delivery_state"
        ),
        CheckConstraint(
            "(state = 'pending') = (finished_at IS NULL)", name="webhook_delivery_finished"
        ),
        Index("webhook_delivery_due", "next_at", postgresql_where=text("state = 'pending'")),
        #: The oldest of every owner, whatever the others have.
        Index(
            "webhook_delivery_owner_due",
            "owner",
            "next_at",
            postgresql_where=text("state = 'pending'"),
        ),
        Index("webhook_delivery_held", "target", postgresql_where=text("held")),
        Index("webhook_delivery_dead", "created_at", postgresql_where=text("state = 'dead'")),
        Index("webhook_delivery_created", "created_at"),
        Index("webhook_delivery_owner", "owner", "created_at", "id"),
        Index(
            "webhook_delivery_once",
            "endpoint_id",
            "event_id",
            unique=True,
            postgresql_where=text("endpoint_id IS NOT NULL"),
        ),
        Index(
            "webhook_delivery_endpoint",
            "endpoint_id",
            "created_at",
            "id",
            postgresql_where=text("endpoint_id IS NOT NULL"),
        ),
    )


def _declare_attempts(metadata: MetaData) -> None:
    Table(
        "webhook_attempt",
        metadata,
        Column("delivery_id", Text, nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("sender", Text, nullable=False),
        _moment("begun_at", nullable=False),
        #: Missing: it is on its way, or its sender is gone.
        _moment("ended_at"),
        Column("http_status", Integer),
        Column("error", Text),
        Column("took_ms", Integer),
        PrimaryKeyConstraint("delivery_id", "attempt"),
    )


def _declare_receivers(metadata: MetaData) -> None:
    #: Secrets that sign, per owner. During a rotation there are several, and as many signatures.
    Table(
        "webhook_secret",
        metadata,
        Column("id", Integer, Identity(always=True), primary_key=True),
        Column("owner", Text, nullable=False),
        Column("secret", Text, nullable=False),
        _moment("created_at", nullable=False),
        #: From then on it signs nothing.
        _moment("retired_at"),
        Index(
            "webhook_secret_current",
            "owner",
            unique=True,
            postgresql_where=text("retired_at IS NULL"),
        ),
        Index("webhook_secret_owner", "owner", "created_at"),
    )
    #: Targets of an owner that failed too often. Until then nothing is sent, afterwards one at a
    #: time.
    Table(
        "webhook_breaker",
        metadata,
        Column("owner", Text, nullable=False),
        Column("target", Text, nullable=False),
        _moment("disabled_at", nullable=False),
        _moment("disabled_until", nullable=False),
        Column("reason", Text, nullable=False),
        PrimaryKeyConstraint("owner", "target"),
    )
    #: The same for all owners together: senders of earlier releases look here.
    Table(
        "webhook_target",
        metadata,
        Column("target", Text, primary_key=True),
        _moment("disabled_at", nullable=False),
        _moment("disabled_until", nullable=False),
        Column("reason", Text, nullable=False),
    )


def _declare_endpoints(metadata: MetaData) -> None:
    #: Where an owner is told of the events of all its transactions.
    Table(
        "webhook_endpoint",
        metadata,
        Column("id", Text, primary_key=True),
        Column("owner", Text, nullable=False),
        Column("url", Text, nullable=False),
        #: A list of types of events; empty: all.
        Column("types", JSON, nullable=False),
        Column("description", Text, nullable=False),
        Column("enabled", Boolean, nullable=False),
        Column("disabled_reason", Text),
        _moment("created_at", nullable=False),
        _moment("updated_at", nullable=False),
        #: Its place in the feed: deliveries are made of all before it.
        Column("xact", Xid8, nullable=False),
        Column("part", Integer, nullable=False),
        Column("row_id", BigInteger, nullable=False),
        #: The place of a replay that goes on, and the time that it tells of.
        Column("replay_xact", Xid8),
        Column("replay_part", Integer),
        Column("replay_row_id", BigInteger),
        _moment("replay_from"),
        _moment("replay_to"),
        CheckConstraint(
            "(replay_xact IS NULL) = (replay_to IS NULL) "
            "AND (replay_xact IS NULL) = (replay_from IS NULL)",
            name="webhook_endpoint_replay",
        ),
        Index("webhook_endpoint_owner", "owner", "created_at", "id"),
    )
