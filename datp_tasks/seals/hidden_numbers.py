"""Numbers in cursors and ids that clients keep but must not read, because all owners share the
counters that they come from.

The same number always gives the same text, and a text that was not made with the key is refused.
"""

from __future__ import annotations

import base64
import hashlib

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

#: Length of a mark: two different numbers never have the same one in practice.
MARK_BYTES = 12
#: What hiding adds to the length.
TAG_BYTES = 16


class HiddenNumbers:
    def __init__(self, key: bytes) -> None:
        self._cipher = AESSIV(_derived(key, b"datp cursor"))
        self._mark_key = _derived(key, b"datp mark")

    def hide(self, plain: bytes, *, of: bytes | None = None) -> str:
        """`of` names the list: a text of one list is no text of another."""
        hidden = self._cipher.encrypt(plain, None if of is None else [of])
        return base64.urlsafe_b64encode(hidden).decode().rstrip("=")

    def show(self, text: str, *, of: bytes | None = None) -> bytes | None:
        """None for what was not hidden with this key, or is of another list."""
        hidden = decoded(text)
        if not hidden:
            return None
        try:
            return self._cipher.decrypt(hidden, None if of is None else [of])
        except (ValueError, InvalidTag):
            return None

    def mark(self, plain: bytes) -> str:
        """A name for these numbers, which cannot be turned back into them."""
        return hashlib.blake2b(plain, key=self._mark_key, digest_size=MARK_BYTES).hexdigest()


def decoded(text: str) -> bytes | None:
    """The bytes of a text in base64 for URLs; None if it is not one."""
    try:
        padded = text + "=" * (-len(text) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True)
    except ValueError:
        return None


def _derived(key: bytes, what: bytes) -> bytes:
    return hashlib.blake2b(what, key=key, digest_size=32).digest()
