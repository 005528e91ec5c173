"""The state on a Redis Cluster of three masters: its CPU per transaction, and how even that is.

Everything is on this machine, so the rate says little: the masters share its cores with the rest.
What a master needs does not depend on that, and the one with the most to do is the cap. The broker
stays on a server of its own.
"""

from __future__ import annotations

from contextlib import ExitStack
from statistics import median

from benchmarks.bench import Bench
from benchmarks.engine import Engine
from benchmarks.parts.cpu import MICROSECONDS
from benchmarks.process_times import own_s, snapshot
from benchmarks.report import Figures
from datp_tasks.local.redis_cluster import RedisCluster

MASTERS = 3


def run(bench: Bench) -> Figures:
    rounds, transactions = bench.choose((5, 5_000), (2, 600))
    with ExitStack() as ending:
        cluster = RedisCluster(bench.stack.folder / "cluster", masters=MASTERS)
        ending.callback(cluster.destroy)
        cluster.start()
        engine = Engine(
            bench.stack,
            redis_url=cluster.url,
            redis_cluster="on",
            broker_url=bench.stack.redis_server.url,
        )
        ending.callback(engine.close)
        with bench.report.progress("cluster", rounds) as step:
            step.doing("worker warms up")
            engine.start_worker()
            engine.many("three", transactions)
            before, rates = _used_s(cluster), []
            for number in range(rounds):
                step.doing(f"round {number + 1} of {rounds}")
                rates.append(engine.many("three", transactions))
                step.done()
            after = _used_s(cluster)
    per_tx = MICROSECONDS / (rounds * transactions)
    micros = [(after[each] - before[each]) * per_tx for each in range(MASTERS)]
    together = sum(micros)
    bench.report.table(
        f"CPU of a transaction of 3 steps on {MASTERS} masters, {transactions:,} at once: "
        f"{rounds} rounds at {median(rates):,.0f} tx/s",
        ("master", "µs per transaction", "of all"),
        [(f"{n + 1}", f"{each:,.0f}", f"{each / together:.0%}") for n, each in enumerate(micros)],
    )
    return {
        "cluster_three_step_tx_per_s": median(rates),
        "cluster_us_per_tx": together,
        "cluster_busiest_us_per_tx": max(micros),
    }


def _used_s(cluster: RedisCluster) -> list[float]:
    seen = snapshot()
    return [own_s(seen, each.pid) for each in cluster.masters if each.pid is not None]
