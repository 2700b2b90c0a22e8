"""Laws of every named scheme: it accepts what it signs, refuses everything else, and never
raises."""

import os
from contextlib import suppress
from functools import cache
from urllib.parse import quote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from app.core.reading import Unreadable
from app.providers.kit import names_of
from app.providers.request import Incoming, Refusal
from reconcile.instants import SECOND
from tests.providers.builders import refused
from tests.providers.named.builders import NOW, URL, Sample, having, samples
from tests.searching import examples

FIXED = settings(derandomize=True, database=None, deadline=None, max_examples=examples(40))
EXAMPLES = 4_000 if os.environ.get("TALLYHOOK_LONG") else 40
FUZZ = settings(derandomize=True, database=None, deadline=None, max_examples=EXAMPLES)
EVERY = pytest.mark.parametrize("name", sorted(samples()))

# Bytes that the parsers of these schemes give a meaning to, besides any bytes at all.
WORDS = st.lists(
    st.sampled_from(
        [b"t=1614265330", b"v1=", b"h=", b"00ff", b",", b" ", b";", b"|", b"&", b"=", b".", b":",
         b'sig1=("@method" "content-digest")', b'sig1=:AAAA:', b";created=1614265330", b'"@path"',
         b";created=999999999999999", b';keyid="key-1"', b';alg="none"', b"()", b"(", b'"', b";sf",
         b'"@query-param";name="x"', b'"@status"', b'"a";req', b'"content-digest";key="sha-256"',
         b"sha-256=:AA==:", b"eyJhbGciOiJFUzI1NiIsImtpZCI6ImtleS0xIn0", b"e30", b"W10", b"bnVsbA",
         b"eyJhbGciOiJub25lIn0", b"eyJhbGciOlsxXSwia2lkIjp7fX0", b"public", b"AQ==", b"\xff", b"%",
         b"key=key-1,algorithm=HMAC_SHA256", b"SHA256withRSA", b"2021-02-25T15:02:10Z", b"\x00",
         b"https://api.paypal.com/v1/notifications/certs/CERT-1", b"https://[", b"9" * 40]
    ),
    max_size=12,
).map(b"".join)  # fmt: skip
VALUES = st.one_of(st.binary(max_size=60), WORDS)
BODIES = st.one_of(
    VALUES, st.builds(lambda a, b: b"bt_signature=" + a + b"&bt_payload=" + b, VALUES, VALUES)
)
URLS = st.one_of(
    st.just(URL),
    st.just(""),
    st.text(max_size=30),
    st.text(max_size=20).map("https://h:9/".__add__),
)


def sample(name: str) -> Sample:
    return samples()[name]


@cache
def genuine_request(name: str) -> Incoming:
    return sample(name).request()


def test_every_registered_scheme_has_a_sample() -> None:
    sampled = {name.split()[0] for name in samples()}
    assert sampled == set(names_of("SCHEME")), "add it to tests/providers/named/builders.py"


@EVERY
@FIXED
@given(seconds=st.integers(-300, 300))
def test_a_signed_request_verifies_within_the_tolerance_and_gives_its_document_back(
    name: str, seconds: int
) -> None:
    request = genuine_request(name)
    assert sample(name).verifier.verify(request, now=NOW + seconds * SECOND) is None
    if name != "braintree":  # whose document is the XML made JSON
        assert sample(name).verifier.payload(request) == sample(name).body


@EVERY
@FIXED
@given(bit=st.integers(0, 10_000))
@example(bit=0)
def test_one_changed_bit_of_the_covered_content_is_refused(name: str, bit: int) -> None:
    changed = sample(name).change(genuine_request(name), bit)
    refusal = refused(sample(name).verifier.verify(changed, now=NOW))
    assert refusal.reason in ("signature_mismatch", "signature_missing")


@EVERY
def test_a_request_without_one_of_its_headers_is_refused(name: str) -> None:
    request = genuine_request(name)
    for header, _ in request.headers:
        if header not in (b"content-type", b"i-twilio-idempotency-token"):
            less = having(request, **{header.decode().replace("-", "_"): None})
            assert sample(name).verifier.verify(less, now=NOW) is not None


@EVERY
@FUZZ
@given(data=st.data(), body=BODIES, url=URLS, method=st.sampled_from(["POST", "GET", "post", ""]))
def test_arbitrary_requests_raise_nothing_but_unreadable(
    name: str, data: st.DataObject, body: bytes, url: str, method: str
) -> None:
    genuine = genuine_request(name)
    names = [header for header, _ in genuine.headers]
    headers = [(header, data.draw(VALUES)) for header in names if data.draw(st.integers(0, 5))]
    kept = data.draw(st.booleans())
    request = Incoming(genuine.headers if kept else headers, body, method, url)
    verdict = sample(name).verifier.verify(request, now=NOW)
    assert verdict is None or isinstance(verdict, Refusal)
    with suppress(Unreadable):
        assert isinstance(sample(name).verifier.payload(request), bytes)


@EVERY
@FUZZ
@given(data=st.data())
def test_one_damaged_header_of_a_genuine_request_raises_nothing(
    name: str, data: st.DataObject
) -> None:
    genuine = genuine_request(name)
    at = data.draw(st.integers(0, len(genuine.headers) - 1))
    headers = list(genuine.headers)
    headers[at] = (headers[at][0], data.draw(VALUES))
    verdict = sample(name).verifier.verify(genuine._replace(headers=headers), now=NOW)
    assert verdict is None or isinstance(verdict, Refusal)


@EVERY
def test_no_refusal_quotes_the_request(name: str) -> None:
    mark = b"planted-mark"
    genuine = genuine_request(name)
    for at, (header, _) in enumerate(genuine.headers):
        headers = list(genuine.headers)
        headers[at] = (header, mark)
        url = f"https://shop.example/{quote(mark)}"
        request = Incoming(headers, mark, "POST", url)
        assert mark.decode() not in refused(sample(name).verifier.verify(request, now=NOW)).sentence
