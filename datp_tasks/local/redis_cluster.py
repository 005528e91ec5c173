"""A Redis Cluster on the loopback interface: masters that share the slots, and replicas if wanted.

For tests and for trying things out; a real one has its masters on different machines.
"""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from datp_tasks.errors import LocalStackError
from datp_tasks.local.embedded_server import START_TIMEOUT_S
from datp_tasks.local.ports import HOST, pick_free_port
from datp_tasks.local.private_files import create_directory, read_text, write_private
from datp_tasks.local.processes import POLL_S
from datp_tasks.local.redis_server import CLIENT_TIMEOUT_S, RedisServer

SLOTS = 16_384
#: So long must a master be silent before the others call it failed.
NODE_TIMEOUT_MS = 15_000


class ClusterMember(RedisServer):
    """One server of a cluster; its slots and neighbours are kept in `nodes.conf`."""

    name = "Redis Cluster member"

    def __init__(self, data_dir: Path, password: str, *, appendfsync: str = "everysec") -> None:
        super().__init__(data_dir, appendfsync=appendfsync)
        self._given_password = password

    @property
    def bus_port(self) -> int:
        """Where the members talk to each other; the others remember it, so it must stay."""
        path = self.data_dir / "bus-port"
        text = read_text(path)
        if not text:
            text = f"{pick_free_port()}\n"
            write_private(path, text)
        return int(text)

    def _prepare_directory(self) -> None:
        create_directory(self.data_dir, 0o700)
        write_private(self.data_dir / "password", f"{self._given_password}\n")
        super()._prepare_directory()

    def _take_new_port(self) -> None:
        # One of the two was taken, and the log does not say which.
        (self.data_dir / "bus-port").unlink(missing_ok=True)
        super()._take_new_port()

    def _configuration(self) -> str:
        lines = super()._configuration().replace("databases 64\n", "databases 1\n")
        return lines + "\n".join(
            (
                "cluster-enabled yes",
                "cluster-config-file nodes.conf",
                f"cluster-port {self.bus_port}",
                f"cluster-node-timeout {NODE_TIMEOUT_MS}",
                # A master that is down costs its own slots, and not those of the others.
                "cluster-require-full-coverage no",
                f"masterauth {self._given_password}",
                # No replica is about to ask for a copy, so there is nothing to wait for.
                "repl-diskless-sync-delay 0",
                "",
            )
        )

    def ask(self, *words: Any) -> Any:
        """What the server itself says to a command."""
        client: Any = redis.Redis(
            host=HOST,
            port=self.port,
            password=self._given_password,
            decode_responses=True,
            socket_timeout=CLIENT_TIMEOUT_S * 5,
            retry=Retry(NoBackoff(), 0),
        )
        with client:
            return client.execute_command(*words)


class RedisCluster:
    """Masters with equal shares of the slots."""

    def __init__(self, data_dir: Path, *, masters: int = 3, appendfsync: str = "everysec") -> None:
        self._data_dir = data_dir
        self._password = secrets.token_urlsafe(24)
        self._appendfsync = appendfsync
        self.masters = [self._member(f"master-{number}") for number in range(masters)]
        self.replicas: list[ClusterMember] = []

    @property
    def url(self) -> str:
        return self.masters[0].url

    @property
    def members(self) -> list[ClusterMember]:
        return [*self.masters, *self.replicas]

    def start(self) -> None:
        """Start all, give each its slots, and wait until they know each other."""
        for member in self.masters:
            member.start()
        share = SLOTS / len(self.masters)
        for number, member in enumerate(self.masters):
            first, last = round(share * number), round(share * (number + 1)) - 1
            member.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            member.ask("CLUSTER", "ADDSLOTSRANGE", first, last)
        for member in self.masters[1:]:
            self._introduce(member)
        self.wait_ready()

    def add_replica(self, master: ClusterMember) -> ClusterMember:
        """One more server, with a copy of this master."""
        replica = self._member(f"replica-{len(self.replicas)}")
        self.replicas.append(replica)
        replica.start()
        self._introduce(replica)
        wanted = str(master.ask("CLUSTER", "MYID"))
        _wait(lambda: wanted in str(replica.ask("CLUSTER NODES")), "the replica knows its master")
        replica.ask("CLUSTER", "REPLICATE", wanted)
        _wait(lambda: _copies(replica), "the replica has its copy")
        return replica

    def wait_ready(self) -> None:
        """Until every member that runs knows all others and serves its slots."""
        _wait(lambda: all(map(self._is_ready, self.members)), "the members agree")

    def stop(self) -> None:
        for member in self.members:
            member.begin_stop()
        for member in self.members:
            member.stop()

    def destroy(self) -> None:
        """Stop all and delete their data."""
        for member in self.members:
            member.begin_stop()
        for member in self.members:
            member.destroy()

    def _member(self, name: str) -> ClusterMember:
        return ClusterMember(self._data_dir / name, self._password, appendfsync=self._appendfsync)

    def _introduce(self, member: ClusterMember) -> None:
        self.masters[0].ask("CLUSTER", "MEET", HOST, member.port, member.bus_port)

    def _is_ready(self, member: ClusterMember) -> bool:
        if not member.is_running():
            return True
        with suppress(RedisError):
            info = _info(member)
            known = int(info["cluster_known_nodes"]) == len(self.members)
            return (
                known and info["cluster_state"] == "ok" and info["cluster_slots_ok"] == str(SLOTS)
            )
        return False


def _info(member: ClusterMember) -> dict[str, str]:
    found = member.ask("CLUSTER", "INFO")
    if isinstance(found, dict):
        return {str(name): str(value) for name, value in found.items()}
    return dict(line.split(":", 1) for line in str(found).split() if ":" in line)


def _copies(replica: ClusterMember) -> bool:
    role = replica.ask("ROLE")
    return str(role[0]) == "slave" and str(role[3]) == "connected"


def _wait(condition: Any, what: str) -> None:
    ends_at_s = time.monotonic() + START_TIMEOUT_S
    while not condition():
        if time.monotonic() >= ends_at_s:
            raise LocalStackError(f"Within {START_TIMEOUT_S:g} s it did not happen that {what}.")
        time.sleep(POLL_S)
