"""The short way of a delivery and the one through ASGI are the same to all who look at them."""

from __future__ import annotations

import asyncio
import gc
import io
import re
import tracemalloc
import weakref
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from app.errors import StorePoisoned, StoreUnavailable
from app.logs import configure_logging
from app.operations.watching.watchdog import Watchdog
from app.web import delivering
from app.web.connection import GuardedConnection
from app.web.delivering import PORTION, Delivery, ShortWay
from app.web.webhooks import Written
from tests.app.web.driving import Header, event, of_order
from tests.app.web.short import Door, door, genuine, is_at_rest, post
from tests.app.web.test_webhooks import UNREADABLE
from tests.app.web.wire import Client, turns
from tests.waiting import soon

ONE, TWO, THREE = (genuine(of_order(f"O-{n}", f"evt_{n}")) for n in (1, 2, 3))
LIVE = b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n"
UNSIGNED = post(b"{}")
CLOSE = (b"connection", b"close")
GZIP = (b"content-encoding", b"gzip")
HEAD, _, BODY = ONE.partition(b"\r\n\r\n")

REQUESTS: dict[str, list[bytes]] = {
    "stored": [ONE],
    "twice": [ONE + ONE],
    "with another body": [genuine(of_order("O-1", "evt_1", "failed"))],
    "unreadable": [genuine(b'{"id": ')],
    "empty": [genuine(b"")],
    "of another environment": [genuine(event("evt_l", environment="live"))],
    "unsigned": [UNSIGNED],
    "signed for another body": [ONE[:-1] + b" "],
    "three, one unsigned": [ONE + UNSIGNED + TWO],
    "four, of which one is too many": [ONE + UNSIGNED + TWO + THREE + ONE],
    "behind ASGI's": [LIVE + TWO + LIVE],
    "before ASGI's": [TWO + LIVE + UNSIGNED],
    "before a doubtful one": [TWO + b"GET /livez HTTP/1.1\r\n\r\n"],
    "byte by byte": [bytes([byte]) for byte in THREE],
    "a doubtful body's length": [post(b"{}", length=b"+2")],
    "the last": [genuine(event("evt_4"), CLOSE) + LIVE],
    "of 1.0": [genuine(event("evt_5"), line="POST {} HTTP/1.0") + LIVE],
    "1.0 that would keep on": [post(b"", (b"connection", b"keep-alive"), line="POST {} HTTP/1.0")],
    "expecting 100": [genuine(event("evt_6"), (b"expect", b"100-continue"))],
    "expecting more": [genuine(event("evt_7"), (b"expect", b"more"))],
    "that would upgrade": [
        genuine(event("evt_8"), (b"connection", b"upgrade"), (b"upgrade", b"x"))
    ],
    "as it was signed": [genuine(event("evt_9"), (b"content-encoding", b" Identity"))],
    "compressed": [genuine(event("evt_10"), GZIP)],
    "with many headers": [genuine(event("evt_11"), (b"x", b"x" * 17_000))],
    "a length with zeros": [post(b"{}", length=b"002")],
    "in chunks": [
        HEAD.rpartition(b"\r\n")[0] + b"\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    ],
    "of an unknown source": [post(b"{}", path="/webhooks/nobody")],
    "with a slash behind it": [post(b"{}", path="/webhooks/shop/")],
    "with a query": [genuine(event("evt_12"), path="/webhooks/shop?a=b")],
    "spelled otherwise": [genuine(event("evt_13"), path="/webhooks/%73hop")],
    "with a whole address": [genuine(event("evt_14"), path="http://a/webhooks/shop")],
    "of another method": [post(line="PUT {} HTTP/1.1"), post(line="HEAD {} HTTP/1.1")],
    "of 65,536 bytes": [genuine(b" " * 65_536)],
    "of one more": [genuine(b" " * 65_537)],
    "too long": [genuine(b" " * 70_001)],
    **{name: [genuine(body)] for name, body in UNREADABLE.items()},
    "too many rejections": [UNSIGNED] * 9,
}


DELIVERIES = "SELECT received_at, source, verdict, event_id, headers, body, problem FROM deliveries"
REJECTIONS = "SELECT received_at, source, verdict, headers, body, problem FROM rejections"


def same(text: str) -> str:
    """Without what differs from one service to the other."""
    return re.sub(r"(dlv_|\"at\":\")[\w:.-]+", r"\1", text)


async def seen(folder: Path, *, short: bool) -> dict[str, Any]:
    """What senders, store, log and metrics say of all these requests."""
    stream = io.StringIO()
    configure_logging(format="json", level="info", stream=stream)
    found: dict[str, Any] = {}
    limits = {"MAX_BODY_BYTES": "70000", "REJECTIONS_PER_MINUTE_PER_ADDRESS": "15"}
    async with door(folder, short=short, **limits) as there:
        rate: Any = there.driver.service.webhooks.door.rejection_rate
        rate._clock = Mock(return_value=rate._clock())  # no allowance comes back meanwhile
        for name, data in REQUESTS.items():
            sent, closed = (await there.ask(*data)).wire.sent
            found[name] = same(sent.decode("latin-1")), closed
        found["deliveries"] = sorted(map(repr, there.driver.rows(DELIVERIES)))
        found["rejections"] = sorted(map(repr, there.driver.rows(REJECTIONS)))
        metrics = there.driver.service.webhooks.metrics.exposition().decode()
        found["metrics"] = re.findall(
            r"^tallyhook_deliver\w+(?:_total\{.*|_count .*)", metrics, re.M
        )
        found["log"] = [same(line) for line in stream.getvalue().splitlines()]
    return found


async def test_both_ways_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers to the byte, what is kept, log lines and figures; and the short way is taken."""
    for way in ("long", "short"):
        (tmp_path / way).mkdir()
    # What it raises an alarm for, and logs, depends on when it looks.
    monkeypatch.setattr(Watchdog, "look", AsyncMock(return_value=0))
    judge = Mock(side_effect=Delivery.judge, autospec=True)
    monkeypatch.setattr(Delivery, "judge", lambda delivery: judge(delivery))
    long = await seen(tmp_path / "long", short=False)
    assert not judge.called
    short = await seen(tmp_path / "short", short=True)
    assert judge.call_count > 40
    for name, of_long in long.items():
        assert short[name] == of_long, name
    statuses = set(re.findall(r"HTTP/1.1 (\d+) ", repr(long)))
    assert statuses == {"100", "200", "400", "401", "403", "404", "405", "413", "415", "429", "431"}


# --- several on one connection --------------------------------------------------------------------


async def test_each_is_judged_by_its_own_head(tmp_path: Path) -> None:
    """A whole request that came with the head of another, which is not the one that counts."""
    async with door(tmp_path) as there:
        client = await there.ask(ONE + post(b"{}", (b"x", b"y"))[:-2])
        assert client.wire.writes[0].startswith(b"HTTP/1.1 200 ")
        assert b'"stored"' in client.wire.writes[0]


async def test_answers_come_in_order(tmp_path: Path) -> None:
    """Whichever way they take; a request behind one that waits for its commit waits, too."""
    async with door(tmp_path) as there:
        waiting = held(there)
        client = there.connect()
        await client.ask(ONE + TWO + LIVE)
        assert (len(waiting), client.wire.writes) == (1, [])
        await let_go(waiting, client)
        await soon(lambda: waiting)
        await let_go(waiting, client)
        texts = [re.sub(rb".*\r\n\r\n", b"", each, flags=re.S) for each in client.wire.writes]
        assert [b"stored" in text for text in texts] == [True, True, False]


def held(there: Door) -> list[Any]:
    """What is handed to the journal from now on, and not written."""
    journal, waiting = there.driver.service.store.journal, []
    enter = journal.enter
    journal.enter = lambda items, waiters: waiting.append((enter, items, waiters))  # type: ignore[method-assign]
    return waiting


async def let_go(waiting: list[Any], client: Client) -> None:
    """Hand it over now, and wait for what comes of it."""
    before = len(client.wire.writes)
    enter, items, waiters = waiting.pop()
    enter(items, waiters)
    await soon(lambda: waiting or (len(client.wire.writes) > before and is_at_rest(client)))


async def test_a_reader_that_does_not_read(tmp_path: Path) -> None:
    """Its next answer waits until there is room."""
    async with door(tmp_path) as there:
        client = there.connect()
        client.connection.pause_writing()
        await client.ask(UNSIGNED)
        journal = there.driver.service.store.journal
        await soon(lambda: there.driver.rows("SELECT 1 FROM rejections") and not journal.depth)
        await turns()
        assert client.wire.writes == []
        client.connection.resume_writing()
        await soon(lambda: client.wire.writes)


async def test_more_than_have_their_turn_are_all_judged(tmp_path: Path) -> None:
    """Many at once, though each turn takes a few."""
    async with door(tmp_path, short=True) as there:
        clients = [there.connect() for _ in range(9)]
        for client in clients[: PORTION + 1]:
            client.connection.data_received(UNSIGNED)
        await soon(lambda: all(client.wire.writes for client in clients))


@pytest.mark.parametrize(
    ("waiting", "judged"),
    [(PORTION - 1, PORTION - 1), (PORTION**2, PORTION), (3 * PORTION**2, 3 * PORTION)],
)
async def test_a_turn_grows_with_what_waits(waiting: int, judged: int) -> None:
    """It takes a portion, or of very many one in so many; and always those that came first."""
    way = ShortWay(Mock(door=Mock(sources=[])))
    deliveries = [Mock() for _ in range(waiting)]
    for each in deliveries:
        way.complete(each)
    await asyncio.sleep(0)
    had_their_turn = [each.judge.called for each in deliveries]
    assert had_their_turn == [True] * judged + [False] * (waiting - judged)


# --- ends -----------------------------------------------------------------------------------------


async def test_told_to_stop_while_it_waits(tmp_path: Path) -> None:
    """It is answered after its commit, told that the connection ends, and the connection ends."""
    async with door(tmp_path) as there:
        waiting, client = held(there), there.connect()
        await client.ask(ONE)
        client.connection.shutdown()
        assert not client.wire.is_closing()
        await let_go(waiting, client)
        sent, closed = client.wire.sent
        assert sent.startswith(b"HTTP/1.1 200 ")
        assert b"\r\nconnection: close\r\n" in sent
        assert closed


async def test_a_sender_that_hangs_up(tmp_path: Path, log: io.StringIO) -> None:
    """What was complete is kept, logged and counted; nothing refers to the connection any more."""
    async with door(tmp_path) as there:
        waiting, client = held(there), there.connect()
        await client.ask(ONE)
        client.wire.lose()
        client.wire.protocol = None
        connection = weakref.ref(client.connection)
        enter, items, waiters = waiting.pop()
        enter(items, waiters)
        await soon(lambda: '"verdict":"stored"' in log.getvalue())
        assert client.wire.writes == []
        metrics = there.driver.service.webhooks.metrics.exposition()
        assert b'tallyhook_deliveries_total{source="shop",verdict="stored"} 1.0' in metrics
        gc.disable()
        try:
            del client, items, waiters
            await soon(lambda: connection() is None)
        finally:
            gc.enable()


async def test_a_connection_at_rest_keeps_no_body(tmp_path: Path) -> None:
    """What was answered is gone, though the connection stays."""
    async with door(tmp_path) as there:
        client = await there.ask(ONE)
        assert not client.wire.is_closing()
        assert client.connection.cycle is None


async def test_a_body_in_tiny_parts(tmp_path: Path) -> None:
    """It takes no more room on its way in than if it had come in one."""
    async with door(tmp_path) as there:
        connection: Any = there.connect().connection
        connection.data_received(post(length=b"65536"))
        assert isinstance(connection.cycle, Delivery)
        tracemalloc.start()
        try:
            for _ in range(10_000):
                connection.data_received(b"xy")
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert 20_000 < held < 30_000


async def test_a_length_behind_zeros_is_not_believed(tmp_path: Path) -> None:
    """A body that says it is short by its first digits is not collected beyond the limit."""
    async with door(tmp_path, MAX_BODY_BYTES="1024") as there:
        client = there.connect()
        await client.ask(post(length=b"0" * 19 + b"9999999"))
        for _ in range(2):
            await client.ask(b"x" * 1000)
        await soon(lambda: client.wire.writes)
        assert client.wire.writes[0].startswith(b"HTTP/1.1 413 ")


# --- failures -------------------------------------------------------------------------------------

STORE = [StoreUnavailable("busy"), StorePoisoned("gone")]


@pytest.mark.parametrize("error", STORE)
async def test_what_is_not_stored_is_not_acknowledged(tmp_path: Path, error: Exception) -> None:
    """Whether the store fails at its commit: 503, when to come again, and the connection stays."""
    async with door(tmp_path) as there:
        there.driver.service.store.journal._commit = Mock(side_effect=error)  # type: ignore[method-assign]
        client = await there.ask(ONE)
        sent, closed = client.wire.sent
        assert sent.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nretry-after: 5\r\n" in sent
        assert not closed


async def test_a_journal_that_takes_nothing(tmp_path: Path) -> None:
    """It is full, or was given up while one waited: 503, at once."""
    async with door(tmp_path) as there:
        waiting, first = held(there), there.connect()
        await first.ask(ONE)
        journal, (enter, items, waiters) = there.driver.service.store.journal, waiting.pop()
        enter(items, waiters)
        journal.abandon()
        journal.enter = enter  # type: ignore[method-assign]
        second = await there.ask(TWO)
        for client in (first, second):
            assert client.wire.writes[0].startswith(b"HTTP/1.1 503 ")


async def test_a_journal_that_fails(tmp_path: Path) -> None:
    """500 where it is not the store that is in trouble."""
    async with door(tmp_path) as there:
        waiting, client = held(there), there.connect()
        await client.ask(ONE)
        [(_, _, [waiter])] = waiting
        waiter.set_exception(RuntimeError("of the journal"))
        assert client.wire.writes[0].startswith(b"HTTP/1.1 500 ")


STEPS = {"decide": ONE, "kept": ONE, "written": ONE, "conclude": UNSIGNED}


@pytest.mark.parametrize("step", STEPS)
async def test_a_step_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: io.StringIO, step: str
) -> None:
    """500, said once in the log, and the connection closed; others of its batch are answered."""
    async with door(tmp_path) as there:
        right = getattr(delivering, step)
        failing = Mock(side_effect=[RuntimeError("of the step")] + [None] * 9)
        monkeypatch.setattr(delivering, step, lambda *given: failing(*given) or right(*given))
        clients = [there.connect() for _ in range(2)]
        for client, data in zip(clients, (STEPS[step], TWO), strict=True):
            client.connection.data_received(data)
        await soon(lambda: all(client.wire.writes for client in clients))
        sent, closed = clients[0].wire.sent
        assert sent.startswith(b"HTTP/1.1 500 ")
        assert closed
        assert clients[1].wire.writes[0].startswith(b"HTTP/1.1 200 ")
        assert log.getvalue().count("could not be answered") == 1


@pytest.mark.parametrize("header", [(b"x\r\ny", b"1"), (b"x", b"1\r\ny: 2")])
async def test_an_answer_that_would_have_one_header_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: Header
) -> None:
    """A name or a value with a character that none may have is not sent: 500."""
    async with door(tmp_path) as there:
        monkeypatch.setattr(delivering, "written", lambda _: Written(200, [header], b""))
        client = await there.ask(ONE)
        sent, closed = client.wire.sent
        assert sent.startswith(b"HTTP/1.1 500 ")
        assert closed


@pytest.mark.parametrize("error", [None, *STORE])
async def test_a_connection_that_fails_after_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """It is closed, with one answer; the others of its batch are answered all the same."""
    async with door(tmp_path) as there:
        if error is not None:
            there.driver.service.store.journal._commit = Mock(side_effect=error)  # type: ignore[method-assign]
        failing = Mock(side_effect=RuntimeError("of the connection"))
        monkeypatch.setattr(GuardedConnection, "on_response_complete", failing)
        clients = [there.connect() for _ in range(2)]
        for client, data in zip(clients, (ONE, TWO), strict=True):
            client.connection.data_received(data)
        await soon(lambda: all(client.wire.is_closing() for client in clients))
        assert [len(client.wire.writes) for client in clients] == [1, 1]
