"""A named scheme starts only with usable secrets and options, and reports every one that is not."""

from typing import Any

import pytest

from app.core.errors import ConfigurationError
from app.providers.kit import names_of
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
from tests.rows import for_each

SCHEMES = names_of("SCHEME")
SMALL_ORDER = (
    "-----BEGIN PUBLIC KEY-----\n"
    "MCowBQYDK2VwAyEAAQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"
    "-----END PUBLIC KEY-----\n"
)


@for_each("name", SCHEMES)
def test_a_source_of_a_named_scheme_needs_a_secret(name: str) -> None:
    with pytest.raises(ConfigurationError, match="source acme: has no"):
        made(name)


@for_each("name", SCHEMES)
@for_each("blank", ["", "   "])
def test_a_blank_secret_is_refused(name: str, blank: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is empty or blank|has no"):
        made(name, blank, named={"key-1": blank, "webhook_id": blank})


@for_each("name", SCHEMES)
def test_an_unknown_option_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"signature\.options\.past is not an option"):
        made(name, "0f" * 32, options={"past": 5}, named={"key-1": "x"})


@for_each(
    ("name", "options", "said"),
    [
        ("covered_headers", {"past_s": -1}, "past_s must be seconds"),
        ("covered_headers", {"future_s": True}, "future_s must be seconds"),
        ("covered_headers", {"header": 5}, "header must be a text"),
        ("covered_headers", {"required": "content-type"}, "required must be a list"),
        ("plaid", {"past_s": 10**9}, "past_s must be seconds"),
        ("rfc9421", {"ecdsa": "asn1"}, "ecdsa must be raw, der or either"),
        ("rfc9421", {"algorithms": ["none"]}, "'none', which RFC 9421 lacks"),
        ("rfc9421", {"required": [""]}, "required must be a list"),
        (
            "paypal",
            {"hosts": ["example.org"]},
            "begins with https:// and one of these hosts: example.org",
        ),
    ],
)
def test_an_invalid_option_is_reported_by_its_key(
    name: str, options: dict[str, Any], said: str
) -> None:
    secrets = {**paypal_secrets(), "key-1": jwk(ec_key())}
    with pytest.raises(ConfigurationError) as caught:
        made(name, "a secret", options=options, named=secrets)
    assert said in str(caught.value)


@for_each(
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
        ("rfc9421", "hmac:SECRETSS", "fits none"),
        ("rfc9421", "hmac:S", "is not well-formed base64"),
        ("rfc9421", "hmac:é", "is not well-formed base64"),
        ("rfc9421", SMALL_ORDER, "small order"),
        ("rfc9421", pem(rsa_key()), "fits none"),
        ("paypal", "SECRET", "is not a certificate in PEM"),
        ("paypal", certificate("paypal.com.example.org"), "whose name does not end in"),
        ("paypal", certificate("evilpaypal.com"), "whose name does not end in"),
    ],
)
def test_an_invalid_secret_is_reported_without_being_shown(
    name: str, secret: str, said: str
) -> None:
    options = {"algorithms": ["ed25519"]} if name == "rfc9421" else {}
    with pytest.raises(ConfigurationError) as caught:
        made(name, secret, options=options, named={"webhook_id": "w", CERTIFICATE_URL: secret})
    assert any(words in str(caught.value) for words in said.split("|"))
    assert "SECRET" not in str(caught.value)
    assert caught.value.__context__ is None


def test_all_problems_of_a_named_scheme_are_reported_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        made("covered_headers", "", "  ", options={"past_s": -1, "colour": "red"})
    assert len(caught.value.problems) == 4


def test_each_certificate_of_a_chain_must_have_issued_the_one_before_it() -> None:
    issuer, stranger = rsa_key(8), rsa_key(9)
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
def test_a_source_with_only_the_public_half_verifies_and_cannot_sign(
    name: str, named: dict[str, str]
) -> None:
    with pytest.raises(ConfigurationError, match=r"needs|only the public half"):
        made(name, named=named).sign(
            b"{}", event_id="e", now=EARLIEST, method="POST", url="https://h/"
        )


@for_each(
    "url",
    [
        "https://api.paypal.com.example.org/cert",
        "https://api.paypal.com@example.org/cert",
        "http://api.paypal.com/cert",
        "https://api.paypal.com:8443/cert",
        "https://[",
    ],
)
def test_a_certificate_at_another_host_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="must have a URL that begins with https"):
        made("paypal", named=paypal_secrets(**{url: certificate()}))
