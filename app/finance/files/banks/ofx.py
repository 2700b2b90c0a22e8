"""Read OFX, Open Financial Exchange, versions 1.x and 2.x."""

import re
from collections.abc import Iterator, Sequence
from html import escape, unescape
from pathlib import Path
from typing import Final

from app.core.errors import UsageError
from app.finance.files import tables
from app.finance.files.banks.entries import BankTable, Row, cells_of, joined_text

MAX_OFX_BYTES: Final = 16 * 1024 * 1024

MAX_OPEN: Final = 100
"""Maximum number of open elements."""

# Possessive: a name that does not end would otherwise be tried at each of its lengths.
_ELEMENT: Final = re.compile(r"<(/?)([A-Za-z0-9._]++)[^<>]*+>([^<]*+)")
_CHARSET: Final = re.compile(r"^CHARSET:\s*(\S+)", re.MULTILINE)
_DECLARED: Final = re.compile(r"""^\s*<\?xml[^>]*encoding=["']([\w.-]+)["']""")
_POSTED: Final = re.compile(r"(\d{4})(\d\d)(\d\d)(?:\d{6}.*)?")
_STATEMENTS: Final = ("STMTRS", "CCSTMTRS")
_ACCOUNTS: Final = ("BANKACCTFROM", "CCACCTFROM")

_ERRORS: Final = {
    "2000": "an error without a description",
    "2003": "the account was not found",
    "2004": "the account is closed",
    "2005": "the account is not open to this user",
    "15000": "the password must be changed first",
    "15500": "the sign-on was refused: wrong user or password",
    "15501": "the account is in use",
    "15502": "the password is locked",
}

AMOUNT_IN: Final = "CURRENCY.CURSYM"
"""Element with the currency of an amount in a foreign currency (OFX 2.2, 5.2)."""


class OfxTable(BankTable):
    """Bank file in the format OFX."""

    format = "OFX"

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
        except UsageError:
            if encoding is not None:
                raise
            raise tables.RefusedTable(
                1, "the file's header names an unknown encoding: give --encoding NAME"
            ) from None
        except UnicodeDecodeError as error:
            raise tables.RefusedTable(
                1, f"byte {error.start:,} of the file is not {name}: give --encoding NAME"
            ) from None
        text = _without_marks(text)
        begins = re.search(r"<OFX>", text, re.IGNORECASE)
        if begins is None:
            raise tables.RefusedTable(1, "there is no <OFX> in the file: fetch it again")
        self._body = text[begins.start() :]

    def _rows(self) -> Iterator[Row]:
        within: list[str] = []
        account, currency, code, number, days = "", "", "", 0, dict[str, str]()
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
                elif name in _STATEMENTS:
                    self.statements += 1
                    # A statement without entries and days still names its account.
                    self.periods.append(tables.StatedPeriod(since="", until="", name=account))
                elif name == "BANKTRANLIST" and len(days) == 2:
                    since, until = days["DTSTART"], days["DTEND"]
                    period = tables.StatedPeriod(since=since, until=until, name=account)
                    self.periods.append(period)
                    days = {}
                continue
            if name == "STMTTRN":
                if entry is not None:
                    raise tables.RefusedTable(
                        number, "a transaction begins before the previous transaction ends"
                    )
                entry, number = {}, number + 1
            elif value and entry is not None:
                if name == "CURSYM" and "CURRENCY" in within:
                    name = AMOUNT_IN
                entry.setdefault(name, value)
            elif name in ("DTSTART", "DTEND") and (stated := _POSTED.fullmatch(value)):
                days[name] = "-".join(stated.groups())
            elif name == "CODE" and "STATUS" in within:
                code = value
            elif name == "SEVERITY" and value.upper() == "ERROR":
                raise tables.RefusedTable(
                    max(number, 1),
                    "the file contains an error message from the bank instead of a whole "
                    f"statement: error {code} ({_ERRORS.get(code, 'see the bank')}). Fetch the "
                    "file again",
                )
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
            raise tables.RefusedTable(max(number, 1), "the file ends before </OFX>: fetch it again")


def _without_marks(text: str) -> str:
    parts, at = list[str](), 0
    while (begins := text.find("<!", at)) >= 0:
        parts.append(text[at:begins])
        for opens, closes in (("<!--", "-->"), ("<![CDATA[", "]]>")):
            if text.startswith(opens, begins):
                ends = text.find(closes, begins + len(opens))
                if ends < 0:
                    raise tables.RefusedTable(
                        1,
                        f"the file ends within a section {opens} that has no {closes}: fetch it "
                        "again",
                    )
                if opens != "<!--":
                    parts.append(escape(text[begins + len(opens) : ends]))
                at = ends + len(closes)
                break
        else:
            raise tables.RefusedTable(
                1, "the file declares a document type or entities: fetch it again"
            )
    return "".join((*parts, text[at:]))


def _ofx_row(entry: dict[str, str], account: str, currency: str) -> Sequence[str]:
    amount = tables.Number(entry.get("TRNAMT", ""))  # as text, marks of a mapping could be in it
    found = re.fullmatch(r"([+-]?)([0-9]{1,30})(?:[.,]([0-9]{1,60}))?", amount)
    if found is not None:
        sign = "-" if found[1] == "-" else ""
        amount = tables.Number(f"{sign}{found[2]}" + (f".{found[3]}" if found[3] else ""))
    posted = _POSTED.fullmatch(entry.get("DTPOSTED", ""))
    day = "-".join(posted.groups()) if posted else entry.get("DTPOSTED", "")
    return cells_of(
        account=account,
        booked_at=tables.CellMoment(day) if posted else day,
        amount=amount,
        currency=entry.get(AMOUNT_IN, currency),
        entry_reference=entry.get("FITID", ""),
        reference=entry.get("REFNUM", ""),
        counterparty=entry.get("NAME", ""),
        text=joined_text([entry.get("MEMO", ""), entry.get("CHECKNUM", "")]),
    )
