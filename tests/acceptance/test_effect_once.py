"""A transactional step whose process or connection dies around its commit: one effect, always."""

from __future__ import annotations

import os
import signal

import pytest

from datp_tasks import Pipeline
from datp_tasks.model.status import Status
from tests.support.eventually import eventually
from tests.support.house import House, process_state

pytestmark = pytest.mark.acceptance

#: Makes the COMMIT of a slow payment take a second.
SLOW_COMMIT = """
CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN IF NEW.slow THEN PERFORM pg_sleep(1); END IF; RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER dawdle AFTER INSERT ON payment DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION dawdle();
"""
IN_COMMIT = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND query = 'COMMIT' AND wait_event = 'PgSleep'
"""


def paying(name: str) -> Pipeline:
    """Two payments, so that it also matters where the second worker goes on."""
    return Pipeline(name, group=name).step("acc/pay", timeout_s=5).step("acc/pay-quietly")


def assert_paid_once(house: House, tx_id: str) -> None:
    ended = house.client.wait(tx_id, timeout_s=20)
    assert ended.status is Status.SUCCESS, ended
    assert ended.output is not None
    assert ended.output["paid"] == 2
    rows = house.sql("SELECT step_key FROM payment WHERE tx_id = :tx ORDER BY 1", tx=tx_id)
    assert [row.step_key for row in rows] == [f"{tx_id}:0", f"{tx_id}:1"]


def test_killed_before_in_and_after_its_commit_it_pays_once(house: House) -> None:
    """Three workers are killed at the three places; a fourth does what is left of all three."""
    house.sql(SLOW_COMMIT)
    groups = ("before", "within", "after")
    house.use(*map(paying, groups))
    doomed = {
        "before": house.worker("before", failpoints="effect.before_commit=kill"),
        "within": house.worker("within"),
        "after": house.worker("after", failpoints="effect.after_commit=kill"),
    }
    house.beat()
    house.wait_ready(*doomed.values())
    tx_ids = {group: house.submit(group, {"slow": group == "within"}) for group in groups}
    pids = {tx_id: int(house.wait_for_note_about("pay", tx_id)["pid"]) for tx_id in tx_ids.values()}

    eventually(lambda: house.sql(IN_COMMIT), what="the slow commit")
    os.kill(pids[tx_ids["within"]], signal.SIGKILL)
    for pid in pids.values():
        eventually(lambda pid=pid: process_state(pid) in ("", "Z"))  # type: ignore[misc]
    for worker in doomed.values():
        worker.kill()
    paid = {row.tx_id for row in house.sql("SELECT tx_id FROM payment")}
    assert tx_ids["after"] in paid
    assert tx_ids["before"] not in paid

    house.wait_ready(house.worker("master,before,within,after"))
    for tx_id in tx_ids.values():
        assert_paid_once(house, tx_id)
    # The one before its commit had to run again; what the others had done was found in SQL.
    tries = {group: len(house.notes_about("pay", tx_id)) for group, tx_id in tx_ids.items()}
    assert tries == {"before": 2, "within": 1, "after": 1}


def test_a_connection_that_is_lost_in_its_commit_is_asked_again(house: House) -> None:
    house.sql(SLOW_COMMIT)
    house.use(paying("master"))
    house.wait_ready(house.worker())
    tx_id = house.submit("master", {"slow": True})
    eventually(lambda: house.sql(IN_COMMIT), what="the slow commit")
    house.sql("SELECT pg_terminate_backend(:pid)", pid=house.sql(IN_COMMIT)[0].pid)
    assert_paid_once(house, tx_id)
    # Its COMMIT was rolled back, so the same process ran it once more, without counting a try.
    first, second = house.notes_about("pay", tx_id)
    assert first["pid"] == second["pid"]
    assert (first["attempt"], second["attempt"]) == (1, 1)
