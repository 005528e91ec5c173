"""How many statements a page costs PostgreSQL: a number that does not grow with what it shows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from sqlalchemy import event

from datp_tasks.model.actor import Role
from tests.support.api_house import ApiHouse
from tests.support.console_surroundings import Surroundings

#: Page -> statements, without those for the session and for the time, which a test has itself.
STATEMENTS = {
    "/now": 5,
    # Ids in their order, their rows, the saved views.
    "/transactions": 3,
    "/transactions?status=failed": 2,
    "/transactions?status=sleeping": 3,
    "/transactions/{tx}": 10,
    "/in-doubt": 0,
    "/approvals": 3,
    "/metrics": 0,
    "/alerts": 2,
    "/pipelines": 2,
    "/pipelines/nap": 6,
    "/drafts?pipeline=nap": 2,
    "/mappings": 1,
    "/mappings/counted": 6,
    "/groups": 1,
    "/webhooks": 3,
    "/ledgers": 3,
    "/timeouts": 3,
    "/audit": 1,
    "/try": 1,
    "/search?q=nothing": 1,
}


@contextmanager
def counted(house: ApiHouse) -> Iterator[list[str]]:
    seen: list[str] = []
    engines = (house.services.transactions.record.engine, house.services.ledger.connections.engine)

    def note(connection: object, cursor: object, statement: str, *_: object) -> None:
        seen.append(statement.strip()[:60])

    for engine in engines:
        event.listen(engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        for engine in engines:
            event.remove(engine, "before_cursor_execute", note)


@pytest.fixture(scope="module")
def http(house: ApiHouse) -> httpx.Client:
    Surroundings(house.kit).mapping("counted")
    made = house.client()
    headers = {"sec-fetch-site": "same-origin"}
    key = house.new_key("ops", Role.ADMIN)
    assert made.post("/console/sign-in", data={"key": key}, headers=headers).status_code == 303
    return made


@pytest.mark.parametrize("path", STATEMENTS)
def test_a_page_costs_a_fixed_number_of_statements(
    house: ApiHouse, http: httpx.Client, path: str
) -> None:
    tx, *_ = (house.kit.submit("nap", {}, owner="many") for _ in range(20))
    with counted(house) as seen:
        assert http.get(f"/console{path.format(tx=tx)}").status_code == 200
    assert len(seen) == STATEMENTS[path], seen
