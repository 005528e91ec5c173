"""DATP Tasks: distributed asynchronous transaction pipelines on Celery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datp_tasks.client.client import Client as Client
    from datp_tasks.client.requests import Request as Request
    from datp_tasks.engine.batch import Batch as Batch
    from datp_tasks.engine.batch import Item as Item
    from datp_tasks.engine.context import StepContext as StepContext
    from datp_tasks.engine.registry import step as step
    from datp_tasks.model.outcome import Abort as Abort
    from datp_tasks.model.outcome import Call as Call
    from datp_tasks.model.outcome import Done as Done
    from datp_tasks.model.outcome import DontKnow as DontKnow
    from datp_tasks.model.outcome import Fail as Fail
    from datp_tasks.model.outcome import NotDone as NotDone
    from datp_tasks.model.outcome import Sleep as Sleep
    from datp_tasks.model.pipeline import Pipeline as Pipeline
    from datp_tasks.operator.operator import Operator as Operator
    from datp_tasks.settings import Settings as Settings

__all__ = [
    "Abort",
    "Batch",
    "Call",
    "Client",
    "Done",
    "DontKnow",
    "Fail",
    "Item",
    "NotDone",
    "Operator",
    "Pipeline",
    "Request",
    "Settings",
    "Sleep",
    "StepContext",
    "step",
]

#: Each name is imported when it is asked for: a command of `datp` needs few of them.
_HOMES = {
    "Abort": "datp_tasks.model.outcome",
    "Batch": "datp_tasks.engine.batch",
    "Call": "datp_tasks.model.outcome",
    "Client": "datp_tasks.client.client",
    "Done": "datp_tasks.model.outcome",
    "DontKnow": "datp_tasks.model.outcome",
    "Fail": "datp_tasks.model.outcome",
    "Item": "datp_tasks.engine.batch",
    "NotDone": "datp_tasks.model.outcome",
    "Pipeline": "datp_tasks.model.pipeline",
    "Operator": "datp_tasks.operator.operator",
    "Request": "datp_tasks.client.requests",
    "Settings": "datp_tasks.settings",
    "Sleep": "datp_tasks.model.outcome",
    "StepContext": "datp_tasks.engine.context",
    "step": "datp_tasks.engine.registry",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _HOMES:
        found = getattr(import_module(_HOMES[name]), name)
        globals()[name] = found
        return found
    if name == "celery":
        # What `celery -A datp_tasks` looks for: a mistake in the settings is a sentence there too.
        from datp_tasks.errors import SettingsError

        try:
            return import_module("datp_tasks.app").app
        except SettingsError as error:
            raise SystemExit(str(error)) from None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
