"""The OpenAPI document and the server agree: whatever is sent, the answer is a documented one."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
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

from datp_tasks.model.actor import Role
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
#: More, and others each time, if somebody wants to look for longer.
EXAMPLES = int(os.environ.get("DATP_FUZZ_EXAMPLES", "6"))

limits = settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.generate],
    derandomize=EXAMPLES == 6,
    suppress_health_check=list(HealthCheck),
    database=None,
)


def strategies(house: ApiHouse) -> Iterator[tuple[Any, bool]]:
    """What fits each operation, and what does not."""
    document = httpx.get(f"{house.url}/openapi.json").json()
    # The key is always right here; wrong ones have tests of their own.
    for path in document["paths"].values():
        for operation in path.values():
            operation.pop("security", None)
    schema = schemathesis.openapi.from_dict(document)
    schema.config.update(base_url=house.url)
    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            strategy = found.ok().as_strategy(generation_mode=mode)
            yield strategy, mode is GenerationMode.POSITIVE


@pytest.mark.timeout(600)
def test_every_operation_answers_as_documented_whatever_is_sent(house: ApiHouse) -> None:
    key = house.new_key("fuzz", Role.ADMIN)
    answers: Counter[int] = Counter()

    def call(case: Case[Any]) -> None:
        answer = case.call_and_validate(
            headers={"Authorization": f"Bearer {key}"}, checks=CHECKS, timeout=20
        )
        answers[answer.status_code] += 1

    def call_by_name(case: Case[Any]) -> None:
        """With the name of a pipeline that exists, so as to get past the first door."""
        if isinstance(case.body, dict) and "pipeline" in case.body:
            case.body["pipeline"] = "echo"
        if "transactionType" in case.path_parameters:
            case.path_parameters["transactionType"] = "echo"
        call(case)

    for strategy, is_right in strategies(house):
        try:
            seed(1)(limits(given(case=strategy)(call_by_name if is_right else call)))()
        except Unsatisfiable:
            # An operation that takes nothing can be called in no wrong way.
            continue
    assert answers.keys() >= {200, 202, 404, 422}, answers
