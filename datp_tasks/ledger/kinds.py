"""The kinds of ledgers: each is one class that builds requests and reads answers, without I/O.

Another ledger is one more class: an installed package names it under the entry point
`datp_tasks.ledger_kinds` (docs/ledger.md).
"""

from __future__ import annotations

import json
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import entry_points
from itertools import groupby
from typing import Any, ClassVar, Protocol
from urllib.parse import urlsplit

from datp_tasks.errors import BatchInvalid, ServiceInvalid
from datp_tasks.ledger.batch_list import BATCH_ID, NotABatchList, batch_ids, transaction_ids
from datp_tasks.ledger.batch_types import Asked, Begun, Seen
from datp_tasks.ledger.credentials import THIS_MACHINE
from datp_tasks.ledger.hosts import url_mistake
from datp_tasks.ledger.rules import RULES, Rule
from datp_tasks.model.ledger_batch import BatchState
from datp_tasks.model.notes import clean_note
from datp_tasks.outbound.messages import Exchange, HttpRequest, Response

log = logging.getLogger("datp.ledger")

RECEIPT_CHARS_MAX = 16_384
ENTRY_POINT_GROUP = "datp_tasks.ledger_kinds"
KIND_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


class LedgerKind(ABC):
    """What the submitter and the poller need to know of a ledger."""

    name: ClassVar[str]
    #: A second submission of a batch that the ledger has is dropped by it. Where this is False,
    #: a second submission can be a second execution, and is reported as an anomaly.
    drops_duplicates: ClassVar[bool]
    #: How many batches one status request may name.
    ids_max: ClassVar[int] = 15
    service_pattern: ClassVar[re.Pattern[str]] = re.compile(r"[A-Za-z0-9-]([A-Za-z0-9_.:-]{0,127})")
    #: What each answer to a submission means; the last row must fit anything.
    rules: ClassVar[Sequence[Rule]] = RULES
    #: How the addresses of its services may begin.
    schemes: ClassVar[Sequence[str]] = ("http", "https")
    #: Those of them that encrypt what they carry: a credential goes to another machine by no other.
    encrypted_schemes: ClassVar[Sequence[str]] = ("https",)
    #: Whether `send` is used, in a thread, instead of the HTTP client of this installation.
    has_own_client: ClassVar[bool] = False

    def send(self, request: HttpRequest, within_s: float) -> Exchange:
        """Send one request by a client of its own; it must be over within this time."""
        raise NotImplementedError(f"the kind {self.name} has no client of its own")

    def batch_id_of(self, payload: bytes) -> str:
        """The id under which the ledger will know these bytes, or BatchInvalid."""
        try:
            found = batch_ids(payload)
        except NotABatchList as problem:
            raise BatchInvalid(f"the payload is not a BatchList: {problem}") from None
        if len(found) != 1:
            raise BatchInvalid(f"the payload must hold one batch, but holds {len(found)}")
        if not BATCH_ID.fullmatch(found[0]):
            raise BatchInvalid("the header signature must be 128 lowercase hex digits")
        return found[0]

    def transactions_of(self, payload: bytes) -> list[str]:
        """The ids of the transactions in a batch; empty where the bytes tell nothing."""
        try:
            return transaction_ids(payload)
        except NotABatchList:
            return []

    def reasons_of(self, receipt: Mapping[str, Any]) -> dict[str, str]:
        """What the ledger said of single transactions of a batch that it refused, by their id."""
        return {}

    @abstractmethod
    def submission(self, begun: Begun) -> HttpRequest: ...

    @abstractmethod
    def error_code(self, answer: Response) -> int | None:
        """The ledger's own number for what went wrong, if the answer has one."""

    @abstractmethod
    def questions(self, asked: Iterable[Asked]) -> list[tuple[HttpRequest, list[Asked]]]:
        """As few status requests as possible, each with the batches it asks for."""

    @abstractmethod
    def statuses(self, answer: Response) -> dict[str, Seen]:
        """What an answer says, by batch id; empty if it says nothing."""

    def proof(self, asked: Asked) -> HttpRequest | None:
        """A second question that only finds what is committed, for one the ledger forgot."""
        return None


class Sawtooth(LedgerKind):
    """The REST API of Hyperledger Sawtooth. All its services share one queue and block store."""

    name = "sawtooth"
    drops_duplicates = True

    _STATES: ClassVar = {
        "COMMITTED": BatchState.COMMITTED,
        "INVALID": BatchState.INVALID,
        "PENDING": BatchState.PENDING,
        "UNKNOWN": BatchState.UNKNOWN,
    }

    def submission(self, begun: Begun) -> HttpRequest:
        # Exactly this type, or Sawtooth answers 400 with code 42.
        headers = {"Content-Type": "application/octet-stream"}
        url = f"{begun.url}/batches"
        return HttpRequest(method="POST", url=url, headers=headers, content=begun.payload)

    def error_code(self, answer: Response) -> int | None:
        error = _object(answer).get("error")
        code = error.get("code") if isinstance(error, dict) else None
        return code if isinstance(code, int) else None

    def questions(self, asked: Iterable[Asked]) -> list[tuple[HttpRequest, list[Asked]]]:
        return [
            (_get(f"{url}/batch_statuses?id={_ids(part)}"), part)
            for url, part in _grouped(asked, self.ids_max, lambda each: each.url)
        ]

    def statuses(self, answer: Response) -> dict[str, Seen]:
        data = _object(answer).get("data") if answer.status == 200 else None
        found = {}
        for each in data if isinstance(data, list) else []:
            if isinstance(each, dict) and each.get("status") in self._STATES:
                reasons = each.get("invalid_transactions") or []
                found[str(each.get("id"))] = Seen(
                    state=self._STATES[each["status"]],
                    receipt=_receipt(each),
                    note=_reasons(reasons, "message"),
                )
        return found

    def reasons_of(self, receipt: Mapping[str, Any]) -> dict[str, str]:
        return _by_id(receipt.get("invalid_transactions"), "id", "message")

    def proof(self, asked: Asked) -> HttpRequest | None:
        return _get(f"{asked.url}/batches/{asked.batch_id}")


class Scabbard(LedgerKind):
    """A scabbard service of Splinter, named `circuit::service`.

    It has no check for duplicates: what it is sent twice it executes twice.
    """

    name = "scabbard"
    drops_duplicates = False
    service_pattern = re.compile(r"[A-Za-z0-9-]{1,64}::[A-Za-z0-9-]{1,64}")

    _STATES: ClassVar = {
        "Committed": BatchState.COMMITTED,
        "Valid": BatchState.VALID,
        "Invalid": BatchState.INVALID,
        "Pending": BatchState.PENDING,
        "Unknown": BatchState.UNKNOWN,
    }
    _HEADERS: ClassVar = {"SplinterProtocolVersion": "1"}

    def submission(self, begun: Begun) -> HttpRequest:
        headers = {**self._HEADERS, "Content-Type": "application/octet-stream"}
        url = f"{_of_service(begun.url, begun.service_id)}/batches"
        return HttpRequest(method="POST", url=url, headers=headers, content=begun.payload)

    def error_code(self, answer: Response) -> int | None:
        return None

    def questions(self, asked: Iterable[Asked]) -> list[tuple[HttpRequest, list[Asked]]]:
        return [
            (_get(f"{url}/batch_statuses?ids={_ids(part)}", self._HEADERS), part)
            for url, part in _grouped(
                asked, self.ids_max, lambda each: _of_service(each.url, each.service_id)
            )
        ]

    def statuses(self, answer: Response) -> dict[str, Seen]:
        data = _json(answer) if answer.status == 200 else None
        found = {}
        for each in data if isinstance(data, list) else []:
            status = each.get("status") if isinstance(each, dict) else None
            if isinstance(status, dict) and (word := status.get("statusType")) in self._STATES:
                found[str(each.get("id"))] = Seen(
                    state=self._STATES[word],
                    receipt=_receipt(each),
                    note=_reasons(status.get("message") or [], "error_message"),
                )
        return found

    def reasons_of(self, receipt: Mapping[str, Any]) -> dict[str, str]:
        status = receipt.get("status")
        said = status.get("message") if isinstance(status, dict) else None
        return _by_id(said, "transaction_id", "error_message")


class LedgerKinds(Mapping[str, LedgerKind]):
    """The kinds that this process knows: its own, and those of installed packages."""

    def __init__(self, *kinds: LedgerKind) -> None:
        self._own = {kind.name: kind for kind in kinds}
        self._found: dict[str, LedgerKind] | None = None
        #: Entry points that offer nothing usable, and why.
        self._faults: dict[str, str] = {}

    def __getitem__(self, name: str) -> LedgerKind:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def forget(self) -> None:
        """Look for installed kinds anew."""
        self._found = None

    def missing(self, name: str) -> str:
        """Why there is no kind of this name here."""
        self._all()
        broken = "; ".join(self._faults.values())
        because = f", and of those that are installed: {broken}" if broken else ""
        return f"no package here offers the kind of ledger {name!r:.100}{because}"

    def _all(self) -> dict[str, LedgerKind]:
        if self._found is None:
            self._found, self._faults = self._looked_up()
            for fault in self._faults.values():
                log.error("a kind of ledger cannot be used: %s", fault)
        return self._found

    def _looked_up(self) -> tuple[dict[str, LedgerKind], dict[str, str]]:
        """A package that is broken holds up its own services, and not the process."""
        offered: dict[str, list[LedgerKind]] = {}
        faults = {}
        for point in entry_points(group=ENTRY_POINT_GROUP):
            try:
                kind = _made(point.name, point.load())
            except ServiceInvalid as error:
                faults[point.name] = str(error)
            except Exception as error:
                log.warning("the entry point %s raised", point.name, exc_info=error)
                faults[point.name] = f"{point.name!r} ({point.value}) raised {type(error).__name__}"
            else:
                offered.setdefault(kind.name, []).append(kind)
        found = dict(self._own)
        for name, kinds in offered.items():
            # Which one the batches are meant for is not known.
            if name in found or len(kinds) > 1:
                faults[name] = f"two packages offer the kind of ledger {name!r}"
            else:
                found[name] = kinds[0]
        return found, faults


KINDS = LedgerKinds(Sawtooth(), Scabbard())


class Addressed(Protocol):
    """Something for a service: its kind, and where that is."""

    @property
    def kind(self) -> str: ...
    @property
    def url(self) -> str: ...


def address_mistake(service: Addressed, hosts: Sequence[str]) -> str:
    """Why this process must not talk to the service; empty if it may."""
    kind = KINDS.get(service.kind)
    if kind is None:
        return KINDS.missing(service.kind)
    return url_mistake(service.url, hosts, kind.schemes)


def credential_mistake(kind: LedgerKind, url: str) -> str:
    """Why no credential goes to this address; empty if one may."""
    parts = urlsplit(url)
    if parts.scheme in kind.encrypted_schemes or parts.hostname in THIS_MACHINE:
        return ""
    allowed = " or ".join(f"{each}://" for each in kind.encrypted_schemes) or "127.0.0.1"
    return f"a credential does not travel in the clear to another machine; use {allowed}"


def _made(name: str, given: Any) -> LedgerKind:
    kind = given() if isinstance(given, type) else given
    if not isinstance(kind, LedgerKind) or not KIND_NAME.fullmatch(getattr(kind, "name", "")):
        raise ServiceInvalid(
            f"the entry point {name!r} of {ENTRY_POINT_GROUP} is no LedgerKind with a name"
        )
    last = kind.rules[-1] if kind.rules else None
    if last is None or last.status is not None or last.code is not None:
        raise ServiceInvalid(f"the last rule of the kind {kind.name} must fit any answer")
    return kind


def receipts_of(
    kind: LedgerKind, payload: bytes, state: BatchState, receipt: Mapping[str, Any] | None
) -> list[dict[str, str | None]]:
    """What became of each transaction of a batch: as the batch, and why for those at fault."""
    reasons = kind.reasons_of(receipt or {}) if state is BatchState.INVALID else {}
    return [
        {"transactionId": each, "state": str(state), "note": reasons.get(each)}
        for each in kind.transactions_of(payload)
    ]


def _of_service(url: str, service_id: str) -> str:
    circuit, _, service = service_id.partition("::")
    return f"{url}/scabbard/{circuit}/{service}"


def _get(url: str, headers: Mapping[str, str] | None = None) -> HttpRequest:
    return HttpRequest(method="GET", url=url, headers=headers or {})


def _ids(asked: Iterable[Asked]) -> str:
    return ",".join(each.batch_id for each in asked)


def _grouped(asked: Iterable[Asked], ids_max: int, place: Any) -> list[tuple[str, list[Asked]]]:
    """Batches that can share a question, in parts."""
    parts = []
    for where, group in groupby(sorted(asked, key=place), key=place):
        together = list(group)
        for start in range(0, len(together), ids_max):
            parts.append((where, together[start : start + ids_max]))
    return parts


def _json(answer: Response) -> Any:
    try:
        return json.loads(answer.body)
    except ValueError:
        return None


def _object(answer: Response) -> dict[str, Any]:
    found = _json(answer)
    return found if isinstance(found, dict) else {}


def _by_id(entries: Any, name: str, text: str) -> dict[str, str]:
    found = entries if isinstance(entries, list) else []
    return {
        str(each[name]): clean_note(str(each[text]))
        for each in found
        if isinstance(each, dict) and name in each and each.get(text)
    }


def _receipt(entry: dict[str, Any]) -> dict[str, Any]:
    """What the ledger said, kept as it is, unless it is enormous or holds what SQL cannot store."""
    text = json.dumps(entry)
    fits = len(text) <= RECEIPT_CHARS_MAX and "\\u0000" not in text
    return entry if fits else {"id": str(entry.get("id")), "dropped": f"{len(text)} characters"}


def _reasons(entries: Any, name: str) -> str | None:
    found = entries if isinstance(entries, list) else []
    said = [str(each[name]) for each in found if isinstance(each, dict) and each.get(name)]
    return clean_note("; ".join(said)) or None
