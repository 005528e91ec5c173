"""Every row of the seed's timeline, delayed and failed: nothing twice, in order, nothing stuck.

A is the first instance, B its successor, one and two the batches. The ledger is a scabbard, which
executes whatever it is sent. Each row has a control: the naive form, to which the same thing
happens, and which must come out wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from datp_tasks import failpoints
from datp_tasks.failpoints import SimulatedCrash
from datp_tasks.ledger.sim.faults import Fault
from datp_tasks.model.ledger_batch import BatchState, Verdict
from tests.ledger.conftest import NewWorld
from tests.ledger.naive import Crash, NaiveInstance, NaiveWorld, settle
from tests.support.ledger_world import SERVICE, Instance, World

#: Longer than a lease and everything that is counted from it.
LONG_S = 40.0


class Ours:
    """A world with two instances and two batches, and A's lease."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.a, self.b = world.instance(), world.instance()
        world.add_service()
        self.one, self.two = world.submit("one", "two")

    def b_takes_over(self) -> None:
        """A is silent for longer than its lease; B does everything there is to do."""
        self.world.advance(LONG_S)
        self.world.settle(self.b)

    def assert_right(self) -> None:
        assert self.world.violations() == []


class Theirs:
    """The same, the naive way."""

    def __init__(self, world: World, **variant: Any) -> None:
        world.instance()
        world.add_service()
        self.world = world
        self.naive = NaiveWorld(world)
        self.one, self.two = "1" * 128, "2" * 128
        self.naive.submit(self.one, self.two)
        self.a = NaiveInstance("A", self.naive, **variant)
        self.b = NaiveInstance("B", self.naive, **variant)

    def b_takes_over(self) -> None:
        self.world.advance(LONG_S)
        settle(self.naive, self.b)

    def assert_wrong(self, *violations: str) -> None:
        found = self.naive.violations()
        assert found
        for violation in violations:
            assert any(violation in each for each in found), found


@pytest.fixture
def ours(new_world: NewWorld) -> Ours:
    return Ours(new_world())


@pytest.fixture
def theirs(new_world: NewWorld) -> Theirs:
    return Theirs(new_world())


@pytest.fixture
def theirs_without_expiry(new_world: NewWorld) -> Theirs:
    return Theirs(new_world(), expires=False)


def crash() -> None:
    raise Crash


def crashes(act: Callable[[], object]) -> None:
    """Our process dies where the test has armed a crash."""
    with pytest.raises(SimulatedCrash):
        act()


def naive_crashes(act: Callable[[], object]) -> None:
    with pytest.raises(Crash):
        act()


def record_of(instance: Instance, batch_id: str) -> list[Verdict | None]:
    return [each.verdict for each in instance.ledger.batches.attempts(SERVICE, batch_id)]


# 4.0 Claim requested, granted, batch fetched and queued; nothing begun.


def test_claimed_and_queued_then_delayed(ours: Ours) -> None:
    ours.a.tick()
    late = list(ours.a.waiting)
    assert [work.batch_id for work in late] == [ours.one]
    ours.b_takes_over()
    assert ours.world.executed() == [ours.one, ours.two]
    # A wakes up, and its message arrives: the claim it was sent under is gone.
    assert ours.a.deliver(late).begun == 0
    ours.world.settle(ours.a, ours.b)
    ours.assert_right()
    assert record_of(ours.a, ours.one) == [Verdict.ACCEPTED]


def test_control_claimed_and_queued_then_delayed(theirs: Theirs) -> None:
    theirs.a.tick()
    theirs.b_takes_over()
    assert theirs.world.executed() == [theirs.one, theirs.two]
    theirs.a.deliver()
    settle(theirs.naive, theirs.a, theirs.b)
    theirs.assert_wrong("executed twice")


@pytest.mark.parametrize("point", ["ledger.after_renew", "ledger.after_claim"])
def test_claim_requested_or_granted_then_failed(ours: Ours, point: str) -> None:
    failpoints.arm(point, "crash")
    crashes(ours.a.tick)
    ours.b_takes_over()
    ours.assert_right()


@pytest.mark.parametrize("point", ["after_renew", "after_claim"])
def test_control_claim_granted_then_failed(theirs_without_expiry: Theirs, point: str) -> None:
    theirs = theirs_without_expiry
    theirs.a.tick()
    theirs.a.at[point] = crash
    naive_crashes(theirs.a.tick)
    theirs.b_takes_over()
    theirs.assert_wrong("not executed")


def test_claim_requested_then_delayed(ours: Ours) -> None:
    """A is paused between its renewal and its claim; B has taken the service meanwhile."""
    failpoints.arm("ledger.after_renew", ours.b_takes_over)
    ours.a.tick()
    assert ours.a.waiting == []
    ours.world.settle(ours.a, ours.b)
    ours.assert_right()


def test_an_instance_that_was_paused_claims_nothing_with_a_lease_that_has_run_out(
    ours: Ours,
) -> None:
    failpoints.arm("ledger.after_renew", lambda: ours.world.advance(LONG_S))
    ours.a.tick()
    assert ours.world.sql("SELECT claimant FROM service_claim")[0].claimant is None
    assert ours.a.waiting == []


# 4.1 Begin recorded, POST not started.


def test_begun_then_delayed_and_too_late_to_send(
    ours: Ours, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause was longer than the time to send: A looks at its clock and does not send."""
    ours.a.tick()
    paused_s = ours.world.settings.ledger_http_s + 1
    monkeypatch.setattr(ours.a.ledger.work.submitter.attempts, "_clock", lambda: -paused_s)
    failpoints.arm("ledger.after_begin", ours.b_takes_over)
    result = ours.a.deliver()
    assert (result.begun, result.refused) == (1, 1)
    ours.assert_right()
    assert record_of(ours.a, ours.one) == [Verdict.REFUSED, Verdict.ACCEPTED]


def test_control_begun_then_delayed(new_world: NewWorld) -> None:
    """B cannot tell "not sent" from "sent"; here it sends again at once, and A sends too."""
    theirs = Theirs(new_world(), resends_unknown=True)
    theirs.a.tick()
    theirs.a.at["after_begin"] = theirs.b_takes_over
    theirs.a.deliver()
    theirs.assert_wrong("executed twice")


def test_begun_then_failed(ours: Ours) -> None:
    ours.a.tick()
    failpoints.arm("ledger.after_begin", "crash")
    crashes(ours.a.deliver)
    assert ours.world.state(ours.one) is BatchState.SUBMITTING
    ours.b_takes_over()
    ours.assert_right()
    # Never sent, and resubmitted only after the ledger was asked.
    assert record_of(ours.b, ours.one) == [None, Verdict.ACCEPTED]


def test_control_begun_then_failed(theirs: Theirs) -> None:
    """Submitted and without a status: "don't queue", and nobody asks. Stuck for ever."""
    theirs.a.tick()
    theirs.a.at["after_begin"] = crash
    naive_crashes(theirs.a.deliver)
    theirs.b_takes_over()
    theirs.assert_wrong("not executed")


# 4.2 POST in flight.


def test_in_flight_then_delayed_by_a_slow_ledger(new_world: NewWorld) -> None:
    """The ledger takes it and answers when nobody listens any more: unsure, so it is asked."""
    ours = Ours(new_world(ledger_http_s=1.0))
    ours.world.sim.faults.set([Fault("post", "late-after", times=1, ms=1_500)])
    ours.a.tick()
    ours.a.deliver()
    assert ours.world.state(ours.one) is BatchState.UNKNOWN
    ours.world.settle(ours.a, ours.b)
    ours.assert_right()
    assert record_of(ours.a, ours.one) == [Verdict.UNSURE]


def test_control_in_flight_then_delayed_by_a_slow_ledger(theirs: Theirs) -> None:
    theirs.world.sim.faults.set([Fault("post", "late-after", times=1, ms=600)])
    theirs.a.tick()
    theirs.a.deliver()
    settle(theirs.naive, theirs.a, theirs.b)
    theirs.assert_wrong("executed twice")


def test_in_flight_then_failed_after_it_arrived(ours: Ours) -> None:
    ours.a.tick()
    failpoints.arm("ledger.before_finish", "crash")
    crashes(ours.a.deliver)
    assert ours.world.executed() == [ours.one]
    ours.b_takes_over()
    ours.assert_right()
    assert record_of(ours.b, ours.one) == [None]


def test_control_in_flight_then_failed_after_it_arrived(theirs: Theirs) -> None:
    theirs.a.tick()
    theirs.a.at["before_finish"] = crash
    naive_crashes(theirs.a.deliver)
    theirs.b_takes_over()
    theirs.assert_wrong("recorded as None", "not executed")


# 4.3 Response received, not recorded.


def test_answered_then_delayed(ours: Ours) -> None:
    """B has asked, recorded COMMITTED and gone on; A's word does not count any more."""
    ours.a.tick()
    failpoints.arm("ledger.before_finish", ours.b_takes_over)
    result = ours.a.deliver()
    assert (result.begun, result.refused) == (1, 1)
    ours.assert_right()
    # What A heard is kept where it belongs: in its own attempt.
    assert record_of(ours.a, ours.one) == [Verdict.ACCEPTED]


def test_control_answered_then_delayed(new_world: NewWorld) -> None:
    theirs = Theirs(new_world(), resends_unknown=True)
    theirs.a.tick()
    theirs.a.at["before_finish"] = theirs.b_takes_over
    theirs.a.deliver()
    assert theirs.world.executed() == [theirs.one, theirs.two]
    theirs.assert_wrong("recorded as PENDING")


def test_a_refusal_that_was_not_recorded_is_asked_about_and_sent_again(ours: Ours) -> None:
    ours.world.sim.faults.set([Fault("post", "429", times=1)])
    ours.a.tick()
    failpoints.arm("ledger.before_finish", "crash")
    crashes(ours.a.deliver)
    ours.b_takes_over()
    ours.assert_right()


# 4.4 Status recorded, claim not renewed.


def test_recorded_then_delayed(ours: Ours) -> None:
    ours.a.tick()
    failpoints.arm("ledger.after_finish", ours.b_takes_over)
    ours.a.deliver()
    ours.world.settle(ours.a, ours.b)
    ours.assert_right()


def test_control_recorded_then_delayed(theirs: Theirs) -> None:
    """A goes on with what it has in memory: the next batch, which B has done meanwhile."""
    theirs.a.tick()
    theirs.a.deliver()
    theirs.a.poll()
    theirs.a.tick()
    theirs.b_takes_over()
    theirs.a.deliver()
    theirs.assert_wrong("executed twice")


def test_recorded_then_failed(ours: Ours) -> None:
    ours.a.tick()
    failpoints.arm("ledger.after_finish", "crash")
    crashes(ours.a.deliver)
    ours.b_takes_over()
    ours.assert_right()


def test_control_recorded_then_failed(theirs_without_expiry: Theirs) -> None:
    theirs = theirs_without_expiry
    theirs.a.tick()
    theirs.a.at["after_finish"] = crash
    naive_crashes(theirs.a.deliver)
    theirs.b_takes_over()
    theirs.assert_wrong("not executed")


# 4.5 Renewal requested.


def test_a_renewal_that_comes_late_revives_nothing(ours: Ours) -> None:
    """Nobody has taken the service yet, and still the old claim does not go on."""
    ours.a.tick()
    before = ours.a.name
    old = list(ours.a.waiting)
    ours.world.advance(LONG_S)
    ours.a.tick()
    assert ours.a.name != before
    assert ours.a.deliver(old).begun == 0
    epochs = ours.world.sql("SELECT claimant, epoch FROM service_claim")
    assert [tuple(row) for row in epochs] == [(ours.a.name, 2)]
    ours.world.settle(ours.a)
    ours.assert_right()


def test_from_a_to_b_and_back_to_a_is_not_as_if_nothing_had_happened(ours: Ours) -> None:
    """ABA: A holds the service again, but its old message is from another tenure."""
    ours.a.tick()
    old = list(ours.a.waiting)
    ours.b_takes_over()
    ours.world.advance(LONG_S)
    ours.a.waiting.clear()
    ours.a.tick()
    assert ours.world.sql("SELECT claimant FROM service_claim")[0].claimant == ours.a.name
    assert ours.a.deliver(old).begun == 0
    ours.assert_right()


def test_control_from_a_to_b_and_back_to_a(theirs: Theirs) -> None:
    theirs.a.tick()
    old = list(theirs.a.queue)
    theirs.b_takes_over()
    theirs.world.advance(LONG_S)
    theirs.a.queue.clear()
    theirs.a.tick()
    theirs.a.queue = old
    theirs.a.deliver()
    theirs.assert_wrong("executed twice")


def test_renewal_requested_then_failed(ours: Ours) -> None:
    ours.world.settle(ours.a, rounds=1)
    failpoints.arm("ledger.after_renew", "crash")
    crashes(ours.a.tick)
    ours.b_takes_over()
    ours.assert_right()


# What physics allows: the gap between the last look at the clock and the first byte.


@pytest.mark.parametrize("kind", ["scabbard", "sawtooth"])
def test_paused_in_the_gap_before_sending_is_executed_once_or_reported(
    new_world: NewWorld, kind: str
) -> None:
    ours = Ours(new_world(kind=kind))
    ours.a.tick()
    failpoints.arm("ledger.before_send", ours.b_takes_over)
    ours.a.deliver()
    ours.world.settle(ours.b)
    twice = ours.world.executed().count(ours.one)
    reported = ("ledger-batch-twice", f"{SERVICE}/{ours.one}") in ours.world.alerts()
    if kind == "sawtooth":
        # It drops duplicates by itself, so there is nothing to report.
        assert (twice, reported) == (1, False)
        ours.assert_right()
    else:
        assert (twice, reported) == (2, True)
        assert ours.world.state(ours.one) is BatchState.COMMITTED
