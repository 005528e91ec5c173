"""Looking through transactions: pages of summaries, and what has news.

A page is found in two steps: ids in their order from an index, some at a time, and of those the
ones that fit. At most `LOOKS_MAX` are looked at for one page, so that a rare status in a long
history costs bounded time: the page is then short, and says where to go on. Where a question is
narrow (few are open, few have the attribute), the ids come from that index at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine

from datp_tasks.model.search_attributes import AFTER, SearchCondition
from datp_tasks.model.status import FINAL, Status
from datp_tasks.record import transactions
from datp_tasks.record.queries import Queries
from datp_tasks.record.record_types import Summary, summary_from_row

#: For one page; and at a time.
LOOKS_MAX = 20_000
CHUNK = 1_000
#: So many that fit a narrow question are read and sorted at once.
FEW_MAX = 5_000
#: Before and after every id.
FIRST, LAST = "", "~"


class Query(Queries, topic="listing"):
    newest: str
    oldest: str
    open_newest: str
    unsuccessful_newest: str
    attribute_up: str
    attribute_down: str
    external_ids: str
    open_ids: str
    attribute_ids: str
    matching: str
    pipelines_of: str
    sequences: str
    by_version: str


#: Where a transaction stands in the order: the time of its creation or its attribute, and its id.
Place = tuple[Any, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListingFilter:
    """Which transactions, in which order. Empty and None mean any."""

    owner: str | None = None
    external_id: str | None = None
    #: As the record has them: what goes on is `queued` there, or `in-doubt`.
    statuses: Sequence[str] = field(default=())
    pipelines: Sequence[str] = field(default=())
    since: datetime | None = None
    until: datetime | None = None
    completed_since: datetime | None = None
    completed_until: datetime | None = None
    #: Fields of the metadata, compared as texts.
    metadata: Mapping[str, str] = field(default_factory=dict)
    #: A part of the id or of the external id.
    text: str | None = None
    #: All of them must hold (model/search_attributes.py).
    attributes: Sequence[SearchCondition] = field(default=())
    #: A search attribute; None: the time of creation. What lacks the attribute is left out.
    order: str | None = None
    descending: bool = True
    #: Where the page before ended.
    after: Place | None = None
    rows_max: int = 50

    @property
    def is_narrow(self) -> bool:
        """Whether not everything of the owner within the time fits."""
        return bool(
            self.external_id is not None
            or self.statuses
            or self.pipelines
            or self.completed_since
            or self.completed_until
            or self.metadata
            or self.text
            or self.attributes
        )


@dataclass(frozen=True, slots=True)
class ListingPage:
    rows: list[Summary]
    #: Where the next page begins; None: there is none.
    next: Place | None


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


class Listing:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def page(self, wanted: ListingFilter) -> ListingPage:
        """A page; it may be short or empty, and there is more while it has a `next`."""
        with self._engine.connect() as connection:
            few = _few(connection, wanted)
            found: list[str] = []
            end: Place | None = None
            looked = 0
            for chunk, is_last in _chunks(connection, wanted, few):
                kept = _kept(connection, wanted, [tx_id for _, tx_id in chunk])
                for number, (place, tx_id) in enumerate(chunk, 1):
                    end = (place, tx_id)
                    if tx_id in kept:
                        found.append(tx_id)
                    if len(found) == wanted.rows_max:
                        is_last = is_last and number == len(chunk)
                        break
                looked += len(chunk)
                if is_last:
                    end = None
                if is_last or len(found) == wanted.rows_max or looked >= LOOKS_MAX:
                    break
            rows = _summaries(connection, found)
        return ListingPage([rows[tx_id] for tx_id in found if tx_id in rows], end)

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


def _few(connection: Connection, wanted: ListingFilter) -> list[str] | None:
    """All that can fit, if an index knows that they are few; None if it does not."""
    values: dict[str, Any] = {"owner": wanted.owner, "limit": FEW_MAX + 1}
    if wanted.order is not None:
        return None
    questions: list[tuple[str, dict[str, Any]]] = [
        (
            Query.attribute_ids,
            {
                "name": each.name,
                "low": [low for low, _ in each.ranges],
                "high": [high for _, high in each.ranges],
            },
        )
        for each in wanted.attributes
    ]
    if wanted.external_id is not None:
        questions.insert(0, (Query.external_ids, {"external_id": wanted.external_id}))
    if wanted.statuses and not wanted.descending and not FINAL.intersection(wanted.statuses):
        questions.append((Query.open_ids, {}))
    for sql, more in questions:
        rows = connection.exec_driver_sql(sql, {**values, **more}).all()
        if len(rows) <= FEW_MAX:
            return [row.tx_id for row in rows]
    return None


def _chunks(
    connection: Connection, wanted: ListingFilter, few: list[str] | None
) -> Iterator[tuple[list[Place], bool]]:
    """Places in their order, some at a time, and whether these are the last."""
    if few is not None:
        yield _sorted(connection, wanted, few), True
        return
    # Most filters fit much of what is looked at: few first, and more each time.
    size = min(CHUNK, 4 * (wanted.rows_max + 1)) if wanted.is_narrow else wanted.rows_max + 1
    after = wanted.after
    while True:
        chunk = _look(connection, wanted, after, size)
        yield chunk, len(chunk) < size
        if len(chunk) < size:
            return
        after, size = chunk[-1], min(CHUNK, 2 * size)


def _sorted(connection: Connection, wanted: ListingFilter, few: list[str]) -> list[Place]:
    places = [
        (row.created_at, row.tx_id)
        for row in _matching(connection, wanted, few)
        if (wanted.since is None or row.created_at >= wanted.since)
        and (wanted.until is None or row.created_at < wanted.until)
    ]
    places.sort(reverse=wanted.descending)
    if wanted.after is None:
        return places
    if wanted.descending:
        return [place for place in places if place < wanted.after]
    return [place for place in places if place > wanted.after]


def _newest_of(wanted: ListingFilter) -> str:
    """What is open, and what did not end well, are few among many: each has an index of its own."""
    statuses = {Status(each) for each in wanted.statuses}
    if statuses and not statuses & FINAL:
        return Query.open_newest
    if statuses and statuses <= FINAL - {Status.SUCCESS}:
        return Query.unsuccessful_newest
    return Query.newest


def _look(
    connection: Connection, wanted: ListingFilter, after: Place | None, size: int
) -> list[Place]:
    values: dict[str, Any] = {"owner": wanted.owner, "limit": size}
    if wanted.order is None:
        start: Place = ("infinity", LAST) if wanted.descending else ("-infinity", FIRST)
        sql = _newest_of(wanted) if wanted.descending else Query.oldest
        values |= {"statuses": list(wanted.statuses)}
        values |= {"since": wanted.since or "-infinity", "until": wanted.until or "infinity"}
    else:
        own = [each for each in wanted.attributes if each.name == wanted.order]
        low = max((each.low for each in own), default="")
        high = min((each.high for each in own), default=LAST)
        start = (LAST, LAST) if wanted.descending else ("", FIRST)
        sql = Query.attribute_down if wanted.descending else Query.attribute_up
        values |= {"name": wanted.order, "low": low, "high": high}
    place, tx_id = after or start
    rows = connection.exec_driver_sql(sql, {**values, "after": place, "after_id": tx_id})
    return [(row.place, row.tx_id) for row in rows]


def _kept(connection: Connection, wanted: ListingFilter, ids: list[str]) -> set[str]:
    # An order by an attribute knows nothing of times; an index of some statuses, nothing else.
    rest = replace(wanted, statuses=()) if _newest_of(wanted) != Query.newest else wanted
    if wanted.order is None and not (rest if wanted.descending else wanted).is_narrow:
        return set(ids)
    return {row.tx_id for row in _matching(connection, wanted, ids)} if ids else set()


def _matching(connection: Connection, wanted: ListingFilter, ids: list[str]) -> Any:
    ranges = [
        (number, each.name, low, high)
        for number, each in enumerate(wanted.attributes)
        for low, high in each.ranges or ((AFTER, AFTER),)
    ]
    return connection.exec_driver_sql(
        Query.matching,
        {
            "tx_id": ids,
            "external_id": wanted.external_id,
            "statuses": list(wanted.statuses) or None,
            "pipelines": list(wanted.pipelines) or None,
            "since": wanted.since,
            "until": wanted.until,
            "completed_since": wanted.completed_since,
            "completed_until": wanted.completed_until,
            "keys": list(wanted.metadata),
            "values": list(wanted.metadata.values()),
            "text": wanted.text,
            "number": [number for number, *_ in ranges],
            "name": [name for _, name, _, _ in ranges],
            "low": [low for *_, low, _ in ranges],
            "high": [high for *_, high in ranges],
        },
    ).all()


def _summaries(connection: Connection, ids: list[str]) -> dict[str, Summary]:
    if not ids:
        return {}
    rows = connection.exec_driver_sql(transactions.Query.by_ids, {"tx_id": ids})
    return {row.tx_id: summary_from_row(row) for row in rows}
