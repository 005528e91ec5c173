"""Every setting, validated once at start.

Each field is read from the environment as `DATP_<NAME>`; a value that is not allowed is refused
with its name, what is allowed and what was given. Units are in the names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import urlsplit

from datp_tasks.errors import SettingsError

GROUP_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


def _number(default: float, low: float, high: float) -> Any:
    return field(default=default, metadata={"low": low, "high": high})


#: A submission ends before the claim under which it was begun, or two may be on their way; so
#: does an attempt to deliver a webhook.
_SHORTER_THAN = (
    ("ledger_http_s", "ledger_post_budget_s"),
    ("claim_queuer_period_s", "ledger_claim_ttl_s"),
    ("ledger_claim_ttl_s", "ledger_slow_ttl_s"),
    ("ledger_post_budget_s", "ledger_grace_s"),
    ("webhook_timeout_s", "webhook_hold_s"),
)


def _url(default: str, *schemes: str) -> Any:
    # Not shown when settings are printed: it may hold a password.
    return field(default=default, repr=False, metadata={"schemes": schemes})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All limits, periods and addresses of one process."""

    # Where things are.
    redis_url: str = _url("redis://127.0.0.1:6379/0", "redis", "rediss", "unix")
    #: Whether `redis_url` names a server of a Redis Cluster; the broker then is another server.
    redis_cluster: str = field(default="off", metadata={"pattern": "off|on"})
    broker_url: str = _url("", "redis", "rediss", "redis+socket", "amqp", "amqps", "memory")
    database_url: str = _url(
        "postgresql+psycopg2://datp@127.0.0.1:5432/datp", "postgresql+psycopg2", "postgresql"
    )
    key_prefix: str = field(default="datp", metadata={"pattern": r"[A-Za-z0-9_.-]{1,32}"})
    shards: int = _number(16, 1, 100)
    maintenance_group: str = field(default="master", metadata={"pattern": GROUP_NAME.pattern})
    steps: tuple[str, ...] = ()

    # What a client may send.
    input_bytes_max: int = _number(262_144, 1_024, 16_777_216)
    input_depth_max: int = _number(32, 2, 128)
    output_bytes_max: int = _number(262_144, 1_024, 16_777_216)
    progress_bytes_max: int = _number(16_384, 64, 262_144)
    external_id_chars_max: int = _number(64, 8, 255)
    switches_per_transaction_max: int = _number(64, 1, 1_000)
    submit_batch_max: int = _number(500, 1, 5_000)

    # Pipelines and steps.
    pipeline_steps_max: int = _number(200, 1, 2_000)
    nesting_max: int = _number(16, 1, 64)
    retry_attempts_max: int = _number(100, 1, 10_000)
    crashes_max: int = _number(5, 1, 100)
    sleep_s_max: int = _number(31_622_400, 1, 315_360_000)
    step_timeout_s: float = _number(60.0, 0.01, 86_400)
    step_kill_grace_s: float = _number(10.0, 0.1, 600)
    pipeline_reload_s: float = _number(2.0, 0, 60)

    # Vectors.
    vector_max: int = _number(100, 1, 1_000)
    vector_budget_ms: int = _number(25, 1, 10_000)
    vector_stuck_ms: int = _number(500, 10, 60_000)
    state_cache_entries_max: int = _number(2_000, 0, 1_000_000)

    # Nodes.
    node_beat_ms: int = _number(2_000, 50, 60_000)
    node_stale_ms: int = _number(6_000, 100, 600_000)
    node_grace_ms: int = _number(3_000, 0, 600_000)
    #: Shown with every node, so that a person sees which build runs where.
    build: str = field(default="", metadata={"pattern": r"[ -~]{0,100}"})

    # What people see: logs, traces, alerts.
    log_format: str = field(default="text", metadata={"pattern": "text|json"})
    tracing: str = field(default="off", metadata={"pattern": "off|on"})
    meter_period_s: float = _number(5.0, 0.1, 3_600)
    watcher_period_s: float = _number(5.0, 0.1, 3_600)
    group_cache_period_s: float = _number(10.0, 0.1, 3_600)
    beat_silent_s: float = _number(15.0, 0.1, 3_600)
    queue_bells_alert_max: int = _number(10_000, 1, 100_000_000)
    queued_alert_max: int = _number(100_000, 1, 100_000_000)

    # Maintenance.
    sleeper_period_s: float = _number(1.0, 0.1, 3_600)
    sleeper_batch_max: int = _number(1_000, 1, 100_000)
    reaper_period_s: float = _number(2.0, 0.1, 3_600)
    reaper_batch_max: int = _number(500, 1, 100_000)
    reconciler_period_s: float = _number(2.0, 0.1, 3_600)
    reconciler_batch_max: int = _number(1_000, 1, 100_000)
    rebuild_run_s: float = _number(60.0, 0.1, 3_600)
    reconciler_window_s: int = _number(3_600, 1, 864_000)
    place_after_ms: int = _number(2_000, 10, 3_600_000)
    ring_again_after_ms: int = _number(10_000, 10, 3_600_000)
    archiver_period_s: float = _number(5.0, 0.1, 3_600)
    archiver_batch_max: int = _number(1_000, 1, 10_000)
    archiver_run_s: float = _number(4.0, 0.1, 600)
    archiver_role_s: float = _number(30.0, 1, 3_600)
    archiver_grace_s: float = _number(15.0, 0.1, 3_600)
    archiver_bytes_max: int = _number(67_108_864, 65_536, 1_073_741_824)
    journal_batch_max: int = _number(5_000, 16, 100_000)
    journal_dir: str = field(default="", metadata={"pattern": "[^\\0]*"})
    keep_states_days: int = _number(0, 0, 36_500)
    keep_journal_days: int = _number(0, 0, 36_500)
    keep_summaries_days: int = _number(0, 0, 36_500)
    keep_state_changes_days: int = _number(0, 0, 36_500)
    keep_effects_days: int = _number(30, 0, 36_500)
    keep_events_days: int = _number(90, 0, 36_500)
    keep_webhooks_days: int = _number(90, 0, 36_500)
    keep_batches_days: int = _number(0, 0, 36_500)
    retention_period_s: float = _number(60.0, 0.1, 86_400)
    retention_run_s: float = _number(10.0, 0.1, 3_600)
    retention_batch_max: int = _number(1_000, 1, 100_000)
    pipeline_cache_period_s: float = _number(10.0, 0.1, 3_600)
    delay_before_archiving_s: int = _number(60, 0, 86_400)
    state_ttl_s: int = _number(1_800, 1, 864_000)
    sleeping_ttl_s: int = _number(300, 1, 864_000)

    # Timeouts.
    expiry_s_max: int = _number(31_622_400, 1, 315_360_000)
    timeout_handler_period_s: float = _number(1.0, 0.1, 3_600)
    timeout_window_max: int = _number(10_000, 1, 1_000_000)
    timeout_batch_max: int = _number(1_000, 1, 100_000)
    timeout_retry_s: float = _number(30.0, 0.1, 86_400)
    timeout_takeover_s: float = _number(120.0, 0.1, 864_000)
    timeout_lag_alert_s: float = _number(60.0, 0.1, 86_400)

    # Ledgers: who may be asked, and how claims, submissions and questions are timed.
    ledger_group: str = field(default="ledger", metadata={"pattern": GROUP_NAME.pattern})
    ledger_hosts: tuple[str, ...] = ("127.0.0.1", "localhost")
    ledger_authorization: str = field(default="", repr=False, metadata={"pattern": "[ -~]*"})
    ledger_expiry: str = field(default="single", metadata={"pattern": "single|two-phase"})
    ledger_payload_bytes_max: int = _number(1_048_576, 16, 67_108_864)
    ledger_claim_ttl_s: float = _number(30.0, 0.2, 3_600)
    ledger_slow_ttl_s: float = _number(180.0, 0.2, 86_400)
    ledger_claim_batch_max: int = _number(5_000, 1, 100_000)
    ledger_queue_batch_max: int = _number(1_000, 1, 100_000)
    ledger_vector_max: int = _number(25, 1, 500)
    ledger_connect_s: float = _number(3.0, 0.01, 60)
    ledger_http_s: float = _number(15.0, 0.05, 300)
    ledger_post_budget_s: float = _number(20.0, 0.1, 600)
    ledger_grace_s: float = _number(25.0, 0.1, 3_600)
    ledger_delay_first_s: float = _number(1.0, 0.01, 60)
    ledger_delay_s_max: float = _number(30.0, 0.01, 3_600)
    ledger_long_delay_s: float = _number(60.0, 0.01, 86_400)
    ledger_ring_again_s: float = _number(10.0, 0.1, 600)
    ledger_follow_s: float = _number(0.25, 0, 60)
    ledger_run_s: float = _number(2.0, 0, 600)
    ledger_poll_first_s: float = _number(1.0, 0.01, 60)
    ledger_poll_s_max: float = _number(10.0, 0.01, 3_600)
    ledger_poll_batch_max: int = _number(500, 1, 100_000)
    ledger_unknown_max: int = _number(3, 1, 100)
    ledger_resubmits_max: int = _number(3, 0, 100)
    ledger_swallow_s: float = _number(1_200.0, 0, 86_400)
    ledger_recheck_s: float = _number(600.0, 0, 86_400)
    claim_queuer_period_s: float = _number(2.0, 0.1, 60)
    batch_poller_period_s: float = _number(1.0, 0.1, 60)

    # The HTTP API. The pepper is the server's part of every key: the same for all its processes.
    key_pepper: str = field(default="", repr=False)
    #: The pepper before this one: keys made under it are still known, and follow when used.
    key_pepper_previous: str = field(default="", repr=False)
    key_cache_s: float = _number(5.0, 0, 300)
    owner_requests_per_s: float = _number(1_000.0, 0.01, 1_000_000)
    owner_burst_max: int = _number(2_000, 1, 10_000_000)
    owner_in_flight_max: int = _number(100_000, 1, 100_000_000)
    api_threads_max: int = _number(6, 1, 64)
    accept_queue_max: int = _number(10_000, 1, 1_000_000)
    bulk_items_max: int = _number(1_000, 1, 5_000)
    bulk_bytes_max: int = _number(16_777_216, 1_024, 268_435_456)
    body_read_s: float = _number(30.0, 0.1, 600)
    list_rows_max: int = _number(200, 1, 1_000)
    long_poll_s_max: float = _number(60.0, 0, 600)
    long_poll_tick_s: float = _number(2.0, 0.05, 60)
    long_poll_waiters_max: int = _number(10_000, 1, 1_000_000)
    # Clients of the original's API, which know no keys: as whom they come in, if at all.
    compat_owner: str = field(default="", metadata={"pattern": r"([A-Za-z0-9][\w.@-]{0,63})?"})
    compat_long_poll_s: float = _number(15.0, 0, 600)

    # Webhooks: where they may go. Hosts (with a port, if it matters) and networks that are named
    # as private are trusted: any scheme, any port, any address but those of cloud metadata.
    webhook_schemes: tuple[str, ...] = ("https",)
    webhook_ports: tuple[str, ...] = ("443", "8443")
    webhook_private_hosts: tuple[str, ...] = ()
    webhook_url_chars_max: int = _number(2_000, 32, 8_000)
    # How many are sent at a time, and how often to look.
    webhook_workers: int = _number(64, 1, 1_000)
    webhook_per_url_max: int = _number(8, 1, 1_000)
    webhook_batch_max: int = _number(500, 1, 10_000)
    webhook_sender_period_s: float = _number(1.0, 0.1, 3_600)
    webhook_run_s: float = _number(0.1, 0, 600)
    webhook_pause_ms: int = _number(50, 1, 60_000)
    webhook_pause_busy_ms: int = _number(20, 1, 60_000)
    webhook_pause_idle_ms: int = _number(2_000, 1, 60_000)
    webhook_overdue_s: float = _number(5.0, 0.1, 3_600)
    # One attempt; it is held for so long that it is over by then, whatever happens.
    webhook_connect_s: float = _number(5.0, 0.05, 60)
    webhook_timeout_s: float = _number(15.0, 0.1, 300)
    webhook_hold_s: float = _number(40.0, 0.2, 3_600)
    webhook_answer_bytes_max: int = _number(65_536, 256, 1_048_576)
    # All attempts: exponential delays that start small and end after three days.
    webhook_attempts_max: int = _number(10, 1, 100)
    webhook_delay_first_s: float = _number(5.0, 0.01, 86_400)
    webhook_give_up_s: float = _number(259_200.0, 0.1, 31_622_400)
    webhook_retry_after_s_max: float = _number(86_400.0, 0, 604_800)
    # A target that fails so often in a period is left alone for a while.
    webhook_fails_max: int = _number(10, 1, 100_000)
    webhook_fail_period_s: float = _number(120.0, 0.1, 86_400)
    webhook_disable_s: float = _number(300.0, 0.1, 604_800)
    webhook_secret_overlap_s: int = _number(86_400, 0, 31_622_400)
    # Where the operator is told that a target was disabled or is back; trusted as it is.
    alert_webhook_url: str = field(default="", repr=False)

    # What seals secrets and payloads (seals/keyring.py): a file, or its content.
    keyring_file: str = ""
    keyring: str = field(default="", repr=False)

    # Databases.
    redis_timeout_s: float = _number(5.0, 0.1, 60)
    sql_statement_timeout_s: float = _number(30.0, 0.1, 3_600)
    sql_pool_size: int = _number(5, 1, 100)

    def __post_init__(self) -> None:
        if self.redis_cluster == "on":
            _check_cluster(self.redis_url, self.broker_url)
        if not self.broker_url:
            object.__setattr__(self, "broker_url", _broker_from(self.redis_url))
        for item in fields(self):
            _check(item.name, getattr(self, item.name), item.metadata)
        if self.node_stale_ms < 2 * self.node_beat_ms:
            raise SettingsError(
                f"DATP_NODE_STALE_MS must be at least twice DATP_NODE_BEAT_MS "
                f"({self.node_beat_ms}), was {self.node_stale_ms}"
            )
        lease = "ledger_claim_ttl_s" if self.ledger_expiry == "single" else "ledger_slow_ttl_s"
        for low, high in (*_SHORTER_THAN, ("ledger_post_budget_s", lease)):
            if getattr(self, low) >= getattr(self, high):
                raise SettingsError(
                    f"{variable(low)} must be below {variable(high)} "
                    f"({getattr(self, high):g}), was {getattr(self, low):g}"
                )

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> Settings:
        """Read `DATP_*` from the environment; what is not set keeps its default."""
        env = os.environ if env is None else env
        given: dict[str, Any] = {}
        for item in fields(cls):
            raw = env.get(variable(item.name))
            if raw is not None and raw.strip():
                given[item.name] = _parse(item.name, raw.strip(), item.default)
        return cls(**given)


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return f"DATP_{name.upper()}"


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
        raise SettingsError(f"{variable(name)} must be {kind}, was {raw!r}") from None
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
