"""Effects of a vector in SQL: only of what is done, only by its holder, and only once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

from datp_tasks import Fail, Pipeline, failpoints
from datp_tasks.engine import guard
from datp_tasks.model.status import Status
from datp_tasks.record.record_types import Final
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from tests.engine.guarded import GuardedHop
from tests.support.books import Books
from tests.support.eventually import eventually

Data = dict[str, Any]

each_way = pytest.mark.parametrize("way", ["one by one", "set by set"])


class Pay:
    """Writes a line for each transaction; those whose data says so fail after that."""

    def __init__(self, kit: Kit, books: Books, way: str) -> None:
        self.kit = kit
        self._books = books
        #: Names of those for which the step ran, each time that it did.
        self.calls: list[str] = []
        #: Called in the middle of the step.
        self.meanwhile: Callable[[], None] = lambda: None
        options: Data = {"transactional": True, "retry": {"max_attempts": 1}}
        if way == "set by set":
            kit.step("t/pay", vector=True, **options)(self._many)
        else:
            kit.step("t/pay", **options)(self._one)
        kit.use(Pipeline("p").step("t/pay").build())

    def _one(self, ctx: Any, data: Data) -> Data:
        self.calls.append(data["name"])
        self._books.write(ctx.sql, ctx.tx_id, data["name"])
        self.meanwhile()
        if data.get("fails"):
            raise Fail("no")
        return {"paid": data["name"]}

    def _many(self, batch: Any) -> None:
        for item in batch:
            self.calls.append(item.data["name"])
            # Set by set, what fails must not have an effect in the first place.
            if item.data.get("fails"):
                item.fail("no")
            else:
                self._books.write(batch.sql, item.tx_id, item.data["name"])
                item.done({"paid": item.data["name"]})
        self.meanwhile()

    def recorded(self) -> set[str]:
        with self.kit.connections.engine.connect() as sql:
            return set(sql.execute(text("SELECT tx_id FROM step_effect")).scalars())


def named(*names: str, fails: str = "") -> list[Data]:
    return [{"name": name, "fails": name == fails} for name in names]


@each_way
def test_what_failed_leaves_neither_an_effect_nor_a_record_of_one(
    datp: Kit, books: Books, way: str
) -> None:
    pay = Pay(datp, books, way)
    first, failed, last = datp.run_together("p", named("a", "b", "c", fails="b"))
    assert books.lines() == ["a", "c"]
    assert pay.recorded() == {first.tx_id, last.tx_id}
    assert failed.status is Status.FAILED


def test_of_a_batch_in_which_nothing_is_done_nothing_is_committed(datp: Kit, books: Books) -> None:
    @datp.step("t/pay", transactional=True, vector=True)
    def pay(batch: Any) -> None:
        for item in batch:
            books.write(batch.sql, item.tx_id, "written too early")
            item.fail("no")

    datp.use(Pipeline("p").step("t/pay").build())
    ends = datp.run_together("p", named("a", "b"))
    assert [end.status for end in ends] == [Status.FAILED, Status.FAILED]
    assert books.lines() == []


@each_way
@pytest.mark.parametrize("point", ["effect.before_commit", "effect.after_commit"])
def test_a_vector_that_is_lost_at_its_commit_has_each_effect_once(
    datp: Kit, books: Books, way: str, point: str
) -> None:
    Pay(datp, books, way)
    datp.crash_at(point)
    tx_ids = datp.submit_together("p", named("a", "b", "c"))
    datp.recover()
    assert {datp.status(tx_id).status for tx_id in tx_ids} == {Status.SUCCESS}
    assert sorted(books.lines()) == ["a", "b", "c"]


@each_way
def test_a_vector_whose_effects_were_recorded_is_not_run_again(
    datp: Kit, books: Books, way: str
) -> None:
    """All of them come again as one vector, as when the bell of a lost worker is rung again."""
    pay = Pay(datp, books, way)
    datp.crash_at("effect.after_commit")
    tx_ids = datp.submit_together("p", named("a", "b", "c"))
    datp.lose_bells()
    datp.recover()
    datp.lose_bells(False)
    datp.ring_together(tx_ids)
    assert [datp.status(tx_id).output for tx_id in tx_ids] == [{"paid": n} for n in "abc"]
    assert books.lines() == pay.calls == ["a", "b", "c"]


@each_way
def test_one_that_ended_before_its_step_began_has_no_effect(
    datp: Kit, books: Books, way: str
) -> None:
    """Redis fell back and gives it to a worker, although SQL has ended it under that fence."""
    Pay(datp, books, way)
    datp.lose_bells()
    tx_ids = [datp.submit("p", data) for data in named("a", "b")]
    datp.lose_bells(False)

    def end_first() -> None:
        fence = int(datp.connections.live.fields_many(tx_ids[:1])[0]["fence"])
        end = Final(
            tx_id=tx_ids[0], fence=fence, status=Status.CANCELLED, output_json=None, note=None
        )
        assert datp.connections.record.finish_many([end]) == {tx_ids[0]}

    failpoints.arm("hop.after_claim", end_first)
    datp.ring_together(tx_ids)
    assert books.lines() == ["b"]
    assert [each.status for each in datp.connections.record.summaries(tx_ids[:1])] == [
        Status.CANCELLED
    ]


@each_way
def test_one_under_a_newer_fence_has_no_effect_and_its_neighbour_has(
    datp: Kit, books: Books, way: str
) -> None:
    Pay(datp, books, way)
    datp.lose_bells()
    tx_ids = [datp.submit("p", data) for data in named("a", "b")]
    datp.lose_bells(False)

    def raise_fence() -> None:
        fence = int(datp.connections.live.fields_many(tx_ids[:1])[0]["fence"])
        datp.connections.record.raise_fences([(tx_ids[0], fence)])

    failpoints.arm("hop.after_claim", raise_fence)
    datp.ring_together(tx_ids)
    assert books.lines() == ["b"]


def test_what_the_guard_handed_to_other_workers_is_not_committed_here(
    datp_servers: Servers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two have run, and share the transaction of a third that does not return. One is cancelled."""
    monkeypatch.setattr(guard, "STUCK_MS", 50)
    kit = Kit(datp_servers)
    books = Books(kit.connections.engine)
    pay = Pay(kit, books, "one by one")
    may_end, is_stuck = threading.Event(), threading.Event()
    runs: list[int] = []

    def meanwhile() -> None:
        runs.append(1)
        if len(runs) == 3:
            is_stuck.set()
            may_end.wait(20)

    pay.meanwhile = meanwhile
    kit.lose_bells()
    tx_ids = [kit.submit("p", data) for data in named("a", "b", "c")]
    hop = GuardedHop(kit)
    hop.start("t/pay", [pair for _, rung in kit.send.rung for pair in rung])
    try:
        assert is_stuck.wait(20)
        eventually(hop.looks)
        # It is queued again, and as far as its next worker knows nothing of it is done.
        kit.client.cancel(tx_ids[0])
    finally:
        may_end.set()
        hop.join()
    kit.lose_bells(False)
    kit.recover()
    ends = [kit.status(tx_id).status for tx_id in tx_ids]
    assert ends == [Status.CANCELLED, Status.SUCCESS, Status.SUCCESS]
    assert sorted(books.lines()) == ["b", "c"]
    kit.close()


def test_items_of_a_batch_that_broke_are_called_again_in_halves_and_take_effect_once(
    datp: Kit, books: Books
) -> None:
    called: list[list[str]] = []

    @datp.step("t/pay", transactional=True, vector=True, retry={"max_attempts": 1})
    def pay(batch: Any) -> None:
        called.append([item.data["name"] for item in batch])
        for item in batch:
            books.write(batch.sql, item.tx_id, item.data["name"])
            if item.data["fails"]:
                raise RuntimeError("poison")
            item.done()

    datp.use(Pipeline("p").step("t/pay").build())
    ends = datp.run_together("p", named("a", "b", "c", "d", fails="c"))
    assert called == [["a", "b", "c", "d"], ["a", "b"], ["c", "d"], ["c"], ["d"]]
    assert books.lines() == ["a", "b", "d"]
    assert [end.status is Status.SUCCESS for end in ends] == [True, True, False, True]


@pytest.mark.parametrize("transactional", [False, True])
def test_items_without_an_outcome_are_called_again_and_their_neighbours_count_once(
    datp: Kit, books: Books, transactional: bool
) -> None:
    called: list[list[str]] = []

    @datp.step("t/pay", transactional=transactional, vector=True, retry={"max_attempts": 1})
    def pay(batch: Any) -> None:
        called.append([item.data["name"] for item in batch])
        for item in batch:
            if transactional:
                books.write(batch.sql, item.tx_id, item.data["name"])
            if not item.data["fails"]:
                item.done()

    datp.use(Pipeline("p").step("t/pay").build())
    ends = datp.run_together("p", named("a", "b", "c", fails="b"))
    assert [end.status is Status.SUCCESS for end in ends] == [True, False, True]
    again = [["a", "c"]] if transactional else []
    assert called == [["a", "b", "c"], *again, ["b"]]
    assert books.lines() == (["a", "c"] if transactional else [])
