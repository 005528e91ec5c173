"""docs/operations.md says what the code says."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from typing import Any

from datp_tasks.cli.families import FAMILIES
from datp_tasks.cli.lazy import commands_of
from datp_tasks.cli.remote_context import KEY_VARIABLE
from datp_tasks.jobs import watcher
from datp_tasks.local.redis_server import RedisServer
from datp_tasks.record import ledger_batches as batches
from datp_tasks.record.webhook_queue import DEAD, DISABLED
from datp_tasks.settings import Settings, published, variable

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "operations.md").read_text()
#: Modules that raise alerts under names of their own, and those that are told what to raise.
RAISED_AS = {
    "datp_tasks/jobs/watcher.py": watcher.KINDS,
    "datp_tasks/record/webhook_queue.py": (DISABLED, DEAD),
    # In the statement that parks or that counts a failure.
    "datp_tasks/record/sql": ("in-doubt",),
}


def raised_kinds() -> set[str]:
    """What the code passes to `raise_alert`, and the kinds that the ledger's SQL raises."""
    found: set[str] = {value for name, value in vars(batches).items() if name.endswith("_ALERT")}
    for path in sorted((ROOT / "datp_tasks").rglob("*.py")):
        shown = path.relative_to(ROOT).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            if node.func.attr == "raise_alert" and shown not in RAISED_AS:
                assert isinstance(node.args[0], ast.Name), f"{shown}: which kind is that?"
                module = importlib.import_module(shown.removesuffix(".py").replace("/", "."))
                found.add(getattr(module, node.args[0].id))
    return found.union(*RAISED_AS.values())


def test_every_alert_has_a_row_that_says_what_to_do() -> None:
    table = PAGE.split("## Alerts")[1].split("### ")[0]
    rows = re.findall(r"^\| `([a-z-]+)` \| .+ \| .+ \| .+ \|$", table, re.MULTILINE)
    assert sorted(rows) == sorted(raised_kinds())


def test_every_command_that_is_named_exists() -> None:
    prose = re.sub(r"^```.*?^```", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    code = " ; ".join(re.findall(r"`[^`\n]+`", prose))
    named = re.findall(r"datp ([a-z][a-z-]*)(?: ([a-z]+)\b)?", code)
    assert len(named) > 20
    known: dict[str, Any] = {}
    for family in FAMILIES:
        known |= commands_of(family)
    for first, second in named:
        command = known.get(first)
        assert command is not None, f"there is no `datp {first}`"
        if hasattr(command, "commands") and (second or not command.invoke_without_command):
            assert second in command.commands, f"there is no `datp {first} {second}`"


def test_every_setting_that_is_named_exists() -> None:
    # A key is no setting: it belongs to the person who runs the command.
    known = {variable(item.name) for item in published()} | {KEY_VARIABLE}
    named = set(re.findall(r"\bDATP_[A-Z_]+\b", PAGE)) - {"DATP_TEST_RABBITMQ_URL"}
    assert named <= known, named - known


def test_the_settings_of_a_cluster_are_accepted() -> None:
    block = PAGE.split("export DATP_REDIS_CLUSTER")[1].split("```")[0]
    lines = f"export DATP_REDIS_CLUSTER{block}".strip().splitlines()
    exported = [line.partition("#")[0].removeprefix("export ").strip() for line in lines]
    settings = Settings.from_env(dict(line.split("=", 1) for line in exported))
    assert settings.redis_cluster == "on"
    assert settings.broker_url != settings.redis_url


def test_the_settings_of_redis_are_those_of_the_embedded_one(tmp_path: Path) -> None:
    server = RedisServer(tmp_path, port=1)
    ours = server._configuration().splitlines()
    advised = PAGE.split("```text\n")[1].split("```")[0].splitlines()
    assert [line for line in advised if line not in ours] == ["maxmemory 8gb"]


def test_every_test_that_is_named_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)`", PAGE)
    assert len(named) >= 3
    assert [path for path in named if not (ROOT / path).is_file()] == []
