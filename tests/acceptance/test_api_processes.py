"""The API as operators run it: `datp api` processes, a real worker, a client that only has HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from statistics import quantiles
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from datp_tasks import Pipeline
from datp_tasks.local.ports import pick_free_port
from datp_tasks.local.processes import ManagedProcess, Surroundings
from datp_tasks.model.actor import Actor, Role
from datp_tasks.record.api_keys import ApiKeys
from tests.support.eventually import eventually
from tests.support.house import ROOT, House, log_of
from tests.support.house_fixtures import NewHouse

pytestmark = pytest.mark.acceptance

PEPPER = "a pepper for tests, long enough to be one"
PROGRAM = "from datp_tasks.cli import main; main()"
CROWD = 300


def long_polls(client: httpx.Client) -> float:
    families = text_string_to_metric_families(client.get("/metrics").text)
    [found] = [each for each in families if each.name == "datp_api_long_polls"]
    return float(found.samples[0].value)


class Served:
    """A house with API processes in front of it."""

    def __init__(self, house: House) -> None:
        self.house = house
        connections = house.connections
        self.keys = ApiKeys(connections.engine, connections.clock, PEPPER)
        self.key = self.keys.create("acme", actor=Actor(name="test")).text

    def start(self, *options: str) -> tuple[ManagedProcess, str]:
        port = pick_free_port()
        process = ManagedProcess(
            f"api-{port}",
            (sys.executable, "-c", PROGRAM, "api", "--port", str(port), *options),
            log_path=self.house.folder / f"api-{port}.log",
            surroundings=Surroundings(self.house._environment({"key_pepper": PEPPER}), ROOT),
        )
        process.start()
        self.house.processes.append(process)
        url = f"http://127.0.0.1:{port}"
        eventually(lambda: self._lives(process, url), within_s=60, what="the start of the API")
        return process, url

    def _lives(self, process: ManagedProcess, url: str) -> bool:
        assert process.is_running(), log_of(process)
        try:
            return httpx.get(f"{url}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def wait_for_polls(self, url: str, count: int) -> None:
        """Until so many long polls wait in this process."""
        key = self.keys.create("prometheus", Role.VIEWER, actor=Actor(name="test")).text
        headers = {"Authorization": f"Bearer {key}"}
        with httpx.Client(base_url=url, headers=headers, timeout=10) as client:
            eventually(lambda: long_polls(client) >= count, what="long polls")

    def client(self, url: str, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=url, headers=self.headers, timeout=30, **options)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    def many(self, url: str) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        return httpx.AsyncClient(base_url=url, headers=self.headers, timeout=60, limits=limits)


@pytest.fixture(scope="module")
def served(new_house: NewHouse) -> Iterator[Served]:
    house = new_house(key_pepper=PEPPER)
    house.use(
        Pipeline("quick").step("acc/mark", params={"word": "done"}),
        Pipeline("held").step("util/wait", params={"switch": "go"}),
    )
    worker = house.worker(concurrency=1)
    house.wait_ready(worker)
    yield Served(house)
    house.kill_processes()


@pytest.fixture(scope="module")
def url(served: Served) -> str:
    return served.start()[1]


def test_a_client_submits_waits_and_gets_its_answer(served: Served, url: str) -> None:
    with served.client(url) as client:
        made = client.post("/v1/transactions", json={"pipeline": "quick", "input": {"n": 1}})
        assert made.status_code == 202
        found = client.get(made.headers["location"], params={"wait": 20}).json()
        assert (found["status"], found["output"]) == ("success", {"n": 1, "words": ["done"]})
        listed = client.get(f"{made.headers['location']}/events").json()["events"]
        assert [each["kind"] for each in listed] == ["final"]


def test_one_external_id_sent_from_everywhere_at_once_is_one_transaction(
    served: Served, url: str
) -> None:
    _, second = served.start()

    async def storm() -> list[httpx.Response]:
        async with served.many(url) as one, served.many(second) as other:
            wanted = {"pipeline": "quick", "input": {"n": 7}, "externalId": "storm"}
            posts = [
                (one, other)[number % 2].post("/v1/transactions", json=wanted)
                for number in range(200)
            ]
            return list(await asyncio.gather(*posts))

    answers = asyncio.run(storm())
    assert Counter(each.status_code for each in answers) == {202: 1, 200: 199}
    [tx_id] = {each.json()["txId"] for each in answers}
    rows = served.house.sql("SELECT tx_id FROM tx_summary WHERE external_id = 'storm'")
    assert [row.tx_id for row in rows] == [tx_id]
    served.house.client.wait(tx_id, timeout_s=20)
    assert len(served.house.notes_about("mark", tx_id)) == 1


def test_several_workers_serve_one_port(served: Served) -> None:
    process, url = served.start("--workers", "2")
    with served.client(url) as client:
        made = client.post("/v1/transactions", json={"pipeline": "quick", "input": {}})
        answer = client.get(made.headers["location"], params={"wait": 20})
        assert answer.json()["status"] == "success"
    process.stop()
    assert process.exit_code == 0


def test_a_crowd_of_long_polls_is_answered_within_a_second_of_the_end(
    served: Served, url: str
) -> None:
    with served.client(url) as client:
        items = [{"pipeline": "held", "input": {}} for _ in range(CROWD)]
        made = client.post("/v1/transactions/bulk", json={"transactions": items}).json()
    tx_ids = [each["txId"] for each in made["results"]]
    live = served.house.connections.live
    eventually(lambda: live.sizes()["sleepingZ"] >= CROWD, what="sleep")
    answered_s: dict[str, float] = {}

    async def wait_for_all() -> None:
        async with served.many(url) as many:

            async def one(tx_id: str) -> None:
                answer = await many.get(f"/v1/transactions/{tx_id}", params={"wait": 50})
                answered_s[tx_id] = time.time()
                assert answer.json()["status"] == "success"

            await asyncio.gather(*(one(tx_id) for tx_id in tx_ids))

    def end_all() -> None:
        served.wait_for_polls(url, CROWD)
        for tx_id in tx_ids:
            served.house.client.set_switch(tx_id, "go", True)

    ending = threading.Thread(target=end_all)
    ending.start()
    asyncio.run(wait_for_all())
    ending.join()
    rows = served.house.connections.record.summaries(tx_ids)
    late_s = [
        answered_s[row.tx_id] - row.completed_at.timestamp() for row in rows if row.completed_at
    ]
    assert len(late_s) == CROWD
    assert quantiles(late_s, n=100)[98] < 1.0


def test_no_answer_is_lost_while_publishes_are(served: Served, url: str) -> None:
    """The subscription is broken again and again while transactions end."""
    with served.client(url) as client:
        items = [{"pipeline": "held", "input": {}} for _ in range(20)]
        made = client.post("/v1/transactions/bulk", json={"transactions": items}).json()
    tx_ids = [each["txId"] for each in made["results"]]
    stop = threading.Event()

    def break_subscriptions() -> None:
        while not stop.wait(0.05):
            served.house.redis.client_kill_filter(_type="pubsub")

    def end_slowly() -> None:
        for tx_id in tx_ids:
            stop.wait(0.1)
            served.house.client.set_switch(tx_id, "go", True)

    async def wait_for_all() -> list[str]:
        async with served.many(url) as many:
            polls = [many.get(f"/v1/transactions/{tx}", params={"wait": 30}) for tx in tx_ids]
            return [each.json()["status"] for each in await asyncio.gather(*polls)]

    threads = [threading.Thread(target=each) for each in (break_subscriptions, end_slowly)]
    for thread in threads:
        thread.start()
    began_s = time.monotonic()
    statuses = asyncio.run(wait_for_all())
    took_s = time.monotonic() - began_s
    stop.set()
    for thread in threads:
        thread.join()
    assert statuses == ["success"] * 20
    assert took_s < 15


def test_a_polite_end_answers_all_that_wait_and_ends_streams(served: Served) -> None:
    process, url = served.start()
    with served.client(url) as client:
        made = client.post("/v1/transactions", json={"pipeline": "held", "input": {}})
    path = made.headers["location"]
    began: list[str] = []

    async def follow(many: httpx.AsyncClient) -> list[str]:
        """The lines of a stream to its orderly end; a connection that breaks is an error."""
        lines = []
        accept = {"Accept": "text/event-stream"}
        async with many.stream("GET", "/v1/events", headers=accept, timeout=60) as stream:
            async for line in stream.aiter_lines():
                lines.append(line)
                if line.startswith("id: ") and len(lines) < 6:
                    began.append(line)
        return lines

    async def wait_while_it_ends() -> tuple[list[httpx.Response], list[list[str]]]:
        async with served.many(url) as many:
            polls = [asyncio.create_task(many.get(path, params={"wait": 50})) for _ in range(20)]
            streams = [asyncio.create_task(follow(many)) for _ in range(5)]
            await asyncio.to_thread(served.wait_for_polls, url, 20)
            await asyncio.to_thread(eventually, lambda: len(began) == 5)
            process.send_signal(signal.SIGTERM)
            return list(await asyncio.gather(*polls)), list(await asyncio.gather(*streams))

    began_s = time.monotonic()
    answers, streamed = asyncio.run(wait_while_it_ends())
    # A place to come back to, and no problem.
    assert all(any(line.startswith("id: ") for line in lines) for lines in streamed)
    assert not any("event: problem" in lines for lines in streamed)
    assert Counter(each.status_code for each in answers) == {200: 20}
    assert {each.json()["status"] for each in answers} == {"sleeping"}
    eventually(lambda: not process.is_running(), what="the end")
    assert time.monotonic() - began_s < 10
    assert "Traceback" not in log_of(process)


def test_the_examples_of_the_page_work(served: Served, url: str) -> None:
    section = (ROOT / "docs/api.md").read_text().split("## Try it")[1]
    script = section.split("```sh\n")[1].split("```")[0]
    lines = [line for line in script.splitlines() if not line.startswith("eval ")]
    assert len(lines) == len(script.splitlines()) - 1
    served.house.use(Pipeline("transfer").step("acc/mark", params={"word": "paid"}))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", "\n".join(lines)],
        env={**os.environ, "DATP_URL": url, "DATP_KEY": served.key},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    accepted, waited, events, switched, cancelled, keyed, found, schema, bulk = answers
    assert accepted["status"] == "queued"
    assert (waited["txId"], waited["status"]) == (accepted["txId"], "success")
    assert [each["kind"] for each in events["events"]] == ["final"]
    assert (switched["status"], cancelled["status"]) == (403, 409)
    assert keyed["status"] == "queued" and keyed["txId"] != accepted["txId"]
    assert found["hasMore"] is False and {"inputSchema", "name"} & schema.keys()
    assert bulk["accepted"] == 1
