"""Celery's settings. Why each one: ARCHITECTURE.md, "Celery on Redis".

The broker loses messages and doubles them, so nothing here is needed for correctness: a message
is only a bell. These settings make loss rare, recovery quick and workers robust.
"""

from __future__ import annotations

import os

from datp_tasks.jobs.schedule import beat_schedule as _beat_schedule
from datp_tasks.live.live_types import PRIORITIES as _PRIORITIES
from datp_tasks.settings import Settings

_settings = Settings.from_env(os.environ)

# Where the bells go. One queue per node group, with priorities (live/live_types.py).
broker_url = _settings.broker_url
broker_transport_options = {
    "priority_steps": sorted(_PRIORITIES.values()),
    # A worker keeps in memory which messages it has, and hands them back when it closes. Kombu's
    # list of them in Redis costs two round trips a message and returns what a killed worker had
    # after minutes; the reconciler rings again after seconds.
    "ack_emulation": False,
    # Without timeouts a half-open connection hangs a worker for ever.
    "socket_timeout": 5,
    "socket_connect_timeout": 5,
    "socket_keepalive": True,
    "health_check_interval": 5,
    "retry_on_timeout": False,
    "fanout_prefix": True,
    "fanout_patterns": True,
}
broker_connection_retry = True
broker_connection_retry_on_startup = True
broker_connection_max_retries = None
broker_channel_error_retry = True
task_default_queue = _settings.maintenance_group
task_default_priority = 6
task_create_missing_queues = True
task_publish_retry = True
task_publish_retry_policy = {
    "max_retries": 2,
    "interval_start": 0.05,
    "interval_step": 0.2,
    "interval_max": 0.5,
}

# Ids only, JSON only, no results: the record is in SQL.
task_serializer = "json"
accept_content = ["json"]
result_backend = None
task_ignore_result = True
task_store_errors_even_if_ignored = False

# A worker takes one bell at a time and gives it back if it dies.
task_acks_late = True
task_reject_on_worker_lost = True
task_acks_on_failure = True
task_acks_on_timeout = True
worker_prefetch_multiplier = 1
worker_consumer = "datp_tasks.bells.consumer:BellConsumer"
worker_cancel_long_running_tasks_on_connection_loss = False
worker_max_tasks_per_child = 20_000
worker_max_memory_per_child = 600_000
worker_eta_task_limit = 100
worker_hijack_root_logger = True
worker_proc_alive_timeout = 30.0
worker_soft_shutdown_timeout = 5.0
worker_enable_soft_shutdown_on_idle = False

# Beat: each job is harmless twice at once, late, or not at all for a while.
beat_schedule = _beat_schedule(_settings)
beat_scheduler = "datp_tasks.bells.job_messages:JobScheduler"
beat_max_loop_interval = 1
timezone = "UTC"
enable_utc = True
