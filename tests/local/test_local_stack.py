from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from typer.testing import CliRunner

from datp_tasks.cli import app as whole_app
from datp_tasks.cli.command_context import connect, connect_sql, server_of
from datp_tasks.errors import LocalStackError
from datp_tasks.local.interruptions import Interruptions
from datp_tasks.local.stack import Stack, read_run_file
from tests.support.eventually import eventually

IsGone = Callable[[int], bool]

# A real Celery application with one task, which takes a second.
TINY_APP = """
import os, threading
from pathlib import Path
from celery import Celery

app = Celery("tiny_app", broker=os.environ["DATP_BROKER_URL"])
app.conf.broker_connection_retry_on_startup = True

@app.task(name="slow")
def slow(place):
    Path(place, "begun").touch()
    threading.Event().wait(1)
    Path(place, "done").touch()
"""

SEND_SLOW = """
import sys
from tiny_app import slow
slow.apply_async([sys.argv[1]], queue="master")
"""

# `datp up` in small: servers only, until interrupted.
UP = """
import sys
from pathlib import Path
from datp_tasks.local.interruptions import Interruptions
from datp_tasks.local.stack import Stack

with Stack(Path(sys.argv[1]), durable=False, say=lambda line: None) as stack:
    stack.start_servers()
    Path(sys.argv[1], "up").touch()
    stack.run_until_interrupted()
Path(sys.argv[1], "down").touch()
"""


@pytest.fixture
def place(quick_dir: Path, seed_cluster: Callable[[Path], None]) -> Path:
    place = quick_dir / ".datp"
    seed_cluster(place / "pg")
    return place


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def stack(place: Path, open_dir: Path, said: list[str]) -> Iterator[Stack]:
    (open_dir / "tiny_app.py").write_text(TINY_APP)
    environment = python_path(open_dir)
    with Stack(
        place, say=said.append, durable=False, app="tiny_app", environment=environment
    ) as stack:
        yield stack


def python_path(directory: Path) -> dict[str, str]:
    before = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": os.pathsep.join([str(directory), *([before] if before else [])])}


def up(place: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", UP, str(place)])
    eventually(lambda: (place / "up").exists() or process.poll() is not None)
    assert process.poll() is None
    return process


def set_and_get(url: str, key: str, value: str | None = None) -> object:
    client = redis.Redis.from_url(url, decode_responses=True)
    try:
        if value is not None:
            client.set(key, value)
        return client.get(key)
    finally:
        client.close()


def test_workers_are_supervised_and_finish_their_task_before_the_end(
    stack: Stack,
    place: Path,
    open_dir: Path,
    said: list[str],
    process_is_gone: IsGone,
) -> None:
    urls = stack.start_servers()
    stack.start_workers(["master", "bank"])
    first = read_run_file(place)
    assert first is not None and first.groups == ("master", "bank")
    assert set(first.pids) == {"PostgreSQL", "Redis", "worker master", "worker bank", "beat"}

    os.kill(first.pids["worker bank"], signal.SIGKILL)

    def bank_is_back() -> bool:
        stack.check()
        info = read_run_file(place)
        return info is not None and info.pids["worker bank"] != first.pids["worker bank"]

    eventually(bank_is_back)
    assert "worker bank exited (by SIGKILL), starting again in 0.5 s" in said

    subprocess.run(
        [sys.executable, "-c", SEND_SLOW, str(open_dir)],
        env={**os.environ, **urls.as_environment(), **python_path(open_dir)},
        check=True,
    )
    eventually((open_dir / "begun").exists)
    last = read_run_file(place)
    assert last is not None
    stack.stop()
    assert (open_dir / "done").exists()
    for pid in {*first.pids.values(), *last.pids.values()}:
        assert process_is_gone(pid)
        with pytest.raises(ProcessLookupError):
            os.killpg(pid, 0)
    assert read_run_file(place) is None


def test_a_group_that_comes_later_gets_a_worker_once_and_that_is_said(
    stack: Stack, place: Path, said: list[str], process_is_gone: IsGone
) -> None:
    stack.start_servers()
    stack.start_workers(["master"])
    for _ in range(2):
        stack.add_workers(["master", "shop"])
    info = read_run_file(place)
    assert info is not None and info.groups == ("master", "shop")
    assert [child.name for child in stack.children].count("worker shop") == 1
    (line,) = [line for line in said if "shop" in line]
    assert line.startswith("node group shop is new: its worker has started, see ")
    assert line.endswith("logs/worker-shop.log")
    with pytest.raises(LocalStackError, match="is not the name of a node group"):
        stack.add_workers(["../shop"])
    stack.stop()
    assert process_is_gone(info.pids["worker shop"])


def test_a_second_stack_in_the_same_place_is_refused(stack: Stack, place: Path) -> None:
    stack.start_servers()
    second = Stack(place, durable=False)
    with pytest.raises(LocalStackError, match=rf"already running .*pid {os.getpid()}, since 20"):
        second.start_servers()
    second.stop()
    info = read_run_file(place)
    assert info is not None and info.redis_url == stack.urls.redis_url
    assert "redis://" not in repr(info) and "redis://" not in repr(stack.urls)
    for name in ("run.json", "lock"):
        assert stat.S_IMODE((place / name).stat().st_mode) == 0o600


def test_given_servers_are_used(tmp_path: Path) -> None:
    with Stack(tmp_path, redis_url="unix:///run/r.sock", database_url="postgresql://db/x") as stack:
        urls = stack.start_servers()
        assert not stack.children
        assert urls.as_environment() == {
            "DATP_MAINTENANCE_GROUP": "maintenance",
            "DATP_SECURITY__POLICY_FILE": "single-person",
            "DATP_REDIS_URL": "unix:///run/r.sock",
            "DATP_DATABASE_URL": "postgresql://db/x",
        }
        with pytest.raises(LocalStackError, match="not the name of a node group"):
            stack.start_workers(["../other"])


def test_a_command_beside_a_stack_knows_the_steps_of_its_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DATP_REDIS_URL", "DATP_DATABASE_URL", "DATP_STEPS"):
        monkeypatch.delenv(name, raising=False)
    given = {"redis_url": "redis://r/0", "database_url": "postgresql://db/x"}
    with Stack(tmp_path, environment={"DATP_STEPS": "shop, bank.steps"}, **given) as stack:  # type: ignore[arg-type]
        stack.start_servers()
        assert connect(tmp_path).settings.steps == ("shop", "bank.steps")
        assert connect(tmp_path).steps_of_stack == tmp_path
        monkeypatch.setenv("DATP_STEPS", "mine")
        context = connect(tmp_path)
        assert (context.settings.steps, context.steps_of_stack) == (("mine",), None)
        with Stack(tmp_path / "other", **given) as other:  # type: ignore[arg-type]
            ports = {each.take_port(5_555) for each in (stack, other)}
            assert len(ports) == 2, "they may start at the same moment"


OF_BESIDE = {"DATP_REDIS_URL": "redis://r/0", "DATP_DATABASE_URL": "postgresql://db/x"}


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a stack that was given all its servers."""
    names = ("BROKER_URL", "STEPS", "KEY_PEPPER", "SECURITY__POLICY_FILE")
    for name in (*OF_BESIDE, *(f"DATP_{each}" for each in names)):
        monkeypatch.delenv(name, raising=False)
    redis_url, database_url = OF_BESIDE.values()
    given = {"redis_url": redis_url, "database_url": database_url}
    with Stack(tmp_path, environment={"DATP_STEPS": "shop"}, **given) as stack:  # type: ignore[arg-type]
        stack.key_pepper()
        stack.start_servers()
        yield tmp_path


def test_a_command_for_other_servers_takes_nothing_of_the_stack_beside_it(
    beside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pepper = connect(beside).settings.key_pepper
    assert pepper
    # As after `export`, with the servers of this very stack.
    monkeypatch.setenv("DATP_REDIS_URL", "redis://r/0")
    monkeypatch.setenv("DATP_DATABASE_URL", "postgresql://db/x")
    same = connect(beside)
    assert (same.settings.steps, same.settings.key_pepper) == (("shop",), pepper)
    monkeypatch.setenv("DATP_REDIS_URL", "redis://production/0")
    monkeypatch.setenv("DATP_DATABASE_URL", "postgresql://production/x")
    other = connect(beside)
    assert (other.environment, other.steps_of_stack) == ({}, None)
    assert (other.settings.steps, other.settings.key_pepper) == ((), "")
    assert other.settings.policy_file != "single-person"
    # Whoever asks for the stack gets the whole of it.
    told = CliRunner().invoke(whole_app, ["env", "--directory", str(beside)]).output
    assert "DATP_DATABASE_URL=postgresql://db/x" in told and f"DATP_KEY_PEPPER={pepper}" in told


@pytest.mark.parametrize(
    ("redis_url", "database_url"),
    [
        ("redis://localhost:6379/0", "postgresql+psycopg2://me@127.0.0.1/x"),
        ("redis://127.0.0.1", "postgresql://127.0.0.1:5432/x"),
        ("redis://:secret@[::1]/", ""),
        ("redis://127.0.0.1?socket_timeout=5", "postgresql://127.0.0.1/x?sslmode=disable"),
        ("redis://127.0.0.1/7?db=0", "postgresql:///x?host=localhost&port=5432"),
        ("redis://127.0.0.1", "  "),
    ],
)
def test_servers_of_the_stack_are_known_however_they_are_spelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, redis_url: str, database_url: str
) -> None:
    of_stack = {
        "redis_url": "redis://127.0.0.1:6379/0",
        "database_url": "postgresql+psycopg2://datp:pw@localhost:5432/x",
    }
    for name, url in (("DATP_REDIS_URL", redis_url), ("DATP_DATABASE_URL", database_url)):
        monkeypatch.setenv(name, url)
    with Stack(tmp_path, environment={"DATP_STEPS": "shop"}, **of_stack) as stack:  # type: ignore[arg-type]
        stack.start_servers()
        settings = connect(tmp_path).settings
    assert (settings.steps, settings.redis_url) == (("shop",), redis_url)
    assert settings.database_url == (database_url.strip() or of_stack["database_url"])


def test_what_a_url_leads_to_is_not_its_options() -> None:
    others = [
        "redis://h/0",
        "redis://h/0?db=1",
        "rediss://h/0",
        "unix:///run/r.sock",
        "unix:///run/r.sock?db=1",
        "postgresql://h/x",
        "postgresql://h/x?host=g",
        "postgresql://h/x?port=5433",
        "postgresql://h/x?dbname=y",
        "postgresql://h:port/x",
    ]
    assert len({server_of(each) for each in others}) == len(others)
    assert server_of(" unix:///run/r.sock?db=0 ") == server_of("unix:///run/r.sock")


def test_one_server_of_another_and_one_of_the_stack_are_refused(
    beside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, url, missing in (
        ("DATP_REDIS_URL", "redis://r/1", "DATP_DATABASE_URL"),
        ("DATP_DATABASE_URL", "postgresql://production/x", "DATP_REDIS_URL"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, url)
            with pytest.raises(LocalStackError) as refused:
                connect(beside)
            assert f"{name} names another server than the `datp up`" in str(refused.value)
            assert f"{missing} names none: set both" in str(refused.value)
            # `datp env` is how a shell gets back to the stack.
            told = CliRunner().invoke(whole_app, ["env", "--directory", str(beside)]).output
            # As after `eval "$(datp env)"`: the second one is named, and is the stack's.
            patch.setenv(missing, OF_BESIDE[missing])
            with pytest.raises(LocalStackError, match=f"{missing} names a server of it: set both"):
                connect(beside)
        assert "DATP_DATABASE_URL=postgresql://db/x" in told
        assert "DATP_REDIS_URL=redis://r/0" in told


def test_a_command_that_uses_sql_alone_needs_no_redis_of_the_same_place(
    beside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside.rename(beside.parent / ".datp")
    monkeypatch.chdir(beside.parent)
    migrated: list[str] = []
    monkeypatch.setattr("datp_tasks.cli.up.migrate", migrated.append)
    try:
        assert connect_sql().settings.steps == ("shop",)
        for redis_url in ("", "redis://r/0", "redis://production/0"):
            monkeypatch.setenv("DATP_REDIS_URL", redis_url)
            monkeypatch.setenv("DATP_DATABASE_URL", "postgresql://staging/x")
            context = connect_sql()
            assert context.settings.database_url == "postgresql://staging/x"
            assert (context.environment, context.settings.steps) == ({}, ())
            assert CliRunner().invoke(whole_app, ["migrate"]).exit_code == 0
            assert migrated.pop() == "postgresql://staging/x"
            monkeypatch.delenv("DATP_DATABASE_URL")
            assert connect_sql().settings.database_url == OF_BESIDE["DATP_DATABASE_URL"]
    finally:
        (beside.parent / ".datp").rename(beside)


@pytest.mark.parametrize(
    ("redis_url", "database_url"),
    [
        ("redis://:old@r/0", "postgresql://me:old@db/x"),
        ("redis://h:port", "mysql://db"),
    ],
)
def test_env_prints_the_addresses_of_the_stack_and_not_those_of_the_shell(
    beside: Path, monkeypatch: pytest.MonkeyPatch, redis_url: str, database_url: str
) -> None:
    for name, url in (
        ("DATP_REDIS_URL", redis_url),
        ("DATP_DATABASE_URL", database_url),
        ("DATP_BROKER_URL", "redis://:old@r/1"),
    ):
        monkeypatch.setenv(name, url)
    told = CliRunner().invoke(whole_app, ["env", "--directory", str(beside)]).output.splitlines()
    for name, url in {**OF_BESIDE, "DATP_BROKER_URL": "''"}.items():
        assert f"export {name}={url}" in told


@pytest.mark.parametrize("name", [".", "run.json"])
def test_a_run_file_that_others_may_have_written_is_not_used(
    beside: Path, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = beside / name
    mode = stat.S_IMODE(path.stat().st_mode)
    assert read_run_file(beside) is not None
    for open_to in (stat.S_IWGRP, stat.S_IWOTH):
        path.chmod(mode | open_to)
        assert read_run_file(beside) is None
    assert f"{path} is not used" in caplog.text
    path.chmod(mode)
    assert read_run_file(beside) is not None


def test_a_run_file_of_another_user_is_not_used(
    beside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() == 0:
        os.chown(beside / "run.json", 12_345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12_345)
    assert read_run_file(beside) is None


def test_ctrl_c_stops_everything_and_the_data_stays(place: Path, process_is_gone: IsGone) -> None:
    process = up(place)
    info = read_run_file(place)
    assert info is not None and info.pid == process.pid
    set_and_get(info.redis_url, "kept", "7")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=15) == 0
    assert (place / "down").exists()
    assert all(process_is_gone(pid) for pid in info.pids.values())
    assert read_run_file(place) is None

    with Stack(place, durable=False) as again:
        urls = again.start_servers()
        assert (urls.redis_url, urls.database_url) == (info.redis_url, info.database_url)
        assert set_and_get(urls.redis_url, "kept") == "7"


def test_destroy_deletes_everything(tmp_path: Path, said: list[str]) -> None:
    # As root, pytest's own directory is one that PostgreSQL's user cannot enter.
    stack = Stack(tmp_path / ".datp", durable=False, say=said.append)
    stack.start_servers()
    elsewhere = [line.rpartition(" ")[2] for line in said if "keeps its data" in line]
    assert len(elsewhere) == (1 if os.geteuid() == 0 else 0)
    assert all(Path(place).exists() for place in elsewhere)
    stack.destroy()
    assert not (tmp_path / ".datp").exists()
    assert not any(Path(place).parent.exists() for place in elsewhere)


def test_signals_are_noted_and_only_ctrl_c_again_forces() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Interruptions() as interruptions:
        assert not interruptions.asked()
        signal.raise_signal(signal.SIGTERM)
        assert interruptions.asked()
        signal.raise_signal(signal.SIGTERM)
        assert not interruptions.forced()
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        assert interruptions.forced()
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_killed_stack_leaves_no_orphans_and_its_data(
    place: Path, process_is_gone: IsGone
) -> None:
    process = up(place)
    info = read_run_file(place)
    assert info is not None
    set_and_get(info.redis_url, "kept", "7")
    process.kill()
    process.wait()
    assert json.loads((place / "run.json").read_text())["pid"] == process.pid
    assert read_run_file(place) is None
    if sys.platform == "linux":
        eventually(lambda: all(process_is_gone(pid) for pid in info.pids.values()))
        assert "database system is shut down" in (place / "logs" / "postgres.log").read_text()

    with Stack(place, durable=False) as again:
        urls = again.start_servers()
        assert set_and_get(urls.redis_url, "kept") == "7"
