"""Places in the feed of events, and how clients see them.

A place is made of counters that all owners share. Clients get it hidden, because from two of them
one could count what the others do meanwhile.
"""

from __future__ import annotations

import base64
import re
import struct
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from datp_tasks.errors import CursorInvalid, CursorTooOld

#: Of the logs: state changes come before the reports of the same writer.
CHANGES, REPORTS = 0, 1
LAST = 2**63 - 1
#: The year 9999.
AT_MS_MAX = 253_370_764_800_000
#: Transaction id, row, time in ms, log.
PLACE = struct.Struct(">QQQB")
#: A row of another list, before the name of its service.
ROW = struct.Struct(">Q")
#: Cursors of earlier releases, which their readers could decode.
OLD_CURSOR = re.compile(r"1\.(\d{1,19})\.([01])\.(\d{1,19})\.(\d{1,15})")
#: Cursors in the form of the release before that were handed out until all processes are replaced
#: are read for so long after that.
OLD_READ = timedelta(days=7)
#: What a row was called before the page was read may be so much older than the page.
SLACK_S = 3_600.0


class FeedPlace(NamedTuple):
    """Where an event stands among all others; a reader's place is that of the last it has seen."""

    #: The transaction id of its writer in PostgreSQL.
    xact: int
    part: int
    id: int


BEGINNING = FeedPlace(0, CHANGES, 0)


@dataclass(frozen=True, slots=True)
class FeedCursor:
    """A place as clients keep it, with its time: what retention has dropped cannot be read."""

    place: FeedPlace
    at: datetime

    def check_kept(self, days: int, now: datetime) -> None:
        """Raise CursorTooOld if what came after it may be dropped by now; 0 keeps it for ever."""
        age_s = (now - self.at).total_seconds()
        if days and age_s > days * 86_400 - SLACK_S:
            raise CursorTooOld(
                f"events are kept for {days} days, and this cursor is {age_s / 86_400:.1f} days "
                "old: events after it may be gone. Begin anew without a cursor."
            )


@dataclass(frozen=True, slots=True)
class OldPlaces:
    """What releases before have handed out: it stays readable, and events keep their ids."""

    #: The transaction id, and the last row of each log, when places began to be hidden.
    xact: int
    change: int
    report: int
    #: Until then processes of the release before may still run: cursors and ids are as they have
    #: them, because a client may be answered by either.
    until: datetime

    def names_row(self, place: FeedPlace, at: datetime) -> bool:
        """Whether an event is called by its row, for ever."""
        last = self.report if place.part == REPORTS else self.change
        return place.id <= last or at < self.until

    def is_mixed(self, now: datetime) -> bool:
        return now < self.until

    def may_be_given(self, xact: int, now: datetime) -> bool:
        """Whether a cursor in the old form can have been handed out. Where nothing was accepted
        before places were hidden, none was."""
        is_upgraded = bool(self.change or self.report)
        return xact <= self.xact or now < self.until + (OLD_READ if is_upgraded else timedelta())


class FeedNames:
    """What clients see of places and events."""

    def __init__(self, key: bytes, old: OldPlaces, *, now: datetime | None = None) -> None:
        """`now` is the time of PostgreSQL; without it, no process of the release before runs."""
        # Late: the command line knows places, and need not load what encrypts.
        from datp_tasks.seals.hidden_numbers import HiddenNumbers

        self._numbers = HiddenNumbers(key)
        self._old = old
        self._now = now
        self._asked_at_s = time.monotonic()

    def event_id(self, place: FeedPlace, at: datetime) -> str:
        """The same for every reader, however often."""
        if self._old.names_row(place, at):
            return row_name(place)
        return f"evt_{self._numbers.mark(struct.pack('>QB', place.id, place.part))}"

    def text(self, cursor: FeedCursor) -> str:
        xact, part, id = cursor.place
        at_ms = int(cursor.at.timestamp() * 1_000)
        if self.is_mixed():
            plain = f"1.{xact}.{part}.{id}.{at_ms}"
            return base64.urlsafe_b64encode(plain.encode()).decode().rstrip("=")
        return self._numbers.hide(PLACE.pack(xact, id, at_ms, part))

    def is_mixed(self) -> bool:
        """Whether processes of the release before may still read what this one hands out."""
        return self._now is not None and self._old.is_mixed(self._time())

    def reads_old(self) -> bool:
        """Whether a client may still hold what they have handed out."""
        return self._now is not None and self._old.may_be_given(LAST, self._time())

    def _time(self) -> datetime:
        assert self._now is not None
        return self._now + timedelta(seconds=time.monotonic() - self._asked_at_s)

    def hide_row(self, table: str, service: str, row: int) -> str:
        """A place in another list, whose rows all owners share."""
        return self._numbers.hide(ROW.pack(row) + service.encode(), of=table.encode())

    def show_row(self, table: str, text: str) -> tuple[str, int] | None:
        """None for a text that was not given for this list."""
        plain = self._numbers.show(text, of=table.encode())
        if plain is None:
            return None
        return plain[ROW.size :].decode(), ROW.unpack(plain[: ROW.size])[0]

    def parse(self, text: str, now: datetime) -> FeedCursor:
        plain = self._numbers.show(text)
        if plain is None:
            return self._parse_old(text, now)
        xact, id, at_ms, part = PLACE.unpack(plain)
        return FeedCursor(FeedPlace(xact, part, id), datetime.fromtimestamp(at_ms / 1_000, UTC))

    def _parse_old(self, text: str, now: datetime) -> FeedCursor:
        """Only those that can have been given: with others one could ask how far we counted."""
        from datp_tasks.seals.hidden_numbers import TAG_BYTES, decoded

        plain = decoded(text) or b""
        found = OLD_CURSOR.fullmatch(plain.decode("ascii", "replace"))
        if found is None and len(plain) == PLACE.size + TAG_BYTES:
            raise CursorTooOld(
                "this cursor was not made with the key of this database: it comes from another "
                "one, or from before a backup was restored. Begin anew without a cursor."
            )
        if found is None:
            raise CursorInvalid("this is no cursor that the feed has given")
        xact, part, id, at_ms = map(int, found.groups())
        if xact > LAST or id > LAST or at_ms > AT_MS_MAX:
            raise CursorInvalid("this is no cursor that the feed has given")
        if not self._old.may_be_given(xact, now):
            raise CursorTooOld(
                "this cursor is in the form of an earlier release, which is read for eight days "
                "after an upgrade. Begin anew without a cursor."
            )
        return FeedCursor(FeedPlace(xact, part, id), datetime.fromtimestamp(at_ms / 1_000, UTC))


def row_name(place: FeedPlace) -> str:
    """An event inside the installation, by its row; releases before told it to clients, too."""
    return f"evt_{'sp'[place.part]}{place.id}"
