"""Four eyes: asking for a second person, deciding, and carrying out what was decided.

An action has two halves. `decide` writes to SQL, in the commit that also says "approved" and
writes the audit row. `carry_out` does the rest, such as moving Redis; it may be done twice at
once and again after a crash, and has its effect once. Between the two an approval is `approved`,
and whichever process looks next carries it out: another call, or the job `approvals`.
"""

from __future__ import annotations

import logging
from typing import Protocol

from datp_tasks.errors import (
    ApprovalForbidden,
    ApprovalNeeded,
    ApprovalOver,
    DatabaseUnavailable,
    DecisionInvalid,
    LedgerError,
    PipelineError,
    SubjectMoved,
    TransactionError,
)
from datp_tasks.failpoints import reach
from datp_tasks.live.redis_errors import RedisError
from datp_tasks.model.actor import Actor
from datp_tasks.model.approval import STEP, Approval, ApprovalState, Ask, Need, Order
from datp_tasks.model.approval_policy import Policy
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.approvals import ApprovalStore, HeldApproval
from datp_tasks.record.database import Connection, translate_outage
from datp_tasks.record.operator_actions import note_action

log = logging.getLogger("datp.approvals")

#: Opened when one person acted alone; only another person can close it.
BREAK_GLASS = "break-glass"
#: The subject is not what it was; the request cannot be fulfilled any more.
MOVED = (SubjectMoved, TransactionError, LedgerError, PipelineError)
#: It stays approved, and is carried out when the servers answer again.
OUTAGES = (DatabaseUnavailable, RedisError)


class TwoHalves(Protocol):
    """How one kind of action is done."""

    def decide(self, connection: Connection, order: Order) -> str | None:
        """The half in SQL, with its audit row; what it returns is kept for the other half.

        Raises what is in MOVED if the subject is not at `order.version` any more.
        """

    def carry_out(self, order: Order, token: str | None) -> str | None:
        """The rest, safe to repeat; in a few words what was done. None: there is more to do."""


class Approvals:
    """A `Gate`, and what people do with the requests that it stores."""

    def __init__(self, store: ApprovalStore, alerts: Alerts, policy: Policy) -> None:
        self.store = store
        self._alerts = alerts
        self._policy = policy
        self._actions: dict[str, TwoHalves] = {}

    def offer(self, name: str, action: TwoHalves) -> None:
        """Say how an action is done."""
        self._actions[name] = action

    # For those who act.

    def allows(self, ask: Ask) -> bool:
        """Whether one person may do it."""
        return self._policy.need_for(ask) is None

    def covers(self, approval: Approval, ask: Ask) -> bool:
        """Whether those who agreed to an action about many suffice for this part of it."""
        need = self._policy.need_for(ask)
        if need is None or approval.break_glass:
            return True
        agreed = {each.decided_by for each in approval.given if each.decision == "approve"}
        counted = agreed & set(need.persons) if need.persons else agreed
        return len(counted) >= need.approvals and approval.role.includes(need.role)

    def perform(self, actor: Actor, ask: Ask, *, break_glass: bool = False) -> str:
        """Do it, if the policy wants no second person; else ApprovalNeeded is raised.

        To break the glass is to act alone although the policy wants another: it is done, and an
        alert stays open until another person has looked into it.
        """
        need = self._policy.need_for(ask)
        if need is not None and not break_glass:
            raise self._stored(actor, ask, need)
        if need is not None:
            return self._break_glass(actor, ask, need)
        action = self._actions[ask.action]
        order = _order_of(ask, actor)
        with translate_outage(), self.store.writing() as connection:
            token = action.decide(connection, order)
        return action.carry_out(order, token) or ""

    def require(self, actor: Actor, ask: Ask, *, connection: Connection) -> Approval | None:
        """For an action that its caller does itself, in the SQL transaction of this connection.

        None: the policy wants no second person. Else the approval, which is used up by the
        caller's commit. ApprovalNeeded is raised (and the request stored) if there is none yet:
        the caller comes again after another person has approved.
        """
        need = self._policy.need_for(ask)
        if need is None:
            return None
        found = self.store.approved_for(connection, ask)
        if found is None:
            raise self._stored(actor, ask, need)
        self._check_as_asked(connection, self.store.locked(connection, found))
        self.store.end(connection, found, ApprovalState.EXECUTED, "done")
        return self.store.locked(connection, found)

    def _stored(self, actor: Actor, ask: Ask, need: Need) -> ApprovalNeeded:
        _check_reason(ask.reason)
        with translate_outage(), self.store.writing() as connection:
            number, is_new = self.store.ask(connection, actor, ask, need)
            if is_new:
                self._note(connection, actor, "approval.ask", number, ask.reason, ask.action)
        return ApprovalNeeded(
            f"{ask.action} of {ask.subject} needs another person: it is stored as approval "
            f"{number}. Another person runs: datp approvals approve {number}{self._alone()}",
            approval_id=number,
        )

    def _alone(self) -> str:
        """How to go on without a second person, where no policy was written yet."""
        if self._policy != Policy():
            return ""
        return (
            ". If one person runs this installation, say so: DATP_SECURITY__POLICY_FILE="
            "single-person in the environment of every process (docs/approvals.md)"
        )

    def _break_glass(self, actor: Actor, ask: Ask, need: Need) -> str:
        if not self._policy.break_glass:
            raise ApprovalForbidden("the policy does not allow one person to act alone")
        _check_reason(ask.reason)
        with translate_outage(), self.store.writing() as connection:
            number, _ = self.store.ask(connection, actor, ask, need)
            approval = self.store.locked(connection, number)
            if approval.requested_by != actor.person:
                raise ApprovalForbidden(
                    f"approval {number} waits for the same: approve that one, as another person"
                )
            self.store.break_glass(connection, number)
            approval = self.store.locked(connection, number)
            self._settle(connection, approval, actor)
            self._alerts.raise_alert(
                BREAK_GLASS,
                f"approval {number}",
                f"{actor} did {ask.action} of {ask.subject} alone: {ask.reason}",
                connection=connection,
            )
            self._note(connection, actor, "approval.break-glass", number, ask.reason, ask.action)
        log.error(
            "%s broke the glass: %s of %s", actor, ask.action, ask.subject, extra={"event": "glass"}
        )
        ended = self.carry_out(self.store.one(number), actor)
        if ended.state is ApprovalState.STALE:
            raise SubjectMoved(ended.note)
        return ended.note or "done"

    # For those who decide.

    def approve(self, approval_id: int, actor: Actor, *, note: str = "") -> Approval:
        """Agree. The last one whose word is needed makes it happen."""
        return self._give(approval_id, actor, "approve", note)

    def reject(self, approval_id: int, actor: Actor, *, note: str) -> Approval:
        """One rejection ends the request."""
        _check_reason(note)
        return self._give(approval_id, actor, "reject", note)

    def _give(self, approval_id: int, actor: Actor, decision: str, note: str) -> Approval:
        with translate_outage():
            self.store.expire_if_due(approval_id)
            try:
                with self.store.writing() as connection:
                    self._give_in_sql(connection, approval_id, actor, decision, note)
            except MOVED as error:
                self.store.set_aside(approval_id, str(error))
                raise SubjectMoved(f"nothing was done: {error}") from None
            return self.carry_out(self.store.one(approval_id), actor)

    def _give_in_sql(
        self, connection: Connection, approval_id: int, actor: Actor, decision: str, note: str
    ) -> None:
        approval = self.store.locked(connection, approval_id)
        _check_may_decide(approval, actor)
        before = {each.decided_by: each.decision for each in approval.given}
        if before.get(actor.person) == decision:
            # The same word again: its first answer was lost on the way.
            return
        if approval.state is not ApprovalState.PENDING:
            raise ApprovalOver(f"approval {approval_id} is {approval.state} already")
        if not self.store.give(connection, approval, actor, decision, note):
            raise ApprovalOver(f"{actor.person} has decided about approval {approval_id} before")
        self._note(
            connection, actor, f"approval.{decision}", approval_id, note or None, approval.action
        )
        if decision == "reject":
            self.store.decide(connection, approval_id, ApprovalState.REJECTED, note=note)
        elif approval.consents + 1 >= approval.needed:
            self._settle(connection, approval, actor)

    def _settle(self, connection: Connection, approval: Approval, actor: Actor) -> None:
        """Approved: the half in SQL is done in this commit."""
        self._check_as_asked(connection, approval)
        action = self._actions.get(approval.action)
        token = action.decide(connection, _order(approval, actor)) if action else None
        self.store.decide(connection, approval.id, ApprovalState.APPROVED, token=token)

    def carry_out(self, approval: Approval, actor: Actor) -> Approval:
        """The other half of what is approved, if it is not done yet; the approval as it is then."""
        action = self._actions.get(approval.action)
        if action is None:
            return approval
        if approval.action == STEP and approval.state is ApprovalState.REJECTED:
            # The step that waits reads it; if it cannot be woken now, it looks by itself.
            action.carry_out(_order(approval, actor), None)
        if approval.state is not ApprovalState.APPROVED:
            return approval
        reach("approval.after_commit")
        about = {"event": "approval", "approval": approval.id}
        try:
            with translate_outage(), self.store.carrying_out(approval.id) as held:
                if held is not None:
                    self._act(held, action, approval, actor)
        except OUTAGES as error:
            log.warning("approval %d waits: %s", approval.id, error, extra=about)
            return approval
        return self.store.one(approval.id)

    def _act(self, held: HeldApproval, action: TwoHalves, approval: Approval, actor: Actor) -> None:
        try:
            self._check_as_asked(held.connection, approval)
            done = action.carry_out(_order(approval, actor), held.token)
        except MOVED as error:
            self.store.end(held.connection, held.id, ApprovalState.STALE, str(error))
            return
        reach("approval.after_act")
        if done is not None:
            self.store.end(held.connection, held.id, ApprovalState.EXECUTED, done)

    def _check_as_asked(self, connection: Connection, approval: Approval) -> None:
        """People agree to what was asked for, and to nothing else that its row may say later."""
        if not self.store.is_as_asked(connection, approval):
            raise SubjectMoved(
                f"what approval {approval.id} says is not what was asked for: its row was changed "
                "since (action, subject, version, parameters, transactions, or whose consent it "
                "takes). Look into it, and ask again once it is over"
            )

    def carry_out_undone(self, actor: Actor, *, batch_max: int) -> int:
        """Whatever a process that died has left approved; how many."""
        found = self.store.undone(list(self._actions), batch_max)
        for approval in found:
            self.carry_out(approval, actor)
        return len(found)

    # Alerts.

    def clear_alert(self, actor: Actor, kind: str, subject: str, *, reason: str) -> bool:
        """False: there is none. What was done alone is closed by another person."""
        _check_reason(reason)
        with translate_outage(), self.store.writing() as connection:
            return self._clear_alert(connection, actor, (kind, subject), reason)

    def close_alert(self, actor: Actor, alert_id: int, *, reason: str) -> bool:
        """The same, of the alert with this id."""
        _check_reason(reason)
        with translate_outage(), self.store.writing() as connection:
            found = self._alerts.open_one(alert_id, connection=connection)
            return found is not None and self._clear_alert(connection, actor, found, reason)

    def _clear_alert(
        self, connection: Connection, actor: Actor, which: tuple[str, str], reason: str
    ) -> bool:
        kind, subject = which
        cleared = self._alerts.clear_alert(kind, subject, connection=connection)
        if cleared and kind == BREAK_GLASS:
            self._close_glass(connection, actor, subject)
        if cleared:
            note_action(
                connection,
                actor=actor,
                action="clear-alert",
                subject=f"{kind} {subject}",
                reason=reason,
            )
        return cleared

    def _close_glass(self, connection: Connection, actor: Actor, subject: str) -> None:
        approval = self.store.locked(connection, int(subject.removeprefix("approval ")))
        if approval.requested_by == actor.person:
            raise ApprovalForbidden("what one person did alone is closed by another person")
        self.store.close_glass(connection, approval.id, actor)

    def _note(
        self,
        connection: Connection,
        actor: Actor,
        action: str,
        number: int,
        reason: str | None,
        what: str,
    ) -> None:
        note_action(
            connection,
            actor=actor,
            action=action,
            subject=f"approval {number}",
            reason=reason,
            details={"action": what},
        )


def _check_reason(reason: str) -> None:
    if not reason.strip():
        raise DecisionInvalid("a decision needs a reason: it is kept in the audit table")


def _check_may_decide(approval: Approval, actor: Actor) -> None:
    if approval.requested_by == actor.person:
        raise ApprovalForbidden("who asked for it may not decide about it; another person must")
    if not actor.has(approval.role):
        raise ApprovalForbidden(f"to decide about this takes the role {approval.role}")
    if approval.persons and actor.person not in approval.persons:
        names = ", ".join(approval.persons)
        raise ApprovalForbidden(f"only these decide about it: {names}; this is {actor.person}")


def _order_of(ask: Ask, actor: Actor) -> Order:
    return Order(
        action=ask.action,
        subject=ask.subject,
        params=ask.params,
        version=ask.version,
        reason=ask.reason,
        actor=actor,
    )


def _order(approval: Approval, actor: Actor) -> Order:
    return Order(
        action=approval.action,
        subject=approval.subject,
        params=approval.params,
        version=approval.version,
        reason=approval.reason,
        actor=actor,
        approval=approval,
    )
