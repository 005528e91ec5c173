"""The tables of what is sealed under the key ring; the ring itself is in no table."""

from __future__ import annotations

from sqlalchemy import Column, DateTime, Index, MetaData, Table, Text


def declare(metadata: MetaData) -> None:
    """Add the tables to the others of the record."""
    #: What payloads of an owner are sealed with. Without its row they cannot be opened any more.
    Table(
        "data_key",
        metadata,
        Column("id", Text, primary_key=True),
        Column("owner", Text, nullable=False),
        Column("sealed", Text, nullable=False),
        Column("created_at", DateTime(timezone=True), nullable=False),
        Index("data_key_owner", "owner", "created_at"),
    )
    #: What `{secret: NAME}` in the parameters of a step stands for.
    Table(
        "sealed_secret",
        metadata,
        Column("name", Text, primary_key=True),
        Column("sealed", Text, nullable=False),
        Column("created_at", DateTime(timezone=True), nullable=False),
        Column("changed_at", DateTime(timezone=True), nullable=False),
    )
