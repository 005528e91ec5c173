"""The record: accepting and ending transactions in PostgreSQL.

A transaction is accepted when its row is committed, and final when one UPDATE found it not yet
final and no newer fence in its row. That UPDATE decides every race. All methods take many rows
and commit once.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from datp_tasks.archive.words import Acceptance, Existing, Final, Summary, summary_from_row
from datp_tasks.clock import Clock
from datp_tasks.model.status import Status

# In the order of their external ids: two batches that share some could wait for each other else.
ACCEPT = """
WITH accepted AS (
    INSERT INTO tx_summary (tx_id, owner, external_id, fingerprint, pipeline, version, status,
                            input, metadata, created_at, expires_at)
    SELECT v.tx_id, v.owner, v.external_id, v.fingerprint, v.pipeline, v.version, 'queued',
           v.input::json, v.metadata::json, coalesce(%(now)s, now()), v.expires_at
    FROM unnest(%(tx_id)s::text[], %(owner)s::text[], %(external_id)s::text[],
                %(fingerprint)s::text[], %(pipeline)s::text[], %(version)s::text[],
                %(input)s::text[], %(metadata)s::text[], %(expires_at)s::timestamptz[])
         WITH ORDINALITY
         AS v (tx_id, owner, external_id, fingerprint, pipeline, version, input, metadata,
               expires_at, place)
    ORDER BY v.owner, v.external_id, v.place
    ON CONFLICT (owner, external_id) WHERE external_id IS NOT NULL DO NOTHING
    RETURNING tx_id, created_at, expires_at
), logged AS (
    INSERT INTO tx_state_change (tx_id, status, created_at, expires_at)
    SELECT tx_id, 'queued', created_at, expires_at FROM accepted
)
SELECT tx_id FROM accepted
"""

EXISTING = """
SELECT s.owner, s.external_id, s.tx_id, s.status, s.fingerprint
FROM tx_summary s
JOIN unnest(%(owner)s::text[], %(external_id)s::text[]) AS v (owner, external_id)
  ON s.owner = v.owner AND s.external_id = v.external_id
"""

# The rows are locked in the order of their ids first, so that two finishers cannot deadlock.
# `coalesce` keeps the planner from the index of open rows: that is full of rows that were closed
# since the last vacuum, and all of it would be read. A success must be in time. The history calls
# an expiry by the names of the seed, which depend on whether work had begun.
FINISH = """
WITH locked AS MATERIALIZED (
    SELECT tx_id FROM tx_summary
    WHERE tx_id = ANY(%(tx_id)s) AND coalesce(completed_at, 'infinity') = 'infinity'
    ORDER BY tx_id FOR UPDATE
), won AS (
    UPDATE tx_summary s
    SET status = v.status, fence = v.fence, output = v.output::json, note = v.note,
        progress = coalesce(v.progress::json, s.progress),
        completed_at = coalesce(%(now)s, now())
    FROM locked
    JOIN unnest(%(tx_id)s::text[], %(fence)s::bigint[], %(status)s::text[], %(output)s::text[],
                %(note)s::text[], %(progress)s::text[])
         AS v (tx_id, fence, status, output, note, progress) ON v.tx_id = locked.tx_id
    WHERE s.tx_id = locked.tx_id AND coalesce(s.completed_at, 'infinity') = 'infinity'
      AND s.fence <= v.fence
      AND (v.status <> 'success' OR s.expires_at IS NULL
           OR (s.expires_at > coalesce(%(now)s, now()) AND s.expiring_at IS NULL))
    RETURNING s.tx_id, s.status, s.note, s.completed_at, s.expires_at, s.expiring_at
), logged AS (
    INSERT INTO tx_state_change (tx_id, status, note, created_at, expires_at, detail)
    SELECT tx_id, status, note, completed_at, expires_at,
           CASE WHEN status <> 'expired' THEN NULL WHEN expiring_at IS NULL
                THEN 'EXPIRED_PREPARED' ELSE 'EXPIRED_RESERVED' END
    FROM won
)
SELECT tx_id FROM won
"""

FENCE = """
WITH locked AS MATERIALIZED (
    SELECT tx_id FROM tx_summary
    WHERE tx_id = ANY(%(tx_id)s) AND completed_at IS NULL
    ORDER BY tx_id FOR UPDATE SKIP LOCKED
)
UPDATE tx_summary s SET fence = v.fence + 1
FROM locked
JOIN unnest(%(tx_id)s::text[], %(fence)s::bigint[]) AS v (tx_id, fence)
  ON v.tx_id = locked.tx_id
WHERE s.tx_id = locked.tx_id AND s.completed_at IS NULL AND s.fence <= v.fence + 1
RETURNING s.tx_id, s.fence
"""

MARK = """
WITH marked AS (
    UPDATE tx_summary SET status = %(status)s, note = %(note)s, fence = %(fence)s
    WHERE tx_id = %(tx_id)s AND completed_at IS NULL AND fence <= %(fence)s
      AND status <> %(status)s
    RETURNING tx_id, status, note, expires_at
)
INSERT INTO tx_state_change (tx_id, status, note, created_at, expires_at)
SELECT tx_id, status, note, coalesce(%(now)s, now()), expires_at FROM marked RETURNING tx_id
"""

# Repeating it changes nothing. A row that is locked is passed over, as in FENCE.
MARK_EXPIRING = """
WITH locked AS MATERIALIZED (
    SELECT tx_id FROM tx_summary
    WHERE tx_id = ANY(%(tx_id)s) AND completed_at IS NULL
    ORDER BY tx_id FOR UPDATE SKIP LOCKED
), marked AS (
    UPDATE tx_summary s SET expiring_at = coalesce(%(now)s, now())
    FROM locked WHERE s.tx_id = locked.tx_id AND s.expiring_at IS NULL
    RETURNING s.tx_id, s.status, s.expires_at, s.expiring_at
), logged AS (
    INSERT INTO tx_state_change (tx_id, status, created_at, expires_at, detail)
    SELECT tx_id, status, expiring_at, expires_at, 'RESERVED_TIMEOUT' FROM marked
)
SELECT tx_id FROM locked
"""

LATE = """
INSERT INTO tx_state_change (tx_id, status, note, created_at, expires_at, detail)
SELECT tx_id, status, 'a success came too late and was refused', coalesce(%(now)s, now()),
       expires_at, 'LATE_FINISH'
FROM tx_summary s WHERE tx_id = %(tx_id)s AND NOT EXISTS (
    SELECT 1 FROM tx_state_change c WHERE c.tx_id = s.tx_id AND c.detail = 'LATE_FINISH')
"""

SUMMARIES = """
SELECT tx_id, owner, external_id, pipeline, version, status, fence, input, metadata, output,
       progress, note, created_at, completed_at, expires_at
FROM tx_summary
"""

SAVE_STATES = """
INSERT INTO tx_state (tx_id, version, fields, archived_at)
SELECT v.tx_id, v.version, v.fields::json, coalesce(%(now)s, now())
FROM unnest(%(tx_id)s::text[], %(version)s::bigint[], %(fields)s::text[])
     AS v (tx_id, version, fields)
ON CONFLICT (tx_id) DO UPDATE
SET version = excluded.version, fields = excluded.fields, archived_at = excluded.archived_at
WHERE tx_state.version <= excluded.version
"""


class Record:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self.engine = engine
        self._clock = clock
        #: Counted for the benchmark and for tests: what a transaction costs.
        self.commits = 0

    def accept_many(self, wanted: Sequence[Acceptance]) -> list[Existing | None]:
        """Commit requests; for each None, or the transaction that has its external id."""
        try:
            return self._accept(wanted)
        except OperationalError as error:
            if not error.connection_invalidated:
                raise
            # The commit may have happened although its answer was lost: look before repeating.
            found = {each.tx_id for each in self.summaries([each.tx_id for each in wanted])}
            again = [each for each in wanted if each.tx_id not in found]
            answers = iter(self._accept(again) if again else [])
            return [None if each.tx_id in found else next(answers) for each in wanted]

    def _accept(self, wanted: Sequence[Acceptance]) -> list[Existing | None]:
        columns = {
            "tx_id": [each.tx_id for each in wanted],
            "owner": [each.owner for each in wanted],
            "external_id": [each.external_id for each in wanted],
            "fingerprint": [each.fingerprint for each in wanted],
            "pipeline": [each.pipeline for each in wanted],
            "version": [each.version for each in wanted],
            "input": [each.input_json for each in wanted],
            "metadata": [each.metadata_json for each in wanted],
            "expires_at": [each.expires_at for each in wanted],
            "now": self._now(),
        }
        self.commits += 1
        with self.engine.begin() as connection:
            rows = connection.exec_driver_sql(ACCEPT, columns)
            accepted = {row.tx_id for row in rows}
            refused = [each for each in wanted if each.tx_id not in accepted]
            existing = self._existing(connection, refused) if refused else {}
        return [
            None if each.tx_id in accepted else existing[each.owner, each.external_id or ""]
            for each in wanted
        ]

    def _existing(
        self, connection: Any, refused: Sequence[Acceptance]
    ) -> dict[tuple[str, str], Existing]:
        rows = connection.exec_driver_sql(
            EXISTING,
            {
                "owner": [each.owner for each in refused],
                "external_id": [each.external_id for each in refused],
            },
        )
        return {
            (row.owner, row.external_id): Existing(row.tx_id, Status(row.status), row.fingerprint)
            for row in rows
        }

    def find_existing(self, wanted: Sequence[Acceptance]) -> list[Existing | None]:
        """For each request the transaction that has its external id, if there is one."""
        with self.engine.connect() as connection:
            found = self._existing(connection, [each for each in wanted if each.external_id])
        return [found.get((each.owner, each.external_id or "")) for each in wanted]

    def finish_many(self, finals: Sequence[Final]) -> set[str]:
        """Commit final statuses; the ids that this call (or its lost first try) decided."""
        if not finals:
            return set()
        try:
            won = self._finish(finals)
        except OperationalError as error:
            if not error.connection_invalidated:
                raise
            won = self._finish(finals)
        lost = [final for final in finals if final.tx_id not in won]
        if lost:
            # A row that is final under our own fence was ended by us, in a commit whose answer
            # never came back.
            ours = {final.tx_id: final.fence for final in lost}
            rows = self.summaries(list(ours))
            won |= {r.tx_id for r in rows if r.is_final and r.fence == ours[r.tx_id]}
        return won

    def _finish(self, finals: Sequence[Final]) -> set[str]:
        columns = {
            "tx_id": [final.tx_id for final in finals],
            "fence": [final.fence for final in finals],
            "status": [str(final.status) for final in finals],
            "output": [final.output_json for final in finals],
            "note": [final.note for final in finals],
            "progress": [final.progress_json for final in finals],
            "now": self._now(),
        }
        self.commits += 1
        with self.engine.begin() as connection:
            return {row.tx_id for row in connection.exec_driver_sql(FINISH, columns)}

    def raise_fences(self, claims: Sequence[tuple[str, int]]) -> dict[str, int]:
        """Shut out the holders of these fences; the new fence of each that is not final.

        Repeating it changes nothing, and a claim that is newer than the one named is left alone,
        as is a row that is locked: its holder may be in the middle of a transactional step.
        """
        columns = {"tx_id": [tx for tx, _ in claims], "fence": [fence for _, fence in claims]}
        self.commits += 1
        with self.engine.begin() as connection:
            rows = connection.exec_driver_sql(FENCE, columns)
            return {row.tx_id: row.fence for row in rows}

    def mark_expiring(self, tx_ids: Sequence[str]) -> set[str]:
        """They expire although work had begun; those that are not final and not locked now."""
        self.commits += 1
        with self.engine.begin() as connection:
            rows = connection.exec_driver_sql(
                MARK_EXPIRING, {"tx_id": list(tx_ids), "now": self._now()}
            )
            return {row.tx_id for row in rows}

    def note_late(self, tx_id: str) -> None:
        """The history tells, once, that a success was refused."""
        self.commits += 1
        with self.engine.begin() as connection:
            connection.exec_driver_sql(LATE, {"tx_id": tx_id, "now": self._now()})

    def mark(self, tx_id: str, fence: int, status: Status, note: str) -> bool:
        """Show a status that is not final, such as in-doubt, unless a newer fence is known."""
        values = {"tx_id": tx_id, "fence": fence, "status": str(status), "note": note}
        self.commits += 1
        with self.engine.begin() as connection:
            rows = connection.exec_driver_sql(MARK, {**values, "now": self._now()})
            return rows.first() is not None

    def server_now(self) -> datetime:
        """The time that decides what has expired."""
        given = self._now()
        if given is not None:
            return given
        with self.engine.connect() as connection:
            now: datetime = connection.exec_driver_sql("SELECT now()").scalar_one()
            return now

    def summaries(self, tx_ids: Sequence[str]) -> list[Summary]:
        where = SUMMARIES + "WHERE tx_id = ANY(%(tx_id)s)"
        return self._select(where, {"tx_id": list(tx_ids)})

    def by_external_id(self, owner: str, external_id: str) -> Summary | None:
        where = SUMMARIES + "WHERE owner = %(owner)s AND external_id = %(external_id)s"
        found = self._select(where, {"owner": owner, "external_id": external_id})
        return found[0] if found else None

    def open_page(
        self, *, oldest_s: float, newest_s: float, after: tuple[str, str], rows_max: int
    ) -> list[Summary]:
        """Transactions that go on, accepted in a window of seconds before now.

        What is in doubt is left out: nobody may run it again.

        `after` is the creation time and id of the last row of the page before, or empty.
        """
        where = SUMMARIES + (
            "WHERE completed_at IS NULL AND status = 'queued' AND created_at "
            "BETWEEN coalesce(%(now)s, now()) - make_interval(secs => %(oldest)s) "
            "AND coalesce(%(now)s, now()) - make_interval(secs => %(newest)s) "
            "AND (created_at, tx_id) > (%(after)s::timestamptz, %(after_id)s) "
            "ORDER BY created_at, tx_id LIMIT %(limit)s"
        )
        values = {
            "oldest": oldest_s,
            "newest": newest_s,
            "limit": rows_max,
            "now": self._now(),
            "after": after[0] or "-infinity",
            "after_id": after[1],
        }
        return self._select(where, values)

    def save_states(self, states: Sequence[tuple[str, int, str]]) -> None:
        """Archive live states as (id, version, fields as JSON); an older version never wins."""
        columns = {
            "tx_id": [tx for tx, _, _ in states],
            "version": [version for _, version, _ in states],
            "fields": [fields for _, _, fields in states],
            "now": self._now(),
        }
        self.commits += 1
        with self.engine.begin() as connection:
            connection.exec_driver_sql(SAVE_STATES, columns)

    def _select(self, sql: str, values: dict[str, Any]) -> list[Summary]:
        try:
            return self._read(sql, values)
        except OperationalError as error:
            if not error.connection_invalidated:
                raise
            # A connection from before a restart of the server; the next one is new.
            return self._read(sql, values)

    def _read(self, sql: str, values: dict[str, Any]) -> list[Summary]:
        with self.engine.connect() as connection:
            return [summary_from_row(row) for row in connection.exec_driver_sql(sql, values)]

    def _now(self) -> datetime | None:
        now_ms = self._clock.now_ms()
        return None if now_ms is None else datetime.fromtimestamp(now_ms / 1_000, UTC)
