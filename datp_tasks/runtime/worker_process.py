"""What one process of a worker holds: its container, its heartbeat, and a worker per thread."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from celery import Celery

from datp_tasks.bells.broker import TASK_PREFIX
from datp_tasks.engine.guard import Guard
from datp_tasks.engine.heartbeat import Heartbeat
from datp_tasks.engine.hop_observer import HopObserver, HopSpans
from datp_tasks.engine.orphaned_claims import OrphanedClaims
from datp_tasks.engine.registry import Registry, StepType, registry
from datp_tasks.engine.task import readable_pairs
from datp_tasks.engine.worker import Worker
from datp_tasks.engine.worker_parts import Bells, StepResources, Stores, ThisNode
from datp_tasks.jobs import schedule
from datp_tasks.ledger.ticker import Ticker
from datp_tasks.live.doorbells import Doorbells
from datp_tasks.live.job_notes import TurnGate
from datp_tasks.live.redis_errors import RedisError
from datp_tasks.observe.beat_watch import BeatWatch
from datp_tasks.observe.task_events import TaskEvents
from datp_tasks.record.alerts import Alerts
from datp_tasks.runtime.container import Container
from datp_tasks.runtime.job_runner import JobRunner
from datp_tasks.runtime.main_process import WorkerInfo
from datp_tasks.settings import Settings

#: So many objects more than before, and Python looks for reference cycles. A vector makes
#: thousands, which go without that; with Python's own 700 it took a sixth of the worker's time.
NEW_OBJECTS_MAX = 20_000
#: While beat is silent, one process looks so often for alerts to tell.
TELL_AGAIN_MS = 5_000

log = logging.getLogger("datp.app")


class WorkerProcess:
    """Everything one worker process holds; made when it is first needed, after any fork."""

    def __init__(
        self,
        app: Celery,
        settings: Settings,
        *,
        info: WorkerInfo | None = None,
        connect: Callable[[], Container] | None = None,
        steps: Registry = registry,
        watch: bool = True,
    ) -> None:
        self._app = app
        self._settings = settings
        self.info = info or WorkerInfo()
        self._connect = connect or partial(Container.open, settings, celery=app)
        self._steps = steps
        self._watch = watch
        self._lock = threading.Lock()
        self._ticking = threading.Lock()
        self.forget()

    def forget(self) -> None:
        """After a fork: what the parent had belongs to the parent."""
        self._container: Container | None = None
        self._heartbeat: Heartbeat | None = None
        self._ticker: Ticker | None = None
        self._jobs: JobRunner | None = None
        self._beat_watch: BeatWatch | None = None
        self._events: TaskEvents | None = None
        self._local = threading.local()

    def close(self) -> None:
        if self._ticker is not None:
            self._ticker.stop()
        if self._events is not None:
            self._events.close()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        if self._container is not None:
            self._container.close()
        self.forget()

    # What it holds.

    @property
    def container(self) -> Container:
        with self._lock:
            if self._container is None:
                self._container = self._connect()
            return self._container

    @property
    def heartbeat(self) -> Heartbeat:
        live = self.container.live
        with self._lock:
            if self._heartbeat is None:
                self._heartbeat = Heartbeat(
                    live,
                    self._settings,
                    self._steps,
                    worker=self.info.name,
                    on_beat=self._look_at_beat,
                )
                if self._watch:
                    self._heartbeat.start()
            return self._heartbeat

    @property
    def jobs(self) -> JobRunner:
        if self._jobs is None:
            self._jobs = JobRunner(self._app, self.container, self.info, self.beat_watch)
        return self._jobs

    @property
    def beat_watch(self) -> BeatWatch:
        if self._beat_watch is None:
            shortest_s = min(schedule.period_s(self._settings, job) for job in schedule.JOBS)
            self._beat_watch = BeatWatch(
                self.container.live,
                Alerts(self.container.engine, self.container.clock),
                silent_s=max(self._settings.beat_silent_s, 3 * shortest_s),
                subject=self._settings.maintenance_group,
            )
        return self._beat_watch

    @property
    def worker(self) -> Worker:
        """The worker of this thread."""
        found: Worker | None = getattr(self._local, "worker", None)
        if found is None:
            found = self._local.worker = self._new_worker()
        return found

    # What it does.

    def join(self) -> None:
        """Be known before the first bell, so that others see which step types are offered."""
        _collect_rarely()
        if self._settings.ledger_group in self._app.amqp.queues.consume_from:
            self.keep_ticking()
        try:
            self._local.worker = self._new_worker()
        except RedisError as error:
            log.warning("Redis is unavailable; this node joins with its first bell: %s", error)

    def run_job(self, name: str, passed_on: bool) -> Any:
        result = self.jobs.run(name, passed_on)
        if name in schedule.LEDGER_JOBS and self.container.ledger.work.queuer.instance:
            # It holds a lease now, and beat's messages go to one process after the other.
            self.keep_ticking()
        return result

    def keep_ticking(self) -> None:
        """This process claims services, for as long as that is its groups' business."""
        with self._ticking:
            if self._ticker is not None:
                return
            ledger = self.container.ledger
            self._ticker = Ticker(
                ledger.work.queuer,
                ledger.work.poller.poll,
                period_s=self._settings.claim_queuer_period_s,
                is_wanted=self._serves_ledgers,
            )
            self._ticker.start()

    def _serves_ledgers(self) -> bool:
        groups = self._groups_of_node()
        return self._settings.ledger_group in groups or self.container.ledger_place() in groups

    def _look_at_beat(self) -> None:
        """Beat brings no watcher while it is silent, so the operator is told from here."""
        self.container.bells.counts.send()
        if not self.beat_watch.look():
            return
        try:
            if TurnGate(self.container.live, "tick:tell-alerts").passes(TELL_AGAIN_MS):
                self.container.webhooks.tell_alerts()
        except RedisError as error:
            log.debug("the operator is not told that beat is silent: %s", error)

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
            self._local.worker = None
            self.heartbeat.retire(worker.node)
            worker.close()
            if self._watch:
                # What it would see from now on is a step that never ends.
                self._local.guard.stop()
            raise

    def note_unknown_step(self, task_name: str, arguments: Any) -> None:
        """A bell for a step type that this worker does not have: say so, lose nothing."""
        step_type = task_name.removeprefix(TASK_PREFIX)
        pairs = readable_pairs(arguments)
        problem = f"the worker that took its bell does not offer the step type {step_type}"
        log.error("%s; %d transactions stay queued", problem, len(pairs))
        self.container.live.note_problems(pairs, problem)

    def _new_worker(self) -> Worker:
        container, groups = self.container, self._groups_of_node()
        if self._events is None and self._watch:
            self._events = TaskEvents(self._app, self.info.events_wanted, self.info.name)
        node = self.heartbeat.join(groups)
        spans = HopSpans(container.tracing, node) if container.tracing else None
        worker = Worker(
            self._settings,
            ThisNode(
                name=node,
                steps=self._steps,
                groups=groups,
                own_messages=self._settings.dispatch == "step",
            ),
            stores=Stores(
                live=container.live,
                record=container.record,
                pipelines=container.catalogue,
                clock=container.clock,
                vault=container.seals.vault,
            ),
            resources=StepResources(container.seals.secrets, container.ledger),
            bells=Bells(container.bells.ringer, container.bells.costs, Doorbells(container.live)),
            observer=HopObserver(self._steps, self._events, spans, container.bells.counts),
        )
        self.heartbeat.measure(worker.node, worker.observer.load)
        if self._watch:
            free = partial(container.recovery.take_over.from_node, worker.node)
            orphans = OrphanedClaims(container.live, worker.hop, worker.node, free)
            self._local.guard = Guard(self._settings, worker.hop, orphans)
            self._local.guard.start()
        return worker

    def _groups_of_node(self) -> frozenset[str]:
        if not self._watch:
            return frozenset()
        if self.info.served is None:
            return frozenset(self._app.amqp.queues.consume_from)
        return self.info.served


def _collect_rarely() -> None:
    """What was imported stays for good, and is not looked through again. A module of steps that
    looks more rarely, or not at all, has its way."""
    gc.freeze()
    young, middle, old = gc.get_threshold()
    if 0 < young < NEW_OBJECTS_MAX:
        gc.set_threshold(NEW_OBJECTS_MAX, middle, old)
