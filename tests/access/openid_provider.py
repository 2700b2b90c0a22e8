"""A small OpenID provider for tests: one client, one person, and faults on demand.

It checks what a provider must (redirect address, client secret, PKCE, a code's one use), so that a
console that leaves one out does not sign in.
"""

import json
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote_plus, urlsplit

import httpx2
import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.core.clock import Clock
from reconcile.instants import SECOND

ISSUER = "https://login.example/realms/shop/"
CLIENT, CLIENT_SECRET = "tallyhook console", "c9Qx7:Tj4 Vb9Hd3/Fg6Ms1P"
BACK = "https://console.shop.example/sign-in/company/back"


def settings_of_company(**more: str) -> dict[str, str]:
    """Return the variables of a console whose people sign in there."""
    return {
        "OIDC__ISSUER": ISSUER,
        "OIDC__CLIENT_ID": CLIENT,
        "OIDC__CLIENT_SECRET": CLIENT_SECRET,
        "OIDC__ROLES": '{"tally-admins": "admin", "books": "finance", "desk": "support"}',
        **more,
    }


@dataclass
class OpenIdProvider:
    """A provider, the person who is signed in there, and what it says wrongly.

    claims   of ID tokens, over the usual ones; None leaves one out
    sign     makes a token of claims in place of `signed`
    asked    parameters of the last authorization
    fetched  paths of all requests
    status   of the configuration's answer
    """

    clock: Clock
    claims: dict[str, Any] = field(default_factory=dict)
    configuration: dict[str, Any] = field(default_factory=dict)
    answer: dict[str, str] = field(default_factory=dict)
    sign: Callable[[dict[str, Any]], str] | None = None
    asked: dict[str, str] = field(default_factory=dict)
    fetched: list[str] = field(default_factory=list)
    status: int = 200
    _begun: list[dict[str, str]] = field(default_factory=list)
    _exchanged: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.rotate("first")

    def rotate(self, kid: str) -> None:
        """Publish a new key alone, and sign with it from now on."""
        self.key, self.kid = ec.generate_private_key(ec.SECP256R1()), kid
        public = json.loads(ECAlgorithm.to_jwk(self.key.public_key()))
        self.keys = [public | {"kid": kid, "use": "sig", "alg": "ES256"}]

    def signed(self, claims: dict[str, Any]) -> str:
        return jwt.encode(claims, self.key, algorithm="ES256", headers={"kid": self.kid})

    @property
    def transport(self) -> httpx2.AsyncBaseTransport:
        routes = [
            Route("/realms/shop/.well-known/openid-configuration", self._configuration),
            Route("/keys", self._keys),
            Route("/token", self._token, methods=["POST"]),
        ]
        return httpx2.ASGITransport(app=Starlette(routes=routes))

    def authorize(self, address: str) -> dict[str, str]:
        """Return the parameters with which a browser that was sent there comes back."""
        parts = urlsplit(address)
        assert f"{parts.scheme}://{parts.netloc}{parts.path}" == "https://login.example/authorize"
        asked = self.asked = dict(parse_qsl(parts.query, strict_parsing=True))
        assert asked["response_type"] == "code"
        assert asked["code_challenge_method"] == "S256"
        assert asked["client_id"] == CLIENT
        assert "openid" in asked["scope"].split()
        self._begun.append(asked)
        return {"code": str(len(self._begun) - 1), "state": asked["state"], **self.answer}

    async def _configuration(self, request: Request) -> Response:
        self.fetched.append("configuration")
        if self.status != 200:
            return Response(status_code=self.status, headers={"Location": "https://evil.example"})
        stated = {
            "issuer": ISSUER,
            "authorization_endpoint": "https://login.example/authorize",
            "token_endpoint": "https://tokens.example/token",
            "jwks_uri": "https://login.example/keys",
            "end_session_endpoint": "https://login.example/leave",
        }
        return JSONResponse(stated | self.configuration)

    async def _keys(self, request: Request) -> Response:
        self.fetched.append("keys")
        return JSONResponse({"keys": self.keys})

    async def _token(self, request: Request) -> Response:
        self.fetched.append("token")
        given = {
            name: values[0] for name, values in parse_qs((await request.body()).decode()).items()
        }
        pair = b64decode(request.headers["authorization"].removeprefix("Basic ")).decode()
        if [unquote_plus(each) for each in pair.split(":")] != [CLIENT, CLIENT_SECRET]:
            return JSONResponse({"error": "invalid_client"}, status_code=401)
        asked, used = self._begun[int(given["code"])], given["code"] in self._exchanged
        self._exchanged.add(given["code"])
        hashed = sha256(given["code_verifier"].encode()).digest()
        if (
            used
            or asked["redirect_uri"] != given["redirect_uri"]
            or asked["code_challenge"] != urlsafe_b64encode(hashed).decode().rstrip("=")
        ):
            return JSONResponse({"error": "invalid_grant"}, status_code=400)
        now = self.clock.now() // SECOND
        claims = {
            "iss": ISSUER, "sub": "u-1", "aud": CLIENT, "exp": now + 300, "iat": now,
            "nonce": asked["nonce"], "email": "wambui@shop.example", "email_verified": True,
            "groups": ["everybody", "books"],
            **({"auth_time": now} if "max_age" in asked else {}),
            **self.claims,
        }  # fmt: skip
        claims = {name: value for name, value in claims.items() if value is not None}
        token = (self.sign or self.signed)(claims)
        return JSONResponse({"id_token": token, "access_token": "at", "token_type": "Bearer"})
