"""The crash sweep: break a pipeline at every point it passes, and see that nothing is wrong after.

    def test_transfers_survive_everything(datp):
        datp.use(...)
        crash_sweep(datp, "transfer", {"amount": 5}, check=my_books).assert_clean()

A run without faults, and one with a crash to be repaired, show which points there are: those of
`failpoints.POINTS` and every boundary (`testing.boundaries`). Then the pipeline runs once for
each point, each time it is passed, and each kind of fault:

    exception     an error before the call; nothing has happened
    lost-answer   an error after the call; everything has happened
    crash         the process dies there
    pause         the process stands still there until others have done its work; then it goes on
    overtaken     it stands still until another one is in the middle of its work; then it goes on

Each run must come to one and the same end, in the record, in Redis and in your own books.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Literal

from datp_tasks import failpoints
from datp_tasks.model.status import Status
from datp_tasks.record.record_types import Summary
from datp_tasks.testing import boundaries
from datp_tasks.testing.at_rest import EMPTY_AT_REST, live_violations, transaction_violations
from datp_tasks.testing.cases import KINDS, Case, CaseResult, Report, makes_sense
from datp_tasks.testing.kit import Kit
from datp_tasks.testing.sweep_faults import OWNER, TROUBLE, Other, SweepFault

SUBMITS_MAX = 5
ROUNDS_MAX = 12
#: The jobs that move transactions, whatever their steps do.
MOVERS = ("sleeper", "timeout_handler", "reaper", "reconciler", "archiver")
#: How many runs share the clearing up afterwards.
TOGETHER = 16

#: Which of the times that a point is passed.
Times = Literal["first", "last", "all"]

#: What the owner of a pipeline has to say about an end: complaints in words, or an AssertionError.
Check = Callable[[Summary], Iterable[str] | None]


@dataclass(slots=True)
class _Run:
    """One run of the pipeline, as far as it has come."""

    result: CaseResult
    external_ids: list[str]
    #: Those that were accepted, in the same order.
    tx_ids: list[str] = field(default_factory=list)


def crash_sweep(
    kit: Kit,
    pipeline: str,
    data: Mapping[str, Any] | Callable[[int], Mapping[str, Any]],
    *,
    check: Check | None = None,
    ends: Collection[Status | str] | None = None,
    when_waiting: Callable[[Kit, str], object] | None = None,
    together: int = 1,
    kinds: Collection[str] = KINDS,
    times: Times = "all",
    jobs: Collection[str] | None = None,
    where: Callable[[str], bool] = lambda point: True,
    only: Collection[str] | None = None,
    say: Callable[[CaseResult], None] | None = None,
) -> Report:
    """Run a pipeline once for each fault at each point, and report what was wrong afterwards.

    `data` may be a function of a number that counts transactions. With `together`, each run is a
    vector of so many, rung by one bell, and each of them is looked at. `check` looks at each end.
    `ends` are the statuses it may end with (by default the one it has without a fault).
    `when_waiting` is called when only a switch can move the transaction. A point may be passed
    several times in a run; `times` says which of them are tried. `jobs` are the maintenance jobs
    that run meanwhile: all of them, if it does not say (`MOVERS` is quicker). `where` chooses
    points, `only` names single cases, as a report shows them, and `say` hears of each result.
    """
    if together < 1:
        raise ValueError(f"together must be 1 or more, was {together}")
    unknown = set(kinds) - set(KINDS)
    if unknown:
        raise ValueError(f"there is no kind {', '.join(unknown)}; there are {', '.join(KINDS)}")
    all_jobs = kit.jobs
    kit.jobs = all_jobs if jobs is None else tuple(job for job in all_jobs if job in jobs)
    with boundaries.installed():
        sweep = _Sweep(
            kit,
            pipeline,
            data,
            check=check,
            ends=ends,
            when_waiting=when_waiting,
            together=together,
        )
        try:
            cases = [
                case
                for case in sweep.cases(kinds, times)
                if where(case.point) and (only is None or str(case) in only)
            ]
            results = []
            for result in sweep.try_all(cases):
                results.append(result)
                if say is not None:
                    say(result)
            return Report(results)
        finally:
            kit.jobs = all_jobs
            sweep.close()


class _Sweep:
    def __init__(
        self,
        kit: Kit,
        pipeline: str,
        data: Mapping[str, Any] | Callable[[int], Mapping[str, Any]],
        *,
        check: Check | None,
        ends: Collection[Status | str] | None,
        when_waiting: Callable[[Kit, str], object] | None,
        together: int,
    ) -> None:
        self._kit = kit
        self._other = Other(kit.another(), self._moved)
        self._pipeline = pipeline
        self._data = data
        self._check = check
        self._ends = None if ends is None else {Status(end) for end in ends}
        self._when_waiting = when_waiting
        self._together = together
        self._numbers = count(1)
        self._name = f"sweep-{secrets.token_hex(4)}"
        #: What was found before: one wrong thing is told once.
        self._known: set[str] = set()

    def close(self) -> None:
        failpoints.disarm_all()
        self._other.close()

    # Which cases there are.

    def cases(self, kinds: Collection[str], times: Times) -> list[Case]:
        # What a process does only once, such as joining, is over after the first run.
        self._recorded(repairing=False)
        plain, repaired = self._recorded(repairing=False), self._recorded(repairing=True)
        more = {point: passed for point, passed in repaired.items() if point not in plain}
        return [
            Case(point, nth, kind, repairing)
            for repairing, found in ((False, plain), (True, more))
            for point, passed in found.items()
            for nth in _which(times, passed)
            for kind in KINDS
            if kind in kinds and makes_sense(kind, point)
        ]

    def _recorded(self, *, repairing: bool) -> Counter[str]:
        """How often a run passes each point; it must be a good one."""
        fault = SweepFault(None, repairing, lambda: None)
        run = self._run(Case("", 0, ""), fault, self._new_ids())
        self._look([run])
        if run.result.violations:
            found = "\n".join(f"  {each}" for each in run.result.violations)
            how = "a single crash" if repairing else "any fault"
            raise AssertionError(f"{self._pipeline} does not even survive {how}:\n{found}")
        return fault.passed

    # Trying cases.

    def try_all(self, cases: Sequence[Case]) -> Iterator[CaseResult]:
        """Some at a time share the clean-up and the checks; the one to blame is found."""
        for start in range(0, len(cases), TOGETHER):
            batch = cases[start : start + TOGETHER]
            results = self._try_together(batch)
            if len(batch) > 1 and any(result.violations for result in results):
                alone = [self._try_together([case])[0] for case in batch]
                # What happens only among others is told as it was found.
                results = alone if any(result.violations for result in alone) else results
            yield from results

    def _try_together(self, cases: Sequence[Case]) -> list[CaseResult]:
        runs = []
        for case in cases:
            external_ids = self._new_ids()
            fault = SweepFault(case, case.repairing, self._act(case, external_ids))
            runs.append(self._run(case, fault, external_ids))
        self._look(runs)
        return [run.result for run in runs]

    def _new_ids(self) -> list[str]:
        return [f"{self._name}-{next(self._numbers)}" for _ in range(self._together)]

    def _run(self, case: Case, fault: SweepFault, external_ids: list[str]) -> _Run:
        run = _Run(CaseResult(case), external_ids)
        began_s = time.monotonic()
        failpoints.watch(fault.reached)
        try:
            self._submit(run)
            self._to_the_end(run.tx_ids)
            failpoints.disarm_all()
            sizes = self._kit.connections.live.sizes()
            if any(sizes[name] for name in EMPTY_AT_REST):
                # The next one must not be disturbed by what this one left behind.
                self._kit.repair()
        except Exception as error:
            run.result.violations.append(f"{type(error).__name__}: {error}")
        finally:
            failpoints.disarm_all()
        run.result.hit = fault.happened
        run.result.seconds = time.monotonic() - began_s
        return run

    def _look(self, runs: Sequence[_Run]) -> None:
        """Let what is left over be cleaned up, then see what is wrong with each."""
        self._kit.repair()
        self._kit.advance(seconds=self._kit.settings.delay_before_archiving_s + 1)
        left = list(live_violations(self._kit.connections))
        for run in runs:
            found = run.result.violations + list(self._complaints(run))
            # One wrong thing is told once, and if it can be, of the one that it is wrong with.
            found += [each for each in left if any(tx_id in each for tx_id in run.tx_ids)]
            run.result.violations = self._news(found)
        runs[0].result.violations += self._news(left)

    def _news(self, found: Sequence[str]) -> list[str]:
        news = [each for each in dict.fromkeys(found) if each not in self._known]
        self._known.update(news)
        return news

    # One run.

    def _to_the_end(self, tx_ids: Sequence[str]) -> None:
        """Until all have ended and were archived, or nothing can move them."""
        for _ in range(ROUNDS_MAX):
            try:
                ends = [self._moved(self._kit, tx_id) for tx_id in tx_ids]
                if all(summary.is_final for summary in ends):
                    self._kit.advance(seconds=self._kit.settings.delay_before_archiving_s + 1)
                    return
                if all(summary.is_final or self._is_end(summary) for summary in ends):
                    return
                self._kit.repair()
            except TROUBLE:
                # Who ran into it is dead or tries again later.
                continue

    def _is_end(self, summary: Summary) -> bool:
        return self._ends is not None and summary.status in self._ends

    def _moved(self, kit: Kit, tx_id: str) -> Summary:
        if kit.status(tx_id).status is Status.SLEEPING:
            # It is archived in its sleep, and not only when it wakes.
            kit.run_jobs()
        summary = kit.finish(tx_id)
        if summary.status is Status.SLEEPING and self._when_waiting is not None:
            self._when_waiting(kit, tx_id)
            summary = kit.finish(tx_id)
        return summary

    def _submit(self, run: _Run) -> None:
        if self._together == 1:
            run.tx_ids = [self._accepted(run.external_ids[0])]
            return
        self._kit.lose_bells()
        try:
            run.tx_ids += map(self._accepted, run.external_ids)
        finally:
            self._kit.lose_bells(False)
        with suppress(*TROUBLE):
            # A bell that is lost here is rung again.
            self._kit.ring_together(run.tx_ids)

    def _accepted(self, external_id: str) -> str:
        """A client that got no answer asks for the same again."""
        number = int(external_id.rpartition("-")[2])
        data = self._data(number) if callable(self._data) else self._data
        for _ in range(SUBMITS_MAX):
            try:
                return self._kit.submit(self._pipeline, data, owner=OWNER, external_id=external_id)
            except TROUBLE:
                continue
        raise AssertionError(f"{SUBMITS_MAX} times it was not accepted")

    def _complaints(self, run: _Run) -> Iterator[str]:
        for external_id, tx_id in zip(run.external_ids, run.tx_ids, strict=False):
            yield from self._complaints_about(external_id, tx_id)

    def _complaints_about(self, external_id: str, tx_id: str) -> Iterator[str]:
        summary = self._kit.status(tx_id)
        if self._ends is None and summary.is_final:
            self._ends = {summary.status}
        if not self._is_end(summary):
            yield f"{tx_id} is {summary.status}: {summary.note or 'no note'}"
        yield from transaction_violations(self._kit.connections, summary)
        found = self._kit.client.find(OWNER, external_id)
        if found.tx_id != tx_id:
            yield f"{external_id} was accepted as {tx_id}, and is {found.tx_id} now"
        if self._check is not None:
            try:
                yield from self._check(summary) or ()
            except AssertionError as error:
                yield f"check of {tx_id}: {error}"

    # Faults.

    def _act(self, case: Case, external_ids: Sequence[str]) -> Callable[[], None]:
        match case.kind:
            case "crash":
                return lambda: failpoints.perform("crash")
            case "pause":
                return lambda: self._other.work(external_ids)
            case "overtaken":
                return lambda: self._other.work(external_ids, dies=True)
            case _:
                return lambda: failpoints.perform("raise")


def _which(times: Times, passed: int) -> range:
    return range(passed if times == "last" else 1, 2 if times == "first" else passed + 1)
