"""The journal as a chain: which branch lives, what is missing, what was altered."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datp_tasks.model.journal import (
    BrokenJournal,
    Entry,
    chained_hash,
    entries_from_text,
    living_branch,
    place_of,
)
from datp_tasks.model.state import BEGIN, CRASH, PipelineFrame, State, delta_json, done
from datp_tasks.model.view import View

CAREFREE: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}


def entry(version: int, before: int, *, told: str = "", kind: str = "progress") -> Entry:
    return Entry(version, before, 5, kind, "", told)


def chain(*versions: int, told: str = "") -> list[Entry]:
    """Entries that lead from the first of the versions to the last."""
    return [entry(new, old, told=told) for old, new in pairwise(versions)]


# Which branch lives.


def test_without_a_loss_all_entries_live() -> None:
    entries = chain(0, 1, 2, 3)
    assert living_branch(entries) == entries
    assert living_branch([]) == []


def test_entries_after_a_copy_are_those_that_follow_its_version() -> None:
    entries = chain(0, 1, 2, 3, 4)
    assert living_branch(entries, since=2) == entries[2:]
    assert living_branch(entries, since=4) == []


def test_the_branch_that_went_on_lives_and_what_redis_had_lost_does_not() -> None:
    common, lost = chain(0, *range(1, 9)), chain(8, 9, 10)
    went_on = chain(8, 19, 20, told="after the loss")
    assert living_branch([*common, *lost, *went_on]) == [*common, *went_on]
    assert living_branch([*common, *lost, *went_on], since=8) == went_on


def test_it_lives_also_if_its_versions_are_lower_because_the_clock_went_back() -> None:
    common, lost = chain(0, 100, 108), chain(108, 9_000, 9_010)
    went_on = chain(108, 109, 110, told="after the loss")
    assert living_branch([*common, *lost, *went_on]) == [*common, *went_on]


def test_it_lives_also_if_its_versions_are_those_of_the_lost_branch() -> None:
    common, lost = chain(0, *range(1, 9)), chain(8, 9, 10, 11)
    went_on = chain(8, 9, 10, told="after the loss")
    assert living_branch([*common, *lost, *went_on]) == [*common, *went_on]


def test_a_rebuild_from_the_longer_branch_makes_that_one_live_again() -> None:
    common, longer = chain(0, *range(1, 9)), chain(8, 9, 10)
    # Redis went on from 8 and gave a name again, before SQL told it what it had lost.
    forgotten = chain(8, 9, told="after the loss")
    rebuilt = entry(11, 10, kind="rebuild", told="queued")
    branch = living_branch([*common, *longer, *forgotten, rebuilt])
    assert branch == [*common, *longer, rebuilt]


def test_a_transaction_that_began_anew_follows_version_0_again() -> None:
    lost, anew = chain(0, 1, 2, 3), chain(0, 7, 8)
    assert living_branch([*lost, *anew]) == anew


def test_an_entry_that_was_recorded_twice_counts_once() -> None:
    entries = chain(0, 1, 2, 3)
    doubled = [each for each in entries for _ in range(2)]
    assert living_branch(doubled) == entries


@pytest.mark.parametrize("missing", range(4))
def test_a_gap_is_an_error_and_named(missing: int) -> None:
    entries = chain(0, 1, 2, 3, 4, 5)
    left = [each for each in entries if each != entries[missing]]
    with pytest.raises(BrokenJournal, match=f"led to version {missing + 1} is missing"):
        living_branch(left)


def test_a_gap_of_the_lost_branch_does_no_harm() -> None:
    common, went_on = chain(0, 1, 2), chain(2, 9, 10)
    assert living_branch([*common, *chain(4, 5), *went_on]) == [*common, *went_on]


def test_a_copy_that_is_not_on_the_branch_is_an_error() -> None:
    entries = [*chain(0, 1, 2, 3), *chain(2, 9, 10)]
    with pytest.raises(BrokenJournal, match="no entry follows version 3"):
        living_branch(entries, since=3)


def test_a_journal_that_ends_before_the_copy_is_an_error() -> None:
    with pytest.raises(BrokenJournal, match="no entry follows version 9"):
        living_branch(chain(0, 1, 2), since=9)


@pytest.mark.parametrize("before", [3, 7])
def test_an_entry_that_follows_itself_or_a_later_one_ends_in_an_error(before: int) -> None:
    forged = [*chain(0, 1, 2), entry(3, before), *chain(3, 4)]
    with pytest.raises(BrokenJournal, match=f"led to version {before} is missing"):
        living_branch(forged)


FORKS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 4), st.integers(0, 3)), max_size=6)


@settings(max_examples=200, **CAREFREE)
@given(FORKS)
def test_whatever_was_lost_the_branch_is_the_history_of_the_last_entry(
    forks: list[tuple[int, int, int]],
) -> None:
    """Redis falls back to any earlier moment of its own, and its clock may have as well."""
    history: list[Entry] = []
    recorded: list[Entry] = []
    for number, (back_to, count, ahead) in enumerate([(0, 3, 0), *forks]):
        del history[max(0, len(history) - back_to) :]
        for _ in range(count):
            before = history[-1].version if history else 0
            history.append(entry(before + 1 + ahead, before, told=f"{number} {len(recorded)}"))
            recorded.append(history[-1])
    assert living_branch(recorded) == history


# Text, and its seal.


def test_an_entry_reads_as_a_line_for_itself_and_one_for_each_delta() -> None:
    made = Entry(7, 6, 5, "step", f"{delta_json(BEGIN)}\n{delta_json(CRASH)}", 'a "b"\nc\\')
    assert made.to_text() == '@7 6 5 step a "b"\\nc\\\\\n{"k":"begin"}\n{"k":"crash"}'
    assert Entry.from_text(made.to_text()) == made
    assert made.deltas == ['{"k":"begin"}', '{"k":"crash"}']
    assert Entry(1, 0, 2, "wake", "").to_text() == "@1 0 2 wake "
    assert Entry(1, 0, 2, "wake", "").deltas == []


TEXTS = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(
    ["@1 0 0 wake", "\n@2 1 0 wake", "a b", "\r", "\u2028", '"', "\\n@"]
)
LINES = st.lists(st.builds(lambda text: delta_json(done({"t": text}, undoable=True)), TEXTS))
ENTRIES = st.builds(
    Entry,
    st.integers(1, 2**53),
    st.integers(0, 2**53),
    st.integers(0, 2**53),
    st.sampled_from(["step", "switch-wake", "final"]),
    LINES.map("\n".join),
    TEXTS,
)


@settings(max_examples=100, **CAREFREE)
@given(st.lists(ENTRIES, min_size=1, max_size=4))
def test_the_text_of_an_entry_tells_its_place(entries: list[Entry]) -> None:
    for entry in entries:
        assert place_of(entry.to_text()) == (entry.version, entry.before)


@settings(max_examples=100, **CAREFREE)
@given(st.lists(ENTRIES, min_size=1, max_size=4))
def test_entries_come_back_from_their_text(entries: list[Entry]) -> None:
    assert entries_from_text("\n".join(each.to_text() for each in entries)) == entries


@pytest.mark.parametrize("text", ["", "x", "@1 0 0 wake", "@x 0 0 wake ", '{"k":"begin"}'])
def test_what_is_no_entry_is_an_error(text: str) -> None:
    with pytest.raises(BrokenJournal, match="not an entry"):
        entries_from_text(text)
    with pytest.raises(BrokenJournal, match="not an entry"):
        place_of(text)


@pytest.mark.parametrize("version", ["9" * 19, "9" * 5_000, "\u0661"])
def test_a_version_that_no_column_holds_is_an_error(version: str) -> None:
    for text in (f"@{version} 0 0 wake ", f"@1 {version} 0 wake ", f"@1 0 {version} wake "):
        with pytest.raises(BrokenJournal, match="not an entry"):
            place_of(text)


def test_an_entry_without_its_mark_is_an_error() -> None:
    """It would become a part of the entry before it."""
    with pytest.raises(BrokenJournal, match="not an entry"):
        place_of("1 0 0 wake ")


def sealed(tx_id: str, texts: Sequence[str]) -> list[tuple[str, str]]:
    """Each text with the hash that seals it and everything before it."""
    rows: list[tuple[str, str]] = []
    for text in texts:
        rows.append((text, chained_hash(rows[-1][1] if rows else "", tx_id, text)))
    return rows


def holds(tx_id: str, rows: Sequence[tuple[str, str]]) -> bool:
    """What an audit does: compute it again."""
    return sealed(tx_id, [text for text, _ in rows]) == list(rows)


ROWS = sealed("t07-a", ["@1 0 1 claim n", "@2 1 1 step ", "@3 2 1 final success"])


def test_a_journal_that_is_untouched_holds() -> None:
    assert holds("t07-a", ROWS)
    assert len({seal for _, seal in ROWS}) == 3


@pytest.mark.parametrize("place", range(3))
def test_an_altered_text_is_found(place: int) -> None:
    text, seal = ROWS[place]
    altered = [*ROWS[:place], (text.replace("1", "7", 1), seal), *ROWS[place + 1 :]]
    assert not holds("t07-a", altered)


@pytest.mark.parametrize("place", range(3))
def test_a_text_that_was_altered_and_sealed_again_breaks_what_follows(place: int) -> None:
    text, _ = ROWS[place]
    before = ROWS[place - 1][1] if place else ""
    forged = text.replace("1", "7", 1)
    row = (forged, chained_hash(before, "t07-a", forged))
    altered = [*ROWS[:place], row, *ROWS[place + 1 :]]
    # The last one has nothing after it, which is why the head is kept elsewhere, too.
    assert holds("t07-a", altered) == (place == 2)
    assert altered[-1] != ROWS[-1] or not holds("t07-a", altered)


@pytest.mark.parametrize("place", range(2))
def test_a_row_that_was_taken_out_is_found(place: int) -> None:
    assert not holds("t07-a", [*ROWS[:place], *ROWS[place + 1 :]])


@pytest.mark.parametrize("order", [(1, 0, 2), (0, 2, 1), (2, 1, 0)])
def test_rows_in_another_order_are_found(order: tuple[int, ...]) -> None:
    assert not holds("t07-a", [ROWS[place] for place in order])


def test_a_journal_of_another_transaction_is_found() -> None:
    assert not holds("t07-b", ROWS)


def test_text_cannot_be_moved_from_one_row_to_the_next() -> None:
    (first, _), (second, _), _ = ROWS
    assert chained_hash(chained_hash("", "t", first), "t", second) != chained_hash(
        "", "t", f"{first}\n{second}"
    )


# Folding.


def fresh() -> View:
    return View(State([PipelineFrame("p", "v1")], {"n": 1}))


def folded(*entries: tuple[str, str, str]) -> View:
    """From kinds, lines and extras."""
    made = [Entry(n, n - 1, n, *each) for n, each in enumerate(entries, start=1)]
    return fresh().fold(made)


CLAIM = ("claim", "", "node-a")


def test_folding_nothing_changes_nothing() -> None:
    assert fresh().fold([]) == fresh()


def test_version_and_fence_are_those_of_the_last_entry() -> None:
    view = fresh().fold([Entry(7, 0, 5, "claim", "", "n"), Entry(9, 7, 6, "wake", "")])
    assert (view.version, view.fence, view.status) == (9, 6, "queued")


def test_only_a_step_that_was_opened_counts_as_begun() -> None:
    assert not folded(CLAIM, ("step", delta_json(done({}, undoable=True)), "")).begun
    assert folded(("claim", delta_json(BEGIN), "node-a")).begun
    assert folded(("claim", delta_json(BEGIN), "node-a"), ("queue", "", "")).begun


def test_a_sleep_tells_until_when_and_for_which_switch() -> None:
    view = folded(CLAIM, ("sleep", "", "1800000060000:a:b"))
    assert (view.status, view.wake_ms, view.wake_switch) == ("sleeping", 1800000060000, "a:b")
    view = folded(CLAIM, ("sleep", "", "1800000060000:"))
    assert (view.wake_ms, view.wake_switch) == (1800000060000, None)


def test_a_switch_keeps_its_number_and_its_value() -> None:
    view = folded(CLAIM, ("switch", "", 'kyc=3:"a=1:2"'))
    assert (view.switches, view.switch_seq) == ({"kyc": '3:"a=1:2"'}, 3)
    assert view.status == "running"


@pytest.mark.parametrize(
    ("kind", "extra"), [("wake", ""), ("switch-wake", "kyc=1:true"), ("cancel-wake", "why")]
)
def test_what_wakes_it_forgets_what_it_slept_for(kind: str, extra: str) -> None:
    view = folded(CLAIM, ("sleep", "", "9:kyc"), (kind, "", extra))
    assert (view.status, view.wake_ms, view.wake_switch) == ("queued", None, None)


def test_a_problem_is_over_once_it_is_decided() -> None:
    parked = (CLAIM, ("park", "", "who knows"))
    assert folded(*parked).problem == "who knows"
    assert folded(*parked, ("queue", "", "")).problem is None
    assert folded(*parked, ("final", "", "failed")).problem is None


def test_the_end_forgets_the_cancel_that_led_to_it() -> None:
    view = folded(CLAIM, ("cancel", "", "why"), ("final", "", "cancelled"))
    assert (view.status, view.cancel) == ("cancelled", None)


def test_a_rebuild_of_what_rests_keeps_what_it_rests_for() -> None:
    view = folded(CLAIM, ("sleep", "", "9:kyc"), ("rebuild", "", "sleeping"))
    assert (view.status, view.wake_ms, view.wake_switch) == ("sleeping", 9, "kyc")
    view = folded(CLAIM, ("park", "", "who knows"), ("rebuild", "", "in-doubt"))
    assert (view.status, view.problem) == ("in-doubt", "who knows")


def test_an_unknown_kind_is_an_error() -> None:
    with pytest.raises(ValueError, match="from-the-future"):
        folded(("from-the-future", "", ""))


def test_a_view_reads_lists_of_lines() -> None:
    lines = f"{delta_json(BEGIN)}\n{delta_json(done({'n': 2}, undoable=False))}"
    fields = {"state": fresh().state.to_json(), "status": "running", "version": "3", "fence": "2"}
    view = View.from_fields(fields, [lines, delta_json(CRASH)])
    assert (view.state.data, view.state.crashes) == ({"n": 2}, 1)
    assert json.loads(view.to_fields()["state"])["crashes"] == 1
