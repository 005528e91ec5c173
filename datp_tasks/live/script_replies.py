"""What replies of scripts mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from datp_tasks.live.live_types import Bell, Claimed, Refused, flat_to_dict
from datp_tasks.live.scripts import Reply

#: Of one that has never run, and of which its client said nothing special.
NEW_FIELDS = ("owner", "group", "pipeline", "stepType", "place", "state")


def claimed(tx_id: str, reply: Reply) -> Claimed | Refused:
    """What the claim script answered."""
    if reply[0] == "NEW":
        _, fence, opened, *values = reply
        return Claimed(
            tx_id, int(fence), dict(zip(NEW_FIELDS, values, strict=True)), [], opened == 1
        )
    if reply[0] == "OK":
        _, fence, opened, flat, deltas = reply
        return Claimed(tx_id, int(fence), flat_to_dict(flat), deltas, opened == 1)
    return Refused(tx_id, reply[0], str(reply[1]))


def bells_of(tx_ids: Sequence[str], replies: Sequence[Reply]) -> list[Bell | Refused]:
    return [
        bell_or_refused(tx, reply[0], reply[1], "OK")
        for tx, reply in zip(tx_ids, replies, strict=True)
    ]


def bell_or_refused(tx_id: str, word: str, found: Any, bell_word: str) -> Bell | Refused:
    if word == bell_word:
        return Bell.from_reply(tx_id, found)
    return Refused(tx_id, word, str(found))
