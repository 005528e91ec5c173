"""A node that nobody knows holds a transaction: it was forgotten, claimed again, and died."""

from __future__ import annotations

from typing import Any

from datp_tasks import Pipeline
from datp_tasks.live.live_types import Claimed
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit


def test_what_an_unlisted_node_holds_is_taken_over(datp: Kit) -> None:
    @datp.step("t/pass")
    def passing(ctx: Any, data: dict[str, Any]) -> None:
        return None

    datp.use(Pipeline("p").step("t/pass").build())
    datp.lose_bells()
    tx_id = datp.submit("p", {"n": 1})
    live = datp.connections.live
    assert isinstance(live.claim_many([(tx_id, 1)], "a-node-that-never-beat")[0], Claimed)
    datp.lose_bells(False)
    datp.run_job("reaper")
    assert datp.status(tx_id).status is Status.RUNNING
    datp.recover()
    assert datp.status(tx_id).status is Status.SUCCESS
