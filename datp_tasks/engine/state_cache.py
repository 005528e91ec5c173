"""States that this process has just written, kept in case their transaction comes back to it."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from datp_tasks.engine.seal_edge import SealEdge
from datp_tasks.model.state import State

#: At 2 to 20 kB each, tens of megabytes in a worker.
ENTRIES_MAX = 2_000
#: One that has not come back by then went on elsewhere, or sleeps for long.
KEPT_S = 300.0
#: Characters of JSON that the states of a process may have together. As Python objects they take
#: several times as much memory, and a worker has a cache for each of its processes.
CHARS_MAX = 16_000_000


class Kept(NamedTuple):
    #: "<version>/<fence>": after a loss of Redis versions are counted anew, so both are needed.
    name: str
    state: State
    chars: int
    #: What the state was opened with, if it rests sealed.
    edge: SealEdge | None = None
    put_s: float = 0.0


class StateCache:
    """A bounded LRU keyed by transaction; an entry is good for one writing of the JSON only."""

    def __init__(
        self,
        entries_max: int,
        chars_max: int = CHARS_MAX,
        *,
        kept_s: float = math.inf,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._kept_s = kept_s
        self._now_s = now_s
        self._entries_max = entries_max
        self._chars_max = chars_max
        self._chars = 0
        self._entries: OrderedDict[str, Kept] = OrderedDict()
        #: The guard hands transactions over, too, from a thread of its own.
        self._lock = threading.Lock()

    def put(
        self,
        tx_id: str,
        name: tuple[int, int],
        state: State,
        state_json: str,
        edge: SealEdge | None = None,
    ) -> None:
        """Keep a state under the version and fence that its JSON was written with."""
        version, fence = name
        with self._lock:
            if tx_id in self._entries:
                self._pop(tx_id)
            if len(state_json) > self._chars_max:
                # It would only drive out all others.
                return
            now_s = self._now_s()
            self._entries[tx_id] = Kept(f"{version}/{fence}", state, len(state_json), edge, now_s)
            self._chars += len(state_json)
            self._drop_old(now_s)
            while len(self._entries) > self._entries_max or self._chars > self._chars_max:
                self._pop(next(iter(self._entries)))

    def take(self, tx_ids: Iterable[str]) -> dict[str, Kept]:
        """Hand states out; they will be changed, so they are not kept."""
        if not self._entries:
            return {}
        with self._lock:
            self._drop_old(self._now_s())
            return {tx: self._pop(tx) for tx in tx_ids if tx in self._entries}

    def _drop_old(self, now_s: float) -> None:
        """The oldest come first."""
        while self._entries:
            tx_id, kept = next(iter(self._entries.items()))
            if now_s - kept.put_s < self._kept_s:
                return
            self._pop(tx_id)

    def _pop(self, tx_id: str) -> Kept:
        kept = self._entries.pop(tx_id)
        self._chars -= kept.chars
        return kept

    def __len__(self) -> int:
        return len(self._entries)
