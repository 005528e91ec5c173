"""Vector steps without SQL: one call for all, and each item keeps its own fate."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from datp_tasks import Abort, Batch, Call, Fail, Item, Pipeline
from datp_tasks.errors import PipelineInvalid, StepError, StepTypeInvalid
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit

Data = dict[str, Any]


def numbers(count: int) -> list[Data]:
    return [{"n": n} for n in range(count)]


def statuses(kit: Kit, tx_ids: list[str]) -> list[Status]:
    return [kit.status(tx_id).status for tx_id in tx_ids]


def test_all_transactions_of_a_vector_are_one_call_and_go_on_together(datp: Kit) -> None:
    calls: list[list[int]] = []

    @datp.step("t/double", vector=True)
    def double(batch: Batch) -> None:
        calls.append([item.data["n"] for item in batch])
        for item in batch:
            item.done({"n": 2 * item.data["n"]})

    @datp.step("t/plain")
    def plain(ctx: Any, data: Data) -> Data:
        return {"n": data["n"] + 1}

    datp.use(Pipeline("p").step("t/double").step("t/plain").step("t/double").build())
    ends = datp.run_together("p", numbers(5))
    assert [end.output for end in ends] == [{"n": 2 * (2 * n + 1)} for n in range(5)]
    assert calls == [[0, 1, 2, 3, 4], [1, 3, 5, 7, 9]]


def test_each_item_gets_its_own_outcome(datp: Kit) -> None:
    @datp.step("t/anything", vector=True, retry={"max_attempts": 2, "first_s": 60})
    def anything(batch: Batch) -> None:
        for item in batch:
            match item.data["what"]:
                case "fail":
                    item.fail("failed", {"why": 1})
                case "abort":
                    item.abort("aborted")
                case "sleep":
                    item.done({"slept": 1}) if item.sleeps else item.sleep(60)
                case "switch":
                    item.sleep(switch="go") if item.switch("go") is None else item.done()
                case "call":
                    item.call("child", {"n": 1})
                case "retry":
                    item.done({"tries": 2}) if item.attempt == 2 else item.retry("not yet")
                case "give up":
                    item.retry("never")
                case _:
                    item.done()

    datp.use(
        Pipeline("child", startable=False)
        .step("util/fixed-reply", params={"output": {"c": 1}})
        .build(),
        Pipeline("p").step("t/anything").build(),
    )
    whats = ["ok", "fail", "abort", "sleep", "switch", "call", "retry", "give up"]
    ends = dict(zip(whats, datp.run_together("p", [{"what": what} for what in whats]), strict=True))
    assert ends["ok"].output == {"what": "ok"}
    assert (ends["fail"].status, ends["fail"].note) == (Status.FAILED, "failed")
    assert ends["fail"].output == {"why": 1}
    assert (ends["abort"].status, ends["abort"].note) == (Status.ABORTED, "aborted")
    assert ends["sleep"].output == {"slept": 1}
    assert ends["switch"].status is Status.SLEEPING
    assert ends["call"].output == {"c": 1}
    assert ends["retry"].output == {"tries": 2}
    assert ends["give up"].status is Status.INTERNAL_ERROR
    assert "never" in (ends["give up"].note or "")
    assert datp.set_switch(ends["switch"].tx_id, "go", True).status is Status.SUCCESS


def test_an_item_has_all_that_a_context_has(datp: Kit) -> None:
    seen: list[Any] = []

    @datp.step("t/look", vector=True)
    def look(batch: Batch) -> None:
        for item in batch:
            assert batch.item(item.tx_id) is item
            item.progress({"seen": item.data["n"]})
            item.set_switch("seen", item.data["n"])
            seen.append((item.tx_id, item.idempotency_key, item.owner, item.params["p"]))
            item.data["n"] = "changed"
            item.done()
        assert (len(batch), batch[0], batch[1:]) == (2, next(iter(batch)), list(batch)[1:])

    datp.use(Pipeline("p").step("t/look", params={"p": 7}).build())
    ends = datp.run_together("p", numbers(2), owner="ann")
    assert seen == [(end.tx_id, f"{end.tx_id}:0", "ann", 7) for end in ends]
    # What a step does to its input does not reach the state.
    assert [(end.output, end.progress) for end in ends] == [
        ({"n": 0}, {"seen": 0}),
        ({"n": 1}, {"seen": 1}),
    ]


def test_an_exception_runs_it_again_in_halves_until_the_broken_item_is_alone(datp: Kit) -> None:
    calls: list[list[int]] = []

    @datp.step("t/brittle", vector=True, retry={"max_attempts": 1})
    def brittle(batch: Batch) -> None:
        calls.append([item.data["n"] for item in batch])
        for item in batch:
            # Said too early: the call as a whole breaks, so nothing of it counts.
            item.done({"ok": item.data["n"]})
        if any(item.data["n"] == 5 for item in batch):
            raise RuntimeError("five is broken")

    datp.use(Pipeline("p").step("t/brittle").build())
    ends = datp.run_together("p", numbers(8))
    assert [end.status for end in ends] == [
        Status.INTERNAL_ERROR if n == 5 else Status.SUCCESS for n in range(8)
    ]
    assert "RuntimeError (error " in (ends[5].note or "")
    assert calls == [[*range(8)], [0, 1, 2, 3], [4, 5, 6, 7], [4, 5], [4], [5], [6, 7]]


@pytest.mark.parametrize(
    ("error", "status"), [(Fail, Status.FAILED), (Abort, Status.ABORTED)], ids=["fail", "abort"]
)
def test_fail_and_abort_can_be_raised_for_a_single_item(
    datp: Kit, error: type[Exception], status: Status
) -> None:
    @datp.step("t/refuse", vector=True)
    def refuse(batch: Batch) -> None:
        for item in batch:
            if item.data["n"] == 2:
                raise error("two is refused")
            item.done()

    datp.use(Pipeline("p").step("t/refuse").build())
    ends = datp.run_together("p", numbers(5))
    assert [end.status for end in ends] == [status if n == 2 else Status.SUCCESS for n in range(5)]
    assert ends[2].note == "two is refused"


def test_an_item_without_an_outcome_is_broken_alone_and_no_neighbour_is_called_twice(
    datp: Kit,
) -> None:
    calls: list[list[int]] = []

    @datp.step("t/forgetful", vector=True, retry={"max_attempts": 1})
    def forgetful(batch: Batch) -> None:
        calls.append([item.data["n"] for item in batch])
        for item in batch:
            if item.data["n"] not in (1, 3):
                item.done()

    datp.use(Pipeline("p").step("t/forgetful").build())
    ends = datp.run_together("p", numbers(5))
    assert [end.status is Status.SUCCESS for end in ends] == [True, False, True, False, True]
    assert "without giving it an outcome" in (ends[1].note or "")
    # Those that got their outcome have it for good: outside, it may have happened.
    assert calls == [[0, 1, 2, 3, 4], [1, 3], [1], [3]]


def test_a_step_that_returns_early_gets_the_rest_of_its_items_again(datp: Kit) -> None:
    @datp.step("t/hasty", vector=True)
    def hasty(batch: Batch) -> None:
        for item in batch:
            item.done({"size": len(batch)})
            if item.data["n"] == 1:
                return

    datp.use(Pipeline("p").step("t/hasty").build())
    ends = datp.run_together("p", numbers(4))
    assert [end.output for end in ends] == [{"size": 4}, {"size": 4}, {"size": 2}, {"size": 2}]


def test_an_async_vector_step_is_one_call_on_the_event_loop(datp: Kit) -> None:
    threads: set[str] = set()
    calls: list[int] = []

    @datp.step("bank/send-many", vector=True, retry={"max_attempts": 1})
    async def send_many(batch: Batch) -> None:
        calls.append(len(batch))
        threads.add(threading.current_thread().name)
        await asyncio.sleep(0)
        for item in batch:
            if item.data["n"] == 1:
                raise asyncio.CancelledError
            item.done({"sent": item.data["n"]})

    datp.use(Pipeline("p").step("bank/send-many").build())
    ends = datp.run_together("p", numbers(4))
    assert [end.output for end in ends] == [{"sent": 0}, None, {"sent": 2}, {"sent": 3}]
    assert ends[1].status is Status.INTERNAL_ERROR
    assert threads == {"datp-event-loop"}
    assert calls == [4, 2, 1, 1, 2]


def test_an_async_vector_step_over_its_limit_lets_each_item_run_alone(datp: Kit) -> None:
    calls: list[int] = []

    @datp.step("t/slow", vector=True, timeout_s=0.1, retry={"max_attempts": 1})
    async def slow(batch: Batch) -> None:
        calls.append(len(batch))
        if any(item.data["n"] == 1 for item in batch):
            await asyncio.sleep(30)
        for item in batch:
            item.done()

    datp.use(Pipeline("p").step("t/slow").build())
    ends = datp.run_together("p", numbers(3))
    assert [end.status for end in ends] == [
        *(Status.SUCCESS, Status.INTERNAL_ERROR, Status.SUCCESS)
    ]
    assert calls == [3, 1, 1, 1]


def test_vector_and_other_steps_share_a_hop(datp: Kit) -> None:
    @datp.step("t/route")
    def route(ctx: Any, data: Data) -> Any:
        return Call(("left", "right")[data["n"] % 2], data)

    sizes: dict[str, int] = {}

    @datp.step("t/left", vector=True)
    def left(batch: Batch) -> None:
        sizes["left"] = len(batch)
        for item in batch:
            item.done({"by": "left"})

    @datp.step("t/right", vector=True)
    def right(batch: Batch) -> None:
        sizes["right"] = len(batch)
        for item in batch:
            item.done({"by": "right"})

    datp.use(
        Pipeline("left", startable=False).step("t/left").build(),
        Pipeline("right", startable=False).step("t/right").build(),
        Pipeline("p").step("t/route").build(),
    )
    ends = datp.run_together("p", numbers(5))
    assert [end.output for end in ends] == [{"by": ("left", "right")[n % 2]} for n in range(5)]
    assert sizes == {"left": 3, "right": 2}


def test_a_check_of_params_works_for_vector_steps(datp: Kit) -> None:
    @datp.step("t/rate", vector=True)
    def rate(batch: Batch) -> None:
        for item in batch:
            item.done()

    @rate.check
    def params_ok(params: Any) -> list[str]:
        return [] if params.get("rate") else ["rate is missing"]

    with pytest.raises(PipelineInvalid, match="rate is missing"):
        datp.use(Pipeline("p").step("t/rate").build())


def test_a_vector_function_takes_one_argument(datp: Kit) -> None:
    with pytest.raises(StepTypeInvalid, match="one argument, the batch"):
        datp.step("t/two", vector=True)(lambda ctx, data: None)

    @datp.step("t/one", vector=True)
    def one(batch: Batch) -> None: ...

    with pytest.raises(StepTypeInvalid, match=r"rollback function .* one argument"):
        one.rollback(lambda ctx, data, output: None)
    with pytest.raises(StepTypeInvalid, match=r"probe .* one argument"):
        one.probe(lambda ctx, data: None)


def test_a_transactional_vector_step_cannot_be_async(datp: Kit) -> None:
    async def many(batch: Batch) -> None: ...

    with pytest.raises(StepTypeInvalid, match="cannot be async"):
        datp.step("t/sql", vector=True, transactional=True)(many)


def test_without_transactional_there_is_no_sql(datp: Kit) -> None:
    found: list[str] = []

    @datp.step("t/none", vector=True)
    def none(batch: Batch) -> None:
        for given in (batch, batch[0]):
            with pytest.raises(StepError) as error:
                _ = given.sql
            found.append(str(error.value))
        item: Item
        for item in batch:
            item.done()

    datp.use(Pipeline("p").step("t/none").build())
    assert datp.run("p", {}).status is Status.SUCCESS
    assert found == ["batch.sql is only there in steps declared with transactional=True"] * 2


def test_a_crash_in_the_middle_of_a_vector_step_runs_it_again_with_the_same_keys(
    datp: Kit,
) -> None:
    keys: list[str] = []

    @datp.step("t/send", vector=True)
    def send(batch: Batch) -> None:
        for item in batch:
            keys.append(item.idempotency_key)
            item.done()

    datp.use(Pipeline("p").step("t/send").build())
    datp.crash_at("hop.after_step")
    tx_ids = datp.submit_together("p", numbers(3))
    datp.recover()
    assert statuses(datp, tx_ids) == [Status.SUCCESS] * 3
    assert sorted(keys) == sorted(2 * [f"{tx_id}:0" for tx_id in tx_ids])
