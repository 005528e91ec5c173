"""A context made by hand, and helpers, for the tests of the shipped step types."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from datp_tasks.engine.registry import StepType


@dataclass(kw_only=True)
class HandMadeContext:
    params: Mapping[str, Any] = field(default_factory=dict)
    switches: Mapping[str, Any] = field(default_factory=dict)
    sleeps: int = 0
    attempt: int = 1
    tx_id: str = "tx-1"
    idempotency_key: str = "tx-1/2"
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("tests.builtin"))
    reports: list[Any] = field(default_factory=list)
    http_hosts: tuple[str, ...] = ()
    is_sealed: bool = False

    def progress(self, report: Any) -> None:
        self.reports.append(report)

    def switch(self, name: str) -> Any:
        return self.switches.get(name)


def mistakes(step_type: StepType, **params: Any) -> list[str]:
    """What the step type says about the params of a step definition."""
    assert step_type.check_function is not None
    return step_type.check_function(params)


def run(step_type: StepType, data: Any, *, sleeps: int = 0, **params: Any) -> Any:
    """Run a step with params that must be without mistakes."""
    assert mistakes(step_type, **params) == []
    return step_type(HandMadeContext(params=params, sleeps=sleeps), data)
