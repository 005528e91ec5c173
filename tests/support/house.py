"""A house: one installation for a test, with databases of its own and real processes.

Workers, beat and Flower are the programs an operator starts, with short periods. Every process
is the head of a process group, and `close` leaves nothing of any group behind.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from redis import Redis
from sqlalchemy import NullPool, create_engine, text

from datp_tasks.bells.broker import CelerySend, make_celery
from datp_tasks.live.connect import make_redis
from datp_tasks.local.private_files import last_lines, text_since
from datp_tasks.local.processes import ManagedProcess, Surroundings
from datp_tasks.model.pipeline import Pipeline
from datp_tasks.model.status import FINAL
from datp_tasks.record.record_types import Summary
from datp_tasks.runtime.clients import make_client, make_operator
from datp_tasks.runtime.container import Container
from datp_tasks.seals.keyring import new_ring
from datp_tasks.settings import Settings, environment
from tests.support.eventually import eventually

ROOT = Path(__file__).resolve().parents[2]
STEPS = "tests.acceptance.acceptance_steps"

#: Short enough for a test, long enough for a busy machine.
FAST: dict[str, Any] = {
    "node_beat_ms": 200,
    "node_stale_ms": 1_000,
    "node_grace_ms": 300,
    "reaper_period_s": 0.3,
    "reconciler_period_s": 0.5,
    "ring_again_after_ms": 1_000,
    "sleeper_period_s": 0.2,
    "archiver_period_s": 1.0,
}

#: What a worker may be given that is no setting.
ORDERS = ("failpoints", "steer_file")

Pairs = list[tuple[str, int]]


class House:
    def __init__(self, redis_url: str, database_url: str, folder: Path, **changes: Any) -> None:
        self.settings = Settings(
            # One person runs a test; what needs two has a policy of its own.
            policy_file="single-person",
            redis_url=redis_url,
            database_url=database_url,
            **({"steps": (STEPS,), "keyring": new_ring().to_json()} | FAST | changes),
        )
        self.folder = folder
        self.celery = make_celery(self.settings)
        self.connections = Container.open(self.settings, celery=self.celery)
        self.client = make_client(self.connections)
        self.operator = make_operator(self.connections)
        #: A client whose bells are lost, so that a test can ring them as it likes.
        self.silent = make_client(Container.open(self.settings, send=_lose))
        self.send = CelerySend(self.celery)
        self.redis: Redis = make_redis(self.settings)
        #: A new connection each time: one from before a crash would only be in the way.
        self._engine = create_engine(database_url, poolclass=NullPool)
        self.processes: list[ManagedProcess] = []

    def kill_processes(self) -> None:
        for process in self.processes:
            process.kill()

    def close(self) -> None:
        self.kill_processes()
        self.client.close()
        self.silent.close()
        self.redis.close()
        self.celery.close()

    # Processes.

    def worker(
        self, groups: str = "master", *, name: str = "", concurrency: int = 1, **changes: Any
    ) -> ManagedProcess:
        """`celery -A datp_tasks worker -Q <groups>`; `changes` are settings or ORDERS."""
        name = name or f"w{len(self.processes)}"
        return self._start(
            name,
            *("worker", "-Q", groups, "-n", f"{name}@%h", "-c", str(concurrency), "-l", "INFO"),
            *("--without-gossip", "--without-mingle"),
            **changes,
        )

    def beat(self, name: str = "beat") -> ManagedProcess:
        schedule = str(self.folder / f"schedule-{name}")
        return self._start(name, "beat", "-s", schedule, "-l", "INFO")

    def command(self, *arguments: str, name: str, **changes: Any) -> ManagedProcess:
        """`celery -A datp_tasks …` with these words and no others, in the house's folder."""
        return self._start(name, *arguments, cwd=self.folder, **changes)

    def flower(self, port: int, *options: str) -> ManagedProcess:
        where = ("--address=127.0.0.1", f"--port={port}")
        return self._start("flower", "flower", *where, *options)

    def _start(
        self, name: str, *arguments: str, cwd: Path = ROOT, **changes: Any
    ) -> ManagedProcess:
        process = ManagedProcess(
            name,
            (sys.executable, "-m", "celery", "-A", "datp_tasks", *arguments),
            log_path=self.folder / f"{name}.log",
            surroundings=Surroundings(self._environment(changes), cwd),
        )
        process.start()
        self.processes.append(process)
        return process

    def _environment(self, changes: Mapping[str, Any]) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("DATP_")}
        given = {
            item.name: getattr(self.settings, item.name)
            for item in fields(self.settings)
            if getattr(self.settings, item.name) != item.default
        }
        changed = given | dict(changes)
        orders = {
            f"DATP_{name.upper()}": str(changed.pop(name)) for name in ORDERS if name in changed
        }
        mine = environment(changed) | orders
        python_path = os.pathsep.join(filter(None, (str(ROOT), kept.get("PYTHONPATH"))))
        return kept | mine | {"PYTHONPATH": python_path, "FLOWER_UNAUTHENTICATED_API": "true"}

    def wait_ready(self, *processes: ManagedProcess, within_s: float = 30.0) -> None:
        """Until each worker says that it is ready to take bells."""
        for process in processes:
            eventually(
                lambda process=process: self._is_ready(process),  # type: ignore[misc]
                within_s=within_s,
                what=f"the start of {process.name}",
            )

    def _is_ready(self, process: ManagedProcess) -> bool:
        log = text_since(process.log_path)
        assert process.is_running(), f"{process.name} has ended:\n{last_lines(log)}"
        return " ready." in log

    # Transactions.

    def use(self, *pipelines: Pipeline) -> None:
        for pipeline in pipelines:
            applied = self.connections.pipelines.apply(pipeline.build())
            self.connections.pipelines.use(applied.name, applied.version)

    def submit(self, pipeline: str, data: Mapping[str, Any] | None = None, **options: Any) -> str:
        return self.client.submit(pipeline, data or {}, **options).tx_id

    def submit_silently(self, pipeline: str, data: Mapping[str, Any] | None = None) -> str:
        """Accepted and queued, but nobody has been told."""
        return self.silent.submit(pipeline, data or {}).tx_id

    def run(self, pipeline: str, data: Mapping[str, Any] | None = None) -> Summary:
        return self.client.wait(self.submit(pipeline, data), timeout_s=20)

    def fields(self, tx_id: str) -> dict[str, str]:
        """Everything Redis has of a transaction."""
        return self.connections.live.fields_many([tx_id])[0]

    def all_final(self, tx_ids: Iterable[str]) -> bool:
        wanted = list(tx_ids)
        found = self.connections.record.summaries(wanted)
        return len(found) == len(wanted) and all(each.is_final for each in found)

    # What happened.

    def notes(self, topic: str) -> list[dict[str, Any]]:
        """What steps have written down, in order."""
        return [json.loads(str(each)) for each in self.redis.lrange(f"notes:{topic}", 0, -1)]

    def notes_about(self, topic: str, tx_id: str) -> list[dict[str, Any]]:
        return [each for each in self.notes(topic) if each["tx"] == tx_id]

    def wait_for_note_about(self, topic: str, tx_id: str, *, number: int = 1) -> dict[str, Any]:
        """The number-th note about a transaction, as soon as there is one."""
        what = f"note {number} of {topic}"
        eventually(lambda: len(self.notes_about(topic, tx_id)) >= number, what=what)
        return self.notes_about(topic, tx_id)[number - 1]

    def wait_for_note(self, topic: str, *, count: int = 1, within_s: float = 20.0) -> Any:
        """The count-th note on a topic, as soon as there is one."""
        what = f"note {count} of {topic}"
        eventually(lambda: len(self.notes(topic)) >= count, within_s=within_s, what=what)
        return self.notes(topic)[count - 1]

    def open_gate(self, name: str) -> None:
        """Let steps go on that wait for this gate."""
        self.redis.set(f"gate:{name}", "1")

    def sql(self, statement: str, **values: Any) -> list[Any]:
        with self._engine.begin() as connection:
            result = connection.execute(text(statement), values)
            return list(result) if result.returns_rows else []

    def finals_logged(self, tx_id: str) -> list[str]:
        """The final statuses in the append-only log: there must be exactly one."""
        rows = self.sql(
            "SELECT status FROM tx_state_change WHERE tx_id = :tx_id ORDER BY id", tx_id=tx_id
        )
        return [row.status for row in rows if row.status in FINAL]


def log_of(process: ManagedProcess) -> str:
    return process.log_path.read_text(encoding="utf-8", errors="replace")


def process_state(pid: int) -> str:
    """T for a stopped process, Z for one that has ended, empty if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[0]


def _lose(step_type: str, pairs: Pairs, *, group: str, priority: str, answers: str = "") -> None:
    """A broker that loses every message."""
