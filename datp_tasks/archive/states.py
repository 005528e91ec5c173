"""Archived states: copies of live hashes, so that Redis can let them go or lose them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from psycopg2.errors import UniqueViolation
from sqlalchemy import Connection, Engine

from datp_tasks.archive.role import Role, guard
from datp_tasks.clock import Clock

REPLACE = """
DELETE FROM tx_state s
USING unnest(%(tx_id)s::text[], %(version)s::bigint[]) AS v (tx_id, version)
WHERE s.tx_id = v.tx_id AND s.version <= v.version
"""

COPY = "COPY tx_state (tx_id, version, status, fields, archived_at) FROM STDIN"

#: Where SQL has a newer version of one of them, COPY would refuse all.
UPSERT = """
INSERT INTO tx_state (tx_id, version, status, fields, archived_at)
SELECT v.tx_id, v.version, v.status, v.fields::json, %(now)s
FROM unnest(%(tx_id)s::text[], %(version)s::bigint[], %(status)s::text[], %(fields)s::text[])
     AS v (tx_id, version, status, fields)
ON CONFLICT (tx_id) DO UPDATE
SET version = excluded.version, status = excluded.status, fields = excluded.fields,
    archived_at = excluded.archived_at
WHERE tx_state.version <= excluded.version
"""

LOAD = "SELECT tx_id, version, fields FROM tx_state WHERE tx_id = ANY(%(tx_id)s)"

VERSIONS = "SELECT tx_id, version FROM tx_state WHERE tx_id = ANY(%(tx_id)s)"

_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"})


@dataclass(frozen=True, slots=True)
class Copy:
    """A live hash as it was at one version; `fields` as JSON."""

    tx_id: str
    version: int
    status: str
    fields: str


def copy_text(copies: Iterable[Copy], now: str) -> str:
    """As COPY takes them."""
    return "".join(
        f"{c.tx_id}\t{c.version}\t{c.status}\t{c.fields.translate(_ESCAPES)}\t{now}\n"
        for c in copies
    )


class States:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    def save(self, role: Role, copies: Sequence[Copy]) -> None:
        """Keep these copies; an older version never replaces a newer one."""
        try:
            with self._engine.begin() as connection:
                guard(connection, role)
                self._copy_in(connection, copies)
        except UniqueViolation:
            with self._engine.begin() as connection:
                guard(connection, role)
                self._upsert(connection, copies)

    def _copy_in(self, connection: Connection, copies: Sequence[Copy]) -> None:
        values = {
            "tx_id": [copy.tx_id for copy in copies],
            "version": [copy.version for copy in copies],
        }
        connection.exec_driver_sql(REPLACE, values)
        now = self._now(connection).isoformat()
        text = copy_text(copies, now)
        # The raw cursor is the only way to COPY with this driver; its errors are the driver's.
        driver = connection.connection.driver_connection
        assert driver is not None
        with driver.cursor() as cursor:
            cursor.copy_expert(COPY, io.StringIO(text))

    def _upsert(self, connection: Connection, copies: Sequence[Copy]) -> None:
        values = {
            "tx_id": [copy.tx_id for copy in copies],
            "version": [copy.version for copy in copies],
            "status": [copy.status for copy in copies],
            "fields": [copy.fields for copy in copies],
            "now": self._now(connection),
        }
        connection.exec_driver_sql(UPSERT, values)

    def load(self, tx_ids: Iterable[str]) -> dict[str, dict[str, str]]:
        """The fields of each transaction that was archived."""
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(LOAD, {"tx_id": list(tx_ids)})
            return {row.tx_id: json.loads(row.fields) for row in rows}

    def versions(self, tx_ids: Iterable[str]) -> dict[str, int]:
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(VERSIONS, {"tx_id": list(tx_ids)})
            return {row.tx_id: row.version for row in rows}

    def _now(self, connection: Connection) -> datetime:
        given = self._given()
        if given is not None:
            return given
        now: datetime = connection.exec_driver_sql("SELECT now()").scalar_one()
        return now

    def _given(self) -> datetime | None:
        now_ms = self._clock.now_ms()
        return None if now_ms is None else datetime.fromtimestamp(now_ms / 1_000, UTC)
