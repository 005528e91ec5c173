"""What chaos does to a system, and in which order: all of it follows from the seed."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from redis import Redis

from datp_tasks.local.postgres import PostgresServer
from datp_tasks.local.processes import ManagedProcess
from datp_tasks.local.redis_server import RedisServer
from tests.support.eventually import eventually
from tests.support.house import House

KINDS = (
    "kill a worker",
    "kill all workers",
    "kill beat",
    "stop a worker, let it go on",
    "restart Redis",
    "kill Redis",
    "cut the end of Redis's file",
    "FLUSHALL",
    "restart PostgreSQL",
    "stop PostgreSQL immediately",
    "delete the queues",
)
#: After these Redis is not what it was.
LOSSES = frozenset({"FLUSHALL", "cut the end of Redis's file"})
CUT_BYTES = 65_536
DOWN_S_MAX = 1.5
PRIORITY_STEPS = (0, 3, 6)


@dataclass(frozen=True, slots=True)
class Round:
    """Some troubles at once, in the middle of the work."""

    kinds: tuple[str, ...]
    #: Work goes on for so long before.
    after_s: float
    #: How long a server is away, or a worker stands still.
    down_s: float
    #: Which worker it hits.
    victim: int

    def __str__(self) -> str:
        return f"{' + '.join(self.kinds)} (down {self.down_s:.1f} s)"


def plan(seed: int) -> Iterator[Round]:
    """Each kind once, then mixtures without end."""
    rng = random.Random(seed)
    for kind in rng.sample(KINDS, len(KINDS)):
        yield _round(rng, (kind,))
    while True:
        yield _round(rng, tuple(rng.sample(KINDS, rng.choice((1, 1, 2, 3)))))


def _round(rng: random.Random, kinds: tuple[str, ...]) -> Round:
    return Round(kinds, rng.uniform(0.3, 1.2), rng.uniform(0.2, DOWN_S_MAX), rng.randrange(1_000))


class Troublemaker:
    def __init__(
        self,
        house: House,
        redis: RedisServer,
        postgres: PostgresServer,
        workers: list[ManagedProcess],
        beat: ManagedProcess,
        pause: Callable[[float], None],
    ) -> None:
        self._house = house
        self._redis = redis
        self._postgres = postgres
        self._workers = workers
        self._beat = beat
        #: Lets time pass, in which others are looked after.
        self._pause = pause

    def make(self, round_: Round) -> None:
        acts: dict[str, Callable[[Round], None]] = {
            "kill a worker": lambda it: self._victim(it).kill(),
            "kill all workers": lambda _: self._kill_all(),
            "kill beat": lambda _: self._beat.kill(),
            "stop a worker, let it go on": self._stop_for_a_while,
            "restart Redis": self._restart_redis,
            "kill Redis": self._kill_redis,
            "cut the end of Redis's file": self._cut_redis,
            "FLUSHALL": lambda _: self._on_redis(lambda redis: redis.flushall()),
            "restart PostgreSQL": self._restart_postgres,
            "stop PostgreSQL immediately": self._stop_postgres_immediately,
            "delete the queues": lambda _: self._on_redis(_delete_queues),
        }
        assert tuple(acts) == KINDS
        for kind in round_.kinds:
            acts[kind](round_)

    def _victim(self, round_: Round) -> ManagedProcess:
        return self._workers[round_.victim % len(self._workers)]

    def _kill_all(self) -> None:
        for worker in self._workers:
            worker.kill()

    def _restart_redis(self, round_: Round) -> None:
        self._redis.stop()
        self._start_later(self._redis, round_.down_s)

    def _kill_redis(self, round_: Round) -> None:
        self._redis.kill()
        self._start_later(self._redis, round_.down_s)

    def _cut_redis(self, round_: Round) -> None:
        self._redis.kill()
        cut_end(self._redis.data_dir)
        self._start_later(self._redis, round_.down_s)

    def _restart_postgres(self, round_: Round) -> None:
        self._postgres.stop()
        self._start_later(self._postgres, round_.down_s)

    def _start_later(self, server: RedisServer | PostgresServer, down_s: float) -> None:
        self._pause(down_s)
        server.start()

    def _stop_postgres_immediately(self, round_: Round) -> None:
        """As `pg_ctl stop -m immediate` does: no goodbye, recovery at the next start."""
        pid = self._postgres.pid
        assert pid is not None
        os.kill(pid, signal.SIGQUIT)
        eventually(lambda: not self._postgres.is_running(), what="the immediate stop")
        self._start_later(self._postgres, round_.down_s)

    def _stop_for_a_while(self, round_: Round) -> None:
        """Longer than anybody waits for it, main process and children."""
        pid = self._victim(round_).pid
        if pid is None:
            return
        settings = self._house.settings
        os.killpg(pid, signal.SIGSTOP)
        self._pause((settings.node_stale_ms + settings.node_grace_ms) / 1_000 + round_.down_s)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGCONT)

    def _on_redis(self, act: Callable[[Redis], object]) -> None:
        with Redis.from_url(self._redis.url) as redis:
            act(redis)


def cut_end(data_dir: Path) -> int:
    """What a loss of power may do to a file that is written to disk once a second."""
    newest = max((data_dir / "appendonlydir").glob("*.incr.aof"), key=_number_of)
    size = newest.stat().st_size
    kept = max(0, size - CUT_BYTES)
    os.truncate(newest, kept)
    return size - kept


def _number_of(path: Path) -> int:
    return int(path.name.split(".")[-3])


def _delete_queues(redis: Redis) -> None:
    """Kombu keeps a list for each priority of a queue."""
    for group in ("master", "kyc"):
        redis.delete(group, *(f"{group}\x06\x16{step}" for step in PRIORITY_STEPS))
