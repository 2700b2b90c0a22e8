"""Every profile, shipped or made up, accepts what it signs, and refuses it with any bit changed."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.providers.kit import Signed
from app.providers.profile import load_profile, shipped_profiles
from app.providers.request import Incoming
from app.providers.source import Refusal, Source
from tests.providers.builders import NOW, raw
from tests.providers.kinds import kinds
from tests.providers.samples import body_of, is_declared, source_of, url_of
from tests.rows import for_each
from tests.searching import examples

PROFILES = {**{name: load_profile(name) for name in shipped_profiles()}, **kinds()}
DECLARED = sorted(name for name, profile in PROFILES.items() if is_declared(profile))
SOURCES: dict[str, tuple[Source, Signed]] = {}


def signed(name: str) -> tuple[Source, Signed]:
    """Return a source of the profile with one genuine request, cached because RSA keys take
    time."""
    if name not in SOURCES:
        profile = PROFILES[name]
        source = source_of(profile)
        SOURCES[name] = (
            source,
            source.signed(body_of(profile), event_id="evt_1", now=NOW, url=url_of(profile)),
        )
    return SOURCES[name]


def verdict(source: Source, request: Signed) -> Refusal | None:
    incoming = Incoming(raw(request.headers), request.body, url=request.url)
    return source.verify(incoming, now=NOW)


@for_each("name", DECLARED)
def test_a_request_signed_by_a_profile_verifies(name: str) -> None:
    assert verdict(*signed(name)) is None


@for_each("name", DECLARED)
def test_unsigned_and_stripped_requests_are_refused(name: str) -> None:
    source, request = signed(name)
    assert verdict(source, Signed([], body_of(PROFILES[name]), url_of(PROFILES[name]))) is not None
    emptied = [(key, "") for key, _ in request.headers]
    assert verdict(source, request._replace(headers=emptied, body=b"")) is not None


def flipped(text: bytes, bit: int) -> bytes:
    place, mask = bit // 8 % len(text), 1 << bit % 8
    return text[:place] + bytes([text[place] ^ mask]) + text[place + 1 :]


@settings(derandomize=True, database=None, max_examples=examples(15))
@given(bit=st.integers(0, 10**6))
@pytest.mark.parametrize("name", [n for n in DECLARED if PROFILES[n].signature.signed])
def test_a_changed_bit_of_the_signed_content_is_refused(name: str, bit: int) -> None:
    source, request = signed(name)
    template = PROFILES[name].signature.signed or ""
    if "{body" in template and request.body:
        assert verdict(source, request._replace(body=flipped(request.body, bit))) is not None
    stamp = PROFILES[name].timestamp
    places = template + (f"{{{stamp.where}}}" if stamp else "")
    for number, (key, value) in enumerate(request.headers):
        if re.search(rf"\{{header:(?:[^}}]*,)?{re.escape(key)}[,?}}|]", places):
            headers = [*request.headers]
            headers[number] = (key, flipped(value.encode(), bit).decode("latin-1"))
            assert verdict(source, request._replace(headers=headers)) is not None


@for_each("name", DECLARED)
def test_a_changed_signed_member_is_refused(name: str) -> None:
    source, request = signed(name)
    for value in re.findall(rb'(?<=["=])v[0-9]+', request.body):
        changed = re.sub(rb'(?<=["=])' + value + rb"\b", b"other", request.body)
        assert verdict(source, request._replace(body=changed)) is not None


HEADER_VALUES = st.binary(max_size=40) | st.sampled_from(
    [b"v1,", b"t=1,v1=", b"Bearer ", b"sha256=", b"1614265330", b"=", b",,", b"\xff" * 9]
)
BODIES = st.binary(max_size=60) | st.sampled_from(
    [b"{}", b"[]", b'{"a":', b"a=%&b", b'{"notificationItems":[1]}', b"[[[[", b'{"a":1,"a":2}']
)


@settings(derandomize=True, database=None, max_examples=examples(25))
@given(data=st.data(), body=BODIES, url=st.text(max_size=30))
@pytest.mark.parametrize("name", DECLARED)
def test_arbitrary_requests_are_refused_without_an_exception(
    name: str, data: st.DataObject, body: bytes, url: str
) -> None:
    source, request = signed(name)
    names = [key.encode() for key, _ in request.headers] or [b"x"]
    headers = data.draw(st.lists(st.tuples(st.sampled_from(names), HEADER_VALUES), max_size=5))
    for method in ("POST", "GET"):
        refusal = source.verify(Incoming(headers, body, method=method, url=url), now=NOW)
        assert isinstance(refusal, Refusal)
