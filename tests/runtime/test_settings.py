"""Settings: read once, refused clearly, never a password in what is shown."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from datp_tasks.errors import SettingsError
from datp_tasks.model.node_groups import LIMITS
from datp_tasks.settings import BASIC, Settings, _warn_once, environment, variable

NUMBERS = [item.name for item in fields(Settings) if "low" in item.metadata]
URLS = [item.name for item in fields(Settings) if "schemes" in item.metadata]
PASSWORD = "hunter2-very-secret"


def refusal(**given: Any) -> str:
    with pytest.raises(SettingsError) as refused:
        Settings(**given)
    return "".join(traceback.format_exception(refused.value)).split("SettingsError: ")[-1].strip()


def refusal_of_env(**env: str) -> str:
    with pytest.raises(SettingsError) as refused:
        Settings.from_env(env)
    return str(refused.value)


def test_the_defaults_are_valid_and_need_no_environment() -> None:
    assert Settings.from_env({}) == Settings()
    assert Settings().shards == 16


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_out_of_its_range_is_refused_with_variable_allowed_and_given(name: str) -> None:
    rules = next(item.metadata for item in fields(Settings) if item.name == name)
    for value in (rules["low"] - 1, rules["high"] + 1):
        message = refusal(**{name: value})
        assert message == (
            f"{variable(name)} must be from {rules['low']} to {rules['high']}, was {value}"
        )


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_a_number_that_is_none_is_refused(value: str) -> None:
    name = "DATP_ENGINE__STEP_TIMEOUT_S"
    assert refusal_of_env(**{name: value}).startswith(f"{name} must be from")


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"DATP_SHARDS": "many"}, "DATP_SHARDS must be a whole number, was 'many'"),
        ({"DATP_SHARDS": "1.5"}, "DATP_SHARDS must be a whole number, was '1.5'"),
        (
            {"DATP_ENGINE__STEP_TIMEOUT_S": "1s"},
            "DATP_ENGINE__STEP_TIMEOUT_S must be a number, was '1s'",
        ),
        (
            {"DATP_KEY_PREFIX": "a b"},
            "DATP_KEY_PREFIX must match [A-Za-z0-9_.-]{1,32}, was 'a b'",
        ),
        (
            {"DATP_MAINTENANCE_GROUP": "Master"},
            "DATP_MAINTENANCE_GROUP must match [a-z0-9][a-z0-9_-]{0,63}, was 'Master'",
        ),
        (
            {"DATP_TUNING": '{"node_stale_ms": 3999}'},
            "node_stale_ms must be at least twice node_beat_ms (2000), was 3999",
        ),
    ],
)
def test_a_mistake_in_the_environment_is_named(env: dict[str, str], message: str) -> None:
    assert refusal_of_env(**env) == message


@pytest.mark.parametrize("name", URLS)
@pytest.mark.parametrize(
    "url",
    [
        f"mysql://app:{PASSWORD}@db/datp",
        f"//app:{PASSWORD}@db",
        # The standard library repeats this host, with the password, in its own complaint.
        f"redis://app:{PASSWORD}@ho\u2100st/0",
        f"postgresql://app:{PASSWORD}@[::1/datp",
    ],
)
def test_a_url_is_refused_without_showing_its_password(name: str, url: str) -> None:
    message = refusal(**{name: url})
    assert message.startswith(f"{variable(name)} must be a URL that starts with one of ")
    assert PASSWORD not in message


def test_settings_do_not_show_passwords_when_they_are_printed() -> None:
    settings = Settings(
        redis_url=f"redis://:{PASSWORD}@cache/0",
        database_url=f"postgresql://app:{PASSWORD}@db/datp",
    )
    assert PASSWORD not in repr(settings)
    assert PASSWORD not in str(settings)


def test_settings_cannot_be_changed() -> None:
    settings = Settings()
    with pytest.raises(FrozenInstanceError):
        settings.shards = 3  # type: ignore[misc]


def test_every_number_can_be_given_to_another_process() -> None:
    wanted = {name: _a_little_more(name) for name in NUMBERS}
    settings = Settings.from_env(environment(wanted))
    assert {name: getattr(settings, name) for name in NUMBERS} == wanted
    assert all(getattr(settings, name) != getattr(Settings(), name) for name in NUMBERS)


def test_what_is_given_to_another_process_is_read_there_as_it_was() -> None:
    wanted = {
        "steps": ("a.steps", "b.steps"),
        "webhook_timeout_s": 3.0,
        "crashes_max": 2,
    }
    given = environment(wanted)
    assert given.keys() == {"DATP_STEPS", "DATP_WEBHOOKS__TIMEOUT_S", "DATP_TUNING"}
    settings = Settings.from_env(given)
    assert {name: getattr(settings, name) for name in wanted} == wanted


def test_a_constant_that_does_not_exist_is_refused() -> None:
    assert refusal_of_env(DATP_TUNING='{"crashes": 2}') == (
        "DATP_TUNING names no constants: crashes"
    )


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """What was logged; a process says each thing once, so what others said is forgotten."""
    _warn_once.cache_clear()
    yield lambda: [record.getMessage() for record in caplog.records]
    _warn_once.cache_clear()


def test_an_old_name_is_read_once_more_with_a_warning_that_names_the_new_one(
    warnings: Callable[[], list[str]],
) -> None:
    for _ in range(2):
        assert Settings.from_env({"DATP_WEBHOOK_TIMEOUT_S": "3"}).webhook_timeout_s == 3
    assert warnings() == [
        "DATP_WEBHOOK_TIMEOUT_S is now DATP_WEBHOOKS__TIMEOUT_S; this release still reads the old "
        "name, the next one does not"
    ]


def test_the_old_name_of_what_a_node_group_decides_is_read_once_more(
    warnings: Callable[[], list[str]],
) -> None:
    assert Settings.from_env({"DATP_WEBHOOK_PAUSE_MS": "7"}).webhook_pause_ms == 7
    assert warnings() == [
        "DATP_WEBHOOK_PAUSE_MS is now webhookPause of a node group (datp groups set); this release "
        "still reads the old name, the next one does not"
    ]


def test_what_takes_the_place_of_an_old_name_is_a_value_of_node_groups() -> None:
    named = {item.metadata.get("group_value") for item in fields(Settings)} - {None, ""}
    assert named <= LIMITS.keys()
    assert len(named) == 6


@pytest.mark.parametrize(
    "name",
    [
        *("DATP_REAPER_BATCH_MAX", "DATP_WEBHOOKS__TIME_S", "DATP_KEEP__EVENT_DAYS"),
        *("DATP_WEBHOOK_SCHEMES", "DATP_WEBHOOK_PORTS", "DATP_CRASHES_MAX"),
    ],
)
def test_a_variable_that_looks_like_a_setting_and_is_none_is_told(
    name: str, warnings: Callable[[], list[str]]
) -> None:
    others = {"DATP_TEST_BENCH": "1", "DATP_URL": "http://x", "PATH_MAX": "1", "DATP_OLD_S": " "}
    for _ in range(2):
        assert Settings.from_env({name: "7", **others}) == Settings()
    assert warnings() == [
        f"{name} is no setting of this release and is not read (docs/settings.md)"
    ]


#: Another value than the default, for what is no number.
OTHERS = {
    **dict.fromkeys(("redis_url", "broker_url"), "redis://other/3"),
    "database_url": "postgresql:///other",
    "redis_cluster": "off",
    "log_format": "json",
    "console_path": "/other",
    "dispatch": "step",
    "ledger_expiry": "two-phase",
    "tracing": "on",
}


def other_value(item: Any) -> str:
    if "low" in item.metadata:
        return f"{_a_little_more(item.name):g}"
    return OTHERS.get(item.name, "other")


@pytest.mark.parametrize("item", fields(Settings), ids=lambda item: str(item.name))
def test_an_old_name_is_read_if_it_has_a_new_one(
    item: Any, warnings: Callable[[], list[str]]
) -> None:
    given = other_value(item)
    has_new_one = bool(item.metadata.get("env") or item.metadata.get("group_value"))
    is_read = has_new_one or item.name in BASIC
    settings = Settings.from_env({f"DATP_{item.name.upper()}": given})
    found = getattr(settings, item.name)
    default = getattr(Settings(), item.name)
    if isinstance(found, tuple):
        assert found == (given,)
    else:
        assert found == (type(default)(given) if is_read else default)
    assert len(warnings()) == (0 if item.name in BASIC else 1)
    if not is_read:
        assert settings == Settings()


@pytest.mark.parametrize("what", ["state_changes", "effects", "events", "webhooks", "alerts"])
@pytest.mark.parametrize("days", [0, 3_650])
def test_nothing_is_dropped_against_a_variable_of_the_release_before(what: str, days: int) -> None:
    settings = Settings.from_env({f"DATP_KEEP_{what.upper()}_DAYS": str(days)})
    assert getattr(settings, f"keep_{what}_days") == days


def test_the_new_name_goes_before_the_old_one(warnings: Callable[[], list[str]]) -> None:
    env = {"DATP_WEBHOOK_TIMEOUT_S": "3", "DATP_WEBHOOKS__TIMEOUT_S": "4"}
    assert Settings.from_env(env).webhook_timeout_s == 4
    assert warnings() == []


def test_a_mistake_under_an_old_name_is_named_as_it_was_given() -> None:
    assert refusal_of_env(DATP_WEBHOOK_TIMEOUT_S="soon") == (
        "DATP_WEBHOOK_TIMEOUT_S must be a number, was 'soon'"
    )


def test_times_that_follow_a_setting_grow_with_it() -> None:
    settings = Settings(webhook_timeout_s=60, ledger_http_s=20)
    assert settings.webhook_hold_s == 85
    assert (settings.ledger_post_budget_s, settings.ledger_grace_s) == (25, 30)
    assert refusal(ledger_http_s=28) == (
        "ledger_post_budget_s, which follows DATP_LEDGER__HTTP_S, must be below "
        "ledger_claim_ttl_s (30), was 33"
    )


def _a_little_more(name: str) -> float:
    """So little that settings which must be in some order stay in it."""
    default: float = getattr(Settings(), name)
    return default + 1 if isinstance(default, int) else default * 1.01 + 0.001


def test_texts_can_be_given_by_the_environment() -> None:
    env = {
        "DATP_REDIS_URL": "redis://r/1",
        "DATP_BROKER_URL": "amqp://b//",
        "DATP_DATABASE_URL": "postgresql:///d",
        "DATP_KEY_PREFIX": "acme",
        "DATP_MAINTENANCE_GROUP": "night-watch",
    }
    settings = Settings.from_env(env)
    for name, value in env.items():
        assert getattr(settings, name.removeprefix("DATP_").lower()) == value


def test_values_are_stripped_and_empty_ones_are_as_if_not_set() -> None:
    env = {"DATP_SHARDS": " 4 ", "DATP_SQL__POOL_SIZE": "", "DATP_KEY_PREFIX": "   "}
    settings = Settings.from_env(env)
    assert (settings.shards, settings.sql_pool_size, settings.key_prefix) == (4, 5, "datp")


def test_step_modules_are_a_list_with_commas() -> None:
    env = {"DATP_STEPS": " examples.payments.steps, my.steps ,,"}
    assert Settings.from_env(env).steps == ("examples.payments.steps", "my.steps")


@pytest.mark.parametrize(
    ("redis_url", "broker_url"),
    [
        ("redis://:pw@cache:6380/3", "redis://:pw@cache:6380/3"),
        ("rediss://cache/0", "rediss://cache/0"),
        ("unix:///run/redis.sock", "redis+socket:///run/redis.sock"),
        # kombu calls the database of a socket its virtual host and ignores `db`.
        ("unix:///run/redis.sock?db=3", "redis+socket:///run/redis.sock?virtual_host=3"),
        (
            "unix://:pw@/run/db=1/r.sock?a=b&db=3",
            "redis+socket://:pw@/run/db=1/r.sock?a=b&virtual_host=3",
        ),
    ],
)
def test_the_broker_is_the_redis_server_unless_another_is_given(
    redis_url: str, broker_url: str
) -> None:
    assert Settings(redis_url=redis_url).broker_url == broker_url
    assert Settings(redis_url=redis_url, broker_url="amqp://q//").broker_url == "amqp://q//"


def test_a_cluster_needs_a_broker_of_its_own_and_has_no_databases() -> None:
    cluster = {"DATP_REDIS_CLUSTER": "on", "DATP_REDIS_URL": "redis://h:7000"}
    with pytest.raises(SettingsError, match="DATP_BROKER_URL must be given"):
        Settings.from_env(cluster)
    broker = {"DATP_BROKER_URL": "amqp://u:secret@rabbit:5672/datp"}
    for url in ("redis://:secret@h:7000/3", "unix:///run/redis.sock"):
        with pytest.raises(SettingsError, match="DATP_REDIS_URL") as refused:
            Settings.from_env(cluster | broker | {"DATP_REDIS_URL": url})
        assert "secret" not in str(refused.value)
    for url in ("redis://h:7000", "rediss://h:7000/", "redis://h:7000/0"):
        settings = Settings.from_env(cluster | broker | {"DATP_REDIS_URL": url})
        assert settings.broker_url == broker["DATP_BROKER_URL"]


def test_a_word_that_is_neither_on_nor_off_is_refused_for_the_cluster() -> None:
    with pytest.raises(SettingsError, match=r"DATP_REDIS_CLUSTER must match off\|on, was 'yes'"):
        Settings.from_env({"DATP_REDIS_CLUSTER": "yes"})
