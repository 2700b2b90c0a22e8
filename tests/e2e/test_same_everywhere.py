"""One order is shown in one way: API, commands, console, feed, notification, evidence, lists as CSV
and the report say the same outcome, money, times and sentences of every scenario of the sandbox."""

import asyncio
import contextlib
import csv
import io
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from app.access.operators import register_operator
from app.cli import main
from app.cli.demo import AMOUNT, CURRENCY, order_of
from app.config.load import load_settings
from app.console.application import build_console
from app.console.orders_pages import order_money, sentence_of
from app.core.clock import SystemClock
from app.core.zones import local_text
from app.evidence.verify_archive import unpack
from app.orders.ledger_store import feed as published_after
from app.orders.notify_shop import notification_body
from app.orders.read_orders import OrderRowDocument
from app.orders.refold import refold_until_quiet
from app.orders.shop_facts_store import ShopFacts
from app.providers.profile import load_profile
from app.providers.source import Source
from app.sandbox.scenarios import SCENARIOS
from app.wiring.serving import console_of
from reconcile.instants import HOUR, Instant, format_instant
from tests.api.driving import SECRET, Driver, driving, environ, secret
from tests.console.conftest import PORT, RunningConsole
from tests.console.test_pages import shown
from tests.contexts import Here
from tests.evidence.conftest import build
from tests.sandbox.harness import START, world
from tests.searching import every

ORDERS: Final = sorted(order_of(each) for each in SCENARIOS.values())
SIDES: Final = ("expected", "captured", "refunded")
REPORTED: Final = ("sum", "captured", "refunded")
"""Names of the sides in a report."""


@dataclass
class Installation:
    """A service that has heard all scenarios, and every way to ask it."""

    driver: Driver
    console: RunningConsole
    folder: Path
    moments: list[Instant]
    """Instants at which something arrived."""

    async def api(self, path: str, **words: str) -> Any:
        answer = await self.driver.api("GET", path, params=words)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def command(self, *words: str, code: int = 0) -> str:
        """Run a command; return what it prints before it ends with this code."""
        written = io.StringIO()

        def work() -> None:
            with contextlib.redirect_stdout(written):
                assert main.run(words) == code

        await asyncio.to_thread(work)
        return written.getvalue()

    async def page(self, path: str, **words: str) -> str:
        """Return the text of a page of the console."""
        async with self.console.signed_in("admin") as client:
            answer = await client.get(path, params=words)
        assert answer.status_code == 200, answer.text
        return answer.text


async def play(driver: Driver) -> list[Instant]:
    """Play all scenarios at once, as the sandbox sends them; the shop states every price. Return
    the instants of arrival."""
    moments: list[Instant] = []

    async def receive(request: httpx2.Request) -> httpx2.Response:
        driver.clock.put(max(driver.clock.now(), sandbox.clock.now()))
        moments.append(driver.clock.now())
        answer = await driver.send(request.content, request.headers.raw)
        await refold_until_quiet(driver.context, limit=50, progress=lambda count: None)
        return httpx2.Response(answer.status_code)

    signer = Source(name="shop", profile=load_profile("checkout"), secrets=[SECRET])
    async with world(signer=signer, receive=receive) as sandbox:
        for each in SCENARIOS.values():
            order = order_of(each)
            price = {"amount": AMOUNT, "currency": CURRENCY}
            assert (await driver.api("PUT", f"/orders/{order}", json=price)).status_code == 200
            for _ in range(each.refusals + 1):
                with suppress(ConnectionAbortedError):
                    await sandbox.open(f"2547000000{each.ending}", reference=order)
        await sandbox.drained()
    driver.clock.put(driver.clock.now() + HOUR)
    await refold_until_quiet(driver.context, limit=50, progress=lambda count: None)
    return sorted(set(moments))


@pytest.fixture
async def installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Installation]:
    """Orders, and a console over them; commands have the service's clock."""
    shop: dict[str, Any] = {
        "SHOP__URL": "https://shop.example/told",
        "SHOP__SECRET": secret(b"another key"),
    }
    async with driving(tmp_path, with_worker=False, looking=True, at=START, **shop) as driver:
        monkeypatch.setattr(SystemClock, "now", lambda self: driver.clock.now())
        for name, value in environ(tmp_path, **shop).items():
            monkeypatch.setenv(name, value)
        moments = await play(driver)
        await register_operator(driver.context, name="a admin", role="admin", by=None)
        monkeypatch.setenv("TALLYHOOK_OPERATOR", "a admin")
        context = replace(driver.service.context, settings=load_settings(environ(tmp_path)))
        made = console_of(context, host="127.0.0.1", port=PORT, elsewhere=Here(context))
        running = RunningConsole(made, build_console(made), driver)
        yield Installation(driver, running, tmp_path, moments)
        await made.jobs.close()
        made.uploads.close()


async def _same_order(installation: Installation, order: str, *, as_of: Instant | None) -> None:
    """Compare all ways to ask for one order's ledger."""
    then = installation.driver.clock.now() if as_of is None else as_of
    query = {} if as_of is None else {"as_of": format_instant(as_of)}
    words = () if as_of is None else ("--as-of", format_instant(as_of))
    asked = await installation.driver.api("GET", f"/orders/{order}", params=query)
    if asked.status_code == 404:
        await _unknown_then(installation, order, asked.json()["detail"], moment=query["as_of"])
        return
    ledger: dict[str, Any] = asked.json()
    plain = ledger["plain"]["answer"]
    shown_by = ("orders", "show", order, *words)
    assert json.loads(await installation.command(*shown_by, "--format", "json")) == ledger
    read = await installation.command(*shown_by)
    for sentence in (*plain, *ledger["staff"], *(each["plain"] for each in ledger["findings"])):
        assert " ".join(sentence.split()) in " ".join(read.split()), order
    document = json.loads(await installation.page(f"/orders/{order}.json", **query))
    assert document["answer"] == " ".join(plain)
    assert document["money"] == order_money(ledger)
    assert document["sentences"] == [sentence_of(each) for each in ledger["explanation"]]
    rest = {name: value for name, value in ledger.items() if name != "explanation"}
    assert document["ledger"] == rest
    html = _letters(shown(await installation.page(f"/orders/{order}", **query)))
    for each in document["sentences"]:
        assert _letters(local_text(each["text"], UTC)) in html, order
    assert ledger["as_of"] == format_instant(then)
    await _same_evidence(installation, ledger, then)


def _letters(text: str) -> str:
    """Remove blanks and full stops, which differ where there is markup."""
    return re.sub(r"[\s.]", "", text)


async def _unknown_then(
    installation: Installation, order: str, sentence: str, *, moment: str
) -> None:
    """Check that what came later was not known by then, in the same words everywhere."""
    assert sentence.endswith(f"as of {moment}; evidence arrived later.")
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        await installation.command("orders", "show", order, "--as-of", moment, code=5)
    assert sentence[1:].rstrip(".") in said.getvalue()
    async with installation.console.signed_in("admin") as client:
        page = await client.get(f"/orders/{order}", params={"as_of": moment})
    assert page.status_code == 404
    assert _letters(local_text(sentence, UTC)) in _letters(shown(page.text))


BESIDE: Final = ("fulfilled_at", "canceled_at", "expected_by", "method_class", "revocable_until")
"""Members of a document that its ledger and bundle lack."""


async def _same_evidence(
    installation: Installation, ledger: dict[str, Any], as_of: Instant
) -> None:
    """Check the bundle as of the instant that the ledger was read at."""
    members = unpack(await build(installation.driver, ledger["order"], as_of=as_of))
    findings = [
        {name: value for name, value in each.items() if name not in ("plain", "staff")}
        for each in ledger["findings"]
    ]
    outside = ("plain", "staff", "pruned", *BESIDE)
    read = {name: value for name, value in ledger.items() if name not in outside}
    assert json.loads(members["ledger.json"]) == read | {"findings": findings}
    explained, letter = members["explanation.txt"].decode(), shown(members["report.html"].decode())
    for sentence in (*ledger["explanation"], *ledger["plain"]["answer"]):
        assert sentence in explained
    assert all(sentence in letter for sentence in ledger["plain"]["answer"])


async def test_every_order_is_described_the_same(installation: Installation) -> None:
    """Now, and as it could be known while the events came."""
    for order in ORDERS[:: every(2)]:
        for moment in (installation.moments[len(installation.moments) // 2], None):
            await _same_order(installation, order, as_of=moment)


def _as_listed(ledger: dict[str, Any]) -> dict[str, Any]:
    """Return a list's row of an order, by its ledger."""
    return {name: ledger[name] for name in OrderRowDocument.__annotations__} | {
        "findings": list(dict.fromkeys(each["code"] for each in ledger["findings"])),
        "plain": ledger["plain"]["answer"][0],
        "explanation": ledger["explanation"][0],
    }


def _lines(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))


def _written(money: dict[str, str] | None) -> str:
    return "" if money is None else f"{money['currency']} {money['amount']}"


async def test_lists_say_what_orders_say(installation: Installation) -> None:
    """The API's, the command's as JSON and CSV, and the console's as JSON and CSV."""
    rows = {order: _as_listed(await installation.api(f"/orders/{order}")) for order in ORDERS}
    assert (await installation.api("/orders"))["orders"] == list(rows.values())
    by_command = json.loads(await installation.command("orders", "list", "--format", "json"))
    assert by_command == list(rows.values())
    lines = _lines(await installation.command("orders", "list", "--format", "csv"))
    assert [each["order"] for each in lines] == ORDERS
    shown_by_console = json.loads(await installation.page("/orders.json"))["orders"]
    console_lines = _lines(await installation.page("/orders.csv"))
    assert sorted(each["order"] for each in shown_by_console) == ORDERS
    for line in (*lines, *shown_by_console, *console_lines):
        row = rows[line["order"]]
        assert line["outcome"] == row["outcome"]
        assert line["fulfillable"] in (row["fulfillable"], "yes" if row["fulfillable"] else "no")
        named = line["findings"]
        assert (re.findall(r"\w+", named) if isinstance(named, str) else named) == row["findings"]
        assert (line.get("explanation", row["explanation"])) == row["explanation"]
        assert (line.get("sentence", row["plain"])) == row["plain"]
    for line in lines:
        assert line["captured"] == _written(rows[line["order"]]["totals"]["captured"])
    for each, line in zip(shown_by_console, console_lines, strict=True):
        assert each["totals"] == rows[each["order"]]["totals"]
        for name in ("expected", "captured"):
            words = f"{line[f'totals_{name}_currency']} {line[f'totals_{name}_amount']}"
            assert words == _written(each["totals"][name])


def _picked(rows: Iterable[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


async def test_what_is_published_is_what_orders_say(installation: Installation) -> None:
    """In the feed, in what the shop is posted, by the command, on the console, in the bundle: each
    change the same, and an order's last one is what the order says."""
    feed = (await installation.api("/outcomes"))["outcomes"]
    async with installation.driver.context.database.reading() as connection:
        published = await published_after(connection, after=0, limit=1_000)
    assert [json.loads(notification_body(each, ShopFacts()))["data"] for each in published] == feed
    listed = json.loads(await installation.command("notifications", "list", "--format", "json"))
    assert _picked(listed[::-1], "id", "order", "outcome", "published_at") == _picked(
        feed, "id", "order", "outcome", "at"
    )
    for order in ORDERS:
        own = [each for each in feed if each["order"] == order]
        ledger = await installation.api(f"/orders/{order}")
        assert _picked(own[-1:], "outcome", "fulfillable") == _picked(
            [ledger], "outcome", "fulfillable"
        )
        assert own[-1]["because"][0] == ledger["explanation"][0]
        for earlier, later in pairwise(own):
            assert _picked([later["before"]], "outcome", "fulfillable") == _picked(
                [earlier], "outcome", "fulfillable"
            )
        document = json.loads(await installation.page(f"/orders/{order}.json"))
        same = ("outcome", "fulfillable", "at")
        assert _picked(document["published"][::-1], "revision", *same) == _picked(own, "id", *same)
        now = installation.driver.clock.now()
        members = unpack(await build(installation.driver, order, as_of=now))
        bundled = json.loads(members["revisions.json"])
        assert _picked(bundled, "seq", *same, "because") == _picked(own, "id", *same, "because")


async def test_the_report_adds_up_what_orders_say(installation: Installation) -> None:
    """Orders by outcome with their money, as JSON and CSV; and its journal has their entries."""
    ledgers = [await installation.api(f"/orders/{order}") for order in ORDERS]

    async def reported(what: str, form: str) -> str:
        file = installation.folder / f"{what}.{form}"
        days = ("--from", "2026-11-20", "--to", "2026-11-20")
        await installation.command("report", what, *days, "--format", form, "-o", str(file))
        return file.read_text(encoding="utf-8")

    sums = {}
    for outcome, count in Counter(each["outcome"] for each in ledgers).items():
        own = [each["totals"] for each in ledgers if each["outcome"] == outcome]
        sides = [sum(Decimal(each[side]["amount"]) for each in own) for side in SIDES]
        sums[outcome] = (count, *sides)
    report = json.loads(await reported("period", "json"))
    assert {
        each["bucket"]: (each["count"], *(Decimal(each[name]["amount"]) for name in REPORTED))
        for each in report["control"]
    } == sums
    control = [
        each for each in _lines(await reported("period", "csv")) if each["section"] == "control"
    ]
    assert {
        each["bucket"]: (int(each["count"]), *(Decimal(each[name]) for name in REPORTED))
        for each in control
    } == sums
    moved = [
        (each["order"], entry["kind"], entry["attempt"], Decimal(entry["money"]["amount"]), cites)
        for each in ledgers
        for entry in each["entries"]
        for cites in entry["cites"][:1]
    ]
    clearing = [
        (each["order"], each["what"], each["payment"], Decimal(each["amount"]), each["cites"])
        for each in _lines(await reported("journal", "csv"))
        if each["account"].startswith("Assets:Clearing")
    ]
    assert sorted(clearing) == sorted(moved)
