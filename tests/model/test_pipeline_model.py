"""Pipelines as data: what is accepted, what is refused, and what a version is."""

from __future__ import annotations

import dataclasses
import json
import pickle
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datp_tasks.errors import PipelineInvalid
from datp_tasks.model.backoff import RetryPolicy
from datp_tasks.model.pipeline import (
    Pipeline,
    PipelineDefinition,
    StepDefinition,
    hash_of,
    parse_definition,
)

TRANSFER: dict[str, Any] = {
    "pipeline": "transfer",
    "description": "Moves money.",
    "nodeGroup": "banking",
    "onError": "rollback",
    "steps": [
        {"type": "util/mandatory-fields", "params": {"fields": ["amount"]}},
        {
            "type": "bank/reserve",
            "name": "reserve",
            "nodeGroup": "ledger",
            "dispatch": "queue",
            "timeoutSeconds": 30,
            "retry": {"max_attempts": 5, "first_s": 0.5},
            "checkpoint": True,
        },
    ],
}


def parse(raw: object) -> PipelineDefinition:
    return parse_definition(raw, source="flow.yaml")


def mistakes_in(raw: object) -> tuple[str, ...]:
    with pytest.raises(PipelineInvalid) as caught:
        parse(raw)
    return caught.value.mistakes


def with_step(**step: object) -> dict[str, Any]:
    return {"pipeline": "transfer", "steps": [{"type": "bank/reserve", **step}]}


def test_a_definition_holds_what_the_file_says() -> None:
    definition = parse(TRANSFER)
    check, reserve = definition.steps
    assert (definition.name, definition.on_error, definition.startable) == (
        "transfer",
        "rollback",
        True,
    )
    assert check == StepDefinition(type="util/mandatory-fields", params={"fields": ["amount"]})
    assert reserve.timeout_s == 30.0
    assert reserve.retry == RetryPolicy(max_attempts=5, first_s=0.5)
    assert reserve.checkpoint and reserve.dispatch == "queue" and reserve.name == "reserve"
    assert [definition.group_of(index) for index in (0, 1)] == ["banking", "ledger"]


def test_the_version_is_the_start_of_the_hash_of_the_canonical_json() -> None:
    definition = parse(TRANSFER)
    assert definition.content_hash == hash_of(definition.to_json())
    assert definition.version == definition.content_hash[:16]
    assert len(definition.content_hash) == 64


def test_the_version_of_a_known_content_never_changes() -> None:
    """If this fails, every stored version and every pinned transaction is orphaned."""
    assert parse({"pipeline": "null", "steps": [{"type": "util/delay"}]}).to_json() == (
        '{"pipeline":"null","steps":[{"type":"util/delay"}]}'
    )
    assert parse(TRANSFER).to_json() == (
        '{"description":"Moves money.","nodeGroup":"banking","onError":"rollback",'
        '"pipeline":"transfer","steps":[{"params":{"fields":["amount"]},'
        '"type":"util/mandatory-fields"},{"checkpoint":true,"dispatch":"queue",'
        '"name":"reserve","nodeGroup":"ledger","retry":{"first_s":0.5,"max_attempts":5},'
        '"timeoutSeconds":30,"type":"bank/reserve"}]}'
    )


def test_key_order_and_spelled_out_defaults_do_not_change_the_version() -> None:
    def shuffled(value: Any) -> Any:
        if isinstance(value, list):
            return [shuffled(item) for item in value]
        if not isinstance(value, dict):
            return value
        items = list(value.items())
        random.Random(1).shuffle(items)
        return {key: shuffled(item) for key, item in items}

    spelled_out = {**TRANSFER, "startable": True}
    spelled_out["steps"] = [
        {**step, "description": "", "checkpoint": step.get("checkpoint", False)}
        for step in TRANSFER["steps"]
    ]
    versions = {parse(raw).version for raw in (TRANSFER, shuffled(TRANSFER), spelled_out)}
    assert len(versions) == 1


@pytest.mark.parametrize(("one", "other"), [(30, 30.0), (1, 1.0)])
def test_two_ways_to_write_a_number_of_ours_are_one_version(one: float, other: float) -> None:
    versions = {
        parse(with_step(timeoutSeconds=number, retry={"max_s": number})).version
        for number in (one, other)
    }
    assert len(versions) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"pipeline": "other"},
        {"description": "x"},
        {"nodeGroup": "x"},
        {"startable": False},
        {"onError": "keep"},
        {"steps": TRANSFER["steps"][:1]},
        {"steps": TRANSFER["steps"][::-1]},
    ],
)
def test_any_change_of_content_is_another_version(change: dict[str, Any]) -> None:
    assert parse(TRANSFER | change).version != parse(TRANSFER).version


def test_a_null_is_the_same_as_leaving_the_key_out() -> None:
    assert parse(with_step(name=None, params=None, retry=None)) == parse(with_step())


def test_a_definition_survives_our_own_store() -> None:
    definition = parse(TRANSFER)
    again = PipelineDefinition.from_json(definition.to_json())
    assert again == definition and again.version == definition.version
    assert hash(again) == hash(definition)
    assert pickle.loads(pickle.dumps(definition)).version == definition.version


def test_a_stored_text_keeps_its_version_also_when_we_would_write_it_otherwise() -> None:
    text = '{"pipeline":"transfer","nodeGroup":"master","steps":[{"type":"util/delay"}]}'
    assert PipelineDefinition.from_json(text).content_hash == hash_of(text)


def test_a_definition_cannot_be_changed_through_its_mapping() -> None:
    definition = parse(TRANSFER)
    definition.to_mapping()["steps"][0]["params"]["fields"].append("x")
    assert definition.steps[0].params == {"fields": ["amount"]}
    with pytest.raises(dataclasses.FrozenInstanceError):
        definition.name = "x"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("raw", "mistake"),
    [
        ([], "flow.yaml: must be an object with keys, was []"),
        ({"steps": [{"type": "a"}]}, "flow.yaml: pipeline: is missing"),
        ({"pipeline": "x"}, "flow.yaml: steps: is missing"),
        ({"pipeline": "x", "steps": []}, "flow.yaml: steps: is empty"),
        ({"pipeline": "x", "steps": {}}, "flow.yaml: steps: must be a list, was {}"),
        ({"pipeline": "x", "steps": [None]}, "flow.yaml: steps[0]: must be an object"),
        ({"pipeline": "x", "steps": ["a"]}, "flow.yaml: steps[0]: must be an object"),
        ({"pipeline": "x", "steps": [{}]}, "flow.yaml: steps[0]: type: is missing"),
        ({**TRANSFER, "pipeline": "Transfer!"}, "flow.yaml: pipeline: must match"),
        ({**TRANSFER, "pipeline": "x" * 129}, "flow.yaml: pipeline: must match"),
        ({**TRANSFER, "nodeGroup": "a b"}, "flow.yaml: nodeGroup: must match"),
        ({**TRANSFER, "startable": "yes"}, "flow.yaml: startable: must be true or false"),
        ({**TRANSFER, "onError": "ignore"}, "flow.yaml: onError: must be keep or rollback"),
        ({**TRANSFER, "description": 7}, "flow.yaml: description: must be a text, was 7"),
        ({**TRANSFER, "description": "\x00"}, "flow.yaml: description: holds a character"),
        ({**TRANSFER, "description": "\ud800"}, "flow.yaml: description: holds a character"),
        ({**TRANSFER, "description": "x" * 4_001}, "flow.yaml: description: has 4001 characters"),
        ({**TRANSFER, "nodegroup": "x"}, "nodegroup: is not a known key; did you mean nodeGroup?"),
        ({**TRANSFER, "on_error": "x"}, "on_error: is not a known key; did you mean onError?"),
        ({True: "x"}, "True: is not a known key; known are pipeline, "),
    ],
)
def test_each_mistake_of_a_pipeline_is_named(raw: object, mistake: str) -> None:
    found = mistakes_in(raw)
    assert any(mistake in each for each in found), found


@pytest.mark.parametrize(
    ("step", "mistake"),
    [
        ({"type": "Bank/Reserve"}, "type: must match"),
        ({"type": "bank//reserve"}, "type: must match"),
        ({"type": "bank/reserve\n"}, "type: must match"),
        ({"type": "a" * 129}, "type: has 129 characters; 128 are allowed"),
        ({"name": ["x"]}, "name: must be a text, was ['x']"),
        ({"dispatch": "later"}, "dispatch: must be inline or queue, was 'later'"),
        ({"dispatch": ["queue"]}, "dispatch: must be inline or queue, was ['queue']"),
        ({"timeoutSeconds": 0}, "timeoutSeconds: must be a number above 0"),
        ({"timeoutSeconds": True}, "timeoutSeconds: must be a number above 0"),
        ({"timeoutSeconds": "30"}, "timeoutSeconds: must be a number above 0"),
        ({"timeoutSeconds": float("nan")}, "timeoutSeconds: must be a number above 0"),
        ({"timeoutSeconds": 10**400}, "timeoutSeconds: must be a number above 0"),
        ({"checkpoint": 1}, "checkpoint: must be true or false, was 1"),
        ({"params": [1]}, "params: must be a JSON object, was a list"),
        ({"params": {"limit": float("inf")}}, "params: limit is inf, which JSON does not have"),
        ({"params": {1: 2}}, "params: has the key 1; keys must be strings"),
        ({"params": {"x": "y" * 70_000}}, "params: is 70008 bytes of JSON; 65536 are allowed"),
        ({"retry": 5}, "retry: must be an object with keys, was 5"),
        ({"retry": {"max_attempts": 0}}, "retry: max_attempts must be 1 or more, was 0"),
        ({"retry": {"max_attempts": 2.5}}, "retry: max_attempts must be a whole number"),
        ({"retry": {"first_s": float("nan")}}, "retry: first_s must be 0 or more"),
        ({"retry": {"first_s": float("inf")}}, "retry: first_s must be at most 1000000000"),
        ({"retry": {"maxattempts": 2}}, "retry: maxattempts is not a known key; did you mean"),
        ({"parameters": {}}, "parameters: is not a known key; did you mean params?"),
        ({"timeout_s": 1}, "timeout_s: is not a known key; did you mean timeoutSeconds?"),
    ],
)
def test_each_mistake_of_a_step_is_named(step: dict[str, Any], mistake: str) -> None:
    raw = with_step(**step)
    (found,) = mistakes_in(raw)
    assert found.startswith(f"flow.yaml: steps[0] ({raw['steps'][0]['type']}): {mistake}"), found


def test_all_mistakes_are_told_at_once() -> None:
    raw = {
        "pipeline": "X",
        "stepz": 1,
        "steps": [
            {"type": "bank/reserve", "retry": {"factor": 0, "jitter": 2}},
            {"kind": "a", "timeoutSeconds": -1},
        ],
    }
    found = "\n".join(mistakes_in(raw))
    for part in ("pipeline:", "stepz:", "factor", "jitter", "kind:", "type: is missing", "-1"):
        assert part in found
    assert len(found.splitlines()) == 7


def test_a_pipeline_has_no_more_steps_than_allowed() -> None:
    raw = {"pipeline": "x", "steps": [{"type": "util/delay"}] * 200}
    assert len(parse(raw).steps) == 200
    raw["steps"] = [{"type": "util/delay"}] * 201
    assert mistakes_in(raw) == ("flow.yaml: steps: has 201 steps; 200 are allowed",)


def test_a_pipeline_as_a_whole_has_a_size_limit() -> None:
    raw = {"pipeline": "x", "steps": [{"type": "a", "params": {"x": "y" * 60_000}}] * 20}
    assert mistakes_in(raw) == ("flow.yaml: is more than 1048576 bytes of JSON",)


def test_the_builder_makes_the_same_as_a_file() -> None:
    built = (
        Pipeline("transfer", group="banking", on_error="rollback", description="Moves money.")
        .step("util/mandatory-fields", params={"fields": ["amount"]})
        .step(
            "bank/reserve",
            name="reserve",
            group="ledger",
            dispatch="queue",
            timeout_s=30,
            retry={"max_attempts": 5, "first_s": 0.5},
            checkpoint=True,
        )
        .build()
    )
    assert built == parse(TRANSFER)
    assert built.version == parse(TRANSFER).version


def test_the_builder_takes_a_retry_policy_and_names_mistakes() -> None:
    built = Pipeline("x").step("a", retry=RetryPolicy(max_attempts=9)).build()
    assert built.steps[0].retry == RetryPolicy(max_attempts=9)
    with pytest.raises(PipelineInvalid, match=r"Pipeline\('x'\): steps\[0\] \(a\): params: must"):
        Pipeline("x").step("a", params=7).build()  # type: ignore[arg-type]


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8),
            inner,
            max_size=3,
        )
    ),
    max_leaves=10,
)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=30)
names = st.from_regex(r"[a-z0-9][a-z0-9_.-]{0,20}", fullmatch=True)
groups = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,20}", fullmatch=True)
retries = st.builds(
    RetryPolicy,
    max_attempts=st.integers(1, 1_000),
    first_s=st.floats(0, 1e6),
    factor=st.floats(1, 100),
    max_s=st.floats(0, 1e6),
    jitter=st.floats(0, 1),
)
steps = st.builds(
    StepDefinition,
    type=st.from_regex(r"[a-z0-9][a-z0-9_.-]{0,9}(/[a-z0-9][a-z0-9_.-]{0,9}){0,3}", fullmatch=True),
    name=st.none() | texts,
    description=texts,
    node_group=st.none() | groups,
    dispatch=st.sampled_from(["inline", "queue"]),
    params=st.dictionaries(texts, json_values, max_size=3),
    timeout_s=st.none() | st.floats(0, 86_400, exclude_min=True),
    retry=st.none() | retries,
    checkpoint=st.booleans(),
)
definitions = st.builds(
    PipelineDefinition,
    name=names,
    description=texts,
    node_group=groups,
    startable=st.booleans(),
    on_error=st.sampled_from(["keep", "rollback"]),
    steps=st.lists(steps, min_size=1, max_size=4).map(tuple),
)


@settings(max_examples=50, deadline=None)
@given(definitions)
def test_every_definition_comes_back_from_its_mapping(definition: PipelineDefinition) -> None:
    again = parse(definition.to_mapping())
    assert again == definition
    assert again.version == definition.version


@settings(max_examples=50, deadline=None)
@given(definitions)
def test_every_definition_comes_back_from_its_json(definition: PipelineDefinition) -> None:
    assert parse(json.loads(definition.to_json())) == definition
    again = PipelineDefinition.from_json(definition.to_json())
    assert again == definition
    assert again.content_hash == definition.content_hash
