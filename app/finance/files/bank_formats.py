"""Tables of bank statements: CAMT.053, MT940 and OFX, one booked entry per row.

    CAMT.053   ISO 20022 BankToCustomerStatement, any version    streamed, no entities
    MT940      SWIFT customer statement message                  streamed, line by line
    OFX        Open Financial Exchange, 1.x (SGML) and 2.x (XML)  whole, up to MAX_OFX_BYTES

All three give the columns of HEADING. A row's number is its place among the entries, or in MT940
the line of its `:61:`. Entries that are not booked yet are no rows. If a statement gives both its
balances, its entries must add up to the difference, or nothing of the file is taken.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal, InvalidOperation
from html import unescape
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal
from xml.parsers import expat

from app.finance.files import tables
from app.finance.files.bank import MAX_TEXT, reference_in
from app.finance.files.mapping import Fields, FileMapping
from app.finance.files.opening import Check, as_mapped, no_table, open_table, start_of

HEADING: Final = (
    "account",
    "booked_at",
    "amount",
    "currency",
    "entry_reference",
    "reference",
    "counterparty",
    "text",
)

Row = tuple[int, Sequence[str]]
"""The number of a row, and its cells in the order of HEADING."""


def open_bank_table(
    path: Path, mapping: FileMapping, fields: Fields, *, check: Check | None = None
) -> tables.SourceTable:
    """Open a bank's file: one of the three formats, else any other table.

    Raises as `open_table` does.
    """
    form = bank_format(path)
    table: tables.SourceTable
    if form == "OFX":
        table = OfxTable(path, encoding=mapping.encoding)
    elif form == "CAMT.053":
        table = CamtTable(path)
    elif form == "MT940":
        table = Mt940Table(path, encoding=mapping.encoding)
    else:
        return open_table(path, mapping, fields, check=check)
    return as_mapped(table, mapping, fields, check=check)


def bank_format(path: Path) -> Literal["CAMT.053", "MT940", "OFX"] | None:
    """Recognize a bank's own format by its first bytes; any XML is tried as CAMT.053.

    Raises as `start_of` does.
    """
    start = start_of(path)
    if no_table(start) is not None:
        return None
    text = start.decode("latin-1").lstrip("\xef\xbb\xbf\xff\xfe \t\r\n")
    plain = text.replace("\0", "")  # of UTF-16
    if plain.startswith("OFXHEADER") or "<OFX>" in plain or "<?OFX" in plain:
        return "OFX"
    if plain.startswith("<"):
        return "CAMT.053"
    return "MT940" if _SWIFT.match(text) else None


_SWIFT: Final = re.compile(r"\{1:|:20:|(?:[^\r\n]{0,80}\r?\n){0,3}:20:")
"""An envelope, or a message without one, perhaps after lines that a bank adds."""


class _BankTable(ABC):
    """Base of the three formats: the heading, and rows in batches."""

    heading: Sequence[str] = HEADING
    heading_row = 1
    notes: Sequence[str] = ()
    of_ours = False
    head: Sequence[str] = ()

    def __init__(self) -> None:
        self.periods: list[tables.StatedPeriod] = []

    def batches(self) -> Iterator[tables.Batch]:
        rows, read = self._rows(), 0
        while part := list(islice(rows, tables.BATCH)):
            read += len(part)
            if read > tables.MAX_ROWS:
                raise tables.RefusedTable(
                    part[0][0],
                    f"there are more than {tables.MAX_ROWS:,} entries: import it in parts",
                )
            yield tables.Batch([cells for _, cells in part], [number for number, _ in part])

    @abstractmethod
    def _rows(self) -> Iterator[Row]:
        """Yield every booked entry, with its row's number."""


def _cells(**found: str) -> Sequence[str]:
    return [found.get(name, "") for name in HEADING]


def _amount(text: str, *, debit: bool) -> str:
    """Return a cell with the amount; other text stays as it is, so that the form refuses it."""
    if not re.fullmatch(r"[0-9]{1,30}(\.[0-9]{0,60})?", text):
        return text
    return tables.Number(("-" if debit and text.strip("0.") else "") + text.removesuffix("."))


def _joined(texts: Sequence[str]) -> str:
    joined = " ".join(dict.fromkeys(" ".join(text.split()) for text in texts if text.strip()))
    return joined[:MAX_TEXT]


@dataclass(slots=True)
class _Balances:
    """One statement's balances, and the sum of its entries."""

    opening: Decimal | None = None
    closing: Decimal | None = None
    moved: Decimal = Decimal(0)

    def add(self, cell: str) -> None:
        """Add a booked entry. If its amount is not clear, that is a problem of the row."""
        try:
            self.moved += Decimal(cell)
        except InvalidOperation:
            self.opening = None

    def check(self, row: int) -> None:
        """Raise RefusedTable if the entries are not the difference of the balances."""
        if self.opening is None or self.closing is None:
            return
        if self.opening + self.moved != self.closing:
            raise tables.RefusedTable(
                row,
                "the entries of the statement that ends here are not what lies between its opening "
                "and its closing balance: the file is cut or was changed; fetch it anew",
            )


# --- CAMT.053 -------------------------------------------------------------------------------------


MAX_DEPTH: Final = 40
"""Nested elements; the schema nests fifteen."""

MAX_VALUE: Final = 8 * 1024
"""Characters of one element's text; the schema allows 500."""

MAX_TAG: Final = 1024 * 1024
"""Bytes of one tag or comment. Until it ends, expat before 2.6 looks at all of it with each part,
which takes time quadratic in its length."""

_PART: Final = 64 * 1024

_CODES_OF_BALANCES: Final = {"OPBD": "opening", "PRCD": "opening", "CLBD": "closing"}
"""ISO 20022 BalanceType12Code: opening booked, previously closed booked, closing booked."""


class CamtTable(_BankTable):
    """One file of CAMT.053. All document types and entities are refused: the format has none, and
    XML with them can read other files or fill memory."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def _rows(self) -> Iterator[Row]:
        self.periods.clear()
        reading = _Camt(self.periods)
        with self._path.open("rb") as file:
            while part := file.read(_PART):
                reading.feed(part, last=False)
                yield from reading.ready()
            reading.feed(b"", last=True)
            yield from reading.ready()


@dataclass(slots=True)
class _CamtEntry:
    """One `Ntry` while it is read."""

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
    """Follows the elements of one document; their path gives their meaning."""

    def __init__(self, periods: list[tables.StatedPeriod]) -> None:
        """Add the period of each statement to `periods`."""
        self._periods, self._days = periods, dict[str, str]()
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
        self._balance, self._code, self._debit = _Balances(), "", False
        self._balance_amount = ""
        self._number = self._fed = 0
        self._ready: list[Row] = []

    def feed(self, part: bytes, *, last: bool) -> None:
        """Parse more bytes. Raises RefusedTable for a document of another kind."""
        try:
            self._parser.Parse(part, last)
        except expat.ExpatError as error:
            raise tables.RefusedTable(
                error.lineno, f"the XML breaks here: {expat.ErrorString(error.code)}"
            ) from None
        except (LookupError, ValueError):  # it declares an encoding that expat lacks
            raise tables.RefusedTable(
                1, "the XML is in an encoding that is not read: have the bank write it in UTF-8"
            ) from None
        self._fed += len(part)
        if self._fed - self._parser.CurrentByteIndex > MAX_TAG:
            raise tables.RefusedTable(
                self._parser.CurrentLineNumber,
                f"the XML has a tag or a comment of more than {MAX_TAG:,} bytes",
            )

    def ready(self) -> list[Row]:
        """Return the entries read since the last call."""
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
        if not self._path and "camt.053" not in space:
            raise tables.RefusedTable(
                self._parser.CurrentLineNumber,
                "the XML is no CAMT.053 statement: ask the bank for camt.053 (end of day "
                "statement), or export CSV",
            )
        self._path.append(tag)
        if len(self._path) > MAX_DEPTH:
            raise tables.RefusedTable(
                self._parser.CurrentLineNumber, f"the XML nests more than {MAX_DEPTH} elements"
            )
        self._value, self._length = [], 0
        if tag == "Stmt":
            self._account, self._balance, self._days = {}, _Balances(), {}
        elif tag == "Ntry":
            self._entry = _CamtEntry()
        elif tag == "Bal":
            self._code, self._debit, self._balance_amount = "", False, ""
        elif tag == "Amt" and self._entry is not None and self._path[-2] == "Ntry":
            self._entry.currency = attributes.get("Ccy", "")

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
        if tag == "Ntry" and self._entry is not None:
            self._take(self._entry)
            self._entry = None
        elif self._entry is not None:
            self._in_entry(self._entry, tag, value)
        elif tag == "Stmt":
            self._balance.check(max(self._number, 1))
            self._state_period()
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
        elif within[-3:] == ["Bal", "Dt", "Dt"]:
            self._days[self._code] = value
        elif tag == "Bal":
            side = _CODES_OF_BALANCES.get(self._code)
            amount = _amount(self._balance_amount, debit=self._debit)
            if side is not None and isinstance(amount, tables.Number):
                setattr(self._balance, side, Decimal(amount))

    def _state_period(self) -> None:
        """State what the statement covers: its own period, else the days of its balances."""
        days = self._days
        since, until = days.get("FrDtTm"), days.get("ToDtTm")
        if since is None or until is None:
            since, until = days.get("OPBD"), days.get("CLBD")
        if since and until:
            account = self._account.get("IBAN") or self._account.get("Othr", "")
            self._periods.append(tables.StatedPeriod(since=since, until=until, name=account))

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
        if entry.status not in ("BOOK", ""):
            return
        amount = _amount(entry.amount, debit=entry.debit)
        self._balance.add(amount)
        other = entry.parties["Cdtr" if entry.debit else "Dbtr"]
        end_to_end = list(dict.fromkeys(entry.end_to_end))
        if len(end_to_end) > 1:
            entry.texts += end_to_end
        # The bank's day: a moment belongs to the day that it has in the bank's own zone.
        booked = entry.booked or entry.valued
        day = re.fullmatch(r"(\d{4}-\d\d-\d\d)(?:T.*|Z|[+-]\d\d:\d\d)?", booked)
        cells = _cells(
            account=self._account.get("IBAN") or self._account.get("Othr", ""),
            booked_at=tables.CellMoment(day[1]) if day else booked,
            amount=amount,
            currency=entry.currency,
            entry_reference=entry.servicer or entry.own,
            reference=end_to_end[0] if len(end_to_end) == 1 else "",
            counterparty=_joined(other[:1]),
            text=_joined(entry.texts),
        )
        self._ready.append((self._number, cells))


# --- MT940 ----------------------------------------------------------------------------------------


_TAG: Final = re.compile(r":(\d\d[A-Z]?):(.*)", re.DOTALL)

_ENTRY: Final = re.compile(
    r"(?P<year>\d\d)(?P<month>\d\d)(?P<day>\d\d)(?P<entry>\d{4})?(?P<mark>R?[CD])(?P<funds>[A-Z])?"
    r"(?P<amount>\d{1,12},\d{0,3})(?P<type>[A-Z][A-Z0-9]{3})"
    r"(?P<own>(?:(?!//)[^\n]){0,16})(?://(?P<bank>[^\n]{0,34}))?(?:\n(?P<more>.*))?",
    re.DOTALL,
)
"""SWIFT, Standards Category 9, MT940 field 61: 6!n[4!n]2a[1!a]15d1!a3!c16x[//16x][34x]. Some banks
give the bank's reference more characters."""

_BALANCE: Final = re.compile(
    r"(?P<mark>[CD])(?P<day>\d{6})(?P<currency>[A-Z]{3})(?P<amount>\d{1,15},\d{0,3})"
)
"""Fields 60F, 60M, 62F and 62M: 1!a6!n3!a15d."""

_CODE: Final = re.compile(r"\?(\d\d)")
_KEYWORD: Final = re.compile(r"(?:EREF|KREF|MREF|CRED|DEBT|COAM|OAMT|SVWZ|ABWA|ABWE|IBAN|BIC)\+")
"""Begins a part of the purpose, on a line of its own (DK, "Anlage 3"); a part that is broken at the
end of a line goes on without a keyword."""
_PURPOSE: Final = (*range(20, 30), *range(60, 64))
_NAMES: Final = (32, 33)
_NAMED: Final = re.compile(r"/NAME/([^/]{1,70})")

_BROKEN_NUMBER: Final = re.compile(r"(?<=^.{64}[0-9])\n(?=[0-9])", re.MULTILINE)
"""The end of a full line of field 86 (6*65x) between two digits: banks break a number there."""

MAX_FIELD: Final = 64
"""Lines of one field; field 86 has six."""


class Mt940Table(_BankTable):
    """One file of MT940 messages."""

    heading_row = 1

    def __init__(self, path: Path, *, encoding: str | None) -> None:
        super().__init__()
        self._path = path
        self._encoding = tables.encoding_of(path, encoding)

    def _rows(self) -> Iterator[Row]:
        account, currency, balance = "", "", None
        waiting: tuple[int, re.Match[str]] | None = None
        number, ended, opened, entries = 1, False, "", set[str]()
        self.periods.clear()
        for number, tag, value in self._fields():
            if waiting is not None and tag != "86":
                yield _swift_row(waiting, account, currency, "")
                waiting = None
            if tag == "20":
                if balance is not None:
                    raise tables.RefusedTable(
                        number,
                        "a message begins before the last one has its closing balance (:62F:): "
                        "fetch the file anew",
                    )
                account, currency, balance = "", "", None
            elif tag == "25":
                account = value.strip()
            elif tag in ("60F", "60M"):
                found = _balance_in(number, value)
                currency, opened = found["currency"], _swift_day(found["day"])
                entries.clear()
                balance = _Balances(opening=_signed(found))
            elif tag == "61":
                entry = _ENTRY.fullmatch(value)
                if entry is None:
                    raise tables.RefusedTable(
                        number,
                        "field :61: is not as SWIFT has it (value date, D or C, amount with a "
                        "comma, type, reference): a part of an entry cannot be left out, so "
                        "nothing is taken",
                    )
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
                # Banks date the opening balance on the first day, or as the statement before was
                # closed: a statement of a month then opens on the last day of the month before.
                if opened not in entries and _day_after(opened).endswith("-01"):
                    opened = min(_day_after(opened), closed)
                period = tables.StatedPeriod(since=opened, until=closed, name=account)
                self.periods.append(period)
                balance.check(number)
                balance, ended = None, True
        if waiting is not None or balance is not None or not ended:
            raise tables.RefusedTable(
                number, "the file ends before the closing balance (:62F:): fetch it anew"
            )

    def _fields(self) -> Iterator[tuple[int, str, str]]:
        """Yield (line, tag, value) of each field, with its further lines."""
        begun: tuple[int, str, list[str]] | None = None
        for number, line in enumerate(tables.lines(self._path, self._encoding), 1):
            text = line.rstrip("\r\n")
            found = _TAG.match(text)
            ends = text.startswith(("-}", "{")) or text.strip() == "-"
            if found is None and begun is not None and not ends:
                begun[2].append(text)
                if len(begun[2]) > MAX_FIELD:
                    raise tables.RefusedTable(
                        begun[0], f"the field has more than {MAX_FIELD} lines"
                    )
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
            number, "the balance is not as SWIFT has it, such as C261101KES1000,00"
        )
    return found


def _swift_day(digits: str) -> str:
    return f"20{digits[:2]}-{digits[2:4]}-{digits[4:]}"


def _day_after(day: str) -> str:
    try:
        return (date.fromisoformat(day) + timedelta(days=1)).isoformat()
    except (ValueError, OverflowError):
        return day


def _booked(entry: re.Match[str]) -> str:
    """Return the day on which an entry was booked."""
    year, month, day = 2000 + int(entry["year"]), int(entry["month"]), int(entry["day"])
    if entry["entry"]:  # the entry's day has no year: it is near the value date
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
    return number, _cells(
        account=account,
        booked_at=tables.CellMoment(_booked(found)),
        amount=tables.Number(format(_signed(found), "f")),
        currency=currency,
        entry_reference=reference_in(found["bank"] or ""),
        reference=reference_in(found["own"]),
        counterparty=name,
        text=_joined([found["more"] or "", text]),
    )


def _information(written: str) -> tuple[str, str]:
    """Return text and counterparty of field 86.

    The field has codes (`?20…?32…`), SWIFT's own words (`/NAME/`), or plain text.
    """
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


# --- OFX ------------------------------------------------------------------------------------------


MAX_OFX_BYTES: Final = 64 * 1024 * 1024
"""OFX elements may end anywhere, so a file is read whole; a busy account has some MB a year."""

MAX_OPEN: Final = 100
"""Elements open at a time; one without a value counts as open until its parent ends."""

# Possessive: a name that does not end would otherwise be tried at each of its lengths.
_ELEMENT: Final = re.compile(r"<(/?)([A-Za-z0-9._]++)[^<>]*+>([^<]*+)")
_CHARSET: Final = re.compile(r"^CHARSET:\s*(\S+)", re.MULTILINE)
_DECLARED: Final = re.compile(r"""^\s*<\?xml[^>]*encoding=["']([\w.-]+)["']""")
_POSTED: Final = re.compile(r"(\d{4})(\d\d)(\d\d)(?:\d{6}.*)?")
_ACCOUNTS: Final = ("BANKACCTFROM", "CCACCTFROM")

AMOUNT_IN: Final = "CURRENCY.CURSYM"
"""The currency of an entry's amount if it is not the account's. OFX 2.2, section 5.2: with
`<CURRENCY>` an amount is in that currency; with `<ORIGCURRENCY>` it was converted to the account's,
and the element only tells the original one."""


class OfxTable(_BankTable):
    """One file of OFX, of bank or card accounts."""

    def __init__(self, path: Path, *, encoding: str | None) -> None:
        super().__init__()
        if path.stat().st_size > MAX_OFX_BYTES:
            raise tables.RefusedTable(
                1, f"the file is larger than {MAX_OFX_BYTES >> 20} MiB: fetch it month by month"
            )
        content = path.read_bytes()
        head = content[:2_000].decode("latin-1")
        declared = _DECLARED.search(head)
        charset = _CHARSET.search(head)
        name = encoding or (declared[1] if declared else "utf-8")
        if encoding is None and charset is not None and charset[1].isdigit():
            name = f"cp{charset[1]}"
        try:
            text = content.decode(tables.known_encoding(name))
        except UnicodeDecodeError as error:
            raise tables.RefusedTable(
                1, f"byte {error.start:,} of the file is not {name}: say --encoding NAME"
            ) from None
        if "<!" in text:
            raise tables.RefusedTable(
                1, "the file declares a document type or entities: fetch it anew"
            )
        begins = re.search(r"<OFX>", text, re.IGNORECASE)
        if begins is None:
            raise tables.RefusedTable(1, "there is no <OFX> in the file: fetch it anew")
        self._body = text[begins.start() :]

    def _rows(self) -> Iterator[Row]:
        within: list[str] = []
        account, currency, number, days = "", "", 0, dict[str, str]()
        self.periods.clear()
        entry: dict[str, str] | None = None
        for found in _ELEMENT.finditer(self._body):  # a list of them takes thirty times the file
            close, tag, text = found.groups()
            name, value = tag.upper(), unescape(text).strip()
            if close:
                if name in within:
                    while within.pop() != name:
                        pass
                if name == "STMTTRN" and entry is not None:
                    yield number, _ofx_row(entry, account, currency)
                    entry = None
                elif name == "BANKTRANLIST" and len(days) == 2:
                    since, until = days["DTSTART"], days["DTEND"]
                    period = tables.StatedPeriod(since=since, until=until, name=account)
                    self.periods.append(period)
                    days = {}
                continue
            if name == "STMTTRN":
                if entry is not None:
                    raise tables.RefusedTable(
                        number, "a transaction begins before the last one ends"
                    )
                entry, number = {}, number + 1
            elif value and entry is not None:
                if name == "CURSYM" and "CURRENCY" in within:
                    name = AMOUNT_IN
                entry.setdefault(name, value)
            elif name in ("DTSTART", "DTEND") and (stated := _POSTED.fullmatch(value)):
                days[name] = "-".join(stated.groups())
            elif name == "CURDEF":
                currency = value
            elif name == "ACCTID" and any(each in within for each in _ACCOUNTS):
                account = value
            if not value:
                within.append(name)
                if len(within) > MAX_OPEN:
                    raise tables.RefusedTable(
                        max(number, 1), f"more than {MAX_OPEN} elements are open at a time"
                    )
        if entry is not None or not re.search(r"</OFX>\s*\Z", self._body, re.IGNORECASE):
            raise tables.RefusedTable(max(number, 1), "the file ends before </OFX>: fetch it anew")


def _ofx_row(entry: dict[str, str], account: str, currency: str) -> Sequence[str]:
    amount = entry.get("TRNAMT", "")
    found = re.fullmatch(r"([+-]?)([0-9]{1,30})(?:[.,]([0-9]{1,60}))?", amount)
    if found is not None:
        sign = "-" if found[1] == "-" else ""
        amount = tables.Number(f"{sign}{found[2]}" + (f".{found[3]}" if found[3] else ""))
    posted = _POSTED.fullmatch(entry.get("DTPOSTED", ""))
    day = "-".join(posted.groups()) if posted else entry.get("DTPOSTED", "")
    return _cells(
        account=account,
        booked_at=tables.CellMoment(day) if posted else day,
        amount=amount,
        currency=entry.get(AMOUNT_IN, currency),
        entry_reference=entry.get("FITID", ""),
        reference=entry.get("REFNUM", ""),
        counterparty=entry.get("NAME", ""),
        text=_joined([entry.get("MEMO", ""), entry.get("CHECKNUM", "")]),
    )
