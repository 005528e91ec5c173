"""Which jobs of Celery's pool survive its `flush`: those that a live pool process has whole."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any
from weakref import ref

import pytest
from billiard.pool import CLOSE, ApplyResult
from celery.concurrency.asynpool import AsynPool

from datp_tasks.bells.consumer import keep_written_jobs

#: The number of the pipe into a pool process.
PIPE = 7


class PoolProcess:
    """One process of the pool, as far as `flush` looks at it."""

    def __init__(self, *, alive: bool = True) -> None:
        self.pid = 4711
        self.inqW_fd = PIPE
        self._alive = alive

    def _is_alive(self) -> bool:
        return self._alive


class Pool(AsynPool):  # type: ignore[misc]
    """Celery's pool without processes: its books, and its own `flush`."""

    def __init__(self) -> None:
        self._cache: dict[int, Any] = {}
        self._state = CLOSE
        self.synack = False
        self.outbound_buffer: deque[Any] = deque()
        self._active_writers: set[Any] = set()
        self._active_writes: set[int] = set()
        self._busy_workers = {PIPE}

    def maintain_pool(self) -> None:
        """There is nothing to maintain."""

    def job(self, written_to: PoolProcess | None, *, half: bool = False) -> Any:
        job = ApplyResult(self._cache, None)
        if written_to is None:
            return job
        job._write_to = written_to
        writer = _writer()
        job._writer = ref(writer)
        if half:
            self._active_writers.add(writer)
        return job


def _writer() -> Iterator[None]:
    yield


@pytest.fixture
def pool() -> Pool:
    return Pool()


def kept(pool: Pool) -> list[Any]:
    keep_written_jobs(pool)
    pool.flush()
    return list(pool._cache.values())


def test_what_a_live_process_has_whole_stays_with_it(pool: Pool) -> None:
    process = PoolProcess()
    job = pool.job(process)
    assert kept(pool) == [job]
    # By this the pool finds what a process had when it dies, and whom it must not give more.
    assert job.worker_pids() == [process.pid]
    assert pool._busy_workers == {PIPE}


def test_what_no_process_has_is_given_up(pool: Pool) -> None:
    pool.job(None)
    pool.outbound_buffer.append(pool.job(None))
    assert kept(pool) == []


def test_what_is_written_half_is_given_up(pool: Pool) -> None:
    pool.job(PoolProcess(), half=True)
    assert kept(pool) == []


def test_what_a_dead_process_had_is_given_up(pool: Pool) -> None:
    pool.job(PoolProcess(alive=False))
    assert kept(pool) == []


def test_what_was_put_back_is_given_up(pool: Pool) -> None:
    pool.outbound_buffer.append(pool.job(PoolProcess()))
    assert kept(pool) == []


def test_pools_of_other_kinds_are_left_alone() -> None:
    keep_written_jobs(None)
    keep_written_jobs(object())
