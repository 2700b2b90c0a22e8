"""Forty planted phones, names, tokens and secrets go through routes and commands: none comes out
in a log, an error, a listing or a page."""

import asyncio
import io
import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from app.core.logs import configure_logging
from tests.api.driving import SECRET, Driver, driving, event, of_order, signed
from tests.cli.test_commands import Run
from tests.cli.test_commands import run as run  # the fixture


class Canaries:
    """Makes values that are nowhere else, and remembers them."""

    def __init__(self) -> None:
        self._numbers = count(10)
        self.planted: list[str] = [SECRET, SECRET[6:]]

    def phone(self) -> str:
        """Return E.164 digits."""
        return self._plant(f"2547193{next(self._numbers)}468")

    def spelled(self) -> str:
        """Return a number as people write it; its groups are looked for, too."""
        number = next(self._numbers)
        self.planted.append(f"719 3{number} 468")
        return f"+254 719 3{number} 468"

    def word(self, kind: str) -> str:
        """Return a name, a token or a secret."""
        return self._plant(f"{kind}-canary-{next(self._numbers)}-{'q' * 12}")

    def _plant(self, value: str) -> str:
        self.planted.append(value)
        return value

    def seen_in(self, text: str) -> list[str]:
        """Return the planted values that came out."""
        return [each for each in self.planted if each in text]


async def through_the_routes(driver: Driver, canaries: Canaries) -> str:
    """Call every route with something planted in every place; return all answers."""
    answers: list[str] = []

    async def send(body: bytes, headers: list[tuple[bytes, bytes]], path: str = "shop") -> None:
        answers.append((await driver.send(body, headers, source=path)).text)

    def customer() -> dict[str, object]:
        names = {"name": canaries.word("name"), "email": canaries.word("mail") + "@example.org"}
        return {"phone": canaries.phone(), **names}

    bodies = [
        event("e1", customer=customer()),
        event("e2", customer={"phone": int(canaries.phone())}, note=canaries.spelled()),
        of_order("O-2", "e3", "pending"),
        event("e4", environment="live", customer=customer()),
        event("e5", order={"reference": "O-3", "amount": canaries.word("amount")}),
        event("e6", payment={"reference": 5, "note": canaries.phone()}),
    ]
    for body in map(json.dumps, bodies):
        await send(body.encode(), signed(body.encode()))
    private = [
        (b"x-customer", canaries.phone().encode()),
        (b"x-msisdn", canaries.phone().encode()),
        (b"authorization", f"Bearer {canaries.word('token')}".encode()),
        (b"cookie", f"session={canaries.word('cookie')}".encode()),
        (b"x-api-key", canaries.word("key").encode()),
    ]
    for body in (f'{{"broken": "{canaries.phone()}"', f'{{"phone": "{canaries.phone()}"}}'):
        await send(body.encode(), [*signed(body.encode()), *private])
        await send(body.encode(), private)
    await send(canaries.phone().encode(), private, path="unheard-of")
    query = f"/webhooks/shop?phone={canaries.phone()}&token={canaries.word('query')}"
    answers.append((await driver.client.post(query, content=b"{}")).text)
    for method, path in (
        ("GET", f"/api/v1/orders?after={canaries.phone()}&limit=x"),
        ("GET", f"/api/v1/outcomes?after=+{canaries.phone()}x"),
        ("PUT", "/api/v1/orders/O-9"),
        ("POST", "/api/v1/checkout/sessions"),
        ("GET", f"/nothing/{canaries.phone()}"),
    ):
        content = json.dumps({"customer": customer(), "amount": canaries.word("amount")})
        for bearer in (driver.token, canaries.word("token")):
            headers = {"Authorization": f"Bearer {bearer}"}
            answer = await driver.client.request(method, path, content=content, headers=headers)
            answers.append(answer.text)
    return "\n".join([*answers, *await everything_shown(driver)])


async def everything_shown(driver: Driver) -> list[str]:
    """List the answers of all routes without parameters."""
    answers: list[str] = []
    for path in ("/metrics", "/readyz", "/livez", "/api/v1/openapi.json"):
        answers.append((await driver.client.get(path)).text)
    for path in ("orders", "orders/ORD-1", "outcomes"):
        answers.append((await driver.api("GET", f"/{path}")).text)
    return answers


def commands(canaries: Canaries, folder: Path) -> Iterator[tuple[str, ...]]:
    """Return every command that lists, finds, shows or fails, with something planted in its
    words."""
    book = folder / "book.csv"
    rows = [f"O-{n},5,KES,{phone}" for n, phone in enumerate((canaries.phone(), "2547x193"))]
    book.write_text("\n".join(["reference,amount,currency,phone", *rows]))
    phone, spelled = canaries.phone(), canaries.spelled()
    yield "refold", "--all"
    for form in ("table", "json", "jsonl", "csv"):
        yield "orders", "list", "--format", form
        yield "orders", "find", "ORD-1", "--format", form
        yield "deliveries", "list", "--format", form
        yield "audit", "list", "--format", form
    yield "orders", "find", canaries.planted[2]
    yield "orders", "find", spelled
    yield "orders", "show", "ORD-1"
    yield "orders", "show", "ORD-1", "--with-personal-data", "--reason", spelled
    yield "erase", "--phone", spelled, "--reason", "asked"
    yield "erase", "--phone", canaries.planted[2], "--reason", "asked", "--dry-run"
    yield "erase", "--phone", phone, "--order", phone
    yield "records", "import", str(book)
    yield "records", "import", str(book), "--accept-good"
    started = ("--order", "O", "--amount", "x", "--currency", "KES", "--phone", phone)
    yield "checkout", "start", *started
    yield "tokens", "revoke", "nobody"
    yield "deliveries", "reverify"
    yield from (("db", "check"), ("db", "check", "--deep"))
    yield from (("prove", "--all"), ("doctor",), ("reindex",), ("log", "verify"))


@pytest.mark.slow
def test_none_comes_out(run: Run, tmp_path: Path) -> None:
    canaries, log = Canaries(), io.StringIO()

    async def fill() -> tuple[str, list[str]]:
        async with driving(tmp_path, with_worker=True, looking=True) as driver:
            await driver.api("GET", "/orders")
            answers = await through_the_routes(driver, canaries)
            ids = driver.rows("SELECT id FROM deliveries UNION SELECT id FROM rejections")
            return answers, [row[0] for row in ids]

    configure_logging(format="json", level="debug", stream=log)
    answers, deliveries = asyncio.run(fill())
    assert '"delivery"' in log.getvalue()
    assert canaries.seen_in(log.getvalue()) == []
    assert canaries.seen_in(answers) == []
    wanted = list(commands(canaries, tmp_path))
    for delivery in deliveries:
        wanted += [("deliveries", "show", delivery), ("deliveries", "diagnose", delivery)]
    for words in wanted:
        ended = run(*words)
        assert (words, canaries.seen_in(ended.out + ended.err)) == (words, [])
    assert len(canaries.planted) >= 40
