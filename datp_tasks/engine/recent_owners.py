"""Whose transactions a worker had lately: one that works for a single owner need share nothing.

All processes of a worker share this: while one of them works for an owner that has much, another
may be the one that sees the others.
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Iterable
from zlib import crc32

RECENT_S = 1.0
#: Two owners, each as a number and when it was seen last: whether there is another than a given one
#: can be told from the two that were seen last.
SLOT = struct.Struct("=Id")
SLOTS = (0, 16)

#: Made when the main process imports this: its children are forked, and write to the same memory.
#: A write that is torn by another one is a wrong hint, no more.
SHARED = mmap.mmap(-1, mmap.PAGESIZE)


class RecentOwners:
    def __init__(self, memory: mmap.mmap | None = None) -> None:
        #: Given by those who share it.
        self._memory = mmap.mmap(-1, mmap.PAGESIZE) if memory is None else memory

    def saw(self, owners: Iterable[str]) -> None:
        now_s = time.monotonic()
        for owner in set(owners):
            number = crc32(owner.encode())
            seen = {slot: SLOT.unpack_from(self._memory, slot) for slot in SLOTS}
            own = [slot for slot, (of, at_s) in seen.items() if of == number and at_s]
            slot = own[0] if own else min(SLOTS, key=lambda each: seen[each][1])
            SLOT.pack_into(self._memory, slot, number, now_s)

    def are_others(self, owner: str) -> bool:
        """Whether another owner had something here a moment ago."""
        since_s = time.monotonic() - RECENT_S
        number = crc32(owner.encode())
        seen = (SLOT.unpack_from(self._memory, slot) for slot in SLOTS)
        return any(of != number and at_s > since_s for of, at_s in seen)
