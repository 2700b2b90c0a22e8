"""A named scheme starts only with secrets and options that make sense, and says all that do not."""

from __future__ import annotations

from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from app.core.errors import ConfigurationError
from app.providers.named.contract import NAMED
from reconcile.instants import EARLIEST
from tests.providers.named.builders import (
    CERTIFICATE_URL,
    certificate,
    ec_key,
    ed25519_key,
    issuer_certificate,
    jwk,
    made,
    paypal_secrets,
    pem,
    public_pem,
    rsa_key,
)

SMALL_ORDER = (
    "-----BEGIN PUBLIC KEY-----\n"
    "MCowBQYDK2VwAyEAAQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"
    "-----END PUBLIC KEY-----\n"
)


@pytest.mark.parametrize("name", sorted(NAMED))
def test_without_a_secret_nothing_starts(name: str) -> None:
    """No secret at all is a mistake of the configuration, reported with the source's name."""
    with pytest.raises(ConfigurationError, match="source acme: has no"):
        made(name)


@pytest.mark.parametrize("name", sorted(NAMED))
@pytest.mark.parametrize("blank", ["", "   "])
def test_a_blank_secret_is_refused(name: str, blank: str) -> None:
    """Listed or named, an empty secret never verifies anything."""
    with pytest.raises(ConfigurationError, match=r"is empty or blank|has no"):
        made(name, blank, named={"key-1": blank, "webhook_id": blank})


@pytest.mark.parametrize("name", sorted(NAMED))
def test_an_option_that_no_scheme_has_is_refused(name: str) -> None:
    """A misspelt option is reported, and nothing is silently left out."""
    with pytest.raises(ConfigurationError, match=r"signature\.options\.past is not an option"):
        made(name, "0f" * 32, options={"past": 5}, named={"key-1": "x"})


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("covered_headers", {"past_s": -1}, "past_s must be seconds"),
        ("covered_headers", {"future_s": True}, "future_s must be seconds"),
        ("covered_headers", {"header": 5}, "header must be a text"),
        ("covered_headers", {"required": "content-type"}, "required must be a list"),
        ("plaid", {"past_s": 10**9}, "past_s must be seconds"),
        ("rfc9421", {"ecdsa": "asn1"}, "ecdsa must be raw, der or either"),
        ("rfc9421", {"algorithms": ["none"]}, "'none', which RFC 9421 has not"),
        ("rfc9421", {"required": [""]}, "required must be a list"),
        ("paypal", {"hosts": ["example.org"]}, "is not at https:// of one of example.org"),
    ],
)
def test_options_that_make_no_sense_are_reported(
    name: str, options: dict[str, Any], said: str
) -> None:
    """Each with its key."""
    secrets = {**paypal_secrets(), "key-1": jwk(ec_key())}
    with pytest.raises(ConfigurationError) as caught:
        made(name, "a secret", options=options, named=secrets)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("name", "secret", "said"),
    [
        ("oppwa", "SECRET" * 10, "is not a key of 64 hex digits"),
        ("oppwa", "0f" * 16, "is not a key of 64 hex digits"),
        ("twilio", " SECRET", "begins or ends with a blank"),
        ("plaid", "SECRET", "is not a public or private key"),
        ("plaid", public_pem(rsa_key()), "P-256|secp256r1"),
        ("plaid", jwk(ec_key(), expired_at="SECRET"), "has an expired_at"),
        ("plaid", '{"kty": "oct", "k": "U0VDUkVU"}', "is not a public or private key"),
        ("rfc9421", "SECRET", "is not a public or private key"),
        ("rfc9421", "hmac:SECRETSS", "is a key for none"),
        ("rfc9421", "hmac:S", "is not well-formed base64"),
        ("rfc9421", "hmac:é", "is not well-formed base64"),
        ("rfc9421", SMALL_ORDER, "small order"),
        ("rfc9421", pem(rsa_key()), "is a key for none"),
        ("paypal", "SECRET", "is not a certificate in PEM"),
        ("paypal", certificate("paypal.com.example.org"), "of another name"),
        ("paypal", certificate("evilpaypal.com"), "of another name"),
    ],
)
def test_secrets_that_are_none_are_reported_without_showing_them(
    name: str, secret: str, said: str
) -> None:
    """The sentence names the secret by number or id, and quotes nothing of it."""
    options = {"algorithms": ["ed25519"]} if name == "rfc9421" else {}
    with pytest.raises(ConfigurationError) as caught:
        made(name, secret, options=options, named={"webhook_id": "w", CERTIFICATE_URL: secret})
    assert any(words in str(caught.value) for words in said.split("|"))
    assert "SECRET" not in str(caught.value)
    assert caught.value.__context__ is None


def test_all_problems_come_at_once() -> None:
    """Two bad secrets, an option out of bounds and an unknown one are four sentences."""
    with pytest.raises(ConfigurationError) as caught:
        made("covered_headers", "", "  ", options={"past_s": -1, "colour": "red"})
    assert len(caught.value.problems) == 4


def test_a_chain_is_one_of_certificates_that_issued_each_other() -> None:
    """The issuer's certificate after its own is taken, a stranger's is not."""
    issuer, stranger = (
        rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2)
    )
    leaf = certificate(issuer=issuer)
    assert made(
        "paypal", named=paypal_secrets(**{CERTIFICATE_URL: leaf + issuer_certificate(issuer)})
    )
    with pytest.raises(ConfigurationError, match="did not issue"):
        made(
            "paypal", named=paypal_secrets(**{CERTIFICATE_URL: leaf + issuer_certificate(stranger)})
        )


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("paypal", {"webhook_id": "w", CERTIFICATE_URL: certificate()}),
        ("rfc9421", {"key-1": public_pem(ed25519_key())}),
        ("plaid", {"key-1": public_pem(ec_key())}),
    ],
)
def test_who_has_only_the_public_half_cannot_sign(name: str, named: dict[str, str]) -> None:
    """It is said in words, and verifying works all the same."""
    with pytest.raises(ConfigurationError, match=r"needs|only the public half"):
        made(name, named=named).sign(
            b"{}", event_id="e", now=EARLIEST, method="POST", url="https://h/"
        )


@pytest.mark.parametrize(
    "url",
    [
        "https://api.paypal.com.example.org/cert",
        "https://api.paypal.com@example.org/cert",
        "http://api.paypal.com/cert",
        "https://api.paypal.com:8443/cert",
        "https://[",
    ],
)
def test_a_certificate_stands_at_an_allowed_host(url: str) -> None:
    """Under any other address not even a configured one counts."""
    with pytest.raises(ConfigurationError, match="is not at https"):
        made("paypal", named=paypal_secrets(**{url: certificate()}))
