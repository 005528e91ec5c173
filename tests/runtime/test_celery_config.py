"""Celery's settings: the right file is read, and it says what the engine counts on."""

from __future__ import annotations

from pathlib import Path

import pytest
from celery import Celery

from datp_tasks.bells.broker import CelerySend, make_celery
from datp_tasks.errors import SettingsError
from datp_tasks.jobs import schedule
from datp_tasks.runtime.clients import open_client
from datp_tasks.settings import Settings


def test_the_settings_come_from_our_file_whatever_else_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "celeryconfig.py").write_text("task_acks_late = False\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert make_celery(Settings()).conf.task_acks_late is True


def test_messages_are_acked_late_taken_one_at_a_time_and_hold_ids_only() -> None:
    conf = make_celery(Settings()).conf
    assert (conf.task_acks_late, conf.task_reject_on_worker_lost) == (True, True)
    assert conf.worker_prefetch_multiplier == 1
    assert (conf.task_serializer, conf.accept_content) == ("json", ["json"])
    assert (conf.result_backend, conf.task_ignore_result) == (None, True)
    assert conf.broker_transport_options["priority_steps"] == [0, 3, 6, 7, 9]


def test_the_broker_is_the_one_of_the_settings() -> None:
    settings = Settings(redis_url="redis://cache:6380/3")
    assert make_celery(settings).conf.broker_url == "redis://cache:6380/3"


def test_every_job_is_scheduled() -> None:
    assert set(make_celery(Settings()).conf.beat_schedule) == set(schedule.JOBS)


def test_rabbitmq_is_told_of_priorities_the_other_way_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There the highest number is the most urgent one, and a queue must say how many there are."""
    app = make_celery(Settings(broker_url="amqp://u:p@rabbit:5672/v"))
    sent: list[int] = []
    monkeypatch.setattr(Celery, "send_task", lambda _, *a, priority, **o: sent.append(priority))
    for priority in ("admin", "out", "in", "out-later", "in-later"):
        CelerySend(app)("t/step", [("t00-1", 1)], group="master", priority=priority)
    assert sent == [6, 4, 2, 1, 0]
    assert (app.conf.task_queue_max_priority, app.conf.task_default_priority) == (6, 0)
    assert "priority_steps" not in app.conf.broker_transport_options


def test_eager_tasks_are_refused_with_what_to_use_instead() -> None:
    """Celery itself only warns, and only where the message is sent."""
    app = make_celery(Settings())
    app.conf.task_always_eager = True
    try:
        with pytest.raises(SettingsError, match="use the fixture `datp`"):
            open_client(Settings())
    finally:
        app.conf.task_always_eager = False
    open_client(Settings()).close()
