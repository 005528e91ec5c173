"""Transactions that Redis says run on a node which, alive and well, does not have them in hand.

Redis may have lost the writes in which they left, or SQL refused this worker while Redis did not.
Their node is alive, so the reaper would never look at them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from datp_tasks.engine.hop import Hop
from datp_tasks.live.store import LiveStore

log = logging.getLogger("datp.hop")


class OrphanedClaims:
    def __init__(
        self, live: LiveStore, hop: Hop, node: str, free: Callable[[list[str]], object]
    ) -> None:
        self._live = live
        self._hop = hop
        self._node = node
        self._free = free
        #: Found by the last look, with the fence they had.
        self._seen: dict[str, str] = {}

    def look(self) -> None:
        """Free what was not in hand at two looks in a row, under one and the same claim."""
        before = self._hop.in_hand
        running = set(self._live.running_on(self._node)) - before - self._hop.in_hand
        found = zip(
            sorted(running), self._live.named_many(sorted(running), ("fence",)), strict=True
        )
        last, self._seen = self._seen, {tx: fields.get("fence", "") for tx, fields in found}
        orphaned = [tx for tx, fence in self._seen.items() if last.get(tx) == fence]
        if orphaned:
            log.error("%d transactions of this node are not in hand; freed", len(orphaned))
            self._free(orphaned)
