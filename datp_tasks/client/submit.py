"""Submitting: SQL accepts, then Redis has it and a worker is rung for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from datp_tasks.bells.ringer import Ringer
from datp_tasks.client.requests import (
    Prepared,
    Request,
    Submitted,
    accepted_name,
    fingerprint_of,
    prepare,
    raw_asked,
)
from datp_tasks.errors import (
    CannotSeal,
    DataKeyGone,
    ExternalIdConflict,
    PipelineError,
    RequestError,
    SealError,
)
from datp_tasks.failpoints import reach
from datp_tasks.live.keys import shards_for
from datp_tasks.live.live_types import FIRST_SEQUENCE
from datp_tasks.live.redis_errors import RedisError
from datp_tasks.live.store import LiveStore
from datp_tasks.model.status import Status
from datp_tasks.observe.tracing import Tracing
from datp_tasks.pipelines.catalogue import Catalogue
from datp_tasks.record.database import translate_outage
from datp_tasks.record.record_types import Existing
from datp_tasks.record.transactions import Record
from datp_tasks.record.vault import Vault
from datp_tasks.settings import Settings
from datp_tasks.timeouts.expiry import Now

log = logging.getLogger("datp.client")

#: Beyond a few hundred rows in one commit the gain is below what can be measured.
BATCH_MAX = 500
#: Of many requests the first few are accepted alone, each batch twice as many as the one before, so
#: that workers have something to do while the others are. Where they are busy anyway, it would
#: only cost commits.
FIRST_BATCH_MAX = 100
Preparing = Prepared | RequestError | PipelineError
#: What can be accepted, or the answer to a request that need not or cannot be.
Answerable = Prepared | Submitted | RequestError | PipelineError
#: What has the external id of a request: the same request, another one, or that cannot be told.
Before = Submitted | ExternalIdConflict | CannotSeal


@dataclass(frozen=True, kw_only=True)
class RequestPreparer:
    """Makes of a request what can be accepted: checked, sealed and with its span."""

    settings: Settings
    catalogue: Catalogue
    vault: Vault
    #: None: nothing is traced.
    tracing: Tracing | None

    def prepare(self, request: Request, now: Now, shard: str) -> Preparing:
        try:
            definition = self.catalogue.current(request.pipeline)
            prepared = prepare(request, definition, self.settings, now, shard)
            if self.catalogue.seals(definition):
                prepared = prepared.sealed(self.vault.key_for(prepared.acceptance.owner))
            if self.tracing:
                prepared = prepared.traced(self.tracing.accepted(request.trace_parent))
            return prepared
        except (RequestError, PipelineError) as error:
            return error
        except SealError as error:
            return CannotSeal(str(error))


@dataclass(frozen=True, kw_only=True)
class RequestAcceptor:
    preparer: RequestPreparer
    record: Record
    live: LiveStore
    ringer: Ringer

    @property
    def settings(self) -> Settings:
        return self.preparer.settings

    @property
    def vault(self) -> Vault:
        return self.preparer.vault

    def submit_many(
        self, requests: Sequence[Request]
    ) -> list[Submitted | RequestError | PipelineError]:
        answers: list[Submitted | RequestError | PipelineError] = []
        for batch in _batches(requests, lambda: self.ringer.found_busy):
            try:
                answers += self._submit_batch(batch)
            except DataKeyGone as error:
                # An owner was erased with its keys: nothing was accepted, and it gets a new one.
                self.vault.forget(error.key_ids)
                answers += self._submit_batch(batch)
        return answers

    def _submit_batch(
        self, requests: Sequence[Request]
    ) -> list[Submitted | RequestError | PipelineError]:
        prepared, good = self.prepare_many(requests)
        with translate_outage():
            reach("submit.before_accept")
            existing = self.record.accept_many([each.acceptance for each in good]) if good else []
        reach("submit.after_accept")
        self.place([each for each, before in zip(good, existing, strict=True) if before is None])
        return self.answers(prepared, existing)

    def prepare_many(self, requests: Sequence[Request]) -> tuple[list[Answerable], list[Prepared]]:
        """Each request as it can be accepted, or the answer to it; and the former alone."""
        with translate_outage():
            now = cache(self.record.server_now)
            shards = shards_for(len(requests), self.settings.shards)
            tried = [
                self.preparer.prepare(each, now, shard)
                for each, shard in zip(requests, shards, strict=True)
            ]
            prepared = self._unless_accepted(requests, tried)
        return prepared, [each for each in prepared if isinstance(each, Prepared)]

    def answers(
        self, prepared: Sequence[Answerable], existing: Sequence[Existing | None]
    ) -> list[Submitted | RequestError | PipelineError]:
        """In the order of the requests; `existing` is for those that could be accepted."""
        found = iter(existing)
        return [
            self._answer(each, next(found)) if isinstance(each, Prepared) else each
            for each in prepared
        ]

    def accepted_before(self, requests: Sequence[Request]) -> list[Before | None]:
        """For each request the transaction that was accepted under its external id, or a conflict
        if that was another request; None if there is none."""
        names = [accepted_name(each) for each in requests]
        wanted = [name for name in names if name is not None]
        if not wanted:
            return [None] * len(requests)
        with translate_outage():
            found = self.record.find_existing(wanted)
        return [
            self._before(raw_asked(request), name[1], found[name])
            if name is not None and name in found
            else None
            for request, name in zip(requests, names, strict=True)
        ]

    def _unless_accepted(
        self, requests: Sequence[Request], prepared: Sequence[Preparing]
    ) -> list[Answerable]:
        """What would be refused now may have been accepted before, under its external id: then that
        is the answer. A client that is told "refused" pays elsewhere, while the first one runs."""
        answers: list[Answerable] = [
            each.overdue or each if isinstance(each, Prepared) else each for each in prepared
        ]
        refused = [n for n, each in enumerate(answers) if not isinstance(each, Prepared)]
        if refused:
            before = self.accepted_before([requests[n] for n in refused])
            for n, found in zip(refused, before, strict=True):
                answers[n] = found or answers[n]
        return answers

    def place(self, accepted: Sequence[Prepared]) -> None:
        """Into Redis and to a worker. What fails here is only late: SQL has it."""
        new = [each.new for each in accepted]
        ring = None
        # More than a vector need more than one message.
        if len(new) < self.settings.vector_max:
            # A bell for one that was there already is a bell for nothing.
            ring = self.ringer.ring_along([each.bell(FIRST_SEQUENCE) for each in new])
        ring_call, rung = ring or (None, None)
        try:
            bells, replies = self.live.create_and(new, [ring_call] if ring_call else [])
        except RedisError as error:
            log.warning("%d accepted transactions wait for Redis: %s", len(accepted), error)
            return
        reach("submit.after_create")
        if rung:
            rung(replies[0])
        else:
            self.ringer.ring(bells, requeued=False)

    def _answer(self, prepared: Prepared, existing: Existing | None) -> Submitted | RequestError:
        acceptance = prepared.acceptance
        if existing is None:
            return Submitted(acceptance.tx_id, Status.QUEUED)
        if existing.fingerprint == acceptance.fingerprint:
            return Submitted(existing.tx_id, existing.status, duplicate=True)
        return self._before(prepared.asked, acceptance.external_id or "", existing)

    def _before(self, asked: str | None, external_id: str, existing: Existing) -> Before:
        """Whether it is the request that the stored fingerprint was made of.

        The pipeline may have been sealed since, or not any more, or its owner's key is another.
        """
        stored, is_erased = existing.fingerprint, False
        try:
            keyed = None if asked is None else self.vault.is_same_request(stored, asked)
        except DataKeyGone:
            keyed, is_erased = False, True
        except SealError as error:
            return CannotSeal(str(error))
        is_plain = keyed is None and asked is not None
        if keyed or (is_plain and fingerprint_of(asked or "") == stored):
            return Submitted(existing.tx_id, existing.status, duplicate=True)
        other = "a request that was erased" if is_erased else "another request"
        return ExternalIdConflict(
            f"external id {external_id!r} was already used for {other}, "
            f"transaction {existing.tx_id}"
        )


def _batches(
    requests: Sequence[Request], are_busy: Callable[[], bool]
) -> Iterator[Sequence[Request]]:
    """What is accepted by one commit each; whether workers are busy is asked before each commit."""
    start, size = 0, BATCH_MAX
    if len(requests) > BATCH_MAX:
        size = min(FIRST_BATCH_MAX, BATCH_MAX)
    while start < len(requests):
        if are_busy():
            size = BATCH_MAX
        yield requests[start : start + size]
        start, size = start + size, min(2 * size, BATCH_MAX)
