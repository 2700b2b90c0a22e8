"""Every preset reads a sample of its export with one command, and is known by its heading alone.

The samples were made for these tests from public documentation, which each preset names. After a
change that is meant: `TALLYHOOK_GOLDEN=write pytest tests/finance/test_presets.py`, and read the
difference.
"""

import csv
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
import xlsxwriter
from pydantic import SecretStr

from app.config.settings import SourceSettings
from app.context.context import AppContext
from app.core.clock import SetClock
from app.core.errors import NotFoundError, UsageError
from app.finance.file_identity import identify_file
from app.finance.files.line_forms import Understanding
from app.finance.files.presets import (
    ReadingDefaults,
    ReadingRequest,
    choose,
    export_in,
    load_preset,
    preset_text,
    read_preset,
    recognized,
    recognized_in,
    shipped_presets,
)
from app.finance.files.statements import TYPES, StatementForm
from app.finance.imports import (
    Imported,
    ImportRequest,
    identify,
    import_book,
    import_kind,
    import_statement,
)
from app.finance.named_mappings import list_mappings, save_named, with_named_mapping
from app.finance.read_lines import list_book, list_statement
from app.providers.profile import shipped_profiles
from reconcile.instants import format_instant
from reconcile.money import Money
from tests.database.builders import context as context_of
from tests.database.builders import opened, rows
from tests.reconcile.build import seconds
from tests.reconcile.pinned import FOLDER, WRITE
from tests.rows import for_each
from tests.searching import every

SAMPLES: Final = Path(__file__).parent / "presets"
GOLDEN: Final = FOLDER / "presets.txt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Options given beside a file, and the counts of its rows."""

    read: int
    ignored: int = 0
    said: Mapping[str, str] = field(default_factory=dict)


SAMPLE: Final[Mapping[str, Sample]] = {
    "adyen_settlement": Sample(read=8, ignored=1),
    "amazon_settlement": Sample(read=6),
    "chase_checking": Sample(read=2, ignored=1, said={"account": "checking"}),
    "deutsche_bank": Sample(read=3, ignored=1, said={"account": "current"}),
    "ebay_transactions": Sample(read=3, ignored=1),
    "etsy_statement": Sample(read=8, ignored=2),
    "flutterwave_settlement": Sample(read=2, ignored=1),
    "ing_de": Sample(read=2),
    "ing_nl": Sample(read=2),
    "klarna_settlement": Sample(read=4),
    "mollie_settlement": Sample(read=6, said={"zone": "Europe/Amsterdam"}),
    "mpesa_portal": Sample(read=6, ignored=2),
    "n26_account": Sample(read=2),
    "paypal_activity": Sample(read=9, ignored=1, said={"dates": "month_first"}),
    "paystack_settlement": Sample(read=2),
    "paystack_transactions": Sample(read=2, ignored=2),
    "quickbooks_invoices": Sample(
        read=3, ignored=4, said={"dates": "month_first", "currency": "usd"}
    ),
    "quickbooks_sales": Sample(read=2, ignored=7, said={"dates": "month_first", "currency": "usd"}),
    "razorpay_settlement": Sample(read=3, ignored=1),
    "revolut_business": Sample(read=2, ignored=1),
    "shopify_orders": Sample(read=4),
    "sparkasse_camt": Sample(read=2, ignored=1),
    "square_transactions": Sample(read=5, ignored=1, said={"currency": "usd"}),
    "stripe_balance": Sample(read=8),
    "stripe_payouts": Sample(read=7),
    "wise_statement": Sample(read=2, said={"zone": "Europe/Berlin"}),
    "woocommerce_orders": Sample(read=4, said={"zone": "Africa/Nairobi"}),
    "woopayments_transactions": Sample(read=4),
    "xero_invoices": Sample(read=2, ignored=2, said={"dates": "day_first"}),
}


WITHOUT_PROFILE: Final = {
    "amazon_settlement", "ebay_transactions", "etsy_statement", "klarna_settlement",
    "woopayments_transactions",
}  # fmt: skip


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[AppContext]:
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/t.db") as inbox:
        yield context_of(inbox, at=60)


def sample(name: str) -> Path:
    return SAMPLES / f"{name}.csv"


async def imported(context: AppContext, name: str, path: Path, **more: Any) -> Imported:
    """Import a file as `tallyhook import` does, with what must be declared beside it."""
    request = ImportRequest(path=path, **{**SAMPLE[name].said, **more})
    found = await identify(context, request, kind=None, source=None)
    kind, _ = found.settled()
    done = await import_kind(context, found.reading(request), kind=kind, source="shop")
    done.explain(found)
    return done


async def lines_of(context: AppContext, name: str) -> list[str]:
    """Return the stored lines."""
    later = replace(context, clock=SetClock(seconds(120)))
    if load_preset(name).kind == "book":
        return [
            f"{each.reference} {each.kind} {each.money} {_at(each.placed_at)} {each.status} "
            f"refunded {each.refunded} by {each.method}"
            for each in await list_book(later, reference=None, as_of=None, limit=99)
        ]
    if load_preset(name).kind == "bank":
        told = await rows(
            context,
            "SELECT account, currency, minor, booked_at, entry, reference, counterparty, told "
            "FROM bank_lines ORDER BY booked_at, entry",
        )
        return [
            f"{account} {Money(minor=minor, currency=currency)} {_at(at)} {rest}"
            for account, currency, minor, at, *rest in told
        ]
    return [
        f"{each.payment} {each.order} {each.kind} "
        f"{Money(minor=each.gross, currency=each.currency)} - {each.fee} = {each.net} "
        f"{_at(each.settled_at)} {each.payout}"
        + (f" in {each.wallet}" if each.wallet else "")
        + (f" refund {each.refund}" if each.refund else "")
        + (f" {each.details}" if each.details else "")
        for each in await list_statement(later, reference=None, as_of=None, limit=99)
    ]


def _at(instant: Any) -> str | None:
    return None if instant is None else format_instant(instant)


def golden() -> dict[str, list[str]]:
    """Return the recorded lines of each preset, by name."""
    if not GOLDEN.exists():
        return {}
    parts = GOLDEN.read_text(encoding="utf-8").split("=== ")[1:]
    return {name: lines for name, *lines in (part.strip().splitlines() for part in parts)}


def keep_golden(name: str, lines: list[str]) -> None:
    """Put them on record."""
    whole = golden() | {name: lines}
    GOLDEN.write_text(
        "\n".join(f"=== {each}\n" + "\n".join(whole[each]) + "\n" for each in sorted(whole)),
        encoding="utf-8",
    )


def test_every_statement_names_the_profiles_of_its_provider() -> None:
    """Its source follows from them; where there is no profile, a person says it."""
    for preset in map(load_preset, shipped_presets()):
        named = preset.kind == "statement" and preset.name not in WITHOUT_PROFILE
        assert bool(preset.profiles) == named
        assert {*preset.profiles} <= {*shipped_profiles()}


def test_every_statement_declares_how_money_that_leaves_is_written() -> None:
    for preset in map(load_preset, shipped_presets()):
        assert preset.mapping.signs is not None or preset.kind != "statement"


def test_every_preset_has_a_sample() -> None:
    assert sorted(SAMPLE) == shipped_presets() == sorted(path.stem for path in SAMPLES.iterdir())


@pytest.mark.parametrize("name", shipped_presets()[:: every(4)])
async def test_a_sample_is_recognized_as_itself_and_imports_with_one_command(
    name: str, context: AppContext
) -> None:
    """Nothing but what no preset can know is said beside it; the lines are those on record."""
    assert [each.export.name for each in recognized(sample(name))] == [name]
    done = await imported(context, name, sample(name))
    assert [each.sentence for each in done.problems] == []
    assert (done.preset, done.new, done.read) == (name, SAMPLE[name].read, SAMPLE[name].read)
    assert sum(done.ignored.values()) == SAMPLE[name].ignored
    assert done.notes[0].startswith(f"Read with the preset {name} (")
    lines = await lines_of(context, name)
    if WRITE:
        keep_golden(name, lines)
    assert lines == golden()[name]
    again = await imported(context, name, sample(name), preset=name)
    assert (again.preset, again.unchanged, again.notes) == (name, SAMPLE[name].read, [])


@pytest.mark.costly
@pytest.mark.parametrize("name", ["mpesa_portal", "quickbooks_invoices"])
async def test_a_workbook_gives_the_same_lines(
    name: str, context: AppContext, tmp_path: Path
) -> None:
    path = tmp_path / "export.xlsx"
    write_workbook(path, sample(name))
    assert [each.export.name for each in recognized(path)] == [name]
    done = await imported(context, name, path)
    assert ([each.sentence for each in done.problems], done.preset) == ([], name)
    assert await lines_of(context, name) == golden()[name]


def write_workbook(path: Path, source: Path) -> None:
    """Return the rows of a CSV file with amounts as numbers, and days with times as dates."""
    with xlsxwriter.Workbook(path) as book, source.open(newline="") as file:
        sheet = book.add_worksheet("Export")
        dated = book.add_format({"num_format": "dd-mm-yyyy hh:mm:ss"})
        for at, row in enumerate(csv.reader(file)):
            for place, cell in enumerate(row):
                plain = cell.replace(",", "").replace("$", "")
                negative = plain.startswith("(")
                plain = plain.strip("()")
                if plain.replace(".", "", 1).lstrip("-").isdigit() and "." in plain:
                    sheet.write_number(at, place, -float(plain) if negative else float(plain))
                elif len(cell) == 19 and cell[2] == "-":
                    sheet.write_datetime(
                        at, place, datetime.strptime(cell, "%d-%m-%Y %H:%M:%S"), dated
                    )
                else:
                    sheet.write_string(at, place, cell)


async def test_another_file_than_that_of_the_preset_is_refused_with_what_it_lacks(
    context: AppContext, tmp_path: Path
) -> None:
    path = tmp_path / "other.csv"
    path.write_text("Day,Ref,Receipt Nr,Sum\n2026-10-01,A,R1,5.00\n")
    for name in shipped_presets():
        done = await imported(context, name, path, preset=name)
        (problem,) = done.problems
        assert (problem.row, done.number, done.refused) == (1, None, True)
        assert f"this is not the file that the preset {name} reads" in problem.sentence
        assert "there is no column" in problem.sentence
        assert problem.sentence.endswith("the file has Day, Ref, Receipt Nr, Sum")
        nearest = "the nearest is 'Receipt Nr'" in problem.sentence
        assert nearest == (name == "mpesa_portal")


async def test_a_file_of_the_other_kind_is_refused_with_its_command(context: AppContext) -> None:
    done = await import_book(context, ImportRequest(path=sample("stripe_payouts")))
    assert done.refused
    assert (done.notes, done.looks_like) == ([], "statement")
    assert done.suggestion == (
        "The file looks like stripe_payouts (Stripe, payout reconciliation, itemized), which is a "
        "statement: import it with `tallyhook statement import`, or with `tallyhook import`, which "
        "recognizes it."
    )
    with pytest.raises(UsageError, match="use `tallyhook records import`"):
        await import_statement(
            context,
            ImportRequest(path=sample("shopify_orders"), preset="shopify_orders"),
            source="",
        )


async def test_a_file_that_looks_like_two_exports_is_refused_with_both(
    context: AppContext, tmp_path: Path
) -> None:
    path = tmp_path / "both.csv"
    names = ("paystack_settlement", "stripe_payouts")
    path.write_text("\n".join(sample(name).read_text().splitlines()[0] for name in names))
    with pytest.raises(UsageError) as raised:
        await import_statement(context, ImportRequest(path=path), source="")
    assert "give --preset paystack_settlement or --preset stripe_payouts" in str(raised.value)


def heading(*names: str, less: str = "") -> str:
    """Return a heading with the columns of these presets, less one."""
    columns = [
        each
        for name in names
        for each in load_preset(name).columns.found(load_preset(name).columns.names)
        if each != less
    ]
    return ",".join(columns) + "\n"


@for_each(
    ("columns", "names"),
    [
        (heading("stripe_balance"), ["stripe_balance"]),
        (heading("stripe_balance", less="available_on"), ["stripe_balance"]),
        (heading("stripe_balance", less="available_on_utc"), ["stripe_balance"]),
        (heading("stripe_balance", less="card_country"), ["stripe_balance"]),
        (heading("paypal_activity"), ["paypal_activity"]),
        (heading("paypal_activity", less="Balance Impact"), ["paypal_activity"]),
        (heading("stripe_payouts"), ["stripe_payouts"]),
        (heading("stripe_payouts", less="automatic_payout_id"), ["stripe_balance"]),
        (heading("stripe_payouts", less="reporting_category"), []),
        (heading("quickbooks_invoices"), ["quickbooks_invoices"]),
        (heading("quickbooks_invoices").strip() + ",Balance\n", []),
    ],
)
def test_the_preset_that_reads_most_of_a_heading_is_recognized(
    columns: str, names: list[str], tmp_path: Path
) -> None:
    """Whatever it can do without may be missing."""
    path = tmp_path / "export.csv"
    path.write_text(columns)
    assert [each.export.name for each in recognized(path)] == names


def test_two_presets_that_read_equally_much_are_a_question() -> None:
    own = [
        export_in(name, f'kind = "book"\n[columns]\nreference = "No"\namount = "{name}"\n')
        for name in ("Sum", "Total")
    ]
    more = export_in("more", '[columns]\nreference = "No"\namount = "Sum"\nmethod = "By"\n')
    rows = [(1, ["No", "Sum", "Total", "By"])]
    assert [each.export.name for each in recognized_in(rows, own)] == ["Sum", "Total"]
    assert [each.export.name for each in recognized_in(rows, [*own, more])] == ["more"]
    assert [each.export.name for each in recognized_in(rows, [more, *own])] == ["more"]


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        (heading("paypal_activity", less="TimeZone"), "Nearly paypal_activity (PayPal, activity "
         "download): 'TimeZone' is missing. Export the file with all its columns, or change a "
         "copy of the preset (`tallyhook presets show paypal_activity`)."),
        (heading("stripe_payouts", less="reporting_category"), "Nearly stripe_payouts (Stripe, "
         "payout reconciliation, itemized): 'reporting_category' is missing. "),
        ("Day,Gross,Fee,Net,Currency,Type\n", ""),
    ],
)  # fmt: skip
async def test_a_file_that_is_nearly_a_known_export_says_which_column_it_lacks(
    columns: str, sentence: str, context: AppContext, tmp_path: Path
) -> None:
    path = tmp_path / "export.csv"
    path.write_text(columns)
    done = await import_statement(context, ImportRequest(path=path), source="")
    found = identify_file(ReadingRequest(path=path), sources={})
    assert done.refused
    assert list(found.nearly) == done.notes
    assert " ".join(done.notes).startswith(sentence)
    assert bool(done.notes) == bool(sentence)
    with pytest.raises(UsageError, match=re.escape(sentence) or "known export"):
        found.settled()


async def test_a_copy_of_a_preset_is_saved_as_a_mapping_and_recognized(
    context: AppContext, tmp_path: Path
) -> None:
    """A copy outweighs the shipped preset, and knows provider and account; so does a file of it."""
    text = preset_text("mpesa_portal")
    await save_named(context, "our till", kind="statement", toml=text, by=None)
    sources = {
        name: SourceSettings(
            profile="mpesa_stk", credentials={"shortcode": SecretStr(code)}, account=()
        )
        for name, code in (("nairobi", "600111"), ("mombasa", "600222"))
    }
    request = ImportRequest(path=sample("mpesa_portal"))
    found = identify_file(request, sources=sources, saved=await list_mappings(context))
    assert (found.settled(), found.mapping) == (("statement", "nairobi"), "our till")
    request = await with_named_mapping(context, found.reading(request))
    done = await import_statement(context, request, source="shop")
    assert (done.preset, done.new, done.problems) == ("our till", 6, [])
    assert await lines_of(context, "mpesa_portal") == golden()["mpesa_portal"]
    (tmp_path / "till.toml").write_text(text)
    request = ImportRequest(path=sample("mpesa_portal"), mapping=tmp_path / "till.toml")
    by_path = await import_statement(context, request, source="shop")
    assert (by_path.preset, by_path.unchanged) == ("till", 6)
    with pytest.raises(UsageError, match="a mapping for another kind of file: statement"):
        await save_named(context, "our till", kind="book", toml=text, by=None)


@pytest.mark.parametrize(
    ("name", "was", "now", "row", "sentence"),
    [
        ("amazon_settlement", "\t34.24\t", "\t35.24\t", 14, "'35.24', differ by -1.00: rows are"),
        ("amazon_settlement", "\t-6.00\t", "\tsix\t", 3, "'six'"),
        ("amazon_settlement", "Cost of Advertising", "Storage", 12, "'Storage' is none of"),
        ("amazon_settlement", "\t39.98\tAFN", "\t39.98", 3, "the row has 18 cells, but the head"),
        ("etsy_statement", "Marketing,", "Mystery,", 7, "'Mystery' is none of"),
        (
            "mollie_settlement",
            "Withheld transaction fees MOL-2026-0001",
            "Reserve",
            7,
            "'Reserve' is",
        ),
        ("square_transactions", ",-$1.00,,$0.00", ",-$1.00,$0.00", 3, "the row has 30 cells"),
        ("mollie_settlement", "chb_", "tbt_", 6, "is none of payment, refund"),
    ],
)
async def test_a_row_function_reports_what_does_not_fit(
    name: str, was: str, now: str, row: int, sentence: str, context: AppContext, tmp_path: Path
) -> None:
    path = tmp_path / "export.csv"
    path.write_text(sample(name).read_text().replace(was, now, 1))
    done = await imported(context, name, path)
    found = [each.sentence for each in done.problems if each.row == row]
    assert done.number is None
    assert any(sentence in each for each in found), done.problems


async def test_rejected_rows_of_a_row_function_are_corrected_and_imported(
    context: AppContext, tmp_path: Path
) -> None:
    """They have its columns already."""
    export, rejects = tmp_path / "export.txt", tmp_path / "export.rejects.csv"
    text = sample("amazon_settlement").read_text()
    export.write_text(text.replace("Cost of Advertising", "Storage"))
    done = await imported(context, "amazon_settlement", export, accept_good=True)
    assert (done.new, done.rejected) == (5, 1)
    rejects.write_text(rejects.read_text().replace(",Storage,", ",Cost of Advertising,"))
    done = await imported(context, "amazon_settlement", rejects)
    assert (done.preset, done.new, done.problems) == ("amazon_settlement", 1, [])
    assert await lines_of(context, "amazon_settlement") == golden()["amazon_settlement"]


async def test_a_file_with_the_usual_names_is_read_as_such_where_that_is_said(
    context: AppContext, tmp_path: Path
) -> None:
    path = tmp_path / "own.csv"
    path.write_text(
        "order_id,order_number,order_date,status,order_total,order_currency,reference,amount,"
        "currency\n1,1,,paid,1,KES,A-1,5.00,KES\n"
    )
    done = await import_book(context, ImportRequest(path=path, preset="none"))
    assert (done.preset, done.new) == (None, 1)


async def test_a_word_without_a_meaning_is_named_with_both_ways_out(
    context: AppContext, tmp_path: Path
) -> None:
    """A copy of the preset with the word, said by its path, is one of them."""
    path, export = tmp_path / "till.toml", tmp_path / "october.csv"
    known = '"Pay Bill Charge" = "fee"'
    path.write_text(preset_text("mpesa_portal").replace(known, f'{known}\nTips = "payment"'))
    text = sample("mpesa_portal").read_text().replace("Pay Bill Online", "Tips")
    export.write_text(
        text.replace("Business Pay Bill Charge", "Gift").replace("Pay Utility,", "Tips,")
    )
    refused = await import_statement(context, ImportRequest(path=export), source="")
    assert (refused.problems[0].row, refused.problems[0].column) == (8, "Reason Type")
    assert refused.problems[0].sentence == (
        f"'Tips' is none of {', '.join(TYPES)}: map it to one of them under [words.type], "
        "or list it under [ignore], in a copy of the preset (`tallyhook presets show "
        "mpesa_portal > my.toml`), and import with --preset ./my.toml"
    )
    assert refused.notes[-1] == (
        "Words that the mapping does not know: 'Tips' (2 rows, column Reason Type), 'Gift' (1 "
        "row, column Reason Type)."
    )
    request = ImportRequest(path=export, preset=str(path))
    refused = await import_statement(context, request, source="")
    (gift,) = refused.problems
    assert gift.sentence.endswith(
        ": map it to one of them under [words.type] in a mapping, or leave its rows out under "
        "[ignore]"
    ), "the copy is changed, and not made anew over itself"
    export.write_text(text)
    done = await import_statement(context, request, source="")
    assert (done.preset, done.new) == ("till", 6)


def test_no_preset_gives_a_meaning_to_words_that_it_does_not_list() -> None:
    """A star in a copy of one is refused, too."""
    for name in shipped_presets():
        assert "*" not in "".join(preset_text(name).partition("\nkind =")[1:])
    for text, said in (
        ('"Payout" = "carried"', "words.type.*pay*: '*pay*' has a star"),
        ('[ignore]\nType = ["*hold*"]', "ignore: Type: '*hold*' has a star"),
        ('[keep]\nType = ["*sale"]', "keep: Type: '*sale' has a star"),
    ):
        word = text.replace("Payout", "*pay*")
        with pytest.raises(UsageError) as raised:
            read_preset("mine", f'kind = "statement"\n[words.type]\n{word}\n', file="mine.toml")
        assert said in str(raised.value)


HOLDS = """\
"11/01/2026","10:00:00","PST","A","Express Checkout Payment","Completed","USD","3,747.22",\
"-100.00","3,647.22","a@x.example","s@x.example","P1","","","","ORD-1","3,647.22","Credit"
"11/02/2026","10:00:00","PST","A","Payment Hold","Placed","USD","-3,647.22","0.00","-3,647.22",\
"s@x.example","a@x.example","H1","","P1","","","0.00","Debit"
"11/05/2026","10:00:00","PST","A","Payment Release","Completed","USD","3,647.22","0.00","3,647.22",\
"a@x.example","s@x.example","R1","","H1","","","3,647.22","Credit"
"""


async def test_purchases_from_an_account_are_said_aloud(
    context: AppContext, tmp_path: Path
) -> None:
    export = tmp_path / "november.csv"
    row = PAYPAL.format(type="General Payment", gross="-5.00", status="Completed", impact="Debit")
    export.write_text(row)
    request = ImportRequest(path=export, preset="paypal_activity", dates="month_first")
    done = await import_statement(context, request, source="")
    assert (done.new, done.notes) == (1, [
        "Read as disbursements, because they are purchases from the account or refunds of "
        "purchases: 1 row."
    ])  # fmt: skip


async def test_a_hold_and_its_release_add_up_to_zero(context: AppContext, tmp_path: Path) -> None:
    """The release of a payment is no second payment."""
    export = tmp_path / "november.csv"
    heading = sample("paypal_activity").read_text().partition("\n")[0]
    export.write_text(f"{heading}\n{HOLDS}")
    request = ImportRequest(path=export, dates="month_first")
    assert (await import_statement(context, request, source="")).new == 3
    lines = await list_statement(context, reference=None, as_of=None, limit=9)
    nets = {each.kind: each.net for each in lines}
    assert nets == {"payment": 364_722, "hold": -364_722, "release": 364_722}
    assert {each.payment for each in lines if each.kind != "payment"} == {"H1"}


@pytest.mark.parametrize(
    ("name", "known", "unknown"),
    [
        ("mpesa_portal", "Pay Utility Reversal", "Till Audit"),
        ("paypal_activity", "General Withdrawal", "Special Settlement"),
        ("stripe_balance", "risk_reserved_funds", "platform_earning"),
        ("stripe_payouts", "dispute_reversal", "platform_earning"),
        ("adyen_settlement", "ReserveAdjustment", "Advancement"),
    ],
)
async def test_a_type_of_row_that_a_preset_does_not_know_is_a_problem(
    name: str, known: str, unknown: str, context: AppContext, tmp_path: Path
) -> None:
    """Left out, it would be missing in a balance."""
    export = tmp_path / "export.csv"
    text = sample(name).read_text()
    export.write_text(text.replace(known, unknown))
    done = await imported(context, name, export)
    assert [f"'{unknown}' is none of" in each.sentence for each in done.problems] == [
        True
    ] * text.count(known)
    assert done.problems
    assert done.number is None


PURCHASES = [
    ("Express Checkout Payment", "-15.00", "disbursement"),
    ("PreApproved Payment Bill User Payment", "\u221215.00", "disbursement"),
    ("General Payment", "15.00", "payment"),
    ("Payment Refund", "15.00", "disbursement"),
    ("Payment Refund", "-15.00", "refund"),
]


@for_each(("stated", "gross", "kind"), PURCHASES)
def test_what_a_merchant_buys_from_the_account_is_no_customer_s_payment(
    stated: str, gross: str, kind: str, tmp_path: Path
) -> None:
    """Nor is what comes back from such a purchase; neither is a refund."""
    row = PAYPAL.format(type=stated, gross=gross, status="Completed", impact="x")
    rows, problems, _ = read_with("paypal_activity", row.replace(",x", ",Debit"), tmp_path)
    assert (problems, [each["type"] for each in rows]) == ([], [kind])


@for_each(("zone", "settled_at"), [
    ("CDT", "2026-10-24T15:00:00Z"), ("Europe/Berlin", "2026-10-24T08:00:00Z"), ("CST", None),
])  # fmt: skip
def test_the_zones_of_an_export_are_abbreviations_or_names(
    zone: str, settled_at: str | None, tmp_path: Path
) -> None:
    """An abbreviation of several zones needs a word of the mapping."""
    lines = sample("adyen_settlement").read_text().splitlines()[:2]
    text = "\n".join(lines).replace(",CEST,", f",{zone},")
    rows, problems, _ = read_with("adyen_settlement", text, tmp_path)
    assert [row["settled_at"] for row in rows] == ([] if settled_at is None else [settled_at])
    assert any("may be -06:00 (America/Chicago)" in each for each in problems) == (zone == "CST")


@for_each(("status", "taken"), [
    ("Completed", 1), ("Refunded", 1), ("Placed", 1), ("Pending", 0), ("Denied", 0), ("Odd", None),
])  # fmt: skip
def test_without_its_column_of_impact_the_status_keeps_out_what_changed_no_balance(
    status: str, taken: int | None, tmp_path: Path
) -> None:
    """A status that says neither is a problem."""
    text = PAYPAL.format(type="General Payment", gross="5.00", status=status, impact="")
    text = text.replace(",Balance Impact", "").replace(",\n", "\n")
    rows, problems, ignored = read_with("paypal_activity", text, tmp_path)
    assert len(rows) == (taken or 0)
    assert ignored == ({("Status", status): 1} if taken == 0 else {})
    assert ["does not say whether" in each for each in problems] == [True] * (taken is None)


@for_each(("details", "came", "left", "linked", "reason", "kind"), [
    ("Pay Bill from 2547 Acc. 1", "100.00", "", "", "Pay Utility", "payment"),
    ("Pay Bill Charge", "", "-5.00", "", "Pay Utility", "fee"),
    ("To a person", "", "-5.00", "", "Salary Payment", "disbursement"),
    ("To a person", "", "-5.00", "UJ9", "Business Payment to Customer", "refund"),
    ("From a person", "5.00", "", "UJ9", "Business Payment to Customer", "disbursement"),
])  # fmt: skip
def test_a_till_s_charges_and_refunds_are_told_by_details_and_linked_receipts(
    details: str, came: str, left: str, linked: str, reason: str, kind: str, tmp_path: Path
) -> None:
    text = (
        "Account:,Utility\nReceipt No.,Completion Time,Details,Transaction Status,Paid In,"
        "Withdrawn,Reason Type,Linked Transaction ID\n"
        f"UJ1,31-10-2026 09:15:02,{details},Completed,{came},{left},{reason},{linked}\n"
    )
    rows, problems, _ = read_with("mpesa_portal", text, tmp_path)
    assert (problems, [each["type"] for each in rows]) == ([], [kind])


def test_a_row_of_a_till_without_a_reason_type_is_a_problem(tmp_path: Path) -> None:
    """Money from the merchant's own bank is no customer's payment."""
    rows, problems, _ = read_with(
        "mpesa_portal",
        "Account:,Utility\nReceipt No.,Completion Time,Details,Transaction Status,Paid In,"
        "Withdrawn,Reason Type\nUJ1,31-10-2026 09:15:02,Funds received from own bank,Completed,"
        "600000.00,,\n",
        tmp_path,
    )
    assert (rows, [each.partition(":")[0] for each in problems]) == (
        [], [f"an empty cell is none of {', '.join(TYPES)}"],
    )  # fmt: skip


@for_each(("category", "gross", "kind"), [
    ("charge_failure", "-5.00", "payment"), ("partial_capture_reversal", "-5.00", "payment"),
    ("refund_failure", "424.40", "returned"), ("reserve_transaction", "-5.00", "hold"),
    ("connect_reserved_funds", "5.00", "release"), ("charge_failure", "5.00", None),
    ("refund_failure", "-5.00", None), ("other_adjustment", "5.00", None),
])  # fmt: skip
def test_a_reporting_category_of_stripe_has_one_meaning_and_direction(
    category: str, gross: str, kind: str | None, tmp_path: Path
) -> None:
    heading = sample("stripe_balance").read_text().partition("\n")[0]
    cells = {
        "balance_transaction_id": "txn_1", "available_on": "2026-11-01 00:00:00",
        "currency": "eur", "gross": gross, "fee": "0.00", "net": gross,
        "reporting_category": category, "source_id": "ch_1", "payment_intent_id": "pi_1",
    }  # fmt: skip
    row = ",".join(cells.get(name, "") for name in heading.split(","))
    rows, problems, _ = read_with("stripe_balance", f"{heading}\n{row}\n", tmp_path)
    assert [each["type"] for each in rows] == ([] if kind is None else [kind])
    assert len(problems) == (kind is None)


PAYPAL = (
    "Date,Time,TimeZone,Type,Status,Currency,Gross,Fee,Net,Transaction ID,Reference Txn ID,"
    "Balance Impact\n"
    "10/30/2026,08:15:00,PDT,{type},{status},USD,{gross},0.00,{gross},T1,B-1,{impact}\n"
)


def read_with(
    preset: str, text: str, folder: Path
) -> tuple[list[dict[str, Any]], list[str], Mapping[Any, int]]:
    """Read a statement by a preset; return its rows, its problems, and what was left out."""
    path = folder / "export.csv"
    path.write_text(text)
    request = ReadingRequest(path=path, preset=preset, dates=SAMPLE[preset].said.get("dates"))
    chosen = choose(request, "statement", unstated=ReadingDefaults(zone=UTC))
    form = StatementForm(chosen.mapping, source="shop")
    table = chosen.open(path, form)
    understanding = Understanding(table, form, chosen.mapping)
    found = [understanding.batch(batch) for batch in table.batches()]
    return (
        [form.shown(row) for each in found for row in each.rows],
        [problem.sentence for each in found for problem in each.problems],
        dict(understanding.ignored()),
    )


async def test_a_refund_that_brings_money_is_refused_where_the_signs_of_the_file_mean_something(
    context: AppContext, tmp_path: Path
) -> None:
    """Money that came is not taken for money that went."""
    export = tmp_path / "november.csv"
    text = sample("stripe_balance").read_text()
    export.write_text(text.replace("-40.00,0.00,-40.00", "40.00,0.00,40.00"))
    refused = await import_statement(context, ImportRequest(path=export), source="")
    assert [(each.row, each.column) for each in refused.problems] == [(3, "reporting_category")]
    assert "its sign says that money came in" in refused.problems[0].sentence
    plain = tmp_path / "plain.csv"
    plain.write_text("payment_reference,gross,net,currency,type\np,100.00,100.00,USD,refund\n")
    await import_statement(context, ImportRequest(path=plain), source="")
    (line,) = await list_statement(context, reference="p", as_of=None, limit=9)
    assert line.gross == -10_000


async def test_rows_that_were_rejected_are_corrected_and_imported_as_the_same_export(
    context: AppContext, tmp_path: Path
) -> None:
    """An order of several rows is set aside as the one that it is."""
    export, rejects = tmp_path / "orders.csv", tmp_path / "orders.rejects.csv"
    text = sample("shopify_orders").read_text()
    export.write_text(text.replace("paid,2026-10-30 09", "odd,2026-10-30 09"))
    done = await import_book(context, ImportRequest(path=export, accept_good=True))
    assert (done.new, done.rejected) == (3, 1)
    rejects.write_text(rejects.read_text().replace("odd", "paid", 1))
    done = await import_book(context, ImportRequest(path=rejects))
    assert (done.preset, done.new, done.problems) == ("shopify_orders", 1, [])
    assert await lines_of(context, "shopify_orders") == golden()["shopify_orders"]


async def test_what_is_no_preset_is_refused_with_the_nearest(context: AppContext) -> None:
    request = ImportRequest(path=sample("mpesa_portal"), preset="mpesa")
    with pytest.raises(NotFoundError, match="the nearest one is mpesa_portal"):
        await import_statement(context, request, source="")
    with pytest.raises(UsageError, match="give --preset or --mapping"):
        await import_statement(context, replace(request, mapping=sample("mpesa_portal")), source="")


def test_a_preset_file_that_is_wrong_is_refused_with_all_that_is() -> None:
    text = 'kind = "bill"\ncolour = 1\n[recognize]\ncolumns = "Date"\n[amounts.gross]\nadd = 3\n'
    with pytest.raises(UsageError) as raised:
        read_preset("mine", text, file="mine.toml")
    lines = str(raised.value).splitlines()
    assert [line.partition(": ")[0] for line in lines] == [
        "mine.toml:1", "mine.toml:2", "mine.toml:4", "mine.toml:5", "mine.toml", "mine.toml",
    ]  # fmt: skip
