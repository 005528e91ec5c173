"""Webhooks: how many a second reach a receiver, and how soon the first attempt is made.

The receiver answers at once and runs in a process of its own. Transactions are run and told; then
all their webhooks are made due once more, so that nothing but sending is measured. For the delay
transactions come one after the other.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median, quantiles

from sqlalchemy import text

from benchmarks.bench import Bench
from benchmarks.engine import Engine
from benchmarks.report import Figures
from benchmarks.stack import Stack
from datp_tasks import Request
from datp_tasks.local.ports import pick_free_port

GIVE_UP_S = 120.0
POLL_S = 0.01
#: Targets on the one receiver, as a few customers have them.
TARGETS = 10

PENDING = "SELECT count(*) FROM webhook_delivery WHERE state <> 'delivered'"
FORGET = """
UPDATE webhook_delivery SET state = 'dead', finished_at = now() WHERE state = 'delivered'
"""
DELAYS = """
SELECT extract(epoch FROM first_attempt_at - created_at)::float AS delay_s FROM webhook_delivery
WHERE tx_id = ANY(:tx_ids)
"""


def run(bench: Bench) -> Figures:
    count = bench.choose(3_000, 600)
    rounds = bench.choose(5, 1)
    singles = bench.choose(200, 30)
    with (
        receiver(bench.stack) as base,
        bench.report.progress("webhooks", rounds + 1) as step,
    ):
        engine = Engine(bench.stack, webhook_private_hosts=("127.0.0.1",))
        try:
            engine.start_worker()
            both, rates = [], []
            for number in range(rounds):
                step.doing(f"{count} at once, round {number + 1} of {rounds}")
                both.append(_run_and_tell(bench.stack, engine, base, count))
                rates.append(_tell_again(bench.stack, engine))
                step.done()
            step.doing("one after the other")
            delays_ms = _one_by_one(bench.stack, engine, base, singles)
            step.done()
        finally:
            engine.close()
    cuts = quantiles(delays_ms, n=100)
    bench.report.table(
        f"Webhooks: {rounds} rounds of {count}, then {singles} one after the other",
        ("", "value"),
        (
            ("webhooks delivered a second", f"{median(rates):,.0f}"),
            ("transactions run and told a second", f"{median(both):,.0f}"),
            ("from the end to the first attempt, p50 ms", f"{cuts[49]:.1f}"),
            ("p99 ms", f"{cuts[98]:.1f}"),
        ),
    )
    return {"webhooks_per_s": median(rates), "webhook_first_attempt_p99_ms": cuts[98]}


def _run_and_tell(stack: Stack, engine: Engine, base: str, count: int) -> float:
    """From the first submit until the last one is told."""
    requests = [
        Request(pipeline="three", input={"n": n}, webhook=f"{base}/{n % TARGETS}")
        for n in range(count)
    ]
    began_s = time.perf_counter()
    engine.client.submit_many(requests)
    engine.wait_for_all()
    _wait_until_told(stack)
    return count / (time.perf_counter() - began_s)


def _tell_again(stack: Stack, engine: Engine) -> float:
    with stack.engine.begin() as connection:
        count = connection.execute(text(FORGET)).rowcount
    began_s = time.perf_counter()
    while engine.connections.webhooks.redeliver_dead():
        pass
    _wait_until_told(stack)
    return count / (time.perf_counter() - began_s)


def _one_by_one(stack: Stack, engine: Engine, base: str, count: int) -> list[float]:
    tx_ids = []
    for number in range(count):
        made = engine.client.submit("three", {"n": number}, webhook=f"{base}/{number % TARGETS}")
        engine.client.wait(made.tx_id, GIVE_UP_S)
        tx_ids.append(made.tx_id)
    _wait_until_told(stack)
    with stack.engine.connect() as connection:
        rows = connection.execute(text(DELAYS), {"tx_ids": tx_ids})
        return [row.delay_s * 1_000 for row in rows]


def _wait_until_told(stack: Stack) -> None:
    give_up_s = time.monotonic() + GIVE_UP_S
    while left := stack.sql(PENDING):
        if time.monotonic() > give_up_s:
            raise TimeoutError(f"{left} webhooks are not delivered after {GIVE_UP_S:g} s")
        time.sleep(POLL_S)


@contextmanager
def receiver(stack: Stack) -> Iterator[str]:
    port = pick_free_port()
    argv = (sys.executable, "-m", "benchmarks.webhook_receiver", str(port))
    process = stack.process("receiver", argv, {})
    process.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        stack.stop(process)
