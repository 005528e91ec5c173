"""A worker that is killed, beat that stops, a group that nobody serves: seen by those who live."""

from __future__ import annotations

import os
import signal
import time

import pytest

from datp_tasks import Pipeline
from datp_tasks.jobs.watcher import NO_WORKER, NODE_LOST
from datp_tasks.observe.beat_watch import BEAT_SILENT
from tests.support.eventually import eventually
from tests.support.house import House
from tests.support.house_fixtures import NewHouse

pytestmark = pytest.mark.acceptance


def open_alerts(house: House) -> set[tuple[str, str]]:
    rows = house.sql("SELECT kind, subject FROM alert WHERE cleared_at IS NULL")
    return {(row.kind, row.subject) for row in rows}


def raised(house: House, kind: str) -> int:
    return int(house.sql("SELECT count(*) AS n FROM alert WHERE kind = :kind", kind=kind)[0].n)


def test_each_trouble_raises_one_alert_and_clears_when_it_has_healed(new_house: NewHouse) -> None:
    house = new_house(watcher_period_s=0.3, beat_silent_s=2.0)
    house.use(Pipeline("kyc", group="kyc").step("acc/mark"))
    master, kyc, beat = house.worker(), house.worker("kyc", concurrency=2), house.beat()
    house.wait_ready(master, kyc)
    house.run("kyc")
    assert kyc.pid is not None
    os.killpg(kyc.pid, signal.SIGKILL)
    began_s = time.monotonic()
    eventually(lambda: open_alerts(house) == {(NODE_LOST, "kyc")}, what="the lost nodes")
    assert time.monotonic() - began_s < 10
    left = house.submit("kyc")
    both = {(NODE_LOST, "kyc"), (NO_WORKER, "kyc")}
    eventually(lambda: open_alerts(house) == both, what="the group without a worker")
    house.wait_ready(house.worker("kyc", concurrency=2))
    eventually(lambda: open_alerts(house) == set(), what="the end of both alerts")
    assert house.client.wait(left, timeout_s=10).is_final

    beat.kill()
    eventually(lambda: open_alerts(house) == {(BEAT_SILENT, "master")}, what="beat being missed")
    house.beat()
    eventually(lambda: open_alerts(house) == set(), what="the end of the alert")
    assert [raised(house, kind) for kind in (NODE_LOST, NO_WORKER, BEAT_SILENT)] == [1, 1, 1]
