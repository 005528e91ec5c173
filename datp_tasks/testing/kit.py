"""The kit: a whole system in one process, on real servers, with a clock of its own."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from datp_tasks import failpoints
from datp_tasks.bells.broker import make_celery
from datp_tasks.clock import VirtualClock
from datp_tasks.engine.registry import Registry, StepType, discover, param_mistakes, registry
from datp_tasks.errors import PipelineInvalid
from datp_tasks.jobs.schedule import JOBS
from datp_tasks.model.pipeline import PipelineDefinition
from datp_tasks.model.status import Status
from datp_tasks.pipelines.files import load_definitions
from datp_tasks.record.record_types import Summary
from datp_tasks.runtime import jobs
from datp_tasks.runtime.clients import make_client, make_operator
from datp_tasks.runtime.container import Container
from datp_tasks.runtime.jobs import Backlog
from datp_tasks.runtime.tasks import register
from datp_tasks.runtime.worker_process import WorkerProcess
from datp_tasks.settings import Settings
from datp_tasks.testing.eager import EagerRing, EagerSend
from datp_tasks.testing.servers import Servers

#: A pipeline that has not come to rest after so many wake-ups never will.
WAKE_UPS_MAX = 1_000
ANOTHER_WAITS_S = 0.3
#: Nothing is cached, webhooks may go to receivers of the test, and their job waits for them.
OF_A_KIT: dict[str, Any] = {
    "pipeline_reload_s": 0,
    "webhook_private_hosts": ("127.0.0.1",),
    "webhook_run_s": 60,
    # A test is one person. What needs two has a policy of its own: Kit(servers, policy_file="…").
    "policy_file": "single-person",
}


def _no_message_waits(group: str) -> int:
    return 0


class Kit:
    """Submit, let time pass, set switches, crash: everything happens at once and in order."""

    #: Where `use` looks for files.
    folders: tuple[Path, ...] = (Path(),)

    def __init__(self, servers: Servers, **changes: Any) -> None:
        discover(())
        servers.empty_tables()
        self.settings = Settings(
            key_prefix=f"{servers.prefix}-{secrets.token_hex(3)}",
            **{**servers.places(), **OF_A_KIT, **changes},
        )
        self.clock = VirtualClock()
        #: What happens whenever time passes, in this order.
        self.jobs = tuple(JOBS)
        self.steps: Registry = registry.copy()
        self._open()

    def _open(self) -> None:
        celery = make_celery(self.settings, eager=True)
        self.send = EagerSend(celery)
        self.ring_ledger = EagerRing(celery)
        self.process = WorkerProcess(
            celery,
            self.settings,
            connect=lambda: Container.open(
                self.settings,
                clock=self.clock,
                celery=celery,
                send=self.send,
                ring_ledger=self.ring_ledger,
                # They are sent when the job runs, not by themselves.
                ring_webhooks=lambda: None,
            ),
            steps=self.steps,
            watch=False,
        )
        self.send.process = self.process
        register(celery, self.process, self.steps)
        self.celery = celery
        # Everything happens in this thread: what `submit_in` left is started when time passes.
        self.client = make_client(self.connections, watches=False)
        self.operator = make_operator(self.connections)

    @property
    def connections(self) -> Container:
        return self.process.container

    def close(self) -> None:
        failpoints.disarm_all()
        self.client.close()
        self.process.close()

    # Declaring.

    def step(self, name: str, **options: Any) -> Callable[[Callable[..., Any]], StepType]:
        """Like `@step`, for this kit only."""
        return self.steps.step(name, **options)

    def use(self, *pipelines: PipelineDefinition | str | Path) -> None:
        """Put pipelines into use: built ones, or YAML and JSON files or folders of them.

        A relative path is looked for beside the test, then in the current directory. Mistakes in
        the params of their steps are refused.
        """
        definitions = list(self._definitions(pipelines))
        mistakes = param_mistakes(definitions, self.steps)
        if mistakes:
            raise PipelineInvalid(mistakes)
        for definition in definitions:
            applied = self.connections.pipelines.apply(definition)
            self.connections.pipelines.use(applied.name, applied.version)

    def _definitions(
        self, pipelines: Sequence[PipelineDefinition | str | Path]
    ) -> Iterator[PipelineDefinition]:
        for each in pipelines:
            if isinstance(each, PipelineDefinition):
                yield each
                continue
            path = next((base / each for base in self.folders if (base / each).exists()), each)
            yield from load_definitions([Path(path)])

    # Running.

    def submit(self, pipeline: str, data: Mapping[str, Any], **options: Any) -> str:
        """Hand in a transaction; it runs until it ends, sleeps or crashes."""
        return self.client.submit(pipeline, data, **options).tx_id

    def run(self, pipeline: str, data: Mapping[str, Any], **options: Any) -> Summary:
        """Run a transaction to its end, or to where it waits for a switch."""
        return self.finish(self.submit(pipeline, data, **options))

    def submit_together(
        self, pipeline: str, inputs: Sequence[Mapping[str, Any]], **options: Any
    ) -> list[str]:
        """Hand in several and ring one bell for all, so that they run as one vector."""
        was_lost = self.send.deaf
        self.lose_bells()
        try:
            tx_ids = [self.submit(pipeline, data, **options) for data in inputs]
        finally:
            self.lose_bells(was_lost)
        self.ring_together(tx_ids)
        return tx_ids

    def run_together(
        self, pipeline: str, inputs: Sequence[Mapping[str, Any]], **options: Any
    ) -> list[Summary]:
        """Run several as one vector, each to its end or to where it waits for a switch."""
        return [self.finish(tx_id) for tx_id in self.submit_together(pipeline, inputs, **options)]

    def ring_together(self, tx_ids: Sequence[str]) -> None:
        """One bell for all of these that are queued; one per step type, if they are at several."""
        bells: dict[str, list[tuple[str, int]]] = {}
        for tx_id, fields in zip(tx_ids, self.connections.live.fields_many(tx_ids), strict=True):
            if fields.get("status") == Status.QUEUED:
                pairs = bells.setdefault(fields["stepType"], [])
                pairs.append((tx_id, int(fields["sequence"])))
        for step_type, pairs in bells.items():
            self.send(step_type, pairs, group="", priority="in")

    def finish(self, tx_id: str) -> Summary:
        """Let time pass until the transaction has ended, or only a switch can move it."""
        for _ in range(WAKE_UPS_MAX):
            summary = self.client.status(tx_id)
            if summary.status is not Status.SLEEPING:
                return summary
            fields = self.connections.live.fields_many([tx_id])[0]
            if "wakeSwitch" in fields:
                return summary
            wait_ms = int(fields["wakeTime"]) - self.connections.live.server_now_ms()
            self.advance(seconds=max(wait_ms, 0) / 1_000)
        raise AssertionError(f"{tx_id} woke up {WAKE_UPS_MAX} times and has not ended")

    def status(self, tx_id: str) -> Summary:
        return self.client.status(tx_id)

    def set_switch(self, tx_id: str, name: str, value: bool | int | float | str) -> Summary:
        """Set a switch and see where that brings the transaction."""
        self.client.set_switch(tx_id, name, value)
        return self.client.status(tx_id)

    # Time.

    def advance(self, *, seconds: float = 0, days: float = 0) -> None:
        """Let time pass; what is due by then happens."""
        self.clock.advance(seconds=seconds, days=days)
        self._age_locks(int((seconds + days * 86_400) * 1_000))
        # The worker lives on meanwhile; only nodes that crashed have fallen silent.
        self.process.heartbeat.beat_once()
        self.client.place_committed()
        self.run_jobs()

    def _age_locks(self, passed_ms: int) -> None:
        """Redis counts down in real time; a lock whose holder crashed must end by this clock."""
        live = self.connections.live
        archive = [live.keys.in_shard("archive", name) for name in ("archiveLock1", "archiveLock2")]
        for key in (*archive, live.keys.outside("rebuilding")):
            left_ms = int(live.redis.pttl(key))
            if left_ms > 0:
                # With no time left it is gone at once.
                live.redis.pexpire(key, max(0, left_ms - passed_ms))

    def run_jobs(self) -> None:
        for job in self.jobs:
            self.run_job(job)

    def run_job(self, name: str, *, backlog: Backlog = _no_message_waits) -> Any:
        """One run of a job; `backlog` says how many messages wait for a node group."""
        return jobs.run(name, self.connections, backlog)

    # Trouble.

    def crash_at(self, point: str, *, nth: int = 1) -> None:
        """The process dies when this point is reached; `failpoints.POINTS` names them all."""
        failpoints.arm(point, "crash", nth=nth)

    def recover(self) -> None:
        """Let so much time pass that dead nodes are noticed and lost bells rung again."""
        failpoints.disarm_all()
        self.repair()

    def repair(self) -> None:
        """Like `recover`, but what is armed stays armed: the repair may crash as well."""
        settings = self.settings
        self.advance(seconds=settings.node_stale_ms / 1_000 + 1)
        self.advance(seconds=settings.node_grace_ms / 1_000 + 1)
        # What was in the middle of a step that is not safe to run again is taken over later.
        self.advance(seconds=settings.step_timeout_s + 1)
        self.advance(seconds=settings.ring_again_after_ms / 1_000 + 1)

    def another(self) -> Kit:
        """A second process of the same system, as another machine would run it."""
        return _Another(self)

    def lose_bells(self, lost: bool = True) -> None:
        """From now on (or no longer) the broker loses every message."""
        self.send.deaf = self.ring_ledger.deaf = lost


class _Another(Kit):
    """Same servers, same clock, same steps; connections, bells and nodes of its own."""

    def __init__(self, first: Kit) -> None:
        # It must not wait long for a row that the first one holds while it stands still.
        self.settings = replace(first.settings, sql_statement_timeout_s=ANOTHER_WAITS_S)
        self.clock = first.clock
        self.jobs = first.jobs
        self.steps = first.steps
        self._open()

    def close(self) -> None:
        self.client.close()
        self.process.close()
