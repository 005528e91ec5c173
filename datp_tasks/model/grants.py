"""What a key may do, as short texts: `submit:<pipeline>`, `read`, `cancel`, `switch:<name>`,
`wake`, `batch:<service>`, `endpoints`. A `*` at the end of a name stands for any rest of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Self

from datp_tasks.errors import KeyInvalid

GrantKind = Literal["submit", "read", "cancel", "switch", "wake", "batch", "endpoints"]

PLAIN = ("read", "cancel", "wake", "endpoints")
NAMED = ("submit", "switch", "batch")
#: As many as a person can still read; a key that needs more is better two keys.
GRANTS_MAX = 64
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,127}\*?|\*")


@dataclass(frozen=True, slots=True)
class Grants:
    """An explicit list: whatever is not in it is refused."""

    texts: tuple[str, ...]

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Self:
        """From what a person wrote, or KeyInvalid with the first mistake."""
        found = sorted(set(texts))
        if len(found) > GRANTS_MAX:
            raise KeyInvalid(f"a key has at most {GRANTS_MAX} grants, was {len(found)}")
        for text in found:
            _check(text)
        return cls(tuple(found))

    def allows(self, kind: GrantKind, name: str = "") -> bool:
        if kind in PLAIN:
            return kind in self.texts
        return any(_covers(text, kind, name) for text in self.texts)


def _covers(text: str, kind: str, name: str) -> bool:
    given, _, pattern = text.partition(":")
    if given != kind:
        return False
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def _check(text: str) -> None:
    kind, colon, name = text.partition(":")
    if kind in PLAIN and not colon:
        return
    if kind in NAMED and NAME.fullmatch(name):
        return
    raise KeyInvalid(
        f"a grant is read, cancel, wake, endpoints, submit:<pipeline>, switch:<name> or "
        f"batch:<service>, with `*` at the end of a name for any rest of it; was {text!r:.100}"
    )
