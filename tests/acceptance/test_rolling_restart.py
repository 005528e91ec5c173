"""A rolling restart under load: workers and the API are replaced one by one, and nobody notices."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import httpx
import pytest

from datp_tasks import Pipeline
from datp_tasks.local.ports import pick_free_port
from datp_tasks.local.processes import ManagedProcess, Surroundings
from datp_tasks.model.actor import Actor
from datp_tasks.record.api_keys import ApiKeys
from tests.support.eventually import eventually
from tests.support.house import ROOT, House, log_of
from tests.support.house_fixtures import NewHouse

#: Unaided: below the 40 s after which compose kills a worker that was told to end.
GRACE_S = 30.0

log = logging.getLogger("tests.acceptance")

pytestmark = pytest.mark.acceptance

PEPPER = "a pepper for tests, long enough to be one"
PROGRAM = "from datp_tasks.cli import main; main()"
CLIENTS = 4
#: Far below the time after which a lost bell is rung again, so nothing is found by luck.
LATE_S = 8.0
RING_AGAIN_MS = 30_000


@dataclass
class Load:
    """Clients that submit, wait and submit again, at the address that the balancer gives them."""

    url: str
    key: str
    took_s: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Load:
        self._threads = [threading.Thread(target=self._client) for _ in range(CLIENTS)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for thread in self._threads:
            thread.join()

    def goes_on(self) -> None:
        """Until some more have come through."""
        seen = len(self.took_s)
        eventually(lambda: len(self.took_s) >= seen + 2 * CLIENTS, within_s=30, what="load")

    def _client(self) -> None:
        headers = {"Authorization": f"Bearer {self.key}"}
        with httpx.Client(headers=headers, timeout=60) as client:
            while not self.over.is_set():
                try:
                    self._one(client)
                except (httpx.HTTPError, KeyError) as error:
                    self.wrong.append(repr(error))

    def _one(self, client: httpx.Client) -> None:
        began_s = time.monotonic()
        wanted = {"pipeline": "three", "input": {}}
        made = client.post(f"{self.url}/v1/transactions", json=wanted)
        path = made.headers["location"]
        # A server that ends answers at once what it knows; whoever waits asks again.
        found = {"status": "queued"}
        while found["status"] in ("queued", "running", "sleeping"):
            answer = client.get(f"{self.url}{path}", params={"wait": 10})
            found = answer.json()
        if found["status"] != "success":
            self.wrong.append(str(found))
        self.took_s[found["txId"]] = time.monotonic() - began_s


def start_api(house: House) -> tuple[ManagedProcess, str]:
    port = pick_free_port()
    process = ManagedProcess(
        f"api-{port}",
        (sys.executable, "-c", PROGRAM, "api", "--port", str(port)),
        log_path=house.folder / f"api-{port}.log",
        surroundings=Surroundings(house._environment({"key_pepper": PEPPER}), ROOT),
    )
    process.start()
    house.processes.append(process)
    url = f"http://127.0.0.1:{port}"

    def is_ready() -> bool:
        assert process.is_running(), log_of(process)
        try:
            return httpx.get(f"{url}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    eventually(is_ready, within_s=40, what="the start of the API")
    return process, url


def end(process: ManagedProcess) -> None:
    """Warm: what it has begun, it finishes, and then it ends by itself."""
    process.send_signal(signal.SIGTERM)
    began_s = time.monotonic()
    eventually(
        lambda: not process.is_running(), within_s=GRACE_S, what=f"the end of {process.name}"
    )
    log.info("%s ended after %.1f s", process.name, time.monotonic() - began_s)
    # The API says by which signal it ended, once it has answered everybody.
    assert process.exit_code in (0, -signal.SIGTERM), log_of(process)[-2_000:]
    assert "Traceback" not in log_of(process)


@pytest.mark.timeout(240)
def test_workers_and_api_are_replaced_one_by_one_and_no_client_notices(new_house: NewHouse) -> None:
    house = new_house(key_pepper=PEPPER, ring_again_after_ms=RING_AGAIN_MS)
    house.use(
        Pipeline("three")
        .step("acc/mark", params={"word": "one"})
        .step("acc/mark", params={"word": "two"}, dispatch="queue")
        .step("acc/mark", params={"word": "three"})
    )
    connections = house.connections
    key = ApiKeys(connections.engine, connections.clock, PEPPER).create(
        "acme", actor=Actor(name="test")
    )
    old = [house.worker(), house.worker()]
    house.beat()
    api, url = start_api(house)
    house.wait_ready(*old)
    with Load(url, key.text) as load:
        load.goes_on()
        for worker in old:
            house.wait_ready(house.worker())
            end(worker)
            load.goes_on()
        # As a balancer does it: no new requests for the old one, then its end.
        successor, load.url = start_api(house)
        load.goes_on()
        end(api)
        load.goes_on()
    assert load.wrong == []
    assert successor.is_running()
    # Nothing is lost, nothing is done twice, nobody waited for a repair.
    notes = Counter((each["tx"], each["word"]) for each in house.notes("mark"))
    assert set(notes.values()) == {1}
    assert notes.total() == 3 * len(load.took_s)
    rows = house.sql("SELECT status, count(*) AS n FROM tx_summary GROUP BY status")
    assert {row.status: row.n for row in rows} == {"success": len(load.took_s)}
    assert max(load.took_s.values()) < LATE_S
