"""Faults on command, for real workers under test.

A worker that imports this module (name it in DATP_STEPS) finds every boundary, and follows the
orders in the file that DATP_STEER_FILE names:

    {"token": "7", "point": "script:claim:after", "nth": 1, "action": "kill"}

The first process that passes the point for the nth time since the order came writes its process
id to `<file>.<token>` and then does what the order says; no other process does it again. The
action `record` writes down the names of all points that are passed, in `<file>.<token>`.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from datp_tasks import failpoints
from datp_tasks.testing import boundaries

VARIABLE = "DATP_STEER_FILE"


def give_order(path: Path, token: str, *, point: str = "", nth: int = 1, action: str) -> Path:
    """Let the workers that follow this file do something; where they tell that they did."""
    order = {"token": token, "point": point, "nth": nth, "action": action}
    # A reader sees the old order or the new one, never half of one.
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text(json.dumps(order))
    fresh.replace(path)
    return _told_in(path, token)


class Steered:
    """Listens to every point that this process passes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_ns = 0
        self._order: Mapping[str, Any] = {}
        self._passed: Counter[str] = Counter()

    def reached(self, name: str) -> None:
        self._look_for_orders()
        order = self._order
        if not order:
            return
        told = _told_in(self._path, order["token"])
        if order["action"] == "record":
            with told.open("a") as file:
                file.write(f"{name}\n")
            return
        self._passed[name] += 1
        if name == order["point"] and self._passed[name] == order["nth"]:
            try:
                with told.open("x") as file:
                    file.write(str(os.getpid()))
            except FileExistsError:
                return
            failpoints.perform(order["action"])

    def _look_for_orders(self) -> None:
        try:
            written_ns = self._path.stat().st_mtime_ns
        except FileNotFoundError:
            return
        if written_ns != self._read_ns:
            self._read_ns = written_ns
            self._order = json.loads(self._path.read_text())
            self._passed.clear()


def _told_in(path: Path, token: str) -> Path:
    return path.with_name(f"{path.name}.{token}")


if os.environ.get(VARIABLE):
    boundaries.install()
    failpoints.watch(Steered(Path(os.environ[VARIABLE])).reached)
