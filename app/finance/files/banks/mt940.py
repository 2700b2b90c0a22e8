"""Read MT940, SWIFT's customer statement, and MT942, SWIFT's report within the day.

Source: SWIFT's Standards Category 9 (US9M, field specifications of MT942, read in November 2026).
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Final

from app.finance.files import tables
from app.finance.files.bank import reference_in
from app.finance.files.banks.entries import (
    Balances,
    BankTable,
    Row,
    cells_of,
    day_after,
    joined_text,
)

_TAG: Final = re.compile(r":(\d\d[A-Z]?):(.*)", re.DOTALL)

_MONEY: Final = r"(?P<mark>R?[CD])(?P<funds>[A-Z])?(?P<amount>\d{1,12},\d{0,3})(?![\d,.])"
_ENTRY: Final = re.compile(
    rf"(?P<year>\d\d)(?P<month>\d\d)(?P<day>\d\d)(?P<entry>\d{{4}})?{_MONEY}"
    r"(?P<type>(?!NONREF)[A-Z][A-Z0-9]{3})"
    r"(?P<own>(?:(?!//)[^\n]){0,16})(?://(?P<bank>[^\n]{0,34}))?(?:\n(?P<more>.*))?",
    re.DOTALL,
)
"""Pattern of MT940 field 61 (SWIFT, Standards Category 9)."""

_DIALECT: Final = re.compile(
    rf"(?P<year>\d\d)(?P<month>\d\d)(?P<day>\d\d)(?P<entry>\d{{4}}| {{4}})?{_MONEY}"
    r"(?P<blank> )?(?P<type>(?!NONREF)(?:[A-Z][A-Z0-9]{3}|[SNF][A-Z0-9 ]{3}))?"
    r"(?P<own>(?:(?!//)[^\n]){0,64})(?://(?P<bank>[^\n]{0,64}))?(?:\n(?P<more>.*))?",
    re.DOTALL,
)


def _unusual(entry: re.Match[str]) -> Iterator[str]:
    kind, own, bank = (entry[name] or "" for name in ("type", "own", "bank"))
    if entry["entry"] and not entry["entry"].strip():
        yield "blanks in place of the entry date"
    if entry["blank"]:
        yield "a blank before the type"
    if not kind or " " in kind:
        yield "a type with a blank, or none"
    if len(own) > 16:
        yield "a reference of more than 16 characters"
    if len(bank) > 34:
        yield "a bank's reference of more than 34 characters"


_BALANCE: Final = re.compile(
    r"(?P<mark>[CD])(?P<day>\d{6})(?P<currency>[A-Z]{3})(?P<amount>\d{1,15},\d{0,3})"
)
"""Pattern of the fields 60F, 60M, 62F and 62M: 1!a6!n3!a15d."""

_EXPECTED: Final = re.compile(rf"\d{{6}}(?:\d{{4}})?E{_MONEY}.*", re.DOTALL)
"""Pattern of an MT942 entry that is not booked yet."""

_FLOOR: Final = re.compile(r"(?P<currency>[A-Z]{3})[CD]?(?P<amount>\d{1,12},\d{0,3})")
"""Pattern of field 34F: 3!a[1!a]15d."""

_COUNTED: Final = re.compile(r"(?P<count>\d{1,5})[A-Z]{3}(?P<amount>\d{1,15},\d{0,3})")
"""Pattern of the fields 90D and 90C: 5n3!a15d."""

_CODE: Final = re.compile(r"\?(\d\d)")
_KEYWORD: Final = re.compile(r"(?:EREF|KREF|MREF|CRED|DEBT|COAM|OAMT|SVWZ|ABWA|ABWE|IBAN|BIC)\+")
"""Pattern of a keyword that begins a part of the purpose (DK, "Anlage 3")."""
_PURPOSE: Final = (*range(20, 30), *range(60, 64))
_NAMES: Final = (32, 33)
_NAMED: Final = re.compile(r"/NAME/([^/]{1,70})")

_BROKEN_NUMBER: Final = re.compile(r"(?<=^.{64}[0-9])\n(?=[0-9])", re.MULTILINE)

_NOT_AS_SWIFT: Final = (
    "field :61: is not in SWIFT's form (value date, D or C, amount with a comma, type, "
    "reference), so nothing was imported: ask the bank for a file in this form"
)

_BOTH: Final = "the file has both MT940 and MT942 messages: import each as a file of its own"

MAX_FIELD: Final = 64


class Mt940Table(BankTable):
    format = "MT940"

    def __init__(self, path: Path, *, encoding: str | None) -> None:
        super().__init__()
        self._path = path
        self._encoding = tables.encoding_of(path, encoding)

    def _rows(self) -> Iterator[Row]:
        account, currency, balance = "", "", None
        waiting: tuple[int, re.Match[str]] | None = None
        number, ended, opened, entries = 1, False, "", set[str]()
        unusual, first = Counter[str](), 0
        for number, tag, value in _fields(self._path, self._encoding):
            if waiting is not None and tag != "86":
                yield _swift_row(waiting, account, currency, "")
                waiting = None
            if tag == "20":
                if balance is not None:
                    raise tables.RefusedTable(
                        number,
                        "the previous message has no closing balance (:62F:): fetch the file again",
                    )
                account, currency, balance = "", "", None
            elif tag == "34F" and balance is None:
                raise tables.RefusedTable(number, _BOTH)
            elif tag == "25":
                account = value.strip()
            elif tag in ("60F", "60M"):
                found = _balance_in(number, value)
                currency, opened = found["currency"], _swift_day(found["day"])
                entries.clear()
                first = 0
                balance = Balances(
                    opening=_signed(found),
                    currency=currency,
                    account=account,
                    opened=opened,
                    goes_on=tag == "60M",
                )
            elif tag == "61":
                entry = _ENTRY.fullmatch(value)
                if entry is None and (entry := _DIALECT.fullmatch(value)) is not None:
                    first = first or number
                    unusual.update(_unusual(entry))
                if entry is None:
                    raise tables.RefusedTable(number, _NOT_AS_SWIFT)
                waiting = number, entry
                if balance is None:
                    raise tables.RefusedTable(
                        number, "an entry comes before any opening balance (:60F:)"
                    )
                balance.moved += _signed(entry)
                entries.add(_booked(entry))
            elif tag == "86" and waiting is not None:
                yield _swift_row(waiting, account, currency, value)
                waiting = None
            elif tag in ("62F", "62M") and balance is not None:
                found = _balance_in(number, value)
                balance.closing, closed = _signed(found), _swift_day(found["day"])
                balance.closed = closed
                # Banks date the opening balance on the first day, or on the closing date of the
                # previous statement. A statement of a month then opens on the last day of the month
                # before.
                if opened not in entries and day_after(opened).endswith("-01"):
                    opened = min(day_after(opened), closed)
                period = tables.StatedPeriod(since=opened, until=closed, name=account)
                self.periods.append(period)
                if first and balance.difference():
                    raise tables.RefusedTable(first, f"{_NOT_AS_SWIFT}: {balance.said()}")
                self.end_statement(number, balance)
                balance, ended = None, True
        if waiting is not None or balance is not None or not ended:
            raise tables.RefusedTable(
                number, "the file ends before the closing balance (:62F:): fetch it again"
            )
        if unusual:
            said = ", ".join(f"{count:,} with {what}" for what, count in unusual.items())
            self._notes.append(
                f"Some entries (:61:) are not in SWIFT's form: {said}. They were imported, "
                "because the balances of their statements agree."
            )


class Mt942Table(BankTable):
    """Bank file in the format MT942."""

    format = "MT942"

    def __init__(self, path: Path, *, encoding: str | None) -> None:
        super().__init__()
        self._path = path
        self._encoding = tables.encoding_of(path, encoding)

    def _rows(self) -> Iterator[Row]:
        account, currency, waiting = "", "", None
        booked, expected = dict.fromkeys("DC", NO_ENTRIES), dict.fromkeys("DC", NO_ENTRIES)
        for number, tag, value in _fields(self._path, self._encoding):
            if waiting is not None and tag != "86":
                yield _swift_row(waiting, account, currency, "")
                waiting = None
            if tag == "20":
                account, currency = "", ""
                booked, expected = dict.fromkeys("DC", NO_ENTRIES), dict.fromkeys("DC", NO_ENTRIES)
            elif tag == "25":
                account = value.strip()
                self.statements += 1
                self.periods.append(tables.StatedPeriod(since="", until="", name=account))
            elif tag == "34F":
                floor = _FLOOR.fullmatch(value.strip())
                if floor is None:
                    raise tables.RefusedTable(
                        number, "the floor limit (:34F:) is not in SWIFT's form"
                    )
                currency = floor["currency"]
                if floor["amount"].strip("0,"):
                    least = floor["amount"].rstrip(",").replace(",", ".")
                    self._notes.append(
                        f"Bookings below {least} {currency} are not in this report (:34F:)."
                    )
            elif tag == "61":
                pending = _EXPECTED.fullmatch(value) is not None
                entry = _ENTRY.fullmatch(value.replace("E", "", 1) if pending else value)
                if entry is None:
                    raise tables.RefusedTable(number, _NOT_AS_SWIFT)
                side = "D" if _signed(entry) < 0 else "C"
                into = expected if pending else booked
                into[side] = (into[side][0] + 1, into[side][1] + abs(_signed(entry)))
                waiting = None if pending else (number, entry)
            elif tag == "86" and waiting is not None:
                yield _swift_row(waiting, account, currency, value)
                waiting = None
            elif tag in ("90D", "90C"):
                _check_counted(number, value, booked[tag[-1]], expected[tag[-1]])
            elif tag in ("60F", "60M", "62F", "62M"):
                raise tables.RefusedTable(number, _BOTH)
        if waiting is not None:
            yield _swift_row(waiting, account, currency, "")


NO_ENTRIES: Final = (0, Decimal(0))


def _check_counted(
    number: int, value: str, booked: tuple[int, Decimal], expected: tuple[int, Decimal]
) -> None:
    found = _COUNTED.fullmatch(value.strip())
    every = (booked[0] + expected[0], booked[1] + expected[1])
    stated = None
    if found is not None:
        stated = int(found["count"]), Decimal(found["amount"].replace(",", ".").removesuffix("."))
    if stated not in (booked, every):
        raise tables.RefusedTable(
            number,
            f"the report states {value.strip()[:40]!r}, but the number of the file's entries is "
            f"{booked[0]:,} and their sum is {booked[1]:f}: the file was cut off or changed; "
            "fetch it again",
        )


def _fields(path: Path, encoding: str) -> Iterator[tuple[int, str, str]]:
    begun: tuple[int, str, list[str]] | None = None
    for number, line in enumerate(tables.lines(path, encoding), 1):
        text = line.rstrip("\r\n")
        found = _TAG.match(text)
        ends = text.startswith(("-}", "{")) or text.strip() == "-"
        if found is None and begun is not None and not ends:
            begun[2].append(text)
            if len(begun[2]) > MAX_FIELD:
                raise tables.RefusedTable(begun[0], f"the field has more than {MAX_FIELD} lines")
            continue
        if begun is not None:
            yield begun[0], begun[1], "\n".join(begun[2])
            begun = None
        block = _TAG.search(text) if text.startswith("{") else found
        if block is not None:
            begun = (number, block[1], [block[2]])
    if begun is not None:
        yield begun[0], begun[1], "\n".join(begun[2])


def _balance_in(number: int, value: str) -> re.Match[str]:
    found = _BALANCE.fullmatch(value.strip())
    if found is None:
        raise tables.RefusedTable(
            number, "the balance is not in SWIFT's form, such as C261101KES1000,00"
        )
    return found


def _swift_day(digits: str) -> str:
    return f"20{digits[:2]}-{digits[2:4]}-{digits[4:]}"


def _booked(entry: re.Match[str]) -> str:
    year, month, day = 2000 + int(entry["year"]), int(entry["month"]), int(entry["day"])
    if (entry["entry"] or "").strip():  # the entry's day has no year: it is near the value date
        booked, day = int(entry["entry"][:2]), int(entry["entry"][2:])
        year += (booked < month - 6) - (booked > month + 6)
        month = booked
    return f"{year:04}-{month:02}-{day:02}"


def _signed(found: re.Match[str]) -> Decimal:
    # RC takes a credit back, RD a debit.
    amount = Decimal(found["amount"].replace(",", ".").removesuffix("."))
    return -amount if found["mark"] in ("D", "RC") else amount


def _swift_row(
    entry: tuple[int, re.Match[str]], account: str, currency: str, information: str
) -> tuple[int, Sequence[str]]:
    number, found = entry
    text, name = _information(information)
    # A reference that is filled up to its 16 characters is followed by a name or a text.
    own, rest = found["own"], ""
    if own[:16].endswith("  "):
        own, rest = own[:16], own[16:]
    return number, cells_of(
        account=account,
        booked_at=tables.CellMoment(_booked(found)),
        amount=tables.Number(format(_signed(found), "f")),
        currency=currency,
        entry_reference=reference_in(found["bank"] or ""),
        reference=reference_in(own),
        counterparty=name,
        text=joined_text([rest, found["more"] or "", text]),
    )


def _information(written: str) -> tuple[str, str]:
    flat = written.replace("\n", "")
    parts = _CODE.split(flat)
    if len(parts) < 3:
        named = _NAMED.search(flat)
        written = _BROKEN_NUMBER.sub("", written)
        return written.replace("\n", " "), "" if named is None else named[1].strip()
    fields = [(int(code), text) for code, text in zip(parts[1::2], parts[2::2], strict=True)]
    lines = [text for code, text in fields if code in _PURPOSE]
    purpose = "".join(f" {line}" if _KEYWORD.match(line) else line for line in lines)
    return purpose, "".join(text for code, text in fields if code in _NAMES).strip()
