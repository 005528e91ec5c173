"""The catalogue of problems: each kind that the code uses is in it, and the page is made of it."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from datp_tasks.api.problem_types import CATALOGUE, TYPES
from datp_tasks.api.problems import KINDS
from tests.support.api_house import ApiHouse
from tools.problems import PAGE, page

#: Where one is made, with its status and kind.
PROBLEM = re.compile(r"Problem\(\s*(\d{3}),\s*\"([a-z-]+)\"")
ROOT = Path(__file__).resolve().parents[2] / "datp_tasks"


def used() -> set[tuple[int, str]]:
    """Statuses and kinds of all problems that are made in the code."""
    found = set(KINDS.values())
    for path in ROOT.rglob("*.py"):
        made = PROBLEM.findall(path.read_text(encoding="utf-8"))
        found |= {(int(status), kind) for status, kind in made}
    return found


def test_every_kind_that_the_code_uses_is_in_the_catalogue_with_its_status() -> None:
    listed = {(status, each.kind) for each in CATALOGUE for status in each.statuses}
    assert len(used()) > 40
    assert used() <= listed
    # The framework's own: a path that is no route, and a method that it does not have.
    assert {kind for _, kind in listed} - {kind for _, kind in used()} == {"method-not-allowed"}


def test_the_page_of_problems_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tools.problems"


def test_titles_are_stable_and_each_is_used_once() -> None:
    assert len({each.title for each in CATALOGUE}) == len(CATALOGUE) == len(TYPES)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/nothing", None),
        ("DELETE", "/v1/transactions", None),
        ("GET", "/v1/transactions/t00-00000000000000000000000000000000", None),
        ("POST", "/v1/transactions", {"pipeline": 1}),
        ("POST", "/v1/transactions", {"pipeline": "nobody-knows", "input": {}}),
        ("POST", "/v1/transactions/bulk", {}),
        ("GET", "/v1/transactions?limit=0", None),
        ("GET", "/v1/nodes", None),
    ],
)
def test_a_problem_names_its_request_and_whether_to_try_again(
    acme: httpx.Client, method: str, path: str, body: object
) -> None:
    answer = acme.request(method, path, json=body, headers={"Request-Id": "mine-7"})
    found = answer.json()
    kind = TYPES[found["type"].removeprefix("urn:datp:problem:")]
    assert answer.headers["content-type"] == "application/problem+json"
    assert found["requestId"] == answer.headers["Request-Id"] == "mine-7"
    assert (found["title"], found["retryable"]) == (kind.title, kind.retryable)
    assert found["status"] == answer.status_code in kind.statuses


def test_what_can_succeed_later_says_so_and_when(house: ApiHouse) -> None:
    owner = house.new_owner("brief")
    house.limit(owner, requests_per_s=0.001, burst_max=1)
    client = house.client(owner)
    answers = [client.get("/v1/transactions") for _ in range(3)]
    refused = answers[-1]
    assert (refused.status_code, refused.json()["retryable"]) == (429, True)
    assert int(refused.headers["Retry-After"]) > 0
    assert refused.headers["RateLimit-Policy"] == '"requests";q=1;w=1000'
    assert refused.headers["RateLimit"].startswith('"requests";r=0;t=')


def test_a_field_too_many_and_one_too_few_are_said_in_words(acme: httpx.Client) -> None:
    found = acme.post("/v1/transactions", json={"pipeline": "echo", "data": {}}).json()
    assert {each["pointer"]: each["detail"].partition(";")[0] for each in found["errors"]} == {
        "#/body/input": "this field is needed, and is not there",
        "#/body/data": "there is no such field here",
    }
    # Where the framework reads the body, too.
    cancel = acme.post("/v1/transactions/bulk", json={"all": []}).json()
    assert "no such field" in str(cancel["errors"]) and "is needed" in str(cancel["errors"])
