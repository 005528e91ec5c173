"""What was erased is not found by what people had searched for, or written about it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from datp_tasks import Pipeline
from datp_tasks.model.actor import Actor, Role
from datp_tasks.operator.erase import Chosen
from datp_tasks.operator.selection import Where
from datp_tasks.record.audit_chain import AuditChain
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from tests.support.archive_world import World
from tests.support.search_everywhere import places_with

SECRET = "ann-of-cleves"
OPS = Actor(name="cli ops", role=Role.ADMIN)
SEARCH = {
    "customer": {"from": "input.customer", "type": "string"},
    "currency": {"from": "input.currency", "type": "string"},
}


@pytest.fixture
def world(datp_servers: Servers) -> Iterator[World]:
    kit = Kit(datp_servers)
    world = World(kit)
    kit.use(Pipeline("found", search=SEARCH).step("t/book").build())
    yield world
    kit.close()


def paid(world: World, customer: str, external_id: str) -> str:
    data = {"customer": customer, "currency": "EUR", "amount": 5}
    tx_id = world.kit.submit("found", data, external_id=external_id)
    assert world.kit.status(tx_id).is_final
    return tx_id


def searched(world: World, customer: str, reason: str = "stuck") -> None:
    """In bulk actions, in a request for approval, in saved views, in kept answers."""
    for attributes in ({"customer[eq]": customer}, {"customer[prefix]": customer[:6]}):
        where = Where(attributes={**attributes, "currency": "EUR"})
        list(world.kit.operator.act_on_many("retry", where, [], reason=reason, actor=OPS))
    world.sql(
        """
        WITH a AS (
            INSERT INTO approval (action, subject, params, params_hash, version, requested_by,
                requester, reason, needed, role, persons, state, created_at, expires_at)
            VALUES ('bulk.cancel', '3 transactions ' || md5(:c),
                json_build_object('action', 'cancel', 'count', 3,
                'where', json_build_object('attributes',
                json_build_object('customer[eq]', :c))), 'h', '', 'ann', 'key ann', :reason, 1,
                'approver', '[]', 'pending', now(), now() + interval '1 day')
            RETURNING id
        ), b AS (
            INSERT INTO operator_action (actor, action, subject, reason)
            SELECT 'ann', 'approval.ask', 'approval ' || id, :reason FROM a
        )
        INSERT INTO saved_view (person, name, query)
        VALUES ('bob', 'hers ' || md5(:c),
                'status=failed&attr=customer%3D' || :c || '%2C+amount%3E%3D5')
        """,
        c=customer,
        reason=reason,
    )


def erase(world: World, chosen: Chosen) -> int:
    world.kit.clock.advance(seconds=61)
    world.archive()
    eraser = world.kit.operator.eraser
    tx_ids = [tx for page in eraser.search.choose(chosen) for tx in page]
    permit = eraser.permit(chosen, reason="request 7", actor=OPS)
    assert all(done.ok for done in eraser.erase(tx_ids, permit))
    return eraser.erase_mentions(permit)


def test_filters_that_name_an_erased_value_go_with_the_last_that_had_it(world: World) -> None:
    paid(world, SECRET, "one")
    paid(world, SECRET, "two")
    paid(world, "bob-of-york", "three")
    searched(world, SECRET)
    searched(world, "bob-of-york")
    chain = AuditChain(world.kit.connections.engine)
    chain.seal(rows_max=100)
    erase(world, Chosen(owner="local", external_id="one"))
    # Her other payment still has it.
    assert {"operator_action", "approval", "saved_view"} <= {*places_with(world.kit, SECRET)}
    erase(world, Chosen(owner="local", external_id="two"))
    assert places_with(world.kit, SECRET) == []
    assert places_with(world.kit, f'"{SECRET[:6]}"') == []
    chain.seal(rows_max=100)
    assert chain.verify().faults == []
    # What it has in common with others is still there, and so are the others.
    found = world.sql(
        "SELECT details::text AS said FROM operator_action WHERE action = 'bulk-retry'"
    )
    assert sum("EUR" in row.said and "bob-of" in row.said for row in found) == 2
    assert [row.query for row in world.sql("SELECT query FROM saved_view")] == [
        "status=failed&attr=customer%3Dbob-of-york%2C+amount%3E%3D5"
    ]
    # A request that waits can still be carried out.
    rows = world.sql("SELECT params::text AS said FROM approval ORDER BY id")
    params = [json.loads(row.said) for row in rows]
    assert [(each["action"], each["count"]) for each in params] == [("cancel", 3)] * 2
    assert [each["where"].get("erased") for each in params] == [True, None]


def test_what_people_wrote_about_a_subject_goes_with_it(world: World) -> None:
    paid(world, SECRET, "one")
    paid(world, "bob-of-york", "two")
    searched(world, "bob-of-york", reason=f"{SECRET.upper()} called")
    searched(world, "kim-of-bath", reason=f"{SECRET}ter called")
    world.sql(
        """
        WITH a AS (
            INSERT INTO idempotency_key (owner, key, request_hash, begun_at, held_until, status,
                                         headers, body)
            VALUES ('local', 'k', '', now(), now(), 422, '{}', '{"detail": "was ' || :s || '"}'),
                   ('local', 'l', '', now(), now(), 422, '{}', '{"detail": "was bob"}')
        )
        INSERT INTO alert (kind, subject, summary) VALUES ('x', 'y', 'about ' || :s)
        """,
        s=SECRET,
    )
    chain = AuditChain(world.kit.connections.engine)
    chain.seal(rows_max=100)
    assert erase(world, Chosen(subject=f"/customer={SECRET}")) == 6
    assert erase(world, Chosen(subject=f"/customer={SECRET}")) == 0
    for text in (SECRET, SECRET.upper()):
        left = {*places_with(world.kit, text)} - {*places_with(world.kit, f"{text}ter")}
        assert left == set()
    assert len(world.sql("SELECT 1 FROM idempotency_key")) == 1
    said = world.sql("SELECT reason FROM operator_action WHERE reason LIKE '%ter called'")
    assert len(said) == 3
    chain.seal(rows_max=100)
    assert chain.verify().faults == []


def test_texts_that_no_erasure_names_are_missed_by_the_audit(world: World) -> None:
    searched(world, SECRET)
    chain = AuditChain(world.kit.connections.engine)
    chain.seal(rows_max=100)
    world.sql(
        """
        UPDATE operator_action SET reason = NULL, details = json_build_object(
            'erased', encode(sha256(convert_to(details::text, 'UTF8')), 'hex'),
            'erasedReason', encode(sha256(convert_to(reason, 'UTF8')), 'hex'))
        WHERE action = 'bulk-retry'
        """
    )
    assert len(chain.verify().faults) == 2
