"""What a step is given to work with."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from datp_tasks.errors import StepError
from datp_tasks.model.payload import Json

if TYPE_CHECKING:
    from sqlalchemy import Connection

SwitchValue = bool | int | float | str

log = logging.getLogger("datp.step")


@dataclass(slots=True, kw_only=True)
class StepContext:
    """One execution of one step of one transaction."""

    tx_id: str
    owner: str
    external_id: str | None
    metadata: Json
    #: What the pipeline's definition says for this step.
    params: Mapping[str, Any]
    #: What this step was given; the same object as the function's second argument.
    data: Json
    #: 1 for the first try.
    attempt: int
    #: How often this step has slept.
    sleeps: int
    #: The same for every try of this step, so that the outside can refuse to act twice.
    idempotency_key: str
    #: When the transaction must be over, if it has an expiry.
    deadline: datetime | None = None
    log: logging.LoggerAdapter[logging.Logger] = field(init=False)
    _switches: Mapping[str, str] = field(default_factory=dict)
    _report: Callable[[str, object], None] = field(repr=False)
    _set_switch: Callable[[str, str, SwitchValue], None] = field(repr=False)
    _now_ms: Callable[[], int] = field(repr=False)
    _sql: Connection | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.log = logging.LoggerAdapter(log, {"tx_id": self.tx_id})

    def progress(self, report: Json) -> None:
        """Show a progress report to the client, at once."""
        self._report(self.tx_id, report)

    def switch(self, name: str) -> SwitchValue | None:
        """The value of a switch, or None. Sleep(switch=name) waits for it to change."""
        value = self._switches.get(name)
        return None if value is None else json.loads(value)

    def set_switch(self, name: str, value: SwitchValue) -> None:
        """Set a switch of this transaction; later steps see it."""
        self._set_switch(self.tx_id, name, value)

    def now_ms(self) -> int:
        """The time of the server, in milliseconds since 1970."""
        return self._now_ms()

    @property
    def sql(self) -> Connection:
        """A connection whose commit records the step's output too: exactly once."""
        if self._sql is None:
            raise StepError("ctx.sql is only there in steps declared with transactional=True")
        return self._sql
