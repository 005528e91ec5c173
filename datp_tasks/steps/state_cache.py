"""States that this process has just written, kept in case their transaction comes back to it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from datp_tasks.model.state import State


class StateCache:
    """A bounded LRU keyed by transaction; an entry is good for one version of the JSON only."""

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._entries: OrderedDict[str, tuple[int, State]] = OrderedDict()

    def put(self, tx_id: str, version: int, state: State) -> None:
        self._entries[tx_id] = (version, state)
        self._entries.move_to_end(tx_id)
        while len(self._entries) > self._entries_max:
            self._entries.popitem(last=False)

    def versions(self, tx_ids: Iterable[str]) -> dict[str, int]:
        """The version held of each transaction, where one is."""
        if not self._entries:
            return {}
        return {tx: self._entries[tx][0] for tx in tx_ids if tx in self._entries}

    def take(self, tx_id: str) -> State | None:
        """Hand the state out; it will be changed, so it is not kept."""
        entry = self._entries.pop(tx_id, None)
        return entry[1] if entry else None

    def __len__(self) -> int:
        return len(self._entries)
