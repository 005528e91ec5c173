"""What a step is given to work with.

A context looks things up when it is asked: most steps want their input and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from datp_tasks.engine.step_log import StepLog
from datp_tasks.errors import StepError
from datp_tasks.model.payload import Json, copied
from datp_tasks.model.pipeline_rules import LINK_EXPIRES_S
from datp_tasks.model.secret_params import resolved, takes_secrets

if TYPE_CHECKING:
    from datp_tasks.engine.run import Run
    from datp_tasks.ledger.batch_types import LedgerBatch
    from datp_tasks.model.approval import Approval, Need
    from datp_tasks.record.bulk_transfers import TransferStanding
    from datp_tasks.record.database import Connection
    from datp_tasks.record.linked import LinkVerdict

SwitchValue = bool | int | float | str


class StepServices(Protocol):
    """What a step can do to its transaction while it runs."""

    def report(self, run: Run, report: object) -> None: ...
    def report_held(self, run: Run) -> None: ...
    def set_switch(self, run: Run, name: str, value: SwitchValue) -> None: ...
    def commit_to_finish(self, run: Run, *, in_sql: bool) -> None: ...
    def join_link(self, run: Run, link: str, legs: int, *, expires_in_s: float) -> bool: ...
    def commit_link(self, run: Run, link: str) -> LinkVerdict: ...
    def standing_of(
        self, run: Run, tx_ids: Sequence[str]
    ) -> Mapping[str, TransferStanding] | None: ...
    def submit_batch(
        self, run: Run, service_id: str, batch_id: str, payload: bytes, switch: str
    ) -> LedgerBatch: ...
    def ask_approval(self, run: Run, step_key: str, note: str, need: Need) -> Approval: ...
    def now_ms(self) -> int: ...
    def http_hosts(self) -> tuple[str, ...]: ...
    def secret(self, name: str) -> str: ...


class StepContext:
    """One execution of one step of one transaction."""

    __slots__ = (
        *("_action", "_key", "_metadata", "_params", "_run", "_services", "_sql"),
        *("attempt", "data", "sleeps"),
    )

    #: 1 for the first try.
    attempt: int
    #: How often this step has slept.
    sleeps: int
    #: What this step was given; the same object as the function's second argument.
    data: Json

    def __init__(
        self,
        run: Run,
        services: StepServices,
        sql: Connection | None = None,
        *,
        data: Json | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        self._run = run
        self._services = services
        self._sql = sql
        self._params: Mapping[str, Any] | None = None
        self._metadata: Json | None = None
        action = self._action = run.action
        state = run.state
        self.attempt = state.attempt
        self.sleeps = state.sleeps
        if data is None:
            data = action.undo.data if action.undo else state.data
        # A copy: what a step does to its input must not reach the state.
        self.data = copied(data)
        self._key = idempotency_key

    @property
    def tx_id(self) -> str:
        return self._run.tx_id

    @property
    def idempotency_key(self) -> str:
        """The same for every try of this step, so that the outside can refuse to act twice."""
        if self._key is None:
            self._key = self._action.key(self._run.tx_id)
        return self._key

    @property
    def owner(self) -> str:
        return self._run.fields.get("owner", "")

    @property
    def external_id(self) -> str | None:
        return self._run.fields.get("externalId")

    @property
    def metadata(self) -> Json:
        if self._metadata is None:
            self._metadata = self._run.metadata
        return self._metadata

    @property
    def params(self) -> Mapping[str, Any]:
        """What the pipeline's definition says for this step, `{secret: NAME}` with its value."""
        if self._params is None:
            step = self._action.step
            params = copied(step.params) if step else {}
            if step and takes_secrets(step.type):
                params = resolved(params, self._services.secret)
            self._params = params
        return self._params

    @property
    def is_sealed(self) -> bool:
        """Whether its payloads rest sealed: then a note, which does not, must quote none."""
        return self._run.edge is not None

    @property
    def deadline(self) -> datetime | None:
        """When the transaction must be over, if it has an expiry."""
        return self._run.deadline

    @property
    def log(self) -> StepLog:
        """A logger whose lines, from INFO on, are kept with the transaction (`datp logs`).

        `ctx.log.info("reserved %s", seat, cents=1250)`: other names than those of Python's
        logging are fields. A crash may lose the lines of the step that it interrupts.
        """
        return StepLog(self._run, self.attempt)

    def progress(self, report: Json) -> None:
        """Tell the client how far it is, at once; it becomes one of the numbered events.

        In a transactional step it is shown at once, and numbered when the step is over.
        """
        self._services.report(self._run, report)

    def switch(self, name: str) -> SwitchValue | None:
        """The value of a switch, or None. Sleep(switch=name) waits for it to change."""
        value = self._run.switches.get(name)
        return None if value is None else json.loads(value)

    def set_switch(self, name: str, value: SwitchValue) -> None:
        """Set a switch of this transaction; later steps see it."""
        self._services.set_switch(self._run, name, value)

    def commit_to_finish(self) -> None:
        """This is the point of no return: from here on it can only finish, or be parked.

        At once; in a transactional step in the commit of its effects. TransactionStopped if a
        cancel or an expiry came first: let it pass, and have no effect.
        """
        self._services.commit_to_finish(self._run, in_sql=self._sql is not None)

    def join_link(self, link: str, legs: int, *, expires_in_s: float = LINK_EXPIRES_S) -> bool:
        """Make this transaction a leg of a link: all legs expire with the first that does, or
        after `expires_in_s` if none has a deadline.

        False: not now, because another leg is in the middle of a step or PostgreSQL is unavailable.
        """
        return self._services.join_link(self._run, link, legs, expires_in_s=expires_in_s)

    def commit_link(self, link: str) -> LinkVerdict:
        """This leg is ready; `commit` once all are: they are past their point of no return."""
        return self._services.commit_link(self._run, link)

    def standing_of(self, tx_ids: Sequence[str]) -> Mapping[str, TransferStanding] | None:
        """What became of other transactions of the same owner; without those that are not kept.

        None: PostgreSQL is unavailable.
        """
        return self._services.standing_of(self._run, tx_ids)

    def submit_batch(
        self, service_id: str, batch_id: str, payload: bytes, switch: str
    ) -> LedgerBatch:
        """Hand a batch to a ledger service; the same one again gives its state by now.

        The switch is set when the batch is final, so that Sleep(switch=) can wait for it.
        """
        return self._services.submit_batch(self._run, service_id, batch_id, payload, switch)

    def ask_approval(self, note: str, need: Need) -> Approval:
        """Ask people to agree; the same step again gets what became of its first request.

        The switch approval-<id> is set when it is decided, so that Sleep(switch=) can wait for it.
        """
        return self._services.ask_approval(self._run, self.idempotency_key, note, need)

    def now_ms(self) -> int:
        """The time of the server, in milliseconds since 1970."""
        return self._services.now_ms()

    @property
    def http_hosts(self) -> tuple[str, ...]:
        """The hosts that http/request may talk to; any if there are none."""
        return self._services.http_hosts()

    @property
    def sql(self) -> Connection:
        """A connection whose commit records the step's output too: exactly once."""
        if self._sql is None:
            raise StepError("ctx.sql is only there in steps declared with transactional=True")
        return self._sql

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.tx_id} step {self._action.path}>"
