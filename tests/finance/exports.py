"""Writers of files as providers and banks export them: PayPal's activity download, a statement of
the M-PESA portal, CAMT.053, MT940. Each returns the closing balance."""

import csv
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

PACIFIC: Final = ZoneInfo("America/Los_Angeles")
"""Zone of the shop's account at PayPal."""
EUROS, SHILLINGS = "0100123456790", "0100123456789"
"""The shop's accounts at its bank."""
SHORT_CODE: Final = "888880"


class Bank(NamedTuple):
    """A line of a bank account: positive came in."""

    day: datetime
    minor: int
    who: str
    text: str


class Till(NamedTuple):
    """A row of an M-PESA statement: positive is paid in."""

    account: str
    receipt: str
    at: datetime
    details: str
    minor: int
    reason: str
    order: str = ""
    linked: str = ""
    party: str = ""


class PayPal(NamedTuple):
    """A row of PayPal's activity download: gross and fee."""

    at: datetime
    name: str
    type: str
    minor: int
    fee: int = 0
    status: str = "Completed"
    order: str = ""
    reference: str = ""


def plain(minor: int, places: int = 2) -> str:
    sign, digits = "-" if minor < 0 else "", str(abs(minor)).rjust(places + 1, "0")
    return sign + (f"{digits[:-places]}.{digits[-places:]}" if places else digits)


def table(path: Path, rows: Sequence[dict[str, str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def paypal(path: Path, rows: Iterable[PayPal], *, opening: int) -> int:
    """Write PayPal's activity download, by the Pacific's time; return the balance."""
    balance, written = opening, []
    for row in sorted(rows):
        balance += row.minor + row.fee
        when = row.at.astimezone(PACIFIC)
        written.append(
            {
                "Date": f"{when:%m/%d/%Y}",
                "Time": f"{when:%H:%M:%S}",
                "TimeZone": f"{when:%Z}",
                "Name": "A. Buyer" if row.order else "",
                "Type": row.type,
                "Status": row.status,
                "Currency": "EUR",
                "Gross": plain(row.minor),
                "Fee": plain(row.fee),
                "Net": plain(row.minor + row.fee),
                "From Email Address": "",
                "To Email Address": "",
                "Transaction ID": row.name,
                "Item Title": "",
                "Reference Txn ID": row.reference,
                "Invoice Number": "",
                "Custom Number": row.order,
                "Balance": plain(balance),
                "Balance Impact": "Credit" if row.minor > 0 else "Debit",
            }
        )
    table(path, written)
    return balance


def last_day(name: str) -> datetime:
    first = datetime.fromisoformat(f"{name}-01")
    return (first + timedelta(days=31)).replace(day=1) - timedelta(days=1)


_TILL_COLUMNS: Final = [
    *("Receipt No.", "Completion Time", "Initiation Time", "Details", "Transaction Status"),
    *("Paid In", "Withdrawn", "Balance", "Balance Confirmed", "Reason Type", "Other Party Info"),
    *("Linked Transaction ID", "A/C No."),
]


def till(path: Path, account: str, name: str, rows: Iterable[Till], *, opening: int) -> int:
    """Write a statement of the organisation portal, the newest row first; return the balance."""
    last, balance, written = last_day(name), opening, []
    for row in sorted(rows, key=lambda row: row.at):
        balance += row.minor
        when = f"{row.at:%d-%m-%Y %H:%M:%S}"
        come, gone = (plain(row.minor), "") if row.minor > 0 else ("", plain(row.minor))
        written.append(
            [row.receipt, when, when, row.details, "Completed", come, gone, plain(balance), "true",
             row.reason, row.party, row.linked, row.order]
        )  # fmt: skip
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["Organization Name:", "KIKAPU LTD"])
        writer.writerow(["Short Code:", SHORT_CODE])
        writer.writerow(["Account:", f"{account} Account"])
        writer.writerow(
            ["Time Period:", f"From 01-{last:%m-%Y} 00:00:00 To {last:%d-%m-%Y} 23:59:59"]
        )
        writer.writerow(["Opening Balance:", plain(opening)])
        writer.writerow(["Closing Balance:", plain(balance)])
        writer.writerow(_TILL_COLUMNS)
        writer.writerows(written[::-1])
    return balance


def camt(path: Path, name: str, lines: Sequence[Bank], *, opening: int) -> int:
    """Write a CAMT.053 of the account in euros; return its closing balance."""
    last, closing = last_day(name), opening + sum(each.minor for each in lines)

    def balance(code: str, minor: int, day: str) -> str:
        return (
            f"<Bal><Tp><CdOrPrtry><Cd>{code}</Cd></CdOrPrtry></Tp>"
            f'<Amt Ccy="EUR">{plain(minor)}</Amt><CdtDbtInd>CRDT</CdtDbtInd>'
            f"<Dt><Dt>{day}</Dt></Dt></Bal>"
        )

    entries = "".join(
        f'<Ntry><NtryRef>{n}</NtryRef><Amt Ccy="EUR">{plain(abs(each.minor))}</Amt>'
        f"<CdtDbtInd>{'CRDT' if each.minor > 0 else 'DBIT'}</CdtDbtInd><Sts>BOOK</Sts>"
        f"<BookgDt><Dt>{each.day:%Y-%m-%d}</Dt></BookgDt>"
        f"<ValDt><Dt>{each.day:%Y-%m-%d}</Dt></ValDt>"
        f"<AcctSvcrRef>B{name[-2:]}{n:04d}</AcctSvcrRef>"
        f"<NtryDtls><TxDtls><RltdPties><Dbtr><Nm>{each.who}</Nm></Dbtr></RltdPties>"
        f"<RmtInf><Ustrd>{each.text}</Ustrd></RmtInf></TxDtls></NtryDtls></Ntry>"
        for n, each in enumerate(sorted(lines), 1)
    )
    path.write_text(
        '<?xml version="1.0" encoding="UTF-8"?>'
        '<Document xmlns="urn:iso:std:iso:20022:tech:xsd:camt.053.001.08"><BkToCstmrStmt>'
        f"<GrpHdr><MsgId>M-{name}</MsgId><CreDtTm>{last:%Y-%m-%d}T23:59:59+03:00</CreDtTm></GrpHdr>"
        f"<Stmt><Id>S-{name}</Id><FrToDt><FrDtTm>{name}-01T00:00:00+03:00</FrDtTm>"
        f"<ToDtTm>{last:%Y-%m-%d}T23:59:59+03:00</ToDtTm></FrToDt>"
        f"<Acct><Id><Othr><Id>{EUROS}</Id></Othr></Id><Ccy>EUR</Ccy></Acct>"
        f"{balance('OPBD', opening, f'{name}-01')}{balance('CLBD', closing, f'{last:%Y-%m-%d}')}"
        f"{entries}</Stmt></BkToCstmrStmt></Document>",
        encoding="utf-8",
    )
    return closing


def mt940(path: Path, name: str, lines: Sequence[Bank], *, opening: int) -> int:
    """Write an MT940 of the account in shillings; return its closing balance."""
    last, closing = last_day(name), opening + sum(each.minor for each in lines)
    first = last.replace(day=1)

    def amount(minor: int) -> str:
        return plain(abs(minor)).replace(".", ",")

    entries = "".join(
        f":61:{each.day:%y%m%d}{each.day:%m%d}{'C' if each.minor > 0 else 'D'}{amount(each.minor)}"
        f"NTRFNONREF//K{name[-2:]}{n:04d}\n:86:{each.text} {each.who}\n"
        for n, each in enumerate(sorted(lines), 1)
    )
    path.write_text(
        f":20:ST{name}\n:25:{SHILLINGS}\n:28C:{last:%m}/1\n"
        f":60F:C{first:%y%m%d}KES{amount(opening)}\n{entries}"
        f":62F:C{last:%y%m%d}KES{amount(closing)}\n-\n",
        encoding="ascii",
    )
    return closing
