"""Which role each command needs, when the person at the keyboard acts with a key.

Without DATP_OPERATOR_KEY a command runs with all the rights of the passwords that it was given, as
an admin: what the command line could refuse then, the person could do with `psql`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

from datp_tasks.cli.acting import KEY_VARIABLE
from datp_tasks.errors import NotGranted
from datp_tasks.model.actor import Role

VIEWER, OPERATOR, ADMIN = Role.VIEWER, Role.OPERATOR, Role.ADMIN

#: Commands of this machine: they start programs, and what those may do is their own matter.
LOCAL_COMMANDS: Final = frozenset({"up", "demo", "env", "api", "ledger-sim"})
#: Command → role; one that is not here needs an admin.
NEEDED: Final[dict[str, Role]] = {
    **dict.fromkeys(("status", "watch"), OPERATOR),
    **dict.fromkeys(("switch", "cancel", "wake", "retry", "resolve", "clear-alert"), OPERATOR),
    **dict.fromkeys(("approvals list", "approvals show"), VIEWER),
    **dict.fromkeys(("approvals approve", "approvals reject"), Role.APPROVER),
    **dict.fromkeys(("bulk cancel", "bulk wake", "bulk retry"), OPERATOR),
    **dict.fromkeys(("replay", "audit", "audit actions", "logs"), OPERATOR),
    "retention list": VIEWER,
    **dict.fromkeys(("why", "list", "alerts", "doctor", "timeouts", "top", "nodes"), VIEWER),
    **dict.fromkeys(("groups list", "groups show", "steps list", "steps show"), VIEWER),
    "groups set": OPERATOR,
    **dict.fromkeys(
        ("pipelines list", "pipelines show", "pipelines export", "pipelines diff"), VIEWER
    ),
    # Its cases run on servers of their own.
    **dict.fromkeys(("pipelines test", "mappings list", "mappings show"), VIEWER),
    **dict.fromkeys(("webhooks list", "webhooks show"), OPERATOR),
    "webhooks redeliver": OPERATOR,
    **dict.fromkeys(("endpoints list", "endpoints show"), VIEWER),
    # Starting is a matter of grants, which the request is checked against.
    **dict.fromkeys(("submit", "bulk-transfers submit"), VIEWER),
    **dict.fromkeys(("bulk-transfers show", "bulk-transfers cancel"), OPERATOR),
    **dict.fromkeys(("claims", "services list", "batches list", "batches show"), VIEWER),
    **dict.fromkeys(("batches park", "batches resume"), OPERATOR),
    **dict.fromkeys(("batches resubmit", "batches resolve"), OPERATOR),
}


def needed(path: str) -> Role | None:
    """The role that a command needs; None for those of this machine."""
    return None if path in LOCAL_COMMANDS else NEEDED.get(path, ADMIN)


def guarded(path: str, command: Any) -> Any:
    """The command, or all commands of a group, behind the check of its role."""
    for name, each in getattr(command, "commands", {}).items():
        guarded(f"{path} {name}", each)
    if command.callback is not None and (
        not hasattr(command, "commands") or command.invoke_without_command
    ):
        command.callback = _checked(path, command.callback)
    return command


def check(path: str) -> None:
    """Raise NotGranted if the key that the person acts with does not allow it."""
    from datp_tasks.cli.command_context import connect_sql, is_remote

    role = needed(path)
    # Over HTTP the server checks the key that it is given.
    if role is None or is_remote() or not os.environ.get(KEY_VARIABLE):
        return

    if not connect_sql().actor.has(role):
        raise NotGranted(f"`datp {path}` needs a key with the role {role} in {KEY_VARIABLE}.")


def _checked(path: str, run: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(run)
    def checked(*arguments: Any, **options: Any) -> Any:
        check(path)
        return run(*arguments, **options)

    return checked
