"""Targets that fail again and again are left alone for a while, and the operator is told.

A target is one of an owner: what fails for one owner is tried for another all the same, so no
owner can keep another from being told.

Failures in a row are counted in Redis, under a key that ends by itself after the period in which
they count. After so many of them the target is disabled in SQL; when that time is over, one
attempt at a time finds out whether it is back.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from datp_tasks.live.webhook_failures import Tries, WebhookFailures
from datp_tasks.record.webhook_queue import (
    DeliveryOutcome,
    Member,
    Receiver,
    WebhookQueue,
    subject_of,
)
from datp_tasks.settings import Settings

log = logging.getLogger("datp.webhooks")


class Breaker:
    def __init__(self, settings: Settings, failures: WebhookFailures, queue: WebhookQueue) -> None:
        self._settings = settings
        self._failures = failures
        self._queue = queue

    def learn(self, outcomes: Sequence[DeliveryOutcome]) -> list[Member]:
        """What these attempts say of their targets; what waited for one that is back is due now."""
        released: list[Member] = []
        by_receiver: dict[Receiver, list[DeliveryOutcome]] = {}
        for each in outcomes:
            by_receiver.setdefault(each.claimed.receiver, []).append(each)
        counts = self._count(by_receiver)
        for receiver, group in by_receiver.items():
            released += self._judge(receiver, group, counts.get(subject_of(receiver), 0))
        return released

    def _count(self, by_receiver: dict[Receiver, list[DeliveryOutcome]]) -> dict[str, int]:
        """Failures in a row of each target, these included; a success starts anew."""
        period_ms = int(self._settings.webhook_fail_period_s * 1_000)
        tries = {
            subject_of(receiver): Tries(
                failed=sum(each.is_fault for each in group),
                arrived=any(each.state == "delivered" for each in group),
            )
            for receiver, group in by_receiver.items()
        }
        return self._failures.count(tries, period_ms=period_ms)

    def _judge(self, receiver: Receiver, group: list[DeliveryOutcome], count: int) -> list[Member]:
        faults = [each for each in group if each.is_fault]
        is_probed = any(each.claimed.is_probe for each in group)
        released: list[Member] = []
        if is_probed and not faults:
            released = self._enable(receiver)
        elif faults and (is_probed or count >= self._settings.webhook_fails_max):
            self._disable(receiver, faults[-1], count)
        for each in faults:
            if each.state == "dead":
                self._bury(receiver, each)
        return released

    def _disable(self, receiver: Receiver, fault: DeliveryOutcome, count: int) -> None:
        disable_s = self._settings.webhook_disable_s
        owner, target = receiver
        failed = f"webhooks of {owner} to {target} failed {count} times in a row"
        reason = f"{failed}; the last: {fault.error}"
        if self._queue.disable(receiver, disable_s, reason):
            log.error("%s; nothing is sent there for %g s", reason, disable_s)
        self._failures.forget(subject_of(receiver))

    def _enable(self, receiver: Receiver) -> list[Member]:
        released = self._queue.enable(receiver)
        if released is None:
            return []
        log.warning("webhooks of %s to %s arrive again; %d waited", *receiver, len(released))
        return released

    def _bury(self, receiver: Receiver, outcome: DeliveryOutcome) -> None:
        claimed = outcome.claimed
        reason = f"{claimed.id} was given up after {claimed.try_number} tries: {outcome.error}"
        log.error("%s", reason)
        self._queue.alarm_dead(receiver, reason)
