"""What a worker process is made of, and the Celery tasks it offers."""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from celery import Celery
from redis.exceptions import RedisError

from datp_tasks.bells.broker import TASK_PREFIX, backlog
from datp_tasks.bells.ringer import Send
from datp_tasks.clock import Clock
from datp_tasks.connections import Connections
from datp_tasks.ledger.bell import SUBMIT_TASK, readable_works
from datp_tasks.ledger.heart import Heart
from datp_tasks.ledger.words import Ring
from datp_tasks.maintenance import reaper, schedule
from datp_tasks.settings import Settings
from datp_tasks.steps.forgotten import Forgotten
from datp_tasks.steps.pulse import Pulse
from datp_tasks.steps.registry import Registry, StepType, registry
from datp_tasks.steps.task import make_task, readable_pairs
from datp_tasks.steps.watchman import Watchman
from datp_tasks.steps.worker import Worker

log = logging.getLogger("datp.app")


class WorkerProcess:
    """Everything one worker process holds; made when it is first needed, after any fork."""

    def __init__(
        self,
        app: Celery,
        settings: Settings,
        *,
        clock: Clock | None = None,
        send: Send | None = None,
        steps: Registry = registry,
        watch: bool = True,
        ring_ledger: Ring | None = None,
    ) -> None:
        self._app = app
        self._settings = settings
        self._clock = clock
        self._send = send
        self._steps = steps
        self._watch = watch
        self._ring_ledger = ring_ledger
        self._lock = threading.Lock()
        self._connections: Connections | None = None
        self._pulse: Pulse | None = None
        self._heart: Heart | None = None
        self._local = threading.local()

    @property
    def connections(self) -> Connections:
        with self._lock:
            if self._connections is None:
                self._connections = Connections.open(
                    self._settings,
                    clock=self._clock,
                    celery=self._app,
                    send=self._send,
                    ring_ledger=self._ring_ledger,
                )
            return self._connections

    @property
    def pulse(self) -> Pulse:
        live = self.connections.live
        with self._lock:
            if self._pulse is None:
                self._pulse = Pulse(live, self._settings, self._steps.names)
                if self._watch:
                    self._pulse.start()
            return self._pulse

    @property
    def worker(self) -> Worker:
        """The worker of this thread."""
        found: Worker | None = getattr(self._local, "worker", None)
        if found is None:
            found = self._local.worker = self._new_worker()
        return found

    def run_hop(self, step_type: StepType, pairs: list[tuple[str, int]]) -> int:
        """One bell. A hop that breaks off leaves its transactions to the reaper."""
        worker = self.worker
        size = self._settings.vector_max
        try:
            return sum(
                worker.hop.run(step_type, pairs[start : start + size])
                for start in range(0, len(pairs), size)
            )
        except BaseException:
            # This node may still hold claims that nobody works on: only its silence frees them.
            self.pulse.retire(worker.node)
            self._local.worker = None
            if self._watch:
                # What it would see from now on is a step that never ends.
                self._local.watchman.stop()
            raise

    def run_job(self, name: str) -> Any:
        """One run of a maintenance job, unless another process has just done it."""
        connections = self.connections
        gate = connections.live.keys.outside(f"tick:{name}")
        pause_ms = int(schedule.period_s(self._settings, name) * 500)
        if not connections.redis.set(gate, "1", nx=True, px=pause_ms):
            return None
        job = importlib.import_module(f"datp_tasks.maintenance.{name}")
        if name == "reconciler":
            return job.run_once(connections, lambda group: backlog(self._app, group))
        return job.run_once(connections)

    def run_ledger(self, given: Any) -> str:
        """One submit message; a forged or garbled one is at worst a message for nothing."""
        return str(self.connections.ledger.submitter.run(readable_works(given)))

    def note_unknown_step(self, task_name: str, arguments: Any) -> None:
        """A bell for a step type that this worker does not have: say so, lose nothing."""
        step_type = task_name.removeprefix(TASK_PREFIX)
        pairs = readable_pairs(arguments)
        problem = f"the worker that took its bell does not offer the step type {step_type}"
        log.error("%s; %d transactions stay queued", problem, len(pairs))
        self.connections.live.note_problems(pairs, problem)

    def join(self) -> None:
        """Be known before the first bell, so that others see which step types are offered."""
        if self._settings.ledger_group in self._app.amqp.queues.consume_from:
            ledger = self.connections.ledger
            period_s = self._settings.claim_queuer_period_s
            self._heart = Heart(ledger.queuer, ledger.poll, period_s=period_s)
            self._heart.start()
        try:
            self._local.worker = self._new_worker()
        except RedisError as error:
            log.warning("Redis is away; this node joins with its first bell: %s", error)

    def forget(self) -> None:
        """After a fork: what the parent had belongs to the parent."""
        self._connections = self._pulse = self._heart = None
        self._local = threading.local()

    def close(self) -> None:
        if self._heart is not None:
            self._heart.stop()
        if self._pulse is not None:
            self._pulse.stop()
        if self._connections is not None:
            self._connections.close()
        self.forget()

    def _new_worker(self) -> Worker:
        connections = self.connections
        groups = frozenset(self._app.amqp.queues.consume_from) if self._watch else frozenset()
        worker = Worker(
            settings=self._settings,
            clock=connections.clock,
            live=connections.live,
            record=connections.record,
            ringer=connections.ringer,
            costs=connections.costs,
            pipelines=connections.catalogue,
            registry=self._steps,
            node=self.pulse.join(groups),
            groups=groups,
            ledger=connections.ledger,
        )
        if self._watch:
            free = partial(reaper.take, connections, worker.node)
            forgotten = Forgotten(connections.live, worker.hop, worker.node, free)
            self._local.watchman = Watchman(self._settings, worker.hop, forgotten)
            self._local.watchman.start()
        return worker


def register(app: Celery, process: WorkerProcess, steps: Registry = registry) -> None:
    """Give the app a task per step type and maintenance job, and the one that submits batches."""

    def add(step_type: StepType) -> None:
        app.register_task(make_task(step_type, process.run_hop))

    steps.listen(add)
    for job in schedule.JOBS:
        app.task(
            _job(process, job),
            name=schedule.TASK_PREFIX + job,
            ignore_result=True,
            acks_late=False,
            shared=False,
        )

    def submit(works: Any = None, *_: Any, **__: Any) -> str:
        return process.run_ledger(works)

    app.task(submit, name=SUBMIT_TASK, ignore_result=True, acks_late=False, shared=False)


def _job(process: WorkerProcess, name: str) -> Callable[[], str | None]:
    def run() -> str | None:
        result = process.run_job(name)
        return None if result is None else str(result)

    run.__name__ = name
    return run
