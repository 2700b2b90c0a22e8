"""`records` and `statement`: what they print, and how they end."""

import asyncio
import json
import zipfile
from pathlib import Path
from unittest.mock import ANY

import openpyxl
import pytest

from app.config.load import load_settings
from app.finance.named_mappings import save_named
from app.wiring.opening import open_context
from tests.api.driving import environ
from tests.cli.test_commands import Run
from tests.cli.test_commands import run as run
from tests.database.made import put_new
from tests.rows import for_each

BOOK = "reference;amount;currency;phone\nA-1;1500,00;KES;254700000001\nA-2;{};KES;\n"
MAPPING = 'decimal = ","\n'


@pytest.fixture
def files(tmp_path: Path) -> Path:
    put_new(tmp_path / "t.db")
    (tmp_path / "m.toml").write_text(MAPPING)
    (tmp_path / "book.csv").write_text(BOOK.format("20,00"))
    (tmp_path / "bad.csv").write_text(BOOK.format("1.234"))
    (tmp_path / "s.csv").write_text("payment_reference,gross,fee,currency\npay_1,15.00,1.00,KES\n")
    return tmp_path


def test_a_book_is_imported_and_listed(run: Run, files: Path) -> None:
    """The document is the one that is promised; the same file again changes nothing."""
    words = ("records", "import", str(files / "book.csv"), "--mapping", str(files / "m.toml"))
    done = run(*words, "--format", "json")
    assert (done.code, done.document) == (0, {
        "file": "book.csv", "kind": "book", "source": None, "import": 1, "proposal": None,
        "read": 2, "new": 2, "changed": 0, "unchanged": 0,
        "rejected": 0, "problems": [], "problems_left_out": 0, "rejects": None,
        "columns_not_read": [], "changes": [],
        "totals_left_out": [], "told_with_others": 0, "covers": [
            {"name": "book", "wallet": None, "since": None, "until": None, "by": ANY},
        ],
        "preset": None, "notes": [], "rows_ignored": [],
    })  # fmt: skip
    assert run(*words).out == (
        "book.csv: 2 rows read: 0 new, 0 changed, 2 unchanged, 0 rejected.\n"
    )
    lines = run("records", "list", "--format", "json").document
    assert [(each["reference"], each["amount"]["amount"]) for each in lines] == [
        ("A-1", "1500.00"), ("A-2", "20.00"),
    ]  # fmt: skip
    (line,) = run("records", "list", "--reference", "a 2", "--format", "json").document
    assert line["reference"] == "A-2"
    early = run("records", "list", "--as-of", "2020-01-01T00:00:00Z", "--format", "json")
    assert early.document == []
    assert [each["new"] for each in run("records", "imports", "--format", "json").document] == [
        0,
        2,
    ]


def test_a_file_with_problems_ends_with_one_and_imports_nothing(run: Run, files: Path) -> None:
    words = ("records", "import", str(files / "bad.csv"), "--mapping", str(files / "m.toml"))
    done = run(*words)
    assert done.code == 1
    assert done.out.startswith("row 3, column amount: '1.234' can be read as 1,234.00 (decimal")
    assert "Nothing was imported." in done.err
    document = run(*words, "--format", "jsonl").document
    assert [(each["row"], each["column"]) for each in document["problems"]] == [(3, "amount")]
    assert document["import"] is None
    taken = run(*words, "--accept-good", "--rejects", str(files / "left.csv"))
    assert (taken.code, "left.csv" in taken.err) == (1, True)
    assert "1.234,KES" in (files / "left.csv").read_text()


def test_a_dry_run_shows_rows_with_phones_masked(run: Run, files: Path) -> None:
    words = ("records", "import", str(files / "book.csv"), "--mapping", str(files / "m.toml"))
    shown = run(*words, "--dry-run")
    assert shown.code == 0
    assert "KES 1,500.00" in shown.out
    assert "254700000001" not in shown.out + shown.err
    rows = run(*words, "--dry-run", "--format", "json").document["rows"]
    assert rows[0]["phone"] == "+254 ••• ••• •01"
    assert run("records", "imports", "--format", "json").document == []


def test_changed_rows_are_shown_before_and_after(run: Run, files: Path) -> None:
    """Of a phone number only that it changed; the file has all of them."""
    words = ("records", "import", str(files / "book.csv"), "--mapping", str(files / "m.toml"))
    run(*words)
    changed = BOOK.replace("254700000001", "254700000002").format("21,50")
    (files / "book.csv").write_text(changed.replace("1500,00", "1499,00"))
    tried = run(*words, "--dry-run", "--changes", str(files / "changes.csv"))
    assert tried.out.splitlines()[-4:-1] == [
        "A-1: amount KES 1,500.00 → KES 1,499.00",
        "A-1: phone ••• → •••",
        "A-2: amount KES 20.00 → KES 21.50",
    ]
    written = (files / "changes.csv").read_text("utf-8-sig").splitlines()
    assert written[0] == "line,name,column,before,after"
    assert [line.split(",", 1)[1] for line in written[1:]] == [
        "A-1,amount,KES 1500.00,KES 1499.00",
        "A-1,phone,•••,•••",
        "A-2,amount,KES 20.00,KES 21.50",
    ]
    assert (
        "move it, or give" in run(*words, "--dry-run", "--changes", str(files / "changes.csv")).err
    )
    first, _ = run(*words, "--format", "json").document["changes"]
    assert (first["name"], first["columns"][0]) == ("A-1", {
        "column": "amount",
        "before": {"amount": "1500.00", "currency": "KES"},
        "after": {"amount": "1499.00", "currency": "KES"},
    })  # fmt: skip


def test_a_column_that_is_not_read_is_named(run: Run, files: Path) -> None:
    """A refund that stands as positive in a column of another name would be taken for a payment."""
    path = files / "t.csv"
    path.write_text(
        "payment_reference,gross,fee,currency, Kind of it,,x\x1b\npay_1,2,1,KES,refund,,\n"
    )
    done = run("statement", "import", str(path), "--dry-run")
    assert (done.code, done.err.splitlines()[0]) == (
        0, "Columns that were ignored: Kind of it, x\\x1b.",
    )  # fmt: skip
    document = run("statement", "import", str(path), "--dry-run", "--format", "json").document
    assert document["columns_not_read"] == ["Kind of it", "x\x1b"]


def test_a_row_that_may_correct_a_line_which_goes_on_counting_is_told(
    run: Run, files: Path
) -> None:
    """Two refunds of one payment and day may both have been made: nobody can know it but who sent
    the file. One that the file repeats, and one of another day, are other ones for certain."""
    head = "payment_reference,gross,fee,net,currency,type,settled_at\n"
    rows = "pay_1,-25,0,-25,KES,refund,2026-11-05\npay_2,-9,0,-9,KES,refund,2026-11-05\n"
    (files / "first.csv").write_text(head + rows)
    words = ("statement", "import")
    assert "counts beside" not in run(*words, str(files / "first.csv")).err
    (files / "next.csv").write_text(head + rows + "pay_1,-5,0,-5,KES,refund,2026-11-05\n")
    assert "counts beside" not in run(*words, str(files / "next.csv")).err
    (files / "right.csv").write_text(head + rows.replace("-9", "-8").replace("25", "20"))
    told = (
        "2 rows count in addition to rows that earlier imports have for the same payment or payout "
        "and day, and that this file lacks: refund of pay_1, KES 20.00 beside KES 25.00 of import "
        "1; refund of "
        "pay_2, KES 8.00 beside KES 9.00 of import 1. If this file corrects import 1, withdraw "
        "that (`tallyhook statement withdraw`), and then import this file again."
    )
    assert told in run(*words, str(files / "right.csv"), "--dry-run").err.splitlines()
    done = run(*words, str(files / "right.csv"), "--format", "json").document
    assert (done["new"], done["notes"]) == (2, [told])
    assert run("statement", "withdraw", "1", "--reason", "corrected").code == 0
    assert run(*words, str(files / "right.csv"), "--format", "json").document["notes"] == []


def test_a_statement_is_of_the_only_source_or_of_the_one_that_is_named(
    run: Run, files: Path
) -> None:
    words = ("statement", "import", str(files / "s.csv"), "--format", "json")
    assert run(*words).document["new"] == 1
    assert run(*words, "--source", "shop").document["unchanged"] == 1
    assert run(*words, "--source", "other").code == 2
    (line,) = run("statement", "list", "--reference", "pay_1", "--format", "json").document
    assert (line["net"]["amount"], line["type"], line["order"]) == ("14.00", "payment", None)
    assert len(run("statement", "imports", "--format", "json").document) == 2


def test_a_statement_of_one_of_several_sources_says_which(
    run: Run, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken as nobody's, and then once more under its source, its money would count twice."""
    monkeypatch.setenv("TALLYHOOK_SOURCES__BANK__PROFILE", "checkout")
    monkeypatch.setenv("TALLYHOOK_SOURCES__BANK__SECRETS", "whsec_" + "QmFuay4u" * 6)
    words = ("statement", "import", str(files / "s.csv"))
    refused = run(*words)
    assert (refused.code, refused.out) == (2, "")
    assert (
        "give --source, the source that this statement comes from. Possible: bank, shop"
        in refused.err
    )
    assert run("statement", "imports", "--format", "json").document == []
    assert run(*words, "--source", "bank", "--format", "json").document["new"] == 1
    assert run(*words, "--source", "bank", "--format", "json").document["unchanged"] == 1


def test_a_statement_needs_no_source_where_none_is_configured(
    run: Run, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files alone can be reconciled; what they say is nobody's."""
    monkeypatch.delenv("TALLYHOOK_SOURCES__SHOP__PROFILE", raising=False)
    monkeypatch.delenv("TALLYHOOK_SOURCES__SHOP__SECRETS")
    done = run("statement", "import", str(files / "s.csv"), "--format", "json")
    assert (done.code, done.document["new"]) == (0, 1)


@for_each(("words", "code", "said"), [
    (("records", "import", "missing.csv"), 5, "no file missing.csv"),
    (("statement", "import", "{s}", "--mapping", "missing.toml"), 5, "no mapping"),
    (("records", "import", "{s}", "--delimiter", "x"), 2, "delimiter: must be one of"),
    (("records", "import", "{s}", "--encoding", "zip"), 2, "is not a known encoding"),
    (("records", "import", "{s}", "--rejects", "x.csv"), 2, "give both"),
    (("records", "import", "{s}", "--format", "csv"), 2, "is not one of"),
    (("records", "import", "{s}", "--by"), 2, "requires an argument"),
    (("records", "list", "--as-of", "now"), 2, "--as-of"),
    (("statement", "import", "/"), 2, "tallyhook: / is a folder: name a file in it"),
    (("records", "import", "."), 2, "tallyhook: . is a folder: name a file in it"),
    (("records", "import", "/dev/null"), 2, "null cannot be read twice: save it"),
])  # fmt: skip
def test_words_that_do_not_fit(
    run: Run, files: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    run("records", "import", str(files / "book.csv"), "--mapping", str(files / "m.toml"))
    ended = run(*(word.replace("{s}", str(files / "s.csv")) for word in words))
    assert ended.code == code
    assert said in ended.err


def test_tab_may_be_said_as_a_word(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "t.tsv"
    path.write_text("reference\tamount\tcurrency\nA\t1\tKES\n")
    done = run("records", "import", str(path), "--delimiter", "tab", "--format", "json")
    assert json.loads(done.out)["new"] == 1


@pytest.mark.usefixtures("workbooks_here")
@pytest.mark.parametrize("command", [
    ("import", "--kind", "book"), ("records", "import"), ("statement", "import"),
    ("bank", "import"),
])  # fmt: skip
def test_another_sheet_is_noted_and_read_by_its_name(
    run: Run, files: Path, command: tuple[str, ...]
) -> None:
    made, path = openpyxl.Workbook(), files / "two.xlsx"
    made.active.append(["nothing of ours"])
    made.create_sheet("Oct").append(
        ["reference", "payment_reference", "account", "booked_at", "amount", "gross", "currency"]
    )
    made["Oct"].append(["A", None, "1", "2026-11-01", 1, None, "KES"])
    made.save(path)
    first = run(*command, str(path))
    assert "Other sheets have content, too: 'Oct' (2 rows)" in " ".join(first.err.split())
    if command[0] == "import":
        unknown = " ".join(run("import", str(path)).err.split())
        assert "'Sheet', 'Oct' have content. To read another one, name it with --sheet" in unknown
    told = json.loads(run(*command, str(path), "--sheet", "Oct", "--format", "json").out)
    refused = command[0] == "statement"  # the row names no payment
    assert (told["read"], told["new"]) == (1, 0 if refused else 1)
    none = " ".join(run(*command, str(path), "--sheet", "Nov").out.split())
    assert "there is no sheet 'Nov'; there are: 'Sheet', 'Oct'" in none


@pytest.mark.parametrize("kind", ["book", "bank"])
def test_a_table_in_an_archive_is_imported_and_kept_under_the_archives_digest(
    run: Run, files: Path, kind: str
) -> None:
    path = files / "october.zip"
    heading = "reference,amount,currency,account,booked_at\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("in/oct.csv", heading + "A,1.00,KES,1,2026-11-01\n")
    told = json.loads(run("import", str(path), "--kind", kind, "--format", "json").out)
    assert (told["file"], told["new"]) == ("october.zip", 1)
    assert "Read from oct.csv, the table in this file." in told["notes"]
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("in/nov.csv", heading)
    ended = run("import", str(path), "--kind", kind)
    assert (ended.code, "in/oct.csv, in/nov.csv: unpack it" in ended.out) == (1, True)


SAMPLES = Path(__file__).parents[1] / "finance" / "presets"


def test_an_export_that_is_known_says_aloud_what_it_is_and_what_is_left_out(run: Run) -> None:
    """A dry run shows why, and imports nothing; then one command does it."""
    words = ("statement", "import", str(SAMPLES / "mpesa_portal.csv"))
    tried = run(*words, "--dry-run")
    assert tried.code == 0
    said = " ".join(tried.err.split())
    assert "Read with the preset mpesa_portal (M-PESA organisation portal, statement)" in said
    assert "because row 7 has its columns: Receipt No., Linked Transaction ID, A/C No." in said
    assert "left out 2 rows because it does not list their Transaction Status" in said
    assert "Nothing was imported." in said
    done = run(*words, "--format", "json").document
    assert (done["preset"], done["new"]) == ("mpesa_portal", 6)
    assert {"column": "Transaction Status", "word": None, "rows": 2} in done["rows_ignored"]


CAMT = """<Document xmlns="urn:iso:std:iso:20022:tech:xsd:camt.053.001.02"><BkToCstmrStmt><Stmt>
<Acct><Id><IBAN>DE02120300000000202051</IBAN></Id><Ccy>EUR</Ccy></Acct><Ntry>
<Amt Ccy="EUR">5.00</Amt><CdtDbtInd>CRDT</CdtDbtInd><Sts>BOOK</Sts>
<BookgDt><Dt>2026-11-02</Dt></BookgDt></Ntry></Stmt></BkToCstmrStmt></Document>"""


def test_files_of_every_kind_are_imported_by_one_command(run: Run, files: Path) -> None:
    """Each is recognized by its content; one that is not stops none of the others."""
    (files / "bank.xml").write_text(CAMT)
    (files / "notes.csv").write_text("a,b\n1,2\n")
    names = [files / "bank.xml", files / "notes.csv", SAMPLES / "shopify_orders.csv"]
    names.append(SAMPLES / "stripe_payouts.csv")
    done = run("import", *map(str, names), "--format", "json")
    bank, unknown, book, statement = done.document
    kinds = [(each["kind"], each["source"], each["preset"]) for each in (bank, book, statement)]
    assert kinds == [
        ("bank", None, None),
        ("book", None, "shopify_orders"),
        ("statement", "shop", "stripe_payouts"),
    ]
    assert (done.code, bank["new"], unknown["file"]) == (2, 1, "notes.csv")
    assert "None of the file's first rows has the columns" in unknown["problem"]
    one = run("import", str(names[2]), "--dry-run", "--format", "json")
    assert (one.code, one.document["unchanged"], one.document["import"]) == (0, 4, None)


async def _save(folder: Path) -> None:
    settings = load_settings(environ(folder))
    async with open_context(settings, purpose="writing") as context:
        await save_named(context, "our books", kind="book", toml=OWN_BOOK, by=None)


OWN_BOOK = 'kind = "book"\n[columns]\nreference = "Beleg"\namount = "Betrag"\n[defaults]\n' + (
    'currency = "KES"\n'
)


def test_a_saved_mapping_is_used_by_its_name_or_recognized(run: Run, files: Path) -> None:
    asyncio.run(_save(files))
    path = files / "own.csv"
    path.write_text("Beleg,Betrag\nA-1,1.00\n")
    known = run("import", str(path), "--format", "json").document
    named = run("records", "import", str(path), "--mapping", "our books", "--format", "json")
    assert (known["new"], named.document["unchanged"]) == (1, 1)
    assert "Read with the mapping our books" in str(known["notes"])
    assert run("import", str(path), "--mapping", "other").code == 5
    assert "another kind" in run("statement", "import", str(path), "--mapping", "our books").err
    listed = run("mappings", "list", "--format", "json").document
    assert [(each["mapping"], each["kind"]) for each in listed] == [("our books", "book")]
    assert run("mappings", "show", "our books").out == OWN_BOOK


@pytest.mark.parametrize(
    ("command", "name", "right"),
    [
        ("records", "stripe_payouts.csv", "a statement: import it with "
         "`tallyhook statement import`, or with `tallyhook import`"),
        ("statement", "shopify_orders.csv", "an order book: import it with "
         "`tallyhook records import`"),
        ("bank", "shopify_orders.csv", "`tallyhook records import`"),
        ("records", "bank.xml", "`tallyhook bank import`"),
        ("statement", "bank.xml", "`tallyhook bank import`"),
    ],
)  # fmt: skip
def test_a_wrong_kind_of_file_is_refused_with_the_right_command(
    run: Run, files: Path, command: str, name: str, right: str
) -> None:
    (files / "bank.xml").write_text(CAMT)
    path = files / name if name == "bank.xml" else SAMPLES / name
    done = run(command, "import", str(path), "--format", "json")
    (note,) = done.document["notes"]
    assert (done.code, done.document["import"], right in note) == (1, None, True)


def test_another_command_is_suggested_only_if_it_can_read_the_file(run: Run, files: Path) -> None:
    (files / "bank.xml").write_text(CAMT[: len(CAMT) // 2])
    done = run("records", "import", str(files / "bank.xml"), "--format", "json")
    (note,) = done.document["notes"]
    assert "is a bank's file, but cannot be read as one either: the XML is invalid here" in note
    assert "bank import" not in note


def test_an_export_that_lacks_a_column_is_told_which_and_of_which_preset(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "activity.csv"
    text = (SAMPLES / "paypal_activity.csv").read_text()
    path.write_text(text.replace('"TimeZone"', '"Clock"', 1))
    for words in (("import",), ("statement", "import")):
        done = run(*words, str(path))
        said = " ".join(done.err.split())
        assert done.code != 0
        assert "Nearly paypal_activity (PayPal, activity download): 'TimeZone' is missing." in said


def test_presets_are_listed_and_shown_to_be_copied(run: Run, tmp_path: Path) -> None:
    listed = run("presets", "list", "--format", "json").document
    assert [each["preset"] for each in listed] == sorted(path.stem for path in SAMPLES.iterdir())
    copy = tmp_path / "copy.toml"
    copy.write_text(run("presets", "show", "xero_invoices").out)
    shown = run("presets", "show", str(copy), "--format", "json").document
    assert (shown["preset"], shown["kind"], shown["file"]) == ("copy", "book", copy.read_text())
    words = ("records", "import", str(SAMPLES / "xero_invoices.csv"), "--preset", str(copy))
    done = run(*words, "--dates", "day_first", "--format", "json").document
    assert (done["preset"], done["new"]) == ("copy", 2)
    unsaid = run(*words, "--format", "json").document
    assert "or give --dates" in unsaid["problems"][0]["sentence"]


def test_an_import_is_taken_back_with_a_reason(run: Run, files: Path) -> None:
    """Its lines are gone from then on; the list and the trail say who took it back, and why."""
    words = ("records", "import", str(files / "book.csv"), "--mapping", str(files / "m.toml"))
    run(*words)
    done = run("records", "withdraw", "1", "--reason", "another shop's")
    assert done.out == (
        "Undid import 1 of book.csv: 2 lines, of which 0 have their earlier values again. The "
        "undo is recorded as import 2.\n"
    )
    assert run("records", "list", "--format", "json").document == []
    listed = run("records", "imports", "--format", "json").document
    assert [(each["number"], each["withdraws"], each["reason"]) for each in listed] == [
        (2, 1, "another shop's"),
        (1, None, None),
    ]
    (entry,) = run("audit", "list", "--action", "records_withdrawn", "--format", "json").document
    assert (entry["subject"], entry["reason"]) == ("import 1", "another shop's")
    again = run("records", "withdraw", "1", "--reason", "once more")
    assert again.code != 0
    assert "withdrawn already" in again.err
    assert run("statement", "withdraw", "2", "--reason", "x").code != 0
    document = run(*words, "--format", "json").document
    assert (document["import"], document["new"]) == (3, 2)


def test_which_days_files_cover_is_said_declared_and_taken_back(run: Run, files: Path) -> None:
    """Days that nobody states are asked for; with both of them, the import says them."""
    words = ("statement", "import", str(files / "s.csv"))
    days = ("--from", "2026-10-01", "--to", "2026-10-31")
    early = run("coverage", "declare", *days, "--reason", "I know", "--source", "shop")
    assert "no file of the source 'shop' was imported" in early.err
    assert "give --from and --to, or run `tallyhook coverage declare`" in run(*words).err
    assert run(*words, "--from", "2026-10-01").code == 2
    assert "The file covers 2026-10-01 to 2026-10-31 of shop, as" in run(*words, *days).err
    declare = ("coverage", "declare", *days, "--reason", "I fetched it")
    assert "give one of --source, --bank and --book" in run(*declare).err
    assert "nothing was imported yet" in run(*declare, "--bank", "main").err
    done = run(*declare, "--source", "shop", "--format", "json")
    assert (done.code, done.document["number"], done.document["until"]) == (
        0, 3, "2026-11-01T00:00:00Z",
    )  # fmt: skip
    listed = run("coverage", "list", "--format", "json").document
    assert [(each["import"], each["since"]) for each in listed] == [
        (1, None), (2, "2026-10-01T00:00:00Z"), (None, "2026-10-01T00:00:00Z"),
    ]  # fmt: skip
    assert run("coverage", "withdraw", "3", "--reason", "no").out == (
        "Withdrew coverage 3 of shop.\n"
    )
    assert len(run("coverage", "list", "--format", "json").document) == 2


def test_a_difference_of_balances_takes_two_operators(run: Run, files: Path) -> None:
    """A negative amount is no option; the machine's owner is told how to prove who they are."""
    differs = ":20:S\n:25:main\n:60F:C260105KES5,\n:62F:C260106KES4,5\n-\n"
    (files / "bank.sta").write_text(differs)
    words = ("bank", "import", str(files / "bank.sta"))
    assert "a difference of -0.5 KES" in run(*words).out
    accept = (*words, "--accept-balance-difference", "-0.50", "--reason", "rounded")
    looked = run(*accept, "--dry-run", "--format", "json")
    assert (looked.code, looked.document["problems"]) == (0, [])
    of_book = run("import", str(files / "book.csv"), "--kind", "book", *accept[3:])
    assert "only a bank's statement has balances" in of_book.err
    for opened, closed, balance in (("05", "06", 5), ("06", "07", 5), ("09", "10", 7)):
        content = differs.replace("05KES5", f"{opened}KES{balance}")
        content = content.replace("06KES4,5", f"{closed}KES{balance},")
        (files / f"{opened}.sta").write_text(content)
        assert run("bank", "import", str(files / f"{opened}.sta")).code == 0
    listed = run("bank", "balances", "--format", "json").document
    assert [each["state"] for each in listed] == ["joined", "not_joined", "last"]
    refused = run(*accept)
    assert (refused.code, "with your own token" in refused.err) == (2, True)
