"""Steps that are not safe to run again, written down in SQL just before they run.

Redis knows as well, and is asked first after a crash. This is for the case that Redis has lost
its last writes: without it such a step would run a second time, and no trace would be left of it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Engine

from datp_tasks.record.queries import Queries


class Query(Queries, topic="step_starts"):
    mark: str
    forget: str
    of_transaction: str


class BegunSteps:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def mark_many(self, tries: Sequence[tuple[str, str, int]]) -> set[str]:
        """Tries as (id, step key, fence); the ids of those that are the first of their step."""
        columns = {
            "tx_id": [tx_id for tx_id, _, _ in tries],
            "step_key": [step_key for _, step_key, _ in tries],
            "fence": [fence for _, _, fence in tries],
        }
        with self._engine.begin() as connection:
            return {row.tx_id for row in connection.exec_driver_sql(Query.mark, columns)}

    def forget(self, tx_id: str, step_key: str) -> None:
        """An operator has decided that this try had no effect."""
        with self._engine.begin() as connection:
            connection.exec_driver_sql(Query.forget, {"tx_id": tx_id, "step_key": step_key})

    def of(self, tx_id: str) -> list[tuple[str, int]]:
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(Query.of_transaction, {"tx_id": tx_id})
            return [(row.step_key, row.fence) for row in rows]
