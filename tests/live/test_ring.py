"""ring.lua and answer.lua: what is due at one place shares the message that is on its way."""

from __future__ import annotations

from collections import Counter

import pytest

from datp_tasks.live import doorbells
from datp_tasks.live.cluster_redis import servers_of
from datp_tasks.live.doorbells import Doorbells, Pair, Waits
from tests.support.live_states import Stage

PLACE = "master|in|t/step|p/0"
OTHER = "master|out|t/step|p/0"
OWN = "master|in|t/step|p/0|ann"


@pytest.fixture
def bells(stage: Stage) -> Doorbells:
    return Doorbells(stage.live)


def due(first: int, count: int, owner: str = "ann") -> list[Waits]:
    return [Waits(f"t07-{number:032x}", number, owner) for number in range(first, first + count)]


def pairs(first: int, count: int) -> list[Pair]:
    return [each.pair for each in due(first, count)]


def answer(
    stage: Stage, bells: Doorbells, take_max: int, next_max: int
) -> tuple[list[Pair], list[list[Pair]]]:
    return bells.answered(stage.live.run([bells.answering(PLACE, take_max, next_max)])[0])


def test_the_first_is_sent_and_the_others_go_with_it(stage: Stage, bells: Doorbells) -> None:
    assert bells.ring(PLACE, due(0, 1)) == "SEND"
    assert bells.ring(PLACE, due(1, 2)) == []
    assert bells.ring(PLACE, due(3, 1)) == []
    assert answer(stage, bells, 10, 10) == (pairs(1, 3), [])


def test_after_the_answer_the_next_one_is_sent_again(stage: Stage, bells: Doorbells) -> None:
    bells.ring(PLACE, due(0, 1))
    assert answer(stage, bells, 10, 10) == ([], [])
    assert bells.ring(PLACE, due(1, 1)) == "SEND"


def test_places_do_not_share(stage: Stage, bells: Doorbells) -> None:
    assert bells.ring(PLACE, due(0, 1)) == "SEND"
    assert bells.ring(OTHER, due(1, 1)) == "SEND"
    assert answer(stage, bells, 10, 10) == ([], [])


def test_what_does_not_fit_goes_into_the_next_message(stage: Stage, bells: Doorbells) -> None:
    bells.ring(PLACE, due(0, 1))
    bells.ring(PLACE, due(1, 9))
    assert answer(stage, bells, 4, 3) == (pairs(1, 4), [pairs(5, 3)])
    # That message is on its way, so what becomes due meanwhile waits for it.
    assert bells.ring(PLACE, due(20, 1)) == []
    assert answer(stage, bells, 10, 10) == ([*pairs(8, 2), *pairs(20, 1)], [])


def test_a_worker_whose_vector_is_full_takes_nothing_along(stage: Stage, bells: Doorbells) -> None:
    bells.ring(PLACE, due(0, 1))
    bells.ring(PLACE, due(1, 2))
    assert answer(stage, bells, 0, 5) == ([], [pairs(1, 2)])


def test_a_message_that_is_lost_is_not_waited_for_for_ever(stage: Stage, bells: Doorbells) -> None:
    bells.ring(PLACE, due(0, 1))
    ringing, waiting, shares, _ = bells._keys(PLACE)
    assert 0 < stage.redis.pttl(ringing) <= 1_000
    bells.ring(PLACE, due(1, 1))
    assert 0 < stage.redis.pttl(ringing) <= 1_000
    assert 0 < stage.redis.pttl(waiting) <= 600_000
    assert 0 < stage.redis.pttl(shares) <= 600_000
    # As when its time is over.
    stage.redis.delete(ringing)
    assert bells.ring(PLACE, due(2, 1)) == "SEND"
    assert answer(stage, bells, 10, 10) == (pairs(1, 1), [])


def test_an_owner_has_only_its_share_of_a_line(stage: Stage, bells: Doorbells) -> None:
    """So a line is short for all others, and one that no worker takes from stays so."""
    bells.ring(PLACE, due(0, 1))
    assert bells.ring(PLACE, due(1, 5), owner_max=3) == due(4, 2)
    assert bells.ring(PLACE, due(6, 1), owner_max=3) == due(6, 1)
    assert bells.ring(PLACE, due(7, 2, "bob"), owner_max=3) == []
    assert answer(stage, bells, 4, 100) == ([*pairs(1, 3), *pairs(7, 1)], [pairs(8, 1)])
    # What was taken along makes room.
    assert bells.ring(PLACE, due(20, 4), owner_max=3) == due(23, 1)


def test_what_was_taken_from_a_line_that_goes_on_makes_room(stage: Stage, bells: Doorbells) -> None:
    bells.ring(PLACE, due(0, 1))
    assert bells.ring(PLACE, [*due(1, 3), *due(4, 2, "bob")], owner_max=3) == []
    assert answer(stage, bells, 2, 1) == (pairs(1, 2), [pairs(3, 1)])
    assert bells.ring(PLACE, [*due(20, 4), *due(30, 2, "bob")], owner_max=3) == [
        *due(23, 1),
        *due(31, 1, "bob"),
    ]


def test_a_line_of_one_owner_has_several_messages_under_way(stage: Stage, bells: Doorbells) -> None:
    bells.ring(OWN, due(0, 1))
    bells.ring(OWN, due(1, 100))
    order = bells.answering(OWN, 9, 10)
    taken, following = bells.answered(stage.live.run([order])[0])
    assert (len(taken), [len(each) for each in following]) == (9, [10] * doorbells.OWN_MESSAGES_MAX)
    # Each of them that is answered makes room for one more.
    taken, following = bells.answered(stage.live.run([bells.answering(OWN, 0, 10)])[0])
    assert (taken, [len(each) for each in following]) == ([], [10])
    assert bells.waiting("master") == 1
    assert bells.waiting("other") == 0
    stage.live.run([bells.answering(OWN, 10, 10)])
    assert bells.waiting("master") == 0


def test_a_line_whose_time_is_over_is_not_listed_any_more(stage: Stage, bells: Doorbells) -> None:
    """Each owner has lines of its own, so the list of them would only grow."""
    bells.ring(OWN, due(0, 1))
    bells.ring(OWN, due(1, 1))
    _, waiting, shares, lines = bells._keys(OWN)
    assert stage.redis.smembers(lines) == {OWN}
    # As when its time is over.
    stage.redis.delete(waiting, shares)
    assert bells.waiting("other") == 0
    assert stage.redis.smembers(lines) == {OWN}
    assert bells.waiting("master") == 0
    assert stage.redis.smembers(lines) == set()


def commands_run(stage: Stage) -> Counter[str]:
    """How often each was called, by name, on all servers."""
    found: Counter[str] = Counter()
    for server in servers_of(stage.redis):
        for name, about in server.info("commandstats").items():
            found[name.removeprefix("cmdstat_")] += about["calls"]
    return found


def test_a_vector_of_one_owner_costs_a_few_commands(stage: Stage, bells: Doorbells) -> None:
    bells.ring(PLACE, due(0, 1))
    bells.ring(PLACE, due(1, 1))
    before = commands_run(stage)
    bells.ring(PLACE, due(2, 100))
    answer(stage, bells, 50, 100)
    ran = commands_run(stage) - before
    # Two `set` of the ringing, two `hincrby` for a hundred of one owner, no `pexpire` again.
    names = ("set", "hincrby", "rpush", "lpop", "del", "srem", "pexpire", "sadd")
    assert [ran.get(name, 0) for name in names] == [2, 2, 1, 2, 1, 1, 0, 0]


def test_a_line_that_goes_on_is_kept(stage: Stage, bells: Doorbells) -> None:
    bells.ring(PLACE, due(0, 1))
    bells.ring(PLACE, due(1, 9))
    _, waiting, shares, _ = bells._keys(PLACE)
    stage.redis.pexpire(waiting, 5_000)
    stage.redis.pexpire(shares, 5_000)
    answer(stage, bells, 2, 2)
    assert stage.redis.pttl(waiting) > 500_000
    assert stage.redis.pttl(shares) > 500_000
