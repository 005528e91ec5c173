"""The step modules that DATP_STEPS names: imported, or refused with a sentence that says why."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from datp_tasks.engine.registry import discover
from datp_tasks.errors import DatpError, StepTypeInvalid


def import_steps(modules: Sequence[str], *, of_stack: Path | None = None) -> None:
    """Import them one by one, so that the error names the module and what is wrong with it.

    `of_stack`: where the `datp up` runs whose modules they are, if DATP_STEPS is not set here.
    """
    for module in ("", *modules):
        _import(module, of_stack)


def import_what_is_here(modules: Sequence[str], of_stack: Path) -> Iterator[str]:
    """Import the modules of a running `datp up`; say of each that cannot be why it cannot."""
    for module in ("", *modules):
        try:
            _import(module, of_stack)
        except StepTypeInvalid as error:
            yield str(error)


def _import(module: str, of_stack: Path | None) -> None:
    whose = f" These are the steps of the `datp up` that runs in {of_stack}." if of_stack else ""
    try:
        discover((module,) if module else ())
    except DatpError as error:
        raise StepTypeInvalid(f"{error}. {_where_it_is_looked_for()}{whose}") from error
    except Exception as error:
        raise StepTypeInvalid(
            f"DATP_STEPS names the module {module!r}, whose import fails: "
            f"{type(error).__name__}: {error}{'.' if whose else ''}{whose}"
        ) from error


def _where_it_is_looked_for() -> str:
    return (
        f"DATP_STEPS holds module names with commas between them, such as `my_steps` for the file "
        f"my_steps.py; they are looked for in {os.getcwd()}, in PYTHONPATH and among the "
        f"installed packages."
    )
