"""What comes in: clear answers to bad input, nothing lost, nothing twice."""

from __future__ import annotations

from typing import Any

import pytest

from datp_tasks.client.client import Client
from datp_tasks.errors import (
    BatchConflict,
    BatchInvalid,
    BatchLimit,
    BatchUnknown,
    DatabaseUnavailable,
    LedgerError,
    ServiceInvalid,
    ServiceUnknown,
    WaitTimeout,
)
from datp_tasks.ledger.batch_list import derived_id, unsigned_batch_list
from datp_tasks.ledger.batch_types import Stored
from datp_tasks.local.ports import pick_free_port
from datp_tasks.model.ledger_batch import BatchState
from datp_tasks.record import ledger_batches
from datp_tasks.runtime.clients import make_client
from datp_tasks.settings import Settings
from tests.ledger.conftest import NewWorld
from tests.support.ledger_world import SERVICE, World

A, B = derived_id("a"), derived_id("b")
BYTES_A = unsigned_batch_list(A, b"{}")


@pytest.fixture
def client(world: World) -> Client:
    """A client, and a service to submit to."""
    made = make_client(world.instance().connections)
    world.add_service()
    return made


def count(world: World) -> int:
    return int(world.sql("SELECT count(*) FROM ledger_batch")[0][0])


def test_a_batch_that_is_accepted_is_in_the_record(client: Client, world: World) -> None:
    stored = client.submit_batch(SERVICE, BYTES_A, owner="acme")
    assert stored == Stored(SERVICE, A, 1, BatchState.NEW)
    found = client.batch(SERVICE, A, owner="acme")
    assert (found.state, found.seq, found.owner) == (BatchState.NEW, 1, "acme")
    assert [each.batch_id for each in client.batches(service_id=SERVICE)] == [A]
    with pytest.raises(BatchUnknown):
        client.batch(SERVICE, A, owner="somebody else")
    with pytest.raises(BatchUnknown, match="has no batch"):
        client.batch(SERVICE, B)


@pytest.mark.parametrize(
    ("service", "payload", "options", "error", "words"),
    [
        ("nobody", BYTES_A, {}, ServiceUnknown, "datp services add"),
        (None, BYTES_A, {}, ServiceUnknown, "no ledger service None"),
        (SERVICE, b"", {}, BatchInvalid, "1 to 1048576 bytes, was 0"),
        (SERVICE, b"x" * 1_048_577, {}, BatchInvalid, "was 1048577"),
        (SERVICE, "text", {}, BatchInvalid, "must be bytes, was str"),
        (SERVICE, b"garbage", {}, BatchInvalid, "not a BatchList"),
        (SERVICE, BYTES_A * 2, {}, BatchInvalid, "one batch, but holds 2"),
        (SERVICE, BYTES_A, {"batch_id": B}, BatchInvalid, "the bytes hold the batch"),
        (SERVICE, BYTES_A, {"owner": "a b"}, BatchInvalid, "an owner is"),
        (SERVICE, BYTES_A, {"owner": None}, BatchInvalid, "an owner is"),
    ],
)
def test_bad_input_is_refused_with_a_reason_and_stores_nothing(
    client: Client,
    world: World,
    service: Any,
    payload: Any,
    options: dict[str, Any],
    error: type[LedgerError],
    words: str,
) -> None:
    with pytest.raises(error, match=words):
        client.submit_batch(service, payload, **options)
    assert count(world) == 0


def test_one_bad_batch_does_not_hold_up_the_others(client: Client, world: World) -> None:
    wanted = [
        (SERVICE, BYTES_A, A),
        ("nobody", BYTES_A, None),
        (SERVICE, b"", None),
        (SERVICE, unsigned_batch_list(B, b"{}"), None),
    ]
    answers = client.submit_batches(wanted)
    assert [type(each) for each in answers] == [Stored, ServiceUnknown, BatchInvalid, Stored]
    assert count(world) == 2


def test_the_same_bytes_again_give_the_first_answer_again(client: Client, world: World) -> None:
    first = client.submit_batch(SERVICE, BYTES_A)
    again = client.submit_batch(SERVICE, BYTES_A)
    assert (first.duplicate, again.duplicate, again.seq) == (False, True, first.seq)
    world.settle(world.instances[0], rounds=3)
    late = client.submit_batch(SERVICE, BYTES_A)
    assert (late.duplicate, late.state) == (True, BatchState.COMMITTED)
    assert (count(world), world.executed()) == (1, [A])


def test_other_bytes_under_the_same_id_are_a_conflict(client: Client, world: World) -> None:
    client.submit_batch(SERVICE, BYTES_A)
    with pytest.raises(BatchConflict, match="with other bytes"):
        client.submit_batch(SERVICE, unsigned_batch_list(A, b'{"more": 1}'))
    with pytest.raises(BatchConflict, match="of another owner"):
        client.submit_batch(SERVICE, BYTES_A, owner="somebody-else")
    world.settle(world.instances[0], rounds=3)
    assert world.executed() == [A]


def test_twins_in_one_call_are_told_apart(client: Client, world: World) -> None:
    other = unsigned_batch_list(A, b"other")
    answers = client.submit_batches([(SERVICE, each, None) for each in (BYTES_A, BYTES_A, other)])
    assert isinstance(answers[1], Stored)
    assert answers[1].duplicate
    assert isinstance(answers[2], BatchConflict)
    assert count(world) == 1


def test_the_same_batch_can_go_to_two_services(client: Client, world: World) -> None:
    world.add_service("circuit::two")
    assert client.submit_batch(SERVICE, BYTES_A).seq == 1
    assert client.submit_batch("circuit::two", BYTES_A).seq == 1


def test_batches_of_one_call_keep_their_order_within_each_service(
    client: Client, world: World
) -> None:
    names = [world.add_service(f"circuit::s{number}") for number in range(3)]
    wanted = [
        (names[number % 3], unsigned_batch_list(derived_id(str(number)), b""), None)
        for number in range(30)
    ]
    stored = client.submit_batches(wanted)
    numbers: dict[str, list[int]] = {}
    for each in stored:
        assert isinstance(each, Stored)
        numbers.setdefault(each.service_id, []).append(each.seq)
    assert set(map(tuple, numbers.values())) == {tuple(range(1, 11))}


def test_a_batch_in_turn_is_rung_for_at_once(client: Client, world: World) -> None:
    instance = world.instances[0]
    instance.tick()
    client.submit_batch(SERVICE, BYTES_A)
    client.submit_batch(SERVICE, unsigned_batch_list(B, b""))
    assert [work.batch_id for work in instance.waiting] == [A, A]
    instance.waiting.clear()
    # And not again by the next tick, unless the message was lost.
    instance.tick()
    assert instance.waiting == []
    world.advance(world.settings.ledger_ring_again_s)
    instance.tick()
    assert [work.batch_id for work in instance.waiting] == [A]


def test_a_batch_is_stored_though_the_broker_is_unavailable(world: World) -> None:
    def away(works: Any) -> None:
        raise ConnectionError("no broker")

    instance = world.instance(ring=away)
    world.add_service()
    instance.tick()
    stored = make_client(instance.connections).submit_batch(SERVICE, BYTES_A)
    assert (stored.seq, stored.state) == (1, BatchState.NEW)
    # The instance has claimed it and cannot send messages, so it does the work itself.
    world.settle(instance, rounds=7)
    assert world.executed() == [A]


def test_waiting_for_a_batch_ends_with_it_or_with_the_time(client: Client, world: World) -> None:
    client.submit_batch(SERVICE, BYTES_A)
    with pytest.raises(WaitTimeout, match="still NEW"):
        client.wait_batch(SERVICE, A, timeout_s=0.05)
    world.settle(world.instances[0], rounds=3)
    assert client.wait_batch(SERVICE, A, timeout_s=0.05).state is BatchState.COMMITTED
    attempts, sightings = client.batch_history(SERVICE, A)
    assert len(attempts) == 1
    assert [each.state for each in sightings] == ["PENDING", "COMMITTED"]


def test_a_record_that_is_unavailable_is_named(world: World) -> None:
    port = pick_free_port()
    settings = Settings(database_url=f"postgresql://nobody@127.0.0.1:{port}/none")
    with Client.from_settings(settings) as client, pytest.raises(DatabaseUnavailable):
        client.submit_batch(SERVICE, BYTES_A)


# Services.


@pytest.mark.parametrize(
    ("name", "kind", "url", "words"),
    [
        ("s", "bitcoin", "http://127.0.0.1", "is no kind of ledger; there are sawtooth, scabbard"),
        ("s", "scabbard", "http://127.0.0.1", "must match"),
        ("a b", "sawtooth", "http://127.0.0.1", "must match"),
        ("x" * 200, "sawtooth", "http://127.0.0.1", "must match"),
        (5, "sawtooth", "http://127.0.0.1", "must match"),
        ("s", "sawtooth", "http://evil.example", "DATP_LEDGER__HOSTS"),
        ("s", "sawtooth", "http://169.254.169.254", "is not allowed"),
        ("s", "sawtooth", "gopher://127.0.0.1", "http:// or https://"),
    ],
)
def test_a_service_that_is_not_acceptable_is_refused(
    client: Client, world: World, name: Any, kind: str, url: str, words: str
) -> None:
    with pytest.raises(ServiceInvalid, match=words):
        client.add_service(name, kind=kind, url=url)
    assert world.sql("SELECT count(*) FROM ledger_service")[0][0] == 1


def test_a_service_can_move_but_not_become_another_kind(client: Client, world: World) -> None:
    client.submit_batch(SERVICE, BYTES_A)
    client.add_service(SERVICE, kind="scabbard", url="http://localhost:1")
    assert world.sql("SELECT url, last_seq FROM ledger_service")[0] == ("http://localhost:1", 1)
    with pytest.raises(ServiceInvalid, match="another kind"):
        client.add_service(SERVICE, kind="sawtooth", url="http://localhost:1")


def test_settings_in_which_a_submission_could_outlive_its_claim_are_refused(
    new_world: NewWorld,
) -> None:
    from datp_tasks.errors import SettingsError

    for wrong in (
        {"ledger_post_budget_s": 30},
        {"ledger_http_s": 25},
        {"ledger_http_s": 20, "ledger_post_budget_s": 20},
        {"ledger_grace_s": 20},
        {"ledger_claim_ttl_s": 2, "claim_queuer_period_s": 2},
        {"ledger_slow_ttl_s": 30},
        {"ledger_expiry": "two-phase", "ledger_post_budget_s": 180, "ledger_grace_s": 200},
    ):
        with pytest.raises(SettingsError, match="must be below"):
            Settings(**wrong)
    Settings(ledger_expiry="two-phase", ledger_post_budget_s=170, ledger_grace_s=200)


def test_an_owner_has_a_limit_in_a_line_and_another_is_not_held_up(
    new_world: NewWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_batches, "OWNER_BATCHES_MAX", 3)
    world = new_world()
    client = make_client(world.instance().connections)
    world.add_service()
    lists = [unsigned_batch_list(derived_id(str(n)), b"{}") for n in range(5)]
    answers = client.submit_batches([(SERVICE, each, None) for each in lists], owner="ann")
    kinds = [Stored, Stored, Stored, BatchLimit, BatchLimit]
    assert [type(each) for each in answers] == kinds
    with pytest.raises(BatchLimit, match="ann has 3 batches in the line"):
        client.submit_batch(SERVICE, lists[4], owner="ann")
    # What it has already is answered as before, and others have a limit of their own.
    assert client.submit_batch(SERVICE, lists[0], owner="ann").duplicate
    assert not client.submit_batch(SERVICE, BYTES_A, owner="bob").duplicate
    # One that is final makes room.
    world.sql(
        "UPDATE ledger_batch SET state = 'INVALID', final_at = now(), next_at = 'infinity' "
        "WHERE seq = 1 RETURNING seq"
    )
    assert not client.submit_batch(SERVICE, lists[4], owner="ann").duplicate
