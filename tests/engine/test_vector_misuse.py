"""What a vector function must not do: a clear error, nothing lost, and neighbours go on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Connection, text

from datp_tasks import Batch, Item, Pipeline, Sleep, StepContext
from datp_tasks.engine import guard
from datp_tasks.engine import round as round_module
from datp_tasks.errors import StepError
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from tests.engine.guarded import GuardedHop
from tests.support.books import Books
from tests.support.eventually import eventually

Data = dict[str, Any]
Misuse = Callable[[Batch, Item], object]

SIZE = 4
BAD = 2


def numbers(count: int) -> list[Data]:
    return [{"n": n} for n in range(count)]


def is_bad(item: Item) -> bool:
    return bool(item.data["n"] == BAD)


def returns_an_output(batch: Batch, bad: Item) -> object:
    return {"n": 1}


def gives_two(batch: Batch, bad: Item) -> object:
    bad.fail("no")
    return None


def gives_two_and_goes_on(batch: Batch, bad: Item) -> object:
    with pytest.raises(StepError):
        bad.fail("no")
    return None


def says_what_only_a_probe_says(batch: Batch, bad: Item) -> object:
    bad.not_done()
    return None


def names_an_unknown_item(batch: Batch, bad: Item) -> object:
    batch.item("t00-unknown").done()
    return None


def returns_outcomes(batch: Batch, bad: Item) -> object:
    return [Sleep(1) for _ in batch]


#: What it does when the bad item is in the batch, and what the log and the note say.
ANYWHERE: list[tuple[Misuse, str]] = [
    (returns_an_output, "a vector step returns nothing"),
    (returns_outcomes, "a vector step returns nothing"),
    (gives_two, "two outcomes for"),
    (gives_two_and_goes_on, "two outcomes for"),
    (says_what_only_a_probe_says, "NotDone is no outcome of its run function"),
    (names_an_unknown_item, "'t00-unknown' is not in this batch"),
]


def commits(batch: Batch, bad: Item) -> object:
    batch.sql.commit()
    return None


def commits_and_goes_on(batch: Batch, bad: Item) -> object:
    with pytest.raises(StepError):
        batch.sql.commit()
    return None


def rolls_back(batch: Batch, bad: Item) -> object:
    batch.sql.rollback()
    return None


def rolls_back_and_goes_on(batch: Batch, bad: Item) -> object:
    with pytest.raises(StepError):
        batch.sql.rollback()
    return None


def commits_by_a_statement(batch: Batch, bad: Item) -> object:
    batch.sql.execute(text("COMMIT"))
    return None


def commits_by_a_statement_in_another_one(batch: Batch, bad: Item) -> object:
    batch.sql.exec_driver_sql("SELECT ';'; /* now */ commit work; SELECT 1")
    return None


def rolls_back_by_a_statement(batch: Batch, bad: Item) -> object:
    batch.sql.exec_driver_sql("ROLLBACK")
    return None


def commits_by_the_driver(batch: Batch, bad: Item) -> object:
    driver: Any = batch.sql.connection
    driver.commit()
    return None


def commits_by_a_cursor(batch: Batch, bad: Item) -> object:
    batch.sql.connection.cursor().execute("END")
    return None


def closes(batch: Batch, bad: Item) -> object:
    batch.sql.close()
    return None


def goes_on_after_an_error(batch: Batch, bad: Item) -> object:
    with pytest.raises(Exception, match="division by zero"):
        bad.sql.execute(text("SELECT 1 / 0"))
    return None


WITH_SQL: list[tuple[Misuse, str]] = [
    *ANYWHERE,
    (commits, "do not commit"),
    (commits_and_goes_on, "do not commit"),
    (rolls_back, "do not roll back"),
    (rolls_back_and_goes_on, "do not roll back"),
    (commits_by_a_statement, "do not commit"),
    (commits_by_a_statement_in_another_one, "do not commit"),
    (rolls_back_by_a_statement, "do not roll back"),
    (commits_by_the_driver, "do not commit"),
    (commits_by_a_cursor, "do not commit"),
    (closes, "do not"),
    (goes_on_after_an_error, "a statement of the step failed, and the step went on"),
]


def in_the_log(caplog: pytest.LogCaptureFixture, words: str) -> bool:
    """An error for the step type, of a step that broke."""
    return any(
        record.levelno >= logging.WARNING
        and record.name == "datp.step"
        and record.__dict__["event"] == "step.broken"
        and "t/bad" in record.getMessage()
        and words in record.getMessage()
        for record in caplog.records
    )


def assert_only_the_bad_one_broke(
    kit: Kit, caplog: pytest.LogCaptureFixture, words: str
) -> list[str]:
    ends = kit.run_together("p", numbers(SIZE))
    for n, end in enumerate(ends):
        wanted = Status.INTERNAL_ERROR if n == BAD else Status.SUCCESS
        assert (n, end.status, end.note if n != BAD else None) == (n, wanted, None)
    assert words in (ends[BAD].note or "")
    assert in_the_log(caplog, words)
    return [end.tx_id for end in ends]


@pytest.mark.parametrize(("misuse", "words"), ANYWHERE)
@pytest.mark.parametrize("is_async", [False, True])
def test_misuse_breaks_the_item_that_it_comes_with(
    datp: Kit,
    caplog: pytest.LogCaptureFixture,
    misuse: Misuse,
    words: str,
    is_async: bool,
) -> None:
    def bad(batch: Batch) -> object:
        for item in batch:
            item.done()
        return next((misuse(batch, item) for item in batch if is_bad(item)), None)

    async def bad_async(batch: Batch) -> object:
        return bad(batch)

    declare = datp.step("t/bad", vector=True, retry={"max_attempts": 1})
    declare(bad_async if is_async else bad)
    datp.use(Pipeline("p").step("t/bad").build())
    assert_only_the_bad_one_broke(datp, caplog, words)


@pytest.mark.parametrize(("misuse", "words"), WITH_SQL)
def test_misuse_in_a_transactional_step_has_no_effect_and_neighbours_commit_once(
    datp: Kit,
    books: Books,
    caplog: pytest.LogCaptureFixture,
    misuse: Misuse,
    words: str,
) -> None:
    @datp.step("t/bad", vector=True, transactional=True, retry={"max_attempts": 1})
    def bad(batch: Batch) -> object:
        for item in batch:
            books.write(batch.sql, item.tx_id, f"line {item.data['n']}")
            item.done()
        return next((misuse(batch, item) for item in batch if is_bad(item)), None)

    datp.use(Pipeline("p").step("t/bad").build())
    assert_only_the_bad_one_broke(datp, caplog, words)
    assert sorted(books.lines()) == [f"line {n}" for n in range(SIZE) if n != BAD]
    # The connection is as good as before.
    assert {end.status for end in datp.run_together("p", numbers(BAD))} == {Status.SUCCESS}


@pytest.mark.parametrize("word", ["fail", "abort", "sleep", "not_done", "dont_know"])
def test_a_rollback_says_done_or_retry_and_nothing_else(
    datp: Kit, caplog: pytest.LogCaptureFixture, word: str
) -> None:
    @datp.step("t/bad", vector=True, retry={"max_attempts": 1})
    def bad(batch: Batch) -> None:
        for item in batch:
            item.done()

    @bad.rollback
    def undo(batch: Batch) -> None:
        for item in batch:
            getattr(item, word)() if is_bad(item) else item.done()

    datp.use(Pipeline("p").step("t/bad").step("util/fixed-reply", params={"fail": True}).build())
    ends = datp.run_together("p", numbers(SIZE))
    assert [end.status for end in ends] == [
        Status.IN_DOUBT if n == BAD else Status.FAILED for n in range(SIZE)
    ]
    assert "is no outcome of its undo function" in (ends[BAD].note or "")
    assert in_the_log(caplog, "is no outcome of its undo function")


@pytest.mark.parametrize("transactional", [False, True])
def test_an_item_that_is_kept_after_the_step_returned_changes_nothing(
    datp: Kit, books: Books, caplog: pytest.LogCaptureFixture, transactional: bool
) -> None:
    kept: list[tuple[Batch, Item]] = []

    @datp.step("t/bad", vector=True, transactional=transactional, retry={"max_attempts": 1})
    def bad(batch: Batch) -> None:
        for item in batch:
            if is_bad(item):
                kept.append((batch, item))
            else:
                item.done()

    datp.use(Pipeline("p").step("t/bad").build())
    tx_ids = assert_only_the_bad_one_broke(datp, caplog, "without giving it an outcome")
    caplog.clear()
    batch, item = kept[0]
    with pytest.raises(StepError, match="after the step had returned"):
        item.done({"late": True})
    assert in_the_log(caplog, f"an outcome for {tx_ids[BAD]} came after the step had returned")
    if transactional:
        for given in (batch, item):
            with pytest.raises(StepError, match="after the step had returned"):
                _ = given.sql
    assert datp.status(tx_ids[BAD]).output is None


def test_a_thread_that_answers_later_is_told_in_the_log(
    datp: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    may_answer = threading.Event()
    threads: list[threading.Thread] = []

    def answer(item: Item) -> None:
        may_answer.wait(20)
        with pytest.raises(StepError):
            item.done()

    @datp.step("t/bad", vector=True, retry={"max_attempts": 1})
    def bad(batch: Batch) -> None:
        for item in batch:
            if is_bad(item):
                threads.append(threading.Thread(target=answer, args=(item,)))
                threads[-1].start()
            else:
                item.done()

    datp.use(Pipeline("p").step("t/bad").build())
    assert_only_the_bad_one_broke(datp, caplog, "without giving it an outcome")
    may_answer.set()
    for thread in threads:
        thread.join(20)
    assert in_the_log(caplog, "came after the step had returned")


@pytest.mark.parametrize("transactional", [False, True])
def test_a_vector_step_that_hangs_lets_each_item_run_alone(
    datp: Kit, books: Books, caplog: pytest.LogCaptureFixture, transactional: bool
) -> None:
    calls: list[int] = []
    never = threading.Event()

    @datp.step(
        "t/bad", vector=True, transactional=transactional, timeout_s=0.2, retry={"max_attempts": 1}
    )
    def bad(batch: Batch) -> None:
        calls.append(len(batch))
        for item in batch:
            if transactional:
                books.write(batch.sql, item.tx_id, f"line {item.data['n']}")
            if is_bad(item):
                never.wait(30)
            item.done()

    datp.use(Pipeline("p").step("t/bad").build())
    ends = datp.run_together("p", numbers(SIZE))
    assert [end.status for end in ends] == [
        Status.INTERNAL_ERROR if n == BAD else Status.SUCCESS for n in range(SIZE)
    ]
    assert "ran longer than 0.2 s" in (ends[BAD].note or "")
    assert in_the_log(caplog, "did not return for 4 items within 0.2 s; each runs alone")
    assert calls == [SIZE, 1, 1, 1, 1]
    wanted = [f"line {n}" for n in range(SIZE) if n != BAD] if transactional else []
    assert sorted(books.lines()) == wanted


def test_while_a_vector_step_hangs_the_guard_frees_what_waits_beside_it(
    datp_servers: Servers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And when the step ignores its limit for too long, the guard ends the process."""
    monkeypatch.setattr(guard, "STUCK_MS", 50)
    kit = Kit(datp_servers, step_kill_grace_s=0.1)
    may_end = threading.Event()
    hangs = threading.Event()

    @kit.step("t/bad", vector=True, timeout_s=0.3, retry={"max_attempts": 1})
    def bad(batch: Batch) -> None:
        if any(is_bad(item) for item in batch):
            hangs.set()
            if len(batch) > 1:
                raise RuntimeError("in halves")
            while not may_end.is_set():
                try:
                    may_end.wait(20)
                except StepError:
                    # The worst kind of step: it does not even give way to its time limit.
                    continue
        for item in batch:
            item.done()

    kit.use(Pipeline("p").step("t/bad").build())
    kit.lose_bells()
    tx_ids = [kit.submit("p", data) for data in numbers(SIZE)]
    kit.lose_bells(False)
    fields = kit.connections.live.fields_many(tx_ids)
    pairs = [(tx, int(each["sequence"])) for tx, each in zip(tx_ids, fields, strict=True)]
    hop = GuardedHop(kit)
    hop.start("t/bad", pairs)
    try:
        assert hangs.wait(20)
        others = [tx_id for n, tx_id in enumerate(tx_ids) if n != BAD]

        def others_went_on() -> bool:
            hop.go_on()
            return {kit.status(tx_id).status for tx_id in others} == {Status.SUCCESS}

        eventually(others_went_on)
        eventually(hop.was_killed)
    finally:
        may_end.set()
        hop.join()
    kit.close()


@pytest.mark.parametrize("vector", [False, True])
def test_tries_that_postgresql_asks_for_do_not_add_up_to_a_step_that_hangs(
    datp: Kit, books: Books, monkeypatch: pytest.MonkeyPatch, vector: bool
) -> None:
    """Each try has its own time; the guard must not end a process whose steps give way."""
    now_s = [1_000.0]
    overdue_s: list[float] = []
    clock = SimpleNamespace(monotonic=lambda: now_s[0])
    monkeypatch.setattr(round_module, "time", clock)

    def work(sql: Connection, tx_id: str) -> None:
        now_s[0] += 9
        overdue_s.append(datp.process.worker.hop.round.overdue_s())
        if len(overdue_s) < 3:
            sql.execute(text("DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '40001'; END $$"))
        books.write(sql, tx_id, "line")

    def batch_step(batch: Batch) -> None:
        for item in batch:
            work(batch.sql, item.tx_id)
            item.done()

    def plain_step(ctx: StepContext, data: Data) -> None:
        work(ctx.sql, ctx.tx_id)

    options: dict[str, Any] = {"vector": vector, "transactional": True, "timeout_s": 10}
    declare = datp.step("t/bad", retry={"max_attempts": 1}, **options)
    declare(batch_step if vector else plain_step)
    datp.use(Pipeline("p").step("t/bad").build())
    assert datp.run("p", {}).status is Status.SUCCESS
    assert overdue_s == [-1, -1, -1]
    assert books.lines() == ["line"]
