"""The linter of the OpenAPI document: the document passes, and what is wrong is found."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from datp_tasks.api import transactions
from datp_tasks.api.application import create_app
from datp_tasks.api.services import Services
from datp_tasks.settings import Settings
from tools.openapi_lint import document, mistakes, operations

FOUND = document()


def test_the_document_has_no_mistakes_and_needs_no_server() -> None:
    assert mistakes(FOUND) == []
    assert FOUND["openapi"].startswith("3.1")
    assert len(list(operations(FOUND))) > 80


def test_it_says_what_a_key_must_be_good_for() -> None:
    paths = FOUND["paths"]
    assert paths["/v1/transactions"]["get"]["security"] == [{"key": ["grant:read"]}]
    assert paths["/v1/nodes"]["get"]["security"] == [{"key": ["role:viewer"]}]
    assert "security" not in paths["/healthz"]["get"]
    assert FOUND["webhooks"]["transactionEvent"]["post"]["requestBody"]["required"]


def test_a_submit_is_found_without_the_other_routes_and_is_the_documented_one() -> None:
    app = create_app(no_services, Settings(key_pepper="a pepper that no key is made with"))
    [(name, route)] = app.state.direct.items()
    assert name == ("POST", "/v1/transactions")
    assert (route.endpoint, route.operation_id) == (transactions.submit, "submitTransaction")


def no_services() -> Services:
    raise AssertionError


def without_id(operation: dict[str, Any]) -> None:
    operation["operationId"] = "submit_v1_transactions_post"


def no_verb(operation: dict[str, Any]) -> None:
    operation["operationId"] = "ownerLimits"


def twice(operation: dict[str, Any]) -> None:
    operation["operationId"] = "listTransactions"


def untyped(operation: dict[str, Any]) -> None:
    schema = {"type": "object", "additionalProperties": True}
    operation["responses"]["202"]["content"]["application/json"]["schema"] = schema


def open_to_all(operation: dict[str, Any]) -> None:
    del operation["security"]


def for_any_key(operation: dict[str, Any]) -> None:
    operation["security"] = [{"key": []}]


def nothing_said(operation: dict[str, Any]) -> None:
    operation["description"] = ""


def no_example(operation: dict[str, Any]) -> None:
    del operation["requestBody"]["content"]["application/json"]["example"]


def wrong_example(operation: dict[str, Any]) -> None:
    operation["responses"]["202"]["content"]["application/json"]["example"]["txId"] = "none"


SPOILS = [
    *(without_id, no_verb, twice, untyped, open_to_all, for_any_key),
    *(nothing_said, no_example, wrong_example),
]


@pytest.mark.parametrize("spoil", SPOILS)
def test_what_is_wrong_is_found(spoil: Callable[[dict[str, Any]], None]) -> None:
    broken = copy.deepcopy(FOUND)
    spoil(broken["paths"]["/v1/transactions"]["post"])
    assert mistakes(broken)


def test_a_list_without_pages_is_found() -> None:
    broken = copy.deepcopy(FOUND)
    broken["paths"]["/v1/groups"]["get"]["parameters"] = []
    broken["components"]["schemas"]["KeysShown"]["properties"].pop("limit")
    found = [each for each in mistakes(broken) if "list" in each or "limit" in each]
    assert any("/v1/groups" in each for each in found)
    assert any("/v1/keys" in each for each in found)


def test_links_lead_to_operations_that_have_the_parameter() -> None:
    by_name = {each["operationId"]: each for _, each in operations(FOUND)}
    links = [
        link
        for each in by_name.values()
        for response in each["responses"].values()
        for link in response.get("links", {}).values()
    ]
    assert len(links) > 20
    for link in links:
        names = {each["name"] for each in by_name[link["operationId"]]["parameters"]}
        assert link["parameters"].keys() <= names, link


def test_an_example_that_does_not_fit_is_found() -> None:
    broken = copy.deepcopy(FOUND)
    broken["components"]["schemas"]["Accepted"]["properties"]["txId"]["examples"] = ["none"]
    assert any("example" in mistake for mistake in mistakes(broken))
