"""Retry policies: growing pauses that stay in their bounds."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datp_tasks.model.backoff import RetryPolicy


def test_pauses_grow_by_the_factor_up_to_the_maximum() -> None:
    policy = RetryPolicy(first_s=1, factor=2, max_s=10, jitter=0)
    pauses = [policy.delay_s(attempt, random.Random(1)) for attempt in range(1, 7)]
    assert pauses == [1, 2, 4, 8, 10, 10]


def test_jitter_spreads_pauses_around_the_delay() -> None:
    policy = RetryPolicy(first_s=100, factor=1, jitter=0.1)
    rng = random.Random(7)
    pauses = [policy.delay_s(1, rng) for _ in range(1_000)]
    assert 90 <= min(pauses) < 92
    assert 108 < max(pauses) <= 110


@pytest.mark.parametrize(
    ("given_policy", "message"),
    [
        ({"max_attempts": 0}, "retry.max_attempts must be 1 or more, was 0"),
        ({"max_attempts": 1.5}, "retry.max_attempts must be a whole number"),
        ({"first_s": -1}, "retry.first_s must be 0 or more, was -1"),
        ({"first_s": float("nan")}, "retry.first_s must be 0 or more, was nan"),
        ({"factor": 0.5}, "retry.factor must be 1 or more, was 0.5"),
        ({"max_s": -0.1}, "retry.max_s must be 0 or more, and finite, was -0.1"),
        ({"max_s": float("inf")}, "retry.max_s must be 0 or more, and finite, was inf"),
        ({"jitter": 1.1}, "retry.jitter must be from 0 to 1, was 1.1"),
        ({"first_s": "1"}, "retry.first_s must be a number, was '1'"),
        ({"max_attempts": True}, "retry.max_attempts must be a number, was True"),
        (
            {"attempts": 3},
            "retry.attempts is unknown; known are max_attempts, first_s, factor, max_s, jitter",
        ),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(
    given_policy: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError) as refused:
        RetryPolicy.from_mapping(given_policy)
    assert str(refused.value) == message


def test_a_policy_keeps_what_it_is_given() -> None:
    policy = RetryPolicy.from_mapping({"max_attempts": 5, "first_s": 0.5})
    assert (policy.max_attempts, policy.first_s, policy.factor) == (5, 0.5, 2.0)


@settings(deadline=None)
@given(
    attempt=st.integers(1, 10_000),
    first_s=st.floats(0, 1e9),
    factor=st.floats(1, 1e9) | st.integers(1, 10**9),
    max_s=st.floats(0, 1e9),
    jitter=st.floats(0, 1),
    seed=st.integers(0, 100),
)
def test_every_pause_is_a_time_one_can_wait(
    attempt: int, first_s: float, factor: float, max_s: float, jitter: float, seed: int
) -> None:
    policy = RetryPolicy(first_s=first_s, factor=factor, max_s=max_s, jitter=jitter)
    pause = policy.delay_s(attempt, random.Random(seed))
    assert 0 <= pause <= max_s * (1 + jitter) * 1.000001
