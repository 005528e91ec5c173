"""`Idempotency-Key`: the same request with the same key is done once, and answered twice.

The key is stored before the request is worked on, and its answer after. As long as the work takes,
the hold on the key is renewed, so that no second request does the same beside it. A process that
dies in between leaves a key without an answer: after HOLD_S the next request with it does the work.
What that work finds done already (an external id, a batch, a decision) it does not do twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar

from fastapi import Request
from fastapi.responses import Response

from datp_tasks.api.body import header_of
from datp_tasks.api.problem_types import PREFIX, TYPES
from datp_tasks.api.problems import MEDIA_TYPE, Problem, answer_of
from datp_tasks.api.services import Services, caller_of, services_of
from datp_tasks.api.waiting import ClientGone
from datp_tasks.record.database import translate_outage
from datp_tasks.record.idempotency_keys import (
    RENEW_S,
    KeptAnswer,
    KeyInUse,
    KeyOfAnother,
    KeyTaken,
)

log = logging.getLogger("datp.api")

HEADER = "Idempotency-Key"
#: As requests have it.
HEADER_NAME = HEADER.lower().encode()
KEY = re.compile(r"[\x21-\x7e]{1,255}")
#: What a client waits while another request with its key is being worked on.
RETRY_AFTER_S = 2
#: Each part of a bulk has its own answer; one that can succeed later keeps the key free, and the
#: parts that were accepted are found by their external ids.
MIXED = 207
#: Headers of an answer that are kept with it.
KEPT_HEADERS = ("location", "content-type")

#: What is kept of an answer: all of it; the id of the transaction that it shows, which is then
#: shown as of now, so that no payload rests here; nothing, and the delivery that the path names is
#: shown as of now, for the same reason; nothing, because it has a secret in it; nothing, because
#: what is done again finds itself done, and its answer may have payloads in it.
Keeps = Literal["answer", "transaction", "delivery", "nothing", "again"]
Handle = Callable[[Any], Awaitable[Response]]
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
#: Shows the transaction or delivery with this id to the caller of a request.
Show = Callable[[Request, str], Awaitable[Response]]


def keeps(what: Keeps) -> Callable[[Endpoint], Endpoint]:
    """What is kept of the answers of a route."""

    def mark(endpoint: Endpoint) -> Endpoint:
        endpoint.reply_kept = what  # type: ignore[attr-defined]
        return endpoint

    return mark


def kept_by(endpoint: Callable[..., Any]) -> Keeps:
    found: Keeps = getattr(endpoint, "reply_kept", "answer")
    return found


def external_id_of(request: Request, index: int | None = None) -> str | None:
    """For a transaction without one: its acceptance then finds the first one in SQL, whatever
    became of the process that accepted it. None without a key."""
    key = header_of(request, HEADER_NAME)
    if key is None:
        return None
    name = hashlib.sha256(key.encode()).hexdigest()[:32]
    return f"key:{name}" if index is None else f"key:{name}/{index}"


async def once(request: Request, handle: Handle, what: Keeps) -> Response:
    """The answer of `handle`, or that of the first request with this key."""
    key = request.headers.get(HEADER, "")
    if not KEY.fullmatch(key):
        detail = f"{HEADER} is 1 to 255 printable ASCII characters without spaces."
        raise Problem(422, "idempotency-key-invalid", detail)
    services, owner = services_of(request), caller_of(request).owner
    digest = await _digest(request)

    def begin() -> KeyTaken | KeptAnswer | KeyOfAnother | KeyInUse:
        with translate_outage():
            return services.callers.idempotency.begin(owner, key, digest)

    found = await services.threads.run(begin)
    if not isinstance(found, KeyTaken):
        return await _known(request, found, what)
    hold = Hold(services, found)
    try:
        response = await handle(request)
    except ClientGone:
        # Whether it was done is not known: the key is held until the hold is over.
        raise
    except Exception as error:
        # A problem, or an approval that is asked for: it shows no transaction and no secret.
        response, what = answer_of(request, error), "answer"
    finally:
        hold.stop()
    await hold.ended()
    await _settle(services, found, response, what, request)
    return response


class Hold:
    """Renews the hold on a key while its request is worked on."""

    def __init__(self, services: Services, begun: KeyTaken) -> None:
        self._services = services
        self._begun = begun
        self._under_way: asyncio.Task[None] | None = None
        self._is_over = False
        self._timer = self._later()

    def stop(self) -> None:
        self._is_over = True
        self._timer.cancel()

    async def ended(self) -> None:
        """No renewal is under way any more."""
        if self._under_way is not None:
            await self._under_way

    def _later(self) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(RENEW_S, self._begin)

    def _begin(self) -> None:
        self._under_way = asyncio.ensure_future(self._renew())

    async def _renew(self) -> None:
        def renew() -> bool:
            with translate_outage():
                return self._services.callers.idempotency.renew(self._begun)

        try:
            # Not in the threads of requests: those may all be as slow as this one.
            is_renewed = await asyncio.to_thread(renew)
        except Exception as error:
            log.warning("the hold on an idempotency key is not renewed: %s", error)
        else:
            if not is_renewed:
                log.warning("another request has taken over an idempotency key that is in use")
                return
        if not self._is_over:
            self._timer = self._later()


async def _known(
    request: Request, found: KeptAnswer | KeyOfAnother | KeyInUse, what: Keeps
) -> Response:
    if isinstance(found, KeyOfAnother):
        detail = "This key was used for another request (route, query or body)."
        raise Problem(422, "idempotency-key-reused", detail)
    if isinstance(found, KeyInUse):
        raise Problem(
            409,
            "idempotency-key-in-use",
            "The first request with this key is being worked on.",
            headers={"Retry-After": str(RETRY_AFTER_S)},
        )
    shown = found.tx_id if what == "transaction" else request.path_params.get("id")
    if what in ("transaction", "delivery") and found.body is None and shown:
        show: Show = request.app.state.shows[what]
        response = await show(request, shown)
        response.status_code = found.status
    elif found.body is None:
        detail = "The first request with this key was done; its answer was shown once."
        raise Problem(409, "idempotency-answer-gone", detail)
    else:
        response = Response(found.body, found.status, headers=dict(found.headers))
    response.headers["Idempotent-Replayed"] = "true"
    return response


async def _settle(
    services: Services, begun: KeyTaken, response: Response, what: Keeps, request: Request
) -> None:
    """Keep the answer; what can succeed later keeps nothing, so that the same key is free."""
    store = services.callers.idempotency
    status = response.status_code
    tx_id = request.path_params.get("txId") if what == "transaction" and status < 300 else None
    body = bytes(response.body).decode() if what == "answer" or status >= 400 else None
    headers = {name: response.headers[name] for name in KEPT_HEADERS if name in response.headers}
    kept = KeptAnswer(status, tuple(headers.items()), body, tx_id)

    def settle() -> None:
        with translate_outage():
            if what == "again" or _is_passing(response):
                store.release(begun)
            elif not store.keep(begun, kept):
                log.warning("another request has taken over an idempotency key before its answer")

    try:
        await services.threads.run(settle)
    except Exception as error:
        log.warning("the answer under an idempotency key is not kept: %s", error)


def _is_passing(response: Response) -> bool:
    """Whether the same request can be answered otherwise without a change of it."""
    status = response.status_code
    if status < 400 and status != MIXED:
        return False
    if status in (401, 403) or (status != MIXED and response.media_type != MEDIA_TYPE):
        return True
    text = bytes(response.body).decode()
    return any(f'"{PREFIX}{each.kind}"' in text for each in TYPES.values() if each.retryable)


async def _digest(request: Request) -> str:
    path = request.url.path
    head = f"{request.method}\0{path}\0{request.scope['query_string'].decode('latin-1')}\0"
    return hashlib.sha256(head.encode() + await request.body()).hexdigest()
