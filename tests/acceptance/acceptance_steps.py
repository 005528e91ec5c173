"""Step types that the workers of this ring offer; what they do is written to Redis or SQL."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import time
from functools import cache
from typing import Any

from redis import Redis
from sqlalchemy import text

from datp_tasks import Call, Fail, step
from datp_tasks.engine.context import StepContext
from datp_tasks.live.connect import make_redis
from datp_tasks.settings import Settings

HELD_S_MAX = 60.0


@cache
def redis_of(pid: int) -> Redis:
    """A connection of this process; a child must not use the one of its parent."""
    return make_redis(Settings.from_env())


def note(topic: str, ctx: StepContext, **more: Any) -> None:
    """Write down who did what."""
    what = {"tx": ctx.tx_id, "pid": os.getpid(), "attempt": ctx.attempt, **more}
    redis_of(os.getpid()).rpush(f"notes:{topic}", json.dumps(what))


def wait_at_gate(ctx: StepContext) -> None:
    """Each try waits at the gate that the data names for it, if it does."""
    gates = ctx.data.get("gates", [])
    if ctx.attempt > len(gates):
        return
    name = gates[ctx.attempt - 1]
    ends_at_s = time.monotonic() + HELD_S_MAX
    while not redis_of(os.getpid()).exists(f"gate:{name}"):
        if time.monotonic() > ends_at_s:
            raise TimeoutError(f"nobody opened the gate {name}")
        time.sleep(0.01)


@step("acc/mark")
def mark(ctx: StepContext, data: dict[str, Any]) -> dict[str, Any]:
    """Says that it ran, and adds its word to the data."""
    word = ctx.params.get("word")
    note(ctx.params.get("topic", "mark"), ctx, word=word)
    return {**data, "words": [*data.get("words", []), word]} if word else data


@step("acc/hold", retry={"max_attempts": 1})
def hold(ctx: StepContext, data: dict[str, Any]) -> dict[str, Any]:
    """Waits at its gate; says who did it."""
    note("hold", ctx, key=ctx.idempotency_key)
    wait_at_gate(ctx)
    note("held", ctx)
    return {"pid": os.getpid(), "attempt": ctx.attempt}


@step("acc/review", on_crash="review")
def review(ctx: StepContext, data: dict[str, Any]) -> dict[str, Any]:
    """The same, for a step that must not be run again after a crash."""
    return dict(hold(ctx, data))


@step("acc/ask", on_crash="probe")
def ask(ctx: StepContext, data: dict[str, Any]) -> dict[str, Any]:
    """The same, for a step whose outside can be asked."""
    return dict(hold(ctx, data))


@ask.probe
def ask_outside(ctx: StepContext, data: dict[str, Any]) -> Any:
    from datp_tasks import Done, DontKnow, NotDone

    note("probe", ctx, key=ctx.idempotency_key)
    answers = {"done": Done({"probed": True}), "not-done": NotDone(), "unknown": DontKnow("?")}
    return answers[data["answer"]]


@step("acc/pay", transactional=True)
def pay(ctx: StepContext, data: dict[str, Any]) -> dict[str, Any]:
    """An effect in SQL, which must happen once."""
    note("pay", ctx)
    ctx.sql.execute(
        text("INSERT INTO payment (tx_id, step_key, slow) VALUES (:tx, :key, :slow)"),
        {"tx": ctx.tx_id, "key": ctx.idempotency_key, "slow": bool(data.get("slow"))},
    )
    wait_at_gate(ctx)
    if ctx.attempt == data.get("fails_at"):
        raise Fail("the data says so")
    return {**data, "paid": data.get("paid", 0) + 1}


@step("acc/pay-quietly", transactional=True, retry={"max_attempts": 1})
def pay_quietly(ctx: StepContext, data: dict[str, Any]) -> dict[str, Any]:
    """The same without a word to Redis, and without a second try."""
    ctx.sql.execute(
        text("INSERT INTO payment (tx_id, step_key, slow) VALUES (:tx, :key, false)"),
        {"tx": ctx.tx_id, "key": ctx.idempotency_key},
    )
    return {**data, "paid": data.get("paid", 0) + 1}


@step("acc/deaf", timeout_s=0.5)
def deaf(ctx: StepContext, data: dict[str, Any]) -> dict[str, Any]:
    """Its first try is stuck in C code, where no alarm and no exception reaches it."""
    note("deaf", ctx)
    if ctx.attempt <= data.get("stuck_tries", 1):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        ctypes.CDLL(None).sleep(600)
    return {"attempt": ctx.attempt}


@step("acc/frozen")
def frozen(ctx: StepContext, data: dict[str, Any]) -> dict[str, Any]:
    """Its first try holds the interpreter's lock, so that no thread of the process can run."""
    if ctx.attempt == 1:
        ctypes.PyDLL(None).sleep(600)
    return {"attempt": ctx.attempt}


@step("acc/call")
def call(ctx: StepContext, data: dict[str, Any]) -> Call:
    return Call(ctx.params["pipeline"], data)


@step("acc/pay-for-good", transactional=True, retry={"max_attempts": 1})
def pay_for_good(ctx: StepContext, data: dict[str, Any]) -> dict[str, Any]:
    """The same, which takes a while before its commit: an expiry may come in the meantime."""
    pay_quietly(ctx, data)
    time.sleep(data["hold_ms"] / 1_000)
    return data
