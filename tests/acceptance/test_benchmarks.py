"""The benchmark runs, cleans up, and writes the figures that others read; not how fast it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from redis import Redis

from benchmarks.engine import Engine
from benchmarks.report import save
from benchmarks.stack import ROOT, Stack

pytestmark = pytest.mark.acceptance

#: Name -> the lowest and the highest value that make sense on any machine.
SANE = {
    "three_step_tx_per_s": (10, 1_000_000),
    "ten_step_tx_per_s": (10, 1_000_000),
    "celery_chain_three_per_s": (1, 100_000),
    "three_step_ratio_to_celery_chain": (1, 1_000),
    "ten_step_ratio_to_celery_chain": (1, 1_000),
    "one_tx_p50_ms": (0.5, 2_000),
    "one_tx_p99_ms": (0.5, 10_000),
    # A bell has at most two hundred transactions, and a transaction needs one.
    "messages_per_tx": (0.005, 1),
    "commits_per_tx": (0.005, 2),
    "redis_round_trips_per_tx": (0.02, 10),
    "scripts_per_tx": (0.01, 10),
    "redis_calls_per_tx": (0.5, 100),
    "redis_bytes_per_tx": (100, 20_000),
    "redis_bytes_per_queued_tx": (200, 1_536),
    "one_tx_p50_ratio_to_chain": (0.05, 20),
    # A small machine that is busy may take ten times what a quiet one does; none takes nothing.
    "worker_us_per_tx": (10, 10_000),
    "worker_main_us_per_tx": (0, 5_000),
    "valkey_us_per_tx": (5, 10_000),
    "client_us_per_tx": (10, 10_000),
    "postgres_us_per_tx": (5, 10_000),
    "transfer_flat_per_s": (1, 100_000),
    "transfer_whole_per_s": (1, 100_000),
    "transfer_set_based_per_s": (10, 1_000_000),
    "transfer_ratio_to_celery_chain": (0.05, 1_000),
    "transfer_ratio_to_bare_sql": (0.02, 1_000),
    "sustained_tx_per_s": (10, 1_000_000),
    "sustained_ratio_to_peak": (0.05, 10),
    "backlog_300k_ratio": (0.05, 20),
    "steady_50_p50_ms": (1, 60_000),
    "steady_50_p99_ms": (1, 60_000),
    "steady_200_p50_ms": (1, 60_000),
    "steady_200_p99_ms": (1, 60_000),
    # Of small data nothing can be said but that both handlers work.
    "timeout_window_ratio_to_seed": (0.01, 1_000),
    "timeout_idle_tick_ms_100k": (0.1, 1_000),
    "timeout_idle_tick_ms_3500k": (0.1, 1_000),
    "timeout_1000_due_ms": (1, 60_000),
    "ledger_batches_per_s_1": (1, 10_000),
    "ledger_batches_per_s_100": (5, 100_000),
    "ledger_ratio_to_bare_posts": (0.005, 100),
    "queuer_tick_ms_100": (0.5, 1_000),
    "queuer_tick_ms_100k": (0.5, 1_000),
    "http_accepts_per_s": (5, 1_000_000),
    "http_accept_ratio_to_bare_insert": (0.05, 100),
    "http_accept_cpu_us": (50, 50_000),
    "http_bare_insert_cpu_us": (50, 50_000),
    "http_bulk_accepts_per_s": (50, 1_000_000),
    "http_accept_p50_ms": (0.2, 10_000),
    "http_accept_p99_ms": (0.5, 30_000),
    "long_poll_2000_p99_ms": (0.5, 10_000),
    # The lease of a quick run is three seconds.
    "ledger_takeover_p99_s": (1, 60),
    # A quick run has short periods.
    "resume_after_kill_p99_s": (0.3, 60),
    "archive_ratio_to_copy": (0.01, 2),
    "resurrections_per_s": (10, 1_000_000),
    "rebuild_100k_seconds": (0.5, 10_000),
    "redis_mb_after_400k": (0.1, 100),
    "webhooks_per_s": (5, 100_000),
    "webhook_first_attempt_p99_ms": (1, 10_000),
    "event_feed_lag_p50_ms": (1, 10_000),
    "event_feed_lag_p99_ms": (1, 10_000),
    "event_feed_us_per_event": (1, 10_000),
    "event_feed_events_per_s": (5, 1_000_000),
    "tenant_isolation_tx_ratio": (0.1, 20),
    "tenant_isolation_empty_tx_ratio": (0.1, 50),
    "tenant_isolation_webhook_ratio": (0.05, 20),
}


#: What `make test` has time for; the others run with DATP_TEST_BENCH=all.
SHORT = {
    "latency": ("one_tx_p50_ms", "one_tx_p99_ms", "one_tx_p50_ratio_to_chain"),
    "costs": (
        *("messages_per_tx", "commits_per_tx", "redis_round_trips_per_tx"),
        *("scripts_per_tx", "redis_calls_per_tx", "redis_bytes_per_tx"),
    ),
    "cpu": ("worker_us_per_tx", "valkey_us_per_tx", "client_us_per_tx", "postgres_us_per_tx"),
    "memory": ("redis_bytes_per_queued_tx",),
}


@pytest.mark.timeout(900)
def test_a_quick_run_takes_every_figure_and_leaves_nothing_behind(tmp_path: Path) -> None:
    whole = os.environ.get("DATP_TEST_BENCH") == "all"
    wanted = SANE.keys() if whole else {name for names in SHORT.values() for name in names}
    output, data = tmp_path / "figures.json", tmp_path / "data"
    options = ["--quick", "--output", str(output), "--data", str(data)]
    only = [] if whole else [word for part in SHORT for word in ("--only", part)]
    command = [sys.executable, "-m", "benchmarks", *options, *only]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=880)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(output.read_text())
    strange = {
        name: figures[name]
        for name, (low, high) in SANE.items()
        if name in figures and not low <= figures[name] <= high
    }
    assert (wanted - figures.keys(), strange) == (set(), {})
    assert figures["one_tx_p50_ms"] <= figures["one_tx_p99_ms"]
    assert "fsync on" in done.stdout
    assert "appendonly yes" in done.stdout
    assert list(data.iterdir()) == []


def test_a_part_meets_nothing_that_another_left(tmp_path: Path) -> None:
    with Stack(tmp_path) as stack:
        engine = Engine(stack)
        # No worker has run: it waits in SQL, in Redis and in the queue.
        engine.client.submit("three", {"n": 1})
        with Redis.from_url(stack.chain_url) as chain:
            chain.set("left", "behind")
        left = stack.process("left", ("sleep", "600"), {})
        left.start()
        before = stack.database_url
        engine.close()
        stack.renew()
        assert not left.is_running()
        assert stack.database_url != before
        assert stack.sql("SELECT count(*) FROM tx_summary") == 0
        assert stack.redis.info("keyspace") == {}
        # And it can be worked with: the tables are there.
        again = Engine(stack)
        again.client.submit("three", {"n": 1})
        again.close()
        assert stack.sql("SELECT count(*) FROM tx_summary") == 1
    assert list(tmp_path.iterdir()) == []


def test_figures_that_a_run_did_not_take_stay_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    save({"one": 1, "two": 2}, path)
    save({"two": 2.34567}, path)
    assert json.loads(path.read_text()) == {"one": 1.0, "two": 2.346}
