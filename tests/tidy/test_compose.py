"""docker-compose.yml says what the code says."""

from __future__ import annotations

import inspect
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from datp_tasks.cli.api import api
from datp_tasks.cli.nodes import nodes
from datp_tasks.local.workers import worker_process
from datp_tasks.settings import Settings, published, variable

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def services() -> dict[str, Any]:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return dict(compose["services"])


def resolved(text: str) -> str:
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def ours(services: dict[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in services.items() if each.get("image") == "datp-tasks"}


def test_every_service_of_ours_gets_settings_that_are_accepted(services: dict[str, Any]) -> None:
    for name, service in ours(services).items():
        env = {key: resolved(value) for key, value in service["environment"].items()}
        settings = Settings.from_env(env)
        known = {variable(item.name) for item in published()}
        assert {key for key in env if key.startswith("DATP_")} <= known, name
        assert "@postgres:5432/datp" in settings.database_url
        assert settings.redis_url != settings.broker_url


def test_the_urls_fit_the_servers(services: dict[str, Any]) -> None:
    postgres = services["postgres"]["environment"]
    url = resolved(services["beat"]["environment"]["DATP_DATABASE_URL"])
    user, password = postgres["POSTGRES_USER"], resolved(postgres["POSTGRES_PASSWORD"])
    assert url == f"postgresql+psycopg2://{user}:{password}@postgres:5432/{postgres['POSTGRES_DB']}"
    assert {"--appendonly", "noeviction"} <= set(services["redis"]["command"])


def test_workers_are_started_as_the_local_stack_starts_them(services: dict[str, Any]) -> None:
    for group in ("maintenance", "master", "kyc", "ledger"):
        local = worker_process(
            group, app="datp_tasks", concurrency=2, logs_dir=ROOT, env=dict(os.environ)
        )
        compose = services[f"worker-{group}"]["command"]
        flags = {word for word in local.argv if word.startswith("--without")}
        assert flags <= set(compose)
        assert compose[compose.index("-Q") + 1] == group


def test_a_worker_of_its_own_does_the_maintenance(services: dict[str, Any]) -> None:
    groups = {each["environment"]["DATP_MAINTENANCE_GROUP"] for each in ours(services).values()}
    assert groups == {"maintenance"}


def test_health_checks_ask_what_the_command_line_knows(services: dict[str, Any]) -> None:
    checked = {name for name, each in services.items() if "healthcheck" in each}
    workers = {name for name in services if name.startswith("worker-")}
    assert {"postgres", "redis", "api"} | workers == checked
    for name in workers:
        command = services[name]["healthcheck"]["test"][-1]
        assert command.startswith("datp nodes --host ")
    assert "host" in inspect.signature(nodes).parameters


def test_everything_waits_for_the_tables(services: dict[str, Any]) -> None:
    for name, service in ours(services).items():
        needed = service["depends_on"]
        assert "postgres" in needed if name == "migrate" else "migrate" in needed


def test_nothing_is_open_to_the_network_and_flower_asks_for_a_password(
    services: dict[str, Any],
) -> None:
    published = [port for each in services.values() for port in each.get("ports", [])]
    assert sorted(published) == ["127.0.0.1:5555:5555", "127.0.0.1:8700:8700"]
    assert services["flower"]["environment"]["FLOWER_BASIC_AUTH"].startswith(
        "${FLOWER_BASIC_AUTH:?"
    )


def test_the_api_is_started_as_the_command_line_knows_it_and_asks_for_a_pepper(
    services: dict[str, Any],
) -> None:
    command = services["api"]["command"]
    assert command[:2] == ["datp", "api"]
    options = {name for name in inspect.signature(api).parameters}
    assert {word.removeprefix("--") for word in command if word[:2] == "--"} <= options
    assert services["api"]["environment"]["DATP_KEY_PEPPER"].startswith("${DATP_KEY_PEPPER:?")


def test_the_image_is_not_run_by_root_and_has_what_the_wheel_needs() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert re.search(r"^USER (?!root)", dockerfile, re.MULTILINE)
    for needed in ("celeryconfig.py", "migrations", "examples", "requirements.lock"):
        assert needed in dockerfile
