"""The step modules that DATP_STEPS names: imported, or refused with a sentence that says why."""

from __future__ import annotations

import os
from collections.abc import Sequence

from datp_tasks.engine.registry import discover
from datp_tasks.errors import DatpError, StepTypeInvalid


def import_steps(modules: Sequence[str]) -> None:
    """Import them one by one, so that the error names the module and what is wrong with it."""
    for module in ("", *modules):
        try:
            discover((module,) if module else ())
        except DatpError as error:
            raise StepTypeInvalid(f"{error}. {_where_it_is_looked_for()}") from error
        except Exception as error:
            raise StepTypeInvalid(
                f"DATP_STEPS names the module {module!r}, whose import fails: "
                f"{type(error).__name__}: {error}"
            ) from error


def _where_it_is_looked_for() -> str:
    return (
        f"DATP_STEPS holds module names with commas between them, such as `my_steps` for the file "
        f"my_steps.py; they are looked for in {os.getcwd()}, in PYTHONPATH and among the "
        f"installed packages."
    )
