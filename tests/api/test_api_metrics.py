"""Series for operators, and the page that Prometheus scrapes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from datp_tasks.model.actor import Role
from datp_tasks.testing import Kit
from tests.support.api_house import ApiHouse

OPERATIONS = Path(__file__).resolve().parents[2] / "docs" / "operations.md"
DASHBOARD = Path(__file__).resolve().parents[2] / "docs" / "grafana-dashboard.json"


def some_work(kit: Kit, acme: httpx.Client) -> None:
    for _ in range(3):
        answer = acme.post("/v1/transactions", json={"pipeline": "echo", "input": {}})
        assert answer.status_code == 202, answer.text
    kit.clock.advance(seconds=5)
    kit.run_job("meter")


def test_an_operator_gets_series_by_what_they_ask_for(
    kit: Kit, acme: httpx.Client, ops: httpx.Client
) -> None:
    some_work(kit, acme)
    answer = ops.get("/v1/metrics", params={"by": "pipeline,group"})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["slotSeconds"], len(found["slots"])) == (5, 60)
    counted = [count for slot in found["slots"] for count in slot["counts"]]
    ended = [each for each in counted if each["what"] == "success" and each["pipeline"] == "echo"]
    assert sum(each["count"] for each in ended) >= 3
    assert found["slots"][-1]["gauges"]["lag|wake"] >= 0
    coarse = ops.get("/v1/metrics", params={"resolution": "coarse"}).json()
    assert (coarse["slotSeconds"], len(coarse["slots"])) == (1_000, 86)


@pytest.mark.parametrize("query", ["resolution=none", "by=colour"])
def test_series_that_do_not_exist_are_refused(ops: httpx.Client, query: str) -> None:
    assert ops.get(f"/v1/metrics?{query}").status_code == 422


def test_series_are_for_operators(acme: httpx.Client) -> None:
    assert acme.get("/v1/metrics").status_code == 403


def test_prometheus_gets_everything_with_a_viewers_key_and_without_owners(
    kit: Kit, house: ApiHouse, acme: httpx.Client
) -> None:
    some_work(kit, acme)
    # With the totals a client would count what others do.
    assert [house.client().get("/metrics").status_code, acme.get("/metrics").status_code] == [
        401,
        403,
    ]
    answer = house.client("prometheus", Role.VIEWER).get("/metrics")
    assert answer.status_code == 200
    found = {family.name: family for family in text_string_to_metric_families(answer.text)}
    named = re.findall(r"`(datp_[a-z_]+?)(?:_total)?`", OPERATIONS.read_text())
    counted = sorted(name for name in found if not name.endswith("_created"))
    assert counted == sorted(named), "the page for operators names each, once"
    ended = {
        sample.labels["pipeline"]: sample.value
        for sample in found["datp_transactions_ended"].samples
        if sample.labels["status"] == "success"
    }
    assert ended["echo"] >= 3
    assert "acme" not in answer.text
    assert {"datp_list_size", "datp_lag_seconds", "datp_alerts_open", "datp_api_requests"} <= set(
        found
    )


def test_the_dashboard_asks_only_for_what_is_there(
    kit: Kit, house: ApiHouse, acme: httpx.Client
) -> None:
    some_work(kit, acme)
    page = house.client("prometheus", Role.VIEWER).get("/metrics").text
    dashboard = json.loads(DASHBOARD.read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    assert len(asked) >= 8
    known = {line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")}
    for expression in asked:
        names = {word for word in _words(expression) if word.startswith("datp_")}
        assert names, expression
        assert names <= known, expression


def _words(expression: str) -> list[str]:
    return "".join(c if c.isalnum() or c == "_" else " " for c in expression).split()
