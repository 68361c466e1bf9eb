"""Payloads at rest: what goes in comes out, for one delivery alone, in every version that was ever written."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from channel_scenes import KEY
from hypothesis import given
from hypothesis import strategies as st
from minutebook.commands.channels.ports import MAX_PAYLOAD_BYTES
from minutebook.commands.deliveries.ports import Bound, Encoded, Payload, Unreadable
from minutebook.commands.ports import no_redaction
from minutebook.domain.channels.messages import Address, Outgoing, Place
from minutebook.domain.errors import TooLarge
from minutebook.infra.channels.setup import KINDS, SHAPES
from minutebook.infra.channels.web import WebChannel
from minutebook.infra.codecs import PayloadCodec
from minutebook.infra.redaction.engine import Redactor
from minutebook.infra.redaction.rules import shipped_rules
from minutebook.infra.settings_channels import ChannelSettings, SmtpSettings
from outside import now

GOLDEN = Path(__file__).parents[1] / "golden" / "codecs"
MASTER, OLDER = b"m" * 32, b"o" * 32
BOUND = Bound("acme", "01jd8x7y2r3t4v5w6x7y8z9abc", "web", 1)
ADDRESS = Address("tg", "7", Place("-100", "9", is_group=True))
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"

VERSIONS = sorted((codec, version) for codec, shapes in SHAPES.items() for version in shapes)


def codec(*keys: bytes, redact: Any = no_redaction) -> PayloadCodec:
    return PayloadCodec(SHAPES, keys, redact)


def payload(text: str = "hello") -> Payload:
    return Payload(ADDRESS, ({"kind": "reply", "text": text},))


def rendered(name: str, outgoing: Outgoing) -> tuple[Any, ...]:
    """What the channel of that codec makes now."""
    declared = ChannelSettings(kind="web", sender="a@b.example", smtp=SmtpSettings(host="smtp.example"))
    if name == "web":
        return WebChannel("c", declared, None).render(outgoing)  # pyright: ignore[reportArgumentType]
    return tuple(KINDS[name]("c", declared, now).render(outgoing))


def plain(value: Any) -> Any:
    return json.loads(msgspec.json.encode(value))


def reason(codec: PayloadCodec, bound: Bound, encoded: Encoded) -> str:
    with pytest.raises(Unreadable) as caught:
        codec.decode(bound, encoded)
    return caught.value.reason


@pytest.mark.parametrize("keys", [(), (MASTER,), (MASTER, OLDER)])
@pytest.mark.parametrize("name", sorted(SHAPES))
def test_what_a_channel_renders_comes_back_as_it_was(name: str, keys: tuple[bytes, ...]) -> None:
    parts = rendered(name, Outgoing("echo", "a <b> & @channel\n" * 3000, KEY, "crm"))
    bound = Bound("acme", "d1", name, max(SHAPES[name]))
    encoded = codec(*keys).encode(bound, Payload(ADDRESS, parts))
    assert codec(*keys).decode(bound, encoded) == Payload(ADDRESS, parts)


@given(st.text(st.characters(codec="utf-8"), max_size=200), st.booleans())
def test_any_text_comes_back(text: str, encrypted: bool) -> None:
    own = codec(*((MASTER,) if encrypted else ()))
    assert own.decode(BOUND, own.encode(BOUND, payload(text))) == payload(text)


def test_with_a_key_nothing_of_it_can_be_read_and_no_two_are_alike() -> None:
    one, two = (codec(MASTER).encode(BOUND, payload("the words")) for _ in range(2))
    assert one.body != two.body
    assert one.key != two.key
    for encoded in (one, two):
        assert b"words" not in encoded.body
        assert encoded.key is not None
    clear = codec().encode(BOUND, payload("the words"))
    assert b"the words" in clear.body
    assert clear.key is None


@pytest.mark.parametrize(
    "other",
    [
        Bound("other", BOUND.delivery_id, "web", 1),
        Bound("acme", "01jd8x7y2r3t4v5w6x7y8z9abd", "web", 1),
        Bound("acme", BOUND.delivery_id, "webhook", 1),
    ],
)
def test_it_opens_for_nothing_else(other: Bound) -> None:
    encoded = codec(MASTER).encode(BOUND, payload())
    assert reason(codec(MASTER), other, encoded) == "payload_damaged"


def test_the_key_of_another_delivery_does_not_open_it() -> None:
    mine = codec(MASTER).encode(BOUND, payload())
    bound = Bound("acme", "other", "web", 1)
    theirs = codec(MASTER).encode(bound, payload())
    assert reason(codec(MASTER), BOUND, Encoded(mine.body, theirs.key)) == "payload_damaged"
    assert reason(codec(MASTER), bound, Encoded(mine.body, theirs.key)) == "payload_damaged"


def test_a_changed_byte_anywhere_is_noticed() -> None:
    encoded = codec(MASTER).encode(BOUND, payload())
    assert encoded.key is not None
    for at in range(len(encoded.body)):
        body = bytes(byte ^ (at == place) for place, byte in enumerate(encoded.body))
        assert reason(codec(MASTER), BOUND, Encoded(body, encoded.key)) == "payload_damaged"
    for at in range(len(encoded.key)):
        key = bytes(byte ^ (at == place) for place, byte in enumerate(encoded.key))
        assert reason(codec(MASTER), BOUND, Encoded(encoded.body, key)) in {
            "payload_damaged",
            "payload_key_unknown",
            "codec_unknown",
        }
    for cut in (b"", encoded.key[:5], encoded.key[:20]):
        assert reason(codec(MASTER), BOUND, Encoded(encoded.body, cut))


def test_an_earlier_key_still_opens_and_a_key_that_is_gone_says_so() -> None:
    encoded = codec(OLDER).encode(BOUND, payload())
    assert codec(MASTER, OLDER).decode(BOUND, encoded) == payload()
    assert reason(codec(MASTER), BOUND, encoded) == "payload_key_unknown"
    assert reason(codec(), BOUND, encoded) == "payload_key_unknown"
    fresh = codec(MASTER, OLDER).encode(BOUND, payload())
    assert codec(MASTER).decode(BOUND, fresh) == payload()


def test_what_was_kept_before_there_was_a_key_is_read() -> None:
    assert codec(MASTER).decode(BOUND, codec().encode(BOUND, payload())) == payload()


def test_without_its_own_key_a_purged_payload_is_nothing() -> None:
    encoded = codec(MASTER).encode(BOUND, payload())
    assert reason(codec(MASTER), BOUND, Encoded(encoded.body)) == "payload_damaged"


@pytest.mark.parametrize(("name", "version"), [("fax", 1), ("web", 0), ("web", 99), ("", 1)])
def test_an_unknown_codec_or_version_is_refused_by_its_reason(name: str, version: int) -> None:
    bound = Bound("acme", "d1", name, version)
    assert reason(codec(), bound, Encoded(b"{}")) == "codec_unknown"
    with pytest.raises(Unreadable, match="codec_unknown"):
        codec().encode(bound, payload())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x",
        b"{}",
        b"\xff",
        b'{"address":1,"parts":[]}',
        b'{"address":{"channel":"a"},"parts":[{"text":1}]}',
        b'{"address":{"channel":"a"},"parts":[{"kind":"reply","text":"x","parse_mode":"Markdown"}]}',
    ],
)
def test_a_body_of_another_shape_is_damaged(body: bytes) -> None:
    assert reason(codec(), BOUND, Encoded(body)) == "payload_damaged"


def test_secrets_are_taken_out_before_it_is_encoded_and_the_places_are_listed() -> None:
    own = codec(redact=Redactor(shipped_rules()).value)
    before = Payload(ADDRESS, ({"kind": "reply", "text": "fine"}, {"kind": "reply", "text": f"token {SECRET} end"}))
    kept, paths = own.redacted(before)
    assert paths == ["$[1].text"]
    encoded = own.encode(BOUND, before)
    assert SECRET.encode() not in encoded.body
    after = own.decode(BOUND, encoded)
    assert after == kept
    assert (after.address, after.parts[0]) == (before.address, before.parts[0])
    assert own.redacted(payload()) == (payload(), [])


def test_a_payload_over_the_limit_is_refused() -> None:
    codec(MASTER).encode(BOUND, payload("x" * (MAX_PAYLOAD_BYTES - 500)))
    with pytest.raises(TooLarge):
        codec(MASTER).encode(BOUND, payload("x" * MAX_PAYLOAD_BYTES))


def golden(name: str, version: int) -> Path:
    return GOLDEN / f"{name}.v{version}.json"


@pytest.mark.parametrize(("name", "version"), VERSIONS)
def test_every_version_that_was_ever_written_is_read(name: str, version: int) -> None:
    """A file of a version never changes; a new version gets one, made as the message says."""
    path = golden(name, version)
    assert path.exists(), f"run {__file__} to make {path.name}, and never again"
    held = json.loads(path.read_text("utf-8"))
    bound = Bound(held["tenant"], held["deliveryId"], name, version)
    for form in ("clear", "encrypted"):
        key = held[form].get("key")
        encoded = Encoded(base64.b64decode(held[form]["body"]), None if key is None else base64.b64decode(key))
        read = codec(MASTER).decode(bound, encoded)
        assert plain(read) == held["payload"]


def test_no_golden_file_is_of_a_version_that_is_not_read_any_more() -> None:
    assert {path.name for path in GOLDEN.glob("*.json")} == {golden(*each).name for each in VERSIONS}


def make_missing() -> None:
    """Write the golden files of new versions."""
    for name, version in VERSIONS:
        path = golden(name, version)
        if path.exists():
            continue
        bound = Bound("acme", "01jd8x7y2r3t4v5w6x7y8z9abc", name, version)
        said = Payload(ADDRESS, rendered(name, Outgoing("echo", "Grüße <b>& all</b>\n😀", KEY, "crm")))
        clear, encrypted = codec().encode(bound, said), codec(MASTER).encode(bound, said)
        document = {
            "tenant": bound.tenant,
            "deliveryId": bound.delivery_id,
            "payload": plain(said),
            "clear": {"body": base64.b64encode(clear.body).decode()},
            "encrypted": {
                "body": base64.b64encode(encrypted.body).decode(),
                "key": base64.b64encode(encrypted.key or b"").decode(),
            },
        }
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    make_missing()
