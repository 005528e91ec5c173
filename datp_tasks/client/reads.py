"""Looking at transactions, and waiting for their end."""

from __future__ import annotations

import time
from collections.abc import Sequence

from datp_tasks.errors import DatabaseUnavailable, TransactionUnknown, WaitTimeout
from datp_tasks.live.keys import shard_of_tx
from datp_tasks.live.notifications import Notifications
from datp_tasks.record.database import translate_outage
from datp_tasks.record.record_types import Summary
from datp_tasks.record.transactions import Record
from datp_tasks.record.vault import Vault
from datp_tasks.transactions.locate import Locator

#: How often `wait` looks by itself, in case a notification was missed.
SLOW_TICK_S = 1.0


class Reader:
    def __init__(
        self,
        *,
        record: Record,
        locator: Locator,
        notifications: Notifications,
        vault: Vault | None,
    ) -> None:
        #: None: what is sealed stays sealed; who asks is not known here.
        self._vault = vault
        self._record = record
        self._locator = locator
        self._notifications = notifications

    def status(self, tx_id: str) -> Summary:
        return self._opened(self._locator.status(tx_id))

    def status_many(self, tx_ids: Sequence[str]) -> list[Summary | None]:
        with translate_outage():
            found = self._record.summaries([each for each in tx_ids if shard_of_tx(each)])
        summaries = {each.tx_id: each for each in self.overlay_many(found)}
        return [summaries.get(each) for each in tx_ids]

    def overlay_many(self, summaries: Sequence[Summary]) -> list[Summary]:
        return [self._opened(each) for each in self._locator.overlay_many(summaries)]

    def find(self, owner: str, external_id: str) -> Summary:
        with translate_outage():
            summary = self._record.by_external_id(owner, external_id)
        if summary is None:
            raise TransactionUnknown(f"{owner} has no transaction with external id {external_id!r}")
        return self._opened(self._locator.overlay(summary))

    def wait(self, tx_id: str, timeout_s: float) -> Summary:
        give_up_s = time.monotonic() + timeout_s
        summary: Summary | None = None
        with self._notifications.waiter(tx_id) as news:
            while True:
                try:
                    summary = self._locator.summary(tx_id)
                except DatabaseUnavailable:
                    if summary is None:
                        raise
                if summary.is_final:
                    return self._opened(summary)
                left_s = give_up_s - time.monotonic()
                if left_s <= 0:
                    status = self._locator.overlay(summary).status
                    raise WaitTimeout(f"{tx_id} is still {status} after {timeout_s:g} s")
                news.wait(min(left_s, SLOW_TICK_S))
                news.clear()

    def _opened(self, summary: Summary) -> Summary:
        return summary if self._vault is None else self._vault.opened(summary)

    def close(self) -> None:
        self._notifications.close()
