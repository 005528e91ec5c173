"""`util/approval`: go on when people have agreed.

params:  note: "Pay {{amount}} to {{to}}?"     # what they read; may hold {{fields}} of the data
         quorum: 2                # how many must agree; 1 by default
         role: approver           # or admin
         from: [alice, bob]       # only these; without it, all who have the role
         seconds: 86400           # then it has expired, and the transaction fails
         into: approval           # {id, decisions} goes into this field
Keys of the transaction's owner cannot agree. One rejection fails the transaction. `datp approvals`
and the HTTP API show what waits and take the decisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from datp_tasks.engine.builtin.params import SECONDS, mistakes_in, schema_of, seconds_mistakes
from datp_tasks.engine.registry import step
from datp_tasks.model.actor import Role
from datp_tasks.model.approval import ApprovalState, Need
from datp_tasks.model.outcome import Fail, Sleep
from datp_tasks.model.paths import FieldMissing, render, template_mistakes

if TYPE_CHECKING:
    from datp_tasks.engine.context import StepContext

KNOWN = {
    "note": "text",
    "quorum": "any",
    "role": "text",
    "from": "a list",
    "seconds": "any",
    "into": "text",
}
DAY_S = 86_400.0
#: Who decides wakes it; if that was lost, it looks by itself.
LOOK_AGAIN_S = 300.0
QUORUM_MAX = 20
ROLES = (Role.APPROVER, Role.ADMIN)


@step(
    "util/approval",
    description="Waits until people have agreed, then passes its input on.",
    parameters=schema_of(
        KNOWN,
        "note",
        quorum={"type": "integer", "minimum": 1},
        role={"enum": ["approver", "admin"]},
        seconds=SECONDS,
    ),
    default={"note": "Pay {{amount}} to {{to}}?", "seconds": 86_400},
)
def approval(ctx: StepContext, data: dict[str, Any]) -> dict[str, Any] | Sleep:
    params = ctx.params
    need = Need(
        approvals=params.get("quorum", 1),
        role=Role(params.get("role", Role.APPROVER)),
        persons=tuple(params.get("from", ())),
        expires_s=params.get("seconds", DAY_S),
    )
    try:
        note = render(params["note"], data)
    except FieldMissing as problem:
        raise Fail(f"what people must agree to cannot be said: {problem}") from None
    found = ctx.ask_approval(note, need)
    if found.state is ApprovalState.PENDING:
        ctx.progress({"stage": "approval", "approval": found.id, "agreed": found.consents})
        left_s = found.expires_at.timestamp() - ctx.now_ms() / 1_000
        # A moment longer: when it wakes, the time must be over.
        seconds = max(0.1, min(LOOK_AGAIN_S, left_s + 0.1))
        return Sleep(seconds=seconds, switch=f"approval-{found.id}")
    said = [{"by": each.decided_by, "note": each.note} for each in found.given]
    if found.state in (ApprovalState.APPROVED, ApprovalState.EXECUTED):
        return {**data, params.get("into", "approval"): {"id": found.id, "decisions": said}}
    raise Fail(f"approval {found.id} is {found.state}", {"approval": found.id, "decisions": said})


@approval.check
def params_ok(params: Mapping[str, Any]) -> list[str]:
    mistakes = mistakes_in(params, KNOWN)
    mistakes += seconds_mistakes(params, "seconds", low_s=1)
    if not params.get("note"):
        mistakes.append("note must be given: what those who decide read")
    mistakes += template_mistakes(params.get("note"), "note")
    quorum, persons = params.get("quorum", 1), params.get("from", ["any"] * QUORUM_MAX)
    if not isinstance(quorum, int) or isinstance(quorum, bool) or not 1 <= quorum <= QUORUM_MAX:
        mistakes.append(f"quorum must be a whole number from 1 to {QUORUM_MAX}, was {quorum!r}")
    elif isinstance(persons, list | tuple) and len(persons) < quorum:
        mistakes.append(f"from names {len(persons)} persons, but {quorum} must agree")
    if params.get("role", Role.APPROVER) not in ROLES:
        mistakes.append(f"role must be approver or admin, was {params['role']!r}")
    if params.get("into") == "":
        mistakes.append("into must not be empty")
    return mistakes
