"""The step types that come with the package; importing this registers them all."""

from __future__ import annotations

from datp_tasks.engine.builtin import (
    approval,
    bulk_transfer,
    child_pipeline,
    delay,
    fixed_reply,
    http_request,
    link_legs,
    mandatory_fields,
    map_fields,
    progress_report,
    submit_batch,
    wait,
)

__all__ = [
    "approval",
    "bulk_transfer",
    "child_pipeline",
    "delay",
    "fixed_reply",
    "http_request",
    "link_legs",
    "mandatory_fields",
    "map_fields",
    "progress_report",
    "submit_batch",
    "wait",
]
