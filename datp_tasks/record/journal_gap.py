"""The files of the journal, and what they lack while they cannot be written.

SQL has every entry before the files get it. So a folder that cannot be written (a full disk, a
mount that is gone) holds nothing up: where the files lack something is noted in SQL, an alert
says so, and once the folder can be written again they get it from there.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Self

from sqlalchemy import Engine, Row

from datp_tasks.clock import Clock
from datp_tasks.model.journal import Entry, entries_from_text
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.journal_files import JournalFiles
from datp_tasks.record.queries import Queries
from datp_tasks.settings import Settings

log = logging.getLogger("datp.archiver")

#: Kind of the alert; its subject is the host and the folder.
JOURNAL_FILES = "journal-files"
#: Rows at a time: each has several entries, which may be large.
ROWS_MAX = 50
#: For how long the files are given what they lack before something new is recorded: longer than it
#: took to record that, so that they come nearer.
CATCH_UP_S = 1.0


class Query(Queries, topic="journal_gap"):
    note_gap: str
    find_gap: str
    missing_rows: str
    move_gap: str
    recorded_at: str
    forget_gap: str


class FilesAndGap:
    """Used by the node that has the archiver's role: nothing is recorded meanwhile."""

    def __init__(self, files: JournalFiles, engine: Engine, clock: Clock) -> None:
        self._files = files
        self._engine = engine
        self._clock = clock
        self._alerts = Alerts(engine, clock)
        self._subject = f"{socket.gethostname()}:{files.folder}"
        self._name = {"name": f"{JOURNAL_FILES} {self._subject}"}

    @classmethod
    def of(cls, settings: Settings, engine: Engine, clock: Clock) -> Self | None:
        files = JournalFiles.of(settings)
        return None if files is None else cls(files, engine, clock)

    def append(self, changes: Mapping[str, Sequence[Entry]], now_ms: int) -> None:
        """Add what SQL has just got; where that is not possible, note that it is missing."""
        gap = self._gap()
        if gap is not None:
            self._add_earlier(changes, now_ms, gap.moment)
            # In order: what is missing first, and this batch is part of it.
            self.catch_up()
            return
        try:
            self._files.append(changes, now_ms)
        except OSError as error:
            self._note(changes, error)

    def _add_earlier(
        self, changes: Mapping[str, Sequence[Entry]], now_ms: int, moment: datetime
    ) -> None:
        """Add at once what would be passed over: the clock of PostgreSQL went back, and in its
        order this batch comes before what the files were given last."""
        recorded_at = self._recorded_at(changes)
        if recorded_at is None or recorded_at > moment:
            return
        try:
            self._files.append(changes, now_ms)
        except OSError:
            self._move_to(recorded_at, "", 0)

    def catch_up(self) -> None:
        """Add what is missing, if something is and if it is possible by now."""
        until_s = time.monotonic() + CATCH_UP_S
        while True:
            gap = self._gap()
            if gap is None:
                return
            page = self._missing(gap)
            try:
                self._add(page)
            except OSError as error:
                log.debug("the files of the journal still cannot be written: %s", error)
                return
            self._move(page)
            if time.monotonic() >= until_s:
                return

    def _gap(self) -> Row[tuple[datetime, str, int]] | None:
        with self._engine.connect() as connection:
            return connection.exec_driver_sql(Query.find_gap, self._name).first()

    def _missing(self, gap: Row[tuple[datetime, str, int]]) -> list[Row[tuple[object, ...]]]:
        values = {"moment": gap.moment, "tx_id": gap.tx_id, "number": gap.number}
        with self._engine.connect() as connection:
            return list(
                connection.exec_driver_sql(Query.missing_rows, {**values, "limit": ROWS_MAX})
            )

    def _add(self, page: Sequence[Row[tuple[object, ...]]]) -> None:
        if not page:
            self._files.probe()
        for recorded_at, rows in groupby(page, key=lambda row: row.recorded_at):
            changes: dict[str, list[Entry]] = {}
            for row in rows:
                changes.setdefault(row.tx_id, []).extend(entries_from_text(row.entries))
            self._files.append(changes, round(recorded_at.timestamp() * 1_000), is_late=True)

    def _move(self, page: Sequence[Row[tuple[object, ...]]]) -> None:
        if len(page) == ROWS_MAX:
            last = page[-1]
            self._move_to(last.recorded_at, last.tx_id, last.number)
            return
        with self._engine.begin() as connection:
            connection.exec_driver_sql(Query.forget_gap, self._name)
            self._alerts.clear_alert(JOURNAL_FILES, self._subject, connection=connection)
        log.warning("the files of the journal in %s have everything again", self._subject)

    def _move_to(self, moment: datetime, tx_id: str, number: int) -> None:
        place = {"moment": moment, "tx_id": tx_id, "number": number}
        with self._engine.begin() as connection:
            connection.exec_driver_sql(Query.move_gap, {**self._name, **place})

    def _recorded_at(self, changes: Mapping[str, Sequence[Entry]]) -> datetime | None:
        """When a batch was recorded: by one statement, so one transaction tells it of all."""
        with self._engine.connect() as connection:
            values = {"tx_id": next(iter(changes), "")}
            found = connection.exec_driver_sql(Query.recorded_at, values).first()
        return None if found is None else found.recorded_at

    def _note(self, changes: Mapping[str, Sequence[Entry]], error: OSError) -> None:
        values = {
            "tx_id": list(changes),
            "version": [entries[0].version for entries in changes.values()],
            "now": self._clock.now(),
        }
        with self._engine.begin() as connection:
            connection.exec_driver_sql(Query.note_gap, {**self._name, **values})
            moment = connection.exec_driver_sql(Query.find_gap, self._name).one().moment
            text = (
                f"the journal cannot be written to the files in {self._subject}: {error}. They "
                f"lack what was recorded since {moment.isoformat()}; SQL has it, and they get it "
                "from there as soon as they can be written"
            )
            if self._alerts.raise_alert(JOURNAL_FILES, self._subject, text, connection=connection):
                log.error("%s", text, extra={"event": f"alert.{JOURNAL_FILES}"})
