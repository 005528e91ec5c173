"""Sealed values as everything but the vault sees them: opaque JSON that can be told from others."""

from __future__ import annotations

from typing import Any, Final

from datp_tasks.model.payload import SEALED

#: What those see who may not see the value.
MASK: Final = {"$masked": True}


def data_key_of(value: Any) -> str:
    """The data key that a value is sealed with; empty if it is not sealed."""
    if type(value) is dict and len(value) == 1 and SEALED in value:
        return str(value[SEALED]).partition(".")[0]
    return ""


def masked(value: Any) -> Any:
    """What may be shown of a value, sealed or not."""
    return dict(MASK) if data_key_of(value) else value
