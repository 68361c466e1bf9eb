"""A sign-in at an identity provider proves the other end of a link; any failure is one page (delivery.md, Linking)."""

from __future__ import annotations

import uuid
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from bad_input import refused
from cryptography.hazmat.primitives.asymmetric import ec
from link_world import Browser, LinkWorld
from oidc_provider import MISSING
from outside import Reply, status

LINKS = "/v1/links"


def name() -> str:
    """Somebody new."""
    return f"p{uuid.uuid4().hex[:12]}"


@pytest.fixture(autouse=True)
def honest(world: LinkWorld) -> None:
    """Every test begins with a provider that does as it should, and a person that it has not seen."""
    world.provider.sub, world.provider.claims = name(), {"tenant": "acme", "groups": ["sec"], "email": "ann@id.example"}
    world.provider.wrong_key = world.provider.answer = None
    world.provider.mischief = []


@pytest.fixture(scope="module")
def page_of_failure(world: LinkWorld) -> bytes:
    """What every failure looks like."""
    answer = Browser(world).client.get(f"{LINKS}/oidc/corp/start", params={"id": "a" * 26})
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    return answer.content


def failed(answer: httpx.Response, page: bytes) -> None:
    """The one page."""
    assert (answer.status_code, answer.content) == (400, page)
    assert answer.headers["cache-control"] == "no-store"


def consent(browser: Browser, asked: httpx.Response) -> httpx.Response:
    """The answer to the button of the page."""
    return browser.client.post(str(asked.url))


def test_linking_by_a_sign_in_that_its_person_wants_and_the_chat_confirms(world: LinkWorld) -> None:
    chat, browser = name(), Browser(world)
    begun = world.begin(chat, "oidc")
    assert begun.code == ""
    sent = browser.start(begun.url)
    asked = {key: values[0] for key, values in parse_qs(urlsplit(sent.headers["location"]).query).items()}
    assert {"state", "nonce", "code_challenge"} <= set(asked)
    back = browser.client.get(browser.sign_in(sent))
    assert back.status_code == 303
    question = browser.client.get(back.headers["location"])
    assert question.status_code == 200
    assert f"@{chat} on tg" in question.text
    assert f"human:{world.provider.sub}" in question.text
    assert "frame-ancestors 'none'" in question.headers["content-security-policy"]
    person = world.person(world.provider.sub)
    assert world.claims(chat) == {}
    assert consent(browser, question).status_code == 200
    assert person.get(LINKS).json()["links"] == [], "only the end that began makes the link"
    world.confirm(chat)
    assert [each["display"] for each in person.get(LINKS).json()["links"]] == [f"@{chat}"]
    assert world.claims(chat) == {"groups": ("sec",), "email": ("ann@id.example",)}


def test_claims_count_for_their_time_and_no_longer(world: LinkWorld) -> None:
    chat, browser = name(), Browser(world)
    begun = world.begin(chat, "oidc")
    consent(browser, browser.go(begun.url))
    world.confirm(chat)
    assert world.claims(chat)
    with world.server.sql() as superuser:
        superuser.execute("UPDATE minutebook.claim_snapshots SET expires_at = expires_at - interval '24 hours'")
    assert world.claims(chat) == {}


def test_a_sign_in_of_which_nothing_could_be_kept_presents_nothing(world: LinkWorld, page_of_failure: bytes) -> None:
    """As where the server is killed there: the link would be made without what it was signed in for."""
    chat, browser = name(), Browser(world)
    begun = world.begin(chat, "oidc")
    question = browser.go(begun.url)
    with world.server.sql() as connection:
        connection.execute("REVOKE INSERT ON minutebook.claim_snapshots FROM minutebook_app")
        try:
            failed(consent(browser, question), page_of_failure)
        finally:
            connection.execute("GRANT INSERT ON minutebook.claim_snapshots TO minutebook_app")
    another = Browser(world)
    assert consent(another, another.go(begun.url)).status_code == 200
    world.confirm(chat)
    assert world.claims(chat) == {"groups": ("sec",), "email": ("ann@id.example",)}


def test_looking_at_the_question_presents_nothing(world: LinkWorld, page_of_failure: bytes) -> None:
    """Law 30: a page that somebody is made to open changes nothing, however often it is opened."""
    chat, browser = name(), Browser(world)
    begun = world.begin(chat, "oidc")
    question = browser.go(begun.url)
    assert browser.client.get(str(question.url)).status_code == 200
    stranger = Browser(world).client
    failed(stranger.get(str(question.url)), page_of_failure)
    failed(stranger.post(str(question.url)), page_of_failure)
    with pytest.raises(IndexError):
        world.confirm(chat)
    assert consent(browser, question).status_code == 200
    failed(consent(browser, question), page_of_failure)


def test_a_state_is_used_once_by_the_browser_that_has_it_and_for_ten_minutes(
    world: LinkWorld, page_of_failure: bytes
) -> None:
    begun, browser = world.begin(name(), "oidc"), Browser(world)
    callback = browser.sign_in(browser.start(begun.url))
    failed(Browser(world).client.get(callback), page_of_failure)
    cookies = dict(browser.client.cookies)
    assert browser.client.get(callback).status_code == 303
    browser.client.cookies = httpx.Cookies(cookies)
    failed(browser.client.get(callback), page_of_failure)
    late = Browser(world)
    callback = late.sign_in(late.start(begun.url))
    with world.server.sql() as superuser:
        superuser.execute("UPDATE minutebook.link_sign_ins SET expires_at = expires_at - interval '10 minutes'")
    failed(late.client.get(callback), page_of_failure)
    made_up = callback.replace("state=", "state=x")
    failed(late.client.get(made_up), page_of_failure)


BAD_CLAIMS: dict[str, dict[str, Any]] = {
    "another nonce": {"nonce": "x" * 43},
    "no nonce": {"nonce": MISSING},
    "another audience": {"aud": "minutebook"},
    "several audiences without a party": {"aud": ["minutebook-links", "other"]},
    "another party": {"azp": "other"},
    "another issuer": {"iss": "https://evil.example"},
    "expired": {"exp": 1_000_000_000},
    "no subject": {"sub": MISSING},
    "another tenant": {"tenant": "umbrella"},
    "no tenant": {"tenant": MISSING},
    "an actor": {"act": {"sub": "eve"}},
}


@pytest.mark.parametrize("claims", BAD_CLAIMS.values(), ids=BAD_CLAIMS)
def test_an_id_token_that_is_not_for_this_sign_in_links_nothing(
    world: LinkWorld, page_of_failure: bytes, claims: dict[str, Any]
) -> None:
    world.provider.claims |= claims
    failed(Browser(world).go(world.begin(name(), "oidc").url), page_of_failure)


def test_a_signature_of_another_key_links_nothing(world: LinkWorld, page_of_failure: bytes) -> None:
    world.provider.wrong_key = ec.generate_private_key(ec.SECP256R1())
    failed(Browser(world).go(world.begin(name(), "oidc").url), page_of_failure)


def test_a_code_of_another_sign_in_has_another_verifier(world: LinkWorld, page_of_failure: bytes) -> None:
    """PKCE: a code that was had with somebody else's challenge is worth nothing here."""
    victim, thief = Browser(world), Browser(world)
    stolen = parse_qs(urlsplit(victim.sign_in(victim.start(world.begin(name(), "oidc").url))).query)["code"][0]
    callback = thief.sign_in(thief.start(world.begin(name(), "oidc").url))
    state = parse_qs(urlsplit(callback).query)["state"][0]
    answer = thief.client.get(f"{LINKS}/oidc/corp/callback", params={"code": stolen, "state": state})
    failed(answer, page_of_failure)


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: Reply(200, b"{}"),
        lambda _: Reply(200, b"\xff"),
        lambda tokens: Reply(302, b"", {"location": "http://127.0.0.1:1/"}),
        lambda _: Reply(200, b'{"id_token": "a.b.c"}'),
        lambda _: Reply(200, b'{"id_token": "' + b"x" * 100_000 + b'"}'),
    ],
)
def test_whatever_the_provider_answers_is_one_page(world: LinkWorld, page_of_failure: bytes, answer: Any) -> None:
    world.provider.answer = answer
    failed(Browser(world).go(world.begin(name(), "oidc").url), page_of_failure)


def test_a_provider_that_is_broken_is_one_page(world: LinkWorld, page_of_failure: bytes) -> None:
    browser = Browser(world)
    callback = browser.sign_in(browser.start(world.begin(name(), "oidc").url))
    world.provider.mischief = [status(500)]
    failed(browser.client.get(callback), page_of_failure)


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("corp/start", {}),
        ("corp/start", {"id": "b" * 26}),
        ("corp/start", {"id": "no id"}),
        ("other/start", {"id": "a" * 26}),
        ("corp/callback", {}),
        ("corp/callback", {"error": "access_denied", "state": "x"}),
        ("corp/callback", {"code": "x", "state": "x"}),
        ("corp/consent", {}),
        ("corp/consent", {"ticket": "x"}),
        ("corp/consent", {"ticket": "\u00e9"}),
    ],
)
def test_what_no_sign_in_leads_to_is_one_page(
    world: LinkWorld, page_of_failure: bytes, path: str, params: dict[str, str]
) -> None:
    failed(Browser(world).client.get(f"{LINKS}/oidc/{path}", params=params), page_of_failure)


def test_a_link_that_is_over_or_of_another_tenant_begins_no_sign_in(world: LinkWorld, page_of_failure: bytes) -> None:
    begun = world.begin(name(), "oidc")
    with world.server.sql() as superuser:
        superuser.execute(
            "UPDATE minutebook.link_challenges SET expires_at = now() WHERE link_id = %s", (begun.link_id,)
        )
    failed(Browser(world).start(begun.url), page_of_failure)


def test_ten_sign_ins_of_a_link_are_enough(world: LinkWorld, page_of_failure: bytes) -> None:
    begun, browser = world.begin(name(), "oidc"), Browser(world)
    assert {browser.start(begun.url).status_code for _ in range(10)} == {303}
    failed(browser.start(begun.url), page_of_failure)


def test_a_person_of_an_account_of_their_own_is_not_linked_to_another(world: LinkWorld, page_of_failure: bytes) -> None:
    """Whoever asks with a token gets a URL, at which another person's account proves nothing for theirs."""
    page = world.person(name())
    answer = page.post(LINKS, json={"channel": "tg", "mechanism": "oidc"})
    assert answer.status_code == 201
    assert set(answer.json()) == {"seq", "chain", "id", "url", "expiresAt"}
    browser = Browser(world)
    failed(consent(browser, browser.go(answer.json()["url"])), page_of_failure)


def test_nothing_that_a_browser_carries_is_at_rest(world: LinkWorld) -> None:
    browser = Browser(world)
    callback = browser.sign_in(browser.start(world.begin(name(), "oidc").url))
    state = parse_qs(urlsplit(callback).query)["state"][0]
    with world.server.sql() as superuser:
        rows = superuser.execute("SELECT s::text FROM minutebook.link_sign_ins s").fetchall()
    assert rows
    assert not any(state in row for (row,) in rows)
    assert state not in world.server.logs()


def test_the_routes_beside_them_still_need_a_token(world: LinkWorld) -> None:
    for path in ("oidc/confirm", "oidc/corp/confirm", "oidc", "oidc/corp"):
        refused(world.server.client().post(f"{LINKS}/{path}", json={}), 401, "unauthenticated")
