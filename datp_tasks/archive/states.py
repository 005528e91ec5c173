"""Archived states in SQL, written only by whoever holds the archiver's role.

The role is granted by Redis (`archive_role.lua`) with a fence; each write shows it to the row of
the role in the same commit, so an archiver that was paused past its time is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine

from datp_tasks.clock import Clock
from datp_tasks.errors import StaleFence

ROLE = "archiver"

TAKE_ROLE = """
INSERT INTO archive_role (name, fence, holder, since)
VALUES (%(name)s, %(fence)s, %(holder)s, now())
ON CONFLICT (name) DO UPDATE
SET fence = excluded.fence, holder = excluded.holder,
    since = CASE WHEN archive_role.fence = excluded.fence THEN archive_role.since ELSE now() END
WHERE archive_role.fence <= excluded.fence
RETURNING fence
"""

SAVE = """
INSERT INTO tx_state (tx_id, version, fields, archived_at)
SELECT v.tx_id, v.version, v.fields::json, coalesce(%(now)s, now())
FROM unnest(%(tx_id)s::text[], %(version)s::bigint[], %(fields)s::text[])
     AS v (tx_id, version, fields)
ON CONFLICT (tx_id) DO UPDATE
SET version = excluded.version, fields = excluded.fields, archived_at = excluded.archived_at
WHERE tx_state.version <= excluded.version
"""

LOAD = "SELECT tx_id, version, fields FROM tx_state WHERE tx_id = ANY(%(tx_id)s)"

SAVE_MARK = """
INSERT INTO live_mark (name, value, updated_at) VALUES (%(name)s, %(value)s, now())
ON CONFLICT (name) DO UPDATE SET value = excluded.value, updated_at = now()
"""

LOAD_MARKS = "SELECT name, value FROM live_mark"


class StateArchive:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    @contextmanager
    def as_archiver(self, holder: str, fence: int) -> Iterator[Connection]:
        """One commit of the archiver; StaleFence if the role was given to another since."""
        with self._engine.begin() as connection:
            role = {"name": ROLE, "fence": fence, "holder": holder}
            if connection.exec_driver_sql(TAKE_ROLE, role).first() is None:
                raise StaleFence("another node is the archiver now")
            yield connection

    def save(self, connection: Connection, states: Sequence[tuple[str, int, str]]) -> None:
        """States as (id, version, fields as JSON); an older version never wins."""
        columns: dict[str, Any] = {
            "tx_id": [tx for tx, _, _ in states],
            "version": [version for _, version, _ in states],
            "fields": [fields for _, _, fields in states],
            "now": self._clock.now(),
        }
        connection.exec_driver_sql(SAVE, columns)

    def load(self, tx_ids: Sequence[str]) -> dict[str, dict[str, str]]:
        """The fields that were archived of each transaction, where there are any."""
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(LOAD, {"tx_id": list(tx_ids)})
            return {row.tx_id: json.loads(row.fields) for row in rows}

    def save_mark(self, connection: Connection, name: str, value: str) -> None:
        """Remember something about Redis that Redis may forget."""
        connection.exec_driver_sql(SAVE_MARK, {"name": name, "value": value})

    def marks(self) -> dict[str, str]:
        with self._engine.connect() as connection:
            return {row.name: row.value for row in connection.exec_driver_sql(LOAD_MARKS)}
