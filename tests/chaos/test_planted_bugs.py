"""Bugs that are planted on purpose: the sweep must find each of them, and nothing without them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from datp_tasks import Pipeline, StepContext
from datp_tasks.client.requests import Prepared
from datp_tasks.client.submit import RequestAcceptor
from datp_tasks.jobs import reconciler
from datp_tasks.live.store import LiveStore
from datp_tasks.record import transactions as record
from datp_tasks.record.record_types import Acceptance
from datp_tasks.record.transactions import Record
from datp_tasks.testing import Kit, crash_sweep
from datp_tasks.testing.cases import Report
from datp_tasks.testing.sweep import MOVERS
from tests.chaos.transfer_steps import SENT, bank
from tests.chaos.transfer_world import World

NIGHT_S = 28_800

Plant = Callable[[pytest.MonkeyPatch], None]


def without_fence_in_the_final(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that was given up may still end the transaction."""
    finish = record.Query.finish
    careless = finish.replace("AND s.fence <= v.fence", "")
    assert careless != finish
    monkeypatch.setattr(record.Query, "finish", careless)


def bell_before_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions are queued and rung before they are accepted; a worker comes a moment later."""
    prepare, place, accept = RequestAcceptor.prepare_many, RequestAcceptor.place, Record.accept_many
    coming: list[tuple[RequestAcceptor, Prepared]] = []

    def note(acceptor: RequestAcceptor, *given: Any) -> Any:
        prepared, good = prepare(acceptor, *given)
        coming.extend((acceptor, each) for each in good)
        return prepared, good

    def ring_first(store: Record, wanted: Sequence[Acceptance]) -> Any:
        acceptor, prepared = coming.pop()
        send: Any = vars(acceptor.ringer)["_send"]
        send._running = True
        try:
            place(acceptor, [prepared])
            return accept(store, wanted)
        finally:
            send._drain()

    monkeypatch.setattr(RequestAcceptor, "prepare_many", note)
    monkeypatch.setattr(RequestAcceptor, "place", lambda acceptor, accepted: None)
    monkeypatch.setattr(Record, "accept_many", ring_first)


def without_reconciler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks for bells that were lost."""
    monkeypatch.setattr(reconciler, "run_once", lambda *_, **__: None)


def archive_without_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever version was written, the one that is there now counts as archived."""
    confirm = LiveStore.confirm_archived_many

    def careless(live: LiveStore, written: Sequence[tuple[str, str, str]]) -> int:
        ids = [tx_id for tx_id, *_ in written]
        versions = [fields.get("version", "") for fields in live.fields_many(ids)]
        return confirm(live, [(tx, version, "") for tx, version in zip(ids, versions, strict=True)])

    monkeypatch.setattr(LiveStore, "confirm_archived_many", careless)


#: The bug, where the sweep finds it, and what it says.
BUGS: list[tuple[Plant, str, str]] = [
    (without_fence_in_the_final, "hop.before_final#1=overtaken", "was given out"),
    (bell_before_commit, "commit:transactions.accept:before#1=crash", "was never accepted"),
    (archive_without_version, "archiver.after_states#1=pause", "the archive has it as sleeping"),
    (without_reconciler, "submit.after_accept#1=crash", "is queued"),
    (without_reconciler, "publish:chaos/kyc:before#1=exception", "is queued"),
]


def one_case(kit: Kit, world: World, case: str) -> Report:
    report = crash_sweep(
        kit,
        "chaos-transfer",
        world.request(night_s=NIGHT_S),
        check=world.complaints_about,
        ends=["success"],
        jobs=MOVERS,
        only=[case],
    )
    assert [str(result.case) for result in report.results] == [case]
    assert report.missed == []
    return report


@pytest.mark.parametrize(("plant", "case", "words"), BUGS)
def test_a_planted_bug_is_found_and_its_place_is_clean_without_it(
    kit: Kit,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    plant: Plant,
    case: str,
    words: str,
) -> None:
    one_case(kit, world, case).assert_clean()
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=words):
        one_case(kit, world, case).assert_clean()


def test_a_step_with_another_key_at_each_try_sends_twice_and_is_found(
    kit: Kit, world: World
) -> None:
    """The mistake that users make."""

    @kit.step("mine/send")
    def send(ctx: StepContext, data: dict[str, Any]) -> None:
        key = secrets.token_hex(8)
        bank().transfer(key, "house", "partner", SENT, reference=ctx.tx_id)

    kit.use(Pipeline("mine").step("mine/send").build())
    only = [
        "effect:mine/send:before#1=crash",
        "effect:mine/send:after#1=crash",
        "effect:mine/send:after#1=lost-answer",
    ]
    report = crash_sweep(kit, "mine", {}, check=lambda _: world.complaints(), only=only)
    # Before the money has moved, nothing can be doubled.
    assert {str(result.case) for result in report.bad} == set(only[1:])


def test_a_bank_without_keys_is_told_twice_by_one_who_was_asleep_and_that_is_found(
    kit: Kit, world: World
) -> None:
    """No engine can help that: the probe says no, and then the first one wakes up and sends.

    The transfer with keys survives the same fault.
    """
    case = "effect:chaos/wire:before#1=pause"
    for blind in (False, True):
        report = crash_sweep(
            kit,
            "chaos-transfer",
            world.request(blind=blind),
            check=world.complaints_about,
            ends=["success"],
            only=[case],
        )
        assert [str(result.case) for result in report.bad] == [case] * blind
