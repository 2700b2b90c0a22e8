"""One connection on a wire: which heads are refused, why, and exactly when it has to go."""

import asyncio
import json
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from app.receiving.guard import HUNG_UP, MAX_PIPELINED, UNREAD_BYTES
from tests.api import wire
from tests.api.test_answering import WHOLE, Stepping, answering, stepping
from tests.api.wire import GET, LIMITS, Client, connect, length, part, start, turns

HEAD = b"GET / HTTP/1.1\r\nhost: a\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
OK = (b"200 OK",)
BAD = (b"400 Bad Request",)


def statuses(client: Client) -> tuple[bytes, ...]:
    """Return the statuses of the answers that were sent."""
    found = client.wire.sent[0].split(b"HTTP/1.1 ")[1:]
    return tuple(each.partition(b"\r\n")[0] for each in found)


def refused(client: Client) -> dict[str, int]:
    """Return why connections were refused or closed."""
    return dict(client.connection.connection_limits.refused)


@pytest.mark.parametrize(
    ("request_", "answers", "reasons"),
    [
        (GET, OK, {}),
        (b"GET / HTTP/1.0\r\n\r\n", OK, {}),
        (b"GET / HTTP/1.0\r\nhost: a\r\n\r\n", OK, {}),
        (b"GET / HTTP/1.0\r\nhost: a\r\nhost: a\r\n\r\n", BAD, {"malformed": 1}),
        (b"GET / HTTP/1.1\r\n\r\n", BAD, {"malformed": 1}),
        (HEAD + b"host: a\r\n\r\n", BAD, {"malformed": 1}),
        (b"GET / HTTP/1.1\r\nhost: a b\r\n\r\n", BAD, {"malformed": 1}),
        (b"GET / HTTP/1.1\r\nhost: a:80\r\n\r\n", OK, {}),
        (b"GET / HTTP/1.1\r\nhost: a:123456\r\n\r\n", BAD, {"malformed": 1}),
        (b"GET / HTTP/1.1\r\nhost: [::1]:80\r\n\r\n", OK, {}),
        (b"GET / HTTP/2.0\r\nhost: a\r\n\r\n", BAD, {"malformed": 1}),
        (CHUNKED + b"0\r\n\r\n", OK, {}),
        (CHUNKED.replace(b"chunked", b"Chunked") + b"0\r\n\r\n", OK, {}),
        (CHUNKED.replace(b"chunked", b"gzip, chunked") + b"0\r\n\r\n", BAD, {"malformed": 1}),
        (b"no HTTP\r\n\r\n", BAD, {"malformed": 1}),
    ],
)
async def test_which_heads_are_certain(
    request_: bytes, answers: tuple[bytes, ...], reasons: dict[str, int]
) -> None:
    """What two programs could read in two ways is refused, counted, and its connection closed."""
    client = connect(answering(WHOLE, asks="first"))
    await client.ask(request_)
    assert (statuses(client), refused(client)) == (answers, reasons)
    assert client.wire.is_closing() is (bool(reasons) or b"HTTP/1.0" in request_)
    if reasons:
        body = json.loads(client.wire.sent[0].partition(b"\r\n\r\n")[2])
        assert (body["status"], body["code"]) == (400, "request_malformed")
        await client.ask(GET)
        assert (statuses(client), refused(client)) == (answers, reasons)


@pytest.mark.parametrize(
    ("more", "answers", "reasons"),
    [
        (b"", (), {}),
        (b"a", (b"431 Request Header Fields Too Large",), {"head_too_large": 1}),
        (b"\r\n\r\n", OK, {}),
    ],
)
@pytest.mark.parametrize("before", [0, 1])
async def test_a_head_at_its_bound(
    monkeypatch: pytest.MonkeyPatch,
    before: int,
    more: bytes,
    answers: tuple[bytes, ...],
    reasons: dict[str, int],
) -> None:
    """Accept as many bytes as the limit, in any parts, also after another request. Refuse one more,
    but accept the end."""
    head = HEAD + b"x: " + b"a" * 60
    monkeypatch.setattr(wire, "LIMITS", changed(max_head_bytes=len(head)))
    client = connect(answering(WHOLE))
    await client.ask(GET * before)
    for at in range(0, len(head), 10):
        await client.ask(head[at : at + 10])
    if more:
        await client.ask(more)
    assert (statuses(client), refused(client)) == (OK * before + answers, reasons)


def changed(**limits: Any) -> Any:
    """Return the limits of these tests, some of them changed."""
    return type(LIMITS)(
        **{
            "receive_deadline_s": 600,
            "send_deadline_s": 600,
            "connections": 9,
            "per_address": 9,
            "max_head_bytes": 9_999,
            **limits,
        }
    )


async def test_the_bytes_of_a_body_are_not_of_the_head(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many come; the next head begins from nothing."""
    monkeypatch.setattr(wire, "LIMITS", changed(max_head_bytes=100))
    client = connect(answering(WHOLE, asks="first"))
    for _ in range(4):
        await client.ask(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 90\r\n\r\n")
        await client.ask(b"x" * 90)
    assert (statuses(client), refused(client)) == (OK * 4, {})


async def test_as_many_as_may_wait_behind_one() -> None:
    """Two; a third is refused, and those before it are answered."""
    assert MAX_PIPELINED == 2
    for count, answers in ((3, OK * 3), (4, OK * 3)):
        application, client = await stepping(GET * count)
        await application.go_on(*[*WHOLE, None] * 3)
        assert statuses(client) == answers
        assert refused(client) == ({} if count == 3 else {"malformed": 1})
        assert client.wire.is_closing() is (count == 4)


async def test_fields_behind_a_body_are_refused() -> None:
    """Where nobody looks for them; the answer that has begun is broken off."""
    client = connect(answering(WHOLE, asks="first"))
    await client.ask(CHUNKED + b"0\r\nx: y\r\n\r\n")
    assert (statuses(client), refused(client)) == (BAD, {"malformed": 1})
    assert client.wire.is_closing()


async def test_a_doubt_within_a_body_whose_answer_has_begun() -> None:
    """Or behind requests that wait: the connection is broken off, and nothing more is said."""
    application = Stepping()
    client = connect(application)
    await client.ask(CHUNKED + b"2\r\nab\r\n")
    await application.go_on(start(), part(b"ok", more=True))
    before = client.wire.sent[0]
    await client.ask(b"no size\r\n")
    assert (client.wire.sent, refused(client)) == ((before, True), {"malformed": 1})


async def test_a_doubt_within_a_body_behind_a_request_that_is_answered() -> None:
    """What would be said of it would be taken for the first one's answer."""
    application, client = await stepping(GET + CHUNKED + b"2\r\nab\r\nno size\r\n")
    assert (client.wire.sent, refused(client)) == ((b"", True), {"malformed": 1})
    await application.go_on(*WHOLE, None)
    assert client.wire.sent[0] == b""


async def test_a_doubt_within_a_body_before_its_answer() -> None:
    """The sender is answered so."""
    application = Stepping()
    client = connect(application)
    await client.ask(CHUNKED + b"2\r\nab\r\nno size\r\n")
    assert (statuses(client), refused(client)) == (BAD, {"malformed": 1})


async def test_too_many_are_answered_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """And taken nothing of; who was let in counts until it has gone."""
    monkeypatch.setattr(wire, "LIMITS", changed(connections=0))
    client = connect(answering(WHOLE))
    head, _, body = client.wire.sent[0].partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert b"\r\nretry-after: 5" in head
    assert b"\r\ncontent-length: %d\r\n" % len(body) in head
    assert b"\r\nconnection: close" in head
    assert json.loads(body)["code"] == "too_many_connections"
    before = client.wire.sent
    client.connection.data_received(GET)
    assert client.wire.sent == before
    monkeypatch.undo()
    client = connect(answering(WHOLE))
    limits = client.connection.connection_limits
    assert list(limits.open) == [client.connection]
    client.wire.close()
    await turns()
    assert not limits.open
    assert not client.connection.pipeline
    assert client.connection.cycle is None


# --- what came after the sender's end -------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "answers", "stays", "sent"),
    [
        (b"", [], False, ()),
        (GET[:-2], [], False, ()),
        (GET, [], True, ()),
        (GET, [*WHOLE, None], False, OK),
        (GET * 2, [*WHOLE, None, *WHOLE, None], True, OK * 2),
        (b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nx", [], False, ()),
    ],
)
async def test_who_sends_no_more(
    request_: bytes, answers: list[Any], stays: bool, sent: tuple[bytes, ...]
) -> None:
    """What came whole is still answered, and then the connection ends; of a request that did not,
    nothing more can be made."""
    application = Stepping()
    client = connect(application)
    if request_:
        await client.ask(request_)
    early = answers if not stays else []
    await application.go_on(*early)
    assert client.connection.eof_received() is stays
    if stays:
        await application.go_on(*answers)
        assert client.wire.is_closing() is (answers != [])
    assert statuses(client) == sent


@pytest.mark.parametrize("behind", [0, 1])
@pytest.mark.parametrize("lost", [False, True])
async def test_an_application_that_waits_can_see_that_nobody_does(lost: bool, behind: int) -> None:
    """Neither where the sender sends no more, nor where it is gone; also where a further request
    waits behind."""
    seen: list[Scope] = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)
        await asyncio.Event().wait()

    client = connect(application)
    for _ in range(1 + behind):
        await client.ask()
    assert HUNG_UP not in seen[0]
    assert len(client.connection.pipeline) == behind
    if lost:
        client.wire.lose()
        assert not client.connection.pipeline  # it and what it holds would refer to each other
    else:
        assert client.connection.eof_received()
    assert HUNG_UP in seen[0]


# --- deadlines ------------------------------------------------------------------------------------


class Moved:
    """The loop's time, as it is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self.now)


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Moved:
    """Make a clock that stands still."""
    return Moved(monkeypatch)


SHORT = {"receive_deadline_s": 10, "send_deadline_s": 20}


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow ten seconds to send, twenty to read."""
    monkeypatch.setattr(wire, "LIMITS", changed(**SHORT))


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    "opening", [b"", b"GET / HT", CHUNKED, b"GET /a HTTP/1.1\r\nhost: a\r\nx: y"]
)
async def test_who_owes_a_request_has_its_time(clock: Moved, opening: bytes) -> None:
    """From the opening on, and no more for what comes in between."""
    client = connect(answering(WHOLE, asks="first"))
    clock.now += 4
    if opening:
        client.connection.data_received(opening)
    assert client.connection.overdue(1_010) is None
    assert client.connection.overdue(1_010.5) == "receive_deadline"


@pytest.mark.usefixtures("short")
async def test_the_time_of_a_second_request_begins_with_it(clock: Moved) -> None:
    """After the answer before it nothing is owed; not while an answer is made, either."""
    application = Stepping()
    client = connect(application)
    await client.ask()
    assert client.connection.overdue(1_500) is None
    clock.now = 1_500
    await application.go_on(*WHOLE, None)
    assert client.connection.overdue(1_504) is None
    clock.now = 1_504
    client.connection.data_received(GET[:9])
    assert client.connection.overdue(1_514) is None
    assert client.connection.overdue(1_514.5) == "receive_deadline"


@pytest.mark.usefixtures("short")
async def test_what_waits_behind_an_answer_has_its_time_after_it(clock: Moved) -> None:
    """It had to wait for us."""
    application = Stepping()
    client = connect(application)
    await client.ask(GET + GET[:9])
    assert client.connection.overdue(1_100) is None
    clock.now = 1_100
    await application.go_on(*WHOLE, None)
    assert client.connection.overdue(1_110) is None
    assert client.connection.overdue(1_110.5) == "receive_deadline"


@pytest.mark.usefixtures("short")
async def test_a_body_that_does_not_come_while_it_is_read(clock: Moved) -> None:
    """Its sender is late, though its answer is being made."""
    client = connect(Stepping())
    await client.ask(CHUNKED)
    assert client.connection.overdue(1_010) is None
    assert client.connection.overdue(1_010.5) == "receive_deadline"


async def test_one_that_rests_is_closed(clock: Moved) -> None:
    """After as long as it may, without a reason that would be counted; once."""
    client = connect(answering(WHOLE))
    await client.ask()
    rest = client.connection.timeout_keep_alive
    assert client.connection.overdue(1_000 + rest) is None
    assert not client.wire.is_closing()
    assert client.connection.overdue(1_000.5 + rest) is None
    assert client.wire.is_closing()


async def test_one_that_asks_again_has_not_rested(clock: Moved) -> None:
    client = connect(Stepping())
    await client.ask()
    await turns()
    client = connect(answering(WHOLE))
    await client.ask()
    client.connection.data_received(b"GET")
    assert client.connection.overdue(1_000.5 + client.connection.timeout_keep_alive) is None
    assert not client.wire.is_closing()


PUT = b"PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n"


async def test_one_whose_body_came_behind_its_answer_rests_from_then_on(clock: Moved) -> None:
    """Nothing is owed any more, on either side: it would stay open for ever."""
    client = connect(answering(WHOLE))
    await client.ask(PUT)
    rest = client.connection.timeout_keep_alive
    clock.now += 3
    await client.ask(b"xxxxx")
    assert client.connection.overdue(1_003 + rest) is None
    assert not client.wire.is_closing()
    assert client.connection.overdue(1_003.5 + rest) is None
    assert client.wire.is_closing()


@pytest.mark.usefixtures("short")
async def test_one_that_asks_with_the_end_of_such_a_body_does_not_rest(clock: Moved) -> None:
    """Its second request came with the last bytes of the first, and is under way."""
    application = Stepping()
    client = connect(application)
    await client.ask(PUT)
    await application.go_on(*WHOLE, None)
    await client.ask(b"xxxxx" + GET)
    assert client.connection.overdue(1_000.5 + client.connection.timeout_keep_alive) is None
    assert not client.wire.is_closing()
    await application.go_on(*WHOLE, None)
    assert statuses(client) == OK + OK


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    ("taken", "reason"),
    [
        (UNREAD_BYTES, None),
        (UNREAD_BYTES - 1, "send_deadline"),
        (0, "send_deadline"),
    ],
)
async def test_a_reader_must_take_what_waits(clock: Moved, taken: int, reason: str | None) -> None:
    """16 KiB in its time, or all."""
    client = connect(Stepping())
    await client.ask()
    client.wire.unread = 90_000
    look = client.connection.overdue
    assert [look(1_000), look(1_020)] == [None, None]
    client.wire.unread -= taken
    assert look(1_020.5) == reason
    client.wire.unread = 0
    assert look(1_021) is None
    client.wire.unread = 5
    assert [look(1_022), look(1_042), look(1_042.5)] == [None, None, "send_deadline"]
    client.connection.resume_writing()
    assert [look(1_043), look(1_063)] == [None, None]


async def test_an_aborted_one_takes_nothing_more() -> None:
    client = connect(answering(WHOLE))
    client.connection.abort()
    assert client.wire.is_closing()
    client.connection.data_received(GET)
    await turns()
    assert client.wire.writes == []


# --- the service stops ----------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [False, True], ids=["unasked", "rested"])
async def test_a_request_that_is_on_its_way_when_the_service_stops(
    monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    """It is answered, also that the connection ends; without one that ends by itself."""
    later: list[Any] = []
    monkeypatch.setattr(
        asyncio.get_running_loop(), "call_later", lambda *words: later.append(words)
    )
    for comes in (True, False):
        client = connect(answering(WHOLE))
        if asked:
            await client.ask()
        client.connection.shutdown()
        assert not client.wire.is_closing()
        ((seconds, end),) = later
        assert seconds == 1
        later.clear()
        if comes:
            await client.ask()
            assert b"connection: close" in client.wire.writes[-1]
            assert client.wire.is_closing()
        end()
        assert client.wire.is_closing()
        assert len(statuses(client)) == asked + comes


async def test_an_answer_under_way_when_the_service_stops() -> None:
    """It goes out, and is the last; one that still runs at the end of the last second, too."""
    application, client = await stepping()
    client.connection._end()
    assert not client.wire.is_closing()
    client.connection.shutdown()
    assert not client.wire.is_closing()
    await application.go_on(*WHOLE, None)
    assert (statuses(client), client.wire.is_closing()) == (OK, True)


async def test_a_body_behind_its_answer(clock: Moved) -> None:
    """Read and thrown away for two seconds; a second answer cannot come."""

    async def early(scope: Any, receive: Any, send: Any) -> None:
        await send(start(length(2), (b"connection", b"close"), status=413))
        await send(part(b"no"))

    client = connect(early)
    await client.ask(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\nx")
    assert (client.wire.ended, client.wire.is_closing()) == (True, False)
    client.connection.overdue(1_002)
    assert not client.wire.is_closing()
    client.connection.overdue(1_002.5)
    assert client.wire.is_closing()


async def test_an_upgrade_is_not_taken() -> None:
    """The request is answered as any other, and the connection ends: what is behind it is of no
    protocol that we speak."""
    client = connect(answering(WHOLE))
    await client.ask(HEAD + b"connection: upgrade\r\nupgrade: h2c\r\n\r\nmore" + GET)
    assert (statuses(client), client.wire.is_closing(), refused(client)) == (OK, True, {})
