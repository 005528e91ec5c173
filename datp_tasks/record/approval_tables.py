"""The tables of four eyes: what was asked for, who decided, and which transactions it is about."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKeyConstraint,
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

STATES = "'pending', 'approved', 'executed', 'rejected', 'expired', 'stale'"


def declare(metadata: MetaData) -> None:
    """Add the tables to the others of the record."""
    _declare_approvals(metadata)
    _declare_decisions(metadata)


def _moment(name: str, *, nullable: bool = True) -> Column[object]:
    return Column(name, DateTime(timezone=True), nullable=nullable)


def _declare_approvals(metadata: MetaData) -> None:
    Table(
        "approval",
        metadata,
        Column("id", BigInteger, Identity(always=True), primary_key=True),
        Column("action", Text, nullable=False),
        Column("subject", Text, nullable=False),
        Column("params", JSON, nullable=False),
        Column("params_hash", Text, nullable=False),
        #: Of everything that people agree to; requests of releases before have none.
        Column("asked_hash", Text),
        #: Of the subject, when it was asked for.
        Column("version", Text, nullable=False),
        #: The person; `requester` is the actor as the audit table names it.
        Column("requested_by", Text, nullable=False),
        Column("requester", Text, nullable=False),
        Column("reason", Text, nullable=False),
        Column("pipeline", Text),
        Column("size", Integer),
        Column("needed", Integer, nullable=False),
        Column("role", Text, nullable=False),
        #: Names; empty: all who have the role.
        Column("persons", JSON, nullable=False),
        Column("break_glass", Boolean, nullable=False, server_default=text("false")),
        #: Which run of which step waits for it, so that it asks once.
        Column("step_key", Text),
        Column("state", Text, nullable=False, server_default=text("'pending'")),
        Column("note", Text),
        #: What the first half of the execution hands to the second.
        Column("token", Text),
        _moment("created_at", nullable=False),
        _moment("expires_at", nullable=False),
        _moment("decided_at"),
        _moment("executed_at"),
        #: Who looked into it after the glass was broken.
        Column("closed_by", Text),
        _moment("closed_at"),
        #: What PostgreSQL itself knows of who wrote the row.
        Column("db_role", Text, nullable=False, server_default=text("SESSION_USER")),
        UniqueConstraint("id", "requested_by", name="approval_requested"),
        *_rules(),
        *_indexes(),
    )


def _rules() -> tuple[CheckConstraint, ...]:
    return (
        CheckConstraint(f"state IN ({STATES})", name="approval_state"),
        CheckConstraint("needed >= 1", name="approval_needed"),
        CheckConstraint("(state = 'pending') = (decided_at IS NULL)", name="approval_decided"),
        CheckConstraint(
            "(state = 'executed') = (executed_at IS NOT NULL)", name="approval_executed"
        ),
        CheckConstraint("closed_by <> requested_by", name="approval_closed_by_another"),
    )


def _indexes() -> tuple[Index, ...]:
    return (
        Index(
            "approval_asked_once",
            "action",
            "subject",
            "params_hash",
            unique=True,
            postgresql_where=text("state = 'pending' AND step_key IS NULL"),
        ),
        #: What is approved about a subject is carried out before the next one is decided.
        Index(
            "approval_one_at_a_time",
            "subject",
            unique=True,
            postgresql_where=text("state = 'approved' AND step_key IS NULL"),
        ),
        Index(
            "approval_step",
            "step_key",
            unique=True,
            postgresql_where=text("step_key IS NOT NULL"),
        ),
        Index("approval_due", "expires_at", postgresql_where=text("state = 'pending'")),
        Index("approval_undone", "decided_at", postgresql_where=text("state = 'approved'")),
        Index("approval_subject", "subject"),
        Index("approval_listed", "created_at", "id"),
        #: Requests about many, whose filters may name what is erased.
        Index("approval_bulk", "id", postgresql_where=text("starts_with(action, 'bulk.')")),
    )


def _declare_decisions(metadata: MetaData) -> None:
    #: One per person, and never the person who asked.
    Table(
        "approval_decision",
        metadata,
        Column("approval_id", BigInteger, nullable=False),
        Column("requested_by", Text, nullable=False),
        Column("decided_by", Text, nullable=False),
        Column("actor", Text, nullable=False),
        Column("role", Text, nullable=False),
        Column("decision", Text, nullable=False),
        Column("note", Text, nullable=False),
        _moment("created_at", nullable=False),
        Column("db_role", Text, nullable=False, server_default=text("SESSION_USER")),
        PrimaryKeyConstraint("approval_id", "decided_by"),
        ForeignKeyConstraint(
            ["approval_id", "requested_by"],
            ["approval.id", "approval.requested_by"],
            name="approval_decision_of",
        ),
        CheckConstraint("decided_by <> requested_by", name="approval_decision_by_another"),
        CheckConstraint("decision IN ('approve', 'reject')", name="approval_decision_kind"),
    )
    #: The transactions of a bulk action, each acted on once.
    Table(
        "approval_item",
        metadata,
        Column("approval_id", BigInteger, nullable=False),
        Column("tx_id", Text, nullable=False),
        Column("state", Text, nullable=False, server_default=text("'open'")),
        #: Of the transaction when it was taken: one that has moved since was acted on.
        Column("sequence", Text),
        Column("note", Text),
        PrimaryKeyConstraint("approval_id", "tx_id"),
        ForeignKeyConstraint(["approval_id"], ["approval.id"], name="approval_item_of"),
        CheckConstraint("state IN ('open', 'taken', 'done', 'failed')", name="approval_item_state"),
        Index(
            "approval_item_undone",
            "approval_id",
            "tx_id",
            postgresql_where=text("state IN ('open', 'taken')"),
        ),
        #: Requests about a transaction that is erased.
        Index("approval_item_tx", "tx_id"),
    )
