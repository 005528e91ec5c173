"""What a worker process is made of, and the Celery tasks it offers."""

from __future__ import annotations

import importlib
import logging
import random
import threading
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any

from celery import Celery
from redis.exceptions import RedisError
from sqlalchemy.exc import SQLAlchemyError

from datp_tasks.bells.broker import TASK_PREFIX, backlog
from datp_tasks.bells.ringer import Send
from datp_tasks.clock import Clock
from datp_tasks.engine.guard import Guard
from datp_tasks.engine.heartbeat import Heartbeat
from datp_tasks.engine.orphaned_claims import OrphanedClaims
from datp_tasks.engine.registry import Registry, StepType, registry
from datp_tasks.engine.steering import Steering, stopped
from datp_tasks.engine.task import make_task, readable_pairs
from datp_tasks.engine.worker import Worker
from datp_tasks.jobs import reaper, schedule, webhook_sender
from datp_tasks.ledger.bell import SUBMIT_TASK, readable_works
from datp_tasks.ledger.ticker import Ticker
from datp_tasks.ledger.types import Ring
from datp_tasks.live.group_copy import GroupCopy
from datp_tasks.live.keys import Keys
from datp_tasks.observe.beat_watch import BeatWatch
from datp_tasks.observe.task_events import SharedFlag, TaskEvents, wants_task_events
from datp_tasks.record.alerts import Alerts
from datp_tasks.runtime.container import Container, make_redis
from datp_tasks.runtime.group_book import GroupBook
from datp_tasks.settings import Settings
from datp_tasks.webhooks.bell import SEND_TASK

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
        ring_webhooks: Callable[[], None] | None = None,
    ) -> None:
        self._app = app
        self._settings = settings
        self._clock = clock
        self._send = send
        self._steps = steps
        self._watch = watch
        self._ring_ledger = ring_ledger
        self._ring_webhooks = ring_webhooks
        self._lock = threading.Lock()
        self._connections: Container | None = None
        self._pulse: Heartbeat | None = None
        self._heart: Ticker | None = None
        self._local = threading.local()
        self._book: GroupBook | None = None
        self._beat_watch: BeatWatch | None = None
        self._events: TaskEvents | None = None
        # What the main process says and its pool processes inherit.
        self._served: frozenset[str] | None = None
        self._worker_name = ""
        self._events_wanted = SharedFlag()
        self._steering: Steering | None = None

    @property
    def connections(self) -> Container:
        with self._lock:
            if self._connections is None:
                self._connections = Container.open(
                    self._settings,
                    clock=self._clock,
                    celery=self._app,
                    send=self._send,
                    ring_ledger=self._ring_ledger,
                    ring_webhooks=self._ring_webhooks,
                )
            return self._connections

    @property
    def heartbeat(self) -> Heartbeat:
        live = self.connections.live
        with self._lock:
            if self._pulse is None:
                self._pulse = Heartbeat(
                    live,
                    self._settings,
                    self._steps.names,
                    worker=self._worker_name,
                    on_beat=lambda: self.beat_watch.look(),
                )
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

    def run_hop(self, step_type: StepType, pairs: list[tuple[str, int]], answers: str = "") -> int:
        """One bell. A hop that breaks off leaves its transactions to the reaper."""
        worker = self.worker
        size = self._settings.vector_max
        try:
            return sum(
                worker.hop.run(step_type, pairs[start : start + size], "" if start else answers)
                for start in range(0, len(pairs), size)
            )
        except BaseException:
            # This node may still hold claims without a worker: only its silence frees them.
            self.heartbeat.retire(worker.node)
            worker.close()
            self._local.worker = None
            if self._watch:
                # What it would see from now on is a step that never ends.
                self._local.guard.stop()
            raise

    def run_job(self, name: str, passed_on: bool = False) -> Any:
        """One run of a maintenance job, unless another process has just done it.

        A job whose role other groups have is passed on to one of them, and not a second time.
        """
        connections = self.connections
        self.beat_watch.seen()
        role = schedule.ROLES.get(name, "")
        holders = self.group_book.holders(role) if role else []
        mine = self.served.intersection(holders)
        if holders and not mine and not passed_on:
            self._pass_on(name, random.choice(holders))
            return None
        gate = connections.live.keys.outside(f"tick:{name}")
        pause_ms = int(schedule.period_s(self._settings, name) * 500)
        if not connections.redis.set(gate, "1", nx=True, px=pause_ms):
            return None
        job = importlib.import_module(f"datp_tasks.jobs.{name}")
        connections = self._as_group_says(connections, sorted(mine)[:1])
        if name in schedule.COUNTING_JOBS:
            return job.run_once(connections, lambda group: backlog(self._app, group))
        return job.run_once(connections)

    def _pass_on(self, name: str, group: str) -> None:
        self._app.send_task(schedule.TASK_PREFIX + name, args=(True,), queue=group, priority=0)

    def _as_group_says(self, connections: Container, groups: list[str]) -> Container:
        """Batches and pauses of the group that does the job take the place of the settings."""
        known = {item.name for item in fields(self._settings)}
        given: dict[str, Any] = {
            setting: value
            for group in groups
            for setting, value in self.group_book.groups()[group].overrides.items()
            if setting in known
        }
        if not given:
            return connections
        return replace(connections, settings=replace(self._settings, **given))

    def run_webhooks(self, passed_on: bool = False) -> Any:
        """Some have just become due: the job, without waiting for its time."""
        holders = self.group_book.holders(schedule.ROLES["webhook_sender"])
        mine = self.served.intersection(holders)
        if holders and not mine and not passed_on:
            queue = random.choice(holders)
            self._app.send_task(SEND_TASK, args=(True,), queue=queue, priority=0)
            return None
        return webhook_sender.send(self._as_group_says(self.connections, sorted(mine)[:1]))

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
            self._heart = Ticker(ledger.queuer, ledger.poll, period_s=period_s)
            self._heart.start()
        try:
            self._local.worker = self._new_worker()
        except RedisError as error:
            log.warning("Redis is away; this node joins with its first bell: %s", error)

    @property
    def served(self) -> frozenset[str]:
        """The groups that this worker was started for, also those that are stopped now."""
        return self._served or frozenset()

    @property
    def group_book(self) -> GroupBook:
        if self._book is None:
            self._book = GroupBook(self.connections.groups, self._settings.pipeline_reload_s)
        return self._book

    @property
    def beat_watch(self) -> BeatWatch:
        if self._beat_watch is None:
            shortest_s = min(schedule.period_s(self._settings, job) for job in schedule.JOBS)
            self._beat_watch = BeatWatch(
                self.connections.live,
                Alerts(self.connections.engine, self.connections.clock),
                silent_s=max(self._settings.beat_silent_s, 3 * shortest_s),
                subject=self._settings.maintenance_group,
            )
        return self._beat_watch

    # The main process of a worker.

    def set_up(self, worker_name: str) -> None:
        """Before the pool is made: know the groups, and do not begin with one that is stopped."""
        queues = self._app.amqp.queues
        self._served = frozenset(queues.consume_from)
        self._worker_name = worker_name
        # Container of its own, closed at once: none may be inherited by the pool.
        connections = Container.open(self._settings, celery=self._app)
        try:
            queues.deselect(sorted(stopped(connections.groups.current()) & self._served))
        except (RedisError, SQLAlchemyError) as error:
            log.warning("node groups are not known yet: %s", error)
        finally:
            connections.close()

    def steer(self, consumer: Any) -> None:
        """From now on, pool and queues follow what the groups say."""
        # Only the copy in Redis is read here: a connection to SQL must not be forked.
        copy = GroupCopy(make_redis(self._settings), Keys(self._settings.key_prefix))
        self._steering = Steering(
            consumer,
            self.served,
            copy.read,
            every_s=self._settings.node_beat_ms / 1_000,
            on_look=lambda: self._events_wanted.set(wants_task_events(consumer)),
        )
        self._steering.start()

    def look_at_groups(self) -> None:
        if self._steering is not None:
            self._steering.nudge()

    def stop_steering(self) -> None:
        if self._steering is not None:
            self._steering.stop()

    def forget(self) -> None:
        """After a fork: what the parent had belongs to the parent."""
        self._connections = self._pulse = self._heart = None
        self._book = self._beat_watch = self._events = self._steering = None
        self._local = threading.local()

    def close(self) -> None:
        if self._heart is not None:
            self._heart.stop()
        if self._events is not None:
            self._events.close()
        if self._pulse is not None:
            self._pulse.stop()
        if self._connections is not None:
            self._connections.close()
        self.forget()

    def _new_worker(self) -> Worker:
        connections = self.connections
        groups = self._groups_of_node()
        if self._events is None and self._watch:
            self._events = TaskEvents(self._app, self._events_wanted, self._worker_name)
        worker = Worker(
            settings=self._settings,
            clock=connections.clock,
            live=connections.live,
            record=connections.record,
            ringer=connections.ringer,
            costs=connections.costs,
            pipelines=connections.catalogue,
            registry=self._steps,
            node=self.heartbeat.join(groups),
            groups=groups,
            ledger=connections.ledger,
            events=self._events,
            tracing=connections.tracing,
        )
        self.heartbeat.measure(worker.node, worker.observer.load)
        if self._watch:
            free = partial(reaper.take, connections, worker.node)
            orphans = OrphanedClaims(connections.live, worker.hop, worker.node, free)
            self._local.guard = Guard(self._settings, worker.hop, orphans)
            self._local.guard.start()
        return worker

    def _groups_of_node(self) -> frozenset[str]:
        if not self._watch:
            return frozenset()
        if self._served is None:
            return frozenset(self._app.amqp.queues.consume_from)
        return self._served


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

    def send(passed_on: Any = False, *_: Any, **__: Any) -> str:
        return str(process.run_webhooks(passed_on is True))

    app.task(send, name=SEND_TASK, ignore_result=True, acks_late=False, shared=False)


def _job(process: WorkerProcess, name: str) -> Callable[..., str | None]:
    def run(passed_on: bool = False, *_: Any, **__: Any) -> str | None:
        result = process.run_job(name, passed_on is True)
        return None if result is None else str(result)

    run.__name__ = name
    return run
