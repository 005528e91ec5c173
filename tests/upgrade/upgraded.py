"""A system of this version on what an older one has left."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine
from sqlalchemy.engine import make_url

from datp_tasks.clock import VirtualClock
from datp_tasks.engine.registry import discover, registry
from datp_tasks.jobs.schedule import JOBS
from datp_tasks.live.archive_feed import ArchiveFeed
from datp_tasks.model.payload import Json
from datp_tasks.operator.doubt_decisions import Decision
from datp_tasks.record.database import migrate
from datp_tasks.record.record_types import Summary
from datp_tasks.settings import Settings
from datp_tasks.testing import Kit
from datp_tasks.testing.kit import OF_A_KIT
from datp_tasks.testing.servers import Servers
from tests.upgrade import upgrade_world as world
from tests.upgrade.write_fixture import PREFIX

BEFORE = Path(__file__).resolve().parent / "from_5680eb0"
ABOUT: dict[str, Any] = json.loads((BEFORE / "about.json").read_text())


class Upgraded(Kit):
    """The kit, on tables and keys that are not empty, at the time when they were written."""

    def __init__(self, servers: Servers, hooks_url: str = world.HOOK) -> None:
        discover(())
        self.settings = Settings(
            key_prefix=f"{servers.prefix}-{secrets.token_hex(3)}",
            **{**servers.places(), **OF_A_KIT, "webhook_timeout_s": 2.0},
        )
        self.clock = VirtualClock(ABOUT["now_ms"])
        self.jobs = tuple(JOBS)
        self.steps = registry.copy()
        self._changes = {PREFIX: self.settings.key_prefix, world.HOOK: hooks_url}
        self._open()
        self.books = world.Books(self.connections.engine)
        world.declare(self, self.books)
        self.reopen()

    def reopen(self) -> None:
        """Start again, with the steps that were declared since."""
        self.process.close()
        self._open()

    def load(self, *, same_server: bool = True) -> None:
        """Put everything back; unless `same_server`, Redis was restarted with the upgrade."""
        if same_server:
            self._changes[ABOUT["run_id"]] = ArchiveFeed(self.connections.live).run_id()
        migrate(self.settings.database_url, ABOUT["revision"])
        self._load_rows()
        self._load_keys()
        migrate(self.settings.database_url)

    def _load_rows(self) -> None:
        engine = create_engine(
            make_url(self.settings.database_url).set(drivername="postgresql+psycopg2")
        )
        with engine.begin() as sql:
            sql.connection.cursor().execute(self._changed("postgres.sql"))
        engine.dispose()

    def _load_keys(self) -> None:
        for line in self._changed("redis.jsonl").splitlines():
            self._load_key(**json.loads(line))

    def _load_key(self, key: str, type: str, value: Any, ttl_ms: int | None = None) -> None:
        redis = self.connections.redis
        match type:
            case "string":
                redis.set(key, value)
            case "hash":
                redis.hset(key, mapping=value)
            case "list":
                redis.rpush(key, *value)
            case "set":
                redis.sadd(key, *value)
            case "zset":
                redis.zadd(key, dict(value))
            case "stream":
                for stream_id, fields in value:
                    redis.xadd(key, fields, id=stream_id)
        if ttl_ms is not None:
            redis.pexpire(key, ttl_ms)

    def _changed(self, name: str) -> str:
        text = (BEFORE / name).read_text()
        for before, after in self._changes.items():
            text = text.replace(before, after)
        return text

    def wipe(self) -> None:
        """FLUSHALL, as far as this system is concerned."""
        redis = self.connections.redis
        for key in list(redis.scan_iter(match=f"{self.settings.key_prefix}:*", count=1_000)):
            redis.delete(key)

    # Looking.

    def named(self, name: str) -> Summary:
        return self.client.status(ABOUT["transactions"][name])

    def statuses(self) -> dict[str, str]:
        return {name: str(self.named(name).status) for name in ABOUT["transactions"]}

    def effects(self) -> dict[str, list[str]]:
        return {name: self.books.lines(tx) for name, tx in ABOUT["transactions"].items()}

    def faults(self) -> dict[str, list[str]]:
        """What an audit of everything finds."""
        return {each.tx_id: each.faults for each in self.operator.audit() if each.faults}

    def journal_entries(self) -> list[tuple[str, list[str]]]:
        """What is in the streams: ids, and names and values."""
        live = self.connections.live
        names = [live.keys.in_shard(shard, "journalX") for shard in live.shards]
        return [
            tuple(each)
            for page in live.send([("XRANGE", n, "-", "+") for n in names])
            for each in page
        ]

    # Moving.

    def resolve(self, name: str, decision: Decision, output: Json | None = None) -> None:
        """As a person would who has looked what became of its step."""
        tx_id = ABOUT["transactions"][name]
        self.operator.resolve(tx_id, decision, reason="somebody looked", output=output)

    def come_to_rest(self) -> None:
        """Dead nodes are noticed, lost bells rung, sleepers wake; switches are not set."""
        for _ in range(3):
            self.recover()
            self.advance(seconds=world.HOUR_S / 2)


def own_database(servers: Servers) -> tuple[Servers, str]:
    """The same servers with a database of its own, and its name."""
    name = f"upgrade_{secrets.token_hex(4)}"
    administer(servers, f"CREATE DATABASE {name}")
    url = make_url(servers.database_url).set(database=name).render_as_string(hide_password=False)
    return replace(servers, database_url=url), name


def administer(servers: Servers, statement: str) -> None:
    url = make_url(servers.database_url).set(drivername="postgresql+psycopg2")
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as sql:
        sql.exec_driver_sql(statement)
    engine.dispose()


def differences(found: Mapping[str, Any], expected: Mapping[str, Any]) -> dict[str, Any]:
    """What is not as expected: by name, what was found."""
    return {name: found.get(name) for name in expected if found.get(name) != expected[name]}
