"""A console over a service with some orders, and clients of it that are signed in."""

import csv
import io
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from html import unescape
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.access.operators import ROLES, register_operator
from app.access.session_store import add_session
from app.access.tokens import issue_token
from app.config.load import load_settings
from app.console.application import build_console
from app.console.view import Console
from app.context.context import AppContext
from app.core.cells import BYTE_ORDER_MARK
from app.core.ids import new_token
from app.core.jobs import Jobs
from app.finance.imports import ImportRequest, import_bank, import_statement
from app.finance.reconcile_period import RunRequest, reconcile_period
from app.privacy.erase import ErasureRequest, propose_erasure
from app.wiring.serving import console_of
from reconcile.instants import DAY, LATEST, MINUTE, Instant, format_instant
from tests.api.driving import Driver, driving, environ, event, of_order, signed
from tests.contexts import Here
from tests.copied import copy_of
from tests.finance.loading import cover
from tests.waiting import PATIENCE_S, soon

PORT = 8081
ORIGIN = f"http://127.0.0.1:{PORT}"
PHONE = "254712345678"
AWKWARD = "ORD-2/b c.json"
SAME_SITE = {"Sec-Fetch-Site": "same-origin"}


async def session_for(context: AppContext, name: str) -> str:
    """Return a session's cookie without the form."""
    token = new_token("")
    async with context.database.writing() as connection:
        now = context.clock.now()
        await add_session(connection, token=token, name=name, now=now, until=now + 7 * DAY)
    return token


@dataclass
class RunningConsole:
    """A console that answers without a socket."""

    console: Console
    application: Any
    driver: Driver

    @property
    def context(self) -> AppContext:
        return self.console.context

    @asynccontextmanager
    async def client(
        self, token: str = "", *, address: str = "192.0.2.7", **headers: str
    ) -> AsyncIterator[httpx2.AsyncClient]:
        transport = httpx2.ASGITransport(app=self.application, client=(address, 4711))
        cookies = {self.console.cookie: token} if token else {}
        async with httpx2.AsyncClient(
            transport=transport, base_url=ORIGIN, cookies=cookies, headers=headers
        ) as client:
            yield client

    @asynccontextmanager
    async def signed_in(self, role: str) -> AsyncIterator[httpx2.AsyncClient]:
        token = await session_for(self.context, f"a {role}")
        async with self.client(token, **SAME_SITE) as client:
            yield client


async def with_orders(folder: Path) -> None:
    """Write a paid order, a declined one, a refused delivery, and an operator of each role."""
    async with driving(folder) as driver:
        await driver.send(event("evt_1", customer={"phone": f"+{PHONE}"}))
        await driver.send(of_order(AWKWARD, "evt_2", "declined"))
        body = json.dumps(event("evt_3", customer={"phone": f"+{PHONE}"})).encode()
        refused = signed(body, at=driver.clock.now(), key=b"another key altogether")
        await driver.send(body, refused)
        await soon(lambda: len(driver.rows("SELECT 1 FROM revisions")) >= 2)
        context = driver.service.context
        await register_operator(context, name="a admin", role="admin", by=None)
        for role in ROLES:
            if role != "admin":
                await register_operator(context, name=f"a {role}", role=role, by="a admin")


async def with_breaks(folder: Path) -> None:
    """Add an order paid twice, one paid in another currency, and a run."""
    copy_of(with_orders, folder)
    async with driving(folder) as driver:
        await driver.send(event("evt_9", payment={"reference": "pay_2", "amount": 1500}))
        for number, claim in enumerate(("pay_a", "pay_b")):
            payment = {"reference": claim, "amount": 20, "currency": "USD"}
            order = {"reference": "ORD-USD", "amount": 20, "currency": "USD"}
            session = {"reference": "cs_usd"}
            name = f"evt_usd_{number}"
            await driver.send(event(name, order=order, session=session, payment=payment))
        await reconcile_period(driver.service.context, RunRequest(), progress=lambda _: None)
        await issue_token(driver.service.context, name="books", by="a admin")


@asynccontextmanager
async def console_over(
    folder: Path, *, folding: bool = False, **more: str
) -> AsyncIterator[RunningConsole]:
    """Run a console over a service on this database, which reads, and folds if asked to; more:
    settings."""
    async with driving(folder, with_worker=folding) as driver:
        mappings = folder / "mappings"
        mappings.mkdir()
        settings = load_settings(environ(folder, CONSOLE__MAPPINGS=str(mappings), **more))
        context = replace(driver.service.context, settings=settings)
        made = console_of(context, host="127.0.0.1", port=PORT, elsewhere=Here(context))
        # However busy the machine is, a page shows what its job has come to.
        console = replace(made, jobs=Jobs(driver.clock, patience_s=PATIENCE_S))
        yield RunningConsole(console=console, application=build_console(console), driver=driver)
        await console.jobs.close()
        console.uploads.close()


@pytest.fixture
def folding() -> None:
    """Have the service of `console` or `console_with_breaks` fold, which takes as long as most of
    what is tested with them."""


@pytest.fixture
async def console(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[RunningConsole]:
    """Run a console with orders, and an operator of each role."""
    copy_of(with_orders, tmp_path)
    async with console_over(tmp_path, folding="folding" in request.fixturenames) as running:
        yield running


@pytest.fixture
async def console_with_breaks(
    tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[RunningConsole]:
    """Run a console that also has breaks and a run."""
    copy_of(with_breaks, tmp_path)
    async with console_over(tmp_path, folding="folding" in request.fixturenames) as running:
        yield running


async def settle_orders(console: RunningConsole) -> None:
    """Import a statement of the order that is paid, and declare that the files cover all."""
    context, path = console.context, console.driver.path.parent / "settled.csv"
    at = format_instant(context.clock.now())
    path.write_text(
        "payment_reference,order_reference,gross,currency,settled_at\n"
        f"pay_1,ORD-1,1500.00,KES,{at}\n"
    )
    await import_statement(context, ImportRequest(path=path, by="a finance"), source="shop")
    await cover(context.database, at=context.clock.now(), until=LATEST)


async def import_bank_and_statement(console: RunningConsole) -> None:
    """Import a payout that the bank has booked, one that it has not, and a foreign booking."""
    folder = console.driver.path.parent
    statement, bank = folder / "s.csv", folder / "b.csv"
    statement.write_text(
        "payment_reference,gross,currency,settled_at,payout\n"
        "p1,5.00,KES,2026-10-05,PO-100200\np2,6.00,KES,2026-10-09,PO-100201\n"
    )
    bank.write_text(
        "booked_at,amount,currency,counterparty,text\n"
        "2026-10-06,5.00,KES,Wanjiku,PO-100200\n2026-10-07,7.00,KES,Wanjiku,\n"
    )
    days = ("2026-10-01", "2026-10-31")
    settled = ImportRequest(path=statement, by="a finance", days=days)
    await import_statement(console.context, settled, source="shop")
    booked = ImportRequest(path=bank, account="main", by="a finance", days=days)
    await import_bank(console.context, booked)
    console.driver.clock.put(Instant(console.driver.clock.now() + MINUTE))


def hidden_in(page: str) -> dict[str, str]:
    """Return the hidden fields of a page."""
    found = re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', page)
    return {name: unescape(value) for name, value in found}


async def of_form(client: httpx2.AsyncClient, path: str) -> str:
    """Return the once-only id of the form at an address."""
    return hidden_in((await client.get(path)).text)["form"]


async def send(client: httpx2.AsyncClient, path: str, **fields: str) -> httpx2.Response:
    """Open a form and send it with its hidden fields."""
    hidden = hidden_in((await client.get(path)).text)
    assert "form" in hidden, path
    return await client.post(path, data=hidden | fields)


def rows_of(answer: httpx2.Response) -> list[dict[str, str]]:
    """Return the rows of a list's CSV after its byte order mark."""
    text = answer.content.decode()
    assert text.startswith(BYTE_ORDER_MARK)
    return list(csv.DictReader(io.StringIO(text[1:], newline="")))


async def erasure_proposed(context: AppContext, asked: ErasureRequest) -> str:
    """Propose an erasure; return the proposal's id."""
    proposal = await propose_erasure(context, asked)
    assert proposal is not None
    return proposal.id
