"""What the live store takes and gives: plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from datp_tasks.model.state import Delta, delta_lines

#: Priority classes of bells, most urgent first, with the number that the broker sorts by.
#: What one owner has in excess goes after all others, and there, too, out before in.
PRIORITIES = {"admin": 0, "out": 3, "in": 6, "out-later": 7, "in-later": 9}

#: Of the bell with which a transaction begins.
FIRST_SEQUENCE = 1


@dataclass(slots=True)
class Bell:
    """A hint that a transaction is due: everything needed to ring, nothing that is the record. Not
    frozen, as NewTransaction is not: each transaction that is rung for makes one."""

    tx_id: str
    sequence: int
    group: str
    step_type: str
    #: pipeline/step index: which entry of the cost book tells how many go together.
    place: str
    priority: str
    #: It may bring its worker down, so it must not share a vector.
    alone: bool = False
    #: Whose it is: owners that have much let others pass.
    owner: str = field(default="", compare=False)

    @classmethod
    def from_reply(cls, tx_id: str, reply: list[str | None]) -> Bell:
        sequence, group, step_type, place, priority, owner = reply
        return cls(
            *(tx_id, int(sequence or 0), group or "", step_type or "", place or ""),
            priority=priority or "in",
            owner=owner or "",
        )


@dataclass(slots=True)
class NewTransaction:
    """A transaction to be put into the queue for the first time. Not frozen: that would double the
    time that making one takes, and each request makes one."""

    tx_id: str
    owner: str
    external_id: str | None
    pipeline: str
    group: str
    step_type: str
    place: str
    state_json: str
    metadata_json: str | None
    expires_at_ms: int | None = None
    #: Where it belongs in a trace; empty if it is not traced.
    trace: str = ""
    #: No older claim is let through; SQL knows this one already.
    fence: int = 0
    #: Redis was lost, and steps may have run of which nothing is known.
    recreated: bool = False

    def fields(self) -> dict[str, str]:
        """Those of the hash that its client decided, and where it begins."""
        pairs = self.own_pairs()
        first = {"owner": self.owner, "pipeline": self.pipeline, "group": self.group}
        first |= {"stepType": self.step_type, "place": self.place, "priority": "in"}
        return first | dict(zip(pairs[::2], pairs[1::2], strict=True))

    def own_pairs(self) -> list[str]:
        """Names and values of what `create` is told of each, but for its owner."""
        pairs = ["state", self.state_json]
        if self.metadata_json:
            pairs += ("metadata", self.metadata_json)
        if self.external_id:
            pairs += ("externalId", self.external_id)
        if self.expires_at_ms is not None:
            pairs += ("expiresAt", str(self.expires_at_ms))
        if self.trace:
            pairs += ("trace", self.trace)
        if self.fence:
            pairs += ("fence", str(self.fence))
        if self.recreated:
            pairs += ("recreated", "1")
        return pairs

    def bell(self, sequence: int) -> Bell:
        group, step_type, place = self.group, self.step_type, self.place
        return Bell(self.tx_id, sequence, group, step_type, place, "in", False, self.owner)


class Claimed(NamedTuple):
    """What a successful claim gives. A tuple, because each transaction of a hop makes one."""

    tx_id: str
    fence: int
    fields: Mapping[str, str]
    deltas: list[str]
    #: The claim opened the step, as far as a crash is concerned.
    opened: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """A script refused: another worker owns the transaction, or its status is another. The word
    says which."""

    tx_id: str
    word: str
    found: str


class Held(NamedTuple):
    """A transaction that the caller holds: id, fence, and deltas not yet written."""

    tx_id: str
    fence: int
    deltas: tuple[Delta, ...] = ()

    @property
    def lines(self) -> str:
        """The deltas as the journal and `deltaL` have them: JSON, one a line."""
        return delta_lines(self.deltas)


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """A transaction as SQL has it, on its way back into memory."""

    tx_id: str
    version: int
    fence: int
    status: str
    fields: Mapping[str, str]
    wake_ms: int | str = ""
    #: How long it stays if nothing happens; 0 for one that goes on.
    ttl_ms: int = 0
    #: Redis had lost it: that is a change of its own, with deltas that make it fit to go on.
    rebuilt: bool = False
    lines: str = ""
    #: Who had an older version of it.
    node: str = ""
    #: From when on it must be read again first: something newer may have come and left.
    until_ms: int | str = ""


def flat_to_dict(flat: list[Any]) -> dict[str, str]:
    each = iter(flat)
    return dict(zip(each, each, strict=True))


def switches_of(fields: Mapping[str, str]) -> dict[str, str]:
    """Switch values (JSON) by name; a removed switch has no value any more."""
    found: dict[str, str] = {}
    if "switchSeq" not in fields:
        # Most have none, and every claim asks.
        return found
    for name, stored in fields.items():
        if name.startswith("switch:"):
            value = stored.partition(":")[2]
            if value:
                found[name[7:]] = value
    return found
