"""Plaid: a JSON Web Token in ES256 with the body's digest.

Source: plaid.com/docs, "Verify webhooks". Every other algorithm, including `none`, is refused.
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from hmac import compare_digest
from typing import Any, Final, NamedTuple

import jwt

from app.core.errors import ConfigurationError
from app.core.reading import Unreadable
from app.core.strict_json import parse
from app.providers import kit
from app.providers.kit_setup import Setup
from app.providers.request import Incoming, Refusal
from app.providers.schemes import ASYMMETRIC_SCHEMES, KeyPair, load_key
from reconcile.instants import EARLIEST, LATEST, SECOND, Instant

ALGORITHM: Final = "ES256"
_BODY_DIGEST: Final = "request_body_sha256"


_MALFORMED = kit.mismatch(f"The header plaid-verification holds no JSON Web Token in {ALGORITHM}.")
_UNKNOWN_KEY = kit.mismatch(
    "The token's key id is not configured: ask Plaid's /webhook_verification_key/get for that id "
    "and add the JWK to the named secrets under it."
)
_EXPIRED_KEY = kit.mismatch("The token's key had expired, by its own expired_at.")
_OTHER_SIGNATURE = kit.mismatch("The token was not signed with the key that it names.")
_OTHER_BODY = kit.mismatch(f"The body's SHA-256 does not match the token's {_BODY_DIGEST}.")


class JsonWebKey(NamedTuple):
    """A configured key."""

    pair: KeyPair
    expires_at: Instant | None
    """Time at which Plaid expires the key. None if it does not expire."""


class Plaid(kit.NamedVerifier):
    """Verifier that uses the key named by the token."""

    def __init__(self, keys: Mapping[str, JsonWebKey], *, age: kit.AgeLimit) -> None:
        self._keys = keys
        self._age = age
        self._header = kit.SingleHeader("plaid-verification")

    def verify(self, request: Incoming, *, now: Instant) -> Refusal | None:
        # (1) There is one token with the one algorithm, and a known key that has not expired.
        token = self._header.value(request.headers)
        if isinstance(token, Refusal):
            return token
        try:
            header = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError):
            return _MALFORMED
        if header.get("alg") != ALGORITHM:
            return _MALFORMED
        identity = header.get("kid")
        key = self._keys.get(identity) if type(identity) is str else None
        if key is None:
            return _UNKNOWN_KEY
        if key.expires_at is not None and now >= key.expires_at:
            return _EXPIRED_KEY
        # (2) The key signed it.
        try:
            claims = parse(jwt.PyJWS().decode(token, key.pair.public, algorithms=[ALGORITHM]))
        except (jwt.PyJWTError, Unreadable, ValueError, RecursionError):
            return _OTHER_SIGNATURE
        if type(claims) is not dict:
            return _OTHER_SIGNATURE
        # (3) It covers this body.
        stated = claims.get(_BODY_DIGEST)
        actual = sha256(request.body).hexdigest().encode()
        if type(stated) is not str or not compare_digest(stated.encode("utf-8", "replace"), actual):
            return _OTHER_BODY
        # (4) It was issued near enough to now.
        issued: Any = claims.get("iat")
        if type(issued) is not int or not 0 <= issued * SECOND <= LATEST:
            return self._age.missing("is missing or not a number of seconds")
        return self._age.check(EARLIEST + issued * SECOND, now)

    def sign(
        self, body: bytes, *, event_id: str, now: Instant, method: str, url: str
    ) -> kit.Signed:
        """Build a request signed with the first private key."""
        for identity, key in self._keys.items():
            if key.pair.private is not None:
                claims = {"iat": now // SECOND, _BODY_DIGEST: sha256(body).hexdigest()}
                token = jwt.PyJWS().encode(
                    json.dumps(claims).encode(),
                    key.pair.private,
                    algorithm=ALGORITHM,
                    headers={"kid": identity, "typ": "JWT"},
                )
                return kit.Signed([(self._header.name, token)], body, url)
        raise ConfigurationError(["signing needs a JWK with its private half"])


def plaid(source: str, options: Mapping[str, object], secrets: kit.Secrets) -> Plaid:
    """Compile the scheme, with JWKs named by key id.

    The options are `past_s` and `future_s` (default 300).
    """
    setup = Setup(source, options, secrets)
    age = setup.age("The token's iat")
    keys = setup.named(_json_web_key)
    if not secrets.named:
        setup.problem("has no key; give each JWK in KEYS under its key id")
    setup.conclude()
    return Plaid(keys, age=age)


SCHEME: Final = kit.NamedScheme(make=plaid, public_keys=True)


def _json_web_key(secret: str) -> JsonWebKey:
    ASYMMETRIC_SCHEMES["ecdsa-p256-sha256"](secret.encode())  # refuses every other kind of key
    expires = json.loads(secret).get("expired_at") if secret.lstrip().startswith("{") else None
    if expires is not None and type(expires) is not int:
        raise ValueError("has an expired_at that is not a number of seconds")
    return JsonWebKey(
        load_key(secret.encode()), None if expires is None else EARLIEST + expires * SECOND
    )
