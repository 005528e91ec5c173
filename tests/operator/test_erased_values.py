"""What was erased is not found by what people had searched for; what is about others stays."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import event

from datp_tasks import Pipeline
from datp_tasks.errors import ApprovalOver
from datp_tasks.model.actor import Actor, Role
from datp_tasks.operator.erase import Chosen
from datp_tasks.operator.selection import TransfersOfBulk, Where
from datp_tasks.record import erased_values, erasure
from datp_tasks.record.audit_chain import AuditChain
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from tests.support.archive_world import World
from tests.support.eventually import eventually
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


def paid(world: World, customer: str, external_id: str, owner: str = "local") -> str:
    data = {"customer": customer, "currency": "EUR", "amount": 5}
    tx_id = world.kit.submit("found", data, external_id=external_id, owner=owner)
    assert world.kit.status(tx_id).is_final
    return tx_id


def ask(world: World, action: str, subject: str, params: Any, **more: Any) -> int:
    """A request for approval in any state."""
    given = {"reason": "stuck", "state": "rejected", "break_glass": False, "note": None} | more
    [row] = world.sql(
        """
        WITH a AS (
            INSERT INTO approval (action, subject, params, params_hash, version, requested_by,
                requester, reason, needed, role, persons, state, break_glass, note, created_at,
                expires_at, decided_at)
            VALUES (:action, :subject, :params, 'h', '', 'ann', 'key ann', :reason, 1,
                'approver', '[]', :state, :break_glass, :note, now(), now() + interval '1 day',
                CASE WHEN :state <> 'pending' THEN now() END)
            RETURNING id
        ), b AS (
            INSERT INTO operator_action (actor, action, subject, reason)
            SELECT 'ann', 'approval.ask', 'approval ' || id, :reason FROM a
        )
        SELECT id FROM a
        """,
        action=action,
        subject=subject,
        params=json.dumps(params),
        **given,
    )
    return int(row.id)


def searched(world: World, customer: str, reason: str = "stuck", **where: Any) -> None:
    """In bulk actions, in a request for approval, in saved views."""
    for attributes in ({"customer[eq]": customer}, {"customer[prefix]": customer[:6]}):
        chosen = Where(attributes={**attributes, "currency": "EUR"}, **where)
        list(world.kit.operator.act_on_many("retry", chosen, [], reason=reason, actor=OPS))
    given = {"attributes": {"customer[eq]": customer}}
    params = {"action": "cancel", "count": 3, "where": given}
    ask(world, "bulk.cancel", f"3 transactions {customer[:9]}", params, reason=reason)
    query = f"status=failed&attr=customer%3D{customer}%2C+amount%3E%3D5"
    view(world, f"view of {len(customer)}", query)


def view(world: World, name: str, query: str) -> None:
    add = "INSERT INTO saved_view (person, name, query) VALUES ('bob', :name, :q)"
    world.sql(add, name=name, q=query)


def erase(world: World, chosen: Chosen) -> list[str]:
    """What became of each."""
    world.kit.clock.advance(seconds=61)
    world.archive()
    eraser = world.kit.operator.eraser
    tx_ids = [tx for page in eraser.search.choose(chosen) for tx in page]
    permit = eraser.permit(chosen, reason="request 7", actor=OPS)
    return [done.what for done in eraser.erase(tx_ids, permit)]


def rows(world: World, table: str) -> list[str]:
    return [row.said for row in world.sql(f"SELECT t::text AS said FROM {table} t ORDER BY 1")]


def bulk_rows(world: World) -> list[Any]:
    found = world.sql(
        "SELECT reason, details::text AS d FROM operator_action "
        "WHERE action LIKE 'bulk%' ORDER BY id"
    )
    return [(row.reason, json.loads(row.d)) for row in found]


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
    assert erase(world, Chosen(owner="local", external_id="two")) == ["erased"]
    assert places_with(world.kit, SECRET) == []
    assert places_with(world.kit, f'"{SECRET[:6]}"') == []
    # What was done, to how many and why is still there, and so are the others.
    hers, others = bulk_rows(world)[:2], bulk_rows(world)[2:]
    left = {"where": {"attributes": {"currency": "EUR"}}, "count": 0}
    assert [(reason, each["kept"]) for reason, each in hers] == [("stuck", left)] * 2
    assert all(each["where"]["attributes"]["currency"] == "EUR" for _, each in others)
    assert [row.query for row in world.sql("SELECT query FROM saved_view")] == [
        "status=failed&attr=customer%3Dbob-of-york%2C+amount%3E%3D5"
    ]
    said = world.sql("SELECT params::text AS said, reason FROM approval ORDER BY id")
    params = [json.loads(row.said) for row in said]
    assert [(each["action"], each["count"]) for each in params] == [("cancel", 3)] * 2
    assert [each["where"].get("erased") for each in params] == [True, None]
    assert [row.reason for row in said] == ["stuck"] * 2
    chain.seal(rows_max=100)
    assert chain.verify().faults == []
    # What is left of a row is covered by the chain as well.
    world.sql(
        "UPDATE operator_action SET details = replace(details::text, :a, :b)::json "
        "WHERE details ->> 'kept' IS NOT NULL",
        a='"count":0',
        b='"count":9',
    )
    assert len(chain.verify().faults) == 2


def test_requests_that_wait_are_never_changed_by_an_erasure(world: World) -> None:
    """People would agree to something else than they were asked for."""
    tx_id, living = paid(world, SECRET, "one"), paid(world, "bob-of-york", "two")
    said = {"reason": f"{SECRET} called"}
    done = {"decision": "done", "output": {"paid": 7}}
    bulk = {"action": "cancel", "count": 1, "where": {"attributes": {"customer": SECRET}}}
    for state in ("pending", "approved"):
        ask(world, "resolve.done", f"{living}-{state}", done, state=state, **said)
        ask(world, "pipeline.use", f"p-{state}", {"version": "1"}, state=state, **said)
        many = ask(world, "bulk.cancel", f"1 transactions {state}", bulk, state=state, **said)
        world.sql("INSERT INTO approval_item VALUES (:id, :tx)", id=many, tx=living)
    before = rows(world, "approval")
    over = ask(world, "resolve.fail", tx_id, {"decision": "fail", "output": {"of": SECRET}})
    stale = ask(world, "resolve.done", tx_id, done, state="pending", **said)
    held = ask(world, "resolve.redo", tx_id, {**done, "decision": "redo"}, state="approved")
    [refused] = erase(world, Chosen(subject=f"/customer={SECRET}"))
    assert f"approval {held} about it is being carried out" in refused
    world.sql("UPDATE approval SET state = 'rejected' WHERE id = :id", id=held)
    assert erase(world, Chosen(subject=f"/customer={SECRET}")) == ["erased"]
    assert {*before} <= {*rows(world, "approval")}
    found = [world.kit.operator.approvals.store.one(each) for each in (over, stale, held)]
    assert [(each.state, each.params["decision"]) for each in found] == [
        *(("rejected", "fail"), ("stale", "done"), ("rejected", "redo")),
    ]
    assert all(each.params["output"] is None and each.reason == "erased" for each in found)
    bob = Actor(name="key bob", owner="bob", role=Role.APPROVER)
    with pytest.raises(ApprovalOver):
        world.kit.operator.approvals.approve(stale, bob)
    [noted] = world.sql("SELECT subject FROM operator_action WHERE action = 'approval.stale'")
    assert noted.subject == f"approval {stale}"


def test_what_is_about_others_stays_although_it_says_the_subject(world: World) -> None:
    """Else an insider could erase a word of the reason for which the glass was broken."""
    tx_id, living = paid(world, SECRET, "one"), paid(world, "bob-of-york", "two")
    broken = {"reason": f"{SECRET} called", "state": "executed", "break_glass": True}
    world.sql("ALTER TABLE approval DROP CONSTRAINT approval_executed")
    ask(world, "resolve.done", living, {"decision": "done", "output": None}, **broken)
    view(world, "all", f"q={SECRET}")
    world.sql(
        """
        WITH a AS (
            INSERT INTO idempotency_key (owner, key, request_hash, begun_at, held_until, status,
                                         headers, body)
            VALUES ('zeta', 'k', '', now(), now(), 422, '{}', '{"detail": "was ' || :s || '"}')
        ), b AS (
            INSERT INTO operator_action (actor, action, subject, reason, details)
            VALUES ('o', 'resolve', :living, 'not of ' || :s, '{"decision": "done", "output": 7}')
        )
        INSERT INTO alert (kind, subject, summary) VALUES ('break-glass', 'approval 1', :s)
        """,
        s=SECRET,
        living=living,
    )
    tables = ("operator_action", "alert", "approval", "idempotency_key", "saved_view")
    before = {table: {*rows(world, table)} for table in tables}
    # Also where nothing is found.
    assert erase(world, Chosen(subject="/customer=called")) == []
    assert erase(world, Chosen(subject=f"/customer={SECRET}")) == ["erased"]
    for table in tables:
        assert before[table] <= {*rows(world, table)}, table
    # What one person did alone to it is looked into by another first.
    second = paid(world, SECRET, "three")
    number = ask(world, "resolve.done", second, {"decision": "done"}, **broken)
    assert f"approval {number}" in erase(world, Chosen(subject=f"/customer={SECRET}"))[0]
    world.sql("UPDATE approval SET closed_by = 'bob' WHERE id = :id", id=number)
    assert erase(world, Chosen(subject=f"/customer={SECRET}")) == ["erased"]
    assert tx_id != second


def test_a_value_of_one_owner_stays_in_the_filters_of_others(world: World) -> None:
    paid(world, SECRET, "one", owner="acme")
    paid(world, "bob-of-york", "two", owner="zeta")
    for owner in ("acme", "zeta", None):
        where = Where(attributes={"currency": "EUR"}, owner=owner)
        list(world.kit.operator.act_on_many("wake", where, [], reason="EUR", actor=OPS))
        params = {"action": "wake", "count": 1, "where": where.to_json()}
        ask(world, "bulk.wake", f"1 transactions {owner}", params)
        view(world, f"of {owner}", "attr=currency%3DEUR" + (f"&owner={owner}" if owner else ""))

    def left() -> list[list[bool]]:
        found = world.sql("SELECT params::text AS p FROM approval ORDER BY id")
        names = [row.name for row in world.sql("SELECT name FROM saved_view")]
        return [
            ["EUR" in json.dumps(each) for _, each in bulk_rows(world)],
            ["EUR" in row.p for row in found],
            [f"of {owner}" in names for owner in ("acme", "zeta", None)],
        ]

    paid(world, SECRET, "zero", owner="acme")
    assert erase(world, Chosen(owner="acme", external_id="zero")) == ["erased"]
    assert left() == [[True] * 3] * 3
    assert erase(world, Chosen(owner="acme", external_id="one")) == ["erased"]
    assert left() == [[False, True, True]] * 3
    # The last of all owners.
    assert erase(world, Chosen(owner="zeta", external_id="two")) == ["erased"]
    assert left() == [[False] * 3] * 3


def test_a_value_is_found_in_reasons_and_names_however_it_is_written(world: World) -> None:
    name, long = "\u00e4nne m\u00fcller", "x" * 230
    paid(world, name, "one")
    paid(world, long, "two")
    searched(world, name, reason="A\u0308NNE M\u00dcLLER called")
    searched(world, long, reason=f"of {long}")
    searched(world, "\u00e4nne m\u00fcllers", reason="\u00e4nne m\u00fcllers called")
    view(world, "\u00c4nne M\u00fcller", "status=failed")
    assert erase(world, Chosen(owner="local")) == ["erased"] * 2
    assert [reason for reason, _ in bulk_rows(world)] == [None] * 4 + [
        "\u00e4nne m\u00fcllers called"
    ] * 2
    said = [row.reason for row in world.sql("SELECT reason FROM approval ORDER BY id")]
    assert said == ["erased"] * 2 + ["\u00e4nne m\u00fcllers called"]
    asked = world.sql("SELECT reason FROM operator_action WHERE action = 'approval.ask'")
    assert sum(row.reason is None for row in asked) == 2
    views = world.sql("SELECT name, query FROM saved_view ORDER BY query")
    assert [row.query for row in views if not row.name.startswith("view of")] == ["status=failed"]
    assert len(views) == 2
    chain = AuditChain(world.kit.connections.engine)
    chain.seal(rows_max=100)
    assert chain.verify().faults == []


def test_why_a_bulk_was_cancelled_goes_with_it(world: World) -> None:
    bulk, one, two = (paid(world, f"{name}-of-york", name) for name in ("bulk", "one", "two"))
    of_bulk = TransfersOfBulk(bulk)
    list(world.kit.operator.act_on_many("cancel", of_bulk, [], reason="ann asked", actor=OPS))
    params = {"action": "cancel", "count": 2, "where": of_bulk.to_json()}
    ask(world, "bulk.cancel", "2 transactions x", params, reason="ann asked")
    world.sql(
        "INSERT INTO operator_action (actor, action, subject, reason, details) VALUES "
        "('o', 'bulk-transfer.cancel', 'elsewhere', 'ann asked', :d)",
        d=json.dumps({"txIds": [one, two]}),
    )
    erase(world, Chosen(owner="local", external_id="one"))
    assert [reason for reason, _ in bulk_rows(world)] == ["ann asked"] * 2
    erase(world, Chosen(owner="local", external_id="two"))
    assert [reason for reason, _ in bulk_rows(world)] == ["ann asked", None]
    erase(world, Chosen(owner="local", external_id="bulk"))
    assert [reason for reason, _ in bulk_rows(world)] == [None, None]
    assert bulk_rows(world)[1][1]["kept"] == {"txIds": [one, two]}
    assert places_with(world.kit, "ann asked") == []


def test_a_row_that_was_erased_in_part_is_looked_at_again(world: World) -> None:
    """The first erasure takes one condition out of it, the second the other and the reason."""
    paid(world, SECRET, "one")
    world.kit.submit("found", {"customer": "bob-of-york", "currency": "CHF"}, external_id="two")
    where = Where(attributes={"customer[eq]": SECRET, "currency": "CHF"}, owner="local")
    reason = f"{SECRET} called"
    list(world.kit.operator.act_on_many("wake", where, [], reason=reason, actor=OPS))
    params = {"action": "wake", "count": 1, "where": where.to_json()}
    ask(world, "bulk.wake", "1 transactions x", params, reason=reason)
    chain = AuditChain(world.kit.connections.engine)
    chain.seal(rows_max=100)
    assert erase(world, Chosen(owner="local", external_id="two")) == ["erased"]
    [(said, details)] = bulk_rows(world)
    assert (said, details["kept"]["where"]["attributes"]) == (reason, {"customer[eq]": SECRET})
    assert erase(world, Chosen(owner="local", external_id="one")) == ["erased"]
    [(said, details)] = bulk_rows(world)
    assert (said, details["kept"]) == (None, {"where": {"owner": "local"}, "count": 0})
    assert places_with(world.kit, SECRET) == []
    chain.seal(rows_max=100)
    assert chain.verify().faults == []


def test_a_request_about_many_of_which_none_is_left_is_set_aside_and_says_nothing(
    world: World,
) -> None:
    """Also one that was chosen by owner or status, so that no value of theirs is in its filter."""
    one, two = paid(world, SECRET, "one"), paid(world, "bob-of-york", "two")
    where = Where(owner="local", status=None)
    params = {"action": "cancel", "count": 2, "where": where.to_json()}
    said = {"reason": "ann asked for it"}
    waits = ask(world, "bulk.cancel", "2 transactions x", params, state="pending", **said)
    over = ask(world, "bulk.cancel", "2 transactions y", params, **said)
    for number in (waits, over):
        for tx_id in (one, two):
            world.sql("INSERT INTO approval_item VALUES (:id, :tx)", id=number, tx=tx_id)
    world.sql(
        "INSERT INTO operator_action (actor, action, subject, reason, details) "
        "VALUES ('o', 'bulk-cancel', 'transactions', 'ann asked for it', :d)",
        d=json.dumps({"where": where.to_json(), "count": 2, "approval": over}),
    )

    def standing() -> list[tuple[str, str]]:
        found = world.sql("SELECT state, reason FROM approval ORDER BY id")
        return [(row.state, row.reason) for row in found]

    erase(world, Chosen(owner="local", external_id="one"))
    assert standing() == [("pending", said["reason"]), ("rejected", said["reason"])]
    erase(world, Chosen(owner="local", external_id="two"))
    assert standing() == [("stale", "erased"), ("rejected", "erased")]
    assert places_with(world.kit, "ann asked for it") == []


@pytest.mark.parametrize("item", ["open", "taken", "done"])
def test_one_of_many_is_refused_and_not_waited_for_while_they_are_acted_on(
    world: World, item: str
) -> None:
    """Else its value would stay in the filter for ever: a request is changed only when over."""
    one, two = paid(world, SECRET, "one"), paid(world, "bob-of-york", "two")
    where = {"attributes": {"customer": SECRET}}
    params = {"action": "cancel", "count": 2, "where": where}
    number = ask(world, "bulk.cancel", "2 transactions x", params, state="approved")
    add = "INSERT INTO approval_item (approval_id, tx_id, state) VALUES (:id, :tx, :state)"
    for tx_id, state in ((one, item), (two, "open")):
        world.sql(add, id=number, tx=tx_id, state=state)
    engine = world.kit.connections.engine

    def hurry(connection: Any) -> None:
        connection.exec_driver_sql("SET LOCAL lock_timeout = '500ms'")

    with world.kit.operator.approvals.store.carrying_out(number) as held:
        assert held is not None
        event.listen(engine, "begin", hurry)
        try:
            [refused] = erase(world, Chosen(owner="local", external_id="one"))
        finally:
            event.remove(engine, "begin", hurry)
    assert f"approval {number} about it is being carried out" in refused
    world.sql("UPDATE approval SET state = 'executed', executed_at = now()")
    assert erase(world, Chosen(owner="local", external_id="one")) == ["erased"]
    assert "approval" not in places_with(world.kit, SECRET)


def test_why_a_bulk_was_cancelled_goes_with_the_last_of_its_transfers(world: World) -> None:
    bulk, one, two, other = (paid(world, "ann-of-york", name) for name in ("b", "1", "2", "o"))
    # As one commit accepts a bulk and its transfers; the other came later.
    moment = "(SELECT created_at FROM tx_summary WHERE tx_id = :bulk)"
    for tx_id, change in (
        *((bulk, f"no_return_at = {moment}"), (one, f"created_at = {moment}")),
        *((two, f"created_at = {moment}"), (other, f"created_at = {moment} + interval '1 s'")),
    ):
        update = f"UPDATE tx_summary SET {change} WHERE tx_id = :tx"
        world.sql(update, tx=tx_id, **({"bulk": bulk} if ":bulk" in change else {}))
    cancel = world.kit.operator.act_on_many
    list(cancel("cancel", TransfersOfBulk(bulk), [], reason="ann asked", actor=OPS))
    world.sql(
        "INSERT INTO operator_action (actor, action, subject, reason, details) "
        "VALUES ('o', 'bulk-transfer.cancel', :bulk, 'ann asked', :d)",
        bulk=bulk,
        d=json.dumps({"count": 2, "hash": "h"}),
    )
    erase(world, Chosen(owner="local", external_id="1"))
    assert [reason for reason, _ in bulk_rows(world)] == ["ann asked"] * 2
    erase(world, Chosen(owner="local", external_id="2"))
    assert [reason for reason, _ in bulk_rows(world)] == [None, None]
    assert places_with(world.kit, "ann asked") == []


def test_of_two_erasures_at_once_one_takes_the_last_value(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = paid(world, SECRET, "one"), paid(world, SECRET, "two")
    searched(world, SECRET)
    world.kit.clock.advance(seconds=61)
    world.archive()
    eraser = world.kit.operator.eraser
    permit = eraser.permit(Chosen(owner="local"), reason="request 7", actor=OPS)
    drop_views, is_done = erased_values.drop_views, threading.Event()

    def slowly(connection: Any, values: Any) -> int:
        # The other one has time to look, and with a lock it waits.
        if threading.current_thread() is threading.main_thread():
            other.start()
            is_done.wait(0.3)
        return drop_views(connection, values)

    def erase_other() -> None:
        eraser.erasure.erase([two], permit.order)
        is_done.set()

    other = threading.Thread(target=erase_other)
    monkeypatch.setattr(erasure, "drop_views", slowly)
    assert eraser.erasure.erase([one], permit.order) == {}
    other.join(10)
    assert {"operator_action", "approval", "saved_view"}.isdisjoint(places_with(world.kit, SECRET))


def test_one_who_decides_about_a_batch_and_an_erasure_do_not_wait_for_each_other(
    world: World,
) -> None:
    engine = world.kit.connections.engine
    world.kit.client.add_service("books", kind="sawtooth", url="http://127.0.0.1:9")
    world.sql(
        "INSERT INTO ledger_batch (service_id, batch_id, seq, owner, fingerprint, payload, state, "
        "next_at, created_at, final_at) VALUES ('books', 'b', 1, 'local', '', 'x', 'COMMITTED', "
        "now(), now(), now())"
    )
    number = ask(world, "batch.resolve", "books/b", {"to": "INVALID"})
    eraser = world.kit.operator.eraser
    order = eraser.permit(Chosen(owner="local"), reason="request 7", actor=OPS).order
    done: list[int] = []
    run = threading.Thread(
        target=lambda: done.append(eraser.erasure.erase_batches_of("local", order, rows_max=9))
    )
    with engine.begin() as approver:
        world.kit.operator.approvals.store.locked(approver, number)
        run.start()
        eventually(
            lambda: world.sql("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
        )
        # What the decision does next; a batch that the erasure holds would be waited for in vain.
        approver.exec_driver_sql(
            "SELECT 1 FROM ledger_batch WHERE batch_id = 'b' FOR UPDATE NOWAIT"
        )
    run.join(10)
    assert done == [1]


def test_other_owners_are_looked_at_only_for_a_filter_that_is_about_all(world: World) -> None:
    """For each text that is erased, a look at each owner would be thousands times thousands."""
    mine = [paid(world, SECRET, f"e{number}") for number in range(3)]
    world.sql(
        "INSERT INTO tx_attribute (tx_id, owner, name, value) "
        "SELECT 't' || n, 'owner' || n, 'customer', 's' || n FROM generate_series(1, 300) n"
    )
    asked: list[str] = []

    def note(_: Any, __: Any, statement: str, *___: Any) -> None:
        asked.append(statement)

    engine = world.kit.connections.engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        with engine.begin() as connection:
            gone = erased_values.values_gone(connection, mine)
            looks = [each for each in asked if "owners" in each]
            assert ({(each.name, each.value) for each in gone}, looks) == (
                {("customer", SECRET), ("currency", "EUR")},
                [],
            )
            # The same for a filter of one owner; one about all is looked up.
            where = Where(attributes={"customer": SECRET}, owner="local")
            list(world.kit.operator.act_on_many("wake", where, [], reason="x", actor=OPS))
            assert not any(each.is_last for each in erased_values.values_gone(connection, mine))
            where = Where(attributes={"customer": SECRET})
            list(world.kit.operator.act_on_many("wake", where, [], reason="x", actor=OPS))
            gone = erased_values.values_gone(connection, mine)
            assert [each.name for each in gone if each.is_last] == ["customer"]
            plan = connection.exec_driver_sql(
                f"EXPLAIN (ANALYZE, TIMING off) {erased_values.Query.values_gone}",
                {"tx_id": mine},
            )
            text = "\n".join(row[0] for row in plan)
            # Three transactions have two texts: each text is probed once.
            probes = [int(n) for n in re.findall(r"tx_attribute o .*loops=(\d+)", text)]
            assert probes and sum(probes) <= 2, text
    finally:
        event.remove(engine, "before_cursor_execute", note)


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
