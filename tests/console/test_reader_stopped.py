"""Routes, pages and commands while the reader is stopped: each reports unread deliveries, or
refuses. None denies an order whose payment lies in the inbox."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from unittest.mock import AsyncMock

import pytest
import typer
from starlette.routing import Route

from app.access.tokens import issue_own_token, issue_token
from app.api.operations import ApiRoute
from app.cli import main
from app.console.page_list import ACTS, PAGES
from app.receiving import caught_up, reader
from reconcile.instants import SECOND, format_instant
from tests.api.driving import driving, of_order
from tests.cli.test_commands import Run
from tests.cli.test_commands import run as run  # the fixture
from tests.console.conftest import RunningConsole
from tests.console.test_pages import shown
from tests.contexts import Here, run_here
from tests.copied import copy_of
from tests.reconcile.build import T
from tests.searching import every

UNREAD: Final = re.compile("read yet|been unread")


async def nothing(reading: Any, **_: Any) -> int:
    """Read nothing."""
    return 0


@pytest.fixture
def standing_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "read_some", nothing)
    monkeypatch.setattr(caught_up, "READ_WITHIN_S", 0.05)


@pytest.fixture
async def stopped(
    console_with_breaks: RunningConsole, standing_still: None, monkeypatch: pytest.MonkeyPatch
) -> RunningConsole:
    """Run a service and a console whose reader stands still since order NEW was paid, 7 s ago."""
    driver = console_with_breaks.driver
    run_here(monkeypatch, Here(console_with_breaks.context)())
    driver.token = await issue_token(driver.context, name="shop", by="a admin")
    driver.clock.put(T + SECOND)
    answer = await driver.send(of_order("NEW", "evt_new"))
    assert answer.json()["verdict"] == "accepted"
    driver.clock.put(T + 8 * SECOND)
    return console_with_breaks


# --- routes ---------------------------------------------------------------------------------------

SILENT_ROUTES: Final = {
    "/webhooks/{source}": "answers a provider, with the delivery's own verdict",
    "/webhooks/{source}/": "the same",
    "/livez": "tells of the process",
    "/readyz": "says itself that the reader is behind, by its status",
    "/metrics": "has the figure inbox_unread",
    "/api/v1/openapi.json": "describes the API",
    "/api/v1/checkout/sessions": "refuses a second payment of an order over what is unread",
}
"""Routes that don't speak of orders."""

REFUSING_ROUTES: Final = {
    ("GET", "/api/v1/reports"),
    ("GET", "/api/v1/journals"),
    ("POST", "/api/v1/rules/preview"),
    ("GET", "/api/v1/evidence/{reference:path}"),
}

PERIOD: Final = "from=2019-12-01&to=2019-12-31"
BODIES: Final[dict[str, Any]] = {
    "/api/v1/orders/{reference:path}": {"amount": "1500.00", "currency": "KES"},
    "/api/v1/rules/preview": {"toml": '[tolerance]\nKES = "100.00"\n'},
}


async def test_every_route_says_what_is_unread(stopped: RunningConsole) -> None:
    driver = stopped.driver
    program = await issue_token(
        driver.context,
        name="all",
        scopes=("read", "orders", "checkout", "finance", "evidence"),
        by="a admin",
    )
    person, _ = await issue_own_token(driver.context, operator="a admin", until="90d", by="a admin")
    silent = []
    for route in await driver.routes():
        assert isinstance(route, Route)
        if not isinstance(route, ApiRoute) or route.path in SILENT_ROUTES:
            silent.append(route.path)
            continue
        for method in sorted(route.scopes.keys() - {"HEAD"}):
            path = route.path
            for name in route.param_convertors:
                path = path.replace(f"{{{name}:path}}", "NEW").replace(f"{{{name}}}", "1")
            query = f"?{PERIOD}" if path.endswith(("reports", "journals")) else ""
            token = person if route.scopes[method] == "operator" else program
            answer = await driver.client.request(
                method,
                path + query,
                headers={"Authorization": f"Bearer {token}"},
                json=BODIES.get(route.path, {}) if method != "GET" else None,
            )
            asked = (method, route.path, answer.status_code, answer.text[:200])
            assert answer.headers.get("tallyhook-behind") == "7", asked
            assert answer.status_code not in (401, 403, 405, 500), asked
            refused = (method, route.path) in REFUSING_ROUTES
            assert (answer.status_code == 503) == refused, asked
            if answer.status_code == 503:
                assert answer.json()["code"] == "deliveries_unread", asked
                assert UNREAD.search(answer.json()["detail"]), asked
    assert set(silent) == set(SILENT_ROUTES)


async def test_an_order_of_which_nothing_is_read_is_not_known_yet(stopped: RunningConsole) -> None:
    answer = await stopped.driver.api("GET", "/orders/NEW")
    assert (answer.status_code, answer.headers["tallyhook-behind"]) == (404, "7")
    assert answer.json()["detail"] == (
        "Nothing is known yet of order 'NEW': accepted deliveries up to 7 s old have not been "
        "read yet; ask again later."
    )


async def test_what_was_known_before_the_unread_delivery_is_known_for_good(
    stopped: RunningConsole,
) -> None:
    driver = stopped.driver
    answer = await driver.api("GET", f"/orders/ORD-1?as_of={format_instant(T)}")
    assert "behind_s" not in answer.json()


# --- pages ----------------------------------------------------------------------------------------

SILENT_PAGES: Final = {
    "/sign-in": "nobody is signed in",
    "/sign-in/company": "nobody is signed in",
    "/sign-in/company/back": "nobody is signed in",
    "/sign-out": "nobody is signed in any more",
    "/enter": "nobody is signed in",
    "/invite": "nobody is signed in",
    "/live": "a stream that says which pages have changed",
    "/static/console.css": "a file",
    "/static/console.js": "a file",
    "/static/passkeys.js": "a file",
    "/static/icon.svg": "a file",
}
"""Addresses of the console that don't speak of orders."""


async def test_every_page_and_form_says_what_is_unread(stopped: RunningConsole) -> None:
    application = stopped.application._application
    seen, silent = set(), set()
    async with stopped.signed_in("admin") as client:
        for route in application.routes:
            assert isinstance(route, Route)
            if route.path in SILENT_PAGES:
                silent.add(route.path)
                continue
            methods = {"POST"} if route.methods == {"POST"} else {"GET"}
            for method in methods:
                path = route.path.replace("{subject:subject}", "NEW")
                seen.add(route.path)
                form = {"text": "NEW"} if method == "POST" else None
                answer = await client.request(method, path, data=form)
                asked = (method, path, answer.status_code)
                assert answer.status_code < 500, asked
                assert answer.headers.get("tallyhook-behind") == "7", asked
                if answer.headers["content-type"].startswith("text/html"):
                    assert UNREAD.search(answer.text), asked
                if path.endswith(".json"):
                    assert answer.json()["behind_s"] == 7, asked
                if path.endswith(".csv"):
                    assert "-not-all-read.csv" in answer.headers["content-disposition"], asked
    assert silent == set(SILENT_PAGES)
    assert {f"/do/{act.name}" for act in ACTS} < seen
    assert {page.path.replace("{subject}", "{subject:subject}") for page in PAGES} < seen


# --- commands -------------------------------------------------------------------------------------


def _commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


COMMANDS: Final = dict(_commands(typer.main.get_command(main.application)))


async def _with_unread(folder: Path) -> None:
    """Make a database whose inbox has the payment of order NEW, and whose service has ended."""
    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(caught_up, "READ_WITHIN_S", 0.05)
        async with driving(folder, with_worker=False) as driver:
            await driver.send(of_order("ORD-1", "evt_1"))
            patching.setattr(reader, "read_some", nothing)
            await driver.send(of_order("NEW", "evt_new"))


SILENT_COMMANDS: Final = {
    "connect": "asks a provider's account",
    "console": "serves",
    "db adopt-inbox": "changes the inbox, and nobody reads meanwhile",
    "db create": "there is no inbox yet",
    "db distribute": "nobody reads meanwhile",
    "db restored": "nobody reads meanwhile",
    "db upgrade": "nobody reads meanwhile",
    "db vacuum": "nobody reads meanwhile",
    "demo": "serves",
    "deploy list": "shows files",
    "deploy show": "shows files",
    "doctor": "has the alarm `reader`",
    "evidence verify": "judges a file alone",
    "listen": "serves",
    "log rename": "nobody reads meanwhile",
    "presets list": "shows files",
    "presets show": "shows files",
    "profiles check": "judges a file alone",
    "profiles list": "shows files",
    "profiles show": "shows files",
    "reindex": "nobody reads meanwhile",
    "report accounts": "shows files",
    "restore": "nobody reads meanwhile",
    "sandbox": "serves",
    "serve": "serves",
    "signature check": "judges requests alone",
    "trigger": "sends a test event",
    "worker": "serves",
}
"""Commands that don't speak of orders, or say by themselves how far the reader is."""

REFUSING_COMMANDS: Final = {
    "evidence build": 4,
    "evidence letter": 4,
    "erase": 4,
    "period close": 1,
    "privacy export": 4,
    "reconcile preview": 4,
    "reconcile run": 4,
    "report journal": 4,
    "report period": 4,
    "schedule run": 1,
}
"""Commands that do nothing over unread deliveries, with their exit codes."""

DAYS: Final = ("--from", "2026-11-01", "--to", "2026-11-30")
WHY: Final = ("--reason", "asked")
WORDS: Final = {
    "backup": ("backup.db",),
    "bank import": ("given.csv",),
    "breaks accept": ("brk_1", *WHY),
    "breaks assign": ("brk_1", "--to", "nobody"),
    "breaks attach": ("brk_1", "given.txt"),
    "breaks comment": ("brk_1", "--note", "looked at"),
    "breaks match": ("brk_1", "--line", "1", *WHY),
    "checkout start": ("--order", "NEW", "--amount", "9", "--currency", "KES"),
    "coverage declare": ("--source", "shop", *DAYS, *WHY),
    "deliveries replay": ("dlv_1", "--to", "http://127.0.0.1:9/webhooks/shop"),
    "erase": ("--order", "NEW", *WHY),
    "evidence attach": ("NEW", "given.txt", "--kind", "delivery"),
    "evidence build": ("ORD-1", "-o", "bundle.zip"),
    "evidence letter": ("ORD-1", "-o", "letter.html"),
    "evidence scenario": ("NEW", "-o", "scenario.txt"),
    "fees suggest": DAYS,
    "golive sign": ("secrets", "--by", "ann", "--note", "seen"),
    "late settle": ("brk_1", "--action", "refund", *WHY),
    "log rename": WHY,
    "operators add": ("ann", "--role", "admin"),
    "operators notices": ("ann", "--when", "off"),
    "operators token": ("ann", "--until", "9d"),
    "orders accept": ("NEW", "--finding", "refund_failed", *WHY),
    "orders release": ("NEW",),
    "orders unmask": ("NEW", "--purpose", "refund", *WHY),
    "period close": ("2025-10",),
    "period show": ("2025-10",),
    "privacy export": ("--order", "NEW", "--identity", "seen", "--out", "copy.zip"),
    "prove": ("--all",),
    "reconcile preview": ("--rules", "given.toml"),
    "reconcile rules save": ("given.toml",),
    "records import": ("given.csv",),
    "report journal": DAYS,
    "report period": DAYS,
    "schedule run": ("nightly",),
    "statement import": ("given.csv",),
    "unallocated assign": ("R1", "--order", "ORD-1", *WHY),
    "unallocated dismiss": ("R1", "--as", "to_refund", *WHY),
}
"""Arguments of commands that do not take just any word."""


def needed_by(command: Any) -> list[str]:
    """Return a word for each argument and option that a command must have."""
    words: list[str] = []
    for each in command.params:
        if each.required:
            words += [each.opts[0], "1"] if each.param_type_name == "option" else ["1"]
    return words


SPEAKING: Final = [
    *sorted(COMMANDS.keys() - SILENT_COMMANDS.keys() - REFUSING_COMMANDS.keys())[:: every(3)],
    *REFUSING_COMMANDS,
]
"""Commands that are played: those that refuse, and all others or a third of them."""


@pytest.mark.parametrize("name", SPEAKING)
def test_every_command_says_what_is_unread(
    name: str, run: Run, standing_still: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy_of(_with_unread, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TALLYHOOK_SCHEDULE", "nightly | 30 2 * * * | reconcile")
    monkeypatch.setenv("TALLYHOOK_RETENTION_DAYS", "365")
    for each in ("given.csv", "given.txt", "given.toml"):
        (tmp_path / each).write_text("")
    ended = run(*name.split(), *WORDS.get(name, needed_by(COMMANDS[name])))
    assert UNREAD.search(ended.err), ended
    if name in REFUSING_COMMANDS:
        assert ended.code == REFUSING_COMMANDS[name], ended


async def test_now_does_not_say_that_nobody_is_needed_while_deliveries_are_unread(
    stopped: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.console.orders_pages.newest_orders", AsyncMock(return_value=[]))
    async with stopped.signed_in("support") as client:
        page = shown((await client.get("/")).text)
    assert "There is no order yet" not in page
    assert "No order waits for anybody" not in page
    assert re.search(r"No order that was judged waits .* to be read [1-9]", page), page[:2000]
