"""Bells that share a message: what is due at a place goes with the one that is on its way."""

from __future__ import annotations

from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from datp_tasks import Pipeline
from datp_tasks.bells.costs import CostBook
from datp_tasks.bells.ringer import Ringer
from datp_tasks.live.doorbells import Doorbells, Pair
from datp_tasks.live.types import Bell
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit

PLACE = "master|in|t/step|p/0"


class Messages:
    """What was sent: pairs, and the doorbell that the worker will answer."""

    def __init__(self) -> None:
        self.sent: list[tuple[list[Pair], str]] = []

    def __call__(
        self, step_type: str, pairs: list[Pair], *, group: str, priority: str, answers: str = ""
    ) -> None:
        assert (step_type, group, priority) == ("t/step", "master", "in")
        self.sent.append((pairs, answers))

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


def bells(first: int, count: int, *, alone: bool = False) -> list[Bell]:
    return [
        Bell(f"t07-{number:032x}", number, "master", "t/step", "p/0", "in", alone)
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


def test_full_vectors_are_sent_at_once_and_answer_no_doorbell(datp: Kit) -> None:
    ringer, messages = made(datp, 10)
    ringer.ring(bells(0, 1))
    ringer.ring(bells(1, 25))
    # The rest of the last vector goes with the first message.
    assert messages.sizes == [1, 10, 10]
    assert [answers for _, answers in messages.sent] == [PLACE, "", ""]


@pytest.mark.parametrize(("size", "alone"), [(1, False), (100, True)])
def test_what_must_run_by_itself_gets_its_own_message(datp: Kit, size: int, alone: bool) -> None:
    ringer, messages = made(datp, size)
    for number in range(3):
        ringer.ring(bells(number, 1, alone=alone))
    assert [answers for _, answers in messages.sent] == ["", "", ""]


def test_of_an_unknown_place_one_is_tried_and_the_others_wait(datp: Kit) -> None:
    messages = Messages()
    costs: Any = KnownCosts(1)
    costs.is_known = lambda place: False
    ringer = Ringer(messages, costs, Doorbells(datp.connections.live))
    ringer.ring(bells(0, 50))
    assert messages.sent == [([(bells(0, 1)[0].tx_id, 0)], PLACE)]


def test_without_redis_every_bell_is_sent(datp: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    ringer, messages = made(datp, 100)

    def refused(*_: object) -> bool:
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
        datp.submit("p", {"n": number})
    datp.lose_bells(False)
    return [pair for _, rung in datp.send.rung for pair in rung]


def test_a_worker_takes_along_what_waits_at_the_doorbell(datp: Kit) -> None:
    sizes = declared(datp)
    pairs = queued(datp, 6)
    doorbells = Doorbells(datp.connections.live)
    datp.connections.costs._known = {"p/0": 1}
    doorbells.ring(PLACE, pairs[:1])
    doorbells.ring(PLACE, pairs[1:])
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
    doorbells.ring(PLACE, pairs[:1])
    doorbells.ring(PLACE, pairs[1:])
    datp.send("t/step", pairs[:1], group="master", priority="in", answers=PLACE)
    assert sizes == [3, 3, 1]
    assert all(datp.status(tx).status is Status.SUCCESS for tx, _ in pairs)


@pytest.mark.parametrize("answers", [7, "", "a|b", "master|in|t/other|p/0", "master|x|t/step|p/0"])
def test_a_forged_place_is_at_worst_a_bell_without_a_doorbell(datp: Kit, answers: Any) -> None:
    sizes = declared(datp)
    pairs = queued(datp, 2)
    Doorbells(datp.connections.live).ring(PLACE, pairs[:1])
    Doorbells(datp.connections.live).ring(PLACE, pairs[1:])
    datp.celery.tasks["datp.step.t/step"].apply_async(args=(pairs[:1], answers))
    assert sizes == [1]
