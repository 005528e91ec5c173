"""The way in: services and batches are checked before anything is stored."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from datp_tasks.errors import (
    BatchInvalid,
    LedgerError,
    ServiceInvalid,
    ServiceUnknown,
    SubjectMoved,
)
from datp_tasks.ledger.batch_types import (
    PAYLOAD_BYTES_MAX,
    UNSEEN,
    NewBatch,
    RingAll,
    SeenService,
    Service,
    Stored,
)
from datp_tasks.ledger.kinds import KINDS, address_mistake, credential_mistake
from datp_tasks.model.actor import Actor
from datp_tasks.record.ledger_batches import BatchStore
from datp_tasks.record.ledger_claims import ClaimStore
from datp_tasks.record.sealed_secrets import NAME as SECRET_NAME
from datp_tasks.settings import Settings

#: What every kind keeps to: it stands in URLs and in lists.
BATCH_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}")
OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")


class Intake:
    def __init__(
        self, *, settings: Settings, batches: BatchStore, claims: ClaimStore, ring: RingAll
    ) -> None:
        self._settings = settings
        self._batches = batches
        self._claims = claims
        self._ring = ring

    def add_service(
        self,
        service_id: str,
        *,
        kind: str,
        url: str,
        secret: str | None = None,
        by: Actor | None = None,
        reason: str = "",
        seen: SeenService = UNSEEN,
    ) -> Service:
        """Make a line of batches to a ledger, or give it another address; the audit has `by`.

        `secret` names the sealed secret that its requests carry as their Authorization. With
        `seen`, SubjectMoved is raised if it is not as the caller has seen it.
        """
        known = KINDS.get(kind)
        if known is None:
            raise ServiceInvalid(
                f"{kind!r} is no kind of ledger; there are {', '.join(KINDS)}: "
                f"{KINDS.missing(kind)}"
            )
        if not isinstance(service_id, str) or not known.service_pattern.fullmatch(service_id):
            raise ServiceInvalid(
                f"the name of a {kind} service must match {known.service_pattern.pattern}, "
                f"was {service_id!r:.100}"
            )
        service = Service(service_id=service_id, kind=kind, url=url, secret=secret)
        mistake = address_mistake(service, self._settings.ledger_hosts)
        if not mistake and secret is not None and not SECRET_NAME.fullmatch(secret):
            mistake = f"{secret!r:.100} is no name of a secret; `datp secrets list` shows them"
        if not mistake and secret is not None:
            mistake = credential_mistake(known, url)
        if mistake:
            raise ServiceInvalid(mistake)
        if not self._batches.add_service(service, by, reason, was=seen):
            if any(each.kind == kind for each in self._batches.services([service_id])):
                raise SubjectMoved(f"{service_id} was changed meanwhile; look at it again")
            raise ServiceInvalid(f"{service_id} exists and is of another kind than {kind}")
        return service

    def submit_many(
        self,
        wanted: Sequence[tuple[str, bytes, str | None]],
        *,
        owner: str = "local",
        by: Actor | None = None,
    ) -> list[Stored | LedgerError]:
        """Store (service, payload, batch id or None) in this order; one answer for each.

        One that is not acceptable does not hold up the others. When this returns, those that are
        stored are committed, with a line in the audit if it is said `by` whom.
        """
        return self._store(
            [
                replace(each, by=by) if isinstance(each, NewBatch) else each
                for each in self._checked_many(wanted, owner)
            ]
        )

    def stored_before(
        self, wanted: tuple[str, bytes, str | None], *, owner: str
    ) -> Stored | LedgerError | None:
        """The first answer to a batch that was stored before; None if it was not."""
        [new] = self._checked_many([wanted], owner)
        return self._batches.stored_before(new) if isinstance(new, NewBatch) else new

    def _checked_many(
        self, wanted: Sequence[tuple[str, bytes, str | None]], owner: str
    ) -> list[NewBatch | LedgerError]:
        names = sorted({service for service, _, _ in wanted if isinstance(service, str)})
        kinds = {each.service_id: each.kind for each in self._batches.services(names)}
        return [
            self._checked(service, payload, batch_id, owner, kinds)
            for service, payload, batch_id in wanted
        ]

    def submit(self, new: NewBatch) -> Stored:
        """Store one batch that a client waits for, or raise what is wrong with it."""
        kinds = {each.service_id: each.kind for each in self._batches.services([new.service_id])}
        check = self._checked(new.service_id, new.payload, new.batch_id, new.owner, kinds)
        answer = check if isinstance(check, LedgerError) else self._store([new])[0]
        if isinstance(answer, LedgerError):
            raise answer
        return answer

    def _store(self, checked: Sequence[NewBatch | LedgerError]) -> list[Stored | LedgerError]:
        good = [each for each in checked if isinstance(each, NewBatch)]
        stored = iter(self._batches.store_many(good) if good else [])
        answers: list[Stored | LedgerError] = [
            next(stored) if isinstance(each, NewBatch) else each for each in checked
        ]
        fresh = {
            each.service_id for each in answers if isinstance(each, Stored) and not each.duplicate
        }
        if fresh:
            # Those in turn need not wait for the next tick; the rest follow their predecessors.
            self._ring(self._claims.work_of(sorted(fresh)))
        return answers

    def _checked(
        self,
        service_id: object,
        payload: object,
        batch_id: str | None,
        owner: object,
        kinds: dict[str, str],
    ) -> NewBatch | LedgerError:
        if not isinstance(service_id, str) or service_id not in kinds:
            return ServiceUnknown(
                f"there is no ledger service {service_id!r:.100}; `datp services add` makes one"
            )
        if not isinstance(owner, str) or not OWNER.fullmatch(owner):
            return BatchInvalid(
                f"an owner is 1 to 64 letters, digits, '_', '.', '@' or '-', was {owner!r:.100}"
            )
        if not isinstance(payload, bytes):
            return BatchInvalid(f"a payload must be bytes, was {type(payload).__name__}")
        limit = PAYLOAD_BYTES_MAX
        if not 0 < len(payload) <= limit:
            return BatchInvalid(f"a payload has 1 to {limit} bytes, was {len(payload)}")
        try:
            found = KINDS[kinds[service_id]].batch_id_of(payload)
        except BatchInvalid as mistake:
            return mistake
        except KeyError:
            return ServiceInvalid(
                f"{KINDS.missing(kinds[service_id])}; install it where batches are handed in, too"
            )
        if not BATCH_NAME.fullmatch(found):
            return BatchInvalid("the kind of ledger made a batch id that cannot be stored")
        if batch_id is not None and batch_id != found:
            return BatchInvalid(
                f"the bytes hold the batch {found[:16]}…, not {str(batch_id)[:16]}…"
            )
        return NewBatch(service_id=service_id, batch_id=found, payload=payload, owner=owner)
