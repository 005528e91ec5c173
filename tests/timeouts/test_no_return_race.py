"""Expiries and cancels race the point of no return: of both, exactly one happens."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import text

from datp_tasks import Batch, Pipeline, Request, Sleep
from datp_tasks.errors import TransactionError
from datp_tasks.jobs import timeout_handler
from datp_tasks.live.live_types import Bell
from datp_tasks.model.stop_request import StopRequest
from datp_tasks.record.points import PointClaim, Points
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers

Data = dict[str, Any]

TRANSACTIONS = 3_000
EXPIRY_S_MAX = 60
#: In which a second passes.
TICK_S = 0.15
PAY = "INSERT INTO test_paid SELECT unnest(cast(:tx AS text[]))"
ENDS = """
SELECT s.tx_id, s.status, s.no_return_at IS NOT NULL AS is_past, p.tx IS NOT NULL AS is_paid
FROM tx_summary s LEFT JOIN test_paid p ON p.tx = s.tx_id
"""


@pytest.fixture
def kit(datp_servers: Servers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kit]:
    monkeypatch.setattr(timeout_handler, "TAKEOVER_S", 3_600)
    kit = Kit(datp_servers, node_stale_ms=600_000, sql_pool_size=12)
    yield kit
    kit.close()


class Race:
    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        self.errors: list[BaseException] = []
        self.refused: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self._over = threading.Event()
        self._declare()

    def _declare(self) -> None:
        kit = self.kit
        with kit.connections.engine.begin() as sql:
            sql.exec_driver_sql("DROP TABLE IF EXISTS test_paid")
            sql.exec_driver_sql("CREATE TABLE test_paid (tx text PRIMARY KEY)")

        @kit.step("r/gate")
        def gate(ctx: Any, data: Data) -> Sleep | None:
            return Sleep(seconds=data["nap"]) if ctx.sleeps == 0 else None

        @kit.step("r/send")
        def send(ctx: Any, data: Data) -> None:
            self.sent[ctx.tx_id] += 1
            with kit.connections.engine.begin() as sql:
                sql.execute(text(PAY), {"tx": [ctx.tx_id]})

        @kit.step("r/pay", transactional=True)
        def pay(ctx: Any, data: Data) -> None:
            ctx.sql.execute(text(PAY), {"tx": [ctx.tx_id]})

        @kit.step("r/pay-many", transactional=True, vector=True)
        def pay_many(batch: Batch) -> None:
            batch.sql.execute(text(PAY), {"tx": [item.tx_id for item in batch]})
            for item in batch:
                item.done()

        # After the point it sleeps past its expiry: only the mark can save it.
        for name in ("send", "pay", "pay-many"):
            pipeline = Pipeline(f"race-{name}").step("r/gate").step(f"r/{name}", final_from=True)
            kit.use(pipeline.step("r/gate").build())

    def submit(self) -> list[str]:
        names = ("send", "pay", "pay-many")
        requests = [
            Request(
                pipeline=f"race-{names[number % 3]}",
                input={"nap": 1 + number % 40},
                expires_in_s=1 + (number * 7) % EXPIRY_S_MAX,
            )
            for number in range(TRANSACTIONS)
        ]
        return [answer.tx_id for answer in self.kit.client.submit_many(requests)]  # type: ignore[union-attr]

    def run(self, to_cancel: list[str]) -> None:
        jobs = (self._handle, self._work, self._work, self._tick)
        threads = [threading.Thread(target=self._guarded, args=(job,)) for job in jobs]
        threads.append(threading.Thread(target=self._cancel, args=(to_cancel,)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(150)
        self._over.set()

    def _guarded(self, job: Any) -> None:
        while not self._over.is_set():
            try:
                job()
            except BaseException as error:
                self.errors.append(error)
                self._over.set()

    def _handle(self) -> None:
        self.kit.run_job("timeout_handler")
        self._over.wait(0.05)

    def _tick(self) -> None:
        self._over.wait(TICK_S)
        self.kit.clock.advance(seconds=1)
        self.kit.run_job("sleeper")
        with self.kit.connections.engine.connect() as sql:
            query = "SELECT 1 FROM tx_summary WHERE completed_at IS NULL LIMIT 1"
            if sql.exec_driver_sql(query).first() is None:
                self._over.set()

    def _cancel(self, tx_ids: list[str]) -> None:
        for tx_id in tx_ids:
            if self._over.is_set():
                return
            try:
                self.kit.client.cancel(tx_id, "raced")
            except TransactionError as error:
                self.refused[type(error).__name__] += 1

    def _work(self) -> None:
        live = self.kit.connections.live
        queued = live.due("queuedZ", batch_max=64)
        bells = [bell for bell in live.ring_again_many(queued) if isinstance(bell, Bell)]
        by_type: dict[str, list[tuple[str, int]]] = {}
        for bell in bells:
            by_type.setdefault(bell.step_type, []).append((bell.tx_id, bell.sequence))
        for step_type, pairs in by_type.items():
            self.kit.process.run_hop(self.kit.steps.get(step_type), pairs)
        if not bells:
            self._over.wait(0.02)


@pytest.mark.timeout(300)
def test_of_thousands_each_is_past_the_point_or_stopped_and_never_both(kit: Kit) -> None:
    kit.lose_bells()
    race = Race(kit)
    ids = race.submit()
    race.run(ids[::5])
    assert race.errors == []
    with kit.connections.engine.connect() as sql:
        ends = sql.exec_driver_sql(ENDS).all()
    assert len(ends) == TRANSACTIONS
    wrong = [
        row
        for row in ends
        if (row.status == "success", row.is_past, row.is_paid)
        not in ((True, True, True), (False, False, False))
    ]
    assert wrong == []
    counts = Counter(row.status for row in ends)
    assert counts.keys() == {"success", "expired", "cancelled"}
    # Each has won a fair share, and none was sent twice.
    assert min(counts.values()) > TRANSACTIONS / 100
    assert race.refused["NoReturn"] > 0
    assert set(race.sent.values()) == {1}


#: Batches that a mark, an expiry and cancels go for at the same moment.
ROUNDS, BATCH = 120, 25


class Collision:
    """One batch after another, by three threads that set off together."""

    def __init__(self, kit: Kit, ids: list[str]) -> None:
        self._batches = [ids[at : at + BATCH] for at in range(0, len(ids), BATCH)]
        self._start = threading.Barrier(3)
        self._record = kit.connections.record
        self._points = Points(kit.connections.engine, kit.clock)
        self.passed: set[str] = set()
        self.expiring: set[str] = set()
        self.asked: set[str] = set()
        self.errors: list[BaseException] = []

    def run(self) -> None:
        threads = [
            threading.Thread(target=self._each, args=(move,))
            for move in (self._pass, self._expire, self._cancel)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)

    def _each(self, move: Any) -> None:
        try:
            for batch in self._batches:
                self._start.wait(20)
                move(batch)
        except BaseException as error:
            self.errors.append(error)

    def _pass(self, batch: list[str]) -> None:
        claims = [PointClaim(tx_id, 1, "final") for tx_id in batch]
        answers = self._points.pass_many(claims)
        self.passed |= {tx_id for tx_id in batch if answers[tx_id] is True}

    def _expire(self, batch: list[str]) -> None:
        # One at a time and backwards, so that it meets the mark in the middle.
        for tx_id in reversed(batch):
            self.expiring |= self._record.mark_expiring([tx_id])

    def _cancel(self, batch: list[str]) -> None:
        for tx_id in batch[:: BATCH // 5]:
            if self._points.ask_to_stop(tx_id, StopRequest.cancel("raced")).point is None:
                self.asked.add(tx_id)


@pytest.mark.timeout(120)
def test_of_a_mark_an_expiry_and_a_cancel_at_the_same_moment_the_row_lets_one_win(
    kit: Kit,
) -> None:
    kit.lose_bells()
    race = Race(kit)
    ids = race.submit()[: ROUNDS * BATCH]
    collision = Collision(kit, ids)
    collision.run()
    assert collision.errors == []
    stopped = collision.expiring | collision.asked
    assert collision.passed & stopped == set()
    assert len(collision.passed) > BATCH
    assert len(collision.expiring) > BATCH
    with kit.connections.engine.connect() as sql:
        query = "SELECT tx_id FROM tx_summary WHERE no_return_at IS NOT NULL"
        assert set(sql.exec_driver_sql(query).scalars()) == collision.passed
