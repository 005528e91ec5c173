"""Changing the key ring: whatever is not sealed under the active key is sealed anew, page by page.

Payloads are not touched: they are sealed with data keys, and only those are sealed under the ring.
Plain webhook secrets of older releases are sealed on the way. It can be cut off and repeated, and
two at once are harmless: a row is only replaced while it is what was read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine

from datp_tasks.errors import SealBroken
from datp_tasks.record.database import translate_outage
from datp_tasks.record.queries import Queries
from datp_tasks.seals.keyring import PREFIX, KeyRing, key_id_of

PAGE_ROWS = 200


class Query(Queries, topic="rekeying"):
    data_keys: str
    put_data_key: str
    sealed_secrets: str
    put_sealed_secret: str
    webhook_secrets: str
    put_webhook_secret: str
    usage: str


@dataclass(frozen=True, slots=True)
class Resealed:
    """What became of one page of rows."""

    table: str
    resealed: int
    #: Rows whose key is not in the ring: they stay as they are.
    unreadable: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Usage:
    table: str
    #: Empty: plain rows of older releases.
    key_id: str
    rows: int


class Rekeying:
    def __init__(self, engine: Engine, ring: KeyRing) -> None:
        self._engine = engine
        self._ring = ring

    def reseal(self) -> Iterator[Resealed]:
        """One page after the other, each in a commit of its own."""
        for table, column, read, put in (
            ("data_key", "sealed", Query.data_keys, Query.put_data_key),
            ("sealed_secret", "sealed", Query.sealed_secrets, Query.put_sealed_secret),
            ("webhook_secret", "secret", Query.webhook_secrets, Query.put_webhook_secret),
        ):
            after = ""
            while rows := self._page(read, after):
                after = rows[-1].row
                yield self._reseal(table, column, put, rows)

    def usage(self) -> list[Usage]:
        """What each key seals: a key that seals nothing can leave the ring."""
        with translate_outage(), self._engine.connect() as connection:
            rows = connection.exec_driver_sql(Query.usage)
            return [Usage(row.what, row.key_id, row.total) for row in rows]

    def _page(self, read: str, after: str) -> list[Any]:
        active = f"{PREFIX}{self._ring.active}:"
        values = {"after": after, "active": active, "limit": PAGE_ROWS}
        with translate_outage(), self._engine.connect() as connection:
            return list(connection.exec_driver_sql(read, values))

    def _reseal(self, table: str, column: str, put: str, rows: list[Any]) -> Resealed:
        resealed, unreadable = 0, []
        with translate_outage(), self._engine.begin() as connection:
            for row in rows:
                place = (table, column, row.place)
                try:
                    is_plain = not key_id_of(row.sealed)
                    text = row.sealed if is_plain else self._ring.open(row.sealed, *place)
                except SealBroken:
                    unreadable.append(row.place)
                    continue
                sealed = self._ring.seal(text, *place)
                values = {"row": row.row, "before": row.sealed, "sealed": sealed}
                resealed += connection.exec_driver_sql(put, values).rowcount
        return Resealed(table, resealed, tuple(unreadable))


def ring_use(ring: KeyRing, used: list[Usage]) -> list[dict[str, Any]]:
    """Each key by its id: whether it is active, known to this ring, and how many rows it seals."""
    names = [*ring.keys, *sorted({each.key_id for each in used} - ring.keys.keys())]
    return [
        {
            "key": name or "(plain)",
            "active": name == ring.active,
            "known": name in ring.keys,
            "rows": sum(each.rows for each in used if each.key_id == name),
        }
        for name in names
    ]
