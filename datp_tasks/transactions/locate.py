"""Finding a transaction wherever it is: in Redis, asleep in the archive, or only in SQL."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from datp_tasks.errors import TransactionUnknown
from datp_tasks.failpoints import reach
from datp_tasks.live.keys import shard_of_tx
from datp_tasks.live.live_types import Refused
from datp_tasks.live.redis_errors import RedisError
from datp_tasks.live.store import LiveStore
from datp_tasks.model.payload import Json
from datp_tasks.model.status import Status
from datp_tasks.record.database import translate_outage
from datp_tasks.record.record_types import Summary
from datp_tasks.record.states import States
from datp_tasks.record.transactions import Record
from datp_tasks.transactions.restore import Restorer

log = logging.getLogger("datp.client")

Answer = TypeVar("Answer")

#: What Redis knows better than the record.
SHOWN = ("status", "progress", "problem")


class Locator:
    """Reads transactions from the record, with what Redis knows laid over it."""

    def __init__(
        self, *, live: LiveStore, record: Record, states: States, restorer: Restorer
    ) -> None:
        self._live = live
        self._record = record
        self._states = states
        self._restorer = restorer

    def summary(self, tx_id: str) -> Summary:
        """As SQL has it, or TransactionUnknown."""
        with translate_outage():
            found = self._record.summaries([tx_id]) if shard_of_tx(tx_id) else []
        if not found:
            raise TransactionUnknown(f"there is no transaction {tx_id!r}")
        return found[0]

    def status(self, tx_id: str) -> Summary:
        """As of now. One that has left Redis is restored: its reader may be about to change it."""
        return self.overlay(self.summary(tx_id))

    def overlay(self, summary: Summary) -> Summary:
        return self.overlay_many([summary], restore=True)[0]

    def overlay_many(self, summaries: Sequence[Summary], *, restore: bool = False) -> list[Summary]:
        """What is not final is known best by Redis; what is final, by SQL.

        Transactions that sleep for long have left Redis. `restore` brings them back; a list
        leaves them where they are.
        """
        going_on = [each.tx_id for each in summaries if not each.is_final]
        if not going_on:
            return list(summaries)
        try:
            found = self._fields_of(going_on, restore)
        except RedisError as error:
            log.warning("Redis is unavailable; %d statuses may be old: %s", len(going_on), error)
            return list(summaries)
        ended = [tx for tx, fields in found.items() if fields and is_over(fields)]
        with translate_outage():
            final = {each.tx_id: each for each in self._record.summaries(ended)} if ended else {}
        return [
            final.get(each.tx_id) or overlaid(each, found.get(each.tx_id, {})) for each in summaries
        ]

    def _fields_of(self, tx_ids: Sequence[str], restore: bool) -> dict[str, dict[str, str]]:
        """As Redis has them, or as they were when they left it."""

        def ask(ids: Sequence[str]) -> list[dict[str, str]]:
            return self._live.named_many(ids, SHOWN)

        def access(ids: Sequence[str]) -> list[dict[str, str]]:
            return self._live.read_and_keep(ids, SHOWN, self._live.sleeping_ttl_ms)

        if restore:
            with translate_outage():
                asked = ask_many(self._restorer, tx_ids, access)
            return dict(zip(tx_ids, asked.answers, strict=True))
        found = dict(zip(tx_ids, ask(tx_ids), strict=True))
        missing = [tx for tx, fields in found.items() if not fields]
        if missing:
            with translate_outage():
                left = self._states.statuses(missing)
            # Only what sleeps may leave: of anything else the record knows more.
            asleep = [tx for tx, status in left.items() if status == Status.SLEEPING]
            found.update((tx, {"status": str(Status.SLEEPING)}) for tx in asleep)
        return found


@dataclass(frozen=True, slots=True)
class Lookup(Generic[Answer]):
    """What Redis answered, in the order of the ids."""

    answers: list[Answer]
    #: Those that were not in Redis at first, so that they were asked a second time.
    missed: set[str]


def ask_many(
    restorer: Restorer, tx_ids: Sequence[str], ask: Callable[[Sequence[str]], Sequence[Answer]]
) -> Lookup[Answer]:
    """Ask Redis about each; those that have left it are restored and asked again.

    `ask` answers in the order of the ids; an empty hash or the word UNKNOWN means "not here".
    """
    answers = dict(zip(tx_ids, ask(tx_ids), strict=True))
    missed = [tx_id for tx_id, answer in answers.items() if is_missing(answer)]
    if missed:
        restorer.restore(missed)
        reach("locate.after_restore")
        answers.update(zip(missed, ask(missed), strict=True))
    return Lookup([answers[tx_id] for tx_id in tx_ids], set(missed))


def is_missing(answer: object) -> bool:
    """Whether Redis does not have the transaction that this is the answer for."""
    if isinstance(answer, Refused):
        return answer.word == "UNKNOWN"
    return answer == {}


def is_over(fields: Mapping[str, str]) -> bool:
    """Whether Redis has it as ended."""
    return Status(fields["status"]).is_final


def overlaid(summary: Summary, fields: Mapping[str, str]) -> Summary:
    """The summary, with what Redis knows better."""
    if not fields or is_over(fields):
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
