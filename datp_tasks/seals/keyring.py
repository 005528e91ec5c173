"""The key ring: keys of an installation that lie in no database.

A ring is JSON, in the file that `DATP_SECURITY__KEYRING_FILE` names or in the variable
`DATP_SECURITY__KEYRING`:

    {"active": "k1", "keys": {"k1": "<32 bytes, base64>"}, "dropped": []}

New things are sealed under the active key; every key of the ring opens what was sealed under it.
What is sealed says under which key, and the key and the place it belongs to (table, column, row)
are authenticated with it: a sealed text that is moved to another row does not open. The ids of
keys that were dropped are kept, so that an id never names a second key: a backup may need the
first.
"""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from datp_tasks.errors import NoKeyRing, SealBroken, SettingsError
from datp_tasks.settings import Settings

KEY_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
KEY_BYTES = 32
NONCE_BYTES = 12
#: Begins every text that is sealed under a ring; a plain row begins otherwise.
PREFIX = "sealed:"
HOW_TO = (
    "Set DATP_SECURITY__KEYRING_FILE to a file that `datp keyring make FILE` has made, the same "
    "for every process; `datp up` makes its own."
)


@dataclass(frozen=True)
class KeyRing:
    active: str
    keys: Mapping[str, bytes] = field(repr=False)
    #: Ids of keys that the ring had once.
    dropped: tuple[str, ...] = ()

    def seal(self, text: str, *place: str) -> str:
        """Under the active key, for this place only: table, column, row."""
        nonce = secrets.token_bytes(NONCE_BYTES)
        data = _about(self.active, place)
        sealed = nonce + AESGCM(self.keys[self.active]).encrypt(nonce, text.encode(), data)
        return f"{PREFIX}{self.active}:{base64.b64encode(sealed).decode()}"

    def open(self, sealed: str, *place: str) -> str:
        """The text, or SealBroken: another key, another place, or it was altered."""
        key_id = key_id_of(sealed)
        if key_id not in self.keys:
            raise SealBroken(f"the key {key_id!r} is not in the key ring. {HOW_TO}")
        try:
            raw = base64.b64decode(sealed.rpartition(":")[2], validate=True)
            nonce, rest = raw[:NONCE_BYTES], raw[NONCE_BYTES:]
            plain = AESGCM(self.keys[key_id]).decrypt(nonce, rest, _about(key_id, place))
        except (InvalidTag, ValueError) as error:
            where = ".".join(place[:2])
            raise SealBroken(
                f"{where} was altered, or sealed for another row or under another key {key_id!r}"
            ) from error
        return plain.decode()

    def to_json(self) -> str:
        keys = {name: base64.b64encode(key).decode() for name, key in self.keys.items()}
        ring = {"active": self.active, "keys": keys, "dropped": self.dropped}
        return json.dumps(ring, indent=2) + "\n"

    def activated(self, key_id: str) -> KeyRing:
        """The same keys, of which another one seals what is new."""
        return replace(self, active=key_id)

    def without(self, key_id: str) -> KeyRing:
        """The ring without a key; its id is not used again."""
        left = {name: key for name, key in self.keys.items() if name != key_id}
        return replace(self, keys=left, dropped=(*self.dropped, key_id))

    @classmethod
    def from_json(cls, text: str, source: str) -> KeyRing:
        """SettingsError, without any of its content, if it is no key ring."""
        try:
            raw: Any = json.loads(text, object_pairs_hook=_no_duplicates)
            keys = {name: base64.b64decode(key, validate=True) for name, key in raw["keys"].items()}
            active, dropped = raw["active"], raw.get("dropped", [])
            if not isinstance(dropped, list):
                raise TypeError("dropped is not a list")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise SettingsError(
                f"{source} is not a key ring: it must be JSON like "
                '{"active": "k1", "keys": {"k1": "<base64>"}}, with each id once. '
                "`datp keyring make FILE` makes one."
            ) from None
        ids_are_right = all(is_key_id(name) for name in (active, *keys, *dropped))
        if not ids_are_right or active not in keys:
            # A key that was put where its id belongs must not be repeated.
            raise SettingsError(
                f"{source} is not a key ring: a key has an id like k1 (lower-case letters, digits, "
                "'_' and '-', at most 32), and `active` is one of these ids"
            )
        wrong = [name for name, key in keys.items() if len(key) != KEY_BYTES]
        if wrong or not keys.keys().isdisjoint(dropped):
            raise SettingsError(
                f"{source} is not a key ring: a key has {KEY_BYTES} bytes, and none of the ids is "
                f"among those that were dropped (wrong: {', '.join(wrong) or 'dropped'})"
            )
        return cls(active, keys, tuple(dropped))


def key_id_of(sealed: str) -> str:
    """The key that a text was sealed under; empty if it is not sealed."""
    return sealed.split(":", 2)[1] if sealed.startswith(PREFIX) else ""


def is_key_id(name: object) -> bool:
    return isinstance(name, str) and KEY_ID.fullmatch(name) is not None


def new_ring() -> KeyRing:
    """A ring with one key."""
    return KeyRing("k1", {"k1": new_key()})


def with_new_key(ring: KeyRing) -> KeyRing:
    """The ring with one key more, which is not active yet: every process must know it first."""
    names = (*ring.keys, *ring.dropped)
    used = [int(name[1:]) for name in names if name[0] == "k" and name[1:].isdecimal()]
    new = f"k{max(used, default=0) + 1}"
    if not is_key_id(new):
        # A longer id would make the ring unreadable.
        new = next(name for name in map("k{}".format, count(1)) if name not in names)
    return replace(ring, keys={**ring.keys, new: new_key()})


def new_key() -> bytes:
    return secrets.token_bytes(KEY_BYTES)


def load(settings: Settings) -> KeyRing | None:
    """The ring that the settings name; None if they name none."""
    if settings.keyring:
        return KeyRing.from_json(settings.keyring, "DATP_SECURITY__KEYRING")
    return read(Path(settings.keyring_file)) if settings.keyring_file else None


def needed(ring: KeyRing | None, what: str) -> KeyRing:
    """The ring, or NoKeyRing: nothing secret is stored in plain text."""
    if ring is None:
        raise NoKeyRing(f"{what} needs a key ring, and this process has none. {HOW_TO}")
    return ring


def read(path: Path) -> KeyRing:
    try:
        mode = path.stat().st_mode
        text = path.read_text()
    except OSError as error:
        raise SettingsError(f"the key ring {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(f"the key ring {path} cannot be read: it is not UTF-8") from None
    if mode & 0o077 and os.access(path, os.W_OK):
        # Where it is mounted read-only its mode is not this process's to decide.
        raise SettingsError(f"the key ring {path} can be read by others: chmod 600 {path}")
    return KeyRing.from_json(text, str(path))


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of two keys under one id, JSON would drop the first without a word."""
    if len(dict(pairs)) != len(pairs):
        raise ValueError("an id is there twice")
    return dict(pairs)


def _about(key_id: str, place: tuple[str, ...]) -> bytes:
    return json.dumps([key_id, *place]).encode()
