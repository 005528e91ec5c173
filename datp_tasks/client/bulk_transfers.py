"""Bulk transfers: many transactions with one name, one deadline and one report.

The bulk is a transaction of its own whose pipeline waits in `util/bulk-transfer`; each transfer is
one, too, and expires with the bulk at the latest. All are accepted by one commit, so a crash leaves
the whole bulk or nothing. From there on nothing is special: whatever ends a transaction ends a
transfer, what has committed stays so, and the report of the bulk says what became of each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from datp_tasks.client.bulk_report import BulkTransfer, deadline_in, standing_of, texts_of
from datp_tasks.client.reads import Reader
from datp_tasks.client.requests import (
    EXTERNAL_ID_CHARS_MAX,
    Prepared,
    Request,
    Submitted,
    fingerprint_of,
    ms_of,
    raw_asked,
)
from datp_tasks.client.submit import Before, RequestAcceptor
from datp_tasks.errors import (
    DataKeyGone,
    DatpError,
    ExpiryInvalid,
    ExternalIdConflict,
    InputInvalid,
    NoKeyRing,
    PipelineError,
    PipelineInvalid,
    RequestError,
    TransactionUnknown,
)
from datp_tasks.failpoints import reach
from datp_tasks.model.bulk_transfer import (
    STEP_TYPE,
    bulk_state,
    has_ended,
    ids_of,
    is_transfer_status,
    transfers_of,
    tx_id_of,
)
from datp_tasks.model.payload import Json, encode
from datp_tasks.model.pipeline import PipelineDefinition
from datp_tasks.model.rights import check_submit
from datp_tasks.model.sealed import MASK
from datp_tasks.model.state import first_state_json
from datp_tasks.model.status import Status
from datp_tasks.record.bulk_transfers import BulkRecord, is_accepted_with
from datp_tasks.record.database import translate_outage
from datp_tasks.record.record_types import Acceptance, Existing, Summary

#: Transfers of a bulk, and transactions of a bulk request: answered within a second.
ITEMS_MAX = 1_000
#: A report of a thousand transfers must fit into one answer.
PROBLEM_CHARS_MAX = 200
#: Pipelines of transfers that are looked up before the bulk is paid for: each may be a query.
PIPELINES_LOOKED_UP_MAX = 10


@dataclass(frozen=True, slots=True)
class FoundBulk:
    """What a bulk was made of, as of one read."""

    #: In order; None for a transfer that has no transaction in this bulk.
    transfers: list[Summary | None]
    #: All transactions that the input names, by id.
    known: dict[str, Summary]


class BulkTransfers:
    def __init__(self, acceptor: RequestAcceptor, record: BulkRecord, reader: Reader) -> None:
        self._acceptor = acceptor
        self._catalogue = acceptor.preparer.catalogue
        self._record = record
        self._reader = reader

    def submit(self, bulk: Request, transfers: Sequence[Request]) -> Submitted:
        """Hand in a bulk; one transfer that cannot be accepted does not hold up the others."""
        try:
            return self._submit(bulk, transfers)
        except DataKeyGone as error:
            # An owner was erased with its keys: nothing was accepted, and it gets a new one.
            self._acceptor.vault.forget(error.key_ids)
            return self._submit(bulk, transfers)
        except (RequestError, PipelineError):
            # What would be refused now is found if it was accepted when it was not.
            found = self.accepted_before(bulk, transfers) if _is_object(bulk.input) else None
            if isinstance(found, Submitted):
                return found
            raise

    def accepted_before(self, bulk: Request, transfers: Sequence[Request]) -> Before | None:
        """What was accepted under the external id of a bulk, without submitting it."""
        [found] = self._acceptor.accepted_before([self._whole(bulk, transfers)[0]])
        return found

    def refusal(self, bulk: Request, transfers: Sequence[Request]) -> DatpError | None:
        """What refuses a bulk as a whole, as far as that is cheap to tell before it is paid for."""
        try:
            self._check(bulk, transfers)
        except RequestError as error:
            return error
        with translate_outage():
            refused = self._may_not_start(bulk)
            if refused is not None:
                return refused
            by_pipeline = {each.pipeline: each for each in transfers}
            if len(by_pipeline) > PIPELINES_LOOKED_UP_MAX:
                return None
            found = {name: self._may_not_start(each) for name, each in by_pipeline.items()}
        if None in found.values():
            return None
        return _none_of(transfers, str(found[transfers[0].pipeline]))

    def _may_not_start(self, request: Request) -> DatpError | None:
        try:
            definition = self._catalogue.current(request.pipeline)
            if request.by is not None:
                check_submit(request.by, definition.name, definition.access, request.owner)
        except (RequestError, PipelineError) as error:
            return error
        return None

    def _whole(self, bulk: Request, transfers: Sequence[Request]) -> tuple[Request, list[Request]]:
        """The request of the bulk with what makes it the same again, and those of transfers."""
        wanted = [self._named(bulk, each, n) for n, each in enumerate(transfers)]
        return replace(bulk, input={**bulk.input, "transfers": _asked(wanted)}), wanted

    def _submit(self, bulk: Request, transfers: Sequence[Request]) -> Submitted:
        self._check(bulk, transfers)
        asked, wanted = self._whole(bulk, transfers)
        [answer], prepared = self._acceptor.prepare_many([asked])
        if not isinstance(answer, Prepared):
            if isinstance(answer, InputInvalid):
                raise self._explained(answer, bulk, len(transfers))
            if isinstance(answer, DatpError):
                raise answer
            return answer
        deadline = self._deadline(answer)
        tried, _ = self._acceptor.prepare_many(wanted)
        good = {
            n: _within(each, deadline) for n, each in enumerate(tried) if isinstance(each, Prepared)
        }
        left_out = {n: _left_out(each) for n, each in enumerate(tried) if n not in good}
        made: list[Prepared] = []

        def make(existing: list[Existing | None]) -> Acceptance:
            for n, before in zip(good, existing, strict=True):
                if before is not None:
                    left_out[n] = _left_out(self._acceptor.answers([good[n]], [before])[0])
            made.append(self._made(asked, answer, deadline, wanted, good, left_out))
            return made[-1].acceptance

        with translate_outage():
            items = [each.acceptance for each in good.values()]
            owner = answer.acceptance.owner
            before = self._record.accept(owner, answer.acceptance.external_id, items, make)
        reach("bulk_transfer.after_commit")
        if before is None:
            accepted = [each for n, each in good.items() if n not in left_out]
            self._acceptor.place([*accepted, made[-1]])
            return Submitted(made[-1].acceptance.tx_id, Status.QUEUED)
        [found] = self._acceptor.answers(prepared, [before])
        if isinstance(found, DatpError):
            raise found
        return found

    def _explained(self, error: InputInvalid, bulk: Request, count: int) -> InputInvalid:
        """Says so if the client's own input is valid, and the entries of its transfers are not."""
        [alone], _ = self._acceptor.prepare_many([replace(bulk, external_id=None)])
        if isinstance(alone, InputInvalid):
            return error
        return InputInvalid(
            f"{error}; this counts the entry that a bulk keeps in its input for each of its "
            f"{count} transfers",
            error.pointer,
        )

    def _check(self, bulk: Request, transfers: Sequence[Request]) -> None:
        if not 1 <= len(transfers) <= ITEMS_MAX:
            raise RequestError(f"a bulk has 1 to {ITEMS_MAX} transfers, was {len(transfers)}")
        if not _is_object(bulk.input):
            raise InputInvalid("input must be an object")
        if "transfers" in bulk.input:
            raise RequestError("the input of a bulk has no `transfers`: they are given beside it")
        if bulk.external_id is not None:
            names = [
                self._named(bulk, each, n).external_id or "" for n, each in enumerate(transfers)
            ]
            if bulk.external_id in names:
                raise RequestError("a transfer has the external id of the bulk")
            longest, chars_max = max(map(len, names)), EXTERNAL_ID_CHARS_MAX
            if len(bulk.external_id) <= chars_max < longest:
                raise RequestError(
                    f"an external id has at most {chars_max} characters; transfers without one are "
                    f"named after the bulk, which would make {longest}"
                )

    @staticmethod
    def _named(bulk: Request, transfer: Request, n: int) -> Request:
        """A transfer belongs to the owner of the bulk. Its name is made from that of the bulk if
        it has none, so that the same bulk again is found."""
        name = transfer.external_id
        if name is None and bulk.external_id is not None:
            name = f"{bulk.external_id}/{n}"
        return replace(transfer, owner=bulk.owner, by=bulk.by, external_id=name)

    def _deadline(self, bulk: Prepared) -> datetime:
        acceptance = bulk.acceptance
        definition = self._catalogue.version(acceptance.pipeline, acceptance.version)
        if not _is_for_bulks(definition):
            raise PipelineInvalid(
                [f"{definition.name}: has no step {STEP_TYPE}, so it is no pipeline for a bulk"]
            )
        if acceptance.expires_at is None:
            raise ExpiryInvalid(
                "a bulk has a deadline: give expires_at or expires_in_s, or expiresInSeconds in "
                f"the pipeline {definition.name}"
            )
        return acceptance.expires_at

    def _made(
        self,
        asked: Request,
        bulk: Prepared,
        deadline: datetime,
        wanted: Sequence[Request],
        good: dict[int, Prepared],
        left_out: dict[int, Json],
    ) -> Prepared:
        """The bulk with its transfers, as it rests. It is sealed if one of them is."""
        if len(left_out) == len(wanted):
            raise _none_accepted(left_out)
        transfers: list[Json] = []
        for n, each in enumerate(wanted):
            entry: Json = {"index": n}
            if each.external_id is not None:
                entry["externalId"] = each.external_id
            is_in = n not in left_out
            transfers.append(entry | ({"txId": good[n].acceptance.tx_id} if is_in else left_out[n]))
        stored = encode({**asked.input, "expiresAt": deadline.isoformat(), "transfers": transfers})
        acceptance = replace(bulk.acceptance, input_json=stored, expires_at=None)
        state = first_state_json(acceptance.pipeline, acceptance.version, stored)
        new = replace(bulk.new, state_json=state, expires_at_ms=None)
        made = replace(bulk, acceptance=acceptance, new=new)
        if acceptance.data_key or any(each.acceptance.data_key for each in good.values()):
            made = made.sealed(self._acceptor.vault.key_for(acceptance.owner))
        return made

    # Looking.

    def document(self, tx_id: str) -> Json:
        """The same as the API tells it."""
        return self.show(tx_id).to_json()

    def show(self, tx_id: str, *, known: Mapping[str, Summary] | None = None) -> BulkTransfer:
        """A bulk as of now; TransactionUnknown if there is none of this id."""
        return self.view(self._reader.status(tx_id), known=known)

    def to_act_on(self, tx_id: str) -> FoundBulk:
        """A bulk with the transactions of its transfers, also if it is sealed: to act on, not to
        be shown."""
        summary = self._acceptor.vault.opened(self._reader.status(tx_id))
        if summary.input == MASK:
            raise NoKeyRing(f"{tx_id} is sealed, and this process has no key ring to open it with")
        transfers = transfers_of(summary.input)
        # An erased one has ended, and does not say any more what it was made of.
        has_some = bool(transfers) or summary.erased_at is not None
        if not has_some or not self._is_of_bulk(summary):
            raise TransactionUnknown(f"{tx_id} is no bulk transfer")
        known = self._known(summary, transfers)
        own = {each.tx_id: each for each in known.values() if is_accepted_with(summary, each)}
        return FoundBulk([own.get(tx_id_of(each) or "") for each in transfers], known)

    def _known(self, summary: Summary, transfers: Sequence[Json]) -> dict[str, Summary]:
        # Whose input it is may have written any id into it, and one many times.
        found = self._reader.status_many(list(dict.fromkeys(ids_of(transfers))))
        own = [each for each in found if each is not None and each.owner == summary.owner]
        return {each.tx_id: each for each in own}

    def view(
        self,
        summary: Summary,
        *,
        with_payloads: bool = True,
        known: Mapping[str, Summary] | None = None,
    ) -> BulkTransfer:
        """The same for one whose row was read before, as its transfers (`known`) may have been;
        nothing of the transfers if it is masked.

        Any client can start the pipeline of a bulk with an input of its own, so nothing in there
        is taken for granted; and without payloads, the texts in it are not shown.
        """
        transfers = transfers_of(summary.input)
        is_hidden = summary.is_sealed or summary.input == MASK or summary.erased_at is not None
        has_some = bool(transfers) or is_hidden
        if not has_some or not self._is_of_bulk(summary):
            raise TransactionUnknown(f"{summary.tx_id} is no bulk transfer")
        if known is None:
            known = self._known(summary, transfers)
        reported = {
            tx_id: str(each["status"])
            for each in transfers_of(summary.output or {})
            if (tx_id := tx_id_of(each)) and is_transfer_status(each.get("status"))
        }
        texts = ("externalId", "problem") if with_payloads else ()
        shown = [
            {"index": n, **texts_of(each, texts), **standing_of(each, known, reported)}
            for n, each in enumerate(transfers)
        ]
        # Of one that is masked or erased only its own status is known.
        statuses = [each["status"] for each in shown] or [str(summary.status)]
        deadline = deadline_in(summary.input)
        now = self._acceptor.record.server_now()
        return BulkTransfer(
            summary,
            bulk_state(
                statuses,
                is_over=summary.is_final and all(map(has_ended, statuses)),
                is_overdue=deadline is not None and deadline <= now,
            ),
            deadline,
            shown,
        )

    def _is_of_bulk(self, summary: Summary) -> bool:
        with translate_outage():
            pinned = self._catalogue.version(summary.pipeline, summary.version)
        return _is_for_bulks(pinned)


def _is_for_bulks(definition: PipelineDefinition) -> bool:
    return any(step.type == STEP_TYPE for step in definition.steps)


def _none_of(transfers: Sequence[Request], first: str) -> RequestError:
    return RequestError(f"none of {len(transfers)} transfers can be accepted; the first: {first}")


def _asked(transfers: Sequence[Request]) -> list[Json]:
    """What makes a bulk the same bulk again: the requests of its transfers, each as a hash."""
    return [
        {
            "index": n,
            "externalId": each.external_id,
            "digest": fingerprint_of(raw_asked(each) or ""),
        }
        for n, each in enumerate(transfers)
    ]


def _within(transfer: Prepared, deadline: datetime) -> Prepared:
    """It expires with the bulk at the latest."""
    own = transfer.acceptance.expires_at
    expires_at = deadline if own is None else min(own, deadline)
    acceptance = replace(transfer.acceptance, expires_at=expires_at)
    new = replace(transfer.new, expires_at_ms=ms_of(expires_at))
    return replace(transfer, acceptance=acceptance, new=new)


def _is_object(input: object) -> bool:
    return isinstance(input, Mapping)


def _left_out(answer: object) -> Json:
    """Why a transfer has no transaction in this bulk. One that was accepted before is not called
    refused: a client that is told so pays elsewhere, while the first one runs."""
    if isinstance(answer, Submitted):
        return {"duplicateOf": answer.tx_id}
    return {"problem": str(answer)[:PROBLEM_CHARS_MAX]}


def _none_accepted(left_out: dict[int, Json]) -> RequestError:
    before = [each["duplicateOf"] for each in left_out.values() if "duplicateOf" in each]
    if before:
        return ExternalIdConflict(
            f"{len(before)} of {len(left_out)} transfers were accepted before, the first as "
            f"transaction {before[0]}; the others cannot be accepted"
        )
    problem = left_out[0]["problem"]
    return RequestError(f"none of {len(left_out)} transfers can be accepted; the first: {problem}")
