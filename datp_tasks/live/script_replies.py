"""What replies of scripts mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from datp_tasks.live.live_types import Bell, Claimed, Refused, flat_to_dict
from datp_tasks.live.scripts import Reply


def claimed(tx_id: str, reply: Reply) -> Claimed | Refused:
    """What the claim script answered."""
    if reply[0] == "NEW":
        # It has never run, and its client said nothing special.
        _, fence, opened, owner, group, pipeline, step_type, place, state = reply
        fields = {
            "owner": owner,
            "group": group,
            "pipeline": pipeline,
            "stepType": step_type,
            "place": place,
            "state": state,
        }
        return Claimed(tx_id, int(fence), fields, [], opened == 1)
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
