"""The same transfers in two sets of tables: the seed's, and ours."""

from __future__ import annotations

import io
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from sqlalchemy import Engine

from benchmarks import seed_timeouts
from benchmarks.transfers import PREPARED, RESERVED, Change, Transfer

#: What the seed's states are in our words. The seed takes a fulfilled one for finished, too.
STATUS = {
    PREPARED: "queued",
    RESERVED: "running",
    "FAILED": "failed",
    "EXPIRED": "expired",
    "REJECTED": "aborted",
    "ABORTED": "cancelled",
}

COPY_TRANSFERS = "COPY seed.transfer (transfer_id, amount, currency_id, expiration_date) FROM STDIN"
COPY_THEIR_LOG = "COPY seed.transfer_state_change (transfer_id, transfer_state_id) FROM STDIN"
COPY_SUMMARIES = (
    "COPY tx_summary (tx_id, owner, fingerprint, pipeline, version, status, input, created_at,"
    " completed_at, expires_at) FROM STDIN"
)
COPY_OUR_LOG = "COPY tx_state_change (tx_id, status, created_at, expires_at) FROM STDIN"


class Loader:
    """Loads the log piece by piece, each piece into both sets of tables."""

    def __init__(self, engine: Engine, rows: Iterator[Change], now: datetime) -> None:
        self._engine = engine
        self._rows = rows
        self._now = now
        self._now_text = now.isoformat()
        self.loaded = 0
        #: Some that are still in process when everything is loaded, to make them expire.
        self.live: list[str] = []

    def load(self, count: int) -> int:
        """The next rows; how many there were."""
        piece = list(islice(self._rows, count))
        new = [change.transfer for change in piece if change.is_first]
        self._copy(COPY_TRANSFERS, (self._transfer(each) for each in new))
        self._copy(COPY_THEIR_LOG, (f"{c.transfer.transfer_id}\t{c.state}\n" for c in piece))
        self._copy(COPY_SUMMARIES, (self._summary(each) for each in new))
        self._copy(COPY_OUR_LOG, (self._change(each) for each in piece))
        self.live += [t.transfer_id for t in new if not t.is_over and t.expires_in_ms > 0]
        self.loaded += len(piece)
        return len(piece)

    def vacuum(self) -> None:
        """What autovacuum does in life, here at known moments."""
        with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM (ANALYZE)")

    def _copy(self, command: str, lines: Iterator[str]) -> None:
        connection = self._engine.raw_connection()
        try:
            cursor: Any = connection.cursor()
            cursor.copy_expert(command, io.StringIO("".join(lines)))
            connection.commit()
        finally:
            connection.close()

    def _expiry(self, transfer: Transfer) -> str:
        return (self._now + timedelta(milliseconds=transfer.expires_in_ms)).isoformat()

    def _transfer(self, each: Transfer) -> str:
        return f"{each.transfer_id}\t{each.amount}\t{each.currency}\t{self._expiry(each)}\n"

    def _summary(self, each: Transfer) -> str:
        status = STATUS.get(each.states[-1], "success")
        ended = self._now_text if each.is_over else r"\N"
        body = f'{{"amount":"{each.amount}","currency":"{each.currency}"}}'
        return (
            f"{each.transfer_id}\tbench\tnone\ttransfer\t1\t{status}\t{body}\t"
            f"{self._now_text}\t{ended}\t{self._expiry(each)}\n"
        )

    def _change(self, change: Change) -> str:
        status = STATUS.get(change.state, "success")
        return (
            f"{change.transfer.transfer_id}\t{status}\t{self._now_text}\t"
            f"{self._expiry(change.transfer)}\n"
        )


def create_seed_tables(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.exec_driver_sql(seed_timeouts.TABLES)


def server_now(engine: Engine) -> datetime:
    with engine.connect() as connection:
        now: datetime = connection.exec_driver_sql("SELECT now()").scalar_one()
        return now.astimezone(UTC)
