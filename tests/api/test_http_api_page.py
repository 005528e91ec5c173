"""docs/http-api.md has a curl for each operation, and they work from top to bottom."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from datp_tasks import Pipeline, Sleep
from datp_tasks.api.console import case_runs
from datp_tasks.ledger.batch_list import derived_id, unsigned_batch_list
from datp_tasks.model.actor import Role
from tests.docs.docs_blocks import blocks
from tests.support.api_house import ApiHouse
from tools.openapi_lint import document, operations

PAGE = "docs/http-api.md"
POLICY = Path(__file__).parent / "two_persons_for_batches.yaml"
SETTINGS = {"ledger_hosts": ("127.0.0.1:8008",), "policy_file": str(POLICY)}
NAMED = re.compile(r"^# ([a-z]+(?:[A-Z][A-Za-z]*)+)$")
#: How a command begins, that may stand in an assignment.
CALL = re.compile(r"(?:^|\$\()(?:client|admin|approver|call) ", re.MULTILINE)


def script() -> str:
    return "\n".join(each.text for each in blocks() if each.page == PAGE)


def calls_by_name() -> dict[str, str]:
    """The lines under each name of an operation."""
    found: dict[str, str] = {}
    name = ""
    for line in script().splitlines():
        match = NAMED.match(line)
        if match:
            name = match[1]
            assert name not in found, f"{name} is there twice"
            found[name] = ""
        elif name:
            found[name] += f"{line}\n"
    return found


def test_every_operation_has_a_command_and_no_other_is_there() -> None:
    wanted = {operation["operationId"] for _, operation in operations(document())}
    found = calls_by_name()
    assert found.keys() == wanted
    assert [name for name, lines in found.items() if not CALL.search(lines)] == []


def test_each_command_calls_the_route_of_its_operation() -> None:
    routes = {o["operationId"]: route for route, o in operations(document())}
    for name, lines in calls_by_name().items():
        method, _, path = routes[name].partition(" ")
        place = re.sub(r"\{[^}]+\}", '[^/? "]+(?:/[^/? "]+)?', path)
        assert re.search(rf"\$DATP_URL{place}[?\" )]|\$DATP_URL{place}$", lines, re.M), name
        said = re.search(r"-X ([A-Z]+)", lines)
        given = said[1] if said else "POST" if " -d " in lines else "GET"
        assert given == method, name


#: In place of the program that starts two servers for cases; that has tests of its own.
CASES_PROGRAM = """
import json, sys
cases = json.load(sys.stdin)["cases"]
json.dump([{"case": each, "status": "success", "mistakes": []} for each in cases], sys.stdout)
"""


@pytest.fixture
def prepared(house: ApiHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the page speaks of: its pipeline, two in doubt, an alert, bytes for a ledger."""
    kit = house.kit
    (tmp_path / "quick_cases.py").write_text(CASES_PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(case_runs, "PROGRAM", "quick_cases")

    @kit.step("page/wait")
    def wait(ctx: Any, data: dict[str, Any]) -> Any:
        if ctx.switch("kyc") is None:
            ctx.progress({"waits": "kyc"})
            return Sleep(switch="kyc", seconds=86_400)
        return {"booking": "b-1"}

    @kit.step("page/pay", on_crash="review")
    def pay(ctx: Any, data: dict[str, Any]) -> dict[str, Any]:
        return {"paid": True}

    search = {"amount": {"from": "input.amount", "type": "decimal"}}
    access = {"switches": {"kyc": "operator"}}
    kit.use(
        Pipeline("transfer", search=search, access=access).step("page/wait").build(),
        Pipeline("pay").step("page/pay").build(),
        Pipeline("bulk-transfer").step("util/bulk-transfer").build(),
    )
    for _ in range(2):
        kit.crash_at("hop.after_step")
        kit.client.submit("pay", {})
        kit.recover()
    house.services.health.alerts.raise_alert("page", "something", "A person should look at it.")
    for number in (1, 2):
        name = derived_id(house.new_owner("page"))
        (tmp_path / f"batch-{number}.bin").write_bytes(unsigned_batch_list(name, b"{}"))
    owner = house.new_owner("page")
    kit.client.submit("echo", {}, owner=owner, webhook="https://shop.example.com/hooks")
    with kit.connections.engine.begin() as sql:
        dead = "UPDATE webhook_delivery SET state = 'dead', finished_at = now() WHERE owner = %(o)s"
        assert sql.exec_driver_sql(dead, {"o": owner}).rowcount == 1
    keys = {
        "DATP_KEY": house.new_key(owner),
        "DATP_ADMIN_KEY": house.new_key(house.new_owner("admin"), Role.ADMIN),
        "DATP_APPROVER_KEY": house.new_key(house.new_owner("approver"), Role.APPROVER),
    }
    return {"DATP_URL": house.url, "PATH": os.environ["PATH"], **keys}


def test_the_commands_of_the_page_work(prepared: dict[str, str], tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", "-xeuo", "pipefail", "-c", script()],
        env=prepared,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, f"{done.stdout[-600:]}\n{done.stderr[-1500:]}"
    assert done.stdout.count("\n") > 60
