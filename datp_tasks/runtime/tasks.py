"""The Celery tasks that a worker process offers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import Celery

from datp_tasks.engine.registry import Registry, StepType, registry
from datp_tasks.engine.task import make_task
from datp_tasks.jobs import schedule
from datp_tasks.ledger.submit_bell import SUBMIT_TASK, readable_works
from datp_tasks.runtime.worker_process import WorkerProcess
from datp_tasks.webhooks.send_bell import SEND_TASK


def register(app: Celery, process: WorkerProcess, steps: Registry = registry) -> None:
    """Give the app a task per step type and job, and those that submit batches and webhooks."""

    def add(step_type: StepType) -> None:
        task = make_task(step_type, process.run_hop)
        # A module that is imported again declares its steps again; Celery would warn of that.
        app.tasks.pop(task.name, None)
        app.register_task(task)

    steps.listen(add)
    for job in schedule.JOBS:
        _add(app, schedule.TASK_PREFIX + job, _job(process, job))

    def submit(works: Any = None, *_: Any, **__: Any) -> str:
        """A forged or garbled message is at worst a message for nothing."""
        return str(process.container.ledger.work.submitter.run(readable_works(works)))

    _add(app, SUBMIT_TASK, submit)

    def send(passed_on: Any = False, *_: Any, **__: Any) -> str:
        return str(process.jobs.run_webhooks(passed_on is True))

    _add(app, SEND_TASK, send)


def _add(app: Celery, name: str, function: Callable[..., str | None]) -> None:
    app.task(function, name=name, ignore_result=True, acks_late=False, shared=False)


def _job(process: WorkerProcess, name: str) -> Callable[..., str | None]:
    def run(passed_on: bool = False, *_: Any, **__: Any) -> str | None:
        result = process.run_job(name, passed_on is True)
        return None if result is None else str(result)

    run.__name__ = name
    return run
