"""Importing from pages: sent, read, looked at, and only then imported; the very same bytes."""

import asyncio
import html
import io
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import openpyxl
import pytest

from app.config.load import load_settings
from app.config.settings import SourceSettings
from app.console import uploads
from app.console.application import build_console
from app.console.uploads import Uploads
from app.core.errors import UsageError
from app.core.jobs import Jobs
from app.core.private_files import lock_folder
from app.finance.close_period import CloseRequest, close_period
from app.finance.import_store import ImportTask, replace_import_tasks
from app.finance.match_rules import save_rules
from app.finance.reconcile_period import reconcile_for
from app.wiring.work import ElsewhereOf
from reconcile.instants import HOUR, Instant
from tests.api.driving import environ
from tests.console.conftest import RunningConsole, of_form, rows_of, send
from tests.console.test_pages import shown
from tests.contexts import Here, instead
from tests.rows import for_each

STATEMENT = b"""payment_reference,order_reference,gross,fee,net,currency,settled_at,payout
pay_1,ORD-1,1500.00,52.50,1447.50,KES,2026-11-21,po_1
pay_8,ORD-8,99.00,9.00,90.00,USD,2026-11-21,po_1
"""

TWO_ARE_WRONG = STATEMENT + b"pay_9,ORD-9,1.500,00,,KES,2026-11-21,po_1\npay_7,,12.00,,,XXQ,,\n"

BANK = b""":20:STMT
:25:KE99BANK
:60F:C241003KES0,00
:61:2410041004C1258,32NTRFNONREF
:86:PO-19999
:62F:C241004KES1258,32
"""
"""One booking, as MT940 writes it."""

EXPORT = b"""Reference,Status,Amount paid,Channel,Transaction date,Paystack fee,Currency
pay_1,success,"1,500.00",card,2026-11-21,52.50,KES
pay_2,failed,20.00,card,2026-11-21,0,KES
"""
"""A file as a provider's dashboard exports it."""

BOOK = b"Order No.;Amount;Placed at;Status\nORD-1;1.500,00;19.11.2026;paid\n"

MAPPING = """decimal = ","
thousands = "."
dates = "day_first"
[columns]
reference = "Order No."
[defaults]
currency = "KES"
"""


async def upload(
    client: httpx2.AsyncClient, content: bytes, name: str = "october.csv", **fields: str
) -> httpx2.Response:
    """Send a file by the form."""
    given = {"kind": "statement", "source": "shop", "mapping": "", "delimiter": "", "encoding": ""}
    form = {"form": await of_form(client, "/do/upload"), **given, **fields}
    return await client.post("/do/upload", data=form, files={"file": (name, content, "text/csv")})


async def read(client: httpx2.AsyncClient, content: bytes, **fields: str) -> dict[str, Any]:
    """Return what the dry run of a file says."""
    sent = await upload(client, content, **fields)
    assert sent.status_code == 303, shown(sent.text)
    found: dict[str, Any] = (await client.get(place(sent) + ".json")).json()
    return found


def place(sent: httpx2.Response) -> str:
    """Return where an action has led."""
    return sent.headers["location"].partition("?")[0]


async def confirm(client: httpx2.AsyncClient, name: str) -> httpx2.Response:
    """Open the form that imports, and send it as it is."""
    path = f"/do/import?upload={name}"
    page = (await client.get(path)).text
    digest = page.partition('name="sha256" value="')[2].partition('"')[0]
    return await send(client, path, sha256=digest)


def lines_of(console: RunningConsole) -> int:
    return len(console.driver.rows("SELECT 1 FROM statement_lines"))


async def test_a_file_is_read_looked_at_and_imported(console: RunningConsole) -> None:
    """The dry run shows counts and money and imports nothing; the import is an audit entry."""
    async with console.signed_in("finance") as client:
        assert "Nothing was imported yet" in shown((await client.get("/imports")).text)
        found = await read(client, STATEMENT)
        page = shown((await client.get(f"/imports/{found['upload']}")).text)
        assert lines_of(console) == 0
        asked = shown((await client.get(f"/do/import?upload={found['upload']}")).text)
        sent = await confirm(client, found["upload"])
        done = (await client.get(place(sent) + ".json")).json()
        text = shown((await client.get(place(sent))).text)
        listed = (await client.get("/imports.json")).json()
        lines = rows_of(await client.get("/imports.csv"))
    assert found["state"] == "to_confirm"
    assert (found["read"], found["new"], found["rejected"], found["problems"]) == (2, 2, 0, [])
    assert [
        (each["currency"], each["gross"]["amount"], each["net"]["amount"])
        for each in found["money"]
    ] == [
        ("KES", "1500.00", "1447.50"),
        ("USD", "99.00", "90.00"),
    ]
    for said in ("Every row is clear", "KES 1,447.50", "USD 90.00", "pay_8"):
        assert said in page
    assert "gross KES 1,500.00, fee KES 52.50, net KES 1,447.50" in asked
    assert found["sha256"] in asked
    assert (sent.status_code, place(sent)) == (303, "/imports/1")
    assert (done["state"], done["new"], done["sha256"]) == ("imported", 2, found["sha256"])
    assert "The next run compares it with orders" in text
    assert [each["import"] for each in listed["imports"]] == [1]
    assert (listed["waiting"], lines[0]["file"]) == ([], "october.csv")
    assert lines_of(console) == 2
    rows = console.driver.rows("SELECT who, subject FROM audit WHERE action='statement_imported'")
    assert rows == [("a finance", "october.csv")]


async def test_who_imports_is_told_first_of_what_would_count_beside_another(
    console: RunningConsole,
) -> None:
    """A corrected refund could also be a second refund of its day."""
    file = b"payment_reference,gross,fee,currency,type,settled_at\npay_9,-%d,0,KES,refund,%b\n"
    async with console.signed_in("finance") as client:
        first = await read(client, file % (25, b"2026-10-05"))
        await confirm(client, first["upload"])
        found = await read(client, file % (20, b"2026-10-05"))
        page = shown((await client.get(f"/imports/{found['upload']}")).text)
        asked = shown((await client.get(f"/do/import?upload={found['upload']}")).text)
    for text in (page, asked):
        assert "refund of pay_9, KES 20.00 beside KES 25.00 of import 1" in text


async def test_a_banks_file_is_imported_like_the_others(console: RunningConsole) -> None:
    """It has one of the bank's own formats; only finance may import it."""
    async with console.signed_in("finance") as client:
        found = await read(client, BANK, kind="bank", source="")
        page = shown((await client.get(f"/imports/{found['upload']}")).text)
        sent = await confirm(client, found["upload"])
        text = shown((await client.get(place(sent))).text)
        listed = (await client.get("/imports.json?kind=bank")).json()["imports"]
        others = (await client.get("/imports.json?kind=book")).json()["imports"]
    assert (found["read"], found["problems"]) == (1, [])
    assert [each["amount"]["amount"] for each in found["money"]] == ["1258.32"]
    assert "KES 1,258.32" in page
    assert "2024-10-04" in page
    assert "00:00:00" not in page  # the bank gave a day
    assert "Bank file" in text
    assert ([each["kind"] for each in listed], others) == (["bank"], [])
    assert console.driver.rows("SELECT minor, told FROM bank_lines") == [(125_832, "PO-19999")]
    rows = console.driver.rows("SELECT who FROM audit WHERE action='bank_imported'")
    assert rows == [("a finance",)]


async def test_a_difference_of_balances_is_proposed_from_the_page_that_shows_it(
    console: RunningConsole,
) -> None:
    """Once another person approved, the file that waits is read again, and imported."""
    differs = BANK.replace(b":62F:C241004KES1258,32", b":62F:C241004KES1258,30")
    async with console.signed_in("finance") as client, console.signed_in("admin") as other:
        sent = await upload(client, differs, kind="bank", source="")
        page = (await client.get(place(sent))).text
        path = page.partition('href="/do/accept-balance-difference')[2].partition('"')[0]
        assert path
        path = f"/do/accept-balance-difference{path}"
        assert "a difference of -0.02 KES" in shown((await client.get(path)).text)
        wrong = await send(client, path, difference="-0.03", reason="rounded")
        assert "he difference is -0.02 KES" in shown(wrong.text)
        made = await send(client, path, difference="-0.02", reason="rounded by the bank")
        assert "Proposed to a second person" in shown(made.text)
        (waits,) = (await other.get("/proposals.json")).json()["proposals"]
        approve = f"/do/approve?proposal={waits['id']}"
        await send(other, approve, reason="the bank says so")
        name = place(sent).rpartition("/")[2]
        await send(client, f"/do/read-as?upload={name}", kind="bank")
        assert (await confirm(client, name)).status_code == 303
    (row,) = console.driver.rows("SELECT difference FROM bank_balances")
    assert tuple(row) == (-2,)


async def test_a_banks_table_that_names_no_account_is_of_the_one_that_is_said(
    console: RunningConsole,
) -> None:
    table = b"booked_at,amount,currency\n2026-11-02,5.00,KES\n"
    async with console.signed_in("finance") as client:
        refused = await read(client, table, kind="bank", source="")
        said = await read(client, table, kind="bank", source="", account="main")
    assert "--account NAME" in str(refused["problems"])
    assert (said["read"], said["problems"]) == (1, [])


async def test_a_mapping_is_chosen_by_its_name(console: RunningConsole) -> None:
    folder = console.context.settings.console.mappings
    assert folder is not None
    (folder / "our shop.toml").write_text(MAPPING)
    async with console.signed_in("finance") as client:
        form = shown((await client.get("/do/upload")).text)
        plain = await read(client, BOOK, kind="book")
        found = await read(client, BOOK, kind="book", mapping="our shop")
        gone = await upload(client, BOOK, kind="book", mapping="another")
        sent = await confirm(client, found["upload"])
        (folder / "our shop.toml").write_text("decimal = 5\ncolour = 'red'\n")
        wrong = await upload(client, BOOK, kind="book", mapping="our shop")
    assert "our shop" in form
    assert plain["refused"] is True
    assert "there is no column" in plain["problems"][0]["sentence"]
    assert found["money"] == [
        {"currency": "KES", "rows": 1, "amount": {"amount": "1500.00", "currency": "KES"}}
    ]
    assert (gone.status_code, sent.status_code, wrong.status_code) == (400, 303, 400)
    assert "colour" in shown(wrong.text)
    assert console.driver.rows("SELECT count(*) FROM book_lines") == [(1,)]


async def test_a_known_export_is_recognized_or_chosen(console: RunningConsole) -> None:
    """The dry run says how the file was read and why, and which formats it does not match."""
    async with console.signed_in("finance") as client:
        form = shown((await client.get("/do/upload")).text)
        found = await read(client, EXPORT)
        page = shown((await client.get(f"/imports/{found['upload']}")).text)
        plain = await read(client, EXPORT, preset="none")
        nearly = await read(client, EXPORT.replace(b"Channel", b"Way"))
        lacking = shown((await client.get(f"/imports/{nearly['upload']}")).text)
        wrong = await read(client, STATEMENT, preset="paystack_transactions")
        of_book = await upload(client, EXPORT, kind="book", preset="paystack_transactions")
        unknown = await upload(client, EXPORT, preset="../../etc/passwd")
        of_bank = await upload(client, BANK, kind="bank", preset="paystack_transactions")
        sent = await confirm(client, found["upload"])
    assert "recognize it" in form
    assert "Paystack, transactions (a statement)" in form
    assert (found["preset"], found["ready"]) == ("paystack_transactions", True)
    assert found["rows_ignored"] == [{"column": "Status", "word": "failed", "rows": 1}]
    said = "Read with the preset paystack_transactions (Paystack, transactions), because row 1"
    assert said in page
    assert "1 row whose Status is failed" in page
    assert (plain["preset"], plain["refused"]) == (None, True)
    assert "Nearly paystack_transactions (Paystack, transactions): 'Channel' is missing" in lacking
    assert "this is not the file that the preset paystack_transactions reads" in str(wrong)
    assert {of_book.status_code, unknown.status_code, of_bank.status_code} == {400}
    assert "reads a statement (Paystack, transactions)" in shown(of_bank.text)
    assert (sent.status_code, lines_of(console)) == (303, 1)


async def test_rows_that_are_not_clear_are_told_and_set_aside(console: RunningConsole) -> None:
    """Each has its row and column; good rows are imported, the others are a file to download."""
    async with console.signed_in("finance") as client:
        found = await read(client, TWO_ARE_WRONG)
        page = shown((await client.get(f"/imports/{found['upload']}")).text)
        lines = (await client.get(f"/imports/{found['upload']}.csv")).text
        asked = shown((await client.get(f"/do/import?upload={found['upload']}")).text)
        sent = await confirm(client, found["upload"])
        done = (await client.get(place(sent) + ".json")).json()
        aside = await client.get(place(sent) + "?rejects=1")
        again = await client.get(f"/do/import?upload={found['upload']}")
    assert {each["row"] for each in found["problems"]} == {4, 5}
    for each in found["problems"]:
        assert each["sentence"] in page
    assert len(lines.splitlines()) == 1 + len(found["problems"])
    assert "2 rows are set aside" in asked
    assert (done["state"], done["new"], done["rejected"]) == ("imported", 2, 2)
    assert aside.headers["content-disposition"].startswith("attachment")
    assert aside.text.count("pay_") == 2
    assert "There is nothing to import" in shown(again.text)
    assert lines_of(console) == 2


SAMPLES = Path(__file__).parents[1] / "finance" / "presets"


@asynccontextmanager
async def with_sources(
    console: RunningConsole, **sources: SourceSettings
) -> AsyncIterator[httpx2.AsyncClient]:
    """Yield a client of finance, of the console over a service with these sources."""
    settings = console.context.settings.model_copy(update={"sources": sources})
    context = replace(console.context, settings=settings)
    made = replace(console.console, context=context)
    made = replace(made, work=Here(context)(purpose="writing"), uploads=Uploads(context.clock))
    other = RunningConsole(console=made, application=build_console(made), driver=console.driver)
    async with other.signed_in("finance") as client:
        yield client
    made.uploads.close()


async def drop(client: httpx2.AsyncClient, *files: tuple[str, bytes]) -> httpx2.Response:
    """Send files from the list of imports, as they were exported."""
    page = (await client.get("/imports")).text
    form = page.partition('name="form" value="')[2].partition('"')[0]
    sent = [("file", (name, content, "text/csv")) for name, content in files]
    return await client.post("/do/upload", data={"form": form}, files=sent)


async def press(client: httpx2.AsyncClient, path: str, button: str) -> httpx2.Response:
    """Press a button of a page, as it is shown."""
    page = (await client.get(path)).text
    forms = [each.partition("</form>")[0] for each in page.split("<form ")[1:]]
    form = next(each for each in forms if f"<button>{button}</button>" in html.unescape(each))
    target = html.unescape(form.partition('action="')[2].partition('"')[0])
    fields = {
        html.unescape(each.partition('"')[0]): html.unescape(
            each.partition('value="')[2].partition('"')[0]
        )
        for each in form.split('name="')[1:]
    }
    return await client.post(target, data=fields)


async def test_several_files_in_one_drop_are_recognized_and_imported_at_once(
    console: RunningConsole,
) -> None:
    """Each has a row in one table; an unclear one, and one that is not known, wait."""
    book = (SAMPLES / "shopify_orders.csv").read_bytes()
    async with console.signed_in("finance") as client:
        sent = await drop(
            client,
            ("bank.sta", BANK),
            ("orders.csv", book),
            ("october.csv", TWO_ARE_WRONG),
            ("notes.csv", b"a,b\n1,2\n"),
        )
        listed = (await client.get("/imports.json")).json()
        page = shown((await client.get("/imports")).text)
        done = await press(client, "/imports", "Import all that are clear")
        after = (await client.get("/imports.json")).json()
        one = await press(client, "/imports", "Import the good rows")
    assert (sent.status_code, place(sent)) == (303, "/imports")
    assert {
        each["file"]: (each["kind"], each["source"], each["preset"], each["state"], each["new"])
        for each in listed["waiting"]
    } == {
        "bank.sta": ("bank", None, None, "to_confirm", 1),
        "orders.csv": ("book", None, "shopify_orders", "to_confirm", 4),
        "october.csv": ("statement", "shop", None, "to_confirm", 2),
        "notes.csv": (None, None, None, "to_choose", None),
    }
    assert "Statement of shop" in page
    assert (done.status_code, place(done)) == (303, "/imports")
    assert [each["file"] for each in after["waiting"]] == ["notes.csv", "october.csv"]
    assert {each["file"] for each in after["imports"]} == {"bank.sta", "orders.csv"}
    assert (one.status_code, lines_of(console)) == (303, 2)


async def test_a_form_with_too_many_files_is_refused_and_leaves_none(
    console: RunningConsole,
) -> None:
    async with console.signed_in("finance") as client:
        sent = await drop(client, *[("a.csv", STATEMENT)] * (uploads.MOST_KEPT + 1))
        assert (await client.get("/imports.json")).json()["waiting"] == []
    assert sent.status_code == 400
    assert "at most 8 files" in shown(sent.text)
    folder = console.console.uploads._folder
    assert folder is not None
    assert list(folder.iterdir()) == []


async def test_a_statement_is_offered_only_as_one_of_its_providers_sources(
    console: RunningConsole,
) -> None:
    """Of two sources of the provider one is chosen with one button; of one none is asked."""
    content = (SAMPLES / "stripe_payouts.csv").read_bytes()
    mpesa, stripe = SourceSettings(profile="mpesa_stk"), SourceSettings(profile="stripe")
    async with with_sources(console, mpesa=mpesa, stripe=stripe) as client:
        sent = await drop(client, ("payouts.csv", content))
        taken = (await client.get(f"{place(sent)}.json")).json()
        wrong = await upload(client, content, source="mpesa")
    assert (taken["state"], taken["kind"], taken["source"]) == ("to_confirm", "statement", "stripe")
    assert wrong.status_code == 400
    assert "not a statement of mpesa, whose profile is mpesa_stk" in shown(wrong.text)
    async with with_sources(console, mpesa=mpesa, de=stripe, fr=stripe) as client:
        sent = await drop(client, ("payouts.csv", content))
        found = (await client.get(f"{place(sent)}.json")).json()
        page = shown((await client.get(place(sent))).text)
        chosen = await press(client, place(sent), "It is of fr")
        after = (await client.get(f"{place(chosen)}.json")).json()
    assert [each["source"] for each in found["choices"]] == ["de", "fr"]
    assert (found["state"], "It is of mpesa" in page) == ("to_choose", False)
    assert (after["state"], after["source"], after["new"]) == ("to_confirm", "fr", 7)


async def test_a_file_sent_as_the_wrong_kind_is_read_as_the_right_one_with_one_button(
    console: RunningConsole,
) -> None:
    async with console.signed_in("finance") as client:
        found = await read(client, BANK, kind="book", source="")
        page = shown((await client.get(f"/imports/{found['upload']}")).text)
        sent = await press(client, f"/imports/{found['upload']}", "Read it as a bank file")
        after = (await client.get(f"{place(sent)}.json")).json()
        statement = await read(client, EXPORT, kind="book", source="")
        sent = await press(
            client, f"/imports/{statement['upload']}", "Read it as a provider's statement"
        )
        other = (await client.get(f"{place(sent)}.json")).json()
    assert (found["state"], found["looks_like"]) == ("refused", "bank")
    assert "and is a bank file" in page
    assert (after["state"], after["kind"], after["new"]) == ("to_confirm", "bank", 1)
    assert (other["state"], other["source"], other["new"]) == ("to_confirm", "shop", 1)


@pytest.mark.costly
async def test_another_sheet_of_a_workbook_is_noted_and_chosen(console: RunningConsole) -> None:
    made, file = openpyxl.Workbook(), io.BytesIO()
    made.active.append(["reference", "amount", "currency"])
    made.active.append(["A", 1, "KES"])
    made.create_sheet("Oct").append(["reference", "amount", "currency"])
    made["Oct"].append(["B", 2, "KES"])
    made["Oct"].append(["C", 3, "KES"])
    made.save(file)
    async with console.signed_in("finance") as client:
        found = await read(client, file.getvalue(), kind="book", source="")
        path = f"/do/read-as?upload={found['upload']}"
        assert 'value="Oct"' in (await client.get(path)).text
        words = {"kind": "book", "upload": found["upload"]}
        sent = await send(client, path, sheet="Oct", encoding="", **words)
        after = (await client.get(f"{place(sent)}.json")).json()
        sent = await send(client, path, **words)  # as a button that only says what it is
        kept = (await client.get(f"{place(sent)}.json")).json()
    assert (found["new"], after["new"], kept["new"]) == (1, 2, 2)
    assert "'Oct' (3 rows). To read another one, read the file again and choose it." in " ".join(
        found["notes"]
    )


OWN_FORM = b"""Datum;Beleg;Eingang;Ausgang;Art
20.11.2026;pay_1;1.500,00;;Zahlung
21.11.2026;pay_2;;20,00;Erstattung
21.11.2026;;;;Saldo
"""
"""A file that no mapping and no preset knows."""

COLUMNS = {
    "column.payment_reference": "Beleg", "column.gross": "Eingang", "less.gross": "Ausgang",
    "column.settled_at": "Datum", "column.type": "Art", "dates": "day_first", "numbers": ",.",
    "currency": "KES", "source": "shop",
}  # fmt: skip


async def test_the_columns_of_an_unknown_file_are_mapped_and_the_mapping_is_saved(
    console: RunningConsole,
) -> None:
    """Its rows are seen, its columns and words chosen; a next file is recognized by them."""
    async with console.signed_in("finance") as client:
        sent = await drop(client, ("own.csv", OWN_FORM))
        page = shown((await client.get(place(sent))).text)
        path = f"/do/map-columns?upload={place(sent).rpartition('/')[2]}&kind=statement"
        form = shown((await client.get(path)).text)
        asked = await send(client, path, **COLUMNS)
        words = {"word.type.0": "payment", "word.type.1": "refund", "word.type.2": "ignore"}
        read_by_it = await send(client, path, **COLUMNS, **words)
        found = (await client.get(f"{place(read_by_it)}.json")).json()
        save = f"/do/save-mapping?upload={found['upload']}"
        unfit = await send(client, save, name="../x.toml")
        saved = await send(client, save, name="our till")
        toml = await client.get("/imports?mapping=our%20till")
        again = await drop(client, ("next.csv", OWN_FORM.replace(b"pay_1", b"pay_7")))
        known = (await client.get(f"{place(again)}.json")).json()
        done = await press(client, place(again), "Import it")
        dropped = await send(client, "/do/drop-mapping?mapping=our%20till")
        gone = await client.get("/imports?mapping=our%20till")
    assert "Map its columns as a provider's statement" in page
    assert "Datum Beleg Eingang Ausgang Art 20.11.2026 pay_1 1.500,00" in form
    assert "Type “Zahlung” means" in shown(asked.text)
    assert read_by_it.status_code == 303
    assert (found["state"], found["kind"], found["source"]) == ("to_confirm", "statement", "shop")
    assert [each["gross"]["amount"] for each in found["rows"]] == ["1500.00", "-20.00"]
    assert (unfit.status_code, saved.status_code) == (400, 303)
    assert toml.text == found["drafted"]
    assert 'add = ["Eingang"]' in toml.text
    assert (known["state"], known["mapping"], known["new"]) == ("to_confirm", "our till", 2)
    assert "Read with the mapping our till" in str(known["notes"])
    assert (done.status_code, lines_of(console)) == (303, 2)
    assert (dropped.status_code, gone.status_code) == (303, 404)
    rows = console.driver.rows("SELECT action, subject FROM audit WHERE action LIKE 'mapping%'")
    assert rows == [("mapping_saved", "our till"), ("mapping_deleted", "our till")]


async def test_the_columns_of_a_file_without_a_heading_are_mapped_by_place(
    console: RunningConsole,
) -> None:
    content = OWN_FORM.partition(b"\n")[2]
    mapping = {**COLUMNS, "column.settled_at": "20.11.2026", "column.payment_reference": "pay_1"}
    mapping |= {"column.gross": "1.500,00", "less.gross": "", "column.type": "Zahlung"}
    mapping |= {"first": "data", "word.type.0": "payment", "word.type.1": "ignore",
                "word.type.2": "ignore"}  # fmt: skip
    async with console.signed_in("finance") as client:
        sent = await drop(client, ("own.csv", content))
        path = f"/do/map-columns?upload={place(sent).rpartition('/')[2]}&kind=statement"
        chosen = await send(client, path, **mapping)
        found = (await client.get(f"{place(chosen)}.json")).json()
    assert "heading_row = 0" in found["drafted"]
    assert '"payment_reference" = "2"' in found["drafted"]
    assert found["problems"] == []
    assert [(each["row"], each["gross"]["amount"]) for each in found["rows"]] == [(1, "1500.00")]


async def test_a_mapping_without_a_needed_column_says_which(console: RunningConsole) -> None:
    async with console.signed_in("finance") as client:
        sent = await drop(client, ("own.csv", OWN_FORM))
        path = f"/do/map-columns?upload={place(sent).rpartition('/')[2]}&kind=book"
        chosen = await send(client, path, **{"column.reference": "Beleg"}, dates="iso", numbers="")
        found = (await client.get(f"{place(chosen)}.json")).json()
        other = await send(client, path, **{"column.reference": "None such"})
    assert (found["state"], found["kind"]) == ("refused", "book")
    assert "there is no column 'amount'" in found["problems"][0]["sentence"]
    assert "no column of this name" in shown(other.text)


async def test_changed_rows_are_shown_before_and_after_the_import(console: RunningConsole) -> None:
    async with console.signed_in("finance") as client:
        await imported(client, STATEMENT)
        found = await read(client, STATEMENT.replace(b"52.50,1447.50", b"50.00,1450.00"))
        waiting = f"/imports/{found['upload']}"
        pages = [await client.get(waiting)]
        files = [await client.get(f"{waiting}?changes=1")]
        sent = await press(client, waiting, "Import it")
        pages.append(await client.get(place(sent)))
        files.append(await client.get(f"{place(sent)}?changes=1"))
    assert place(sent) == "/imports/2"
    for page in pages:
        text = shown(page.text)
        assert "KES 52.50 KES 50.00" in text
        assert "KES 1,447.50 KES 1,450.00" in text
    for file in files:
        assert rows_of(file)[0] | {"line": ""} == {
            "line": "", "name": "pay_1", "column": "fee", "before": "KES 52.50",
            "after": "KES 50.00",
        }  # fmt: skip


async def test_only_the_bytes_that_were_shown_are_imported(console: RunningConsole) -> None:
    """Another digest in the form, or another file on disk, imports nothing."""
    async with console.signed_in("finance") as client:
        found = await read(client, STATEMENT)
        path = f"/do/import?upload={found['upload']}"
        other = await send(client, path, sha256="0" * 64)
        (kept,) = console.console.uploads.of_person("a finance")
        kept.file.path.write_bytes(STATEMENT.replace(b"1500.00", b"9500.00"))
        sent = await confirm(client, found["upload"])
        told = (await client.get(place(sent) + ".json")).json()
    assert other.status_code == 400
    assert told["import"] is None
    assert "changed" in told["problems"][0]["sentence"]
    assert lines_of(console) == 0


async def test_a_form_that_was_sent_twice_imports_once(console: RunningConsole) -> None:
    async with console.signed_in("finance") as client:
        found = await read(client, STATEMENT)
        path = f"/do/import?upload={found['upload']}"
        form = {"form": await of_form(client, path), "sha256": found["sha256"]}
        first, again = await client.post(path, data=form), await client.post(path, data=form)
    assert (first.status_code, again.status_code) == (303, 404)
    assert lines_of(console) == 2
    assert len(console.driver.rows("SELECT 1 FROM imports")) == 1


async def imported(client: httpx2.AsyncClient, content: bytes, **fields: str) -> str:
    """Return the page of the file that was sent and imported."""
    found = await read(client, content, **fields)
    return place(await confirm(client, found["upload"]))


async def test_an_import_is_taken_back_after_a_look(console: RunningConsole) -> None:
    """The form says what would no longer count; the act is an audit entry and happens once."""
    async with console.signed_in("finance") as client:
        page = await imported(client, STATEMENT)
        path = f"/do/withdraw-import?import={page.rpartition('/')[2]}"
        asked = shown((await client.get(path)).text)
        blind = await send(client, path, reason="the wrong shop's", seen="")
        assert console.driver.rows("SELECT count(*) FROM imports") == [(1,)]
        done = await send(client, path, reason="the wrong shop's")
        after, listed = await client.get(page), (await client.get("/imports.json")).json()
        second = await client.get(path)
        withdrawal = shown((await client.get(f"/imports/{listed['imports'][0]['import']}")).text)
    assert "2 lines of this import are in force, KES 1,500.00, USD 99.00" in asked
    assert (blind.status_code, done.status_code, place(done)) == (400, 303, page)
    assert "the wrong shop's" in shown(after.text)
    assert "Take it back" not in shown(after.text)
    assert [each["withdraws"] for each in listed["imports"]] == [1, None]
    assert second.status_code == 400
    assert "withdrawn already" in shown(second.text)
    assert "withdrew import 1" in withdrawal
    assert console.driver.rows(
        "SELECT who, subject, reason FROM audit WHERE action = 'statement_withdrawn'"
    ) == [("a finance", "import 1", "the wrong shop's")]


async def test_a_large_import_is_taken_back_by_two(console: RunningConsole) -> None:
    """It is proposed, shown, and approved by another; a changed import is not withdrawn."""
    await save_rules(console.context, '[accept_alone_max]\nKES = "10.00"\n', by="a finance")
    async with console.signed_in("finance") as client:
        page = await imported(client, STATEMENT)
        path = f"/do/withdraw-import?import={page.rpartition('/')[2]}"
        asked = shown((await client.get(path)).text)
        stale = await send(client, path, reason="not ours", seen="[7, {}]")
        sent = await send(client, path, reason="not ours")
        waits = (await client.get(f"{page}.json")).json()
        offered = (await client.get(page)).text
        name = waits["proposal"]["id"]
        found = (await client.get(f"/proposals/{name}.json")).json()
    async with console.signed_in("admin") as client:
        done = await send(client, f"/do/approve?proposal={name}", reason="I asked them")
        after = (await client.get(f"{page}.json")).json()
    assert "more than the KES 10.00 that one person may accept" in asked
    assert "Propose it" in asked
    assert "have changed since you looked" in shown(stale.text)
    assert "Proposed to a second person" in shown(sent.text)
    assert (waits["state"], found["where"]) == ("imported", page)
    assert "/do/withdraw-import" not in offered
    assert (done.status_code, after["state"], after["taken_back"]["by"]) == (
        303, "withdrawn", "a finance",
    )  # fmt: skip


async def test_an_upload_is_its_senders_and_ends_in_time(console: RunningConsole) -> None:
    """Nobody else sees it. It is deleted after an hour, or when given up."""
    async with console.signed_in("finance") as client:
        found = await read(client, STATEMENT)
        given_up = await read(client, STATEMENT)
        (first, second) = reversed(console.console.uploads.of_person("a finance"))
        async with console.signed_in("admin") as another:
            assert (await another.get(f"/imports/{found['upload']}")).status_code == 404
            assert (await another.get(f"/do/import?upload={found['upload']}")).status_code == 404
            assert (await another.get("/imports.json")).json()["waiting"] == []
        left = await send(client, f"/do/discard?upload={given_up['upload']}")
        assert (left.status_code, second.file.path.exists()) == (303, False)
        assert first.file.path.exists()
        console.driver.clock.put(console.driver.clock.now() + 2 * HOUR)
        gone = await client.get(f"/imports/{found['upload']}")
    assert gone.status_code == 404
    assert "upload it again" in shown(gone.text)
    assert not first.file.path.exists()


async def test_what_is_too_large_or_no_form_is_refused_and_leaves_nothing(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "MAX_FORM_BYTES", 20_000)
    async with console.signed_in("finance") as client:
        large = await upload(client, STATEMENT + b"x" * 20_000)
        none = await client.post("/do/upload", data={"form": "x"})
        head = {"content-type": "multipart/form-data; boundary=abc"}
        cut = b'--abc\r\nContent-Disposition: form-data; name="form"\r\n\r\nx'
        broken = await client.post("/do/upload", content=cut, headers=head)
        empty = await upload(client, b"")
    assert {each.status_code for each in (large, none, broken, empty)} == {400}
    assert "larger than 32 MiB" in shown(large.text)
    assert "arrived incomplete" in shown(broken.text)
    assert "choose a file" in shown(empty.text).lower()
    assert console.console.uploads._folder is None


async def test_who_sends_nothing_more_gives_the_turn_back(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "RECEIVED_WITHIN_S", 0)
    never = asyncio.Event()
    for _ in range(uploads.MOST_RECEIVED - 1):
        await console.console.uploads._turns.acquire()

    async def dripping() -> AsyncIterator[bytes]:
        yield b"--abc\r\n"
        await never.wait()

    head = {"content-type": "multipart/form-data; boundary=abc"}
    async with console.signed_in("finance") as client:
        slow = await client.post("/do/upload", content=dripping(), headers=head)
        monkeypatch.undo()
        assert (await upload(client, STATEMENT)).status_code == 303
    assert slow.status_code == 400
    assert "did not arrive within" in shown(slow.text)


async def test_who_gets_no_turn_is_told_to_come_again(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is not kept. The body is read to its end so that browsers show the answer."""
    monkeypatch.setattr(uploads, "TURN_WITHIN_S", 0)
    place = console.console.uploads
    for _ in range(uploads.MOST_RECEIVED):
        await place._turns.acquire()
    async with console.signed_in("finance") as client:
        refused = await upload(client, STATEMENT)
        place._turns.release()
        assert (await upload(client, STATEMENT)).status_code == 303
    assert refused.status_code == 400
    assert "send your file again in a minute" in shown(refused.text)
    assert len(place.of_person("a finance")) == 1


async def test_who_may_not_import_sends_no_file(console: RunningConsole) -> None:
    async with console.signed_in("support") as client:
        refused = await client.post(
            "/do/upload", data={"form": "x"}, files={"file": ("a.csv", STATEMENT, "text/csv")}
        )
    assert refused.status_code == 403
    assert console.console.uploads._folder is None


async def test_the_oldest_file_gives_way(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "MOST_KEPT", 2)
    async with console.signed_in("finance") as client:
        names = [(await read(client, STATEMENT))["upload"] for _ in range(3)]
        listed = (await client.get("/imports.json")).json()["waiting"]
    assert [each["upload"] for each in listed] == [names[2], names[1]]


async def test_ones_own_files_give_way_before_anothers(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "MOST_KEPT", 2)
    async with console.signed_in("admin") as admin, console.signed_in("finance") as finance:
        older = (await read(admin, STATEMENT))["upload"]
        for _ in range(2):
            newest = (await read(finance, STATEMENT))["upload"]
        of_admin = (await admin.get("/imports.json")).json()["waiting"]
        of_finance = (await finance.get("/imports.json")).json()["waiting"]
    assert [each["upload"] for each in of_admin] == [older]
    assert [each["upload"] for each in of_finance] == [newest]


@for_each(
    ("sent", "kept"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\books\\oct.csv", "oct.csv"),
        (".hidden", "hidden"),
        ("", "file"),
        ("ä" * 200, "ä" * 60),
    ],
)
def test_a_file_keeps_its_name_but_no_way_out(sent: str, kept: str) -> None:
    assert uploads._file_name(sent) == kept


async def test_what_a_killed_console_left_is_deleted(
    console: RunningConsole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of a running console stay."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("killed", "living"):
        (tmp_path / f"{uploads.PREFIX}{name}").mkdir()
    living = lock_folder(tmp_path / f"{uploads.PREFIX}living")
    assert living is not None
    place, other = Uploads(console.context.clock), Uploads(console.context.clock)
    for each in (place, other):
        each._place()
    left = {each for each in os.listdir(tmp_path) if uploads.PREFIX in each}
    assert {f"{uploads.PREFIX}living", str(place._folder and place._folder.name)} < left
    assert (len(left), f"{uploads.PREFIX}killed" in left) == (3, False)
    for each in (place, other):
        each.close()
    os.close(living)
    left = {each for each in os.listdir(tmp_path) if uploads.PREFIX in each}
    assert left == {f"{uploads.PREFIX}living"}


@pytest.mark.parametrize("planted", ["linked folder", "another's", "file"])
async def test_what_another_program_planted_is_left_alone(
    console: RunningConsole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    """The temporary folder is shared: a name proves nothing."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder, elsewhere = tmp_path / f"{uploads.PREFIX}x", tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    if planted == "linked folder":
        folder.symlink_to(elsewhere)
    elif planted == "file":
        folder.touch()
    else:
        folder.mkdir()
        monkeypatch.setattr("app.console.uploads.os.getuid", lambda: -1)
    place = Uploads(console.context.clock)
    place._place()
    place.close()
    assert folder.exists()
    assert (elsewhere / "kept").exists()


async def test_a_job_goes_on_without_the_page_and_only_once(console: RunningConsole) -> None:
    """A page that does not wait says that it goes on."""
    jobs, ended = Jobs(console.context.clock, patience_s=0), asyncio.Event()
    slow = replace(console.console, jobs=jobs)

    async def run(*words: object, **named: object) -> None:
        await ended.wait()
        raise UsageError("the rules in force changed meanwhile")

    slow = replace(slow, work=instead(slow.work, reconcile_for, run))
    running = RunningConsole(console=slow, application=build_console(slow), driver=console.driver)
    async with running.signed_in("finance") as client:
        begun = await send(client, "/do/run", since="", until="", reason="month end")
        page = shown((await client.get("/runs")).text)
        again = await send(client, "/do/run", since="", until="", reason="month end")
        ended.set()
        await asyncio.wait(jobs._tasks.values())
        failed = shown((await client.get("/runs")).text)
    assert (begun.status_code, again.status_code) == (303, 400)
    assert "A run is under way" in page
    assert "has already started this job" in shown(again.text)
    assert "failed: the rules in force changed meanwhile" in failed


async def test_jobs_are_remembered_to_a_number(
    console: RunningConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest are kept, and a running one is never forgotten."""
    monkeypatch.setattr("app.core.jobs.KEPT", 3)
    jobs, ended = Jobs(console.context.clock), asyncio.Event()

    async def work() -> bool:
        return await ended.wait()

    async def nothing() -> None:
        return None

    slow = jobs.begin("run", "everything", by="Ann", work=work)
    names = []
    for number in range(6):
        job = jobs.begin("preview", f"{number}", by="Ann", work=nothing)
        await jobs.wait(job)
        names.append(job.name)
    assert [name for name in names if jobs.job(name) is not None] == names[-2:]
    assert jobs.job(slow.name) is slow
    await jobs.close()
    assert slow.ended is not None


async def test_a_job_is_done_in_another_process(console: RunningConsole, tmp_path: Path) -> None:
    """A refusal there has the same words here."""
    work = ElsewhereOf(load_settings(environ(tmp_path)))(purpose="writing", at_once=1, died="died")
    with pytest.raises(UsageError, match="'nobody' is not an active operator"):
        await work(close_period, CloseRequest(period="2026-01", by="nobody", reason="month end"))


async def test_files_of_the_import_folder_are_tried_again_from_the_page(
    console: RunningConsole,
) -> None:
    task = ImportTask(folder="shop", file="a.csv", problem="it is a workbook", since=Instant(0))
    async with console.context.database.writing() as connection:
        await replace_import_tasks(connection, [task])
    async with console.signed_in("finance") as client:
        page = await client.get("/imports")
        sent = await send(client, "/do/try-folder")
        after = shown((await client.get(sent.headers["location"])).text)
    assert 'href="/do/try-folder"' in page.text
    assert "The service reads these files again within half a minute." in after
    assert "shop/a.csv" not in after
    assert console.driver.rows("SELECT 1 FROM import_tasks") == []
