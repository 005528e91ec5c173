"""A worker of the version before, while those of this one run: its scripts, called as it did."""

from __future__ import annotations

from typing import Any

from datp_tasks.live.live_types import flat_to_dict
from datp_tasks.live.scripts import header_sections
from datp_tasks.model.journal import Entry
from datp_tasks.model.payload import Json, encode
from datp_tasks.model.state import (
    BEGIN,
    Delta,
    State,
    apply,
    delta_json,
    done,
    ending,
    first_state_json,
    slept,
)
from datp_tasks.model.status import Status
from datp_tasks.record.record_types import Final
from tests.upgrade.upgraded import BEFORE, Upgraded

#: Its journal entries began with the transaction id.
OLD_TX_CHARS = 36
#: Names of keys in the headers of scripts, and what they are in a shard.
LISTS = {
    "queued": "queuedZ",
    "processing": "processingZ",
    "sleeping": "sleepingZ",
    "exception": "exceptionZ",
    "to_archive": "toArchiveZ",
    "stream": "journalX",
    "counts": "countsH",
    "external": "externalId:local:old",
}


class OldWorker:
    """Runs one transaction; what it claimed stays its own until it says otherwise."""

    def __init__(self, kit: Upgraded, tx_id: str, node: str = "old-node") -> None:
        self._kit = kit
        self._live = kit.connections.live
        self._node = node
        self._live.beat(node)
        self.tx_id = tx_id
        self.fence = 0
        self.state = State([], {})

    # What its workers do.

    def claim(self) -> str:
        """The word of the answer; the first step is open if it is OK."""
        fields = self._live.fields_many([self.tx_id])[0]
        reply = self._call(
            "claim",
            sequence=fields["sequence"],
            node=self._node,
            held="",
            step_type=fields["stepType"],
            begin=delta_json(BEGIN),
        )
        if reply[0] == "OK":
            self.fence = int(reply[1])
            self.state = State.from_json(flat_to_dict(reply[2])["state"])
            apply(self.state, BEGIN)
        return str(reply[0])

    def checkpoint(self, output: Json) -> str:
        """A step is done, and the next one is open."""
        lines = self._applied(done(output, undoable=False), BEGIN)
        reply = self._call("checkpoint", fence=self.fence, snapshot=0, lines=lines, fields=())
        return str(reply[0])

    def sleep(self, seconds: float) -> str:
        reply = self._call(
            "sleep",
            fence=self.fence,
            sleep_ms=int(seconds * 1_000),
            switch="",
            seen=0,
            heed_cancel=1,
            lines=self._applied(slept(seconds, None)),
            json=self.state.to_json(),
            fields=self._position("out"),
        )
        return str(reply[0])

    def hand_over(self, output: Json) -> str:
        """A step is done, and the next one is for another worker."""
        reply = self._call(
            "hand_over",
            fence=self.fence,
            snapshot=0,
            lines=self._applied(done(output, undoable=False)),
            json=self.state.to_json(),
            fields=self._position("out"),
        )
        return str(reply[0])

    def finish(self, output: Json) -> tuple[bool, str]:
        """Whether SQL let it end the transaction, and what Redis said."""
        lines = self._applied(done(output, undoable=False), ending(Status.SUCCESS, "", output))
        final = Final(
            tx_id=self.tx_id,
            fence=self.fence,
            status=Status.SUCCESS,
            output_json=encode(output),
            note=None,
        )
        won = self._kit.connections.record.finish_many([final])
        reply = self._call(
            "finish",
            fence=self.fence,
            status="success",
            archive_ms=self._kit.settings.delay_before_archiving_s * 1_000,
            channel=self._live.keys.notify,
            lines=lines,
            json=self.state.to_json(),
            fields=(),
        )
        return self.tx_id in won, str(reply[0])

    # What its API processes do.

    def create(self) -> str:
        """Queue what SQL has accepted, and reserve its external id, which this version does not."""
        summary = self._kit.client.status(self.tx_id)
        definition = self._kit.connections.catalogue.version(summary.pipeline, summary.version)
        state = first_state_json(summary.pipeline, summary.version, encode(summary.input))
        fields = ("owner", summary.owner, "pipeline", summary.pipeline, "group", "master")
        place = ("place", f"{summary.pipeline}/0", "priority", "in")
        reply = self._call(
            "create",
            external_ms=60_000,
            group="master",
            pipeline=summary.pipeline,
            owner=summary.owner,
            fields=(*fields, *place, "stepType", definition.steps[0].type, "state", state),
        )
        return str(reply[0])

    def _applied(self, *deltas: Delta) -> str:
        for delta in deltas:
            apply(self.state, delta)
        return "\n".join(map(delta_json, deltas))

    def _position(self, priority: str) -> tuple[str, ...]:
        frame = self.state.frame
        definition = self._kit.connections.catalogue.version(frame.pipeline, frame.version)
        place = f"{frame.pipeline}/{frame.index}"
        step_type = definition.steps[frame.index].type
        return "group", "master", "stepType", step_type, "place", place, "priority", priority

    def _call(self, name: str, **given: Any) -> list[Any]:
        """Keys and arguments by the names that the header of the script gives them."""
        source = (BEFORE / "lua" / f"{name}.lua").read_text()
        sections = header_sections(source)
        given |= {"now_ms": self._live.given_now(), "tx_id": self.tx_id}
        keys = [self._key(line.split()[0]) for line in sections["KEYS"].strip().splitlines()]
        arguments: list[Any] = []
        for line in sections["ARGV"].strip().splitlines():
            value = given[line.split()[0]]
            arguments += value if isinstance(value, tuple) else [value]
        reply: list[Any] = self._live.send([("EVAL", source, len(keys), *keys, *arguments)])[0]
        return reply

    def _key(self, name: str) -> str:
        keys = self._live.keys
        if name == "state":
            return keys.state(self.tx_id)
        if name == "deltas":
            return keys.deltas(self.tx_id)
        listed = f"runningS:{self._node}" if name == "running" else LISTS[name]
        return keys.of_tx(self.tx_id, listed)


def old_archiver_reads(fields: list[str]) -> None:
    """What an archiver of that version does with an entry of the stream; it raises or returns."""
    _, text = fields
    Entry.from_text(text[OLD_TX_CHARS + 1 :])
