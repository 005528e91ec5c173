"""Fixtures for tests against the real server programs."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from datp_tasks.local.postgres import PostgresServer
from datp_tasks.local.redis_server import RedisServer

ROOM_BYTES = 1_000_000_000


def new_open_dir(parent: Path | None = None) -> Path:
    directory = Path(tempfile.mkdtemp(prefix="datp-test-", dir=parent)).resolve()
    directory.chmod(0o711)
    return directory


def memory_if_there_is_room() -> Path | None:
    """Where clusters are copied fastest; None for the usual place."""
    memory = Path("/dev/shm")
    if memory.is_dir() and shutil.disk_usage(memory).free > ROOM_BYTES:
        return memory
    return None


@pytest.fixture
def process_is_gone() -> Callable[[int], bool]:
    """Whether a process has ended, even if nobody has reaped it yet."""

    def is_gone(pid: int) -> bool:
        try:
            os.kill(pid, 0)
            stat = Path(f"/proc/{pid}/stat")
            return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z"
        except (ProcessLookupError, FileNotFoundError):
            return True

    return is_gone


@pytest.fixture(scope="session")
def cluster_template() -> Iterator[Path]:
    """A data directory with a new cluster, made once: initdb is the slow part."""
    server = PostgresServer(new_open_dir(memory_if_there_is_room()) / "pg", durable=False)
    server.start()
    server.stop()
    (server.data_dir / "port").unlink()
    yield server.data_dir
    shutil.rmtree(server.data_dir.parent)


@pytest.fixture
def seed_cluster(cluster_template: Path) -> Callable[[Path], None]:
    """Copies the new cluster to a data directory, with its owners and modes."""

    def seed(data_dir: Path) -> None:
        data_dir.parent.mkdir(exist_ok=True)
        subprocess.run(["cp", "-a", str(cluster_template), str(data_dir)], check=True)

    return seed


@pytest.fixture
def new_postgres(
    quick_dir: Path, seed_cluster: Callable[[Path], None]
) -> Iterator[Callable[..., PostgresServer]]:
    """Makes servers on one new cluster, or in a directory given; deletes them afterwards."""
    made: list[PostgresServer] = []

    def make(data_dir: Path | None = None, **options: Any) -> PostgresServer:
        place = data_dir or quick_dir / "seeded"
        if data_dir is None and not place.exists():
            seed_cluster(place)
        options.setdefault("durable", False)
        made.append(PostgresServer(place, **options))
        return made[-1]

    yield make
    for server in made:
        server.destroy()


@pytest.fixture
def new_redis(tmp_path: Path) -> Iterator[Callable[..., RedisServer]]:
    made: list[RedisServer] = []

    def make(data_dir: Path | None = None, **options: Any) -> RedisServer:
        made.append(RedisServer(data_dir or tmp_path / "redis", **options))
        return made[-1]

    yield make
    for server in made:
        server.destroy()


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """A directory every user can pass through, unlike pytest's own."""
    directory = new_open_dir()
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def quick_dir() -> Iterator[Path]:
    """The same, in memory where possible; nothing can be executed there."""
    directory = new_open_dir(memory_if_there_is_room())
    yield directory
    shutil.rmtree(directory, ignore_errors=True)
