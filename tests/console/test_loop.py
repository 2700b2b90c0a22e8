"""Long computations: they run outside the console's loop, so other pages answer meanwhile.

A use case that the console gives away runs here in the same loop, with its processor time counted
apart. The longest step of the loop without that time is a small part of what the act takes.
"""

import asyncio
import gc
import re
import threading
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import thread_time
from typing import Any, Final

import httpx2
import pytest

from app.access.operators import Proven, register_operator
from app.access.tokens import issue_token
from app.api import routes
from app.console.application import build_console
from app.console.page_list import ACTS
from app.console.security import RateLimiter
from app.core import jobs
from app.evidence.seal import open_signer, seal_all
from app.orders import read_orders
from app.privacy.erase import ErasureRequest
from reconcile.instants import MINUTE, Instant
from tests.access.authenticator import Authenticator
from tests.api.driving import driving, event
from tests.console.conftest import (
    PHONE,
    RunningConsole,
    console_over,
    erasure_proposed,
    hidden_in,
    session_for,
    with_breaks,
)
from tests.console.test_cases import PDF
from tests.console.test_imports import BANK as STATEMENT_OF_BANK
from tests.console.test_pages import proposed, shown
from tests.console.test_passkeys import NAMED, options_in
from tests.console.test_signing_in import NEW, PASSWORD, code_now, invited
from tests.copied import copy_of
from tests.waiting import soon

DELIVERIES = 60
"""Deliveries of the heavy order."""


async def with_heavy_order(folder: Path) -> None:
    """Add an order with many deliveries, all sealed."""
    copy_of(with_breaks, folder)
    async with driving(folder, looking=True) as driver:
        for number in range(DELIVERIES):
            await driver.send(event(f"evt_h{number}", "declined"))
        context = driver.service.context
        await soon(lambda: driver.rows("SELECT count(*) FROM deliveries") >= [(DELIVERIES + 5,)])
        await seal_all(context, await open_signer(context))


@dataclass
class Steps:
    """Processor seconds of the loop: given away, and of the longest step that was not."""

    elsewhere: float = 0.0
    longest: float = 0.0
    total: float = 0.0


class Counted:
    """Awaits a use case, and counts the time of its steps as spent elsewhere."""

    def __init__(self, work: Any, steps: Steps) -> None:
        self._work, self._steps = work, steps

    def __await__(self) -> Generator[Any, Any, Any]:
        steps, given = self._work.__await__(), None
        while True:
            began = thread_time()
            try:
                waiting = steps.send(given)
            except StopIteration as ended:
                return ended.value
            finally:
                self._steps.elsewhere += thread_time() - began
            given = yield waiting


@asynccontextmanager
async def watched(steps: Steps) -> AsyncIterator[None]:
    """Measure each turn of the loop meanwhile."""

    async def tick() -> None:
        while True:
            now, away = thread_time(), steps.elsewhere
            await asyncio.sleep(0)
            step = thread_time() - now - (steps.elsewhere - away)
            steps.total += step
            steps.longest = max(steps.longest, step)

    ticking = asyncio.create_task(tick())
    gc.disable()  # its pauses are of what other tests have left
    try:
        yield
    finally:
        gc.enable()
        ticking.cancel()
        with suppress(asyncio.CancelledError):
            await ticking


def apart(console: RunningConsole, steps: Steps) -> RunningConsole:
    """Return the console with the time of what it gives away counted apart."""

    def counted(work: Any) -> Any:
        async def run(*args: Any, **words: Any) -> Any:
            return await Counted(work(*args, **words), steps)

        return run

    made = console.console
    away = ("work", "makes", "reads_rules", "approve")
    made = replace(made, **{name: counted(getattr(made, name)) for name in away})
    return replace(console, console=made, application=build_console(made))


READS: Final = "/api/v1/orders/ORD-1", "/api/v1/orders?limit=9", "/orders/ORD-1"


@pytest.mark.usefixtures("database_in_threads")
@pytest.mark.parametrize("read", READS)
async def test_an_order_with_many_deliveries_is_computed_in_another_thread(
    read: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the API and of the console: the fold, the document, and the answer's fingerprint."""
    copy_of(with_heavy_order, tmp_path)
    monkeypatch.setattr(jobs, "LARGE", DELIVERIES)
    here, there = list[str](), list[str]()

    def noted(name: str, work: Any) -> Any:
        def noting(*args: Any, **words: Any) -> Any:
            in_loop = threading.current_thread() is threading.main_thread()
            if name != "fold" or len(args[0].deliveries) >= DELIVERIES:
                (here if in_loop else there).append(name)
            return work(*args, **words)

        return noting

    for module, name in ((read_orders, "fold"), (read_orders, "_document"), (routes, "_if_new")):
        monkeypatch.setattr(module, name, noted(name, getattr(module, name)))
    async with console_over(tmp_path) as running:
        if read.startswith("/api"):
            driver = running.driver
            driver.token = await issue_token(driver.context, name="shop", by="a admin")
            answer = await driver.api("GET", read.removeprefix("/api/v1"))
        else:
            async with running.signed_in("admin") as client:
                answer = await client.get(read)
    assert answer.status_code == 200
    assert (here, "fold" in there) == ([], True)


ROWS: Final = 2_000
"""Rows of a file that is uploaded."""

WRITTEN: Final = [f"p{number},{number}.50,KES,2026-11-21" for number in range(1, ROWS + 1)]
STATEMENT: Final = "\n".join(("payment_reference,gross,currency,settled_at", *WRITTEN)).encode()
OWN: Final = "\n".join(("Beleg,Eingang,Geld,Datum", *WRITTEN)).encode()
BANK: Final = STATEMENT_OF_BANK.replace(b"KES1258,32\n", b"KES1258,30\n")
COLUMNS: Final = {
    "column.payment_reference": "Beleg", "column.gross": "Eingang", "column.currency": "Geld",
    "column.settled_at": "Datum", "dates": "iso", "numbers": ".,", "source": "shop",
}  # fmt: skip
PHONES: Final = {"what": "phone", "subject": f"+{PHONE}"}


def given(act: str, query: str = "", /, **fields: Any) -> tuple[str, str, dict[str, Any]]:
    """Return a row of PLAYED: an action, the query of its form, and the fields that are typed."""
    return act, query, fields


PLAYED: Final = (
    given("evidence", "order=ORD-1"),
    given("prove", "order=ORD-1"),
    given("tell-again", "order=ORD-1"),
    given("redeliver", "number={revision}"),
    given("redeliver-all", "state=dead"),
    given("reverify"),
    given("unmask", "order=ORD-1"),
    given("unmask-many", orders="ORD-1", purpose="payment"),
    given("see-numbers", "proposal={unmask-many}", **{"as": "page"}),
    given("body", "delivery={delivery}"),
    given("accept-finding", "order=ORD-1", finding="paid_twice"),
    given("release", "order=ORD-1"),
    given("note", "order=ORD-1"),
    given("pin", "order=ORD-1"),
    given("unpin", "order=ORD-1"),
    given("save-list", "list=orders", label="mine"),
    given("drop-list", "list=orders&label=mine"),
    given("take-alarm", "alarm=held"),
    given("attach", "order=ORD-1", kind="other", note="a porch", file=PDF),
    given("letter", "order=ORD-1", ending="html"),
    given("exhibit", "order=ORD-1&attachment={attachment}"),
    given("copy", **PHONES, attachments="yes"),
    given("take-copy", "proposal={copy}", again=f"+{PHONE}"),
    given("detach", "order=ORD-1&attachment={attachment}"),
    given("erase", what="order", subject="ORD-1"),
    given("test-event", event="succeeded", service="http://127.0.0.1:9"),
    given("assign", "break={break}", to="a support"),
    given("comment", "break={break}"),
    given("match", "break={break}", line="1"),
    given("unmatch", "break={break}"),
    given("accept", "break={break}"),
    given("reject", "proposal={to-reject}"),
    given("settle", "break={late}", action="refund"),
    given("dismiss-payment", "payment=shop:till-1", **{"as": "to_refund"}),
    given("withdraw", "proposal={dismiss-payment}"),
    given("assign-payment", "payment=shop:till-1", order="ORD-1"),
    given("withdraw-payment", "payment=shop:till-1"),
    given("upload", kind="statement", source="shop", file=STATEMENT),
    given("read-as", "upload={upload}", kind="statement", source="shop"),
    given("import", "upload={upload}"),
    given("withdraw-import", "import={import}"),
    given("upload", kind="statement", source="shop", file=STATEMENT),
    given("import-all"),
    given("declare-coverage", name="statement shop", first_day="2026-10-01", last_day="2026-10-20"),
    given("withdraw-coverage", "number={coverage}"),
    given("upload", kind="bank", file=BANK),
    given("accept-balance-difference", "upload={upload}"),
    given("upload", kind="statement", source="shop", file=OWN),
    given("map-columns", "upload={upload}&kind=statement", **COLUMNS),
    given("save-mapping", "upload={upload}", name="our till"),
    given("discard", "upload={upload}"),
    given("drop-mapping", "mapping=our%20till"),
    given("try-folder"),
    given("run"),
    given("close", "month={month}"),
    given("reopen", "month={month}"),
    given("add-rule", "rule=limit", currency="KES", accept_alone_max="5.00"),
    given("preview-rules", rules='[tolerance]\nKES = "1.00"\n'),
    given("save-rules", "preview={preview-rules}"),
    given("rotate-key"),
    given("verify-log"),
    given("invite", name="a new one", role="viewer"),
    given("disable", "operator=a+viewer"),
    given("end-sessions", "operator=a+support"),
    given("add-token", name="more", read="yes"),
    given("revoke-token", "token=books"),
    given("run-checks"),
    given("sign-item", "item=rollback"),
    given("end-own-session", "session=others"),
    given("second-factor"),
    given("add-passkey", label="the grey one"),
    given("remove-passkey", "passkey={passkey}"),
    given("link-company"),
    given("choose-notices", pace="at_once", way="mail"),
    given("approve", "proposal={to-approve}"),
    given("change-password", new=NEW, again=NEW),
)
"""Every action, in an order in which one leaves what another needs."""

REFUSED: Final = {
    "reverify": "0 would be accepted",
    "release": "This order is not held",
    "take-alarm": "This alarm has ended",
    "test-event": "a source whose provider documents its events",
    "match": "1 is not an unmatched line",
    "unmatch": "This break was not matched by hand",
    "try-folder": "reads 0 files again",
    "close": "2026-11 can be closed from 2026-12-11",
    "reopen": "no month is closed",
    "link-company": "There is nothing to link",
    "choose-notices": "Nothing was done",  # no way to notify is set up
}
"""Actions that this world refuses, with the reason on the page. `match` and `close` are refused
after all else is checked or computed; the others before their work."""

GIVEN_AWAY: Final = {
    "add-rule", "approve", "close", "evidence", "import", "import-all", "letter", "map-columns",
    "preview-rules", "prove", "read-as", "run", "run-checks", "save-rules", "take-copy", "upload",
    "verify-log", "withdraw-import",
}  # fmt: skip
"""Actions that let another process do what takes long, or a job that awaits one."""

APPROVED: Final = {
    "see-numbers": "unmask-many", "take-copy": "copy", "withdraw-payment": "assign-payment",
}  # fmt: skip
"""Actions that need another operator's approval of what an earlier one proposed."""

LOOKED_UP: Final = {
    "attachment": "SELECT id FROM attachments LIMIT 1",
    "coverage": "SELECT max(rowid) FROM coverage WHERE reason <> ''",
    "delivery": "SELECT id FROM deliveries LIMIT 1",
    "passkey": "SELECT id FROM passkeys LIMIT 1",
    "revision": "SELECT seq FROM revisions LIMIT 1",
}
"""Queries of further ids, by the name that stands in PLAYED."""

MOST_S: Final = 0.05
"""Processor seconds of the loop that a step of an action may take. The longest takes 0.01."""


async def with_subjects(console: RunningConsole) -> dict[str, str]:
    """Add what actions are about. Return its ids by the name that stands in PLAYED."""
    context, driver = console.context, console.driver
    await register_operator(context, name="Bea", role="admin", by="a admin")
    await invited(console, "a admin")
    await session_for(context, "a admin")
    till = {"reference": "till-1"}
    await driver.send(event("till", order=None, session=None, payment=till))
    async with context.database.writing() as connection:
        await connection.exec_driver_sql(
            "INSERT INTO notifications (seq, order_key, since, due_at, tries, problem) "
            "SELECT seq, order_key, at, NULL, 9, 'status_503' FROM revisions"
        )
    async with console.signed_in("finance") as client:
        found = [each["id"] for each in (await client.get("/breaks.json")).json()["breaks"]]
        late = (await client.get("/late.json")).json()["late"][0]["id"]
        month = (await client.get("/periods.json")).json()["open"][0]["period"]
    erased = ErasureRequest(order="ORD-1", reason="asked", by=Proven("Bea"))
    return {
        "break": next(each for each in found if each != late), "late": late, "month": month,
        "to-reject": await proposed(console, late),
        "to-approve": await erasure_proposed(context, erased),
    }  # fmt: skip


async def play(
    console: RunningConsole, client: httpx2.AsyncClient, path: str, fields: dict[str, Any],
    steps: Steps,
) -> httpx2.Response:  # fmt: skip
    """Open a form and send it, and measure both."""
    async with watched(steps):
        page = (await client.get(path)).text
    sent = {"form": path, "reason": "as agreed", "password": PASSWORD}
    sent |= hidden_in(page) | fields
    if "totp" in sent:
        sent["code"] = code_now(console, sent["totp"])
    if "data-passkey" in page:
        sent["passkey"] = Authenticator(NAMED).make(options_in(page))
    content = sent.pop("file", None)
    files = (
        None if content is None else {"file": ("a.pdf" if "attach" in path else "a.csv", content)}
    )
    async with watched(steps):
        return await client.post(path, data=sent, files=files)


@pytest.mark.costly
async def test_no_act_computes_for_long_in_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every action of the console is played, and gives away its work where GIVEN_AWAY says so.
    What an action in REFUSED does after its refusal is not measured."""
    copy_of(with_heavy_order, tmp_path)
    monkeypatch.setattr(RateLimiter, "take", lambda _limiter, _name: True)
    longest, refused, given_away = dict[str, float](), dict[str, str](), set[str]()
    async with console_over(tmp_path) as running:
        known, clock = await with_subjects(running), running.driver.clock
        async with apart(running, steps := Steps()).signed_in("admin") as client:
            for act, query, fields in PLAYED:
                if act in APPROVED:
                    proposal = known[APPROVED[act]]
                    await running.console.proposals.approve(
                        proposal, by=Proven("Bea"), reason="it is needed"
                    )
                clock.put(Instant(clock.now() + MINUTE))
                for name, sql in LOOKED_UP.items():
                    known[name] = "".join(str(row[0]) for row in running.driver.rows(sql))
                steps.elsewhere = steps.longest = 0.0
                path = f"/do/{act}?{query.format_map(known)}"
                answer = await play(running, client, path, fields, steps)
                longest[act] = max(steps.longest, longest.get(act, 0.0))
                if answer.status_code >= 400:
                    refused[act] = shown(answer.text)
                given_away |= {act} if steps.elsewhere else set()
                leads = answer.headers.get("location", answer.text)
                if made := re.search(r"/(?:imports|previews|proposals)/([\w-]+)", leads):
                    known[act] = made[1]
    assert longest.keys() == {act.name for act in ACTS}
    assert refused.keys() == REFUSED.keys()
    assert {act: refused[act] for act, why in REFUSED.items() if why not in refused[act]} == {}
    assert given_away == GIVEN_AWAY
    assert {act: step for act, step in longest.items() if step >= MOST_S} == {}
