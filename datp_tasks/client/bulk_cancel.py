"""Cancelling a bulk transfer: each transfer that still can be taken back, and a word on each other.

What has passed its point of no return goes on, as it would after a cancel of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from datp_tasks.client.bulk_report import BulkTransfer
from datp_tasks.client.bulk_transfers import BulkTransfers
from datp_tasks.errors import NotGranted
from datp_tasks.model.actor import Actor
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
CancelOutcome = Literal["cancelled", "stopping", "ended", "no-return", "refused", "none"]

#: Asks these transactions to stop; those that were not asked, each with the reason.
StopMany = Callable[[Sequence[Summary]], Mapping[str, str]]

NO_TRANSACTION = "it has no transaction in this bulk"
STOPPING = "it stops after its current step, and what was done is rolled back"


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
        outcomes = self.ask(tx_id, reason, by=by, stop=stop)
        return with_outcomes(self._bulks.show(tx_id), outcomes)

    def ask(
        self,
        tx_id: str,
        reason: str,
        *,
        by: Actor | None = None,
        stop: StopMany | None = None,
    ) -> list[Json]:
        """The same without reading the bulk again: what became of it, for each transfer in order.

        It can be repeated. All requests to stop are kept by one commit: after a crash the
        reconciler sends the rest. `stop` does it in another way, for those who may need the
        approval of another person.
        """
        stop = stop or partial(self._stop, tx_id, reason, by)
        found = self._bulks.transactions_of(tx_id)
        before = [each for each in found if each is not None and not each.is_final]
        refused = stop(before) if before else {}
        return [_outcome(each, refused) for each in self._bulks.transactions_of(tx_id)]

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
                details={"txIds": wanted},
            )
        failed = self._signals.cancel_many(wanted, reason, note=note) if wanted else {}
        return refused | {each: str(error) for each, error in failed.items()}

    def _check(self, by: Actor, transfer: Summary) -> None:
        with translate_outage():
            pinned = self._catalogue.version(transfer.pipeline, transfer.version)
        check_cancel(by, pinned.access, transfer.owner)


def with_outcomes(bulk: BulkTransfer, outcomes: Sequence[Json]) -> BulkTransfer:
    """Nothing is said of transfers that are not shown."""
    shown = [each | outcomes[each["index"]] for each in bulk.transfers]
    return replace(bulk, transfers=shown)


def goes_on(outcomes: Sequence[Json]) -> bool:
    """Whether some transfers have not ended yet."""
    return any(each["cancel"] in ("stopping", "no-return", "refused") for each in outcomes)


def _outcome(found: Summary | None, refused: Mapping[str, str]) -> Json:
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
    return {"cancel": "stopping", "cancelNote": STOPPING}
