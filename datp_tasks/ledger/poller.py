"""Asking ledgers what became of batches, and writing it down.

An observation is a fact, whichever process makes it, so no claim is needed: any
process may ask, and what it writes only ever goes forward.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import groupby

from datp_tasks.ledger import decisions
from datp_tasks.ledger.batch_types import Asked, Finished, RingAll, Seen, Tell
from datp_tasks.ledger.decisions import decide
from datp_tasks.ledger.kinds import KINDS, address_mistake
from datp_tasks.ledger.ledger_wire import LedgerWire
from datp_tasks.model.ledger_batch import BatchState
from datp_tasks.outbound.messages import Exchange, HttpRequest, Response
from datp_tasks.record.ledger_batches import BatchStore
from datp_tasks.record.ledger_claims import ClaimStore
from datp_tasks.settings import Settings

log = logging.getLogger("datp.ledger")

#: Questions that one run asks in less than its period.
POLLED_MAX = 500
#: How many questions are on their way at the same time, and how long each may take.
TOGETHER_MAX = 50
ASK_S_MAX = 5.0


@dataclass(frozen=True, slots=True)
class Polled:
    final: list[Finished]
    #: Services in which something can be submitted now.
    ready: list[str]


@dataclass(frozen=True, kw_only=True)
class PollResult:
    asked: int = 0
    final: int = 0
    rung: int = 0


class Asking:
    def __init__(
        self,
        *,
        settings: Settings,
        batches: BatchStore,
        wire: LedgerWire,
        tell: Tell,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._batches = batches
        self._wire = wire
        self._tell = tell
        self._clock = clock

    def follow(self, asked: Sequence[Asked]) -> set[tuple[str, str]]:
        """Ask for batches that were just accepted; the keys of those that are final now.

        That a ledger does not know such a batch yet means nothing.
        """
        # Ends of other attempts wait meanwhile, and must be recorded before their time is over.
        spare_s = self._settings.ledger_post_budget_s - self._settings.ledger_http_s
        seen = self._ask(asked, within_s=min(ASK_S_MAX, spare_s / 2))
        known = {key: each for key, each in seen.items() if each.state is not BatchState.UNKNOWN}
        final = self._record(asked, known, source="submitter").final
        return {(each.service_id, each.batch_id) for each in final}

    def poll(self, asked: Sequence[Asked]) -> Polled:
        """Ask for batches that are due."""
        seen = self._ask(asked, within_s=ASK_S_MAX)
        forgotten = [
            each
            for each in asked
            if each.key in seen
            and seen[each.key].state is BatchState.UNKNOWN
            and each.unknown_seen + 1 >= decisions.UNKNOWN_MAX
        ]
        for key, again in self._second_look(forgotten).items():
            if again is None:
                # No proof that it is not there: as if nothing had been said.
                del seen[key]
            else:
                seen[key] = again
        return self._record(asked, seen, source="poller")

    def _record(
        self, asked: Sequence[Asked], seen: dict[tuple[str, str], Seen], source: str
    ) -> Polled:
        moves = [
            move
            for each in asked
            if each.key in seen
            and (move := decide(each, seen[each.key], self._settings)) is not None
        ]
        if not moves:
            return Polled([], [])
        # Locks are taken in the order of ids.
        moves.sort(key=lambda move: move.asked.key)
        final = self._batches.record_many(moves, source)
        self._tell(final)
        again = {move.asked.service_id for move in moves if move.state is BatchState.DELAYED}
        return Polled(final, sorted(again | {each.service_id for each in final}))

    def _ask(self, asked: Iterable[Asked], within_s: float) -> dict[tuple[str, str], Seen]:
        """What the ledgers say; nothing for batches of which no answer came."""
        questions: list[tuple[HttpRequest, list[Asked]]] = []
        allowed = sorted((each for each in asked if self._allowed(each)), key=_credential)
        # One question has one credential.
        for (kind, _), group in groupby(allowed, key=_credential):
            questions += KINDS[kind].questions(list(group))
        found: dict[tuple[str, str], Seen] = {}
        answers = self._send([(part[0], request) for request, part in questions], within_s)
        for (request, part), answer in zip(questions, answers, strict=True):
            said = _statuses(part[0].kind, answer) if isinstance(answer, Response) else {}
            if not said:
                log.warning("no statuses from %s: %.200s", request.url.split("?")[0], answer)
            found |= {each.key: said[each.batch_id] for each in part if each.batch_id in said}
        return found

    def _second_look(self, forgotten: Sequence[Asked]) -> dict[tuple[str, str], Seen | None]:
        """Before a batch is given up as unknown: is it among what is committed? None: no answer."""
        requests = [(each, KINDS[each.kind].proof(each)) for each in forgotten]
        wanted = [(each, request) for each, request in requests if request is not None]
        answers = self._send(wanted, ASK_S_MAX)
        found: dict[tuple[str, str], Seen | None] = {}
        for (each, _), answer in zip(wanted, answers, strict=True):
            if isinstance(answer, Response) and answer.status == 200:
                found[each.key] = Seen(state=BatchState.COMMITTED, note="found in a block")
            elif not isinstance(answer, Response) or answer.status != 404:
                found[each.key] = None
        return found

    def _allowed(self, asked: Asked) -> bool:
        mistake = address_mistake(asked, self._settings.ledger_hosts)
        if mistake:
            log.error("%s is not asked: %s", asked.service_id, mistake)
        return not mistake

    def _send(
        self, requests: Sequence[tuple[Asked, HttpRequest]], within_s: float
    ) -> list[Exchange]:
        outcomes: list[Exchange] = []
        for start in range(0, len(requests), TOGETHER_MAX):
            give_up_s = self._clock() + min(within_s, self._settings.ledger_http_s)
            futures: list[Future[Exchange]] = [
                self._wire.start(asked, request, give_up_s)
                for asked, request in requests[start : start + TOGETHER_MAX]
            ]
            outcomes += [future.result() for future in futures]
        return outcomes


@dataclass(frozen=True, kw_only=True)
class Poller:
    batches: BatchStore
    claims: ClaimStore
    asking: Asking
    ring: RingAll

    def poll(self) -> PollResult:
        """Ask for what is due, and ring for what comes after batches that are final now."""
        asked = self.batches.take_up(rows_max=POLLED_MAX)
        if not asked:
            return PollResult()
        polled = self.asking.poll(asked)
        works = self.claims.work_of(polled.ready) if polled.ready else []
        self.ring(works)
        return PollResult(asked=len(asked), final=len(polled.final), rung=len(works))


def _credential(asked: Asked) -> tuple[str, str]:
    return asked.kind, asked.secret or ""


def _statuses(kind: str, answer: Response) -> dict[str, Seen]:
    """What an answer says; one that the package of the kind cannot read says nothing."""
    try:
        return KINDS[kind].statuses(answer)
    except Exception:
        log.exception("the kind %s cannot read an answer", kind)
        return {}
