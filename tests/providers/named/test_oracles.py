"""The providers' own packages accept what we sign, and we accept what they sign."""

import warnings
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, urlencode

import jwt
import pytest
import time_machine
from http_message_signatures import (
    HTTPMessageSigner,
    HTTPMessageVerifier,
    MappingKeyResolver,
    algorithms,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from twilio.request_validator import RequestValidator

from app.providers.request import Incoming
from reconcile.instants import SECOND
from tests.providers.named.builders import (
    JSON,
    NOW,
    URL,
    arrived,
    ec_key,
    ed25519_key,
    header,
    jwk,
    made,
    pem,
    rsa_key,
)
from tests.rows import for_each
from tests.searching import examples

with warnings.catch_warnings():  # the package warns of its own old names
    warnings.simplefilter("ignore", DeprecationWarning)
    import braintree

FIXED = settings(derandomize=True, database=None, deadline=None, max_examples=examples(100))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
FIELDS = st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=8)
URLS = st.sampled_from(
    [URL, "https://shop.example:8443/in", "http://shop.example", "http://shop.example:80/a?b=c"]
)
FORM = "application/x-www-form-urlencoded"


class Several(dict):  # type: ignore[type-arg]
    """A form as the package reads it, with several values of one name."""

    def getlist(self, name: str) -> list[str]:
        found: list[str] = self[name]
        return found


def several(fields: list[tuple[str, str]]) -> Several:
    found = Several()
    for name, value in fields:
        found.setdefault(name, []).append(value)
    return found


@FIXED
@given(fields=FIELDS, url=URLS, sha256=st.booleans())
def test_requests_signed_by_the_twilio_package_verify(
    fields: list[tuple[str, str]], url: str, sha256: bool
) -> None:
    algorithm = "HMAC_SHA256" if sha256 else "HMAC_SHA1"
    signature = RequestValidator("token").compute_signature(url, several(fields), algorithm)
    headers = [(b"content-type", FORM.encode()), (b"x-twilio-signature", signature.encode())]
    if sha256:
        settings_header = b"key=key-1,algorithm=HMAC_SHA256"
        headers.append((b"x-twilio-webhooks-signature-settings", settings_header))
    verifier = made("twilio", "token", named={"key-1": "token"})
    request = Incoming(headers, urlencode(fields).encode(), "POST", url)
    assert verifier.verify(request, now=NOW) is None
    assert verifier.verify(request._replace(url=url + "x"), now=NOW) is not None


@FIXED
@given(fields=FIELDS, url=URLS)
def test_the_twilio_package_accepts_our_signatures_of_forms(
    fields: list[tuple[str, str]], url: str
) -> None:
    body = urlencode(fields).encode()
    signed = made("twilio", "token").sign(body, event_id="e", now=NOW, method="POST", url=url)
    signature = dict(signed.headers)["x-twilio-signature"]
    assert RequestValidator("token").validate(signed.url, several(fields), signature)


def test_the_twilio_package_accepts_our_body_digest_in_the_address() -> None:
    signed = made("twilio", "token").sign(JSON, event_id="e", now=NOW, method="POST", url=URL)
    signature = dict(signed.headers)["x-twilio-signature"]
    assert RequestValidator("token").validate(signed.url, JSON.decode(), signature)


KINDS = sorted(
    value for name, value in vars(braintree.WebhookNotification.Kind).items() if name[0].isupper()
)


def gateway(private: str = "private") -> braintree.BraintreeGateway:
    environment = braintree.Environment.Sandbox
    return braintree.BraintreeGateway(
        braintree.Configuration(environment, "merchant", "public", private)
    )


@for_each("kind", KINDS)
def test_notifications_signed_by_the_braintree_package_verify_and_are_read(kind: str) -> None:
    sample = gateway().webhook_testing.sample_notification(kind, "my_id")
    request = Incoming([], urlencode(sample).encode(), "POST", URL)
    verifier = made("braintree", named={"public": "private"})
    assert verifier.verify(request, now=NOW) is None
    assert f'"kind": "{kind}"'.encode() in verifier.payload(request)
    assert b'"subject": ' in verifier.payload(request)
    assert made("braintree", named={"public": "other"}).verify(request, now=NOW) is not None


def test_the_braintree_package_parses_notifications_that_we_signed() -> None:
    xml = b"<notification><kind>check</kind><subject><check>true</check></subject></notification>"
    verifier = made("braintree", named={"public": "private"})
    signed = verifier.sign(xml, event_id="e", now=NOW, method="POST", url=URL)
    form = dict(parse_qsl(signed.body.decode()))
    parsed = gateway().webhook_notification.parse(form["bt_signature"], form["bt_payload"])
    assert parsed.kind == "check"


def test_pyjwt_accepts_the_token_of_a_plaid_source() -> None:
    verifier = made("plaid", named={"key-1": jwk(ec_key())})
    request = arrived(verifier.sign(JSON, event_id="e", now=NOW, method="POST", url=URL))
    token = header(request, "plaid-verification")
    with time_machine.travel(datetime.fromtimestamp(NOW // SECOND, UTC), tick=False):
        claims = jwt.decode(token, ec_key().public_key(), algorithms=["ES256"])
    assert claims == {"iat": NOW // SECOND, "request_body_sha256": sha256(JSON).hexdigest()}


class Message:
    """A request in the form that the library for RFC 9421 expects."""

    def __init__(self, method: str, url: str, headers: dict[str, str]) -> None:
        self.method, self.url, self.headers = method, url, headers


ALGORITHMS = [
    ("ed25519", algorithms.ED25519, ed25519_key),
    ("ecdsa-p256-sha256", algorithms.ECDSA_P256_SHA256, ec_key),
    ("rsa-pss-sha512", algorithms.RSA_PSS_SHA512, rsa_key),
    ("rsa-v1_5-sha256", algorithms.RSA_V1_5_SHA256, rsa_key),
]
EACH = pytest.mark.parametrize(
    ("name", "algorithm", "key"), ALGORITHMS, ids=[a[0] for a in ALGORITHMS]
)


@EACH
def test_the_http_message_signatures_library_accepts_our_signatures(
    name: str, algorithm: Any, key: Any
) -> None:
    options = {"algorithms": [name], "required": ["@method", "@target-uri", "content-type"]}
    verifier = made("rfc9421", named={"key-1": pem(key())}, options=options)
    signed = verifier.sign(JSON, event_id="e", now=NOW, method="POST", url=URL)
    keys = MappingKeyResolver(public_keys={"key-1": key().public_key()}, private_keys={})
    with time_machine.travel(datetime.fromtimestamp(NOW // SECOND, UTC), tick=False):
        oracle = HTTPMessageVerifier(signature_algorithm=algorithm, key_resolver=keys)
        (result,) = oracle.verify(Message("POST", URL, dict(signed.headers)), body=JSON)
    assert set(result.covered_components) >= {'"content-digest"', '"@target-uri"'}


@EACH
def test_signatures_of_the_http_message_signatures_library_verify(
    name: str, algorithm: Any, key: Any
) -> None:
    message = Message("POST", URL, {"X-Empty": "", "X-Two": "a,  b", "Content-Type": "text/plain"})
    keys = MappingKeyResolver(public_keys={}, private_keys={"key-1": key()})
    HTTPMessageSigner(signature_algorithm=algorithm, key_resolver=keys).sign(
        message,
        key_id="key-1",
        created=datetime.fromtimestamp(NOW // SECOND, UTC),
        covered_component_ids=(
            "@method", "@scheme", "@path", "@query", "@request-target", "x-empty", "x-two",
            '"@query-param";name="account"',
        ),
        body=JSON,
    )  # fmt: skip
    raw = [(key.lower().encode(), value.encode()) for key, value in message.headers.items()]
    verifier = made("rfc9421", named={"key-1": pem(key())})
    request = Incoming(raw, JSON, "POST", URL)
    assert verifier.verify(request, now=NOW) is None
    assert verifier.verify(request._replace(url=URL.replace("7", "8")), now=NOW) is not None
