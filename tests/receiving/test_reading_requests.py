"""A request as it is stored and read again: its lines, its digest, its events, and whose it is."""

import hashlib
from types import SimpleNamespace
from typing import Any

import pytest

from app.core.reading import Belonging, Reading, Unreadable
from app.providers.request import Incoming, left_out
from app.receiving.append_store import Arrival, Envelope
from app.receiving.framing import Received
from app.receiving.header_codec import (
    is_left_out,
    phones_in,
    read_request,
    restored,
    write_headers,
)
from app.receiving.verify import (
    RefusedDelivery,
    digest_of,
    kept_head,
    read_delivery,
    readable_url,
    refusal_of,
)
from tests.database.builders import said
from tests.reconcile.build import T

TOKEN = b"s3cret/ token"


def source(**changes: Any) -> Any:
    """Make a source that reads nothing; members are changed by their names."""

    def unreadable(*_: object, **__: object) -> Any:
        raise Unreadable("the body is not JSON")

    made = {
        "private_query": False,
        "private_headers": frozenset[bytes](),
        "tokens": [TOKEN],
        "asks": True,
        "vouches": True,
        "verify": lambda incoming, now: None,
        "greet": lambda incoming: None,
        "belonging": lambda incoming: None,
        "read": unreadable,
        "payload": lambda incoming: incoming.body,
        "orders_named": lambda incoming, digest: set(),
        **changes,
    }
    return SimpleNamespace(**made)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


# --- lines ----------------------------------------------------------------------------------------

HEADERS = [(b"x-sign", b"a: b"), (b"x-odd", b"caf\xe9"), (b"x-empty", b"")]


@pytest.mark.parametrize(
    ("method", "url", "lines"),
    [
        ("POST", "", []),
        ("POST", "/webhooks/shop", []),
        ("GET", "/webhooks/shop?a=1", [":method: GET", ":url: /webhooks/shop?a=1"]),
        ("POST", "/webhooks/shop?a=é", [":url: /webhooks/shop?a=é"]),
    ],
)
@pytest.mark.parametrize("headers", [HEADERS, []], ids=["headers", "none"])
def test_a_request_is_read_again_as_it_was_written(
    method: str, url: str, lines: list[str], headers: list[tuple[bytes, bytes]]
) -> None:
    """An address without a query says nothing."""
    text = write_headers(headers, method=method, url=url, private=frozenset())
    sent = ["x-sign: a: b", "x-odd: café", "x-empty: "] if headers else []
    assert text == "\n".join([*lines, *sent])
    url = url if "?" in url else ""
    assert read_request(text, b"{7}") == Incoming(headers, b"{7}", method, url)


def test_credentials_are_left_out_and_tokens_are_put_back() -> None:
    headers = [
        (b"authorization", b"Bearer x"), (b"cookie", b"a"), (b"proxy-authorization", b"b"),
        (b"x-token", TOKEN), (b"x", b"y"),
    ]  # fmt: skip
    private = frozenset({b"x-token", b"cookie"})
    text = write_headers(headers, private=private)
    kept = read_request(text).headers
    assert kept == [
        (b"authorization", b"(left out)"), (b"cookie", left_out(b"a")),
        (b"proxy-authorization", b"(left out)"), (b"x-token", left_out(TOKEN)), (b"x", b"y"),
    ]  # fmt: skip
    assert [is_left_out(value) for _, value in kept] == [True, True, True, True, False]
    assert not is_left_out(b"(left out) and more")
    assert restored(kept, [b"other", TOKEN]) == [*kept[:3], (b"x-token", TOKEN), (b"x", b"y")]


def test_phone_numbers_of_a_delivery_are_those_of_its_whole_request() -> None:
    asked: list[Incoming] = []

    def phones(incoming: Incoming) -> list[str]:
        asked.append(incoming)
        if incoming.body == b"odd":
            raise Unreadable("the body is not JSON")
        return ["254711223344"]

    sources: Any = {"shop": SimpleNamespace(phones=phones)}
    delivery: Any = SimpleNamespace(source="shop", headers="x: y", body=b"{1}", whole=None)
    for changes, numbers in (
        ({}, ["254711223344"]),
        ({"whole": b"[{1}]"}, ["254711223344"]),
        ({"body": b"odd"}, []),
        ({"body": None}, []),
        ({"source": "gone"}, []),
    ):
        changed: Any = SimpleNamespace(**{**vars(delivery), **changes})
        assert phones_in(changed, sources) == numbers
    assert [each.body for each in asked] == [b"{1}", b"[{1}]", b"odd"]
    assert asked[0] == read_request("x: y", b"{1}")


@pytest.mark.parametrize(
    ("body", "url", "content"),
    [
        (b"{}", "/w?a=1", b"{}"),
        (b"", "/w?a=1?b", b"a=1?b"),
        (b"", "/w?a=\u20ac\xe9", b"a=?\xe9"),
        (b"", "/w", b""),
    ],
)
def test_a_request_without_a_body_has_the_digest_of_its_query(
    body: bytes, url: str, content: bytes
) -> None:
    assert digest_of(body, url) == sha256(content)


@pytest.mark.parametrize(
    ("private", "url", "kept"),
    [
        (False, "/w?t=s3cret%2F+token", "/w?t=s3cret%2F+token"),
        (True, "/w?t=s3cret%2F+token&a=1&b&t=s3cret", "/w?t=&a=1&b=&t=s3cret"),
    ],
)
def test_the_query_of_an_address_is_kept_without_its_tokens(
    private: bool, url: str, kept: str
) -> None:
    assert readable_url(source(private_query=private), url) == kept


@pytest.mark.parametrize(
    ("of", "private", "head"),
    [
        (None, {b"x-b"}, [b"x-a: 1", b"x-b: " + left_out(b"2")]),
        (source(private_headers=frozenset({b"x-a"})), set[bytes](),
         [b":url: /w?a=1", b"x-a: " + left_out(b"1"), b"x-b: 2"]),
        (source(private_headers=frozenset({b"x-a"}), private_query=True), {b"x-b"},
         [b"x-a: " + left_out(b"1"), b"x-b: " + left_out(b"2")]),
    ],
    ids=["of no source", "of a source", "of a source with a secret query"],
)  # fmt: skip
def test_the_head_of_a_request_is_kept_without_tokens_of_any_source(
    of: Any, private: set[bytes], head: list[bytes]
) -> None:
    incoming = Incoming([(b"x-a", b"1"), (b"x-b", b"2")], b"{}", "POST", "/w?a=1")
    assert kept_head(incoming, of, frozenset(private)) == b"\n".join(head).decode()


# --- whose it is ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("belonging", "environment", "verdict"),
    [
        (None, "live", None),
        (Belonging(), "live", None),
        (Belonging(environment="live"), "live", None),
        (Belonging(environment="sandbox"), "live", "wrong_environment"),
        (Belonging(environment="live"), "sandbox", "wrong_environment"),
        (Belonging(unstated=True), "live", "wrong_environment"),
        (Belonging(unstated=True), "sandbox", None),
        (Belonging(environment="sandbox", foreign=True), "live", "wrong_account"),
    ],
)
def test_a_request_of_another_account_or_environment_is_refused(
    belonging: Belonging | None, environment: str, verdict: str | None
) -> None:
    """After its signature, and not if the provider only greets."""
    incoming = Incoming([], b"{}")
    found = refusal_of(
        source(belonging=lambda _: belonging), incoming, now=T, environment=environment
    )
    assert (None if found is None else getattr(found, "verdict", None)) == verdict
    greeting: Any = object()
    greets = source(greet=lambda _: greeting, belonging=lambda _: Belonging(foreign=True))
    assert refusal_of(greets, incoming, now=T, environment=environment) is greeting
    wrong = SimpleNamespace(reason="signature_mismatch", sentence="not genuine")
    forged = source(verify=lambda _, now: wrong if now == T else None, greet=lambda _: greeting)
    assert refusal_of(forged, incoming, now=T, environment=environment) == RefusedDelivery(
        "signature_mismatch", "not genuine"
    )


# --- events ---------------------------------------------------------------------------------------

RECEIVED = Received(
    delivery_id="dlv_1", received_at=T, source="shop", headers=":url: /w?b=1\nx: y",
    body=b'{"order": "ORD-1"}', url="/w?a=ORD-2", peer="public", lane=7,
)  # fmt: skip
READ = Arrival(
    delivery_id="dlv_1", received_at=T, source="shop", digest=sha256(RECEIVED.body),
    headers=RECEIVED.headers, body=RECEIVED.body, event=None, peer="public", lane=7,
)  # fmt: skip
EVENT, OTHER = said("e1", order="A"), said("e2", order="B")


def reads(reading: Reading, **changes: Any) -> Any:
    return source(read=lambda incoming, digest: reading, **changes)


@pytest.mark.parametrize(
    ("of", "arrival"),
    [
        (reads(Reading((EVENT,), None, customers=((b"c",),))),
         {"event": EVENT, "customer": (b"c",)}),
        (reads(Reading((EVENT,), None), asks=False), {"event": EVENT, "asked_about": False}),
        (reads(Reading((EVENT,), "sandbox")), {
            "problem": "the event is for sandbox, but this instance serves live"}),
        (source(), {"problem": "the body is not JSON", "values": {"ORD-1", "ORD-2"}}),
        (source(orders_named=lambda incoming, digest: {"A"} if digest is None else set()),
         {"problem": "the body is not JSON", "values": {"ORD-1", "ORD-2", "A"}}),
        (source(vouches=False), {"problem": "the body is not JSON"}),
        (None, {"problem": "no source with this name is configured any more",
                "values": {"ORD-1", "ORD-2"}, "asked_about": False}),
    ],
    ids=["read", "not asked about", "of the other environment", "unreadable", "named", "anyone's",
         "of no source"],
)  # fmt: skip
def test_a_request_with_one_event_is_one_arrival(of: Any, arrival: dict[str, Any]) -> None:
    """If it cannot be read, it has the reason, and the values by which it may be found."""
    values = frozenset(arrival.pop("values", ()))
    assert read_delivery(of, RECEIVED, environment="live") == [
        READ._replace(values=values, **arrival)
    ]


def test_the_digest_of_a_query_with_a_secret_is_the_digest_of_nothing() -> None:
    asked: list[Any] = []

    def read(incoming: Incoming, digest: str) -> Reading:
        asked.append((incoming, digest))
        return Reading((EVENT,), None)

    empty = RECEIVED._replace(body=b"")
    for private, content in ((False, b"b=1"), (True, b"")):
        (found,) = read_delivery(
            source(read=read, private_query=private), empty, environment="live"
        )
        assert found.digest == sha256(content)
        assert asked.pop() == (Incoming([(b"x", b"y")], b"", "POST", "/w?a=ORD-2"), sha256(content))


def test_each_event_of_a_request_is_an_arrival_of_its_own() -> None:
    """The first has the id of the request. One that cannot be read has values of its own."""
    reading = Reading(
        (EVENT, OTHER),
        None,
        raws=(b'{"e1"}', b'{"e2"}'),
        unread=((b'{"number": "ORD-3"}', "it has no kind"),),
        customers=((), (b"c",)),
    )
    named = sha256(b'{"number": "ORD-3"}')
    found = read_delivery(
        reads(reading, orders_named=lambda incoming, digest: {"C"} if digest == named else set()),
        RECEIVED,
        environment="live",
    )
    whole = READ._replace(whole=Envelope(READ.digest, READ.body))
    assert found == [
        whole._replace(digest=sha256(b'{"e1"}'), body=b'{"e1"}', event=EVENT),
        whole._replace(
            delivery_id="dlv_1-1",
            digest=sha256(b'{"e2"}'),
            body=b'{"e2"}',
            event=OTHER,
            customer=(b"c",),
        ),
        whole._replace(
            delivery_id="dlv_1-2",
            digest=named,
            body=b'{"number": "ORD-3"}',
            problem="it has no kind",
            values=frozenset({"ORD-3", "C"}),
        ),
    ]
    foreign = read_delivery(reads(reading._replace(foreign=True)), RECEIVED, environment="live")
    (refused,) = foreign
    assert (refused.event, refused.whole, refused.body) == (None, None, RECEIVED.body)
