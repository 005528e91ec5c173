"""Notes for people, made fit for storage: user code writes them, so they can hold anything."""

from __future__ import annotations

import secrets

NOTE_CHARS_MAX = 500
#: What operators read of an exception; a statement with its values can be very long.
ERROR_TEXT_CHARS_MAX = 2_000


def clean_note(text: str) -> str:
    """Short, without U+0000 and without halves of surrogate pairs, which SQL would refuse."""
    return storable(text[:NOTE_CHARS_MAX])


def new_error_id() -> str:
    """What a client is told of an unexpected error; the log and the journal have its text."""
    return secrets.token_hex(6)


def error_note(kind: str, error_id: str) -> str:
    """An unexpected exception as its client sees it: its text may hold SQL, values or addresses."""
    return clean_note(f"{kind} (error {error_id})")


def error_text(text: str) -> str:
    """The same as operators see it."""
    return storable(text[:ERROR_TEXT_CHARS_MAX])


def storable(text: str) -> str:
    """Without what SQL would refuse."""
    text = text.replace("\x00", "\ufffd")
    return text if text.isascii() else text.encode(errors="replace").decode()
