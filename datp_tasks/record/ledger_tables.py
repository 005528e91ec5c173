"""The tables of ordered submission to outside ledgers."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from datp_tasks.model.ledger_batch import FINAL_STATES, OPEN_STATES, TO_ASK, BatchState, Verdict

Time = DateTime(timezone=True)
INFINITY = text("'infinity'")


def _names(words: Iterable[str]) -> str:
    return ", ".join(f"'{word}'" for word in sorted(words))


def declare(metadata: MetaData) -> None:
    """Add the tables to the others of the record."""
    _declare_claims(metadata)
    _declare_batches(metadata)
    _declare_history(metadata)


def _declare_claims(metadata: MetaData) -> None:
    #: A line of batches to one ledger. Its counter gives numbers in the order of commits.
    Table(
        "ledger_service",
        metadata,
        Column("service_id", Text, primary_key=True),
        Column("kind", Text, nullable=False),
        Column("url", Text, nullable=False),
        Column("last_seq", BigInteger, nullable=False, server_default=text("0")),
        #: Name of the sealed secret that its requests carry.
        Column("secret", Text),
        Column("created_at", Time, nullable=False),
    )
    #: Processes that queue batches. All claims of an instance end with its lease, so that renewing
    #: a hundred thousand claims is one write.
    Table(
        "ledger_instance",
        metadata,
        Column("instance", Text, primary_key=True),
        Column("expiry", Time, nullable=False),
        #: The second phase: from here on even a service in the middle of a submission is free.
        Column("slow_expiry", Time, nullable=False),
        Column("joined_at", Time, nullable=False),
        CheckConstraint("slow_expiry >= expiry", name="ledger_instance_phases"),
    )
    Table(
        "service_claim",
        metadata,
        Column("service_id", Text, primary_key=True),
        Column("claimant", Text),
        #: Grows with every change of hands; an instance that shows an older one is refused.
        Column("epoch", BigInteger, nullable=False, server_default=text("0")),
        Column("claimed_at", Time),
        #: When its first batch must be looked at.
        Column("due_at", Time, nullable=False, server_default=INFINITY),
        ForeignKeyConstraint(["service_id"], ["ledger_service.service_id"]),
        CheckConstraint("(claimant IS NULL) = (claimed_at IS NULL)", name="service_claim_claimed"),
        Index("service_claim_due", "claimant", "due_at"),
    )


def _declare_batches(metadata: MetaData) -> None:
    Table(
        "ledger_batch",
        metadata,
        Column("service_id", Text, nullable=False),
        Column("batch_id", Text, nullable=False),
        Column("seq", BigInteger, nullable=False),
        Column("owner", Text, nullable=False),
        #: SHA-256 of owner and payload: the same id with other bytes is refused.
        Column("fingerprint", Text, nullable=False),
        Column("payload", LargeBinary, nullable=False),
        Column("state", Text, nullable=False, server_default=text("'NEW'")),
        Column("claim_epoch", BigInteger, nullable=False, server_default=text("0")),
        Column("attempts", Integer, nullable=False, server_default=text("0")),
        #: Attempts that may have reached the ledger: two or more can mean a second execution.
        Column("possible", Integer, nullable=False, server_default=text("0")),
        Column("resubmits", Integer, nullable=False, server_default=text("0")),
        #: NEW, DELAYED: not before. SUBMITTING: over by then. Else: when to ask the ledger.
        Column("next_at", Time, nullable=False),
        #: Until then an attempt that was begun may still arrive.
        Column("grace_until", Time, nullable=False, server_default=text("'-infinity'")),
        Column("polls", Integer, nullable=False, server_default=text("0")),
        #: How often in a row the ledger did not know it.
        Column("unknown_seen", Integer, nullable=False, server_default=text("0")),
        Column("receipt", JSON),
        Column("note", Text),
        #: A transaction that sleeps until the batch is final, and the switch that wakes it.
        Column("tx_id", Text),
        Column("switch", Text),
        Column("created_at", Time, nullable=False),
        Column("final_at", Time),
        PrimaryKeyConstraint("service_id", "batch_id"),
        UniqueConstraint("service_id", "seq", name="ledger_batch_seq"),
        ForeignKeyConstraint(["service_id"], ["ledger_service.service_id"]),
        CheckConstraint(f"state IN ({_names(BatchState)})", name="ledger_batch_state"),
        CheckConstraint(
            f"(state IN ({_names(FINAL_STATES)})) = (final_at IS NOT NULL)",
            name="ledger_batch_final",
        ),
        CheckConstraint("possible BETWEEN 0 AND attempts", name="ledger_batch_possible"),
        *_batch_indexes(),
    )


def _batch_indexes() -> tuple[Index, ...]:
    return (
        Index(
            "ledger_batch_one_open",
            "service_id",
            unique=True,
            postgresql_where=text(f"state IN ({_names(OPEN_STATES)})"),
        ),
        Index("ledger_batch_head", "service_id", "seq", postgresql_where=text("final_at IS NULL")),
        Index("ledger_batch_in_flight", "owner", postgresql_where=text("final_at IS NULL")),
        #: What an owner has in the line.
        Index(
            "ledger_batch_owner",
            "service_id",
            "owner",
            postgresql_where=text("final_at IS NULL"),
        ),
        Index("ledger_batch_ended", "final_at", postgresql_where=text("final_at IS NOT NULL")),
        #: Batches of transactions that are erased.
        Index("ledger_batch_tx", "tx_id", postgresql_where=text("tx_id IS NOT NULL")),
        Index("ledger_batch_late", "next_at", postgresql_where=text("state = 'SUBMITTING'")),
        Index(
            "ledger_batch_ask",
            "next_at",
            postgresql_where=text(
                f"state IN ({_names([*TO_ASK, BatchState.INVALID])}) AND next_at < 'infinity'"
            ),
        ),
    )


def _declare_history(metadata: MetaData) -> None:
    #: One row per POST, begun before it left; written again only by the one who sent it.
    Table(
        "batch_attempt",
        metadata,
        Column("service_id", Text, nullable=False),
        Column("batch_id", Text, nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("epoch", BigInteger, nullable=False),
        Column("sender", Text, nullable=False),
        Column("begun_at", Time, nullable=False),
        Column("ended_at", Time),
        Column("verdict", Text),
        Column("http_status", Integer),
        Column("note", Text),
        PrimaryKeyConstraint("service_id", "batch_id", "attempt"),
        CheckConstraint(f"verdict IN ({_names(Verdict)})", name="batch_attempt_verdict"),
        CheckConstraint("(verdict IS NULL) = (ended_at IS NULL)", name="batch_attempt_ended"),
    )
    #: Append-only log of the states a batch came into, and who saw that.
    Table(
        "batch_status",
        metadata,
        Column("id", BigInteger, Identity(always=True), primary_key=True),
        Column("service_id", Text, nullable=False),
        Column("batch_id", Text, nullable=False),
        Column("state", Text, nullable=False),
        Column("source", Text, nullable=False),
        Column("note", Text),
        Column("seen_at", Time, nullable=False),
        CheckConstraint(f"state IN ({_names(BatchState)})", name="batch_status_state"),
        Index("batch_status_batch", "service_id", "batch_id", "id"),
    )
