"""DATP Tasks: distributed asynchronous transaction pipelines on Celery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from datp_tasks.engine.registry import step
from datp_tasks.model.outcome import Abort, Call, Done, DontKnow, Fail, NotDone, Sleep
from datp_tasks.model.pipeline import Pipeline

if TYPE_CHECKING:
    from datp_tasks.client.client import Client as Client
    from datp_tasks.client.requests import Request as Request
    from datp_tasks.engine.batch import Batch as Batch
    from datp_tasks.engine.batch import Item as Item
    from datp_tasks.engine.context import StepContext as StepContext
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

#: Names that need more of the package than a step module does are imported when asked for.
_LATER = {
    "Batch": "datp_tasks.engine.batch",
    "Item": "datp_tasks.engine.batch",
    "Client": "datp_tasks.client.client",
    "Operator": "datp_tasks.operator.operator",
    "Request": "datp_tasks.client.requests",
    "Settings": "datp_tasks.settings",
    "StepContext": "datp_tasks.engine.context",
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    if name == "celery":
        # What `celery -A datp_tasks` looks for: a mistake in the settings is a sentence there too.
        from datp_tasks.errors import SettingsError

        try:
            return import_module("datp_tasks.app").app
        except SettingsError as error:
            raise SystemExit(str(error)) from None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
