"""What one pass of a commit collects to be written, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from datp_tasks.engine.decide import Move
from datp_tasks.engine.run import Run
from datp_tasks.live.live_types import Bell
from datp_tasks.live.scripts import Reply, ScriptCall, ScriptCalls
from datp_tasks.model.plan import Action

#: A script call, what to do with its reply, and whose it is. `Writes`, which holds the orders, is
#: given to them and not held by them: such reference cycles cost the garbage collector a tenth of a
#: hop.
Order = tuple[ScriptCall, "Callable[[Run, Reply, Writes], None]", Run]
#: The same for transactions that make the same transition, whose replies are looked at together.
JointOrder = tuple[ScriptCalls, "Callable[[Answered, Writes], None]", Sequence[Run]]
#: Transactions, each with the reply to its call.
Answered = Iterable[tuple[Run, Reply]]


@dataclass(slots=True)
class Passage:
    """From one action to the next: what is asked once for neighbours that go the same way."""

    before: Action
    action: Action
    #: Node group in which they ran the one before.
    group: str
    #: Whether SQL gets a copy of their states.
    snapshot: bool
    #: Whether this process has the next step type.
    is_known: bool
    #: Whether it runs the next step itself, without a message.
    is_here: bool
    #: Whether the checkpoint opens the next step.
    opens: bool
    #: Those that go on in this process.
    runs: list[Run] = field(default_factory=list)


class Writes:
    def __init__(self, may_go_on: bool) -> None:
        self.may_go_on = may_go_on
        self.passages: list[Passage] = []
        self.orders: list[Order] = []
        self.joint_orders: list[JointOrder] = []
        self.finals: list[Run] = []
        #: Those of them that SQL has let end.
        self.ended: list[Run] = []
        self.parked: list[tuple[Run, str]] = []
        #: SQL has a final status or a newer fence, or Redis has one for what SQL let end.
        self.refused: list[Run] = []
        self.stale: list[Run] = []
        self.staying: list[Run] = []
        self.again: list[tuple[Run, Move]] = []
        self.refresh: list[Run] = []
        self.bells: list[Bell] = []
        self.unknown: list[Bell] = []

    def passage(self, before: Action, action: Action, group: str, snapshot: bool) -> Passage | None:
        """That of the neighbour before, if it is the same."""
        last = self.passages[-1] if self.passages else None
        if (
            last is not None
            and last.before is before
            and last.action is action
            and last.group == group
            and last.snapshot == snapshot
        ):
            return last
        return None
