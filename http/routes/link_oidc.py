"""Signing in at an identity provider to link a channel: for browsers, without a token. Any failure is one page."""

from __future__ import annotations

import html
from typing import Annotated
from urllib.parse import urlencode

from litestar import Response, Router, get, post
from litestar.datastructures import Cookie
from litestar.di import NamedDependency
from litestar.params import CookieParameter, FromPath, QueryParameter, SkipValidation

from ...commands.linking.sign_in_ports import SIGN_IN_S, SignInFailed
from ..link_services import LinkServices

HERE = "/v1/links/oidc"
ONE = f"{HERE}/{{issuer:str}}"
COOKIE = "minutebook-sign-in"

HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}

Links = NamedDependency[SkipValidation[LinkServices]]
Carried = Annotated[str | None, QueryParameter(required=False)]
Browser = Annotated[str | None, CookieParameter(name=COOKIE, required=False)]

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title></head><body><main><h1>{title}</h1>{body}</main></body></html>
"""


@get(f"{ONE}/start", status_code=303)
async def start_sign_in(
    issuer: FromPath[str], links: Links, id_: Annotated[str | None, QueryParameter(name="id", required=False)] = None
) -> Response[str]:
    """Send a browser to the identity provider, for a link that waits."""
    try:
        sent = await links.signing_in.start(issuer, id_ or "")
    except SignInFailed:
        return _failed()
    return _sent(sent.url, sent.cookie, links)


@get(f"{ONE}/callback", status_code=303)
async def end_sign_in(
    issuer: FromPath[str], links: Links, code: Carried = None, state_: Annotated[
        str | None, QueryParameter(name="state", required=False)
    ] = None, browser: Browser = None
) -> Response[str]:  # fmt: skip
    """Take a browser that the provider has sent back on to the question whether the link is wanted."""
    try:
        sent = await links.signing_in.back(issuer, code, state_, browser)
    except SignInFailed:
        return _failed()
    return _sent(f"{HERE}/{issuer}/consent?{urlencode({'ticket': sent.url})}", sent.cookie, links)


@get(f"{ONE}/consent")
async def ask_consent(
    issuer: FromPath[str], links: Links, ticket: Carried = None, browser: Browser = None
) -> Response[str]:
    """The page that asks whoever has signed in; nothing changes by looking at it."""
    try:
        asked = await links.signing_in.asked(issuer, ticket, browser)
    except SignInFailed:
        return _failed()
    other = f"{asked.other.display} on {asked.other.channel}" if asked.other.display else asked.other.channel
    body = (
        f"<p>You are signed in as <b>{html.escape(asked.principal)}</b>.</p>"
        f"<p>Somebody asks to link <b>{html.escape(other)}</b> to you. Whoever writes from there will be you.</p>"
        "<p>Go on only if you have asked for this yourself.</p>"
        f'<form method="post" action="?{html.escape(urlencode({"ticket": ticket or ""}))}">'
        "<button>Link it</button></form>"
    )
    return _page("Link a channel", body)


@post(f"{ONE}/consent", status_code=200)
async def give_consent(
    issuer: FromPath[str], links: Links, ticket: Carried = None, browser: Browser = None
) -> Response[str]:
    """Present the link: it waits then for the end that began it."""
    try:
        await links.signing_in.present(issuer, ticket, browser)
    except SignInFailed:
        return _failed()
    answer = _page("Almost done", "<p>Now confirm it where you began: in a chat by /confirm.</p>")
    answer.delete_cookie(COOKIE, path=HERE)
    return answer


def _sent(url: str, cookie: str, links: LinkServices) -> Response[str]:
    carried = Cookie(
        COOKIE,
        value=cookie,
        path=HERE,
        max_age=int(SIGN_IN_S),
        secure=not links.is_loopback,
        httponly=True,
        samesite="lax",  # the provider's page leads back here
    )
    return Response(
        "", status_code=303, headers={**HEADERS, "location": url}, cookies=[carried], media_type="text/html"
    )


def _page(title: str, body: str, status: int = 200) -> Response[str]:
    text = PAGE.format(title=title, body=body)
    return Response(text, status_code=status, headers=HEADERS, media_type="text/html")


def _failed() -> Response[str]:
    return _page("This did not work", "<p>Begin the link again where you want it.</p>", 400)


ROUTES = Router(
    "/",
    route_handlers=[start_sign_in, end_sign_in, ask_consent, give_consent],
    include_in_schema=False,  # pages for people
)
