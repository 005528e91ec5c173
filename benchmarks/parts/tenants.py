"""Tenants beside each other: how much one that has far too much delays another.

A small tenant sends one transaction after the other; what counts is how long each takes, as
PostgreSQL says. It does so alone, and beside a large one, in turns:

- transactions: the large tenant has thousands queued at the same place, and they stay thousands;
- webhooks: the large one has a thousand receivers that never answer, and a long line of webhooks
  that are due, in SQL and on the schedule.

Each ratio is that of the medians within one turn; the figure is the median of the turns.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from statistics import median

from sqlalchemy import text

from benchmarks.bench import Bench
from benchmarks.engine import Engine
from benchmarks.parts.webhooks import receiver
from benchmarks.report import Figures
from benchmarks.stack import Stack
from datp_tasks import Pipeline, Request
from datp_tasks.live.webhook_schedule import LIST, OWNERS

GIVE_UP_S = 120.0
POLL_S = 0.01
LARGE, SMALL = "large", "small"
#: A command of Redis with more would hold up the others.
PLACED_AT_ONCE = 2_000

TOOK = """
SELECT extract(epoch FROM completed_at - created_at)::float AS took_s FROM tx_summary
WHERE tx_id = ANY(:tx_ids)
"""
DELAYED = """
SELECT extract(epoch FROM first_attempt_at - created_at)::float AS took_s FROM webhook_delivery
WHERE tx_id = ANY(:tx_ids)
"""
UNTOLD = "SELECT count(*) FROM webhook_delivery WHERE owner = 'small' AND first_attempt_at IS NULL"
OPEN = "SELECT count(*) FROM tx_summary WHERE owner = 'large' AND completed_at IS NULL"
TRIED = "SELECT count(*) FROM webhook_delivery WHERE owner = 'large' AND attempts > 0"
MANY = """
INSERT INTO webhook_delivery (id, tx_id, sequence, kind, owner, url, target, payload, begun_at,
                              next_at, created_at)
SELECT 'msg_' || tx_id || '_1', tx_id, 1, 'final', 'large', url, url, '{}', now(), now(), now()
FROM (SELECT format('t%s-%s', lpad((n % :shards)::text, 2, '0'), lpad(to_hex(n), 32, '0')) AS tx_id,
             :base || '/hang/' || n % :receivers AS url
      FROM generate_series(1, :count) AS n) AS v
"""


def run(bench: Bench) -> Figures:
    turns = bench.choose(5, 1, 2)
    load = os.getloadavg()[0]
    with bench.report.progress("tenants", 3 * turns) as step:
        figures: Figures = {}
        works: dict[str, Callable[[], tuple[float, float]]] = {
            "tenant_isolation_tx_ratio": lambda: _transactions(bench, "call"),
            "tenant_isolation_empty_tx_ratio": lambda: _transactions(bench, "three"),
            "tenant_isolation_webhook_ratio": lambda: _webhooks(bench),
        }
        for name, work in works.items():
            ratios = []
            for number in range(turns):
                what, began_s = f"{name}, turn {number + 1} of {turns}", time.monotonic()
                step.doing(what)
                ratios.append(work())
                step.done()
                # Also where the bar is not shown: a long run takes minutes.
                alone_ms, beside_ms = ratios[-1]
                bench.report.say(
                    f"{what}: alone {alone_ms:.1f} ms, beside {beside_ms:.1f} ms, "
                    f"after {time.monotonic() - began_s:.0f} s"
                )
            figures[name] = median(alone_beside[1] / alone_beside[0] for alone_beside in ratios)
            alone_ms, beside_ms = (median(each) for each in zip(*ratios, strict=True))
            bench.report.say(
                f"{name}: alone {alone_ms:.1f} ms, beside {beside_ms:.1f} ms, "
                f"ratio {figures[name]:.2f} (load of the machine before: {load:.1f})"
            )
    return figures


def _transactions(bench: Bench, pipeline: str) -> tuple[float, float]:
    """Milliseconds of the small one's, alone and beside a queue that is full."""
    singles = bench.choose(60, 10)
    queued = bench.choose(2_000, 200) if pipeline == "call" else bench.choose(20_000, 2_000)
    bench.stack.renew()
    engine = Engine(bench.stack)
    engine.use(Pipeline("call").step("bench/call").build())
    try:
        engine.start_worker()
        _one_by_one(engine, pipeline, singles // 2)
        alone = _times_ms(bench.stack, TOOK, _one_by_one(engine, pipeline, singles))
        _submit_large(engine, pipeline, queued)
        beside_ids = _one_by_one(engine, pipeline, singles)
        if not bench.stack.sql(OPEN):
            raise AssertionError("the queue of the large tenant was empty before the end")
        beside = _times_ms(bench.stack, TOOK, beside_ids)
    finally:
        engine.close()
    return median(alone), median(beside)


def _submit_large(engine: Engine, pipeline: str, count: int) -> None:
    requests = [Request(pipeline=pipeline, input={"n": n}, owner=LARGE) for n in range(count)]
    engine.client.submit_many(requests)


def _one_by_one(engine: Engine, pipeline: str, count: int, webhook: str | None = None) -> list[str]:
    tx_ids = []
    for number in range(count):
        made = engine.client.submit(pipeline, {"n": number}, owner=SMALL, webhook=webhook)
        engine.client.wait(made.tx_id, GIVE_UP_S)
        tx_ids.append(made.tx_id)
    return tx_ids


def _webhooks(bench: Bench) -> tuple[float, float]:
    """Milliseconds to the small one's first attempts, alone and beside a thousand that hang."""
    singles = bench.choose(100, 20)
    receivers = bench.choose(1_000, 100)
    pending = bench.choose(100_000, 2_000, 1_000_000)
    bench.stack.renew()
    with receiver(bench.stack) as base:
        engine = Engine(bench.stack, webhook_private_hosts=("127.0.0.1",))
        try:
            engine.start_worker()
            url = f"{base}/small"

            def measure() -> list[float]:
                tx_ids = _one_by_one(engine, "three", singles, url)
                _wait_until(lambda: not bench.stack.sql(UNTOLD))
                return _times_ms(bench.stack, DELAYED, tx_ids)

            measure()
            alone = measure()
            _make_pending(bench.stack, engine, base, receivers, pending)
            beside = measure()
            tried = bench.stack.sql(TRIED)
            if not 0 < tried < pending:
                raise AssertionError(
                    f"of {pending} webhooks of the large tenant {tried} were tried"
                )
        finally:
            engine.close()
    return median(alone), median(beside)


def _make_pending(stack: Stack, engine: Engine, base: str, receivers: int, count: int) -> None:
    """Rows and their places on the schedule, as if they had all become due."""
    live = engine.connections.live
    shards = len(live.shards)
    values = {"base": base, "receivers": receivers, "count": count, "shards": shards}
    with stack.engine.begin() as connection:
        connection.execute(text(MANY), values)
    due_ms = live.server_now_ms()
    for shard in live.shards:
        # In one command for many: a million calls of the script would take minutes.
        numbers = range(int(shard) or shards, count + 1, shards)
        members = [f"t{shard}-{n:032x}:1" for n in numbers]
        key = live.keys.in_shard(shard, f"{LIST}:{LARGE}")
        for start in range(0, len(members), PLACED_AT_ONCE):
            some = members[start : start + PLACED_AT_ONCE]
            live.send([("ZADD", key, *(part for each in some for part in (due_ms, each)))])
        if members:
            live.send([("ZADD", live.keys.in_shard(shard, OWNERS), "LT", due_ms, LARGE)])
    # One more as the product does it, which rings for a sender.
    engine.connections.webhooks.tell_due([(f"t00-{shards:032x}", 1, LARGE)])
    # Until as many hang as may.
    _wait_until(lambda: bool(stack.sql(TRIED)))
    time.sleep(1)


def _times_ms(stack: Stack, query: str, tx_ids: list[str]) -> list[float]:
    with stack.engine.connect() as connection:
        rows = connection.execute(text(query), {"tx_ids": tx_ids})
        return [row.took_s * 1_000 for row in rows]


def _wait_until(is_done: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + GIVE_UP_S
    while not is_done():
        if time.monotonic() > give_up_s:
            raise TimeoutError(f"not every webhook was tried after {GIVE_UP_S:g} s")
        time.sleep(POLL_S)
