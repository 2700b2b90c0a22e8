"""The door of deliveries by itself: what is refused unread, within which allowance, and how it is
answered and counted."""

import asyncio
import json
from collections.abc import Iterable
from io import StringIO
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.config.settings import Settings
from app.core.metrics import Metrics
from app.providers.request import Incoming
from app.receiving import endpoint
from app.receiving.endpoint import FREE_BYTES, Webhooks
from app.receiving.receive import ReceiverAnswer

Header = tuple[bytes, bytes]
Limits = Settings.model_construct
TAKEN = ReceiverAnswer(200, "accepted", "dlv_1")
JSON = (b"content-type", b"application/json")
PROBLEM = (b"content-type", b"application/problem+json")
CLOSE = (b"connection", b"close")


class Counted:
    """The figures, as they are asked to count."""

    def __init__(self) -> None:
        self.deliveries: list[tuple[str, str | None]] = []
        self.not_stored: list[str] = []

    def count(self, source: str, verdict: str | None, seconds: float) -> None:
        """Count one delivery."""
        assert 0 <= seconds < 3600
        self.deliveries.append((source, verdict))

    def count_not_stored(self, reason: str) -> None:
        """Count one delivery that was answered 503."""
        self.not_stored.append(reason)


class Door:
    """An endpoint, and all that it handed on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, answer: ReceiverAnswer = TAKEN) -> None:
        self.given: list[Incoming] = []
        self.asked: list[str] = []
        self.noted: list[str] = []
        self.decided = "kept"
        self.counted = Counted()
        methods = {"shop": SimpleNamespace(methods=("POST", "GET")), "till": None}
        methods["till"] = SimpleNamespace(methods=("POST",))
        self.receiver = SimpleNamespace(
            sources=methods, source_of=str, rejection_rate=self, unstored=self
        )
        limits = Limits(max_body_bytes=100, max_header_bytes=20, max_bodies_bytes=1000)
        counted = cast(Metrics, self.counted)
        self.webhooks = Webhooks(cast(Any, self.receiver), limits=limits, metrics=counted)

        async def receive_delivery(receiver: Any, incoming: Incoming) -> ReceiverAnswer:
            assert receiver is self.receiver
            self.given.append(incoming)
            return answer

        monkeypatch.setattr(endpoint, "receive_delivery", receive_delivery)

    def note(self, reason: str) -> None:
        """Note why a delivery was not stored, for the log."""
        self.noted.append(reason)

    def decide(self, address: str) -> str:
        """Decide about one more refused request."""
        self.asked.append(address)
        return self.decided

    async def answers(
        self,
        headers: Iterable[Header] = (),
        *,
        method: str = "POST",
        source: str = "shop",
        messages: Iterable[dict[str, Any]] = ({"type": "http.request", "body": b"{}"},),
        **more: Any,
    ) -> tuple[int, list[Header], bytes]:
        """Return status, headers and body of the answer; status 0 without an answer."""
        left, sent = iter(messages), list[Any]()

        async def receive() -> Any:
            return next(left)

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "method": method,
            "headers": list(headers),
            "path_params": {"source": source},
            "path": f"/webhooks/{source}",
            "client": ("192.0.2.7", 4711),
            **more,
        }
        await self.webhooks(cast(Any, scope), receive, send)
        if not sent:
            return 0, [], b""
        start, body = sent
        assert (start["type"], body["type"]) == ("http.response.start", "http.response.body")
        return start["status"], list(start["headers"]), body["body"]


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Door:
    """Build an endpoint with two sources, one of which sends GET, too."""
    return Door(monkeypatch)


def length(body: bytes) -> Header:
    """Return the header that gives the body's length."""
    return b"content-length", b"%d" % len(body)


async def test_what_is_handed_on(door: Door) -> None:
    """Source, headers, body, address and URL as they came; the answer says verdict and id."""
    headers = [(b"a", b"1")]
    found = await door.answers(headers, query_string=b"x=\xe9&y", method="GET")
    body = b'{"verdict": "accepted", "delivery": "dlv_1"}'
    assert found == (200, [JSON, length(body)], body)
    url = "/webhooks/shop?x=\xe9&y"
    assert door.given == [Incoming(headers, b"{}", "GET", url, "shop", "192.0.2.7")]
    await door.answers(client=None, query_string=b"")
    assert door.given[1] == Incoming([], b"{}", "POST", "/webhooks/shop", "shop")
    assert door.counted.deliveries == [("shop", "accepted")] * 2
    assert (door.counted.not_stored, door.asked) == ([], [])


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([(b"a", b"x" * 19)], 200),
        ([(b"a", b"x" * 20)], 431),
        ([(b"a" * 10, b"x" * 5), (b"b", b"y" * 4)], 200),
        ([(b"a" * 10, b"x" * 5), (b"b", b"y" * 5)], 431),
        ([(b"content-encoding", b"gzip")], 415),
        ([(b"a", b"x" * 99), (b"content-encoding", b"br")], 415),
        ([(b"content-encoding", b"")], 200),
        ([(b"content-encoding", b" ID ")], 415),
    ],
)
async def test_headers_up_to_their_bound(door: Door, headers: list[Header], status: int) -> None:
    """Names and values count, of all together. A body that is packed is not taken, whatever else
    is."""
    assert (await door.answers(headers))[0] == status
    assert len(door.given) == (status == 200)


async def test_a_body_that_says_that_it_is_not_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    """However it is written."""
    door = Door(monkeypatch)
    door.webhooks._limits = Limits(max_body_bytes=9, max_header_bytes=99, max_bodies_bytes=9)
    assert (await door.answers([(b"content-encoding", b" Identity ")]))[0] == 200


@pytest.mark.parametrize(
    ("said", "body"),
    [
        (b"100", b"{}"),
        (b"101", None),
        (b"1" * 19, None),
        (b"0" * 19 + b"9" * 99, b"{}"),
        (b"+101", b"{}"),
        (b"", b"{}"),
    ],
)
async def test_a_length_that_is_said(door: Door, said: bytes, body: bytes | None) -> None:
    """Beyond the bound the body is not read; it is judged as one that was too large. Of a length
    that no number can be, only the beginning is read."""
    door.webhooks._limits = Limits(max_body_bytes=100, max_header_bytes=999, max_bodies_bytes=9)
    read = [{"type": "http.request", "body": b"{}"}] if body else []
    await door.answers([(b"x", b"9"), (b"content-length", said)], messages=read)
    assert [None if each.oversized else each.body for each in door.given] == [body]
    assert not any(each.oversized and each.body for each in door.given)


@pytest.mark.parametrize(("size", "body"), [(100, b"x" * 100), (101, None)])
async def test_a_body_that_comes_at_once(door: Door, size: int, body: bytes | None) -> None:
    message = {"type": "http.request", "body": b"x" * size, "more_body": False}
    await door.answers(messages=[message])
    assert [None if each.oversized else each.body for each in door.given] == [body]
    assert not any(each.oversized and each.body for each in door.given)


PACKED = [(b"content-encoding", b"gzip")]


@pytest.mark.parametrize(
    ("headers", "decided", "status", "code", "more", "logged"),
    [
        (PACKED, "kept", 415, "encoding_unsupported", [CLOSE], True),
        (PACKED, "counted", 415, "encoding_unsupported", [CLOSE], False),
        (PACKED, "too_many", 429, "too_many_rejections", [(b"retry-after", b"60")], False),
        ([(b"a", b"x" * 20)], "kept", 431, "headers_too_large", [CLOSE], True),
        ([(b"a", b"x" * 20)], "counted", 431, "headers_too_large", [CLOSE], False),
    ],
)
async def test_what_is_refused_unread(
    door: Door,
    log: StringIO,
    headers: list[Header],
    decided: str,
    status: int,
    code: str,
    more: list[Header],
    logged: bool,
) -> None:
    """Within the allowance of its address; beyond it the sender has to wait. The connection ends
    where a body is left unread, and the log names those that are kept."""
    door.decided = decided
    found, fields, body = await door.answers(headers)
    assert (found, fields) == (status, [PROBLEM, length(body), *more])
    assert json.loads(body)["code"] == code
    assert (door.asked, door.given, door.counted.not_stored) == (["192.0.2.7"], [], [])
    assert door.counted.deliveries == [("shop", code)]
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    assert [(line["status"], line["reason"]) for line in lines] == [(status, code)] * logged


@pytest.mark.parametrize(
    ("method", "source", "allowed"),
    [
        ("PUT", "shop", b"GET, POST"),
        ("GET", "till", b"POST"),
        ("GET", "new", b"POST"),
    ],
)
async def test_a_method_that_a_source_does_not_send(
    door: Door, method: str, source: str, allowed: bytes
) -> None:
    """It is answered with those that it does, and nothing is read or counted."""
    status, fields, body = await door.answers(method=method, source=source, messages=[])
    assert (status, fields) == (405, [PROBLEM, length(body), (b"allow", allowed)])
    assert json.loads(body)["code"] == "method_not_allowed"
    assert (door.given, door.counted.deliveries) == ([], [])


async def test_a_post_to_a_source_of_no_such_name_is_judged(door: Door) -> None:
    await door.answers(source="new")
    assert [each.source for each in door.given] == ["new"]


async def test_who_hangs_up_is_answered_nothing(door: Door) -> None:
    """And nothing is judged."""
    found = await door.answers(messages=[{"type": "http.disconnect"}])
    assert (found, door.given, door.counted.deliveries) == ((0, [], b""), [], [])


async def test_where_there_is_no_room_for_a_long_body(door: Door) -> None:
    """Nobody's allowance is used: it is our own doing."""
    door.webhooks._limits = Limits(max_body_bytes=10**6, max_header_bytes=9, max_bodies_bytes=9)
    part = {"type": "http.request", "body": b"x" * 66_000, "more_body": True}
    status, fields, body = await door.answers(messages=[part])
    assert (status, fields) == (503, [PROBLEM, length(body), (b"retry-after", b"5")])
    assert (door.asked, door.counted.deliveries) == ([], [("shop", "no_room")])
    assert door.counted.not_stored == door.noted == ["no_room"]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_long_body_takes_its_room_until_it_is_stored(
    door: Door, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """While the disk is slow many wait with theirs in memory; short ones always have a place."""
    room = Limits(max_body_bytes=10**6, max_header_bytes=9, max_bodies_bytes=9)
    door.webhooks._limits, stored = room, asyncio.Event()
    whole: dict[str, Any] = {"type": "http.request", "body": b"x" * (FREE_BYTES + 9)}

    async def receive_delivery(receiver: Any, incoming: Incoming) -> ReceiverAnswer:
        if incoming.body == whole["body"]:
            await stored.wait()
            assert not fails
        return TAKEN

    monkeypatch.setattr(endpoint, "receive_delivery", receive_delivery)
    first: dict[str, Any] = {
        "type": "http.request",
        "body": b"x" * FREE_BYTES,
        "more_body": True,
    }
    parts = [first, {"type": "http.request", "body": b"x"}]
    waiting = asyncio.create_task(door.answers(messages=[whole]))
    await asyncio.sleep(0)
    assert (await door.answers(messages=parts))[0] == 503
    assert (await door.answers())[0] == 200
    stored.set()
    (ended,) = await asyncio.gather(waiting, return_exceptions=True)
    assert isinstance(ended, AssertionError) == fails
    fails = False
    assert (await door.answers(messages=parts))[0] == 200


@pytest.mark.parametrize(
    ("answer", "code", "more"),
    [
        (ReceiverAnswer(401, "signature_mismatch", "d"), "signature_invalid", []),
        (ReceiverAnswer(403, "wrong_environment", "d"), "wrong_environment", []),
        (ReceiverAnswer(404, "source_unknown", "d"), "source_unknown", []),
        (ReceiverAnswer(413, "body_too_large", "d"), "body_too_large", [CLOSE]),
        (ReceiverAnswer(429, "too_many", "d"), "too_many_rejections", [(b"retry-after", b"60")]),
        (ReceiverAnswer(503, None, "d", reason="disk"), "not_stored", [(b"retry-after", b"5")]),
    ],
)
async def test_what_is_refused_is_answered_in_our_form(
    monkeypatch: pytest.MonkeyPatch, answer: ReceiverAnswer, code: str, more: list[Header]
) -> None:
    """A problem, and when to come again; why nothing was stored is counted."""
    door = Door(monkeypatch, answer=answer)
    status, fields, body = await door.answers()
    assert (status, fields) == (answer.status, [PROBLEM, length(body), *more])
    document = json.loads(body)
    assert (document["code"], document["status"]) == (code, answer.status)
    assert door.counted.deliveries == [("shop", answer.verdict)]
    assert door.counted.not_stored == ([] if answer.reason is None else [answer.reason])


async def test_a_provider_is_answered_in_its_own_form(monkeypatch: pytest.MonkeyPatch) -> None:
    reply: Any = SimpleNamespace(status=202, headers=[(b"x", b"y")], body=b"[accepted]")
    door = Door(monkeypatch, answer=ReceiverAnswer(202, "accepted", "d", reply))
    assert await door.answers() == (202, [(b"x", b"y"), length(reply.body)], reply.body)
    empty = Door(monkeypatch, answer=ReceiverAnswer(299, None, "d"))
    body = b'{"verdict": "", "delivery": "d"}'
    assert await empty.answers() == (299, [JSON, length(body)], body)
