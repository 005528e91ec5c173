"""Whether a worker has work of several owners decides how long their vectors are."""

from __future__ import annotations

import pytest

from datp_tasks.engine import recent_owners
from datp_tasks.engine.recent_owners import RECENT_S, RecentOwners


class HandSetTime:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> HandSetTime:
    found = HandSetTime()
    monkeypatch.setattr(recent_owners, "time", found)
    return found


def test_an_owner_is_no_other_to_itself(time: HandSetTime) -> None:
    owners = RecentOwners()
    assert not owners.are_others("ann")
    owners.saw(["ann", "ann"])
    assert not owners.are_others("ann")
    assert owners.are_others("bob")


def test_an_owner_counts_for_a_moment_after_its_last_transaction(time: HandSetTime) -> None:
    owners = RecentOwners()
    owners.saw(["bob"])
    time.now_s += RECENT_S * 0.9
    owners.saw(["ann"])
    assert owners.are_others("ann")
    time.now_s += RECENT_S * 0.2
    # Also without anything new: the worker may have had nothing to do since.
    assert not owners.are_others("ann")
    owners.saw(["bob"])
    assert owners.are_others("ann")


def test_owners_of_long_ago_are_forgotten(time: HandSetTime) -> None:
    owners = RecentOwners()
    for number in range(1_000):
        time.now_s += RECENT_S
        owners.saw([f"owner-{number}"])
    assert owners.are_others("owner-0")
