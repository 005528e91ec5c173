"""Read by mypy only: what the decorator makes of a function, and mistakes that it finds.

`warn_unused_ignores` turns a mistake that mypy does not find any more into an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_type

from datp_tasks import (
    Abort,
    Batch,
    Call,
    Done,
    DontKnow,
    Fail,
    Item,
    NotDone,
    Pipeline,
    Sleep,
    StepContext,
    step,
)
from datp_tasks.engine.registry import StepType
from datp_tasks.model.backoff import RetryPolicy
from datp_tasks.model.pipeline import PipelineDefinition


@step("typing/plain")
def plain(ctx: StepContext, data: dict[str, Any]) -> dict[str, Any]:
    assert_type(ctx.tx_id, str)
    assert_type(ctx.attempt, int)
    assert_type(ctx.switch("kyc"), bool | int | float | str | None)
    assert_type(ctx.params, Mapping[str, Any])
    ctx.set_switch("kyc", [])  # type: ignore[arg-type]
    return data


@step("typing/many", retry={"max_attempts": 5}, timeout_s=30, on_crash="probe")
def many(ctx: StepContext, data: dict[str, Any]) -> dict[str, Any] | Sleep | Call | None:
    if "a" in data:
        return Sleep(seconds=1, switch="kyc")
    if "b" in data:
        return Call("child", data)
    if "c" in data:
        raise Fail("no", {"why": 1})
    raise Abort("no")


@many.probe
def look(ctx: StepContext, data: dict[str, Any]) -> Done | NotDone | DontKnow:
    return Done({"n": 1})


@many.rollback
def undo(ctx: StepContext, data: dict[str, Any], output: dict[str, Any]) -> None: ...


@plain.rollback(partial=True)
def undo_partly(ctx: StepContext, data: dict[str, Any], output: dict[str, Any] | None) -> None: ...


@many.check
def params_ok(params: Mapping[str, Any]) -> list[str]:
    return []


@step("typing/async", retry=RetryPolicy(max_attempts=1))
async def concurrent(ctx: StepContext, data: dict[str, Any]) -> None: ...


@step("typing/vector", vector=True, transactional=True)
def vector(batch: Batch) -> None:
    assert_type(batch[0], Item)
    assert_type(batch[1:], list[Item])
    assert_type(batch.item("t00"), Item)
    assert_type(len(batch), int)
    batch.sql.exec_driver_sql("SELECT 1")
    for item in batch:
        assert_type(item.tx_id, str)
        assert_type(item.idempotency_key, str)
        assert_type(item.data, dict[str, Any])
        match item.attempt:
            case 1:
                item.done({**item.data, "n": 1})
            case 2:
                item.fail("no", {"why": 1})
            case 3:
                item.abort("no")
            case 4:
                item.sleep(60, switch="kyc")
            case 5:
                item.call("child", {"n": 1})
            case _:
                item.retry("later")
        item.done("n")  # type: ignore[arg-type]
        item.sleep("soon")  # type: ignore[arg-type]
        item.succeed()  # type: ignore[attr-defined]


@vector.rollback
def undo_vector(batch: Batch) -> None:
    for item in batch:
        assert_type(item.output, dict[str, Any] | None)
        item.done()


@step("typing/vector-async", vector=True, on_crash="probe")
async def vector_async(batch: Batch) -> None: ...


@vector_async.probe
async def look_vector(batch: Batch) -> None:
    for item in batch:
        item.not_done() if item.attempt else item.dont_know("no line")


assert_type(vector, StepType)
assert_type(vector_async, StepType)
step("typing/wrong", vector="yes")  # type: ignore[arg-type]
assert_type(plain, StepType)
assert_type(many, StepType)
assert_type(concurrent, StepType)
assert_type(plain.name, str)
assert_type(Pipeline("p").step("typing/plain").build(), PipelineDefinition)

step("typing/wrong", on_crash="ignore")  # type: ignore[arg-type]
step("typing/wrong", timeout="30")  # type: ignore[call-arg]
Sleep(seconds="soon")  # type: ignore[arg-type]
Call("child", ["a"])  # type: ignore[arg-type]
Pipeline("p").step("typing/plain", dispatch="later")  # type: ignore[arg-type]
