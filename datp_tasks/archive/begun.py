"""Steps that are not safe to run again, written down in SQL just before they run.

Redis knows as well, and is asked first after a crash. This is for the case that Redis has lost
its last writes: without it such a step would run a second time, and nobody would know.
"""

from __future__ import annotations

from sqlalchemy import Engine

from datp_tasks.clock import Clock

MARK = """
INSERT INTO step_begun (tx_id, step_key, fence) VALUES (%(tx_id)s, %(step_key)s, %(fence)s)
ON CONFLICT (tx_id, step_key) DO NOTHING RETURNING fence
"""
FORGET = "DELETE FROM step_begun WHERE tx_id = %(tx_id)s AND step_key = %(step_key)s"
LIST = "SELECT step_key, fence FROM step_begun WHERE tx_id = %(tx_id)s ORDER BY begun_at"


class BegunSteps:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    def mark(self, tx_id: str, step_key: str, fence: int) -> bool:
        """True if this try of the step is the first that anybody knows of."""
        values = {"tx_id": tx_id, "step_key": step_key, "fence": fence}
        with self._engine.begin() as connection:
            return connection.exec_driver_sql(MARK, values).first() is not None

    def forget(self, tx_id: str, step_key: str) -> None:
        """Somebody has decided that this try had no effect."""
        with self._engine.begin() as connection:
            connection.exec_driver_sql(FORGET, {"tx_id": tx_id, "step_key": step_key})

    def of(self, tx_id: str) -> list[tuple[str, int]]:
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(LIST, {"tx_id": tx_id})
            return [(row.step_key, row.fence) for row in rows]
