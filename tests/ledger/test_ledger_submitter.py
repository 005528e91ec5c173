"""Submissions to a ledger that fails in every way: each batch once, in order, nothing stuck."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from datp_tasks.ledger import attempts as attempts_module
from datp_tasks.ledger import decisions, submitter
from datp_tasks.ledger.batch_types import Work
from datp_tasks.ledger.sim.faults import ANSWERS, Fault
from datp_tasks.ledger.submit_bell import readable_works
from datp_tasks.local.ports import pick_free_port
from datp_tasks.model.actor import Actor
from datp_tasks.model.ledger_batch import BatchState, Verdict
from tests.ledger.conftest import NewWorld
from tests.support.eventually import eventually
from tests.support.ledger_world import SERVICE, Instance, World

DELAYED, UNKNOWN, REFUSED = BatchState.DELAYED, BatchState.UNKNOWN, BatchState.REFUSED
#: What an attempt that meets a fault makes of its batch.
AFTER = {
    **dict.fromkeys(("400", "413"), REFUSED),
    **dict.fromkeys(("401", "403", "404", "408", "429", "503-15"), DELAYED),
    **dict.fromkeys(("500", "500-accepted", "503-17", "503-17-accepted", "302"), UNKNOWN),
    **dict.fromkeys(("503-18", "503-18-accepted", "drop-before", "drop-after", "cut"), UNKNOWN),
    **dict.fromkeys(("late-before", "late-after"), UNKNOWN),
}


def start(world: World, *names: str) -> tuple[Instance, list[str]]:
    """An instance that has claimed the service, and batches."""
    instance = world.instance()
    world.add_service()
    ids = world.submit(*names)
    instance.tick()
    return instance, ids


def attempts(world: World, batch_id: str) -> list[Verdict | None]:
    found = world.instances[0].ledger.batches.attempts(SERVICE, batch_id)
    return [each.verdict for each in found]


@pytest.mark.parametrize("kind", ["sawtooth", "scabbard"])
@pytest.mark.parametrize("word", list(AFTER))
def test_a_batch_that_meets_a_fault_is_executed_once(
    new_world: NewWorld, word: str, kind: str
) -> None:
    world = new_world(kind=kind, ledger_http_s=1.0, ledger_long_delay_s=10)
    instance, [one, two] = start(world, "one", "two")
    # Scabbard has no codes, so what only a code would tell is unsure.
    without_code = kind == "scabbard" and word in ("408", "503-15")
    world.sim.faults.set([Fault("post", word, times=1, ms=1_500)])
    instance.deliver()
    assert world.state(one) is (UNKNOWN if without_code else AFTER[word])
    if word in ("late-before", "late-after"):
        # It arrives although nobody waits for it any more.
        eventually(lambda: len(world.executed()) == 1)
    world.settle(instance, rounds=30)
    assert world.state(two) is BatchState.COMMITTED
    if AFTER[word] is REFUSED:
        assert world.state(one) is REFUSED
        assert world.executed() == [two]
        assert ("ledger-batch-refused", f"{SERVICE}/{one}") in world.alerts()
    else:
        assert world.violations() == []


def test_every_fault_of_the_stand_in_is_tried() -> None:
    assert set(ANSWERS) <= set(AFTER)


def test_what_is_unsure_is_asked_about_before_it_is_sent_again(new_world: NewWorld) -> None:
    world = new_world(kind="sawtooth")
    instance, [one] = start(world, "one")
    world.sim.faults.set([Fault("post", "503-17", times=1)])
    instance.deliver()
    asked = 0
    while world.sim.posts == 1:
        world.advance(1)
        before = world.batch(one)
        instance.tick()
        instance.poll()
        instance.deliver()
        asked += world.batch(one) != before
    # Not before everything that was begun must have arrived, and not after one answer alone.
    assert world.now_s() - world.batch(one).created_at.timestamp() >= 25
    assert asked >= decisions.UNKNOWN_MAX
    assert world.state(one) in (BatchState.PENDING, BatchState.COMMITTED)


def test_a_batch_that_was_not_sent_can_be_sent_again_without_asking(world: World) -> None:
    instance = world.instance()
    port = pick_free_port()
    service = instance.ledger.intake.add_service(
        SERVICE, kind="scabbard", url=f"http://127.0.0.1:{port}"
    )
    [one] = world.submit("one", service=service.service_id)
    instance.tick()
    instance.deliver()
    assert world.state(one) is DELAYED
    assert attempts(world, one) == [Verdict.REFUSED]
    world.add_service()
    world.settle(instance, rounds=3)
    assert attempts(world, one) == [Verdict.REFUSED, Verdict.ACCEPTED]
    assert world.violations() == []


def test_a_full_ledger_is_tried_again_later_and_later_and_keeps_the_order(world: World) -> None:
    instance, [one, two] = start(world, "one", "two")
    world.sim.faults.set([Fault("post", "429", times=12)])
    pauses: list[float] = []
    last_s = world.now_s()
    while world.state(one) is not BatchState.COMMITTED:
        posts = world.sim.posts
        instance.tick()
        instance.deliver()
        instance.poll()
        if world.sim.posts > posts:
            pauses.append(world.now_s() - last_s)
            last_s = world.now_s()
        assert world.state(two) is BatchState.NEW or world.sim.posts > 12
        world.advance(1)
    assert len(pauses) == 13
    assert 1 <= pauses[1] <= 3
    assert all(pause <= 30 * 1.2 + 2 for pause in pauses)
    assert sum(pauses[-4:]) > 4 * 20
    world.settle(instance, rounds=3)
    assert world.violations() == []
    # Somebody was told after a while, and told that it is over.
    kinds = [row.kind for row in world.sql("SELECT kind FROM alert")]
    assert kinds == ["ledger-delayed"]
    assert world.alerts() == []


def test_a_message_that_comes_twice_does_not_cut_a_delay_short(world: World) -> None:
    instance, [one] = start(world, "one")
    messages = list(instance.waiting)
    world.sim.faults.set([Fault("post", "429", times=1)])
    instance.deliver()
    assert instance.deliver(messages).begun == 0
    assert world.sim.posts == 1
    world.settle(instance, rounds=2)
    assert instance.deliver(messages).begun == 0
    assert world.executed() == [one]


def test_a_message_for_a_batch_that_is_not_in_turn_begins_nothing(world: World) -> None:
    instance, [one, two] = start(world, "one", "two")
    [work] = instance.waiting
    assert instance.deliver([Work(SERVICE, two, work.epoch)]).begun == 0
    assert instance.deliver([Work(SERVICE, one, work.epoch + 1)]).begun == 0
    assert instance.deliver([Work(SERVICE, one, work.epoch - 1)]).begun == 0
    assert instance.deliver([Work("nobody", one, work.epoch)]).begun == 0
    assert instance.deliver([work, work]).begun == 1


def test_an_invalid_batch_ends_with_its_reason_and_the_next_goes_on(new_world: NewWorld) -> None:
    for kind in ("sawtooth", "scabbard"):
        world = new_world(kind=kind)
        instance = world.instance()
        world.add_service()
        [bad] = world.submit("bad", simulate="invalid")
        [good] = world.submit("good")
        world.settle(instance, rounds=4)
        found = world.batch(bad)
        assert (found.state, found.note) == (BatchState.INVALID, "the contract said no")
        assert found.receipt is not None
        assert found.receipt["id"] == bad
        assert world.state(good) is BatchState.COMMITTED
        assert world.sim.posts == 2


def test_a_ledger_that_loses_its_memory_gets_the_batch_again(new_world: NewWorld) -> None:
    world = new_world(kind="sawtooth")
    world.sim.options.commit_ms = 5_000
    instance, [one] = start(world, "one")
    instance.deliver()
    assert world.state(one) is BatchState.PENDING
    world.sim.restart()
    world.settle(instance, rounds=40)
    assert world.violations() == []
    assert world.batch(one).resubmits == 1
    states = [each.state for each in instance.ledger.batches.sightings(SERVICE, one)]
    assert states == ["PENDING", "UNKNOWN", "DELAYED", "PENDING", "COMMITTED"]


def test_a_committed_batch_that_scabbard_forgets_stays_committed(world: World) -> None:
    instance, [one] = start(world, "one")
    world.settle(instance, rounds=2)
    assert world.state(one) is BatchState.COMMITTED
    world.sim.restart()
    world.settle(instance, rounds=40)
    assert world.violations() == []
    assert world.sim.posts == 1


def test_a_batch_that_the_ledger_swallows_is_parked_after_a_few_tries(new_world: NewWorld) -> None:
    """Invalid, forgotten, and silently dropped when sent again: the livelock of a naive loop."""
    world = new_world(kind="sawtooth")
    world.sim.options.invalid_s = 0
    instance = world.instance()
    world.add_service()
    [one] = world.submit("one", simulate="invalid")
    [two] = world.submit("two")
    world.sim.options.swallow_s = 100_000
    world.settle(instance, rounds=200, step_s=10)
    assert world.state(one) is BatchState.PARKED
    assert len(attempts(world, one)) == 1 + world.settings.ledger_resubmits_max
    assert world.alerts() == [("ledger-batch-parked", f"{SERVICE}/{one}")]
    # Order before speed: the next one waits until somebody decides.
    assert world.state(two) is BatchState.NEW
    instance.ledger.operator.resolve(
        SERVICE, one, BatchState.INVALID, actor=Actor(name="ann"), reason="the contract refuses it"
    )
    world.settle(instance, rounds=3)
    assert (world.state(one), world.state(two)) == (BatchState.INVALID, BatchState.COMMITTED)
    assert world.alerts() == []


def test_the_last_try_waits_until_the_ledger_does_not_swallow_it_any_more(
    new_world: NewWorld,
) -> None:
    world = new_world(kind="sawtooth")
    instance, [one] = start(world, "one")
    world.sim.options.commit_ms = 1e9
    instance.deliver()
    # Lost inside the ledger, which still swallows duplicates for twenty minutes.
    world.sim._sawtooth._pending.clear()
    world.sim.options.commit_ms = 0
    world.settle(instance, rounds=170, step_s=10)
    assert world.violations() == []
    assert len(attempts(world, one)) == 4


def test_a_second_look_finds_what_the_status_api_forgot(new_world: NewWorld) -> None:
    world = new_world(kind="sawtooth")
    instance, [one] = start(world, "one")
    world.sim.faults.set([Fault("post", "drop-after", times=1), Fault("get", "unknown")])
    instance.deliver()
    world.settle(instance, rounds=20)
    assert world.state(one) is BatchState.COMMITTED
    assert world.batch(one).note == "found in a block"
    assert world.sim.posts == 1


@pytest.mark.parametrize("word", ["drop", "500", "garbage"])
def test_an_answer_that_says_nothing_changes_nothing(world: World, word: str) -> None:
    instance, [one] = start(world, "one")
    world.sim.faults.set([Fault("get", word)])
    instance.deliver()
    for _ in range(50):
        world.advance(10)
        instance.tick()
        instance.poll()
    assert world.state(one) is BatchState.PENDING
    world.sim.faults.set([])
    world.settle(instance, rounds=10)
    assert world.violations() == []
    assert world.sim.posts == 1


def test_invalid_after_a_second_submission_is_parked_where_it_may_be_committed(
    world: World,
) -> None:
    """Scabbard executed it, forgot it, got it again and calls the twin invalid."""
    instance, [one, two] = start(world, "one", "two")
    world.sim.faults.set([Fault("post", "drop-after", times=1)])
    instance.deliver()
    world.sim.restart()
    world.settle(instance, rounds=30)
    assert world.executed().count(one) == 2
    assert world.state(one) is BatchState.PARKED
    assert world.state(two) is BatchState.NEW
    subject = f"{SERVICE}/{one}"
    assert set(world.alerts()) == {
        ("ledger-batch-twice", subject),
        ("ledger-batch-parked", subject),
    }
    instance.ledger.operator.resolve(
        SERVICE, one, BatchState.COMMITTED, actor=Actor(name="ann"), reason="it is in the state"
    )
    world.settle(instance, rounds=5)
    assert (world.state(one), world.state(two)) == (BatchState.COMMITTED, BatchState.COMMITTED)


def test_a_commit_that_is_seen_after_the_end_is_reported_and_not_hidden(
    new_world: NewWorld,
) -> None:
    world = new_world(kind="sawtooth")
    instance = world.instance()
    world.add_service()
    [one] = world.submit("one", simulate="invalid")
    instance.tick()
    world.sim.faults.set([Fault("post", "503-17", times=1)])
    world.settle(instance, rounds=25)
    assert world.state(one) is BatchState.INVALID
    assert len(attempts(world, one)) == 2
    # The first submission, long given up, is executed after all.
    world.sim._sawtooth._committed.add(one)
    world.settle(instance, rounds=10)
    assert world.state(one) is BatchState.INVALID
    assert world.alerts() == [("ledger-batch-anomaly", f"{SERVICE}/{one}")]


def test_when_the_record_is_unavailable_the_write_is_repeated_and_never_the_post(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts_module, "WRITE_PAUSE_S", 0.01)
    instance, [one] = start(world, "one")
    store = instance.ledger.batches
    finish, failures = store.finish_many, [1, 2, 3]

    def fail_first(ended: Any) -> Any:
        if failures:
            raise OperationalError(f"away {failures.pop()}", None, Exception("away"))
        return finish(ended)

    monkeypatch.setattr(store, "finish_many", fail_first)
    assert instance.deliver().accepted == 1
    assert (failures, world.sim.posts) == ([], 1)
    assert world.state(one) is BatchState.PENDING


def away(*_: Any, **__: Any) -> Any:
    raise OperationalError("away", None, Exception("away"))


def test_when_the_record_is_unavailable_at_the_beginning_nothing_is_sent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance, [one] = start(world, "one")
    with monkeypatch.context() as patched:
        patched.setattr(instance.ledger.batches, "begin_many", away)
        assert instance.deliver().begun == 0
    assert (world.sim.posts, world.state(one)) == (0, BatchState.NEW)
    world.settle(instance, rounds=8)
    assert world.violations() == []


def test_when_the_record_is_unavailable_while_a_batch_is_followed_the_others_are_recorded(
    new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitter, "FOLLOW_S", 5)
    monkeypatch.setattr(submitter, "RUN_S", 30)
    world = new_world()
    instance = world.instance()
    quick, slow = world.add_service("circuit::quick"), world.add_service("circuit::slow")
    [one] = world.submit("one", service=quick)
    [two] = world.submit("two", service=slow)
    world.sim.faults.set([Fault("post", "late-after", times=1, ms=1_000, service=slow)])
    instance.tick()
    with monkeypatch.context() as patched:
        patched.setattr(instance.ledger.batches, "record_many", away)
        assert instance.deliver().accepted == 2
    assert world.state(two, slow) is BatchState.PENDING
    world.settle(instance, rounds=3)
    assert world.state(one, quick) is BatchState.COMMITTED
    assert world.violations() == []


def test_an_address_that_is_not_allowed_any_more_is_not_used(world: World) -> None:
    world.instance()
    world.add_service()
    [one] = world.submit("one")
    strict = world.instance(ledger_hosts=("ledger.example",))
    strict.tick()
    strict.deliver()
    assert world.state(one) is DELAYED
    assert "is not allowed" in (world.batch(one).note or "")
    assert world.alerts() == [("ledger-delayed", SERVICE)]
    assert world.sim.posts == 0


def test_a_slow_ledger_does_not_hold_up_what_its_neighbours_have_to_record(
    new_world: NewWorld,
) -> None:
    world = new_world(ledger_http_s=10)
    instance = world.instance()
    names = [world.add_service(f"circuit::s{number}") for number in range(4)]
    ids = {name: world.submit("one", service=name)[0] for name in names}
    world.sim.faults.set([Fault("post", "late-before", ms=3_000, service=names[0])])
    instance.tick()
    running = threading.Thread(target=instance.deliver)
    running.start()
    try:
        for name in names[1:]:
            eventually(
                lambda name=name: world.state(ids[name], name) is BatchState.PENDING,  # type: ignore[misc]
                within_s=2.5,
            )
        assert world.state(ids[names[0]], names[0]) is BatchState.SUBMITTING
        assert running.is_alive()
    finally:
        running.join(20)
    assert world.state(ids[names[0]], names[0]) is BatchState.PENDING


def test_a_run_goes_on_with_the_next_in_line_by_itself(
    new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitter, "FOLLOW_S", 5)
    monkeypatch.setattr(submitter, "RUN_S", 30)
    world = new_world()
    names = [f"b{number}" for number in range(10)]
    instance, ids = start(world, *names)
    result = instance.deliver()
    assert (result.begun, result.accepted, result.final) == (10, 10, 10)
    assert world.executed() == ids
    assert instance.waiting == []
    assert world.violations() == []


def test_a_run_that_has_had_its_time_lets_others_go_on(
    new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submitter, "FOLLOW_S", 5)
    monkeypatch.setattr(submitter, "RUN_S", 0)
    world = new_world()
    instance, ids = start(world, "one", "two", "three")
    assert instance.deliver().begun == 1
    # Whoever takes this message goes on; without it, the next tick would ring.
    while instance.waiting:
        other = world.instance()
        other.waiting, instance.waiting = instance.waiting, other.waiting
        assert other.deliver().begun <= 1
        instance.waiting = other.waiting
    world.settle(instance, rounds=3)
    assert world.executed() == ids


def test_many_services_share_commits(new_world: NewWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submitter, "FOLLOW_S", 5)
    monkeypatch.setattr(submitter, "RUN_S", 30)
    world = new_world(kind="sawtooth")
    instance = world.instance()
    names = [world.add_service(f"s{number}") for number in range(20)]
    for name in names:
        world.submit("one", "two", "three", service=name)
    instance.tick()
    sql = instance.ledger.batches._sql
    before = sql.commits
    assert instance.deliver().final == 60
    # Begin, finish and record for three rounds of twenty, and a few more that came in parts.
    assert sql.commits - before <= 40
    assert world.violations() == []


@pytest.mark.parametrize(
    "garbage",
    [
        *(None, 5, "text", {"a": 1}, [[]], [["s"]], [["s", "b"]], [["s", "b", "1"]]),
        *([["s", "b", -1]], [["s", "b", 2**63]], [["s" * 201, "b", 1]], [["s\x00", "b", 1]]),
        [[1, 2, 3], None],
    ],
)
def test_a_forged_message_is_a_message_for_nothing(garbage: Any) -> None:
    assert readable_works(garbage) == []


def test_what_can_be_read_of_a_message_is_read() -> None:
    assert readable_works([["s", "b", 1], "x", ("t", "", 2)]) == [
        Work("s", "b", 1),
        Work("t", "", 2),
    ]
