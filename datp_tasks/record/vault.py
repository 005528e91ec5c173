"""The vault: data keys of owners, sealed under the key ring; it seals and opens payloads.

A process keeps the keys that it has used in memory, so most values are sealed and opened without
asking PostgreSQL. A transaction is sealed with the data key that its owner had when it was
accepted, to its end.
"""

from __future__ import annotations

import base64
import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Engine

from datp_tasks.clock import Clock
from datp_tasks.errors import DataKeyGone, SealBroken, SealError
from datp_tasks.model.sealed import data_key_of
from datp_tasks.record.database import translate_outage
from datp_tasks.record.events import FINAL, Event
from datp_tasks.record.queries import Queries
from datp_tasks.record.record_types import Summary
from datp_tasks.seals.data_key import KEYED, DataKey
from datp_tasks.seals.keyring import KEY_BYTES, KeyRing, needed

TABLE, COLUMN = "data_key", "sealed"
#: An owner's transactions get a new data key so often. NIST SP 800-38D allows 2^32 values under one
#: key: that is 7,100 a second for a week.
KEY_DAYS = 7
#: How long a process goes on with an owner's key without asking for a newer one.
CURRENT_S = 3_600.0
#: Of each kind, per process; one takes about 1 kB.
KEPT_MAX = 10_000


class Query(Queries, topic="data_keys"):
    current: str
    add: str
    find: str


class Vault:
    def __init__(self, engine: Engine, clock: Clock, ring: KeyRing | None) -> None:
        self._engine = engine
        self._clock = clock
        #: None: this process stores nothing secret and opens nothing that is sealed.
        self.ring = ring
        self._lock = threading.Lock()
        self._known: OrderedDict[str, DataKey] = OrderedDict()
        self._current: OrderedDict[str, tuple[float, DataKey]] = OrderedDict()

    # Keys.

    def key_for(self, owner: str) -> DataKey:
        """What new transactions of this owner are sealed with."""
        until_s, key = self._current.get(owner, (0.0, None))
        if key is not None and time.monotonic() < until_s:
            return key
        ring = needed(self.ring, "a sealed pipeline")
        key = self._stored(owner) or self._made(owner, ring)
        with self._lock:
            _keep(self._current, owner, (time.monotonic() + CURRENT_S, key))
        return key

    def key(self, key_id: str) -> DataKey:
        """The data key of this id, or a SealError that says why it cannot be had."""
        known = self._known.get(key_id)
        if known is not None:
            return known
        needed(self.ring, "reading a sealed transaction")
        with translate_outage(), self._engine.connect() as connection:
            sealed = connection.exec_driver_sql(Query.find, {"id": key_id}).scalar()
        if sealed is None:
            raise DataKeyGone(f"the data key {key_id!r:.40} is gone: what it sealed is erased")
        return self._opened(key_id, sealed)

    def _stored(self, owner: str) -> DataKey | None:
        values = {"owner": owner, "days": KEY_DAYS, "now": self._clock.now()}
        with self._engine.connect() as connection:
            row = connection.exec_driver_sql(Query.current, values).first()
        return None if row is None else self._opened(row.id, row.sealed)

    def _made(self, owner: str, ring: KeyRing) -> DataKey:
        key = DataKey(secrets.token_hex(8), secrets.token_bytes(KEY_BYTES))
        text = base64.b64encode(key.secret).decode()
        values = {
            "id": key.id,
            "owner": owner,
            "sealed": ring.seal(text, TABLE, COLUMN, key.id),
            "now": self._clock.now(),
        }
        with self._engine.begin() as connection:
            connection.exec_driver_sql(Query.add, values)
        return self._kept(key)

    def _opened(self, key_id: str, sealed: str) -> DataKey:
        ring = needed(self.ring, "reading a sealed transaction")
        text = ring.open(sealed, TABLE, COLUMN, key_id)
        return self._kept(DataKey(key_id, base64.b64decode(text)))

    def _kept(self, key: DataKey) -> DataKey:
        with self._lock:
            _keep(self._known, key.id, key)
        return key

    def forget(self, key_ids: Sequence[str]) -> None:
        """Seal nothing new with these keys: they are gone."""
        with self._lock:
            for key_id in key_ids:
                self._known.pop(key_id, None)
            for owner, (_, key) in list(self._current.items()):
                if key.id in key_ids:
                    del self._current[owner]

    # Values.

    def open(self, tx_id: str, value: Any) -> Any:
        """A value of this transaction as its owner may see it; one that is not sealed as it is."""
        key_id = data_key_of(value)
        return self.key(key_id).open(tx_id, value) if key_id else value

    def seal_like(self, example: Any, tx_id: str, value: Any) -> Any:
        """Sealed if the example is, with the same data key."""
        key_id = data_key_of(example)
        return self.key(key_id).seal(tx_id, value) if key_id and value is not None else value

    def opened(self, summary: Summary) -> Summary:
        """A transaction as its owner may see it; masked in a process without a key ring."""
        if not summary.is_sealed:
            return summary
        if self.ring is None:
            return summary.masked()
        tx_id = summary.tx_id
        return replace(
            summary,
            input=self.open(tx_id, summary.input),
            output=self.open(tx_id, summary.output),
            progress=self.open(tx_id, summary.progress),
        )

    def opened_events(self, tx_id: str, events: Sequence[Event]) -> list[Event]:
        return [
            replace(
                each,
                payload=self._opened_parts(tx_id, each.payload)
                if each.kind == FINAL
                else self.open(tx_id, each.payload),
            )
            for each in events
        ]

    def opened_webhook(self, tx_id: str, body: Any) -> Any:
        """What a webhook says of a transaction, as it is sent."""
        if "eventType" in body:
            # The original's shape: the output and the report stand by themselves.
            parts = {name: self.open(tx_id, body[name]) for name in ("progressReport", "data")}
            return {**body, **parts}
        about = body.get("data")
        return {**body, "data": self._opened_parts(tx_id, about)} if about else body

    def _opened_parts(self, tx_id: str, about: Any) -> Any:
        parts = {
            name: self.open(tx_id, about[name])
            for name in ("output", "progress")
            if data_key_of(about.get(name))
        }
        return {**about, **parts} if parts else about

    def is_same_request(self, fingerprint: str, asked: str) -> bool | None:
        """Whether a keyed fingerprint is that of this request; None if it is not keyed."""
        if not fingerprint.startswith(KEYED):
            return None
        try:
            now = self.key(fingerprint.split(":")[1]).fingerprint(asked)
            return hmac.compare_digest(now.encode(), fingerprint.encode())
        except DataKeyGone:
            raise
        except SealBroken as error:
            raise SealError(f"whether it is the same request cannot be told: {error}") from error


def _keep(kept: OrderedDict[str, Any], name: str, value: Any) -> None:
    kept[name] = value
    kept.move_to_end(name)
    while len(kept) > KEPT_MAX:
        kept.popitem(last=False)
