"""Claims: shared fairly, taken over in time, never revived, and held by locks where it matters."""

from __future__ import annotations

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from datp_tasks import failpoints
from datp_tasks.clock import ServerClock
from datp_tasks.failpoints import SimulatedCrash
from datp_tasks.ledger.batch_types import NewBatch, Work
from datp_tasks.ledger.ticker import Ticker
from datp_tasks.model.ledger_batch import BatchState
from datp_tasks.record import ledger_sql
from datp_tasks.record.ledger_batches import BatchStore
from datp_tasks.record.ledger_batches import Query as BatchQuery
from datp_tasks.record.ledger_claims import ClaimStore
from datp_tasks.record.ledger_claims import Query as ClaimQuery
from datp_tasks.record.ledger_sql import Sql
from tests.ledger.conftest import NewWorld
from tests.support.eventually import eventually
from tests.support.ledger_world import SERVICE, Instance, World


def add_services(world: World, count: int, *, waiting: bool = False) -> None:
    """Many at once, with the statement a migration of such services would use."""
    world.sql(
        "INSERT INTO ledger_service (service_id, kind, url, created_at)"
        " SELECT 's' || n, 'sawtooth', :url, now() FROM generate_series(1, :count) n",
        url=world.server.url,
        count=count,
    )
    due = "'-infinity'" if waiting else "'infinity'"
    world.sql(
        f"INSERT INTO service_claim (service_id, due_at) SELECT service_id, {due}"
        " FROM ledger_service"
    )


def holdings(world: World) -> Counter[str]:
    rows = world.sql("SELECT claimant FROM service_claim WHERE claimant IS NOT NULL")
    return Counter(row.claimant for row in rows)


def tick_all(world: World, instances: list[Instance], rounds: int = 4) -> None:
    for _ in range(rounds):
        for instance in instances:
            instance.tick()
        world.advance(world.settings.claim_queuer_period_s)


def assert_even(world: World, instances: list[Instance], services: int) -> None:
    held = [holdings(world)[instance.name] for instance in instances]
    assert sum(held) == services
    assert max(held) - min(held) <= 0.2 * services / len(instances), held


# Shares.


def test_three_hundred_services_are_shared_by_three_instances(world: World) -> None:
    instances = [world.instance() for _ in range(3)]
    add_services(world, 300)
    instances[0].tick()
    assert holdings(world)[instances[0].name] == 300
    tick_all(world, instances)
    assert_even(world, instances, 300)


def test_shares_are_evened_out_when_one_joins_and_when_one_leaves(world: World) -> None:
    instances = [world.instance() for _ in range(3)]
    add_services(world, 300)
    tick_all(world, instances)
    fourth = world.instance()
    tick_all(world, [*instances, fourth])
    assert_even(world, [*instances, fourth], 300)
    # One leaves in order: nobody waits for its lease to run out.
    instances[0].ledger.work.queuer.leave()
    tick_all(world, [*instances[1:], fourth], rounds=2)
    assert_even(world, [*instances[1:], fourth], 300)


def test_shares_of_one_that_died_are_taken_after_its_lease_and_a_tick(world: World) -> None:
    instances = [world.instance() for _ in range(3)]
    add_services(world, 300)
    tick_all(world, instances)
    dead = instances.pop()
    period_s, ttl_s = world.settings.claim_queuer_period_s, world.settings.ledger_claim_ttl_s
    # Its last renewal was a period ago.
    for _ in range(int(ttl_s / period_s) - 1):
        tick_all(world, instances, rounds=1)
        assert holdings(world)[dead.name] == 100
    tick_all(world, instances, rounds=2)
    assert_even(world, instances, 300)


def test_a_service_in_the_middle_of_a_submission_is_not_given_away(world: World) -> None:
    first = world.instance()
    for number in range(4):
        world.add_service(f"circuit::s{number}")
        world.submit("one", service=f"circuit::s{number}")
    first.tick()
    failpoints.arm("ledger.after_begin", "crash")
    with pytest.raises(SimulatedCrash):
        first.deliver()
    second = world.instance()
    tick_all(world, [first, second], rounds=3)
    assert holdings(world) == {first.name: 4}
    # The attempts are over, whatever became of them: now they can go.
    world.advance(world.settings.ledger_post_budget_s)
    tick_all(world, [first, second], rounds=3)
    assert holdings(world) == {first.name: 2, second.name: 2}


def test_in_quiet_times_a_tick_counts_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = world.instance()
    add_services(world, 50)
    instance.tick()
    instance.tick()

    def count(_: ClaimStore) -> dict[str | None, int]:
        raise AssertionError("counted for nothing")

    monkeypatch.setattr(ClaimStore, "counts", count)
    for _ in range(3):
        instance.tick()


def test_without_services_a_tick_is_one_look(world: World) -> None:
    instance = world.instance()
    instance.tick()
    assert instance.name == ""
    assert world.sql("SELECT count(*) FROM ledger_instance")[0][0] == 0


# Expiry.


def test_an_attempt_whose_sender_died_is_asked_about_though_its_claimant_lives(
    world: World,
) -> None:
    claimant, sender = world.instance(), world.instance()
    world.add_service()
    [one] = world.submit("one")
    claimant.tick()
    failpoints.arm("ledger.after_begin", "crash")
    with pytest.raises(SimulatedCrash):
        sender.deliver(claimant.waiting)
    budget_s = world.settings.ledger_post_budget_s
    for _ in range(int(budget_s) - 1):
        world.advance(1)
        claimant.tick()
    assert world.state(one) is BatchState.SUBMITTING
    world.advance(1)
    claimant.tick()
    assert world.state(one) is BatchState.UNKNOWN
    world.settle(claimant, rounds=10)
    assert world.violations() == []


@pytest.mark.parametrize(
    ("changes", "idle_after_s", "busy_after_s"),
    [
        ({}, 30, 30),
        (
            {
                "ledger_expiry": "two-phase",
                "ledger_http_s": 100,
                "ledger_post_budget_s": 150,
                "ledger_grace_s": 160,
            },
            30,
            180,
        ),
    ],
    ids=["single", "two-phase"],
)
def test_a_service_is_free_after_its_expiry(
    new_world: NewWorld, changes: dict[str, Any], idle_after_s: float, busy_after_s: float
) -> None:
    """With two phases, one in the middle of a slow submission is left alone until the second."""
    world = new_world(**changes)
    a, b = world.instance(), world.instance()
    busy, idle = world.add_service("circuit::busy"), world.add_service("circuit::idle")
    world.submit("one", service=busy)
    a.tick()
    failpoints.arm("ledger.after_begin", "crash")
    with pytest.raises(SimulatedCrash):
        a.deliver()
    freed: dict[str, float] = {}
    for second in range(200):
        b.tick()
        rows = world.sql("SELECT service_id FROM service_claim WHERE claimant = :b", b=b.name)
        for row in rows:
            freed.setdefault(row.service_id, second)
        world.advance(1)
    assert freed == {idle: idle_after_s, busy: busy_after_s}


def test_a_lease_that_has_run_out_is_not_renewed(world: World) -> None:
    claims = world.instance().ledger.claims
    claims.join("me")
    world.advance(29.9)
    assert claims.renew("me")
    world.advance(30)
    assert not claims.renew("me")
    assert not claims.renew("somebody else")


def test_one_that_leaves_does_not_orphan_what_others_are_sending(world: World) -> None:
    a, b = world.instance(), world.instance()
    world.add_service()
    [one] = world.submit("one")
    a.tick()

    def leave_and_take() -> None:
        a.ledger.work.queuer.leave()
        b.tick()

    failpoints.arm("ledger.after_begin", leave_and_take)
    assert b.deliver(a.waiting).accepted == 1
    assert world.state(one) is BatchState.PENDING
    b.tick()
    assert holdings(world) == {b.name: 1}


# Locks, on the server's own clock.


@pytest.fixture
def real(new_world: NewWorld) -> World:
    """A world whose database uses its own clock."""
    world = new_world(
        ledger_claim_ttl_s=1.0,
        ledger_http_s=0.1,
        ledger_post_budget_s=0.2,
        ledger_grace_s=0.3,
        claim_queuer_period_s=0.1,
    )
    world.clock = ServerClock()  # type: ignore[assignment]
    return world


def stores(world: World) -> tuple[ClaimStore, BatchStore]:
    ledger = world.instance().ledger
    return ledger.claims, ledger.batches


def test_two_that_claim_at_the_same_moment_take_different_services(real: World) -> None:
    add_services(real, 200)
    both = [stores(real)[0] for _ in range(4)]
    barrier = threading.Barrier(4)

    def claim(number: int) -> list[str]:
        both[number].join(f"i{number}")
        barrier.wait(10)
        taken: list[str] = []
        for _ in range(20):
            taken += [name for name, _ in both[number].claim(f"i{number}", dead=(), rows_max=10)]
        return taken

    with ThreadPoolExecutor(4) as pool:
        taken = [name for part in pool.map(claim, range(4)) for name in part]
    assert len(taken) == len(set(taken)) == 200


def test_control_claiming_by_a_subselect_gives_one_service_to_two(real: World) -> None:
    """The form of the seed's author's experiment: the one who waits takes what was just taken."""
    add_services(real, 2)
    naive = (
        "UPDATE service_claim SET claimant = '{me}', claimed_at = now() WHERE service_id ="
        " (SELECT service_id FROM service_claim WHERE claimant IS NULL ORDER BY 1 LIMIT 1)"
        " RETURNING service_id"
    )
    with real.engine.connect() as first, ThreadPoolExecutor(1) as pool:
        [[got]] = first.exec_driver_sql(naive.format(me="i1"))
        other = pool.submit(real.sql, naive.format(me="i2"))
        eventually(lambda: waits_for_lock(real))
        first.commit()
        assert other.result(10)[0].service_id == got


def waits_for_lock(world: World) -> bool:
    rows = world.sql(
        "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname ="
        " current_database()"
    )
    return bool(rows)


def claimed_service(real: World) -> tuple[ClaimStore, BatchStore, str]:
    claims, batches = stores(real)
    real.add_service()
    [one] = real.submit("one")
    claims.join("a")
    assert claims.claim("a", dead=(), rows_max=1) == [(SERVICE, 1)]
    return claims, batches, one


def begin_while_the_lease_runs_out(real: World, begin: Any) -> tuple[int, list[tuple[str, int]]]:
    """A's begin waits for the batch row while B tries to take over; rows begun, and B's claims."""
    claims, _, one = claimed_service(real)
    taker = stores(real)[0]
    with real.engine.connect() as holder, ThreadPoolExecutor(1) as pool:
        holder.exec_driver_sql(f"SELECT 1 FROM ledger_batch WHERE batch_id = '{one}' FOR UPDATE")
        beginning = pool.submit(begin)
        eventually(lambda: waits_for_lock(real))
        eventually(lambda: not claims.survey().live)
        taker.join("b")
        taken = taker.claim("b", dead=["a"], rows_max=10)
        holder.commit()
        return len(beginning.result(10)), taken


def test_begin_holds_the_claim_so_no_instance_takes_it_in_the_middle(real: World) -> None:
    batches = stores(real)[1]
    work = Work(SERVICE, "", 1)
    begun, taken = begin_while_the_lease_runs_out(real, lambda: batches.begin_many([work], "a"))
    assert (begun, taken) == (1, [])
    # Later the successor finds it begun, and marks it in the commit of its takeover.
    taker = stores(real)[0]
    assert taker.claim("b", dead=["a"], rows_max=10) == [(SERVICE, 2)]
    assert real.sql("SELECT state FROM ledger_batch")[0].state == "UNKNOWN"


def test_control_comparing_the_epoch_without_a_lock_is_no_fence(
    real: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BatchQuery, "begin", BatchQuery.begin.replace("FOR SHARE OF c", ""))
    batches = stores(real)[1]
    work = Work(SERVICE, "", 1)
    begun, taken = begin_while_the_lease_runs_out(real, lambda: batches.begin_many([work], "a"))
    # Epoch 1 was written after epoch 2 was committed, and nobody will know.
    assert (begun, taken) == (1, [(SERVICE, 2)])
    row = real.sql("SELECT state, claim_epoch FROM ledger_batch")[0]
    assert tuple(row) == ("SUBMITTING", 1)


def test_numbers_are_given_in_the_order_of_commits(
    real: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has its number and is not committed yet holds up the next of its service."""
    first, second = stores(real)[1], stores(real)[1]
    real.add_service()
    new = [NewBatch(service_id=SERVICE, batch_id=name, payload=b"1") for name in ("one", "two")]
    may_store = threading.Event()
    rows = first._sql.rows

    def pause_before_storing(connection: Any, statement: str, values: Any = None) -> Any:
        if statement is BatchQuery.store:
            assert may_store.wait(20)
        return rows(connection, statement, values)

    monkeypatch.setattr(first._sql, "rows", pause_before_storing)
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(first.store_many, new[:1])
        eventually(lambda: idles_in_a_transaction(real))
        two = pool.submit(second.store_many, new[1:])
        try:
            eventually(lambda: waits_for_lock(real), within_s=5)
            assert not two.done()
        finally:
            may_store.set()
        answers = [*one.result(10), *two.result(10)]
    assert [getattr(each, "seq", None) for each in answers] == [1, 2]


def idles_in_a_transaction(world: World) -> bool:
    rows = world.sql(
        "SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction' AND datname ="
        " current_database()"
    )
    return bool(rows)


def test_control_a_column_that_counts_gives_numbers_in_another_order(real: World) -> None:
    real.sql("DROP TABLE IF EXISTS counted")
    real.sql("CREATE TABLE counted (n bigint GENERATED ALWAYS AS IDENTITY)")
    with real.engine.connect() as first:
        first.exec_driver_sql("INSERT INTO counted DEFAULT VALUES")
        real.sql("INSERT INTO counted DEFAULT VALUES")
        # The head of the line is number 2, and later number 1 appears before it.
        assert [row.n for row in real.sql("SELECT n FROM counted")] == [2]
        first.commit()
    real.sql("DROP TABLE counted")


def test_a_batch_stored_while_its_service_is_looked_at_is_not_forgotten(real: World) -> None:
    """The look finds nothing and says "not due"; the batch that came meanwhile must be due."""
    claims, batches = stores(real)
    real.add_service()
    claims.join("a")
    claims.claim("a", dead=(), rows_max=1)
    real.sql("UPDATE service_claim SET due_at = now()")
    new = NewBatch(service_id=SERVICE, batch_id="one", payload=b"1")
    with real.engine.connect() as looking, ThreadPoolExecutor(1) as pool:
        values = {"me": "a", "limit": 10, "now": None, "services": [SERVICE], "again": 10}
        looking.exec_driver_sql(ClaimQuery.lock_due, values)
        storing = pool.submit(batches.store_many, [new])
        eventually(lambda: waits_for_lock(real))
        looking.exec_driver_sql(ClaimQuery.look, values)
        looking.commit()
        storing.result(10)
    works = claims.next_work("a", rows_max=10)
    assert [work.service_id for work in works] == [SERVICE]


def test_a_process_that_is_paused_in_a_transaction_does_not_hold_its_locks_for_ever(
    real: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_sql, "SILENT_MS", 300)
    real.instance()
    real.add_service()
    sql = Sql(real.engine, real.engine, ServerClock())

    def pause() -> None:
        with sql.transaction() as connection:
            sql.rows(connection, "SELECT 1 FROM service_claim FOR UPDATE")
            eventually(free)
            connection.exec_driver_sql("SELECT 1")

    def free() -> bool:
        return bool(real.sql("SELECT 1 FROM service_claim FOR UPDATE SKIP LOCKED"))

    with pytest.raises(DBAPIError):
        pause()


def test_ticks_of_many_instances_at_once_do_no_harm(real: World) -> None:
    instances = [real.instance() for _ in range(4)]
    add_services(real, 100, waiting=True)

    def tick(instance: Instance) -> None:
        for _ in range(10):
            instance.tick()

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(tick, instance) for instance in instances]:
            done.result(30)
    # A tick that meets another one claims nothing, and leaves it to the next.
    for instance in instances:
        instance.tick()
    assert_even(real, instances, 100)


def test_a_heart_ticks_without_beat_outlasts_errors_and_leaves_in_order(real: World) -> None:
    instance = real.instance()
    add_services(real, 5)
    polled: list[int] = []

    def poll() -> None:
        polled.append(1)
        if len(polled) == 2:
            raise ConnectionError("the servers are away for a moment")

    heart = Ticker(instance.ledger.work.queuer, poll, period_s=0.1, is_wanted=lambda: True)
    heart.start()
    try:
        eventually(lambda: len(polled) >= 4)
        # Its lease is a second long, and is kept.
        assert holdings(real) == {instance.name: 5}
    finally:
        heart.stop()
    assert instance.name == ""
    assert real.sql("SELECT count(*) FROM ledger_instance WHERE expiry > now()")[0][0] == 0


# Cost.


def test_a_tick_reads_no_table_from_end_to_end(world: World) -> None:
    """Plans with twenty thousand services, a tenth of them with something to do."""
    world.instance()
    add_services(world, 20_000)
    world.sql(
        "INSERT INTO ledger_batch (service_id, batch_id, seq, owner, fingerprint, payload, state,"
        " next_at, created_at, final_at) SELECT 's' || n, 'b' || n || '-' || k, k, 'o', '', '',"
        " CASE WHEN k < 3 THEN 'COMMITTED' ELSE 'NEW' END, now(), now(),"
        " CASE WHEN k < 3 THEN now() END"
        " FROM generate_series(1, 2000) n, generate_series(1, 3) k"
    )
    world.sql(
        "UPDATE service_claim SET claimant = 'i' || (substr(service_id, 2)::int % 3),"
        " claimed_at = now(), due_at = CASE WHEN substr(service_id, 2)::int <= 2000 THEN now()"
        " ELSE 'infinity' END"
    )
    world.sql(
        "INSERT INTO ledger_instance SELECT 'i' || n, now() + interval '1 hour' * (n - 1),"
        " now() + interval '1 hour', now() FROM generate_series(0, 2) n"
    )
    world.sql("ANALYZE service_claim, ledger_batch, ledger_instance")
    values = {
        "me": "i2",
        "former": "i0",
        "limit": 100,
        "now": None,
        "ttl": 30,
        "slow": 30,
        "services": [f"s{n}" for n in range(1, 51)],
        "again": 10,
        "service": [f"s{n}" for n in range(1, 26)],
        "batch": [""] * 25,
        "epoch": [0] * 25,
        "sender": "x",
        "budget": 1,
        "grace": 1,
        "alert": "a",
        "drops_duplicates": ["x"],
        "first": 1,
        "slowest": 1,
        "recheck": 1,
        "swallow": 1,
    }
    every = ClaimQuery
    statements = [every.renew, every.survey, every.forget_instances, every.mark_late]
    statements += [every.take_unclaimed, every.take_former, every.release]
    statements += [every.any_due, every.lock_due, every.look, BatchQuery.begin, BatchQuery.take_up]
    for statement in statements:
        assert full_scans(world, statement, values) == [], statement


def full_scans(world: World, statement: str, values: dict[str, Any]) -> list[str]:
    with world.engine.connect() as connection:
        rows = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement}", values)
        plan = rows.scalar_one()
        connection.rollback()
    found: list[str] = []

    def walk(node: dict[str, Any]) -> None:
        large = node.get("Relation Name") in ("service_claim", "ledger_batch")
        if node["Node Type"] == "Seq Scan" and large:
            found.append(node["Relation Name"])
        for inner in node.get("Plans", ()):
            walk(inner)

    walk((json.loads(plan) if isinstance(plan, str) else plan)[0]["Plan"])
    return found
