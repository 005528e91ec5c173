"""What a vector step is given: all transactions of the vector that are at the step.

Each item gets exactly one outcome. The batch is closed when its function returns: what is said
later, or twice, is an error of the step type and changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, overload

from datp_tasks.engine.context import StepContext, StepServices
from datp_tasks.errors import StepError
from datp_tasks.model.outcome import Abort, Call, Done, DontKnow, Fail, NotDone, Retry, Sleep
from datp_tasks.model.payload import Json, copied

if TYPE_CHECKING:
    from datp_tasks.engine.run import Run
    from datp_tasks.record.database import Connection

log = logging.getLogger("datp.step")

#: What the function is called for: to run the step, to undo it, or to find out what became of it.
Purpose = Literal["run", "undo", "probe"]
Said = Done | Fail | Abort | Sleep | Call | Retry | NotDone | DontKnow

_ALLOWED: dict[Purpose, tuple[type, ...]] = {
    "run": (Done, Fail, Abort, Sleep, Call, Retry),
    "undo": (Done, Retry),
    "probe": (Done, NotDone, DontKnow, Retry),
}


class Item(StepContext):
    """One transaction of a batch: everything a context has, and its outcome."""

    __slots__ = ("_batch", "output", "problem", "said")

    #: In a rollback: the output of the step that is undone, or None if it is not known.
    output: Json | None

    def __init__(
        self, batch: Batch, run: Run, services: StepServices, sql: Connection | None
    ) -> None:
        super().__init__(run, services, sql)
        self._batch = batch
        #: Its outcome, once it has one.
        self.said: Said | None = None
        #: What the function did to it that no vector step may do, if anything.
        self.problem = ""
        undo = run.action.undo
        self.output = copied(undo.output) if undo and undo.output is not None else None

    def done(self, output: Mapping[str, Any] | None = None) -> None:
        """The step took effect. None: its input goes on unchanged."""
        self._say(Done(output))

    def fail(
        self,
        note: str = "",
        output: Mapping[str, Any] | None = None,
        *,
        code: str = "",
        params: Mapping[str, Any] | None = None,
    ) -> None:
        """End the transaction as `failed`; the steps done before are rolled back."""
        self._say(Fail(note, output, code=code, params=params))

    def abort(
        self,
        note: str = "",
        output: Mapping[str, Any] | None = None,
        *,
        code: str = "",
        params: Mapping[str, Any] | None = None,
    ) -> None:
        """End the transaction as `aborted`; nothing is rolled back."""
        self._say(Abort(note, output, code=code, params=params))

    def sleep(self, seconds: float | None = None, switch: str | None = None) -> None:
        """Run the step again, with the same input, after some seconds or when a switch is set."""
        self._say(Sleep(seconds, switch))

    def call(self, pipeline: str, data: Mapping[str, Any] | None = None) -> None:
        """Run another pipeline; its output becomes the output of this step."""
        self._say(Call(pipeline, data))

    def retry(self, note: str = "") -> None:
        """This try broke: try again as the retry policy of the step says."""
        self._say(Retry(note))

    def not_done(self) -> None:
        """In a probe: the interrupted step did not take effect; it may run again."""
        self._say(NotDone())

    def dont_know(self, note: str = "") -> None:
        """In a probe: it cannot be told; the transaction is parked in doubt."""
        self._say(DontKnow(note))

    @property
    def sql(self) -> Connection:
        """The connection of the batch."""
        return self._batch.sql

    def _say(self, said: Said) -> None:
        batch = self._batch
        if batch.is_closed:
            problem = f"an outcome for {self.tx_id} came after the step had returned; it is ignored"
            # Of the one who kept the item it is not known whether the exception is seen.
            log.error("%s: %s", batch.step_type, problem, extra=self._run.about("step.broken"))
            raise StepError(f"{batch.step_type}: {problem}")
        if not isinstance(said, _ALLOWED[batch.purpose]):
            self._refuse(f"{type(said).__name__} is no outcome of its {batch.purpose} function")
        if self.said is not None:
            self._refuse(f"two outcomes for {self.tx_id}, {_name(self.said)} and {_name(said)}")
        self.said = said

    def _refuse(self, problem: str) -> NoReturn:
        self.problem = self.problem or problem
        raise StepError(problem)


class Batch(Sequence[Item]):
    """The items of one call of a vector step."""

    def __init__(
        self,
        step_type: str,
        purpose: Purpose,
        runs: Sequence[Run],
        services: StepServices,
        sql: Connection | None = None,
    ) -> None:
        self.step_type = step_type
        self.purpose: Purpose = purpose
        self.is_closed = False
        self._sql = sql
        self._items = [Item(self, run, services, sql) for run in runs]
        self._by_id: dict[str, Item] = {}

    @property
    def sql(self) -> Connection:
        """A connection whose commit records the outputs of all items too: exactly once."""
        if self._sql is None:
            raise StepError("batch.sql is only there in steps declared with transactional=True")
        if self.is_closed:
            raise StepError(f"{self.step_type}: batch.sql is used after the step had returned")
        return self._sql

    def item(self, tx_id: str) -> Item:
        """The item of a transaction."""
        if not self._by_id:
            self._by_id = {item.tx_id: item for item in self._items}
        found = self._by_id.get(tx_id)
        if found is None:
            raise StepError(f"{tx_id!r} is not in this batch")
        return found

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        return self._items[index]

    def close(self) -> None:
        """The function has returned: nothing more can be said."""
        self.is_closed = True


def _name(said: Said) -> str:
    return type(said).__name__
