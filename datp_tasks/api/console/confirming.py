"""The page before an action: what will happen, and the form that does it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fastapi.responses import Response

from datp_tasks.api.console.visit import Visit
from datp_tasks.model.actor import Role


@dataclass(frozen=True, slots=True)
class ConfirmField:
    """What the form asks for beside a reason."""

    name: str
    label: str
    type: str = "text"
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirm:
    """One action, as its page names it."""

    title: str
    #: What will happen, in a sentence each.
    says: list[str]
    #: Where the form goes, and where a person goes who does not want it.
    act: str
    back: str
    button: str
    #: The same on the command line; with several, each is one way to decide.
    cli: str | list[str]
    role: Role = Role.OPERATOR
    #: Why it is not possible now; empty: it is.
    impossible: str = ""
    #: Name -> what it means; one of them is chosen.
    choices: Mapping[str, str] = field(default_factory=dict)
    fields: list[ConfirmField] = field(default_factory=list)
    wants_reason: bool = True
    #: The policy may want a second person.
    is_guarded: bool = False
    is_danger: bool = False


def confirm_page(visit: Visit, confirm: Confirm) -> Response:
    commands = [confirm.cli] if isinstance(confirm.cli, str) else confirm.cli
    return visit.page(
        "action.html",
        title=confirm.title,
        confirm=confirm,
        commands=commands,
        may_do=visit.has(confirm.role),
    )


def breaks_glass(visit: Visit) -> bool:
    """The person acts alone although the policy wants two."""
    return visit.form.get("break_glass") == "yes"
