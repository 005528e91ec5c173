"""The state is the last full JSON plus the deltas after it, wherever the cut is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datp_tasks.model import state as words
from datp_tasks.model.state import (
    BEGIN,
    CLOSE,
    CRASH,
    UNDONE,
    Decision,
    Delta,
    Ending,
    PipelineFrame,
    Point,
    State,
    Undo,
    apply,
    bound,
    called,
    decided,
    delta_json,
    done,
    ending,
    erred,
    passed,
    returned,
    slept,
)
from datp_tasks.model.status import Status

#: A busy machine must not make a test fail.
CAREFREE: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow],
}


def created(data: dict[str, Any] | None = None) -> State:
    return State([PipelineFrame("p", "v1")], {"n": 1} if data is None else data)


def after(*deltas: Delta) -> State:
    state = created()
    for delta in deltas:
        apply(state, delta)
    return state


def test_a_new_state_is_at_the_first_step_for_the_first_time() -> None:
    state = created()
    assert (state.path, state.attempt, state.open, state.sleeps) == ("0", 1, False, 0)


def test_begin_opens_and_close_shuts_the_step() -> None:
    assert after(BEGIN).open
    assert not after(BEGIN, CLOSE).open


def test_done_moves_on_with_the_output_and_starts_counting_anew() -> None:
    state = after(BEGIN, erred("no", 1), BEGIN, slept(1, None), BEGIN, CRASH, BEGIN)
    assert (state.errors, state.sleeps, state.crashes, state.open) == (1, 1, 1, True)
    apply(state, done({"n": 2}, undoable=False))
    assert state == State([PipelineFrame("p", "v1", 1)], {"n": 2})
    assert state.path == "1"


def test_passed_keeps_the_input() -> None:
    assert after(passed(undoable=False)).data == {"n": 1}
    assert after(passed(undoable=True)).undo == [Undo("p", "v1", 0, "0", {"n": 1}, {"n": 1})]


def test_an_undoable_step_is_remembered_with_input_and_output() -> None:
    state = after(passed(undoable=False), done({"n": 2}, undoable=True))
    assert state.undo == [Undo("p", "v1", 1, "1", {"n": 1}, {"n": 2})]


def test_a_call_goes_one_level_down_and_a_return_past_the_calling_step() -> None:
    state = after(passed(undoable=False), called("child", "v9", {"n": 5}))
    assert (state.path, state.data) == ("1.0", {"n": 5})
    apply(state, done({"n": 6}, undoable=True))
    assert (state.path, state.undo[0].path) == ("1.1", "1.0")
    apply(state, returned())
    assert (state.path, state.data, len(state.stack)) == ("2", {"n": 6}, 1)


def test_a_call_without_data_passes_the_input_on() -> None:
    assert after(called("child", "v9", None)).data == {"n": 1}


def test_errors_and_crashes_are_tries_and_sleeps_are_not() -> None:
    assert after(BEGIN, erred("no", 1)).attempt == 2
    assert after(BEGIN, erred("no", 1), BEGIN, CRASH).attempt == 3
    assert after(BEGIN, slept(5, "kyc")).attempt == 1
    assert after(BEGIN, slept(5, "kyc")).sleeps == 1


def test_sleep_and_error_shut_the_step_and_a_crash_leaves_it_open() -> None:
    assert not after(BEGIN, slept(5, None)).open
    assert not after(BEGIN, erred("no", 1)).open
    assert after(BEGIN, CRASH).open
    assert not after(CRASH).open


def test_an_error_of_a_probe_leaves_the_step_open_until_the_probe_answers() -> None:
    state = after(BEGIN, CRASH, erred("no answer", 1, still_open=True))
    assert (state.open, state.errors, state.attempt) == (True, 1, 3)


def test_an_end_keeps_what_must_be_undone_and_each_undone_takes_one_off() -> None:
    deltas = [done({"n": n}, undoable=True) for n in (2, 3)]
    state = after(*deltas, BEGIN, ending(Status.FAILED, "no", {"why": 1}, rollback=True))
    assert state.ending == Ending("failed", "no", {"why": 1}, True)
    assert not state.open
    assert [undo.path for undo in state.undo] == ["0", "1"]
    apply(state, BEGIN)
    apply(state, erred("not now", 1))
    apply(state, UNDONE)
    assert [undo.path for undo in state.undo] == ["0"]
    assert (state.errors, state.open) == (0, False)


def test_a_step_that_may_have_taken_effect_can_be_undone_without_an_output() -> None:
    state = after(BEGIN, ending(Status.CANCELLED, "", None, rollback=True, undo_current=True))
    assert state.undo == [Undo("p", "v1", 0, "0", {"n": 1}, None)]


def test_a_decision_shuts_the_step_and_is_over_with_it() -> None:
    state = after(BEGIN, CRASH, decided("done", "the bank says so", {"n": 7}))
    assert state.decided == Decision("done", "the bank says so", {"n": 7})
    assert (state.open, state.crashes, state.path) == (False, 1, "0")
    for what_follows in (
        passed(undoable=False),
        done({"n": 7}, undoable=True),
        called("child", "v2", None),
        ending(Status.FAILED, "no", None, rollback=True),
    ):
        assert after(BEGIN, decided("failed", "no"), what_follows).decided is None


def test_a_point_of_no_return_is_kept_in_the_json_and_knows_its_step() -> None:
    state = after(BEGIN, bound("final", "0"))
    assert State.from_json(state.to_json()).point == Point("final", "0")
    assert not state.is_past_return
    assert after(BEGIN, bound("final", "0"), passed(undoable=False)).is_past_return
    forwarded = after(BEGIN, bound("forward", "0"), passed(undoable=False))
    assert not forwarded.is_past_return
    apply(forwarded, bound(None, ""))
    assert forwarded.point is None


def test_every_kind_of_delta_is_known_and_tested_here() -> None:
    made = [
        *(BEGIN, CLOSE, CRASH, UNDONE, passed(undoable=True), called("c", "v", None)),
        *(returned(), slept(1, None), erred("", 1), ending(Status.FAILED, "", None)),
        decided("done", "", None),
        bound("final", "0"),
    ]
    assert {delta["k"] for delta in made} == set(words._APPLY)


def test_the_ready_made_json_says_the_same_as_the_delta() -> None:
    for delta in (BEGIN, CLOSE, CRASH, UNDONE, passed(undoable=True), done({}, undoable=True)):
        assert json.loads(delta_json(delta)) == delta


def test_a_delta_of_an_unknown_kind_is_an_error_and_not_ignored() -> None:
    with pytest.raises(KeyError):
        apply(created(), {"k": "from-the-future"})


def test_a_fresh_state_is_written_without_what_is_as_by_default() -> None:
    assert json.loads(created().to_json()) == {"stack": [["p", "v1", 0]], "data": {"n": 1}}


DATA = st.dictionaries(st.text("abc", max_size=2), st.integers() | st.text("xyé", max_size=3))


@st.composite
def journals(draw: st.DrawFn) -> list[Delta]:
    """Deltas in an order that can happen."""
    state, deltas = created(), []
    for _ in range(draw(st.integers(0, 12))):
        delta = draw(possible_after(state))
        before = (state.path, state.ending is None, len(state.undo))
        apply(state, delta)
        if (state.path, state.ending is None, len(state.undo)) != before:
            # The counters always belong to the current step.
            assert (state.attempt, state.sleeps, state.open) == (1, 0, False)
        deltas.append(delta)
    return deltas


def possible_after(state: State) -> st.SearchStrategy[Delta]:
    possible = [
        st.sampled_from([BEGIN, CLOSE, CRASH]),
        st.builds(slept, st.floats(0, 1e6), st.none() | st.just("kyc")),
        st.builds(erred, st.text("ab"), st.floats(0, 1e6), still_open=st.booleans()),
        st.builds(decided, st.sampled_from(["done", "failed"]), st.text("ab"), st.none() | DATA),
    ]
    if state.ending is None:
        possible += [
            st.builds(done, DATA, undoable=st.booleans()),
            st.builds(passed, undoable=st.booleans()),
            st.builds(called, st.sampled_from(["c", "d"]), st.just("v2"), st.none() | DATA),
            st.builds(
                ending,
                st.sampled_from([Status.FAILED, Status.CANCELLED]),
                st.text("ab"),
                st.none() | DATA,
                rollback=st.booleans(),
                undo_current=st.booleans(),
            ),
        ]
        if len(state.stack) > 1:
            possible.append(st.builds(returned))
    elif state.undo:
        possible.append(st.just(UNDONE))
    return st.one_of(possible)


@settings(max_examples=50, **CAREFREE)
@given(journals(), st.integers(0, 12))
def test_json_and_deltas_give_the_same_state_wherever_they_are_cut(
    deltas: list[Delta], cut: int
) -> None:
    whole = after(*deltas)
    restored = State.from_json(after(*deltas[:cut]).to_json())
    for delta in deltas[cut:]:
        apply(restored, json.loads(delta_json(delta)))
    assert restored == whole
    assert restored.to_json() == whole.to_json()
    assert State.from_json(whole.to_json()) == whole
