"""`datp keyring`, `datp secrets` and `datp unmask`: what is sealed, and what it is sealed with."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer
from rich.console import Console

from datp_tasks.api.serializers import line_json, time_text
from datp_tasks.cli.command_context import Context, connect, connect_sql, is_remote
from datp_tasks.cli.remote_calls import stays_on_host
from datp_tasks.cli.terminal_tables import (
    as_mapping,
    list_table,
    print_json,
    print_list,
    short_time,
)
from datp_tasks.errors import SealBroken, SettingsError
from datp_tasks.local.private_files import sole_writer, write_private
from datp_tasks.record.rekeying import Rekeying, ring_use
from datp_tasks.seals import keyring

if TYPE_CHECKING:
    from datp_tasks.cli.remote_context import RemoteContext

rings = typer.Typer(help="The key ring: make, change, and seal anew.", no_args_is_help=True)
secrets_app = typer.Typer(help="Secrets that parameters of pipelines name.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
File = Annotated[Path, typer.Argument(help="The file that DATP_SECURITY__KEYRING_FILE names.")]
KeyId = Annotated[str, typer.Argument(help="Which key, such as k2.")]
Name = Annotated[str, typer.Argument(help="As pipelines name it: {secret: NAME}.")]


def add_commands(root: typer.Typer) -> None:
    root.add_typer(rings, name="keyring")
    root.add_typer(secrets_app, name="secrets")
    root.command()(unmask)


# The ring.


def _resolved(file: Path) -> Path:
    """Those who reach a ring by different links change the same file, under the same lock."""
    found = file.resolve()
    if not found.parent.is_dir():
        raise SettingsError(f"there is no folder {found.parent}: make it, and run this again")
    return found


@rings.command()
def make(file: File) -> None:
    """Make a key ring with one key, readable for its owner only."""
    file = _resolved(file)
    with sole_writer(file):
        if file.exists():
            raise SettingsError(f"{file} exists; `datp keyring add` puts a new key into it")
        write_private(file, keyring.new_ring().to_json())
    typer.echo(f"made {file}; keep a copy apart from the backups of PostgreSQL")


@rings.command()
def add(file: File) -> None:
    """Put a new key into the ring. It seals nothing before `datp keyring activate`."""
    file = _resolved(file)
    with sole_writer(file):
        ring = keyring.with_new_key(keyring.read(file))
        write_private(file, ring.to_json())
    typer.echo(f"added {[*ring.keys][-1]}; give the file to every process, then activate it")


@rings.command()
def activate(file: File, key_id: KeyId) -> None:
    """Seal what is new under this key. Every process must have it in its ring already."""
    file = _resolved(file)
    with sole_writer(file):
        ring = keyring.read(file)
        if key_id not in ring.keys:
            raise SettingsError(f"{file} has no key {key_id!r}; it has {', '.join(ring.keys)}")
        write_private(file, ring.activated(key_id).to_json())
    typer.echo(f"{key_id} is active; restart the processes, then run `datp keyring rotate`")


@rings.command()
def drop(file: File, key_id: KeyId) -> None:
    """Take a key out of the ring, unless something is still sealed under it."""
    file = _resolved(file)
    with sole_writer(file):
        ring = keyring.read(file)
        if key_id == ring.active or key_id not in ring.keys:
            raise SettingsError(f"{key_id!r} is the active key of {file}, or not in it")
        used = [each for each in _rekeying(connect_sql(), ring).usage() if each.key_id == key_id]
        if used:
            rows = ", ".join(f"{each.rows} rows of {each.table}" for each in used)
            raise SealBroken(f"{key_id} still seals {rows}: run `datp keyring rotate` first")
        write_private(file, ring.without(key_id).to_json())
    typer.echo(f"{key_id} is gone from {file}; old backups of PostgreSQL may still need it")


@rings.command("list")
def list_keys(as_json: AsJson = False) -> None:
    """Show the ids of the keys, and how many rows each seals; never a key."""
    context = connect_sql()
    if is_remote():
        found = cast("RemoteContext", context).key_ring()
    else:
        ring = _ring(context)
        found = ring_use(ring, _rekeying(context, ring).usage())
    if as_json:
        print_json(Console(), found)
        return
    rows = [
        [
            str(each["key"]),
            "active" if each["active"] else "" if each["known"] else "not in the ring",
            str(each["rows"]),
        ]
        for each in found
    ]
    table = list_table(("key", "state", "rows"), rows, whole=("key", "rows"))
    print_list(Console(), table, empty="the key ring holds no key")


@rings.command()
def rotate() -> None:
    """Seal everything anew that is not sealed under the active key, page by page."""
    _refuse_if_remote()
    context = connect_sql()
    ring = _ring(context)
    counts: dict[str, int] = {}
    unreadable: list[str] = []
    for page in _rekeying(context, ring).reseal():
        counts[page.table] = counts.get(page.table, 0) + page.resealed
        unreadable += [f"{page.table} {place}" for place in page.unreadable]
    done = ", ".join(f"{count} rows of {table}" for table, count in counts.items())
    typer.echo(f"sealed anew under {ring.active}: {done or 'nothing was left to do'}")
    if unreadable:
        raise SealBroken(
            f"{len(unreadable)} rows are sealed under keys that are not in the ring, such as "
            f"{unreadable[0]}; put their keys back and run it again"
        )


def _refuse_if_remote() -> None:
    if is_remote():
        why = "the keys are in a file that no API gives away (`datp keyring list` works with --url)"
        stays_on_host("datp keyring", why)


def _ring(context: Context) -> keyring.KeyRing:
    return keyring.needed(keyring.load(context.settings), "this command")


def _rekeying(context: Context, ring: keyring.KeyRing) -> Rekeying:
    _refuse_if_remote()
    return Rekeying(context.engine, ring)


# Secrets.


@secrets_app.command("set")
def set_secret(name: Name) -> None:
    """Store a secret. Its value is read from the terminal or from standard input."""
    context = connect_sql()
    is_new = context.secrets.put(name, _value(name), actor=context.actor)
    typer.echo(f"stored {name}" if is_new else f"{name} has a new value; workers use it in seconds")


@secrets_app.command("rotate")
def rotate_secret(name: Name) -> None:
    """Give a secret that exists a new value."""
    context = connect_sql()
    value = _value(name)
    context.secrets.put(name, value, actor=context.actor, must_exist=True)
    typer.echo(f"{name} has a new value; workers use it in seconds")


@secrets_app.command("list")
def list_secrets(as_json: AsJson = False) -> None:
    """Show the names of the secrets; values are never shown."""
    found = connect_sql().secrets.list()
    if as_json:
        shown = [
            {"name": each.name, "key": each.key_id, "changedAt": time_text(each.changed_at)}
            for each in found
        ]
        print_json(Console(), shown)
        return
    rows = [[each.name, each.key_id, short_time(each.changed_at)] for each in found]
    table = list_table(("name", "key", "changed"), rows, whole=("name",))
    print_list(Console(), table, empty="no secrets; `datp secrets set` stores one")


@secrets_app.command("delete")
def delete_secret(name: Name) -> None:
    """Forget a secret; steps that name it fail from then on."""
    context = connect_sql()
    context.secrets.remove(name, actor=context.actor)
    typer.echo(f"{name} is gone")


def unmask(
    tx_id: Annotated[str, typer.Argument(help="Which transaction.")],
    reason: Annotated[str, typer.Option(help="Why; the audit table keeps it.")],
) -> None:
    """Show what a sealed transaction holds; the audit table keeps who looked."""
    context = connect()
    found = context.operator.unmask(tx_id, reason=reason, actor=context.actor)
    approvals = [{"id": number, "params": params} for number, params in found.approvals]
    more = {"approvals": approvals, "logs": [line_json(each) for each in found.lines]}
    shown = {**as_mapping(found.summary), "errors": found.errors, **more}
    print_json(Console(), shown)


def _value(name: str) -> str:
    if sys.stdin.isatty():
        return getpass.getpass(f"value of {name}: ")
    return sys.stdin.read().rstrip("\n")
