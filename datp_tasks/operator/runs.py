"""Audits and erasures that are started over HTTP: ordered by a request, done in parts by a job.

Each part is kept when it is done, so a process that dies repeats one part at most: an audit only
reads, and what is erased is not found again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

from datp_tasks.errors import DatabaseUnavailable, DatpError
from datp_tasks.failpoints import reach
from datp_tasks.live.redis_errors import RedisError
from datp_tasks.model.actor import Actor
from datp_tasks.model.notes import new_error_id
from datp_tasks.operator.audit import Auditor, AuditPlace, chosen_places
from datp_tasks.operator.erase import PAGE, Chosen, Eraser, ErasurePermit, HashedSubject
from datp_tasks.record.database import Connection, is_conflict, is_timeout, translate_outage
from datp_tasks.record.erasure import ErasureOrder
from datp_tasks.record.operator_actions import note_action
from datp_tasks.record.operator_runs import (
    OperatorRun,
    OperatorRunStore,
    RunKind,
    RunOrder,
    RunState,
)
from datp_tasks.record.sql_errors import OperationalError, PoolTimeout

log = logging.getLogger("datp.operator")

#: Of what does not fit, and of what could not be erased, so many are named; all are counted.
NAMED_MAX = 100
FAULTS_MAX = 10
#: A preview looks at so many transactions of a subject; a count of more says nothing new.
LOOKED_MAX = 20_000
#: A run that gets no further in so many starts is ended; outages of a server do not count.
STARTS_MAX = 20

Progress = Mapping[str, Any]
#: How far it is after the next part, and whether that was the last one.
Part = Callable[[Progress], tuple[Progress, bool]]


class RunStuck(DatpError):
    """It does not get any further."""


class RunTaken(DatpError):
    """Another process got further with it, or it is over."""


class RunDamaged(DatpError):
    """What is stored of an order is not what was ordered."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What an erasure would find."""

    count: int
    #: It was not counted to the end.
    more: bool


class OperatorRuns:
    def __init__(self, store: OperatorRunStore, auditor: Auditor, eraser: Eraser) -> None:
        self._store = store
        self._auditor = auditor
        self._eraser = eraser
        self._parts: dict[RunKind, Callable[[OperatorRun], Part]] = {
            "audit": self._audit_parts,
            "erasure": self._erasure_parts,
        }

    # For those who order.

    def start_audit(self, *, sample: int | None, seed: int, actor: Actor) -> OperatorRun:
        """RunUnderWay is raised if one is running."""
        with translate_outage():
            total = self._auditor.audit_size()
        order = RunOrder(
            kind="audit",
            params={"sample": sample, "seed": seed, "total": total},
            progress={
                "after": "",
                "number": 0,
                "audited": 0,
                "dropped": 0,
                "wrong": 0,
                "named": [],
            },
            actor=actor,
        )
        with translate_outage(), self._store.writing() as connection:
            number = self._store.add(connection, order)
            note_action(
                connection,
                actor=actor,
                action="audit.start",
                subject=f"audit {number}",
                reason=None,
                details={"sample": sample, "seed": seed},
            )
        return self._found("audit", number)

    def start_erasure(self, chosen: Chosen, *, reason: str, actor: Actor) -> OperatorRun:
        """ApprovalNeeded is raised if the policy wants another person to agree first: who asked
        comes again then. RunUnderWay if one is running, and RoleTooWeak."""
        hashed = chosen.to_store()
        started: list[int] = []

        def begin(connection: Connection, allowed: ErasureOrder) -> None:
            order = RunOrder(
                kind="erasure",
                params={"chosen": chosen.to_json(), "allowed": dict(allowed.allowed)},
                progress={"after": "", "erased": 0, "refused": 0, "named": []},
                actor=actor,
                reason=reason,
                subject={"salt": hashed.salt, "hash": hashed.hash} if hashed else None,
            )
            number = self._store.add(connection, order)
            note_action(
                connection,
                actor=actor,
                action="erase.start",
                subject=f"erasure {number}",
                reason=reason,
                details={**chosen.to_json(), **allowed.allowed},
            )
            started.append(number)

        self._eraser.permit(chosen, reason=reason, actor=actor, begin=begin)
        return self._found("erasure", started[0])

    def preview_erasure(self, chosen: Chosen, *, actor: Actor) -> Counted:
        """How many would be erased. It tells whether there is such a value, also in what is sealed:
        the audit says who asked."""
        with translate_outage(), self._store.writing() as connection:
            note_action(
                connection,
                actor=actor,
                action="erase.preview",
                subject="transactions",
                reason=None,
                details=chosen.to_json(),
            )
        count = looked = 0
        after: str | None = ""
        while after is not None:
            if looked >= LOOKED_MAX:
                return Counted(count, more=True)
            found, after = self._eraser.search.page(chosen, after)
            count, looked = count + len(found), looked + PAGE
        return Counted(count, more=False)

    def one(self, kind: RunKind, number: int) -> OperatorRun | None:
        with translate_outage():
            return self._store.one(kind, number)

    def page(self, kind: RunKind, *, before: int | None, rows_max: int) -> list[OperatorRun]:
        with translate_outage():
            return self._store.page(kind, before=before, rows_max=rows_max)

    def _found(self, kind: RunKind, number: int) -> OperatorRun:
        found = self.one(kind, number)
        assert found is not None
        return found

    # For the job.

    def go_on(self, *, run_s: float) -> int:
        """The next parts of what is running, one of each at least, for up to so long together; how
        many."""
        parts = 0
        with translate_outage():
            kinds = self._store.running_kinds()
        for kind in kinds:
            with translate_outage(), self._store.held(kind) as run:
                if run is not None:
                    parts += self._carry_on(run, monotonic() + run_s / len(kinds))
        return parts

    def _carry_on(self, run: OperatorRun, until_s: float) -> int:
        kept: Progress = run.progress
        parts, is_over = 0, False
        try:
            with translate_outage():
                kept = self._begun(run)
                part = self._parts[run.kind](run)
                while not is_over and (parts == 0 or monotonic() < until_s):
                    following, is_over = part(kept)
                    reach("operator_run.after_part")
                    self._keep(run, kept, following, is_over=is_over)
                    kept, parts = following, parts + 1
        except RunTaken as error:
            log.warning("%s %d: %s", run.kind, run.id, error)
        except (DatabaseUnavailable, RedisError) as error:
            log.warning("%s %d goes on later: %s", run.kind, run.id, error)
            self._uncount_start(run, kept)
        except Exception as error:
            if _is_passing(error):
                log.warning("%s %d goes on later: %s", run.kind, run.id, error)
            else:
                self._fail(run, kept, error)
        return parts

    def _begun(self, run: OperatorRun) -> Progress:
        """Counted before it begins, so that one whose process dies every time comes to an end."""
        starts = run.progress.get("starts", 0)
        if starts >= STARTS_MAX:
            raise RunStuck(
                f"it was started {starts} times without getting any further. Look into the log of "
                "the workers, and order it again"
            )
        begun = {**run.progress, "starts": starts + 1}
        if run.kind == "erasure":
            # Also what was erased in a part that was not kept.
            begun["erased"] = self._store.erased_count(run)
        self._keep(run, run.progress, begun, is_over=False)
        return begun

    def _keep(
        self, run: OperatorRun, before: Progress, progress: Progress, *, is_over: bool
    ) -> None:
        if is_over:
            is_kept = self._store.end(run, RunState.DONE, before, progress, None)
        else:
            is_kept = self._store.set_progress(run, before, progress)
        if not is_kept:
            raise RunTaken("another process works on it")

    def _uncount_start(self, run: OperatorRun, kept: Progress) -> None:
        """A server that does not answer is no fault of a run."""
        if "starts" in kept:
            with suppress(DatabaseUnavailable), translate_outage():
                self._store.set_progress(run, kept, {**kept, "starts": kept["starts"] - 1})

    def _fail(self, run: OperatorRun, progress: Progress, error: Exception) -> None:
        """It would fail again: a person decides what comes next."""
        number = new_error_id()
        log.error("%s %d has failed, error %s", run.kind, run.id, number, exc_info=error)
        says = str(error) if isinstance(error, DatpError) else f"the log says why under {number}"
        self._store.end(run, RunState.FAILED, progress, progress, says)

    def _audit_parts(self, run: OperatorRun) -> Part:
        chosen = chosen_places(run.params["total"], run.params["sample"], run.params["seed"])

        def part(before: Progress) -> tuple[Progress, bool]:
            place = AuditPlace(before["after"], before["number"])
            replays, following = self._auditor.audit_page(place, chosen)
            wrong = [each for each in replays if each.faults]
            named = [{"txId": each.tx_id, "faults": each.faults[:FAULTS_MAX]} for each in wrong]
            return {
                "after": following.after if following else "",
                "number": following.number if following else 0,
                "audited": before["audited"] + len(replays),
                "dropped": before["dropped"] + sum(each.dropped for each in replays),
                "wrong": before["wrong"] + len(wrong),
                "named": [*before["named"], *named][:NAMED_MAX],
            }, following is None

        return part

    def _erasure_parts(self, run: OperatorRun) -> Part:
        # A worker may have another role than the API that took the order.
        self._eraser.check_role()
        permit = _permit_of(run)
        self._eraser.check_permit(permit)

        def part(before: Progress) -> tuple[Progress, bool]:
            found, following = self._eraser.search.page(permit.chosen, before["after"])
            results = list(self._eraser.erase(found, permit))
            refused = [{"txId": each.tx_id, "why": each.what} for each in results if not each.ok]
            progress = {
                "after": following or "",
                "erased": before["erased"] + len(results) - len(refused),
                "refused": before["refused"] + len(refused),
                "named": [*before["named"], *refused][:NAMED_MAX],
            }
            if following is None:
                progress["batches"] = self._eraser.erase_batches(permit)
                progress["keptAnswers"] = self._eraser.erase_answers(permit)
                progress["dataKeys"] = self._eraser.erase_keys(permit)
            return progress, following is None

        return part


def _is_passing(error: Exception) -> bool:
    """Whether the same part may succeed next time."""
    if isinstance(error, OperationalError):
        return is_conflict(error) or is_timeout(error)
    return isinstance(error, PoolTimeout)


def _permit_of(run: OperatorRun) -> ErasurePermit:
    """What was permitted when the order was given."""
    named = run.params["chosen"]
    if named.get("subject") and not run.subject:
        raise RunDamaged(
            "the order names a subject and has no hash of its value any more: order it again"
        )
    hashed = HashedSubject(named["subject"], **run.subject) if run.subject else None
    chosen = Chosen(owner=named.get("owner"), external_id=named.get("externalId"), hashed=hashed)
    allowed = {**run.params["allowed"], "run": run.id}
    return ErasurePermit(chosen, ErasureOrder(run.actor, run.reason or "", named, allowed))
