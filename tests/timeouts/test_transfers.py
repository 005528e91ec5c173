"""The data of the benchmark: the seed's distribution, the same rows for the same seed."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from benchmarks import seed_timeouts
from benchmarks.timeout_tables import Loader, create_seed_tables
from benchmarks.transfers import (
    EXPIRED,
    OTHERS_BETWEEN_MAX,
    STILL_RESERVED,
    VARIANTS,
    Change,
    Variant,
    changes,
    transfers,
)
from datp_tasks.testing import Kit
from tests.timeouts.change_log import ChangeLog

TOTAL, DUE = 20_000, 20

each_variant = pytest.mark.parametrize("variant", VARIANTS)


@each_variant
def test_the_same_seed_gives_the_same_rows(variant: Variant) -> None:
    def made(seed: int) -> list[Change]:
        return list(changes(500, 5, variant, seed))

    assert made(1) == made(1)
    assert made(1) != made(2)


@each_variant
def test_exactly_so_many_have_expired(variant: Variant) -> None:
    expired = [t for t in transfers(TOTAL, DUE, variant, 7) if t.states in EXPIRED]
    late = [t for t in expired if t.expires_in_ms < 0]
    # What is still reserved has the same states as half of the expired, but time left.
    assert len(late) == DUE
    assert {t.states for t in late} == set(EXPIRED)


def test_one_in_nine_is_still_reserved_and_a_transfer_has_three_and_a_half_rows() -> None:
    made = list(transfers(TOTAL, DUE, "contiguous", 7))
    live = [t for t in made if t.states == STILL_RESERVED and t.expires_in_ms > 0]
    assert len(live) == pytest.approx(TOTAL / 9, rel=0.1)
    assert sum(len(t.states) for t in made) / TOTAL == pytest.approx(32 / 9, rel=0.02)
    hours = [t.expires_in_ms / 3_600_000 for t in live]
    assert min(hours) >= 1
    assert max(hours) <= 169


def test_finalised_history_has_little_that_is_live() -> None:
    made = list(transfers(TOTAL, DUE, "finalised", 7))
    live = [t for t in made if not t.is_over]
    assert len(live) == pytest.approx(TOTAL / 100, rel=0.4)
    assert all(t.expires_in_ms < 0 for t in made if t.is_over)


@each_variant
def test_the_states_of_a_transfer_come_in_order_and_all_of_them(variant: Variant) -> None:
    seen: dict[str, list[str]] = {}
    for change in changes(2_000, 10, variant, 7):
        states = seen.setdefault(change.transfer.transfer_id, [])
        assert change.is_first == (not states)
        states.append(change.state)
        assert tuple(states) == change.transfer.states[: len(states)]
    assert len(seen) == 2_000


def test_rows_of_a_transfer_lie_together_or_apart() -> None:
    together = [c.transfer.transfer_id for c in changes(2_000, 10, "contiguous", 7)]
    runs = 1 + sum(a != b for a, b in pairwise(together))
    assert runs == 2_000
    apart = [c.transfer.transfer_id for c in changes(2_000, 10, "interleaved", 7)]
    assert sum(a == b for a, b in pairwise(apart)) < 50
    assert OTHERS_BETWEEN_MAX > 2_000
    assert Counter(together) == Counter(apart)


@each_variant
def test_both_handlers_watch_what_is_live_and_the_seed_forgets_to_clean_up(
    datp: Kit, log: ChangeLog, variant: Variant
) -> None:
    """Otherwise the benchmark would compare apples with pears."""
    create_seed_tables(log.engine)
    try:
        loader = Loader(log.engine, changes(3_000, 30, variant, 7), log.now)
        while loader.load(1_000):
            seed_timeouts.run_once(log.engine)
            log.read()
        # The seed cleans up before it reads.
        seed_timeouts.run_once(log.engine)
        live = {t.transfer_id for t in transfers(3_000, 30, variant, 7) if not t.is_over}
        assert set(log.watched()) == live
        theirs = {r[0] for r in log.select("SELECT transfer_id FROM seed.transfer_timeout")}
        assert live <= theirs
        ends = {t.transfer_id: t.states[-1] for t in transfers(3_000, 30, variant, 7)}
        leaked = {ends[transfer_id] for transfer_id in theirs - live}
        assert leaked <= {"PENDING_SETTLEMENT", "SETTLED"}
    finally:
        with log.engine.begin() as sql:
            sql.exec_driver_sql("DROP SCHEMA seed CASCADE")
