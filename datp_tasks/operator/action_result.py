"""What an action of an operator did to one transaction: alone, or as one of many."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ActionResult:
    tx_id: str
    #: What was done, or why nothing was.
    what: str
    ok: bool
