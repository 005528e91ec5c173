"""Erasing what transactions were about, for a customer who has the right to be forgotten.

Payloads go: from SQL, Redis and the files of the journal. Ids, fingerprints, statuses, times and
hashes stay, so that a repeated request is still answered with the first transaction, the trail of
money is whole, and `datp audit` passes. Only what has ended can be erased.

Redis first, then the files, then SQL: what is chosen by its content is found again as long as SQL
has it, so a run that was cut off anywhere is finished by repeating it.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from datp_tasks.errors import ApprovalForbidden, FilterInvalid, SettingsError
from datp_tasks.failpoints import reach
from datp_tasks.live.erasing import forget_many
from datp_tasks.live.store import LiveStore
from datp_tasks.model.actor import Actor
from datp_tasks.model.approval import ApprovalState, Ask
from datp_tasks.operator.action_result import ActionResult
from datp_tasks.operator.approvals import Approvals
from datp_tasks.operator.audit import Auditor
from datp_tasks.record.database import Connection, translate_outage
from datp_tasks.record.erasure import Erasure, ErasureOrder, Payloads
from datp_tasks.record.journal_files import JournalFiles
from datp_tasks.record.transactions import Record
from datp_tasks.record.vault import Vault

#: Transactions looked at by a statement, and erased by a commit: journals may be long.
PAGE = 500
BATCH = 100
#: The deepest place at which a subject is looked for.
POINTER_PARTS_MAX = 32

ERASED = "erased"
NOT_ARCHIVED = "it is not archived yet. The archiver does that by itself: erase again in a minute"
UNREADABLE = (
    "these files are damaged: {}. Move them out of DATP_ARCHIVE__JOURNAL_DIR and erase again"
)
BROKEN = "its journal does not fit: {}. Look with `datp replay`, and settle that first"


class RoleTooWeak(SettingsError):
    """The database role of this process may not erase."""


@dataclass(frozen=True, slots=True)
class HashedSubject:
    """A subject whose value is recognised and not known."""

    pointer: str
    salt: str
    hash: str

    @classmethod
    def of(cls, pointer: str, value: str) -> HashedSubject:
        salt = secrets.token_hex(16)
        return cls(pointer, salt, _salted(salt, value))

    def matches(self, value: str | None) -> bool:
        return value is not None and _salted(self.salt, value) == self.hash


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Whose payloads go: one external id of an owner, one subject, or all of an owner."""

    owner: str | None = None
    external_id: str | None = None
    #: JSON pointer and value, such as `/customer=ann`; looked for in input, metadata and output.
    subject: str | None = None
    #: The same in an order that is stored until it is carried out.
    hashed: HashedSubject | None = None

    def __post_init__(self) -> None:
        if self.external_id is not None and (self.owner is None or self.subject is not None):
            raise FilterInvalid("an external id needs its owner, and no subject beside it")
        if not self.is_by_subject and self.owner is None:
            raise FilterInvalid("name an owner, an external id of an owner, or a subject")
        if self.subject is not None:
            self._parsed()

    @property
    def is_by_subject(self) -> bool:
        return self.subject is not None or self.hashed is not None

    @property
    def is_whole_owner(self) -> bool:
        return self.owner is not None and self.external_id is None and not self.is_by_subject

    def to_store(self) -> HashedSubject | None:
        """What tells the value from others, where the value itself must not stay."""
        if self.subject is None:
            return None
        pointer, _, value = self.subject.partition("=")
        return HashedSubject.of(pointer, value)

    def _parsed(self) -> tuple[list[str], str]:
        pointer, equals, value = (self.subject or "").partition("=")
        if not pointer.startswith("/") or not equals or not value:
            raise FilterInvalid("a subject is a JSON pointer and a value, such as /customer=ann")
        return _path(pointer), value

    def matches(self, documents: Sequence[Any]) -> bool:
        if self.hashed is not None:
            path = _path(self.hashed.pointer)
            return any(self.hashed.matches(_text(_at(document, path))) for document in documents)
        if self.subject is None:
            return True
        path, value = self._parsed()
        return any(_text(_at(document, path)) == value for document in documents)

    def to_json(self) -> dict[str, Any]:
        """For the audit: without the value of the subject, which must not stay anywhere."""
        pointer = None if self.subject is None else self.subject.partition("=")[0]
        if self.hashed is not None:
            pointer = self.hashed.pointer
        found = {"owner": self.owner, "externalId": self.external_id, "subject": pointer}
        return {name: value for name, value in found.items() if value is not None}

    def digest(self) -> str:
        """Tells one choice from another in a request for approval, without naming the value."""
        named = [self.owner, self.external_id, self.subject]
        return hashlib.sha256(json.dumps(named).encode()).hexdigest()

    def check_reason(self, reason: str) -> None:
        """A reason is kept for ever, so it must not tell what is being erased."""
        if not reason.strip():
            raise FilterInvalid("erasing needs a reason: it is kept in the audit table")
        if self.subject is not None and self._parsed()[1].casefold() in reason.casefold():
            raise FilterInvalid(
                "the reason names the value that is to be erased, and is kept in the audit table. "
                "Name the request for erasure instead, such as its number"
            )


@dataclass(frozen=True, slots=True)
class ErasurePermit:
    """What may be erased, by whom and why; `Eraser.permit` gives one, and an order that it began
    carries it on."""

    chosen: Chosen
    order: ErasureOrder


@dataclass(frozen=True, kw_only=True)
class PayloadSearch:
    """Finds the transactions whose payloads are meant, also those that are sealed."""

    record: Record
    erasure: Erasure
    vault: Vault

    def choose(self, chosen: Chosen) -> Iterator[list[str]]:
        """Transactions that are meant and not erased yet, page by page; pages may be empty."""
        after: str | None = ""
        while after is not None:
            found, after = self.page(chosen, after)
            yield found

    def page(self, chosen: Chosen, after: str) -> tuple[list[str], str | None]:
        """Those that are meant among the next PAGE, and where to go on; None at the end."""
        if chosen.external_id is not None and chosen.owner is not None:
            with translate_outage():
                found = self.record.by_external_id(chosen.owner, chosen.external_id)
            return [] if found is None or found.erased_at else [found.tx_id], None
        with translate_outage():
            page = self.erasure.page(chosen.owner, after=after, rows_max=PAGE)
            found_here = [each.tx_id for each in page if self._matches(chosen, each)]
        return found_here, page[-1].tx_id if len(page) == PAGE else None

    def _matches(self, chosen: Chosen, found: Payloads) -> bool:
        if not chosen.is_by_subject:
            return True
        opened = [self.vault.open(found.tx_id, each) for each in found.documents]
        return chosen.matches(opened)


@dataclass(frozen=True, kw_only=True)
class Eraser:
    search: PayloadSearch
    erasure: Erasure
    live: LiveStore
    auditor: Auditor
    files: JournalFiles | None
    approvals: Approvals

    def permit(
        self,
        chosen: Chosen,
        *,
        reason: str,
        actor: Actor,
        begin: Callable[[Connection, ErasureOrder], None] = lambda *_: None,
    ) -> ErasurePermit:
        """ApprovalNeeded is raised if the policy wants another person to agree first.

        An approval is good for one run; one that was cut off needs another to be finished. What
        `begin` writes is in the commit that uses it up.
        """
        chosen.check_reason(reason)
        ask = Ask(
            action="erase",
            subject=f"erasure {chosen.digest()[:16]}",
            params={**chosen.to_json(), "digest": chosen.digest()},
            version="",
            reason=reason,
        )
        with translate_outage(), self.erasure.writing() as connection:
            # Told before an approval is used up and anything is gone.
            self.check_role()
            used = self.approvals.require(actor, ask, connection=connection)
            allowed = {} if used is None else {"approval": used.id, "requestedBy": used.requester}
            order = ErasureOrder(actor, reason, chosen.to_json(), allowed)
            begin(connection, order)
        return ErasurePermit(chosen, order)

    def check_permit(self, permit: ErasurePermit) -> None:
        """For an order that rested: its approval says what it says, and was used for it.
        ApprovalForbidden is raised if not."""
        chosen, number = permit.chosen.to_json(), permit.order.allowed.get("approval")
        with translate_outage(), self.erasure.writing() as connection:
            if number is None:
                ask = Ask(
                    action="erase",
                    subject="erasure",
                    params=chosen,
                    version="",
                    reason=permit.order.reason,
                )
                is_allowed = self.approvals.allows(ask)
            else:
                approval = self.approvals.store.locked(connection, number)
                asked = {name: each for name, each in approval.params.items() if name != "digest"}
                is_allowed = (
                    (approval.action, approval.state) == ("erase", ApprovalState.EXECUTED)
                    and asked == chosen
                    and self.approvals.store.is_as_asked(connection, approval)
                )
        if not is_allowed:
            raise ApprovalForbidden(
                "there is no approval for what this order says: order it again, so that another "
                "person is asked"
            )

    def check_role(self) -> None:
        if not self.erasure.may_erase():
            raise RoleTooWeak(
                "this role of the database may not take texts out of the audit. Run "
                "`datp erase` with DATP_DATABASE_URL of the role that owns the tables"
            )

    def erase(self, tx_ids: Sequence[str], permit: ErasurePermit) -> Iterator[ActionResult]:
        """Erase in batches; what became of each, told when its batch is done."""
        for start in range(0, len(tx_ids), BATCH):
            yield from self._erase(tx_ids[start : start + BATCH], permit.order)

    def erase_batches(self, permit: ErasurePermit) -> int:
        """Batches for ledgers that the owner sent without a transaction; how many."""
        chosen, order = permit.chosen, permit.order
        if chosen.owner is None or not chosen.is_whole_owner:
            return 0
        done = 0
        while True:
            with translate_outage():
                number = self.erasure.erase_batches_of(chosen.owner, order, rows_max=BATCH)
            done += number
            # Some of a page may be passed over, because a person decides about them now.
            if not number:
                return done

    def erase_answers(self, permit: ErasurePermit) -> int:
        """Answers to requests of an owner that were refused, kept under their keys; how many."""
        chosen = permit.chosen
        if chosen.owner is None or not chosen.is_whole_owner:
            return 0
        done = 0
        while True:
            with translate_outage():
                number = self.erasure.erase_answers_of(chosen.owner, permit.order, rows_max=PAGE)
            done += number
            if number < PAGE:
                return done

    def erase_keys(self, permit: ErasurePermit) -> int:
        """The data keys of an owner, after all else of it; how many. One that seals a transaction
        which cannot be erased yet stays."""
        chosen = permit.chosen
        if chosen.owner is None or not chosen.is_whole_owner:
            return 0
        with translate_outage():
            return self.erasure.erase_data_keys_of(chosen.owner, permit.order)

    def erase_files(self) -> list[str]:
        """Take what is erased in SQL out of the files here; those that cannot be read."""
        if self.files is None:
            raise FilterInvalid(
                "DATP_ARCHIVE__JOURNAL_DIR is not set: the journal has no files here"
            )
        with translate_outage():
            return [str(path) for path in self.files.erase(self.erasure.erased_ids())]

    def _erase(self, tx_ids: Sequence[str], order: ErasureOrder) -> Iterator[ActionResult]:
        with translate_outage():
            refused = self.erasure.obstacles(tx_ids)
            ready = [tx for tx in tx_ids if tx not in refused]
            refused |= self._unsound(ready)
            ready = [tx for tx in ready if tx not in refused]
            refused |= dict.fromkeys(forget_many(self.live, ready), NOT_ARCHIVED)
            ready = [tx for tx in ready if tx not in refused]
            unreadable = self.files.erase(ready) if self.files and ready else []
            reach("erase.after_files")
            if unreadable:
                names = ", ".join(str(path) for path in unreadable)
                refused |= dict.fromkeys(ready, UNREADABLE.format(names))
                ready = []
            reach("erase.before_sql")
            refused |= self.erasure.erase(ready, order) if ready else {}
            reach("erase.after_sql")
        for tx in tx_ids:
            yield ActionResult(tx, refused.get(tx, ERASED), tx not in refused)

    def _unsound(self, tx_ids: Sequence[str]) -> dict[str, str]:
        """What does not fit must be looked at while it can be: erasing would hide it for ever."""
        replays = self.auditor.replay_many(tx_ids)
        return {each.tx_id: BROKEN.format(each.faults[0]) for each in replays if each.faults}


def _path(pointer: str) -> list[str]:
    parts = pointer[1:].split("/")
    if len(parts) > POINTER_PARTS_MAX:
        raise FilterInvalid(f"a JSON pointer has at most {POINTER_PARTS_MAX} parts")
    return [part.replace("~1", "/").replace("~0", "~") for part in parts]


def _salted(salt: str, value: str) -> str:
    return hashlib.sha256(f"{salt} {value}".encode()).hexdigest()


def _at(document: Any, path: Sequence[str]) -> Any:
    for part in path:
        if isinstance(document, dict):
            document = document.get(part)
        elif isinstance(document, list) and part.isdecimal() and int(part) < len(document):
            document = document[int(part)]
        else:
            return None
    return document


def _text(value: Any) -> str | None:
    """A value as one writes it on a command line."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)
