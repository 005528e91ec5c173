"""Archived states: copies of live hashes, so that Redis can let them go or lose them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from psycopg2.errors import UniqueViolation
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import IntegrityError

from datp_tasks.clock import Clock
from datp_tasks.record.archiver_role import ArchiverRole, guard, translate_refusal
from datp_tasks.record.array_text import with_array_texts
from datp_tasks.record.copying import copy_in, escaped
from datp_tasks.record.queries import Queries


class Query(Queries, topic="states"):
    delete: str
    copy_in: str
    load: str
    statuses: str
    versions: str


class StateCopy(NamedTuple):
    """A live hash as it was at one version; `fields` as JSON."""

    tx_id: str
    version: int
    status: str
    fields: str


def copy_text(copies: Iterable[StateCopy], now: str) -> str:
    """As COPY takes them."""
    return "".join(
        [f"{c.tx_id}\t{c.version}\t{c.status}\t{escaped(c.fields)}\t{now}\n" for c in copies]
    )


def version_of(fields: Mapping[str, str] | None) -> int:
    """Of a copy; 0 where there is none, or none that can be read."""
    version = (fields or {}).get("version", "")
    return int(version) if version.isdecimal() else 0


class States:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        #: None of those that were saved last had a copy before. Then the next ones are taken for
        #: new, too, without a look at each: COPY refuses all of them if one is not.
        self._are_new = False

    def save(self, role: ArchiverRole, copies: Sequence[StateCopy]) -> None:
        """Keep these copies; an older version never replaces a newer one. Raises ArchiveRefused if
        PostgreSQL refuses one of them, or cannot do so many in time."""
        with translate_refusal():
            self._save(role, copies)

    def _save(self, role: ArchiverRole, copies: Sequence[StateCopy]) -> None:
        if self._are_new:
            try:
                with self._engine.begin() as connection:
                    self._copy_in(connection, copies, guard(connection, role))
            except IntegrityError as error:
                if not isinstance(error.orig, UniqueViolation):
                    raise
            else:
                return
        with self._engine.begin() as connection:
            # The archiver that has the role is the only writer here, so what is read stays true.
            now = guard(connection, role)
            found = self._versions(connection, [copy.tx_id for copy in copies])
            new = [copy for copy in copies if found.get(copy.tx_id, 0) <= copy.version]
            replaced = [copy.tx_id for copy in new if copy.tx_id in found]
            if replaced:
                connection.exec_driver_sql(Query.delete, {"tx_id": replaced})
            self._copy_in(connection, new, now)
            self._are_new = not found

    def _copy_in(self, connection: Connection, copies: Sequence[StateCopy], now: datetime) -> None:
        text = copy_text(copies, (self._clock.now() or now).isoformat())
        copy_in(connection, Query.copy_in, text)

    def load(self, tx_ids: Iterable[str]) -> dict[str, dict[str, str]]:
        """The fields of each transaction that was archived."""
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(Query.load, {"tx_id": list(tx_ids)})
            return {row.tx_id: json.loads(row.fields) for row in rows}

    def statuses(self, tx_ids: Iterable[str]) -> dict[str, str]:
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(Query.statuses, {"tx_id": list(tx_ids)})
            return {row.tx_id: row.status for row in rows}

    def versions(self, tx_ids: Iterable[str]) -> dict[str, int]:
        with self._engine.connect() as connection:
            return self._versions(connection, tx_ids)

    def _versions(self, connection: Connection, tx_ids: Iterable[str]) -> dict[str, int]:
        values = with_array_texts({"tx_id": list(tx_ids)})
        rows = connection.exec_driver_sql(Query.versions, values)
        return {row.tx_id: row.version for row in rows}
