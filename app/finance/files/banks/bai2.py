"""Read BAI2, the report format of banks in North America.

Source: banks' public guides to the Bank Administration Institute's "Cash Management Balance
Reporting Specifications, Version 2".
"""

import re
from collections.abc import Iterator, Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Final

from app.finance.files import tables
from app.finance.files.bank import reference_in
from app.finance.files.banks.entries import Balances, BankTable, Row, cells_of, joined_text
from reconcile.money import exponent_of, is_currency

FILE_HEADER: Final = re.compile(r"01,[^,\r\n]*,[^,\r\n]*,\d{6},")

MAX_CONTINUED: Final = 200
"""Maximum number of continuation records after one record."""

_RECORDS: Final = {
    "01": "file",
    "02": "group",
    "03": "account",
    "16": "entry",
    "49": "account's end",
    "88": "continuation",
    "98": "group's end",
    "99": "file's end",
}
_AFTER: Final = {"": ("01",), "01": ("02", "99"), "02": ("03", "98"), "03": ("16", "49"),
                 "16": ("16", "49"), "49": ("03", "98"), "98": ("02", "99"), "99": ()}  # fmt: skip

_CREDITS: Final = (range(100, 400), range(920, 960))
_DEBITS: Final = (range(400, 700), range(960, 1000))
_NO_MONEY: Final = "890"
_OPENING, _CLOSING = "010", "015"

_DAY_IS_WHOLE: Final = ("2", "4")
"""Modifiers of the as-of date for a final report: 2 previous day, 4 same day."""

_GROUP_STATUS: Final = {"2": "a deletion", "3": "a correction", "4": "a test"}


class Bai2Table(BankTable):
    """Bank file in the format BAI2."""

    format = "BAI2"

    def __init__(self, path: Path, *, encoding: str | None) -> None:
        super().__init__()
        self._path = path
        self._encoding = tables.encoding_of(path, encoding)

    def _rows(self) -> Iterator[Row]:
        before, number, day, whole = "", 1, "", False
        account, of_group, currency = "", "", ""
        balance, totals = Balances(), [Decimal(0), Decimal(0), Decimal(0)]
        for number, kind, fields in self._records():
            if kind not in _AFTER[before]:
                raise tables.RefusedTable(
                    number,
                    f"a record {kind} ({_RECORDS[kind]}) is not allowed here: fetch the file again",
                )
            before = kind
            if kind == "02":
                day, whole = self._group(number, fields)
                of_group, totals[1] = _at(fields, 5) or "USD", Decimal(0)
            elif kind == "03":
                account, currency = _at(fields, 0), _at(fields, 1) or of_group
                if not is_currency(currency):
                    raise tables.RefusedTable(number, "the account's currency is unknown")
                balance = Balances(currency=currency, account=account, opened=day, closed=day)
                totals[0] = Decimal(0)
                for code, amount in _summaries(number, fields[2:]):
                    totals[0] += amount
                    if code in (_OPENING, _CLOSING):
                        value = amount.scaleb(-exponent_of(currency))
                        setattr(balance, "opening" if code == _OPENING else "closing", value)
            elif kind == "16":
                code, amount = _at(fields, 0), _minor(number, _at(fields, 1))
                totals[0] += amount
                if code != _NO_MONEY:
                    value = _signed(number, code, amount).scaleb(-exponent_of(currency))
                    balance.moved += value
                    rest = fields[3 + _skipped(number, fields[2:]) :]
                    yield number, _row(account, day, currency, value, rest)
            elif kind == "49":
                self._check(number, totals, 0, fields)
                self.end_statement(number, balance)
                if whole:
                    self.periods.append(tables.StatedPeriod(since=day, until=day, name=account))
            elif kind == "98":
                self._check(number, totals, 1, fields)
            elif kind == "99":
                self._check(number, totals, 2, fields)
        if before != "99":
            raise tables.RefusedTable(
                number, "the file ends before its last record (99): fetch it again"
            )

    def _records(self) -> Iterator[tuple[int, str, list[str]]]:
        begun: tuple[int, str, list[str]] | None = None
        for number, line in enumerate(tables.lines(self._path, self._encoding), 1):
            text = line.strip()
            if not text:
                continue
            code, _, rest = text.partition(",")
            if code not in _RECORDS:
                raise tables.RefusedTable(number, "the line is not a BAI2 record")
            if code == "88" and begun is not None:
                begun[2].append(rest)
                if len(begun[2]) > MAX_CONTINUED:
                    raise tables.RefusedTable(
                        begun[0], f"the record has more than {MAX_CONTINUED} continuations"
                    )
                continue
            if begun is not None:
                yield begun[0], begun[1], _fields(begun[2])
            begun = number, code, [rest]
        if begun is not None:
            yield begun[0], begun[1], _fields(begun[2])

    def _group(self, number: int, fields: Sequence[str]) -> tuple[str, bool]:
        if what := _GROUP_STATUS.get(_at(fields, 2)):
            raise tables.RefusedTable(
                number, f"the group is {what}, which is not supported: fetch the day's whole report"
            )
        if _at(fields, 6) == "3":
            raise tables.RefusedTable(
                number,
                "the group is an intraday report: import the report of the whole day, which the "
                "bank makes afterwards",
            )
        digits = _at(fields, 3)
        try:
            day = date(2000 + int(digits[:2]), int(digits[2:4]), int(digits[4:])).isoformat()
        except ValueError:
            raise tables.RefusedTable(number, "the group has no day (as-of date, YYMMDD)") from None
        return day, _at(fields, 6) in _DAY_IS_WHOLE

    def _check(self, number: int, totals: list[Decimal], level: int, fields: list[str]) -> None:
        stated = _minor(number, _at(fields, 0))
        if stated != totals[level]:
            raise tables.RefusedTable(
                number,
                f"the amounts add up to {totals[level]}, but the control total is {stated}: the "
                "file was cut off or changed; fetch it again",
            )
        if level + 1 < len(totals):
            totals[level + 1] += stated


def _fields(pieces: Sequence[str]) -> list[str]:
    return ",\n".join(piece.removesuffix("/") for piece in pieces).split(",")


def _at(fields: Sequence[str], place: int) -> str:
    return fields[place].strip() if place < len(fields) else ""


def _minor(number: int, text: str) -> Decimal:
    if text and not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise tables.RefusedTable(number, "an amount has characters other than digits")
    return Decimal(text or 0)


def _signed(number: int, code: str, amount: Decimal) -> Decimal:
    kind = int(code) if re.fullmatch(r"[0-9]{3}", code) else 0
    if amount < 0:
        raise tables.RefusedTable(
            number,
            "the amount of the entry has a sign, but its type alone says whether it is a credit "
            "or a debit",
        )
    if any(kind in each for each in _CREDITS):
        return amount
    if any(kind in each for each in _DEBITS):
        return -amount
    raise tables.RefusedTable(
        number, "the type of the entry says neither credit (100-399) nor debit (400-699)"
    )


def _skipped(number: int, fields: Sequence[str]) -> int:
    kind = _at(fields, 0).upper()
    if kind == "D":
        if not (count := _at(fields, 1)).isdecimal() or len(count) > 3:
            raise tables.RefusedTable(
                number, "the funds type D (distributed availability) has no valid count"
            )
        return 1 + 2 * int(count)
    return {"S": 3, "V": 2}.get(kind, 0)


def _summaries(number: int, fields: Sequence[str]) -> Iterator[tuple[str, Decimal]]:
    place = 0
    while place < len(fields):
        if code := _at(fields, place):
            yield code, _minor(number, _at(fields, place + 1))
        place += 4 + _skipped(number, fields[place + 3 :])


def _row(
    account: str, day: str, currency: str, amount: Decimal, rest: Sequence[str]
) -> Sequence[str]:
    return cells_of(
        account=account,
        booked_at=tables.CellMoment(day),
        amount=tables.Number(format(amount, "f")),
        currency=currency,
        entry_reference=reference_in(_at(rest, 0)),
        reference=reference_in(_at(rest, 1)),
        text=joined_text([",".join(rest[2:]).replace(",\n", " ")]),
    )
