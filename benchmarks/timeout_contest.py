"""One database with two sets of tables: the seed's timeout handler against ours."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from unittest.mock import patch

from sqlalchemy import create_engine

from benchmarks import seed_timeouts
from benchmarks.stack import Stack
from benchmarks.timeout_tables import Loader, create_seed_tables, server_now
from benchmarks.transfers import Variant, changes
from datp_tasks.jobs import timeout_handler
from datp_tasks.jobs.timeout_handler import Result
from datp_tasks.live.live_types import NewTransaction
from datp_tasks.record.database import migrate
from datp_tasks.record.timeouts import Timeouts
from datp_tasks.runtime import jobs
from datp_tasks.runtime.container import Container
from datp_tasks.settings import Settings

SEED = 303
#: What is expired in the data itself is taken once and not decided: windows are measured then.
NOT_AGAIN_S = 86_400.0
#: The seed's take seconds, ours a moment, which is mostly that of the operating system.
SEED_IDLE_TICKS, IDLE_TICKS = 5, 101
DUE_TICKS = 3

MAKE_DUE = (
    "UPDATE seed.transfer_timeout SET expiration_date = now() - interval '1 s'"
    " WHERE transfer_id = ANY(%(ids)s)",
    "UPDATE tx_timeout SET expires_at = now() - interval '1 s', due_at = now()"
    " WHERE tx_id = ANY(%(ids)s)",
)


@dataclass(frozen=True)
class Sizes:
    transfers: int
    expired: int
    #: Rows of the log at which ticks are measured.
    marks: tuple[int, int, int]
    window: int
    due: int


@dataclass
class Times:
    """Milliseconds, round by round: the seed's and ours."""

    seed: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)

    def medians(self) -> tuple[float, float]:
        return median(self.seed), median(self.ours)

    def ratio(self) -> float:
        """Within each round, so that a noisy neighbour hits both."""
        return median(seed / ours for seed, ours in zip(self.seed, self.ours, strict=True))

    def last(self, rounds: int) -> Times:
        return Times(self.seed[-rounds:], self.ours[-rounds:])


def ms(work: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    work()
    return (time.perf_counter() - began_s) * 1_000


class Contest:
    def __init__(self, url: str, redis_url: str, variant: Variant, sizes: Sizes) -> None:
        migrate(url)
        self._sizes = sizes
        self._seed = create_engine(url)
        self._connections = Container.open(
            Settings(
                database_url=url,
                redis_url=redis_url,
                key_prefix=f"bench-{variant}",
            )
        )
        self._timeouts = Timeouts(self._connections.engine, self._connections.clock)
        create_seed_tables(self._seed)
        rows = changes(sizes.transfers, sizes.expired, variant, SEED)
        self.loader = Loader(self._seed, rows, server_now(self._seed))

    def close(self) -> None:
        self._connections.close()
        self._seed.dispose()

    def window(self, times: Times) -> None:
        """Both read what was loaded since the last time."""
        times.ours.append(ms(self._read))
        times.seed.append(ms(lambda: seed_timeouts.run_once(self._seed)))

    def _read(self) -> None:
        self._timeouts.run_pass(
            rows_max=self._sizes.window, batch_max=self._sizes.due, again_s=NOT_AGAIN_S
        )

    def catch_up(self) -> None:
        """Read all that there is, and do what autovacuum would have done by then."""
        seed_timeouts.run_once(self._seed)
        while self._timeouts.peek().is_new:
            self._read()
        self.loader.vacuum()

    def idle(self) -> Times:
        """Ticks with nothing new and nothing due. One after another, as in life: the seed's
        reads so much that the next of ours would find nothing in memory."""
        return Times(
            ours=[ms(self._run) for _ in range(IDLE_TICKS)],
            seed=[ms(lambda: seed_timeouts.run_once(self._seed)) for _ in range(SEED_IDLE_TICKS)],
        )

    def due(self) -> Times:
        """Many are due at once: listed and marked by the seed's SQL, ended by our engine."""
        times = Times()
        for _ in range(DUE_TICKS):
            if len(self.loader.live) < 2 * self._sizes.due:
                break
            self._make_due()
            times.ours.append(ms(self._expire))
            times.seed.append(ms(lambda: seed_timeouts.run_once(self._seed, expire=True)))
            self.catch_up()
        return times

    def _make_due(self) -> None:
        # The oldest: no more rows of theirs will come.
        ids, self.loader.live = (
            self.loader.live[: self._sizes.due],
            self.loader.live[self._sizes.due :],
        )
        with self._seed.begin() as sql:
            for statement in MAKE_DUE:
                sql.exec_driver_sql(statement, {"ids": ids})
        self._connections.live.create_many([_new(tx_id) for tx_id in ids])

    def _run(self) -> Result:
        result: Result = jobs.run("timeout_handler", self._connections, lambda group: 0)
        return result

    def _expire(self) -> None:
        ended = self._run().expired
        if ended != self._sizes.due:
            raise AssertionError(f"{ended} of {self._sizes.due} expired")

    def without_intermediate_ms(self) -> float:
        """The query over the whole log that the seed's design set out to avoid."""
        return ms(lambda: seed_timeouts.list_without_intermediate(self._seed))

    def live_rows(self) -> tuple[int, int]:
        """In the seed's table and in ours."""
        queries = ("SELECT count(*) FROM seed.transfer_timeout", "SELECT count(*) FROM tx_timeout")
        with self._seed.connect() as sql:
            seed, ours = (int(sql.exec_driver_sql(query).scalar_one()) for query in queries)
        return seed, ours


def _new(tx_id: str) -> NewTransaction:
    state = '{"stack":[["transfer","1",0]],"data":{}}'
    return NewTransaction(
        tx_id, "bench", None, "transfer", "master", "bench/pass", "transfer/0", state, None
    )


@contextmanager
def contest(stack: Stack, variant: Variant, sizes: Sizes) -> Iterator[Contest]:
    """In a database of its own, gone afterwards."""
    name = f"bench_{variant}"
    with stack.server() as sql:
        sql.exec_driver_sql(f"CREATE DATABASE {name}")
    found = Contest(stack.url_of(name), stack.redis_server.url, variant, sizes)
    try:
        # The job takes as many at a time as the seed does.
        with (
            patch.object(timeout_handler, "WINDOW_MAX", sizes.window),
            patch.object(timeout_handler, "BATCH_MAX", sizes.due),
        ):
            yield found
    finally:
        found.close()
        with stack.server() as sql:
            sql.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")
