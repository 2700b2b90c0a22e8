"""Read the ISO 20022 formats CAMT.052 of a day in progress, CAMT.053 of past days, and CAMT.054 of
single bookings.

Sources: ISO 20022 message definition reports, Bank-to-Customer Cash Management; ANZ's guide to
camt.052.001.06 and UniCredit's page on camt, read in November 2026.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final
from xml.parsers import expat

from app.core.text import counted
from app.finance.files import tables
from app.finance.files.bank import reference_in
from app.finance.files.banks import entries

MAX_DEPTH: Final = 40
"""Maximum depth of nested elements. The schema nests fifteen."""

MAX_VALUE: Final = 8 * 1024

MAX_TAG: Final = 1024 * 1024
"""Maximum bytes of a tag or comment. For long tags, expat before 2.6 takes quadratic time."""

_PART: Final = 64 * 1024

MAX_ENVELOPE: Final = 200
"""Maximum number of elements that can surround the message."""

_STATEMENT: Final = "CAMT.053"

MESSAGES: Final = {
    "BkToCstmrAcctRpt": ("CAMT.052", "Rpt"),
    "BkToCstmrStmt": (_STATEMENT, "Stmt"),
    "BkToCstmrDbtCdtNtfctn": ("CAMT.054", "Ntfctn"),
}

_CODES_OF_BALANCES: Final = {"OPBD": "opening", "PRCD": "opening", "CLBD": "closing"}


class CamtTable(entries.BankTable):
    """Bank file in a CAMT format. Document types and entities are refused."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def _rows(self) -> Iterator[entries.Row]:
        reading = _Camt(self)
        with self._path.open("rb") as file:
            while part := file.read(_PART):
                reading.feed(part, last=False)
                yield from reading.ready()
            reading.feed(b"", last=True)
            yield from reading.ready()
        if reading.of_the_day:
            self._notes.append(
                counted(
                    reading.of_the_day,
                    "entry has no date of its own: the day of its statement is used.",
                    "entries have no date of their own: the day of their statement is used.",
                )
            )


@dataclass(slots=True)
class _CamtEntry:
    amount: str = ""
    currency: str = ""
    debit: bool = False
    status: str = ""
    booked: str = ""
    valued: str = ""
    servicer: str = ""
    own: str = ""
    end_to_end: list[str] = field(default_factory=list)
    parties: dict[str, list[str]] = field(default_factory=lambda: {"Dbtr": [], "Cdtr": []})
    texts: list[str] = field(default_factory=list)


class _Camt:
    def __init__(self, table: CamtTable) -> None:
        self._table, self._days, self.of_the_day = table, dict[str, str](), 0
        self._message, self._around, self._ended, self._part = 0, 0, False, ""
        self._parser = expat.ParserCreate(namespace_separator=" ")
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text
        self._parser.StartDoctypeDeclHandler = self._refuse
        self._parser.EntityDeclHandler = self._refuse
        self._parser.ExternalEntityRefHandler = self._refuse
        self._path: list[str] = []
        self._value: list[str] = []
        self._length = 0
        self._entry: _CamtEntry | None = None
        self._account: dict[str, str] = {}
        self._balance, self._code, self._debit = entries.Balances(), "", False
        self._balance_amount = ""
        self._number = self._fed = 0
        self._ready: list[entries.Row] = []

    def feed(self, part: bytes, *, last: bool) -> None:
        """Parse more bytes of the file. Raise RefusedTable for any other format."""
        try:
            self._parser.Parse(part, last)
        except expat.ExpatError as error:
            raise tables.RefusedTable(
                error.lineno, f"the XML is invalid here: {expat.ErrorString(error.code)}"
            ) from None
        except (LookupError, ValueError):  # it declares an encoding that expat lacks
            raise tables.RefusedTable(
                1,
                "the XML is in an encoding that is not supported: have the bank write it in UTF-8",
            ) from None
        if last and not self._ended:
            raise self._no_statement("")
        self._fed += len(part)
        if self._fed - self._parser.CurrentByteIndex > MAX_TAG:
            raise tables.RefusedTable(
                self._parser.CurrentLineNumber,
                f"the XML has a tag or a comment of more than {MAX_TAG:,} bytes",
            )

    def ready(self) -> list[entries.Row]:
        found, self._ready = self._ready, []
        return found

    def _refuse(self, *_: Any) -> int:
        raise tables.RefusedTable(
            self._parser.CurrentLineNumber,
            "the XML declares a document type or entities, which no bank statement has: fetch the "
            "file anew from the bank",
        )

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        space, _, tag = name.rpartition(" ")
        self._path.append(tag)
        if len(self._path) > MAX_DEPTH:
            raise tables.RefusedTable(
                self._parser.CurrentLineNumber,
                f"the XML has elements nested more than {MAX_DEPTH} levels deep",
            )
        self._value, self._length = [], 0
        if not self._message:
            self._begin(space, tag)
        elif tag == self._part:
            self._account, self._balance, self._days = {}, entries.Balances(), {}
        elif tag == "Ntry":
            self._entry = _CamtEntry()
        elif tag == "Bal":
            self._code, self._debit, self._balance_amount = "", False, ""
        elif tag == "Amt" and self._entry is not None and self._path[-2] == "Ntry":
            self._entry.currency = attributes.get("Ccy", "")
        elif tag == "Amt" and self._path[-2] == "Bal":
            self._balance.currency = attributes.get("Ccy", "")

    def _begin(self, space: str, tag: str) -> None:
        self._around += 1
        named = re.search(r"camt\.0\d\d", space)
        form, part = MESSAGES.get(tag, ("", ""))
        if named is not None and named[0].upper() not in [name for name, _ in MESSAGES.values()]:
            raise self._no_statement(f", but {named[0].upper()}")
        stated = form and (named[0].upper() == form if named else not space)
        if self._path[-2:-1] == ["Document"] and stated:
            if self._ended:
                raise tables.RefusedTable(
                    self._parser.CurrentLineNumber,
                    "the XML has several statement messages: import each as a file of its own",
                )
            self._message, self._part, self._table.format = len(self._path), part, form
        elif self._around > MAX_ENVELOPE:
            raise self._no_statement("")

    def _no_statement(self, found: str) -> tables.RefusedTable:
        return tables.RefusedTable(
            self._parser.CurrentLineNumber,
            f"the XML is not CAMT.052, 053 or 054{found}: ask the bank for camt.053 (end of day "
            "statement), or export CSV",
        )

    def _text(self, text: str) -> None:
        self._length += len(text)
        if self._length > MAX_VALUE:
            raise tables.RefusedTable(
                self._parser.CurrentLineNumber,
                f"an element holds more than {MAX_VALUE:,} characters",
            )
        self._value.append(text)

    def _end(self, name: str) -> None:
        value, self._value = "".join(self._value).strip(), []
        tag = self._path[-1]
        if not self._message:
            pass
        elif len(self._path) == self._message:
            self._message, self._ended = 0, True
        elif tag == "Ntry" and self._entry is not None:
            self._take(self._entry)
            self._entry = None
        elif self._entry is not None:
            self._in_entry(self._entry, tag, value)
        elif tag == self._part:
            self._end_statement()
        else:
            self._in_statement(tag, value)
        self._path.pop()

    def _in_statement(self, tag: str, value: str) -> None:
        within = self._path[-5:]
        if within[-2:] == ["Id", "IBAN"] and "Acct" in within:
            self._account.setdefault("IBAN", value)
        elif within[-3:] == ["Id", "Othr", "Id"] and "Acct" in within:
            self._account.setdefault("Othr", value)
        elif within[-2:] == ["CdOrPrtry", "Cd"] and "Bal" in within:
            self._code = value
        elif within[-2:] == ["Bal", "Amt"]:
            self._balance_amount = value
        elif within[-2:] == ["Bal", "CdtDbtInd"]:
            self._debit = value == "DBIT"
        elif within[-2:-1] == ["FrToDt"]:
            self._days[tag] = value
        elif within[-3:-1] == ["Bal", "Dt"]:
            self._days[self._code] = value[:10]
        elif tag == "Bal" and self._table.format == _STATEMENT:
            side = _CODES_OF_BALANCES.get(self._code)
            amount = entries.amount_cell(self._balance_amount, debit=self._debit)
            if side is not None:
                with suppress(InvalidOperation):
                    setattr(self._balance, side, Decimal(amount))

    def _end_statement(self) -> None:
        days, balance = self._days, self._balance
        balance.account = self._account.get("IBAN") or self._account.get("Othr", "")
        balance.opened, balance.closed = (
            next((days[name][:10] for name in names if days.get(name)), "")
            for names in (("OPBD", "PRCD", "FrDtTm"), ("CLBD", "ToDtTm"))
        )
        self._table.end_statement(max(self._number, 1), balance)
        since, until = days.get("FrDtTm"), days.get("ToDtTm")
        if since is None or until is None:
            since, until = (
                days.get("OPBD") or entries.day_after(days.get("PRCD", "")),
                days.get("CLBD"),
            )
        # A statement without entries and days still names its account.
        if self._table.format != _STATEMENT:
            since = until = ""
        stated = tables.StatedPeriod(since=since or "", until=until or "", name=balance.account)
        self._table.periods.append(stated)

    def _only_day(self) -> str:
        days = self._days
        for first, last in (("OPBD", "CLBD"), ("FrDtTm", "ToDtTm")):
            if (day := days.get(first, "")[:10]) and day == days.get(last, "")[:10]:
                self.of_the_day += 1
                return day
        self._table.broken[self._number] = tables.Problem(
            row=self._number,
            column="booked_at",
            sentence="has neither a booking date nor a value date, and its statement "
            "covers more than one day: ask the bank for a file with booking "
            "dates",
        )
        return ""

    def _in_entry(self, entry: _CamtEntry, tag: str, value: str) -> None:
        match self._path[-2], tag:
            case "Ntry", "Amt":
                entry.amount = value
            case "Ntry", "CdtDbtInd":
                entry.debit = value == "DBIT"
            case "Ntry", "Sts":
                entry.status = entry.status or value
            case "Ntry", "AcctSvcrRef":
                entry.servicer = reference_in(value)
            case "Ntry", "NtryRef":
                entry.own = reference_in(value)
            case "Ntry", "AddtlNtryInf":
                entry.texts.append(value)
            case "Ntry", _:
                pass
            case "Sts", _:
                entry.status = value
            case "BookgDt", _:
                entry.booked = value
            case "ValDt", _:
                entry.valued = value
            case "Refs", "EndToEndId" | "InstrId" | "TxId" | "PmtInfId" | "MsgId":
                if reference_in(value):
                    (entry.end_to_end if tag == "EndToEndId" else entry.texts).append(value)
            case "Dbtr" | "Cdtr" as party, "Nm":
                entry.parties[party].append(value)
            case "Pty", "Nm" if self._path[-3] in entry.parties:
                entry.parties[self._path[-3]].append(value)
            case ("CdtrRefInf", "Ref") | (_, "Ustrd" | "AddtlTxInf" | "AddtlRmtInf"):
                entry.texts.append(value)

    def _take(self, entry: _CamtEntry) -> None:
        self._number += 1
        # Only what is booked (EntryStatus1Code BOOK) has moved money.
        if entry.status != "BOOK" and (entry.status or self._table.format != _STATEMENT):
            return
        amount = entries.amount_cell(entry.amount, debit=entry.debit)
        self._balance.add(amount)
        other = entry.parties["Cdtr" if entry.debit else "Dbtr"]
        end_to_end = list(dict.fromkeys(entry.end_to_end))
        if len(end_to_end) > 1:
            entry.texts += end_to_end
        # The bank's day: an instant belongs to its day in the bank's zone.
        booked = entry.booked or entry.valued or self._only_day()
        day = re.fullmatch(r"(\d{4}-\d\d-\d\d)(?:T.*|Z|[+-]\d\d:\d\d)?", booked)
        cells = entries.cells_of(
            account=self._account.get("IBAN") or self._account.get("Othr", ""),
            booked_at=tables.CellMoment(day[1]) if day else booked,
            amount=amount,
            currency=entry.currency,
            entry_reference=entry.servicer or entry.own,
            reference=end_to_end[0] if len(end_to_end) == 1 else "",
            counterparty=entries.joined_text(other[:1]),
            text=entries.joined_text(entry.texts),
        )
        self._ready.append((self._number, cells))
