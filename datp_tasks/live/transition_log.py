"""A line in the log for every transition: one script, one event name.

Only at DEBUG, because there are thousands a second; at INFO a hop has one line for its vector.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datp_tasks.live.scripts import Reply, ScriptCall

log = logging.getLogger("datp.transition")

#: Answers that tell a fence which the caller did not have before.
GIVES_FENCE = {("claim", "OK"), ("claim", "NEW"), ("stop", "SEIZED")}


def say(answered: Iterable[tuple[ScriptCall, Reply]]) -> None:
    for call, reply in answered:
        _, is_state, tx_id = call.keys[0].partition(":stateH:")
        if not is_state:
            continue
        name, word = call.script.name, str(reply[0])
        fence = reply[1] if (name, word) in GIVES_FENCE else call.argument("fence")
        about = {"event": f"tx.{name}", "tx": tx_id, "fence": _number(fence), "answer": word}
        log.debug("%s %s: %s", tx_id, name, word, extra=about)


def _number(fence: str | int | None) -> int | None:
    return int(fence) if fence not in (None, "") else None
