"""The shop's side: it handles notifications and answers. Some tests ask the service itself."""

import ast
import json
import socket
import sqlite3
import sys
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from standardwebhooks import Webhook

from app import client as package
from app.access.tokens import issue_token
from app.client.asking import (
    MAX_ANSWER_BYTES,
    Answer,
    Ask,
    AsyncSender,
    HttpSender,
    NotConfigured,
    NotUnderstood,
    TokenRefused,
    Unavailable,
    ask,
    ask_async,
)
from app.client.outcomes import News, Refused, follow, news_of, verify_notification
from app.client.payments import start_payment, tell_order
from app.client.shop_store import SqliteKeeper
from tests.api.driving import driving, of_order
from tests.client.world import KEY, SECRET, entry, notification
from tests.rows import for_each
from tests.waiting import soon

NOW = 1_795_000_000
GOOD = entry(7, "A", fulfillable=True)


def test_it_imports_its_own_modules_relatively_and_else_the_standard_library() -> None:
    """And nothing of it reads a clock."""
    for path in Path(package.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                top = name.partition(".")[0]
                own = isinstance(node, ast.ImportFrom) and node.level == 1
                assert own or (top in sys.stdlib_module_names and top != "time"), (path, name)


def test_a_genuine_notification_gives_its_news() -> None:
    """As the published library signs the same bytes; with either of two secrets."""
    headers, body = notification(GOOD, now=NOW)
    news = verify_notification(SECRET, headers, body, now=NOW + 299.9)
    assert (news.id, news.order, news.fulfillable) == (7, "A", True)
    assert news == news_of(GOOD)
    other = "whsec_" + "b" * 32
    assert verify_notification([other, SECRET], headers, body, now=NOW) == news
    two = {**headers, "Webhook-Signature": f"v1,AAAA v2,x {headers['Webhook-Signature']}"}
    assert verify_notification(SECRET, two, body, now=NOW) == news
    oracle = Webhook(SECRET)
    content = oracle.sign("msg_1", datetime.fromtimestamp(NOW, UTC), body.decode())
    assert content == headers["Webhook-Signature"]


@for_each(
    ("change", "said"),
    [
        ({"Webhook-Signature": "v1,AAAA"}, "does not match"),
        ({"Webhook-Signature": ""}, "does not match"),
        ({"Webhook-Signature": "v1,é"}, "does not match"),
        ({"Webhook-Id": "msg_2"}, "does not match"),
        ({"Webhook-Timestamp": str(NOW + 1)}, "does not match"),
        ({"Webhook-Timestamp": "1e9"}, "not a number"),
        ({"Webhook-Timestamp": "９"}, "not a number"),
        ({"Webhook-Timestamp": None}, "is missing"),
    ],
)
def test_what_is_not_genuine_is_refused(change: dict[str, str | None], said: str) -> None:
    headers, body = notification(GOOD, now=NOW)
    changed = {name: value for name, value in {**headers, **change}.items() if value is not None}
    with pytest.raises(Refused, match=said):
        verify_notification(SECRET, changed, body, now=NOW)


def test_age_size_and_content_are_bounded() -> None:
    """Too old, from the future, too large, of another kind, or signed but not about an order."""
    headers, body = notification(GOOD, now=NOW)
    for now in (NOW + 301, NOW - 301):
        with pytest.raises(Refused, match="too far"):
            verify_notification(SECRET, headers, body, now=now)
    with pytest.raises(Refused, match="too large"):
        verify_notification(SECRET, headers, b"x" * 300_000, now=NOW)
    with pytest.raises(Refused, match="does not match"):
        verify_notification(SECRET, headers, body + b" ", now=NOW)
    other = notification(GOOD, now=NOW, kind="order.deleted")
    with pytest.raises(Refused, match="not about an order"):
        verify_notification(SECRET, *other, now=NOW)
    wrong: tuple[Any, ...] = ({**GOOD, "fulfillable": "true"}, {**GOOD, "id": True}, [], None, {})
    for data in wrong:
        with pytest.raises(Refused, match="cannot be parsed"):
            verify_notification(SECRET, *notification(data, now=NOW), now=NOW)
    for secret in ("whsec_", KEY.decode()):
        with pytest.raises(ValueError, match="a secret"):
            verify_notification(secret, headers, body, now=NOW)


@pytest.fixture
def keeper() -> SqliteKeeper:
    return SqliteKeeper(sqlite3.connect(":memory:"), lambda shop, news, ship: None)


def test_a_commit_that_cannot_be_had_leaves_nothing_open(tmp_path: Path) -> None:
    """A reader that holds the shop's database for too long costs that news, not the next."""
    shop = sqlite3.connect(tmp_path / "shop.db", timeout=0)
    keeper = SqliteKeeper(shop, lambda shop, news, ship: None)
    reader = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM tallyhook_told").fetchall()
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        keeper.take(news_of(GOOD))
    assert not shop.in_transaction
    reader.execute("COMMIT")
    assert keeper.take(news_of(entry(8, "B", fulfillable=True)))
    assert keeper.take(news_of(GOOD))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer(status=401, body=b"{}"), TokenRefused),
        (Answer(status=403, body=b'{"detail": "scope read"}'), TokenRefused),
        (Answer(status=503, body=b"", headers={"retry-after": "7"}), Unavailable),
        (Answer(status=429, body=b""), Unavailable),
        (Answer(status=500, body=b""), Unavailable),
        (Answer(status=501, body=b"{}"), NotConfigured),
        (Answer(status=200, body=b"<html>"), NotUnderstood),
        (Answer(status=404, body=b"{}"), NotUnderstood),
        (Answer(status=410, body=b'{"read_from": 0}'), NotUnderstood),
        (Answer(status=410, body=b"[]"), NotUnderstood),
        (Answer(status=200, body=b"[]"), NotUnderstood),
        (Answer(status=200, body=b"null"), NotUnderstood),
        (Answer(status=200, body=b'{"outcomes": 1, "cursor": 1}'), NotUnderstood),
        (Answer(status=200, body=b'{"outcomes": []}'), NotUnderstood),
        (Answer(status=200, body=b'{"outcomes": [], "cursor": null}'), NotUnderstood),
        (Answer(status=200, body=b'{"outcomes": [[]], "cursor": 1}'), NotUnderstood),
        (Answer(status=200, body=b"[" * 100_000), NotUnderstood),
        (Answer(status=200, body=b'{"outcomes": [{}], "cursor": 1}'), NotUnderstood),
        (Answer(status=200, body=b'{"outcomes": [], "cursor": 1, "superseded": 1}'), NotUnderstood),
    ],
)
def test_a_feed_that_cannot_be_read_is_reported(
    answer: Answer, error: type[Exception], keeper: SqliteKeeper
) -> None:
    """And not asked for ever, even if each answer says to read on from elsewhere."""
    with pytest.raises(error) as caught:
        ask(follow(keeper), lambda wanted: answer)
    if isinstance(caught.value, Unavailable):
        assert caught.value.again_s == (7 if answer.headers else 5)


@for_each(
    ("status", "body", "state"),
    [
        (201, {"status": "open", "checkout_url": "https://pay"}, "open"),
        (200, {"status": "open", "checkout_url": None}, "open"),
        (200, {"status": "paid"}, "paid"),
        (200, {"status": "expired"}, "expired"),
        (202, {"status": "unknown"}, "unknown"),
        (200, {"status": "unresolved"}, "unresolved"),
        (409, {"code": "payment_differs", "detail": "It differs."}, "differs"),
        (409, {"code": "payment_not_over", "detail": "Not yet."}, "not_over"),
        (409, {"code": "order_canceled", "detail": "It was canceled."}, "refused"),
        (422, {"code": "request_invalid", "problems": [{"sentence": "No."}]}, "refused"),
        (422, {}, "refused"),
    ],
)
def test_what_became_of_a_payment(status: int, body: dict[str, Any], state: str) -> None:
    """Each answer has one state; one that may change says when to ask again."""
    asked: list[Ask] = []

    def send(wanted: Ask) -> Answer:
        asked.append(wanted)
        answer = json.dumps(body).encode()
        return Answer(status=status, body=answer, headers={"retry-after": "30"})

    started = ask(start_payment("A/1", "1500.00", "KES", phone="254700000001"), send)
    assert started.state == state
    assert (started.again_s == 30) == (state in ("unknown", "not_over"))
    assert json.loads(asked[0].body or b"") == {
        "order": {"reference": "A/1", "amount": "1500.00", "currency": "KES"},
        "customer": {"phone": "254700000001"},
        "new_payment": False,
    }
    if state == "refused":
        said = body.get("detail") or ("No." if body else "it answered 422")
        assert started.sentence == said


@for_each(
    ("status", "body"),
    [
        (200, {"status": "new"}), (409, {}), (404, {}), (200, []), (409, "no"), (422, None),
    ],
)  # fmt: skip
def test_an_answer_that_is_not_known_is_reported(status: int, body: Any) -> None:
    with pytest.raises(NotUnderstood):
        ask(
            start_payment("A", "1", "KES"),
            lambda wanted: Answer(status=status, body=json.dumps(body).encode()),
        )


def test_an_order_that_is_no_object_is_not_understood() -> None:
    with pytest.raises(NotUnderstood, match="not a JSON object"):
        ask(tell_order("A", "1", "KES"), lambda wanted: Answer(status=200, body=b"[]"))


@for_each("problems", [1, ["no"], [{}], [{"sentence": 1}], None])
def test_a_refusal_without_sentences_gives_the_detail(problems: Any) -> None:
    body = json.dumps({"problems": problems, "detail": "It cannot be."}).encode()
    found = ask(start_payment("A", "1", "KES"), lambda wanted: Answer(status=422, body=body))
    assert (found.state, found.sentence) == ("refused", "It cannot be.")


async def test_from_far_back_nothing_is_shipped_that_was_given_back_since(tmp_path: Path) -> None:
    """An order with later news that is still paid is shipped once, with the last of them."""
    orders, heard = ("still", "back", "first"), list[tuple[str, bool]]()

    def act(shop: sqlite3.Connection, news: News, ship: bool) -> None:
        heard.append((news.order, ship))

    async with driving(tmp_path) as driver:
        token = await issue_token(driver.context, name="reader")
        sender = AsyncSender(driver.client, token, failures=(httpx2.HTTPError,))
        for count, name in enumerate((*orders, *orders[:2]), start=1):
            kind = "succeeded" if count <= len(orders) else LATER[name]
            await driver.send(of_order(name, f"e{count}", kind))
            published = f"SELECT count(*) FROM revisions HAVING count(*) = {count}"
            await soon(lambda published=published: driver.rows(published))
        page = (await driver.api("GET", "/outcomes")).json()
        assert page["superseded"] == [1, 2]
        assert "superseded" not in (await driver.api("GET", "/outcomes?after=2")).json()
        for limit in (1, 2, 100):
            heard.clear()
            keeper = SqliteKeeper(sqlite3.connect(":memory:"), act)
            assert await ask_async(follow(keeper, limit=limit), sender) == 5
            assert heard[:2] == [("still", False), ("back", False)]
            assert heard[2:] == [("first", True), ("still", True), ("back", False)]


LATER = {"still": "noted", "back": "disputed"}


async def test_it_understands_the_service(tmp_path: Path) -> None:
    """The feed, an order's price, and a payment that this installation doesn't start."""
    shop = sqlite3.connect(":memory:")
    shop.execute("CREATE TABLE parcels (ref TEXT)")

    def act(shop: sqlite3.Connection, news: News, ship: bool) -> None:
        if ship:
            shop.execute("INSERT INTO parcels VALUES (?)", (news.order,))

    keeper = SqliteKeeper(shop, act)
    async with driving(tmp_path) as driver:
        token = await issue_token(driver.context, name="shop")
        sender = AsyncSender(driver.client, token, failures=(httpx2.HTTPError,))
        recorded = await ask_async(tell_order("A/1 é", "1500.00", "KES"), sender)
        assert recorded["order"] == "A/1 é"
        await driver.send(of_order("A/1 é", "e1"))
        while not shop.execute("SELECT * FROM parcels").fetchall():
            await ask_async(follow(keeper), sender)
        assert shop.execute("SELECT * FROM parcels").fetchall() == [("A/1 é",)]
        with pytest.raises(NotConfigured, match="CHECKOUT__BASE_URL"):
            await ask_async(start_payment("A", "1500.00", "KES"), sender)
        with pytest.raises(TokenRefused):
            await ask_async(follow(keeper), AsyncSender(driver.client, "no", failures=()))


async def test_a_canceled_order_is_recorded_with_all_its_moments(tmp_path: Path) -> None:
    """A payment for it is owed back, and it is not fulfillable."""
    placed, canceled, fulfilled = (f"2026-11-20T0{hour}:00:00Z" for hour in (7, 8, 9))
    asked: list[Ask] = []

    def send(wanted: Ask) -> Answer:
        asked.append(wanted)
        return Answer(status=200, body=b"{}")

    ask(tell_order("A", "1", "KES", placed_at=placed, fulfilled_at=fulfilled), send)
    stated = {"amount": "1", "currency": "KES", "placed_at": placed, "fulfilled_at": fulfilled}
    assert json.loads(asked[0].body or b"") == stated
    async with driving(tmp_path) as driver:
        token = await issue_token(driver.context, name="shop")
        sender = AsyncSender(driver.client, token, failures=(httpx2.HTTPError,))
        await driver.send(of_order("A", "e1"))
        before = await ask_async(tell_order("A", "1500.00", "KES"), sender)
        assert (before["outcome"], before["fulfillable"]) == ("succeeded", True)
        after = await ask_async(tell_order("A", "1500.00", "KES", canceled_at=canceled), sender)
        assert (after["outcome"], after["fulfillable"]) == ("succeeded", False)
        assert "paid_after_cancel" in {each["code"] for each in after["findings"]}


async def test_an_answer_without_end_is_given_up() -> None:
    """The asynchronous sender never holds it whole in memory."""
    sent = 0

    class Endless(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            nonlocal sent
            while True:
                sent += 2**20
                yield b" " * 2**20

    transport = httpx2.MockTransport(lambda request: httpx2.Response(200, stream=Endless()))
    async with httpx2.AsyncClient(transport=transport, base_url="http://service") as client:
        with pytest.raises(NotUnderstood, match="too large to come from Tallyhook"):
            await ask_async(tell_order("A", "1", "KES"), AsyncSender(client, "t", failures=()))
    assert sent <= MAX_ANSWER_BYTES + 2**20


def test_nobody_there_is_unavailable() -> None:
    """With the standard library's sender; an address that is none is refused."""
    with pytest.raises(Unavailable, match="no answer came"):
        ask(start_payment("A", "1", "KES"), HttpSender("http://127.0.0.1:9", "t", timeout_s=5))
    with pytest.raises(ValueError, match="scheme and host"):
        HttpSender("payments.example", "t")


async def test_a_token_may_come_with_the_end_of_its_line() -> None:
    """As it is read from a file."""
    with pytest.raises(Unavailable, match="no answer came"):
        ask(start_payment("A", "1", "KES"), HttpSender("http://127.0.0.1:9", "t\n", timeout_s=5))
    borne: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        borne.append(request.headers["authorization"])
        return httpx2.Response(200, content=b"{}")

    transport = httpx2.MockTransport(answer)
    async with httpx2.AsyncClient(transport=transport, base_url="http://service") as client:
        await ask_async(tell_order("A", "1", "KES"), AsyncSender(client, "t\r\n", failures=()))
    assert borne == ["Bearer t"]


@for_each(
    ("asked", "seconds"),
    [("7", 7), ("1209600", 1_209_600), ("251618400000", 30 * 86_400), ("", 5), ("soon", 5)],
)
def test_a_wait_may_be_long(asked: str, seconds: int) -> None:
    """Until a session expires; one that never does is asked about once a month."""
    body = b'{"code": "payment_not_over"}'
    said = Answer(status=409, body=body, headers={"retry-after": asked})
    found = ask(start_payment("A", "1", "KES", new_payment=True), lambda wanted: said)
    assert (found.state, found.again_s) == ("not_over", seconds)


def test_half_an_answer_is_unavailable() -> None:
    """A service may die while it answers: nothing was decided, and the request may be repeated."""
    whole = b'{"status": "open"}'
    for sent in (whole, whole[:7], b""):
        with socket.create_server(("127.0.0.1", 0)) as server:

            def answer_once(server: socket.socket = server, sent: bytes = sent) -> None:
                connection, _ = server.accept()
                with connection:
                    connection.recv(65_536)
                    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(whole)
                    connection.sendall(head + sent)

            thread = threading.Thread(target=answer_once)
            thread.start()
            send = HttpSender(f"http://127.0.0.1:{server.getsockname()[1]}", "t", timeout_s=5.0)
            if sent == whole:
                assert send(Ask(method="GET", path="/")).body == whole
            else:
                with pytest.raises(Unavailable, match="IncompleteRead"):
                    send(Ask(method="GET", path="/"))
            thread.join()
