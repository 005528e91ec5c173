"""The handler can die at every one of its steps: each transaction ends once, and balanced."""

from __future__ import annotations

from typing import Any

import pytest

from datp_tasks import Pipeline, Sleep, failpoints
from datp_tasks.failpoints import POINTS, SimulatedCrash
from datp_tasks.jobs import timeout_handler
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from tests.support.books import Books
from tests.timeouts.history import PREPARED, RESERVED, history, watched

Data = dict[str, Any]

#: Where the handler passes when it expires transactions that have begun and others that have not.
HANDLER_POINTS = [
    point
    for point in POINTS
    if point.startswith(("timeouts.", "seized.")) and point != "timeouts.after_fence"
]
#: Where the worker passes that rolls back what the handler turned around.
WORKER_POINTS = [
    "hop.after_claim",
    "hop.after_step",
    "hop.after_checkpoint",
    "hop.before_final",
    "hop.after_final",
    "hop.after_finish",
    "effect.before_commit",
    "effect.after_commit",
]


@pytest.fixture
def diary(datp: Kit, books: Books) -> list[str]:
    """A transfer that reserves money and then waits for longer than it may take."""
    notes: list[str] = []

    @datp.step("m/reserve", transactional=True)
    def reserve(ctx: Any, data: Data) -> Data:
        books.write(ctx.sql, ctx.tx_id, "reserve")
        return {"reserved": 5}

    @reserve.rollback
    def release(ctx: Any, data: Data, output: Data) -> None:
        assert output == {"reserved": 5}
        books.write(ctx.sql, ctx.tx_id, "release")

    @datp.step("m/wait")
    def wait(ctx: Any, data: Data) -> Sleep:
        return Sleep(seconds=86_400)

    datp.use(Pipeline("transfer").step("m/reserve").step("m/wait").build())
    return notes


def submitted(datp: Kit) -> tuple[list[str], list[str]]:
    """Three that have begun, and three that have not."""
    begun = [datp.submit("transfer", {"n": n}, expires_in_s=60) for n in range(3)]
    datp.lose_bells()
    waiting = [datp.submit("transfer", {"n": n}, expires_in_s=60) for n in range(3)]
    datp.lose_bells(False)
    return begun, waiting


def check(datp: Kit, books: Books, begun: list[str], waiting: list[str]) -> None:
    for tx_id in begun:
        assert datp.status(tx_id).status is Status.EXPIRED
        assert books.lines(tx_id) == ["reserve", "release"]
        assert history(datp, tx_id) == RESERVED
    for tx_id in waiting:
        assert datp.status(tx_id).status is Status.EXPIRED
        assert books.lines(tx_id) == []
        assert history(datp, tx_id) == PREPARED
    assert watched(datp) == []


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("point", HANDLER_POINTS)
def test_the_handler_dies_and_others_finish_its_work(
    datp: Kit, books: Books, diary: list[str], point: str, nth: int
) -> None:
    begun, waiting = submitted(datp)
    datp.clock.advance(seconds=60)
    datp.crash_at(point, nth=nth)
    try:
        datp.run_job("timeout_handler")
    except SimulatedCrash:
        crashed = True
    else:
        crashed = False
    # Some points are passed once in a run.
    assert crashed or nth > 1
    datp.recover()
    datp.advance(seconds=datp.settings.timeout_retry_s)
    datp.recover()
    check(datp, books, begun, waiting)


@pytest.mark.parametrize("point", WORKER_POINTS)
def test_the_worker_that_rolls_back_dies_and_another_finishes(
    datp: Kit, books: Books, diary: list[str], point: str
) -> None:
    begun, waiting = submitted(datp)
    datp.clock.advance(seconds=60)
    datp.crash_at(point)
    datp.run_job("timeout_handler")
    assert datp.send.crashes == 1
    datp.recover()
    check(datp, books, begun, waiting)


def test_the_handler_dies_between_the_fence_and_the_takeover(
    datp: Kit, books: Books, diary: list[str]
) -> None:
    datp.lose_bells()
    tx_id = datp.submit("transfer", {}, expires_in_s=60)
    datp.lose_bells(False)
    live = datp.connections.live
    live.claim_many([(tx_id, 1)], "stuck", step_type="m/reserve", begin='{"k":"begin"}')
    datp.clock.advance(seconds=60)
    datp.run_job("timeout_handler")
    datp.clock.advance(seconds=timeout_handler.TAKEOVER_S)
    datp.crash_at("timeouts.after_fence")
    with pytest.raises(SimulatedCrash):
        datp.run_job("timeout_handler")
    failpoints.disarm_all()
    datp.clock.advance(seconds=datp.settings.timeout_retry_s)
    datp.run_job("timeout_handler")
    assert datp.status(tx_id).status is Status.EXPIRED
    # The step that was lost had not reserved anything; it did when it was asked, and released it.
    assert books.lines(tx_id) == ["reserve", "release"]
    assert history(datp, tx_id) == RESERVED
