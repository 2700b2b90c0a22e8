"""Statements in banks' own formats, with the dialects of living banks: made and read by hand.

CAMT.053 and OFX 2 are read with ElementTree; MT940, BAI2 and OFX 1 with a few lines here.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from decimal import Decimal
from html import unescape
from random import Random
from typing import Final, Literal
from xml.etree import ElementTree

from tests.corpus.cells import DECIMALS, Unclear, minor
from tests.corpus.tables import Expected, Kind, Row

Format = Literal["camt", "mt940", "bai2", "ofx1", "ofx2"]


@dataclass(slots=True, kw_only=True)
class _Entry:
    day: date
    minor: int
    reference: str
    own: str
    text: str
    is_booked: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One file of a bank."""

    form: Format
    content: bytes
    encoding: str
    kind: Kind = "bank"

    @property
    def name(self) -> str:
        return f"file.{self.form}"

    def mapping(self) -> str:
        said = f'encoding = "{self.encoding}"\n' if self.form in ("mt940", "bai2") else ""
        return f'{said}[defaults]\naccount = "main"\n'


OWN: Final = ("NONREF", "INV-17", "R 100/2", "A" * 16, "", "+4917")
REFERENCES: Final = ("", "NONREF", "B2026-1", "0000123", "x" * 34, "Ä-1", "a&b")
TEXTS: Final = (
    "plain", "Größe & Co", "two  blanks", "1 < 2", "?20SVWZ+Rent?32Jo", "/NAME/Jo Doe/", ""
)  # fmt: skip


def _entries(random: Random, first: date, most: int) -> list[_Entry]:
    return [
        _Entry(
            day=first + timedelta(days=random.randrange(5)),
            minor=random.choice((1, 100, -1, -4_250, random.randrange(-(10**8), 10**8) or 5)),
            reference=random.choice((*REFERENCES, f"E{random.randrange(10**6)}")),
            own=random.choice(OWN),
            text=random.choice(TEXTS),
        )
        for _ in range(random.randrange(most))
    ]


def make_statement(random: Random) -> Statement:
    """Make a file of a random format and dialect."""
    form: Format = random.choice(("camt", "mt940", "mt940", "bai2", "ofx1", "ofx2"))
    currency = random.choice(tuple(DECIMALS))
    made = _WRITERS[form](random, currency)
    encoding = random.choice(("utf-8", "utf-8", "cp1252"))
    if form == "mt940" and random.random() < 0.5:
        made = made.replace("\n", "\r\n")
    if form == "camt":
        encoding = random.choice(("utf-8", "utf-8", "utf-16", "iso-8859-1"))
        made = made.replace("UTF-8", encoding)
    elif form == "ofx1" and encoding == "cp1252":
        made = made.replace("ENCODING:UTF-8\nCHARSET:NONE", "ENCODING:USASCII\nCHARSET:1252")
    elif form == "ofx2":
        made = made.replace("UTF-8", encoding)
    return Statement(form=form, content=made.encode(encoding), encoding=encoding)


def _major(units: int, currency: str, mark: str) -> str:
    decimals = DECIMALS[currency]
    whole, rest = divmod(abs(units), 10**decimals)
    return (
        f"{whole}{mark}{rest:0{decimals}}" if decimals else f"{whole}{mark if mark == ',' else ''}"
    )


# --- CAMT.053 -------------------------------------------------------------------------------------


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def _camt(random: Random, currency: str) -> str:
    version = random.choice(("02", "04", "08"))
    statements = "".join(_camt_statement(random, currency) for _ in range(random.choice((1, 1, 2))))
    head = random.choice(("", "", "", "", '<!DOCTYPE Document [<!ENTITY a "b">]>'))
    comment = random.choice(("", "<!-- <Ntry> -->"))
    space = random.choice(
        (f' xmlns="urn:iso:std:iso:20022:tech:xsd:camt.053.001.{version}"',) * 4 + ("",)
    )
    before, after = random.choice(
        (("", ""), ("", ""), ("<Env><Hdr>x</Hdr><Body>", "</Body></Env>"))
    )
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>{head}{before}<Document{space}>{comment}'
        f"<BkToCstmrStmt><GrpHdr><MsgId>1</MsgId></GrpHdr>{statements}</BkToCstmrStmt></Document>"
        f"{after}"
    )


def _camt_statement(random: Random, currency: str) -> str:
    first = date(2026, random.randrange(1, 13), random.randrange(1, 25))
    entries = _entries(random, first, 7)
    one_day = random.random() < 0.3
    opening = random.randrange(-(10**6), 10**6)
    parts = []
    for entry in entries:
        if one_day:
            entry.day = first
        entry.is_booked = random.random() < 0.85
        status = "BOOK" if entry.is_booked else "PDNG"
        dated = random.choice((
            f"<BookgDt><Dt>{entry.day}</Dt></BookgDt><ValDt><Dt>2026-12-31</Dt></ValDt>",
            f"<BookgDt><DtTm>{entry.day}T23:30:00+02:00</DtTm></BookgDt>",
            f"<ValDt><Dt>{entry.day}</Dt></ValDt>",
            "" if one_day else f"<BookgDt><Dt>{entry.day}+01:00</Dt></BookgDt>",
        ))  # fmt: skip
        amount = _major(entry.minor, currency, ".")
        if "." in amount:
            amount = random.choice((amount, amount + "0", amount + "00"))
        if random.random() < 0.02:
            amount = random.choice(("+5.00", "5,00", "1,234.50", "-5.00", "5.00-", "1.2345", ""))
        reference = f"<AcctSvcrRef>{_escaped(entry.reference)}</AcctSvcrRef>"
        parts.append(
            f'<Ntry><Amt Ccy="{currency}">{amount}</Amt>'
            f"<CdtDbtInd>{'DBIT' if entry.minor < 0 else 'CRDT'}</CdtDbtInd>"
            f"<Sts>{random.choice((status, f'<Cd>{status}</Cd>'))}</Sts>{dated}"
            f"{reference if entry.reference else ''}<NtryDtls><TxDtls><Refs>"
            f"<EndToEndId>{_escaped(entry.own) or 'NOTPROVIDED'}</EndToEndId></Refs><RmtInf><Ustrd>"
            f"{random.choice((_escaped(entry.text), f'<![CDATA[{entry.text}]]>'))}</Ustrd></RmtInf>"
            "</TxDtls></NtryDtls></Ntry>"
        )
    closing = opening + sum(each.minor for each in entries if each.is_booked)
    if random.random() < 0.08:
        closing += 1
    last = first if one_day else first + timedelta(days=6)
    balances = "".join(
        f'<Bal><Tp><CdOrPrtry><Cd>{code}</Cd></CdOrPrtry></Tp><Amt Ccy="{currency}">'
        f"{_major(units, currency, '.')}</Amt><CdtDbtInd>{'DBIT' if units < 0 else 'CRDT'}"
        f"</CdtDbtInd><Dt><Dt>{day}</Dt></Dt></Bal>"
        for code, units, day in (("OPBD", opening, first), ("CLBD", closing, last))
    )
    return f"<Stmt><Id>1</Id><Acct><Id><IBAN>X1</IBAN></Id></Acct>{balances}{''.join(parts)}</Stmt>"


def _read_camt(content: bytes, encoding: str) -> Iterator[Row | tuple[int, str]]:
    if "<!DOCTYPE" in content.decode(encoding):
        raise Unclear("it declares a document type")
    root, number = ElementTree.fromstring(content), 0
    for each in root.iter():
        each.tag = each.tag.rpartition("}")[2]
    for statement in root.iter("Stmt"):
        moved, balances = Decimal(0), dict[str, tuple[Decimal, str]]()
        for balance in statement.iter("Bal"):
            value = Decimal(balance.findtext("Amt") or "")
            debit = balance.findtext("CdtDbtInd") == "DBIT"
            code = balance.findtext("Tp/CdOrPrtry/Cd") or ""
            balances[code] = (-value if debit else value), balance.findtext("Dt/Dt") or ""
        days = {day for _, day in balances.values()}
        for entry in statement.iter("Ntry"):
            number += 1
            status = entry.find("Sts")
            assert status is not None
            if "BOOK" not in "".join(status.itertext()):
                continue
            amount = entry.find("Amt")
            assert amount is not None
            digits = amount.text or ""
            if not digits.replace(".", "", 1).isdigit():
                moved = Decimal("NaN")  # nothing ties to it
                yield number, "the amount is not as ISO 20022 has it"
                continue
            value = Decimal(digits)
            value = -value if entry.findtext("CdtDbtInd") == "DBIT" else value
            moved += value
            when = entry.find("BookgDt")
            when = entry.find("ValDt") if when is None else when
            day = next(iter(days)) if when is None else "".join(when.itertext())[:10]
            if when is None and len(days) != 1:
                raise Unclear("an entry has no day")
            currency = amount.attrib["Ccy"]
            own = entry.findtext("NtryDtls/TxDtls/Refs/EndToEndId")
            names = _names(entry.findtext("AcctSvcrRef"), own)
            try:
                yield number, names, minor(value, currency), currency, f"{day}T00:00:00Z"
            except Unclear as reason:
                yield number, str(reason)
        if not moved.is_nan() and balances["OPBD"][0] + moved != balances["CLBD"][0]:
            raise Unclear("the balances do not tie")


def _names(bank: str | None, own: str | None) -> str:
    """Return the bank's reference and the other party's; "NONREF" and its like say nothing."""
    nothing = ("NONREF", "NOTPROVIDED")
    plain = (" ".join((each or "").split()) for each in (bank, own))
    return " | ".join("" if each in nothing else each for each in plain)


# --- MT940 ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """Dialect of one bank in `:61:`. All but these three members are as SWIFT has it."""

    day: Callable[[date], str] = lambda day: f"{day:%m%d}"
    kind: str = "NTRF"
    reference: Callable[[str], str] = field(default=lambda own: own[:16] or "NONREF")


DIALECTS: Final[dict[str, Dialect]] = {
    "swift": Dialect(),
    "no entry day": Dialect(day=lambda _: ""),
    "17 characters": Dialect(reference=lambda _: "N" * 17),
    "18 characters": Dialect(reference=lambda _: "S" * 18),
    "37 characters": Dialect(reference=lambda _: "R" * 37),
    "blank in the type": Dialect(kind="NET ", reference=lambda _: "NONREF"),
    "no type": Dialect(kind="", reference=lambda _: ""),
    "blanks for the entry day": Dialect(day=lambda _: "    "),
    "a blank before the type": Dialect(kind=" NMSC"),
}


def _mt940(random: Random, currency: str) -> str:
    messages, opening = [], random.randrange(-(10**6), 10**6)
    dialect = DIALECTS[random.choice(("swift", "swift", "swift", *DIALECTS))]
    first = date(2026, random.randrange(1, 13), random.randrange(1, 20))
    first = random.choice((first, first, date(2026, 12, 29)))
    count = random.choice((1, 1, 2))
    in_envelope = random.random() < 0.4
    for message in range(count):
        entries = _entries(random, first, 6)
        last = first + timedelta(days=6)
        closing = opening + sum(each.minor for each in entries)
        stated = closing + (1 if random.random() < 0.05 else 0)
        lines = [
            ":20:STMT",
            f":25:{random.choice(('12345678', 'X1/EUR'))}",
            f":28C:{message + 1}/1",
        ]
        lines += [f":60F:{_swift_balance(opening, currency, first)}"]
        for entry in entries:
            lines += _swift_entry(random, entry, currency, dialect)
        lines += [f":62F:{_swift_balance(stated, currency, last)}"]
        if random.random() < 0.3:
            lines.append(f":64:{_swift_balance(stated, currency, last)}")
        text = "\n".join(lines)
        if in_envelope:
            text = f"{{1:F01BANKDEFAA0010000000000}}{{2:I940BANKDEFAA001N}}{{4:\n{text}\n-}}\n"
        messages.append(text if in_envelope else f"{text}\n-\n")
        opening, first = closing, last
    made = "".join(messages)
    return made if random.random() > 0.05 else made[: made.rindex(":62F:")]


def _swift_balance(units: int, currency: str, day: date) -> str:
    return f"{'D' if units < 0 else 'C'}{day:%y%m%d}{currency}{_major(units, currency, ',')}"


def _swift_entry(random: Random, entry: _Entry, currency: str, dialect: Dialect) -> list[str]:
    valued = entry.day + timedelta(
        days=random.choice((0, 0, 3)) if dialect.day(entry.day).strip() else 0
    )
    mark = random.choice(("D", "RC") if entry.minor < 0 else ("C", "RD"))
    funds = random.choice(("", "", "K" if mark in "CD" else ""))
    own = dialect.reference(entry.own.replace("/", "-"))
    bank = entry.reference.encode("ascii", "replace").decode()
    line = (
        f":61:{valued:%y%m%d}{dialect.day(entry.day)}{mark}{funds}"
        f"{_major(entry.minor, currency, ',')}{dialect.kind}{own}{'//' if bank else ''}{bank}"
    )
    text = entry.text or "nothing"
    return [
        line,
        *random.choice(([], ["more of it"])),
        *random.choice(([], [f":86:{text}", "next"])),
    ]


def _read_mt940(content: bytes, encoding: str) -> Iterator[Row]:
    currency, opening, moved, begun, ended = "", Decimal(0), Decimal(0), False, False
    for number, line in enumerate(content.decode(encoding).splitlines(), 1):
        if line.startswith((":60F:", ":62F:")):
            currency = line[12:15]
            value = Decimal(line[15:].replace(",", "."))
            value = -value if line[5] == "D" else value
            if line.startswith(":60F:"):
                opening, moved, begun = value, Decimal(0), True
            else:
                if opening + moved != value:
                    raise Unclear("the balances do not tie")
                begun, ended = False, True
        elif line.startswith(":61:"):
            row, value = _read_61(line[4:], currency)
            moved += value
            yield (number, *row)
    if begun or not ended:
        raise Unclear("the last message does not end")


def _read_61(text: str, currency: str) -> tuple[tuple[str, int, str, str], Decimal]:
    valued = date(2000 + int(text[:2]), int(text[2:4]), int(text[4:6]))
    text, booked = text[6:], valued
    if text[:4].isdigit() or not text[:4].strip():
        if text[:4].strip():
            near = (date(year, int(text[:2]), int(text[2:4])) for year in (2025, 2026, 2027))
            booked = min(near, key=lambda day: abs((day - valued).days))
        text = text[4:]
    turned = text.startswith("R")
    text = text[turned:]
    negative = (text[0] == "D") != turned
    text = text[1:].lstrip("K")
    digits = ""
    while text and text[0] in "0123456789,":
        digits, text = digits + text[0], text[1:]
    own, _, bank = text.lstrip(" ").partition("//")
    code = own[:4]
    own = own[4:] if code[:1].isalpha() and len(code) == 4 else own
    value = Decimal(digits.replace(",", ".").removesuffix("."))
    value = -value if negative else value
    return (_names(bank, own), minor(value, currency), currency, f"{booked}T00:00:00Z"), value


# --- BAI2 -----------------------------------------------------------------------------------------


FUNDS: Final = ("", "0", "Z", "V,260901,1200", "S,1,2,3", "D,2,0,50,1,50")


def _bai2(random: Random, currency: str) -> str:
    day = date(2026, random.randrange(1, 13), random.randrange(1, 28))
    entries = _entries(random, day, 7)
    opening = random.randrange(-(10**6), 10**6)
    closing = opening + sum(each.minor for each in entries) + (random.random() < 0.05)
    lines = [
        "01,BANK,SHOP,260901,0200,1,,,2/",
        f"02,SHOP,BANK,1,{day:%y%m%d},,{currency},{random.choice('2224413')}/",
        f"03,77,{random.choice((currency, ''))},010,{opening},,,015,{closing},,/",
    ]
    total = opening + closing
    for entry in entries:
        total += abs(entry.minor)
        code = random.choice((475, 699, 960) if entry.minor < 0 else (175, 399, 920))
        bank, own = (each.replace("/", "-") for each in (entry.reference, entry.own))
        text = entry.text.replace("/", " ")
        lines.append(f"16,{code},{abs(entry.minor)},{random.choice(FUNDS)},{bank},{own},{text},b/")
        if random.random() < 0.3:
            lines.append("88,more, of it")
    if random.random() < 0.2:
        lines.append("16,890,,,,,no money/")
    stated = total + (random.random() < 0.05)
    lines += [f"49,{stated},{len(lines) - 1}/", f"98,{stated},1,9/", f"99,{stated},1,9/"]
    return "\n".join(lines if random.random() > 0.05 else lines[:-1]) + "\n"


def _read_bai2(content: bytes, encoding: str) -> Iterator[Row]:
    day = currency = group = ""
    total = opening = closing = moved = 0
    lines = content.decode(encoding).splitlines()
    for number, line in enumerate(lines, 1):
        code, *cells = line.removesuffix("/").split(",")
        if code == "02":
            day, group = cells[3], cells[5]
            if cells[6] == "3":
                raise Unclear("it is a report within the day")
        elif code == "03":
            currency = cells[1] or group
            opening, closing = int(cells[3]), int(cells[7])
            total = opening + closing
        elif code == "16" and cells[0] != "890":
            amount = int(cells[1])
            total += amount
            amount = -amount if cells[0] in ("475", "699", "960") else amount
            moved += amount
            begin = 3 + {"V": 2, "S": 3, "D": 5}.get(cells[2], 0)
            names = _names(cells[begin], cells[begin + 1])
            moment = f"20{day[:2]}-{day[2:4]}-{day[4:]}T00:00:00Z"
            yield number, names, amount, currency, moment
        elif code in ("49", "98", "99") and int(cells[0]) != total:
            raise Unclear("the control total is another one")
    if not lines[-1].startswith("99,"):
        raise Unclear("it does not end")
    if opening + moved != closing:
        raise Unclear("the balances do not tie")


# --- OFX ------------------------------------------------------------------------------------------


def _ofx1(random: Random, currency: str) -> str:
    head = "OFXHEADER:100\nDATA:OFXSGML\nVERSION:102\nENCODING:UTF-8\nCHARSET:NONE\n\n"
    return head + _ofx(random, currency, is_xml=False)


def _ofx2(random: Random, currency: str) -> str:
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<?OFX OFXHEADER="200" VERSION="211"?>\n'
    kind = random.choice(("", "", "", "", '<!DOCTYPE OFX [<!ENTITY a "b">]>'))
    return head + kind + _ofx(random, currency, is_xml=True)


def _ofx(random: Random, currency: str, *, is_xml: bool) -> str:
    def leaf(name: str, text: str, *, marked: bool = False) -> str:
        shown = f"<![CDATA[{text}]]>" if marked and "?" not in text else _escaped(text)
        return f"<{name}>{shown}" + (f"</{name}>" if is_xml else "\n")

    first = date(2026, random.randrange(1, 13), random.randrange(1, 20))
    cdata = random.random() < 0.3
    parts = []
    for number, entry in enumerate(_entries(random, first, 7)):
        amount = _major(entry.minor, currency, random.choice((".", ".", ","))).removesuffix(",")
        sign = "-" if entry.minor < 0 else random.choice(("", "+"))
        posted = f"{entry.day:%Y%m%d}" + random.choice(("", "120000", "120000.000[-5:EST]"))
        parts.append(
            f"<STMTTRN>{leaf('TRNTYPE', 'OTHER')}{leaf('DTPOSTED', posted)}"
            f"{leaf('TRNAMT', sign + amount)}{leaf('FITID', entry.reference or str(number))}"
            f"{leaf('REFNUM', entry.own) if entry.own else ''}"
            f"{leaf('NAME', 'Jo & Co')}{leaf('MEMO', entry.text or 'memo', marked=cdata)}</STMTTRN>"
        )
    comment = random.choice(("", "", "<!-- <STMTTRN> -->"))
    made = (
        f"<OFX><BANKMSGSRSV1><STMTTRNRS><STMTRS>{leaf('CURDEF', currency)}<BANKACCTFROM>"
        f"{leaf('BANKID', '1')}{leaf('ACCTID', '77')}</BANKACCTFROM><BANKTRANLIST>{comment}"
        f"{leaf('DTSTART', f'{first:%Y%m%d}')}{leaf('DTEND', f'{first:%Y%m}28')}{''.join(parts)}"
        "</BANKTRANLIST></STMTRS></STMTTRNRS></BANKMSGSRSV1></OFX>\n"
    )
    return made if random.random() > 0.05 else made[: made.rindex("</BANKTRANLIST>")]


def _read_ofx(content: bytes, encoding: str) -> Iterator[Row]:
    text = content.decode(encoding)
    if "<!DOCTYPE" in text:
        raise Unclear("it declares a document type")
    if "</OFX>" not in text:
        raise Unclear("it does not end")
    for place, found in enumerate(_transactions(text), 1):
        day = found["DTPOSTED"]
        value = Decimal(found["TRNAMT"].replace(",", "."))
        currency = found["CURDEF"]
        names = _names(found["FITID"], found.get("REFNUM"))
        moment = f"{day[:4]}-{day[4:6]}-{day[6:8]}T00:00:00Z"
        yield place, names, minor(value, currency), currency, moment


def _transactions(text: str) -> Iterator[dict[str, str]]:
    if text.startswith("<?xml"):
        root = ElementTree.fromstring(text.partition("?>")[2])
        currency = root.findtext(".//CURDEF") or ""
        for each in root.iter("STMTTRN"):
            yield {child.tag: child.text or "" for child in each} | {"CURDEF": currency}
        return
    kept = list[str]()

    def keep(found: re.Match[str]) -> str:
        kept.append(found[1])
        return f"\x01{len(kept) - 1}\x02"

    text = re.sub(r"<!\[CDATA\[(.*?)\]\]>", keep, text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    currency = text.partition("<CURDEF>")[2].partition("\n")[0]
    for part in text.split("<STMTTRN>")[1:]:
        found = {"CURDEF": currency}
        for piece in part.partition("</STMTTRN>")[0].split("<")[1:]:
            name, _, value = piece.partition(">")
            found[name] = unescape(value.strip())
        yield found


_WRITERS: Final[dict[Format, Callable[[Random, str], str]]] = {
    "camt": _camt, "mt940": _mt940, "bai2": _bai2, "ofx1": _ofx1, "ofx2": _ofx2
}  # fmt: skip
_READERS: Final[dict[Format, Callable[[bytes, str], Iterator[Row | tuple[int, str]]]]] = {
    "camt": _read_camt, "mt940": _read_mt940, "bai2": _read_bai2,
    "ofx1": _read_ofx, "ofx2": _read_ofx,
}  # fmt: skip


def read_statement(statement: Statement) -> Expected:
    """Read the file's bytes without the product."""
    rows, refused = list[Row](), dict[int, str]()
    try:
        for found in _READERS[statement.form](statement.content, statement.encoding):
            if len(found) == 2:
                refused[found[0]] = found[1]
            else:
                rows.append(found)
    except Unclear as reason:
        return Expected(rows=[], refused={}, file_refused=str(reason))
    return Expected(rows=rows, refused=refused)
