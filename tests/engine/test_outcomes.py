"""What a step may say, and what becomes of its transaction."""

from __future__ import annotations

import logging
import math
from decimal import Decimal
from typing import Any

import pytest

from datp_tasks import Abort, Call, Fail, Pipeline, Sleep
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from tests.support.notes import without_id

Data = dict[str, Any]


def wake_ms(kit: Kit, tx_id: str) -> int:
    return int(kit.connections.live.fields_many([tx_id])[0]["wakeTime"])


def now_ms(kit: Kit) -> int:
    return kit.connections.live.server_now_ms()


def test_the_output_of_a_step_is_the_input_of_the_next(datp: Kit) -> None:
    @datp.step("t/add")
    def add(ctx: Any, data: Data) -> Data:
        return {"n": data["n"] + ctx.params.get("by", 1)}

    datp.use(Pipeline("p").step("t/add").step("t/add", params={"by": 10}).build())
    summary = datp.run("p", {"n": 1})
    assert (summary.status, summary.output) == (Status.SUCCESS, {"n": 12})
    assert summary.input == {"n": 1}
    assert summary.completed_at is not None


def test_none_passes_the_input_on(datp: Kit) -> None:
    @datp.step("t/look")
    def look(ctx: Any, data: Data) -> None:
        data["n"] = "changed"

    datp.use(Pipeline("p").step("t/look").step("t/look").build())
    assert datp.run("p", {"n": 1}).output == {"n": 1}


def test_what_a_step_does_to_its_input_does_not_reach_anything_else(datp: Kit) -> None:
    kept: list[Data] = []

    @datp.step("t/spoil")
    def spoil(ctx: Any, data: Data) -> Data:
        output = {"list": data["list"]}
        kept.extend([data, output, ctx.params, ctx.metadata])
        return output

    @datp.step("t/later")
    def later(ctx: Any, data: Data) -> Data:
        for each in kept:
            each.clear()
        return {**data, "params": ctx.params}

    datp.use(
        Pipeline("p")
        .step("t/spoil", params={"list": [1]})
        .step("t/later", params={"list": [1]})
        .step("t/spoil", params={"list": [1]})
        .build()
    )
    assert datp.run("p", {"list": [{"a": 1}]}).output == {"list": [{"a": 1}]}
    kept.clear()
    assert datp.run("p", {"list": [{"a": 1}]}).input == {"list": [{"a": 1}]}


def test_a_sleep_runs_the_same_step_again_with_the_same_input(datp: Kit) -> None:
    seen: list[tuple[int, int, Data]] = []

    @datp.step("t/twice")
    def twice(ctx: Any, data: Data) -> Data | Sleep:
        seen.append((ctx.sleeps, ctx.attempt, dict(data)))
        data["n"] = "changed"
        return Sleep(seconds=90) if ctx.sleeps < 2 else {"slept": ctx.sleeps}

    datp.use(Pipeline("p").step("t/twice").build())
    tx_id = datp.submit("p", {"n": 1})
    assert datp.status(tx_id).status is Status.SLEEPING
    assert wake_ms(datp, tx_id) == now_ms(datp) + 90_000
    datp.advance(seconds=89)
    assert len(seen) == 1
    datp.advance(seconds=1)
    assert len(seen) == 2
    assert datp.finish(tx_id).output == {"slept": 2}
    assert seen == [(0, 1, {"n": 1}), (1, 1, {"n": 1}), (2, 1, {"n": 1})]


@pytest.mark.parametrize(
    ("sleep", "seconds"),
    [(Sleep(), 300), (Sleep(switch="go"), 7_200), (Sleep(seconds=5, switch="go"), 5)],
)
def test_a_sleep_has_a_time_also_when_none_is_given(datp: Kit, sleep: Sleep, seconds: int) -> None:
    @datp.step("t/sleep")
    def sleeper(ctx: Any, data: Data) -> Sleep:
        return sleep

    datp.use(Pipeline("p").step("t/sleep").build())
    assert wake_ms(datp, datp.submit("p", {})) == now_ms(datp) + seconds * 1_000


def test_a_sleep_is_never_longer_than_allowed(datp: Kit) -> None:
    @datp.step("t/sleep")
    def sleeper(ctx: Any, data: Data) -> Sleep:
        return Sleep(seconds=1e300)

    datp.use(Pipeline("p").step("t/sleep").build())
    longest_ms = Sleep.SECONDS_MAX * 1_000
    assert wake_ms(datp, datp.submit("p", {})) == now_ms(datp) + longest_ms


def test_a_call_runs_another_pipeline_and_takes_its_output(datp: Kit) -> None:
    @datp.step("t/call")
    def call(ctx: Any, data: Data) -> Call:
        return Call("child", {"n": data["n"] * 10})

    @datp.step("t/add")
    def add(ctx: Any, data: Data) -> Data:
        return {"n": data["n"] + 1}

    datp.use(
        Pipeline("child", startable=False).step("t/add").step("t/add").build(),
        Pipeline("p").step("t/call").step("t/add").build(),
    )
    assert datp.run("p", {"n": 1}).output == {"n": 13}


def test_fail_ends_as_failed_with_note_and_output(datp: Kit) -> None:
    @datp.step("t/fail")
    def fail(ctx: Any, data: Data) -> None:
        raise Fail("not enough money", {"missing": 5})

    @datp.step("t/never")
    def never(ctx: Any, data: Data) -> None:
        raise AssertionError("a step ran after the end")

    datp.use(Pipeline("p").step("t/fail").step("t/never").build())
    summary = datp.run("p", {})
    assert summary.status is Status.FAILED
    assert (summary.note, summary.output) == ("not enough money", {"missing": 5})


def test_abort_ends_as_aborted_with_note_and_output(datp: Kit) -> None:
    @datp.step("t/abort")
    def abort(ctx: Any, data: Data) -> None:
        raise Abort("nothing to do", {"a": 1})

    datp.use(Pipeline("p").step("t/abort").build())
    summary = datp.run("p", {})
    assert (summary.status, summary.note) == (Status.ABORTED, "nothing to do")
    assert summary.output == {"a": 1}


def test_an_output_of_a_failure_that_is_not_json_is_dropped_and_said_so(datp: Kit) -> None:
    @datp.step("t/fail")
    def fail(ctx: Any, data: Data) -> None:
        raise Fail("no", {"price": Decimal("1.10")})

    datp.use(Pipeline("p").step("t/fail").build())
    summary = datp.run("p", {})
    assert (summary.status, summary.output) == (Status.FAILED, None)
    assert summary.note is not None
    assert summary.note.startswith("no (its output was dropped: output.price is a Python Decimal")


def test_a_note_that_sql_could_not_store_or_that_is_endless_does_no_harm(datp: Kit) -> None:
    @datp.step("t/fail")
    def fail(ctx: Any, data: Data) -> None:
        raise Fail("a\x00b\ud800" + "x" * 100_000)

    datp.use(Pipeline("p").step("t/fail").build())
    summary = datp.run("p", {})
    assert summary.status is Status.FAILED
    assert summary.note is not None
    assert len(summary.note) <= 500
    assert summary.note.startswith("a")


def test_an_exception_is_tried_again_after_growing_pauses_and_then_an_internal_error(
    datp: Kit,
) -> None:
    tries: list[tuple[int, int]] = []

    @datp.step("t/break", retry={"max_attempts": 4, "first_s": 10, "factor": 3, "jitter": 0})
    def broken(ctx: Any, data: Data) -> None:
        tries.append((ctx.attempt, now_ms(datp)))
        raise RuntimeError(f"bank is closed {ctx.attempt}")

    datp.use(Pipeline("p").step("t/break").build())
    start_ms = now_ms(datp)
    summary = datp.run("p", {})
    assert summary.status is Status.INTERNAL_ERROR
    assert without_id(summary.note) == "step 1 of p (t/break): RuntimeError (error …)"
    assert summary.output is None
    assert tries == [
        (attempt, start_ms + seconds * 1_000)
        for attempt, seconds in ((1, 0), (2, 10), (3, 40), (4, 130))
    ]


def test_the_definition_of_a_step_overrules_the_policy_of_its_type(datp: Kit) -> None:
    tries: list[int] = []

    @datp.step("t/break", retry={"max_attempts": 10})
    def broken(ctx: Any, data: Data) -> None:
        tries.append(ctx.attempt)
        raise RuntimeError

    datp.use(Pipeline("p").step("t/break", retry={"max_attempts": 2}).build())
    assert datp.run("p", {}).status is Status.INTERNAL_ERROR
    assert tries == [1, 2]


def test_a_step_that_recovers_goes_on_as_if_nothing_had_been(datp: Kit) -> None:
    @datp.step("t/shaky", retry={"max_attempts": 3})
    def shaky(ctx: Any, data: Data) -> Data:
        if ctx.attempt < 3:
            raise OSError("try again")
        return {"tries": ctx.attempt}

    @datp.step("t/after")
    def after(ctx: Any, data: Data) -> Data:
        return {**data, "attempt": ctx.attempt}

    datp.use(Pipeline("p").step("t/shaky").step("t/after").build())
    summary = datp.run("p", {})
    assert (summary.status, summary.output) == (Status.SUCCESS, {"tries": 3, "attempt": 1})
    assert summary.note is None


@pytest.mark.parametrize(
    ("returned", "complaint"),
    [
        ([1], "output must be a JSON object, was a list"),
        ("text", "output must be a JSON object, was a string"),
        (True, "output must be a JSON object, was a boolean"),
        (Fail("no money"), "the step returned Fail(…); write `raise Fail(…)`"),
        ({"a": math.nan}, "output.a is nan"),
        ({"a": {1: 2}}, "keys must be strings"),
        ({"a": "\x00"}, "U+0000"),
        ({"a": object()}, "output.a is a Python object"),
        ({"a": "x" * 300_000}, "bytes of JSON; 262144 are allowed"),
        (Call("child", {"a": Decimal(1)}), "send money as a string"),
    ],
)
def test_what_a_step_must_not_return_is_an_error_that_says_why(
    datp: Kit, returned: Any, complaint: str
) -> None:
    @datp.step("t/wrong", retry={"max_attempts": 1})
    def wrong(ctx: Any, data: Data) -> Any:
        return returned

    datp.use(Pipeline("p").step("t/wrong").build())
    summary = datp.run("p", {})
    assert summary.status is Status.INTERNAL_ERROR
    assert complaint in (summary.note or "")


def test_an_exception_that_cannot_be_shown_is_still_an_error(
    datp: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    # What the log would show cannot be written to a terminal either.
    caplog.set_level(logging.CRITICAL, "datp.step")

    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError("no words")

    @datp.step("t/mute", retry={"max_attempts": 1})
    def mute(ctx: Any, data: Data) -> None:
        raise Mute

    @datp.step("t/odd", retry={"max_attempts": 1})
    def odd(ctx: Any, data: Data) -> None:
        raise RuntimeError("half \ud800 and \x00")

    datp.use(Pipeline("mute").step("t/mute").build(), Pipeline("odd").step("t/odd").build())
    assert datp.run("mute", {}).status is Status.INTERNAL_ERROR
    assert datp.run("odd", {}).status is Status.INTERNAL_ERROR
