"""Bells that share a message: what is due at a place goes with the one that is on its way."""

from __future__ import annotations

import mmap
import time
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from datp_tasks import Pipeline
from datp_tasks.bells import ringer as ringer_module
from datp_tasks.bells.costs import CostBook
from datp_tasks.bells.ringer import Ringer
from datp_tasks.engine import doorbell_answers
from datp_tasks.engine.recent_owners import RecentOwners
from datp_tasks.live.doorbells import Doorbells, Line, Pair, Waits
from datp_tasks.live.live_types import PRIORITIES, Bell
from datp_tasks.live.nodes import registered_key
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit

PLACE = "master|in|t/step|p/0"


class Messages:
    """What was sent: pairs, and the doorbell that the worker will answer."""

    def __init__(self) -> None:
        self.sent: list[tuple[list[Pair], str]] = []
        self.priorities: list[str] = []

    def __call__(
        self, step_type: str, pairs: list[Pair], *, group: str, priority: str, answers: str = ""
    ) -> None:
        assert (step_type, group) == ("t/step", "master")
        self.sent.append((pairs, answers))
        self.priorities.append(priority)

    @property
    def sizes(self) -> list[int]:
        return [len(pairs) for pairs, _ in self.sent]


class KnownCosts:
    def __init__(self, size: int) -> None:
        self.size = size

    def vector_size(self, place: str) -> int:
        assert place == "p/0"
        return self.size

    def is_known(self, place: str) -> bool:
        return self.size > 0


def bells(first: int, count: int, *, alone: bool = False, owner: str = "ann") -> list[Bell]:
    return [
        Bell(f"t07-{number:032x}", number, "master", "t/step", "p/0", "in", alone, owner)
        for number in range(first, first + count)
    ]


def made(datp: Kit, size: int) -> tuple[Ringer, Messages]:
    messages = Messages()
    costs: Any = KnownCosts(size)
    return Ringer(messages, costs, Doorbells(datp.connections.live)), messages


def test_one_after_another_shares_the_first_message(datp: Kit) -> None:
    ringer, messages = made(datp, 100)
    for number in range(5):
        ringer.ring(bells(number, 1))
    assert messages.sent == [([(bells(0, 1)[0].tx_id, 0)], PLACE)]


def test_a_ringer_knows_whether_workers_have_something_to_do(
    datp: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    ringer, _ = made(datp, 10)
    live, doorbells = datp.connections.live, Doorbells(datp.connections.live)
    found = [ringer.found_busy]
    for number in range(4):
        ringer.ring(bells(number, 1))
        found.append(ringer.found_busy)
        if number == 1:
            # A worker takes all that waits.
            live.run([doorbells.answering(PLACE, 10, 10)])
    assert found == [False, False, True, False, True]

    until_s = ringer._busy_until_s
    for now_s, is_busy in ((until_s - 0.01, True), (until_s + 0.01, False)):
        monkeypatch.setattr(time, "monotonic", lambda now_s=now_s: now_s)
        assert ringer.found_busy == is_busy


def test_a_message_that_a_ringer_has_just_sent_is_not_taken_for_busy_workers(datp: Kit) -> None:
    ringer, _ = made(datp, 10)
    # More than a vector: one message, and a second call for those that go with it.
    ringer.ring(bells(0, 25))
    found = [ringer.found_busy]
    ringer.ring(bells(25, 25))
    assert [*found, ringer.found_busy] == [False, True]


def test_workers_are_busy_if_any_of_what_is_rung_finds_them_busy(datp: Kit) -> None:
    ringer, _ = made(datp, 10)
    ringer.ring(bells(0, 25))
    ringer.ring([*bells(25, 25), *bells(100, 25, owner="bob")])
    assert ringer.found_busy


def test_what_an_owner_has_in_excess_waits_in_its_own_line(datp: Kit) -> None:
    ringer, messages = made(datp, 10)
    ringer.ring(bells(0, 1))
    ringer.ring(bells(1, 1_000))
    # However much it is, there is one more message in the queue of the group.
    assert messages.sizes == [1, 10]
    assert [answers for _, answers in messages.sent] == [PLACE, f"{PLACE}|ann"]
    # Another owner is rung for at once, as it would be without the first.
    ringer.ring(bells(2_000, 20, owner="bob"))
    assert messages.sizes == [1, 10, 10]
    assert messages.priorities == ["in", "in", "in"]
    # Those that follow are less urgent while others have work.
    ringer.ring_next(f"{PLACE}|ann", [[("a", 1)], [("b", 1)]], later=True)
    ringer.ring_next(f"{PLACE}|ann", [[("c", 1)]])
    assert messages.priorities[3:] == ["in-later", "in-later", "in"]


def test_singles_of_an_owner_beyond_a_vector_leave_the_shared_line(datp: Kit) -> None:
    ringer, messages = made(datp, 10)
    for number in range(100):
        ringer.ring(bells(number, 1))
    assert [answers for _, answers in messages.sent] == [PLACE, f"{PLACE}|ann"]
    ringer.ring(bells(200, 1, owner="bob"))
    doorbells, live = Doorbells(datp.connections.live), datp.connections.live
    taken, following = doorbells.answered(live.run([doorbells.answering(PLACE, 9, 10)])[0])
    # The next vectors of the shared line have what the other owner waits for.
    assert (bells(200, 1)[0].tx_id, 200) in [*taken, *following[0]]


def test_a_message_that_is_answered_between_two_rings_loses_none(
    datp: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker may be quicker than the rest of the ringing."""
    ringer, messages = made(datp, 10)
    live = datp.connections.live
    doorbells = Doorbells(live)
    ring, got = Doorbells.ring, list[Pair]()

    def answered_first(self: Doorbells, line: str, due: Any, **options: Any) -> Any:
        _, following = doorbells.answered(live.run([doorbells.answering(line, 0, 10)])[0])
        got.extend(pair for vector in following for pair in vector)
        return ring(self, line, due, **options)

    monkeypatch.setattr(Doorbells, "ring", answered_first)
    ringer.ring(bells(0, 2_505))
    for _ in range(300):
        taken, following = doorbells.answered(
            live.run([doorbells.answering(f"{PLACE}|ann", 10, 10)])[0]
        )
        got += [*taken, *(pair for vector in following for pair in vector)]
    got += [pair for pairs, _ in messages.sent for pair in pairs]
    assert sorted(got) == [(bell.tx_id, bell.sequence) for bell in bells(0, 2_505)]


def test_vectors_that_many_owners_fill_together_are_sent_at_once(datp: Kit) -> None:
    ringer, messages = made(datp, 10)
    ringer.ring([bell for n in range(25) for bell in bells(n, 1, owner=f"o{n}")])
    assert messages.sizes == [10, 10, 5]


def test_what_is_too_much_for_a_line_is_sent_as_it_is(
    datp: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ringer_module, "WAITING_MAX", 30)
    ringer, messages = made(datp, 10)
    ringer.ring(bells(0, 65))
    # One that answers for the line, thirty that wait, and the rest as far as it makes vectors.
    assert messages.sizes == [10, 10, 10]
    assert messages.priorities == ["in", "in-later", "in-later"]


def test_what_must_run_by_itself_gets_its_own_message(datp: Kit) -> None:
    ringer, messages = made(datp, 100)
    ringer.ring(bells(0, 2, alone=True))
    ringer.ring(bells(2, 1, alone=True))
    assert [answers for _, answers in messages.sent] == ["", "", ""]
    assert messages.sizes == [1, 1, 1]


def test_of_an_unknown_place_one_is_tried_and_the_others_wait(datp: Kit) -> None:
    messages = Messages()
    costs: Any = KnownCosts(1)
    costs.is_known = lambda place: False
    ringer = Ringer(messages, costs, Doorbells(datp.connections.live))
    ringer.ring(bells(0, 50))
    assert messages.sent == [([(bells(0, 1)[0].tx_id, 0)], PLACE)]


def test_without_redis_every_bell_is_sent(datp: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    ringer, messages = made(datp, 100)

    def refused(*_: object, **__: object) -> None:
        raise RedisConnectionError

    monkeypatch.setattr(Doorbells, "ring", refused)
    ringer.ring(bells(0, 1))
    ringer.ring(bells(1, 1))
    assert messages.sizes == [1, 1]


def declared(datp: Kit) -> list[int]:
    sizes: list[int] = []

    @datp.step("t/step", vector=True)
    def count(batch: Any) -> None:
        sizes.append(len(batch))
        for item in batch:
            item.done()

    datp.use(Pipeline("p").step("t/step").build())
    return sizes


def queued(datp: Kit, count: int) -> list[Pair]:
    datp.lose_bells()
    for number in range(count):
        datp.submit("p", {"n": number}, owner="ann")
    datp.lose_bells(False)
    return [pair for _, rung in datp.send.rung for pair in rung]


def works_beside(datp: Kit, monkeypatch: pytest.MonkeyPatch, *, others: bool) -> Any:
    """How a worker answers that has seen another owner than ann lately, or not."""
    owners = RecentOwners(mmap.mmap(-1, mmap.PAGESIZE))
    owners.saw(["bob"] if others else ["ann"])
    assert datp.send.process is not None
    answers = datp.send.process.worker.hop._doorbell
    monkeypatch.setattr(answers, "_owners", owners)
    return answers


def waits(pairs: list[Pair]) -> list[Waits]:
    return [Waits(*pair) for pair in pairs]


def test_a_worker_takes_along_what_waits_at_the_doorbell(datp: Kit) -> None:
    sizes = declared(datp)
    pairs = queued(datp, 6)
    doorbells = Doorbells(datp.connections.live)
    datp.connections.bells.costs._known = {"p/0": 1}
    doorbells.ring(PLACE, waits(pairs[:1]))
    doorbells.ring(PLACE, waits(pairs[1:]))
    datp.celery.tasks["datp.step.t/step"].apply_async(args=(pairs[:1], PLACE))
    assert sizes == [6]
    assert all(datp.status(tx).status is Status.SUCCESS for tx, _ in pairs)


def test_what_is_too_much_for_one_worker_is_rung_for_the_next(
    datp: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = declared(datp)
    pairs = queued(datp, 7)
    doorbells = Doorbells(datp.connections.live)
    monkeypatch.setattr(CostBook, "vector_size", lambda book, place: 3)
    doorbells.ring(PLACE, waits(pairs[:1]))
    doorbells.ring(PLACE, waits(pairs[1:]))
    datp.send("t/step", pairs[:1], group="master", priority="in", answers=PLACE)
    assert sizes == [3, 3, 1]
    assert all(datp.status(tx).status is Status.SUCCESS for tx, _ in pairs)


@pytest.mark.parametrize("answers", [7, "", "a|b", "master|in|t/other|p/0", "master|x|t/step|p/0"])
def test_a_forged_place_is_at_worst_a_bell_without_a_doorbell(datp: Kit, answers: Any) -> None:
    sizes = declared(datp)
    pairs = queued(datp, 2)
    Doorbells(datp.connections.live).ring(PLACE, waits(pairs[:1]))
    Doorbells(datp.connections.live).ring(PLACE, waits(pairs[1:]))
    datp.celery.tasks["datp.step.t/step"].apply_async(args=(pairs[:1], answers))
    assert sizes == [1]


@pytest.mark.parametrize("others", [True, False])
def test_the_excess_of_an_owner_goes_on_after_each_vector_while_others_have_work(
    datp: Kit, monkeypatch: pytest.MonkeyPatch, others: bool
) -> None:
    sizes = declared(datp)
    pairs = queued(datp, 6)
    line = f"{PLACE}|ann"
    doorbells = Doorbells(datp.connections.live)
    monkeypatch.setattr(CostBook, "vector_size", lambda book, place: 8)
    works_beside(datp, monkeypatch, others=others)
    done_before: list[int] = []
    ring_next = Ringer.ring_next

    def noted(ringer: Ringer, name: str, vectors: Any, **how: Any) -> None:
        done_before.append(sum(sizes))
        ring_next(ringer, name, vectors, **how)

    monkeypatch.setattr(Ringer, "ring_next", noted)
    doorbells.ring(line, waits(pairs[:1]))
    doorbells.ring(line, waits(pairs[1:]))
    datp.send("t/step", pairs[:1], group="master", priority="in", answers=line)
    # A quarter of a vector at a time, and the next message when that is done.
    assert sizes == ([1, 2, 2, 1] if others else [6])
    assert done_before == ([1, 3, 5, 6] if others else [])
    assert all(datp.status(tx).status is Status.SUCCESS for tx, _ in pairs)


def test_others_wait_for_a_few_of_an_owners_excess_however_large_a_vector_may_be(
    datp: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = declared(datp)
    pairs = queued(datp, 60)
    line = f"{PLACE}|ann"
    doorbells = Doorbells(datp.connections.live)
    monkeypatch.setattr(CostBook, "vector_size", lambda book, place: 200)
    works_beside(datp, monkeypatch, others=True)
    doorbells.ring(line, waits(pairs[:1]))
    doorbells.ring(line, waits(pairs[1:]))
    datp.send("t/step", pairs[:1], group="master", priority="in", answers=line)
    assert sizes == [1, 25, 25, 9]


@pytest.mark.parametrize("others", [True, False])
def test_the_excess_of_an_owner_lets_others_pass_but_not_its_own_newer_work(
    datp: Kit, monkeypatch: pytest.MonkeyPatch, others: bool
) -> None:
    """Its own newer work comes all the time, so what lets that pass would never be due."""
    sizes = declared(datp)
    pairs = queued(datp, 12)
    line = f"{PLACE}|ann"
    doorbells = Doorbells(datp.connections.live)
    monkeypatch.setattr(CostBook, "vector_size", lambda book, place: 4)
    works_beside(datp, monkeypatch, others=others)
    priorities: list[str] = []
    send_vectors = Ringer._send_vectors

    def noted(ringer: Ringer, where: Any, vectors: Any, answers: str = "") -> None:
        priorities.extend(where.priority for _ in vectors)
        send_vectors(ringer, where, vectors, answers)

    monkeypatch.setattr(Ringer, "_send_vectors", noted)
    doorbells.ring(line, waits(pairs[:1]))
    doorbells.ring(line, waits(pairs[1:]))
    datp.send("t/step", pairs[:1], group="master", priority="in", answers=line)
    assert sum(sizes) == 12
    assert set(priorities) == {"in-later" if others else "in"}


@pytest.mark.parametrize(("others", "messages"), [(True, 2), (False, 4)])
def test_an_excess_has_as_many_messages_as_there_are_processes_for_it(
    datp: Kit, monkeypatch: pytest.MonkeyPatch, others: bool, messages: int
) -> None:
    """One process is left to the others; alone there is one message to spare."""
    declared(datp)
    pairs = queued(datp, 40)
    line = f"{PLACE}|ann"
    doorbells = Doorbells(datp.connections.live)
    monkeypatch.setattr(CostBook, "vector_size", lambda book, place: 4)
    answers = works_beside(datp, monkeypatch, others=others)
    node_keys = datp.connections.live.keys
    registered = {f"master/n{number}": 1_000_000.0 for number in range(3)}
    # One of the same group that fell silent long ago, and one of another group.
    registered |= {"master/gone": 1.0, "other/n9": 1_000_000.0}
    datp.connections.redis.delete(registered_key(node_keys))
    datp.connections.redis.zadd(registered_key(node_keys), registered)
    answers._nodes.clear()
    sent: list[int] = []
    monkeypatch.setattr(
        Ringer, "ring_next", lambda ringer, name, vectors, **how: sent.append(len(vectors))
    )
    doorbells.ring(line, waits(pairs[:1]))
    doorbells.ring(line, waits(pairs[1:]))
    datp.send("t/step", pairs[:1], group="master", priority="in", answers=line)
    assert sent == [messages]


def test_processes_that_cannot_be_counted_hold_nothing_up(
    datp: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cluster the register may be on a server that fails over, and the bell on another."""
    sizes = declared(datp)
    pairs = queued(datp, 3)
    line = f"{PLACE}|ann"
    doorbells = Doorbells(datp.connections.live)
    monkeypatch.setattr(CostBook, "vector_size", lambda book, place: 4)
    works_beside(datp, monkeypatch, others=False)._nodes.clear()

    def refused(*_: object) -> int:
        raise RedisConnectionError

    monkeypatch.setattr(doorbell_answers, "count_nodes", refused)
    doorbells.ring(line, waits(pairs[:1]))
    doorbells.ring(line, waits(pairs[1:]))
    datp.send("t/step", pairs[:1], group="master", priority="in", answers=line)
    assert sizes == [3]


@pytest.mark.parametrize("priority", ["in", "out", "admin"])
def test_what_lets_others_pass_has_a_priority_that_queues_have(priority: str) -> None:
    line = Line("master", priority, "t/step", "p/0", "ann")
    assert PRIORITIES[line.later_priority] >= PRIORITIES[priority]


def test_messages_of_an_excess_become_as_few_as_the_group_has_processes_but_one(
    datp: Kit,
) -> None:
    live, line = datp.connections.live, f"{PLACE}|ann"
    doorbells = Doorbells(live)
    every = [Waits(f"t07-{n:032x}", n, "ann") for n in range(40)]
    doorbells.ring(line, every[:1])
    doorbells.ring(line, every[1:])

    def answered(messages_max: int) -> int:
        order = doorbells.answering(line, 0, 1, messages_max)
        return len(doorbells.answered(live.run([order])[0])[1])

    # Eight are under way; each of them ends, and none follows until two are left.
    assert answered(8) == 8
    assert [answered(2) for _ in range(9)] == [0, 0, 0, 0, 0, 0, 1, 1, 1]
    assert [answered(1) for _ in range(4)] == [0, 1, 1, 1]
