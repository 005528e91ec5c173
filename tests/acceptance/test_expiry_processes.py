"""Expiry with real workers and beat: whoever waits is told, whatever the workers are doing."""

from __future__ import annotations

import os
import signal

import pytest

from datp_tasks import Pipeline
from datp_tasks.model.status import Status
from tests.support.eventually import eventually
from tests.support.house import House, process_state
from tests.support.house_fixtures import NewHouse

pytestmark = pytest.mark.acceptance

PREPARED = ["queued", "EXPIRED_PREPARED"]
RESERVED = ["queued", "RESERVED_TIMEOUT", "EXPIRED_RESERVED"]


@pytest.fixture(scope="module")
def pair(new_house: NewHouse) -> House:
    house = new_house(timeout_handler_period_s=0.2, timeout_retry_s=1.0, step_kill_grace_s=1.0)
    workers = [house.worker(name=name) for name in ("one", "two")]
    house.beat()
    house.use(
        Pipeline("nobody", group="nobody-serves-it").step("acc/mark"),
        Pipeline("asleep").step("acc/mark").step("util/delay", params={"seconds": 600}),
        Pipeline("held").step("acc/hold").step("acc/mark"),
        Pipeline("deaf").step("acc/deaf", timeout_s=60),
    )
    house.wait_ready(*workers)
    return house


def history(house: House, tx_id: str) -> list[str]:
    query = (
        "SELECT coalesce(detail, status) AS name FROM tx_state_change WHERE tx_id = :tx ORDER BY id"
    )
    return [row.name for row in house.sql(query, tx=tx_id)]


def test_one_that_no_worker_takes_expires_and_its_waiter_is_told(pair: House) -> None:
    tx_id = pair.submit("nobody", expires_in_s=1)
    summary = pair.client.wait(tx_id, timeout_s=20)
    assert summary.status is Status.EXPIRED
    assert summary.completed_at is not None and summary.expires_at is not None
    assert 0 <= (summary.completed_at - summary.expires_at).total_seconds() < 10
    assert history(pair, tx_id) == PREPARED


def test_one_that_sleeps_expires(pair: House) -> None:
    tx_id = pair.submit("asleep", expires_in_s=1)
    assert pair.client.wait(tx_id, timeout_s=20).status is Status.EXPIRED
    assert history(pair, tx_id) == RESERVED


def test_a_step_that_hangs_is_cut_off_at_the_deadline(pair: House) -> None:
    tx_id = pair.submit("held", {"gates": ["nobody opens it"]}, expires_in_s=2)
    assert pair.client.wait(tx_id, timeout_s=20).status is Status.EXPIRED
    assert len(pair.notes_about("hold", tx_id)) == 1
    assert history(pair, tx_id) == RESERVED


def test_one_whose_worker_is_paused_expires_and_the_worker_is_refused(pair: House) -> None:
    tx_id = pair.submit("held", {"gates": ["opened late"] * 2}, expires_in_s=3)
    pid = int(pair.wait_for_note_about("hold", tx_id)["pid"])
    os.kill(pid, signal.SIGSTOP)
    try:
        eventually(lambda: process_state(pid) == "T")
        assert pair.client.wait(tx_id, timeout_s=40).status is Status.EXPIRED
    finally:
        os.kill(pid, signal.SIGCONT)
        pair.open_gate("opened late")
    assert pair.run("held").status is Status.SUCCESS
    assert pair.finals_logged(tx_id) == ["expired"]
    assert history(pair, tx_id) == RESERVED


def test_one_whose_worker_hears_nothing_expires_when_it_is_killed(pair: House) -> None:
    tx_id = pair.submit("deaf", expires_in_s=2)
    assert pair.client.wait(tx_id, timeout_s=40).status is Status.EXPIRED
    assert pair.finals_logged(tx_id) == ["expired"]
