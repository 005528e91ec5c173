"""Messages of beat: a queue that no worker empties does not grow, whatever beat does."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from celery import Celery
from celery.beat import Service

from datp_tasks import Pipeline
from datp_tasks.bells.broker import make_celery
from datp_tasks.bells.job_messages import WAITING_MAX, is_full, pass_on
from datp_tasks.jobs import schedule
from datp_tasks.settings import Settings
from datp_tasks.testing import Kit
from datp_tasks.testing.servers import Servers

#: More rounds of a job than any cap: a day has 86,400 of the most frequent ones.
ROUNDS = 150


@pytest.fixture
def settings(datp: Kit) -> Settings:
    """Queues have no prefix, so this one has a name of its own."""
    return replace(datp.settings, maintenance_group=f"beat-{secrets.token_hex(4)}")


@pytest.fixture
def app(settings: Settings, datp: Kit) -> Iterator[Celery]:
    app = make_celery(settings)
    app.conf.beat_schedule = schedule.beat_schedule(settings)
    yield app
    datp.connections.redis.delete(settings.maintenance_group)
    app.close()


def test_beat_without_any_worker_fills_a_queue_to_its_limit_and_stops(
    app: Celery, settings: Settings, datp: Kit, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    redis, queue = datp.connections.redis, settings.maintenance_group
    file = str(tmp_path / "beat")
    # As `celery beat` does it.
    scheduler = Service(app, None, file, app.conf.beat_scheduler).get_scheduler()
    try:
        assert {entry.name for entry in scheduler.schedule.values()} >= set(schedule.JOBS)
        sizes = []
        for _ in range(ROUNDS):
            for job in schedule.JOBS:
                scheduler.apply_entry(scheduler.schedule[job])
            sizes.append(redis.llen(queue))
        assert sizes[-1] == max(sizes) == WAITING_MAX
        assert sum("no worker takes them" in each.message for each in caplog.records) == 1
        # A worker that comes gets its jobs.
        redis.delete(queue)
        scheduler.apply_entry(scheduler.schedule["reaper"])
        assert redis.llen(queue) == 1
    finally:
        scheduler.close()


def test_beat_sends_only_to_the_group_that_every_installation_has_a_worker_for() -> None:
    sent = schedule.beat_schedule(Settings())
    assert {each["options"]["queue"] for each in sent.values()} == {"master"}


def test_bells_in_a_queue_do_not_keep_jobs_out(app: Celery, settings: Settings, datp: Kit) -> None:
    queue = settings.maintenance_group
    for _ in range(WAITING_MAX + 1):
        app.send_task("datp.step.t/any", args=([],), queue=queue, priority=6)
    assert not is_full(app, queue)
    datp.connections.redis.delete(*datp.connections.redis.keys(f"{queue}*"))


def test_a_job_that_is_passed_on_is_not_sent_to_a_full_queue(
    app: Celery, settings: Settings, datp: Kit
) -> None:
    sent = [
        pass_on(app, "datp.maintenance.archiver", settings.maintenance_group) for _ in range(90)
    ]
    assert sum(sent) == datp.connections.redis.llen(settings.maintenance_group) == WAITING_MAX


def test_a_broker_that_cannot_be_asked_is_not_full() -> None:
    app = make_celery(Settings(broker_url="redis://127.0.0.1:1/0"))
    assert not is_full(app, "master")


#: A day in parts; what is left behind each time, or by each message, is seen after a few.
PARTS, FIRST_PARTS = 16, 4


def kept(kit: Kit, *queues: str) -> dict[str, int]:
    """What Redis has of this installation for good, by key: how many things are in it."""
    redis, found = kit.connections.redis, {}
    sizes = {"list": "llen", "zset": "zcard", "set": "scard", "hash": "hlen", "stream": "xlen"}
    names = [*redis.scan_iter(f"{kit.settings.key_prefix}*", count=1_000)]
    names += [name for queue in queues for name in redis.scan_iter(f"{queue}*")]
    for name in names:
        kind = str(redis.type(name))
        # What has a time to live is bounded by it; the clock of this day is not that of Redis.
        if kind in sizes and redis.ttl(name) == -1:
            found[str(name)] = int(getattr(redis, sizes[kind])(name))
    return {name: size for name, size in found.items() if size}


@pytest.fixture
def day(datp_servers: Servers) -> Iterator[Kit]:
    """Queues have no prefix, so each has a name of its own."""
    names = {name: f"day-{secrets.token_hex(4)}" for name in ("maintenance_group", "ledger_group")}
    kit = Kit(datp_servers, **names)
    yield kit
    kit.connections.redis.delete(*names.values())
    kit.close()


def test_a_day_of_beat_with_a_worker_of_master_alone_leaves_nothing_in_redis(
    day: Kit, tmp_path: Path
) -> None:
    @day.step("t/day")
    def step(ctx: object, data: object) -> None:
        pass

    day.use(Pipeline("p").step("t/day").build())
    app = make_celery(day.settings)
    app.conf.beat_schedule = schedule.beat_schedule(day.settings)
    scheduler = Service(app, None, str(tmp_path / "beat"), app.conf.beat_scheduler).get_scheduler()
    queues = day.settings.maintenance_group, day.settings.ledger_group
    first: dict[str, int] = {}
    ran = 0
    try:
        for part in range(PARTS):
            for job in schedule.JOBS:
                scheduler.apply_entry(scheduler.schedule[job])
            day.run("p", {})
            day.clock.advance(seconds=86_400 / PARTS)
            day.process.heartbeat.beat_once()
            ran += take_all(day, queues[0])
            if part == FIRST_PARTS:
                first = kept(day, *queues)
    finally:
        scheduler.close()
        app.close()
    assert ran == PARTS * len(schedule.JOBS)
    assert first and kept(day, *queues) == first


def take_all(kit: Kit, queue: str) -> int:
    """What a worker of one queue does with the messages there; how many there were."""
    redis, count = kit.connections.redis, 0
    while (message := redis.lpop(queue)) is not None:
        job = str(json.loads(str(message))["headers"]["task"]).removeprefix(schedule.TASK_PREFIX)
        # The last run is some time ago, by the clock of this day.
        redis.delete(kit.connections.live.keys.outside(f"tick:{job}"))
        kit.process.run_job(job, False)
        count += 1
    return count
