"""Which worker does a job of beat, and with whose batches and pauses."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery

from datp_tasks.jobs import schedule
from datp_tasks.model.actor import Actor
from datp_tasks.observe.beat_watch import BeatWatch
from datp_tasks.record.alerts import Alerts
from datp_tasks.runtime import jobs
from datp_tasks.runtime.job_runner import JobRunner
from datp_tasks.runtime.main_process import WorkerInfo
from datp_tasks.settings import Settings
from datp_tasks.testing import Kit


def runner_of(kit: Kit, *groups: str) -> JobRunner:
    container = kit.connections
    alerts = Alerts(container.engine, container.clock)
    watch = BeatWatch(container.live, alerts, silent_s=60, subject="test")
    info = WorkerInfo(name="worker-1", served=frozenset(groups))
    return JobRunner(Celery(), container, info, watch)


def test_a_role_of_a_group_that_was_told_nothing_does_not_break_its_jobs(
    datp: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ledger jobs go to where a live worker consumes, also to a group that has no values."""
    used: list[Settings] = []
    monkeypatch.setitem(jobs.JOBS, "batch_poller", lambda _, settings, __: used.append(settings))
    monkeypatch.setattr(type(datp.connections.ledger_place), "__call__", lambda _: "books")
    assert "books" not in datp.connections.groups.current()
    runner_of(datp, "books").run("batch_poller")
    assert used == [datp.settings]


def test_the_values_of_the_group_that_has_the_role_take_the_place_of_the_settings(
    datp: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[Any] = []
    monkeypatch.setitem(
        jobs.JOBS, "archiver", lambda _, settings, __: used.append(settings.archiver_batch_max)
    )
    datp.connections.groups.set("night", {"archiveBatchSize": 7}, actor=Actor(name="test"))
    assert schedule.ROLES["archiver"] == "archiving"
    runner_of(datp, "night").run("archiver")
    assert used == [7]
