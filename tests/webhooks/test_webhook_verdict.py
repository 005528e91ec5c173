"""What answers mean, and how long to wait. No I/O."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

from datp_tasks.outbound.messages import NotSent, Response
from datp_tasks.record.webhook_queue import ClaimedDelivery
from datp_tasks.settings import Settings
from datp_tasks.webhooks.verdict import outcome_of, policy, retry_after_s

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
SETTINGS = Settings()


def claimed(try_number: int = 1) -> ClaimedDelivery:
    return ClaimedDelivery(
        id="msg",
        member=("t00-" + "0" * 32, 1, "ann"),
        owner="ann",
        url="https://example.com/",
        target="https://example.com/",
        payload="{}",
        attempt=try_number,
        try_number=try_number,
        at=NOW,
        is_probe=False,
    )


def decide(status: int, try_number: int = 1, **headers: str) -> tuple[str, float, bool]:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    found = outcome_of(
        claimed(try_number), Response(status, headers=names), SETTINGS, random.Random(1), took_ms=1
    )
    return found.state, found.wait_s, found.is_fault


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_2xx_delivers(status: int) -> None:
    assert decide(status)[0] == "delivered"


@pytest.mark.parametrize("status", [300, 301, 307, 400, 401, 403, 404, 408, 500, 502, 503, 599])
def test_all_else_is_tried_again_and_speaks_against_the_target(status: int) -> None:
    state, wait_s, is_fault = decide(status)
    assert (state, is_fault) == ("pending", True)
    assert wait_s == pytest.approx(5, rel=0.11)


def test_the_last_try_makes_a_dead_letter() -> None:
    assert decide(500, try_number=9)[0] == "pending"
    assert decide(500, try_number=10)[0] == "dead"
    error = outcome_of(claimed(10), NotSent("x"), SETTINGS, random.Random(1), took_ms=1)
    assert (error.state, error.error) == ("dead", "x")


def test_the_delays_of_ten_attempts_add_up_to_three_days() -> None:
    plain = policy(SETTINGS)
    calm = random.Random()
    calm.random = lambda: 0.5  # type: ignore[method-assign]
    delays = [plain.delay_s(number, calm) for number in range(1, 10)]
    assert sum(delays) == pytest.approx(259_200, rel=0.001)
    assert delays[0] == pytest.approx(5)
    assert delays == sorted(delays)


def test_delays_are_spread() -> None:
    rng = random.Random(7)
    delays = {policy(SETTINGS).delay_s(5, rng) for _ in range(20)}
    assert len(delays) == 20
    assert max(delays) / min(delays) > 1.05


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, 0),
        ({"retry-after": "120"}, 120),
        ({"retry-after": "-5"}, 0),
        ({"retry-after": "Mon, 16 Nov 2026 12:10:00 GMT"}, 600),
        # By the receiver's own clock, which is an hour ahead.
        (
            {
                "retry-after": "Mon, 16 Nov 2026 13:10:00 GMT",
                "date": "Mon, 16 Nov 2026 13:00:00 GMT",
            },
            600,
        ),
        ({"retry-after": "Mon, 16 Nov 2026 11:00:00 GMT"}, 0),
        ({"retry-after": "in a while"}, 0),
    ],
)
def test_retry_after_is_understood_in_both_forms(headers: dict[str, str], wait_s: float) -> None:
    assert retry_after_s(Response(429, headers=headers), NOW) == wait_s


def test_patience_has_a_limit_and_never_shortens_the_delay() -> None:
    assert decide(503, retry_after="1")[1] == pytest.approx(5, rel=0.11)
    assert decide(503, retry_after="999999999")[1] == 86_400
