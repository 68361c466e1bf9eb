"""An identity provider as a real HTTP server: signs people in, gives an ID token for a code and its verifier."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, unquote, urlencode

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from outside import Outside, Reply, Request

ISSUER = "https://id.example"
CLIENT_ID = "minutebook-links"
CLIENT_SECRET = "s3cret of the client/%"

MISSING: Any = object()


class OidcProvider(Outside):
    """Whoever comes is `sub`. claims: of the next ID token, over those that are right; MISSING takes one away.
    wrong_key: signs it instead of the provider's own. answer: instead of the tokens for a code."""

    def __init__(self) -> None:
        super().__init__(self._reply)
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.sub = "ann"
        self.claims: dict[str, Any] = {}
        self.wrong_key: ec.EllipticCurvePrivateKey | None = None
        self.answer: Callable[[dict[str, Any]], Reply] | None = None
        self._codes: dict[str, dict[str, str]] = {}

    def token(self, **claims: Any) -> str:
        """A signed token of the provider; a bearer token for this server, but for what is given."""
        now = int(time.time())
        plain = {"iss": ISSUER, "aud": "minutebook", "sub": self.sub, "iat": now, "exp": now + 600, **claims}
        kept = {name: value for name, value in plain.items() if value is not MISSING}
        return jwt.encode(kept, self.wrong_key or self.key, "ES256", {"kid": "one"})

    def _reply(self, request: Request) -> Reply:
        match request.method, request.path:
            case "GET", "/jwks":
                public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key()))
                return _json(200, {"keys": [{**public, "kid": "one", "alg": "ES256", "use": "sig"}]})
            case "GET", "/authorize":
                return self._authorize(request.query)
            case "POST", "/token":
                return self._token(request)
            case _:
                return _json(404, {})

    def _authorize(self, asked: dict[str, str]) -> Reply:
        assert asked["response_type"] == "code"
        assert asked["client_id"] == CLIENT_ID
        assert "openid" in asked["scope"].split()
        assert asked["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(16)
        self._codes[code] = asked
        back = urlencode({"code": code, "state": asked["state"]})
        return Reply(303, b"", {"location": f"{asked['redirect_uri']}?{back}"})

    def _token(self, request: Request) -> Reply:
        form = {name: values[0] for name, values in parse_qs(request.body.decode()).items()}
        pair = base64.b64decode(request.headers.get("authorization", "").removeprefix("Basic ")).decode()
        who, _, secret = pair.partition(":")
        asked = self._codes.pop(form.get("code", ""), None)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        if (
            (unquote(who), unquote(secret)) != (CLIENT_ID, CLIENT_SECRET)
            or asked is None
            or form.get("grant_type") != "authorization_code"
            or form.get("redirect_uri") != asked["redirect_uri"]
            or challenge.rstrip(b"=").decode() != asked["code_challenge"]
        ):
            return _json(400, {"error": "invalid_grant"})
        said = {"aud": CLIENT_ID, "nonce": asked["nonce"], **self.claims}
        tokens = {"access_token": "unused", "token_type": "Bearer", "id_token": self.token(**said)}
        return _json(200, tokens) if self.answer is None else self.answer(tokens)


def _json(status: int, document: Any) -> Reply:
    return Reply(status, json.dumps(document).encode(), {"content-type": "application/json"})
