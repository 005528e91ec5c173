"""The payee of a transaction: another owner here, who is told of its end.

A pipeline says which field of the input names that owner, and what of the input it is shown:

    payee: {owner: payee.bank, show: [transferId, amount]}
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from datp_tasks.model.paths import MISSING, lookup, path_mistake
from datp_tasks.model.payload import encode

OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}")
SHOWN_MAX = 20
#: It rests in the feed of an owner who has not asked for it.
SHOWN_BYTES_MAX = 8_192


class PayeeInvalid(ValueError):
    """The input names no owner as the payee, or would show it too much."""


@dataclass(frozen=True, slots=True)
class Payee:
    """Where a pipeline finds the payee of a transaction, and what that one is shown."""

    owner: str
    show: tuple[str, ...] = ()

    @classmethod
    def from_mapping(cls, clean: Mapping[str, Any] | None) -> Self | None:
        return cls(clean["owner"], tuple(clean.get("show", ()))) if clean else None

    def to_mapping(self) -> dict[str, Any]:
        return {"owner": self.owner} | ({"show": list(self.show)} if self.show else {})

    def of(self, given: Mapping[str, Any]) -> dict[str, Any] | None:
        """Who is told, and what is shown; None if the input names no payee. A payee without an
        account here is told by the step that pays."""
        name = lookup(given, self.owner)
        if name is MISSING or name is None:
            return None
        if not isinstance(name, str) or not OWNER.fullmatch(name):
            raise PayeeInvalid(f"input.{self.owner} must be the name of an owner, was {name!r:.60}")
        found = ((path, lookup(given, path)) for path in self.show)
        data = {path: copy.deepcopy(value) for path, value in found if value is not MISSING}
        size = len(encode(data).encode())
        if size > SHOWN_BYTES_MAX:
            raise PayeeInvalid(
                f"what the payee is shown is {size} bytes of JSON; {SHOWN_BYTES_MAX} are allowed"
            )
        return {"owner": name, "data": data}


def shown_nothing(payee_json: str) -> str:
    """The same payee, who is told of the end alone."""
    return encode({**json.loads(payee_json), "data": {}})


def payee_mistakes(value: object) -> list[str]:
    """What is wrong with what a pipeline file says under `payee`."""
    if not isinstance(value, Mapping) or not {"owner"} <= set(value) <= {"owner", "show"}:
        return ["must be {owner: path} or {owner: path, show: [path, …]}"]
    show = value.get("show", [])
    if not isinstance(show, list | tuple) or len(show) > SHOWN_MAX:
        return [f"show must be a list of up to {SHOWN_MAX} paths"]
    found = [path_mistake(value["owner"], "owner"), *(path_mistake(e, "show") for e in show)]
    return [each for each in found if each]
