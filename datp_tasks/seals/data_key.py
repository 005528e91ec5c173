"""Data keys: what payloads are sealed with.

A data key is sealed under the key ring in turn, so the ring can be changed by sealing some hundred
data keys anew, and no journal, backup or Redis is touched by it. A sealed value is a JSON object
with one key, so scripts, columns and deltas carry it like any other value:

    {"$sealed": "<data key>.<base64>"}

The same value of the same transaction is always sealed to the same text: its nonce is a keyed hash
of the value. A journal and a state can therefore be compared without opening them; what that tells
is only that two values within one transaction are equal.
"""

from __future__ import annotations

import base64
import hmac
import json
from dataclasses import dataclass, field
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from datp_tasks.errors import SealBroken
from datp_tasks.model.payload import SEALED, encode
from datp_tasks.seals.keyring import NONCE_BYTES

#: Begins the fingerprint of a request whose input is sealed: a plain hash could be guessed.
KEYED = "k:"


@dataclass(frozen=True, slots=True)
class DataKey:
    id: str
    secret: bytes = field(repr=False)
    _cipher: AESGCM = field(init=False, repr=False, compare=False)
    _nonces: bytes = field(init=False, repr=False, compare=False)
    _prints: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Each purpose has a key of its own.
        object.__setattr__(self, "_cipher", AESGCM(self._derived("payload")))
        object.__setattr__(self, "_nonces", self._derived("nonce"))
        object.__setattr__(self, "_prints", self._derived("fingerprint"))

    def _derived(self, purpose: str) -> bytes:
        return hmac.digest(self.secret, f"datp {purpose} 1".encode(), "sha256")

    def seal(self, tx_id: str, value: Any) -> dict[str, str]:
        """A value of this transaction, as it rests."""
        return self.seal_text(tx_id, encode(value))

    def seal_text(self, tx_id: str, text: str) -> dict[str, str]:
        """The same, of a value whose JSON is known."""
        plain, about = text.encode(), self._about(tx_id)
        nonce = hmac.digest(self._nonces, about + plain, "sha256")[:NONCE_BYTES]
        sealed = nonce + self._cipher.encrypt(nonce, plain, about)
        return {SEALED: f"{self.id}.{base64.urlsafe_b64encode(sealed).decode()}"}

    def open(self, tx_id: str, value: Any) -> Any:
        """The value as it was; SealBroken if it is another transaction's, or was altered."""
        try:
            text = value[SEALED].partition(".")[2]
            raw = base64.b64decode(text, altchars=b"-_", validate=True)
            nonce, rest = raw[:NONCE_BYTES], raw[NONCE_BYTES:]
            return json.loads(self._cipher.decrypt(nonce, rest, self._about(tx_id)))
        except (InvalidTag, ValueError, AttributeError) as error:
            raise SealBroken(
                f"a sealed value of {tx_id} was altered, or is another transaction's"
            ) from error

    def fingerprint(self, asked: str) -> str:
        return f"{KEYED}{self.id}:{hmac.digest(self._prints, asked.encode(), 'sha256').hex()}"

    def _about(self, tx_id: str) -> bytes:
        # Of fixed shape (neither id holds the sign), so no other pair gives the same bytes.
        return f"{self.id}|tx|payload|{tx_id}|".encode()
