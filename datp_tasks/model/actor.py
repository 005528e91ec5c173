"""Who acts: a key, a person at the command line, or the system itself."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    """What an operator may do; each includes what the ones before it may."""

    #: Reads everything, with payloads masked.
    VIEWER = "viewer"
    #: Acts on transactions, webhooks and groups.
    OPERATOR = "operator"
    #: Decides about what another operator asked for.
    APPROVER = "approver"
    #: Keys, grants, policy, pipelines and erasure.
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """As the audit table names it: `key 1f2e…`, `cli alice`, `job retention`."""

    name: str
    #: None for the key of a client and for jobs.
    role: Role | None = None
    #: Whose transactions a client's key may touch; operators see those of every owner.
    owner: str | None = None
    key_id: str | None = None
    request_id: str | None = None
    address: str | None = None

    @property
    def person(self) -> str:
        """Who decides, as far as four eyes go: all keys of one owner are one person.

        A person at the command line is the user of the operating system.
        """
        return self.owner or self.name.removeprefix("cli ").partition(" ")[0]

    def __str__(self) -> str:
        return self.name
