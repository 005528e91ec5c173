"""For the ledger part: the stand-in as a process, workers of the ledger queue, and batches."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import httpx
from sqlalchemy import text

from benchmarks.stack import Stack
from datp_tasks import Settings
from datp_tasks.ledger.batch_list import derived_id, unsigned_batch_list
from datp_tasks.local.ports import pick_free_port
from datp_tasks.local.processes import ManagedProcess
from datp_tasks.runtime.clients import make_client
from datp_tasks.runtime.container import Container
from datp_tasks.settings import environment

POLL_S = 0.02
GIVE_UP_S = 180.0
CONTENT = b'{"amount":"12.50","from":"ann","to":"bob"}'
OPEN = "SELECT count(*) FROM ledger_batch WHERE final_at IS NULL"
NOT_COMMITTED = "SELECT count(*) FROM ledger_batch WHERE state <> 'COMMITTED'"


class LedgerStand:
    """One stand-in and as many ledger workers as a part asks for."""

    def __init__(self, stack: Stack, **settings: float) -> None:
        self.stack = stack
        self._port = pick_free_port()
        self._env = {
            **stack.environment,
            **environment(settings),
        }
        self.connections = Container.open(Settings.from_env(self._env))
        self.client = make_client(self.connections)
        self._processes: list[ManagedProcess] = []
        self._count = 0
        program = "from datp_tasks.cli import main; main()"
        self._start("ledger-sim", "-c", program, "ledger-sim", "--port", str(self._port))
        self.http = httpx.Client(base_url=self.url, trust_env=False)
        self._wait_for(self._answers)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def close(self) -> None:
        for process in self._processes:
            self.stack.stop(process)
        self.http.close()
        self.client.close()

    def options(self, **given: float) -> None:
        self.http.post("/sim/options", json=given).raise_for_status()

    def start_worker(self, *arguments: str) -> ManagedProcess:
        """`celery -A datp_tasks worker -Q ledger`, ready to take messages."""
        self._count += 1
        name = f"ledger{self._count}"
        return self._start(
            name,
            *("-W", "ignore", "-m", "celery", "-A", "datp_tasks", "worker", "-Q", "ledger"),
            *("-n", f"{name}@bench", "--loglevel", "WARNING", *arguments),
            *("--without-gossip", "--without-mingle", "--without-heartbeat"),
        )

    def stop_worker(self, worker: ManagedProcess) -> None:
        self.stack.stop(worker)
        self._processes.remove(worker)

    def _start(self, name: str, *arguments: str) -> ManagedProcess:
        process = self.stack.process(name, (sys.executable, *arguments), self._env)
        process.start()
        self._processes.append(process)
        return process

    def _answers(self) -> bool:
        try:
            return self.http.get("/sim").status_code == 200
        except httpx.HTTPError:
            return False

    def _wait_for(self, holds: Any) -> None:
        give_up_s = time.monotonic() + GIVE_UP_S
        while not holds():
            if time.monotonic() > give_up_s:
                raise TimeoutError(f"the ledger part waited {GIVE_UP_S:g} s for nothing")
            time.sleep(POLL_S)

    # Services and batches.

    def empty(self) -> None:
        """As if there had never been a service."""
        tables = "ledger_service, service_claim, ledger_batch, batch_attempt, batch_status"
        with self.stack.engine.begin() as connection:
            connection.execute(text(f"TRUNCATE {tables}"))

    def services(self, count: int) -> list[str]:
        names = [f"s{number}" for number in range(count)]
        for name in names:
            self.client.add_service(name, kind="sawtooth", url=self.url)
        return names

    def wait_until_claimed(self) -> None:
        unclaimed = "SELECT count(*) FROM service_claim WHERE claimant IS NULL"
        self._wait_for(lambda: self.stack.sql(unclaimed) == 0)

    def batches(self, mark: str, services: Sequence[str], each: int) -> list[Any]:
        """As `submit_batches` wants them, one round over all services after the other."""
        made = []
        for number in range(each):
            for service in services:
                batch_id = derived_id(f"{mark}/{service}/{number}")
                made.append((service, unsigned_batch_list(batch_id, CONTENT), batch_id))
        return made

    def run(self, batches: Sequence[Any]) -> float:
        """Hand them in from one process; batches a second until all are committed."""
        began_s = time.perf_counter()
        self.client.submit_batches(batches)
        self.wait_until_final()
        took_s = time.perf_counter() - began_s
        if self.stack.sql(NOT_COMMITTED):
            raise AssertionError("not every batch was committed")
        return len(batches) / took_s

    def wait_until_final(self) -> None:
        self._wait_for(lambda: self.stack.sql(OPEN) == 0)

    def bare_posts(self, batches: Sequence[Any]) -> float:
        """The same POSTs in a loop, one after the other, and nothing else."""
        headers = {"Content-Type": "application/octet-stream"}
        began_s = time.perf_counter()
        for _, payload, _ in batches:
            answer = self.http.post("/batches", content=payload, headers=headers)
            if answer.status_code != 202:
                raise AssertionError(f"the stand-in answered {answer.status_code}")
        return len(batches) / (time.perf_counter() - began_s)
