"""Chaos for the ledger room: real instances, a real ledger, and somebody who breaks things.

The stand-in is never killed: its log is the oracle. Everything else is killed, paused and
restarted at random (the seed is printed), while batches keep coming in.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy.exc import DBAPIError

from datp_tasks.errors import DatpError, LedgerError
from datp_tasks.ledger.batch_list import derived_id
from datp_tasks.ledger.batch_types import Stored
from datp_tasks.ledger.sim.faults import GET_WORDS, POST_WORDS
from datp_tasks.local.ports import pick_free_port
from datp_tasks.local.postgres import PostgresServer
from datp_tasks.local.processes import ManagedProcess, Surroundings
from datp_tasks.model.actor import Actor
from datp_tasks.model.ledger_batch import BatchState
from datp_tasks.record.alerts import Alerts
from tests.support.eventually import eventually
from tests.support.house import ROOT, House
from tests.support.ledger_world import payload_of

#: Times some ten times shorter than in production, so that a minute holds many takeovers.
QUICK: dict[str, Any] = {
    "ledger_claim_ttl_s": 2.0,
    "ledger_slow_ttl_s": 4.0,
    "ledger_http_s": 0.7,
    "ledger_post_budget_s": 1.2,
    "ledger_grace_s": 1.6,
    "ledger_delay_first_s": 0.1,
    "ledger_delay_s_max": 1.0,
    "ledger_long_delay_s": 1.0,
    "ledger_ring_again_s": 1.0,
    "ledger_poll_first_s": 0.2,
    "ledger_poll_s_max": 1.0,
    "ledger_resubmits_max": 8,
    "ledger_swallow_s": 3.0,
    "claim_queuer_period_s": 0.3,
    "batch_poller_period_s": 0.3,
}
SIM = {"commit_ms": 30, "unknown_ms": 20, "swallow_s": 2.5, "history_max": 20}
INSTANCES = 3
SERVICES = 5
POISONED_SHARE = 0.03
FOUND_BY_OTHERS = "SELECT 1 FROM batch_status WHERE source IN ('takeover', 'queuer') LIMIT 1"


@dataclass
class Report:
    """What was done to the system."""

    seed: int
    done: Counter[str] = field(default_factory=Counter)


class Chaos:
    def __init__(self, house: House, postgres: PostgresServer, folder: Path, seed: int) -> None:
        self.house = house
        self.postgres = postgres
        self.rng = random.Random(seed)
        self.report = Report(seed)
        self.stop = threading.Event()
        #: Batch ids in the order in which they were accepted, by service.
        self.accepted: dict[str, list[str]] = {}
        self.poisoned: set[str] = set()
        self.port = pick_free_port()
        self.sim = ManagedProcess(
            "ledger-sim",
            (
                *(sys.executable, "-c", "from datp_tasks.cli import main; main()", "ledger-sim"),
                *("--port", str(self.port), "--seed", str(seed)),
            ),
            log_path=folder / "ledger-sim.log",
            surroundings=Surroundings(dict(os.environ), ROOT),
        )
        self.http = httpx.Client(base_url=self.url, trust_env=False, timeout=10)
        self.instances: list[ManagedProcess] = []
        self._paused: dict[ManagedProcess, float] = {}
        self._dead: dict[ManagedProcess, float] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def begin(self) -> None:
        self.sim.start()
        eventually(self._sim_answers, what="the stand-in")
        # Whether a scabbard twin is refused or simply executed again.
        second_run = self.rng.choice(["invalid", "committed"])
        self.http.post("/sim/options", json={**SIM, "second_run": second_run})
        self.report.done[f"twins are {second_run}"] += 1
        for number in range(SERVICES):
            for kind, name in (("sawtooth", f"saw-{number}"), ("scabbard", f"c::s{number}")):
                self.house.client.add_service(name, kind=kind, url=self.url)
                self.accepted[name] = []
        self.house.beat()
        self.instances = [self.house.worker("ledger", name=f"i{n}") for n in range(INSTANCES)]
        self.house.wait_ready(*self.instances)

    def end(self) -> None:
        self.stop.set()
        for process in self._paused:
            _signal(process, signal.SIGCONT)
        self.http.close()
        self.sim.kill()

    def _sim_answers(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return self.http.get("/sim").status_code == 200
        return False

    # Load.

    def submit_until_stopped(self) -> None:
        """Batches for all services; one that got no answer is sent again, as a client would."""
        numbers = Counter[str]()
        rng = random.Random(self.report.seed + 1)
        while not self.stop.is_set():
            wanted: list[tuple[str, bytes, str | None]] = []
            for service in self.accepted:
                batch_id = derived_id(f"{service}/{numbers[service]}")
                poisoned = rng.random() < POISONED_SHARE
                content = {"simulate": "invalid"} if poisoned else {}
                wanted.append((service, payload_of(batch_id, **content), batch_id))
                numbers[service] += 1
                if poisoned:
                    self.poisoned.add(batch_id)
            self._submit(wanted)
            self.stop.wait(0.4)

    def _submit(self, wanted: list[tuple[str, bytes, str | None]]) -> None:
        while True:
            try:
                answers = self.house.client.submit_batches(wanted)
            except (DatpError, DBAPIError) as error:
                self.report.done[f"submitted again after {type(error).__name__}"] += 1
                threading.Event().wait(0.2)
                continue
            for answer in answers:
                assert not isinstance(answer, LedgerError), answer
                assert isinstance(answer, Stored)
                self.accepted[answer.service_id].append(answer.batch_id)
            return

    # Trouble.

    def break_things(self, for_s: float) -> None:
        """For so long; on a busy machine up to twice as long, until a sender was hit at work."""
        ends_s = time.monotonic() + for_s
        last_s = ends_s + for_s
        acts: list[tuple[int, Callable[[], None]]] = [
            (4, self._kill_instance),
            (4, self._pause_instance),
            (6, self._set_faults),
            (2, self._restart_ledger),
            (1, self._restart_postgres),
        ]
        weights = [weight for weight, _ in acts]
        while (now_s := time.monotonic()) < ends_s or (now_s < last_s and not self._has_hit()):
            self.rng.choices([act for _, act in acts], weights)[0]()
            self._mend_what_is_due()
            self.stop.wait(self.rng.uniform(0.2, 1.2))
            self._mend_what_is_due()

    def _has_hit(self) -> bool:
        """Others found an attempt whose end its sender did not record."""
        with contextlib.suppress(DBAPIError):
            return bool(self.house.sql(FOUND_BY_OTHERS))
        return False

    def _whole(self) -> list[ManagedProcess]:
        return [
            each for each in self.instances if each not in self._paused and each not in self._dead
        ]

    def _kill_instance(self) -> None:
        if whole := self._whole():
            victim = self.rng.choice(whole)
            victim.kill()
            self._dead[victim] = time.monotonic() + self.rng.uniform(0.2, 2)
            self.report.done["killed"] += 1

    def _pause_instance(self) -> None:
        if whole := self._whole():
            victim = self.rng.choice(whole)
            _signal(victim, signal.SIGSTOP)
            self._paused[victim] = time.monotonic() + self.rng.uniform(0.5, 5)
            self.report.done["paused"] += 1

    def _set_faults(self) -> None:
        posts = self.rng.sample(POST_WORDS, 5)
        gets = self.rng.sample(GET_WORDS, 2)
        # A batch that is refused for good is another test's matter.
        faults = [
            {"on": "post", "do": word, "share": 0.15, "ms": self.rng.choice([300, 900, 1_400])}
            for word in posts
            if word not in ("400", "413")
        ]
        faults += [{"on": "get", "do": word, "share": 0.2, "ms": 800} for word in gets]
        # Mostly it is just slow, so that many are in the middle of it when they are hit.
        slow_ms = self.rng.choice([50, 200, 500])
        faults.append({"on": "post", "do": "late-after", "share": 0.7, "ms": slow_ms})
        self.http.post("/sim/faults", json=faults)
        self.report.done["faults"] += 1

    def _restart_ledger(self) -> None:
        self.http.post("/sim/restart")
        self.report.done["ledger restarted"] += 1

    def _restart_postgres(self) -> None:
        if self.rng.random() < 0.5:
            self.postgres.kill()
            self.report.done["database killed"] += 1
        else:
            self.postgres.stop()
            self.report.done["database stopped"] += 1
        self.stop.wait(self.rng.uniform(0.1, 1.5))
        self.postgres.start()

    def _mend_what_is_due(self, *, all_of_it: bool = False) -> None:
        now_s = time.monotonic()
        for victim, until_s in list(self._paused.items()):
            if all_of_it or until_s <= now_s:
                _signal(victim, signal.SIGCONT)
                del self._paused[victim]
        for victim, until_s in list(self._dead.items()):
            if all_of_it or until_s <= now_s:
                victim.start()
                del self._dead[victim]

    def heal(self) -> None:
        self._mend_what_is_due(all_of_it=True)
        self.http.post("/sim/faults", json=[])

    # Afterwards.

    def decide_parked(self) -> None:
        """Be the operator: look into the ledger and decide what nobody else can."""
        operator = self.house.connections.ledger.operator
        executed = {line["batch"] for line in self.log() if line["result"] == "COMMITTED"}
        for batch in self.house.client.batches(state=BatchState.PARKED, rows_max=1_000):
            who: dict[str, Any] = {"actor": Actor(name="chaos"), "reason": "looked into the ledger"}
            self.report.done["decided by the operator"] += 1
            if batch.batch_id in executed:
                operator.resolve(batch.service_id, batch.batch_id, BatchState.COMMITTED, **who)
            elif batch.batch_id in self.poisoned:
                operator.resolve(batch.service_id, batch.batch_id, BatchState.INVALID, **who)
            else:
                operator.resubmit(batch.service_id, batch.batch_id, **who)

    def is_quiet(self) -> bool:
        self.decide_parked()
        return not self.house.client.batches(rows_max=1)

    def log(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.http.get("/sim/log").json()
        return found


def problems(chaos: Chaos) -> list[str]:
    """What the oracle's log and the record say against us."""
    committed = [line["batch"] for line in chaos.log() if line["result"] == "COMMITTED"]
    times = Counter(line["batch"] for line in chaos.log())
    first: dict[str, int] = {}
    for place, batch in enumerate(committed):
        first.setdefault(batch, place)
    commits = Counter(committed)
    container = chaos.house.connections
    alerts = Alerts(container.engine, container.clock)
    reported = {alert.subject for alert in alerts.open_alerts(rows_max=100_000)}
    reported |= {row[0] for row in chaos.house.sql("SELECT subject FROM alert")}
    found: list[str] = []
    for service, ids in chaos.accepted.items():
        good = [each for each in ids if each not in chaos.poisoned]
        found += [
            f"{service}: {each[:8]} is not in the ledger" for each in good if not commits[each]
        ]
        places = [first[each] for each in good if each in first]
        if places != sorted(places):
            found.append(f"{service}: out of order")
        if service.startswith("saw"):
            found += [f"{service}: {each[:8]} twice" for each in good if commits[each] > 1]
        else:
            found += [
                f"{service}: {each[:8]} executed {times[each]} times in silence"
                for each in ids
                if times[each] > 1 and f"{service}/{each}" not in reported
            ]
        found += _wrongly_recorded(chaos, service, commits)
    return found + _taken_back(chaos)


def _wrongly_recorded(chaos: Chaos, service: str, commits: Counter[str]) -> list[str]:
    batches = chaos.house.client.batches(service_id=service, with_final=True, rows_max=100_000)
    states = {batch.batch_id: batch.state for batch in batches}
    found = [
        f"{service}: {each[:8]} was accepted and is gone"
        for each in chaos.accepted[service]
        if each not in states
    ]
    found += [
        f"{service}: {each[:8]} is recorded as {state}, the ledger has it {commits[each]} times"
        for each, state in states.items()
        if (state is BatchState.COMMITTED) != bool(commits[each])
    ]
    numbers = [batch.batch_id for batch in batches]
    if [each for each in numbers if each in set(chaos.accepted[service])] != chaos.accepted[
        service
    ]:
        found.append(f"{service}: numbered in another order than accepted")
    return found


def _taken_back(chaos: Chaos) -> list[str]:
    """Final is final: nothing is seen of a batch after that, but that it is committed."""
    rows = chaos.house.sql(
        "SELECT later.service_id, later.batch_id, final.state AS was, later.state"
        " FROM batch_status final JOIN batch_status later USING (service_id, batch_id)"
        " WHERE final.state IN ('COMMITTED', 'INVALID', 'REFUSED') AND later.id > final.id"
        " AND later.state <> 'COMMITTED'"
    )
    return [f"{row.service_id}: {row.batch_id[:8]} from {row.was} to {row.state}" for row in rows]


def _signal(process: ManagedProcess, number: signal.Signals) -> None:
    """To the whole group: the worker and its children stand still together."""
    if process.pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
