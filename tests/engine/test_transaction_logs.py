"""`ctx.log`: what a step says stays with its transaction, in order, bounded, sealed and erased."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from datp_tasks import Batch, DontKnow, Fail, Pipeline, Sleep
from datp_tasks.cli import transaction_logs as command
from datp_tasks.cli.command_context import Context
from datp_tasks.errors import CursorInvalid, TransactionUnknown
from datp_tasks.model.actor import Actor, Role
from datp_tasks.model.log_lines import (
    CUT,
    FIELDS_CHARS_MAX,
    LINE_CHARS_MAX,
    TRANSACTION_CHARS_MAX,
    LogLine,
)
from datp_tasks.model.status import Status
from datp_tasks.observe.logs import hide
from datp_tasks.operator.erase import Chosen
from datp_tasks.testing import Kit
from tests.support.search_everywhere import places_with

Data = dict[str, Any]
OPS = Actor(name="ops", role=Role.ADMIN)
#: In every line of these tests, and in nothing else.
WORD = "zanzibar"


def lines(kit: Kit, tx_id: str) -> list[LogLine]:
    return kit.operator.logs.page(tx_id, rows_max=10_000).lines


def texts(kit: Kit, tx_id: str) -> list[str]:
    return [line.text for line in lines(kit, tx_id)]


@pytest.fixture
def talk(datp: Kit) -> Kit:
    @datp.step("t/talk", retry={"max_attempts": 2, "first_s": 1, "jitter": 0})
    def talk(ctx: Any, data: Data) -> Any:
        ctx.log.info("%s begins", WORD, cents=12, to=["ann", None])
        if ctx.attempt == 1:
            raise OSError("not yet")
        ctx.log.warning("sleeps %(n)d", {"n": ctx.sleeps})
        if ctx.sleeps == 0:
            return Sleep(seconds=60)
        ctx.log.debug("nobody keeps this")
        ctx.log.error("at the end")
        return {"said": True}

    @talk.rollback
    def untalk(ctx: Any, data: Data, output: Data) -> None:
        ctx.log.info("takes it back")

    @datp.step("t/fail")
    def fail(ctx: Any, data: Data) -> None:
        ctx.log.info("fails")
        raise Fail("no")

    datp.use(
        Pipeline("talk").step("t/talk").build(),
        Pipeline("fail").step("t/talk").step("t/fail").build(),
    )
    return datp


def test_lines_of_all_tries_are_kept_in_order_with_level_step_and_fields(talk: Kit) -> None:
    tx_id = talk.run("talk", {}).tx_id
    found = lines(talk, tx_id)
    assert [(line.level, line.text, line.attempt) for line in found] == [
        ("info", f"{WORD} begins", 1),
        ("info", f"{WORD} begins", 2),
        ("warning", "sleeps 0", 2),
        # A sleep ends the try: the next run of the step counts its errors on.
        ("info", f"{WORD} begins", 2),
        ("warning", "sleeps 1", 2),
        ("error", "at the end", 2),
    ]
    assert {(line.path, line.step_type) for line in found} == {("0", "t/talk")}
    assert found[0].fields == {"cents": 12, "to": ["ann", None]}
    times = [line.at for line in found]
    assert times == sorted(times)  # type: ignore[type-var]


def test_lines_of_a_rollback_and_of_a_failure_are_kept(talk: Kit) -> None:
    tx_id = talk.run("fail", {}).tx_id
    assert texts(talk, tx_id)[-2:] == ["fails", "takes it back"]


def test_the_archiver_carries_them_to_sql_and_they_are_shown_the_same(talk: Kit) -> None:
    tx_id = talk.run("talk", {}).tx_id
    before = lines(talk, tx_id)
    talk.advance(seconds=120)
    # What is in Redis still, and in SQL already, is shown once.
    assert lines(talk, tx_id) == before
    assert talk.operator.replay(tx_id).faults == []
    redis = talk.connections.redis
    keys = [key for key in redis.scan_iter(f"{talk.settings.key_prefix}*") if tx_id in str(key)]
    redis.delete(*keys, *redis.scan_iter(f"{talk.settings.key_prefix}*journalX"))
    assert lines(talk, tx_id) == before


def test_pages_follow_each_other_without_gap_or_repetition(talk: Kit) -> None:
    tx_id = talk.run("talk", {}).tx_id
    whole = lines(talk, tx_id)
    found: list[LogLine] = []
    after = None
    while True:
        page = talk.operator.logs.page(tx_id, after=after, rows_max=2)
        found += page.lines
        if page.next_cursor is None:
            break
        after = page.next_cursor
        talk.run_job("archiver")
    assert found == whole
    # To follow: from the last line that is known.
    assert talk.operator.logs.page(tx_id, after=whole[-1].cursor).lines == []
    assert talk.operator.logs.page(tx_id, after=whole[3].cursor).lines == whole[4:]


def test_a_cursor_that_was_not_given_is_refused(talk: Kit) -> None:
    tx_id = talk.run("talk", {}).tx_id
    for cursor in ("", "x", "1", "1.-1", "١.٢", "9" * 60):
        with pytest.raises(CursorInvalid):
            talk.operator.logs.page(tx_id, after=cursor)


def test_an_unknown_transaction_is_told_apart_from_one_that_said_nothing(datp: Kit) -> None:
    @datp.step("t/silent")
    def silent(ctx: Any, data: Data) -> None:
        pass

    datp.use(Pipeline("p").step("t/silent").build())
    assert texts(datp, datp.run("p", {}).tx_id) == []
    with pytest.raises(TransactionUnknown):
        datp.operator.logs.page("t00-nothing")


def test_lines_cost_no_round_trip_and_no_statement(datp: Kit) -> None:
    @datp.step("t/maybe")
    def maybe(ctx: Any, data: Data) -> None:
        if data["loud"]:
            ctx.log.info("said")

    datp.use(Pipeline("p").step("t/maybe").step("t/maybe").step("t/maybe").build())
    datp.run("p", {"loud": False})
    live, costs = datp.connections.live, []
    for loud in (False, True):
        before = live._runner.round_trips, live._runner.calls
        tx_id = datp.run("p", {"loud": loud}).tx_id
        costs.append((live._runner.round_trips - before[0], live._runner.calls - before[1]))
    assert texts(datp, tx_id) == ["said"] * 3
    assert costs[0] == costs[1]


def test_a_vector_keeps_the_lines_of_each_item_apart(datp: Kit) -> None:
    @datp.step("t/many", vector=True)
    def many(batch: Batch) -> None:
        for item in batch:
            item.log.info("item %s", item.data["n"])
            if item.data["n"] == 1:
                item.log.warning("this one is broken")
                item.fail("no")
            else:
                item.done()

    datp.use(Pipeline("p").step("t/many").build())
    ends = datp.run_together("p", [{"n": n} for n in range(3)])
    assert [texts(datp, end.tx_id) for end in ends] == [
        ["item 0"],
        ["item 1", "this one is broken"],
        ["item 2"],
    ]


def test_lines_of_async_and_transactional_steps_are_kept(datp: Kit) -> None:
    @datp.step("t/async")
    async def later(ctx: Any, data: Data) -> None:
        ctx.log.info("async")

    @datp.step("t/sql", transactional=True)
    def sql(ctx: Any, data: Data) -> None:
        ctx.log.info("sql")

    datp.use(Pipeline("p").step("t/async").step("t/sql").build())
    ends = datp.run_together("p", [{}, {}])
    assert [texts(datp, end.tx_id) for end in ends] == [["async", "sql"]] * 2


def test_what_is_parked_in_doubt_keeps_what_it_said_last(datp: Kit) -> None:
    @datp.step("t/ask", on_crash="probe", timeout_s=5)
    def ask(ctx: Any, data: Data) -> None:
        pass

    @ask.probe
    def probe(ctx: Any, data: Data) -> DontKnow:
        ctx.log.error("the bank does not answer")
        return DontKnow("?")

    datp.use(Pipeline("p").step("t/ask").build())
    datp.crash_at("hop.after_step")
    tx_id = datp.submit("p", {})
    datp.recover()
    assert datp.status(tx_id).status is Status.IN_DOUBT
    # Nothing has changed but this, so the line has an entry of its own.
    assert texts(datp, tx_id) == ["the bank does not answer"]
    assert datp.operator.replay(tx_id).faults == []


# Bounds.


def test_a_long_line_and_large_fields_are_cut(datp: Kit) -> None:
    @datp.step("t/long")
    def long(ctx: Any, data: Data) -> None:
        ctx.log.info("x" * 50_000, big="y" * 50_000)

    datp.use(Pipeline("p").step("t/long").build())
    [line] = lines(datp, datp.run("p", {}).tx_id)
    assert len(line.text) == LINE_CHARS_MAX and line.text.endswith("…")
    assert line.fields is not None and len(str(line.fields["cut"])) == FIELDS_CHARS_MAX


def test_a_transaction_keeps_so_much_and_says_once_that_more_is_not_kept(datp: Kit) -> None:
    @datp.step("t/chatter")
    def chatter(ctx: Any, data: Data) -> Any:
        for _ in range(30):
            ctx.log.info("z" * 1_000)
        return Sleep(seconds=1) if ctx.sleeps < 9 else None

    datp.use(Pipeline("p").step("t/chatter").build())
    tx_id = datp.run("p", {}).tx_id
    found = texts(datp, tx_id)
    assert found.count(CUT) == 1 and found[-1] == CUT
    assert 0.9 * TRANSACTION_CHARS_MAX < sum(map(len, found)) <= TRANSACTION_CHARS_MAX
    assert datp.operator.replay(tx_id).faults == []


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_no_line_can_break_its_step_or_the_journal(datp: Kit) -> None:
    circle: list[Any] = []
    circle.append(circle)

    @datp.step("t/hostile")
    def hostile(ctx: Any, data: Data) -> Data:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(logging, "raiseExceptions", False)
            wrong = "%d of %s"
            ctx.log.info(wrong, "none")
            ctx.log.info("nul \x00, half \ud800, break \n@1 2 3")
            ctx.log.info("fields", circle=circle, odd=Hostile(), message="m", name=1)
            ctx.log.info("numbers", nan=float("nan"), huge=10**400, key={1: {2}})
            ctx.log.info(Hostile())
        return {"ok": True}

    datp.use(Pipeline("p").step("t/hostile").build())
    end = datp.run("p", {})
    assert end.status is Status.SUCCESS
    assert len(texts(datp, end.tx_id)) == 5
    datp.advance(seconds=120)
    assert len(texts(datp, end.tx_id)) == 5
    assert datp.operator.replay(end.tx_id).faults == []


# Crashes.


@pytest.mark.parametrize("point", ["hop.after_step", "hop.after_checkpoint", "hop.after_final"])
def test_a_crash_may_lose_or_repeat_lines_of_its_step_but_never_turns_them_round(
    datp: Kit, point: str
) -> None:
    @datp.step("t/count")
    def count(ctx: Any, data: Data) -> Data:
        for part in "ab":
            ctx.log.info("%d%s", data["n"], part)
        return {"n": data["n"] + 1}

    datp.use(Pipeline("p").step("t/count").step("t/count").step("t/count").build())
    datp.crash_at(point)
    tx_id = datp.submit("p", {"n": 0})
    assert datp.status(tx_id).status is not Status.SUCCESS or point == "hop.after_final"
    datp.recover()
    assert datp.status(tx_id).status is Status.SUCCESS
    shown = texts(datp, tx_id)
    # Between the end in SQL and that in Redis, the lines of the last step can be lost.
    wanted = ["0a", "0b", "1a", "1b", *([] if point == "hop.after_final" else ["2a", "2b"])]
    assert sorted(set(shown)) == wanted
    assert shown == sorted(shown)


# Secrets, seals, erasure.


def test_secrets_are_taken_out_before_a_line_rests(datp: Kit) -> None:
    hide("open-sesame")

    @datp.step("t/leak")
    def leak(ctx: Any, data: Data) -> None:
        ctx.log.info("password=hunter2 and open-sesame", token="abc123", url="http://u:pw9@h/")

    datp.use(Pipeline("p").step("t/leak").build())
    [line] = lines(datp, datp.run("p", {}).tx_id)
    for secret in ("hunter2", "open-sesame", "abc123", "pw9"):
        assert secret not in f"{line.text} {line.fields}"
        assert places_with(datp, secret) == []


@pytest.fixture
def sealed(talk: Kit) -> Kit:
    talk.use(Pipeline("sealed", sealed=True).step("t/talk").build())
    return talk


def test_lines_of_a_sealed_pipeline_rest_sealed_and_only_unmask_shows_them(sealed: Kit) -> None:
    tx_id = sealed.run("sealed", {}).tx_id
    sealed.advance(seconds=120)
    assert places_with(sealed, WORD) == []
    shown = lines(sealed, tx_id)
    assert shown and all(line.is_sealed and WORD not in line.text for line in shown)
    assert sealed.operator.replay(tx_id).faults == []
    opened = sealed.operator.unmask(tx_id, reason="ticket 1", actor=OPS).lines
    assert [line.text for line in opened][-1] == "at the end"
    assert opened[0].text == f"{WORD} begins"


@pytest.mark.parametrize("pipeline", ["talk", "sealed"])
def test_erasing_a_transaction_erases_what_its_steps_said(sealed: Kit, pipeline: str) -> None:
    tx_id = sealed.run(pipeline, {}, owner="acme").tx_id
    sealed.advance(seconds=120)
    eraser, chosen = sealed.operator.eraser, Chosen(owner="acme")
    permit = eraser.permit(chosen, reason="request 7", actor=OPS)
    assert [each.ok for each in eraser.erase([tx_id], permit)] == [True]
    assert lines(sealed, tx_id) == []
    assert places_with(sealed, WORD) == []


# The command.


def test_the_command_shows_them_by_level_and_as_json(
    talk: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    tx_id = talk.run("talk", {}).tx_id
    here = Context(talk.settings)
    monkeypatch.setattr(command, "connect", lambda: here)
    app = typer.Typer()
    command.add_commands(app)
    try:
        whole = CliRunner().invoke(app, [tx_id, "--follow"], catch_exceptions=False).output
        assert [line.partition(": ")[2] for line in whole.splitlines()][-1] == "at the end"
        assert "cents=12" in whole and " step 1 (t/talk) #2: " in whole
        errors = CliRunner().invoke(app, [tx_id, "--level", "error", "--json"]).output
        assert [json.loads(line)["text"] for line in errors.splitlines()] == ["at the end"]
        assert CliRunner().invoke(app, [tx_id, "--level", "loud"]).exit_code == 2
        reports = Pipeline("caller").step("util/progress-report", params={"report": {"at": 1}})
        talk.use(reports.step("util/child-pipeline", params={"pipeline": "talk"}).build())
        called = talk.run("caller", {}).tx_id
        inside = CliRunner().invoke(app, [called], catch_exceptions=False).output
        assert " step 1 of the child of step 2 (t/talk) #2: " in inside
    finally:
        here.close()
