"""Servers and workers for one run: durable, on free ports, gone afterwards."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Self

from redis import Redis
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.pool import NullPool

from datp_tasks.local.postgres import PostgresServer
from datp_tasks.local.processes import ManagedProcess, StopStep, Surroundings
from datp_tasks.local.redis_server import RedisServer
from datp_tasks.record.database import migrate
from datp_tasks.seals.keyring import new_ring

ROOT = Path(__file__).resolve().parent.parent
#: On the disk of the checkout: /tmp may be memory, where every commit is quick.
DATA = ROOT / ".datp"
PROCESSES = 2
#: With steps that do nothing a process of ours waits for the servers half of its time, so three are
#: faster than two on two cores. Chains are as fast with two, three and four.
EMPTY_STEP_PROCESSES = 3
#: The chain must not meet our keys, so it has a database of its own on the same server.
CHAIN_DATABASE = 1
REWRITE_POLL_S = 0.02
SCRIPT_COMMANDS = ("evalsha", "eval", "fcall")

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
    messages: float
    #: Script calls.
    scripts: float
    #: All other commands, those that scripts call included.
    commands: float
    #: Reads from client sockets. A large batch takes several, so round trips are at most these.
    round_trips: float
    #: What clients have sent to Redis.
    bytes_in: float
    #: Transactions of PostgreSQL that wrote something.
    commits: float

    def __sub__(self, before: Counts) -> Counts:
        return Counts(*(getattr(self, f.name) - getattr(before, f.name) for f in fields(self)))


class Stack:
    """PostgreSQL and Redis, each with its own data directory, and what a part starts on them.

    The database of the PostgreSQL server is migrated once and then only copied: `renew` gives
    each part a database of its own and a new Redis, so that no part meets what another left.
    """

    def __init__(self, above: Path = DATA) -> None:
        above.mkdir(exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix="bench-", dir=above))
        # For PostgreSQL, which does not run as root.
        self.folder.chmod(0o755)
        self.postgres = PostgresServer(self.folder / "postgres", durable=True)
        self.redis_server = RedisServer(self.folder / "redis", appendfsync="everysec")
        self.redis: Redis
        self.engine: Engine
        self._database = ""
        self._databases = 0
        self._keyring = new_ring().to_json()
        self._processes: list[ManagedProcess] = []

    def __enter__(self) -> Self:
        try:
            self.postgres.start()
            self.redis_server.start()
            migrate(self.postgres.url)
            self.redis = Redis.from_url(self.redis_server.url, decode_responses=True)
            self.renew()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.stop_all()
        self.redis_server.destroy()
        self.postgres.destroy()
        shutil.rmtree(self.folder, ignore_errors=True)

    def renew(self) -> None:
        """Stop all that was started, and give a new Redis and a new database."""
        self.stop_all()
        self._renew_redis()
        before = self._database
        if before:
            self.engine.dispose()
        self._databases += 1
        self._database = f"bench_{self._databases}"
        template = make_url(self.postgres.url).database
        with self.server() as sql:
            if before:
                sql.exec_driver_sql(f"DROP DATABASE {before} WITH (FORCE)")
            sql.exec_driver_sql(f"CREATE DATABASE {self._database} TEMPLATE {template}")
            # What is still to be written is not for the next part to wait for.
            sql.exec_driver_sql("CHECKPOINT")
        self.engine = create_engine(self.database_url)

    def _renew_redis(self) -> None:
        """A new process at the same address. Emptying the old one would not do: its memory stays in
        pieces, and then a script costs up to twice as much."""
        self.redis.flushall()
        self.shrink_log()
        self.redis_server.stop()
        self.redis_server.start()

    def shrink_log(self) -> None:
        """Redis would rewrite its log some time, in the middle of a measurement."""
        self.redis.bgrewriteaof()
        while True:
            found = self.redis.info("persistence")
            if not found["aof_rewrite_in_progress"] and not found["aof_rewrite_scheduled"]:
                return
            time.sleep(REWRITE_POLL_S)

    def rest(self) -> None:
        """What the servers do by themselves some time after many writes."""
        self.shrink_log()
        with self.engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            connection.execute(text("VACUUM ANALYZE"))
            connection.execute(text("CHECKPOINT"))

    @contextmanager
    def server(self) -> Iterator[Connection]:
        """A connection to PostgreSQL for making and dropping databases."""
        url = self.url_of("postgres")
        engine = create_engine(url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            yield connection

    def url_of(self, database: str) -> str:
        url = make_url(self.postgres.url).set(database=database)
        return url.render_as_string(hide_password=False)

    @property
    def database_url(self) -> str:
        """Of the part that runs now."""
        return self.url_of(self._database)

    @property
    def environment(self) -> dict[str, str]:
        """Where the servers are, for a process of ours."""
        return {
            "DATP_REDIS_URL": self.redis_server.url,
            "DATP_DATABASE_URL": self.database_url,
            "DATP_SECURITY__POLICY_FILE": "single-person",
            # Without one no webhook is sent: its secret could not be stored.
            "DATP_SECURITY__KEYRING": self._keyring,
        }

    @property
    def chain_url(self) -> str:
        return self.redis_server.url_of(CHAIN_DATABASE)

    def process(
        self,
        name: str,
        argv: Sequence[str],
        env: Mapping[str, str],
        stop_plan: Sequence[StopStep] = STOP_PLAN,
    ) -> ManagedProcess:
        """Not started yet; it is stopped at the end of the part, whatever happens before."""
        made = ManagedProcess(
            name,
            argv,
            log_path=self.folder / f"{name.replace(' ', '-')}.log",
            surroundings=Surroundings({**os.environ, **env}, ROOT),
            stop_plan=stop_plan,
        )
        self._processes.append(made)
        return made

    def celery(
        self, name: str, app: str, *arguments: str, env: Mapping[str, str]
    ) -> ManagedProcess:
        """A Celery program, started."""
        argv = (sys.executable, "-W", "ignore", "-m", "celery", "-A", app, *arguments)
        process = self.process(name, argv, env)
        process.start()
        return process

    def start_worker(
        self, app: str, queue: str, env: Mapping[str, str], *, processes: int = PROCESSES
    ) -> ManagedProcess:
        """One Celery worker; warnings only, as logging every task costs."""
        return self.celery(
            f"worker {queue}",
            *(app, "worker", "-Q", queue, "-n", f"{queue}@bench", "--loglevel", "WARNING"),
            *("--concurrency", str(processes), "--without-gossip", "--without-mingle"),
            env=env,
        )

    def start_beat(self, env: Mapping[str, str]) -> ManagedProcess:
        schedule = str(self.folder / f"{self._database}-schedule")
        return self.celery("beat", "datp_tasks", "beat", "-s", schedule, "-l", "WARNING", env=env)

    def stop(self, process: ManagedProcess) -> None:
        process.stop()
        if process in self._processes:
            self._processes.remove(process)

    def stop_all(self) -> None:
        for process in self._processes:
            process.begin_stop()
        while self._processes:
            self.stop(self._processes[0])

    def counts(self) -> Counts:
        calls = {
            name.removeprefix("cmdstat_"): found["calls"]
            for name, found in self.redis.info("commandstats").items()
        }
        scripts = sum(calls.get(name, 0) for name in SCRIPT_COMMANDS)
        stats = self.redis.info("stats")
        return Counts(
            messages=calls.get("lpush", 0),
            scripts=scripts,
            commands=sum(calls.values()) - scripts,
            round_trips=stats["total_reads_processed"],
            bytes_in=stats["total_net_input_bytes"],
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
