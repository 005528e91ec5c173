"""A command group that knows its commands by name and imports a command when it is called."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from datp_tasks.cli.command_roles import guarded
from datp_tasks.cli.families import FAMILIES


class LazyGroup(TyperGroup):
    """Its commands are lines of help until one of them is resolved."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        for family, commands in FAMILIES.items():
            for name, line in commands.items():
                self.commands[name] = _Announced(family, name, line)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, _Announced) else command, rest


class _Announced(TyperCommand):
    """The name and the help of a command whose module is not imported yet."""

    def __init__(self, family: str, name: str, line: str) -> None:
        super().__init__(name, help=line)
        self._family = family

    def load(self) -> Any:
        assert self.name is not None
        return guarded(self.name, commands_of(self._family)[self.name])


def commands_of(family: str) -> dict[str, Any]:
    """The real commands of one module of `datp_tasks.cli`, imported now."""
    holder = typer.Typer()
    import_module(f"datp_tasks.cli.{family}").add_commands(holder)
    return dict(typer.main.get_group(holder).commands)
