"""An embedded Redis-compatible server (Valkey) that keeps what it was told."""

from __future__ import annotations

import os
import platform
import signal
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from datp_tasks.errors import LocalStackError
from datp_tasks.local.binaries import find_redis_server
from datp_tasks.local.embedded_server import START_TIMEOUT_S, EmbeddedServer
from datp_tasks.local.ports import HOST
from datp_tasks.local.private_files import (
    create_directory,
    read_or_create_secret,
    read_text,
    write_private,
)
from datp_tasks.local.processes import ManagedProcess, StopStep, Surroundings

FSYNC_CHOICES = ("always", "everysec", "no")
CLIENT_TIMEOUT_S = 1.0
#: The wheel's server uses the allocator of the C library, which looks for a free piece far too long
#: once the memory is in pieces: a third of the server's time with 300,000 transactions queued. With
#: longer lists of pieces at hand it seldom looks; they cost a quarter more memory.
ALLOCATOR = "glibc.malloc.tcache_count=2000:glibc.malloc.tcache_max=4096"
#: Before, the pieces of a list are counted in one byte, which these would overflow.
WIDE_COUNTERS_SINCE = (2, 30)


class RedisServer(EmbeddedServer):
    """A server with an append-only file, a random password and no eviction.

    `data_dir` holds the password, the port, the configuration, the log and the append-only file.
    """

    name = "Redis"
    stop_plan = (StopStep(signal.SIGTERM, 15), StopStep(signal.SIGKILL, 5))

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int | None = None,
        appendfsync: str = "everysec",
        log_path: Path | None = None,
        program: Path | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        if appendfsync not in FSYNC_CHOICES:
            raise LocalStackError(
                f"appendfsync must be one of {', '.join(FSYNC_CHOICES)}, was {appendfsync!r}."
            )
        super().__init__(data_dir, port, log_path, start_timeout_s)
        self._appendfsync = appendfsync
        self._program = program
        self._password = ""

    @property
    def url(self) -> str:
        return self.url_of(0)

    def url_of(self, database: int) -> str:
        return f"redis://:{self._password}@{HOST}:{self.port}/{database}"

    def _recorded_pid(self) -> int | None:
        text = read_text(self.data_dir / "server.pid")
        return int(text) if text and text.isdigit() else None

    def _recognizes(self, command: str) -> bool:
        return str(self._configuration_path) in command

    @property
    def _configuration_path(self) -> Path:
        return self.data_dir / "redis.conf"

    def _prepare_directory(self) -> None:
        create_directory(self.data_dir, 0o700)
        self._password = read_or_create_secret(self.data_dir / "password")

    def _prepare_data(self) -> None:
        self._program = self._program or find_redis_server()

    def _configuration(self) -> str:
        return "\n".join(
            (
                f"bind {HOST}",
                f"port {self.port}",
                f"requirepass {self._password}",
                "protected-mode yes",
                "daemonize no",
                "pidfile server.pid",
                # The arguments stay visible, by which a later run recognizes the process.
                "set-proc-title no",
                # The working directory of the process: a path could need quoting here.
                "dir ./",
                "databases 64",
                'save ""',
                "appendonly yes",
                f"appendfsync {self._appendfsync}",
                # Rewriting takes half a core for a while; a log of this size is read in seconds.
                "auto-aof-rewrite-min-size 256mb",
                "maxmemory-policy noeviction",
                "tcp-keepalive 60",
                "",
            )
        )

    def _new_process(self) -> ManagedProcess:
        # In a file, because every user of the machine can read the arguments of a process.
        write_private(self._configuration_path, self._configuration())
        env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "LC_ALL": "C",
            "TZ": "UTC",
            **allocator_settings(platform.libc_ver()),
        }
        return ManagedProcess(
            self.name,
            [str(self._program), str(self._configuration_path)],
            log_path=self.log_path,
            surroundings=Surroundings(env, self.data_dir),
            stop_plan=self.stop_plan,
            death_signal=signal.SIGTERM,
        )

    def _answers(self) -> bool:
        client = redis.Redis(
            host=HOST,
            port=self.port,
            password=self._password,
            socket_timeout=CLIENT_TIMEOUT_S,
            socket_connect_timeout=CLIENT_TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
        )
        try:
            return bool(client.ping())
        except RedisError:
            # Not listening yet, or still loading the append-only file.
            return False
        finally:
            client.close()

    def _when_ready(self) -> None:
        """Nothing to set up: the databases are numbers."""


def allocator_settings(library: tuple[str, str]) -> dict[str, str]:
    """Environment of the server, by name and version of the C library."""
    name, version = library
    numbers = tuple(int(part) for part in version.split(".") if part.isdigit())
    if name != "glibc" or numbers < WIDE_COUNTERS_SINCE:
        return {}
    return {"GLIBC_TUNABLES": ALLOCATOR}
