"""ring.lua and answer.lua: what is due at one place shares the message that is on its way."""

from __future__ import annotations

import pytest

from datp_tasks.live import doorbells
from datp_tasks.live.doorbells import Doorbells, Pair
from tests.support.live_states import Stage

PLACE = "master|in|t/step|p/0"
OTHER = "master|out|t/step|p/0"


@pytest.fixture
def bells(stage: Stage) -> Doorbells:
    return Doorbells(stage.live)


def pairs(first: int, count: int) -> list[Pair]:
    return [(f"t07-{number:032x}", number) for number in range(first, first + count)]


def answer(
    stage: Stage, bells: Doorbells, take_max: int, next_max: int
) -> tuple[list[Pair], list[Pair]]:
    return bells.answered(stage.live.run([bells.answering(PLACE, take_max, next_max)])[0])


def test_the_first_is_sent_and_the_others_go_with_it(stage: Stage, bells: Doorbells) -> None:
    assert bells.ring(PLACE, pairs(0, 1))
    assert not bells.ring(PLACE, pairs(1, 2))
    assert not bells.ring(PLACE, pairs(3, 1))
    assert answer(stage, bells, 10, 10) == (pairs(1, 3), [])


def test_after_the_answer_the_next_one_is_sent_again(stage: Stage, bells: Doorbells) -> None:
    bells.ring(PLACE, pairs(0, 1))
    assert answer(stage, bells, 10, 10) == ([], [])
    assert bells.ring(PLACE, pairs(1, 1))


def test_places_do_not_share(stage: Stage, bells: Doorbells) -> None:
    assert bells.ring(PLACE, pairs(0, 1))
    assert bells.ring(OTHER, pairs(1, 1))
    assert answer(stage, bells, 10, 10) == ([], [])


def test_what_does_not_fit_goes_into_the_next_message(stage: Stage, bells: Doorbells) -> None:
    bells.ring(PLACE, pairs(0, 1))
    bells.ring(PLACE, pairs(1, 9))
    assert answer(stage, bells, 4, 3) == (pairs(1, 4), pairs(5, 3))
    # That message is on its way, so what becomes due meanwhile waits for it.
    assert not bells.ring(PLACE, pairs(20, 1))
    assert answer(stage, bells, 10, 10) == ([*pairs(8, 2), *pairs(20, 1)], [])


def test_a_worker_whose_vector_is_full_takes_nothing_along(stage: Stage, bells: Doorbells) -> None:
    bells.ring(PLACE, pairs(0, 1))
    bells.ring(PLACE, pairs(1, 2))
    assert answer(stage, bells, 0, 5) == ([], pairs(1, 2))


def test_a_message_that_is_lost_is_not_waited_for_for_ever(stage: Stage, bells: Doorbells) -> None:
    bells.ring(PLACE, pairs(0, 1))
    ringing, waiting = bells._keys(PLACE)
    assert 0 < stage.redis.pttl(ringing) <= 1_000
    bells.ring(PLACE, pairs(1, 1))
    assert 0 < stage.redis.pttl(ringing) <= 1_000
    assert 0 < stage.redis.pttl(waiting) <= 600_000
    # As when its time is over.
    stage.redis.delete(ringing)
    assert bells.ring(PLACE, pairs(2, 1))
    assert answer(stage, bells, 10, 10) == (pairs(1, 1), [])


def test_a_list_that_no_worker_takes_from_does_not_grow_for_ever(
    stage: Stage, bells: Doorbells, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doorbells, "WAITING_MAX", 3)
    bells.ring(PLACE, pairs(0, 1))
    for first in (1, 3, 5, 7):
        assert not bells.ring(PLACE, pairs(first, 2))
    assert answer(stage, bells, 100, 100) == (pairs(1, 4), [])
