"""Sending to ledgers: by HTTP, or by the client of a kind, with the credential of the service."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

from datp_tasks.errors import DatpError
from datp_tasks.ledger.kinds import KINDS, LedgerKind, credential_mistake
from datp_tasks.outbound.messages import Exchange, HttpRequest, NoResponse, NotSent
from datp_tasks.outbound.threaded_client import ThreadedHttpClient
from datp_tasks.record.sql_errors import OperationalError

log = logging.getLogger("datp.ledger")

#: Requests of kinds with a client of their own; others wait for their turn, within their time.
UNDER_WAY_MAX = 32

Secret = Callable[[str], str]


class ForService(Protocol):
    """What is sent is for a service: a kind of ledger, and perhaps a credential."""

    @property
    def kind(self) -> str: ...
    @property
    def secret(self) -> str | None: ...


class LedgerWire:
    """Threads may share it."""

    def __init__(
        self, http: ThreadedHttpClient, secret: Secret, before_send: Callable[[], None]
    ) -> None:
        self._http = http
        self._secret = secret
        self._before_send = before_send
        self._own = ThreadPoolExecutor(UNDER_WAY_MAX, thread_name_prefix="datp-ledger")

    def start(
        self, service: ForService, request: HttpRequest, give_up_s: float
    ) -> Future[Exchange]:
        """Send a request; all of it is over at that moment of the monotonic clock."""
        kind = KINDS.get(service.kind)
        if kind is None:
            return _done(NotSent(KINDS.missing(service.kind)))
        if service.secret is not None:
            try:
                request = self._with_secret(kind, request, service.secret)
            except (DatpError, OperationalError) as error:
                return _done(NotSent(f"the credential of the service cannot be used: {error}"))
        if not kind.has_own_client:
            return self._http.start(request, give_up_s)
        return self._start_own(kind, request, give_up_s)

    def close(self) -> None:
        self._http.close()
        self._own.shutdown(wait=False, cancel_futures=True)

    def _with_secret(self, kind: LedgerKind, request: HttpRequest, name: str) -> HttpRequest:
        mistake = credential_mistake(kind, request.url)
        if mistake:
            raise DatpError(mistake)
        headers = {**request.headers, "authorization": self._secret(name)}
        return replace(request, headers=headers)

    def _start_own(
        self, kind: LedgerKind, request: HttpRequest, give_up_s: float
    ) -> Future[Exchange]:
        """A client that does not keep to its time is not waited for: its answer is not known."""
        answer: Future[Exchange] = Future()
        late = threading.Timer(
            max(0.0, give_up_s - time.monotonic()),
            _settle,
            (answer, NoResponse("its client did not answer in time")),
        )
        late.daemon = True

        def send() -> None:
            left_s = give_up_s - time.monotonic()
            if left_s <= 0 or answer.done():
                _settle(answer, NotSent("its time was over before it was sent"))
                return
            try:
                self._before_send()
                found: Exchange = kind.send(request, left_s)
            except Exception as error:
                log.warning("the client of the kind %s raised", kind.name, exc_info=error)
                # It may have sent it before it broke.
                found = NoResponse(f"its client broke: {type(error).__name__}")
            _settle(answer, found)

        late.start()
        answer.add_done_callback(lambda _: late.cancel())
        try:
            self._own.submit(send)
        except RuntimeError:
            _settle(answer, NotSent("the client was closed"))
        return answer


def _settle(answer: Future[Exchange], found: Exchange) -> None:
    with suppress(InvalidStateError):
        answer.set_result(found)


def _done(found: Exchange) -> Future[Exchange]:
    answer: Future[Exchange] = Future()
    answer.set_result(found)
    return answer
