"""The client over HTTP against the real API: what a program does that has a URL and a key."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from datp_tasks import Pipeline
from datp_tasks.errors import WaitTimeout
from datp_tasks.http import ApiClient, ApiError, AsyncApiClient, CallRetry
from datp_tasks.http.operations import ListFilters
from datp_tasks.webhooks.signing import signed_headers
from tests.docs.docs_blocks import blocks
from tests.support.api_house import ApiHouse

QUICK = CallRetry(attempts_max=3, first_s=0.01)


@pytest.fixture
def client(house: ApiHouse) -> Iterator[ApiClient]:
    key = house.new_key(house.new_owner("program"))
    with ApiClient(house.url, key, retry=QUICK) as made:
        yield made


class Breaking(httpx.HTTPTransport):
    """A network that loses answers: the server has done what was asked, and the client waits."""

    def __init__(self, losses: int) -> None:
        super().__init__()
        self.losses = losses
        self.requests = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        response = super().handle_request(request)
        if self.losses:
            self.losses -= 1
            response.read()
            raise httpx.ReadError("the answer was lost")
        return response


def test_submit_and_wait(client: ApiClient) -> None:
    receipt = client.submit("echo", {"amount": 5}, external_id="order-1", metadata={"by": "test"})
    found = client.wait(receipt.tx_id)
    assert str(found.status) == "success" and found.output == {"echo": {"amount": 5}}
    assert found.external_id == "order-1" and found.metadata == {"by": "test"}
    again = client.submit("echo", {"amount": 5}, external_id="order-1", metadata={"by": "test"})
    assert (again.tx_id, again.repeated) == (receipt.tx_id, True)


def test_an_answer_that_was_lost_makes_no_second_transaction(house: ApiHouse) -> None:
    owner = house.new_owner("lossy")
    network = Breaking(losses=1)
    with ApiClient(house.url, house.new_key(owner), retry=QUICK, transport=network) as client:
        receipt = client.submit("echo", {"n": 1})
        assert network.requests == 2
        assert [each.tx_id for each in client.transactions()] == [receipt.tx_id]


def test_a_network_that_stays_broken_is_one_error(house: ApiHouse) -> None:
    network = Breaking(losses=99)
    with (
        ApiClient(house.url, house.new_key("gone"), retry=QUICK, transport=network) as client,
        pytest.raises(ApiError) as found,
    ):
        client.get("t00-" + "0" * 32)
    assert found.value.status == 0 and network.requests == QUICK.attempts_max


def test_signals(client: ApiClient) -> None:
    sleeper = client.submit("nap", {}).tx_id
    assert client.set_switch(sleeper, "go", "now") is True
    assert client.wait(sleeper).output == {"went": "now"}
    other = client.submit("nap", {}).tx_id
    assert str(client.cancel(other, "not wanted").status) == "cancelled"
    assert client.wake(client.submit("nap", {}).tx_id) is True


def test_waiting_has_an_end(client: ApiClient) -> None:
    with pytest.raises(WaitTimeout, match="sleeping"):
        client.wait(client.submit("nap", {}).tx_id, timeout_s=0.1)


def test_a_list_goes_on_over_its_pages(client: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datp_tasks.http.operations.PAGE_MAX", 2)
    made = {client.submit("echo", {"n": n}).tx_id for n in range(5)}
    napping = client.submit("nap", {}).tx_id
    assert {each.tx_id for each in client.transactions(pipeline="echo")} == made
    open_ones = client.transactions(status=["queued", "running", "sleeping"])
    assert {each.tx_id for each in open_ones} == {napping}
    first, last = (
        [each.tx_id for each in client.transactions(pipeline=["echo", "nap"], order=order)]
        for order in ("createdAt", "-createdAt")
    )
    assert first == last[::-1] and set(first) == {*made, napping}
    named = client.submit("echo", {"n": 9}, external_id="order-77", metadata={"shop": "12"})
    chosen: list[ListFilters] = [
        {"text": "der-7"},
        {"metadata": {"shop": "12"}},
        {"completed_from": client.wait(named.tx_id).completed_at or "", "pipeline": "echo"},
    ]
    for filters in chosen:
        assert named.tx_id in {each.tx_id for each in client.transactions(**filters)}, filters
    before = client.transactions(completed_to="2020-01-01T00:00:00Z")
    assert list(before) == []
    assert list(client.transactions(metadata={"shop": "13"})) == []


def test_a_list_is_narrowed_and_sorted_by_search_attributes(
    house: ApiHouse, client: ApiClient
) -> None:
    search = {"amount": {"from": "input.amount", "type": "decimal"}}
    house.kit.use(Pipeline("priced", search=search).step("t/echo").build())
    made = [client.submit("priced", {"amount": n}).tx_id for n in (5, 50, 500)]
    found = client.transactions(attributes={"amount[gte]": "50"}, order="-amount")
    assert [each.tx_id for each in found] == [made[2], made[1]]


def test_a_bulk_tells_what_became_of_each(client: ApiClient) -> None:
    wanted = [
        {"pipeline": "echo", "input": {"n": 1}, "externalId": "b-1"},
        {"pipeline": "no such", "input": {}, "externalId": "b-2"},
    ]
    good, bad = client.submit_bulk(wanted)
    assert good.receipt is not None and good.problem is None
    assert bad.receipt is None and bad.problem is not None and bad.index == 1


def test_a_bulk_transfer_is_handed_in_waited_for_and_cancelled(
    house: ApiHouse, client: ApiClient
) -> None:
    house.kit.use(Pipeline("bulk").step("util/bulk-transfer").build())
    echo, nap, none = ({"pipeline": each, "input": {"n": 1}} for each in ("echo", "nap", "none"))
    made = client.submit_bulk_transfer(
        "bulk", [echo, nap, none], {"by": "ann"}, external_id="bulk-1", expires_in_s=600
    )
    again = client.submit_bulk_transfer(
        "bulk", [echo, nap, none], {"by": "ann"}, external_id="bulk-1", expires_in_s=600
    )
    assert (again.bulk_id, made.repeated, again.repeated) == (made.bulk_id, False, True)
    found = client.get_bulk_transfer(made.bulk_id)
    assert (found.state, found.external_id, found.is_final) == ("PROCESSING", "bulk-1", False)
    assert [each.status for each in found.transfers] == ["success", "sleeping", "refused"]
    assert "none" in (found.transfers[2].note or "") and found.expires_at is not None
    with pytest.raises(WaitTimeout):
        client.wait_bulk_transfer(made.bulk_id, timeout_s=0.05)
    cancelled = client.cancel_bulk_transfer(made.bulk_id, "not wanted")
    assert [each.cancel for each in cancelled.transfers] == ["ended", "cancelled", "none"]
    house.kit.advance(seconds=60)
    ended = client.wait_bulk_transfer(made.bulk_id)
    assert (ended.state, ended.is_final) == ("COMPLETED", True)
    assert ended.counts == {"cancelled": 1, "refused": 1, "success": 1}
    with pytest.raises(ApiError, match="no such"):
        client.get_bulk_transfer("t00-" + "0" * 32)


def test_events_go_on_where_a_reader_stopped(
    client: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datp_tasks.http.operations.EVENTS_MAX", 2)
    made = [client.submit("echo", {"n": n}).tx_id for n in range(3)]
    ended = list(client.events(types=["transaction.completed"], follow=False))
    assert sorted(each.tx_id for each in ended) == sorted(made)
    assert ended[0].data["output"]["echo"]["n"] in (0, 1, 2) and ended[0].at is not None
    later = client.submit("echo", {"n": 3}).tx_id
    following = client.events(after=ended[-1].cursor)
    seen = [next(following) for _ in range(2)]
    assert {(each.tx_id, each.type) for each in seen} == {
        (later, "transaction.accepted"),
        (later, "transaction.completed"),
    }
    assert not {each.id for each in ended} & {each.id for each in seen}


def test_a_refusal_says_what_is_wrong(client: ApiClient) -> None:
    with pytest.raises(ApiError) as found:
        client.submit("no such pipeline", {})
    error = found.value
    assert (error.status, error.kind, error.retryable) == (422, "pipeline-unknown", False)
    assert error.request_id
    with pytest.raises(ApiError) as found:
        client.submit("echo", {"amount": 1}, expires_in_s="soon")  # type: ignore[arg-type]
    assert found.value.mistakes[0]["pointer"] == "#/body/expiresInSeconds"


def test_a_wrong_key_is_refused_at_once(house: ApiHouse) -> None:
    with (
        ApiClient(house.url, "datp_0_wrong", retry=QUICK) as client,
        pytest.raises(ApiError) as found,
    ):
        client.request("GET", "/v1/transactions")
    assert found.value.status == 401


def test_the_client_of_an_event_loop_does_the_same(house: ApiHouse) -> None:
    house.kit.use(Pipeline("bulk").step("util/bulk-transfer").build())
    key = house.new_key(house.new_owner("loop"))

    async def use() -> list[Any]:
        async with AsyncApiClient(house.url, key, retry=QUICK) as client:
            receipts = await asyncio.gather(*(client.submit("echo", {"n": n}) for n in range(3)))
            ended = await asyncio.gather(*(client.wait(each.tx_id) for each in receipts))
            sleeper = (await client.submit("nap", {})).tx_id
            assert await client.set_switch(sleeper, "go", 1)
            other = (await client.submit("nap", {})).tx_id
            assert await client.wake(other)
            assert str((await client.cancel(other)).status) == "cancelled"
            answers = await client.submit_bulk([{"pipeline": "echo", "input": {}}])
            assert answers[0].receipt is not None
            bulk = {"pipeline": "nap", "input": {}}
            made = await client.submit_bulk_transfer("bulk", [bulk], expires_in_s=600)
            assert (await client.get_bulk_transfer(made.bulk_id)).counts == {"sleeping": 1}
            stopped = await client.cancel_bulk_transfer(made.bulk_id)
            assert [each.cancel for each in stopped.transfers] == ["cancelled"]
            house.kit.advance(seconds=60)
            assert (await client.wait_bulk_transfer(made.bulk_id)).state == "COMPLETED"
            listed = [each.tx_id async for each in client.transactions(pipeline="echo")]
            assert len(listed) == 4
            assert (await client.get(sleeper)).is_final
            types = [each.type async for each in client.events(follow=False)]
            assert types.count("transaction.completed") == 8
            assert await client.request("GET", "/v1/transactions", params={"limit": 1})
            return [each.output for each in ended]

    assert asyncio.run(use()) == [{"echo": {"n": n}} for n in range(3)]


# The page for newcomers.


def block_of(language: str, start: str) -> str:
    [found] = [
        each.text
        for each in blocks()
        if (each.page, each.language) == ("docs/http-client.md", language)
        and each.text.lstrip().startswith(start)
    ]
    return found


@pytest.fixture
def newcomer(house: ApiHouse, tmp_path: Path) -> Callable[..., str]:
    """One who has a URL and a key, and types what the page says."""
    house.kit.use(Pipeline("transfer").step("t/echo").build())
    key = house.new_key(house.new_owner("newcomer"))

    def typed(*argv: str) -> str:
        done = subprocess.run(
            argv,
            env={"PATH": os.environ["PATH"], "DATP_URL": house.url, "DATP_KEY": key},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return typed


def test_the_python_of_the_page_works(newcomer: Callable[..., str]) -> None:
    lines = newcomer(sys.executable, "-c", block_of("python", "import os")).splitlines()
    assert lines[0].startswith("success {'echo'") and lines[1].endswith(" success")
    assert lines[2] == "409 external-id-conflict False"


def test_the_commands_of_the_page_work(newcomer: Callable[..., str]) -> None:
    shown = newcomer("bash", "-euo", "pipefail", "-c", block_of("sh", "api()"))
    answers = [json.loads(line) for line in shown.splitlines() if line.startswith("{")]
    accepted, waited, events, endpoint, tested = answers
    assert (waited["txId"], waited["status"]) == (accepted["txId"], "success")
    assert events["events"] and "retry: 1000" in shown
    # The stream goes on after the first event.
    assert "event: transaction.completed" in shown and "event: transaction.accepted" not in shown
    assert endpoint["secret"].startswith("whsec_") and tested["delivery"].startswith("msg_")


def test_the_receiver_of_the_page_tells_ours_from_others(capsys: Any) -> None:
    names: dict[str, Any] = {}
    exec(block_of("python", "from datp_tasks.http import WebhookForged"), names)
    secret = "whsec_" + base64.b64encode(b"thirty-two bytes that are secret").decode()
    body = json.dumps({"type": "transaction.completed", "data": {"txId": "t1"}}).encode()
    headers = signed_headers("msg_1", int(time.time()), body, [secret])
    assert names["on_request"](headers, body, secret) == 204
    assert capsys.readouterr().out == "msg_1 transaction.completed {'txId': 't1'}\n"
    assert names["on_request"](headers, body + b" ", secret) == 401


def test_the_shell_of_the_page_tells_ours_from_others(
    newcomer: Callable[..., str], tmp_path: Path
) -> None:
    secret = "whsec_" + base64.b64encode(b"thirty-two bytes that are secret").decode()
    body = b'{"type": "transaction.completed"}'
    (tmp_path / "body").write_bytes(body)
    sent = signed_headers("msg_1", int(time.time()), body, ["whsec_b3RoZXI=", secret])
    given = [sent[f"webhook-{name}"] for name in ("id", "timestamp", "signature")]
    script = block_of("sh", "verify()") + '\nverify "$@"\n'
    typed = ("bash", "-euc", script, "bash")
    assert newcomer(*typed, *given, "body", secret) == "genuine\n"
    assert newcomer(*typed, *given, "body", "whsec_b3RoZXI=") == "genuine\n"
    for wrong in (
        [*given, "body", "whsec_YW5vdGhlcg=="],
        ["msg_2", *given[1:], "body", secret],
        [given[0], "1", given[2], "body", secret],
    ):
        forged = subprocess.run([*typed, *wrong], cwd=tmp_path, capture_output=True, text=True)
        assert (forged.returncode, forged.stdout) == (1, "forged\n")
