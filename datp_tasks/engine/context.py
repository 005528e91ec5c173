"""What a step is given to work with."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from datp_tasks.errors import StepError
from datp_tasks.model.payload import Json

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from datp_tasks.ledger.words import Batch

SwitchValue = bool | int | float | str

_log = logging.getLogger("datp.step")


class Hands(Protocol):
    """What a step can do to its transaction while it runs."""

    def report(self, report: object) -> None: ...
    def set_switch(self, name: str, value: SwitchValue) -> None: ...
    def submit_batch(
        self, service_id: str, batch_id: str, payload: bytes, switch: str
    ) -> Batch: ...
    def now_ms(self) -> int: ...


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
    #: Number of the claim under which it runs, for lines in the log.
    _fence: int | None = field(default=None, repr=False)
    _switches: Mapping[str, str] = field(default_factory=dict)
    _hands: Hands = field(repr=False)
    _sql: Connection | None = field(default=None, repr=False)

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger that knows the transaction."""
        about = {"event": "step.said", "tx": self.tx_id, "fence": self._fence}
        return logging.LoggerAdapter(_log, about)

    def progress(self, report: Json) -> None:
        """Tell the client how far it is, at once; it becomes one of the numbered events.

        In a transactional step it is shown at once, and numbered when the step is over.
        """
        self._hands.report(report)

    def switch(self, name: str) -> SwitchValue | None:
        """The value of a switch, or None. Sleep(switch=name) waits for it to change."""
        value = self._switches.get(name)
        return None if value is None else json.loads(value)

    def set_switch(self, name: str, value: SwitchValue) -> None:
        """Set a switch of this transaction; later steps see it."""
        self._hands.set_switch(name, value)

    def submit_batch(self, service_id: str, batch_id: str, payload: bytes, switch: str) -> Batch:
        """Hand a batch to a ledger service; the same one again gives its state by now.

        The switch is set when the batch is final, so that Sleep(switch=) can wait for it.
        """
        return self._hands.submit_batch(service_id, batch_id, payload, switch)

    def now_ms(self) -> int:
        """The time of the server, in milliseconds since 1970."""
        return self._hands.now_ms()

    @property
    def sql(self) -> Connection:
        """A connection whose commit records the step's output too: exactly once."""
        if self._sql is None:
            raise StepError("ctx.sql is only there in steps declared with transactional=True")
        return self._sql
