"""A world for ledger tests: instances on one database, a stand-in, and one clock for all of them.

Messages are delivered by the test, so every pause, loss and crash happens exactly where the test
wants it. Time is virtual; only HTTP takes real time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from sqlalchemy import create_engine, text

from datp_tasks.clock import VirtualClock
from datp_tasks.ledger.batch_list import derived_id, unsigned_batch_list
from datp_tasks.ledger.batch_types import LedgerBatch, Ring, Work
from datp_tasks.ledger.ledger_service import Ledger
from datp_tasks.ledger.sim.sim_server import LedgerSim, SimThread
from datp_tasks.ledger.submitter import SubmitResult
from datp_tasks.model.ledger_batch import BatchState
from datp_tasks.record.alerts import Alerts
from datp_tasks.runtime.container import Container
from datp_tasks.settings import Settings
from datp_tasks.testing.servers import Servers

SERVICE = "circuit::one"


def payload_of(batch_id: str, **content: Any) -> bytes:
    body = ",".join(f'"{name}":"{value}"' for name, value in content.items())
    return unsigned_batch_list(batch_id, f"{{{body}}}".encode())


class Instance:
    """One process, as far as the database can tell."""

    def __init__(self, settings: Settings, clock: VirtualClock, ring: Ring | None) -> None:
        #: Messages that were sent and not delivered yet.
        self.waiting: list[Work] = []
        self.connections = Container.open(settings, clock=clock, ring_ledger=ring or self._keep)

    def _keep(self, works: Sequence[Work]) -> None:
        self.waiting.extend(works)

    @property
    def ledger(self) -> Ledger:
        return self.connections.ledger

    @property
    def name(self) -> str:
        return self.ledger.work.queuer.instance

    def tick(self) -> None:
        self.ledger.work.queuer.tick()

    def deliver(self, works: Sequence[Work] | None = None) -> SubmitResult:
        """Let the messages that wait (or these) arrive at the submitter."""
        if works is None:
            works, self.waiting = self.waiting, []
        return self.ledger.work.submitter.run(works)

    def poll(self) -> None:
        self.ledger.work.poller.poll()

    def close(self) -> None:
        self.connections.close()


class World:
    def __init__(self, servers: Servers, *, kind: str = "scabbard", **changes: Any) -> None:
        servers.empty_tables()
        self.kind = kind
        self.clock = VirtualClock()
        self.settings = Settings(
            redis_url=servers.redis_url,
            database_url=servers.database_url,
            key_prefix=servers.prefix,
            **({"policy_file": "single-person"} | changes),
        )
        self.sim = LedgerSim(seed=1, clock=self.now_s)
        self.sim.options.commit_ms = 0
        self.server = SimThread(self.sim).start()
        self.instances: list[Instance] = []
        self.engine = create_engine(servers.database_url)
        #: Ids in the order in which they were submitted, by service.
        self.submitted: dict[str, list[str]] = {}

    def close(self) -> None:
        for instance in self.instances:
            instance.close()
        self.server.stop()
        self.engine.dispose()

    def now_s(self) -> float:
        return (self.clock.now_ms() or 0) / 1_000

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds=seconds)

    def instance(self, *, ring: Ring | None = None, **changes: Any) -> Instance:
        values = {
            name: changes.get(name, getattr(self.settings, name))
            for name in self.settings.__dataclass_fields__
        }
        made = Instance(Settings(**values), self.clock, ring)
        self.instances.append(made)
        return made

    def add_service(self, name: str = SERVICE) -> str:
        self.instances[0].ledger.intake.add_service(name, kind=self.kind, url=self.server.url)
        return name

    def submit(self, *names: str, service: str = SERVICE, **content: Any) -> list[str]:
        """Batches under ids made of these names, in this order."""
        ids = [derived_id(f"{service}/{name}") for name in names]
        wanted = [(service, payload_of(each, **content), None) for each in ids]
        self.instances[0].ledger.intake.submit_many(wanted)
        self.instances[0].waiting.clear()
        self.submitted.setdefault(service, []).extend(ids)
        return ids

    # What came of it.

    def batch(self, batch_id: str, service: str = SERVICE) -> LedgerBatch:
        return self.instances[0].ledger.batches.find(service, batch_id)

    def state(self, batch_id: str, service: str = SERVICE) -> BatchState:
        return self.batch(batch_id, service).state

    def executed(self) -> list[str]:
        return [line["batch"] for line in self.sim.executions()]

    def alerts(self) -> list[tuple[str, str]]:
        container = self.instances[0].connections
        alerts = Alerts(container.engine, container.clock)
        return [(alert.kind, alert.subject) for alert in alerts.open_alerts()]

    def violations(self) -> list[str]:
        """What must never be: executed twice, not at all, out of order, or not as recorded."""
        executed = self.executed()
        found = [f"{each[:8]} executed twice" for each, n in Counter(executed).items() if n > 1]
        for ids in self.submitted.values():
            ran = [each for each in executed if each in ids]
            if ran != [each for each in ids if each in ran]:
                found.append("executed out of order")
            found += [f"{each[:8]} not executed" for each in ids if each not in ran]
        for service, ids in self.submitted.items():
            found += [
                f"{each[:8]} recorded as {self.state(each, service)}"
                for each in ids
                if self.state(each, service) is not BatchState.COMMITTED
            ]
        return found

    def settle(self, *instances: Instance, rounds: int = 60, step_s: float = 2.0) -> None:
        """Let these instances live on for a while."""
        for _ in range(rounds):
            for instance in instances:
                instance.tick()
                instance.deliver()
                instance.poll()
                instance.deliver()
            self.advance(step_s)

    def sql(self, statement: str, **values: Any) -> list[Any]:
        with self.engine.begin() as connection:
            result = connection.execute(text(statement), values)
            return list(result) if result.returns_rows else []
