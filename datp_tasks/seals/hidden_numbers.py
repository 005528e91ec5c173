"""Numbers that clients carry and must not be able to read: how many others there are, and the like.

The same numbers are always the same text, and no other text is taken for one of ours.
"""

from __future__ import annotations

import base64
import hashlib

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

#: Of a text that only tells one thing from another.
MARK_BYTES = 12


class HiddenNumbers:
    def __init__(self, key: bytes) -> None:
        self._cipher = AESSIV(_derived(key, b"datp cursor"))
        self._mark_key = _derived(key, b"datp mark")

    def hide(self, plain: bytes) -> str:
        return base64.urlsafe_b64encode(self._cipher.encrypt(plain, None)).decode().rstrip("=")

    def show(self, text: str) -> bytes | None:
        """None for what was not hidden with this key."""
        try:
            padded = text + "=" * (-len(text) % 4)
            hidden = base64.b64decode(padded, altchars=b"-_", validate=True)
            return self._cipher.decrypt(hidden, None)
        except (ValueError, InvalidTag):
            return None

    def mark(self, plain: bytes) -> str:
        """Another one for other numbers; it cannot be turned back."""
        return hashlib.blake2b(plain, key=self._mark_key, digest_size=MARK_BYTES).hexdigest()


def _derived(key: bytes, what: bytes) -> bytes:
    return hashlib.blake2b(what, key=key, digest_size=32).digest()
