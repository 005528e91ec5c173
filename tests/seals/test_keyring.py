"""The key ring: what it takes, what it gives, and what does not open."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from datp_tasks.errors import NoKeyRing, SealBroken, SettingsError
from datp_tasks.seals.keyring import (
    KeyRing,
    key_id_of,
    load,
    needed,
    new_key,
    new_ring,
    read,
    with_new_key,
)
from datp_tasks.settings import Settings

SOME_KEY, OTHER_KEY = (base64.b64encode(new_key()).decode() for _ in range(2))
PLACE = ("sealed_secret", "sealed", "BANK")


def test_what_is_sealed_opens_in_its_place_only() -> None:
    ring = new_ring()
    sealed = ring.seal("Bearer ä", *PLACE)
    assert ring.open(sealed, *PLACE) == "Bearer ä"
    assert key_id_of(sealed) == "k1"
    assert "Bearer" not in sealed
    assert sealed != ring.seal("Bearer ä", *PLACE)
    for other in (("webhook_secret", "sealed", "BANK"), ("sealed_secret", "sealed", "OTHER")):
        with pytest.raises(SealBroken):
            ring.open(sealed, *other)


@pytest.mark.parametrize("place", range(10, 60, 7))
def test_one_altered_character_is_noticed(place: int) -> None:
    ring = new_ring()
    sealed = ring.seal("a text that is long enough", *PLACE)
    wrong = "A" if sealed[place] != "A" else "B"
    with pytest.raises(SealBroken):
        ring.open(sealed[:place] + wrong + sealed[place + 1 :], *PLACE)


def test_old_keys_open_and_the_active_one_seals() -> None:
    old = new_ring()
    sealed = old.seal("x", *PLACE)
    both = with_new_key(old)
    assert (both.active, [*both.keys]) == ("k1", ["k1", "k2"])
    new = KeyRing("k2", both.keys)
    assert new.open(sealed, *PLACE) == "x"
    assert key_id_of(new.seal("x", *PLACE)) == "k2"
    with pytest.raises(SealBroken, match="'k1' is not in the key ring"):
        KeyRing("k2", {"k2": both.keys["k2"]}).open(sealed, *PLACE)


def test_a_ring_says_nothing_of_its_keys_when_it_is_shown() -> None:
    ring = new_ring()
    key = base64.b64encode(ring.keys["k1"]).decode()
    assert key in ring.to_json()
    assert key not in repr(ring)
    assert key not in repr(Settings(keyring=ring.to_json()))


def test_it_is_read_from_a_variable_or_a_file_for_its_owner_only(tmp_path: Path) -> None:
    ring, path = new_ring(), tmp_path / "ring.json"
    path.write_text(ring.to_json())
    path.chmod(0o600)
    assert load(Settings()) is None
    assert load(Settings(keyring=ring.to_json())) == ring
    assert load(Settings(keyring_file=str(path))) == ring
    path.chmod(0o640)
    with pytest.raises(SettingsError, match="chmod 600"):
        read(path)
    with pytest.raises(SettingsError, match="cannot be read"):
        read(tmp_path / "none.json")


@pytest.mark.parametrize(
    "text",
    [
        "no JSON",
        "[]",
        json.dumps({"active": "k1", "keys": {"k1": "c2hvcnQ="}}),
        json.dumps({"active": "k2", "keys": {"k1": SOME_KEY}}),
        json.dumps({"active": "K:1", "keys": {"K:1": SOME_KEY}}),
        json.dumps({"active": SOME_KEY, "keys": {"k1": SOME_KEY}}),
        json.dumps({"active": "k1", "keys": {"k1": SOME_KEY, SOME_KEY: SOME_KEY}}),
        json.dumps({"active": ["k1"], "keys": {"k1": SOME_KEY}}),
        json.dumps({"active": "k1", "keys": {"k1": SOME_KEY}, "dropped": [{}]}),
        json.dumps({"active": "k1", "keys": {"k1": SOME_KEY}, "dropped": ["k1"]}),
        json.dumps({"active": "k1", "keys": {"k1": SOME_KEY}, "dropped": "k2x"}),
        f'{{"active": "k1", "keys": {{"k1": "{OTHER_KEY}", "k1": "{SOME_KEY}"}}}}',
    ],
    ids=(
        *("text", "list", "short", "not-active", "odd-id", "key-as-active", "key-as-id"),
        *("active-list", "dropped-object", "dropped-in-use", "dropped-text", "id-twice"),
    ),
)
def test_what_is_no_key_ring_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(SettingsError, match="not a key ring") as caught:
        KeyRing.from_json(text, "DATP_SECURITY__KEYRING")
    for key in ("c2hvcnQ=", SOME_KEY, OTHER_KEY):
        assert key not in str(caught.value)


def test_the_id_of_a_dropped_key_names_no_second_one() -> None:
    """A backup may still need the first, under that id."""
    ring = with_new_key(new_ring())
    left = KeyRing.from_json(ring.without("k2").to_json(), "a file")
    assert [*left.keys] == ["k1"]
    assert [*with_new_key(left).keys] == ["k1", "k3"]


def test_a_new_key_has_an_id_that_can_be_read_again() -> None:
    highest = f"k{'9' * 31}"
    ring = with_new_key(KeyRing(highest, {highest: new_key()}, ("k1",)))
    assert [*KeyRing.from_json(ring.to_json(), "a file").keys] == [highest, "k2"]


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ring.json"
    path.write_bytes(b"\xff\xfe")
    path.chmod(0o600)
    with pytest.raises(SettingsError, match="not UTF-8"):
        read(path)


def test_without_a_ring_the_message_says_what_to_do() -> None:
    with pytest.raises(NoKeyRing, match="DATP_SECURITY__KEYRING_FILE"):
        needed(None, "a webhook secret")
