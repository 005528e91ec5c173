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
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Literal

from kombu.exceptions import OperationalError as BrokerError
from redis.exceptions import RedisError
from sqlalchemy.exc import DBAPIError

from datp_tasks import failpoints
from datp_tasks.archive.words import Summary
from datp_tasks.errors import DatpError, TransactionUnknown
from datp_tasks.failpoints import FailpointError, SimulatedCrash
from datp_tasks.model.status import Status
from datp_tasks.testing import boundaries
from datp_tasks.testing.cases import KINDS, Case, Report, Result, makes_sense
from datp_tasks.testing.kit import Kit
from datp_tasks.testing.rest import EMPTY_AT_REST, live_violations, transaction_violations

OWNER = "sweep"
SUBMITS_MAX = 5
ROUNDS_MAX = 12
#: The jobs that move transactions, whatever their steps do.
MOVERS = ("sleeper", "timeout_handler", "reaper", "reconciler", "archiver")
#: How many runs share the clearing up afterwards.
TOGETHER = 16
#: While one stands still, the other one needs no more than this; if it cannot go on, it waits.
ROUNDS_MEANWHILE = 2
#: Where the run that is to be repaired crashes.
FIRST_CRASH = "hop.after_claim"

#: What a fault looks like to those who are not dead; whatever else is raised is a finding.
TROUBLE = (RedisError, DBAPIError, BrokerError, DatpError, FailpointError, OSError, SimulatedCrash)

#: Which of the times that a point is passed.
Times = Literal["first", "last", "all"]

#: What the owner of a pipeline has to say about an end: complaints in words, or an AssertionError.
Check = Callable[[Summary], Iterable[str] | None]


@dataclass(slots=True)
class _Run:
    """One run of the pipeline, as far as it has come."""

    result: Result
    external_id: str
    tx_id: str = ""


def crash_sweep(
    kit: Kit,
    pipeline: str,
    data: Mapping[str, Any] | Callable[[int], Mapping[str, Any]],
    *,
    check: Check | None = None,
    ends: Collection[Status | str] | None = None,
    when_waiting: Callable[[Kit, str], object] | None = None,
    kinds: Collection[str] = KINDS,
    times: Times = "all",
    jobs: Collection[str] | None = None,
    where: Callable[[str], bool] = lambda point: True,
    only: Collection[str] | None = None,
    say: Callable[[Result], None] | None = None,
) -> Report:
    """Run a pipeline once for each fault at each point, and report what was wrong afterwards.

    `data` may be a function of the number of the run. `check` looks at each end. `ends` are the
    statuses it may end with (by default the one it has without a fault). `when_waiting` is called
    when only a switch can move the transaction. A point may be passed several times in a run;
    `times` says which of them are tried. `jobs` are the maintenance jobs that run meanwhile: all
    of them, if it does not say (`MOVERS` is quicker). `where` chooses points, `only`
    names single cases, as a report shows them, and `say` hears of each result at once.
    """
    unknown = set(kinds) - set(KINDS)
    if unknown:
        raise ValueError(f"there is no kind {', '.join(unknown)}; there are {', '.join(KINDS)}")
    all_jobs = kit.jobs
    kit.jobs = all_jobs if jobs is None else tuple(job for job in all_jobs if job in jobs)
    with boundaries.installed():
        sweep = _Sweep(kit, pipeline, data, check, ends, when_waiting)
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
        check: Check | None,
        ends: Collection[Status | str] | None,
        when_waiting: Callable[[Kit, str], object] | None,
    ) -> None:
        self._kit = kit
        self._other = kit.another()
        self._pipeline = pipeline
        self._data = data
        self._check = check
        self._ends = None if ends is None else {Status(end) for end in ends}
        self._when_waiting = when_waiting
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
        fault = _Fault(None, repairing, lambda: None)
        run = self._run(Case("", 0, ""), fault, self._new_id())
        self._look([run])
        if run.result.violations:
            found = "\n".join(f"  {each}" for each in run.result.violations)
            how = "a single crash" if repairing else "any fault"
            raise AssertionError(f"{self._pipeline} does not even survive {how}:\n{found}")
        return fault.passed

    # Trying cases.

    def try_all(self, cases: Sequence[Case]) -> Iterator[Result]:
        """Some at a time share the clearing up and the looking; whoever is to blame is found."""
        for start in range(0, len(cases), TOGETHER):
            batch = cases[start : start + TOGETHER]
            results = self._try_together(batch)
            if len(batch) > 1 and any(result.violations for result in results):
                alone = [self._try_together([case])[0] for case in batch]
                # What happens only among others is told as it was found.
                results = alone if any(result.violations for result in alone) else results
            yield from results

    def _try_together(self, cases: Sequence[Case]) -> list[Result]:
        runs = []
        for case in cases:
            external_id = self._new_id()
            fault = _Fault(case, case.repairing, self._act(case, external_id))
            runs.append(self._run(case, fault, external_id))
        self._look(runs)
        return [run.result for run in runs]

    def _new_id(self) -> str:
        return f"{self._name}-{next(self._numbers)}"

    def _run(self, case: Case, fault: _Fault, external_id: str) -> _Run:
        run = _Run(Result(case), external_id)
        began_s = time.monotonic()
        failpoints.watch(fault.reached)
        try:
            run.tx_id = self._submit(external_id)
            self._to_the_end(run.tx_id)
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
        """Let what is left over be cleared away, then see what is wrong with each."""
        self._kit.repair()
        self._kit.advance(seconds=self._kit.settings.delay_before_archiving_s + 1)
        left = list(live_violations(self._kit.connections))
        for run in runs:
            found = run.result.violations + list(self._complaints(run))
            # One wrong thing is told once, and if it can be, of the one that it is wrong with.
            found += [each for each in left if run.tx_id and run.tx_id in each]
            run.result.violations = self._news(found)
        runs[0].result.violations += self._news(left)

    def _news(self, found: Sequence[str]) -> list[str]:
        news = [each for each in dict.fromkeys(found) if each not in self._known]
        self._known.update(news)
        return news

    # One run.

    def _to_the_end(self, tx_id: str) -> None:
        """Until it has ended and was archived, or nobody can move it."""
        for _ in range(ROUNDS_MAX):
            try:
                summary = self._moved(self._kit, tx_id)
                if summary.is_final:
                    self._kit.advance(seconds=self._kit.settings.delay_before_archiving_s + 1)
                    return
                if self._ends is not None and summary.status in self._ends:
                    return
                self._kit.repair()
            except TROUBLE:
                # Who ran into it is dead or tries again later.
                continue

    def _moved(self, kit: Kit, tx_id: str) -> Summary:
        if kit.status(tx_id).status is Status.SLEEPING:
            # It is archived in its sleep, and not only when it wakes.
            kit.run_jobs()
        summary = kit.finish(tx_id)
        if summary.status is Status.SLEEPING and self._when_waiting is not None:
            self._when_waiting(kit, tx_id)
            summary = kit.finish(tx_id)
        return summary

    def _submit(self, external_id: str) -> str:
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
        if not run.tx_id:
            return
        summary = self._kit.status(run.tx_id)
        if self._ends is None and summary.is_final:
            self._ends = {summary.status}
        if self._ends is None or summary.status not in self._ends:
            yield f"{run.tx_id} is {summary.status}: {summary.note or 'no note'}"
        yield from transaction_violations(self._kit.connections, summary)
        found = self._kit.client.find(OWNER, run.external_id)
        if found.tx_id != run.tx_id:
            yield f"{run.external_id} was accepted as {run.tx_id}, and is {found.tx_id} now"
        if self._check is not None:
            try:
                yield from self._check(summary) or ()
            except AssertionError as error:
                yield f"check of {run.tx_id}: {error}"

    # Faults.

    def _act(self, case: Case, external_id: str) -> Callable[[], None]:
        match case.kind:
            case "crash":
                return lambda: failpoints.perform("crash")
            case "pause":
                return lambda: self._meanwhile(external_id)
            case "overtaken":
                return lambda: self._meanwhile(external_id, dies=True)
            case _:
                return lambda: failpoints.perform("raise")

    def _meanwhile(self, external_id: str, *, dies: bool = False) -> None:
        """The other process notices that this one is silent, and does its work."""
        failpoints.disarm_all()
        if dies:
            failpoints.watch(_die_in_the_middle)
        # In a thread of its own: this one may be in the middle of an event loop or a time limit.
        thread = threading.Thread(target=self._be_the_other, args=(external_id, dies))
        thread.start()
        thread.join()
        failpoints.disarm_all()

    def _be_the_other(self, external_id: str, dies: bool) -> None:
        other = self._other
        other.send.crashes = 0
        for _ in range(ROUNDS_MEANWHILE):
            try:
                before = other.client.find(OWNER, external_id)
                other.repair()
                if before.is_final:
                    other.advance(seconds=self._kit.settings.delay_before_archiving_s + 1)
                    return
                if self._moved(other, before.tx_id).is_final:
                    return
            except TransactionUnknown:
                return
            except TROUBLE:
                # It is dead, or waits for a row that the one who stands still has locked.
                continue
            if other.send.crashes:
                return


class _Fault:
    """Listens to the points that are passed, and acts when the one of its case is."""

    def __init__(self, case: Case | None, repairing: bool, act: Callable[[], None]) -> None:
        self._case = case
        self._must_crash = repairing
        self._act = act
        self.passed: Counter[str] = Counter()
        self.happened = False

    def reached(self, name: str) -> None:
        if self._must_crash and name == FIRST_CRASH:
            self._must_crash = False
            raise SimulatedCrash
        self.passed[name] += 1
        case = self._case
        if case is None or self.happened or name != case.point:
            return
        if self.passed[name] == case.nth:
            self.happened = True
            self._act()


def _die_in_the_middle(name: str) -> None:
    """The step has taken effect, and nobody has written that down."""
    if name.startswith(("effect:", "undo:")) and name.endswith(":after"):
        raise SimulatedCrash


def _which(times: Times, passed: int) -> range:
    return range(passed if times == "last" else 1, 2 if times == "first" else passed + 1)
