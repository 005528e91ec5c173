"""Looking through transactions: pages of summaries, and what has news."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Engine

from datp_tasks.model.status import FINAL, Status
from datp_tasks.record.queries import Queries
from datp_tasks.record.record_types import Summary, summary_from_row


class Query(Queries, topic="listing"):
    of_owner: str
    of_all: str
    open_ones: str
    unsuccessful: str
    pipelines_of: str
    sequences: str
    by_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingFilter:
    """Which transactions, the newest first. Empty and None mean any."""

    owner: str | None = None
    #: As the record has them: what goes on is `queued` there, or `in-doubt`.
    statuses: Sequence[str] = field(default=())
    pipeline: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    #: Creation time and id of the last one of the page before.
    after: tuple[datetime, str] | None = None
    rows_max: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionCounts:
    """How the transactions of one version of a pipeline stand lately."""

    in_flight: int = 0
    ended: int = 0
    #: Of those that ended, the ones that did not end with success.
    unsuccessful: int = 0

    @property
    def unsuccessful_share(self) -> float | None:
        return self.unsuccessful / self.ended if self.ended else None


def _query(wanted: ListingFilter) -> str:
    """What is open, and what did not end well, are few among many: each has an index of its own."""
    statuses = {Status(each) for each in wanted.statuses}
    if statuses and not statuses & FINAL:
        return Query.open_ones
    if statuses and statuses <= FINAL - {Status.SUCCESS}:
        return Query.unsuccessful
    return Query.of_all if wanted.owner is None else Query.of_owner


class Listing:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def page(self, wanted: ListingFilter) -> list[Summary]:
        after, after_id = wanted.after or (None, "")
        values = {
            "owner": wanted.owner,
            "statuses": list(wanted.statuses) or None,
            "pipeline": wanted.pipeline,
            "since": wanted.since,
            "until": wanted.until,
            "after": after,
            "after_id": after_id,
            "limit": wanted.rows_max,
        }
        sql = _query(wanted)
        with self._engine.connect() as connection:
            return [summary_from_row(row) for row in connection.exec_driver_sql(sql, values)]

    def pipelines_of(self, tx_ids: Sequence[str]) -> tuple[str, ...]:
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(Query.pipelines_of, {"tx_id": list(tx_ids)})
            return tuple(row.pipeline for row in rows)

    def sequences(self, tx_ids: Sequence[str]) -> dict[str, int]:
        """The number of the last event of each; 0 if nothing was reported yet."""
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(Query.sequences, {"tx_id": list(tx_ids)})
            return {row.tx_id: row.sequence for row in rows}

    def by_version(self, rows_max: int) -> dict[tuple[str, str], VersionCounts]:
        """By pipeline and version, of the newest that go on and of those that ended last."""
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(Query.by_version, {"limit": rows_max})
            return {
                (row.pipeline, row.version): VersionCounts(
                    in_flight=row.in_flight, ended=row.ended, unsuccessful=row.unsuccessful
                )
                for row in rows
            }
