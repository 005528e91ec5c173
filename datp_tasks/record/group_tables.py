"""The table of node groups."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, DateTime, Integer, MetaData, Table, Text, text


def declare(metadata: MetaData) -> None:
    """Add the tables to the others of the record."""
    #: What operators decided about a group. No row, or no value: as its workers were started.
    Table(
        "node_group",
        metadata,
        Column("name", Text, primary_key=True),
        #: Processes of each worker of the group; 0 stops it, and its work queues up.
        Column("concurrency", Integer),
        #: Roles: the group has one where its number is above 0.
        Column("archive_batch_size", Integer),
        Column("webhook_workers", Integer),
        Column("wakeup_batch_size", Integer),
        Column("ledger", Integer),
        Column("webhook_pause_ms", Integer),
        Column("webhook_pause_busy_ms", Integer),
        Column("webhook_pause_idle_ms", Integer),
        #: From when on an alert tells of what runs, or waits, in the group; 0: never.
        Column("long_running_s", Integer),
        Column("queue_age_s", Integer),
        Column("updated_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
        CheckConstraint("concurrency BETWEEN 0 AND 1000", name="node_group_concurrency"),
        CheckConstraint("archive_batch_size BETWEEN 0 AND 10000", name="node_group_archiving"),
        CheckConstraint("webhook_workers BETWEEN 0 AND 1000", name="node_group_webhooks"),
        CheckConstraint("wakeup_batch_size BETWEEN 0 AND 100000", name="node_group_wakeup"),
        CheckConstraint("ledger BETWEEN 0 AND 1", name="node_group_ledger"),
        CheckConstraint(
            "webhook_pause_ms >= 0 AND webhook_pause_busy_ms >= 0 AND webhook_pause_idle_ms >= 0",
            name="node_group_pauses",
        ),
        CheckConstraint("long_running_s >= 0 AND queue_age_s >= 0", name="node_group_waits"),
    )
