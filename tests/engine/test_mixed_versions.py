"""Old and new workers together: what one version wrote, the version before and after can read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from datp_tasks import Pipeline
from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.live.live_types import Bell
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit

#: What a hash has had from the beginning; everything else came later, or may be missing anyway.
FIRST_FIELDS = (
    *("status", "owner", "pipeline", "group", "stepType", "place", "priority"),
    *("fence", "sequence", "version", "jsonVersion", "state"),
)


@pytest.fixture
def queued(datp: Kit) -> str:
    """One that waits for its first claim."""

    @datp.step("t/add")
    def add(ctx: Any, data: dict[str, Any]) -> dict[str, Any]:
        return {"n": data["n"] + 1}

    datp.use(Pipeline("add").step("t/add").step("t/add", dispatch="queue").build())
    datp.lose_bells()
    tx_id = datp.submit("add", {"n": 1}, external_id="o-1", metadata={"m": 1})
    datp.lose_bells(False)
    return tx_id


def ring(kit: Kit, tx_id: str) -> None:
    bells = kit.connections.live.ring_again_many([tx_id])
    kit.connections.bells.ringer.ring([each for each in bells if isinstance(each, Bell)])


def test_a_hash_without_the_newer_fields_is_claimed_and_goes_on(datp: Kit, queued: str) -> None:
    live = datp.connections.live
    key = live.keys.state(queued)
    newer = [name for name in live.fields_many([queued])[0] if name not in FIRST_FIELDS]
    assert newer
    live.redis.hdel(key, *newer)
    ring(datp, queued)
    assert datp.status(queued).status is Status.SUCCESS
    assert datp.status(queued).output == {"n": 3}


def test_a_version_that_was_counted_is_followed_by_one_that_follows_the_clock(
    datp: Kit, queued: str
) -> None:
    live = datp.connections.live
    live.redis.hset(live.keys.state(queued), mapping={"version": "3", "jsonVersion": "3"})
    ring(datp, queued)
    assert datp.status(queued).output == {"n": 3}
    first = ArchiveFeed(live).waiting_entries([queued])[queued][0]
    assert (first.kind, first.before) == ("claim", 3)
    assert first.version >= live.server_now_ms()


def test_fields_and_keys_of_a_newer_version_do_not_stop_an_older_one(
    datp: Kit, queued: str
) -> None:
    live = datp.connections.live
    key = live.keys.state(queued)
    state = json.loads(live.fields_many([queued])[0]["state"])
    newer = ["ofTheFuture", "kept", "state", json.dumps({**state, "laterKey": [1]})]
    live.redis.hset(key, items=newer)
    ring(datp, queued)
    assert datp.status(queued).output == {"n": 3}
    assert live.fields_many([queued])[0]["ofTheFuture"] == "kept"


def test_a_bell_for_a_step_type_that_only_the_others_have_loses_nothing(
    datp: Kit, queued: str
) -> None:
    datp.process.note_unknown_step("datp.step.t/new", ([[queued, 1]], {}, {}))
    fields = datp.connections.live.fields_many([queued])[0]
    assert fields["status"] == "queued"
    ring(datp, queued)
    assert datp.status(queued).status is Status.SUCCESS
