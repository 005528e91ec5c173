"""A Redis client whose commands find their server in a cluster.

It has the methods of redis-py's client, so no other module has to know. The keys of one command,
and of one MULTI, lie in one slot; what a pipeline without MULTI holds may lie anywhere.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain
from typing import Any

from redis import Redis
from redis.client import NEVER_DECODE, Pipeline, PubSub

from datp_tasks.live.cluster import Cluster, slot_of
from datp_tasks.live.pipelining import Command

#: What is said to one server is said to all.
EVERYWHERE = frozenset({"PING", "SCRIPT LOAD", "SCRIPT FLUSH", "FLUSHALL", "FLUSHDB"})

#: Their keys may lie in different slots: then each is looked at for itself.
ANYWHERE = frozenset({"DEL", "UNLINK", "EXISTS"})


def servers_of(redis: Redis) -> list[Redis]:
    """The servers that hold the keys: the one, or all masters of the cluster."""
    return redis.servers.masters() if isinstance(redis, ClusterRedis) else [redis]


class ClusterRedis(Redis):
    def __init__(self, cluster: Cluster) -> None:
        # The pool is only looked at for how answers are to be read; nothing is sent through it.
        super().__init__(connection_pool=cluster.seed.connection_pool)
        self.servers = cluster

    def execute_command(self, *args: Any, **options: Any) -> Any:
        if args[0] in EVERYWHERE:
            masters: list[Any] = self.servers.masters()
            return [each.execute_command(*args, **options) for each in masters][-1]
        if NEVER_DECODE in options:
            # Bytes that are no text: they are only asked for one by one.
            master: Any = self.servers.master_of_key(args[1])
            return master.execute_command(*args, **options)
        if args[0] in ANYWHERE and len({slot_of((args[0], key)) for key in args[1:]}) > 1:
            return sum(self.execute_command(args[0], key, **options) for key in args[1:])
        reply = self.servers.send([_command(args)])[0]
        if isinstance(reply, Exception):
            raise reply
        return _understood(self, args[0], options, reply)

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:
        return _ClusterPipeline(self, transaction)

    def pubsub(self, **options: Any) -> PubSub:
        # A message reaches all servers, so it does not matter where one listens.
        server: Any = random.choice(self.servers.masters())
        subscription: PubSub = server.pubsub(**options)
        return subscription

    def scan_iter(self, *args: Any, **options: Any) -> Iterator[Any]:
        return chain.from_iterable(
            each.scan_iter(*args, **options) for each in self.servers.masters()
        )

    def close(self) -> None:
        self.servers.close()


class _ClusterPipeline(Pipeline):
    """Collects commands as any pipeline does; all are sent at once, each to its server."""

    def __init__(self, redis: ClusterRedis, transaction: bool) -> None:
        super().__init__(redis.connection_pool, redis.response_callbacks, transaction, None)
        self._at_once = transaction
        self._servers = redis.servers

    def execute(self, raise_on_error: bool = True) -> list[Any]:
        stack, self.command_stack = self.command_stack, []
        commands = [_command(args) for args, _ in stack]
        if not commands:
            return []
        send = self._servers.transact if self._at_once else self._servers.send
        replies = send(commands)
        for reply in replies:
            if raise_on_error and isinstance(reply, Exception):
                raise reply
        return [
            reply if isinstance(reply, Exception) else _understood(self, args[0], options, reply)
            for (args, options), reply in zip(stack, replies, strict=True)
        ]


def _command(args: tuple[Any, ...]) -> Command:
    """redis-py writes commands of two words as one."""
    return (*str(args[0]).split(), *args[1:])


def _understood(redis: Redis, name: str, options: dict[str, Any], reply: Any) -> Any:
    """What redis-py makes of a reply."""
    options.pop("keys", None)
    callbacks: Any = redis.response_callbacks
    callback = callbacks.get(name)
    return callback(reply, **options) if callback else reply
