"""Keys in every form that providers publish, and values that are refused as a key or a
signature."""

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from app.core.errors import ConfigurationError
from app.providers.schemes import ASYMMETRIC_SCHEMES, load_key
from tests.providers.named.builders import (
    certificate,
    ec_key,
    ed25519_key,
    flip,
    jwk,
    pem,
    public_pem,
    rsa_key,
)
from tests.rows import for_each

P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P
SMALL_ORDER = [
    "01000000000000000000000000000000000000000000000000000000000000" + last
    for last in ("00", "80")
] + [
    first + "ff" * 30 + last for first in ("ec", "ed", "ee") for last in ("7f", "ff")
] + ["00" * 31 + last for last in ("00", "80")] + [
    half + last
    for half, lasts in (
        ("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc", ("05", "85")),
        ("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03", ("7a", "fa")),
    )
    for last in lasts
]  # fmt: skip
"""The eight points of small order in all their encodings, canonical or not."""

SCHEMES = sorted(ASYMMETRIC_SCHEMES)


def key_for(scheme: str) -> str:
    if scheme.startswith("rsa"):
        return pem(rsa_key())
    if scheme == "ed25519":
        return pem(ed25519_key())
    return pem(ec.generate_private_key(ec.SECP384R1())) if "p384" in scheme else pem(ec_key())


@for_each("scheme", SCHEMES)
def test_a_key_verifies_its_own_signature_and_no_other(scheme: str) -> None:
    private = ASYMMETRIC_SCHEMES[scheme](key_for(scheme).encode())
    signature = private.sign(b"message")
    assert private.matches(b"message", [b"", signature])
    assert not private.matches(b"massage", [signature])
    for other in (
        flip(signature, 9),
        signature[:-1],
        signature + b"\0",
        b"",
        b"\0" * len(signature),
    ):
        assert not private.matches(b"message", [other])


def test_no_more_than_sixteen_signatures_are_tried() -> None:
    key = ASYMMETRIC_SCHEMES["ed25519"](key_for("ed25519").encode())
    others, own = key.sign(b"another message"), key.sign(b"message")
    assert key.matches(b"message", [others] * 15 + [own])
    assert not key.matches(b"message", [others] * 16 + [own])


def test_a_key_is_read_once_in_each_form() -> None:
    spki = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    seed = ed25519_key().private_bytes_raw()
    forms = {
        pem(rsa_key()).encode(): rsa.RSAPublicKey,
        public_pem(rsa_key()).encode(): rsa.RSAPublicKey,
        certificate().encode(): rsa.RSAPublicKey,
        jwk(ec_key()).encode(): ec.EllipticCurvePublicKey,
        ec_key().public_key().public_bytes(*spki): ec.EllipticCurvePublicKey,
        ed25519_key().public_key().public_bytes_raw(): ed25519.Ed25519PublicKey,
        seed + ed25519_key().public_key().public_bytes_raw(): ed25519.Ed25519PublicKey,
    }
    for material, kind in forms.items():
        assert isinstance(load_key(material).public, kind)
        assert load_key(material) is load_key(material), "each is read, and checked, once"


@for_each(
    "material",
    [
        b"",
        b"secret",
        b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        b"{}",
        b"{",
        b"{" * 100_000,
        b'{"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"}',
        b'{"kty": "oct"}',
        b'{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}',
        b"\xff" * 70,
    ],
)
def test_an_invalid_key_is_refused_without_being_shown(material: bytes) -> None:
    with pytest.raises(ValueError, match="is not a public or private key") as caught:
        load_key(material)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


@for_each("encoded", SMALL_ORDER)
def test_an_ed25519_key_of_small_order_is_refused(encoded: str) -> None:
    y = int.from_bytes(bytes.fromhex(encoded), "little") % 2**255 % P
    with pytest.raises(ValueError, match="small order"):
        load_key(bytes.fromhex(encoded))
    # 8P is neutral: doubling three times, in y alone (y of 2P is a function of the y of P).
    for _ in range(3):
        x2 = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
        y = (y * y + x2) * pow(2 + x2 - y * y, -1, P) % P
    assert y == 1


def test_one_signature_fits_every_message_under_a_key_of_small_order() -> None:
    neutral = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(SMALL_ORDER[0]))
    signature = bytes.fromhex(SMALL_ORDER[0]) + bytes(32)
    neutral.verify(signature, b"any message")
    neutral.verify(signature, b"any other message")


def test_an_rsa_key_below_1024_bits_is_refused() -> None:
    # A modulus of 512 bits, made for this test.
    der = base64.b64decode(
        "MFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBALpjv3VOnuo36yNfoK2qqLl+d3MBncDa7xv4/MmaC/m/0Aa+"
        "qid+OOq8UtnyGDGhUnzLI6C9KR1KryJ3h9xe7H0CAwEAAQ=="
    )
    with pytest.raises(ValueError, match="fewer than 1024 bits"):
        load_key(der)


@for_each(
    ("scheme", "key"),
    [
        ("rsa-pkcs1-sha256", "ed25519"),
        ("ed25519", "rsa-pkcs1-sha256"),
        ("ecdsa-p256-sha256", "ecdsa-p384-sha384-raw"),
        ("ecdsa-p384-sha384-raw", "ecdsa-p256-sha256"),
        ("ecdsa-p256-sha256", "rsa-pkcs1-sha1"),
    ],
)
def test_a_key_of_another_kind_is_refused(scheme: str, key: str) -> None:
    with pytest.raises(ValueError, match="is not a"):
        ASYMMETRIC_SCHEMES[scheme](key_for(key).encode())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("rsa-pkcs1-sha1", "rsa-pkcs1-sha256"),
        ("rsa-pkcs1-sha256", "rsa-pss-sha512"),
        ("ecdsa-p256-sha256", "ecdsa-p256-sha256-raw"),
    ],
)
def test_a_signature_of_another_scheme_under_the_same_key_is_refused(one: str, other: str) -> None:
    first, second = (ASYMMETRIC_SCHEMES[name](key_for(one).encode()) for name in (one, other))
    assert not second.matches(b"m", [first.sign(b"m")])
    assert not first.matches(b"m", [second.sign(b"m")])


@pytest.mark.parametrize("scheme", ["rsa-pss-sha512", "ed25519", "ecdsa-p256-sha256-raw"])
def test_a_public_key_cannot_sign(scheme: str) -> None:
    kind = {"r": rsa_key, "e": ec_key}[scheme[0]] if scheme != "ed25519" else ed25519_key
    with pytest.raises(ConfigurationError, match="only the public half"):
        ASYMMETRIC_SCHEMES[scheme](public_pem(kind()).encode()).sign(b"m")
