"""Runs the job that a message of beat names, here or in the node group that has its role."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from functools import partial
from typing import Any

from celery import Celery

from datp_tasks.bells.broker import backlog
from datp_tasks.bells.job_messages import pass_on
from datp_tasks.jobs import schedule
from datp_tasks.live.job_notes import TurnGate
from datp_tasks.observe.beat_watch import BeatWatch
from datp_tasks.runtime import jobs
from datp_tasks.runtime.container import Container
from datp_tasks.runtime.group_book import GroupBook
from datp_tasks.runtime.main_process import WorkerInfo
from datp_tasks.settings import Settings
from datp_tasks.webhooks.send_bell import SEND_TASK


class JobRunner:
    def __init__(
        self, app: Celery, container: Container, info: WorkerInfo, beat_watch: BeatWatch
    ) -> None:
        self._app = app
        self._container = container
        self._settings = container.settings
        self._info = info
        self._beat_watch = beat_watch
        self._book = GroupBook(container.groups, container.settings.pipeline_reload_s)

    def run(self, name: str, passed_on: bool = False) -> Any:
        """One run of a job, unless another process has just done it.

        A job whose role other groups have is passed on to one of them, and not a second time.
        """
        self._beat_watch.seen()
        holders = self._holders(name)
        if self._passes_on(schedule.TASK_PREFIX + name, holders, passed_on):
            return None
        pause_ms = int(schedule.period_s(self._settings, name) * 500)
        if not TurnGate(self._container.live, f"tick:{name}").passes(pause_ms):
            return None
        waiting = partial(backlog, self._app)
        return jobs.run(name, self._container, waiting, self._as_group_says(holders))

    def _holders(self, name: str) -> list[str]:
        """The groups that do this job; none if the worker that takes the message does it."""
        if name in schedule.LEDGER_JOBS:
            place = self._container.ledger_place()
            return [] if place == self._settings.maintenance_group else [place]
        return self._book.holders(schedule.ROLES[name]) if name in schedule.ROLES else []

    def run_webhooks(self, passed_on: bool = False) -> Any:
        """Some have just become due: the job, without waiting for its time."""
        holders = self._book.holders(schedule.ROLES["webhook_sender"])
        if self._passes_on(SEND_TASK, holders, passed_on):
            return None
        return jobs.send_webhooks(self._container, self._as_group_says(holders))

    def _passes_on(self, task: str, holders: list[str], passed_on: bool) -> bool:
        """Whether the message went to a group that has the role, because this worker's do not."""
        if passed_on or not holders or self._mine(holders):
            return False
        pass_on(self._app, task, random.choice(holders))
        return True

    def _mine(self, holders: list[str]) -> list[str]:
        return sorted((self._info.served or frozenset()).intersection(holders))

    def _as_group_says(self, holders: list[str]) -> Settings:
        """Batches and pauses of the group that does the job take the place of the settings."""
        known = {item.name for item in fields(self._settings)}
        groups = self._book.groups()
        # One that was told nothing yet may still have the role.
        given: dict[str, Any] = {
            setting: value
            for group in self._mine(holders)[:1]
            if group in groups
            for setting, value in groups[group].overrides.items()
            if setting in known
        }
        return replace(self._settings, **given) if given else self._settings
