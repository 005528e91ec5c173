"""A step sees when its transaction must be over, and cannot run past that moment."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime
from typing import Any

from datp_tasks import Pipeline, Sleep
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from tests.timeouts.history import RESERVED, history

Data = dict[str, Any]

#: The virtual clock starts here.
START = datetime(2027, 1, 15, 8, 0, tzinfo=UTC)


def test_a_step_and_its_rollback_see_the_deadline(datp: Kit) -> None:
    seen: list[datetime | None] = []

    @datp.step("t/look")
    def look(ctx: Any, data: Data) -> None:
        seen.append(ctx.deadline)

    @look.rollback
    def look_back(ctx: Any, data: Data, output: Data) -> None:
        seen.append(ctx.deadline)

    @datp.step("t/nap")
    def nap(ctx: Any, data: Data) -> Sleep:
        return Sleep(seconds=3_600)

    datp.use(Pipeline("p").step("t/look").step("t/nap").build())
    deadline = datetime(2027, 1, 15, 8, 1, 0, tzinfo=UTC)
    tx_id = datp.submit("p", {}, expires_at=deadline)
    datp.advance(seconds=60)
    assert datp.status(tx_id).status is Status.EXPIRED
    assert seen == [deadline, deadline]


def test_without_an_expiry_there_is_no_deadline(datp: Kit) -> None:
    seen: list[datetime | None] = []

    @datp.step("t/look")
    def look(ctx: Any, data: Data) -> None:
        seen.append(ctx.deadline)

    datp.use(Pipeline("p").step("t/look").build())
    datp.run("p", {})
    assert seen == [None]


def test_a_step_that_would_run_past_its_deadline_is_stopped_there(datp: Kit) -> None:
    undone: list[Any] = []

    @datp.step("t/hang", retry={"max_attempts": 5})
    def hang(ctx: Any, data: Data) -> None:
        threading.Event().wait(30)

    @hang.rollback(partial=True)
    def undo(ctx: Any, data: Data, output: Data | None) -> None:
        undone.append(output)

    datp.use(Pipeline("p").step("t/hang").build())
    # The time limit is real time; the virtual clock stands still.
    tx_id = datp.submit("p", {}, expires_in_s=0.3)
    assert datp.status(tx_id).status is Status.SLEEPING
    datp.advance(seconds=1)
    assert datp.status(tx_id).status is Status.EXPIRED
    assert undone == [None]
    assert history(datp, tx_id) == RESERVED


def test_an_async_step_is_stopped_at_its_deadline_too(datp: Kit) -> None:
    @datp.step("t/hang")
    async def hang(ctx: Any, data: Data) -> None:
        await asyncio.sleep(30)

    datp.use(Pipeline("p").step("t/hang").build())
    tx_id = datp.submit("p", {}, expires_in_s=0.3)
    assert datp.status(tx_id).status is Status.SLEEPING
    datp.advance(seconds=1)
    assert datp.status(tx_id).status is Status.EXPIRED


def test_a_timeout_that_is_shorter_stays(datp: Kit) -> None:
    @datp.step("t/hang", timeout_s=0.1)
    def hang(ctx: Any, data: Data) -> None:
        threading.Event().wait(30)

    datp.use(Pipeline("p").step("t/hang").build())
    summary = datp.run("p", {}, expires_in_s=600)
    assert summary.status is Status.INTERNAL_ERROR
    assert "longer than 0.1 s" in (summary.note or "")


def test_a_rollback_has_its_own_time(datp: Kit) -> None:
    """It comes after the expiry, so the deadline cannot be its limit."""
    done: list[str] = []

    @datp.step("t/do")
    def do(ctx: Any, data: Data) -> None: ...

    @do.rollback
    def undo(ctx: Any, data: Data, output: Data) -> None:
        threading.Event().wait(0.2)
        done.append("undone")

    @datp.step("t/nap")
    def nap(ctx: Any, data: Data) -> Sleep:
        return Sleep(seconds=3_600)

    datp.use(Pipeline("p").step("t/do").step("t/nap").build())
    tx_id = datp.submit("p", {}, expires_in_s=60)
    datp.advance(seconds=60)
    assert datp.status(tx_id).status is Status.EXPIRED
    assert done == ["undone"]


def test_what_a_lost_worker_did_is_found_out_even_after_the_expiry(datp: Kit) -> None:
    """The step runs again to know its output, without a deadline, and is then rolled back."""
    diary: list[str] = []

    @datp.step("t/do")
    def do(ctx: Any, data: Data) -> Data:
        diary.append("do")
        if diary == ["do"]:
            datp.crash_at("hop.after_step")
        return {"id": 7}

    @do.rollback
    def undo(ctx: Any, data: Data, output: Data) -> None:
        diary.append(f"undo {output['id']}")

    datp.use(Pipeline("p").step("t/do").step("t/do").build())
    tx_id = datp.submit("p", {}, expires_in_s=5)
    datp.recover()
    assert datp.status(tx_id).status is Status.EXPIRED
    assert diary == ["do", "do", "undo 7"]
