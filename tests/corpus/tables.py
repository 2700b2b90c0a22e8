"""Tables as shops and providers export them: made from a seed, and read by other means.

A table is written as CSV, as a workbook or as JSON Lines, with a notation of its own and cells that
people really have. `read_by_others` reads the bytes with `csv`, `openpyxl` or `json`.
"""

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, Final, Literal

import openpyxl

from tests.corpus.cells import (
    DECIMALS,
    Notation,
    Unclear,
    amount,
    date,
    minor,
    reference,
)

Kind = Literal["book", "statement", "bank"]

NAMES: Final[dict[Kind, tuple[str, str, str]]] = {
    "book": ("reference", "amount", "placed_at"),
    "statement": ("payment_reference", "gross", "settled_at"),
    "bank": ("entry_reference", "amount", "booked_at"),
}
"""Our names of the reference, the amount and the date."""

COLUMNS: Final = ("Ref", "Type", "Sum", "Out", "When", "Clock", "Cur", "Zone", "Note")
"""The file's names, in the order of a row's cells."""

Row = tuple[int, str, int, str, str | None]
"""Row number, reference, minor units, currency, instant in UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """Rows that others read, and the numbers of rows that must be refused, with the reason."""

    rows: Sequence[Row]
    refused: dict[int, str]
    file_refused: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One file, how it is written, and how it is to be read.

    places  where each of COLUMNS is; only these are there
    """

    kind: Kind
    form: Literal["csv", "xlsx", "jsonl"]
    content: bytes
    notation: Notation
    places: dict[str, int]
    delimiter: str = ","
    encoding: str = "utf-8"
    before: int = 0
    has_heading: bool = True
    is_guessed: bool = True
    ignored: Sequence[str] = ()

    @property
    def name(self) -> str:
        return f"file.{self.form}"

    def mapping(self) -> str:
        reference_name, amount_name, date_name = NAMES[self.kind]
        ours = {reference_name: "Ref", amount_name: "Sum", date_name: "When", "currency": "Cur"}
        shown = {
            name: name if self.has_heading else str(place + 1)
            for name, place in self.places.items()
        }
        lines = []
        if not self.is_guessed:
            lines += [f'delimiter = "{self.delimiter}"'.replace("\t", "\\t")]
            lines += [f'encoding = "{self.encoding}"']
        lines += [] if self.has_heading else ["heading_row = 0"]
        lines += [f'zone_column = "{shown["Zone"]}"'] if "Zone" in self.places else []
        made = []
        if "Out" in self.places:
            made = [f"[amounts.{amount_name}]", f'add = ["{shown["Sum"]}"]']
            made += [f'subtract = ["{shown["Out"]}"]']
            lines += ['signs = "any"']
            del ours[amount_name]
        if "Clock" in self.places:
            made += ["[joined]", f'{date_name} = ["{shown["When"]}", "{shown["Clock"]}"]']
            del ours[date_name]
        if "Type" in self.places:
            ours["type"] = "Type"
        if self.ignored:
            words = ", ".join(f'"{word}"' for word in self.ignored)
            made += ["[ignore]", f'"{shown["Note"]}" = [{words}]']
        columns = [f'{our} = "{shown[name]}"' for our, name in ours.items()]
        defaults = {
            "book": 'kind = "entry"',
            "statement": 'type = "payment"',
            "bank": 'account = "main"',
        }
        return "\n".join([
            *lines, self.notation.mapping(), "[columns]", *columns, "[defaults]",
            defaults[self.kind], *made, self.notation.sections(),
        ])  # fmt: skip


DOUBT: Final = object()
"""A cell whose value nobody knows."""

NASTY: Final = (
    "#REF!", "#N/A",
    "29.000", "1,234", "1.234,50", "1 234.50", "1\u202f234,50", "1\u00a0234.50", "1'234.50",
    "1’234.50", "--", "N/A", "n/a", "-", "(12.50)", "(KSh 12.50)", "12.50-", "12.50 -", "12.50 DR",
    "12,50DR", "12.50 cr", "+12.50", "+12,50", "\u221212.50", "\u201312.50", "- 12.50",
    "Rs. 1,234.50", "KSh1,200", "$5.00", "5.00 $", "12$50", "1e3", "=1+1", "", " ", "٥", "1.005",
    "0.001", "12,5",
    "00012.50", "92233720368547758.08", "9999999999999999", "-0.00", "+-1.00", "--5", ".50", "5.",
    "-12.50-", "-12.50 DR", "(-12.50)", "1.2.3", "12.34.567", "1,23,456.00", "1 2", "KES 5", "NaN",
)  # fmt: skip
REFERENCES: Final = (
    "A-1", "ORD 17", "0007", "a;b,c|d", 'say "x"', "Größe-é", "-", "", "=A1", "@x", "  B-2  ",
    "B\u00a03", "x" * 200, "x" * 201, "tab\there", "𝄞-1", "N/A", "+4917", "1.0",
)  # fmt: skip
WHENS: Final = (
    "02/03/2026", "2026-02-30", "yesterday", "5-Sep-26", "31.12.26", "1788516000", "46269.5",
    "2026-09-04 25:00", "2026-09-04 13:00 PM", "2026-09-04 10:00 CST", "Sept 5, 2026", "",
    "2026-09-04 10:00:00 XYZ", "20261301", "2026/9/4", "--",
)  # fmt: skip
ZONES: Final = (
    "",
    "CET",
    "CEST",
    "EAT",
    "CDT",
    "Europe/Berlin",
    "America/New_York",
    "+05:30",
    "CST",
    "IST",
    "nowhere",
)


def _amount_text(random: Random, currency: str, notation: Notation) -> str:
    if random.random() < 0.2:
        return random.choice(NASTY)
    value = random.choice((0, 1, 99, 100, 12_345, 1_234_567_890, random.randrange(10**9)))
    decimals = DECIMALS[currency]
    whole, rest = divmod(value, 10**decimals)
    text = f"{whole:,}" if notation.thousands and random.random() < 0.6 else str(whole)
    blank = random.choice((" ", "\u00a0", "\u202f", "\u2009"))
    text = text.replace(",", blank if notation.thousands == " " else notation.thousands or ",")
    if decimals and random.random() < 0.9:
        text += f"{notation.decimal or '.'}{rest:0{decimals}}"
    signs = [sign for sign, code in notation.signs.items() if code == currency]
    if signs and random.random() < 0.3:
        sign, apart = random.choice(signs), random.choice(("", " ", "\u00a0"))
        text = random.choice((f"{sign}{apart}{text}", f"{text}{apart}{sign}"))
    ways: list[Callable[[str], str]] = [
        str, str, str, lambda t: f"-{t}", lambda t: f"\u2212{t}", lambda t: f"\u2013{t}",
        lambda t: f"+{t}",
    ]  # fmt: skip
    if notation.brackets:
        ways.append(lambda t: f"({t})")
    ways += [lambda t, w=word: f"{t} {w}" for word in notation.suffixes]  # type: ignore[misc]
    return random.choice(ways)(text)


def _date_text(random: Random, notation: Notation, zoned: bool) -> str:
    if random.random() < 0.12:
        return random.choice(WHENS)
    moment = datetime(2026, 1, 1) + timedelta(seconds=random.randrange(365 * 86_400))
    if notation.dates == "unix_s":
        return str(int((moment - datetime(1970, 1, 1)).total_seconds()))
    if notation.dates == "unix_ms":
        return str(int((moment - datetime(1970, 1, 1)).total_seconds() * 1000) + 250)
    if notation.dates == "excel" and random.random() < 0.8:
        part = (moment - datetime(1899, 12, 30)) / timedelta(days=1)
        return str(int(part)) if random.random() < 0.5 else f"{part:.9f}"
    own = {"day_first": ("%d/%m/%Y", "%d.%m.%y", "%d-%m-%Y"), "month_first": ("%m/%d/%Y",)}
    days = (*own.get(notation.dates, ()), "%Y-%m-%d", "%Y%m%d", "%b %d, %Y", "%d %b %Y", "%d-%b-%Y")
    day = moment.strftime(random.choice(days))
    if random.random() < 0.1:
        day = day.replace("Sep ", "Sept ")
    if random.random() < 0.3:
        return day
    blank = random.choice((" ", " ", "\u00a0"))
    time = moment.strftime(random.choice(("%H:%M", "%H:%M:%S", "%I:%M %p", "%I:%M:%S %p")))
    if time.count(":") == 2 and "M" not in time and random.random() < 0.3:
        time += ".250"
    zone = (
        ""
        if zoned and random.random() < 0.8
        else random.choice(("", "", "Z", "+03:00", " EAT", " PDT", " Europe/Berlin"))
    )
    return f"{day}{blank}{time}{zone if 'M' not in time or zone[:1] == ' ' else ''}"


def _notation(random: Random, dates: Sequence[str]) -> Notation:
    decimal, thousands = random.choice((
        (None, ""), (None, ""), (".", ""), (".", ","), (None, ","), (",", "."), (",", " "),
        (".", " "), (".", "'"), (",", ""),
    ))  # fmt: skip
    maybe = random.random
    return Notation(
        decimal=decimal,
        thousands=thousands,
        brackets=maybe() < 0.3,
        signs={"KSh": "KES", "Rs.": "KES", "$": "USD", "€": "EUR"} if maybe() < 0.4 else {},
        suffixes={"DR": "minus", "CR": "plus", "-": "minus"} if maybe() < 0.3 else {},
        empty=("--", "N/A") if maybe() < 0.3 else (),
        dates=random.choice(dates),
        zone=random.choice(("UTC", "Africa/Nairobi", "Europe/Berlin", None)),
        zones={"CST": "America/Chicago"} if maybe() < 0.5 else {},
    )


DATES: Final = ("iso", "iso", "day_first", "month_first", "unix_s", "unix_ms", "excel")


def make_table(random: Random) -> Table:
    """Make a file with its notation; of some, rows with a word are to be left out."""
    table = _make_table(random)
    if "Note" in table.places and random.random() < 0.4:
        table = replace(table, ignored=random.choice((("plain",), ("plain", "two*"))))
    return table


def _make_table(random: Random) -> Table:
    form: Literal["csv", "xlsx", "jsonl"] = random.choice(("csv", "csv", "csv", "xlsx", "jsonl"))
    kind: Kind = random.choice(tuple(NAMES))
    notation = _notation(random, DATES)
    often = {"Zone": 0.4, "Note": 0.4, "Out": 0.2, "Clock": 0.2, "Type": 0.0}
    if kind == "statement":
        often |= {"Out": 0.0, "Type": 0.6}
        signs = random.choice((None, "minus", "none", "any"))
        notation = replace(notation, signs_say=signs)
    names = [name for name in COLUMNS if random.random() < often.get(name, 1)]
    random.shuffle(names)
    places = {name: place for place, name in enumerate(names)}
    texts = [_row(random, kind, notation, places) for _ in range(random.randrange(3, 14))]
    if random.random() < 0.1:
        notation = replace(notation, dates="iso")
        texts = _with_total(random, notation, places)
    if form == "csv":
        return _csv(random, kind, notation, places, texts)
    if form == "jsonl":
        return Table(
            kind=kind, form=form, notation=notation, places=places,
            content=_json_lines(random, places, texts).encode(),
        )  # fmt: skip
    # A last column without a cell is no column of a sheet that has no heading.
    has_heading = random.random() < 0.7 or names[-1] not in ("Ref", "Cur")
    workbook = openpyxl.Workbook()
    sheet: Any = workbook.active
    if has_heading:
        sheet.append(names)
    for cells in texts:
        sheet.append([_typed(random, name, cells[place]) for name, place in places.items()])
    if random.random() < 0.3:
        workbook.create_sheet("Other").append(names)
    file = io.BytesIO()
    workbook.save(file)
    return Table(
        kind=kind, form=form, notation=notation, places=places, content=file.getvalue(),
        has_heading=has_heading,
    )  # fmt: skip


def _with_total(random: Random, notation: Notation, places: dict[str, int]) -> list[list[str]]:
    """Make plain rows of one currency, and one that adds them up or nearly does."""
    units = [random.randrange(1, 10**6) for _ in range(4)]
    units.append(sum(units) + random.choice((0, 0, 1)))
    rows = []
    for number, each in enumerate(units):
        is_total = number + 1 == len(units)
        said = {
            "Ref": random.choice(TOTALS) if is_total else f"R-{number}",
            "Type": "" if is_total else "payment",
            "Sum": f"{each // 100}{notation.decimal or '.'}{each % 100:02}",
            "When": "" if is_total else f"2026-09-{number + 1:02}",
            "Cur": "KES",
        }
        rows.append([said.get(name, "") for name in places])
    return rows


TOTALS: Final = ("Total", "Summe:", "GRAND TOTAL", "Gesamt")


def _row(random: Random, kind: Kind, notation: Notation, places: dict[str, int]) -> list[str]:
    currency = random.choice(tuple(DECIMALS))
    cells = [""] * len(places)
    text = _amount_text(random, currency, notation)
    if kind == "statement" and "Type" not in places:  # of payments only those that brought money
        while any(each in text for each in "-\u2212\u2013()DR"):
            text = _amount_text(random, currency, notation)
    some = {
        "Ref": random.choice(REFERENCES)
        if random.random() < 0.3
        else f"R-{random.randrange(10**6)}",
        "Sum": text,
        "When": _date_text(random, notation, "Zone" in places),
        "Cur": random.choice((currency, currency.lower(), f" {currency}")),
        "Type": random.choice(("payment", "payment", "Refund", "bonus")),
        "Out": "",
        "Clock": random.choice(("", "10:00", "9:05:07 PM", "23:59:59 EAT", "25:00")),
        "Zone": random.choice(ZONES),
        "Note": random.choice(("", "plain", "two\nlines", 'a "quoted" word', "a,b;c")),
    }
    if "Out" in places and random.random() < 0.5:
        some |= {"Out": text, "Sum": random.choice(("", "", "1", "0.00"))}
    for name, place in places.items():
        cells[place] = some[name]
    return cells


def _csv(
    random: Random, kind: Kind, notation: Notation, places: dict[str, int], texts: list[list[str]]
) -> Table:
    delimiter = random.choice((",", ";", "\t", "|"))
    encoding = random.choice(("utf-8", "utf-8", "utf-8-sig", "utf-16", "cp1252", "latin-1"))
    has_heading = random.random() < 0.85
    before = random.choice((0, 0, 0, 2)) if has_heading else 0
    file = io.StringIO()
    end = random.choice(("\n", "\r\n"))
    writer = csv.writer(
        file, delimiter=delimiter, lineterminator=end,
        quoting=random.choice((csv.QUOTE_MINIMAL, csv.QUOTE_ALL)),
    )  # fmt: skip
    for line in range(before):
        writer.writerow([f"Export {line}"])
    if has_heading:
        writer.writerow(list(places))
    for number, cells in enumerate(texts):
        row = list(cells)
        if 0 < number < len(texts) - 1 and random.random() < 0.04:
            row = random.choice((row[:-1], [*row, ""], [*row, "more"], []))
        writer.writerow(row)
    text = file.getvalue()
    content = text.encode(encoding, errors="replace")
    return Table(
        kind=kind, form="csv", content=content, notation=notation, places=places,
        delimiter=delimiter, encoding=encoding, before=before, has_heading=has_heading,
        is_guessed=has_heading and encoding.startswith("utf") and random.random() < 0.5,
    )  # fmt: skip


TYPED: Final = "a number"


def _json_lines(random: Random, places: dict[str, int], texts: list[list[str]]) -> str:
    lines = list[str]()
    for cells in texts:
        found: dict[str, Any] = {name: cells[place] for name, place in places.items()}
        number = random.choice(("12.50", "29.000", "-3", "0.5", "1e3", "1.005", "1234567.89"))
        if typed := random.random() < 0.4:
            found["Sum"] = TYPED
        if lines and random.random() < 0.1:  # the first line names every column
            name = random.choice(tuple(places))
            found[name] = random.choice((None, True, ["1.00"], {}))
            if found[name] == {}:
                del found[name]
        raw = json.dumps(found, ensure_ascii=random.random() < 0.5)
        if typed:
            raw = raw.replace(json.dumps(TYPED), number)
        lines.append(raw)
    return "\n".join(lines) + "\n"


def _typed(random: Random, name: str, text: str) -> Any:
    if name == "Sum" and random.random() < 0.6:
        return random.choice((12.5, 29, -3, 0.1, 1234.56, 1.005, 1e6, 7.0, 0.1 + 0.2, True))
    if name == "When" and random.random() < 0.5:
        moment = datetime(2026, 1, 1) + timedelta(minutes=random.randrange(365 * 1440))
        days = (moment, moment.replace(hour=0, minute=0), moment.date(), 46269, 46269.59375)
        return random.choice(days)
    if name == "Ref" and random.random() < 0.2:
        return random.randrange(10**9)
    return text.replace("\t", " ") or None  # openpyxl makes formulas and errors of such texts


# --- read by others -------------------------------------------------------------------------------


def _physical(table: Table) -> Iterator[tuple[int, list[Any]]]:
    """Yield each row after the heading, with the number of its first line."""
    if table.form == "csv":
        text = table.content.decode(table.encoding)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=table.delimiter)
        skip, line = table.before + table.has_heading, 0
        for cells in reader:
            if line >= skip:
                yield line + 1, list(cells)
            line = reader.line_num
    elif table.form == "jsonl":
        for number, line_text in enumerate(table.content.decode().split("\n"), 1):
            if line_text:
                found = json.loads(line_text, parse_float=Decimal, parse_int=Decimal)
                yield number, [found.get(name) for name in table.places]
    else:
        sheet: Any = openpyxl.load_workbook(io.BytesIO(table.content)).active
        for number, cells in enumerate(sheet.iter_rows(min_row=1 + table.has_heading)):
            found = [DOUBT if cell.data_type in "ef" else cell.value for cell in cells]
            found = [str(each) if isinstance(each, bool) else each for each in found]
            yield number + 1 + table.has_heading, found


def read_by_others(table: Table) -> Expected:
    """Read the file's bytes without the product."""
    rows, refused = list[Row](), dict[int, str]()
    empty = {word.casefold() for word in table.notation.empty}
    width = len(table.places)
    for number, cells in _physical(table):
        if table.form == "csv" and not table.has_heading and number == 1:
            width = len(cells)
        if not any(str("" if cell is None else cell).strip() for cell in cells):
            continue
        whole = [*cells, *[""] * (width - len(cells))]
        read = [name for name in table.places if name != "Note" or table.ignored]
        used = [whole[table.places[name]] for name in read]
        if DOUBT in used or any(isinstance(cell, list | bool) for cell in used):
            refused[number] = "a cell is an error, a formula without a value, or of another type"
            continue
        note = str(whole[table.places["Note"]] or "").strip() if table.ignored else ""
        if note in table.ignored or (note[:3] == "two" and "two*" in table.ignored):
            continue
        if len(cells) < width or any(cells[width:]):
            refused[number] = "cells are missing, or there are more than columns"
            continue
        some = {
            name: "" if isinstance(cell := cells[place], str) and cell.strip().casefold() in empty
            else cell
            for name, place in table.places.items()
        }  # fmt: skip
        try:
            is_named = _as_text(some["Ref"]) in TOTALS
            own = [_as_text(some.get(name)) for name in ("Ref", "When", "Clock", "Type")]
            has_sum = _as_text(some["Sum"]) or _as_text(some.get("Out"))
            if not is_named and (any(own) or not has_sum):
                rows.append(_row_of(number, some, table))
                continue
            if not has_sum:
                continue  # it adds up nothing
            total = sum(each[2] for each in rows)
            if _units(some | {"Cur": some["Cur"] or "KES"}, table.notation) == total:
                continue
            if is_named or table.kind != "bank":
                refused[number] = "is called a total, but is none, or has no reference"
            else:
                rows.append(_row_of(number, some, table))
        except Unclear as reason:
            refused[number] = str(reason)
    return Expected(rows=rows, refused=refused)


def _row_of(number: int, cells: dict[str, Any], table: Table) -> Row:
    notation, kind = table.notation, table.kind
    currency, units = _currency(cells), _units(cells, notation)
    if kind == "statement":
        units = _directed(str(cells.get("Type") or "payment").lower(), units, notation)
    when, zone = cells["When"], str(cells.get("Zone") or "").strip()
    if isinstance(when, datetime):
        is_day = when.time() == datetime.min.time()
        when = when.strftime("%Y-%m-%d" if is_day else "%Y-%m-%d %H:%M:%S")
        notation = replace(notation, dates="iso")  # it is a date already
    written = [_as_text(when), *([cells["Clock"] or ""] if "Clock" in cells else [])]
    whole = " ".join(each.strip() for each in written if each.strip())
    instant = date(whole, notation, column=zone)
    name = _as_text(cells["Ref"])
    if kind == "bank":
        if instant is None:
            raise Unclear("every booking needs a day")
        found = " ".join(name.split())
        if len(found) > 200:
            raise Unclear("is too long")
        return number, found, units, currency, instant
    return number, reference(name), units, currency, instant


def _directed(word: str, units: int, notation: Notation) -> int:
    """Return what a payment brings or a refund takes, by how the file writes what leaves."""
    if word not in ("payment", "refund"):
        raise Unclear("the type is not known")
    if notation.signs_say == "any":
        return -abs(units) if word == "refund" else abs(units)
    if notation.signs_say == "none":
        if units < 0:
            raise Unclear("there is a minus sign where none is written")
        return -units if word == "refund" else units
    if (units < 0) != (word == "refund") and units:
        raise Unclear("the sign contradicts the type")
    return units


def _currency(cells: dict[str, Any]) -> str:
    currency = str(cells["Cur"]).strip().upper()
    if currency not in DECIMALS:
        raise Unclear("is no currency of this corpus")
    return currency


def _units(cells: dict[str, Any], notation: Notation) -> int:
    currency = _currency(cells)
    return minor(_amount_of(cells, currency, notation), currency)


def _amount_of(cells: dict[str, Any], currency: str, notation: Notation) -> Decimal:
    """Return what came; less what left, where that has a column of its own. Raises Unclear."""
    found = []
    for name in ("Sum", "Out") if "Out" in cells else ("Sum",):
        value = cells[name]
        if isinstance(value, str | None):
            if "Out" not in cells or (value or "").strip():
                found.append((name, amount(value or "", currency, notation)))
        else:
            found.append((name, Decimal(f"{value:.15g}") if isinstance(value, float) else value))
    if not found:
        raise Unclear("no column has an amount")
    if "Out" not in cells:
        return Decimal(found[0][1])
    return sum((-abs(each) if name == "Out" else abs(each) for name, each in found), Decimal(0))


def _as_text(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float) and cell == int(cell):
        return str(int(cell))
    return str(cell)
