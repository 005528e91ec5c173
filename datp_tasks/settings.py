"""What a deployment decides, read from the environment once and checked at start.

Two tiers are published: what every deployment sets (`DATP_REDIS_URL`), and what some change, by
topic (`DATP_WEBHOOKS__TIMEOUT_S`). All other numbers are constants with a reason, beside their use
or in tuning.py. A value that is not allowed is refused with its name, what is allowed and what was
given.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from datp_tasks.errors import SettingsError
from datp_tasks.tuning import Tuning, number

GROUP_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
#: JSON with constants for a process that a test or a benchmark starts; not for deployments.
TUNING_VARIABLE = "DATP_TUNING"

#: A submission ends before the claim under which it was begun, or two may be on their way; so
#: does an attempt to deliver a webhook.
_SHORTER_THAN = (
    ("ledger_http_s", "ledger_post_budget_s"),
    ("claim_queuer_period_s", "ledger_claim_ttl_s"),
    ("ledger_claim_ttl_s", "ledger_slow_ttl_s"),
    ("ledger_post_budget_s", "ledger_grace_s"),
    ("webhook_timeout_s", "webhook_hold_s"),
)
#: A time that is 0 is the other one and so many seconds more, in this order.
_FOLLOWS = (
    ("ledger_post_budget_s", "ledger_http_s", 5.0),
    ("ledger_grace_s", "ledger_post_budget_s", 5.0),
    ("webhook_hold_s", "webhook_timeout_s", 25.0),
)

#: Looks like a setting: it has a topic, or the unit of a number.
_LIKE_A_SETTING = re.compile(r"DATP_(\w+__\w+|\w+_(S|MS|DAYS|MAX))")
#: Were settings before 0.2, and do not look like one.
_GONE = frozenset(("DATP_WEBHOOK_PORTS", "DATP_WEBHOOK_SCHEMES"))

log = logging.getLogger("datp.settings")


def _text(default: str, pattern: str, env: str = "") -> Any:
    return field(default=default, metadata={"pattern": pattern, "env": env})


def _list(*default: str, env: str = "") -> Any:
    """Several texts, with commas between them in the environment."""
    return field(default=default, metadata={"env": env})


def _secret(pattern: str = "", env: str = "") -> Any:
    """Not shown when settings are printed, and hidden in logs."""
    rule = {"pattern": pattern} if pattern else {}
    return field(default="", repr=False, metadata={**rule, "env": env})


def _url(default: str, *schemes: str) -> Any:
    # Not shown when settings are printed: it may hold a password.
    return field(default=default, repr=False, metadata={"schemes": schemes})


@dataclass(frozen=True, kw_only=True)
class Settings(Tuning):
    """All limits, periods and addresses of one process."""

    # What every deployment sets. The pepper is the server's part of every API key: the same for
    # all its processes. `redis_cluster` says that `redis_url` names a server of a Redis Cluster;
    # the broker then is another server. The build is shown with every node.
    redis_url: str = _url("redis://127.0.0.1:6379/0", "redis", "rediss", "unix")
    redis_cluster: str = _text("off", "off|on")
    broker_url: str = _url("", "redis", "rediss", "redis+socket", "amqp", "amqps", "memory")
    database_url: str = _url(
        "postgresql+psycopg2://datp@127.0.0.1:5432/datp", "postgresql+psycopg2", "postgresql"
    )
    key_prefix: str = _text("datp", r"[A-Za-z0-9_.-]{1,32}")
    shards: int = number(16, 1, 100)
    maintenance_group: str = _text("master", GROUP_NAME.pattern)
    steps: tuple[str, ...] = _list()
    key_pepper: str = _secret()
    #: The pepper before this one: keys made under it are still known, and follow when used.
    key_pepper_previous: str = _secret()
    log_format: str = _text("text", "text|json")
    build: str = _text("", r"[ -~]{0,100}")
    #: Where the API serves the web console; `off`: nowhere.
    console_path: str = _text("/console", r"off|(/[A-Za-z0-9_.~-]+)+")

    # Transactions and their steps.
    input_bytes_max: int = number(262_144, 1_024, 16_777_216, env="ENGINE__INPUT_BYTES_MAX")
    step_timeout_s: float = number(60.0, 0.01, 86_400, env="ENGINE__STEP_TIMEOUT_S")
    #: `step`: every step has its own message, unless its pipeline says otherwise.
    dispatch: str = _text("inline", "inline|step", env="ENGINE__DISPATCH")
    sql_pool_size: int = number(5, 1, 100, env="SQL__POOL_SIZE")

    # Clients. The original's know no keys: as whom they come in, if at all.
    owner_requests_per_s: float = number(1_000.0, 0.01, 1_000_000, env="API__OWNER_REQUESTS_PER_S")
    owner_in_flight_max: int = number(100_000, 1, 100_000_000, env="API__OWNER_IN_FLIGHT_MAX")
    compat_owner: str = _text("", r"([A-Za-z0-9][\w.@-]{0,63})?", env="API__COMPAT_OWNER")

    #: Proxies whose `X-Forwarded-For` is believed.
    api_proxies: tuple[str, ...] = _list(env="API__PROXIES")

    # What needs a second person: a YAML file, or `single-person`; empty: strict defaults. What
    # seals secrets and payloads (seals/keyring.py): a file, or its content. Where http/request
    # may go: anywhere if that is empty.
    policy_file: str = _text("", "[^\\0]*", env="SECURITY__POLICY_FILE")
    keyring_file: str = _text("", "[^\\0]*", env="SECURITY__KEYRING_FILE")
    keyring: str = _secret(env="SECURITY__KEYRING")
    http_hosts: tuple[str, ...] = _list(env="SECURITY__HTTP_HOSTS")
    #: How people sign in to the console beside API keys: a YAML file (docs/console.md).
    identity_file: str = _text("", "[^\\0]*", env="SECURITY__IDENTITY_FILE")

    # Webhooks. Hosts (with a port, if it matters) and networks that are named as private are
    # trusted: any scheme, any port, any address but those of cloud metadata.
    webhook_private_hosts: tuple[str, ...] = _list(env="WEBHOOKS__PRIVATE_HOSTS")
    webhook_timeout_s: float = number(15.0, 0.1, 300, env="WEBHOOKS__TIMEOUT_S")
    webhook_attempts_max: int = number(10, 1, 100, env="WEBHOOKS__ATTEMPTS_MAX")
    webhook_workers: int = number(64, 1, 1_000, env="WEBHOOKS__WORKERS")
    # A target that fails so often in a period is left alone for a while.
    webhook_fails_max: int = number(10, 1, 100_000, env="WEBHOOKS__FAILS_MAX")
    webhook_fail_period_s: float = number(120.0, 0.1, 86_400, env="WEBHOOKS__FAIL_PERIOD_S")
    webhook_disable_s: float = number(300.0, 0.1, 604_800, env="WEBHOOKS__DISABLE_S")

    # From Redis to SQL.
    delay_before_archiving_s: int = number(60, 0, 86_400, env="ARCHIVE__DELAY_BEFORE_ARCHIVING_S")
    state_ttl_s: int = number(300, 1, 864_000, env="ARCHIVE__STATE_TTL_S")
    archiver_role_s: float = number(30.0, 1, 3_600, env="ARCHIVE__ROLE_S")
    archiver_grace_s: float = number(15.0, 0.1, 3_600, env="ARCHIVE__GRACE_S")
    journal_dir: str = _text("", "[^\\0]*", env="ARCHIVE__JOURNAL_DIR")

    # How long it is kept there; 0: for ever.
    keep_summaries_days: int = number(0, 0, 36_500, env="KEEP__SUMMARIES_DAYS")
    keep_states_days: int = number(0, 0, 36_500, env="KEEP__STATES_DAYS")
    keep_journal_days: int = number(0, 0, 36_500, env="KEEP__JOURNAL_DAYS")
    keep_batches_days: int = number(0, 0, 36_500, env="KEEP__BATCHES_DAYS")
    #: The summaries' period drops them too; without one, the log is what an auditor asks for.
    keep_state_changes_days: int = number(0, 0, 36_500, env="KEEP__STATE_CHANGES_DAYS")
    #: Outputs of transactional steps are needed while their transaction may be repaired.
    keep_effects_days: int = number(30, 0, 36_500, env="KEEP__EFFECTS_DAYS")
    #: Progress reports are of use to a client for as long as it may ask what happened.
    keep_events_days: int = number(90, 0, 36_500, env="KEEP__EVENTS_DAYS")
    #: A receiver that lost its data asks for redelivery within a quarter.
    keep_webhooks_days: int = number(90, 0, 36_500, env="KEEP__WEBHOOKS_DAYS")
    #: Alerts that were cleared, for a look back over a year.
    keep_alerts_days: int = number(400, 0, 36_500, env="KEEP__ALERTS_DAYS")

    # Ledgers: which may be asked, and for how long a request may take.
    ledger_hosts: tuple[str, ...] = _list("127.0.0.1", "localhost", env="LEDGER__HOSTS")
    ledger_authorization: str = _secret("[ -~]*", env="LEDGER__AUTHORIZATION")
    ledger_expiry: str = _text("single", "single|two-phase", env="LEDGER__EXPIRY")
    ledger_http_s: float = number(15.0, 0.05, 300, env="LEDGER__HTTP_S")

    # What people see. The URL is told of every alert, raised and cleared; trusted as it is.
    tracing: str = _text("off", "off|on", env="OBSERVE__TRACING")
    alert_webhook_url: str = _secret(env="OBSERVE__ALERT_WEBHOOK_URL")

    @property
    def queues_share_redis(self) -> bool:
        """Whether Celery's queues are in the Redis, and the database of it, that has the state."""
        return self.redis_cluster == "off" and self.broker_url == _broker_from(self.redis_url)

    def __post_init__(self) -> None:
        if self.redis_cluster == "on":
            _check_cluster(self.redis_url, self.broker_url)
        if not self.broker_url:
            object.__setattr__(self, "broker_url", _broker_from(self.redis_url))
        for name, other, more_s in _FOLLOWS:
            if getattr(self, name) == 0:
                object.__setattr__(self, name, getattr(self, other) + more_s)
        for item in fields(self):
            _check(item.name, getattr(self, item.name), item.metadata)
        if self.node_stale_ms < 2 * self.node_beat_ms:
            raise SettingsError(
                f"{variable('node_stale_ms')} must be at least twice {variable('node_beat_ms')} "
                f"({self.node_beat_ms}), was {self.node_stale_ms}"
            )
        lease = "ledger_claim_ttl_s" if self.ledger_expiry == "single" else "ledger_slow_ttl_s"
        for low, high in (*_SHORTER_THAN, ("ledger_post_budget_s", lease)):
            if getattr(self, low) >= getattr(self, high):
                raise SettingsError(
                    f"{_shown(low)} must be below {_shown(high)} "
                    f"({getattr(self, high):g}), was {getattr(self, low):g}"
                )

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> Settings:
        """Read `DATP_*` from the environment; what is not set keeps its default."""
        env = os.environ if env is None else env
        given: dict[str, Any] = _tuning(env)
        for item in fields(cls):
            name = next((each for each in _variables(item.name) if env.get(each, "").strip()), "")
            if name:
                given[item.name] = _parse(name, env[name].strip(), item.default)
                if name != variable(item.name):
                    _warn_of_old_name(item.name)
        _warn_of_unknown(env)
        return cls(**given)


_FIELDS = {item.name: item for item in fields(Settings)}
#: What every deployment sets: published without a topic.
BASIC = frozenset(
    name for name in Settings.__annotations__ if not _FIELDS[name].metadata.get("env")
)


def published() -> list[Field[Any]]:
    """What an installation may set, in the order of the documentation."""
    return [_FIELDS[name] for name in Settings.__annotations__]


def variable(name: str) -> str:
    """The environment variable of a setting; a constant has none, and is called by its name."""
    if name in BASIC:
        return _old_variable(name)
    env = _FIELDS[name].metadata.get("env")
    return f"DATP_{env}" if env else name


def _variables(name: str) -> tuple[str, ...]:
    """The variables by which it is read, the one that counts first; a constant has none."""
    old, rules = _old_variable(name), _FIELDS[name].metadata
    if name in BASIC or rules.get("group_value"):
        return (old,)
    return (variable(name), old) if rules.get("env") else ()


def _shown(name: str) -> str:
    """A time that follows another is named with that one: it is what can be changed."""
    for follower, other, _ in _FOLLOWS:
        if name == follower:
            return f"{name}, which follows {variable(other)},"
    return variable(name)


def environment(values: Mapping[str, Any]) -> dict[str, str]:
    """Variables by which another process gets these settings, and constants if there are any."""
    found: dict[str, str] = {}
    constants: dict[str, Any] = {}
    for name, value in values.items():
        if variable(name) == name:
            constants[name] = value
        else:
            found[variable(name)] = ",".join(value) if isinstance(value, tuple) else str(value)
    return {**found, TUNING_VARIABLE: json.dumps(constants)} if constants else found


def _tuning(env: Mapping[str, str]) -> dict[str, Any]:
    given = json.loads(env.get(TUNING_VARIABLE) or "{}")
    if unknown := given.keys() - Tuning.__annotations__.keys():
        raise SettingsError(f"{TUNING_VARIABLE} names no constants: {', '.join(sorted(unknown))}")
    return dict(given)


def _old_variable(name: str) -> str:
    """The variable in releases before 0.2, which had one for every number."""
    return f"DATP_{name.upper()}"


def _warn_of_old_name(name: str) -> None:
    value = _FIELDS[name].metadata.get("group_value")
    new = f"{value} of a node group (datp groups set)" if value else variable(name)
    still = "this release still reads the old name, the next one does not"
    _warn_once(f"{_old_variable(name)} is now {new}; {still}")


def _warn_of_unknown(env: Mapping[str, str]) -> None:
    """A slip of the pen, or a number that has become a constant."""
    known = {each for name in _FIELDS for each in _variables(name)}
    for name in sorted(env.keys() - known):
        if env[name].strip() and (name in _GONE or _LIKE_A_SETTING.fullmatch(name)):
            _warn_once(f"{name} is no setting of this release and is not read (docs/settings.md)")


@cache
def _warn_once(text: str) -> None:
    """Once in a process: several of its parts read the environment."""
    log.warning("%s", text)


def _broker_from(redis_url: str) -> str:
    """kombu spells the URL of a unix socket, and the database in it, differently from redis-py."""
    if not redis_url.startswith("unix://"):
        return redis_url
    base, _, query = redis_url.replace("unix://", "redis+socket://", 1).partition("?")
    query = re.sub(r"(^|&)db=", r"\1virtual_host=", query)
    return f"{base}?{query}" if query else base


def _check_cluster(redis_url: str, broker_url: str) -> None:
    if not broker_url:
        raise SettingsError(
            "DATP_BROKER_URL must be given with DATP_REDIS_CLUSTER=on: Celery's messages cannot "
            "be kept in a Redis Cluster. Name a single Redis (redis://…) or RabbitMQ (amqp://…)."
        )
    if _scheme(redis_url) == "unix" or urlsplit(redis_url).path not in ("", "/", "/0"):
        raise SettingsError(
            "DATP_REDIS_URL must name a host, a port and no database but 0 with "
            "DATP_REDIS_CLUSTER=on: a Redis Cluster has nothing else"
        )


def _parse(name: str, raw: str, default: object) -> object:
    try:
        if isinstance(default, tuple):
            return tuple(part.strip() for part in raw.split(",") if part.strip())
        if isinstance(default, int):
            return int(raw)
        if isinstance(default, float):
            return float(raw)
    except ValueError:
        kind = "a whole number" if isinstance(default, int) else "a number"
        raise SettingsError(f"{name} must be {kind}, was {raw!r}") from None
    return raw


def _check(name: str, value: Any, rules: Mapping[str, Any]) -> None:
    if "low" in rules and not rules["low"] <= value <= rules["high"]:
        raise SettingsError(
            f"{variable(name)} must be from {rules['low']} to {rules['high']}, was {value}"
        )
    if "pattern" in rules and not re.fullmatch(rules["pattern"], value):
        raise SettingsError(f"{variable(name)} must match {rules['pattern']}, was {value!r}")
    if "schemes" in rules:
        scheme = _scheme(value)
        if scheme not in rules["schemes"]:
            allowed = ", ".join(f"{each}://" for each in rules["schemes"])
            # The URL itself may hold a password, so only its scheme is repeated.
            raise SettingsError(
                f"{variable(name)} must be a URL that starts with one of {allowed}; "
                f"its scheme was {scheme!r}"
            )


def _scheme(url: str) -> str:
    try:
        return urlsplit(url).scheme
    except ValueError:
        # Its message may repeat the URL, with the password.
        return ""
