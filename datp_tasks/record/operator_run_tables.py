"""The table of audits and erasures that operators start over HTTP."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Identity,
    Index,
    MetaData,
    Table,
    Text,
    text,
)


def declare(metadata: MetaData) -> None:
    """Add the table to the others of the record."""
    Table(
        "operator_run",
        metadata,
        Column("id", BigInteger, Identity(always=True), primary_key=True),
        Column("kind", Text, nullable=False),
        Column("state", Text, nullable=False, server_default=text("'running'")),
        Column("params", JSON, nullable=False),
        #: A salted hash of the value whose transactions are to be erased, until that is done.
        Column("subject", JSON),
        #: How far it is, and what it found.
        Column("progress", JSON, nullable=False),
        Column("reason", Text),
        #: Who started it, for the rows that it adds to the audit.
        Column("requester", JSON, nullable=False),
        Column("note", Text),
        Column("created_at", DateTime(timezone=True), nullable=False),
        Column("ended_at", DateTime(timezone=True)),
        CheckConstraint("kind IN ('audit', 'erasure')", name="operator_run_kind"),
        CheckConstraint("state IN ('running', 'done', 'failed')", name="operator_run_state"),
        CheckConstraint(
            "(state = 'running') = (ended_at IS NULL)",
            name="operator_run_ended",
        ),
        CheckConstraint("state = 'running' OR subject IS NULL", name="operator_run_subject_gone"),
        Index(
            "operator_run_one_at_a_time",
            "kind",
            unique=True,
            postgresql_where=text("state = 'running'"),
        ),
        Index("operator_run_listed", "kind", "id"),
    )
