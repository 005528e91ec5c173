"""The API: accepts a second, alone and in bulk, and long polls; beside a bare FastAPI handler.

The bare handler does one committed INSERT and nothing else. Rounds alternate between the two
sides and each ratio is taken within a round, so that both meet the same weather.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

import httpx

from benchmarks.bench import Bench
from benchmarks.http_load import load
from benchmarks.process_times import own_s, snapshot
from benchmarks.report import Figures
from datp_tasks import Pipeline, Settings
from datp_tasks.local.ports import pick_free_port
from datp_tasks.model.actor import Actor, Role
from datp_tasks.record.api_keys import ApiKeys
from datp_tasks.runtime.clients import make_client
from datp_tasks.runtime.container import Container
from datp_tasks.settings import environment

PEPPER = "a pepper for benchmarks, long enough"
#: The server is measured, not what an owner is allowed.
NO_LIMITS = {
    "owner_requests_per_s": 1_000_000,
    "owner_burst_max": 10_000_000,
    "owner_in_flight_max": 100_000_000,
}
CONNECTIONS = 32
#: Of the key that loads the server.
OWNER = "bench"
BULK_ITEMS = 500
ONE = {"pipeline": "three", "input": {"n": 1}}
GIVE_UP_S = 120.0


def run(bench: Bench) -> Figures:
    rounds = bench.choose(7, 2)
    requests = bench.choose(3_000, 200)
    bulks = bench.choose(20, 2)
    crowd = bench.choose(2_000, 100)
    # The cost of the steps must be known, as it is wherever a worker has run; then the worker
    # rests, so that accepting is all that is measured.
    bench.engine.start_worker()
    bench.engine.stop_worker()
    with (
        served(bench) as api,
        _bare(bench) as bare,
        bench.report.progress("http", 3 * rounds + 1) as step,
    ):
        ours: list[Posted] = []
        theirs: list[Posted] = []
        bulk: list[float] = []
        for side in (api, bare):
            post(side, json.dumps(ONE), requests // 4)
        for _ in range(rounds):
            step.doing("one by one")
            ours.append(post(api, json.dumps(ONE), requests))
            step.done()
            step.doing("a bare handler")
            theirs.append(post(bare, json.dumps(ONE), requests))
            step.done()
            step.doing("in bulk")
            body = json.dumps({"transactions": [ONE] * BULK_ITEMS})
            bulk.append(post(api, body, bulks, path="/v1/transactions/bulk", connections=2).per_s)
            step.done()
        step.doing("long polls")
        late_ms = _long_polls(bench, api, crowd)
        step.done()
    return _report(bench, ours, theirs, bulk, late_ms, crowd)


@dataclass(frozen=True)
class Side:
    """A server under load."""

    port: int
    key: str
    path: str
    pid: int


@dataclass(frozen=True)
class Posted:
    per_s: float
    p50_ms: float
    p99_ms: float
    #: Of the server's process for one request, all its threads.
    cpu_us: float


def post(
    side: Side, body: str, requests: int, *, path: str = "", connections: int = CONNECTIONS
) -> Posted:
    order = {
        "what": "post",
        "port": side.port,
        "key": side.key,
        "path": path or side.path,
        "body": body,
        "requests": requests,
        "connections": connections,
    }
    before_s = own_s(snapshot(), side.pid)
    found = load(order, GIVE_UP_S)
    cpu_us = (own_s(snapshot(), side.pid) - before_s) * 1e6 / requests
    cuts = quantiles(found["took_s"], n=100)
    return Posted(requests / found["seconds"], cuts[49] * 1_000, cuts[98] * 1_000, cpu_us)


def _long_polls(bench: Bench, api: Side, crowd: int) -> list[float]:
    """All wait; then all end, a few milliseconds apart. How late each answer is, after its end."""
    settings = _settings(bench)
    connections = Container.open(settings)
    with make_client(connections) as client:
        _forget_accepted(connections)
        applied = connections.pipelines.apply(
            Pipeline("held").step("util/wait", params={"switch": "go"}).build()
        )
        connections.pipelines.use(applied.name, applied.version)
        bench.engine.start_worker()
        url = f"http://127.0.0.1:{api.port}"
        headers = {"Authorization": f"Bearer {api.key}"}
        keys = ApiKeys(connections.engine, connections.clock, PEPPER)
        viewer = keys.create("viewer", Role.VIEWER, actor=Actor(name="bench")).text
        tx_ids: list[str] = []
        while len(tx_ids) < crowd:
            items = [{"pipeline": "held", "input": {}}] * min(500, crowd - len(tx_ids))
            body = {"transactions": items}
            answer = httpx.post(f"{url}/v1/transactions/bulk", json=body, headers=headers)
            tx_ids += [each["txId"] for each in answer.json()["results"]]
        _wait(lambda: connections.live.sizes()["sleepingZ"] >= crowd)

        def end_all() -> None:
            _wait(lambda: _waiting(url, viewer) >= crowd)
            for tx_id in tx_ids:
                client.set_switch(tx_id, "go", True)

        ending = threading.Thread(target=end_all)
        ending.start()
        order = {"what": "poll", "port": api.port, "key": api.key, "tx_ids": tx_ids}
        answered_s = load(order, GIVE_UP_S)["answered_s"]
        ending.join()
        rows = connections.record.summaries(tx_ids)
    ended_s = {row.tx_id: row.completed_at.timestamp() for row in rows if row.completed_at}
    return [(answered_s[tx_id] - ended_s[tx_id]) * 1_000 for tx_id in tx_ids]


def _waiting(url: str, key: str) -> float:
    """How many long polls wait in this process."""
    page = httpx.get(f"{url}/metrics", headers={"Authorization": f"Bearer {key}"}).text
    found = re.search(r"^datp_api_long_polls (\S+)", page, re.MULTILINE)
    return float(found[1]) if found else 0.0


def _forget_accepted(connections: Container) -> None:
    """No worker has run them, and they would only keep the next one busy."""
    connections.redis.flushdb()
    with connections.engine.begin() as sql:
        sql.exec_driver_sql("TRUNCATE tx_summary, tx_state_change")
    connections.pipelines.refresh_all()


def _wait(holds: Any) -> None:
    give_up_s = time.monotonic() + GIVE_UP_S
    while not holds():
        if time.monotonic() > give_up_s:
            raise TimeoutError("the long polls did not get so far")
        time.sleep(0.05)


def _settings(bench: Bench) -> Settings:
    return Settings.from_env(api_environment(bench))


def api_environment(bench: Bench) -> dict[str, str]:
    return {
        **bench.stack.environment,
        "DATP_STEPS": "benchmarks.steps",
        "DATP_KEY_PEPPER": PEPPER,
        **environment(NO_LIMITS),
    }


@contextmanager
def served(bench: Bench) -> Iterator[Side]:
    """A process of the API, and a key of OWNER."""
    connections = Container.open(_settings(bench))
    keys = ApiKeys(connections.engine, connections.clock, PEPPER)
    key = keys.create(OWNER, actor=Actor(name="bench")).text
    connections.close()
    program = "from datp_tasks.cli import main; main()"
    port = pick_free_port()
    argv = (sys.executable, "-W", "ignore", "-c", program, "api", "--port", str(port))
    with _process(bench, "api", argv, port) as pid:
        yield Side(port, key, "/v1/transactions", pid)


@contextmanager
def _bare(bench: Bench) -> Iterator[Side]:
    port = pick_free_port()
    argv = (
        *(sys.executable, "-W", "ignore", "-m", "uvicorn", "--factory", "benchmarks.bare_api:make"),
        *("--port", str(port), "--loop", "uvloop", "--http", "httptools"),
        *("--log-level", "warning", "--no-access-log"),
    )
    with _process(bench, "bare", argv, port) as pid:
        yield Side(port, "none", "/accept", pid)


@contextmanager
def _process(bench: Bench, name: str, argv: tuple[str, ...], port: int) -> Iterator[int]:
    process = bench.stack.process(name, argv, api_environment(bench))
    process.start()
    try:
        _wait(lambda: _lives(port))
        assert process.pid is not None
        yield process.pid
    finally:
        bench.stack.stop(process)


def _lives(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/healthz").status_code == 200
    except httpx.TransportError:
        return False


def _report(
    bench: Bench,
    ours: list[Posted],
    theirs: list[Posted],
    bulk: list[float],
    late_ms: list[float],
    crowd: int,
) -> Figures:
    ratios = [us.per_s / bare.per_s for us, bare in zip(ours, theirs, strict=True)]
    per_s, bare_per_s = median(p.per_s for p in ours), median(p.per_s for p in theirs)
    bulk_per_s = median(bulk) * BULK_ITEMS
    late_p99 = quantiles(late_ms, n=100)[98]
    rows = [
        (
            name,
            f"{rate:,.0f}",
            *(f"{median(getattr(p, one) for p in side):.1f}" for one in ("p50_ms", "p99_ms")),
            f"{median(p.cpu_us for p in side):.0f}",
        )
        for name, side, rate in (
            ("POST /v1/transactions", ours, per_s),
            ("a bare handler, one INSERT", theirs, bare_per_s),
        )
    ]
    rows.append((f"in bulk, {BULK_ITEMS} each", f"{bulk_per_s:,.0f}", "", "", ""))
    bench.report.table(
        f"Accepts over HTTP, one process, {CONNECTIONS} connections; "
        f"{crowd} long polls are answered {median(late_ms):.0f} ms (p50), {late_p99:.0f} ms (p99) "
        "after the end",
        ("", "a second", "p50 ms", "p99 ms", "CPU µs"),
        tuple(rows),
    )
    return {
        "http_accepts_per_s": per_s,
        "http_accept_ratio_to_bare_insert": median(ratios),
        "http_accept_cpu_us": median(p.cpu_us for p in ours),
        "http_bare_insert_cpu_us": median(p.cpu_us for p in theirs),
        "http_bulk_accepts_per_s": bulk_per_s,
        "http_accept_p50_ms": median(p.p50_ms for p in ours),
        "http_accept_p99_ms": median(p.p99_ms for p in ours),
        "long_poll_2000_p99_ms": late_p99,
    }
