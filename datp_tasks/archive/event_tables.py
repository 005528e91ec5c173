"""The tables of events and webhooks."""

from __future__ import annotations

from sqlalchemy import MetaData


def declare(metadata: MetaData) -> None:
    """Add the tables to the others of the record."""
