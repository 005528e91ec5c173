"""Redis Cluster: which server has which slot, and how commands find it.

Every command goes to the master that has the slot of its first key. A server that does not have
the slot (any more) says so and executes nothing, so those commands, and only those, are sent
again to the right one. A master that does not answer is an outage, as with a single server:
the caller gets the error, and the map is read anew before the next command.

redis-py's own client for clusters is not used: it connects when it is made, sends again what may
have been executed, and raises errors that are none of its RedisErrors.
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from redis import ConnectionPool, Redis
from redis.connection import parse_url
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import (
    AskError,
    ClusterDownError,
    ConnectionError,
    MovedError,
    RedisError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from datp_tasks.live.pipelining import Command, exchange

Address = tuple[str, int]

#: How often a command is sent again because its slot is elsewhere or on its way.
TRIES_MAX = 16
SETTLE_S = 0.05
#: Their first argument is not a key; any server may answer them, so always the same one does.
KEYLESS = frozenset(
    (
        *("TIME", "INFO", "PING", "PUBLISH", "PUBSUB", "KEYS", "SCAN", "DBSIZE", "ROLE"),
        *("SCRIPT", "CONFIG", "CLIENT", "CLUSTER", "COMMAND", "FLUSHALL", "FLUSHDB", "WAIT"),
    )
)


def slot_of(command: Command) -> int:
    """The slot of a command's first key; that of all others is taken to be the same."""
    name = str(command[0]).upper()
    if name in ("EVAL", "EVALSHA"):
        key = command[3] if int(command[2]) else None
    else:
        key = None if name in KEYLESS or len(command) < 2 else command[1]
    if key is None:
        return 0
    return key_slot(key if isinstance(key, bytes) else str(key).encode())


class Cluster:
    """The masters and their slots, as far as this process knows."""

    def __init__(self, url: str, **options: Any) -> None:
        given: dict[str, Any] = parse_url(url)  # type: ignore[no-untyped-call]
        self._options = {**given, **options}
        self._seed = (
            str(self._options.pop("host", "127.0.0.1")),
            int(self._options.pop("port", 6379)),
        )
        self._servers: dict[Address, Redis] = {}
        #: Slot -> its master, or None; empty until it was asked for.
        self._map: list[Address | None] = []
        self._stale = True
        self._lock = threading.Lock()

    @property
    def seed(self) -> Redis:
        """The server that the URL names, whatever it is now."""
        return self.server(self._seed)

    def server(self, address: Address) -> Redis:
        found = self._servers.get(address)
        if found is None:
            pool: Any = ConnectionPool(host=address[0], port=address[1], **self._options)
            found = self._servers.setdefault(address, Redis(connection_pool=pool))
        return found

    def masters(self) -> list[Redis]:
        """All servers that have slots, always in the same order."""
        addresses = {each for each in self._current() if each is not None}
        return [self.server(each) for each in sorted(addresses)]

    def master_of_key(self, key: str | bytes) -> Redis:
        """The server that has this key, as far as is known."""
        return self.server(self._master_of(slot_of(("GET", key))))

    def close(self) -> None:
        for server in list(self._servers.values()):
            server.close()
            server.connection_pool.disconnect()

    # Sending.

    def send(self, commands: Sequence[Command]) -> list[Any]:
        """One reply for each command, in their order; errors of servers are replies, too."""
        replies: list[Any] = [None] * len(commands)
        slots = [slot_of(command) for command in commands]
        asked: dict[int, Address] = {}
        left = list(range(len(commands)))
        for _ in range(TRIES_MAX):
            batches: defaultdict[Address, list[int]] = defaultdict(list)
            for place in left:
                batches[asked.get(place) or self._master_of(slots[place])].append(place)
            known, asked_now, asked, left = self._map, asked, {}, []
            for address, places, answers in self._ask(batches, commands, asked_now):
                for place, answer in zip(places, answers, strict=True):
                    replies[place] = answer
                    if isinstance(answer, (AskError, TryAgainError)):
                        left.append(place)
                        if self._heed(answer, address, known) and not isinstance(
                            answer, MovedError
                        ):
                            asked[place] = _target(answer, address)
            if not left:
                return self._watched(replies)
            # Servers of different age answered: the order of the commands must stay.
            left.sort()
        raise ConnectionError(f"Redis Cluster is moving slots; it sent us on {TRIES_MAX} times")

    def transact(self, commands: Sequence[Command]) -> list[Any]:
        """The replies of commands that one server executes at one moment."""
        slots = {slot_of(command) for command in commands}
        if len(slots) > 1:
            raise ResponseError("commands of one transaction must have their keys in one slot")
        for _ in range(TRIES_MAX):
            address, known = self._master_of(next(iter(slots))), self._map
            batch = [("MULTI",), *commands, ("EXEC",)]
            *queued, found = self._exchange({address: batch})[0]
            refused = next((each for each in queued if isinstance(each, Exception)), None)
            if not isinstance(refused, (AskError, TryAgainError)):
                if refused or isinstance(found, Exception):
                    raise refused or found
                return list(found)
            self._heed(refused, address, known)
            if not isinstance(refused, MovedError):
                # A slot in the middle of its move has its keys in two places.
                time.sleep(SETTLE_S)
        raise ConnectionError(f"Redis Cluster is moving slots; it sent us on {TRIES_MAX} times")

    def _ask(
        self,
        batches: dict[Address, list[int]],
        commands: Sequence[Command],
        asked: dict[int, Address],
    ) -> list[tuple[Address, list[int], list[Any]]]:
        sent: dict[Address, list[Command]] = {}
        for address, places in batches.items():
            sent[address] = []
            for place in places:
                # Only with this word does a server take commands for a slot that it is getting.
                sent[address] += [("ASKING",)] * (place in asked) + [commands[place]]
        found = []
        for (address, places), answers in zip(batches.items(), self._exchange(sent), strict=True):
            mine = iter(answers)
            kept = []
            for place in places:
                if place in asked:
                    next(mine)
                kept.append(next(mine))
            found.append((address, places, kept))
        return found

    def _exchange(self, batches: dict[Address, list[Command]]) -> list[list[Any]]:
        try:
            return exchange([(self.server(each), sent) for each, sent in batches.items()])
        except (ConnectionError, TimeoutError):
            # Another server may have taken over its slots, or will soon.
            self._stale = True
            raise

    def _watched(self, replies: list[Any]) -> list[Any]:
        if any(isinstance(reply, ClusterDownError) for reply in replies):
            self._stale = True
        return replies

    def _heed(self, answer: ResponseError, address: Address, known: list[Address | None]) -> bool:
        """Learn from an answer to what this map led to; whether it names another server."""
        if isinstance(answer, MovedError):
            self._renew(known, first=_target(answer, address))
            self._map[int(answer.slot_id)] = _target(answer, address)
            return True
        if isinstance(answer, AskError):
            return True
        time.sleep(SETTLE_S)
        return False

    # The map.

    def _master_of(self, slot: int) -> Address:
        found = self._current()[slot]
        if found is None:
            self._stale = True
            raise ConnectionError(f"no server of the Redis Cluster has slot {slot}")
        return found

    def _current(self) -> list[Address | None]:
        if self._stale:
            self._renew(self._map)
        return self._map

    def _renew(self, known: list[Address | None], *, first: Address | None = None) -> None:
        """Ask for the map, unless another thread has just done it."""
        with self._lock:
            if self._map is not known:
                return
            others = [*self._servers, self._seed]
            random.shuffle(others)
            trouble: RedisError | None = None
            for address in dict.fromkeys([*([first] if first else []), *others]):
                try:
                    self._map = self._asked_for_map(address)
                except (ConnectionError, TimeoutError) as error:
                    trouble = error
                else:
                    self._stale = False
                    return
        raise ConnectionError(f"no server of the Redis Cluster answers: {trouble}")

    def _asked_for_map(self, address: Address) -> list[Address | None]:
        answer = exchange([(self.server(address), [("CLUSTER", "SLOTS")])])[0][0]
        if isinstance(answer, ResponseError):
            raise ConnectionError(
                f"{address[0]}:{address[1]} is no server of a Redis Cluster: {answer}. "
                "Set DATP_REDIS_CLUSTER=off for a single server."
            )
        found: list[Address | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        for first, last, master, *_ in answer:
            # A server that does not know its own name means: where you asked.
            owner = (str(master[0] or address[0]), int(master[1]))
            found[int(first) : int(last) + 1] = [owner] * (int(last) - int(first) + 1)
        return found


def _target(answer: Any, asked: Address) -> Address:
    return (str(answer.host or asked[0]), int(answer.port))
