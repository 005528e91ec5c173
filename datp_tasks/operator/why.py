"""Why a transaction stands where it stands: what it waits for, who has it, when it moves.

It only reads, and says what to do where something can be done.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from datp_tasks.errors import TransactionUnknown
from datp_tasks.model.actor import Actor
from datp_tasks.model.approval import STEP, ApprovalState
from datp_tasks.model.rights import sees_payloads
from datp_tasks.model.sealed import data_key_of
from datp_tasks.model.status import Status
from datp_tasks.model.stop_request import StopRequest
from datp_tasks.operator.audit import Auditor
from datp_tasks.operator.situation import ServedGroups, Situation, Situations
from datp_tasks.record.approvals import ApprovalStore
from datp_tasks.record.database import translate_outage
from datp_tasks.record.record_types import Summary
from datp_tasks.settings import Settings

#: One that waits shorter is just about to be taken.
JUST_NOW_S = 2.0


@dataclass(slots=True)
class Why:
    tx_id: str
    status: str
    #: One word for programs: ended, no-worker, bell-lost, sleeping, switch, retry, parked, …
    cause: str
    #: The answer, for people.
    answer: str
    #: When it moves by itself, if that is known.
    moves_at: datetime | None = None
    #: What a person can do.
    hints: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Explainer:
    settings: Settings
    situations: Situations
    groups: ServedGroups
    auditor: Auditor
    approvals: ApprovalStore

    def why(self, tx_id: str, actor: Actor, *, bells_in: Callable[[str], int] | None = None) -> Why:
        """What a transaction waits for. `bells_in` tells how many messages a queue holds.

        What an exception said may hold payloads: one who sees none is told its error id only.
        """
        texts = sees_payloads(actor)
        with translate_outage():
            found = self.situations.summary(tx_id)
            if found is None:
                raise TransactionUnknown(f"there is no transaction {tx_id!r}")
            if found.is_final:
                return self._ended(found, texts)
            seen = self.situations.read(found)
        if seen is None:
            return self._not_here(found)
        match seen.fields["status"]:
            case Status.QUEUED:
                answer = self._queued(seen, bells_in or self.groups.bells_in)
            case Status.RUNNING:
                answer = self._running(seen)
            case Status.SLEEPING:
                answer = self._sleeping(seen, texts)
            case Status.IN_DOUBT:
                answer = self._with_requests(_parked(seen, self._error_text(tx_id, texts)))
            case _:
                answer = self._ended(found, texts)
        return _with_stop_and_expiry(answer, seen)

    def _not_here(self, summary: Summary) -> Why:
        period_s = self.settings.reconciler_period_s
        return Why(
            summary.tx_id,
            str(summary.status),
            "not-in-memory",
            "It is accepted in SQL and not in Redis: the submitter was cut off, or Redis lost it. "
            f"The reconciler puts it there; it looks every {period_s:g} s.",
            hints=["If this lasts, see that beat and a worker of the maintenance group run."],
        )

    def _queued(self, seen: Situation, bells_in: Callable[[str], int]) -> Why:
        tx_id, group = seen.summary.tx_id, seen.group
        waited_s = seen.ago_s(seen.queued_ms)
        here = f"It waits in node group {group} for {seen.step}, since {waited_s:.0f} s"
        nodes = self.groups.nodes_of(group)
        if self.groups.is_stopped(group):
            text = f"{here}. The group is stopped (its concurrency is 0)."
            hint = f"datp groups set {group} concurrency=2"
            return Why(tx_id, Status.QUEUED, "group-stopped", text, hints=[hint])
        if not nodes:
            text = f"{here}. No live worker serves that group."
            hint = f"Start one: celery -A datp_tasks worker -Q {group}"
            return Why(tx_id, Status.QUEUED, "no-worker", text, hints=[hint])
        step_type = seen.fields.get("stepType", "")
        if not any(step_type in node.step_types for node in nodes):
            text = f"{here}. No worker of that group offers the step type {step_type!r}."
            hint = "Deploy a worker that imports it (DATP_STEPS), or correct the pipeline."
            return Why(tx_id, Status.QUEUED, "no-step-type", text, hints=[hint])
        if "problem" in seen.fields:
            return Why(tx_id, Status.QUEUED, "problem", f"{here}. {seen.fields['problem']}")
        bells = bells_in(group)
        if waited_s > JUST_NOW_S and bells == 0:
            again_ms = self.settings.ring_again_after_ms
            text = f"{here}, and no message for it is on its way: its bell was lost."
            moves_at = _time((seen.rung_ms or seen.now_ms) + again_ms)
            return Why(tx_id, Status.QUEUED, "bell-lost", text, moves_at)
        text = f"{here}, behind {bells} messages for {len(nodes)} nodes."
        return Why(tx_id, Status.QUEUED, "in-line", text)

    def _running(self, seen: Situation) -> Why:
        tx_id, node = seen.summary.tx_id, seen.fields.get("node", "")
        ran_s = seen.ago_s(seen.claimed_ms)
        doing = "is being rolled back" if seen.view.state.ending else "runs"
        text = f"It {doing} on node {node} since {ran_s:.1f} s, at {seen.step}."
        is_listed, beat_ms = self.situations.last_beat_ms(node)
        if is_listed:
            silent_s = seen.ago_s(beat_ms)
            if silent_s * 1_000 < self.settings.node_stale_ms:
                return Why(tx_id, Status.RUNNING, "running", text)
            text += f" That node has been silent for {silent_s:.0f} s."
        else:
            text += " That node is gone."
        fence, _, limit_ms = seen.fields.get("unsafe", "").partition(":")
        if fence == seen.fields["fence"]:
            moves_at = _time(seen.view.version + int(limit_ms))
            text += " The step is not safe to run again, so its time limit is waited for."
            return Why(tx_id, Status.RUNNING, "node-dead", text, moves_at)
        settings = self.settings
        soon_ms = settings.node_stale_ms + settings.node_grace_ms
        text += " The reaper takes it over."
        return Why(tx_id, Status.RUNNING, "node-dead", text, _time(seen.now_ms + soon_ms))

    def _sleeping(self, seen: Situation, texts: bool) -> Why:
        tx_id, view = seen.summary.tx_id, seen.view
        moves_at = _time(view.wake_ms or 0)
        late_s = seen.ago_s(view.wake_ms)
        if late_s > 10:
            text = f"It should have woken {late_s:.0f} s ago: the sleeper does not keep up."
            hint = "See that beat and a worker of the maintenance group run."
            return Why(tx_id, Status.SLEEPING, "wake-late", text, hints=[hint])
        if (view.wake_switch or "").startswith("approval-"):
            text = f"It waits at {seen.step} for people to agree."
            return self._with_requests(Why(tx_id, Status.SLEEPING, "approval", text, moves_at))
        if view.wake_switch:
            text = f"It waits at {seen.step} for switch {view.wake_switch!r} to be set."
            hint = f"datp switch {tx_id} {view.wake_switch} <value>"
            return Why(tx_id, Status.SLEEPING, "switch", text, moves_at, [hint])
        if view.state.errors:
            text = (
                f"At {seen.step} it has failed {view.state.errors} times and is tried again"
                f"{self._last_error(tx_id, texts)}."
            )
            hint = f"datp wake {tx_id}  (try now)"
            return Why(tx_id, Status.SLEEPING, "retry", text, moves_at, [hint])
        text = f"It sleeps at {seen.step}, as the step asked for."
        return Why(
            tx_id, Status.SLEEPING, "sleeping", text, moves_at, [f"datp wake {tx_id}  (end it now)"]
        )

    def _with_requests(self, why: Why) -> Why:
        """What about it waits for a second person."""
        with translate_outage():
            found = self.approvals.page(state=ApprovalState.PENDING, subject=why.tx_id)
        for each in found:
            # What a step asks holds data of the transaction, which not all may see who ask why.
            reason = "" if each.action == STEP else f": {each.reason.rstrip(' .')}"
            who = each.requester if each.action == STEP else each.requested_by
            if not why.answer.endswith("."):
                why.answer += "."
            why.answer += (
                f" Approval {each.id} ({each.action}, asked for by {who}{reason})"
                f" has {each.consents} of {each.needed}, from the role {each.role}."
            )
            why.hints.append(f"datp approvals approve {each.id}   (as another person)")
        return why

    def _last_error(self, tx_id: str, texts: bool) -> str:
        """What the last try broke with, from the journal."""
        for entry in reversed(self.auditor.deltas(tx_id)):
            for line in reversed(entry.deltas):
                delta = json.loads(line)
                if delta["k"] == "error":
                    why = _told(delta.get("why")) if texts else ""
                    return f"; last error: {why or delta['note']}"
        return ""

    def _error_text(self, tx_id: str, texts: bool) -> str:
        """What the last unexpected exception said, which its client is not told."""
        if not texts:
            return ""
        for entry in reversed(self.auditor.deltas(tx_id)):
            for line in reversed(entry.deltas):
                why = json.loads(line).get("why")
                if why:
                    return f" For operators: {_told(why)}."
        return ""

    def _ended(self, summary: Summary, texts: bool) -> Why:
        when = f" at {summary.completed_at:%Y-%m-%d %H:%M:%S %Z}" if summary.completed_at else ""
        note = f": {summary.note}" if summary.note else ""
        is_ours = summary.status is Status.INTERNAL_ERROR
        more = self._error_text(summary.tx_id, texts) if is_ours else ""
        text = f"It has ended as {summary.status}{when}{note}.{more}"
        return Why(summary.tx_id, str(summary.status), "ended", text)


def _told(why: object) -> str:
    """What an exception said; of a sealed transaction that it is sealed, too."""
    return "sealed; `datp unmask` shows it" if data_key_of(why) else str(why or "")


def _parked(seen: Situation, more: str) -> Why:
    tx_id = seen.summary.tx_id
    text = f"It is parked in doubt at {seen.step}: {seen.fields.get('problem', '')}{more}"
    hints = [
        f"datp resolve {tx_id} --done --reason …   (the step took effect)",
        f"datp resolve {tx_id} --redo --reason …   (it did not: run it)",
        f"datp resolve {tx_id} --fail --reason …   (roll back)",
    ]
    return Why(tx_id, Status.IN_DOUBT, "parked", text, hints=hints)


def _with_stop_and_expiry(why: Why, seen: Situation) -> Why:
    summary = seen.summary
    if summary.no_return_at:
        when = f"{summary.no_return_at:%Y-%m-%d %H:%M:%S %Z}"
        why.answer += f" It passed its point of no return at {when}: it can only finish."
        return why
    if summary.forwarded_at:
        when = f"{summary.forwarded_at:%Y-%m-%d %H:%M:%S %Z}"
        why.answer += f" It was forwarded at {when}: until the answer it cannot expire."
        return why
    if "cancel" in seen.fields and seen.view.state.ending is None:
        request = StopRequest.from_text(seen.fields["cancel"])
        why.answer += f" It is to end as {request.status} ({request.reason}) at its next step."
    if seen.summary.expires_at:
        why.answer += f" It expires at {seen.summary.expires_at:%Y-%m-%d %H:%M:%S %Z}."
    return why


def _time(ms: float) -> datetime:
    return datetime.fromtimestamp(ms / 1_000, UTC)
