"""Write what an older version leaves in Redis and PostgreSQL, with transactions in every state.

    .venv/bin/python -m tests.upgrade.write_fixture 5680eb0

makes `tests/upgrade/from_5680eb0/`. It takes that commit from git into a temporary folder and runs
the code found there on embedded servers of its own. Times are those of the kit's clock, which the
test sets to the same moment; the times that keys have left are relative anyway.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine

from tests.upgrade import upgrade_world as world

ROOT = Path(__file__).resolve().parents[2]
#: Stands for the prefix of keys, in keys and in SQL.
PREFIX = "datp-before-upgrade"
#: Scripts that a worker of that version calls in the test of a rolling upgrade.
SCRIPTS = ("create", "claim", "checkpoint", "finish", "hand_over", "sleep")


def main() -> None:
    commit = sys.argv[1]
    folder = Path(__file__).resolve().parent / f"from_{commit}"
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        archive = subprocess.run(
            ["git", "archive", commit], cwd=ROOT, check=True, stdout=subprocess.PIPE
        )
        subprocess.run(["tar", "-x", "-C", temporary], input=archive.stdout, check=True)
        # `tests` is a namespace: this module is found behind those of the older version.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join((temporary, str(ROOT)))}
        command = [sys.executable, "-m", "tests.upgrade.write_fixture", "--inside", str(folder)]
        subprocess.run(command, cwd=temporary, env=environment, check=True)


def write(folder: Path) -> None:
    """Runs with the older version's code."""
    from datp_tasks.live.archive_feed import ArchiveFeed
    from datp_tasks.live.scripts import script
    from datp_tasks.testing.kit import Kit
    from datp_tasks.testing.servers import test_servers

    with tempfile.TemporaryDirectory() as temporary, test_servers(Path(temporary)) as servers:
        kit = Kit(servers)
        books = world.Books(kit.connections.engine)
        books.create()
        world.declare(kit, books)
        world.put_into_use(kit)
        before = Before(kit)
        before.make_all()
        about = {
            "now_ms": kit.clock.now_ms(),
            "revision": _revision(kit.connections.engine),
            "run_id": ArchiveFeed(kit.connections.live).run_id(),
            "transactions": before.made,
        }
        prefix = kit.settings.key_prefix
        keys = "\n".join(_dumped_keys(kit.connections.redis, prefix))
        rows = "\n".join(_dumped_rows(kit.connections.engine))
        _save(folder / "about.json", json.dumps(about, indent=1))
        _save(folder / "redis.jsonl", keys.replace(prefix, PREFIX))
        _save(folder / "postgres.sql", rows.replace(prefix, PREFIX))
        for name in SCRIPTS:
            _save(folder / "lua" / f"{name}.lua", script(name).source)
        kit.close()


def _save(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text.rstrip("\n") + "\n")


class Before:
    """Brings transactions into every state that an upgrade can find, by name."""

    def __init__(self, kit: Any) -> None:
        self._kit = kit
        self.made: dict[str, str] = {}

    def make_all(self) -> None:
        self._long_ago()
        # Their journal and copies of those that sleep or have ended are in SQL from here on.
        self._kit.advance(seconds=self._kit.settings.delay_before_archiving_s + 60)
        for name in ("archived", "asleep-gone", "waiting-gone", "expiring-gone"):
            self._evict(self.made[name])
        self._just_now()

    def _long_ago(self) -> None:
        self._crash("in-doubt", "pay", "hop.after_step", nth=2)
        self._kit.recover()
        for name in ("archived", "archived-here"):
            self._submit(name, "quick", external_id=f"o-{name}")
        for name in ("asleep-gone", "undo-asleep", "family-asleep"):
            self._submit(name, {"asleep-gone": "rest"}.get(name, name.partition("-")[0]))
        self._submit("waiting-gone", "wait")
        self._submit("waiting-here", "wait")
        self._submit("expiring-gone", "rest", expires_in_s=1_800)

    def _just_now(self) -> None:
        with self._deaf():
            self._submit("queued", "hop", external_id="o-queued", metadata={"m": 1})
            self._submit("overdue", "quick", expires_in_s=5)
            self._submit("cancelled", "hop")
            self._run_one_hop()
            self._kit.client.cancel(self.made["cancelled"], "no longer wanted")
            self._submit("queued-midway", "hop")
            self._run_one_hop()
            self._submit("switched", "wait")
            self._run_one_hop()
            self._kit.client.set_switch(self.made["switched"], "go", 7)
        self._submit("asleep", "rest")
        self._submit("waiting", "wait")
        self._submit("undo-just-asleep", "undo")
        self._submit("family", "family")
        self._submit("retrying", "flaky")
        self._submit("expiring", "rest", expires_in_s=900)
        self._submit("ended", "quick", external_id="o-ended")
        self._submit("told", "quick", webhook=f"{world.HOOK}told")
        self._kit.run_job("webhook_sender")
        self._submit("to-be-told", "quick", webhook=f"{world.HOOK}to-be-told")
        self._crash("running", "rest", "hop.after_checkpoint")
        self._crash("running-effect", "hop", "effect.after_commit")
        self._crash("claimed", "quick", "hop.after_claim")
        self._crash("review", "pay", "hop.after_step", nth=2)
        self._crash("probe", "ask", "hop.after_step", nth=2)
        self._crash("ended-in-sql", "quick", "hop.after_final")
        self._only_in_sql("only-in-sql")

    # Moving.

    def _submit(self, name: str, pipeline: str, **options: Any) -> None:
        self.made[name] = self._kit.submit(pipeline, {"name": name}, **options)

    def _crash(self, name: str, pipeline: str, point: str, *, nth: int = 1) -> None:
        crashes = self._kit.send.crashes
        self._kit.crash_at(point, nth=nth)
        self._submit(name, pipeline)
        assert self._kit.send.crashes == crashes + 1, f"{name} did not crash"

    def _only_in_sql(self, name: str) -> None:
        """Its API process died between the commit and Redis."""
        from datp_tasks.failpoints import SimulatedCrash

        self._kit.crash_at("submit.after_accept")
        try:
            self._submit(name, "quick", external_id=f"o-{name}")
        except SimulatedCrash:
            found = self._kit.connections.record.by_external_id("local", f"o-{name}")
            self.made[name] = found.tx_id

    @contextmanager
    def _deaf(self) -> Iterator[None]:
        self._kit.lose_bells()
        yield
        self._kit.lose_bells(False)

    def _run_one_hop(self) -> None:
        """Let the bell that was rung last be heard, and none of those that it leads to."""
        step_type, pairs = self._kit.send.rung[-1]
        self._kit.celery.tasks[f"datp.step.{step_type}"].apply_async(args=(pairs,))

    def _evict(self, tx_id: str) -> None:
        """As its time to leave would."""
        live = self._kit.connections.live
        assert live.redis.pttl(live.keys.state(tx_id)) > 0, f"{tx_id} would not leave"
        live.redis.delete(live.keys.state(tx_id))


# Dumping.


def _dumped_keys(redis: Any, prefix: str) -> Iterator[str]:
    for key in sorted(redis.scan_iter(match=f"{prefix}:*", count=1_000)):
        kind = redis.type(key)
        found: dict[str, Any] = {"key": key, "type": kind, "value": _value(redis, key, kind)}
        ttl_ms = redis.pttl(key)
        if ttl_ms >= 0:
            found["ttl_ms"] = ttl_ms
        yield json.dumps(found)


def _value(redis: Any, key: str, kind: str) -> Any:
    match kind:
        case "string":
            return redis.get(key)
        case "hash":
            return redis.hgetall(key)
        case "list":
            return redis.lrange(key, 0, -1)
        case "set":
            return sorted(redis.smembers(key))
        case "zset":
            return [
                [member, int(score)] for member, score in redis.zrange(key, 0, -1, withscores=True)
            ]
        case "stream":
            return [[stream_id, fields] for stream_id, fields in redis.xrange(key)]
    raise AssertionError(f"{key} is a {kind}")


def _revision(engine: Engine) -> str:
    with engine.connect() as sql:
        return str(sql.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one())


COLUMNS = """
SELECT column_name FROM information_schema.columns
WHERE table_schema = 'public' AND table_name = %(table)s AND is_generated = 'NEVER'
ORDER BY ordinal_position
"""
#: Numbers of SQL transactions mean something only on the server that gave them: the one that loads
#: gives its own, the same for all rows, so that their order is that of their ids. And a secret
#: that is stored in a repository should not look like one.
OWN = {"xact": "pg_current_xact_id()", "secret": "'whsec_' || encode(sha256('upgrade'), 'base64')"}
SEQUENCES = """
SELECT sequencename, last_value FROM pg_sequences
WHERE schemaname = 'public' AND last_value IS NOT NULL ORDER BY sequencename
"""


def _dumped_rows(engine: Engine) -> Iterator[str]:
    """Every row as an INSERT, tables that others refer to first."""
    from datp_tasks.record.tables import metadata

    yield world.CREATE.strip() + ";"
    with engine.connect() as sql:
        # `alembic_version` is not among them: who loads this migrates to the same revision.
        for table in (*(table.name for table in metadata.sorted_tables), "upgrade_books"):
            yield from _inserts(sql, table)
        for row in sql.exec_driver_sql(SEQUENCES):
            yield f"SELECT setval('{row.sequencename}', {row.last_value});"


def _inserts(sql: Connection, table: str) -> Iterator[str]:
    columns = list(sql.exec_driver_sql(COLUMNS, {"table": table}).scalars())
    quoted = ", ".join(f'quote_nullable("{name}"::text)' for name in columns)
    names = ", ".join(f'"{name}"' for name in columns)
    # In the order in which they were written, as far as a table that is updated in place tells.
    rows = [
        ", ".join(OWN.get(name, value) for name, value in zip(columns, row, strict=True))
        for row in sql.exec_driver_sql(f"SELECT {quoted} FROM {table} ORDER BY ctid")
    ]
    if rows:
        yield f"INSERT INTO {table} ({names}) OVERRIDING SYSTEM VALUE VALUES"
        yield ",\n".join(f"  ({row})" for row in rows) + ";"


if __name__ == "__main__":
    if sys.argv[1] == "--inside":
        write(Path(sys.argv[2]))
    else:
        main()
