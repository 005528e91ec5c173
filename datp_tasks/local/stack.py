"""What `datp up` runs: both servers, the workers and beat, in one place, under one supervisor."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from datp_tasks.errors import LocalStackError
from datp_tasks.local.accounts import running_as_root
from datp_tasks.local.embedded_server import EmbeddedServer
from datp_tasks.local.interruptions import Interruptions
from datp_tasks.local.ports import PortMarks
from datp_tasks.local.postgres import PostgresServer
from datp_tasks.local.private_files import create_directory, read_or_create_secret, write_private
from datp_tasks.local.processes import ManagedProcess, Surroundings
from datp_tasks.local.redis_server import RedisServer
from datp_tasks.local.run_file import (
    DEFAULT_DIRECTORY,
    KEYRING_FILE,
    KEYRING_VARIABLES,
    OF_A_STACK,
    PEPPER_FILE,
    POLICY_VARIABLE,
    STEPS_VARIABLE,
    DirectoryLock,
    RunInfo,
    read_last_run,
    read_run_file,
    remove_run_file,
    write_run_file,
)
from datp_tasks.local.supervisor import Supervised, Supervisor
from datp_tasks.local.workers import (
    beat_process,
    check_groups,
    kill_leftover_workers,
    worker_log,
    worker_process,
)
from datp_tasks.seals.keyring import new_ring

__all__ = ["DEFAULT_DIRECTORY", "PEPPER_FILE", "RunInfo", "Stack", "StackUrls", "read_run_file"]

# Celery's messages are kept apart from the transactions, in a database of the same server.
BROKER_DATABASE = 1


@dataclass(frozen=True)
class StackUrls:
    """Where the servers are. The URLs contain passwords, so they are not part of its text form.

    `broker_url` is empty if only the Redis URL was given: the settings derive one from it.
    """

    redis_url: str = field(repr=False)
    broker_url: str = field(repr=False)
    database_url: str = field(repr=False)

    def as_environment(self) -> dict[str, str]:
        environment = {
            **{name: os.environ.get(name) or value for name, value in OF_A_STACK.items()},
            "DATP_REDIS_URL": self.redis_url,
            "DATP_DATABASE_URL": self.database_url,
        }
        if self.broker_url:
            environment["DATP_BROKER_URL"] = self.broker_url
        return environment


class Stack:
    """One running DATP. Use it in a `with` block, so that an error or Ctrl-C stops everything.

    A server whose URL is given is not started. Everything is kept in `directory`: `pg/`, `redis/`,
    `logs/`, and `run.json`, by which other commands find the stack.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        say: Callable[[str], None] = lambda line: None,
        redis_url: str | None = None,
        broker_url: str | None = None,
        database_url: str | None = None,
        concurrency: int = 1,
        environment: Mapping[str, str] | None = None,
        app: str = "datp_tasks",
        durable: bool = True,
    ) -> None:
        self.directory = (directory or Path(DEFAULT_DIRECTORY)).absolute()
        self._say = say
        self._given = (redis_url, broker_url, database_url)
        self._concurrency = concurrency
        self._environment = dict(environment or {})
        self._app = app
        self._durable = durable
        self._lock = DirectoryLock(self.directory)
        self._supervisor = Supervisor(say, on_change=self._record)
        self._started_at = datetime.now(UTC)
        self._groups: tuple[str, ...] = ()
        self._ports = PortMarks()
        self._urls: StackUrls | None = None

    def __enter__(self) -> Stack:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def urls(self) -> StackUrls:
        if self._urls is None:
            raise LocalStackError("The servers have not been started.")
        return self._urls

    @property
    def logs_dir(self) -> Path:
        return self.directory / "logs"

    @property
    def children(self) -> tuple[Supervised, ...]:
        return self._supervisor.children

    def start_servers(self) -> StackUrls:
        """Start what is not given and wait until it answers."""
        if self._urls is not None:
            return self._urls
        self._prepare_directory()
        self._lock.acquire()
        try:
            self._started_at = datetime.now(UTC)
            self._end_last_run()
            self._urls = self._start_missing_servers()
            self._record()
        except BaseException:
            self.stop()
            raise
        return self._urls

    def start_workers(self, groups: Sequence[str]) -> None:
        """Start one worker per node group, and beat. Returns before they are ready."""
        check_groups(groups)
        if self._groups:
            raise LocalStackError("The workers have already been started.")
        beat = beat_process(
            app=self._app,
            schedule_path=self.directory / "celerybeat-schedule",
            logs_dir=self.logs_dir,
            env=self._child_environment(),
        )
        self._groups = tuple(groups)
        self._supervisor.start([*map(self._worker, groups), beat])

    def add_workers(self, groups: Sequence[str]) -> None:
        """Start a worker for each of these node groups that has none yet, and say so."""
        new = [group for group in groups if group not in self._groups]
        if not new:
            return
        check_groups(new)
        self._groups = (*self._groups, *new)
        self._supervisor.start([self._worker(group) for group in new])
        for group in new:
            log_path = os.path.relpath(worker_log(self.logs_dir, group))
            self._say(f"node group {group} is new: its worker has started, see {log_path}")

    def _worker(self, group: str) -> ManagedProcess:
        return worker_process(
            group,
            app=self._app,
            concurrency=self._concurrency,
            logs_dir=self.logs_dir,
            env=self._child_environment(),
        )

    def _child_environment(self) -> dict[str, str]:
        own = {KEYRING_VARIABLES[0]: str(self.keyring_file())} if self._needs_keyring() else {}
        return {**os.environ, **own, **self._environment, **self.urls.as_environment()}

    def _needs_keyring(self) -> bool:
        return not any(os.environ.get(name) for name in KEYRING_VARIABLES)

    def keyring_file(self) -> Path:
        """A key ring for its owner only, made the first time; it is never shown."""
        path = (self.directory / KEYRING_FILE).resolve()
        if not path.exists():
            write_private(path, new_ring().to_json())
        return path

    def start_program(
        self, name: str, argv: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        """Start one more program beside the servers, with their addresses in its environment."""
        env = self._child_environment() | dict(environment or {})
        log_path = self.logs_dir / f"{name}.log"
        surroundings = Surroundings(env)
        made = ManagedProcess(name, argv, log_path=log_path, surroundings=surroundings)
        self._supervisor.start([made])

    def take_port(self, preferred: int | None = None) -> int:
        """For a program that is started next; no other stack takes it while this one runs."""
        return self._ports.take(preferred)

    def key_pepper(self) -> str:
        return read_or_create_secret(self.directory / PEPPER_FILE)

    def check(self) -> None:
        """Start again what has ended since the last look; for callers with a loop of their own."""
        self._supervisor.check()

    def run_until_interrupted(self, between: Callable[[], None] = lambda: None) -> None:
        """Watch over everything until Ctrl-C or SIGTERM, then stop it; Ctrl-C again kills.

        `between` two looks the caller has a turn, for example to call `add_workers`.
        """
        with Interruptions() as interruptions:
            try:
                self._supervisor.run(until=interruptions.asked, between=between)
                self._say("stopping (Ctrl-C again to force)")
            finally:
                self.stop(forced=interruptions.forced)

    def stop(self, forced: Callable[[], bool] = lambda: False) -> None:
        """Stop workers, then servers. The data stays. Does nothing if nothing runs."""
        try:
            self._supervisor.stop(forced)
        finally:
            if self._lock.is_held():
                remove_run_file(self.directory)
                self._lock.release()
            self._ports.release()
            self._urls = None
            self._groups = ()

    def destroy(self) -> None:
        """Stop everything and delete all data, also what root's PostgreSQL keeps elsewhere."""
        self.stop()
        if not self.directory.exists():
            return
        self._lock.acquire()
        try:
            self._postgres().destroy()
            self._redis().destroy()
            shutil.rmtree(self.directory)
        finally:
            self._lock.release()

    def _prepare_directory(self) -> None:
        # Root's PostgreSQL runs as another user, who must be able to pass through to its data.
        create_directory(self.directory, 0o711 if running_as_root() else 0o700)
        create_directory(self.logs_dir, 0o700)
        ignore_file = self.directory / ".gitignore"
        if not ignore_file.exists():
            ignore_file.write_text("*\n", encoding="utf-8")

    def _end_last_run(self) -> None:
        """Holding the lock, whatever still runs from an earlier stack here has no owner."""
        with contextlib.suppress(LocalStackError):
            last_run = read_last_run(self.directory)
            if last_run is not None:
                kill_leftover_workers(last_run)
        remove_run_file(self.directory)

    def _start_missing_servers(self) -> StackUrls:
        redis_url, broker_url, database_url = self._given
        if database_url is None:
            postgres = self._postgres()
            self._start_server(postgres)
            database_url = postgres.url
            if not postgres.cluster_dir.is_relative_to(self.directory.resolve()):
                self._say(f"PostgreSQL keeps its data in {postgres.cluster_dir}")
        if redis_url is None:
            redis = self._redis()
            self._start_server(redis)
            redis_url = redis.url
            broker_url = broker_url or redis.url_of(BROKER_DATABASE)
        return StackUrls(redis_url, broker_url or "", database_url)

    def _postgres(self) -> PostgresServer:
        return PostgresServer(
            self.directory / "pg", durable=self._durable, log_path=self.logs_dir / "postgres.log"
        )

    def _redis(self) -> RedisServer:
        return RedisServer(
            self.directory / "redis",
            appendfsync="everysec" if self._durable else "no",
            log_path=self.logs_dir / "redis.log",
        )

    def _start_server(self, server: EmbeddedServer) -> None:
        server.stop_leftover()
        self._supervisor.start([server])
        self._say(f"{server.name} is ready on port {server.port}")

    def _record(self) -> None:
        """Write the run file; before all URLs are known there is nothing to find yet."""
        if self._urls is None:
            return
        pids = {child.name: child.pid for child in self._supervisor.children}
        write_run_file(
            RunInfo(
                directory=self.directory,
                pid=os.getpid(),
                started_at=self._started_at,
                redis_url=self._urls.redis_url,
                broker_url=self._urls.broker_url,
                database_url=self._urls.database_url,
                groups=self._groups,
                pids={name: pid for name, pid in pids.items() if pid is not None},
                policy_file=_policy_file(),
                steps=self._steps(),
            )
        )

    def _steps(self) -> tuple[str, ...]:
        given = {**os.environ, **self._environment}.get(STEPS_VARIABLE, "")
        return tuple(part.strip() for part in given.split(",") if part.strip())


def _policy_file() -> str:
    """As a command in another folder finds it."""
    given = os.environ.get(POLICY_VARIABLE) or OF_A_STACK[POLICY_VARIABLE]
    return given if given == OF_A_STACK[POLICY_VARIABLE] else str(Path(given).absolute())
