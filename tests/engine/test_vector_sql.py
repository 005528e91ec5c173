"""Transactional vector steps: the effects of all items and their outputs are one commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg2
import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from datp_tasks import Batch, Fail, Item, Pipeline, failpoints
from datp_tasks.engine import vector_steps
from datp_tasks.model.status import Status
from datp_tasks.record import effects as effects_module
from datp_tasks.record.effects import EffectStore, WantedEffect
from datp_tasks.testing import Kit, boundaries
from tests.support.books import Books, reports
from tests.support.locks import LOCK, Deadlock, held_lock

Data = dict[str, Any]
Calls = list[list[int]]


def numbers(count: int) -> list[Data]:
    return [{"n": n} for n in range(count)]


def recorded(kit: Kit) -> int:
    with kit.connections.engine.connect() as sql:
        return int(sql.execute(text("SELECT count(*) FROM step_effect")).scalar_one())


def pay_many(
    kit: Kit,
    books: Books,
    *,
    also: Callable[[Batch], None] = lambda batch: None,
    each: Callable[[Item], None] = lambda item: item.done({"paid": item.data["n"]}),
    **options: Any,
) -> Calls:
    """A step that writes a line for each item; the numbers of the items of each call."""
    calls: Calls = []

    @kit.step("t/pay", vector=True, transactional=True, **options)
    def pay(batch: Batch) -> None:
        calls.append([item.data["n"] for item in batch])
        for item in batch:
            books.write(batch.sql, item.tx_id, f"pay {item.data['n']}")
        also(batch)
        for item in batch:
            each(item)

    @pay.rollback
    def pay_back(batch: Batch) -> None:
        for item in batch:
            assert item.output == {"paid": item.data["n"]}
            books.write(item.sql, item.tx_id, f"back {item.data['n']}")
            item.done()

    kit.use(Pipeline("p").step("t/pay").build())
    return calls


def counted_commits(kit: Kit, run: Callable[[], object]) -> int:
    """How often steps were committed meanwhile."""
    commits: list[str] = []
    failpoints.watch(lambda name: commits.append(name) if name == "effect.after_commit" else None)
    try:
        run()
    finally:
        failpoints.disarm_all()
    return len(commits)


def test_effects_and_outputs_of_all_items_are_one_commit(datp: Kit, books: Books) -> None:
    def nobody_sees_it(batch: Batch) -> None:
        assert books.lines() == []

    calls = pay_many(datp, books, also=nobody_sees_it)
    tx_ids: list[str] = []
    commits = counted_commits(
        datp, lambda: tx_ids.extend(end.tx_id for end in datp.run_together("p", numbers(10)))
    )
    assert commits == 1
    assert calls == [[*range(10)]]
    assert [datp.status(tx_id).output for tx_id in tx_ids] == [{"paid": n} for n in range(10)]
    assert books.lines() == [f"pay {n}" for n in range(10)]
    assert recorded(datp) == 10


@pytest.mark.parametrize(
    "point",
    [
        "effect.before_commit",
        "effect.after_commit",
        "hop.after_step",
        "hop.before_final",
        "hop.after_final",
    ],
)
def test_wherever_it_crashes_each_effect_happens_once(datp: Kit, books: Books, point: str) -> None:
    pay_many(datp, books)
    datp.crash_at(point)
    tx_ids = datp.submit_together("p", numbers(4))
    assert len(books.lines()) == (0 if point == "effect.before_commit" else 4)
    datp.recover()
    assert [datp.status(tx_id).output for tx_id in tx_ids] == [{"paid": n} for n in range(4)]
    assert sorted(books.lines()) == [f"pay {n}" for n in range(4)]


def test_items_that_took_effect_in_an_earlier_try_are_not_shown(datp: Kit, books: Books) -> None:
    calls = pay_many(datp, books)
    datp.lose_bells()
    tx_ids = [datp.submit("p", data) for data in numbers(4)]
    datp.lose_bells(False)
    datp.crash_at("effect.after_commit")
    datp.ring_together(tx_ids[:2])
    failpoints.disarm_all()
    # Redis has them as running; SQL knows that they have taken effect.
    datp.lose_bells()
    datp.recover()
    datp.lose_bells(False)
    datp.ring_together(tx_ids)
    assert calls == [[0, 1], [2, 3]]
    assert [datp.status(tx_id).output for tx_id in tx_ids] == [{"paid": n} for n in range(4)]
    assert books.lines() == [f"pay {n}" for n in range(4)]


def test_only_items_that_are_done_have_an_effect_on_record(datp: Kit, books: Books) -> None:
    def fate(item: Item) -> None:
        match item.data["n"]:
            case 1:
                item.fail("no")
            case 2:
                item.sleep(60) if item.sleeps == 0 else item.done({"paid": 2})
            case 3:
                item.abort("no")
            case 4:
                item.retry("later") if item.attempt == 1 else item.done({"paid": 4})
            case _:
                item.done({"paid": 0})

    pay_many(datp, books, each=fate)
    tx_ids = datp.submit_together("p", numbers(5))
    assert recorded(datp) == 1
    ends = [datp.finish(tx_id) for tx_id in tx_ids]
    assert [end.status for end in ends] == [
        *(Status.SUCCESS, Status.FAILED, Status.SUCCESS, Status.ABORTED, Status.SUCCESS)
    ]
    assert recorded(datp) == 3


def test_a_batch_of_which_nothing_is_done_has_no_effect_at_all(datp: Kit, books: Books) -> None:
    def refuse(item: Item) -> None:
        item.fail("not enough money")

    pay_many(datp, books, each=refuse)
    assert {end.status for end in datp.run_together("p", numbers(3))} == {Status.FAILED}
    assert (books.lines(), recorded(datp)) == ([], 0)


def test_an_exception_undoes_the_batch_and_halves_isolate_the_broken_item(
    datp: Kit, books: Books
) -> None:
    def break_at_two(batch: Batch) -> None:
        if any(item.data["n"] == 2 for item in batch):
            batch.sql.execute(text("SELECT 1 / 0"))

    calls = pay_many(datp, books, also=break_at_two, retry={"max_attempts": 1})
    ends = datp.run_together("p", numbers(4))
    assert [end.status is Status.SUCCESS for end in ends] == [True, True, False, True]
    assert "DataError (error " in (ends[2].note or "")
    assert calls == [[0, 1, 2, 3], [0, 1], [2, 3], [2], [3]]
    assert books.lines() == ["pay 0", "pay 1", "pay 3"]
    assert recorded(datp) == 3


def test_items_without_an_outcome_have_no_effect_and_neighbours_commit(
    datp: Kit, books: Books
) -> None:
    def forget_one(item: Item) -> None:
        if item.data["n"] != 1:
            item.done({"paid": item.data["n"]})

    calls = pay_many(datp, books, each=forget_one, retry={"max_attempts": 1})
    ends = datp.run_together("p", numbers(4))
    assert [end.status is Status.SUCCESS for end in ends] == [True, False, True, True]
    assert calls == [[0, 1, 2, 3], [0, 2, 3], [1]]
    assert books.lines() == ["pay 0", "pay 2", "pay 3"]


def test_an_output_that_is_no_json_breaks_its_item_alone(datp: Kit, books: Books) -> None:
    def wrong(item: Item) -> None:
        item.done({"paid": {1, 2} if item.data["n"] == 1 else item.data["n"]})

    pay_many(datp, books, each=wrong, retry={"max_attempts": 1})
    ends = datp.run_together("p", numbers(3))
    assert [end.status is Status.SUCCESS for end in ends] == [True, False, True]
    assert "JSON does not have" in (ends[1].note or "")
    assert books.lines() == ["pay 0", "pay 2"]


def raise_fence(kit: Kit, tx_id: str) -> None:
    """Another worker has taken the transaction over, and SQL knows it."""
    with kit.connections.engine.begin() as sql:
        sql.execute(
            text("UPDATE tx_summary SET fence = fence + 1000000000000000 WHERE tx_id = :tx_id"),
            {"tx_id": tx_id},
        )


def test_an_item_under_a_newer_fence_has_no_effect_and_its_neighbours_commit(
    datp: Kit, books: Books
) -> None:
    calls = pay_many(datp, books)
    datp.lose_bells()
    tx_ids = [datp.submit("p", data) for data in numbers(4)]
    datp.lose_bells(False)
    failpoints.arm("hop.after_claim", lambda: raise_fence(datp, tx_ids[2]))
    datp.ring_together(tx_ids)
    assert calls == [[0, 1, 3]]
    assert books.lines() == ["pay 0", "pay 1", "pay 3"]
    # The other one is handed back: under the next claim it goes on.
    assert [datp.status(tx_id).status for tx_id in tx_ids] == [
        *(Status.SUCCESS, Status.SUCCESS, Status.QUEUED, Status.SUCCESS)
    ]


def test_an_item_that_ended_meanwhile_has_no_effect(datp: Kit, books: Books) -> None:
    calls = pay_many(datp, books)
    datp.lose_bells()
    tx_ids = [datp.submit("p", data) for data in numbers(3)]
    datp.lose_bells(False)

    def end_one() -> None:
        with datp.connections.engine.begin() as sql:
            ended = (
                "UPDATE tx_summary SET status = 'expired', completed_at = now() WHERE tx_id = :tx"
            )
            sql.execute(text(ended), {"tx": tx_ids[0]})

    failpoints.arm("hop.after_claim", end_one)
    datp.ring_together(tx_ids)
    assert calls == [[1, 2]]
    assert books.lines() == ["pay 1", "pay 2"]
    datp.recover()


def record_as_another(kit: Kit, tx_id: str, output: str) -> None:
    """Another worker under an older fence commits its try first."""
    with kit.connections.engine.begin() as sql:
        sql.execute(
            text(
                "INSERT INTO step_effect (tx_id, step_key, fence, output, created_at) "
                "VALUES (:tx_id, :key, 1, cast(:output AS json), now())"
            ),
            {"tx_id": tx_id, "key": f"{tx_id}:0", "output": output},
        )


@pytest.mark.parametrize("count", [1, 3])
def test_an_effect_that_another_worker_records_meanwhile_is_taken_from_it(
    datp: Kit, books: Books, count: int
) -> None:
    def be_overtaken(batch: Batch) -> None:
        if len(calls) == 1:
            record_as_another(datp, batch[0].tx_id, '{"paid": "elsewhere"}')

    calls = pay_many(datp, books, also=be_overtaken, retry={"max_attempts": 1})
    ends = datp.run_together("p", numbers(count))
    assert [end.output for end in ends] == [
        {"paid": "elsewhere"},
        *({"paid": n} for n in range(1, count)),
    ]
    # Its own effect of the first item was undone.
    assert books.lines() == [f"pay {n}" for n in range(1, count)]


def test_postgresql_lost_at_the_commit_is_asked_what_became_of_it(datp: Kit, books: Books) -> None:
    """The commit took place, and its answer was lost: the next try finds all recorded."""
    with boundaries.installed():
        calls = pay_many(datp, books, retry={"max_attempts": 1})
        failpoints.arm("commit:effects.open:after", "raise")
        ends = datp.run_together("p", numbers(3))
    assert [end.output for end in ends] == [{"paid": n} for n in range(3)]
    assert calls == [[0, 1, 2]]
    assert books.lines() == [f"pay {n}" for n in range(3)]


def test_postgresql_lost_before_the_commit_makes_the_batch_again(datp: Kit, books: Books) -> None:
    with boundaries.installed():
        calls = pay_many(datp, books, retry={"max_attempts": 1})
        failpoints.arm("commit:effects.open:before", "raise")
        ends = datp.run_together("p", numbers(3))
    assert {end.status for end in ends} == {Status.SUCCESS}
    assert calls == [[0, 1, 2]] * 2
    assert books.lines() == [f"pay {n}" for n in range(3)]


def test_while_postgresql_is_unavailable_the_batch_waits_and_costs_no_attempt(
    datp: Kit, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    pay_many(datp, books, retry={"max_attempts": 1})
    real = EffectStore.open
    tries: list[int] = []

    def unavailable(store: EffectStore, wanted: list[WantedEffect], **limits: Any) -> Any:
        tries.append(len(wanted))
        if len(tries) <= 6:
            raise OperationalError("connect", {}, psycopg2.OperationalError("refused"))
        return real(store, wanted, **limits)

    monkeypatch.setattr(EffectStore, "open", unavailable)
    ends = datp.run_together("p", numbers(2))
    assert {end.status for end in ends} == {Status.SUCCESS}
    assert sorted(books.lines()) == ["pay 0", "pay 1"]
    assert len(tries) > 6


@pytest.mark.parametrize("count", [1, 3])
def test_a_batch_that_deadlocks_is_made_again_at_once(datp: Kit, books: Books, count: int) -> None:
    deadlock = Deadlock(datp.connections.engine)

    def deadlock_once(batch: Batch) -> None:
        if len(calls) == 1:
            deadlock.run_into(batch.sql)

    calls = pay_many(datp, books, also=deadlock_once, retry={"max_attempts": 1})
    ends = datp.run_together("p", numbers(count))
    deadlock.join()
    assert {end.status for end in ends} == {Status.SUCCESS}
    assert calls == [[*range(count)]] * 2
    assert sorted(books.lines()) == [f"pay {n}" for n in range(count)]


def test_who_wants_what_is_locked_waits_alone(
    datp: Kit, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_steps, "LOCK_MS", 50)

    def lock(batch: Batch) -> None:
        if len(batch) == 1 and batch[0].data["n"] == 2:
            holder.rollback()
        if any(item.data["n"] == 2 for item in batch):
            batch.sql.execute(LOCK, {"name": 7})

    calls = pay_many(datp, books, also=lock, retry={"max_attempts": 1})
    with held_lock(datp.connections.engine, 7) as holder:
        ends = datp.run_together("p", numbers(4))
    assert {end.status for end in ends} == {Status.SUCCESS}
    assert calls == [[0, 1, 2, 3], [0, 1], [2, 3], [2], [3]]
    assert sorted(books.lines()) == [f"pay {n}" for n in range(4)]


def test_a_locked_row_of_one_item_does_not_hold_up_the_others_for_long(
    datp: Kit, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_steps, "LOCK_MS", 50)
    calls = pay_many(datp, books, retry={"max_attempts": 1})
    datp.lose_bells()
    tx_ids = [datp.submit("p", data) for data in numbers(2)]
    datp.lose_bells(False)
    holder = datp.connections.engine.connect()
    hold = "SELECT 1 FROM tx_summary WHERE tx_id = :tx_id FOR UPDATE"
    holder.execute(text(hold), {"tx_id": tx_ids[1]})
    failpoints.arm("effect.after_commit", holder.rollback)
    datp.ring_together(tx_ids)
    holder.close()
    assert calls == [[0], [1]]
    assert [datp.status(tx_id).status for tx_id in tx_ids] == [Status.SUCCESS] * 2


def test_a_rollback_of_a_transactional_vector_step_is_one_too(datp: Kit, books: Books) -> None:
    pay_many(datp, books)

    @datp.step("t/fail")
    def fail(ctx: Any, data: Data) -> None:
        raise Fail("no")

    datp.use(Pipeline("p").step("t/pay").step("t/fail").build())
    commits = counted_commits(datp, lambda: datp.submit_together("p", numbers(3)))
    assert commits == 2
    assert books.lines() == [*(f"pay {n}" for n in range(3)), *(f"back {n}" for n in range(3))]
    assert recorded(datp) == 6


@pytest.mark.parametrize("point", ["effect.before_commit", "effect.after_commit"])
def test_wherever_a_rollback_crashes_it_is_undone_once(datp: Kit, books: Books, point: str) -> None:
    pay_many(datp, books)

    @datp.step("t/fail")
    def fail(ctx: Any, data: Data) -> None:
        raise Fail("no")

    datp.use(Pipeline("p").step("t/pay").step("t/fail").build())
    datp.crash_at(point, nth=2)
    tx_ids = datp.submit_together("p", numbers(3))
    datp.recover()
    assert [datp.status(tx_id).status for tx_id in tx_ids] == [Status.FAILED] * 3
    assert sorted(books.lines()) == sorted(
        f"{word} {n}" for word in ("pay", "back") for n in range(3)
    )


def test_progress_is_numbered_once_when_the_rows_are_free_whatever_the_outcome(
    datp: Kit, books: Books
) -> None:
    def report(item: Item) -> None:
        item.progress({"n": item.data["n"]})
        if item.data["n"] == 2:
            raise OSError
        item.retry("no") if item.data["n"] == 1 else item.done({"paid": 0})

    pay_many(datp, books, each=report, retry={"max_attempts": 1})
    ends = datp.run_together("p", numbers(4))
    engine = datp.connections.engine
    assert [reports(engine, end.tx_id) for end in ends] == [[f'{{"n":{n}}}'] for n in range(4)]


def test_statements_for_fences_and_effects_do_not_grow_with_the_batch(
    datp: Kit, books: Books
) -> None:
    seen: list[int] = []
    real = Connection.exec_driver_sql

    def count(sql: Connection, statement: str, *more: Any) -> Any:
        if statement in (effects_module.Query.hold, effects_module.Query.save):
            seen.append(1)
        return real(sql, statement, *more)

    pay_many(datp, books)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "exec_driver_sql", count)
        datp.run_together("p", numbers(20))
    assert len(seen) == 2
