"""The OpenAPI document and the server agree: whatever is sent, the answer is a documented one."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from datp_tasks.api.examples import REQUESTS
from datp_tasks.api.links import LINKS
from datp_tasks.model.actor import Role
from datp_tasks.model.grants import Grants
from tests.support.api_house import ApiHouse

SETTINGS = {"owner_requests_per_s": 100_000.0, "owner_burst_max": 100_000}
CONSTANTS = {"api.waiting.LONG_POLL_S_MAX": 0.0}

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
    unsupported_method,
]
#: More, and others each time, for those who want to look for longer.
EXAMPLES = int(os.environ.get("DATP_FUZZ_EXAMPLES", "4"))

limits = settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.generate],
    derandomize=EXAMPLES == 4,
    suppress_health_check=list(HealthCheck),
    database=None,
)


def schema_of(house: ApiHouse) -> Any:
    document = httpx.get(f"{house.url}/openapi.json").json()
    # The key is always right here; wrong ones have tests of their own.
    for path in document["paths"].values():
        for operation in path.values():
            operation.pop("security", None)
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=house.url)
    # A URL that is too long is refused by the door, before what is in it is looked at.
    schema.config.checks.negative_data_rejection.expected_statuses += ["414"]
    return schema


def strategies(house: ApiHouse) -> Iterator[tuple[Any, bool, int]]:
    """The examples of the document, what fits each operation, and what does not."""
    schema = schema_of(house)
    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        for example in schema.get_strategies_from_examples(found.ok()):
            yield example, True, 1
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            strategy = found.ok().as_strategy(generation_mode=mode)
            yield strategy, mode is GenerationMode.POSITIVE, EXAMPLES


#: A key of each role, and of clients: without grants, and with all. The last one may do everything.
KEYS: dict[str, tuple[Role | None, tuple[str, ...] | None]] = {
    "client": (None, None),
    "granted": (None, ("read", "cancel", "wake", "switch:*", "submit:*", "batch:*")),
    **{str(role): (role, None) for role in Role},
}
#: For those who are refused before what they sent is looked at.
REFUSED_CHECKS = [
    each for each in CHECKS if each not in (negative_data_rejection, unsupported_method)
]


@pytest.mark.timeout(600)
def test_every_operation_answers_every_role_as_documented_whatever_is_sent(
    house: ApiHouse,
) -> None:
    keys = {
        name: house.new_key("fuzz", role, grants=None if given is None else Grants.parse(given))
        for name, (role, given) in KEYS.items()
    }
    existing = house.kit.client.submit("nap", {}, owner="fuzz").tx_id
    answers: dict[str, Counter[int]] = {name: Counter() for name in keys}
    others = itertools.cycle(name for name in keys if name != Role.ADMIN)
    met: set[str] = set()

    def call(case: Case[Any]) -> None:
        """The first of each operation with every key, the rest with an admin's and one other."""
        is_first = case.operation.label not in met
        met.add(case.operation.label)
        for name in keys if is_first else (next(others), Role.ADMIN):
            answer = case.call_and_validate(
                headers={"Authorization": f"Bearer {keys[name]}"},
                checks=CHECKS if name == Role.ADMIN else REFUSED_CHECKS,
                session=session,
                timeout=20,
            )
            answers[name][answer.status_code] += 1

    def call_by_name(case: Case[Any]) -> None:
        """With names of what exists, so as to get past the first door."""
        if isinstance(case.body, dict) and "pipeline" in case.body:
            case.body["pipeline"] = "echo"
        for name, value in (("transactionType", "echo"), ("txId", existing)):
            if name in case.path_parameters:
                case.path_parameters[name] = value
        call(case)

    with requests.Session() as session:
        for strategy, is_right, count in strategies(house):
            try:
                some = settings(limits, max_examples=count)
                seed(1)(some(given(case=strategy)(call_by_name if is_right else call)))()
            except Unsatisfiable:
                # An operation that takes nothing can be called in no wrong way.
                continue
    assert answers[Role.ADMIN].keys() >= {200, 202, 404, 422}, answers
    assert all(found.keys() >= {200, 403, 422} for found in answers.values() if found[403]), answers
    assert [name for name, found in answers.items() if not found[403]] == [Role.ADMIN], answers


def test_chains_of_requests_are_answered_as_documented_for_every_role(house: ApiHouse) -> None:
    """Each operation with the example of the document, then every one that its answer links to."""
    kinds = (found.ok() for found in schema_of(house).get_all_operations())
    operations = {each.definition.raw["operationId"]: each for each in kinds}
    examples = {**REQUESTS, "submitTransaction": {"pipeline": "nap", "input": {}}}
    followed: dict[str, Counter[int]] = {name: Counter() for name in KEYS}

    def follow(who: str, key: str, name: str, **path: str) -> None:
        operation = operations[name]
        case = operation.Case(path_parameters=path)
        if name in examples:
            case.body, case.media_type = examples[name], "application/json"
        answer = case.call_and_validate(
            headers={"Authorization": f"Bearer {key}"}, checks=REFUSED_CHECKS, timeout=20
        )
        followed[who][answer.status_code] += 1
        links = operation.definition.raw["responses"][str(answer.status_code)].get("links", {})
        for link in links.values():
            [(parameter, expression)] = link["parameters"].items()
            value = answer.json()[expression.removeprefix("$response.body#/")]
            follow(who, key, link["operationId"], **{parameter: value})

    for who, (role, texts) in KEYS.items():
        grants = None if texts is None else Grants.parse(texts)
        key = house.new_key(f"chains-{who}", role, grants=grants)
        for name in dict.fromkeys(name for name, _ in LINKS if name != "testWebhookEndpoint"):
            follow(who, key, name)
    assert followed[Role.ADMIN].keys() >= {200, 201, 202, 204, 409}, followed
    assert sum(followed[Role.ADMIN].values()) > 20 and followed["client"][202], followed
    assert all(code < 500 for found in followed.values() for code in found), followed


#: What the state machine walks: a submit, and what only reads the transaction that it made.
WALKED = (
    "submitTransaction",
    *("getTransaction", "listTransactionEvents", "explainTransaction"),
)


def test_the_state_machine_of_schemathesis_follows_the_links_that_read(house: ApiHouse) -> None:
    document = requests.get(f"{house.url}/openapi.json", timeout=10).json()
    for path, methods in list(document["paths"].items()):
        kept = {verb: each for verb, each in methods.items() if each["operationId"] in WALKED}
        document["paths"][path] = kept
        for each in kept.values():
            each.pop("security", None)
            for answer in each["responses"].values():
                links = answer.get("links", {})
                answer["links"] = {name: link for name, link in links.items() if name in WALKED}
    document["paths"] = {path: each for path, each in document["paths"].items() if each}
    wanted = {"pipeline": {"const": "nap"}, "input": {"const": {}}}
    submit = document["paths"]["/v1/transactions"]["post"]
    submit["requestBody"]["content"]["application/json"]["schema"] = {
        "type": "object",
        "properties": wanted,
        "required": list(wanted),
        "additionalProperties": False,
    }
    submit["parameters"] = []
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=house.url)
    schema.config.generation.update(modes=[GenerationMode.POSITIVE])
    key = house.new_key("machine", Role.ADMIN)
    seen: Counter[tuple[str, int]] = Counter()

    class Walk(schema.as_state_machine()):  # type: ignore[misc]
        def get_call_kwargs(self, case: Case[Any]) -> dict[str, Any]:
            return {"headers": {"Authorization": f"Bearer {key}"}, "timeout": 20}

        def validate_response(self, response: Any, case: Case[Any], **_: Any) -> None:
            seen[case.operation.definition.raw["operationId"], response.status_code] += 1
            case.validate_response(response, checks=REFUSED_CHECKS)

    Walk.run(
        settings=settings(
            max_examples=3,
            stateful_step_count=8,
            deadline=None,
            database=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        )
    )
    assert {name for name, code in seen if code == 200} == set(WALKED[1:]), seen
