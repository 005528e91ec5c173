"""Finding anything by its id: whatever has a page of its own."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Engine

from datp_tasks.record.queries import Queries


class Query(Queries, topic="search"):
    anything: str


@dataclass(frozen=True, slots=True)
class Match:
    #: transaction, batch, webhook, pipeline, approval, endpoint, mapping, service, group or key.
    kind: str
    id: str
    #: What else a person wants to know of it.
    about: str


class Search:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def anything(self, text: str, *, rows_max: int = 50) -> list[Match]:
        """Whatever has exactly this id; each kind by its own index."""
        number = int(text) if text.isdecimal() and len(text) < 19 else None
        values = {"text": text, "number": number, "limit": rows_max}
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(Query.anything, values)
            return [Match(row.kind, row.id, row.about) for row in rows]
