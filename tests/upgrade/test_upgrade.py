"""An upgrade of a system with transactions in every state loses nothing and repeats nothing.

`from_<commit>/` is what the version of that commit left in Redis and PostgreSQL; how it was
written, and how to write it anew, is in `write_fixture.py`.
"""

from __future__ import annotations

from typing import Any

import pytest

from datp_tasks.errors import ExternalIdConflict
from datp_tasks.live.invariants import check_all
from datp_tasks.model.payload import Json
from datp_tasks.operator.doubt_decisions import Decision
from datp_tasks.record.database import migrate
from datp_tasks.testing.at_rest import live_violations, transaction_violations
from tests.support.receiver import Receiver
from tests.upgrade.upgraded import ABOUT, Upgraded, differences

ONE, TWO = ["book 1"], ["book 1", "book 2"]
UNDONE = ["book 1", "book 2", "unbook 2", "unbook 1"]
#: By name: where it comes to rest if nobody says anything to it, and what it has done by then.
RESTS: dict[str, tuple[str, list[str]]] = {
    "in-doubt": ("in-doubt", ["book 1", "pay"]),
    "archived": ("success", ONE),
    "archived-here": ("success", ONE),
    "asleep-gone": ("success", TWO),
    "undo-asleep": ("failed", UNDONE),
    "family-asleep": ("success", TWO),
    "waiting-gone": ("sleeping", ONE),
    "waiting-here": ("sleeping", ONE),
    "expiring-gone": ("expired", ["book 1", "unbook 1"]),
    "queued": ("success", TWO),
    "overdue": ("expired", []),
    "cancelled": ("cancelled", ["book 1", "unbook 1"]),
    "queued-midway": ("success", TWO),
    "switched": ("success", TWO),
    "asleep": ("success", TWO),
    "waiting": ("sleeping", ONE),
    "undo-just-asleep": ("failed", UNDONE),
    "family": ("success", TWO),
    "retrying": ("success", ONE),
    "expiring": ("expired", ["book 1", "unbook 1"]),
    "ended": ("success", ONE),
    "told": ("success", ONE),
    "to-be-told": ("success", ONE),
    "running": ("success", TWO),
    "running-effect": ("success", TWO),
    "claimed": ("success", ONE),
    "review": ("in-doubt", ["book 1", "pay"]),
    "probe": ("success", ["book 1", "ask", "book 2"]),
    "ended-in-sql": ("success", ONE),
    "only-in-sql": ("success", ONE),
}
STATUSES = {name: status for name, (status, _) in RESTS.items()}
#: After a loss of Redis it is not known whether a step of these had begun, and they are called
#: back: a person has to look and to say what became of their first step.
AFTER_LOSS: dict[str, tuple[Decision, Json | None]] = {
    "cancelled": ("done", {"booked": 1}),
    "overdue": ("redo", None),
}
EFFECTS = {name: effects for name, (_, effects) in RESTS.items()}
WAITING = [name for name, status in STATUSES.items() if status == "sleeping"]
IN_DOUBT = [name for name, status in STATUSES.items() if status == "in-doubt"]


def assert_sound(kit: Upgraded) -> None:
    """Redis, the record, the archive and the journals say the same."""
    assert check_all(kit.connections.live) == []
    assert kit.faults() == {}
    assert list(live_violations(kit.connections)) == []
    for name in ABOUT["transactions"]:
        found = transaction_violations(kit.connections, kit.named(name))
        # What a person decided about, or was called back, is queued a second time in the history.
        assert [each for each in found if "it was accepted" not in each] == [], name


def test_the_data_has_a_transaction_in_every_state(before: Upgraded) -> None:
    before.load()
    assert set(ABOUT["transactions"]) == set(RESTS)
    ids = list(ABOUT["transactions"].values())
    found = {fields.get("status", "gone") for fields in before.connections.live.fields_many(ids)}
    assert found == {"queued", "running", "sleeping", "in-doubt", "success", "gone"}
    fields = {tuple(flat[::2]) for _, flat in before.journal_entries()}
    assert fields == {("e",)}


@pytest.mark.parametrize("how", ["as it is", "redis restarted", "redis wiped"])
def test_after_an_upgrade_everything_goes_on_and_nothing_happens_twice(
    before: Upgraded, receiver: Receiver, how: str
) -> None:
    before.load(same_server=how == "as it is")
    unclear = AFTER_LOSS if how == "redis wiped" else {}
    if how == "redis wiped":
        before.wipe()
    before.come_to_rest()
    assert differences(before.statuses(), STATUSES | dict.fromkeys(unclear, "in-doubt")) == {}
    effects = {name: lines for name, lines in EFFECTS.items() if name not in unclear}
    assert differences(before.effects(), effects) == {}
    assert check_all(before.connections.live) == []

    for name, (decision, output) in unclear.items():
        before.resolve(name, decision, output)
    for name in WAITING:
        before.client.set_switch(ABOUT["transactions"][name], "go", 1)
    for name in IN_DOUBT:
        before.resolve(name, "done")
    before.recover()
    ends = {name: "success" if name in (*WAITING, *IN_DOUBT) else STATUSES[name] for name in RESTS}
    assert differences(before.statuses(), ends) == {}
    more = {name: [*EFFECTS[name], "book 2"] for name in (*WAITING, *IN_DOUBT)}
    assert differences(before.effects(), EFFECTS | more) == {}
    before.advance(seconds=before.settings.delay_before_archiving_s + 1)
    assert_sound(before)
    assert sorted(got.path for got in receiver.got) == ["/to-be-told", "/told"]


def test_external_ids_still_belong_to_their_transactions(before: Upgraded) -> None:
    before.load()
    for name, pipeline in {"queued": "hop", "archived": "quick", "only-in-sql": "quick"}.items():
        again: dict[str, Any] = {"external_id": f"o-{name}"}
        if name == "queued":
            again["metadata"] = {"m": 1}
        assert before.submit(pipeline, {"name": name}, **again) == ABOUT["transactions"][name]
        with pytest.raises(ExternalIdConflict):
            before.submit(pipeline, {"name": "another"}, **again)


def test_migrating_twice_changes_nothing(before: Upgraded) -> None:
    before.load()
    migrate(before.settings.database_url)
    before.come_to_rest()
    assert differences(before.statuses(), STATUSES) == {}
