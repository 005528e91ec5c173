"""Undoing what was done: in reverse order, with patience, and never forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from datp_tasks import Abort, Call, Fail, Pipeline
from datp_tasks.errors import TransactionError
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from tests.support.notes import without_id

Data = dict[str, Any]


class Bank:
    """Steps that can be undone, and a diary of what was done and undone."""

    def __init__(self, kit: Kit, **options: Any) -> None:
        self.diary: list[str] = []
        #: The node group in which each line of the diary was written.
        self.groups: list[str] = []
        self.undone: list[tuple[Data, Data | None, str, int]] = []
        #: How often an undo breaks before it works.
        self.undo_breaks = 0

        def note(ctx: Any, line: str) -> None:
            self.diary.append(line)
            self.groups.append(kit.connections.live.fields_many([ctx.tx_id])[0]["group"])

        @kit.step("bank/do", **options)
        def do(ctx: Any, data: Data) -> Data:
            note(ctx, f"do {ctx.params['name']}")
            return {**data, "did": ctx.params["name"]}

        @do.rollback
        def undo(ctx: Any, data: Data, output: Data) -> None:
            note(ctx, f"undo {ctx.params['name']}")
            self.undone.append((dict(data), output, ctx.idempotency_key, ctx.attempt))
            data.clear()
            if self.undo_breaks:
                self.undo_breaks -= 1
                raise OSError("the bank is closed")

        @kit.step("bank/fail")
        def fail(ctx: Any, data: Data) -> None:
            raise Fail("no", {"why": "not today"})

        @kit.step("bank/abort")
        def abort(ctx: Any, data: Data) -> None:
            raise Abort("no")

        @kit.step("bank/break", retry={"max_attempts": 1})
        def broken(ctx: Any, data: Data) -> None:
            raise RuntimeError("oops")

        @kit.step("bank/plain")
        def plain(ctx: Any, data: Data) -> None:
            self.diary.append("plain")

        @kit.step("bank/call")
        def call(ctx: Any, data: Data) -> Call:
            return Call(ctx.params["child"], data)


def do(pipeline: Pipeline, name: str, **options: Any) -> Pipeline:
    return pipeline.step("bank/do", params={"name": name}, **options)


def test_a_failure_undoes_what_was_done_in_reverse_order(datp: Kit) -> None:
    bank = Bank(datp)
    datp.use(do(do(Pipeline("p"), "a").step("bank/plain"), "b").step("bank/fail").build())
    summary = datp.run("p", {"n": 1})
    assert (summary.status, summary.note) == (Status.FAILED, "no")
    assert summary.output == {"why": "not today"}
    assert bank.diary == ["do a", "plain", "do b", "undo b", "undo a"]


def test_a_rollback_gets_the_input_the_output_and_a_key_of_its_own(datp: Kit) -> None:
    bank = Bank(datp)
    datp.use(do(do(Pipeline("p"), "a"), "b").step("bank/fail").build())
    tx_id = datp.run("p", {"n": 1}).tx_id
    assert bank.undone == [
        ({"n": 1, "did": "a"}, {"n": 1, "did": "b"}, f"{tx_id}:1:undo", 1),
        ({"n": 1}, {"n": 1, "did": "a"}, f"{tx_id}:0:undo", 1),
    ]


def test_an_abort_undoes_nothing(datp: Kit) -> None:
    bank = Bank(datp)
    datp.use(do(Pipeline("p"), "a").step("bank/abort").build())
    assert datp.run("p", {}).status is Status.ABORTED
    assert bank.diary == ["do a"]


@pytest.mark.parametrize(
    ("on_error", "diary"), [("keep", ["do a"]), ("rollback", ["do a", "undo a"])]
)
def test_an_internal_error_undoes_only_if_the_pipeline_says_so(
    datp: Kit, on_error: Any, diary: list[str]
) -> None:
    bank = Bank(datp)
    datp.use(do(Pipeline("p", on_error=on_error), "a").step("bank/break").build())
    summary = datp.run("p", {})
    assert summary.status is Status.INTERNAL_ERROR
    assert without_id(summary.note) == "step 2 of p (bank/break): RuntimeError (error …)"
    assert bank.diary == diary


def test_a_rollback_that_breaks_is_tried_again(datp: Kit) -> None:
    bank = Bank(datp, retry={"max_attempts": 4, "first_s": 60, "jitter": 0})
    bank.undo_breaks = 3
    datp.use(do(do(Pipeline("p"), "a"), "b").step("bank/fail").build())
    tx_id = datp.submit("p", {})
    assert datp.status(tx_id).status is Status.SLEEPING
    summary = datp.finish(tx_id)
    assert (summary.status, summary.note) == (Status.FAILED, "no")
    assert bank.diary == ["do a", "do b", *["undo b"] * 4, "undo a"]
    assert [attempt for *_, attempt in bank.undone] == [1, 2, 3, 4, 1]
    assert {key for _, _, key, _ in bank.undone[:4]} == {f"{tx_id}:1:undo"}


def test_a_rollback_that_never_works_is_parked_and_not_dropped(datp: Kit) -> None:
    bank = Bank(datp, retry={"max_attempts": 2})
    bank.undo_breaks = 100
    datp.use(do(do(Pipeline("p"), "a"), "b").step("bank/fail").build())
    summary = datp.run("p", {})
    assert summary.status is Status.IN_DOUBT
    note = "step 2 of p (bank/do) cannot be rolled back: OSError (error …)"
    assert without_id(summary.note) == note
    assert bank.diary == ["do a", "do b", "undo b", "undo b"]
    # Days later it is still there, still with everything that must be undone.
    datp.advance(days=3)
    assert datp.status(summary.tx_id).status is Status.IN_DOUBT
    assert datp.connections.record.summaries([summary.tx_id])[0].status is Status.IN_DOUBT
    with pytest.raises(TransactionError, match="in doubt"):
        datp.client.cancel(summary.tx_id)
    assert bank.diary == ["do a", "do b", "undo b", "undo b"]


def test_a_rollback_cannot_fail_or_abort_the_transaction(datp: Kit) -> None:
    @datp.step("t/do", retry={"max_attempts": 1})
    def done(ctx: Any, data: Data) -> None: ...

    @done.rollback
    def undo(ctx: Any, data: Data, output: Data) -> None:
        raise Abort("I do not want to")

    Bank(datp)
    datp.use(Pipeline("p").step("t/do").step("bank/fail").build())
    summary = datp.run("p", {})
    assert summary.status is Status.IN_DOUBT
    assert summary.note == "step 1 of p (t/do) cannot be rolled back: Abort: I do not want to"


def test_what_a_rollback_returns_changes_nothing(datp: Kit) -> None:
    @datp.step("t/do")
    def done(ctx: Any, data: Data) -> None: ...

    @done.rollback
    def undo(ctx: Any, data: Data, output: Data) -> Any:
        return Call("p", {})

    Bank(datp)
    datp.use(Pipeline("p").step("t/do").step("bank/fail").build())
    summary = datp.run("p", {})
    assert (summary.status, summary.output) == (Status.FAILED, {"why": "not today"})


def test_a_note_about_a_child_pipeline_names_it(datp: Kit) -> None:
    Bank(datp)
    datp.use(
        do(Pipeline("child", startable=False), "c").step("bank/break").build(),
        do(Pipeline("p"), "a").step("bank/call", params={"child": "child"}).build(),
    )
    assert without_id(datp.run("p", {}).note) == (
        "step 2 of child (bank/break): RuntimeError (error …)"
    )


def test_a_rollback_reaches_into_child_pipelines_that_are_over(datp: Kit) -> None:
    bank = Bank(datp)
    inner = do(do(Pipeline("inner", startable=False), "x"), "y").build()
    outer = do(Pipeline("outer", startable=False), "o").step("bank/call", params={"child": "inner"})
    datp.use(
        inner,
        do(outer, "o2").build(),
        do(Pipeline("p"), "a")
        .step("bank/call", params={"child": "outer"})
        .step("bank/fail")
        .build(),
    )
    summary = datp.run("p", {})
    assert summary.status is Status.FAILED
    names = ["a", "o", "x", "y", "o2"]
    assert bank.diary == [f"do {n}" for n in names] + [f"undo {n}" for n in reversed(names)]
    keys = [key.removeprefix(summary.tx_id) for _, _, key, _ in bank.undone]
    assert keys == [f":{path}:undo" for path in ("1.2", "1.1.1", "1.1.0", "1.0", "0")]


def test_a_failure_deep_down_undoes_the_steps_of_its_callers(datp: Kit) -> None:
    bank = Bank(datp)
    datp.use(
        do(Pipeline("child", startable=False), "c").step("bank/fail").build(),
        do(Pipeline("p"), "a").step("bank/call", params={"child": "child"}).build(),
    )
    assert datp.run("p", {}).status is Status.FAILED
    assert bank.diary == ["do a", "do c", "undo c", "undo a"]


def test_each_step_is_undone_in_the_node_group_that_did_it(datp: Kit) -> None:
    bank = Bank(datp)
    datp.use(do(do(do(Pipeline("p"), "a"), "b", group="vault"), "c").step("bank/fail").build())
    assert datp.run("p", {}).status is Status.FAILED
    assert bank.diary == ["do a", "do b", "do c", "undo c", "undo b", "undo a"]
    assert bank.groups == ["master", "vault", "master", "master", "vault", "master"]


@pytest.mark.parametrize("on_error", ["keep", "rollback"])
def test_a_try_that_broke_is_undone_by_a_rollback_that_can(datp: Kit, on_error: Any) -> None:
    undone: list[Any] = []

    @datp.step("t/half", retry={"max_attempts": 2})
    def half(ctx: Any, data: Data) -> None:
        raise TimeoutError("no answer")

    @half.rollback(partial=True)
    def undo(ctx: Any, data: Data, output: Data | None) -> None:
        undone.append((data, output, ctx.idempotency_key))

    datp.use(Pipeline("p", on_error=on_error).step("t/half").build())
    summary = datp.run("p", {"n": 1})
    assert summary.status is Status.INTERNAL_ERROR
    expected = [({"n": 1}, None, f"{summary.tx_id}:0:undo")]
    assert undone == (expected if on_error == "rollback" else [])


def test_a_try_that_broke_is_not_undone_by_a_rollback_that_cannot(datp: Kit) -> None:
    @datp.step("t/half", retry={"max_attempts": 1})
    def half(ctx: Any, data: Data) -> None:
        raise TimeoutError("no answer")

    @half.rollback
    def undo(ctx: Any, data: Data, output: Data) -> None:
        raise AssertionError("there is nothing to undo")

    datp.use(Pipeline("p", on_error="rollback").step("t/half").build())
    assert datp.run("p", {}).status is Status.INTERNAL_ERROR


def test_a_step_that_fails_itself_is_not_undone(datp: Kit) -> None:
    @datp.step("t/fail")
    def failing(ctx: Any, data: Data) -> None:
        raise Fail("nothing happened")

    @failing.rollback(partial=True)
    def undo(ctx: Any, data: Data, output: Data | None) -> None:
        raise AssertionError("there is nothing to undo")

    datp.use(Pipeline("p").step("t/fail").build())
    assert datp.run("p", {}).status is Status.FAILED


def test_a_rollback_that_is_gone_from_the_code_parks_the_transaction(datp: Kit) -> None:
    """A newer release without the rollback must not pretend that it was undone."""

    @datp.step("t/do")
    def done(ctx: Any, data: Data) -> None: ...

    @done.rollback
    def undo(ctx: Any, data: Data, output: Data) -> None: ...

    @datp.step("t/new-release")
    def new_release(ctx: Any, data: Data) -> None:
        done.rollback_function = None
        raise Fail("no")

    datp.use(Pipeline("p").step("t/do", retry={"max_attempts": 1}).step("t/new-release").build())
    summary = datp.run("p", {})
    assert summary.status is Status.IN_DOUBT
    assert "has no rollback on this node" in (summary.note or "")
