"""Retries: what is sent again, after which pause, and when a call gives up."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from datp_tasks.errors import WaitTimeout
from datp_tasks.http import ApiClient, AsyncApiClient, operations
from datp_tasks.http.api_error import ApiError
from datp_tasks.http.flows import Answered, CallRetry, Flow, NoReply, Outgoing, Pause, Reply
from datp_tasks.http.operations import IDEMPOTENCY_KEY

POLICY = CallRetry(attempts_max=3, first_s=1.0, factor=2.0, pause_s_max=10.0)
ACCEPTED = Answered(202, {}, json.dumps({"txId": "t00-1", "status": "queued"}).encode())


def problem(status: int, kind: str, headers: dict[str, str] | None = None, **more: Any) -> Answered:
    document = {"type": f"urn:datp:problem:{kind}", "detail": f"it is {kind}", **more}
    return Answered(status, headers or {}, json.dumps(document).encode())


def played(flow: Flow[Any], replies: Iterable[Reply]) -> tuple[Any, list[Outgoing], list[float]]:
    """Run a flow against these replies: its result, what it sent, and how long it paused."""
    sent: list[Outgoing] = []
    pauses: list[float] = []
    left = iter(replies)
    reply: Reply = None
    while True:
        try:
            wanted = flow.send(reply)
        except StopIteration as end:
            assert next(left, None) is None, "a reply was not asked for"
            return end.value, sent, pauses
        if isinstance(wanted, Pause):
            pauses.append(wanted.seconds)
            reply = None
        else:
            sent.append(wanted)
            reply = next(left)


def submit() -> Flow[Any]:
    return operations.submit({"pipeline": "p", "input": {}}, None, POLICY)


def test_a_second_try_carries_the_same_idempotency_key() -> None:
    receipt, sent, pauses = played(submit(), [NoReply("reset"), ACCEPTED])
    assert receipt.tx_id == "t00-1" and not receipt.repeated
    assert len(sent) == 2
    assert sent[0].headers[IDEMPOTENCY_KEY] == sent[1].headers[IDEMPOTENCY_KEY]
    assert 0.5 <= pauses[0] <= 1.0


def test_two_calls_have_different_idempotency_keys() -> None:
    _, [first], _ = played(submit(), [ACCEPTED])
    _, [second], _ = played(submit(), [ACCEPTED])
    assert first.headers[IDEMPOTENCY_KEY] != second.headers[IDEMPOTENCY_KEY]


def test_pauses_grow() -> None:
    _, _, pauses = played(submit(), [NoReply("a"), NoReply("b"), ACCEPTED])
    assert 0.5 <= pauses[0] <= 1.0 <= pauses[1] <= 2.0


def test_the_server_says_how_long_to_pause() -> None:
    busy = problem(429, "limited", {"retry-after": "4"}, retryable=True)
    _, _, pauses = played(submit(), [busy, ACCEPTED])
    assert 4.0 <= pauses[0] <= 5.0


def test_a_pause_has_an_upper_bound() -> None:
    busy = problem(503, "busy", {"retry-after": "86400"})
    _, _, pauses = played(submit(), [busy, ACCEPTED])
    assert pauses[0] <= POLICY.pause_s_max + POLICY.first_s


def test_what_the_server_calls_final_is_not_tried_again() -> None:
    with pytest.raises(ApiError) as found:
        played(submit(), [problem(409, "external-id-conflict", requestId="req_1")])
    assert (found.value.status, found.value.kind) == (409, "external-id-conflict")
    assert found.value.request_id == "req_1" and not found.value.retryable


def test_the_word_of_the_server_counts_more_than_the_status() -> None:
    busy = problem(409, "transaction-busy", retryable=True)
    receipt, sent, _ = played(submit(), [busy, ACCEPTED])
    assert receipt.tx_id == "t00-1" and len(sent) == 2
    with pytest.raises(ApiError):
        played(submit(), [problem(503, "sealing-unavailable", retryable=False)])


def test_a_call_gives_up_after_its_attempts() -> None:
    with pytest.raises(ApiError) as found:
        played(submit(), [NoReply("reset")] * 3)
    assert found.value.status == 0 and "reset" in str(found.value)


def test_a_page_of_a_proxy_is_an_error_with_its_status() -> None:
    with pytest.raises(ApiError) as found:
        played(submit(), [Answered(404, {}, b"<html>not here</html>")])
    assert found.value.status == 404 and found.value.kind == "http-404"


def test_a_page_with_status_200_is_no_answer_of_the_api() -> None:
    with pytest.raises(ApiError, match="is the URL right"):
        played(submit(), [Answered(200, {}, b"<html>welcome</html>")])


def shown(status: str, sequence: int) -> Answered:
    found = {
        "txId": "t00-1",
        "status": status,
        "pipeline": "p",
        "version": "v",
        "owner": "acme",
        "sequence": sequence,
    }
    return Answered(200, {}, json.dumps(found).encode())


def test_waiting_goes_on_after_what_it_has_seen() -> None:
    flow = operations.wait("t00-1", 60.0, POLICY)
    replies = [shown("queued", 0), shown("sleeping", 3), shown("success", 4)]
    found, sent, _ = played(flow, replies)
    assert found.is_final
    assert [each.params.get("after") for each in sent] == [None, 0, 3]


def test_waiting_ends_after_its_time() -> None:
    flow = operations.wait("t00-1", 0.0, POLICY)
    with pytest.raises(WaitTimeout, match="still sleeping"):
        played(flow, [shown("sleeping", 1)])


def test_a_transaction_id_cannot_leave_its_place_in_the_url() -> None:
    assert operations.transaction_path("../keys?x=1") == "/v1/transactions/..%2Fkeys%3Fx%3D1"


def test_waiting_goes_on_while_the_server_is_restarted() -> None:
    flow = operations.wait("t00-1", 60.0, POLICY)
    outage = [NoReply("refused")] * (2 * POLICY.attempts_max + 1)
    found, _, pauses = played(flow, [shown("queued", 0), *outage, shown("success", 1)])
    assert found.is_final
    assert len(pauses) == len(outage)


def test_waiting_does_not_outlast_a_refusal_or_its_time() -> None:
    flow = operations.wait("t00-1", 60.0, POLICY)
    with pytest.raises(ApiError, match="it is not-found"):
        played(flow, [shown("queued", 0), problem(404, "not-found")])
    with pytest.raises(ApiError, match="refused"):
        played(operations.wait("t00-1", 60.0, POLICY), [NoReply("refused")] * POLICY.attempts_max)


def test_what_happens_from_now_on_begins_once() -> None:
    """A long poll that breaks after half a minute must not begin at another now."""
    answer = Answered(200, {}, b'{"events": [], "nextCursor": "c1", "hasMore": false}')
    found, [sent], _ = played(operations.events("latest", (), 30.0, POLICY), [answer])
    assert (sent.params["wait"], sent.extra_s, found.next_cursor) == (0.0, 0.0, "c1")
    _, [sent], _ = played(operations.events("c1", (), 30.0, POLICY), [answer])
    assert (sent.params["wait"], sent.extra_s) == (30.0, 30.0)


@pytest.mark.parametrize("answer", [b"", b"{}", b'{"status": "ok"}', b'{"txId": "t", "status": 1}'])
def test_an_answer_of_another_server_is_no_stack_trace(answer: bytes) -> None:
    with pytest.raises(ApiError, match="is the URL right"):
        played(submit(), [Answered(200, {}, answer)])


def test_a_redirect_is_told_and_not_followed() -> None:
    with pytest.raises(ApiError, match="points to https://x/v1") as found:
        played(submit(), [Answered(301, {"location": "https://x/v1"}, b"")])
    assert (found.value.status, found.value.retryable) == (301, False)


@pytest.mark.parametrize("key", ["", "a b", "a\nb", "\u00e4", "x" * 256])
def test_an_idempotency_key_that_cannot_be_sent_is_refused_at_once(key: str) -> None:
    with pytest.raises(ApiError, match="An idempotency key is") as found:
        played(operations.submit({"pipeline": "p", "input": {}}, key, POLICY), [])
    assert found.value.kind == "idempotency-key-invalid"


@pytest.mark.parametrize("client", [ApiClient, AsyncApiClient])
def test_a_url_or_key_that_is_none_is_told_before_anything_is_sent(client: type[Any]) -> None:
    for url in ("localhost:8000", "", "ftp://host", "http://", "http://a:x"):
        with pytest.raises(ApiError, match="is no URL") as found:
            client(url, "datp_key")
        assert not found.value.retryable
    for key in ("", " ", "datp_a\ndatp_b", "datp_\u00e4"):
        with pytest.raises(ApiError, match="API key is empty or has") as found:
            client("http://host", key)
        assert "datp_a" not in str(found.value)
    made = client(" http://host/datp/ ", "datp_key\n")
    assert made._http.headers["authorization"] == "Bearer datp_key"
    assert str(made._http.base_url) == "http://host/datp/"
