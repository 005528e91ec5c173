"""States that this process has just written, kept in case their transaction comes back to it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from datp_tasks.model.state import State


class StateCache:
    """A bounded LRU keyed by transaction; an entry is good for one writing of the JSON only."""

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._entries: OrderedDict[str, tuple[str, State]] = OrderedDict()

    def put(self, tx_id: str, version: int, fence: int, state: State) -> None:
        """The fence belongs to the name: after a loss of Redis, versions are counted anew."""
        self._entries[tx_id] = (f"{version}/{fence}", state)
        self._entries.move_to_end(tx_id)
        while len(self._entries) > self._entries_max:
            self._entries.popitem(last=False)

    def names(self, tx_ids: Iterable[str]) -> dict[str, str]:
        """What is held of each transaction, as the claim script compares it."""
        if not self._entries:
            return {}
        return {tx: self._entries[tx][0] for tx in tx_ids if tx in self._entries}

    def take(self, tx_id: str) -> State | None:
        """Hand the state out; it will be changed, so it is not kept."""
        entry = self._entries.pop(tx_id, None)
        return entry[1] if entry else None

    def __len__(self) -> int:
        return len(self._entries)
