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
    """With the default of each variable, and a value for each that has none."""
    return re.sub(r"\$\{\w+:\?[^}]*\}", "x" * 32, re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text))


def ours(services: dict[str, Any]) -> dict[str, Any]:
    """Those that work on transactions; Flower and the stand-in for a ledger do not."""
    images = {name: each for name, each in services.items() if each.get("image") == "datp-tasks"}
    return {name: each for name, each in images.items() if name != "ledger-sim"}


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
    redis = services["redis"]["command"][-1]
    assert "--appendonly yes" in redis
    assert "--maxmemory-policy noeviction" in redis
    assert "--auto-aof-rewrite-min-size 256mb" in redis
    assert re.search(r"--maxmemory \S", redis)


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


# Nothing is handed to what does not need it.

SECRET_VARIABLES = re.compile(r"PASSWORD|PEPPER|AUTH|_URL$")


def test_every_password_must_be_chosen(services: dict[str, Any]) -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    for name, form in re.findall(r"\$\{(\w+)(:?.)", text):
        if SECRET_VARIABLES.search(name):
            assert form == ":?", f"{name} has a default"
    for name, service in services.items():
        for each, value in service.get("environment", {}).items():
            if SECRET_VARIABLES.search(each):
                assert "${" in value, f"{name} has {each} in plain text"


def test_redis_asks_for_a_password_which_is_on_no_command_line(services: dict[str, Any]) -> None:
    redis = services["redis"]
    assert "requirepass" in redis["command"][-1]
    assert "${" not in " ".join(redis["command"]).replace("$$", "")
    for service in ours(services).values():
        for each in ("DATP_REDIS_URL", "DATP_BROKER_URL"):
            assert "redis://:${DATP_REDIS_PASSWORD:?" in service["environment"][each]


def test_flower_and_the_stand_in_get_no_address_of_the_database(services: dict[str, Any]) -> None:
    assert set(services["flower"]["environment"]) == {"DATP_BROKER_URL", "FLOWER_BASIC_AUTH"}
    assert "environment" not in services["ledger-sim"]
    peppered = {n for n, each in services.items() if "DATP_KEY_PEPPER" in str(each)}
    assert peppered == {"api"}


def test_networks_are_apart(services: dict[str, Any]) -> None:
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    inside = {name for name, each in compose["networks"].items() if (each or {}).get("internal")}
    assert inside == {"data", "redis", "ledger"}
    of = {name: set(each["networks"]) for name, each in services.items()}
    assert of["postgres"] == {"data"}
    assert of["redis"] == {"redis"}
    assert of["ledger-sim"] == {"ledger"}
    assert "data" not in of["flower"]
    assert of["beat"] == {"data", "redis"}
    # A published port needs a network that leads outside.
    for name, each in services.items():
        assert not each.get("ports") or "outside" in of[name]


def test_no_service_may_more_than_it_needs(services: dict[str, Any]) -> None:
    for name, each in services.items():
        assert each["cap_drop"] == ["ALL"], name
        assert each["read_only"] is True, name
        assert "/tmp" in each["tmpfs"], name
        assert each["security_opt"] == ["no-new-privileges:true"], name
        if name != "postgres":
            assert "cap_add" not in each, name


def test_the_image_is_made_of_files_whose_hashes_are_known() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [part for line in dockerfile.splitlines() for part in line.split("&&")]
    fetching = [line for line in lines if re.search(r"\bpip (install|wheel|download)\b", line)]
    assert len(fetching) >= 4
    for line in fetching:
        assert "--require-hashes" in line or "--no-index" in line, line


def test_only_the_image_of_flower_has_flower(services: dict[str, Any]) -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert not any(each.startswith("flower") for each in project["dependencies"])
    assert any(each.startswith("flower") for each in project["optional-dependencies"]["flower"])
    assert services["flower"]["build"]["target"] == "flower"
    dockerfile = (ROOT / "Dockerfile").read_text()
    stages = {each.split()[2]: each for each in dockerfile.split("FROM ")[1:]}
    assert [*stages][-1] == "datp" and stages["datp"].startswith("run ")
    # Neither by itself nor from the stage that has it.
    with_flower = {name for name, each in stages.items() if "flower" in each.lower()}
    assert with_flower <= {"build", "build-flower", "flower"}
    assert "pip install" not in stages["run"] + stages["datp"]
    assert "[flower]" not in stages["build"]
