"""Who acts: a key, a person at the command line, or the system itself."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from datp_tasks.model.grants import Grants


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

    def includes(self, other: Role) -> bool:
        return RANKS.index(self) >= RANKS.index(other)


#: From the least to the most.
RANKS = (Role.VIEWER, Role.OPERATOR, Role.APPROVER, Role.ADMIN)


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
    #: None: what a key of its role, or of a client, may do by default (`model/rights.py`).
    grants: Grants | None = None

    def asking(self, request_id: str | None, address: str | None) -> Actor:
        """The same in a request. Every request makes one, and `replace` takes thrice as long."""
        return Actor(
            name=self.name,
            role=self.role,
            owner=self.owner,
            key_id=self.key_id,
            request_id=request_id,
            address=address,
            grants=self.grants,
        )

    @property
    def person(self) -> str:
        """Who decides, as far as four eyes go: all keys of one owner are one person.

        A person at the command line is the user of the operating system.
        """
        return self.owner or self.name.removeprefix("cli ").partition(" as ")[0]

    def __str__(self) -> str:
        return self.name

    @property
    def is_operator(self) -> bool:
        """Any role: it sees every owner."""
        return self.role is not None

    def has(self, role: Role) -> bool:
        return self.role is not None and self.role.includes(role)

    @property
    def origin(self) -> str | None:
        """Its request, as the row of a transaction keeps it: `<request id> <address>`."""
        found = [each for each in (self.request_id, self.address) if each]
        return " ".join(found) or None

    def may_see(self, owner: str) -> bool:
        return self.is_operator or owner == self.owner


#: A program of this installation that says nothing else of itself. It holds the passwords of the
#: servers, so there is nothing that a role could keep from it.
LOCAL = Actor(name="local", role=Role.ADMIN)
