"""A worker can die at any point: there is one end, and every effect happens once."""

from __future__ import annotations

import random
from typing import Any

import pytest
from sqlalchemy import text

from datp_tasks import Call, Done, Fail, NotDone, Pipeline, Sleep, failpoints
from datp_tasks.failpoints import POINTS, SimulatedCrash
from datp_tasks.model.status import Status
from datp_tasks.record.record_types import Summary
from datp_tasks.testing import Kit
from datp_tasks.testing.sweep import MOVERS
from tests.support.books import Books

Data = dict[str, Any]

#: The transfer is never in doubt (tests/transactions crashes there), and has no point of no return
#: (tests/timeouts/test_no_return_crashes.py).
OFF_THE_WAY = {"hop.after_park_mark", "hop.after_point"}
#: What a transfer passes that nobody cancels; other points are tested by themselves.
ON_THE_WAY = [
    point
    for point in POINTS
    if point.startswith(("submit.", "hop.", "effect.", "sleeper.")) and point not in OFF_THE_WAY
]
NIGHT_S = 28_800


class Transfer:
    """A transfer with every kind of step.

    Check, reserve (SQL), a child on other nodes (async), tell the bank (probe), sleep, commit
    (SQL, own message), say thanks. Effects in SQL go to the books. The partner is a dict keyed
    by idempotency keys, as a good partner is; the bank is a list, so that asking twice is seen.
    """

    def __init__(self, kit: Kit, books: Books, *, fails: bool) -> None:
        self.kit, self.books, self.fails = kit, books, fails
        self.partner: dict[str, str] = {}
        self.bank: list[str] = []
        self._declare_money()
        self._declare_others()
        kit.use(
            Pipeline("x-kyc", group="kyc", startable=False).step("x/ask").build(),
            Pipeline("transfer")
            .step("x/check")
            .step("x/reserve")
            .step("x/kyc")
            .step("x/bank")
            .step("x/night")
            .step("x/commit", dispatch="queue")
            .step("x/thanks")
            .build(),
        )

    def _declare_money(self) -> None:
        kit, books = self.kit, self.books

        @kit.step("x/reserve", transactional=True)
        def reserve(ctx: Any, data: Data) -> Data:
            books.write(ctx.sql, ctx.tx_id, "reserve")
            return {**data, "reserved": True}

        @reserve.rollback
        def release(ctx: Any, data: Data, output: Data) -> None:
            assert output["reserved"]
            books.write(ctx.sql, ctx.tx_id, "release")

        @kit.step("x/commit", transactional=True)
        def commit(ctx: Any, data: Data) -> Data:
            books.write(ctx.sql, ctx.tx_id, "commit")
            return {**data, "committed": True}

        @commit.rollback
        def reverse(ctx: Any, data: Data, output: Data) -> None:
            books.write(ctx.sql, ctx.tx_id, "reverse")

    def _declare_others(self) -> None:
        kit = self.kit

        @kit.step("x/check")
        def check(ctx: Any, data: Data) -> Data:
            return {**data, "checked": True}

        @kit.step("x/kyc")
        def kyc(ctx: Any, data: Data) -> Call:
            return Call("x-kyc", {**data, "asked": True})

        @kit.step("x/ask")
        async def ask(ctx: Any, data: Data) -> Data:
            self.partner.setdefault(ctx.idempotency_key, "asked")
            return {**data, "kyc": True}

        @ask.rollback
        def unask(ctx: Any, data: Data, output: Data) -> None:
            self.partner.setdefault(ctx.idempotency_key, "unasked")

        @kit.step("x/bank", on_crash="probe")
        def bank(ctx: Any, data: Data) -> Data:
            self.bank.append(ctx.tx_id)
            return {**data, "bank": True}

        @bank.probe
        def look(ctx: Any, data: Data) -> Done | NotDone:
            return Done({**data, "bank": True}) if ctx.tx_id in self.bank else NotDone()

        @kit.step("x/night")
        def night(ctx: Any, data: Data) -> Sleep | None:
            return Sleep(seconds=NIGHT_S) if ctx.sleeps == 0 else None

        @kit.step("x/thanks")
        def thanks(ctx: Any, data: Data) -> Data:
            self.partner.setdefault(ctx.idempotency_key, "thanked")
            if self.fails:
                raise Fail("nobody wants to know")
            return {**data, "thanked": True}

    def run(self, external_id: str) -> Summary:
        """From the first try to submit it to its end, whoever dies on the way."""
        tx_id = self._submit(external_id)
        for _ in range(20):
            try:
                summary = self.kit.finish(tx_id)
                if summary.is_final:
                    return summary
                repair(self.kit)
            except SimulatedCrash:
                # The process that ran a maintenance job died; the next beat goes elsewhere.
                continue
        raise AssertionError(f"it has not ended: {self.kit.status(tx_id)}")

    def _submit(self, external_id: str) -> str:
        """A client that dies starts again and asks for the same."""
        for _ in range(5):
            try:
                return self.kit.submit("transfer", {"amount": 5}, external_id=external_id)
            except SimulatedCrash:
                continue
        raise AssertionError("it was never accepted")

    def check_end(self, summary: Summary) -> None:
        """One end, and every effect once."""
        tx_id = summary.tx_id
        asked, thanked = f"{tx_id}:2.0", f"{tx_id}:6"
        partner = {asked: "asked", thanked: "thanked"}
        if self.fails:
            assert (summary.status, summary.note) == (Status.FAILED, "nobody wants to know")
            assert self.books.lines(tx_id) == ["reserve", "commit", "reverse", "release"]
            partner[f"{asked}:undo"] = "unasked"
        else:
            assert summary.status is Status.SUCCESS, summary
            names = ("checked", "reserved", "asked", "kyc", "bank", "committed", "thanked")
            assert summary.output == {"amount": 5, **dict.fromkeys(names, True)}
            assert self.books.lines(tx_id) == ["reserve", "commit"]
        assert {k: v for k, v in self.partner.items() if k.startswith(tx_id)} == partner
        assert self.bank.count(tx_id) == 1
        assert self.record_of(tx_id) == ["queued", str(summary.status)]

    def record_of(self, tx_id: str) -> list[str]:
        """Every status that the record ever showed."""
        query = text("SELECT status FROM tx_state_change WHERE tx_id = :tx_id ORDER BY id")
        with self.kit.connections.engine.connect() as sql:
            return list(sql.execute(query, {"tx_id": tx_id}).scalars())


def repair(kit: Kit) -> None:
    """Like `recover`, but what is armed stays armed: the repair may crash as well."""
    settings = kit.settings
    for ms in (settings.node_stale_ms, settings.node_grace_ms, settings.ring_again_after_ms):
        kit.advance(seconds=ms / 1_000 + 1)


fate = pytest.mark.parametrize("fails", [False, True], ids=["success", "rollback"])


@fate
@pytest.mark.parametrize("point", ON_THE_WAY)
def test_a_crash_at_any_point_changes_nothing_in_the_end(
    datp: Kit, books: Books, point: str, fails: bool
) -> None:
    """At the first time the point is reached, at the second, and so on to the last."""
    # The other jobs move nothing; they run between the crashes of the test below.
    datp.jobs = MOVERS
    transfer = Transfer(datp, books, fails=fails)
    crashes: list[int] = []

    def note_and_die() -> None:
        crashes.append(nth)
        raise SimulatedCrash

    for nth in range(1, 50):
        failpoints.arm(point, note_and_die, nth=nth)
        summary = transfer.run(f"{point}-{nth}")
        failpoints.disarm_all()
        transfer.check_end(summary)
        if nth not in crashes:
            break
    assert crashes == list(range(1, nth))
    assert crashes, f"a transfer never reaches {point}"


@pytest.mark.parametrize("seed", range(12))
def test_several_crashes_of_one_transfer_change_nothing_in_the_end(
    datp: Kit, books: Books, seed: int
) -> None:
    """At random points, also while the crash before is being repaired."""
    rng = random.Random(seed)
    transfer = Transfer(datp, books, fails=bool(seed % 2))
    for number in range(3):
        for point in rng.sample(POINTS, 4):
            failpoints.arm(point, "crash", nth=rng.randint(1, 4))
        summary = transfer.run(f"several-{number}")
        failpoints.disarm_all()
        transfer.check_end(summary)
