"""Celery's side: chains of tasks that do nothing, a client, and one worker of the same size."""

from __future__ import annotations

import time
from collections.abc import Iterable

from celery import chain
from redis import Redis

from benchmarks import chain_app
from benchmarks.stack import PROCESSES, Stack
from datp_tasks.local.processes import ManagedProcess

POLL_S = 0.01
GIVE_UP_S = 120


class Chain:
    #: What the worker imports.
    app = "benchmarks.chain_app"

    def __init__(self, stack: Stack, *, processes: int = PROCESSES) -> None:
        self._stack = stack
        self._processes = processes
        self._redis = Redis.from_url(stack.chain_url)
        self._worker: ManagedProcess | None = None
        chain_app.app.conf.broker_url = stack.chain_url

    def environment(self) -> dict[str, str]:
        return {chain_app.BROKER: self._stack.chain_url}

    def start_worker(self) -> None:
        """Start it and warm it up."""
        if self._worker is None:
            self._worker = self._stack.start_worker(
                self.app, chain_app.QUEUE, self.environment(), processes=self._processes
            )
            self.warm_up()

    def warm_up(self) -> None:
        self.many(3, 30)

    def close(self) -> None:
        self.stop_worker()
        self._redis.close()

    def stop_worker(self) -> None:
        if self._worker is not None:
            self._stack.stop(self._worker)
            self._worker = None

    def many(self, steps: int, chains: int) -> float:
        """Chains of so many steps a second."""
        return self.run(_chain(steps, number) for number in range(chains))

    def run(self, chains: Iterable[chain]) -> float:
        """Send them from one process; chains a second until the last task of each has run."""
        give_up_s = time.monotonic() + GIVE_UP_S
        self._redis.delete(chain_app.DONE)
        sent = 0
        began_s = time.perf_counter()
        for each in chains:
            each.apply_async()
            sent += 1
        while int(self._redis.llen(chain_app.DONE)) < sent:
            if time.monotonic() > give_up_s:
                raise TimeoutError(f"the chains have not ended after {GIVE_UP_S} s")
            time.sleep(POLL_S)
        return sent / (time.perf_counter() - began_s)

    def one(self, steps: int) -> float:
        """Send one and wait for its last task; the seconds that took."""
        self._redis.delete(chain_app.DONE)
        began_s = time.perf_counter()
        _chain(steps, 1).apply_async()
        if self._redis.blpop([chain_app.DONE], timeout=GIVE_UP_S) is None:
            raise TimeoutError(f"a chain has not ended after {GIVE_UP_S} s")
        return time.perf_counter() - began_s


def _chain(steps: int, number: int) -> chain:
    first = chain_app.pass_on.s({"n": number})
    middle = [chain_app.pass_on.s() for _ in range(steps - 2)]
    return chain(first, *middle, chain_app.last.s())
