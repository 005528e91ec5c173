"""Setting a switch while its transaction falls asleep: the wake-up is never lost."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from datp_tasks import Pipeline
from datp_tasks.client.requests import new_tx_id
from datp_tasks.live.live_types import Bell, Claimed, Held, NewTransaction
from datp_tasks.live.scripts import Script, ScriptCall, script
from datp_tasks.live.store import LiveStore
from datp_tasks.model.plan import Position
from datp_tasks.model.status import Status
from tests.support.eventually import eventually
from tests.support.house import House

pytestmark = pytest.mark.acceptance

TRIES = 3_000
NODE = "racer"


class Race:
    """Two threads that act on the same transaction in the same moment."""

    def __init__(self, live: LiveStore, sleep_script: Script) -> None:
        self._live = live
        self._sleep_script = sleep_script
        self._start = threading.Barrier(2)

    def run(self, tries: int) -> dict[tuple[str, str], int]:
        """How often each pair of answers came: of the sleeper, and of the one who set it."""
        claims = [self._claimed() for _ in range(tries)]
        with ThreadPoolExecutor(2) as pool:
            slept = pool.submit(self._each, claims, self._sleep)
            woken = pool.submit(self._each, claims, self._set)
            pairs = list(zip(slept.result(60), woken.result(60), strict=True))
        return {pair: pairs.count(pair) for pair in set(pairs)}

    def lost(self, tries: int) -> int:
        return self.run(tries).get(("OK", "SET"), 0)

    def _claimed(self) -> Claimed:
        tx_id = new_tx_id("07")
        new = NewTransaction(tx_id, "o", None, "p", "g", "t", "p/0", "{}", None)
        self._live.create_many([new])
        claimed = self._live.claim_many([(tx_id, 1)], NODE)[0]
        assert isinstance(claimed, Claimed)
        return claimed

    def _each(self, claims: list[Claimed], action: Callable[[Claimed], str]) -> list[str]:
        words = []
        for claimed in claims:
            self._start.wait()
            words.append(action(claimed))
        return words

    def _sleep(self, claimed: Claimed) -> str:
        call: ScriptCall = self._live.call_sleep(
            Held(claimed.tx_id, claimed.fence),
            NODE,
            "{}",
            Position("g", "t", "p/0"),
            sleep_ms=3_600_000,
            switch="go",
        )
        frame = replace(call.frame, script=self._sleep_script)
        return str(self._live.run([call._replace(frame=frame)])[0][0])

    def _set(self, claimed: Claimed) -> str:
        answer = self._live.set_switch(claimed.tx_id, "go", "true")
        return "WOKEN" if isinstance(answer, Bell) else answer.word


def without_the_look_at_the_switch() -> Script:
    """A private copy of the script that falls asleep without looking."""
    source = script("sleep").source
    look = "if switch ~= '' and value and"
    assert source.count(look) == 1
    broken = source.replace(look, "if false and")
    sha = hashlib.sha1(broken.encode(), usedforsecurity=False).hexdigest()
    return replace(script("sleep"), source=broken, sha=sha)


def test_a_switch_set_while_falling_asleep_is_seen_by_one_side(house: House) -> None:
    answers = Race(house.connections.live, script("sleep")).run(TRIES)
    assert sum(answers.values()) == TRIES
    # Either the step slept and was woken, or the switch was first and the step stays awake.
    assert set(answers) == {("OK", "WOKEN"), ("AWAKE", "SET")}, answers
    assert min(answers.values()) > TRIES / 100, "this was no race"


def test_the_race_does_lose_wake_ups_when_the_script_does_not_look(house: House) -> None:
    assert Race(house.connections.live, without_the_look_at_the_switch()).lost(300) > 0


@pytest.fixture
def waiting_house(house: House) -> House:
    """Without beat, and with a wait of two hours: nothing but the switch can wake anybody."""
    house.use(Pipeline("waits").step("util/wait", params={"switch": "go"}))
    house.wait_ready(house.worker(concurrency=2))
    return house


def test_no_wake_up_is_lost_on_the_way_through_workers(waiting_house: House) -> None:
    client = waiting_house.client

    def submit_and_set(number: int) -> str:
        """Some set the switch before anybody looks, some when all sleep, most in between."""
        if number % 8 == 0:
            tx_id = waiting_house.submit_silently("waits")
        else:
            tx_id = waiting_house.submit("waits")
            threading.Event().wait(number % 40 / 2_000)
        if number % 8 == 1:
            eventually(lambda: client.status(tx_id).status is Status.SLEEPING)
        client.set_switch(tx_id, "go", True)
        if number % 8 == 0:
            waiting_house.send("util/wait", [(tx_id, 1)], group="master", priority="in")
        return tx_id

    with ThreadPoolExecutor(4) as pool:
        tx_ids = list(pool.map(submit_and_set, range(400)))
    for tx_id in tx_ids:
        assert client.wait(tx_id, timeout_s=20).status is Status.SUCCESS
    # Those that slept were queued a second time.
    assert {waiting_house.fields(tx_id)["sequence"] for tx_id in tx_ids} == {"1", "2"}
