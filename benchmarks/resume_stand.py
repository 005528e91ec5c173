"""For the resume part: two workers and beat in a group of their own, one of which gets killed."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

from benchmarks.stack import Stack
from datp_tasks import Pipeline, Request, Settings
from datp_tasks.local.processes import ManagedProcess
from datp_tasks.runtime.clients import make_client
from datp_tasks.runtime.container import Container
from datp_tasks.settings import environment

GROUP = "resume"
PIPELINE = "bench-resume"
STEPS = 4
SLOTS = 4
POLL_S = 0.02
GIVE_UP_S = 90.0


class ResumeStand:
    def __init__(self, stack: Stack, **settings: float) -> None:
        self._stack = stack
        self._env = {
            **stack.environment,
            "DATP_STEPS": "benchmarks.steps",
            "DATP_MAINTENANCE_GROUP": GROUP,
            **environment(settings),
        }
        self._connections = Container.open(Settings.from_env(self._env))
        self._live = self._connections.live
        self.client = make_client(self._connections)
        pipeline = Pipeline(PIPELINE, group=GROUP)
        for _ in range(STEPS):
            pipeline.step("bench/slow")
        applied = self._connections.pipelines.apply(pipeline.build())
        self._connections.pipelines.use(applied.name, applied.version)
        schedule = str(stack.folder / "resume-schedule")
        self._beat = self._process("resume-beat", "beat", "-s", schedule)
        self._workers = [self._worker(number) for number in range(2)]
        for process in (self._beat, *self._workers):
            process.start()

    def close(self) -> None:
        for process in (*self._workers, self._beat):
            process.kill()
        self.client.close()

    def round(self, number: int) -> list[float]:
        """Kill one worker in the middle of its work; seconds until each of its tasks went on."""
        victim = self._workers[number % 2]
        requests = [Request(pipeline=PIPELINE, input={"n": n}) for n in range(10 * SLOTS)]
        submitted = self.client.submit_many(requests)
        self._wait_for(lambda: len(self._held_by(victim)) >= SLOTS, "both workers to be busy")
        nodes = self._nodes_of(victim)
        victim.kill()
        killed_s = time.monotonic()
        held = {tx_id for node in nodes for tx_id in self._live.running_on(node)}
        seconds = self._until_they_go_on(held, nodes, killed_s)
        victim.start()
        for each in submitted:
            self.client.wait(getattr(each, "tx_id", ""), GIVE_UP_S)
        return seconds

    def _until_they_go_on(self, held: set[str], nodes: set[str], killed_s: float) -> list[float]:
        seconds: list[float] = []
        left = set(held)

        def all_go_on() -> bool:
            waiting = sorted(left)
            for tx_id, fields in zip(waiting, self._live.fields_many(waiting), strict=True):
                # Queued again is not enough: another worker must have it in hand, or have ended it.
                node = fields.get("node", "")
                if fields.get("status") != "queued" and node not in nodes:
                    left.discard(tx_id)
                    seconds.append(time.monotonic() - killed_s)
            return not left

        self._wait_for(all_go_on, "the transactions of a killed worker")
        return seconds

    def _held_by(self, worker: ManagedProcess) -> set[str]:
        return {tx for node in self._nodes_of(worker) for tx in self._live.running_on(node)}

    def _nodes_of(self, worker: ManagedProcess) -> set[str]:
        """The name of a node has the id of its process, which is in the group of its worker."""
        found = self._connections.redis.zrange(self._live.keys.nodes, 0, -1)
        return {str(node) for node in found if _group_of(str(node)) == worker.pid}

    def _wait_for(self, condition: Callable[[], bool], what: str) -> None:
        give_up_s = time.monotonic() + GIVE_UP_S
        while not condition():
            if time.monotonic() > give_up_s:
                raise TimeoutError(f"{what} took longer than {GIVE_UP_S:g} s")
            time.sleep(POLL_S)

    def _worker(self, number: int) -> ManagedProcess:
        name = f"resume{number}"
        return self._process(
            name,
            *("worker", "-Q", GROUP, "-n", f"{name}@bench", "-c", str(SLOTS), "-l", "WARNING"),
            *("--without-gossip", "--without-mingle", "--without-heartbeat"),
        )

    def _process(self, name: str, *arguments: str) -> ManagedProcess:
        argv = (sys.executable, "-W", "ignore", "-m", "celery", "-A", "datp_tasks", *arguments)
        return self._stack.process(name, argv, self._env)


def _group_of(node: str) -> int | None:
    """Of the process that is this node: `<host>-<pid>-<random>`."""
    try:
        return os.getpgid(int(node.rsplit("-", 2)[1]))
    except (ProcessLookupError, ValueError, IndexError):
        return None
