"""The edge between a hop and storage for a sealed transaction.

In the worker its payloads are plain; in Redis, the journal and SQL they are sealed. Scripts and
tables carry JSON as opaque text, so nothing behind this edge needs to know. A value that is written
to several places (a delta, the state, the summary) is sealed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from datp_tasks.model.payload import encode
from datp_tasks.model.sealed import data_key_of
from datp_tasks.model.state import Delta, State
from datp_tasks.model.state_payloads import state_with_payloads, with_payloads
from datp_tasks.record.vault import Vault
from datp_tasks.seals.data_key import DataKey


class SealEdge:
    """Seals and opens what belongs to one transaction."""

    __slots__ = ("_at_rest", "_key", "_tx_id")

    def __init__(self, tx_id: str, key: DataKey) -> None:
        self._tx_id = tx_id
        self._key = key
        #: By identity: a value of the state and the sealed object that it came from or became.
        #: The value is kept with it, so that no other gets its identity meanwhile.
        self._at_rest: dict[int, tuple[Any, Any]] = {}

    def seal(self, value: Any) -> Any:
        """As it rests. What is sealed already stays as it is."""
        known = self._at_rest.get(id(value))
        if known is not None:
            return known[1]
        if data_key_of(value):
            return value
        sealed = self._key.seal(self._tx_id, value)
        self._at_rest[id(value)] = value, sealed
        return sealed

    def open(self, value: Any) -> Any:
        """As a step sees it."""
        if not data_key_of(value):
            return value
        plain = self._key.open(self._tx_id, value)
        self._at_rest[id(plain)] = plain, value
        return plain

    def seal_text(self, text: str) -> str:
        """JSON that is written once, such as a progress report."""
        return encode(self._key.seal_text(self._tx_id, text))

    def sealed_deltas(self, deltas: Sequence[Delta]) -> list[Delta]:
        return [with_payloads(delta, self.seal) for delta in deltas]

    def opened_delta(self, delta: Delta) -> Delta:
        return with_payloads(delta, self.open)

    def state_json(self, state: State) -> str:
        kept: dict[int, tuple[Any, Any]] = {}

        def seal(value: Any) -> Any:
            sealed = self.seal(value)
            kept[id(value)] = value, sealed
            return sealed

        text = state_with_payloads(state, seal).to_json()
        # What is not in the state any more is not needed again.
        self._at_rest = kept
        return text


def edge_of(tx_id: str, state: State, vault: Vault) -> SealEdge | None:
    """The edge of a transaction that rests sealed; None for one that does not."""
    key_id = data_key_of(state.data)
    return SealEdge(tx_id, vault.key(key_id)) if key_id else None
