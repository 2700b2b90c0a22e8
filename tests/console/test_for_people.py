"""Pages for people who are no developers: names instead of codes, links that fit the role, local
times, and a way on after a failure."""

import re
from collections import Counter
from html import unescape
from typing import get_args
from urllib.parse import urlsplit

import httpx2
import pytest

from app.access.operators import ROLES
from app.console.finance_pages import CHECKS, _checks
from app.console.page_list import PAGES
from app.console.words import FINDINGS, SETTLINGS, booked_in, called, moment_in, of_forms
from app.finance.reconcile_period import RunRequest, reconcile_period
from reconcile.instants import DAY, MINUTE, Instant
from reconcile.ledger.vocabulary import FINDING_CODES
from reconcile.matching.breaks import SETTLINGS as SETTLING_CODES
from reconcile.matching.causes import CAUSES
from reconcile.reporting.closing import CONDITIONS, Blocker, BlockerCode, unread
from reconcile.reporting.words import SIDE_WORDS
from tests.console.conftest import RunningConsole, import_bank_and_statement, of_form, send
from tests.console.test_finance_pages import breaks
from tests.console.test_imports import place, read, upload
from tests.console.test_pages import NAIROBI, in_nairobi, shown
from tests.rows import for_each
from tests.searching import every

LISTS = [page.path for page in PAGES if "{subject}" not in page.path]
MOST_OF_A_SHAPE = 2 // every(2)
"""Addresses that differ in a name or a value alone, of which so many are followed."""


# --- links ----------------------------------------------------------------------------------------


def links_of(page: str) -> set[str]:
    """Return addresses of this console that a page links to."""
    found = re.findall(r'(?:href|formaction)="(/[^"#]*)', page)
    return {unescape(each) for each in found if not each.startswith("/static")}


def shape_of(path: str) -> str:
    """Return an address without the names in it."""
    parts = urlsplit(path)
    names = sorted(each.partition("=")[0] for each in parts.query.split("&"))
    return "/".join(parts.path.split("/")[:2]) + str(parts.path.count("/")) + ",".join(names)


async def refused(client: httpx2.AsyncClient) -> list[str]:
    """Yield links to pages that are refused or missing, each with its page."""
    todo = [(path, "") for path in LISTS if (await client.get(path)).status_code == 200]
    shapes: Counter[str] = Counter()
    found = []
    while todo:
        path, via = todo.pop()
        shape = path if not via else shape_of(path)
        shapes[shape] += 1
        if shapes[shape] > MOST_OF_A_SHAPE:
            continue
        answer = await client.get(path)
        if answer.status_code >= 400:
            found.append(f"{path} of {via}")
        if "html" in answer.headers.get("content-type", "") and not path.startswith("/reports/"):
            todo += [(each, path) for each in sorted(links_of(answer.text))]
    return found


@for_each("role", [role for role in ROLES if role != "admin"][:: every(3)])  # who may everything
async def test_no_link_leads_where_its_reader_may_not_go(
    console_with_breaks: RunningConsole, role: str
) -> None:
    async with console_with_breaks.signed_in(role) as client:
        assert await refused(client) == []


async def test_a_page_for_others_says_for_whom(console: RunningConsole) -> None:
    async with console.signed_in("support") as client:
        said = shown((await client.get("/runs")).text)
    assert "Your role, support, may neither see nor do this; admin and finance may." in said


async def test_a_break_of_a_booking_leads_to_the_booking(
    console_with_breaks: RunningConsole,
) -> None:
    """The booking is shown alone, on whatever page of the list it stands."""
    console = console_with_breaks
    await import_bank_and_statement(console)
    await reconcile_period(console.context, RunRequest(), progress=lambda _: None)
    async with console.signed_in("finance") as client:
        (found,) = (await breaks(client, "?cause=bank_line_unknown"))["breaks"]
        page = (await client.get(f"/breaks/{found['id']}")).text
        (path,) = [each for each in links_of(page) if each.startswith("/bank?line=")]
        (line,) = (await client.get(path.replace("/bank", "/bank.json"))).json()["lines"]
        bank = (await client.get(path)).text
        gone = shown((await client.get("/bank?line=bnk_0")).text)
    assert line["line"] in found["cites"]
    assert line["stands"] == "bank_line_unknown"
    assert "/breaks?cause=bank_line_unknown" in links_of(bank)
    assert "does not count any more" in gone
    async with console.signed_in("support") as client:
        page = (await client.get(f"/breaks/{found['id']}")).text
    assert not [each for each in links_of(page) if each.startswith("/bank")]


async def test_what_is_not_there_leads_to_the_list_where_it_would_be(
    console_with_breaks: RunningConsole,
) -> None:
    """No command is named to people without one; an operator who may not see the list is led to
    their first page."""
    lists = {
        "/orders/no": "/orders", "/cases/no": "/orders", "/deliveries/dlv_0": "/deliveries",
        "/breaks/brk_0": "/breaks", "/imports/99": "/imports", "/imports/upl_0": "/imports",
        "/runs/99": "/runs", "/runs/x": "/runs", "/previews/x": "/rules", "/periods/x": "/periods",
        "/proposals/prp_0": "/proposals", "/orders?outcome=x": "/orders", "/bank?skip=x": "/bank",
    }  # fmt: skip
    async with console_with_breaks.signed_in("finance") as client:
        for path, listed in lists.items():
            page = await client.get(path)
            assert page.status_code in (400, 404), path
            button = re.search(r'<a class="button second" href="([^"]+)">([^<]+)</a>', page.text)
            assert button is not None, path
            assert (button[1], button[2].startswith("To the page ")) == (listed, True), path
            assert "tallyhook" not in page.text.partition("<main")[2].partition("</main")[0], path
    async with console_with_breaks.signed_in("viewer") as client:
        page = await client.get("/cases/no")
    assert page.status_code == 403
    assert '<a class="button second" href="/">To the first page</a>' in page.text


@for_each(("role", "leads_to"), [("finance", "/late"), ("viewer", "/"), ("support", "/")])
async def test_a_wrong_address_leads_nobody_to_a_list_that_their_role_may_not_see(
    console: RunningConsole, role: str, leads_to: str
) -> None:
    """The address is checked before the role."""
    async with console.signed_in(role) as client:
        page = await client.get("/late?before=%00")
        there = await client.get(leads_to)
    assert (page.status_code, there.status_code) == (400, 200)
    assert f'<a class="button second" href="{leads_to}">' in page.text
    assert ('href="/late"' in page.text) is (leads_to == "/late")


async def test_a_mistake_in_a_field_of_an_address_is_told_beside_it(
    console_with_breaks: RunningConsole,
) -> None:
    """The form is shown again with its input."""
    async with console_with_breaks.signed_in("admin") as client:
        order = await client.get("/orders/ORD-1?as_of=yesterday")
        where = await client.get("/do/assign?list=currency%3DKES&where=colour%3Dred")
        accept = await client.get("/do/accept?list=&where=colour%3Dred")
        report = await client.get("/reports/period?from=2026-11-20&to=2026-11-02&as=csv")
        wrong_month = await client.get("/reports/2026-77?as=csv")
        right = await client.get("/orders/ORD-1?as_of=2026-11-20%2012:00")
        machine = await client.get("/orders/ORD-1.json?as_of=yesterday")
    for page, typed in (
        (order, 'value="yesterday"'), (where, 'value="colour=red"'),
        (accept, 'value="colour=red"'), (report, 'value="2026-11-20"'),
    ):  # fmt: skip
        assert page.status_code == 400
        assert typed in page.text
        assert page.text.count('id="mistake" role="alert"') == 1
        assert 'aria-describedby="mistake" autofocus' in page.text
        assert "To the page" not in page.text
    assert "<h1>ORD-1</h1>" in order.text
    assert 'href="/orders/ORD-1.json"' in order.text, "not the address of the mistake"
    assert 'value="currency=KES"' in where.text, "the list stays as it was filtered"
    assert "must not lie after" in shown(report.text)
    assert 'value="csv" selected' in report.text
    assert wrong_month.status_code == 404
    assert 'id="mistake"' not in right.text
    assert machine.json()["problem"]


async def test_a_search_for_nothing_keeps_its_field(console: RunningConsole) -> None:
    """The input may be a phone number and is not shown again."""
    async with console.signed_in("support") as client:
        page = await client.post("/find", data={"text": "x" * 300})
        typed = await client.post("/find", data={"text": " "})
    assert (page.status_code, typed.status_code) == (400, 400)
    assert 'role="alert">This text cannot be searched for' in page.text
    assert 'action="/find"' in page.text.partition("<main")[2]
    assert "x" * 300 not in page.text


# --- names in place of codes ----------------------------------------------------------------------


def test_every_code_has_a_name() -> None:
    assert set(FINDINGS) == set(FINDING_CODES)
    assert set(SETTLINGS) == set(SETTLING_CODES)
    assert called("paid_twice") == CAUSES["paid_twice"].name
    assert called("of_tomorrow") == "Of tomorrow"


async def test_causes_findings_and_sides_are_called_by_their_names(
    console_with_breaks: RunningConsole,
) -> None:
    async with console_with_breaks.signed_in("finance") as client:
        twice = (await breaks(client, "?cause=paid_twice"))["breaks"][0]
        pages = {
            path: shown((await client.get(path)).text)
            for path in (
                "/breaks", f"/breaks/{twice['id']}", "/runs/1", "/late", "/orders",
                "/orders/ORD-1", "/orders?finding=paid_twice",
            )
        }  # fmt: skip
    for path in ("/breaks", f"/breaks/{twice['id']}", "/runs/1", "/orders", "/orders/ORD-1"):
        assert "Paid more than once" in pages[path], path
        assert "paid twice" not in pages[path].lower(), path
    assert "Paid more than once (2)" in pages["/breaks"]
    assert (
        "finding Paid more than once : paid several times; money is owed back"
        in (pages["/orders?finding=paid_twice"])
    )
    assert f" {SIDE_WORDS['takings']} " in pages["/runs/1"]
    assert "proposed: give it back" in pages["/late"]


async def test_what_became_of_late_money_is_told_in_words(
    console_with_breaks: RunningConsole,
) -> None:
    async with console_with_breaks.signed_in("finance") as client:
        twice = (await breaks(client, "?cause=paid_twice"))["breaks"][0]["id"]
        await send(client, f"/do/settle?break={twice}", action="credit", reason="as agreed")
        late = shown((await client.get("/late")).text)
        page = shown((await client.get(f"/breaks/{twice}")).text)
    assert "Credit it to the customer Decide again" in late
    assert "decided about its money: credit it to the customer" in page


def test_a_reason_against_closing_has_no_code_and_a_way_for_its_reader() -> None:
    blocker = Blocker(code="rejected", sentence="Three were refused.", do="…")
    (judge,) = [e for e in _checks([blocker], over=True, may_judge=True) if e["where"]]
    (look,) = [e for e in _checks([blocker], over=True, may_judge=False) if e["where"]]
    assert (judge["where"], look["where"]) == ("/do/reverify", "/deliveries")
    assert not all(each.blocks for each in CAUSES.values())  # so it must not speak of every break
    assert "Others may stay open" in CONDITIONS["breaks"]


def test_over_unread_deliveries_no_other_condition_of_closing_is_said_to_hold() -> None:
    found = _checks([unread(7)], over=True, may_judge=True)
    assert [(e["check"], e["state"]) for e in found] == [
        ("too_early", "passed"),
        ("unread", "failed"),
    ]
    assert set(get_args(BlockerCode)) == set(CHECKS)


def test_options_of_commands_are_told_as_fields() -> None:
    told = of_forms("byte 3 is not utf-8: give --encoding NAME, such as cp1252")
    assert told == "byte 3 is not utf-8: write its encoding in the form, such as cp1252"
    assert "--" not in of_forms('declare dates = "day_first" in a mapping, or give --dates')
    assert "--" not in of_forms("Windows-1252 (--encoding cp1252) and Shift-JIS fit: say which")
    assert of_forms("run `tallyhook x --encoding cp1252`") == "run `tallyhook x --encoding cp1252`"


# --- moments --------------------------------------------------------------------------------------


async def test_a_tab_is_named_after_what_it_shows(
    console_with_breaks: RunningConsole,
) -> None:
    """Orders, breaks and forms open side by side can be told apart."""
    async with console_with_breaks.signed_in("finance") as client:
        first = (await breaks(client))["breaks"][0]
        month = (await client.get("/periods.json")).json()["open"][0]["period"]
        named = {
            "/orders/ORD-1": "ORD-1",
            "/cases/ORD-1": "Case of ORD-1",
            f"/breaks/{first['id']}": f"{called(first['cause'])} {first['order']}",
            "/runs/1": "Run 1",
            f"/periods/{month}": f"Month {month}",
            "/do/note?order=ORD-1": "Add a note: ORD-1",
            "/orders/ORD-9": "Not found",
            "/people": "Not for your role",
            "/orders": "Orders",
        }
        for path, name in named.items():
            page = (await client.get(path)).text
            title = re.search(r"<title>([^<]*)</title>", page)
            assert title is not None
            assert unescape(title[1]) == f"{name} · Tallyhook"


async def test_a_page_says_of_when_it_is(console_with_breaks: RunningConsole) -> None:
    """Each page says so in its footer, also in print, and beside totals."""
    console = in_nairobi(console_with_breaks)
    at = console.console.context.clock.now()
    assert at % MINUTE == 0
    async with console.signed_in("finance") as client:
        now, late = [shown((await client.get(path)).text) for path in ("/", "/late")]
        run = (await client.get("/late.json")).json()["run"]
    assert re.search(r"Looked up at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d . Times are in Africa", now)
    assert re.search(r"Orders as of \d{4}-\d\d-\d\d \d\d:\d\d:\d\d , by outcome", now)
    assert run["number"] == 1
    assert "As run 1 saw it at" in late


async def test_a_moment_is_typed_as_the_clock_on_the_wall_shows_it(
    console: RunningConsole,
) -> None:
    """It is in the shop's zone; RFC 3339 is understood too, for links."""
    console.driver.clock.put(Instant(console.driver.clock.now() + 24 * 60 * MINUTE))
    async with in_nairobi(console).signed_in("support") as client:
        typed = [
            (await client.get(f"/orders/ORD-1.json?as_of={each}")).json()["then"]
            for each in ("2026-11-20 15:30 ", "2026-11-20T15:30:00", "2026-11-20T12:30:00Z")
        ]
        page = shown((await client.get("/orders/ORD-1")).text)
        wrong = await client.get("/orders/ORD-1?as_of=20.11.2026")
    assert typed == ["2026-11-20T12:30:00Z"] * 3
    assert "As it was known at (Africa/Nairobi)" in page
    assert (wrong.status_code, "2026-11-20 12:00" in wrong.text) == (400, True)


async def test_a_day_of_a_bank_has_no_time(console_with_breaks: RunningConsole) -> None:
    console = in_nairobi(console_with_breaks)
    await import_bank_and_statement(console)
    async with console.signed_in("finance") as client:
        page = shown((await client.get("/bank")).text)
    assert re.search(r"2026-10-06 bnk_", page)
    assert booked_in(NAIROBI)("2026-10-05T21:00:01Z") == moment_in(NAIROBI)("2026-10-05T21:00:01Z")


# --- the way on -----------------------------------------------------------------------------------


async def test_of_two_who_decide_the_second_is_told(console_with_breaks: RunningConsole) -> None:
    """The second form shows the first decision, and overwrites nothing."""
    console = console_with_breaks
    async with console.signed_in("finance") as first, console.signed_in("admin") as second:
        name = (await breaks(first))["breaks"][0]["id"]
        path = f"/do/assign?break={name}"
        page = (await second.get(path)).text
        mark = re.search(r'name="seen" value="([^"]+)"', page)
        assert mark is not None
        form = {"form": await of_form(second, path), "seen": mark[1], "to": "a admin"}
        assert (await send(first, path, to="a finance")).status_code == 303
        late = await second.post(path, data=form)
        accepting = f"/do/accept?break={name}"
        opened = {"form": await of_form(second, accepting), "reason": "too small"}
        assert (await send(first, accepting, reason="small")).status_code == 303
        again = await second.post(accepting, data=opened)
    assert late.status_code == again.status_code == 400
    assert "This break has changed since you looked, so nothing was done" in shown(late.text)
    assert "Nothing was done: what the form was about has changed" in shown(again.text)
    assert "a finance accepted" in shown(again.text)
    rows = console.driver.rows("SELECT who, deed FROM break_deeds ORDER BY at")
    assert sorted(rows) == [("a finance", "accepted"), ("a finance", "assigned")]


async def test_money_that_changed_since_the_form_was_opened_is_not_accepted(
    console_with_breaks: RunningConsole,
) -> None:
    async with console_with_breaks.signed_in("finance") as client:
        name = (await breaks(client))["breaks"][0]["id"]
        path = f"/do/accept?break={name}"
        sent = await send(client, path, reason="small", seen="of another sum")
        fits = re.search(r'name="seen" value="([^"]+)"', sent.text)
        assert fits is not None
        done = await send(client, path, reason="small", seen=fits[1])
    assert (sent.status_code, done.status_code) == (400, 303)


async def test_a_form_that_was_sent_before_leads_to_its_result(
    console_with_breaks: RunningConsole,
) -> None:
    async with console_with_breaks.signed_in("finance") as client:
        name = (await breaks(client))["breaks"][0]["id"]
        path = f"/do/comment?break={name}"
        form = {"form": await of_form(client, path), "reason": "asked them"}
        await client.post(path, data=form)
        again = await client.post(path, data=form)
    assert again.status_code == 409
    assert f'href="/breaks/{name}">Look at the result' in again.text


async def test_the_list_stays_as_it_was_filtered(console_with_breaks: RunningConsole) -> None:
    """It holds after several were assigned, and where none was chosen."""
    async with console_with_breaks.signed_in("finance") as client:
        page = (await client.get("/breaks?currency=KES&order=age")).text
        kept = re.search(r'name="list" value="([^"]+)"', page)
        assert kept is not None
        words = httpx2.QueryParams({"list": unescape(kept[1])})
        none = (await client.get(f"/do/assign?{words}")).text
        name = (await breaks(client, "?currency=KES"))["breaks"][0]["id"]
        path = f"/do/assign?break={name}&{words}"
        sent = await send(client, path, to="a finance")
        there = await client.get(sent.headers["location"])
        elsewhere = await client.get("/do/assign?list=//evil.example%3Fx=1")
    assert sent.headers["location"] == "/breaks?currency=KES&order=age&done=assign"
    assert there.status_code == 200
    assert 'href="/breaks?currency=KES&amp;order=age"' in none
    assert "evil" not in re.sub(r'action="[^"]*"', "", elsewhere.text)


async def test_who_is_signed_out_meanwhile_is_told_that_nothing_was_done(
    console_with_breaks: RunningConsole,
) -> None:
    """They return to the form they had sent, also after a wrong password."""
    console = console_with_breaks
    async with console.signed_in("finance") as client:
        name = (await breaks(client))["breaks"][0]["id"]
    path = f"/do/comment?break={name}"
    async with console.client() as client:
        sent = await client.post(path, data={"form": "x", "reason": "asked"}, headers=SITE)
        page = await client.get(sent.headers["location"])
        following = re.search(r'name="next" value="([^"]+)"', page.text)
        assert following is not None
        form = {"name": "a finance", "password": "wrong", "next": unescape(following[1])}
        wrong = await client.post("/sign-in", data=form, headers=SITE)
    assert "the form that you sent was not carried out" in shown(page.text)
    assert unescape(following[1]) == path
    assert f'name="next" value="{path}"' in unescape(wrong.text)


SITE = {"Sec-Fetch-Site": "same-origin"}


async def test_days_of_a_report_are_asked_for_in_words(console: RunningConsole) -> None:
    async with console.signed_in("finance") as client:
        none = shown((await client.get("/reports/period?from=&to=&as=html")).text)
        wrong = await client.get("/reports/period?from=2026-11-20&to=2026-11-01&as=html")
    assert "Choose the first and the last day of the report" in none
    assert "The first day must not lie after the last one" in shown(wrong.text)


async def test_a_file_that_is_no_table_is_called_what_it_is(console: RunningConsole) -> None:
    async with console.signed_in("finance") as client:
        for content, what in ((b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n", "a PDF"),
                              (b"\x89PNG\r\n\x1a\n\x00\xff", "a picture")):  # fmt: skip
            sent = await upload(client, content)
            page = shown((await client.get(place(sent))).text)
            assert f"this is {what}, which cannot be read as rows" in page
            assert "It was read as a provider's statement" in page
            assert "october.csv refused" in page
            assert "to confirm" not in page
        await upload(client, b"payment_reference,gross,currency\np1,x,KES\n")
        await upload(client, b"payment_reference,gross,currency\np1,x,KES\np2,1.00,KES\n")
        waiting = (await client.get("/imports.json")).json()["waiting"]
    # The newest first: of the one before it no row is clear.
    assert [each["state"] for each in waiting] == ["to_confirm", "refused", "refused", "refused"]


async def test_what_a_file_does_not_say_is_said_in_the_form(console: RunningConsole) -> None:
    """The form asks about days such as 05/06/2026 and a currency; no mapping is needed."""
    book = b"reference,amount,placed_at,status\nORD-7,12.50,05/06/2026,paid\n"
    async with console.signed_in("finance") as client:
        unclear = await read(client, book, kind="book", currency="kes")
        page = shown((await client.get(f"/imports/{unclear['upload']}")).text)
        clear = await read(client, book, kind="book", currency="kes", dates="day_first")
    assert unclear["rejected"] == 1
    assert "or choose in the form how dates are written" in page
    assert clear["rejected"] == 0
    assert clear["rows"][0]["placed_at"].startswith("2026-06-05")


# --- many rows ------------------------------------------------------------------------------------


async def test_filters_are_kept_while_a_list_is_paged(
    console_with_breaks: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They hold forth and back, also for choices among orders."""
    monkeypatch.setattr("app.console.view.ROWS", 1)
    async with console_with_breaks.signed_in("admin") as client:
        for path, kept in (
            ("/deliveries?verdict=stored&source=shop", "verdict=stored&source=shop"),
            ("/orders?outcome=succeeded&choose=numbers", "outcome=succeeded&choose=numbers"),
        ):
            (older,) = re.findall(r'rel="next" href="([^"]+)"', (await client.get(path)).text)
            page = (await client.get(unescape(older))).text
            (newest,) = re.findall(r'href="([^"]+)">Newest', page)
            assert sorted(kept.split("&")) == sorted(unescape(newest).partition("?")[2].split("&"))


async def test_older_runs_and_imports_are_reached(
    console_with_breaks: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come page by page, none twice; withdrawn ones are marked everywhere."""
    console = console_with_breaks
    await import_bank_and_statement(console)
    await reconcile_period(console.context, RunRequest(), progress=lambda _: None)
    monkeypatch.setattr("app.console.view.ROWS", 1)
    async with console.signed_in("finance") as client:
        path = f"/do/withdraw-import?import={(await numbers(client, 'imports', 'import'))[-1]}"
        assert (await send(client, path, reason="sent twice")).status_code == 303
        runs = await numbers(client, "runs", "run")
        found = await numbers(client, "imports", "import")
        last = shown((await client.get(f"/imports?before={found[-2]}")).text)
    assert runs == [2, 1]
    assert len(found) == 3
    assert found == sorted(set(found), reverse=True)
    assert "withdrawn" in last


async def test_the_run_by_which_the_list_stands_is_known_behind_many_looks(
    console_with_breaks: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    console = console_with_breaks
    now = console.context.clock.now()
    look = RunRequest(since=Instant(now - DAY), until=now)
    await reconcile_period(console.context, look, progress=lambda _: None)
    monkeypatch.setattr("app.console.view.ROWS", 1)
    async with console.signed_in("finance") as client:
        newest = [(await client.get(f"/runs/{one}.json")).json()["newest"] for one in (1, 2)]
        late = (await client.get("/late.json")).json()["run"]
    assert (newest, late["number"]) == ([True, False], 1)


async def numbers(client: httpx2.AsyncClient, name: str, key: str) -> list[int]:
    """Return a list's numbers, page by page."""
    found: list[int] = []
    path = f"/{name}"
    while path:
        page = (await client.get(path)).text
        document = (await client.get(path.replace(name, f"{name}.json", 1))).json()
        found += [each[key] for each in document[name]]
        following = re.findall(r'rel="next" href="([^"]+)"', page)
        path = unescape(following[0]) if following else ""
    return found
