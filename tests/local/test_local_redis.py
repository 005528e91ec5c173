from __future__ import annotations

import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import redis

from datp_tasks.errors import LocalStackError
from datp_tasks.local.redis_server import RedisServer, allocator_settings

NewRedis = Callable[..., RedisServer]
MANY_KEYS = 200_000
FILL = "for i = 1, tonumber(ARGV[1]) do redis.call('SET', 'key' .. i, i) end"


@contextmanager
def connected(url: str) -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(url, decode_responses=True)
    try:
        yield client
    finally:
        client.close()


def test_a_restart_keeps_data_and_url(new_redis: NewRedis) -> None:
    server = new_redis()
    server.start()
    url = server.url
    with connected(url) as client:
        client.set("kept", "7")
    server.stop()
    assert not server.is_running() and server.pid is None and server.exit_code == 0

    again = new_redis()
    again.start()
    assert again.url == url
    with connected(url) as client:
        assert client.get("kept") == "7"


def test_a_killed_server_comes_back_with_its_data(new_redis: NewRedis) -> None:
    server = new_redis(appendfsync="always")
    server.start()
    with connected(server.url) as client:
        client.set("kept", "7")
    server.kill()
    assert not server.is_running() and server.exit_code == -9

    server.start()
    with connected(server.url) as client:
        assert client.get("kept") == "7"
        assert client.config_get("appendfsync") == {"appendfsync": "always"}


@pytest.mark.parametrize(
    ("library", "is_tuned"),
    [
        (("glibc", "2.29"), False),
        (("glibc", "2.30"), True),
        (("glibc", "2.4"), False),
        (("glibc", "3.0"), True),
        (("glibc", ""), False),
        (("musl", "2.31"), False),
        (("", ""), False),
    ],
)
def test_the_allocator_is_tuned_only_where_its_counters_are_wide_enough(
    library: tuple[str, str], is_tuned: bool
) -> None:
    """Before glibc 2.30 a list of pieces is counted in one byte."""
    assert bool(allocator_settings(library)) is is_tuned


def test_settings_and_access(new_redis: NewRedis) -> None:
    server = new_redis()
    server.start()
    with connected(server.url) as client:
        for name, value in (
            ("appendonly", "yes"),
            ("appendfsync", "everysec"),
            ("auto-aof-rewrite-min-size", str(256 * 1024 * 1024)),
            ("maxmemory-policy", "noeviction"),
            ("save", ""),
            ("databases", "64"),
            ("bind", "127.0.0.1"),
        ):
            assert client.config_get(name) == {name: value}
    with (
        connected(f"redis://127.0.0.1:{server.port}/0") as stranger,
        pytest.raises(redis.AuthenticationError),
    ):
        stranger.ping()
    for name in ("password", "redis.conf"):
        assert stat.S_IMODE((server.data_dir / name).stat().st_mode) == 0o600


def test_start_waits_until_everything_is_loaded(new_redis: NewRedis) -> None:
    server = new_redis(appendfsync="no")
    server.start()
    with connected(server.url) as client:
        client.eval(FILL, 0, str(MANY_KEYS))
    server.stop()

    server.start()
    with connected(server.url) as client:
        assert client.dbsize() == MANY_KEYS


def test_a_second_server_on_the_same_data_is_refused(new_redis: NewRedis) -> None:
    server = new_redis()
    server.start()
    second = new_redis()
    with pytest.raises(LocalStackError, match="already runs"):
        second.start()
    assert server.is_running()

    second.stop_leftover()
    assert not server.is_running()
    second.start()
    assert second.url == server.url


def test_a_port_that_another_process_took_is_replaced_at_the_first_start(
    new_redis: NewRedis,
) -> None:
    server = new_redis()
    server.start()
    server.stop()
    with socket.create_server(("127.0.0.1", server.port)):
        again = new_redis()
        again.start()
        assert again.port != server.port
        # A server whose URL is in use keeps it and says why it cannot start.
        with pytest.raises(LocalStackError, match="Address already in use"):
            RedisServer(server.data_dir.with_name("other"), port=server.port).start()


def test_an_unknown_fsync_policy_is_refused(new_redis: NewRedis) -> None:
    with pytest.raises(LocalStackError, match="appendfsync must be one of"):
        new_redis(appendfsync="sometimes")
