"""The tables of the record. Constraints state what must always hold.

`migrations/` makes them; a test compares the two.
"""

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
    text,
)

from datp_tasks.model.status import FINAL, Status
from datp_tasks.record import (
    api_key_tables,
    approval_tables,
    event_tables,
    group_tables,
    journal_tables,
    ledger_tables,
    mapping_tables,
    operator_run_tables,
    retention_tables,
    saved_view_tables,
    seal_tables,
)
from datp_tasks.record.column_types import Xid8

metadata = MetaData()
for each in (
    *(ledger_tables, journal_tables, event_tables, api_key_tables, group_tables),
    approval_tables,
    saved_view_tables,
    seal_tables,
    mapping_tables,
    retention_tables,
    operator_run_tables,
):
    each.declare(metadata)


def _names(statuses: object) -> str:
    return ", ".join(f"'{status}'" for status in sorted(statuses))  # type: ignore[call-overload]


FINAL_SQL = _names(FINAL)
ANY_SQL = _names(Status)

#: One row per pipeline name: which version new transactions use.
pipeline = Table(
    "pipeline",
    metadata,
    Column("name", Text, primary_key=True),
    Column("version_in_use", Text),
    Column("disabled", Boolean, nullable=False, server_default=text("false")),
    Column("updated_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
)

#: Every version ever applied. `version` is the start of the content hash.
pipeline_version = Table(
    "pipeline_version",
    metadata,
    Column("name", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("content_hash", Text, nullable=False),
    Column("definition", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("comment", Text),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
    Column("committed_at", DateTime(timezone=True)),
    PrimaryKeyConstraint("name", "version"),
    ForeignKeyConstraint(["name"], ["pipeline.name"]),
    CheckConstraint("state IN ('draft', 'committed')", name="pipeline_version_state"),
    CheckConstraint(
        "(state = 'committed') = (committed_at IS NOT NULL)", name="pipeline_version_committed"
    ),
)

#: The transaction as its client sees it. Its insert accepts, its last update decides.
tx_summary = Table(
    "tx_summary",
    metadata,
    Column("tx_id", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("external_id", Text),
    Column("fingerprint", Text, nullable=False),
    Column("pipeline", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("status", Text, nullable=False),
    #: No final status is taken from a worker whose fence is lower.
    Column("fence", BigInteger, nullable=False, server_default=text("0")),
    Column("input", JSON, nullable=False),
    Column("metadata", JSON),
    Column("output", JSON),
    Column("progress", JSON),
    Column("note", Text),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("completed_at", DateTime(timezone=True)),
    Column("expires_at", DateTime(timezone=True)),
    #: When the timeout handler decided that it expires although work had begun.
    Column("expiring_at", DateTime(timezone=True)),
    #: Where its owner is told of its end, and of its progress if asked for.
    Column("webhook", Text),
    Column("progress_reports", Boolean, nullable=False, server_default=text("false")),
    Column("cancel_webhook_on_poll", Boolean, nullable=False, server_default=text("false")),
    #: Events so far, without the last one: that is this row itself.
    Column("event_count", Integer, nullable=False, server_default=text("0")),
    #: When its client first got to know of it by a poll.
    Column("notified_at", DateTime(timezone=True)),
    #: Where it belongs in the trace of its submitter, if it is traced.
    Column("trace", Text),
    #: The actor that submitted it, and its request: "<request id> <address>".
    Column("submitted_by", Text),
    Column("origin", Text),
    #: When its payloads were erased.
    Column("erased_at", DateTime(timezone=True)),
    #: When it passed its point of no return, and since when another system decides.
    Column("no_return_at", DateTime(timezone=True)),
    Column("forwarded_at", DateTime(timezone=True)),
    #: The cancel that was recorded before any such point (model/stop_request.py).
    Column("stop_request", Text),
    #: `original`: its webhooks have the body that clients of the original look for.
    Column("webhook_style", Text),
    #: The link that it is a leg of, how many legs that has, and since when it is ready to commit.
    Column("link_id", Text),
    Column("link_size", Integer),
    Column("link_ready_at", DateTime(timezone=True)),
    #: The owner who is told of its end beside its own, and what that one is shown.
    Column("payee", JSON),
    #: Never both: which came first is decided by this row.
    CheckConstraint(
        "(no_return_at IS NULL AND forwarded_at IS NULL) "
        "OR (expiring_at IS NULL AND stop_request IS NULL)",
        name="tx_summary_one_way",
    ),
    CheckConstraint(
        "no_return_at IS NULL OR status NOT IN ('cancelled', 'expired')",
        name="tx_summary_no_return",
    ),
    CheckConstraint(f"status IN ({ANY_SQL})", name="tx_summary_status"),
    CheckConstraint(
        f"(status IN ({FINAL_SQL})) = (completed_at IS NOT NULL)", name="tx_summary_final"
    ),
    CheckConstraint("erased_at IS NULL OR completed_at IS NOT NULL", name="tx_summary_erased"),
    Index(
        "tx_summary_external_id",
        "owner",
        "external_id",
        unique=True,
        postgresql_where=text("external_id IS NOT NULL"),
    ),
    Index("tx_summary_link", "owner", "link_id", postgresql_where=text("link_id IS NOT NULL")),
    Index("tx_summary_open", "created_at", postgresql_where=text("completed_at IS NULL")),
    #: What an owner has in flight, and what it has sent, the newest first.
    Index("tx_summary_in_flight", "owner", postgresql_where=text("completed_at IS NULL")),
    Index("tx_summary_listed", "owner", "created_at", "tx_id"),
    #: What ended long ago, for retention.
    Index(
        "tx_summary_completed", "completed_at", postgresql_where=text("completed_at IS NOT NULL")
    ),
    #: What did not end well, the newest first: few among many, and what people look for.
    Index(
        "tx_summary_unsuccessful",
        "created_at",
        "tx_id",
        postgresql_where=text("completed_at IS NOT NULL AND status <> 'success'"),
    ),
)

#: What transactions can be found and sorted by (model/search_attributes.py).
tx_attribute = Table(
    "tx_attribute",
    metadata,
    Column("tx_id", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("name", Text, nullable=False),
    #: Its order, byte by byte, is that of the values.
    Column("value", Text(collation="C"), nullable=False),
    PrimaryKeyConstraint("tx_id", "name"),
    Index("tx_attribute_value", "owner", "name", "value", "tx_id"),
)

#: Append-only log of what the record says of each transaction.
tx_state_change = Table(
    "tx_state_change",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("tx_id", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("note", Text),
    Column("created_at", DateTime(timezone=True), nullable=False),
    #: Rows become visible in commit order, not in id order; readers bound their window by this.
    Column("xact", Xid8, nullable=False, server_default=text("pg_current_xact_id()")),
    #: What timeouts call this, where the status does not say it (model/transfer_state.py).
    Column("detail", Text),
    #: That of the transaction, in each of its rows, so that timeouts need no other table.
    Column("expires_at", DateTime(timezone=True)),
    #: Only in rows that are events of the feed (record/event_feed.py).
    Column("owner", Text),
    CheckConstraint(f"status IN ({ANY_SQL})", name="tx_state_change_status"),
    Index("tx_state_change_tx", "tx_id", "id"),
    Index("tx_state_change_window", "xact", "id", postgresql_where=text("expires_at IS NOT NULL")),
    Index("tx_state_change_feed", "xact", "id", postgresql_where=text("owner IS NOT NULL")),
    Index(
        "tx_state_change_owner_feed",
        "owner",
        "xact",
        "id",
        postgresql_where=text("owner IS NOT NULL"),
    ),
)

#: How far a reader of a log has come: everything up to (xact, value) is done.
segment = Table(
    "segment",
    metadata,
    Column("segment_type", Text, nullable=False),
    Column("enumeration", Integer, nullable=False, server_default=text("0")),
    Column("table_name", Text, nullable=False),
    Column("xact", Xid8, nullable=False),
    Column("value", BigInteger, nullable=False),
    Column("changed_at", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint("segment_type", "enumeration", "table_name"),
)

#: What hides the counters in the cursors and ids of the feed (record/feed_places.py). One row, made
#: by its migration, with how far the feed had counted then.
feed_key = Table(
    "feed_key",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("key", Text, nullable=False),
    Column("old_xact", Xid8, nullable=False),
    Column("old_change", BigInteger, nullable=False),
    Column("old_report", BigInteger, nullable=False),
    Column("old_until", DateTime(timezone=True), nullable=False),
    CheckConstraint("id = 1", name="feed_key_one"),
)

#: Transactions in process that will expire unless they end before.
tx_timeout = Table(
    "tx_timeout",
    metadata,
    Column("tx_id", Text, primary_key=True),
    Column("expires_at", DateTime(timezone=True), nullable=False),
    #: When the handler must look at it next; after a look that is some time later.
    Column("due_at", DateTime(timezone=True), nullable=False),
    #: What its worker had done when it was asked to stop: "<fence>:<version>".
    Column("asked", Text),
    Column("asked_at", DateTime(timezone=True)),
    Column("created_at", DateTime(timezone=True), nullable=False),
    CheckConstraint("due_at >= expires_at", name="tx_timeout_due_later"),
    CheckConstraint("(asked IS NULL) = (asked_at IS NULL)", name="tx_timeout_asked"),
    Index("tx_timeout_due", "due_at"),
)

#: The transaction as the engine sees it, once it is out of Redis.
tx_state = Table(
    "tx_state",
    metadata,
    Column("tx_id", Text, primary_key=True),
    Column("version", BigInteger, nullable=False),
    #: Everything the live hash held, as one JSON object of strings.
    Column("fields", JSON, nullable=False),
    Column("archived_at", DateTime(timezone=True), nullable=False),
    Column("status", Text, nullable=False),
    Index("tx_state_age", "archived_at"),
)

#: What a person should look at; one open alert per kind and subject.
alert = Table(
    "alert",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("kind", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("summary", Text, nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
    Column("cleared_at", DateTime(timezone=True)),
    Index(
        "alert_open",
        "kind",
        "subject",
        unique=True,
        postgresql_where=text("cleared_at IS NULL"),
    ),
)

#: Output of a transactional step, written by the same commit as its effects.
step_effect = Table(
    "step_effect",
    metadata,
    Column("tx_id", Text, nullable=False),
    Column("step_key", Text, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("output", JSON),
    Column("created_at", DateTime(timezone=True), nullable=False),
    PrimaryKeyConstraint("tx_id", "step_key"),
)

#: What operators did, and why. Rows are only ever added.
operator_action = Table(
    "operator_action",
    metadata,
    Column("id", BigInteger, Identity(always=True), primary_key=True),
    Column("actor", Text, nullable=False),
    Column("key_id", Text),
    Column("request_id", Text),
    #: Of the client, as the API process saw it.
    Column("address", Text),
    Column("action", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("reason", Text),
    Column("details", JSON),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
    Index("operator_action_subject", "subject", "id"),
    Index(
        "operator_action_bulk",
        "id",
        postgresql_where=text(
            "action IN ('bulk-cancel', 'bulk-wake', 'bulk-retry', 'bulk-transfer.cancel')"
        ),
    ),
)

#: The chain over those rows: each hash covers one row and the hash before it. Rows are only ever
#: added, by the job audit_sealer.
audit_seal = Table(
    "audit_seal",
    metadata,
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("action_id", BigInteger, nullable=False),
    Column("hash", Text, nullable=False),
    Column("sealed_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
    Index("audit_seal_action", "action_id", unique=True),
)

#: Tables in which rows die or come all the time. PostgreSQL would wait until a fifth of a table is
#: dead, and every look at what is open passes over the dead entries of its index until then.
VACUUMED_EARLY = (
    *("tx_summary", "tx_state", "tx_state_change", "tx_timeout", "tx_journal", "tx_signal"),
    *("tx_event", "step_effect", "step_begun", "webhook_delivery", "webhook_attempt"),
    *("ledger_batch", "batch_attempt", "batch_status"),
)
EARLY = {
    "autovacuum_vacuum_scale_factor": "0.01",
    "autovacuum_vacuum_threshold": "1000",
    "autovacuum_analyze_scale_factor": "0.02",
    "autovacuum_analyze_threshold": "1000",
}
#: Percent of a page that inserts fill: rows whose fence, progress or mark changes then find room
#: in their own page, and no index has to learn of it.
FILLFACTOR = {"tx_summary": "85", "live_mark": "50", "archive_role": "50", "segment": "50"}

__all__ = [
    "EARLY",
    "FILLFACTOR",
    "FINAL_SQL",
    "VACUUMED_EARLY",
    "alert",
    "audit_seal",
    "metadata",
    "operator_action",
    "pipeline",
    "pipeline_version",
    "segment",
    "step_effect",
    "tx_attribute",
    "tx_state",
    "tx_state_change",
    "tx_summary",
    "tx_timeout",
]
