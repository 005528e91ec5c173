"""The Python client: submit transactions, look at them, act on them.

It needs Redis, PostgreSQL and the broker, but no worker, so a web process can hold one. Threads
may share a client.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from types import TracebackType
from typing import Any, Self, TypeVar

from redis.exceptions import RedisError

from datp_tasks.client.batches import BatchMethods
from datp_tasks.client.expiry import Now
from datp_tasks.client.reads import LookMethods
from datp_tasks.client.requests import Prepared, Request, Submitted, prepare
from datp_tasks.errors import (
    DatpError,
    ExternalIdConflict,
    PipelineError,
    RequestError,
    SwitchInvalid,
    TransactionError,
    TransactionFinal,
    TransactionUnknown,
)
from datp_tasks.failpoints import reach
from datp_tasks.live.keys import shard_of_tx
from datp_tasks.live.notifications import Notifications
from datp_tasks.live.types import Bell, Claimed, Refused
from datp_tasks.model.notes import clean_note
from datp_tasks.model.status import Status
from datp_tasks.model.stop_request import StopRequest
from datp_tasks.model.switch import switch_json
from datp_tasks.operator.bulk import ManyMethods
from datp_tasks.operator.resolve import DeskMethods
from datp_tasks.operator.why import WhyMethods
from datp_tasks.record.database import translate_outage
from datp_tasks.record.signals import CANCEL, Signal
from datp_tasks.record.types import Existing, Summary
from datp_tasks.runtime.container import Container
from datp_tasks.settings import Settings
from datp_tasks.transactions.end_unstarted import end_unstarted

log = logging.getLogger("datp.client")

T = TypeVar("T")


class Client(LookMethods, BatchMethods, DeskMethods, WhyMethods, ManyMethods):
    """One connection to the whole system, for any number of threads."""

    def __init__(self, connections: Container) -> None:
        self._connections = connections
        self._settings = connections.settings
        self._live = connections.live
        self._record = connections.record
        self._notifications = Notifications(connections.redis, self._live.keys.notify)
        self._node = f"client-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"

    @classmethod
    def from_settings(cls, settings: Settings | None = None) -> Self:
        """A client of the servers that the settings (or the environment) name."""
        return cls(Container.open(settings or Settings.from_env()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._notifications.close()
        self._connections.close()

    # Submitting.

    def submit(
        self,
        pipeline: str,
        data: Mapping[str, Any],
        *,
        owner: str = "local",
        external_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expires_at: datetime | str | None = None,
        expires_in_s: float | None = None,
        webhook: str | None = None,
        progress_reports: bool = False,
        cancel_webhook_on_poll: bool = False,
    ) -> Submitted:
        """Hand in a transaction. When this returns it is committed and will not be lost.

        The same external id with the same request gives the first transaction again; with
        another request it raises ExternalIdConflict. One that is not over when it expires is
        rolled back and ends as `expired`. The webhook is told of the end and, if
        `progress_reports`, of every progress report.
        """
        request = Request(
            pipeline=pipeline,
            data=data,
            owner=owner,
            external_id=external_id,
            metadata=metadata,
            expires_at=expires_at,
            expires_in_s=expires_in_s,
            webhook=webhook,
            progress_reports=progress_reports,
            cancel_webhook_on_poll=cancel_webhook_on_poll,
        )
        answer = self.submit_many([request])[0]
        if isinstance(answer, DatpError):
            raise answer
        return answer

    def submit_many(
        self, requests: Sequence[Request]
    ) -> list[Submitted | RequestError | PipelineError]:
        """Hand in many at once; one bad request does not hold up the others.

        Answers come in the order of the requests. Thousands per call are fine.
        """
        answers: list[Submitted | RequestError | PipelineError] = []
        for start in range(0, len(requests), self._settings.submit_batch_max):
            answers += self._submit_batch(requests[start : start + self._settings.submit_batch_max])
        return answers

    def _submit_batch(
        self, requests: Sequence[Request]
    ) -> list[Submitted | RequestError | PipelineError]:
        with translate_outage():
            now = cache(self._record.server_now)
            prepared = self._unless_overdue([self._prepare(each, now) for each in requests])
            good = [each for each in prepared if isinstance(each, Prepared)]
            reach("submit.before_accept")
            existing = self._record.accept_many([each.acceptance for each in good]) if good else []
        reach("submit.after_accept")
        self._place([each for each, before in zip(good, existing, strict=True) if before is None])
        found = iter(zip(good, existing, strict=True))
        return [_answer(*next(found)) if isinstance(each, Prepared) else each for each in prepared]

    def _prepare(self, request: Request, now: Now) -> Prepared | RequestError | PipelineError:
        try:
            definition = self._connections.catalogue.current(request.pipeline)
            prepared = prepare(request, definition, self._settings, now)
            tracing = self._connections.tracing
            return prepared.traced(tracing.accepted()) if tracing else prepared
        except (RequestError, PipelineError) as error:
            return error

    def _unless_overdue(
        self, prepared: Sequence[Prepared | RequestError | PipelineError]
    ) -> list[Prepared | Submitted | RequestError | PipelineError]:
        """An expiry in the past is refused, unless the request was accepted when it was not."""
        late = [each for each in prepared if isinstance(each, Prepared) and each.overdue]
        if not late:
            return list(prepared)
        found = iter(self._record.find_existing([each.acceptance for each in late]))
        answers: list[Prepared | Submitted | RequestError | PipelineError] = []
        for each in prepared:
            if isinstance(each, Prepared) and each.overdue:
                before = next(found)
                answers.append(_answer(each, before) if before else each.overdue)
            else:
                answers.append(each)
        return answers

    def _place(self, accepted: Sequence[Prepared]) -> None:
        """Into Redis and to a worker. What fails here is only late: SQL has it."""
        try:
            bells = self._live.create_many([each.new for each in accepted])
        except RedisError as error:
            log.warning("%d accepted transactions wait for Redis: %s", len(accepted), error)
            return
        reach("submit.after_create")
        self._connections.ringer.ring(bells)

    # Acting.

    def set_switch(self, tx_id: str, name: str, value: bool | int | float | str | None) -> bool:
        """Set a switch; True if that woke the transaction. None removes the switch."""
        signal = Signal(self._known(tx_id), name, switch_json(name, value))
        with self._kept_unless_refused(signal):
            answer = self._said(
                tx_id, lambda: self._live.set_switch(tx_id, name, signal.value), signal
            )
            if isinstance(answer, Refused) and answer.word == "TOO_MANY":
                limit = self._settings.switches_per_transaction_max
                raise SwitchInvalid(f"{tx_id} has {limit} switches already; no more are allowed")
            return self._woken(answer, "SET", "NO_CHANGE")

    def wake(self, tx_id: str) -> bool:
        """End a sleep early; False if it does not sleep."""
        self._known(tx_id)
        answer = self._said(tx_id, lambda: self._live.wake_many([tx_id], only_due=False)[0])
        is_woken = self._woken(answer, "NOT_SLEEPING")
        if isinstance(answer, Refused) and Status(answer.found).is_final:
            raise TransactionFinal(f"{tx_id} has ended: {answer.found}")
        return is_woken

    def cancel(self, tx_id: str, reason: str = "cancelled by its owner") -> Summary:
        """Take a transaction back: at once if nothing has begun, else after its current step.

        Steps that were done are rolled back. The answer shows the status right now; `wait`
        tells how it ended, which may be success if the cancel came too late.
        """
        self._known(tx_id)
        recall = StopRequest(Status.CANCELLED, clean_note(reason) or "cancelled")
        signal = Signal(tx_id, CANCEL, recall.to_text())
        with self._kept_unless_refused(signal):
            # Known as a node, so that the reaper notices should this process die half-way.
            self._live.beat(self._node)
            answer = self._said(
                tx_id, lambda: self._live.cancel(tx_id, signal.value, self._node), signal
            )
            if isinstance(answer, Claimed):
                reach("cancel.after_seize")
                with translate_outage():
                    end_unstarted(self._record, self._live, [(answer, recall)], self._node)
            else:
                self._woken(answer, "ASKED")
        return self.status(tx_id)

    @contextmanager
    def _kept_unless_refused(self, signal: Signal) -> Iterator[None]:
        """SQL first: from here on it is said again, should Redis lose it."""
        signals = self._connections.restorer.signals
        with translate_outage():
            before = signals.add(signal)
        reach("signal.after_sql")
        try:
            yield
        except (TransactionError, SwitchInvalid):
            with translate_outage():
                signals.withdraw(signal, before)
            raise

    def _said(self, tx_id: str, say: Callable[[], T], signal: Signal | None = None) -> T:
        """The answer; of one that is not in Redis, once it is there."""
        answer = say()
        if not _is_away(answer):
            return answer
        with translate_outage():
            bells = self._connections.restorer.place(tx_id, signal)
        answer = say()
        # Rung only now: no worker may be quicker than what is said.
        if not isinstance(answer, Claimed):
            self._connections.ringer.ring(bells)
        return answer

    def _woken(self, answer: Bell | Refused, *fine: str) -> bool:
        """Whether a bell must be rung, and was; False for answers that are fine without one."""
        if isinstance(answer, Bell):
            self._connections.ringer.ring([answer])
            return True
        self._raise_if_impossible(answer, *fine)
        return False

    def _known(self, tx_id: str) -> str:
        if not shard_of_tx(tx_id):
            raise TransactionUnknown(f"there is no transaction {tx_id!r}")
        return tx_id

    def _raise_if_impossible(self, refused: Refused, *fine: str) -> None:
        tx_id = refused.tx_id
        if refused.word in fine:
            return
        if refused.word == "PARKED":
            raise TransactionError(f"{tx_id} is in doubt; that must be resolved first")
        if refused.word == "FINAL":
            raise TransactionFinal(f"{tx_id} has ended: {refused.found}")
        summary = self._summary(tx_id)
        if summary.is_final:
            raise TransactionFinal(f"{tx_id} has ended: {summary.status}")
        raise TransactionError(f"{tx_id} is on its way into memory; try again in a few seconds")


def _answer(prepared: Prepared, existing: Existing | None) -> Submitted | RequestError:
    if existing is None:
        return Submitted(prepared.acceptance.tx_id, Status.QUEUED)
    if existing.fingerprint == prepared.acceptance.fingerprint:
        return Submitted(existing.tx_id, existing.status, duplicate=True)
    return ExternalIdConflict(
        f"external id {prepared.acceptance.external_id!r} was already used for another request, "
        f"transaction {existing.tx_id}"
    )


def _is_away(answer: object) -> bool:
    return isinstance(answer, Refused) and answer.word == "UNKNOWN"
