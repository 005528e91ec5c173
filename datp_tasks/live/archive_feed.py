"""What leaves Redis for SQL: the journal, copies of states, and who may take them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from datp_tasks.live.cluster_redis import servers_of
from datp_tasks.live.live_types import flat_to_dict
from datp_tasks.live.scripts import CALL_BYTES_MAX, call, script
from datp_tasks.live.store import LiveStore
from datp_tasks.model.journal import Entry, is_entry, not_an_entry
from datp_tasks.model.payload import encode

READ_MAX = 5_000
#: A page may have so many times the entries of the one before it, but no more than so many: those
#: before it may have been small, and each of its own may have the changes of a whole vector.
PAGE_GROWTH = 8
PAGE_MAX = 200
#: Length of a transaction id.
TX_CHARS = 36


@dataclass(frozen=True, slots=True)
class Drained:
    """Entries read from the journals of all shards, not yet taken out."""

    #: Transaction -> its entries, as text.
    changes: Mapping[str, Sequence[str]]
    #: Shard -> how often its journal was read, counted after reading.
    marks: Mapping[str, int]
    #: Shard -> the first entry that stays.
    upto: Mapping[str, str]
    #: Changes of transactions, and the entries of the streams that they came in.
    count: int
    stream_entries: int
    #: Shards that gave as much as they may at a time, so that there may be more.
    behind: frozenset[str]

    @property
    def entries(self) -> dict[str, list[Entry]]:
        """The changes, read in full."""
        return {tx: list(map(Entry.from_text, texts)) for tx, texts in self.changes.items()}


class Copied(NamedTuple):
    """A state at one version. Of its fields there is only the text that SQL keeps: thousands of
    copies are in memory at a time."""

    version: str
    status: str
    fields_json: str
    #: No delta has followed the JSON of its state.
    is_whole: bool

    @classmethod
    def of(cls, fields: dict[str, str], deltas: list[str]) -> Self:
        is_whole = not _has_deltas(fields)
        text = encode(_with_deltas(fields, deltas))
        return cls(fields["version"], fields["status"], text, is_whole)


class ArchiveFeed:
    def __init__(self, live: LiveStore) -> None:
        self._live = live
        self._redis = live.redis
        self._keys = live.keys

    # The role.

    def take_role(self, node: str, *, role_ms: int, grace_ms: int) -> int | None:
        """The fence of the role, or None while another node has it or may still be at work."""
        keys = self._role_keys()
        order = (self._live.given_now(), node, role_ms, role_ms + grace_ms)
        word, found = self._live.run([call(script("archive_role"), keys, order)])[0]
        return int(found) if word in ("GRANTED", "YOURS") else None

    def leave_role(self, node: str) -> None:
        """Let the next one begin without a pause: nothing of ours is under way."""
        lock1, lock2, _ = self._role_keys()
        if self._redis.get(lock2) == node:
            self._redis.delete(lock1, lock2)

    def _role_keys(self) -> tuple[str, str, str]:
        names = ("archiveLock1", "archiveLock2", "archiveFence")
        lock1, lock2, fence = (self._keys.in_shard("archive", name) for name in names)
        return lock1, lock2, fence

    # The journal.

    def read_journal(
        self,
        *,
        entries_max: int,
        bytes_max: int,
        entry_bytes_max: int,
        shards: Sequence[str] | None = None,
    ) -> Drained:
        """The oldest entries of each shard; then each shard's mark, so that it covers them.

        `entry_bytes_max` is about what one change can have: no more are asked for at first than
        would fit if all were that large.
        """
        shards = self._live.shards if shards is None else shards
        found, behind = self._read(shards, entries_max, bytes_max, entry_bytes_max)
        changes: dict[str, list[str]] = defaultdict(list)
        for flat in (flat for part in found.values() for _, flat in part):
            tx_ids, texts = _columns(flat)
            if not all(map(is_entry, texts)):
                raise not_an_entry(next(text for text in texts if not is_entry(text)))
            for tx_id, text in zip(tx_ids, texts, strict=True):
                changes[tx_id].append(text)
        upto = {shard: _after(part[-1][0]) for shard, part in found.items() if part}
        marks = self._live.send([("INCR", self._mark(shard)) for shard in upto])
        return Drained(
            dict(changes),
            marks=dict(zip(upto, marks, strict=True)),
            upto=upto,
            count=sum(map(len, changes.values())),
            stream_entries=sum(map(len, found.values())),
            behind=frozenset(behind),
        )

    def _read(
        self, shards: Sequence[str], entries_max: int, bytes_max: int, entry_bytes_max: int
    ) -> tuple[dict[str, list[tuple[str, list[str]]]], set[str]]:
        """Ids and contents of the stream by shard, and the shards that may have more.

        What a vector left is one entry of the stream, so one may be large: the first page is
        small, and the next ones follow from what the entries before them had.
        """
        per_shard = max(1, -(-entries_max // len(shards)))
        vector_bytes_max = CALL_BYTES_MAX + entry_bytes_max
        count = max(1, min(per_shard, bytes_max // vector_bytes_max // len(shards)))
        found: dict[str, list[tuple[str, list[str]]]] = {shard: [] for shard in shards}
        sizes = dict.fromkeys(shards, 0)
        starts = dict.fromkeys(shards, "-")
        behind: set[str] = set()
        chars = pages_read = 0
        while starts and chars < bytes_max:
            pages = self._live.send(
                [
                    ("XRANGE", self._journal(shard), start, "+", "COUNT", count)
                    for shard, start in starts.items()
                ]
            )
            for shard, page in zip(list(starts), pages, strict=True):
                found[shard] += [(stream_id, flat) for stream_id, flat in page]
                chars += sum(sum(map(len, flat)) for _, flat in page)
                sizes[shard] += sum(len(flat) // 2 for _, flat in page)
                pages_read += len(page)
                del starts[shard]
                if len(page) < count:
                    continue
                if sizes[shard] < per_shard:
                    starts[shard] = _after(page[-1][0])
                else:
                    behind.add(shard)
            left = (bytes_max - chars) * pages_read // max(1, chars * len(starts or shards))
            # In entries of the stream, of which each has the changes of a vector.
            wanted = max((per_shard - sizes[shard] for shard in starts), default=0)
            room = -(-wanted * pages_read // max(1, sum(sizes.values())))
            count = max(1, min(PAGE_GROWTH * count, PAGE_MAX, left, room))
        return found, behind | starts.keys()

    def drop_journal(self, drained: Drained) -> None:
        """SQL has these entries: they leave."""
        self._live.send(
            [("XTRIM", self._journal(s), "MINID", upto) for s, upto in drained.upto.items()]
        )

    def waiting_entries(self, tx_ids: Sequence[str]) -> dict[str, list[Entry]]:
        """Entries of these transactions that SQL may not have yet, in order."""
        wanted = set(tx_ids)
        found: dict[str, list[Entry]] = {}
        for shard in sorted({tx[1:3] for tx in tx_ids}):
            start = "-"
            while True:
                command = ("XRANGE", self._journal(shard), start, "+", "COUNT", READ_MAX)
                page = self._live.send([command])[0]
                for _, flat in page:
                    for tx_id, text in zip(*_columns(flat), strict=True):
                        if tx_id in wanted:
                            found.setdefault(tx_id, []).append(Entry.from_text(text))
                if len(page) < READ_MAX:
                    break
                start = _after(page[-1][0])
        return found

    def journal_length(self) -> int:
        return sum(self._live.send([("XLEN", self._journal(s)) for s in self._live.shards]))

    # Marks: a shard whose mark is behind that in SQL has lost writes.

    def marks(self) -> dict[str, int]:
        found = self._live.send([("GET", self._mark(shard)) for shard in self._live.shards])
        return {s: int(mark or 0) for s, mark in zip(self._live.shards, found, strict=True)}

    def set_marks(self, marks: Mapping[str, int]) -> None:
        """What SQL had is here again."""
        self._live.send([("SET", self._mark(shard), value) for shard, value in marks.items()])

    def run_id(self) -> str:
        """Which processes of Redis these are: a new one may have lost the last writes."""
        found = (server.info("server") for server in servers_of(self._redis))
        return " ".join(sorted(str(each.get("run_id", "")) for each in found))

    # States.

    def copies(self, tx_ids: Sequence[str]) -> list[Copied | None]:
        """Each transaction as it is now; None for those that are not here."""
        return [
            Copied.of(fields, deltas) if fields else None
            for fields, deltas in self._read_states(tx_ids)
        ]

    def states(self, tx_ids: Sequence[str]) -> list[dict[str, str]]:
        """Their fields, with the deltas since the JSON of the state as one more, if there are any;
        none for those that are not here."""
        return [_with_deltas(*each) for each in self._read_states(tx_ids)]

    def _read_states(self, tx_ids: Sequence[str]) -> list[tuple[dict[str, str], list[str]]]:
        """Fields of each transaction, and the deltas since its JSON was written."""
        commands = [("HGETALL", self._keys.state(tx)) for tx in tx_ids]
        states = dict(zip(tx_ids, map(_fields, self._live.send(commands)), strict=True))
        # Most have ended with a new JSON, and so have no deltas.
        later = [tx for tx, fields in states.items() if _has_deltas(fields)]
        with_deltas = dict(zip(later, self._copies_with_deltas(later), strict=True))
        return [with_deltas.get(tx) or (states[tx], []) for tx in tx_ids]

    def _copies_with_deltas(
        self, tx_ids: Sequence[str]
    ) -> Iterator[tuple[dict[str, str], list[str]]]:
        commands: list[tuple[str | int, ...]] = []
        for tx in tx_ids:
            commands.append(("HGET", self._keys.state(tx), "version"))
            commands.append(("LRANGE", self._keys.deltas(tx), 0, -1))
            commands.append(("HGETALL", self._keys.state(tx)))
        answers = self._live.send(commands)
        found = zip(tx_ids, answers[::3], answers[1::3], map(_fields, answers[2::3]), strict=True)
        for tx, version, deltas, fields in found:
            is_whole = fields.get("version") == version
            yield (fields, deltas) if is_whole else self._copy_at_once(tx)

    def _copy_at_once(self, tx_id: str) -> tuple[dict[str, str], list[str]]:
        """It changed while it was read, and fields and deltas must belong together."""
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.lrange(self._keys.deltas(tx_id), 0, -1)
        pipeline.hgetall(self._keys.state(tx_id))
        deltas, fields = pipeline.execute()
        return fields, deltas

    def _journal(self, shard: str) -> str:
        return self._keys.in_shard(shard, "journalX")

    def _mark(self, shard: str) -> str:
        return self._keys.in_shard(shard, "mark")


def _fields(answer: Any) -> dict[str, str]:
    return answer if isinstance(answer, dict) else flat_to_dict(answer)


def _with_deltas(fields: dict[str, str], deltas: list[str]) -> dict[str, str]:
    if fields and deltas:
        fields["deltas"] = "\n".join(deltas)
    return fields


def _has_deltas(fields: Mapping[str, str]) -> bool:
    """Something has changed since the JSON was written."""
    return fields.get("version") != fields.get("jsonVersion")


def _columns(flat: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """A vector leaves one entry in the stream: names of transactions, and what happened to each.

    Releases before 0.2 wrote the field `e`: the transaction, a space, and what happened.
    """
    if flat[0] != "e":
        return flat[::2], flat[1::2]
    return [text[:TX_CHARS] for text in flat[1::2]], [text[TX_CHARS + 1 :] for text in flat[1::2]]


def _after(stream_id: str) -> str:
    milliseconds, _, number = stream_id.partition("-")
    return f"{milliseconds}-{int(number) + 1}"
