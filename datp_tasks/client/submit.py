"""Submitting: SQL accepts, then Redis has it and a worker is rung for it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from datp_tasks.bells.ringer import Ringer
from datp_tasks.client.requests import Prepared, Request, Submitted, fingerprint_of, prepare
from datp_tasks.errors import (
    CannotSeal,
    ExternalIdConflict,
    PipelineError,
    RequestError,
    SealError,
)
from datp_tasks.failpoints import reach
from datp_tasks.live.errors import RedisError
from datp_tasks.live.store import LiveStore
from datp_tasks.model.status import Status
from datp_tasks.observe.tracing import Tracing
from datp_tasks.pipelines.catalogue import Catalogue
from datp_tasks.record.database import translate_outage
from datp_tasks.record.transactions import Record
from datp_tasks.record.types import Existing
from datp_tasks.record.vault import Vault
from datp_tasks.settings import Settings
from datp_tasks.timeouts.expiry import Now

log = logging.getLogger("datp.client")


@dataclass(frozen=True, kw_only=True)
class RequestAcceptor:
    settings: Settings
    record: Record
    live: LiveStore
    catalogue: Catalogue
    ringer: Ringer
    vault: Vault
    #: None: nothing is traced.
    tracing: Tracing | None

    def submit_many(
        self, requests: Sequence[Request]
    ) -> list[Submitted | RequestError | PipelineError]:
        answers: list[Submitted | RequestError | PipelineError] = []
        for start in range(0, len(requests), self.settings.submit_batch_max):
            answers += self._submit_batch(requests[start : start + self.settings.submit_batch_max])
        return answers

    def _submit_batch(
        self, requests: Sequence[Request]
    ) -> list[Submitted | RequestError | PipelineError]:
        with translate_outage():
            now = cache(self.record.server_now)
            prepared = self._unless_overdue([self._prepare(each, now) for each in requests])
            good = [each for each in prepared if isinstance(each, Prepared)]
            reach("submit.before_accept")
            existing = self.record.accept_many([each.acceptance for each in good]) if good else []
        reach("submit.after_accept")
        self._place([each for each, before in zip(good, existing, strict=True) if before is None])
        found = iter(zip(good, existing, strict=True))
        return [
            self._answer(*next(found)) if isinstance(each, Prepared) else each for each in prepared
        ]

    def _prepare(self, request: Request, now: Now) -> Prepared | RequestError | PipelineError:
        try:
            definition = self.catalogue.current(request.pipeline)
            prepared = prepare(request, definition, self.settings, now)
            if definition.sealed:
                prepared = prepared.sealed(self.vault.key_for(prepared.acceptance.owner))
            return prepared.traced(self.tracing.accepted()) if self.tracing else prepared
        except (RequestError, PipelineError) as error:
            return error
        except SealError as error:
            return CannotSeal(str(error))

    def _unless_overdue(
        self, prepared: Sequence[Prepared | RequestError | PipelineError]
    ) -> list[Prepared | Submitted | RequestError | PipelineError]:
        """An expiry in the past is refused, unless the request was accepted when it was not."""
        late = [each for each in prepared if isinstance(each, Prepared) and each.overdue]
        if not late:
            return list(prepared)
        found = iter(self.record.find_existing([each.acceptance for each in late]))
        answers: list[Prepared | Submitted | RequestError | PipelineError] = []
        for each in prepared:
            if isinstance(each, Prepared) and each.overdue:
                before = next(found)
                answers.append(self._answer(each, before) if before else each.overdue)
            else:
                answers.append(each)
        return answers

    def _place(self, accepted: Sequence[Prepared]) -> None:
        """Into Redis and to a worker. What fails here is only late: SQL has it."""
        try:
            bells = self.live.create_many([each.new for each in accepted])
        except RedisError as error:
            log.warning("%d accepted transactions wait for Redis: %s", len(accepted), error)
            return
        reach("submit.after_create")
        self.ringer.ring(bells)

    def _answer(self, prepared: Prepared, existing: Existing | None) -> Submitted | RequestError:
        if existing is None:
            return Submitted(prepared.acceptance.tx_id, Status.QUEUED)
        try:
            is_same = self._is_same(prepared, existing.fingerprint)
        except SealError as error:
            return CannotSeal(str(error))
        if is_same:
            return Submitted(existing.tx_id, existing.status, duplicate=True)
        return ExternalIdConflict(
            f"external id {prepared.acceptance.external_id!r} was already used for another "
            f"request, transaction {existing.tx_id}"
        )

    def _is_same(self, prepared: Prepared, stored: str) -> bool:
        """Whether it is the request that the stored fingerprint was made of.

        The pipeline may have been sealed since, or not any more, or its owner's key is another.
        """
        if stored == prepared.acceptance.fingerprint:
            return True
        keyed = self.vault.is_same_request(stored, prepared.asked)
        return fingerprint_of(prepared.asked) == stored if keyed is None else keyed
