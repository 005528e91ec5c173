"""A step that runs too long is interrupted, and the note says so."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from datp_tasks import Fail, Pipeline
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from tests.support.books import Books

Data = dict[str, Any]
#: Long enough to be sure that it was interrupted.
FOR_EVER_S = 30.0


def block(kit: Kit, how: str, **options: Any) -> list[int]:
    """Declare t/block, which blocks; returns the list of its tries."""
    tries: list[int] = []
    options = {"retry": {"max_attempts": 1}, **options}

    if how == "async":

        @kit.step("t/block", **options)
        async def block_async(ctx: Any, data: Data) -> None:
            tries.append(ctx.attempt)
            await asyncio.sleep(FOR_EVER_S)
    else:

        @kit.step("t/block", **options)
        def block_sync(ctx: Any, data: Data) -> None:
            tries.append(ctx.attempt)
            threading.Event().wait(FOR_EVER_S)

    return tries


both = pytest.mark.parametrize("how", ["sync", "async"])


@both
def test_the_timeout_of_the_step_type_interrupts_it(datp: Kit, how: str) -> None:
    block(datp, how, timeout_s=0.05)
    datp.use(Pipeline("p").step("t/block").build())
    summary = datp.run("p", {})
    assert summary.status is Status.INTERNAL_ERROR
    assert summary.note == "step 1 of p (t/block): the step ran longer than 0.05 s"


@both
def test_the_timeout_of_the_definition_overrules_it(datp: Kit, how: str) -> None:
    block(datp, how, timeout_s=FOR_EVER_S)
    datp.use(Pipeline("p").step("t/block", timeout_s=0.06).build())
    assert datp.run("p", {}).note == "step 1 of p (t/block): the step ran longer than 0.06 s"


@both
def test_a_step_that_took_too_long_is_tried_again(datp: Kit, how: str) -> None:
    tries = block(datp, how, timeout_s=0.02, retry={"max_attempts": 3})
    datp.use(Pipeline("p").step("t/block").build())
    assert datp.run("p", {}).status is Status.INTERNAL_ERROR
    assert tries == [1, 2, 3]


@both
def test_a_rollback_has_the_timeout_of_its_step(datp: Kit, how: str) -> None:
    @datp.step("t/do", timeout_s=0.05, retry={"max_attempts": 1})
    def do(ctx: Any, data: Data) -> None: ...

    if how == "async":

        @do.rollback
        async def undo_async(ctx: Any, data: Data, output: Data) -> None:
            await asyncio.sleep(FOR_EVER_S)
    else:

        @do.rollback
        def undo(ctx: Any, data: Data, output: Data) -> None:
            threading.Event().wait(FOR_EVER_S)

    @datp.step("t/fail")
    def fail(ctx: Any, data: Data) -> None:
        raise Fail("no")

    datp.use(Pipeline("p").step("t/do").step("t/fail").build())
    summary = datp.run("p", {})
    assert summary.status is Status.IN_DOUBT
    note = "step 1 of p (t/do) cannot be rolled back: the step ran longer than 0.05 s"
    assert summary.note == note


def test_a_step_in_a_thread_is_interrupted_too(datp: Kit) -> None:
    @datp.step("t/spin", timeout_s=0.05, retry={"max_attempts": 1})
    def spin(ctx: Any, data: Data) -> None:
        # Outside the main thread the exception comes between two bytecodes.
        short = threading.Event()
        for _ in range(int(FOR_EVER_S * 1_000)):
            short.wait(0.001)

    datp.use(Pipeline("p").step("t/spin").build())
    notes: list[str | None] = []
    thread = threading.Thread(target=lambda: notes.append(datp.run("p", {}).note))
    thread.start()
    thread.join(FOR_EVER_S)
    assert notes == ["step 1 of p (t/spin): the step ran longer than 0.05 s"]


def test_a_time_limit_that_was_not_needed_leaves_nothing_behind(datp: Kit) -> None:
    @datp.step("t/quick", timeout_s=0.05)
    def quick(ctx: Any, data: Data) -> None: ...

    @datp.step("t/slower")
    def slower(ctx: Any, data: Data) -> None:
        threading.Event().wait(0.1)

    datp.use(Pipeline("p").step("t/quick").step("t/slower").build())
    assert datp.run("p", {}).status is Status.SUCCESS


def test_a_transactional_step_that_takes_too_long_has_no_effect(datp: Kit, books: Books) -> None:
    @datp.step("t/slow", timeout_s=0.2, transactional=True, retry={"max_attempts": 1})
    def slow(ctx: Any, data: Data) -> None:
        books.write(ctx.sql, ctx.tx_id, "slow")
        threading.Event().wait(FOR_EVER_S)

    datp.use(Pipeline("p").step("t/slow").build())
    assert "ran longer than 0.2 s" in (datp.run("p", {}).note or "")
    assert books.lines() == []
