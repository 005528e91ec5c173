"""What is old is dropped if the settings say so: in bounded batches, and only what has ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from datp_tasks.jobs import retention
from datp_tasks.model.actor import Actor, Role
from datp_tasks.record.alerts import Alerts
from datp_tasks.record.retention import Retention
from datp_tasks.record.retention_rules import RetentionRule
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers
from tests.support.archive_world import World

MakeWorld = Callable[..., World]


@pytest.fixture
def make_world(datp_servers: Servers) -> Iterator[MakeWorld]:
    made: list[Kit] = []

    def make(**settings: Any) -> World:
        made.append(Kit(datp_servers, **settings))
        return World(made[-1])

    yield make
    for kit in made:
        kit.close()


def rows(world: World, table: str, tx_id: str) -> int:
    return int(world.sql(f"SELECT count(*) FROM {table} WHERE tx_id = :tx", tx=tx_id)[0][0])


def kept(world: World, tx_id: str) -> tuple[bool, bool]:
    """Whether its archived state and its journal are there."""
    return rows(world, "tx_state", tx_id) > 0, rows(world, "tx_journal", tx_id) > 0


def test_by_default_the_record_is_kept_for_ever(make_world: MakeWorld) -> None:
    world = make_world()
    tx_id = world.kit.submit("quick", {})
    world.kit.advance(seconds=61)
    world.kit.advance(days=36_000)
    assert kept(world, tx_id) == (True, True)
    assert rows(world, "tx_summary", tx_id) == 1
    assert rows(world, "tx_state_change", tx_id) == 2


def test_what_ended_long_ago_is_dropped_each_kind_by_its_own_setting(
    make_world: MakeWorld,
) -> None:
    world = make_world(keep_states_days=1, keep_journal_days=3)
    tx_id = world.kit.submit("pay", {})
    world.kit.advance(seconds=61)
    world.kit.advance(days=0.9)
    assert kept(world, tx_id) == (True, True)
    world.kit.advance(days=0.2)
    assert kept(world, tx_id) == (False, True)
    assert rows(world, "step_begun", tx_id) == 1
    assert world.faults() == {}
    world.kit.advance(days=2)
    assert kept(world, tx_id) == (False, False)
    assert rows(world, "step_begun", tx_id) == 0
    # Its summary stays, and an audit knows that its journal is gone by order.
    assert world.kit.status(tx_id).output == {"booked": 2, "paid": True}
    [replay] = world.kit.operator.audit()
    assert (replay.dropped, replay.faults) == (True, [])


def test_a_journal_that_is_gone_too_early_is_not_taken_for_dropped(make_world: MakeWorld) -> None:
    world = make_world(keep_journal_days=3)
    tx_id = world.kit.submit("quick", {})
    world.kit.advance(seconds=61)
    world.sql("DELETE FROM tx_journal WHERE tx_id = :tx", tx=tx_id)
    assert list(world.faults()) == [tx_id]


@pytest.mark.parametrize("pipeline", ["wait", "rest"])
def test_one_that_has_not_ended_is_never_touched(make_world: MakeWorld, pipeline: str) -> None:
    world = make_world(keep_states_days=1, keep_journal_days=1)
    tx_id = world.asleep_and_gone(pipeline, {"seconds": 86_400 * 300})
    in_doubt = world.crashed("pay", "hop.after_step", nth=2)
    world.kit.recover()
    for _ in range(3):
        world.kit.clock.advance(days=20)
        world.archive()
        world.kit.run_job("retention")
    for each in (tx_id, in_doubt):
        assert kept(world, each) == (True, True)
    assert rows(world, "step_begun", in_doubt) == 1
    if pipeline == "wait":
        assert world.kit.client.set_switch(tx_id, "go", 1)
        assert world.kit.status(tx_id).status == "success"


def test_one_that_has_just_ended_keeps_its_old_journal(make_world: MakeWorld) -> None:
    world = make_world(keep_journal_days=1, keep_states_days=1)
    tx_id = world.asleep_and_gone("rest", {"seconds": 86_400 * 10})
    world.kit.advance(days=10)
    world.kit.advance(seconds=61)
    assert world.kit.status(tx_id).status == "success"
    assert kept(world, tx_id) == (True, True)


def test_everything_that_is_old_goes_in_one_run_in_bounded_batches(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH_MAX", 2)
    world = make_world(keep_states_days=1, keep_journal_days=1, keep_summaries_days=2)
    tx_ids = [world.kit.submit("quick", {}) for _ in range(9)]
    world.kit.advance(seconds=61)
    world.evict(*tx_ids)
    world.kit.clock.advance(days=1.5)
    batches: list[int] = []
    drop = Retention.drop

    def counted(*arguments: Any, **options: Any) -> Any:
        dropped = drop(*arguments, **options)
        batches.append(dropped.looked)
        return dropped

    monkeypatch.setattr(Retention, "drop", counted)
    result = world.kit.run_job("retention")
    assert (result.states, result.journals, result.summaries) == (9, 9, 0)
    assert max(batches) == 2
    world.kit.clock.advance(days=1)
    result = world.kit.run_job("retention")
    assert (result.states, result.journals, result.summaries) == (0, 0, 9)


def test_a_run_ends_when_its_time_is_over_and_every_kind_had_its_turn(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH_MAX", 1)
    world = make_world(keep_states_days=1, keep_journal_days=1)
    for _ in range(9):
        world.kit.submit("quick", {})
    world.kit.advance(seconds=61)
    world.kit.clock.advance(days=2)
    # Each look at the clock finds a quarter of the run gone.
    ticks = count(0.0, retention.RUN_S / 4)
    with monkeypatch.context() as ticking:
        ticking.setattr("datp_tasks.jobs.retention.monotonic", lambda: next(ticks))
        result = world.kit.run_job("retention")
    assert 0 < result.states < 9
    assert 0 < result.journals < 9
    while result.states:
        result = world.kit.run_job("retention")
    assert world.sql("SELECT count(*) FROM tx_state")[0][0] == 0


# Everything that belongs to a transaction.

OF_A_TRANSACTION = (
    *("tx_summary", "tx_state", "tx_journal", "tx_state_change", "step_effect", "step_begun"),
    *("tx_event", "tx_signal", "tx_timeout", "webhook_delivery"),
)


def with_everything(world: World, tx_id: str, *, delivery: str = "delivered") -> None:
    """Rows in every table that can have some."""
    finished = "NULL" if delivery == "pending" else "now_"
    world.sql(
        f"""
        WITH t AS (SELECT tx_id, coalesce(completed_at, created_at) AS now_ FROM tx_summary
                   WHERE tx_id = :tx),
        a AS (INSERT INTO step_effect (tx_id, step_key, fence, created_at)
              SELECT tx_id, 'k', 1, now_ FROM t),
        b AS (INSERT INTO step_begun (tx_id, step_key, fence, begun_at)
              SELECT tx_id, 'k', 1, now_ FROM t),
        c AS (INSERT INTO tx_event (tx_id, sequence, kind, payload, created_at)
              SELECT tx_id, 1, 'progress', '1', now_ FROM t),
        d AS (INSERT INTO tx_signal (tx_id, name, value, created_at)
              SELECT tx_id, 'kept', '1', now_ FROM t),
        e AS (INSERT INTO tx_timeout (tx_id, expires_at, due_at, created_at)
              SELECT tx_id, now_ + interval '99 years', now_ + interval '99 years', now_ FROM t),
        f AS (INSERT INTO webhook_attempt (delivery_id, attempt, sender, begun_at)
              SELECT 'msg_' || tx_id, 1, 's', now_ FROM t)
        INSERT INTO webhook_delivery (id, tx_id, sequence, kind, owner, url, target, payload, state,
                                      begun_at, next_at, created_at, finished_at)
        SELECT 'msg_' || tx_id, tx_id, 1, 'progress', 'o', 'u', 't', '{{}}', :state, now_, now_,
               now_, {finished} FROM t
        """,
        tx=tx_id,
        state=delivery,
    )


def tables_of(world: World, tx_id: str) -> set[str]:
    found = {table for table in OF_A_TRANSACTION if rows(world, table, tx_id)}
    attempts = world.sql(
        "SELECT count(*) FROM webhook_attempt WHERE delivery_id = :id", id=f"msg_{tx_id}"
    )
    return found | ({"webhook_attempt"} if attempts[0][0] else set())


EVERYTHING = {*OF_A_TRANSACTION, "webhook_attempt"}


def ended_long_ago(world: World, **options: Any) -> str:
    tx_id = world.kit.submit("quick", {})
    with_everything(world, tx_id, **options)
    world.kit.clock.advance(seconds=61)
    world.archive()
    world.evict(tx_id)
    return tx_id


KEEP_ALL = dict.fromkeys(
    (
        *("keep_summaries_days", "keep_states_days", "keep_journal_days", "keep_effects_days"),
        *("keep_state_changes_days", "keep_events_days", "keep_webhooks_days", "keep_batches_days"),
    ),
    0,
)


@pytest.mark.parametrize(
    ("setting", "tables"),
    [
        ("keep_states_days", {"tx_state"}),
        ("keep_journal_days", {"tx_journal", "step_begun"}),
        ("keep_state_changes_days", {"tx_state_change"}),
        ("keep_effects_days", {"step_effect", "step_begun"}),
        ("keep_events_days", {"tx_event"}),
        ("keep_webhooks_days", {"webhook_delivery", "webhook_attempt"}),
        ("keep_summaries_days", EVERYTHING),
    ],
)
def test_each_kind_goes_after_its_own_time_and_nothing_else_does(
    make_world: MakeWorld, setting: str, tables: set[str]
) -> None:
    world = make_world(**{**KEEP_ALL, setting: 5})
    tx_id = ended_long_ago(world)
    young = ended_long_ago(world)
    # What outside said is of no use after the end, in any case.
    kept_until_then = EVERYTHING - {"tx_signal"}
    world.kit.clock.advance(days=4.9)
    world.kit.run_job("retention")
    assert tables_of(world, tx_id) == kept_until_then
    world.sql(
        "UPDATE tx_summary SET completed_at = completed_at + interval '1 day' WHERE tx_id = :tx",
        tx=young,
    )
    world.kit.clock.advance(days=0.2)
    world.kit.run_job("retention")
    assert tables_of(world, tx_id) == kept_until_then - tables
    assert tables_of(world, young) == kept_until_then
    world.kit.clock.advance(days=1)
    world.kit.run_job("retention")
    assert tables_of(world, young) == kept_until_then - tables


def test_nothing_of_one_that_goes_on_is_ever_dropped(make_world: MakeWorld) -> None:
    world = make_world(**dict.fromkeys(KEEP_ALL, 1))
    asleep = world.asleep_and_gone("rest", {"seconds": 86_400 * 300})
    in_doubt = world.crashed("pay", "hop.after_step", nth=2)
    world.kit.recover()
    world.archive()
    world.sql("DELETE FROM step_begun")
    for tx_id in (asleep, in_doubt):
        with_everything(world, tx_id)
    for _ in range(3):
        world.kit.clock.advance(days=20)
        world.kit.run_job("retention")
    assert tables_of(world, asleep) == tables_of(world, in_doubt) == EVERYTHING


def test_one_whose_webhook_is_still_to_be_delivered_stays(make_world: MakeWorld) -> None:
    world = make_world(**{**KEEP_ALL, "keep_summaries_days": 1, "keep_webhooks_days": 1})
    tx_id = ended_long_ago(world, delivery="pending")
    world.kit.clock.advance(days=9)
    world.kit.run_job("retention")
    assert {"tx_summary", "webhook_delivery", "webhook_attempt"} <= tables_of(world, tx_id)
    world.sql("UPDATE webhook_delivery SET state = 'dead', finished_at = created_at")
    world.kit.run_job("retention")
    assert tables_of(world, tx_id) == set()


def test_one_that_is_still_in_redis_keeps_its_row_until_it_has_left(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archiver was behind: it would write a copy and a journal of what nothing knows of."""
    monkeypatch.setattr(retention, "BATCH_MAX", 1)
    world = make_world(**{**KEEP_ALL, "keep_summaries_days": 1})
    late = world.kit.submit("quick", {})
    gone = ended_long_ago(world)
    world.kit.clock.advance(days=9)
    world.kit.run_job("retention")
    assert (rows(world, "tx_summary", late), rows(world, "tx_summary", gone)) == (1, 0)
    world.archive()
    world.evict(late)
    world.kit.run_job("retention")
    assert rows(world, "tx_summary", late) == rows(world, "tx_state", late) == 0


def test_many_that_go_on_do_not_keep_younger_ones_that_have_ended(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH_MAX", 2)
    world = make_world(**{**KEEP_ALL, "keep_states_days": 1})
    asleep = [world.kit.submit("rest", {"seconds": 86_400 * 300}) for _ in range(7)]
    ended = ended_long_ago(world)
    world.kit.clock.advance(days=2)
    world.kit.run_job("retention")
    assert rows(world, "tx_state", ended) == 0
    assert all(rows(world, "tx_state", each) for each in asleep)


# Batches of ledgers.

BATCH = """
WITH s AS (INSERT INTO ledger_service (service_id, kind, url, created_at)
           VALUES ('s', 'sawtooth', 'u', now()) ON CONFLICT DO NOTHING),
a AS (INSERT INTO batch_attempt (service_id, batch_id, attempt, epoch, sender, begun_at)
      VALUES ('s', :id, 1, 1, 'x', :now)),
l AS (INSERT INTO batch_status (service_id, batch_id, state, source, seen_at)
      VALUES ('s', :id, 'NEW', 'x', :now))
INSERT INTO ledger_batch (service_id, batch_id, seq, owner, fingerprint, payload, state, next_at,
                          tx_id, created_at, final_at)
VALUES ('s', :id, :seq, 'o', 'f', 'p', :state, 'infinity', :tx, :now, :final)
"""


def test_a_batch_goes_with_its_attempts_once_it_and_its_transaction_have_ended(
    make_world: MakeWorld,
) -> None:
    world = make_world(**{**KEEP_ALL, "keep_batches_days": 5})
    now = world.kit.connections.record.server_now()
    asleep = world.kit.submit("rest", {"seconds": 86_400 * 300})
    batches: list[tuple[str, str, str | None]] = [
        ("old", "COMMITTED", None),
        ("open", "NEW", None),
        ("awaited", "COMMITTED", asleep),
    ]
    for seq, (name, state, tx_id) in enumerate(batches, start=1):
        final = None if state == "NEW" else now
        world.sql(BATCH, id=name, seq=seq, state=state, tx=tx_id, now=now, final=final)
    later = now + timedelta(days=3)
    world.sql(BATCH, id="young", seq=9, state="COMMITTED", tx=None, now=later, final=later)
    world.kit.clock.advance(days=6)
    result = world.kit.run_job("retention")
    assert result.batches == 1
    for table in ("ledger_batch", "batch_attempt", "batch_status"):
        found = world.sql(f"SELECT batch_id FROM {table} ORDER BY 1")
        assert [row.batch_id for row in found] == ["awaited", "open", "young"]


# Rules of owners and pipelines.

ADMIN = Actor(name="cli ann", role=Role.ADMIN)
TX_TABLES = (
    *("tx_summary", "tx_state", "tx_journal", "tx_state_change", "step_effect", "tx_event"),
    "webhook_delivery",
)


def rule(world: World, kind: Any, name: str, days: int) -> None:
    changes = world.kit.operator.retention
    changes.set(RetentionRule(kind, name, days), actor=ADMIN, reason="contract 7")


def ended(world: World, owner: str, pipeline: str = "quick") -> str:
    tx_id = world.kit.client.submit(pipeline, {}, owner=owner).tx_id
    world.sql(
        """
        INSERT INTO webhook_delivery (id, tx_id, sequence, kind, owner, url, target, payload,
                                      begun_at, next_at, created_at, state, finished_at)
        SELECT 'msg_' || tx_id, tx_id, 9, 'final', owner, 'x', 'x', '{}', completed_at,
               completed_at, completed_at, 'delivered', completed_at
        FROM tx_summary WHERE tx_id = :tx
        """,
        tx=tx_id,
    )
    world.sql(
        """
        WITH effect AS (INSERT INTO step_effect VALUES (:tx, '1', 1, NULL, now()))
        INSERT INTO tx_event (tx_id, sequence, kind, payload, created_at)
        VALUES (:tx, 1, 'progress', '{}', now())
        """,
        tx=tx_id,
    )
    world.sql(
        "INSERT INTO alert (kind, subject, summary, cleared_at) VALUES ('t', :tx, 'x', now())",
        tx=tx_id,
    )
    return tx_id


def settled(world: World, *tx_ids: str) -> None:
    """They are archived, and out of Redis."""
    world.kit.advance(seconds=61)
    world.evict(*tx_ids)


def left(world: World, tx_id: str) -> list[str]:
    """The tables that say something of it."""
    found = [table for table in TX_TABLES if rows(world, table, tx_id)]
    [alerts] = world.sql("SELECT count(*) AS n FROM alert WHERE subject = :tx", tx=tx_id)
    return found + (["alert"] if alerts.n else [])


ALL_TABLES = [*TX_TABLES, "alert"]


@pytest.mark.parametrize(("kind", "name"), [("owner", "acme"), ("pipeline", "quick")])
def test_a_rule_drops_what_it_is_about_in_every_table_and_nothing_else(
    make_world: MakeWorld, kind: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "BATCH_MAX", 2)
    world = make_world()
    mine = [ended(world, "acme") for _ in range(5)]
    other = ended(world, "zeta", "pay")
    settled(world, *mine, other)
    rule(world, kind, name, 10)
    world.kit.advance(days=9.5)
    assert [left(world, tx_id) for tx_id in mine] == [ALL_TABLES] * 5
    world.kit.advance(days=1)
    assert [left(world, tx_id) for tx_id in mine] == [[]] * 5
    assert left(world, other) == ALL_TABLES


def test_a_rule_counts_instead_of_the_settings_also_if_it_says_longer(
    make_world: MakeWorld,
) -> None:
    kinds = ("states", "journal", "state_changes", "effects", "events", "webhooks")
    days = {f"keep_{kind}_days": 2 for kind in kinds}
    world = make_world(**days, keep_summaries_days=3)
    kept_longer, other = ended(world, "bank"), ended(world, "zeta")
    settled(world, kept_longer, other)
    rule(world, "owner", "bank", 20)
    world.kit.advance(days=5)
    assert (left(world, kept_longer), left(world, other)) == (ALL_TABLES, [])
    world.kit.advance(days=16)
    assert left(world, kept_longer) == []


def test_of_two_rules_the_longer_one_counts_and_without_it_the_other_again(
    make_world: MakeWorld,
) -> None:
    world = make_world()
    tx_id = ended(world, "acme")
    settled(world, tx_id)
    rule(world, "owner", "acme", 5)
    rule(world, "pipeline", "quick", 50)
    world.kit.advance(days=10)
    assert left(world, tx_id) == ALL_TABLES
    rules = world.kit.operator.retention
    assert rules.remove("pipeline", "quick", actor=ADMIN, reason="over")
    assert not rules.remove("pipeline", "quick", actor=ADMIN, reason="over")
    world.kit.run_job("retention")
    assert left(world, tx_id) == []
    noted = world.sql("SELECT action, subject FROM operator_action WHERE action LIKE 'retention%'")
    assert [tuple(each) for each in noted] == [
        ("retention.set", "owner acme"),
        ("retention.set", "pipeline quick"),
        ("retention.remove", "pipeline quick"),
    ]


def test_what_cannot_go_yet_goes_later_although_others_behind_it_went(
    make_world: MakeWorld,
) -> None:
    world = make_world()
    first, second = ended(world, "acme"), ended(world, "acme")
    settled(world, first, second)
    pending = "UPDATE webhook_delivery SET state = 'pending', finished_at = NULL"
    world.sql(f"{pending} WHERE tx_id = :tx", tx=first)
    rule(world, "owner", "acme", 5)
    world.kit.advance(days=6)
    assert (left(world, first), left(world, second)) == (ALL_TABLES, [])
    dead = "UPDATE webhook_delivery SET state = 'dead', finished_at = now()"
    world.sql(f"{dead} WHERE tx_id = :tx", tx=first)
    world.kit.run_job("retention")
    assert left(world, first) == []


def test_batches_of_an_owner_follow_its_rule(make_world: MakeWorld) -> None:
    world = make_world(keep_batches_days=2)
    world.sql(
        "INSERT INTO ledger_service (service_id, kind, url, created_at) "
        "VALUES ('s', 'sawtooth', 'x', now())"
    )
    for number, owner in enumerate(("bank", "acme", "zeta")):
        world.sql(
            """
            INSERT INTO ledger_batch (service_id, batch_id, seq, owner, fingerprint, payload,
                                      next_at, created_at, final_at, state)
            VALUES ('s', :id, :number, :owner, 'f', '', :now, :now, :now, 'COMMITTED')
            """,
            id=owner,
            number=number + 1,
            owner=owner,
            now=world.kit.clock.now(),
        )
    rule(world, "owner", "bank", 20)
    rule(world, "owner", "acme", 1)

    def owners() -> set[str]:
        return {row.owner for row in world.sql("SELECT owner FROM ledger_batch")}

    world.kit.advance(days=1.5)
    assert owners() == {"bank", "zeta"}
    world.kit.advance(days=1)
    assert owners() == {"bank"}
    world.kit.advance(days=20)
    assert owners() == set()


def test_cleared_alerts_are_dropped_and_open_ones_stay(make_world: MakeWorld) -> None:
    world = make_world(keep_alerts_days=30)
    alerts = Alerts(world.kit.connections.engine, world.kit.connections.clock)
    for kind in ("t-open", "t-cleared"):
        alerts.raise_alert(kind, "x", "x")
    alerts.clear_alert("t-cleared", "x")

    def kinds() -> list[str]:
        found = world.sql("SELECT kind FROM alert WHERE kind LIKE 't-%' ORDER BY 1")
        return [row.kind for row in found]

    world.kit.advance(days=29)
    assert kinds() == ["t-cleared", "t-open"]
    world.kit.advance(days=2)
    assert kinds() == ["t-open"]
