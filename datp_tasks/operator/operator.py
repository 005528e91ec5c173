"""What people do with transactions: ask why, decide what is in doubt, act on many, audit.

It changes nothing by itself: each decision names its reason, and the audit table keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from datp_tasks.model.actor import LOCAL, Actor
from datp_tasks.model.journal import Entry
from datp_tasks.model.payload import Json
from datp_tasks.operator.action_result import ActionResult
from datp_tasks.operator.approvals import Approvals
from datp_tasks.operator.audit import Auditor
from datp_tasks.operator.bulk import Action, Bulk
from datp_tasks.operator.doctor import Diagnosis, Doctor, InDoubt, InFlight
from datp_tasks.operator.doubt_decisions import Decision
from datp_tasks.operator.replay import Replay
from datp_tasks.operator.resolve import Resolver
from datp_tasks.operator.retention_changes import DataEnd
from datp_tasks.operator.retry import Retrier
from datp_tasks.operator.selection import Selection, TransfersOfBulk, Where
from datp_tasks.operator.transaction_logs import TransactionLogs
from datp_tasks.operator.unmask import Unmasked, Unmasker
from datp_tasks.operator.why import Explainer, Why
from datp_tasks.record.record_types import Precondition, Summary
from datp_tasks.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Inquiries:
    """What people ask; no transaction is changed by it."""

    explainer: Explainer
    doctor: Doctor
    logs: TransactionLogs
    auditor: Auditor
    unmasker: Unmasker


@dataclass(frozen=True, kw_only=True)
class Decisions:
    """What people decide: about one transaction, about many, and about what waits for them."""

    resolver: Resolver
    retrier: Retrier
    selection: Selection
    bulk: Bulk
    approvals: Approvals


class Operator:
    """One connection for the people who run the system; programs use `Client`."""

    def __init__(
        self,
        *,
        inquiries: Inquiries,
        decisions: Decisions,
        data_end: DataEnd,
        close: Callable[[], None],
    ) -> None:
        self._inquiries = inquiries
        self._decisions = decisions
        #: What waits for a second person, and deciding about it.
        self.approvals = decisions.approvals
        #: Erasing payloads; see `operator/erase.py`.
        self.eraser = data_end.eraser
        #: What the steps of a transaction have logged.
        self.logs = inquiries.logs
        #: Audits and erasures that a job does in parts; see `operator/runs.py`.
        self.runs = data_end.runs
        #: How long owners and pipelines are kept.
        self.retention = data_end.retention
        self._close = close

    @classmethod
    def from_settings(cls, settings: Settings | None = None) -> Operator:
        """For the servers that the settings (or the environment) name."""
        # As in the client: a user opens it by its own name.
        from datp_tasks.runtime.clients import open_operator

        return open_operator(settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._close()

    # Looking.

    def why(
        self,
        tx_id: str,
        *,
        bells_in: Callable[[str], int] | None = None,
        actor: Actor = LOCAL,
    ) -> Why:
        """What a transaction waits for, as far as the actor may see it.

        `bells_in` tells how many messages a queue holds.
        """
        return self._inquiries.explainer.why(tx_id, actor, bells_in=bells_in)

    def doctor(self) -> Diagnosis:
        """What is in flight and in doubt, and whether everything is where it should be."""
        return self._inquiries.doctor.diagnose()

    def in_flight(self, *, rows_max: int = 1_000) -> list[InFlight]:
        """What workers have, longest first; with nodes that are gone marked."""
        return self._inquiries.doctor.in_flight(rows_max=rows_max)

    def in_doubt(self, *, rows_max: int = 1_000) -> list[InDoubt]:
        """What waits for a decision, longest first."""
        return self._inquiries.doctor.in_doubt(rows_max=rows_max)

    def unmask(self, tx_id: str, *, reason: str, actor: Actor = LOCAL) -> Unmasked:
        """What a sealed transaction holds; the audit table keeps who looked, and why."""
        return self._inquiries.unmasker.unmask(tx_id, actor=actor, reason=reason)

    # Deciding.

    def resolve(
        self,
        tx_id: str,
        decision: Decision,
        *,
        reason: str,
        output: Json | None = None,
        actor: Actor = LOCAL,
        break_glass: bool = False,
        only_if: Precondition | None = None,
    ) -> None:
        """Say what became of the step of a transaction that is in doubt.

        `done`: it took effect, with this output (None: its input goes on). `redo`: it had no
        effect, run it. `fail`: it failed; what was done before is rolled back. For a rollback in
        doubt, `fail` gives up rolling back and ends the transaction as internal-error.
        ApprovalNeeded is raised if the policy wants another person to agree; with `break_glass`
        it is done all the same, and an alert stays. With `only_if` nothing is done, and
        TransactionMoved raised, unless the transaction is so when the decision is committed.
        """
        self._decisions.resolver.resolve(
            tx_id,
            decision,
            reason=reason,
            output=output,
            actor=actor,
            break_glass=break_glass,
            only_if=only_if,
        )

    # Many at once.

    def choose(
        self,
        where: Where,
        *,
        rows_max: int | None = None,
        order: str | None = None,
        open_only: bool = False,
    ) -> Iterator[Summary]:
        """Transactions as of now, the newest first."""
        return self._decisions.selection.choose(
            where, rows_max=rows_max, order=order, open_only=open_only
        )

    def act_on_many(
        self,
        action: Action,
        where: Where | TransfersOfBulk,
        tx_ids: Sequence[str],
        *,
        reason: str,
        actor: Actor = LOCAL,
        break_glass: bool = False,
    ) -> Iterator[ActionResult]:
        """One action on each. ApprovalNeeded is raised if the policy finds that too many."""
        return self._decisions.bulk.act_on_many(
            action, where, tx_ids, reason=reason, actor=actor, break_glass=break_glass
        )

    def retry(
        self,
        tx_id: str,
        *,
        reason: str,
        actor: Actor = LOCAL,
        only_if: Precondition | None = None,
    ) -> ActionResult:
        """Make one transaction go on. What is impossible is told; ApprovalNeeded is raised, and
        TransactionMoved if it is not as `only_if` says."""
        return self._decisions.retrier.retry(tx_id, reason=reason, actor=actor, only_if=only_if)

    # Checking.

    def deltas(self, tx_id: str) -> list[Entry]:
        """Every change of a transaction, in order; also those that SQL does not have yet."""
        return self._inquiries.auditor.deltas(tx_id)

    def replay(self, tx_id: str) -> Replay:
        """Rebuild a transaction from its journal, and compare it with everything we have."""
        return self._inquiries.auditor.replay(tx_id)

    def audit(self, *, sample: int | None = None, seed: int = 0) -> Iterator[Replay]:
        """Replay all transactions, or `sample` of them, by id; the same seed takes the same ones.

        The caller counts; what has `faults` does not fit.
        """
        return self._inquiries.auditor.audit(sample=sample, seed=seed)

    def audit_size(self) -> int:
        """How many transactions an audit of all would look at."""
        return self._inquiries.auditor.audit_size()
