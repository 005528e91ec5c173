"""Every call of the clients as a flow: what it sends, and what it makes of the answer."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict
from urllib.parse import quote

from datp_tasks.errors import WaitTimeout
from datp_tasks.http.api_error import ApiError
from datp_tasks.http.connecting import PRINTABLE
from datp_tasks.http.flows import Answered, CallRetry, Flow, Outgoing, Pause, call
from datp_tasks.http.replies import (
    BulkAnswer,
    FeedEvent,
    Json,
    Receipt,
    RemoteTransaction,
    bulk_answer_of,
    event_of,
    json_of,
    receipt_of,
    transaction_of,
    understood,
)

TRANSACTIONS = "/v1/transactions"
#: One long poll; the server answers earlier when there is news.
POLL_S = 30.0
PAGE_MAX = 200
EVENTS = "/v1/events"
EVENTS_MAX = 1_000
#: Instead of a cursor: what happens from now on.
LATEST = "latest"
IDEMPOTENCY_KEY = "Idempotency-Key"
IDEMPOTENCY_KEY_CHARS_MAX = 255


class SubmitOptions(TypedDict, total=False):
    """What may be said about a transaction beside its pipeline and input."""

    external_id: str
    metadata: Mapping[str, Any]
    expires_at: datetime | str
    expires_in_s: float
    webhook: str
    progress_reports: bool
    cancel_webhook_on_poll: bool


class ListFilters(TypedDict, total=False):
    """What a list of transactions is narrowed to."""

    status: str | Sequence[str]
    pipeline: str | Sequence[str]
    external_id: str
    owner: str
    created_from: datetime | str
    created_to: datetime | str
    completed_from: datetime | str
    completed_to: datetime | str
    #: A part of the transaction id or of the external id.
    text: str
    #: Fields of the metadata, and the text that each must have.
    metadata: Mapping[str, str]
    #: Search attributes: name, or name[gte] and the like, and value.
    attributes: Mapping[str, str]
    #: createdAt or a search attribute; with `-` the newest or largest first.
    order: str


@dataclass(frozen=True, slots=True)
class EventsFound:
    events: list[FeedEvent]
    next_cursor: str
    has_more: bool


@dataclass(frozen=True, slots=True)
class FoundPage:
    transactions: list[RemoteTransaction]
    next_cursor: str | None


def submission(pipeline: str, data: Mapping[str, Any], options: SubmitOptions) -> Json:
    """A transaction as the API takes it."""
    expires_at = options.get("expires_at")
    fields = {
        "pipeline": pipeline,
        "input": dict(data),
        "externalId": options.get("external_id"),
        "metadata": options.get("metadata"),
        "expiresAt": _text(expires_at) if expires_at is not None else None,
        "expiresInSeconds": options.get("expires_in_s"),
        "webhook": options.get("webhook"),
        "progressReports": options.get("progress_reports"),
        "cancelWebhookOnPoll": options.get("cancel_webhook_on_poll"),
    }
    return {name: value for name, value in fields.items() if value is not None}


def submit(wanted: Json, key: str | None, policy: CallRetry) -> Flow[Receipt]:
    found = yield from post(TRANSACTIONS, wanted, policy, key=key)
    with understood():
        return receipt_of(found)


def submit_bulk(wanted: Sequence[Json], policy: CallRetry) -> Flow[list[BulkAnswer]]:
    body = {"transactions": list(wanted)}
    found = json_of((yield from post(f"{TRANSACTIONS}/bulk", body, policy)))
    with understood():
        return [bulk_answer_of(number, each) for number, each in enumerate(found["results"])]


def read(
    tx_id: str, policy: CallRetry, *, wait_s: float = 0.0, after: int | None = None
) -> Flow[RemoteTransaction]:
    params: Json = {"wait": round(wait_s, 3)} if wait_s else {}
    if after is not None:
        params["after"] = after
    found = yield from call(
        Outgoing("GET", transaction_path(tx_id), params=params, extra_s=wait_s), policy
    )
    with understood():
        return transaction_of(json_of(found))


def wait(tx_id: str, timeout_s: float, policy: CallRetry) -> Flow[RemoteTransaction]:
    """Long polls until it has ended; WaitTimeout leaves it running.

    A server that has answered once may be unavailable for as long as there is time to wait.
    """
    give_up_s = time.monotonic() + timeout_s
    seen = yield from read(tx_id, policy)
    while not seen.is_final:
        left_s = give_up_s - time.monotonic()
        if left_s <= 0:
            raise WaitTimeout(f"{tx_id} is still {seen.status} after {timeout_s:g} s")
        try:
            seen = yield from read(tx_id, policy, wait_s=min(left_s, POLL_S), after=seen.sequence)
        except ApiError as error:
            if not error.retryable or time.monotonic() >= give_up_s:
                raise
            yield Pause(policy.pause_s(policy.attempts_max, error))
    return seen


def page(filters: ListFilters, cursor: str | None, policy: CallRetry) -> Flow[FoundPage]:
    params = {**_filter_params(filters), "limit": PAGE_MAX}
    if cursor is not None:
        params["cursor"] = cursor
    found = json_of((yield from call(Outgoing("GET", TRANSACTIONS, params=params), policy)))
    with understood():
        listed = [transaction_of(each) for each in found["transactions"]]
    return FoundPage(listed, found.get("nextCursor"))


def events(
    after: str | None, types: Sequence[str], wait_s: float, policy: CallRetry
) -> Flow[EventsFound]:
    """One page of the feed; with `wait_s` it waits for news if there are none."""
    if after == LATEST:
        # Asked for the place alone: a long poll that breaks would begin later the second time.
        wait_s = 0.0
    params: Json = {"limit": EVENTS_MAX, "wait": wait_s}
    if after is not None:
        params["after"] = after
    if types:
        params["type"] = ",".join(types)
    found = json_of(
        (yield from call(Outgoing("GET", EVENTS, params=params, extra_s=wait_s), policy))
    )
    with understood():
        listed = [event_of(each) for each in found["events"]]
        return EventsFound(listed, found["nextCursor"], found["hasMore"])


def cancel(tx_id: str, reason: str | None, policy: CallRetry) -> Flow[RemoteTransaction]:
    body = {} if reason is None else {"reason": reason}
    path = f"{transaction_path(tx_id)}/cancel"
    found = yield from post(path, body, policy)
    with understood():
        return transaction_of(json_of(found))


def wake(tx_id: str, policy: CallRetry) -> Flow[bool]:
    found = yield from post(f"{transaction_path(tx_id)}/wake", None, policy)
    with understood():
        return bool(json_of(found)["woken"])


def set_switch(
    tx_id: str, name: str, value: bool | int | float | str | None, policy: CallRetry
) -> Flow[bool]:
    path = f"{transaction_path(tx_id)}/switches/{quote(name, safe='')}"
    found = yield from call(Outgoing("PUT", path, body={"value": value}), policy)
    with understood():
        return bool(json_of(found)["woken"])


def request(
    method: str, path: str, params: Mapping[str, Any] | None, body: Any, policy: CallRetry
) -> Flow[Json]:
    """Any route of the API, with the same retries."""
    if method.upper() == "POST":
        reply = yield from post(path, body, policy, params=params)
    else:
        reply = yield from call(
            Outgoing(method.upper(), path, params=dict(params or {}), body=body), policy
        )
    return json_of(reply)


def post(
    path: str,
    body: Any,
    policy: CallRetry,
    *,
    key: str | None = None,
    params: Mapping[str, Any] | None = None,
    extra_s: float = 0.0,
) -> Flow[Answered]:
    """A POST under one idempotency key, so that a second try does nothing twice."""
    headers = {IDEMPOTENCY_KEY: str(uuid.uuid4()) if key is None else _checked_key(key)}
    outgoing = Outgoing(
        "POST", path, params=dict(params or {}), body=body, headers=headers, extra_s=extra_s
    )
    return (yield from call(outgoing, policy))


def _checked_key(key: str) -> str:
    """A header that cannot be sent must not look like a server that does not answer."""
    if not PRINTABLE.fullmatch(key) or len(key) > IDEMPOTENCY_KEY_CHARS_MAX:
        detail = (
            f"An idempotency key is 1 to {IDEMPOTENCY_KEY_CHARS_MAX} printable ASCII characters "
            f"without spaces, was {key!r:.100}."
        )
        raise ApiError(detail, status=0, kind="idempotency-key-invalid", retryable=False)
    return key


def transaction_path(tx_id: str) -> str:
    return f"{TRANSACTIONS}/{quote(tx_id, safe='')}"


def _filter_params(filters: ListFilters) -> Json:
    params = {
        "status": _joined(filters.get("status")),
        "pipeline": _joined(filters.get("pipeline")),
        "externalId": filters.get("external_id"),
        "owner": filters.get("owner"),
        "createdAt[gte]": _text(filters.get("created_from")),
        "createdAt[lt]": _text(filters.get("created_to")),
        "completedAt[gte]": _text(filters.get("completed_from")),
        "completedAt[lt]": _text(filters.get("completed_to")),
        "q": filters.get("text"),
        "order": filters.get("order"),
        **{f"metadata.{name}": value for name, value in filters.get("metadata", {}).items()},
        **{f"attr.{name}": value for name, value in filters.get("attributes", {}).items()},
    }
    return {name: value for name, value in params.items() if value is not None}


def _joined(given: str | Sequence[str] | None) -> str | None:
    return given if given is None or isinstance(given, str) else ",".join(given)


def _text(moment: datetime | str | None) -> str | None:
    return moment.isoformat() if isinstance(moment, datetime) else moment
