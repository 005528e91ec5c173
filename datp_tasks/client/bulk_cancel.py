"""Cancelling a bulk transfer: each transfer that still can be taken back, and a word on each other.

What has passed its point of no return goes on, as it would after a cancel of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from datp_tasks.client.bulk_report import BulkTransfer
from datp_tasks.client.bulk_transfers import BulkTransfers, FoundBulk
from datp_tasks.errors import NotGranted
from datp_tasks.model.actor import Actor
from datp_tasks.model.approval import short_hash
from datp_tasks.model.payload import Json
from datp_tasks.model.rights import check_cancel
from datp_tasks.model.status import Status
from datp_tasks.pipelines.catalogue import Catalogue
from datp_tasks.record.database import translate_outage
from datp_tasks.record.operator_actions import note_action
from datp_tasks.record.record_types import Summary
from datp_tasks.record.signals import Note
from datp_tasks.transactions.send_signals import NOT_CANCELLED, SignalSender

#: What became of the cancel, for one transfer.
CancelOutcome = Literal["cancelled", "stopping", "waiting", "ended", "no-return", "refused", "none"]

#: Asks these transactions to stop; those that were not asked, each with the reason.
StopMany = Callable[[Sequence[Summary]], Mapping[str, str]]

NO_TRANSACTION = "it has no transaction in this bulk"
STOPPING = "it is asked to stop; it goes on if its current step passes its point of no return"
WAITING = "it is not asked to stop yet: a job goes on with what was approved; else cancel again"
IN_DOUBT = "it is in doubt; that must be resolved first"


@dataclass(frozen=True, slots=True)
class BulkCancelled:
    """What became of a cancel, as of one read."""

    bulk: FoundBulk
    #: For each transfer, in order.
    outcomes: list[Json]

    @property
    def goes_on(self) -> bool:
        """Whether some transfers have not ended yet."""
        going_on = ("stopping", "waiting", "no-return", "refused")
        return any(each["cancel"] in going_on for each in self.outcomes)

    def told(self, bulk: BulkTransfer) -> BulkTransfer:
        """Of transfers that are not shown only the counts are told."""
        shown = [each | self.outcomes[each["index"]] for each in bulk.transfers]
        counts = dict(sorted(Counter(each["cancel"] for each in self.outcomes).items()))
        return replace(bulk, transfers=shown, cancel_counts=counts)


class BulkCancel:
    def __init__(self, bulks: BulkTransfers, signals: SignalSender, catalogue: Catalogue) -> None:
        self._bulks = bulks
        self._signals = signals
        self._catalogue = catalogue

    def cancel(
        self,
        tx_id: str,
        reason: str = "cancelled by its owner",
        *,
        by: Actor | None = None,
        stop: StopMany | None = None,
    ) -> BulkTransfer:
        """Take back what can be taken back of a bulk; each transfer says in `cancel` what became
        of that."""
        done = self.ask(tx_id, self.to_ask(tx_id), reason, by=by, stop=stop)
        return done.told(self._bulks.show(tx_id, known=done.bulk.known))

    def to_ask(self, tx_id: str) -> list[Summary]:
        """The transfers of a bulk that can be asked to stop and were not asked before."""
        found = [each for each in self._bulks.to_act_on(tx_id).transfers if each is not None]
        wanted = {each.tx_id: each for each in found if _can_be_asked(each)}
        asked = self._signals.asked_to_stop(list(wanted)) if wanted else set()
        return [each for each in wanted.values() if each.tx_id not in asked]

    def ask(
        self,
        tx_id: str,
        transfers: Sequence[Summary],
        reason: str,
        *,
        by: Actor | None = None,
        stop: StopMany | None = None,
    ) -> BulkCancelled:
        """Ask these transfers of a bulk to stop; what became of that, for each of the bulk.

        It can be repeated. All requests to stop are kept by one commit: after a crash the
        reconciler sends the rest. `stop` does it in another way, for those who may need the
        approval of another person.
        """
        stop = stop or partial(self._stop, tx_id, reason, by)
        refused = stop(transfers) if transfers else {}
        found = self._bulks.to_act_on(tx_id)
        left = [each.tx_id for each in found.transfers if each is not None and _can_be_asked(each)]
        asked = self._signals.asked_to_stop(left) if left else set()
        return BulkCancelled(found, [_outcome(each, refused, asked) for each in found.transfers])

    def _stop(
        self, bulk_id: str, reason: str, by: Actor | None, transfers: Sequence[Summary]
    ) -> Mapping[str, str]:
        refused: dict[str, str] = {}
        if by is not None:
            for each in transfers:
                try:
                    self._check(by, each)
                except NotGranted as error:
                    refused[each.tx_id] = str(error)
        wanted = [each.tx_id for each in transfers if each.tx_id not in refused]
        note: Note | None = None
        if by is not None:
            note = partial(
                note_action,
                actor=by,
                action="bulk-transfer.cancel",
                subject=bulk_id,
                reason=reason,
                details={"count": len(wanted), "hash": short_hash(wanted)},
            )
        failed = self._signals.cancel_many(wanted, reason, note=note) if wanted else {}
        return refused | {each: str(error) for each, error in failed.items()}

    def _check(self, by: Actor, transfer: Summary) -> None:
        with translate_outage():
            pinned = self._catalogue.version(transfer.pipeline, transfer.version)
        check_cancel(by, pinned.access, transfer.owner)


def _can_be_asked(found: Summary) -> bool:
    is_bound = found.no_return_at is not None or found.forwarded_at is not None
    return not found.is_final and not is_bound and found.status is not Status.IN_DOUBT


def _outcome(found: Summary | None, refused: Mapping[str, str], asked: Set[str]) -> Json:
    if found is None:
        return {"cancel": "none", "cancelNote": NO_TRANSACTION}
    if found.is_final:
        return {"cancel": "cancelled" if found.status is Status.CANCELLED else "ended"}
    point = "final" if found.no_return_at else "forward" if found.forwarded_at else None
    if point is not None:
        note = NOT_CANCELLED[point].format(tx_id=found.tx_id)
        return {"cancel": "no-return", "cancelNote": note}
    if found.tx_id in refused:
        return {"cancel": "refused", "cancelNote": refused[found.tx_id]}
    if found.status is Status.IN_DOUBT:
        return {"cancel": "refused", "cancelNote": IN_DOUBT}
    if found.tx_id in asked:
        return {"cancel": "stopping", "cancelNote": STOPPING}
    return {"cancel": "waiting", "cancelNote": WAITING}
