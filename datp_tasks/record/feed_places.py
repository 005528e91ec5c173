"""Places in the feed of events, and how clients see them.

A place is made of counters that all owners share. Clients get it hidden, because from two of them
one could count what the others do meanwhile.
"""

from __future__ import annotations

import base64
import re
import struct
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from datp_tasks.errors import CursorInvalid, CursorTooOld

#: Of the logs: state changes come before the reports of the same writer.
CHANGES, REPORTS = 0, 1
LAST = 2**63 - 1
#: The year 9999.
AT_MS_MAX = 253_370_764_800_000
#: Transaction id, row, time in ms, log.
PLACE = struct.Struct(">QQQB")
#: Cursors of earlier releases, which their readers could decode.
OLD_CURSOR = re.compile(r"1\.(\d{1,19})\.([01])\.(\d{1,19})\.(\d{1,15})")
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
    #: Until then a process of the release before may still run and hand out cursors.
    until: datetime


class FeedNames:
    """What clients see of places and events."""

    def __init__(self, key: bytes, old: OldPlaces) -> None:
        # Late: the command line knows places, and need not load what encrypts.
        from datp_tasks.seals.hidden_numbers import HiddenNumbers

        self._numbers = HiddenNumbers(key)
        self._old = old

    def event_id(self, place: FeedPlace) -> str:
        """The same for every reader, however often."""
        if place.id <= (self._old.report if place.part == REPORTS else self._old.change):
            return row_name(place)
        return f"evt_{self._numbers.mark(struct.pack('>QB', place.id, place.part))}"

    def text(self, cursor: FeedCursor) -> str:
        xact, part, id = cursor.place
        at_ms = int(cursor.at.timestamp() * 1_000)
        return self._numbers.hide(PLACE.pack(xact, id, at_ms, part))

    def parse(self, text: str, now: datetime) -> FeedCursor:
        plain = self._numbers.show(text)
        if plain is None:
            return self._parse_old(text, now)
        xact, id, at_ms, part = PLACE.unpack(plain)
        return FeedCursor(FeedPlace(xact, part, id), datetime.fromtimestamp(at_ms / 1_000, UTC))

    def _parse_old(self, text: str, now: datetime) -> FeedCursor:
        """Only those that can have been given: with others one could ask how far we counted."""
        try:
            padded = text + "=" * (-len(text) % 4)
            plain = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
        except ValueError:
            plain = ""
        found = OLD_CURSOR.fullmatch(plain)
        if found is None:
            raise CursorInvalid("this is no cursor that the feed has given")
        xact, part, id, at_ms = map(int, found.groups())
        if xact > LAST or id > LAST or at_ms > AT_MS_MAX:
            raise CursorInvalid("this is no cursor that the feed has given")
        if xact > self._old.xact and now >= self._old.until:
            raise CursorTooOld(
                "this cursor is in the form of an earlier release, which is read for a day after "
                "an upgrade. Begin anew without a cursor."
            )
        return FeedCursor(FeedPlace(xact, part, id), datetime.fromtimestamp(at_ms / 1_000, UTC))


def row_name(place: FeedPlace) -> str:
    """An event inside the installation, by its row; releases before told it to clients, too."""
    return f"evt_{'sp'[place.part]}{place.id}"
