"""Views of the list of transactions that a person has given a name."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Engine

from datp_tasks.record.queries import Queries

#: Of one person.
VIEWS_MAX = 50


class Query(Queries, topic="saved_views"):
    of_person: str
    save: str
    forget: str


@dataclass(frozen=True, slots=True)
class SavedView:
    name: str
    #: The filters, as they are in the URL.
    query: str


class SavedViews:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def of(self, person: str) -> list[SavedView]:
        """By name."""
        with self._engine.connect() as connection:
            values = {"person": person, "limit": VIEWS_MAX}
            rows = connection.exec_driver_sql(Query.of_person, values)
            return [SavedView(row.name, row.query) for row in rows]

    def save(self, person: str, view: SavedView) -> bool:
        """A view of the same name is replaced; False if the person has too many."""
        values = {"person": person, "name": view.name, "query": view.query, "limit": VIEWS_MAX}
        with self._engine.begin() as connection:
            return connection.exec_driver_sql(Query.save, values).rowcount > 0

    def forget(self, person: str, name: str) -> bool:
        with self._engine.begin() as connection:
            values = {"person": person, "name": name}
            return connection.exec_driver_sql(Query.forget, values).rowcount > 0
