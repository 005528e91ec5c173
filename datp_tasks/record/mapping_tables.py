"""The tables of mappings that pipelines share."""

from __future__ import annotations

from sqlalchemy import (
    CheckConstraint,
    Column,
    DateTime,
    ForeignKeyConstraint,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)


def declare(metadata: MetaData) -> None:
    """Add the tables to the others of the record."""
    #: One row per mapping: which version pipelines get that are applied from now on.
    Table(
        "mapping",
        metadata,
        Column("name", Text, primary_key=True),
        Column("version_in_use", Text),
        Column("updated_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
    )
    #: Every version ever applied. `version` is the start of the content hash.
    Table(
        "mapping_version",
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
        ForeignKeyConstraint(["name"], ["mapping.name"]),
        CheckConstraint("state IN ('draft', 'committed')", name="mapping_version_state"),
        CheckConstraint(
            "(state = 'committed') = (committed_at IS NOT NULL)", name="mapping_version_committed"
        ),
    )
