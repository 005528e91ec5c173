"""Who runs a command: the operator key in DATP_OPERATOR_KEY, else the user of this machine."""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

from datp_tasks.errors import KeyInvalid
from datp_tasks.model.actor import Actor, Role

if TYPE_CHECKING:
    from datp_tasks.cli.command_context import Context

KEY_VARIABLE = "DATP_OPERATOR_KEY"
NAME_VARIABLE = "DATP_ACTOR"


def actor_of(context: Context) -> Actor:
    """A key is checked; without one there is only what the machine and the person say."""
    text = os.environ.get(KEY_VARIABLE)
    if not text:
        return Actor(name=f"cli {_user()}", role=Role.ADMIN)
    found = context.api_keys.verify(text)
    if found is None:
        raise KeyInvalid(f"The key in {KEY_VARIABLE} is unknown, has expired or was revoked.")
    if found.role is None:
        raise KeyInvalid(f"The key in {KEY_VARIABLE} is a client's; give one with a role.")
    return found.actor()


def _user() -> str:
    try:
        # Not getpass: that believes LOGNAME, and one person could be two.
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        # A container may run under a number that has no name.
        user = f"uid {os.getuid()}"
    said = os.environ.get(NAME_VARIABLE)
    # What a person says of itself does not hide what the machine knows.
    return f"{user} as {said}" if said and said != user else user
