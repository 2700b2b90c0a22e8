"""The import folder: what is complete, clear and in its place is imported; people see the rest."""

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import openpyxl
import pytest

from app.access.operator_store import audit_entries
from app.access.operators import Proven, register_operator
from app.access.proposals import Proposals
from app.config.settings import SourceSettings
from app.context.context import AppContext
from app.core.errors import UnreachableError
from app.core.private_files import lock_folder
from app.finance import import_folder
from app.finance.bank_balances import difference_kind
from app.finance.files.presets import shipped_exports
from app.finance.import_folder import (
    ImportFolder,
    import_task_documents,
    take_file,
    try_again,
)
from app.finance.imports import ImportRequest, import_bank, past_imports
from app.finance.named_mappings import save_named
from app.monitoring.preflight import of_import_folder
from app.wiring.worker import working_parts
from tests.contexts import Here, instead
from tests.database.builders import context as context_of
from tests.database.builders import opened
from tests.rows import for_each

SAMPLES = Path(__file__).parent / "presets"
LINES = "payment_reference,gross,currency\npay_1,1.00,KES\n"
BOOK = "reference,amount,currency\nA-1,1.00,KES\n"
MT940 = ":20:A\n:25:KE1\n:60F:C241003KES0,00\n:61:2410041004C5,00NTRFNONREF\n:62F:C241004KES5,00\n"


@dataclass
class Watched:
    """A folder that is watched, as a service does it."""

    context: AppContext
    root: Path

    def __post_init__(self) -> None:
        self.folder = ImportFolder(self.context, self.root, Here(self.context)(purpose="writing"))

    def put(self, place: str, content: str) -> Path:
        path = self.root / place
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
        return path

    async def looks(self, times: int = 2) -> list[str]:
        """Look so often; return what people are told of each file."""
        for _ in range(times):
            await self.folder.look()
        return [
            f"{each['folder']}/{each['file']}: {each['problem']}"
            for each in await import_task_documents(self.context)
        ]

    async def imported(self) -> list[str]:
        """Return what was imported, as `kind file who`."""
        return [
            f"{each.kind} {each.file} {each.who}"
            for kind in ("book", "statement", "bank")
            for each in await past_imports(self.context, kind=kind, limit=99)
        ]


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[Watched]:
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/t.db") as inbox:
        context = context_of(inbox, at=60)
        sources = {
            "shop": SourceSettings(),
            "stripe": SourceSettings(profile="stripe"),
            "mpesa": SourceSettings(profile="mpesa_stk"),
        }
        settings = context.settings.model_copy(update={"sources": sources})
        (tmp_path / "in").mkdir()
        yield Watched(replace(context, settings=settings), tmp_path / "in")


DECLARED = {
    "chase_checking", "deutsche_bank", "mollie_settlement", "paypal_activity",
    "quickbooks_invoices", "quickbooks_sales", "square_transactions", "wise_statement",
    "woocommerce_orders", "xero_invoices",
}  # fmt: skip
"""Presets of files without currency, zone or account, or where the day may precede the month."""


async def test_the_sample_of_every_preset_is_imported_unless_something_must_be_declared(
    watched: Watched,
) -> None:
    exports = {each.name: each for each in shipped_exports()}
    profiles = {name: each.profiles or ("checkout",) for name, each in exports.items()}
    sources = {name: SourceSettings(profile=each[0]) for name, each in profiles.items()}
    watched.context = replace(
        watched.context,
        settings=watched.context.settings.model_copy(update={"sources": sources}),
    )
    watched.__post_init__()
    for name, export in exports.items():
        place = {"book": "books", "bank": "bank"}.get(export.kind, name)
        watched.put(f"{place}/{name}.csv", (SAMPLES / f"{name}.csv").read_text())
    told = await watched.looks()
    assert {line.partition(".csv: ")[0].rpartition("/")[2] for line in told} == DECLARED
    taken = {line.split()[1].removesuffix(".csv") for line in await watched.imported()}
    assert taken == exports.keys() - DECLARED


async def test_a_complete_and_clear_file_is_imported_by_the_service_and_moved(
    watched: Watched,
) -> None:
    """Each in the folder of its source, or of its kind; the trail names the service."""
    payouts = (SAMPLES / "stripe_payouts.csv").read_text()
    for place, content in (
        ("stripe/october.csv", payouts), ("shop/own.csv", LINES), ("books/orders.csv", BOOK),
        ("bank/main.sta", MT940),
    ):  # fmt: skip
        watched.put(place, content)
    assert (await watched.looks(1), await watched.imported()) == ([], [])
    assert await watched.looks(1) == []
    assert await watched.imported() == [
        "book orders.csv tallyhook",
        "statement october.csv tallyhook",
        "statement own.csv tallyhook",
        "bank main.sta tallyhook",
    ]
    left = sorted(str(each.relative_to(watched.root)) for each in watched.root.rglob("*.*"))
    assert left == [
        "bank/done/main.sta", "books/done/orders.csv", "shop/done/own.csv",
        "stripe/done/october.csv",
    ]  # fmt: skip
    async with watched.context.database.reading() as connection:
        entries = await audit_entries(connection, limit=9)
    assert {each.who for each in entries if each.action.endswith("_imported")} == {"tallyhook"}


async def test_a_file_that_was_imported_as_of_another_source_is_a_task(watched: Watched) -> None:
    """Its lines count for that source, so it is not moved away as if it were done."""
    settings = watched.context.settings
    sources = {"shop": SourceSettings(), "till": SourceSettings()}
    context = replace(watched.context, settings=settings.model_copy(update={"sources": sources}))
    both = Watched(context, watched.root)
    both.put("shop/own.csv", LINES)
    path = both.put("till/own.csv", LINES)
    (task,) = await both.looks()
    assert task.startswith("till/own.csv: import 1 already read this file as a statement of shop")
    assert (path.exists(), await both.imported()) == (True, ["statement own.csv tallyhook"])


async def test_a_file_that_still_grows_is_left_alone(watched: Watched) -> None:
    path = watched.put("shop/own.csv", LINES)
    await watched.looks(1)
    path.write_text(LINES + "pay_2,1.00,KES\n")
    assert (await watched.looks(1), await watched.imported()) == ([], [])
    await watched.looks(1)
    assert await watched.imported() == ["statement own.csv tallyhook"]


PAYOUTS = (SAMPLES / "stripe_payouts.csv").read_text()


@pytest.mark.parametrize(
    ("place", "content", "told"),
    [
        ("shop/a.csv", LINES + "pay_2,1.234.5,KES\n", "row 3, column gross: "),
        ("shop/a.csv", "name,town\nA,B\n", "it is of no known kind"),
        ("shop/a.csv", BOOK, "it is an order book, but this folder takes a statement"),
        ("books/a.csv", LINES, "it is a statement, but this folder takes an order book"),
        ("mpesa/a.csv", PAYOUTS, "it may not belong to mpesa: move it to the folder of its source"),
        ("other/a.csv", LINES, "there is no source 'other'"),
        ("a.csv", LINES, "it is not in a source's folder"),
    ],
)
async def test_what_is_not_clear_stays_and_is_a_task(
    watched: Watched, place: str, content: str, told: str
) -> None:
    """The task goes with the file, and is found once."""
    path = watched.put(place, content)
    (task,) = await watched.looks()
    assert task.rpartition("/")[2] or task
    assert f"a.csv: {told}" in task
    assert (path.exists(), await watched.imported()) == (True, [])
    path.unlink()
    assert await watched.looks(1) == []


async def test_a_file_of_another_account_is_not_taken_for_its_folders(watched: Watched) -> None:
    """The folder's name says the source, and the file must not say another one."""
    settings = watched.context.settings
    sources = {
        name: SourceSettings(profile="adyen", account=(account,))
        for name, account in (("eu", "DukaEU"), ("uk", "DukaUK"))
    }
    context = replace(watched.context, settings=settings.model_copy(update={"sources": sources}))
    other = Watched(context, watched.root)
    other.put("uk/a.csv", (SAMPLES / "adyen_settlement.csv").read_text())
    (task,) = await other.looks()
    assert "it may not belong to uk" in task
    assert "It belongs to the source eu, because it names that source's account DukaEU" in task


async def test_links_and_special_files_are_never_opened(watched: Watched, tmp_path: Path) -> None:
    outside = tmp_path / "outside.csv"
    outside.write_text(LINES)
    folder = watched.put("shop/plain.txt", "x").parent
    (folder / "plain.txt").unlink()
    (folder / "link.csv").symlink_to(outside)
    os.mkfifo(folder / "pipe.csv")
    (watched.root / "stripe").symlink_to(tmp_path)
    told = await watched.looks()
    assert [each.partition(":")[0] for each in told] == [
        "/stripe", "shop/link.csv", "shop/pipe.csv",
    ]  # fmt: skip
    assert await watched.imported() == []
    for folder_name, name in (("shop", "link.csv"), ("shop", "pipe.csv"), ("stripe", "t.db")):
        taken = await take_file(watched.context, watched.root, folder=folder_name, name=name)
        assert "cannot be read" in str(taken.problem)


async def test_a_file_that_was_imported_and_not_moved_is_only_moved(watched: Watched) -> None:
    """The service was killed in between."""
    path = watched.put("shop/own.csv", LINES)
    await watched.looks()
    (watched.root / "shop" / "done" / "own.csv").rename(path)
    await watched.looks()
    assert await watched.imported() == ["statement own.csv tallyhook"]
    assert not path.exists()
    watched.put("shop/own.csv", LINES + "pay_2,1.00,KES\n")
    await watched.looks()
    names = sorted(each.name for each in (watched.root / "shop" / "done").iterdir())
    assert (len(names), names[1]) == (2, "own.csv")


MAPPING = """[columns]
payment_reference = "Beleg"
gross = "Betrag"
[defaults]
currency = "EUR"
"""


async def test_a_file_with_a_task_is_tried_again_once_a_mapping_is_saved(watched: Watched) -> None:
    """Or when a person asks for it; not at every look."""
    calls, take = list[str](), watched.folder._take

    async def counted(work: Any, *words: Any, **named: Any) -> Any:
        calls.append(named["name"])
        return await take(work, *words, **named)

    watched.folder._take = cast(Any, counted)
    watched.put("shop/own.csv", "Beleg;Betrag\npay_1;1.00\n")
    watched.put("other/own.csv", LINES)
    told = await watched.looks(4)
    assert (len(told), calls) == (2, ["own.csv"] * 2)
    await try_again(watched.context)
    assert (await watched.looks(2), len(calls)) == (told, 4)
    await register_operator(watched.context, name="Ann", role="admin", by=None)
    await save_named(watched.context, "kasse", kind="statement", toml=MAPPING, by="Ann")
    assert await watched.looks(1) == told[:1]
    assert await watched.imported() == ["statement own.csv tallyhook"]


@pytest.mark.parametrize(
    ("second", "hidden", "told"),
    [
        pytest.param(None, False, None, marks=pytest.mark.costly),
        (
            "Old",
            False,
            "Only the sheet 'Orders' is imported. Other sheets have content, too: 'Old' (1 row)",
        ),
        (None, True, "Hidden rows are imported, too: 1 row of the sheet 'Orders'"),
    ],
    ids=("one sheet", "two sheets", "a hidden row"),
)
async def test_a_person_looks_at_what_a_workbook_has_besides(
    watched: Watched, second: str | None, hidden: bool, told: str | None
) -> None:
    made = workbook_of({"Orders": BOOK, **({second: "x\n"} if second else {})})
    made["Orders"].row_dimensions[2].hidden = hidden
    (watched.root / "books").mkdir()
    made.save(watched.root / "books/orders.xlsx")
    tasks = await watched.looks()
    assert [(told or "") in task for task in tasks] == [True] * bool(told)
    assert len(await watched.imported()) == int(told is None)


async def test_a_saved_mapping_is_recognized_on_the_sheet_that_it_names(watched: Watched) -> None:
    """The other sheets are known then, and no task."""
    await register_operator(watched.context, name="Ann", role="admin", by=None)
    toml = 'sheet = "Kasse"\n[columns]\nreference = "Beleg"\namount = "Betrag"\n'
    toml += '[defaults]\ncurrency = "KES"\n'
    await save_named(watched.context, "kasse", kind="book", toml=toml, by="Ann")
    made = workbook_of({"Notes": "a,b\n1,2\n", "Kasse": "Beleg,Betrag\nA-1,1.00\n"})
    (watched.root / "books").mkdir()
    made.save(watched.root / "books/orders.xlsx")
    assert await watched.looks() == []
    assert await watched.imported() == ["book orders.xlsx tallyhook"]


def workbook_of(sheets: dict[str, str]) -> openpyxl.Workbook:
    """Return a workbook of sheets, each written as CSV."""
    made = openpyxl.Workbook()
    made.remove(made["Sheet"])
    for name, content in sheets.items():
        sheet = made.create_sheet(name)
        for line in content.splitlines():
            sheet.append(line.split(","))
    return made


async def test_a_statement_is_imported_once_two_people_accepted_its_difference(
    watched: Watched,
) -> None:
    await register_operator(watched.context, name="Root", role="admin", by=None)
    for name in ("Ann", "Ben"):
        await register_operator(watched.context, name=name, role="finance", by="Root")
    path = watched.put("bank/bank.sta", MT940.replace(":62F:C241004KES5,", ":62F:C241004KES6,"))
    (told,) = await watched.looks()
    assert "a difference of 1.00 KES" in told
    asked = ImportRequest(path=path, accept_difference="1", reason="so", by=Proven("Ann"))
    settings = watched.context.settings.model_copy(update={"sources": {}})
    people = replace(watched.context, settings=settings)
    made = await import_bank(people, asked)
    assert await watched.looks() == [told]
    proposals = Proposals(people, [difference_kind(people)])
    await proposals.approve(str(made.proposal), by=Proven("Ben"), reason="I asked the bank")
    assert await watched.looks() == []
    assert await watched.imported() == ["bank bank.sta tallyhook"]


async def test_what_may_go_later_is_tried_again(watched: Watched) -> None:
    """A busy database is no task for a person."""
    watched.put("shop/own.csv", LINES)

    async def busy(*words: object, **named: object) -> None:
        raise UnreachableError("the database is busy")

    take = watched.folder._take
    watched.folder._take = instead(take, take_file, busy)
    assert await watched.looks() == []
    watched.folder._take = take
    await watched.looks(1)
    assert await watched.imported() == ["statement own.csv tallyhook"]


async def test_number_and_size_are_bounded(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_folder, "MOST_FILES", 2)
    monkeypatch.setattr(import_folder, "MOST_BYTES", 100)
    for number in range(3):
        watched.put(f"books/{number}.csv", BOOK.replace("A-1", f"A-{number}"))
    watched.put("shop/large.csv", LINES + "\n" * 100)
    told = await watched.looks()
    assert [each.partition(":")[0] for each in told] == ["books/2.csv", "shop/large.csv"]
    assert len(await watched.imported()) == 2
    assert [each.partition(":")[0] for each in await watched.looks()] == ["shop/large.csv"]


async def test_a_service_watches_the_folder_that_is_set(watched: Watched) -> None:
    names = []
    for folder in (None, watched.root):
        settings = watched.context.settings.model_copy(
            update={"import_folder": folder, "sources": {}}
        )
        context = replace(watched.context, settings=settings)
        parts = working_parts(context, client=None, askers={}, signer=None)
        names.append({name for name, _ in parts})
    assert names[1] - names[0] == {"the task that watches the import folder"}


@for_each(("usable", "state"), [(True, "ok"), (False, "must")])
def test_the_doctor_says_whether_it_can_be_watched(
    usable: bool, state: str, tmp_path: Path
) -> None:
    assert of_import_folder(tmp_path, usable=usable).state == state


async def test_one_process_looks_at_a_time(watched: Watched) -> None:
    watched.put("shop/own.csv", LINES)
    lock = lock_folder(watched.root)
    assert lock is not None
    await watched.looks(3)
    assert await watched.imported() == []
    os.close(lock)
    await watched.looks()
    assert len(await watched.imported()) == 1
