"""Looking at transactions: the record, with what Redis knows laid over it."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from redis.exceptions import RedisError

from datp_tasks.errors import DatabaseUnavailable, TransactionUnknown, WaitTimeout
from datp_tasks.live.keys import shard_of_tx
from datp_tasks.live.notifications import Notifications
from datp_tasks.live.store import LiveStore
from datp_tasks.model.payload import Json
from datp_tasks.model.status import Status
from datp_tasks.record.database import translate_outage
from datp_tasks.record.states import States
from datp_tasks.record.transactions import Record
from datp_tasks.record.types import Summary

if TYPE_CHECKING:
    from datp_tasks.runtime.container import Container

log = logging.getLogger("datp.client")

#: How often `wait` looks by itself, in case a notification was missed.
SLOW_TICK_S = 1.0
#: What Redis knows better than the record.
SHOWN = ("status", "progress", "problem")


class LookMethods:
    """Part of the client."""

    _connections: Container
    _live: LiveStore
    _record: Record
    _notifications: Notifications

    def status(self, tx_id: str) -> Summary:
        """The transaction as its client sees it, as of now."""
        return self._overlay(self._summary(tx_id))

    def status_many(self, tx_ids: Sequence[str]) -> list[Summary | None]:
        """The same for many, in two round trips; None for one that is unknown."""
        with translate_outage():
            found = self._record.summaries([each for each in tx_ids if shard_of_tx(each)])
        summaries = {each.tx_id: each for each in self.overlay_many(found)}
        return [summaries.get(each) for each in tx_ids]

    def find(self, owner: str, external_id: str) -> Summary:
        """The transaction that an owner submitted under this external id."""
        with translate_outage():
            summary = self._record.by_external_id(owner, external_id)
        if summary is None:
            raise TransactionUnknown(f"{owner} has no transaction with external id {external_id!r}")
        return self._overlay(summary)

    def wait(self, tx_id: str, timeout_s: float = 60.0) -> Summary:
        """Wait until the transaction has ended, or raise WaitTimeout; it goes on regardless.

        An outage of PostgreSQL in the meantime is waited for like everything else.
        """
        give_up_s = time.monotonic() + timeout_s
        summary: Summary | None = None
        with self._notifications.waiter(tx_id) as news:
            while True:
                try:
                    summary = self._summary(tx_id)
                except DatabaseUnavailable:
                    if summary is None:
                        raise
                if summary.is_final:
                    return summary
                left_s = give_up_s - time.monotonic()
                if left_s <= 0:
                    status = self._overlay(summary).status
                    raise WaitTimeout(f"{tx_id} is still {status} after {timeout_s:g} s")
                news.wait(min(left_s, SLOW_TICK_S))
                news.clear()

    def _summary(self, tx_id: str) -> Summary:
        with translate_outage():
            found = self._record.summaries([tx_id]) if shard_of_tx(tx_id) else []
        if not found:
            raise TransactionUnknown(f"there is no transaction {tx_id!r}")
        return found[0]

    def _overlay(self, summary: Summary) -> Summary:
        return self.overlay_many([summary], restore=True)[0]

    def overlay_many(self, summaries: Sequence[Summary], *, restore: bool = False) -> list[Summary]:
        """What is not final is known best by Redis; what is final, by SQL.

        Those that sleep for long have left Redis. A client that looks at one may be about to
        change it, so it is brought back; a list leaves them where they are.
        """
        going_on = [each.tx_id for each in summaries if not each.is_final]
        if not going_on:
            return list(summaries)
        try:
            found = self._fields_of(going_on, restore)
        except RedisError as error:
            log.warning("Redis is away; %d statuses may be old: %s", len(going_on), error)
            return list(summaries)
        ended = [tx for tx, fields in found.items() if fields and _is_over(fields)]
        with translate_outage():
            final = {each.tx_id: each for each in self._record.summaries(ended)} if ended else {}
        return [
            final.get(each.tx_id) or _overlaid(each, found.get(each.tx_id, {}))
            for each in summaries
        ]

    def _fields_of(self, tx_ids: Sequence[str], restore: bool) -> dict[str, dict[str, str]]:
        """As Redis has them, or as they were when they left it."""
        found = dict(zip(tx_ids, self._live.named_many(tx_ids, SHOWN), strict=True))
        away = [tx for tx, fields in found.items() if not fields]
        if not away:
            return found
        with translate_outage():
            if restore:
                self._connections.restorer.restore(away)
                found.update(zip(away, self._live.named_many(away, SHOWN), strict=True))
            else:
                left = States(self._connections.engine, self._connections.clock).statuses(away)
                # Only what sleeps may leave: of anything else the record knows more.
                asleep = [tx for tx, status in left.items() if status == Status.SLEEPING]
                found.update((tx, {"status": str(Status.SLEEPING)}) for tx in asleep)
        return found


def _is_over(fields: Mapping[str, str]) -> bool:
    return Status(fields["status"]).is_final


def _overlaid(summary: Summary, fields: Mapping[str, str]) -> Summary:
    if not fields or _is_over(fields):
        return summary
    progress = fields.get("progress")
    return replace(
        summary,
        status=Status(fields["status"]),
        progress=_parsed(progress) if progress else summary.progress,
        note=fields.get("problem") or summary.note,
    )


def _parsed(text: str) -> Json:
    parsed: Json = json.loads(text)
    return parsed
