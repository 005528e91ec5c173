"""An embedded PostgreSQL server."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Mapping
from pathlib import Path

import psycopg2
import psycopg2.extensions

from datp_tasks.errors import LocalStackError
from datp_tasks.local.accounts import binaries_for, running_as_root
from datp_tasks.local.binaries import PostgresBinaries, find_postgres
from datp_tasks.local.embedded_server import START_TIMEOUT_S, EmbeddedServer
from datp_tasks.local.ports import HOST
from datp_tasks.local.postgres_files import USER, PostgresFiles, environment, find_files
from datp_tasks.local.private_files import create_directory, read_or_create_secret
from datp_tasks.local.processes import ManagedProcess, StopStep, Surroundings

DATABASE = "datp"
CONNECT_TIMEOUT_S = 5

SETTINGS = {
    "listen_addresses": HOST,
    # The path of a socket may have about 100 bytes only, which a deep directory exceeds.
    "unix_socket_directories": "",
    "max_connections": "100",
    "shared_buffers": "128MB",
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "logging_collector": "off",
}

# For tests only: a killed server keeps its commits, a machine that loses power may not.
NOT_DURABLE = {
    "fsync": "off",
    "full_page_writes": "off",
    # In the data directory, so that it is deleted with it even after a kill.
    "dynamic_shared_memory_type": "mmap",
}


class PostgresServer(EmbeddedServer):
    """PostgreSQL with one database, `datp`, for one user with a random password.

    `data_dir` holds the password, the port, the log and the cluster in `data/`. As root, the
    cluster runs as `nobody`; if that user cannot enter `data_dir`, the cluster is elsewhere and
    `data_dir/location` says where.
    """

    name = "PostgreSQL"
    # SIGINT disconnects the clients and shuts down cleanly; SIGQUIT leaves the rest to recovery.
    stop_plan = (
        StopStep(signal.SIGINT, 20),
        StopStep(signal.SIGQUIT, 5),
        StopStep(signal.SIGKILL, 5),
    )
    # Its own children outlive a killed server by a moment and still hold its memory.
    passing_trouble = "pre-existing shared memory block"

    def __init__(
        self,
        data_dir: Path,
        *,
        port: int | None = None,
        durable: bool = True,
        settings: Mapping[str, str] | None = None,
        log_path: Path | None = None,
        binaries: PostgresBinaries | None = None,
        open_base: Path | None = None,
        start_timeout_s: float = START_TIMEOUT_S,
    ) -> None:
        super().__init__(data_dir, port, log_path, start_timeout_s)
        self._durable = durable
        self._settings = SETTINGS | ({} if durable else NOT_DURABLE) | dict(settings or {})
        self._binaries = binaries
        self._open_base = open_base
        self._files: PostgresFiles | None = None
        self._password = ""

    @property
    def url(self) -> str:
        return f"postgresql+psycopg2://{USER}:{self._password}@{HOST}:{self.port}/{DATABASE}"

    @property
    def cluster_dir(self) -> Path:
        """PostgreSQL's own data directory."""
        return self._found_files().directory

    def destroy(self) -> None:
        elsewhere = None
        if self.data_dir.exists() and self.cluster_dir.parent != self.data_dir:
            elsewhere = self.cluster_dir.parent
        super().destroy()
        if elsewhere is not None:
            shutil.rmtree(elsewhere, ignore_errors=True)

    def _recorded_pid(self) -> int | None:
        return self._found_files().recorded_pid()

    def _recognizes(self, command: str) -> bool:
        return self._found_files().is_served_by(command)

    def _found_files(self) -> PostgresFiles:
        if self._files is None:
            self._prepare_directory()
            self._files = find_files(self.data_dir, self._durable, self._open_base)
        return self._files

    def _prepare_directory(self) -> None:
        create_directory(self.data_dir, 0o711 if running_as_root() else 0o700)
        self._password = read_or_create_secret(self.data_dir / "password")

    def _prepare_data(self) -> None:
        cluster = self._found_files()
        self._binaries = binaries_for(
            self._binaries or find_postgres(), cluster.account, self._open_base
        )
        if not cluster.exists():
            cluster.create(self._binaries, self._password, self._durable)

    def _new_process(self) -> ManagedProcess:
        cluster = self._found_files()
        assert self._binaries is not None
        cluster.excuse_reused_pid()
        argv = [str(self._binaries.postgres), "-D", str(cluster.directory)]
        for key, value in (self._settings | {"port": str(self.port)}).items():
            argv += ["-c", f"{key}={value}"]
        return ManagedProcess(
            self.name,
            argv,
            log_path=self.log_path,
            surroundings=Surroundings(environment(), cluster.directory, cluster.account),
            stop_plan=self.stop_plan,
            death_signal=signal.SIGINT,
        )

    def _answers(self) -> bool:
        try:
            self._connect("postgres").close()
        except psycopg2.OperationalError as error:
            if "password authentication failed" in str(error) and self.is_running():
                self.stop()
                raise LocalStackError(
                    f"{self.name} does not know the password in {self.data_dir / 'password'}."
                ) from error
            return False
        return True

    def _when_ready(self) -> None:
        connection = self._connect("postgres")
        try:
            # CREATE DATABASE is not allowed inside a transaction.
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", (DATABASE,))
                if cursor.fetchone() is None:
                    cursor.execute(f"CREATE DATABASE {DATABASE}")
        finally:
            connection.close()

    def _connect(self, database: str) -> psycopg2.extensions.connection:
        return psycopg2.connect(
            host=HOST,
            port=self.port,
            user=USER,
            password=self._password,
            dbname=database,
            connect_timeout=CONNECT_TIMEOUT_S,
            sslmode="disable",
        )
