"""Deliveries on connections: several on one, clients that hang up, shutdowns, and failures."""

import asyncio
import io
import re
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from app.core.errors import StorePoisoned, StoreUnavailable
from app.receiving import endpoint, receive
from app.receiving.caught_up import behind_s
from app.receiving.endpoint import Written
from tests.api.connected import Door, door, genuine, is_at_rest, post
from tests.api.driving import Header, event, of_order
from tests.api.wire import Client
from tests.waiting import soon

ONE, TWO, THREE = (genuine(of_order(f"O-{n}", f"evt_{n}")) for n in (1, 2, 3))
LIVE = b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n"
UNSIGNED = post(b"{}")
HEAD, _, BODY = ONE.partition(b"\r\n\r\n")
CHUNKED = HEAD.rpartition(b"\r\n")[0] + b"\r\ntransfer-encoding: chunked\r\n\r\n"

ANSWERED: dict[str, tuple[list[bytes], list[int], bool]] = {
    "one": ([ONE], [200], False),
    "twice": ([ONE + ONE], [200, 200], False),
    "three, one unsigned": ([ONE + UNSIGNED + TWO], [200, 401, 200], False),
    "four, of which one is too many": ([ONE + UNSIGNED + TWO + THREE + ONE], [200, 401, 200], True),
    "behind another request": ([LIVE + TWO + LIVE], [200, 200, 200], False),
    "before a doubtful one": ([TWO + b"GET /livez HTTP/1.1\r\n\r\n"], [200], True),
    "byte by byte": ([bytes([byte]) for byte in THREE], [200], False),
    "a doubtful body's length": ([post(b"{}", length=b"+2")], [400], True),
    "the last": ([genuine(event("evt_4"), (b"connection", b"close")) + LIVE], [200], True),
    "of 1.0": ([genuine(event("evt_5"), line="POST {} HTTP/1.0") + LIVE], [200], True),
    "expecting 100": ([genuine(event("evt_6"), (b"expect", b"100-continue"))], [200], False),
    "as it was signed": (
        [genuine(event("evt_9"), (b"content-encoding", b" Identity"))], [200], False
    ),
    "compressed": ([genuine(event("evt_10"), (b"content-encoding", b"gzip"))], [415], True),
    "with many headers": ([genuine(event("evt_11"), (b"x", b"x" * 17_000))], [431], True),
    "a length with zeros": ([post(b"{}", length=b"002")], [401], False),
    "in chunks": ([CHUNKED + b"%x\r\n" % len(BODY) + BODY + b"\r\n0\r\n\r\n"], [200], False),
    "of an unknown source": ([post(b"{}", path="/webhooks/nobody")], [404], False),
    "with a slash behind it": ([genuine(event("evt_15"), path="/webhooks/shop/")], [200], False),
    "with two slashes behind it": ([post(b"{}", path="/webhooks/shop//")], [404], False),
    "with a query": ([genuine(event("evt_12"), path="/webhooks/shop?a=b")], [200], False),
    "spelled otherwise": ([genuine(event("evt_13"), path="/webhooks/%73hop")], [200], False),
    "with a whole address": (
        [genuine(event("evt_14"), path="http://a/webhooks/shop")], [200], False
    ),
    "of another method": ([post(line="PUT {} HTTP/1.1")], [405], False),
    "of 65,537 bytes": ([genuine(b" " * 65_537)], [200], False),
    "too long": ([genuine(b" " * 70_001)], [413], True),
}  # fmt: skip
"""Requests on one connection, the answers' statuses, and whether the connection is then closed."""


async def test_what_each_is_answered(tmp_path: Path) -> None:
    """Each has a connection of its own; a delivery answered 200 is in the database."""
    async with door(tmp_path, MAX_BODY_BYTES="70000") as there:
        for name, (data, statuses, closes) in ANSWERED.items():
            sent, closed = (await there.ask(*data)).wire.sent
            found = [int(each) for each in re.findall(rb"HTTP/1.1 (\d+) ", sent) if each != b"100"]
            assert (found, closed) == (statuses, closes), name
            await behind_s(there.driver.service.context)
            for delivery in re.findall(rb'"delivery": "([^"]+)"', sent):
                kept = there.driver.rows(
                    "SELECT 1 FROM deliveries WHERE id=?", delivery.decode("ascii")
                )
                assert kept == [(1,)], name


# --- several on one connection --------------------------------------------------------------------


async def test_each_is_judged_by_its_own_head(tmp_path: Path) -> None:
    """A whole request arrives with the head of another, and that head must not count."""
    async with door(tmp_path) as there:
        client = await there.ask(ONE + post(b"{}", (b"x", b"y"))[:-2])
        sent, _ = client.wire.sent
        assert sent.startswith(b"HTTP/1.1 200 ")
        assert b'"accepted"' in sent


async def test_answers_come_in_order(tmp_path: Path) -> None:
    """A request behind one that waits for its commit waits, too."""
    async with door(tmp_path) as there:
        waiting = held(there)
        client = there.connect()
        await client.ask(ONE + TWO + LIVE)
        await soon(lambda: waiting)
        assert (len(waiting), client.wire.writes) == (1, [])
        await let_through(waiting, client)
        await soon(lambda: waiting)
        await let_through(waiting, client)
        sent, _ = client.wire.sent
        texts = sent.split(b"HTTP/1.1 200 ")[1:]
        assert [b"accepted" in text for text in texts] == [True, True, False]


def held(there: Door) -> list[asyncio.Event]:
    """Hold each delivery that is passed to the queue from now on. Return an event for each."""
    queue, waiting = there.driver.service.inbox.queue, []
    submit = queue.submit

    async def wait(item: Any) -> Any:
        go_on = asyncio.Event()
        waiting.append(go_on)
        await go_on.wait()
        return await submit(item)

    queue.submit = wait  # type: ignore[method-assign]
    return waiting


async def let_through(waiting: list[asyncio.Event], client: Client) -> None:
    """Let the held deliveries through and wait for the result."""
    before = len(client.wire.writes)
    waiting.pop().set()
    await soon(lambda: waiting or (len(client.wire.writes) > before and is_at_rest(client)))


# --- ends -----------------------------------------------------------------------------------------


async def test_asked_to_stop_while_it_waits(tmp_path: Path) -> None:
    """It is answered after its commit with `Connection: close`, and the connection ends."""
    async with door(tmp_path) as there:
        waiting, client = held(there), there.connect()
        await client.ask(ONE)
        await soon(lambda: waiting)
        client.connection.shutdown()
        assert not client.wire.is_closing()
        await let_through(waiting, client)
        sent, closed = client.wire.sent
        assert sent.startswith(b"HTTP/1.1 200 ")
        assert b"\r\nconnection: close\r\n" in sent
        assert closed


@pytest.mark.parametrize("before", [0, 1], ids=["new", "at rest"])
async def test_a_delivery_on_its_way_while_the_service_is_asked_to_stop(
    tmp_path: Path, before: int
) -> None:
    """On an open connection it is accepted like any other; the answer says that the connection
    ends."""
    async with door(tmp_path) as there:
        client = there.connect()
        for _ in range(before):
            await client.ask(ONE)
            await soon(lambda: client.wire.writes and is_at_rest(client))
        client.wire.writes.clear()
        client.connection.shutdown()
        assert not client.wire.is_closing()
        await client.ask(TWO if before else ONE)
        await soon(lambda: client.wire.writes)
        sent, closed = client.wire.sent
        assert sent.startswith(b"HTTP/1.1 200 ")
        assert b"\r\nconnection: close\r\n" in sent
        assert closed


async def test_a_silent_connection_ends_with_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unused or idle connection ends after a moment; others stay."""
    monkeypatch.setattr("app.receiving.guard.LAST_S", 0)
    async with door(tmp_path) as there:
        client = there.connect()
        client.connection.shutdown()
        await soon(client.wire.is_closing)
        assert client.wire.writes == []


async def test_a_complete_delivery_is_kept_though_its_sender_hangs_up(
    tmp_path: Path, log: io.StringIO
) -> None:
    async with door(tmp_path) as there:
        waiting, client = held(there), there.connect()
        await client.ask(ONE)
        await soon(lambda: waiting)
        client.wire.lose()
        waiting.pop().set()
        await soon(lambda: '"verdict":"stored"' in log.getvalue())
        assert client.wire.writes == []
        assert there.driver.rows("SELECT count(*) FROM deliveries") == [(1,)]
        metrics = there.driver.service.webhooks.metrics.exposition()
        assert b'tallyhook_deliveries_total{source="shop",verdict="accepted"} 1.0' in metrics


async def test_a_content_length_with_leading_zeros_does_not_pass_the_limit(tmp_path: Path) -> None:
    async with door(tmp_path, MAX_BODY_BYTES="1024") as there:
        client = there.connect()
        await client.ask(post(length=b"0" * 19 + b"9999999"))
        for _ in range(2):
            await client.ask(b"x" * 1000)
        await soon(lambda: client.wire.writes)
        assert client.wire.writes[0].startswith(b"HTTP/1.1 413 ")


# --- failures -------------------------------------------------------------------------------------

FAULTS: list[tuple[StoreUnavailable | StorePoisoned, str]] = [
    (StoreUnavailable("busy", reason="busy"), "busy"),
    (StoreUnavailable("full", reason="disk"), "disk"),
    (StorePoisoned("gone"), "failed"),
]


@pytest.mark.parametrize(("error", "reason"), FAULTS, ids=lambda each: str(each))
async def test_what_is_not_stored_is_not_acknowledged(
    tmp_path: Path,
    log: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    reason: str,
) -> None:
    """The answer is 503 with Retry-After, and the connection stays. The reason is counted for each,
    and logged when the refusals begin and when none came for five seconds."""
    now = [100.0]
    monkeypatch.setattr(receive, "monotonic", lambda: now[0])
    async with door(tmp_path) as there:
        queue = there.driver.service.inbox.queue
        commit, queue._commit = queue._commit, Mock(side_effect=error)  # type: ignore[method-assign]
        for _ in range(3):
            sent, closed = (await there.ask(ONE)).wire.sent
            assert sent.startswith(b"HTTP/1.1 503 ")
            assert b"\r\nretry-after: 5\r\n" in sent
            assert not closed
        assert log.getvalue().count("deliveries are not stored") == 1
        assert f'"event":"deliveries are not stored","reason":"{reason}"' in log.getvalue()
        metrics = there.driver.service.webhooks.metrics.exposition().decode()
        assert f'tallyhook_deliveries_not_stored_total{{reason="{reason}"}} 3.0' in metrics
        queue._commit = commit  # type: ignore[method-assign]
        for now[0] in (100.0, 104.9):
            assert (await there.ask(ONE)).wire.sent[0].startswith(b"HTTP/1.1 200 ")
            assert "deliveries are stored again" not in log.getvalue()
        now[0] = 105.0
        assert (await there.ask(ONE)).wire.sent[0].startswith(b"HTTP/1.1 200 ")
        assert (
            f'"event":"deliveries are stored again","reason":"{reason}","count":3' in log.getvalue()
        )


async def test_reasons_that_take_turns_are_logged_once_a_minute_each(
    tmp_path: Path, log: io.StringIO
) -> None:
    async with door(tmp_path) as there:
        queue = there.driver.service.inbox.queue
        for error, _ in (*FAULTS[:2], FAULTS[1], FAULTS[0]):
            queue._commit = Mock(side_effect=error)  # type: ignore[method-assign]
            await there.ask(ONE)
        lines = re.findall(r'"deliveries are not stored","reason":"(\w+)"', log.getvalue())
        assert lines == ["busy", "disk"]


async def test_a_queue_that_was_given_up_answers_503_at_once(tmp_path: Path) -> None:
    async with door(tmp_path) as there:
        there.driver.service.inbox.queue.abandon()
        client = await there.ask(TWO)
        assert client.wire.sent[0].startswith(b"HTTP/1.1 503 ")
        metrics = there.driver.service.webhooks.metrics.exposition()
        assert b'tallyhook_deliveries_not_stored_total{reason="stopping"} 1.0' in metrics


STEPS = {
    "_decide": (receive, ONE),
    "_accepted": (receive, ONE),
    "_reject": (receive, UNSIGNED),
    "_written": (endpoint, ONE),
}


@pytest.mark.parametrize("step", STEPS)
async def test_a_step_that_fails_is_a_500_logged_without_its_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: io.StringIO, step: str
) -> None:
    module, data = STEPS[step]
    async with door(tmp_path) as there:
        right = getattr(module, step)
        failing = Mock(side_effect=[RuntimeError("of the step")] + [None] * 9)
        monkeypatch.setattr(module, step, lambda *given: failing(*given) or right(*given))
        sent, closed = (await there.ask(data)).wire.sent
        assert sent.startswith(b"HTTP/1.1 500 ")
        assert closed
        assert "RuntimeError" in log.getvalue()
        assert "of the step" not in log.getvalue()
        assert (await there.ask(TWO)).wire.sent[0].startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("header", [(b"x\r\ny", b"1"), (b"x", b"1\r\ny: 2")])
async def test_a_header_with_a_forbidden_character_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header: Header
) -> None:
    async with door(tmp_path) as there:
        monkeypatch.setattr(endpoint, "_written", lambda _: Written(200, [header], b""))
        assert (await there.ask(ONE)).wire.sent == (b"", True)
