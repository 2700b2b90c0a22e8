"""A key of a pair is never accepted as a shared secret: anyone with its public half could sign."""

import base64
import hashlib
import hmac
import json
import traceback
from collections.abc import Sequence

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from app.core.errors import ConfigurationError
from app.providers.keys import takes_keys
from app.providers.kit import Secrets, named_scheme
from app.providers.profile import load_profile, shipped_profiles
from app.providers.request import Incoming
from app.providers.schemes import SCHEMES
from app.providers.source import Source
from reconcile.instants import SECOND
from tests.providers.builders import NOW, SECRET, raw
from tests.providers.named.builders import (
    certificate,
    ec_key,
    ed25519_key,
    pem,
    public_pem,
    rsa_key,
)
from tests.providers.samples import body_of, source_of, url_of
from tests.rows import for_each

RAW = ed25519_key().public_key().public_bytes_raw()
SEED = ed25519_key().private_bytes_raw()
PUBLIC = "whpk_" + base64.b64encode(RAW).decode()
PRIVATE = "whsk_" + base64.b64encode(SEED).decode()
DER = rsa_key().public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

KEYS = {
    "public": PUBLIC,
    "private": PRIVATE,
    "with blanks around it": f" {PUBLIC}\n",
    "PEM, public": public_pem(rsa_key()),
    "PEM, private": pem(ec_key()),
    "PEM in one line": public_pem(ed25519_key()).replace("\n", "\\n"),
    "PEM behind a heading": "Key Attributes: <No Attributes>\n" + public_pem(rsa_key()),
    "a certificate": certificate(),
    "JWK": json.dumps(jwt.algorithms.RSAAlgorithm.to_jwk(rsa_key().public_key(), as_dict=True)),
    "DER": base64.b64encode(DER).decode(),
}

MACS = {name: load_profile(name).signature.mac for name in shipped_profiles()}
SHARED = sorted(n for n, mac in MACS.items() if mac in SCHEMES and not SCHEMES[mac].asymmetric)
ASYMMETRIC = sorted(n for n, mac in MACS.items() if mac in SCHEMES and SCHEMES[mac].asymmetric)
BOTH = ["standard_webhooks", "svix"]
"""Profiles with a scheme for shared secrets and another for ed25519 keys."""

BY_CODE = sorted(n for n, mac in MACS.items() if named_scheme(mac) and not takes_keys(mac))
"""Profiles with a scheme in code that takes a shared secret."""

NO_SECRET = "is a public key or its private half, but a secret is needed"


def refusal(name: str, given: Sequence[str] | Secrets, *, strict: bool = True) -> str:
    """Return the sentence with which a source of this profile refuses to start."""
    with pytest.raises(ConfigurationError) as caught:
        Source(name="acme", profile=load_profile(name), secrets=given, strict=strict)
    shown = "".join(traceback.format_exception(caught.value))
    texts = [*given.listed, *given.named.values()] if isinstance(given, Secrets) else given
    assert not any(line in shown for text in texts for line in text.split("\n") if len(line) > 9)
    (problem,) = caught.value.problems
    return problem


@for_each("name", SHARED)
def test_no_profile_accepts_a_key_as_its_shared_secret(name: str) -> None:
    """Only a second scheme of keys accepts keys, by their mark."""
    for kind, secret in KEYS.items():
        if name in BOTH and kind in ("public", "private"):
            continue
        for strict in (True, False):
            message = refusal(name, [secret], strict=strict)
            assert message.startswith("source acme: secret 1 of 1 "), kind
            assert NO_SECRET in message, kind


@pytest.mark.parametrize("name", BY_CODE)
def test_no_named_scheme_accepts_a_key_as_its_shared_secret(name: str) -> None:
    for kind, secret in KEYS.items():
        shapes = (Secrets(listed=[secret]), Secrets(named={"1": secret}))
        said = [refusal(name, shape) for shape in shapes]
        judged = [NO_SECRET in each or "hex digits" in each.partition(";")[0] for each in said]
        assert any(judged), kind
        assert all(judged or "has no " in each for judged, each in zip(judged, said, strict=True))


def test_a_key_behind_the_mark_of_a_shared_secret_is_refused() -> None:
    for kind, secret in KEYS.items():
        assert NO_SECRET in refusal("rfc9421", Secrets(named={"1": "hmac:" + secret})), kind


def test_every_scheme_is_listed_here() -> None:
    assert (len(SHARED) > 40, len(BY_CODE) > 3) == (True, True)
    assert {n for n in MACS if load_profile(n).signature.also is not None} == {*BOTH}


@for_each("name", ASYMMETRIC)
def test_an_asymmetric_profile_signs_and_verifies_with_its_key(name: str) -> None:
    profile = load_profile(name)
    source = source_of(profile)
    made = source.signed(body_of(profile), event_id="evt_1", now=NOW, url=url_of(profile))
    assert source.verify(Incoming(raw(made.headers), made.body, url=made.url), now=NOW) is None


@pytest.mark.parametrize("name", BOTH)
def test_a_public_key_beside_a_shared_secret_verifies_only_its_own_signatures(name: str) -> None:
    profile = load_profile(name)
    key = Source(name="acme", profile=profile, secrets=[PRIVATE])
    for secrets in ([PUBLIC], [SECRET, PUBLIC], [PUBLIC, SECRET]):
        source = Source(name="acme", profile=profile, secrets=secrets)
        genuine = raw(key.sign(b"{}", event_id="e", now=NOW))
        assert source.verify(Incoming(genuine, b"{}"), now=NOW) is None
        for known in (PUBLIC.encode(), PUBLIC[5:].encode(), RAW, b""):
            forged = with_hash(genuine, known)
            assert forged != genuine
            assert source.verify(Incoming(forged, b"{}"), now=NOW) is not None


@pytest.mark.parametrize("first", [b"{", b"-", b"0"])
def test_a_raw_key_may_begin_like_another_form(first: bytes) -> None:
    """JSON begins with a brace, PEM with a hyphen, DER with a zero; so does one key in 256."""
    seeds = (number.to_bytes(32, "big") for number in range(10_000))
    keys = (Ed25519PrivateKey.from_private_bytes(seed).public_key() for seed in seeds)
    raw = next(r for key in keys if (r := key.public_bytes_raw()).startswith(first))
    secret = "whpk_" + base64.b64encode(raw).decode()
    Source(name="acme", profile=load_profile("standard_webhooks"), secrets=[secret])


def with_hash(headers: list[tuple[bytes, bytes]], key: bytes) -> list[tuple[bytes, bytes]]:
    """Sign the same request with a keyed hash."""
    content = b"e.%d.{}" % (NOW // SECOND)
    mac = base64.b64encode(hmac.digest(key, content, hashlib.sha256))
    return [
        (name, b"v1," + mac if name.endswith(b"-signature") else value) for name, value in headers
    ]


def test_texts_that_resemble_a_key_are_accepted_as_shared_secrets() -> None:
    for secret in (
        base64.b64encode(RAW).decode(),
        base64.b64encode(RAW + SEED).decode(),
        RAW.hex(),
        "whpk-" + "k" * 32,
        "{" + "k" * 32 + "}",
        "-----" + "k" * 32,
        "clé " * 8 + ".",
    ):
        Source(name="acme", profile=load_profile("stripe"), secrets=[secret])
