"""A backup of PostgreSQL is a backup of everything: Redis is rebuilt from it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from datp_tasks.live.invariants import check_all
from datp_tasks.local.binaries import find_postgres
from datp_tasks.local.postgres import PostgresServer
from datp_tasks.model.status import Status
from datp_tasks.testing import Kit
from tests.support.archive_world import HOUR_S, World

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations.md"


class RestoredKit(Kit):
    """The same system on other servers: what was backed up, and a Redis that knows nothing."""

    def __init__(self, lost: Kit, database_url: str) -> None:
        # Under another prefix there is nothing; the server may be one that is not ours to empty.
        prefix = f"{lost.settings.key_prefix}again"
        self.settings = replace(lost.settings, database_url=database_url, key_prefix=prefix)
        self.clock, self.jobs, self.steps = lost.clock, lost.jobs, lost.steps
        self._open()


@pytest.fixture
def fresh_postgres(tmp_path: Path) -> Iterator[PostgresServer]:
    server = PostgresServer(tmp_path / "fresh", durable=False)
    server.start()
    yield server
    server.destroy()


def follow_the_page(command: str, url: str, folder: Path) -> None:
    """Run the line of docs/operations.md that begins with this program."""
    line = re.search(rf"{command} --dbname [^`\n]*", PAGE.read_text())
    assert line is not None, f"the page does not say how to use {command}"
    found = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    programs = find_postgres().postgres.parent
    env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "DATABASE": found}
    subprocess.run(["bash", "-ec", line.group()], cwd=folder, env=env, check=True, timeout=60)


def test_a_restored_database_and_an_empty_redis_go_on_by_themselves(
    datp: Kit, fresh_postgres: PostgresServer, tmp_path: Path
) -> None:
    world = World(datp)
    done = datp.submit("quick", {"n": 0}, external_id="done")
    waiting = datp.submit("wait", {"n": 1})
    resting = datp.submit("rest", {"n": 2})
    queued = world.queued("hop", {"n": 3})
    in_doubt = world.crashed("pay", "hop.after_step", nth=2)
    assert world.ends(in_doubt) is Status.IN_DOUBT
    gone = world.asleep_and_gone("wait", {"n": 4})
    # Told after the last archiving: SQL has it all the same.
    queued_again = world.queued("quick", {"n": 5}, external_id="late")
    world.archive()

    follow_the_page("pg_dump", datp.settings.database_url, tmp_path)
    follow_the_page("pg_restore", fresh_postgres.url, tmp_path)
    kit = RestoredKit(datp, fresh_postgres.url)
    assert not list(kit.connections.redis.scan_iter(match=f"{kit.settings.key_prefix}*"))

    kit.advance(seconds=30)
    kit.recover()
    assert kit.status(done).output == {"n": 0, "booked": 1}
    assert kit.client.submit("quick", {"n": 0}, external_id="done").tx_id == done
    for tx_id in (queued, queued_again):
        assert kit.status(tx_id).status is Status.SUCCESS
    for tx_id in (waiting, gone):
        assert kit.status(tx_id).status is Status.SLEEPING
        assert kit.set_switch(tx_id, "go", True).status is Status.SUCCESS
    assert kit.status(in_doubt).status is Status.IN_DOUBT
    kit.operator.resolve(in_doubt, "redo", reason="the bank has nothing of it")
    assert kit.finish(in_doubt).status is Status.SUCCESS
    kit.advance(seconds=HOUR_S)
    assert kit.status(resting).status is Status.SUCCESS
    # No step that was done before the backup was done again.
    assert world.times("book", done) == world.times("book", waiting) == 1
    assert kit.operator.doctor().lost_shards == []
    assert check_all(kit.connections.live) == []
    assert [each.faults for each in kit.operator.audit() if each.faults] == []
    kit.close()
