"""What an operator's action did to one transaction: a retry, or a part of a bulk action or erasure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ActionResult:
    tx_id: str
    #: What was done, or why nothing was.
    what: str
    ok: bool
