"""Reading one transaction without the rest of the client, which takes longer to import than to ask.

`datp status` and `datp watch` use it. Of one that has ended SQL knows everything, so not even the
Redis library is imported; of the others Redis knows more. Only one that has left Redis needs the
client, because it is restored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from datp_tasks.record.database import translate_outage

if TYPE_CHECKING:
    from datp_tasks.client.client import Client
    from datp_tasks.live.store import LiveStore
    from datp_tasks.record.record_types import Summary
    from datp_tasks.record.transactions import Record


class StatusReader:
    """The part of the client that tells the status of a transaction."""

    def __init__(
        self, record: Record, live: Callable[[], LiveStore], client: Callable[[], Client]
    ) -> None:
        self._record = record
        self._live = live
        self._client = client

    def status(self, tx_id: str) -> Summary:
        """As `Client.status`."""
        with translate_outage():
            found = self._record.summaries([tx_id])
        if found and found[0].is_final:
            return found[0]
        if found:
            from datp_tasks.transactions.locate import SHOWN, is_over, overlaid

            fields = self._live().named_many([tx_id], SHOWN)[0]
            if fields and not is_over(fields):
                return overlaid(found[0], fields)
        return self._client().status(tx_id)
