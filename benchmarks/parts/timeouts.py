"""The timeout handler beside the seed's, on the same data, in the same server, in the same run.

Both read the log in windows while it grows. At three sizes both are asked for a tick with nothing
new and one with many due. The other variants of the data are measured when all of it is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

from sqlalchemy import Engine, create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.pool import NullPool

from benchmarks import seed_timeouts
from benchmarks.bench import Bench
from benchmarks.report import Figures, Report, Step
from benchmarks.timeout_tables import Loader, create_seed_tables, server_now
from benchmarks.transfers import VARIANTS, Variant, changes
from datp_tasks.archive.engine import migrate
from datp_tasks.archive.timeouts import Timeouts
from datp_tasks.connections import Connections
from datp_tasks.live.words import NewTransaction
from datp_tasks.maintenance import timeout_handler
from datp_tasks.settings import Settings

SEED = 303
#: Of what is expired in the data itself, nothing is decided: only windows are measured then.
NOT_AGAIN_S = 86_400.0
TICKS = 7
#: Windows at the end, when about as many are live as ever will be.
STEADY = 5
BAR_CHARS = 40


@dataclass(frozen=True)
class Sizes:
    transfers: int
    expired: int
    #: Rows of the log at which ticks are measured.
    marks: tuple[int, int, int]
    window: int
    due: int


FULL = Sizes(1_000_000, 1_000, (100_000, 1_000_000, 3_500_000), 100_000, 1_000)
QUICK = Sizes(6_000, 60, (2_000, 10_000, 20_000), 2_000, 100)
#: What the three marks are called in `latest.json`, also in a quick run.
MARK_NAMES = ("100k", "1000k", "3500k")


@dataclass
class Times:
    """Milliseconds: the seed's and ours."""

    seed: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)

    def medians(self) -> tuple[float, float]:
        return median(self.seed), median(self.ours)

    def ratio(self) -> float:
        """Within each round, so that a noisy neighbour hits both."""
        return median(seed / ours for seed, ours in zip(self.seed, self.ours, strict=True))


@dataclass(frozen=True)
class Mark:
    """What was measured at one size."""

    rows: int
    live: int
    window: Times
    idle: Times
    due: Times


class Contest:
    """One database with both sets of tables, and both handlers."""

    def __init__(self, url: str, redis_url: str, variant: Variant, sizes: Sizes) -> None:
        migrate(url)
        self._sizes = sizes
        self._theirs = create_engine(url)
        self._connections = Connections.open(
            Settings(
                database_url=url,
                redis_url=redis_url,
                key_prefix=f"bench-{variant}",
                timeout_window_max=sizes.window,
                timeout_batch_max=sizes.due,
            )
        )
        self._timeouts = Timeouts(self._connections.engine, self._connections.clock)
        create_seed_tables(self._theirs)
        rows = changes(sizes.transfers, sizes.expired, variant, SEED)
        self.loader = Loader(self._theirs, rows, server_now(self._theirs))

    def close(self) -> None:
        self._connections.close()
        self._theirs.dispose()

    def window(self, times: Times) -> bool:
        """Load a window and let both read it; False when there is nothing left."""
        if not self.loader.load(self._sizes.window):
            return False
        times.seed.append(_ms(lambda: seed_timeouts.run_once(self._theirs)))
        times.ours.append(_ms(self._read))
        return True

    def _read(self) -> None:
        while self._timeouts.run_pass(
            rows_max=self._sizes.window, batch_max=self._sizes.due, again_s=NOT_AGAIN_S
        )[0].rows:
            if not self._timeouts.peek().is_new:
                return

    def catch_up(self) -> None:
        seed_timeouts.run_once(self._theirs)
        while self._timeouts.peek().is_new:
            self._read()
        self.loader.analyze()

    def idle(self) -> Times:
        times = Times()
        for _ in range(TICKS):
            times.seed.append(_ms(lambda: seed_timeouts.run_once(self._theirs)))
            times.ours.append(_ms(lambda: timeout_handler.run_once(self._connections)))
        return times

    def due(self) -> Times:
        """So many expire at once: listed and marked by the seed's SQL; ended by our engine."""
        ids = [self.loader.live.pop() for _ in range(self._sizes.due)]
        with self._theirs.begin() as sql:
            for statement in MAKE_DUE:
                sql.exec_driver_sql(statement, {"ids": ids})
        self._connections.live.create_many([_new(tx_id) for tx_id in ids])
        times = Times()
        times.seed.append(_ms(lambda: seed_timeouts.run_once(self._theirs, expire=True)))
        times.ours.append(_ms(lambda: self._expire(len(ids))))
        self.catch_up()
        return times

    def _expire(self, count: int) -> None:
        ended = timeout_handler.run_once(self._connections).expired
        if ended != count:
            raise AssertionError(f"{ended} of {count} expired")

    def live_rows(self) -> int:
        with self._theirs.connect() as sql:
            return int(sql.exec_driver_sql("SELECT count(*) FROM tx_timeout").scalar_one())


MAKE_DUE = (
    "UPDATE seed.transfer_timeout SET expiration_date = now() - interval '1 s'"
    " WHERE transfer_id = ANY(%(ids)s)",
    "UPDATE tx_timeout SET expires_at = now() - interval '1 s', due_at = now()"
    " WHERE tx_id = ANY(%(ids)s)",
    "UPDATE tx_summary SET expires_at = now() - interval '1 s' WHERE tx_id = ANY(%(ids)s)",
)


def run(bench: Bench) -> Figures:
    sizes = bench.choose(FULL, QUICK)
    pieces = sizes.transfers * 32 // 9 // sizes.window + 1
    with bench.report.progress("timeouts", pieces * len(VARIANTS)) as step:
        with contest(bench, "interleaved", sizes) as found:
            marks, grown = _grow(found, sizes, step)
            naive_ms = _ms(lambda: seed_timeouts.list_without_intermediate(found.theirs))
        steady = {"interleaved": grown}
        for variant in ("contiguous", "finalised"):
            with contest(bench, variant, sizes) as found:
                steady[variant] = _steady(found, sizes, step)
    _report(bench.report, sizes, marks, steady, naive_ms)
    figures = {
        "timeout_window_ratio_to_seed": grown.ratio(),
        "timeout_window_ms": median(grown.ours),
        "timeout_seed_window_ms": median(grown.seed),
        "timeout_1000_due_ms": marks[-1].due.ours[0],
        "timeout_seed_1000_due_ms": marks[-1].due.seed[0],
    }
    for name, mark in zip(MARK_NAMES, marks, strict=True):
        figures[f"timeout_seed_idle_tick_ms_{name}"], figures[f"timeout_idle_tick_ms_{name}"] = (
            mark.idle.medians()
        )
    for variant, times in steady.items():
        figures[f"timeout_window_ratio_to_seed_{variant}"] = times.ratio()
    return figures


@contextmanager
def contest(bench: Bench, variant: Variant, sizes: Sizes) -> Iterator[Contest]:
    """In a database of its own, gone afterwards."""
    name = f"bench_{variant}"
    server = create_engine(
        bench.stack.postgres.url, poolclass=NullPool, isolation_level="AUTOCOMMIT"
    )
    with server.connect() as sql:
        sql.exec_driver_sql(f"CREATE DATABASE {name}")
    url = make_url(bench.stack.postgres.url).set(database=name)
    found = Contest(
        url.render_as_string(hide_password=False), bench.stack.redis_server.url, variant, sizes
    )
    try:
        yield found
    finally:
        found.close()
        with server.connect() as sql:
            sql.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")
