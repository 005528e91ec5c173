"""Secrets at rest: sealed, rotated in pages, plain rows of older releases readable."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text

from datp_tasks import Pipeline
from datp_tasks.errors import NoKeyRing, SealBroken, SecretUnknown, SettingsError
from datp_tasks.model.actor import LOCAL, Actor, Role
from datp_tasks.record import rekeying
from datp_tasks.record.api_keys import ApiKeys, KeyHash
from datp_tasks.record.database import Engine, make_engine
from datp_tasks.record.rekeying import Rekeying
from datp_tasks.record.sealed_secrets import SealedSecrets
from datp_tasks.record.vault import KEY_DAYS, Vault
from datp_tasks.record.webhooks import Webhooks
from datp_tasks.seals.keyring import KeyRing, load, new_ring, with_new_key
from datp_tasks.testing import Kit
from tests.support.search_everywhere import places_with

ALICE = Actor(name="alice", role=Role.ADMIN)
BOB = Actor(name="bob", role=Role.ADMIN)

OLD, NEW = "an old pepper that is long enough, 1", "a new pepper that is long enough, 22"


def ring_of(kit: Kit) -> KeyRing:
    ring = load(kit.settings)
    assert ring is not None
    return ring


def secrets_of(kit: Kit, ring: KeyRing | None) -> SealedSecrets:
    return SealedSecrets(kit.connections.engine, kit.clock, ring)


def webhooks_of(kit: Kit, ring: KeyRing | None) -> Webhooks:
    return Webhooks(kit.connections.engine, kit.clock, ring)


def test_a_secret_rests_sealed_and_who_changed_it_is_written_down(datp: Kit) -> None:
    store = secrets_of(datp, ring_of(datp))
    assert store.put("BANK", "tok-zanzibar", actor=ALICE)
    assert store.value("BANK") == "tok-zanzibar"
    assert not store.put("BANK", "tok-zanzibar-2", actor=BOB, must_exist=True)
    assert places_with(datp, "zanzibar") == []
    assert [(each.name, each.key_id) for each in store.list()] == [("BANK", "k1")]
    store.remove("BANK", actor=ALICE)
    with pytest.raises(SecretUnknown):
        secrets_of(datp, ring_of(datp)).value("BANK")
    with datp.connections.engine.connect() as sql:
        found = sql.execute(text("SELECT actor, action FROM operator_action ORDER BY id")).all()
    assert [tuple(row) for row in found] == [
        ("alice", "secret.set"),
        ("bob", "secret.rotate"),
        ("alice", "secret.delete"),
    ]


def test_a_secret_that_cannot_be_is_refused(datp: Kit) -> None:
    store = secrets_of(datp, ring_of(datp))
    for name, value in (("1x", "v"), ("a b", "v"), ("OK", ""), ("OK", "x" * 20_000)):
        with pytest.raises(SettingsError):
            store.put(name, value, actor=ALICE)
    with pytest.raises(SecretUnknown):
        store.put("NEW", "v", actor=ALICE, must_exist=True)
    assert store.list() == []


def test_without_a_ring_no_secret_is_stored(datp: Kit) -> None:
    with pytest.raises(NoKeyRing):
        secrets_of(datp, None).put("BANK", "v", actor=ALICE)
    store = webhooks_of(datp, None)
    assert store.signing_secrets({"acme"}) == {}
    with pytest.raises(NoKeyRing):
        store.rotate("acme", overlap_s=60)


def test_webhook_secrets_rest_sealed_and_plain_ones_stay_readable(datp: Kit) -> None:
    insert = "INSERT INTO webhook_secret (owner, secret, created_at) VALUES ('old', :s, now())"
    with datp.connections.engine.begin() as sql:
        sql.execute(text(insert), {"s": "whsec_cGxhaW4="})
    store = webhooks_of(datp, ring_of(datp))
    found = store.signing_secrets({"old", "new"})
    assert found["old"] == ["whsec_cGxhaW4="]
    assert found["new"][0].startswith("whsec_")
    assert places_with(datp, found["new"][0]) == []
    # Also for a process that has no ring yet.
    assert webhooks_of(datp, None).signing_secrets({"old"}) == {"old": ["whsec_cGxhaW4="]}


def test_a_secret_that_was_moved_to_another_owner_signs_nothing(datp: Kit) -> None:
    store = webhooks_of(datp, ring_of(datp))
    store.signing_secrets({"acme", "zeta"})
    swap = (
        "UPDATE webhook_secret SET secret = "
        "(SELECT secret FROM webhook_secret WHERE owner = 'acme') WHERE owner = 'zeta'"
    )
    with datp.connections.engine.begin() as sql:
        sql.execute(text(swap))
    found = store.signing_secrets({"acme", "zeta"})
    assert (len(found["acme"]), found["zeta"]) == (1, [])


def test_rotation_seals_everything_anew_in_pages_and_the_old_key_may_go(
    datp: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rekeying, "PAGE_ROWS", 2)
    old = ring_of(datp)
    engine = datp.connections.engine

    @datp.step("t/pass")
    def passed(ctx: object, data: dict[str, object]) -> None:
        return None

    datp.use(Pipeline("p", sealed=True).step("t/pass").build())
    tx_ids = [datp.run("p", {"n": n}, owner=f"owner{n}").tx_id for n in range(5)]
    for n in range(5):
        secrets_of(datp, old).put(f"S{n}", f"value {n}", actor=ALICE)
    before = webhooks_of(datp, old).signing_secrets({f"owner{n}" for n in range(5)})
    with engine.begin() as sql:
        insert = "INSERT INTO webhook_secret (owner, secret, created_at) VALUES ('old', :s, now())"
        sql.execute(text(insert), {"s": "whsec_cGxhaW4="})
    both = with_new_key(old)
    new = KeyRing("k2", both.keys)
    pages = list(Rekeying(engine, new).reseal())
    assert {
        page.table: sum(p.resealed for p in pages if p.table == page.table) for page in pages
    } == {
        "data_key": 5,
        "sealed_secret": 5,
        "webhook_secret": 6,
    }
    assert max(page.resealed for page in pages) == 2
    assert list(Rekeying(engine, new).reseal()) == []
    assert {each.key_id for each in Rekeying(engine, new).usage()} == {"k2"}
    only = KeyRing("k2", {"k2": both.keys["k2"]})
    assert secrets_of(datp, only).value("S3") == "value 3"
    after = webhooks_of(datp, only).signing_secrets({*before, "old"})
    assert after == {**before, "old": ["whsec_cGxhaW4="]}
    vault = Vault(engine, datp.clock, only)
    stored = datp.connections.record.summaries(tx_ids)
    assert sorted(vault.opened(each).input["n"] for each in stored) == [*range(5)]


def test_rotation_does_not_bring_back_a_secret_that_was_changed_meanwhile(
    datp: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = ring_of(datp)
    new = KeyRing("k2", with_new_key(old).keys)
    secrets_of(datp, old).put("BANK", "before", actor=ALICE)
    rotation = Rekeying(datp.connections.engine, new)
    page = rotation._page

    def late(read: str, after: str) -> list[Any]:
        rows = page(read, after)
        if any(row.place == "BANK" for row in rows):
            # By a process that seals under the old key still.
            secrets_of(datp, old).put("BANK", "after", actor=ALICE)
        return rows

    monkeypatch.setattr(rotation, "_page", late)
    assert [each.resealed for each in rotation.reseal()] == [0]
    assert secrets_of(datp, new).value("BANK") == "after"
    # It is found when the rotation is repeated.
    assert [each.resealed for each in Rekeying(datp.connections.engine, new).reseal()] == [1]
    assert secrets_of(datp, new).value("BANK") == "after"


def test_rotation_takes_no_key_for_the_active_one_because_their_ids_are_alike(datp: Kit) -> None:
    """An underscore stands for any character in a pattern of SQL."""
    keys = {"ka1": new_ring().keys["k1"], "k_1": new_ring().keys["k1"]}
    secrets_of(datp, KeyRing("ka1", keys)).put("BANK", "v", actor=ALICE)
    (page,) = Rekeying(datp.connections.engine, KeyRing("k_1", keys)).reseal()
    assert (page.resealed, page.unreadable) == (1, ())


def test_rows_under_a_key_that_is_gone_are_named_and_left_alone(datp: Kit) -> None:
    secrets_of(datp, new_ring()).put("LOST", "v", actor=ALICE)
    other = KeyRing("k9", {"k9": new_ring().keys["k1"]})
    (page,) = Rekeying(datp.connections.engine, other).reseal()
    assert (page.resealed, page.unreadable) == (0, ("LOST",))
    with pytest.raises(SealBroken):
        secrets_of(datp, other).value("LOST")


def test_an_owner_gets_a_new_data_key_after_a_while(datp: Kit) -> None:
    def key_id() -> str:
        return Vault(datp.connections.engine, datp.clock, ring_of(datp)).key_for("acme").id

    first = key_id()
    assert key_id() == first
    datp.clock.advance(days=KEY_DAYS + 1)
    assert key_id() != first


def test_data_keys_cost_one_question_per_owner_and_process(datp: Kit) -> None:
    vault = Vault(datp.connections.engine, datp.clock, ring_of(datp))
    key = vault.key_for("acme")
    datp.connections.engine.dispose()
    broken = Vault(replace_engine(datp), datp.clock, ring_of(datp))
    broken._current, broken._known = vault._current, vault._known
    assert broken.key_for("acme") is key
    assert broken.key(key.id) is key


def replace_engine(kit: Kit) -> Engine:
    """One that cannot be asked anything."""
    return make_engine(replace(kit.settings, database_url="postgresql://nobody@127.0.0.1:1/none"))


def test_a_key_made_under_the_previous_pepper_is_known_and_follows(datp: Kit) -> None:
    engine, clock = datp.connections.engine, datp.clock
    key = ApiKeys(engine, clock, OLD).create("acme", actor=LOCAL).text
    assert ApiKeys(engine, clock, NEW).verify(key) is None
    # Its end tells without a question to PostgreSQL, under either pepper.
    assert not ApiKeys(engine, clock, NEW).can_be(key)
    assert ApiKeys(engine, clock, NEW, OLD).can_be(key)
    found = ApiKeys(engine, clock, NEW, OLD).verify(key)
    assert found is not None
    assert found.owner == "acme"
    # It was used once with both; from then on it needs only the new one.
    assert ApiKeys(engine, clock, NEW).verify(key) is not None
    assert ApiKeys(engine, clock, OLD).verify(key) is None
    # Its end is still that of the old one, so the gate is told of it by its id.
    assert ApiKeys(engine, clock, NEW).followed() == {found.id}


def test_a_previous_pepper_must_be_good_too() -> None:
    with pytest.raises(SettingsError, match="DATP_KEY_PEPPER_PREVIOUS"):
        KeyHash(NEW, "short")
