"""Linked transactions: one deadline, and all legs commit or all roll back."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from sqlalchemy import event

from datp_tasks import Fail, Pipeline
from datp_tasks.errors import StaleFence
from datp_tasks.model.status import Status
from datp_tasks.record.database import make_engine
from datp_tasks.record.linked import Leg, LinkedTransactions
from datp_tasks.testing import Kit

LINK = {"link": "{{deal}}", "legs": 2}
#: Longer than the longest pause between two looks.
A_WHILE_S = 11


@pytest.fixture
def books(datp: Kit) -> Counter[str]:
    """What was reserved, booked and given back, by leg."""
    done: Counter[str] = Counter()

    @datp.step("t/reserve")
    def reserve(ctx: Any, data: dict[str, Any]) -> None:
        if data.get("poor"):
            raise Fail("no money")
        done["reserved " + data["leg"]] += 1

    @reserve.rollback
    def release(ctx: Any, data: dict[str, Any], output: Any) -> None:
        done["released " + data["leg"]] += 1

    @datp.step("t/book")
    def book(ctx: Any, data: dict[str, Any]) -> None:
        done["booked " + data["leg"]] += 1

    datp.use(
        Pipeline("leg")
        .step("util/link", params=LINK)
        .step("t/reserve")
        .step("util/commit-linked", params=LINK)
        .step("t/book")
        .build()
    )
    return done


def submit(kit: Kit, leg: str, **options: Any) -> str:
    data = {"deal": "d1", "leg": leg} | options.pop("data", {})
    return kit.submit("leg", data, **options)


def statuses(kit: Kit, *tx_ids: str) -> list[str]:
    return [str(kit.status(tx_id).status) for tx_id in tx_ids]


def test_legs_commit_together(datp: Kit, books: Counter[str]) -> None:
    first = submit(datp, "a")
    datp.advance(seconds=A_WHILE_S)
    assert statuses(datp, first) == ["sleeping"]
    assert books == {"reserved a": 1}, "nothing is booked before the other leg has come"
    second = submit(datp, "b")
    assert datp.status(first).no_return_at is not None, "decided for both in one commit"
    datp.advance(seconds=A_WHILE_S)
    assert statuses(datp, first, second) == ["success", "success"]
    assert books == {"reserved a": 1, "reserved b": 1, "booked a": 1, "booked b": 1}


def test_a_leg_that_fails_takes_the_other_one_along(datp: Kit, books: Counter[str]) -> None:
    first = submit(datp, "a")
    poor = submit(datp, "b", data={"poor": True})
    datp.advance(seconds=A_WHILE_S)
    assert statuses(datp, first, poor) == ["failed", "failed"]
    assert datp.status(first).note == f"its linked transaction {poor} is failed"
    assert books == {"reserved a": 1, "released a": 1}


def test_a_leg_that_is_cancelled_takes_the_other_one_along(datp: Kit, books: Counter[str]) -> None:
    first = submit(datp, "a")
    datp.client.cancel(first)
    second = submit(datp, "b")
    datp.advance(seconds=A_WHILE_S)
    assert statuses(datp, first, second) == ["cancelled", "failed"]
    assert books["booked a"] == books["booked b"] == 0
    assert books["released a"] == books["reserved a"]
    assert books["released b"] == books["reserved b"]


def test_all_legs_expire_with_the_one_that_expires_first(datp: Kit, books: Counter[str]) -> None:
    datp.use(
        Pipeline("slow").step("util/link", params=LINK).step("t/reserve")
        .step("util/wait", params={"switch": "go"}).step("util/commit-linked", params=LINK)
        .step("t/book").build()
    )  # fmt: skip
    long = submit(datp, "a", expires_in_s=3_600)
    short = datp.submit("slow", {"deal": "d1", "leg": "b"}, expires_in_s=60)
    assert datp.status(long).expires_at == datp.status(short).expires_at
    for _ in range(4):
        datp.advance(seconds=20)
    assert statuses(datp, long, short) == ["expired", "expired"]
    assert books == {"reserved a": 1, "released a": 1, "reserved b": 1, "released b": 1}


def test_a_leg_without_a_deadline_gets_that_of_the_other(datp: Kit, books: Counter[str]) -> None:
    first = submit(datp, "a")
    second = submit(datp, "b", expires_in_s=60, data={"deal": "d2"})
    assert datp.status(first).expires_at is None
    third = submit(datp, "c", data={"deal": "d2"})
    assert datp.status(second).no_return_at == datp.status(third).no_return_at is not None


def test_nothing_ends_legs_that_have_committed(datp: Kit, books: Counter[str]) -> None:
    first = submit(datp, "a", expires_in_s=30)
    second = submit(datp, "b", expires_in_s=30)
    with pytest.raises(Exception, match="point of no return"):
        datp.client.cancel(first)
    datp.advance(seconds=120)
    datp.advance(seconds=A_WHILE_S)
    assert statuses(datp, first, second) == ["success", "success"]
    assert books["booked a"] == books["booked b"] == 1


def test_one_leg_too_many_fails(datp: Kit, books: Counter[str]) -> None:
    legs = [submit(datp, "a"), submit(datp, "b"), submit(datp, "c")]
    datp.advance(seconds=A_WHILE_S)
    assert statuses(datp, *legs) == ["success", "success", "failed"]
    assert datp.status(legs[2]).note == "d1 has 2 legs already"


def test_links_of_different_owners_are_different_links(datp: Kit, books: Counter[str]) -> None:
    legs = [submit(datp, "a", owner="ann"), submit(datp, "b", owner="bob")]
    datp.advance(seconds=A_WHILE_S)
    assert statuses(datp, *legs) == ["sleeping", "sleeping"]


def test_a_crash_after_the_decision_changes_nothing_of_it(datp: Kit, books: Counter[str]) -> None:
    first = submit(datp, "a", expires_in_s=60)
    datp.crash_at("linked.after_commit")
    second = submit(datp, "b", expires_in_s=60)
    assert datp.send.crashes == 1
    datp.recover()
    datp.advance(seconds=A_WHILE_S)
    assert statuses(datp, first, second) == ["success", "success"]
    assert books["booked a"] == books["booked b"] == 1
    assert books["released a"] == books["released b"] == 0


def test_expiry_and_the_commit_of_a_link_are_never_both(datp: Kit, books: Counter[str]) -> None:
    """Two threads at once, many times: one decides about each link, for all its legs."""
    linked = LinkedTransactions(datp.connections.engine, datp.clock)
    record = datp.connections.record
    datp.lose_bells()
    won: Counter[str] = Counter()
    for number in range(60):
        deal = {"deal": f"race-{number}"}
        legs = [
            Leg(submit(datp, name, data=deal, expires_in_s=60), "local", 0) for name in ("a", "b")
        ]
        for leg in legs:
            linked.join(leg, f"race-{number}", 2)
        assert linked.commit(legs[0], f"race-{number}").word == "wait"
        start = threading.Barrier(2)

        def expire(tx_id: str = legs[0].tx_id, start: threading.Barrier = start) -> None:
            start.wait()
            record.mark_expiring([tx_id])

        thread = threading.Thread(target=expire)
        thread.start()
        start.wait()
        verdict = linked.commit(legs[1], f"race-{number}")
        thread.join()
        rows = {each.tx_id: each for each in record.summaries([leg.tx_id for leg in legs])}
        bound = [rows[leg.tx_id].no_return_at is not None for leg in legs]
        assert bound in ([True, True], [False, False]), "all of them, or none"
        with datp.connections.engine.connect() as connection:
            query = "SELECT count(*) FROM tx_summary WHERE link_id = %s AND expiring_at IS NOT NULL"
            [[marked]] = connection.exec_driver_sql(query, (f"race-{number}",))
        assert (verdict.word == "commit") == all(bound) == (marked == 0)
        won[verdict.word] += 1
    assert set(won) <= {"commit", "wait"}


def test_a_worker_that_lost_the_transaction_decides_nothing(datp: Kit, books: Counter[str]) -> None:
    datp.lose_bells()
    tx_id = submit(datp, "a")
    datp.connections.record.raise_fences([(tx_id, 1_000)])
    linked = LinkedTransactions(datp.connections.engine, datp.clock)
    for act in (lambda leg: linked.join(leg, "d", 2), lambda leg: linked.commit(leg, "d")):
        with pytest.raises(StaleFence):
            act(Leg(tx_id, "local", 5))
    assert datp.status(tx_id).status is Status.QUEUED


def test_a_leg_that_joins_waits_for_one_in_the_middle_of_a_step(
    datp: Kit, books: Counter[str]
) -> None:
    """As long as a transactional step of another leg takes: no try of joining is lost by it."""
    datp.use(
        Pipeline("leg")
        .step("util/link", params=LINK, retry={"max_attempts": 1})
        .step("t/reserve").step("util/commit-linked", params=LINK).step("t/book").build()
    )  # fmt: skip
    first = submit(datp, "a")
    with datp.connections.engine.begin() as step:
        step.exec_driver_sql("SELECT 1 FROM tx_summary WHERE tx_id = %s FOR UPDATE", (first,))
        second = submit(datp, "b")
        assert statuses(datp, second) == ["sleeping"]
    datp.advance(seconds=A_WHILE_S)
    datp.advance(seconds=A_WHILE_S)
    assert statuses(datp, first, second) == ["success", "success"]


@pytest.mark.parametrize("lost_in", ["link_ready_at = coalesce", "no_return_at = CASE"])
def test_a_leg_that_postgresql_is_lost_for_ends_as_the_others_do(
    datp: Kit, books: Counter[str], lost_in: str
) -> None:
    """They have committed; this one does not know of it yet, and must not give up."""
    first = submit(datp, "a")
    second = submit(datp, "b")
    assert datp.status(first).no_return_at is not None
    others = make_engine(datp.settings)
    cuts: Counter[str] = Counter()

    def cut(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if lost_in in statement:
            cuts[lost_in] += 1
            pid = cursor.connection.info.backend_pid
            with others.connect() as other:
                other.exec_driver_sql("SELECT pg_terminate_backend(%s, 5000)", (pid,))

    event.listen(datp.connections.engine, "before_cursor_execute", cut)
    for _ in range(5):
        datp.advance(seconds=A_WHILE_S)
    event.remove(datp.connections.engine, "before_cursor_execute", cut)
    others.dispose()
    assert cuts[lost_in] >= 3
    assert statuses(datp, first, second) == ["sleeping", "success"]
    datp.advance(seconds=A_WHILE_S)
    assert statuses(datp, first, second) == ["success", "success"]
    assert books["booked a"] == books["booked b"] == 1
