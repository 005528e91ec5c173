"""The tables of the journal, and of what keeps Redis and SQL in step."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)

Time = DateTime(timezone=True)


def declare(metadata: MetaData) -> None:
    """Add the tables to the others of the record."""
    _declare_journal(metadata)
    _declare_marks(metadata)


def _declare_journal(metadata: MetaData) -> None:
    #: Several entries a row, in order; `hash` covers the row and all rows before it.
    Table(
        "tx_journal",
        metadata,
        Column("tx_id", Text, nullable=False),
        Column("number", Integer, nullable=False),
        Column("first_version", BigInteger, nullable=False),
        Column("last_version", BigInteger, nullable=False),
        Column("entries", Text, nullable=False),
        Column("hash", Text, nullable=False),
        Column("recorded_at", Time, nullable=False),
        #: Of an erased row: the SHA-256 of what `entries` said, and a hash that covers that, the
        #: old hash, what is left of the entries, and the erased rows before it.
        Column("content_hash", Text),
        Column("erased_hash", Text),
        PrimaryKeyConstraint("tx_id", "number"),
        CheckConstraint("number >= 1", name="tx_journal_number"),
        CheckConstraint("(content_hash IS NULL) = (erased_hash IS NULL)", name="tx_journal_erased"),
        Index("tx_journal_age", "recorded_at"),
    )


def _declare_marks(metadata: MetaData) -> None:
    #: How often the journal of a shard was read. Redis counts too: less there means a loss.
    Table(
        "live_mark",
        metadata,
        Column("shard", Text, primary_key=True),
        Column("value", BigInteger, nullable=False),
    )
    #: Which process of Redis was seen last: another one may have lost the last writes.
    Table(
        "live_server",
        metadata,
        Column("name", Text, primary_key=True),
        Column("run_id", Text, nullable=False),
    )
    #: The last switch of each name, and the cancel, that outside sent to a transaction.
    Table(
        "tx_signal",
        metadata,
        Column("tx_id", Text, nullable=False),
        Column("name", Text, nullable=False),
        Column("value", Text, nullable=False),
        Column("created_at", Time, nullable=False),
        #: Number of the switch that a step has put in its place, if one has.
        Column("replaced_seq", BigInteger),
        PrimaryKeyConstraint("tx_id", "name"),
        Index("tx_signal_age", "created_at"),
    )
    #: The archiver's role: no archiver with a lower fence may write.
    Table(
        "archive_role",
        metadata,
        Column("name", Text, primary_key=True),
        Column("fence", BigInteger, nullable=False),
        Column("node", Text, nullable=False),
        Column("granted_at", Time, nullable=False),
    )
    #: How far a job has come that goes through rows by their time.
    Table(
        "job_mark",
        metadata,
        Column("name", Text, primary_key=True),
        Column("moment", Time, nullable=False),
        Column("tx_id", Text, nullable=False),
        Column("number", Integer, nullable=False, server_default=text("0")),
    )
    #: Steps that are not safe to run again, from just before they run: Redis may forget that.
    Table(
        "step_begun",
        metadata,
        Column("tx_id", Text, nullable=False),
        Column("step_key", Text, nullable=False),
        Column("fence", BigInteger, nullable=False),
        Column("begun_at", Time, nullable=False, server_default=text("now()")),
        PrimaryKeyConstraint("tx_id", "step_key"),
    )
