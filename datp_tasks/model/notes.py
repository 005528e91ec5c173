"""Notes for people, made fit for storage: user code writes them, so they can hold anything."""

from __future__ import annotations

NOTE_CHARS_MAX = 500


def clean_note(text: str) -> str:
    """Short, without U+0000 and without halves of surrogate pairs, which SQL would refuse."""
    text = text[:NOTE_CHARS_MAX].replace("\x00", "\ufffd")
    return text if text.isascii() else text.encode(errors="replace").decode()
