"""A refusal tells the operator which check failed, and what to add or correct."""

import json
import time
from collections.abc import Callable

import pytest

from app.core.reading import Unreadable
from app.providers.request import Incoming
from reconcile.instants import SECOND, Instant
from tests.providers.builders import refused
from tests.providers.named.builders import (
    CERTIFICATE_URL,
    NOW,
    URL,
    XML,
    arrived,
    certificate,
    having,
    header,
    made,
    paypal_secrets,
    samples,
)
from tests.rows import for_each


def sentence(name: str, change: Callable[[Incoming], Incoming], *, now: Instant = NOW) -> str:
    """Return the refusal's sentence for a changed genuine request."""
    sample = samples()[name]
    refusal = refused(sample.verifier.verify(change(sample.request()), now=now))
    return refusal.sentence


def replaced(name: str, old: bytes, new: bytes) -> Callable[[Incoming], Incoming]:
    """Return a function that replaces a part of one header's text."""

    def change(request: Incoming) -> Incoming:
        value = header(request, name)
        assert old in value
        return having(request, **{name.replace("-", "_"): value.replace(old, new)})

    return change


@for_each(
    ("name", "change", "said"),
    [
        ("paypal", replaced("paypal-cert-url", b"CERT-1", b"CERT-2"), "add the PEM text"),
        ("paypal", replaced("paypal-cert-url", b"api.", b"api.example."), "no https address"),
        ("paypal", replaced("paypal-auth-algo", b"256", b"1"), "is not SHA256withRSA"),
        ("rfc9421 ed25519", replaced("signature-input", b"key-1", b"key-2"), "add the key"),
        ("rfc9421 ed25519", replaced("signature-input", b"ed25519", b"hmac-sha256"), "its alg"),
        (
            "rfc9421 ed25519",
            replaced("signature-input", b'("content-digest")', b"()"),
            "does not cover all of content-digest",
        ),
        (
            "rfc9421 ed25519",
            replaced("signature-input", b'"content-digest"', b'"content-digest" "content-digest"'),
            "unknown, absent, repeated",
        ),
        (
            "rfc9421 ed25519",
            replaced("content-digest", b"sha-256", b"sha-999"),
            "was not made with",
        ),
        (
            "twilio form",
            lambda r: having(r, content_type=b"text/xml"),
            "was not made|No configured",
        ),
        ("covered_headers", replaced("x-hook0-signature", b"h=", b"h=absent "), "is missing"),
        ("covered_headers", replaced("x-hook0-signature", b"x-event-id", b""), "does not cover"),
        ("plaid", lambda r: r._replace(body=b"{}"), "token's request_body_sha256"),
        ("oppwa", lambda r: r._replace(body=b"xyz"), "not hex"),
        ("braintree", lambda r: r._replace(body=b"bt_payload=AA"), "one bt_signature"),
    ],
)
def test_a_refusal_says_which_check_failed(
    name: str, change: Callable[[Incoming], Incoming], said: str
) -> None:
    assert any(words in sentence(name, change) for words in said.split("|"))


@pytest.mark.parametrize("name", ["covered_headers", "plaid", "rfc9421 ed25519"])
def test_age_is_judged_after_the_signature(name: str) -> None:
    later = NOW + 3600 * SECOND
    assert "1 h old; at most 5 min" in sentence(name, lambda request: request, now=later)
    forged = sentence(name, lambda request: request._replace(body=b"[]"), now=later)
    assert "old" not in forged.split()


def test_a_repeated_header_is_refused_as_ambiguous() -> None:
    for name in ("plaid", "paypal", "oppwa", "twilio form", "covered_headers"):
        sample = samples()[name]
        request = sample.request()
        last = request.headers[-1]
        refusal = sample.verifier.verify(
            request._replace(headers=[*request.headers, last]), now=NOW
        )
        assert refusal is not None
        assert "more than once" in refusal.sentence


def test_a_repeated_covered_header_is_refused_as_ambiguous() -> None:
    request = samples()["covered_headers"].request()
    twice = [*request.headers, (b"x-event-id", b"evt_02")]
    refusal = refused(
        samples()["covered_headers"].verifier.verify(request._replace(headers=twice), now=NOW)
    )
    assert "more than once" in refusal.sentence


def test_an_unknown_algorithm_selects_no_shared_key_of_twilio() -> None:
    change = replaced("x-twilio-webhooks-signature-settings", b"SHA256", b"MD5")
    assert "no secret is configured" in sentence("twilio shared key", change)


@pytest.mark.parametrize(("days", "accepted"), [(-2, False), (0, True), (2, True), (4, False)])
def test_a_certificate_counts_only_while_it_is_valid_at_the_time_of_judgement(
    days: int, accepted: bool
) -> None:
    short = certificate(first_day=-1, last_day=3)
    verifier = made(
        "paypal", named=paypal_secrets(**{CERTIFICATE_URL: short}), options={"past_s": 0}
    )
    now = NOW + days * 86_400 * SECOND
    request = arrived(verifier.sign(b"{}", event_id="e", now=now, method="POST", url=URL))
    refusal = verifier.verify(request, now=now)
    assert (refusal is None) is accepted
    assert refusal is None or "is valid from" in refusal.sentence


@pytest.mark.parametrize("tag", [b"", b';tag="other"'])
def test_a_signature_with_another_tag_than_the_profiles_is_refused(tag: bytes) -> None:
    sample = samples()["rfc9421 ed25519"]
    secrets = {"key-1": "hmac:c2VjcmV0"}
    verifier = made("rfc9421", named=secrets, options={"tag": "payments"})
    request = (
        replaced("signature-input", b"created", tag.lstrip(b";") + b";created")(sample.request())
        if tag
        else sample.request()
    )
    request = replaced("signature-input", b'alg="ed25519"', b'alg="hmac-sha256"')(request)
    assert "tag" in refused(verifier.verify(request, now=NOW)).sentence


def test_the_xml_of_braintree_is_read_as_json() -> None:
    xml = (
        b"<notification><kind>k</kind><subject><transaction><id>t1</id><amount>100.00</amount>"
        b'<merchant-account-id nil="true"/><disputes type="array"><dispute><id>d1</id></dispute>'
        b'</disputes><refund-ids type="array"/><note></note><tag><a>1</a></tag><tag><a>2</a></tag>'
        b"</transaction></subject></notification>"
    )
    verifier = samples()["braintree"].verifier
    request = arrived(verifier.sign(xml, event_id="e", now=NOW, method="POST", url=URL))
    transaction = json.loads(verifier.payload(request))["notification"]["subject"]["transaction"]
    assert transaction == {
        "id": "t1",
        "amount": "100.00",
        "merchant_account_id": None,
        "disputes": [{"id": "d1"}],
        "refund_ids": [],
        "note": "",
        "tag": [{"a": "1"}, {"a": "2"}],
    }


@for_each(
    ("xml", "said"),
    [
        (b"", "not well-formed"),
        (b"<a>", "not well-formed"),
        (b"\xff", "not UTF-8"),
        (b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', "document type"),
        (b"<a>" * 40 + b"</a>" * 40, "nested deeper"),
        (b"<a>&unknown;</a>", "not well-formed"),
    ],
)
def test_genuine_xml_that_cannot_be_read_exactly_is_unreadable(xml: bytes, said: str) -> None:
    verifier = samples()["braintree"].verifier
    request = arrived(verifier.sign(xml or b" ", event_id="e", now=NOW, method="POST", url=URL))
    assert verifier.verify(request, now=NOW) is None
    with pytest.raises(Unreadable, match=said):
        verifier.payload(request)
    assert XML not in request.body


@pytest.mark.parametrize(
    ("count", "covered", "judged"),
    [(8, '"content-digest"', True), (9, '"content-digest"', False), (1, '"@method" ' * 65, False)],
)
def test_no_more_than_eight_signatures_of_rfc_9421_are_tried(
    count: int, covered: str, judged: bool
) -> None:
    """Three hundred fit into one head, and take an eighth of a second."""
    sample = samples()["rfc9421 ed25519"]
    labels = [f"s{number}" for number in range(count)]
    request = having(
        sample.request(),
        signature_input=", ".join(f'{each}=({covered});keyid="key-1"' for each in labels).encode(),
        signature=", ".join(f"{each}=:AA==:" for each in labels).encode(),
    )
    refusal = refused(sample.verifier.verify(request, now=NOW))
    assert ("more than 8 signatures" in refusal.sentence) == (not judged)


def test_no_more_than_sixty_four_covered_headers_are_signed() -> None:
    """Fifteen kilobytes of names took half a second, and no key."""
    request = samples()["covered_headers"].request()
    named = replaced("x-hook0-signature", b"h=", b"h=" + b"a " * 3_000)(request)
    others = [(b"b", b"")] * 2_000
    began = time.process_time()
    refusal = samples()["covered_headers"].verifier.verify(
        named._replace(headers=[*named.headers, *others, (b"a", b"")]), now=NOW
    )
    assert time.process_time() - began < 0.1
    assert refusal is not None
    assert "more than 64 headers" in refusal.sentence


def test_a_braintree_key_signs_once_however_often_it_is_named() -> None:
    """A client token shows every customer the public key, and a megabyte has room for many
    names."""
    sample = samples()["braintree"]
    body = b"bt_signature=" + b"public%7Cy%26" * 8_000 + b"&bt_payload=" + b"A" * 150_000
    began = time.process_time()
    refusal = sample.verifier.verify(sample.request()._replace(body=body), now=NOW)
    assert time.process_time() - began < 0.2
    assert refusal is not None
    assert "was made with a configured private key" in refusal.sentence
