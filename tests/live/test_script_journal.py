"""The journal: each transition leaves one entry, and the entries alone lead to what is there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from datp_tasks.live.live_types import Bell, Claimed, Held
from datp_tasks.live.scripts import ScriptCall
from datp_tasks.model.journal import Entry, entries_from_text, living_branch
from datp_tasks.model.state import (
    BEGIN,
    CLOSE,
    CRASH,
    Delta,
    apply,
    called,
    delta_json,
    done,
    ending,
    erred,
    passed,
    slept,
)
from datp_tasks.model.status import Status
from datp_tasks.model.stop_request import StopRequest
from datp_tasks.model.view import View
from tests.support.live_states import (
    HERE,
    NODE,
    OPENS,
    OTHER_NODE,
    Stage,
    kinds_written,
)

OUTPUT = {"n": 9007199254740993, "money": "0.10", "text": "é\n@1 0 0", "list": [], "dict": {}}


class Worker:
    """Holds a claim and, in its memory, the state: what it writes belongs together."""

    def __init__(self, stage: Stage, claim: Claimed, node: str = NODE) -> None:
        self.live, self.claim, self.node = stage.live, claim, node
        self.state = View.from_fields(claim.fields, claim.deltas).state
        if claim.opened:
            apply(self.state, BEGIN)

    @classmethod
    def at_work(cls, stage: Stage) -> Worker:
        """On a transaction that something of each sort has happened to already."""
        worker = cls(stage, stage.claimed())
        worker.checkpoint(done(OUTPUT, undoable=True), BEGIN)
        worker.live.set_switch(worker.tx_id, "limit", '"a=1:2"')
        worker.live.report_progress(worker.tx_id, worker.claim.fence, '{"half":0.5}')
        worker.checkpoint(erred("not now\n", 1), BEGIN)
        return worker

    @property
    def tx_id(self) -> str:
        return self.claim.tx_id

    def held(self, *deltas: Delta) -> Held:
        for delta in deltas:
            apply(self.state, delta)
        return Held(self.tx_id, self.claim.fence, deltas)

    def checkpoint(self, *deltas: Delta) -> None:
        fields = ("begun", "1") if BEGIN in deltas else ()
        self._run(self.live.call_checkpoint(self.held(*deltas), fields))

    def hand_over(self, *deltas: Delta) -> None:
        held = self.held(*deltas)
        self._run(self.live.call_hand_over(held, self.node, self.state.to_json(), HERE))

    def sleep(self, *deltas: Delta, switch: str = "") -> None:
        held, json = self.held(*deltas), self.state.to_json()
        self._run(
            self.live.call_sleep(
                held, self.node, json, HERE, sleep_ms=60_000, switch=switch, seen=9
            )
        )

    def park(self, *deltas: Delta) -> None:
        held = self.held(*deltas)
        self._run(self.live.call_park(held, self.node, self.state.to_json(), "a=1:\nwhy?"))

    def finish(self, status: str, *deltas: Delta) -> None:
        held = self.held(*deltas)
        self._run(self.live.call_finish(held, self.node, status, self.state.to_json()))

    def _run(self, call: ScriptCall) -> None:
        assert self.live.run([call])[0][0] == "OK"


# Each brings a transaction to where the transition starts, and gives the transition.
Act = Callable[[], object]
Case = Callable[[Stage], tuple[str, Act]]


def claim_opening(stage: Stage) -> tuple[str, Act]:
    bell = stage.queued()
    return bell.tx_id, lambda: stage.claimed(bell, begin=OPENS)


def claim_opening_nothing(stage: Stage) -> tuple[str, Act]:
    worker = Worker.at_work(stage)
    worker.hand_over(CLOSE)
    bell = stage.live.ring_again_many([worker.tx_id])[0]
    assert isinstance(bell, Bell)
    stage.live.note_problems([(bell.tx_id, bell.sequence)], "nobody offers it")
    return worker.tx_id, lambda: stage.claimed(bell, begin="")


def claim_for_another_step(stage: Stage) -> tuple[str, Act]:
    pair = (tx_id := stage.queued().tx_id, 1)
    claim_many = stage.live.claim_many
    return tx_id, lambda: claim_many([pair], NODE, step_type="t/other", begin=OPENS)


def claim_of_one_that_has_expired(stage: Stage) -> tuple[str, Act]:
    new = replace(stage.new(), expires_at_ms=stage.now_ms)
    bell = stage.live.create_many([new])[0]
    assert bell
    return new.tx_id, lambda: stage.claimed(bell, begin=OPENS)


def step(stage: Stage) -> tuple[str, Act]:
    worker = Worker.at_work(stage)
    deltas = (passed(undoable=True), called("child", "v2", OUTPUT), BEGIN)
    return worker.tx_id, lambda: worker.checkpoint(*deltas)


def first_step_of_one_that_was_not_begun(stage: Stage) -> tuple[str, Act]:
    worker = Worker(stage, stage.claimed(begin=""))
    return worker.tx_id, lambda: worker.checkpoint(BEGIN)


def step_without_deltas(stage: Stage) -> tuple[str, Act]:
    worker = Worker.at_work(stage)
    return worker.tx_id, worker.checkpoint


def queue(stage: Stage) -> tuple[str, Act]:
    worker = Worker.at_work(stage)
    return worker.tx_id, lambda: worker.hand_over(done(OUTPUT, undoable=False))


def resolve(stage: Stage) -> tuple[str, Act]:
    worker = Worker.at_work(stage)
    worker.park(CRASH)
    decision = (done(OUTPUT, undoable=True), CLOSE)

    def decide() -> None:
        held = Held(worker.tx_id, worker.claim.fence + 5, worker.held(*decision).deltas)
        version, json = int(stage.version(worker.tx_id)), worker.state.to_json()
        assert isinstance(stage.live.resolve(held, version, json, HERE), Bell)

    return worker.tx_id, decide


def sleep_plainly(stage: Stage) -> tuple[str, Act]:
    worker = Worker.at_work(stage)
    return worker.tx_id, lambda: worker.sleep(slept(60, None))


def sleep_until_a_switch(stage: Stage) -> tuple[str, Act]:
    worker = Worker.at_work(stage)
    return worker.tx_id, lambda: worker.sleep(slept(60, "kyc"), switch="kyc")


def asleep(stage: Stage) -> str:
    worker = Worker.at_work(stage)
    worker.sleep(slept(60, "kyc"), switch="kyc")
    return worker.tx_id


def wake(stage: Stage) -> tuple[str, Act]:
    tx_id = asleep(stage)
    return tx_id, lambda: stage.live.wake_many([tx_id], only_due=False)


def switch(stage: Stage) -> tuple[str, Act]:
    tx_id = asleep(stage)
    return tx_id, lambda: stage.live.set_switch(tx_id, "other", '"x=1:2"')


def switch_while_it_runs(stage: Stage) -> tuple[str, Act]:
    worker = Worker.at_work(stage)
    return worker.tx_id, lambda: stage.live.set_switch(worker.tx_id, "limit", "7")


def switch_that_is_removed(stage: Stage) -> tuple[str, Act]:
    worker = Worker.at_work(stage)
    return worker.tx_id, lambda: stage.live.set_switch(worker.tx_id, "limit", "")


def switch_that_wakes(stage: Stage) -> tuple[str, Act]:
    tx_id = asleep(stage)
    return tx_id, lambda: stage.live.set_switch(tx_id, "kyc", "true")


def cancel(stage: Stage) -> tuple[str, Act]:
    worker = Worker.at_work(stage)
    return worker.tx_id, lambda: stage.live.stop(
        worker.tx_id, StopRequest.cancel("why\n"), OTHER_NODE
    )


def cancel_that_wakes(stage: Stage) -> tuple[str, Act]:
    tx_id = asleep(stage)
    return tx_id, lambda: stage.live.stop(tx_id, StopRequest.cancel("why"), OTHER_NODE)


def seize_a_queued_one(stage: Stage) -> tuple[str, Act]:
    tx_id = stage.queued().tx_id
    return tx_id, lambda: stage.live.stop(tx_id, StopRequest.cancel("why"), OTHER_NODE)


def seize_a_sleeping_one(stage: Stage) -> tuple[str, Act]:
    worker = Worker(stage, stage.claimed(begin=""))
    worker.sleep(slept(60, "kyc"), switch="kyc")
    return worker.tx_id, lambda: stage.live.stop(
        worker.tx_id, StopRequest.cancel("why"), OTHER_NODE
    )


def seize_one_that_was_lost(stage: Stage) -> tuple[str, Act]:
    new = replace(stage.new(), recreated=True)
    stage.live.create_many([new])
    return new.tx_id, lambda: stage.live.stop(new.tx_id, StopRequest.cancel("why"), OTHER_NODE)


def park(stage: Stage) -> tuple[str, Act]:
    worker = Worker.at_work(stage)
    return worker.tx_id, lambda: worker.park(CRASH)


def final_by_a_worker(stage: Stage) -> tuple[str, Act]:
    worker = Worker.at_work(stage)
    stage.live.stop(worker.tx_id, StopRequest.cancel("why"), OTHER_NODE)
    end = ending(Status.CANCELLED, "why", OUTPUT, rollback=True, undo_current=True)
    return worker.tx_id, lambda: worker.finish("cancelled", end)


def final_as_sql_says(stage: Stage) -> tuple[str, Act]:
    worker = Worker.at_work(stage)
    return worker.tx_id, lambda: stage.live.follow_sql([(worker.tx_id, "expired")])


def final_of_a_sleeping_one(stage: Stage) -> tuple[str, Act]:
    tx_id = asleep(stage)
    return tx_id, lambda: stage.live.follow_sql([(tx_id, "expired")])


def final_of_one_in_doubt(stage: Stage) -> tuple[str, Act]:
    worker = Worker.at_work(stage)
    worker.park()
    return worker.tx_id, lambda: stage.live.follow_sql([(worker.tx_id, "internal-error")])


def crash(stage: Stage) -> tuple[str, Act]:
    worker = Worker.at_work(stage)
    order = (worker.tx_id, worker.claim.fence, worker.claim.fence + 9)
    return worker.tx_id, lambda: stage.live.take_over_many([order], NODE)


def progress(stage: Stage) -> tuple[str, Act]:
    worker = Worker.at_work(stage)
    report = '{"done":0.10,"of":9007199254740993,"text":"a\\nb\\\\n\\u2028"}'
    fence = worker.claim.fence
    return worker.tx_id, lambda: stage.live.report_progress(worker.tx_id, fence, report)


def rebuilt(stage: Stage, tx_id: str, status: str, *deltas: Delta) -> tuple[str, Act]:
    """Redis has lost it; SQL has everything until then."""
    view = stage.folded(tx_id)
    stage.lose(tx_id)
    stage.clock.advance(seconds=1)
    version, fence, view.status = view.version, view.fence + 7, status
    for delta in deltas:
        apply(view.state, delta)
    lines = "\n".join(map(delta_json, deltas))
    back = replace(stage.as_sql_has_it(tx_id, view), fence=fence, rebuilt=True, lines=lines)
    assert back.version == version

    def restore() -> None:
        assert isinstance(stage.live.restore_many([back])[0], Bell)

    return tx_id, restore


def rebuild_of_a_running_one(stage: Stage) -> tuple[str, Act]:
    return rebuilt(stage, Worker.at_work(stage).tx_id, "queued", CRASH)


def rebuild_of_a_queued_one(stage: Stage) -> tuple[str, Act]:
    worker = Worker.at_work(stage)
    worker.hand_over(CLOSE)
    stage.live.stop(worker.tx_id, StopRequest.cancel("why"), OTHER_NODE)
    return rebuilt(stage, worker.tx_id, "queued")


def rebuild_of_a_sleeping_one(stage: Stage) -> tuple[str, Act]:
    return rebuilt(stage, asleep(stage), "sleeping")


def rebuild_of_one_in_doubt(stage: Stage) -> tuple[str, Act]:
    worker = Worker.at_work(stage)
    worker.park()
    return rebuilt(stage, worker.tx_id, "in-doubt")


#: Script and kind of entry -> everything that writes such an entry.
CASES: dict[tuple[str, str], list[Case]] = {
    ("claim", "claim"): [
        claim_opening,
        claim_opening_nothing,
        claim_for_another_step,
        claim_of_one_that_has_expired,
    ],
    ("checkpoint", "step"): [step, first_step_of_one_that_was_not_begun, step_without_deltas],
    ("hand_over", "queue"): [queue],
    ("resolve", "queue"): [resolve],
    ("sleep", "sleep"): [sleep_plainly, sleep_until_a_switch],
    ("wake", "wake"): [wake],
    ("set_switch", "switch"): [switch, switch_while_it_runs, switch_that_is_removed],
    ("set_switch", "switch-wake"): [switch_that_wakes],
    ("stop", "cancel"): [cancel],
    ("stop", "cancel-wake"): [cancel_that_wakes],
    ("stop", "seize"): [seize_a_queued_one, seize_a_sleeping_one],
    ("stop", "claim"): [seize_one_that_was_lost],
    ("park", "park"): [park],
    ("finish", "final"): [
        final_by_a_worker,
        final_as_sql_says,
        final_of_a_sleeping_one,
        final_of_one_in_doubt,
    ],
    ("take_over", "crash"): [crash],
    ("report_progress", "progress"): [progress],
    ("restore", "rebuild"): [
        rebuild_of_a_running_one,
        rebuild_of_a_queued_one,
        rebuild_of_a_sleeping_one,
        rebuild_of_one_in_doubt,
    ],
}


def test_every_entry_that_any_script_writes_is_tested_here() -> None:
    assert set(CASES) == kinds_written()


@pytest.mark.parametrize(
    ("kind", "case"),
    [(kind, case) for (_, kind), cases in CASES.items() for case in cases],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_the_journal_alone_leads_to_what_is_there(stage: Stage, kind: str, case: Case) -> None:
    tx_id, act = case(stage)
    earlier = stage.entries(tx_id)
    act()
    entries = stage.entries(tx_id)
    assert entries[:-1] == earlier
    last = entries[-1]
    assert last.kind == kind
    assert last.before == (earlier[-1].version if earlier else 0)
    assert last.version == max(last.before + 1, stage.now_ms)
    assert living_branch(entries) == entries
    assert stage.folded(tx_id) == stage.view(tx_id)


def full_life(stage: Stage) -> tuple[str, list[View]]:
    """One that goes through every kind of transition; how it stood after each."""
    worker = Worker.at_work(stage)
    tx_id, live, views = worker.tx_id, stage.live, []

    def look() -> None:
        views.append(stage.view(tx_id))

    look()
    worker.sleep(slept(60, "kyc"), switch="kyc")
    look()
    bell = live.set_switch(tx_id, "kyc", "true")
    assert isinstance(bell, Bell)
    look()
    claim = stage.claimed(bell)
    look()
    bell = live.take_over_many([(tx_id, claim.fence, claim.fence + 1)], NODE)[0]
    assert isinstance(bell, Bell)
    look()
    worker = Worker(stage, stage.claimed(bell, node=OTHER_NODE), OTHER_NODE)
    look()
    live.stop(tx_id, StopRequest.cancel("why"), NODE)
    look()
    worker.park(CRASH)
    look()
    held = Held(tx_id, worker.claim.fence + 1, worker.held(CLOSE).deltas)
    bell = live.resolve(held, int(stage.version(tx_id)), worker.state.to_json(), HERE)
    assert isinstance(bell, Bell)
    look()
    worker = Worker(stage, stage.claimed(bell))
    look()
    worker.finish("cancelled", ending(Status.CANCELLED, "why", None))
    look()
    return tx_id, views


def test_a_copy_of_any_moment_and_the_journal_since_lead_to_the_same(stage: Stage) -> None:
    tx_id, views = full_life(stage)
    entries, last = stage.entries(tx_id), views[-1]
    assert len({view.status for view in views}) == 5
    for view in views:
        assert view.fold(living_branch(entries, since=view.version)) == last


def test_a_copy_of_any_moment_can_be_written_as_fields_again(stage: Stage) -> None:
    _, views = full_life(stage)
    for view in views:
        by_script = {"status": view.status, "version": view.version, "fence": view.fence}
        fields = view.to_fields() | {name: str(value) for name, value in by_script.items()}
        assert View.from_fields(fields) == view


def test_every_entry_can_be_written_as_text_and_read_again(stage: Stage) -> None:
    tx_id, _ = full_life(stage)
    entries = stage.entries(tx_id)
    assert entries_from_text("\n".join(entry.to_text() for entry in entries)) == entries


def test_what_changes_nothing_that_must_be_rebuilt_leaves_no_entry(stage: Stage) -> None:
    bell = stage.queued()
    stage.live.ring_again_many([bell.tx_id])
    stage.live.note_problems([(bell.tx_id, bell.sequence)], "nobody offers it")
    assert stage.entries(bell.tx_id) == []
    assert stage.folded(bell.tx_id) == stage.view(bell.tx_id)


def test_transactions_of_one_shard_share_a_stream_and_are_told_apart(stage: Stage) -> None:
    first, second = Worker.at_work(stage), Worker.at_work(stage)
    first.hand_over(CLOSE)
    second.park()
    other_shard = stage.claimed(stage.queued(shard="08"))
    for worker in (first, second):
        assert stage.folded(worker.tx_id) == stage.view(worker.tx_id)
    assert {tx_id for _, tx_id, _ in stage.stream("07")} == {first.tx_id, second.tx_id}
    entry = Entry(stage.now_ms, 0, other_shard.fence, "claim", OPENS, NODE)
    assert stage.stream("08")[0][1:] == (other_shard.tx_id, entry)


def test_a_refused_script_leaves_no_entry(stage: Stage) -> None:
    worker = Worker.at_work(stage)
    worker.hand_over()
    before = stage.entries(worker.tx_id)
    for call in (
        stage.live.call_checkpoint(worker.held(CLOSE)),
        stage.live.call_park(worker.held(CLOSE), NODE, "{}", "why"),
        stage.live.call_finish(worker.held(CLOSE), NODE, "success", "{}"),
    ):
        assert stage.live.run([call])[0][0] == "STALE"
    assert stage.entries(worker.tx_id) == before
