"""Servers and workers for one run: durable, on free ports, gone afterwards."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

from redis import Redis
from sqlalchemy import Connection, Engine, create_engine, text

from datp_tasks.archive.engine import migrate
from datp_tasks.local.postgres import PostgresServer
from datp_tasks.local.processes import ManagedProcess, StopStep
from datp_tasks.local.redis_server import RedisServer

ROOT = Path(__file__).resolve().parent.parent
#: On the disk of the checkout: /tmp may be memory, where every commit is quick.
DATA = ROOT / ".datp"
PROCESSES = 2
#: The chain must not meet our keys, so it has a database of its own on the same server.
CHAIN_DATABASE = 1

# A busy prefork worker sometimes needs half a minute for a polite goodbye.
STOP_PLAN = (
    StopStep(signal.SIGTERM, 4),
    StopStep(signal.SIGQUIT, 3),
    StopStep(signal.SIGKILL, 5),
)


@dataclass(frozen=True, slots=True)
class Counts:
    """What the servers themselves have counted so far."""

    #: LPUSH: only the broker uses it, once per message.
    messages: int
    #: Script calls.
    scripts: int
    #: Reads from client sockets. A large batch takes several, so round trips are at most these.
    round_trips: int
    #: Transactions of PostgreSQL that wrote something.
    commits: int

    def __sub__(self, before: Counts) -> Counts:
        return Counts(*(getattr(self, f.name) - getattr(before, f.name) for f in fields(self)))


class Stack:
    """PostgreSQL and Redis, each with its own data directory."""

    def __init__(self, above: Path = DATA) -> None:
        above.mkdir(exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix="bench-", dir=above))
        # For PostgreSQL, which does not run as root.
        self.folder.chmod(0o755)
        self.postgres = PostgresServer(self.folder / "postgres", durable=True)
        self.redis_server = RedisServer(self.folder / "redis", appendfsync="everysec")
        self.redis: Redis
        self.engine: Engine
        self._workers: list[ManagedProcess] = []

    def __enter__(self) -> Self:
        try:
            self.postgres.start()
            self.redis_server.start()
            migrate(self.postgres.url)
            self.redis = Redis.from_url(self.redis_server.url, decode_responses=True)
            self.engine = create_engine(self.postgres.url)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for worker in self._workers:
            worker.begin_stop()
        for worker in self._workers:
            worker.stop()
        self.redis_server.destroy()
        self.postgres.destroy()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def chain_url(self) -> str:
        return self.redis_server.url_of(CHAIN_DATABASE)

    def start_worker(self, app: str, queue: str, **env: str) -> ManagedProcess:
        """One Celery worker with two processes; warnings only, as logging every task costs."""
        argv = (
            *(sys.executable, "-W", "ignore", "-m", "celery", "-A", app, "worker", "-Q", queue),
            *("-n", f"{queue}@bench", "--concurrency", str(PROCESSES), "--loglevel", "WARNING"),
            *("--without-gossip", "--without-mingle"),
        )
        worker = ManagedProcess(
            f"worker {queue}",
            argv,
            log_path=self.folder / f"{queue}.log",
            env={**os.environ, **env},
            cwd=ROOT,
            stop_plan=STOP_PLAN,
        )
        worker.start()
        self._workers.append(worker)
        return worker

    def stop_worker(self, worker: ManagedProcess) -> None:
        worker.stop()
        self._workers.remove(worker)

    def counts(self) -> Counts:
        commands = self.redis.info("commandstats")
        return Counts(
            messages=commands.get("cmdstat_lpush", {}).get("calls", 0),
            scripts=commands.get("cmdstat_evalsha", {}).get("calls", 0),
            round_trips=self.redis.info("stats")["total_reads_processed"],
            commits=int(self.sql("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")),
        )

    def memory_bytes(self) -> int:
        """What the data takes: all memory but the buffers of clients and of the log."""
        memory = self.redis.info("memory")
        buffers = memory["mem_clients_normal"] + memory["mem_aof_buffer"]
        return int(memory["used_memory"] - buffers)

    def sql(self, query: str) -> int:
        """One number, read without writing."""
        connection: Connection
        with self.engine.connect() as connection:
            return int(connection.execute(text(query)).scalar_one())

    def durability(self) -> Sequence[tuple[str, str]]:
        """As the servers themselves say."""
        names = ("fsync", "synchronous_commit", "full_page_writes")
        with self.engine.connect() as connection:
            shown = {name: connection.execute(text(f"SHOW {name}")).scalar() for name in names}
            version = connection.execute(text("SHOW server_version")).scalar()
        redis = self.redis.config_get("append*")
        server = self.redis.info("server")
        name = "Valkey" if "valkey_version" in server else "Redis"
        number = server.get("valkey_version") or server["redis_version"]
        return (
            (f"PostgreSQL {version}", ", ".join(f"{k} {v}" for k, v in shown.items())),
            (
                f"{name} {number}",
                f"appendonly {redis['appendonly']}, appendfsync {redis['appendfsync']}",
            ),
        )
