"""Batches to ledgers: how many a second beside bare POSTs, what a tick costs, how long a takeover.

Everything goes to the stand-in, which is a process of its own and commits at once. A batch costs us
three commits in PostgreSQL, shared by the services of a run, and two requests; a bare POST costs
one request, and what became of it is recorded nowhere.
"""

from __future__ import annotations

import signal
import time
from statistics import median, quantiles
from typing import Any

from sqlalchemy import text

from benchmarks.bench import Bench
from benchmarks.ledger_stand import LedgerStand
from benchmarks.report import Figures
from datp_tasks.ledger.queuer import Queuer

#: Services -> batches of each in a round.
FULL = {1: 150, 10: 60, 100: 20}
QUICK = {1: 15, 10: 6, 100: 3}
TICK_SIZES = {"100": 100, "10k": 10_000, "100k": 100_000}
TICK_SIZES_QUICK = {"100": 100, "100k": 2_000}
DUE = 100
TAKEOVER_SERVICES = 100


def run(bench: Bench) -> Figures:
    return {**_throughput(bench), **_ticks(bench), **_takeover(bench)}


def _throughput(bench: Bench) -> Figures:
    rounds = bench.choose(3, 1)
    sizes = bench.choose(FULL, QUICK)
    figures: Figures = {}
    rows = []
    stand = LedgerStand(bench.stack)
    stand.options(commit_ms=0, pending_max=1_000_000)
    with bench.report.progress("ledger", rounds * len(sizes)) as step:
        worker = stand.start_worker("--concurrency", "2")
        try:
            for count, each in sizes.items():
                stand.empty()
                services = stand.services(count)
                stand.wait_until_claimed()
                stand.run(stand.batches("warm up", services, 2))
                ours, bare = [], []
                for number in range(rounds):
                    step.doing(f"{count} services, round {number + 1} of {rounds}")
                    ours.append(stand.run(stand.batches(f"{count}-{number}", services, each)))
                    posts = stand.batches(f"bare {count}-{number}", services, each)
                    bare.append(stand.bare_posts(posts[:2_000]))
                    step.done()
                ratios = [mine / other for mine, other in zip(ours, bare, strict=True)]
                figures[f"ledger_batches_per_s_{count}"] = median(ours)
                figures["ledger_bare_posts_per_s"] = median(bare)
                figures["ledger_ratio_to_bare_posts"] = median(ratios)
                shown = (f"{value:,.0f}" for value in (median(ours), median(bare)))
                rows.append((f"{count} services", *shown, f"{median(ratios):.2f}"))
            stand.stop_worker(worker)
        finally:
            stand.close()
    bench.report.table(
        f"Batches to the stand-in: median of {rounds} alternating rounds",
        ("", "batches/s, committed", "bare POSTs/s", "ratio"),
        rows,
    )
    return figures


def _ticks(bench: Bench) -> Figures:
    """A quiet tick with a hundred services due, among so many that are not."""
    stand = LedgerStand(bench.stack)
    figures: Figures = {}
    rows = []
    try:
        for name, count in bench.choose(TICK_SIZES, TICK_SIZES_QUICK).items():
            stand.empty()
            _fill(stand, count)
            rung: list[Any] = []
            queuer = _queuer(stand, rung)
            while queuer.tick().claimed:
                pass
            _vacuum(stand)
            quiet = [_timed_ms(stand, queuer, due=0) for _ in range(bench.choose(30, 5))]
            busy = [_timed_ms(stand, queuer, due=DUE) for _ in range(bench.choose(30, 5))]
            queuer.leave()
            figures[f"queuer_tick_ms_{name}"] = median(busy)
            figures[f"queuer_quiet_tick_ms_{name}"] = median(quiet)
            rows.append((f"{count:,} services", f"{median(quiet):.1f}", f"{median(busy):.1f}"))
        stand.empty()
    finally:
        stand.close()
    bench.report.table(
        "A tick of the queuer, median", ("", "nothing due, ms", f"{DUE} due, ms"), rows
    )
    return figures


def _queuer(stand: LedgerStand, rung: list[Any]) -> Queuer:
    """The queuer of this process; its messages go nowhere."""

    def ring(works: Any) -> list[Any]:
        rung.extend(works)
        return []

    claims = stand.connections.ledger.claims
    return Queuer(claims=claims, ring=ring, do=rung.extend)


def _fill(stand: LedgerStand, count: int) -> None:
    with stand.stack.engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO ledger_service (service_id, kind, url, created_at)"
                " SELECT 's' || n, 'sawtooth', :url, now() FROM generate_series(1, :count) n"
            ),
            {"url": stand.url, "count": count},
        )
        connection.execute(
            text("INSERT INTO service_claim (service_id) SELECT service_id FROM ledger_service")
        )
        connection.execute(
            text(
                "INSERT INTO ledger_batch (service_id, batch_id, seq, owner, fingerprint, payload,"
                " next_at, created_at) SELECT 's' || n, 'b' || k, k, 'o', '', '', now(), now()"
                " FROM generate_series(1, :due) n, generate_series(1, 10) k"
            ),
            {"due": DUE},
        )
    _vacuum(stand)


def _vacuum(stand: LedgerStand) -> None:
    """As PostgreSQL does by itself some time after so many changes."""
    with stand.stack.engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT")
        connection.execute(text("VACUUM ANALYZE service_claim, ledger_batch"))


def _timed_ms(stand: LedgerStand, queuer: Queuer, due: int) -> float:
    with stand.stack.engine.begin() as connection:
        connection.execute(
            text(
                "UPDATE service_claim SET due_at = CASE WHEN substr(service_id, 2)::int <= :due"
                " THEN now() ELSE 'infinity' END WHERE substr(service_id, 2)::int <= :all"
            ),
            {"due": due, "all": DUE},
        )
    began_s = time.perf_counter()
    found = queuer.tick().rung
    took_ms = (time.perf_counter() - began_s) * 1_000
    if found != due:
        raise AssertionError(f"{found} services were due, not {due}")
    return took_ms


def _takeover(bench: Bench) -> Figures:
    """Two instances under load; one is killed. How long its services stand still."""
    quick: dict[str, float] = {
        "ledger_claim_ttl_s": 3,
        "ledger_http_s": 1,
        "ledger_post_budget_s": 1.5,
        "ledger_grace_s": 2,
        "claim_queuer_period_s": 0.5,
    }
    stand = LedgerStand(bench.stack, **bench.choose({}, quick))
    settings = stand.connections.settings
    services_count = bench.choose(TAKEOVER_SERVICES, 10)
    try:
        stand.empty()
        stand.options(commit_ms=500, pending_max=1_000_000)
        services = stand.services(services_count)
        victim, other = (stand.start_worker("--pool", "solo") for _ in range(2))
        _wait_for_shares(stand, services_count)
        # Half a second each: enough to outlast the lease.
        each = int(settings.ledger_claim_ttl_s) + bench.choose(10, 3)
        stand.client.submit_batches(stand.batches("takeover", services, each))
        time.sleep(2)
        lost = _claims_of(stand, str(victim.pid))
        killed_at = stand.stack.sql("SELECT (extract(epoch FROM now()) * 1000)::bigint")
        victim.send_signal(signal.SIGKILL)
        stand.wait_until_final()
        waits = _standstills_s(stand, lost, killed_at)
        stand.stop_worker(other)
        stand.empty()
    finally:
        stand.close()
    p99 = quantiles(waits, n=100)[98] if len(waits) > 1 else waits[0]
    bound_s = settings.ledger_claim_ttl_s + settings.claim_queuer_period_s + settings.ledger_grace_s
    bench.report.table(
        f"A killed instance: {len(waits)} services until their next submission by another",
        ("", "seconds"),
        (
            ("median", f"{median(waits):.1f}"),
            ("p99", f"{p99:.1f}"),
            ("longest", f"{max(waits):.1f}"),
            ("lease + tick + grace", f"{bound_s:.1f}"),
        ),
    )
    return {"ledger_takeover_p50_s": median(waits), "ledger_takeover_p99_s": p99}


def _wait_for_shares(stand: LedgerStand, services: int) -> None:
    query = "SELECT count(*) FROM (SELECT 1 FROM service_claim GROUP BY claimant HAVING count(*)"
    query += f" BETWEEN {int(services * 0.4)} AND {int(services * 0.6) + 1}) AS even"
    stand._wait_for(lambda: stand.stack.sql(query) == 2)


def _claims_of(stand: LedgerStand, pid: str) -> dict[str, int]:
    """Services and epochs of the instance with this process id."""
    with stand.stack.engine.connect() as connection:
        rows = connection.execute(
            text(
                "SELECT service_id, epoch FROM service_claim"
                " WHERE split_part(claimant, '-', -2) = :pid"
            ),
            {"pid": pid},
        )
        found = {row.service_id: row.epoch for row in rows}
    if not found:
        raise AssertionError(f"the process {pid} has claimed nothing")
    return found


def _standstills_s(stand: LedgerStand, lost: dict[str, int], killed_at_ms: int) -> list[float]:
    """From the kill to the first attempt under a higher epoch, of each service."""
    with stand.stack.engine.connect() as connection:
        rows = connection.execute(
            text(
                "SELECT service_id, epoch, extract(epoch FROM min(begun_at))::float8 AS begun_s"
                " FROM batch_attempt GROUP BY service_id, epoch"
            )
        )
        first: dict[str, float] = {}
        for row in rows:
            if row.service_id in lost and row.epoch > lost[row.service_id]:
                begun_s = first.get(row.service_id, row.begun_s)
                first[row.service_id] = min(begun_s, row.begun_s)
    if first.keys() != lost.keys():
        raise AssertionError("some services were not taken over")
    return [begun_s - killed_at_ms / 1_000 for begun_s in first.values()]
