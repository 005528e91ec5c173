"""Our side: pipelines of steps that do nothing, a client, and one worker."""

from __future__ import annotations

import time

from benchmarks.stack import Stack
from datp_tasks import Client, Pipeline, Request, Settings
from datp_tasks.connections import Connections
from datp_tasks.local.processes import ManagedProcess

STEPS = {"three": 3, "ten": 10}
POLL_S = 0.01
GIVE_UP_S = 120.0

OPEN_LISTS = ("queuedZ", "processingZ")
NOT_SUCCESS = "SELECT count(*) FROM tx_summary WHERE status <> 'success'"


class Engine:
    def __init__(self, stack: Stack, *, vector_max: int = Settings.vector_max, **env: str) -> None:
        self._stack = stack
        self._env = {
            "DATP_REDIS_URL": stack.redis_server.url,
            "DATP_DATABASE_URL": stack.postgres.url,
            "DATP_STEPS": "benchmarks.steps",
            "DATP_VECTOR_MAX": str(vector_max),
            **env,
        }
        self._connections = Connections.open(Settings.from_env(self._env))
        self._worker: ManagedProcess | None = None
        #: How often `wait_for_all` has asked Redis: not a cost of the engine.
        self.polls = 0
        self.client = Client(self._connections)
        for name, steps in STEPS.items():
            self._use(name, steps)

    @property
    def connections(self) -> Connections:
        return self._connections

    def close(self) -> None:
        self.stop_worker()
        self.client.close()

    def start_worker(self) -> None:
        """Start it and warm it up: both processes have run, and the cost of the steps is known."""
        if self._worker is not None:
            return
        self._worker = self._stack.start_worker("datp_tasks", "master", **self._env)
        for name in STEPS:
            self.one(name)
            while self._connections.costs.vector_size(f"{name}/0") == 1 < self._vector_max:
                self.one(name)
            self.many(name, 300)

    def stop_worker(self) -> None:
        if self._worker is not None:
            self._stack.stop_worker(self._worker)
            self._worker = None

    def many(self, pipeline: str, transactions: int) -> float:
        """Hand in so many from one process; transactions a second until all are final in SQL."""
        requests = self.requests(pipeline, transactions)
        began_s = time.perf_counter()
        self.client.submit_many(requests)
        self.wait_for_all()
        took_s = time.perf_counter() - began_s
        if self._stack.sql(NOT_SUCCESS):
            raise AssertionError("not every transaction is a success in SQL")
        return transactions / took_s

    def one(self, pipeline: str) -> float:
        """Hand in one and wait for it; the seconds that took."""
        began_s = time.perf_counter()
        submitted = self.client.submit(pipeline, {"n": 1})
        self.client.wait(submitted.tx_id, GIVE_UP_S)
        return time.perf_counter() - began_s

    def wait_for_all(self) -> None:
        """Redis is asked, which is cheap; it learns of an end after SQL has committed it."""
        give_up_s = time.monotonic() + GIVE_UP_S
        while left := self._still_open():
            if time.monotonic() > give_up_s:
                raise TimeoutError(f"{left} transactions have not ended after {GIVE_UP_S:g} s")
            time.sleep(POLL_S)

    def _still_open(self) -> int:
        self.polls += 1
        sizes = self._connections.live.sizes()
        return sum(sizes[name] for name in OPEN_LISTS)

    @staticmethod
    def requests(pipeline: str, transactions: int, padding: str = "") -> list[Request]:
        more = {"padding": padding} if padding else {}
        return [Request(pipeline=pipeline, data={"n": n, **more}) for n in range(transactions)]

    @property
    def _vector_max(self) -> int:
        return self._connections.settings.vector_max

    def _use(self, name: str, steps: int) -> None:
        pipeline = Pipeline(name)
        for _ in range(steps):
            pipeline.step("bench/pass")
        store = self._connections.pipelines
        applied = store.apply(pipeline.build())
        store.use(applied.name, applied.version)
