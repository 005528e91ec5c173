"""Erasing an owner takes its data keys along, and never one that something still needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from datp_tasks import Pipeline, Sleep
from datp_tasks.errors import ExternalIdConflict, NoKeyRing
from datp_tasks.model.actor import Actor, Role
from datp_tasks.model.status import Status
from datp_tasks.operator.action_result import ActionResult
from datp_tasks.operator.erase import Chosen
from datp_tasks.runtime.clients import make_operator
from datp_tasks.runtime.container import Container
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from tests.support.archive_world import World

OPS = Actor(name="cli ops", role=Role.ADMIN)
ACME = Chosen(owner="acme")


@pytest.fixture
def world(datp_servers: Servers) -> Iterator[World]:
    kit = Kit(datp_servers)
    world = World(kit)

    @kit.step("t/pause")
    def wait(ctx: Any, data: dict[str, Any]) -> Any:
        if data.get("waits") and not ctx.switch("go"):
            return Sleep(switch="go", seconds=86_400)
        return data

    kit.use(Pipeline("pay", sealed=True).step("t/pause").build())
    yield world
    assert world.faults() == {}
    kit.close()


def erase(world: World, chosen: Chosen = ACME) -> tuple[list[ActionResult], int]:
    world.kit.clock.advance(seconds=61)
    world.archive()
    eraser = world.kit.operator.eraser
    tx_ids = [tx for page in eraser.search.choose(chosen) for tx in page]
    permit = eraser.permit(chosen, reason="request 7", actor=OPS)
    return list(eraser.erase(tx_ids, permit)), eraser.erase_keys(permit)


def submit(world: World, owner: str = "acme", **data: Any) -> str:
    external_id = data.pop("external_id", None)
    given = {"customer": "ann", **data}
    return world.kit.submit("pay", given, owner=owner, external_id=external_id)


def owners_with_keys(world: World) -> list[str]:
    return [row.owner for row in world.sql("SELECT owner FROM data_key ORDER BY owner")]


def test_the_keys_of_an_owner_go_with_all_else_of_it(world: World) -> None:
    submit(world)
    other = submit(world, "zeta")
    results, keys = erase(world)
    assert ([each.ok for each in results], keys) == ([True], 1)
    assert owners_with_keys(world) == ["zeta"]
    assert world.kit.status(other).input == {"customer": "ann"}
    [row] = world.sql("SELECT details::text AS d FROM operator_action ORDER BY id DESC LIMIT 1")
    assert "dataKeys" in row.d


def test_a_key_stays_while_something_sealed_with_it_cannot_be_erased(world: World) -> None:
    submit(world)
    asleep = submit(world, waits=True)
    results, keys = erase(world)
    assert (sorted(each.ok for each in results), keys) == ([False, True], 0)
    assert world.kit.set_switch(asleep, "go", True).status is Status.SUCCESS
    assert erase(world)[1] == 1
    assert owners_with_keys(world) == []


def test_a_process_that_kept_a_key_in_memory_seals_nothing_with_it_any_more(world: World) -> None:
    submit(world)
    kept = world.kit.connections.seals.vault.key_for("acme")
    assert erase(world)[1] == 1
    new = submit(world, amount=5)
    assert world.kit.connections.seals.vault.key_for("acme").id != kept.id
    world.kit.connections.seals.vault._known.clear()
    assert world.kit.status(new).input == {"customer": "ann", "amount": 5}


def test_a_repeated_request_starts_nothing_new_after_its_key_is_gone(world: World) -> None:
    submit(world, external_id="pay-1")
    erase(world)
    world.kit.connections.seals.vault._known.clear()
    with pytest.raises(ExternalIdConflict, match="erased"):
        submit(world, external_id="pay-1")
    assert len(world.sql("SELECT tx_id FROM tx_summary")) == 1


def test_one_transaction_is_erased_without_the_key_of_its_owner(world: World) -> None:
    submit(world, external_id="pay-1")
    kept = submit(world, external_id="pay-2")
    assert erase(world, Chosen(owner="acme", external_id="pay-1"))[1] == 0
    assert world.kit.status(kept).input == {"customer": "ann"}


def test_a_subject_is_found_in_sealed_payloads(world: World) -> None:
    tx_id = submit(world)
    submit(world, customer="bob")
    results, _ = erase(world, Chosen(subject="/customer=ann"))
    assert [each.tx_id for each in results] == [tx_id]


def test_a_subject_is_not_looked_for_without_the_key_ring(world: World) -> None:
    """It would be told as erased, and be there."""
    submit(world)
    kit = world.kit
    settings = replace(kit.settings, keyring="")
    container = Container.open(settings, clock=kit.clock, send=kit.send)
    with make_operator(container) as operator, pytest.raises(NoKeyRing):
        list(operator.eraser.search.choose(Chosen(subject="/customer=ann")))


def test_what_people_were_asked_about_it_goes_as_well(world: World) -> None:
    kit = world.kit
    kit.use(Pipeline("ask").step("util/approval", params={"note": "pay {{customer}}"}).build())
    tx_id = kit.submit("ask", {"customer": "ann"}, owner="acme")
    bob = Actor(name="key bob1", owner="bob", role=Role.ADMIN)
    [asked] = kit.operator.approvals.store.page(subject=tx_id)
    kit.operator.approvals.approve(asked.id, bob, note="ann is fine")
    assert kit.finish(tx_id).status is Status.SUCCESS
    assert [each.ok for each in erase(world)[0]] == [True]
    left = world.sql("SELECT a::text || d::text AS said FROM approval a, approval_decision d")
    assert [row.said for row in left if "ann" in row.said] == []
    assert kit.operator.approvals.store.one(asked.id).decided_at
