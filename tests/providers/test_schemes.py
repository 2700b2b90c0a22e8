"""Two schemes in one profile, keys by their id, and secrets in all their spellings."""

import base64
import hmac
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from app.core.errors import ConfigurationError
from app.core.phone_key import PhoneKey
from app.providers.encodings import SECRET_ENCODINGS
from app.providers.request import Incoming
from app.providers.schemes import HmacKey
from app.providers.source import Source
from tests.providers.builders import NOW, raw, refused
from tests.providers.kinds import kinds
from tests.providers.samples import private_key
from tests.rows import for_each

TWO, BY_ID = kinds()["two_schemes"], kinds()["key_by_id"]
SHARED = "whsec_" + base64.b64encode(b"k" * 32).decode()
SEED = bytes(range(32))
PRIVATE = "whsk_" + base64.b64encode(SEED).decode()
PUBLIC_RAW = ed25519.Ed25519PrivateKey.from_private_bytes(SEED).public_key().public_bytes_raw()
PUBLIC = "whpk_" + base64.b64encode(PUBLIC_RAW).decode()


def of(*secrets: str) -> Source:
    return Source(name="acme", profile=TWO, secrets=secrets)


@for_each("algorithm", ["md5", "sha1", "sha256", "sha384", "sha512"])
def test_a_keyed_hash_depends_on_its_message_alone_in_any_thread(algorithm: str) -> None:
    """Long messages are hashed in several threads at the same time."""
    key, phones = HmacKey(b"k" * 200, algorithm=algorithm), PhoneKey(b"k")
    contents = [b"%d" % number * 5_000 for number in range(8)] * 4
    with ThreadPoolExecutor(4) as threads:
        signatures = list(threads.map(key.sign, contents))
    assert signatures == [hmac.digest(b"k" * 200, each, algorithm) for each in contents]
    assert key.matches(contents[1], signatures[:2])
    assert not key.matches(contents[1], signatures[2:9])
    assert phones.digest("1") == phones.digest("1") != phones.digest("2")


def test_each_scheme_verifies_under_its_own_label() -> None:
    shared, public = (
        of(SHARED).sign(b"{}", event_id="e", now=NOW),
        of(PRIVATE).sign(b"{}", event_id="e", now=NOW),
    )
    assert dict(shared)["webhook-signature"].startswith("v1,")
    assert dict(public)["webhook-signature"].startswith("v1a,")
    for signed in (shared, public):
        assert of(SHARED, PUBLIC).verify(Incoming(raw(signed), b"{}"), now=NOW) is None
        assert of(SHARED, PUBLIC).verify(Incoming(raw(signed), b"{ }"), now=NOW) is not None
    assert of(PUBLIC).verify(Incoming(raw(public), b"{}"), now=NOW) is None
    assert of(SHARED).verify(Incoming(raw(public), b"{}"), now=NOW) is not None
    assert of(PUBLIC).verify(Incoming(raw(shared), b"{}"), now=NOW) is not None


@pytest.mark.parametrize(
    ("signer", "old", "new"), [(SHARED, "v1,", "v1a,"), (PRIVATE, "v1a,", "v1,")]
)
def test_a_signature_under_the_other_schemes_label_is_refused(
    signer: str, old: str, new: str
) -> None:
    signed = dict(of(signer).sign(b"{}", event_id="e", now=NOW))
    signed["webhook-signature"] = signed["webhook-signature"].replace(old, new)
    refusal = refused(of(SHARED, PUBLIC).verify(Incoming(raw(signed.items()), b"{}"), now=NOW))
    assert refusal.reason == "signature_mismatch"


def test_a_mac_made_with_the_public_key_is_refused() -> None:
    profile = kinds()["two_schemes"]
    forger = Source(name="x", profile=profile, secrets=["whsec_" + PUBLIC[5:]])
    signed = forger.sign(b"{}", event_id="e", now=NOW)
    assert of(SHARED, PUBLIC).verify(Incoming(raw(signed), b"{}"), now=NOW) is not None


def test_a_public_key_alone_cannot_sign() -> None:
    with pytest.raises(ConfigurationError, match="public"):
        of(PUBLIC).sign(b"{}", event_id="e", now=NOW)


def test_headers_may_have_the_names_of_the_other_dialect_but_not_both() -> None:
    signed = [
        (name.replace(b"webhook-", b"svix-"), value)
        for name, value in raw(of(SHARED).sign(b"{}", event_id="e", now=NOW))
    ]
    assert of(SHARED).verify(Incoming(signed, b"{}"), now=NOW) is None
    assert of(SHARED).verify(Incoming([*signed, (b"webhook-id", b"f")], b"{}"), now=NOW) is not None


def by_id(**keys: str) -> Source:
    return Source(name="acme", profile=BY_ID, secrets=keys)


def test_only_the_key_that_the_request_names_may_match() -> None:
    key = private_key("ecdsa-p256-sha256")
    source = by_id(new=key, old=private_key("ecdsa"))
    body = b'{"payload": {"a": 1.00}}'
    signed = raw(source.sign(body, event_id="e", now=NOW))
    assert source.verify(Incoming(signed, body), now=NOW) is None
    unnamed = [pair for pair in signed if pair[0] != b"x-key-id"]
    for names in ([], [b"other"], [b"old", b"new"], [b"\xff"]):
        headers = [*unnamed, *((b"x-key-id", name) for name in names)]
        assert source.verify(Incoming(headers, body), now=NOW) is not None
    assert by_id(new=private_key("ecdsa")).verify(Incoming(signed, body), now=NOW) is not None


@for_each(
    ("encoding", "secret", "value"),
    [
        ("text", "whsec_AAAA", b"whsec_AAAA"),
        ("hex", "00Ff", b"\x00\xff"),
        ("base64", "AP8", b"\x00\xff"),
        ("base64", "AP8=", b"\x00\xff"),
        ("whsec", "whsec_AP8=", b"\x00\xff"),
        ("whsec", "AP8", b"\x00\xff"),
        ("whsec_or_text", "whsec_AP8=", b"\x00\xff"),
        ("whsec_or_text", "AP8=", b"AP8="),
        ("public_key", PUBLIC, PUBLIC_RAW),
        ("public_key", PUBLIC_RAW.hex(), PUBLIC_RAW),
        ("public_key", PUBLIC[5:], PUBLIC_RAW),
        ("public_key", "-----BEGIN X-----\\nAA\\n", b"-----BEGIN X-----\nAA"),
    ],
)
def test_each_encoding_decodes_its_secrets(encoding: str, secret: str, value: bytes) -> None:
    decoded = SECRET_ENCODINGS[encoding](secret)
    assert decoded.strip() == value


@for_each(
    ("encoding", "secret"),
    [("hex", "0"), ("hex", "zz"), ("base64", "A"), ("base64", "A-_="), ("whsec", "whsec_A"),
     ("whsec_or_text", "whsec_!"), ("public_key", "whpk_!"), ("base64", "\u00e9")],
)  # fmt: skip
def test_each_encoding_refuses_malformed_secrets(encoding: str, secret: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        SECRET_ENCODINGS[encoding](secret)


@pytest.mark.parametrize("small", ["00" * 32, "01" + "00" * 31, "ec" + "ff" * 30 + "7f"])
def test_a_source_with_a_key_of_small_order_does_not_start(small: str) -> None:
    profile: Any = kinds()["ed25519"]
    with pytest.raises(ConfigurationError, match="small order"):
        Source(name="acme", profile=profile, secrets=[small])
