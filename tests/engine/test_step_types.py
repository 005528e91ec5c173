"""Which step types there are, and what they say of themselves: in the register, CLI and API."""

from __future__ import annotations

import json
from typing import Any

import pytest
import typer
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from datp_tasks.cli import step_types as command
from datp_tasks.engine.heartbeat import DESCRIBED_EVERY
from datp_tasks.engine.registry import Registry, discover, registry
from datp_tasks.engine.step_types import BUILTIN, list_step_types, show_step_type
from datp_tasks.errors import StepTypeInvalid, StepTypeUnknown
from datp_tasks.live.nodes import live_nodes
from datp_tasks.testing.kit import Kit
from tests.support.command_parts import command_parts

SCHEMA = {"type": "object", "properties": {"bank": {"type": "string"}}, "required": ["bank"]}


@pytest.fixture
def kit(datp: Kit) -> Kit:
    @datp.step("bank/reserve", parameters=SCHEMA, default={"bank": "north"}, transactional=True)
    def reserve(ctx: Any, data: dict[str, Any]) -> None:
        """Holds money."""

    datp.process.heartbeat.join(frozenset({"kyc"}))
    return datp


#: What they need is in the input alone.
WITHOUT_PARAMS = {"util/bulk-transfer"}


def shipped() -> list[str]:
    discover(())
    return [n for n in registry.names() if registry.get(n).function.__module__.startswith(BUILTIN)]


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_step_type_says_what_it_is_for_and_its_default_is_right(name: str) -> None:
    step_type = registry.get(name)
    about = step_type.described()
    assert about["description"].endswith(".")
    Draft202012Validator.check_schema(about["parameters"])
    assert bool(about["parameters"]["properties"]) == (name not in WITHOUT_PARAMS)
    params = about["defaultDefinition"]["params"]
    assert step_type.check_function is not None and step_type.check_function(params) == []
    Draft202012Validator(about["parameters"]).validate(params)


def test_the_list_is_what_live_nodes_offer_and_what_comes_along(kit: Kit) -> None:
    found = {each.name: each for each in list_step_types(kit.connections.live)}
    assert found.keys() >= {*shipped(), "bank/reserve"}
    mine = found["bank/reserve"]
    assert (mine.groups, mine.nodes, mine.description) == (("kyc",), 1, "Holds money.")
    shown = mine.to_json()
    assert shown["parameters"] == SCHEMA
    assert shown["defaultDefinition"] == {"type": "bank/reserve", "params": {"bank": "north"}}
    assert (shown["transactional"], shown["onCrash"]) == (True, "rerun")
    assert shown["version"] and shown["buildTime"]
    [node] = [n for n in live_nodes(kit.connections.redis, kit.connections.live.keys)][-1:]
    assert node.record["buildTime"] == shown["buildTime"]


def test_without_a_live_node_the_shipped_ones_are_left(kit: Kit) -> None:
    with_node = {each.name: each.about for each in list_step_types(kit.connections.live)}
    kit.process.heartbeat.stop()
    kit.connections.live.redis.delete(kit.connections.live.keys.outside("stepTypesH"))
    left = list_step_types(kit.connections.live)
    assert [each.name for each in left] == sorted(shipped())
    for each in left:
        shown = each.to_json()
        assert (shown["groups"], shown["nodes"]) == ([], 0)
        assert shown["description"].endswith(".") and shown["parameters"]["type"] == "object"
        assert shown["defaultDefinition"]["type"] == each.name
        # A node adds which release it is of.
        assert each.about.items() <= with_node[each.name].items()
    with pytest.raises(StepTypeUnknown):
        show_step_type(kit.connections.live, "bank/reserve")


def test_after_a_loss_of_redis_nodes_describe_their_types_again(kit: Kit) -> None:
    live = kit.connections.live
    live.redis.delete(live.keys.outside("stepTypesH"))
    assert show_step_type(live, "bank/reserve").description == ""
    for _ in range(DESCRIBED_EVERY):
        kit.process.heartbeat.beat_once()
    assert show_step_type(live, "bank/reserve").description == "Holds money."


@pytest.mark.parametrize("given", [{"parameters": {"x": {1}}}, {"default": {"x": float("nan")}}])
def test_what_is_no_json_is_refused_where_it_is_declared(given: dict[str, Any]) -> None:
    with pytest.raises(StepTypeInvalid, match="must be a JSON object"):
        Registry().step("t/x", **given)(lambda ctx, data: None)


def test_the_command_lists_and_shows_them(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "connect", lambda: command_parts(kit))
    monkeypatch.setenv("COLUMNS", "120")
    app = typer.Typer()
    command.add_commands(app)
    run = CliRunner().invoke
    listed = run(app, ["steps", "list"], catch_exceptions=False).output
    assert "bank/reserve" in listed and "util/delay" in listed
    shown = run(app, ["steps", "show", "bank/reserve", "--json"], catch_exceptions=False).output
    assert json.loads(shown)["parameters"] == SCHEMA
    text = run(app, ["steps", "show", "util/delay"], catch_exceptions=False).output
    assert "minSeconds" in text and "Sleeps for some time" in text
