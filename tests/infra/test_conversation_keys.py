"""The keys of conversations: a MAC for one purpose, of one value, under a key that is held; nothing else verifies."""

from __future__ import annotations

import hashlib
import hmac
from pathlib import Path

import pytest
import rfc8785
from minutebook.domain.conversations.signing import Mac
from minutebook.infra.conversation_keys import KEY_NAME, ConversationKeys, conversation_keys, kid_of
from minutebook.infra.settings import Settings
from msgspec.structs import replace

OLD, NEW = b"o" * 32, b"n" * 40
FIELDS = {"conversationId": "a", "text": "hello", "seq": 3, "claims": {"b": ["x"], "a": []}}


def test_a_mac_is_hmac_sha_256_over_the_canonical_form_and_its_purpose() -> None:
    mac = ConversationKeys(NEW).sign("envelope", FIELDS)
    assert mac.kid == kid_of(NEW)
    said = b"minutebook envelope\0" + rfc8785.dumps(FIELDS)
    assert mac.mac == hmac.new(NEW, said, hashlib.sha256).hexdigest()


def test_what_is_changed_moved_or_signed_for_something_else_does_not_verify() -> None:
    keys = ConversationKeys(NEW)
    mac = keys.sign("envelope", FIELDS)
    assert keys.verify("envelope", dict(reversed(FIELDS.items())), mac)
    assert not keys.verify("event", FIELDS, mac)
    for name, value in (("text", "hello "), ("seq", 4), ("claims", {"b": ["x"]}), ("more", None)):
        assert not keys.verify("envelope", {**FIELDS, name: value}, mac)
    for wrong in ("", "é", mac.mac.upper(), mac.mac[:-1]):
        assert not keys.verify("envelope", FIELDS, Mac(mac.kid, wrong))
    assert not keys.verify("envelope", FIELDS, Mac(kid_of(OLD), mac.mac))


def test_an_earlier_key_verifies_and_signs_only_where_it_is_named() -> None:
    before, after = ConversationKeys(OLD), ConversationKeys(NEW, (OLD,))
    mac = before.sign("execution", FIELDS)
    assert after.verify("execution", FIELDS, mac)
    assert after.sign("execution", FIELDS).kid == kid_of(NEW)
    assert after.sign("execution", FIELDS, mac.kid) == mac
    with pytest.raises(LookupError):
        ConversationKeys(NEW).sign("execution", FIELDS, mac.kid)


def test_a_development_server_makes_a_key_once_and_another_one_has_only_that_of_its_settings(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    mac = conversation_keys(settings).sign("event", FIELDS)
    assert (tmp_path / KEY_NAME).stat().st_mode & 0o077 == 0
    assert conversation_keys(settings).verify("event", FIELDS, mac)
    elsewhere = replace(settings, development=False, data_dir=tmp_path / "other")
    assert not conversation_keys(elsewhere).verify("event", FIELDS, mac)
    assert not (tmp_path / "other").exists()
