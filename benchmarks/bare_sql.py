"""Transfers without any engine: processes with a connection each, and a list of what to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from sqlalchemy import Engine, create_engine

from benchmarks import books, set_based

BATCH = 100

Work = Callable[[str, Sequence[books.Data]], None]

#: Of a process of the pool.
_engine: Engine


def _connect(url: str) -> None:
    global _engine
    _engine = create_engine(url)


def one_by_one(mark: str, wanted: Sequence[books.Data]) -> None:
    """The same functions as every other side, one transaction per step."""
    for number, data in enumerate(wanted):
        tx_id = f"{mark}-{number}"
        books.validate(data)
        with _engine.begin() as connection:
            books.reserve(connection, tx_id, data)
        with _engine.begin() as connection:
            books.commit(connection, tx_id, data)


def set_by_set(mark: str, wanted: Sequence[books.Data]) -> None:
    """A hundred transfers per statement and commit."""
    for start in range(0, len(wanted), BATCH):
        batch = [(f"{mark}-{start + n}", d) for n, d in enumerate(wanted[start : start + BATCH])]
        for _, data in batch:
            books.validate(data)
        with _engine.begin() as connection:
            held = set_based.reserve(connection, batch)
        with _engine.begin() as connection:
            moved = set_based.commit(connection, batch)
        if not len(batch) == len(held) == len(moved):
            raise AssertionError(f"{len(held)} were held and {len(moved)} moved of {len(batch)}")


class BareSql:
    def __init__(self, url: str, processes: int) -> None:
        self._processes = processes
        # Spawned, not forked: the parent has threads and connections.
        self._pool = ProcessPoolExecutor(
            processes, mp_context=get_context("spawn"), initializer=_connect, initargs=(url,)
        )

    def close(self) -> None:
        self._pool.shutdown()

    def run(self, work: Work, mark: str, wanted: Sequence[books.Data]) -> float:
        """Transfers a second, when each process has its share of them."""
        shares = [wanted[number :: self._processes] for number in range(self._processes)]
        began_s = time.perf_counter()
        running = [
            self._pool.submit(work, f"{mark}-{number}", share)
            for number, share in enumerate(shares)
        ]
        for each in running:
            each.result()
        return len(wanted) / (time.perf_counter() - began_s)
