"""The table of saved views."""

from __future__ import annotations

from sqlalchemy import Column, DateTime, MetaData, PrimaryKeyConstraint, Table, Text, text


def declare(metadata: MetaData) -> None:
    """Add the table to the others of the record."""
    #: Filters of the list of transactions that a person has given a name.
    Table(
        "saved_view",
        metadata,
        Column("person", Text, nullable=False),
        Column("name", Text, nullable=False),
        #: As it is in the URL.
        Column("query", Text, nullable=False),
        Column("changed_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
        PrimaryKeyConstraint("person", "name"),
    )
