"""Linked transactions: one deadline, and all legs commit or all roll back."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from sqlalchemy import event

from datp_tasks import Fail, Pipeline
from datp_tasks.errors import PipelineInvalid, StaleFence, StepTimeout
from datp_tasks.model.pipeline_rules import LINK_EXPIRES_S
from datp_tasks.model.status import Status
from datp_tasks.record.database import make_engine
from datp_tasks.record.linked import Leg, LinkedTransactions
from datp_tasks.record.points import Points
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
    second = submit(datp, "b", expires_in_s=60, data={"deal": "d2"})
    third = submit(datp, "c", data={"deal": "d2"})
    assert datp.status(second).no_return_at == datp.status(third).no_return_at is not None


def test_a_leg_that_joined_without_a_deadline_gets_one_while_it_waits(
    datp: Kit, books: Counter[str]
) -> None:
    """As the release before left it: nothing would ever end it."""
    first = submit(datp, "a")
    with datp.connections.engine.begin() as sql:
        values = {"tx_id": first}
        undated = "UPDATE tx_summary SET expires_at = NULL WHERE tx_id = %(tx_id)s"
        sql.exec_driver_sql(undated, values)
        sql.exec_driver_sql("DELETE FROM tx_timeout WHERE tx_id = %(tx_id)s", values)
    datp.advance(seconds=A_WHILE_S)
    given = datp.status(first).expires_at
    assert given is not None
    datp.advance(seconds=A_WHILE_S)
    assert datp.status(first).expires_at == given, "once"
    for _ in range(3):
        datp.advance(seconds=LINK_EXPIRES_S / 2)
    assert statuses(datp, first) == ["expired"]


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
            linked.join(leg, f"race-{number}", 2, expires_in_s=60)
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
    for act in (
        lambda leg: linked.join(leg, "d", 2, expires_in_s=60),
        lambda leg: linked.commit(leg, "d"),
    ):
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


@pytest.mark.parametrize(
    ("where", "flag"),
    [("before", "final_from"), ("at", "final_from"), ("at", "forwards"), ("link", "forwards")],
)
def test_a_point_of_no_return_before_the_link_commits_is_refused(where: str, flag: str) -> None:
    options: dict[str, dict[str, Any]] = {"before": {}, "at": {}, "link": {}}
    options[where] = {flag: True}
    pipeline = (
        Pipeline("leg")
        .step("util/link", params=LINK, **options["link"])
        .step("t/reserve", **options["before"])
        .step("util/commit-linked", params=LINK, **options["at"])
    )
    with pytest.raises(PipelineInvalid, match=r"util/commit-linked"):
        pipeline.build()


@pytest.fixture
def hasty(datp: Kit, books: Counter[str]) -> None:
    """A leg whose step passes a point of its own, which no file shows."""

    @datp.step("t/hasty")
    def hasty(ctx: Any, data: dict[str, Any]) -> None:
        ctx.commit_to_finish()

    datp.use(
        Pipeline("hasty")
        .step("util/link", params=LINK).step("t/hasty")
        .step("util/commit-linked", params=LINK).step("t/book").build()
    )  # fmt: skip


def test_a_leg_past_a_point_of_its_own_waits_for_the_other(
    datp: Kit, books: Counter[str], hasty: None
) -> None:
    first = datp.submit("hasty", {"deal": "d1", "leg": "a"})
    for _ in range(3):
        datp.advance(seconds=A_WHILE_S)
    assert statuses(datp, first) == ["sleeping"]
    assert books["booked a"] == 0, "it does not commit alone"
    second = submit(datp, "b")
    datp.advance(seconds=A_WHILE_S)
    assert statuses(datp, first, second) == ["success", "success"]


@pytest.mark.parametrize("end", ["fails", "expires"])
def test_a_leg_past_a_point_of_its_own_is_parked_if_the_other_does_not_commit(
    datp: Kit, books: Counter[str], hasty: None, end: str
) -> None:
    first = datp.submit("hasty", {"deal": "d1", "leg": "a"})
    if end == "fails":
        submit(datp, "b", data={"poor": True})
    else:
        datp.use(
            Pipeline("slow").step("util/link", params=LINK)
            .step("util/wait", params={"switch": "go"})
            .step("util/commit-linked", params=LINK).build()
        )  # fmt: skip
        datp.submit("slow", {"deal": "d1", "leg": "b"}, expires_in_s=30)
        for _ in range(3):
            datp.advance(seconds=20)
    datp.advance(seconds=A_WHILE_S)
    assert statuses(datp, first) == ["in-doubt"]
    assert books["booked a"] == 0


@pytest.mark.parametrize("attempts", [1, 3])
def test_a_step_that_breaks_after_the_verdict_ends_no_leg_otherwise(
    datp: Kit, books: Counter[str], monkeypatch: pytest.MonkeyPatch, attempts: int
) -> None:
    """Its time limit comes between the commit in SQL and the word of it in Redis."""
    datp.use(
        Pipeline("leg").step("util/link", params=LINK).step("t/reserve")
        .step("util/commit-linked", params=LINK, retry={"max_attempts": attempts})
        .step("t/book").build()
    )  # fmt: skip
    first = submit(datp, "a")
    commit = LinkedTransactions.commit
    late: list[Leg] = []

    def commit_and_time_out(self: LinkedTransactions, leg: Leg, link: str) -> Any:
        verdict = commit(self, leg, link)
        if verdict.word == "commit" and len(late) < 1:
            late.append(leg)
            raise StepTimeout
        return verdict

    monkeypatch.setattr(LinkedTransactions, "commit", commit_and_time_out)
    second = submit(datp, "b")
    assert late
    for _ in range(3):
        datp.advance(seconds=A_WHILE_S)
    assert statuses(datp, first, second) == ["success", "success" if attempts > 1 else "in-doubt"]
    assert books["released a"] == books["released b"] == 0


def test_a_step_that_breaks_after_its_point_is_not_ended_as_if_it_had_none(
    datp: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same without a link: `ctx.commit_to_finish()` and the time limit."""

    @datp.step("t/decides", retry={"max_attempts": 1})
    def decides(ctx: Any, data: dict[str, Any]) -> None:
        ctx.commit_to_finish()

    pass_many = Points.pass_many

    def pass_and_time_out(self: Points, claims: Any) -> Any:
        pass_many(self, claims)
        raise StepTimeout

    monkeypatch.setattr(Points, "pass_many", pass_and_time_out)
    datp.use(Pipeline("decides").step("t/decides").build())
    assert statuses(datp, datp.submit("decides", {})) == ["in-doubt"]


def test_a_link_has_a_deadline_also_if_no_leg_has_one(datp: Kit, books: Counter[str]) -> None:
    """The other leg never comes: it must not look for it for ever."""
    lone = submit(datp, "a")
    day = datp.status(lone).expires_at
    assert day is not None
    assert (day - datp.status(lone).created_at).total_seconds() == 86_400
    datp.advance(seconds=86_401)
    datp.advance(seconds=A_WHILE_S)
    assert statuses(datp, lone) == ["expired"]
    assert books == {"reserved a": 1, "released a": 1}


def test_a_link_says_how_long_it_waits(datp: Kit, books: Counter[str]) -> None:
    params = LINK | {"expiresInSeconds": 60}
    datp.use(Pipeline("brief").step("util/link", params=params).step("t/reserve")
             .step("util/commit-linked", params=LINK).build())  # fmt: skip
    lone = datp.submit("brief", {"deal": "d9", "leg": "a"})
    datp.advance(seconds=61)
    datp.advance(seconds=A_WHILE_S)
    assert statuses(datp, lone) == ["expired"]
    with pytest.raises(PipelineInvalid, match="expiresInSeconds"):
        datp.use(Pipeline("brief").step("util/link", params=LINK | {"expiresInSeconds": 0}).build())
