"""Where ledger work goes: to a group of ledger workers if one lives, else to maintenance."""

from __future__ import annotations

import logging
import time

from datp_tasks.live.nodes import NodeRegister
from datp_tasks.live.redis_errors import RedisError
from datp_tasks.runtime.group_book import GroupBook
from datp_tasks.settings import Settings

log = logging.getLogger("datp.ledger")

#: Read so often at most: a ledger worker that comes or goes is noticed with the next tick.
EVERY_S = 1.0


class LedgerPlace:
    """Messages to a queue that no worker empties would pile up, and batches would wait there."""

    def __init__(self, settings: Settings, register: NodeRegister, book: GroupBook) -> None:
        self._register = register
        self._book = book
        self._ledger_group = settings.ledger_group
        self._otherwise = settings.maintenance_group
        self._known = settings.ledger_group
        self._read_s = float("-inf")

    def __call__(self) -> str:
        """The node group; an outage keeps the last answer."""
        if time.monotonic() - self._read_s >= EVERY_S:
            self._read_s = time.monotonic()
            try:
                self._known = self._look()
            except RedisError as error:
                log.warning("where ledger workers live is not known: %s", error)
        return self._known

    def _look(self) -> str:
        living = {node.group for node in self._register.nodes()}
        wanted = (*self._book.holders("ledger"), self._ledger_group)
        return next((group for group in wanted if group in living), self._otherwise)
