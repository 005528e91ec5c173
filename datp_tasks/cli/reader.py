"""Reading one transaction without the rest of the client, which takes longer to import than to ask.

`datp status` and `datp watch` use it. Of one that has ended SQL knows everything, so neither the
Redis library nor the wiring is imported; of the others Redis knows more, and the client is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from datp_tasks.clock import ServerClock
from datp_tasks.record.database import make_engine, translate_outage
from datp_tasks.record.transactions import Record

if TYPE_CHECKING:
    from datp_tasks.client.client import Client
    from datp_tasks.record.types import Summary
    from datp_tasks.settings import Settings


class StatusReader:
    """The part of the client that tells the status of a transaction."""

    def __init__(self, settings: Settings, client: Callable[[], Client]) -> None:
        self._record = Record(make_engine(settings), ServerClock())
        self._client = client

    def status(self, tx_id: str) -> Summary:
        """As `Client.status`."""
        with translate_outage():
            found = self._record.summaries([tx_id])
        if found and found[0].is_final:
            return found[0]
        return self._client().status(tx_id)
