"""Chaos: transfers keep coming while somebody breaks everything but the bank and the submitter.

Real servers, two workers and beat under the supervisor of `datp up`. After each trouble all that
was accepted by then must end, and Redis must hold together; at the end all money must be there.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from redis.exceptions import RedisError
from rich.console import Console
from sqlalchemy import create_engine
from sqlalchemy.exc import DBAPIError

from datp_tasks.client.requests import Request, Submitted
from datp_tasks.errors import DatpError
from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.live.invariants import check_all
from datp_tasks.local.postgres import PostgresServer
from datp_tasks.local.redis_server import RedisServer
from datp_tasks.local.supervisor import Supervisor
from datp_tasks.model.status import Status
from datp_tasks.record.record_types import Summary
from datp_tasks.testing.at_rest import live_violations, transaction_violations
from tests.chaos.transfer_steps import pipelines
from tests.chaos.transfer_world import ALL_SENT, World
from tests.chaos.troubles import KINDS, Round, Troublemaker, plan
from tests.support.bank import Bank, moved
from tests.support.house import House

#: Everything some ten times quicker than in production.
QUICK: dict[str, Any] = {
    "shards": 4,
    "steps": ("tests.chaos.transfer_steps",),
    "node_beat_ms": 150,
    "node_stale_ms": 900,
    "node_grace_ms": 300,
    "reaper_period_s": 0.3,
    "reconciler_period_s": 0.4,
    "ring_again_after_ms": 800,
    "archiver_role_s": 1.0,
    "archiver_grace_s": 0.5,
    "archiver_period_s": 0.5,
    "delay_before_archiving_s": 1,
    "sleeper_period_s": 0.2,
    # A stopped worker that holds a row is shut out of SQL after the two together.
    "step_timeout_s": 3.0,
    "step_kill_grace_s": 1.0,
}
OWNER = "chaos"
BATCH = 3
PAUSE_S = 0.12
OPEN_MAX = 30
OPEN_MIN = 5
OPEN = "SELECT count(*) AS n FROM tx_summary WHERE completed_at IS NULL"
FAILS_SHARE = 0.2
NIGHT_SHARE = 0.4
#: Longer than any of the periods above, several times; a machine under test is busy.
END_WITHIN_S = 60.0
POLL_S = 0.05
#: What a client meets when something is away; it asks again.
AWAY = (RedisError, DBAPIError, DatpError, OSError)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was submitted, and how it must end."""

    tx_id: str
    ends: Status


class Load:
    """A client that never gives up: what got no answer is sent again under the same id."""

    def __init__(self, house: House, world: World, seed: int) -> None:
        self._house = house
        self._world = world
        self._rng = random.Random(seed + 1)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self.accepted: list[Wanted] = []
        self.retries = 0
        self.error: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        number = 0
        try:
            while not self._stop.is_set():
                if self._enough():
                    self._stop.wait(PAUSE_S)
                    continue
                requests = [self._request(number + place) for place in range(BATCH)]
                self._submit(requests)
                number += BATCH
                self._stop.wait(PAUSE_S)
        except BaseException as error:
            self.error = error

    def _enough(self) -> bool:
        """A busy machine must not be buried in work: then every repair would look slow."""
        try:
            return bool(self._house.sql(OPEN)[0].n >= OPEN_MAX)
        except AWAY:
            return False

    def _request(self, number: int) -> Request:
        fails = self._rng.random() < FAILS_SHARE
        night_s = self._rng.uniform(0.1, 2) if self._rng.random() < NIGHT_SHARE else 0
        data = self._world.request(fails=fails, night_s=round(night_s, 2))
        external_id = f"{self._world.prefix}{number}"
        return Request(pipeline="chaos-transfer", input=data, owner=OWNER, external_id=external_id)

    def _submit(self, requests: Sequence[Request]) -> None:
        while True:
            try:
                answers = self._house.client.submit_many(requests)
            except AWAY:
                self.retries += 1
                threading.Event().wait(0.1)
                continue
            for request, answer in zip(requests, answers, strict=True):
                assert isinstance(answer, Submitted), answer
                ends = Status.FAILED if request.input["fails"] else Status.SUCCESS
                self.accepted.append(Wanted(answer.tx_id, ends))
            return


class Chaos:
    def __init__(
        self,
        house: House,
        redis: RedisServer,
        postgres: PostgresServer,
        bank: Bank,
        *,
        seed: int,
        console: Console,
    ) -> None:
        self.house = house
        self.seed = seed
        self._console = console
        engine = create_engine(house.settings.database_url, pool_pre_ping=True)
        self.world = World(engine, bank, OWNER)
        self.load = Load(house, self.world, seed)
        house.use(*pipelines())
        workers = [house.worker("master,kyc", name=f"chaos{n}") for n in range(2)]
        beat = house.beat()
        self._supervisor = Supervisor(lambda line: self.say(f"    [dim]{line}[/dim]"))
        self._supervisor.start([*workers, beat])
        house.wait_ready(*workers)
        self._troubles = Troublemaker(house, redis, postgres, workers, beat, self.pause)
        #: How long it took after each round until everything accepted by then had ended.
        self.healed_s: dict[str, float] = {}

    def say(self, line: str) -> None:
        self._console.print(line)

    # Time.

    def wait(self, condition: Callable[[], object], *, within_s: float) -> bool:
        """Meanwhile processes that have ended are started again; False when the time is over."""
        ends_s = time.monotonic() + within_s
        while True:
            self._supervisor.check()
            try:
                if condition():
                    return True
            except AWAY:
                # Whom it asked is away itself; the condition may hold later.
                pass
            if time.monotonic() > ends_s:
                return False
            threading.Event().wait(POLL_S)

    def pause(self, seconds: float) -> None:
        self.wait(lambda: False, within_s=seconds)

    # The run.

    def run(self, seconds: float) -> list[str]:
        """Trouble for so many seconds, each kind at least once; what was wrong."""
        self.say(f"[bold]chaos[/bold]: seed {self.seed}, {seconds:g} s; the plan follows from it")
        self.load.start()
        ends_s = time.monotonic() + seconds
        found: list[str] = []
        for number, round_ in enumerate(plan(self.seed), 1):
            if number > len(KINDS) and time.monotonic() > ends_s:
                break
            found += [f"after {round_}: {each}" for each in self._round(number, round_)]
            if found:
                break
        self.load.stop()
        return found + [f"in the end: {each}" for each in self._at_the_end(hurry=bool(found))]

    def _round(self, number: int, round_: Round) -> Iterator[str]:
        self.pause(round_.after_s)
        if not self.wait(self._is_busy, within_s=END_WITHIN_S):
            yield "there is no work any more: nothing is accepted, or nothing ends"
            return
        self._troubles.make(round_)
        began_s = time.monotonic()
        by_now = list(self.load.accepted)
        ended = self.wait(lambda: not self._open(by_now), within_s=END_WITHIN_S)
        self.healed_s[str(round_)] = took_s = time.monotonic() - began_s
        done = "[green]all ended[/green] after" if ended else "[red]not all ended[/red] in"
        self.say(f"{number:3d} {len(by_now):6d} accepted, {done} {took_s:4.1f} s  {round_}")
        if not ended:
            for tx_id in self._open(by_now)[:5]:
                yield f"{tx_id} has not ended: {self._shown(tx_id)}"
        if self.load.error is not None:
            yield f"the client broke: {self.load.error!r}"
        yield from self._broken_invariants()

    def _is_busy(self) -> bool:
        """A trouble must come in the middle of the work, or it would prove nothing."""
        return bool(self.house.sql(OPEN)[0].n >= OPEN_MIN)

    def _open(self, wanted: Sequence[Wanted]) -> list[str]:
        ids = [each.tx_id for each in wanted]
        ended = {each.tx_id for each in self._summaries(ids) if each.is_final}
        return [tx_id for tx_id in ids if tx_id not in ended]

    def _summaries(self, tx_ids: Sequence[str]) -> list[Summary]:
        return self.house.connections.record.summaries(tx_ids)

    def _shown(self, tx_id: str) -> str:
        fields = self.house.fields(tx_id)
        names = ("status", "stepType", "node", "fence", "sequence", "problem")
        return ", ".join(f"{name} {fields[name]}" for name in names if name in fields) or "gone"

    def _broken_invariants(self) -> list[str]:
        """What is wrong in Redis at two looks: in between, whatever is on its way has moved."""
        found: set[tuple[str, str]] = set()

        def look() -> bool:
            now = {(each.tx_id, each.what) for each in check_all(self.house.connections.live)}
            found.intersection_update(now) if found else found.update(now)
            return not found

        self.wait(look, within_s=10)
        return [f"{tx_id}: {what}" for tx_id, what in sorted(found)[:5]]

    # Afterwards.

    def _at_the_end(self, *, hurry: bool) -> Iterator[str]:
        within_s = 10 if hurry else END_WITHIN_S
        self.wait(lambda: not self.load.is_alive(), within_s=within_s)
        wanted = self.load.accepted
        if not self.wait(lambda: not self._open(wanted), within_s=within_s):
            yield f"{len(self._open(wanted))} of {len(wanted)} have not ended"
            return
        found: list[str] = []

        def clean() -> bool:
            found[:] = live_violations(self.house.connections)
            live = self.house.connections.live
            waiting = live.sizes()["toArchiveZ"] + ArchiveFeed(live).journal_length()
            return not found and not waiting

        self.wait(clean, within_s=END_WITHIN_S)
        yield from found[:10]
        yield from self._wrongly_ended()
        for replay in self.house.operator.audit():
            yield from (f"audit of {replay.tx_id}: {fault}" for fault in replay.faults)
        yield from list(self.world.complaints())[:10]
        self.say(
            f"{len(wanted)} transfers, {self.load.retries} times the client had to ask again, "
            f"{len(self.world.lines())} lines at the bank"
        )

    def _wrongly_ended(self) -> Iterator[str]:
        """Each one has the end it must have, once, and moved what it must have moved."""
        ends = {wanted.tx_id: wanted.ends for wanted in self.load.accepted}
        if len(ends) != len(self.load.accepted):
            yield "two requests became one transaction"
        rows = self.house.sql("SELECT count(*) AS n FROM tx_summary")
        if rows[0].n != len(ends):
            yield f"{len(ends)} were accepted, but there are {rows[0].n}"
        by_reference: dict[str, list[dict[str, Any]]] = {}
        for line in self.world.lines():
            by_reference.setdefault(line["reference"], []).append(line)
        for summary in self._summaries(list(ends)):
            tx_id = summary.tx_id
            if summary.status is not ends[tx_id]:
                yield f"{tx_id} is {summary.status}, not {ends[tx_id]}: {summary.note}"
            at_bank = moved(by_reference.pop(tx_id, []), tx_id)
            if at_bank != (ALL_SENT if summary.status is Status.SUCCESS else {}):
                yield f"{tx_id} is {summary.status}, but at the bank it moved {at_bank}"
            yield from transaction_violations(self.house.connections, summary, archived=True)
        yield from (f"the bank knows {each}, which nobody submitted" for each in by_reference)
