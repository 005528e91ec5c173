"""`celery -A datp_tasks worker -Q master` and `celery -A datp_tasks beat`, with no other word."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from datp_tasks import Pipeline, app
from datp_tasks.bells.job_messages import WAITING_MAX
from datp_tasks.ledger.sim.sim_server import LedgerSim, SimThread
from datp_tasks.live.nodes import live_nodes
from datp_tasks.model.status import Status
from tests.support.eventually import eventually
from tests.support.house import House
from tests.support.house_fixtures import NewHouse

pytestmark = pytest.mark.acceptance

BOOK = {"service": "books", "content": "entry"}
QUEUES = ("master", "ledger", "kyc")


@pytest.fixture
def ledger() -> Iterator[SimThread]:
    sim = LedgerSim(seed=1)
    sim.options.commit_ms = 0
    thread = SimThread(sim).start()
    yield thread
    thread.stop()


def is_served(house: House, *groups: str) -> bool:
    live = house.connections.live
    return {node.group for node in live_nodes(live.redis, live.keys)} >= set(groups)


def waiting(house: House) -> dict[str, int]:
    """Messages of all priorities, by the key of their list."""
    keys = [f"{queue}{more}" for queue in QUEUES for more in ("", "\x06\x163", "\x06\x166")]
    return {key: size for key in keys if (size := int(house.redis.llen(key)))}


def test_a_worker_of_master_and_beat_run_everything_and_nothing_piles_up(
    new_house: NewHouse, ledger: SimThread
) -> None:
    house = new_house(claim_queuer_period_s=0.3, batch_poller_period_s=0.3)
    house.use(
        Pipeline("plain").step("acc/mark"),
        Pipeline("nap").step("util/delay", params={"seconds": 1}).step("acc/mark"),
        Pipeline("book").step("ledger/submit-batch", params=BOOK),
    )
    house.command("worker", "-Q", "master", name="worker")
    house.command("beat", name="beat")
    eventually(lambda: is_served(house, "master"), within_s=30, what="the start of the worker")
    assert house.run("plain").status is Status.SUCCESS
    assert house.run("nap").status is Status.SUCCESS
    # A service may come later; no worker of the group `ledger` is needed for it.
    house.client.add_service("books", kind="sawtooth", url=ledger.url)
    booked = house.run("book", {"entry": {"amount": "1.00"}})
    assert booked.output is not None
    assert (booked.status, booked.output["ledger"]["state"]) == (Status.SUCCESS, "COMMITTED")
    assert house.redis.exists("ledger") == 0
    eventually(lambda: sum(waiting(house).values()) <= 2, what="queues that are short")


@pytest.mark.parametrize(
    "words",
    [
        ("-Q", "master,kyc", "-B"),
        ("-Q", "master,kyc", "-P", "threads", "-c", "2", "-B"),
        ("-Q", "master,kyc", "-P", "solo", "-B"),
    ],
    ids=lambda words: " ".join(words),
)
def test_other_words_of_celery_are_as_good(house: House, words: tuple[str, ...]) -> None:
    nap = {"seconds": 0.2}
    house.use(
        Pipeline("tour")
        .step("acc/mark")
        .step("util/delay", params=nap)
        .step("acc/mark", group="kyc")
    )
    house.command("worker", *words, name="worker")
    eventually(lambda: is_served(house, "master", "kyc"), within_s=30, what="the start")
    assert house.run("tour").status is Status.SUCCESS
    assert sum(waiting(house).values()) < WAITING_MAX


@pytest.mark.parametrize("pool", app.GREEN_POOLS)
def test_pools_of_green_threads_are_refused_with_the_reason(pool: str) -> None:
    instance = SimpleNamespace(pool_cls=SimpleNamespace(__module__=f"celery.concurrency.{pool}"))
    with pytest.raises(SystemExit, match="is not supported: one step that computes"):
        app._set_up("w@h", instance=instance)
