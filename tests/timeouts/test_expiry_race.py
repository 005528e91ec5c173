"""Thousands of transactions expire while workers try to finish them: each ends once.

`DATP_EXPIRY_RACE` says how many; `make chaos` has twenty thousand.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, text

from datp_tasks import Pipeline, Request, Sleep
from datp_tasks.client.requests import Submitted
from datp_tasks.jobs import timeout_handler
from datp_tasks.live.invariants import check_all
from datp_tasks.live.live_types import Bell
from datp_tasks.model.status import FINAL
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers

Data = dict[str, Any]

TRANSACTIONS = int(os.environ.get("DATP_EXPIRY_RACE", "6000"))
#: One in so many moves money in SQL, in transactional steps.
SQL_EVERY = 20
#: They expire one after another in this time, of which a second passes in TICK_S, or later if the
#: workers have not taken their share yet: on a slow machine time must not win the race alone.
SPREAD_S = 60
TICK_S = 0.1
TICK_MAX_S = 1.0
TAKEN_A_TICK = TRANSACTIONS // 200
GIVE_UP_S = 110.0

MONEY = """
DROP TABLE IF EXISTS test_money;
CREATE TABLE test_money (account int PRIMARY KEY, held bigint NOT NULL, paid bigint NOT NULL);
INSERT INTO test_money SELECT n, 0, 0 FROM generate_series(0, 15) n;
"""
LATE = "SELECT count(*) FROM tx_summary WHERE status = 'success' AND completed_at >= expires_at"
MOVE = "UPDATE test_money SET held = held + :held, paid = paid + :paid WHERE account = :account"


class Bank:
    """Money that is held and money that is paid, for each transaction and in SQL accounts."""

    def __init__(self, kit: Kit) -> None:
        self.engine: Engine = kit.connections.engine
        self.held: Counter[str] = Counter()
        self.paid: Counter[str] = Counter()
        self._lock = threading.Lock()
        with self.engine.begin() as sql:
            sql.exec_driver_sql(MONEY)
        self._declare(kit, "memory", transactional=False)
        self._declare(kit, "sql", transactional=True)

    def _declare(self, kit: Kit, name: str, *, transactional: bool) -> None:
        def move(ctx: Any, *, held: int, paid: int) -> None:
            if transactional:
                values = {"held": held, "paid": paid, "account": int(ctx.tx_id[1:3])}
                ctx.sql.execute(text(MOVE), values)
            else:
                with self._lock:
                    self.held[ctx.tx_id] += held
                    self.paid[ctx.tx_id] += paid

        @kit.step(f"{name}/reserve", transactional=transactional)
        def reserve(ctx: Any, data: Data) -> None:
            move(ctx, held=1, paid=0)

        @reserve.rollback
        def release(ctx: Any, data: Data, output: Data) -> None:
            move(ctx, held=-1, paid=0)

        @kit.step(f"{name}/gate")
        def gate(ctx: Any, data: Data) -> Sleep | None:
            return Sleep(seconds=data["nap"]) if data["nap"] and ctx.sleeps == 0 else None

        @kit.step(f"{name}/pay", transactional=transactional)
        def pay(ctx: Any, data: Data) -> None:
            move(ctx, held=-1, paid=1)

        @pay.rollback
        def pay_back(ctx: Any, data: Data, output: Data) -> None:
            move(ctx, held=1, paid=-1)

        steps = ("reserve", "gate", "pay")
        pipeline = Pipeline(f"race-{name}")
        for step in steps:
            pipeline.step(f"{name}/{step}")
        kit.use(pipeline.build())

    def sql_totals(self) -> tuple[int, int]:
        with self.engine.connect() as sql:
            row = sql.execute(text("SELECT sum(held) AS held, sum(paid) AS paid FROM test_money"))
            held, paid = row.one()
            return int(held), int(paid)


@pytest.fixture
def kit(datp_servers: Servers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kit]:
    """Nothing is asked of a node that is busy: time flies here."""
    monkeypatch.setattr(timeout_handler, "TAKEOVER_S", 3_600)
    kit = Kit(datp_servers, node_stale_ms=600_000, sql_pool_size=10)
    yield kit
    kit.close()


def submit_all(kit: Kit) -> list[str]:
    requests = [
        Request(
            pipeline="race-sql" if number % SQL_EVERY == 0 else "race-memory",
            input={"nap": (number % 7) * 3},
            expires_in_s=1 + number % SPREAD_S,
        )
        for number in range(TRANSACTIONS)
    ]
    answers = kit.client.submit_many(requests)
    return [answer.tx_id for answer in answers if isinstance(answer, Submitted)]


class Race:
    """Two handlers, two workers, and a clock that runs; until everything is over."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._over = threading.Event()
        self._give_up_s = time.monotonic() + GIVE_UP_S
        self._taken = 0
        self.errors: list[BaseException] = []

    def run(self) -> None:
        jobs: tuple[Callable[[], None], ...] = (
            *(self._handle, self._handle),
            *(self._finish, self._tick),
        )
        threads = [threading.Thread(target=self._guarded, args=(job,)) for job in jobs]
        for thread in threads:
            thread.start()
        # The second worker is this thread: time limits are cheaper in a main thread.
        self._guarded(self._finish)
        for thread in threads:
            thread.join(GIVE_UP_S)

    def _guarded(self, job: Callable[[], None]) -> None:
        while not self._over.is_set() and time.monotonic() < self._give_up_s:
            try:
                job()
            except BaseException as error:
                self.errors.append(error)
                self._over.set()

    def _handle(self) -> None:
        self._kit.run_job("timeout_handler")
        self._over.wait(TICK_S / 2)

    def _tick(self) -> None:
        until_s = time.monotonic() + TICK_MAX_S
        self._over.wait(TICK_S)
        while self._taken < TAKEN_A_TICK and time.monotonic() < until_s:
            self._over.wait(TICK_S / 4)
        self._taken = 0
        self._kit.clock.advance(seconds=1)
        self._kit.run_job("sleeper")
        with self._kit.connections.engine.connect() as sql:
            query = "SELECT 1 FROM tx_summary WHERE completed_at IS NULL LIMIT 1"
            if sql.exec_driver_sql(query).first() is None:
                self._over.set()

    def _finish(self) -> None:
        """Take whatever is queued, as bells would bring it."""
        live = self._kit.connections.live
        bells = [b for b in live.ring_again_many(self._queued()) if isinstance(b, Bell)]
        by_type: dict[str, list[tuple[str, int]]] = {}
        for bell in bells:
            by_type.setdefault(bell.step_type, []).append((bell.tx_id, bell.sequence))
        for step_type, pairs in by_type.items():
            self._kit.process.run_hop(self._kit.steps.get(step_type), pairs)
            self._taken += len(pairs)
        if not bells:
            self._over.wait(TICK_S / 4)

    def _queued(self) -> list[str]:
        return self._kit.connections.live.due("queuedZ", batch_max=96)


def deadlocks(engine: Engine) -> int:
    with engine.connect() as sql:
        sql.exec_driver_sql("SELECT pg_stat_force_next_flush()")
        query = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        return int(sql.exec_driver_sql(query).scalar_one())


@pytest.mark.timeout(300)
def test_each_of_many_ends_once_while_handlers_and_workers_race(
    kit: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    bank = Bank(kit)
    kit.lose_bells()
    before = deadlocks(bank.engine)
    ids = submit_all(kit)
    assert len(ids) == TRANSACTIONS
    race = Race(kit)
    race.run()
    assert race.errors == []
    kit.clock.advance(seconds=3_600)
    kit.run_job("timeout_handler")
    ends = final_statuses(bank.engine)
    assert ends.keys() == set(ids)
    assert {status for statuses in ends.values() for status in statuses} == {"success", "expired"}
    assert [tx_id for tx_id, statuses in ends.items() if len(statuses) != 1] == []
    paid = {tx_id for tx_id, (status,) in ends.items() if status == "success"}
    check_money(bank, paid)
    # Both sides of the race have won a fair share.
    assert TRANSACTIONS / 40 < len(paid) < TRANSACTIONS * 39 / 40
    with bank.engine.connect() as sql:
        assert sql.exec_driver_sql("SELECT count(*) FROM tx_timeout").scalar() == 0
        assert sql.exec_driver_sql(LATE).scalar() == 0
    assert deadlocks(bank.engine) == before
    assert "deadlock" not in caplog.text.lower()
    assert check_all(kit.connections.live) == []


def final_statuses(engine: Engine) -> dict[str, list[str]]:
    """Every final status that the log has for each transaction."""
    query = "SELECT tx_id, status FROM tx_state_change WHERE status = ANY(%(final)s)"
    found: dict[str, list[str]] = {}
    with engine.connect() as sql:
        for row in sql.exec_driver_sql(query, {"final": [str(each) for each in FINAL]}):
            found.setdefault(row.tx_id, []).append(row.status)
    return found


def check_money(bank: Bank, paid: set[str]) -> None:
    """Nothing is held any more; what is paid is what succeeded, once each."""
    assert {tx_id for tx_id, amount in bank.held.items() if amount} == set()
    in_memory = {tx_id for tx_id, amount in bank.paid.items() if amount}
    assert in_memory <= paid
    assert set(bank.paid[tx_id] for tx_id in in_memory) <= {1}
    assert bank.sql_totals() == (0, len(paid - in_memory))
