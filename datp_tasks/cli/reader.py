"""Reading one transaction without the rest of the client, which takes longer to import than to ask.

`datp status` and `datp watch` use it. Of one that has ended SQL knows everything, so not even the
Redis library is imported; of the others Redis knows more. Only one that has left Redis needs the
client, because it is restored.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from datp_tasks.clock import ServerClock
from datp_tasks.record.database import make_engine, translate_outage
from datp_tasks.record.transactions import Record

if TYPE_CHECKING:
    from datp_tasks.client.client import Client
    from datp_tasks.live.store import LiveStore
    from datp_tasks.record.record_types import Summary
    from datp_tasks.settings import Settings


class StatusReader:
    """The part of the client that tells the status of a transaction."""

    def __init__(self, settings: Settings, client: Callable[[], Client]) -> None:
        self._settings = settings
        self._record = Record(make_engine(settings), ServerClock())
        self._client = client

    def status(self, tx_id: str) -> Summary:
        """As `Client.status`."""
        with translate_outage():
            found = self._record.summaries([tx_id])
        if found and found[0].is_final:
            return found[0]
        if found:
            from datp_tasks.transactions.locate import SHOWN, is_over, overlaid

            fields = self._live.named_many([tx_id], SHOWN)[0]
            if fields and not is_over(fields):
                return overlaid(found[0], fields)
        return self._client().status(tx_id)

    @cached_property
    def _live(self) -> LiveStore:
        from datp_tasks.live.connect import make_redis
        from datp_tasks.live.store import LiveStore

        return LiveStore(make_redis(self._settings), self._settings, ServerClock())
