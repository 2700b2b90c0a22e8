"""The period that a file states of itself, in its own zone; dates of rows state none."""

from datetime import UTC
from pathlib import Path
from zoneinfo import ZoneInfo

from app.finance.files import bank_formats, opening, stated_period
from app.finance.files.bank import BankForm
from app.finance.files.dates import DateForm
from app.finance.files.mapping import FileMapping
from app.finance.files.presets import ChosenReading, ReadingDefaults, ReadingRequest, choose
from app.finance.files.statements import StatementForm
from app.finance.files.tables import StatedPeriod
from reconcile.instants import format_instant
from tests.finance.files.test_bank_files import CAMT, MT940, OFX
from tests.rows import for_each

NAIROBI = ZoneInfo("Africa/Nairobi")

PERIOD = "<FrToDt><FrDtTm>{}</FrDtTm><ToDtTm>{}</ToDtTm></FrToDt>"


def with_period(since: str, until: str) -> str:
    return CAMT.replace("<Acct>", PERIOD.format(since, until) + "<Acct>", 1)


def mt940(opened: str, closed: str, entry: str = "2610050501D0,NMSCNONREF") -> str:
    entry = f":61:{entry}\n" if entry else ""
    return f":20:X\n:25:ACC\n:60F:C{opened}EUR1,00\n{entry}:62F:C{closed}EUR1,00\n-\n"


def spans(text: str, folder: Path, zone: ZoneInfo | None = None) -> list[tuple[str, str, str]]:
    """Return the account and ends of each period of a bank's file."""
    path = folder / "bank"
    path.write_text(text, encoding="utf-8")
    mapping = FileMapping(zone=zone)
    table = bank_formats.open_bank_table(path, mapping, BankForm.FIELDS)
    assert list(table.batches()) is not None
    found = stated_period.spans_of(table, path, ChosenReading(mapping=mapping))
    return [(name, format_instant(s.since)[:16], format_instant(s.until)[:16]) for name, s in found]


@for_each(
    ("text", "zone", "expected"),
    [
        (CAMT, None, ("XX00TEST0000000001", "2026-11-02T00:00", "2026-11-04T00:00")),
        (CAMT, NAIROBI, ("XX00TEST0000000001", "2026-11-01T21:00", "2026-11-03T21:00")),
        (
            with_period("2026-11-01T00:00:00+03:00", "2026-11-30T23:59:59+03:00"),
            None,
            ("XX00TEST0000000001", "2026-10-31T21:00", "2026-11-30T21:00"),
        ),
        (
            with_period("2026-11-01T00:00:00", "2026-11-15T12:30:00"),
            NAIROBI,
            ("XX00TEST0000000001", "2026-10-31T21:00", "2026-11-15T09:30"),
        ),
        (MT940, None, ("12345678/0123456789", "2027-01-01T00:00", "2027-01-05T00:00")),
        (mt940("260930", "261031"), None, ("ACC", "2026-10-01T00:00", "2026-11-01T00:00")),
        (mt940("261001", "261031"), None, ("ACC", "2026-10-01T00:00", "2026-11-01T00:00")),
        (mt940("261005", "261005"), None, ("ACC", "2026-10-05T00:00", "2026-10-06T00:00")),
        (OFX, None, ("000999", "2026-11-01T00:00", "2026-12-01T00:00")),
    ],
)
def test_a_banks_file_covers_what_it_states_of_its_account(
    tmp_path: Path, text: str, zone: ZoneInfo | None, expected: tuple[str, str, str]
) -> None:
    assert spans(text, tmp_path, zone) == [expected]


def test_an_entry_of_the_day_of_the_opening_balance_is_within(tmp_path: Path) -> None:
    entry = "2609300930D0,NMSCNONREF"
    assert spans(mt940("260930", "261031", entry), tmp_path)[0][1] == "2026-09-30T00:00"


@for_each(
    ("line", "dates", "expected"),
    [
        (
            "Time Period:,From 01-10-2026 00:00:00 To 31-10-2026 23:59:59",
            "day_first",
            ("2026-09-30T21:00", "2026-10-31T21:00"),
        ),
        ("2026-10-01 to 2026-10-31", "iso", ("2026-09-30T21:00", "2026-10-31T21:00")),
        ("01/10/2026 – 15/10/2026 12:00", "day_first", ("2026-09-30T21:00", "2026-10-15T09:00")),
        ("10/01/2026 through 10/31/2026", "month_first", ("2026-09-30T21:00", "2026-10-31T21:00")),
        ("31-10-2026 to 01-10-2026", "day_first", None),
        ("Report Date:,01-11-2026", "day_first", None),
        ("12026-10-01 to 2026-10-31", "iso", None),
    ],
)
def test_a_line_before_the_table_states_its_period(
    line: str, dates: DateForm, expected: tuple[str, str] | None
) -> None:
    mapping = FileMapping(dates=dates, zone=NAIROBI)
    found = [stated_period.span_of(each, mapping) for each in stated_period.in_head([line])]
    assert [
        (format_instant(span.since)[:16], format_instant(span.until)[:16])
        for span in found
        if span is not None
    ] == ([] if expected is None else [expected])


def test_two_different_periods_before_a_table_state_nothing() -> None:
    lines = ["2026-10-01 to 2026-10-31", "2026-09-01 to 2026-09-30"]
    assert list(stated_period.in_head(lines)) == []
    assert len(list(stated_period.in_head([lines[0], lines[0]]))) == 1


@for_each(
    ("name", "expected"),
    [
        ("balance_2026-10-01_to_2026-10-31_UTC.csv", ("2026-10-01", "2026-10-31")),
        ("2026-10-01_2026-10-31.csv", ("2026-10-01", "2026-10-31")),
        ("balance_2026-10-31.csv", None),
        ("october.csv", None),
    ],
)
def test_the_name_of_a_known_export_may_state_its_period(
    name: str, expected: tuple[str, str] | None
) -> None:
    found = [*stated_period.in_name(name)]
    assert found == ([] if expected is None else [StatedPeriod(since=expected[0],
                                                              until=expected[1])])  # fmt: skip


@for_each("preset", ["mpesa_portal", "none"])
def test_the_heads_of_exports_are_read_whatever_maps_their_columns(
    tmp_path: Path, preset: str
) -> None:
    path = tmp_path / "till.csv"
    path.write_text(
        "Short Code:,600111\nTime Period:,From 01-10-2026 00:00:00 To 31-10-2026 23:59:59\n\n"
        "payment_reference,gross,currency,settled_at,Receipt No.,Completion Time,"
        "Transaction Status,Paid In,Withdrawn,Reason Type\n"
    )
    request = ReadingRequest(path=path, preset=preset, dates="day_first", zone="Africa/Nairobi")
    chosen = choose(request, "statement", unstated=ReadingDefaults(zone=UTC))
    table = opening.open_table(path, chosen.mapping, StatementForm.FIELDS)
    ((_, span),) = stated_period.spans_of(table, path, chosen)
    assert format_instant(span.until) == "2026-10-31T21:00:00Z"
