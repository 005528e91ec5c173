"""Headers of /v1: ETags, preconditions, traces, rates."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from datp_tasks.api import transactions
from datp_tasks.errors import TransactionError, TransactionMoved
from datp_tasks.model.actor import Actor
from datp_tasks.operator.erase import Chosen
from datp_tasks.record.signals import SeenRow, Signal, Signals
from datp_tasks.transactions.send_signals import SignalSender
from tests.support.api_house import ApiHouse

WANTED = {"pipeline": "nap", "input": {}}
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def asleep(client: httpx.Client) -> str:
    tx_id: str = client.post("/v1/transactions", json=WANTED).json()["txId"]
    return tx_id


def test_what_has_not_changed_is_not_sent_again(acme: httpx.Client) -> None:
    url = f"/v1/transactions/{asleep(acme)}"
    first = acme.get(url)
    etag = first.headers["ETag"]
    assert etag.startswith(f'"{first.json()["sequence"]}-sleeping-')
    for given in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        same = acme.get(url, headers={"If-None-Match": given})
        assert (same.status_code, same.content, same.headers["ETag"]) == (304, b"", etag)
    acme.put(f"{url}/switches/go", json={"value": 1})
    after = acme.get(url, headers={"If-None-Match": etag})
    assert (after.status_code, after.json()["status"]) == (200, "success")
    assert after.headers["ETag"] != etag


def test_what_was_erased_is_not_what_a_client_has_seen(house: ApiHouse) -> None:
    owner = house.new_owner("erased")
    client = house.client(owner)
    wanted = {"pipeline": "echo", "input": {"iban": "DE4711"}}
    url = f"/v1/transactions/{client.post('/v1/transactions', json=wanted).json()['txId']}"
    etag = client.get(url).headers["ETag"]
    house.kit.advance(seconds=61)
    house.kit.run_job("archiver")
    eraser, chosen = house.kit.operator.eraser, Chosen(owner=owner)
    permit = eraser.permit(chosen, reason="left", actor=Actor(name="ops"))
    [done] = eraser.erase([tx for page in eraser.search.choose(chosen) for tx in page], permit)
    assert done.ok, done.what
    after = client.get(url, headers={"If-None-Match": etag})
    assert (after.status_code, after.json()["input"]) == (200, {})
    now = after.headers["ETag"]
    assert client.get(url, headers={"If-None-Match": now}).status_code == 304


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "cancel", {}),
        ("POST", "wake", None),
        ("PUT", "switches/go", {"value": 1}),
    ],
)
def test_an_action_on_what_has_changed_is_refused(
    acme: httpx.Client, method: str, path: str, body: object
) -> None:
    url = f"/v1/transactions/{asleep(acme)}"
    etag = acme.get(url).headers["ETag"]
    old = {"If-Match": '"0-queued-0"'}
    refused = acme.request(method, f"{url}/{path}", json=body, headers=old)
    assert refused.status_code == 412
    assert refused.json()["type"] == "urn:datp:problem:precondition-failed"
    assert refused.headers["ETag"] == etag
    assert acme.get(url).json()["status"] == "sleeping"
    done = acme.request(method, f"{url}/{path}", json=body, headers={"If-Match": etag})
    assert done.status_code in (200, 202)


ACTIONS = {"cancel": {}, "wake": None, "switches/go": {"value": 1}}


@pytest.mark.parametrize("path", ACTIONS)
@pytest.mark.parametrize("point", ["checked", "seen"])
def test_what_moves_between_the_check_and_the_action_is_not_acted_on(
    house: ApiHouse,
    acme: httpx.Client,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    point: str,
) -> None:
    """The transaction wakes, reports and sleeps again: the same status, another ETag."""
    tx_id = asleep(acme)
    url = f"/v1/transactions/{tx_id}"
    etag = acme.get(url).headers["ETag"]
    moved: list[str] = []
    send = SignalSender._sent

    def move() -> None:
        if not moved:
            moved.append(tx_id)
            house.kit.client.wake(tx_id)

    def sent(self: SignalSender, *given: Any) -> Any:
        """After its condition was looked at, and in SQL, but before the script."""
        move()
        return send(self, *given)

    if point == "seen":
        monkeypatch.setattr(SignalSender, "_sent", sent)
    else:
        for name in ("check_cancel", "check_wake", "check_switch"):
            monkeypatch.setattr(transactions, name, lambda *_: move())
    method = "PUT" if path.startswith("switches") else "POST"
    body = ACTIONS[path]
    answer = acme.request(method, f"{url}/{path}", json=body, headers={"If-Match": etag})
    now = acme.get(url)
    assert answer.status_code == 412, answer.text
    assert answer.headers["ETag"] == now.headers["ETag"] != etag
    assert now.json()["status"] == "sleeping" and now.json()["sequence"] == 2
    with house.kit.connections.engine.connect() as sql:
        query = "SELECT count(*) FROM tx_signal WHERE tx_id = %(tx_id)s"
        assert sql.exec_driver_sql(query, {"tx_id": tx_id}).scalar_one() == 0
    again = acme.request(
        method, f"{url}/{path}", json=body, headers={"If-Match": now.headers["ETag"]}
    )
    assert again.status_code in (200, 202)


@pytest.mark.parametrize("path", ACTIONS)
def test_what_moved_and_moved_back_is_told_as_moved(
    acme: httpx.Client, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """It was another one when the action looked at it, and is the same again for the answer."""
    tx_id = asleep(acme)
    url = f"/v1/transactions/{tx_id}"
    etag = acme.get(url).headers["ETag"]

    def moved(_sender: SignalSender, _tx_id: str, _only_if: Any) -> Any:
        raise TransactionMoved(f"{tx_id} is not as it was seen any more: running")

    monkeypatch.setattr(SignalSender, "_seen", moved)
    method = "PUT" if path.startswith("switches") else "POST"
    headers = {"If-Match": etag}
    answer = acme.request(method, f"{url}/{path}", json=ACTIONS[path], headers=headers)
    assert answer.status_code == 412
    assert answer.headers["ETag"] == etag


def test_a_signal_is_kept_only_for_the_row_that_was_seen(
    house: ApiHouse, acme: httpx.Client
) -> None:
    """A progress report of a running step changes no fence in Redis: the commit compares it."""
    tx_id = asleep(acme)
    engine = house.kit.connections.engine
    signals = Signals(engine, house.kit.connections.clock)
    signal = Signal(tx_id, "go", "1")
    row = house.kit.client.status(tx_id)
    for sequence, fence in ((row.sequence + 1, row.fence), (row.sequence, row.fence + 1)):
        with pytest.raises(TransactionMoved):
            signals.add(signal, seen=SeenRow(sequence, fence))
    seen = SeenRow(row.sequence, row.fence)
    assert signals.of([tx_id]) == []
    with engine.begin() as step:
        step.exec_driver_sql("SELECT 1 FROM tx_summary WHERE tx_id = %s FOR UPDATE", (tx_id,))
        with pytest.raises(TransactionError, match="try again"):
            signals.add(signal, seen=seen)
    signals.add(signal, seen=seen)
    assert signals.of([tx_id]) == [signal]


@pytest.mark.parametrize("path", ACTIONS)
def test_what_has_ended_and_left_redis_is_not_to_be_tried_again(
    house: ApiHouse, acme: httpx.Client, path: str
) -> None:
    tx_id = asleep(acme)
    house.kit.client.cancel(tx_id, "over")
    live = house.kit.connections.live
    live.redis.delete(live.keys.state(tx_id))
    assert live.named_many([tx_id], ("status",)) == [{}]
    url = f"/v1/transactions/{tx_id}"
    seen = acme.get(url)
    assert seen.json()["completedAt"]
    method = "PUT" if path.startswith("switches") else "POST"
    condition = {"If-Match": seen.headers["ETag"]}
    answer = acme.request(method, f"{url}/{path}", json=ACTIONS[path], headers=condition)
    assert (answer.status_code, answer.json()["retryable"]) == (409, False), answer.text
    assert "has ended" in answer.json()["detail"]


def test_the_trace_of_a_request_is_answered(acme: httpx.Client) -> None:
    answer = acme.get("/v1/transactions", headers={"traceparent": TRACE})
    assert answer.headers["traceparent"] == TRACE
    assert "traceparent" not in acme.get("/v1/transactions").headers


@pytest.mark.parametrize(
    "given",
    [
        f"ff{TRACE}",
        f"ff{TRACE[2:]}",
        f"{TRACE}-more",
        TRACE.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32),
        TRACE.replace("b7ad6b7169203331", "0" * 16),
        TRACE.upper(),
    ],
)
def test_an_invalid_trace_counts_as_none(acme: httpx.Client, given: str) -> None:
    strange = acme.get("/v1/transactions", headers={"traceparent": given})
    assert (strange.status_code, "traceparent" in strange.headers) == (200, False)


def test_a_trace_of_a_later_version_is_read_as_far_as_we_know_it(acme: httpx.Client) -> None:
    later = acme.get("/v1/transactions", headers={"traceparent": f"01{TRACE[2:]}-more"})
    assert later.headers["traceparent"] == TRACE


def test_every_answer_says_how_much_an_owner_may_ask_for(house: ApiHouse) -> None:
    owner = house.new_owner("rated")
    house.limit(owner, requests_per_s=2, burst_max=20)
    client = house.client(owner)
    answers = [client.get("/v1/transactions"), client.post("/v1/transactions", json=WANTED)]
    assert {each.headers["RateLimit-Policy"] for each in answers} == {'"requests";q=20;w=10'}
    left = [int(each.headers["RateLimit"].split("r=")[1].split(";")[0]) for each in answers]
    assert 17 <= left[1] < left[0] <= 19
    assert "RateLimit" not in house.client().get("/v1/transactions").headers


def test_work_that_goes_on_is_202(acme: httpx.Client) -> None:
    tx_id = asleep(acme)
    answer = acme.post(f"/v1/transactions/{tx_id}/cancel")
    status = answer.json()["status"]
    assert answer.status_code == (200 if status == "cancelled" else 202)
