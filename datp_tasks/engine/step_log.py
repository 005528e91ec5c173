"""`ctx.log`: a line in the log of this process, and, from INFO on, one that stays with the
transaction."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from datp_tasks.model.log_lines import kept_fields, kept_text
from datp_tasks.observe.logs import Redactor

if TYPE_CHECKING:
    from datp_tasks.engine.run import Run

_log = logging.getLogger("datp.step")

#: Names of Python's logging; all others that a step gives are fields.
RESERVED = frozenset(("exc_info", "stack_info", "stacklevel", "extra"))

#: Takes out what looks like a secret, and secrets that steps were given.
_redact = Redactor()


class StepLog(logging.LoggerAdapter[logging.Logger]):
    def __init__(self, run: Run, attempt: int) -> None:
        super().__init__(_log, run.about("step.said"))
        self._run = run
        self._attempt = attempt

    def log(self, level: int, msg: object, *args: Any, **options: Any) -> None:
        fields = {name: value for name, value in options.items() if name not in RESERVED}
        if level >= logging.INFO:
            self._keep(level, _text(msg, args, options), fields)
        if not _log.isEnabledFor(level):
            return
        rest = {name: value for name, value in options.items() if name in RESERVED}
        # Of the step, not of this module.
        rest["stacklevel"] = rest.get("stacklevel", 1) + 1
        if fields:
            rest["extra"] = {**(rest.get("extra") or {}), "fields": fields}
        super().log(level, msg, *args, **rest)

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(kwargs.get("extra") or {}), **(self.extra or {})}
        return msg, kwargs

    def _keep(self, level: int, text: str, fields: Mapping[str, Any]) -> None:
        shown = kept_fields(_cleaned(fields)) if fields else None
        name = logging.getLevelName(level).lower()
        self._run.keep_line(name, self._attempt, kept_text(_redact(text)), shown)


def _cleaned(fields: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return dict(_redact.clean(dict(fields)))
    except Exception as error:
        # A value whose own text cannot be made: the step goes on.
        return {"unreadable": type(error).__name__}


def _text(msg: object, args: tuple[Any, ...], options: Mapping[str, Any]) -> str:
    try:
        # As a LogRecord does it: one mapping may stand for all values.
        values = args[0] if len(args) == 1 and isinstance(args[0], Mapping) and args[0] else args
        text = str(msg) % values if args else str(msg)
    except Exception as broken:
        text = f"(a line that cannot be formatted: {type(broken).__name__})"
    given = options.get("exc_info")
    raised = sys.exc_info()[1] if given is True else given
    return f"{text}: {raised!r}" if isinstance(raised, BaseException) else text
