"""A dataset like that of the Mojaloop seed: many transfers, some of them overdue.

The pipeline of the rows only waits, so what the timeout handler does not expire does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine

from datp_tasks.clock import Clock
from datp_tasks.errors import SettingsError
from datp_tasks.record.queries import Queries

OWNER = "generated"
BATCH = 20_000
TOTAL_MAX = 5_000_000
HOURS_MAX = 8_760
AMOUNT_MAX = 9_999_999


class Query(Queries, topic="generated"):
    has_others: str
    generate: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """What is generated; the words are those of the seed."""

    total_count: int = 100_000
    expired_count: int = 1_000
    amount: tuple[float, float] = (1, 100)
    currency_list: tuple[str, ...] = ("USD", "EUR", "ZAR")
    hours_diff: tuple[float, float] = (0, 168)
    seed: str = "1"

    def mistakes(self) -> list[str]:
        found = []
        if not 1 <= self.total_count <= TOTAL_MAX:
            found.append(f"the total must be 1 to {TOTAL_MAX}")
        if not 0 <= self.expired_count <= self.total_count:
            found.append("there cannot be more expired ones than there are")
        for name, (low, high), limit in (
            ("amount", self.amount, AMOUNT_MAX),
            ("hours", self.hours_diff, HOURS_MAX),
        ):
            if not 0 <= low <= high <= limit:
                found.append(f"the {name} must be a range within 0 to {limit}")
        if not self.currency_list:
            found.append("a currency must be named")
        return found


class GeneratedTransfers:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    def has_others(self) -> bool:
        """Whether the database has transactions of clients."""
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(Query.has_others, {"owner": OWNER})
            return bool(rows.scalar())

    def insert(
        self,
        wanted: Dataset,
        *,
        pipeline: tuple[str, str],
        shards: int,
        progress: Callable[[int], None],
    ) -> int:
        """Add the rows, in batches that are a commit each; how many."""
        mistakes = wanted.mistakes()
        if mistakes:
            raise SettingsError("; ".join(mistakes))
        values: dict[str, Any] = {
            "seed": wanted.seed,
            "expired": wanted.expired_count,
            "amount_min": wanted.amount[0],
            "amount_max": wanted.amount[1],
            "hours_min": wanted.hours_diff[0],
            "hours_max": wanted.hours_diff[1],
            "currencies": list(wanted.currency_list),
            "owner": OWNER,
            "pipeline": pipeline[0],
            "version": pipeline[1],
            "shards": shards,
            "now": self._clock.now(),
        }
        for first in range(1, wanted.total_count + 1, BATCH):
            last = min(first + BATCH - 1, wanted.total_count)
            with self._engine.begin() as connection:
                connection.exec_driver_sql(Query.generate, values | {"first": first, "last": last})
            progress(last)
        return wanted.total_count
