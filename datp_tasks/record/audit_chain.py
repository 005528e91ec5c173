"""The chain over the audit: each seal is a hash of one action and of the seal before it.

Actions are written by many at once, each in the transaction that does it, and wait for nothing; a
job seals them afterwards, one process at a time. So a chain costs those who act nothing. What was
changed, removed or put in after it was sealed is named by `verify`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine

from datp_tasks.model.payload import encode
from datp_tasks.record.queries import Queries

#: Before the first action.
START = "0" * 64
#: How many ids back an action is looked for that committed late: more than are ever open at once.
LOOK_BACK = 10_000
PAGE = 1_000
FAULTS_MAX = 100


class Query(Queries, topic="audit_chain"):
    lock: str
    head: str
    unsealed: str
    add: str
    page: str
    left_out: str
    erasures: str
    listed: str


@dataclass(frozen=True, slots=True)
class ChainHead:
    """Where the chain ends; keep it elsewhere, and a cut end is noticed, too."""

    position: int
    hash: str

    def __str__(self) -> str:
        return f"{self.position}:{self.hash}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainReport:
    sealed: int
    head: ChainHead
    faults: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """An action as the audit has it; without a position it is not sealed yet."""

    id: int
    actor: str
    key_id: str | None
    request_id: str | None
    address: str | None
    action: str
    subject: str
    reason: str | None
    details: Any
    created_at: datetime
    position: int | None
    hash: str | None


class AuditChain:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def seal(self, *, rows_max: int) -> int:
        """Seal what is new, the oldest first; how many."""
        with self._engine.begin() as connection:
            connection.exec_driver_sql(Query.lock)
            last = connection.exec_driver_sql(Query.head).first()
            values = {"look_back": LOOK_BACK, "limit": rows_max}
            rows = connection.exec_driver_sql(Query.unsealed, values).all()
            if not rows:
                return 0
            position, previous = (last.position, last.hash) if last else (0, START)
            hashes = []
            for row in rows:
                previous = hash_of(previous, row)
                hashes.append(previous)
            connection.exec_driver_sql(
                Query.add,
                {
                    "position": list(range(position + 1, position + 1 + len(rows))),
                    "action_id": [row.id for row in rows],
                    "hash": hashes,
                },
            )
        return len(rows)

    def verify(self, expected: ChainHead | None = None) -> ChainReport:
        """Look at the whole chain; `expected` is a head that was seen before."""
        faults: list[str] = []
        position, previous = 0, START
        erased: list[Any] = []
        for row in self._sealed():
            if row.id is not None and _erased_hashes(row.reason, row.details):
                erased.append(row)
            fault = _fault_of(row, position, previous)
            if fault:
                faults.append(fault)
            if expected and row.position == expected.position and row.hash != expected.hash:
                faults.append(f"the seal {row.position} is not the one that was seen before")
            position, previous = row.position, row.hash
        if expected and position < expected.position:
            faults.append(f"the chain ends at {position}; it had come to {expected.position}")
        faults += [f"action {each} was put in without a seal" for each in self._left_out()]
        faults += self._feigned(erased)
        return ChainReport(
            sealed=position, head=ChainHead(position, previous), faults=faults[:FAULTS_MAX]
        )

    def actions(
        self,
        *,
        subject: str | None = None,
        key_id: str | None = None,
        action: str | None = None,
        before: int | None = None,
        rows_max: int = 100,
    ) -> list[Noted]:
        """The newest first."""
        values = {
            "subject": subject,
            "key_id": key_id,
            "action": action,
            "before": before,
            "limit": rows_max,
        }
        with self._engine.connect() as connection:
            rows = connection.exec_driver_sql(Query.listed, values).mappings().all()
        return [
            Noted(**{**row, "details": row["details"] and json.loads(row["details"])})
            for row in rows
        ]

    def _sealed(self) -> Iterator[Any]:
        after = 0
        while True:
            with self._engine.connect() as connection:
                values = {"after": after, "limit": PAGE}
                rows = connection.exec_driver_sql(Query.page, values).all()
            yield from rows
            if len(rows) < PAGE:
                return
            after = rows[-1].position

    def _feigned(self, rows: list[Any]) -> list[str]:
        """Texts can be taken out with their hashes left only by an erasure, which notes it."""
        if not rows:
            return []
        with self._engine.connect() as connection:
            noted = [json.loads(row.details) for row in connection.exec_driver_sql(Query.erasures)]
        named = {
            subject
            for each in noted
            for kind in ("erased", "batches", "approvals")
            for subject in each.get(kind, ())
        }
        # What was left of those that are about more than what was erased, as it was left.
        left = {(number, found) for each in noted for number, found in _left(each)}
        return [
            f"the texts of action {row.id} were taken out, and what it is about is not erased"
            for row in rows
            if not (row.subject in named and _is_all_erased(row.details))
            and (str(row.id), _sha256(row.details)) not in left
        ]

    def _left_out(self) -> list[int]:
        with self._engine.connect() as connection:
            values = {"look_back": LOOK_BACK, "limit": FAULTS_MAX}
            return [row.id for row in connection.exec_driver_sql(Query.left_out, values)]


def hash_of(previous: str, row: Any) -> str:
    """Of the seal before it and everything in the row; of its texts, their hashes.

    So a row whose texts were erased (`datp erase` leaves their hashes in `details`) still fits.
    """
    content = [
        *(previous, row.id, row.actor, row.key_id, row.request_id, row.address),
        *(row.action, row.subject, *_text_hashes(row.reason, row.details)),
        row.created_at.astimezone(UTC).isoformat(),
    ]
    return hashlib.sha256(encode(content).encode()).hexdigest()


def _text_hashes(reason: str | None, details: str | None) -> tuple[str, str]:
    return _erased_hashes(reason, details) or (_sha256(reason), _sha256(details))


def _erased_hashes(reason: str | None, details: str | None) -> tuple[str, str] | None:
    """Of a row whose texts were erased, wholly or in part; None for all others."""
    found = json.loads(details) if details else None
    if not isinstance(found, dict) or "erased" not in found:
        return None
    others = found.keys() - {"erased"}
    if reason is None and others in ({"erasedReason"}, {"erasedReason", "kept"}):
        return found["erasedReason"], found["erased"]
    return (_sha256(reason), found["erased"]) if others == {"kept"} else None


def _is_all_erased(details: str) -> bool:
    return "kept" not in json.loads(details)


def _left(noted: Any) -> Iterable[tuple[str, str]]:
    found = noted.get("actions")
    return found.items() if isinstance(found, dict) else ()


def _sha256(text: str | None) -> str:
    return hashlib.sha256((text or "").encode()).hexdigest()


def _fault_of(row: Any, position: int, previous: str) -> str | None:
    if row.position != position + 1:
        return f"the seals {position + 1} to {row.position - 1} were removed"
    if row.id is None:
        return f"action {row.action_id} was removed"
    if hash_of(previous, row) != row.hash:
        return f"action {row.action_id}, or its seal, was changed"
    return None
