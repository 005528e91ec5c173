"""Our side: a client and workers; and pipelines of steps that do nothing to measure them with."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.stack import PROCESSES, Stack
from datp_tasks import Pipeline, Request, Settings
from datp_tasks.local.processes import ManagedProcess
from datp_tasks.model.pipeline import PipelineDefinition
from datp_tasks.runtime.clients import make_client
from datp_tasks.runtime.container import Container
from datp_tasks.settings import environment

STEPS = {"three": 3, "ten": 10}
POLL_S = 0.01
GIVE_UP_S = 120.0
#: Single transactions until the cost of a step is known; a slow machine may never share bells.
WARM_UP_MAX = 200
WARM_UP_MANY = 300

OPEN_LISTS = ("queuedZ", "processingZ")
NOT_SUCCESS = "SELECT count(*) FROM tx_summary WHERE status <> 'success'"


class System:
    """One DATP on the servers of the benchmark: a client in this process, a worker per group."""

    def __init__(
        self,
        stack: Stack,
        *,
        steps: str,
        groups: Sequence[str] = ("master",),
        processes: int = PROCESSES,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._stack = stack
        self._groups = groups
        self._processes = processes
        self.environment = {**stack.environment, "DATP_STEPS": steps, **(env or {})}
        self.connections = Container.open(Settings.from_env(self.environment))
        self.client = make_client(self.connections)
        self.workers: list[ManagedProcess] = []
        live = self.connections.live
        self._lists = [
            live.keys.in_shard(shard, name) for shard in live.shards for name in OPEN_LISTS
        ]

    def close(self) -> None:
        self.stop_worker()
        self.client.close()

    def use(self, definition: PipelineDefinition) -> None:
        store = self.connections.pipelines
        applied = store.apply(definition)
        store.use(applied.name, applied.version)

    def start_worker(self) -> None:
        """One for each group, warmed up."""
        if not self.workers:
            self.workers = [
                self._stack.start_worker(
                    "datp_tasks", group, self.environment, processes=self._processes
                )
                for group in self._groups
            ]
            self.warm_up()

    def warm_up(self) -> None:
        """Run what will be measured, so that each process has run and costs of steps are known."""

    def stop_worker(self) -> None:
        for worker in self.workers:
            self._stack.stop(worker)
        self.workers = []

    def run(self, requests: Sequence[Request], give_up_s: float = GIVE_UP_S) -> float:
        """Hand them in from one process; transactions a second until all are final in SQL."""
        began_s = time.perf_counter()
        self.client.submit_many(requests)
        self.wait_for_all(give_up_s)
        took_s = time.perf_counter() - began_s
        self.check_all_succeeded()
        return len(requests) / took_s

    def wait_for_all(self, give_up_s: float = GIVE_UP_S) -> None:
        """Redis is asked, which learns of an end after SQL has committed it. Mostly one list
        alone, which costs as much as the question for the end of Celery's chains."""
        ends_s = time.monotonic() + give_up_s
        busy = self._busy_list()
        while busy:
            if time.monotonic() > ends_s:
                left = self.still_open()
                raise TimeoutError(f"{left} transactions have not ended after {give_up_s:g} s")
            time.sleep(POLL_S)
            if not self._counts([busy])[0]:
                busy = self._busy_list()

    def still_open(self) -> int:
        return sum(self._counts(self._lists))

    def _busy_list(self) -> str | None:
        counts = self._counts(self._lists)
        return next((name for name, count in zip(self._lists, counts, strict=True) if count), None)

    def _counts(self, lists: Sequence[str]) -> list[int]:
        return self.connections.live.send([("ZCARD", each) for each in lists])

    def check_all_succeeded(self) -> None:
        if self._stack.sql(NOT_SUCCESS):
            raise AssertionError("not every transaction is a success in SQL")


class Engine(System):
    """With steps that do nothing, so that what is left is the engine."""

    def __init__(self, stack: Stack, *, processes: int = PROCESSES, **settings: Any) -> None:
        env = environment(settings)
        super().__init__(stack, steps="benchmarks.steps", processes=processes, env=env)
        for name, steps in STEPS.items():
            pipeline = Pipeline(name)
            for _ in range(steps):
                pipeline.step("bench/pass")
            self.use(pipeline.build())

    def warm_up(self) -> None:
        vector_max = self.connections.settings.vector_max
        for name in STEPS:
            self.one(name)
            for _ in range(WARM_UP_MAX):
                if self.connections.bells.costs.vector_size(f"{name}/0") > 1 or vector_max == 1:
                    break
                self.one(name)
            self.many(name, WARM_UP_MANY)

    def many(self, pipeline: str, transactions: int) -> float:
        """Transactions a second."""
        return self.run(self.requests(pipeline, transactions))

    def one(self, pipeline: str) -> float:
        """Hand in one and wait for it; the seconds that took."""
        began_s = time.perf_counter()
        submitted = self.client.submit(pipeline, {"n": 1})
        self.client.wait(submitted.tx_id, GIVE_UP_S)
        return time.perf_counter() - began_s

    @staticmethod
    def requests(pipeline: str, transactions: int, padding: str = "") -> list[Request]:
        more = {"padding": padding} if padding else {}
        return [Request(pipeline=pipeline, input={"n": n, **more}) for n in range(transactions)]
