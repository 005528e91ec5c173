"""The OpenAPI document and the server agree: whatever is sent, the answer is a documented one."""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import FlakyStrategyDefinition, Unsatisfiable
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

from datp_tasks.api import models
from datp_tasks.api.links import LINKS
from datp_tasks.model.actor import Role
from datp_tasks.model.grants import Grants
from tests.support.api_house import ApiHouse

SETTINGS = {"owner_requests_per_s": 100_000.0, "owner_burst_max": 100_000, "long_poll_s_max": 0.0}

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
#: Runs of chains of requests for each role, and how long a chain may be.
CHAINS = int(os.environ.get("DATP_FUZZ_CHAINS", "3"))
CHAIN_STEPS = 6
TX_ID = re.compile(models.TX_ID)

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
    schema.config.checks.negative_data_rejection.expected_statuses = [
        "400",
        "404",
        "414",
        "415",
        "422",
    ]
    return schema


def strategies(house: ApiHouse) -> Iterator[tuple[Any, bool]]:
    """The examples of the document, what fits each operation, and what does not."""
    schema = schema_of(house)
    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        for example in schema.get_strategies_from_examples(found.ok()):
            yield example, True
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            strategy = found.ok().as_strategy(generation_mode=mode)
            yield strategy, mode is GenerationMode.POSITIVE


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
        for strategy, is_right in strategies(house):
            try:
                seed(1)(limits(given(case=strategy)(call_by_name if is_right else call)))()
            except Unsatisfiable:
                # An operation that takes nothing can be called in no wrong way.
                continue
    assert answers[Role.ADMIN].keys() >= {200, 202, 404, 422}, answers
    assert all(found.keys() >= {200, 403, 422} for found in answers.values() if found[403]), answers
    assert [name for name, found in answers.items() if not found[403]] == [Role.ADMIN], answers


@pytest.mark.timeout(600)
def test_chains_of_requests_are_answered_as_documented_for_every_role(house: ApiHouse) -> None:
    """What one answer shows is used in the next request, as the links of the document say."""
    followed: Counter[str] = Counter()
    met: dict[str, Counter[int]] = {}
    linked = {name for name, _ in LINKS} | {
        each for at in LINKS.values() for to in at for each in to[0]
    }
    machine = schema_of(house).include(operation_id=sorted(linked)).as_state_machine()
    for name, (role, texts) in KEYS.items():
        grants = None if texts is None else Grants.parse(texts)
        key, found = house.new_key(f"chains-{name}", role, grants=grants), Counter[int]()
        met[name] = found
        for number in range(CHAINS):
            _follow(machine, key, number, found, followed)
    assert all(sum(found.values()) >= CHAINS for found in met.values()), met
    assert len(followed) >= 3, followed
    assert all(code < 500 for found in met.values() for code in found), met


def _follow(machine: Any, key: str, number: int, met: Counter[int], followed: Counter[str]) -> None:
    """Some chains with one key; each is checked request by request."""

    class Chain(machine):  # type: ignore[misc]
        def get_call_kwargs(self, case: Case[Any]) -> dict[str, Any]:
            return {"headers": {"Authorization": f"Bearer {key}"}, "timeout": 20}

        def before_call(self, case: Case[Any]) -> None:
            if case.operation.label == "POST /v1/transactions":
                # What is wrong with a body is tried above; here one is wanted that goes on.
                case.body = {"pipeline": "nap", "input": {}}

        def after_call(self, response: Any, case: Case[Any]) -> None:
            met[response.status_code] += 1
            if TX_ID.fullmatch(str(case.path_parameters.get("txId", ""))) and response.ok:
                followed[case.operation.label] += 1

        def validate_response(self, response: Any, case: Case[Any], **kwargs: Any) -> None:
            # Which of two roles may do something is the table of rights, not the document.
            case.validate_response(response, checks=REFUSED_CHECKS)

    Chain._hypothesis_internal_use_seed = number
    steps = settings(limits, max_examples=3, stateful_step_count=CHAIN_STEPS, derandomize=False)
    # A server remembers: what a chain finds differs from one to the next, which ends a run early.
    with suppress(FlakyStrategyDefinition):
        Chain.run(settings=steps)
