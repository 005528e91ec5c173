"""The feed: what happened to all transactions of an owner, in the order of commits, without a gap.

It has no rows of its own. The log of state changes has the acceptance, the end and the doubts of a
transaction, and its progress reports are rows as well; both say their owner and the transaction id
of their writer. Rows become visible in the order of commits, not of ids, so a page ends where the
oldest writer that still runs began (`pg_snapshot_xmin`), as the window of the timeouts does.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any

from sqlalchemy import Engine

from datp_tasks.errors import CursorTooOld
from datp_tasks.model.payload import Json
from datp_tasks.model.sealed import data_key_of
from datp_tasks.record.feed_places import (
    CHANGES,
    LAST,
    FeedCursor,
    FeedNames,
    FeedPlace,
    OldPlaces,
    row_name,
)
from datp_tasks.record.queries import Queries

ACCEPTED, PROGRESS, IN_DOUBT, RESUMED, COMPLETED, PAYEE_COMPLETED = TYPES = (
    "transaction.accepted",
    "transaction.progress",
    "transaction.in-doubt",
    "transaction.resumed",
    "transaction.completed",
    #: A transaction of another owner has ended, of which this one is the payee.
    "payee.completed",
)
#: A longer text is written anew for each stream, so that few large events do not fill the memory.
TEXT_CHARS_MAX = 16_384
#: Ways to show an event: with its payloads or without, in our shape or as a CloudEvent.
VIEWS = 4
#: A writer that takes longer may be missed by who looks for a time; the feed never misses it.
WRITER_S_MAX = 900.0


class Query(Queries, topic="event_feed"):
    pages: str
    page_of_all: str
    first_from: str
    renumber_changes: str
    renumber_reports: str
    head: str
    rule_days: str
    key: str


@dataclass(frozen=True, slots=True)
class FeedHead:
    """How far the feed goes now."""

    #: The place after everything that is committed by now.
    cursor: FeedCursor
    #: Transaction ids up to this one have been given out by this server.
    xact_max: int
    names: FeedNames

    def check_known(self, place: FeedPlace) -> None:
        """Raise CursorTooOld for a place that this server cannot have given."""
        if place.xact > self.xact_max:
            raise _of_another_server()


@dataclass(frozen=True, slots=True)
class TransactionEvent:
    place: FeedPlace
    type: str
    owner: str
    tx_id: str
    at: datetime
    #: As a webhook has it; what is sealed is sealed.
    data: Json
    names: FeedNames = field(compare=False, repr=False)
    #: Its JSON by form of display; made once for all streams.
    texts: dict[str, str] = field(default_factory=dict, compare=False, repr=False)
    #: How long `data` is as text.
    data_chars: int = field(default=0, compare=False, repr=False)

    @property
    def is_sealed(self) -> bool:
        return any(data_key_of(self.data.get(name)) for name in ("output", "progress"))

    @property
    def weight(self) -> int:
        """About how many bytes it takes where it is kept, once each of its texts is written."""
        texts = VIEWS if self.data_chars <= TEXT_CHARS_MAX else 0
        return self.data_chars * (1 + texts)

    @property
    def id(self) -> str:
        """The same for every reader, however often."""
        return self.names.event_id(self.place, self.at)

    @property
    def row_name(self) -> str:
        """Not for clients: it counts the events of all."""
        return row_name(self.place)

    @property
    def cursor(self) -> str:
        return self.names.text(FeedCursor(self.place, self.at))


@dataclass(frozen=True, slots=True)
class FeedPage:
    events: list[TransactionEvent]
    #: Where to go on.
    next: FeedCursor
    #: There may be more at once.
    is_full: bool


class EventFeed:
    def __init__(self, engine: Engine) -> None:
        self._autocommit = engine.execution_options(isolation_level="AUTOCOMMIT")

    @cached_property
    def names(self) -> FeedNames:
        """What clients see of places; read once, it never changes."""
        with self._autocommit.connect() as connection:
            row = connection.exec_driver_sql(Query.key).one()
        old = OldPlaces(int(row.old_xact), row.old_change, row.old_report, row.old_until)
        return FeedNames(bytes.fromhex(row.key), old, now=row.now)

    def head(self) -> FeedHead:
        with self._autocommit.connect() as connection:
            row = connection.exec_driver_sql(Query.head).one()
        cursor = FeedCursor(FeedPlace(int(row.xmin), CHANGES, 0), row.at)
        return FeedHead(cursor, int(row.xmax), self.names)

    def rule_days(self, owner: str | None) -> int:
        """The shortest retention rule of an owner (None: of all) and of pipelines; 0: none."""
        with self._autocommit.connect() as connection:
            row = connection.exec_driver_sql(Query.rule_days, {"owner": owner}).one()
        return int(row.days or 0)

    def renumber(self, rows_max: int) -> int:
        """Rows that come from another server, with transaction ids that this one has not reached;
        they could not be told. Each look is one probe of an index."""
        with self._autocommit.connect() as connection:
            limit = {"limit": rows_max}
            changes = connection.exec_driver_sql(Query.renumber_changes, limit).rowcount
            return changes + connection.exec_driver_sql(Query.renumber_reports, limit).rowcount

    def place_at(self, owner: str, moment: datetime) -> FeedPlace:
        """A place before all events of an owner that happened then or later, and not long before.

        Times and transaction ids grow together, but for writers that take long; so it is looked
        for by halves, some time earlier.
        """
        early_s = (moment - datetime.min.replace(tzinfo=UTC)).total_seconds()
        wanted = moment - timedelta(seconds=min(WRITER_S_MAX, early_s))
        low, high = 0, self.head().cursor.place.xact
        with self._autocommit.connect() as connection:
            while low < high:
                middle = (low + high) // 2
                values = {"owner": owner, "xact": str(middle)}
                row = connection.exec_driver_sql(Query.first_from, values).first()
                if row is None or row.created_at >= wanted:
                    high = middle
                else:
                    low = int(row.xact) + 1
        return FeedPlace(low, CHANGES, 0)

    @staticmethod
    def is_long_after(at: datetime, until: datetime) -> bool:
        """Nothing that happened before `until` comes after an event of this time."""
        return (at - until).total_seconds() > WRITER_S_MAX

    def page(self, owner: str | None, after: FeedPlace, rows_max: int) -> FeedPage:
        """The next events of an owner, or of all owners."""
        if owner is not None:
            return self.pages([(owner, after)], rows_max)[owner]
        values = {"xact": str(after.xact), "limit": rows_max, **_bounds(after)}
        with self._autocommit.connect() as connection:
            rows = connection.exec_driver_sql(Query.page_of_all, values).all()
        return self._page(rows, rows_max)

    def pages(self, wanted: Sequence[tuple[str, FeedPlace]], rows_max: int) -> dict[str, FeedPage]:
        """The next events of each of these owners after its own place, by one query."""
        bounds = [_bounds(place) for _, place in wanted]
        values = {
            "owner": [owner for owner, _ in wanted],
            "xact": [str(place.xact) for _, place in wanted],
            "change": [each["change"] for each in bounds],
            "report": [each["report"] for each in bounds],
            "limit": rows_max,
        }
        with self._autocommit.connect() as connection:
            rows = connection.exec_driver_sql(Query.pages, values).all()
        found: dict[str, list[Any]] = {}
        for row in rows:
            found.setdefault(row.asked, []).append(row)
        return {owner: self._page(of_owner, rows_max) for owner, of_owner in found.items()}

    def _page(self, rows: Sequence[Any], rows_max: int) -> FeedPage:
        if rows[0].is_ahead:
            raise _of_another_server()
        found = [row for row in rows if row.id is not None]
        is_full = len(found) >= rows_max
        end = FeedCursor(FeedPlace(int(rows[0].xmin), CHANGES, 0), rows[0].at)
        if is_full:
            end = FeedCursor(_place(found[-1]), found[-1].created_at)
        # What retention has dropped since leaves no event.
        events = [_event(row, self.names) for row in found if row.data is not None]
        return FeedPage(events, end, is_full)


def _bounds(after: FeedPlace) -> dict[str, int]:
    """The last row of each log that is known. Of one writer all changes come before all reports."""
    if after.part == CHANGES:
        return {"change": after.id, "report": 0}
    return {"change": LAST, "report": after.id}


def _of_another_server() -> CursorTooOld:
    return CursorTooOld(
        "this cursor comes from another database server, or from before a backup was "
        "restored. Begin anew without a cursor."
    )


def _place(row: Any) -> FeedPlace:
    return FeedPlace(int(row.xact), row.part, row.id)


def _event(row: Any, names: FeedNames) -> TransactionEvent:
    data = json.loads(row.data)
    return TransactionEvent(
        _place(row),
        row.type,
        row.owner,
        row.tx_id,
        row.created_at,
        data,
        names,
        data_chars=len(row.data),
    )
