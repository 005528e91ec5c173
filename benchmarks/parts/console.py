"""The console over a million transactions: how long its pages take, and what a hundred tabs cost.

The history is put in by SQL; what is open was accepted by the client, so that Redis has it too.
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median, quantiles

import httpx
from sqlalchemy import text

from benchmarks.bench import Bench
from benchmarks.parts.http import PEPPER, api_environment
from benchmarks.process_times import own_s, snapshot
from benchmarks.report import Figures
from datp_tasks import Settings
from datp_tasks.client.requests import Request
from datp_tasks.local.ports import pick_free_port
from datp_tasks.model.actor import Actor, Role
from datp_tasks.record.api_keys import ApiKeys
from datp_tasks.runtime.clients import make_client
from datp_tasks.runtime.container import Container

TABS = 100
TABS_S = 10.0
GIVE_UP_S = 60.0
#: In one statement, below the time that a statement may take.
FILL_ROWS = 50_000
LISTS = (
    "/transactions",
    "/transactions?status=queued",
    "/transactions?status=failed",
    "/transactions?status=internal-error&pipeline=three",
    "/transactions?owner=owner-7",
    "/transactions?pipeline=three",
    "/transactions?from=2026-01-01&to=2036-01-01",
    "/in-doubt",
    "/now",
)
#: All other pages that need no name of anything; those of one thing cost less than their list.
OTHERS = (
    *("/alerts", "/approvals", "/pipelines", "/pipelines/three", "/drafts?pipeline=three"),
    *("/groups", "/groups/master", "/webhooks", "/endpoints/new", "/ledgers", "/services/new"),
    *("/timeouts", "/metrics", "/metrics?span=coarse", "/audit", "/audit/chain", "/try"),
    *("/search?q=nothing", "/bulk/cancel?owner=owner-7&status=queued"),
)
#: One in a hundred failed, one in a thousand broke; twenty owners.
FILL = """
INSERT INTO tx_summary (tx_id, owner, external_id, fingerprint, pipeline, version, status, input,
                        output, note, created_at, completed_at)
SELECT 't' || lpad((n % 16)::text, 2, '0') || '-' || md5(n::text), 'owner-' || n % 20,
       'order-' || n, md5(n::text), 'three', :version,
       CASE WHEN n % 1000 = 7 THEN 'internal-error' WHEN n % 100 = 3 THEN 'failed'
            ELSE 'success' END,
       '{"n": 1}', '{"n": 1}', NULL, now() - n * interval '1 second',
       now() - n * interval '1 second' + interval '40 milliseconds'
FROM generate_series(:first, :last) n
"""


def run(bench: Bench) -> Figures:
    rows = bench.choose(1_000_000, 5_000)
    still_open = bench.choose(10_000, 100)
    rounds = bench.choose(40, 2)
    bench.engine.start_worker()
    bench.engine.many("three", 20)
    bench.engine.stop_worker()
    with bench.report.progress("console", 4) as step:
        step.doing(f"{rows:,} transactions")
        chosen = _fill(bench, rows, still_open)
        step.done()
        with _served(bench) as (url, cookie, pid):
            step.doing("lists")
            with httpx.Client(base_url=url, headers={"cookie": cookie}, timeout=30) as http:
                lists = {path: _timed(http, path, rounds) for path in LISTS}
                others = {path: _timed(http, path, rounds) for path in OTHERS}
                step.done()
                step.doing("transactions")
                ones = [
                    took
                    for tx_id in chosen
                    for took in _timed(http, f"/transactions/{tx_id}", rounds)
                ]
            step.done()
            step.doing(f"{TABS} tabs")
            cores = _tabs(url, cookie, pid)
            step.done()
    together = [took for times in lists.values() for took in times]
    bench.report.table(
        f"The console, {rows:,} transactions, {still_open:,} open",
        ("page", "p50 ms", "p95 ms"),
        [
            *(
                (path, f"{median(times):.0f}", f"{_p95(times):.0f}")
                for path, times in {**lists, **others}.items()
            ),
            ("one transaction", f"{median(ones):.0f}", f"{_p95(ones):.0f}"),
        ],
    )
    bench.report.say(f"{TABS} tabs on Now cost the API {cores:.3f} cores")
    return {
        "console_list_p95_ms": _p95(together),
        "console_transaction_p95_ms": _p95(ones),
        "console_slowest_page_p95_ms": max(map(_p95, (*lists.values(), *others.values(), ones))),
        "console_tabs_cores": cores,
    }


def _p95(values: list[float]) -> float:
    return quantiles(values, n=20)[18]


def _fill(bench: Bench, rows: int, still_open: int) -> list[str]:
    """Ids of some transactions: of the history, of the open ones, and one with a journal."""
    connections = Container.open(Settings.from_env(api_environment(bench)))
    with make_client(connections) as client:
        version = connections.catalogue.current("three").version
        with connections.engine.connect() as sql:
            ran = sql.execute(text("SELECT tx_id FROM tx_summary LIMIT 3")).scalars().all()
        for first in range(1, rows + 1, FILL_ROWS):
            last = min(rows, first + FILL_ROWS - 1)
            with connections.engine.begin() as sql:
                sql.execute(text(FILL), {"first": first, "last": last, "version": version})
        with connections.engine.connect() as sql:
            sql.execution_options(isolation_level="AUTOCOMMIT").execute(text("ANALYZE tx_summary"))
        accepted: list[str] = []
        while len(accepted) < still_open:
            part = [Request(pipeline="three", input={"n": 1}, owner="bench")] * 500
            for answer in client.submit_many(part[: still_open - len(accepted)]):
                assert not isinstance(answer, Exception), answer
                accepted.append(answer.tx_id)
        with connections.engine.connect() as sql:
            old = sql.execute(
                text("SELECT tx_id FROM tx_summary WHERE external_id = 'order-4711'")
            ).scalar_one()
    return [*ran, *accepted[:3], old]


@contextmanager
def _served(bench: Bench) -> Iterator[tuple[str, str, int]]:
    """A process of the API, the cookie of a session in it, and its number."""
    connections = Container.open(Settings.from_env(api_environment(bench)))
    keys = ApiKeys(connections.engine, connections.clock, PEPPER)
    key = keys.create("ops", Role.ADMIN, actor=Actor(name="bench")).text
    connections.close()
    program = "from datp_tasks.cli import main; main()"
    port = pick_free_port()
    argv = (sys.executable, "-W", "ignore", "-c", program, "api", "--port", str(port))
    process = bench.stack.process("console api", argv, api_environment(bench))
    process.start()
    url = f"http://127.0.0.1:{port}/console"
    give_up_s = time.monotonic() + GIVE_UP_S
    while True:
        try:
            httpx.get(f"http://127.0.0.1:{port}/healthz")
            break
        except httpx.TransportError:
            if time.monotonic() > give_up_s:
                raise
            time.sleep(0.1)
    headers = {"sec-fetch-site": "same-origin"}
    answer = httpx.post(f"{url}/sign-in", data={"key": key}, headers=headers)
    assert answer.status_code == 303, answer.text
    assert process.pid is not None
    yield url, f"datp_console={answer.cookies['datp_console']}", process.pid
    bench.stack.stop(process)


def _timed(http: httpx.Client, path: str, rounds: int) -> list[float]:
    """Milliseconds of each answer, without the first."""
    times = []
    for _ in range(rounds + 1):
        began_s = time.perf_counter()
        answer = http.get(path)
        times.append((time.perf_counter() - began_s) * 1_000)
        assert answer.status_code == 200, answer.text[:500]
    return times[1:]


def _tabs(url: str, cookie: str, pid: int) -> float:
    """How many cores the API uses while so many tabs are live on Now."""
    host, _, port = url.removeprefix("http://").partition("/")[0].partition(":")
    request = f"GET /console/live?view=now HTTP/1.1\r\nhost: x\r\ncookie: {cookie}\r\n\r\n"
    tabs = []
    for _ in range(TABS):
        tab = socket.create_connection((host, int(port)))
        tab.sendall(request.encode())
        tabs.append(tab)
    ends = threading.Event()
    heads, told = [b""] * TABS, [0] * TABS

    def read_all() -> None:
        for tab in tabs:
            tab.setblocking(False)
        while not ends.is_set():
            for place, tab in enumerate(tabs):
                try:
                    found = tab.recv(1_000_000)
                except BlockingIOError:
                    continue
                heads[place] = heads[place] or found[:12]
                told[place] += found.count(b"event: parts")
            time.sleep(0.2)

    reader = threading.Thread(target=read_all)
    reader.start()
    time.sleep(2)
    before_s, began_s = own_s(snapshot(), pid), time.monotonic()
    time.sleep(TABS_S)
    used_s, took_s = own_s(snapshot(), pid) - before_s, time.monotonic() - began_s
    ends.set()
    reader.join()
    for tab in tabs:
        tab.close()
    # Tabs that were refused, or are told nothing, cost nothing.
    assert set(heads) == {b"HTTP/1.1 200"}, heads
    assert min(told) >= 2, told
    return used_s / took_s
