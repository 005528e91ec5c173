"""The table of retention rules: how long what an owner or a pipeline has is kept."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Column, DateTime, Integer, MetaData, Table, Text, text


def declare(metadata: MetaData) -> None:
    """Add the table to the others of the record."""
    Table(
        "retention_rule",
        metadata,
        Column("kind", Text, primary_key=True),
        Column("name", Text, primary_key=True),
        Column("days", Integer, nullable=False),
        Column("changed_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
        CheckConstraint("kind IN ('owner', 'pipeline')", name="retention_rule_kind"),
        CheckConstraint("days BETWEEN 1 AND 36500", name="retention_rule_days"),
    )
