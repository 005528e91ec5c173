"""Four eyes: what is asked for, what was decided, and the door that asks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

from datp_tasks.model.actor import Actor, Role
from datp_tasks.model.payload import Json, canonical
from datp_tasks.model.plan import place_words
from datp_tasks.model.sealed import MASK, masked

#: Everything that a policy can ask a second person for.
ACTIONS: Final = (
    "resolve.done",
    "resolve.fail",
    "resolve.redo",
    #: The step had begun and is not safe to run again: it may have had its effect.
    "resolve.redo-effect",
    "batch.resolve",
    "batch.resubmit",
    "bulk.cancel",
    "bulk.wake",
    "bulk.retry",
    "pipeline.use",
    "retention.set",
    "retention.remove",
    "erase",
)
#: Of these, what is approved is not carried out by the one who approves: the requester comes again
#: and does it, if that is in time.
PERMITS: Final = ("erase",)
#: Before the hash of a request with items. Releases before hashed them in the order in which they
#: were found, which is not stored: of such a request only the number of items can be compared.
SORTED: Final = "sorted:"
#: What a pipeline asks people for, by the step type util/approval.
STEP: Final = "step"


def short_hash(ids: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(ids).encode()).hexdigest()[:12]


def hash_of_request(params: Json, items: Sequence[str]) -> str:
    """What people agree to; of items in whatever order they are read."""
    text = canonical({"params": params, "items": sorted(items)})
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{SORTED}{digest}" if items else digest


def hash_of_asked(asked: Json) -> str:
    """All that people agree to: also what is done to what, at which version, and whose consent it
    takes."""
    return hashlib.sha256(canonical(asked).encode()).hexdigest()


def selection_of(ids: Iterable[str]) -> str:
    """What was chosen, in a word: another set has another one, in whatever order it is found."""
    return short_hash(sorted(ids))


class ApprovalState(StrEnum):
    PENDING = "pending"
    #: Decided in SQL; what else there is to do is done by this process or by the next one.
    APPROVED = "approved"
    EXECUTED = "executed"
    REJECTED = "rejected"
    EXPIRED = "expired"
    #: The subject had moved before it could be done, so nothing was done.
    STALE = "stale"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What an operator wants to do."""

    action: str
    subject: str
    params: Json
    #: Of the subject, as the operator saw it. If it is another one later, nothing is done.
    version: str
    reason: str
    pipeline: str | None = None
    #: Of an action about many: all pipelines that they are of, whatever they were chosen by.
    pipelines: Sequence[str] = ()
    #: Where a policy finds the amount: what the client sent.
    data: Json | None = None
    #: How many transactions it is about.
    size: int | None = None
    #: The transactions themselves, if the action is about many.
    items: Sequence[str] = ()

    @property
    def params_hash(self) -> str:
        return hash_of_request(self.params, self.items)

    def asked_hash(self, need: Need) -> str:
        return hash_of_asked(
            {
                **_agreed_to(self, need.approvals, need.role, need.persons),
                "params": self.params,
                "items": sorted(self.items),
            }
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Whose consent it takes."""

    approvals: int
    role: Role
    #: Empty: all who have the role.
    persons: tuple[str, ...]
    expires_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One person's word."""

    decided_by: str
    actor: str
    decision: str
    note: str
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    id: int
    action: str
    subject: str
    params: Json
    params_hash: str
    version: str
    reason: str
    state: ApprovalState
    #: The person, and the actor as the audit table names it.
    requested_by: str
    requester: str
    needed: int
    role: Role
    persons: tuple[str, ...]
    break_glass: bool
    created_at: datetime
    expires_at: datetime
    #: What became of it.
    note: str | None = None
    pipeline: str | None = None
    size: int | None = None
    decided_at: datetime | None = None
    executed_at: datetime | None = None
    #: Who looked into it after the glass was broken.
    closed_by: str | None = None
    #: None: of a release that hashed parameters and items only.
    asked_hash: str | None = None
    given: tuple[Vote, ...] = field(default=())

    def is_as_asked(self, items: Sequence[str]) -> bool:
        """Whether it says what it was asked with, and so do the transactions stored with it."""
        if self.asked_hash is not None:
            found = {
                **_agreed_to(self, self.needed, self.role, self.persons),
                "params": self.params,
                "items": sorted(items),
            }
            if hash_of_asked(found) != self.asked_hash:
                return False
        elif items and not self.params_hash.startswith(SORTED):
            return len(items) == self.size
        return hash_of_request(self.params, items) == self.params_hash

    @property
    def consents(self) -> int:
        return sum(each.decision == "approve" for each in self.given)

    def to_json(self, *, masked: bool = False) -> Json:
        """As the HTTP API and the command line show it; masked for those who see no payloads."""
        shown = self._to_json()
        if masked and self.action == STEP:
            # What the step asks is made of the fields of its data.
            shown |= {"params": MASK, "reason": None}
        elif masked and self.params.get("output") is not None:
            shown["params"] = {**self.params, "output": MASK}
        return shown

    def for_people(self, *, masked: bool = False) -> Json:
        """The same, with the step counted from 1, as in the notes beside it."""
        shown = self.to_json(masked=masked)
        params = shown["params"]
        if self.action.startswith("resolve.") and "step" in params:
            shown["params"] = {**params, "step": place_words(str(params["step"]))}
        return shown

    def _to_json(self) -> Json:
        return {
            "id": self.id,
            "state": str(self.state),
            "action": self.action,
            "subject": self.subject,
            # `datp unmask` shows what is sealed.
            "params": {name: masked(value) for name, value in self.params.items()},
            "paramsHash": self.params_hash,
            "version": self.version,
            "pipeline": self.pipeline,
            "size": self.size,
            "reason": self.reason,
            "requestedBy": self.requested_by,
            "requester": self.requester,
            "needed": self.needed,
            "agreed": self.consents,
            "role": str(self.role),
            "persons": list(self.persons) or None,
            "breakGlass": self.break_glass,
            "closedBy": self.closed_by,
            "note": self.note,
            "createdAt": self.created_at.isoformat(),
            "expiresAt": self.expires_at.isoformat(),
            "decidedAt": self.decided_at.isoformat() if self.decided_at else None,
            "executedAt": self.executed_at.isoformat() if self.executed_at else None,
            "decisions": [
                {
                    "by": each.decided_by,
                    "actor": each.actor,
                    "decision": each.decision,
                    "note": each.note,
                    "at": each.created_at.isoformat(),
                }
                for each in self.given
            ],
        }


def _agreed_to(asked: Ask | Approval, approvals: int, role: Role, persons: Sequence[str]) -> Json:
    return {
        "action": asked.action,
        "subject": asked.subject,
        "version": asked.version,
        "approvals": approvals,
        "role": str(role),
        "persons": list(persons),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be done now: asked for, and allowed."""

    action: str
    subject: str
    params: Json
    version: str
    reason: str
    #: Who makes it happen: the last one to approve, or the one who may act alone.
    actor: Actor
    #: None: the policy wants no second person for it.
    approval: Approval | None = None

    @property
    def audit_details(self) -> Json:
        """What the audit row says of how it came to be allowed."""
        if self.approval is None:
            return {}
        found: Json = {"approval": self.approval.id, "requestedBy": self.approval.requester}
        if self.approval.break_glass:
            found["breakGlass"] = True
        return found


class ApprovalGate(Protocol):
    """The door that every action in ACTIONS passes through."""

    def allows(self, ask: Ask) -> bool:
        """Whether one person may do it."""

    def covers(self, approval: Approval, ask: Ask) -> bool:
        """Whether those who agreed to an action about many suffice for this part of it."""

    def perform(self, actor: Actor, ask: Ask, *, break_glass: bool = False) -> str:
        """Do it, if the policy wants no second person; else ApprovalNeeded is raised."""
