"""Transactional steps: the effects of a step and its output are one commit.

The commit also holds the summary row FOR SHARE and looks at its fence, so a worker whose
transaction was taken over cannot apply anything any more. The row cannot be taken over while it
is held, so PostgreSQL ends a connection that is silent for longer than the step may take.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, event

from datp_tasks.clock import Clock
from datp_tasks.errors import StaleFence, StepError
from datp_tasks.model.payload import Json, encode

GUARD = """
SELECT set_config('idle_in_transaction_session_timeout', %(idle_ms)s, true) FROM tx_summary
WHERE tx_id = %(tx_id)s AND completed_at IS NULL AND fence <= %(fence)s
FOR SHARE
"""
FIND = "SELECT output FROM step_effect WHERE tx_id = %(tx_id)s AND step_key = %(step_key)s"
SAVE = """
INSERT INTO step_effect (tx_id, step_key, fence, output, created_at)
VALUES (%(tx_id)s, %(step_key)s, %(fence)s, %(output)s::json, coalesce(%(now)s, now()))
"""


OWN_COMMIT = "do not commit ctx.sql: the engine commits it together with the step's output"


class Effect:
    """One execution of a transactional step."""

    def __init__(self, connection: Connection, recorded: tuple[Json | None] | None) -> None:
        self.connection = connection
        #: Set when the step took effect in an earlier try: its output, in a tuple.
        self.recorded = recorded
        #: Set to commit; without it everything is rolled back.
        self.output: tuple[Json | None] | None = None
        self.refused = False

    def refuse_commit(self, connection: Connection) -> None:
        """A step that commits by itself would have an effect without the record of it."""
        self.refused = True
        # SQLAlchemy takes its transaction for ended now, so the database must be told here.
        connection.connection.rollback()
        raise StepError(OWN_COMMIT)


@contextmanager
def effect(
    engine: Engine, clock: Clock, *, tx_id: str, step_key: str, fence: int, idle_s: float
) -> Iterator[Effect]:
    """A connection whose commit happens once per step of a transaction, if `output` is set."""
    identity = {"tx_id": tx_id, "step_key": step_key}
    with engine.connect() as connection:
        guard = {"tx_id": tx_id, "fence": fence, "idle_ms": str(int(idle_s * 1_000))}
        if connection.exec_driver_sql(GUARD, guard).first() is None:
            raise StaleFence
        row = connection.exec_driver_sql(FIND, identity).first()
        found = None if row is None else (_parse(row.output),)
        happening = Effect(connection, found)
        event.listen(connection, "commit", happening.refuse_commit)
        yield happening
        event.remove(connection, "commit", happening.refuse_commit)
        if happening.refused:
            raise StepError(OWN_COMMIT)
        if happening.output is None or found is not None:
            connection.rollback()
            return
        output = happening.output[0]
        values = {
            **identity,
            "fence": fence,
            "output": None if output is None else encode(output),
            "now": clock.now(),
        }
        connection.exec_driver_sql(SAVE, values)
        connection.commit()


def _parse(text: str | None) -> Json | None:
    return None if text is None else json.loads(text)
