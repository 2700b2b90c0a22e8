"""Files of banks: what each format says, and what is refused.

The samples are made after the formats' public descriptions: CAMT.053 after the ISO 20022 message
definition report (BankToCustomerStatement, versions 02 and 08), MT940 after SWIFT's Standards
Category 9 and the structured field 86 of German banks (DK, "Anlage 3"), OFX after the Open
Financial Exchange specifications 1.0.2 and 2.2, BAI2 after banks' guides to its version 2.
Names and numbers are invented.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.finance.files.bank import BankForm
from app.finance.files.bank_formats import open_bank_table
from app.finance.files.banks import ofx
from app.finance.files.line_forms import Understanding
from app.finance.files.mapping import read_mapping
from reconcile.matching.books import match_key
from reconcile.matching.texts import named_in
from tests.finance.files.reading import Found, bank
from tests.rows import for_each
from tests.searching import examples

CAMT = """<?xml version="1.0" encoding="UTF-8"?>
<Document xmlns="urn:iso:std:iso:20022:tech:xsd:camt.053.001.02">
 <BkToCstmrStmt>
  <GrpHdr><MsgId>M-1</MsgId><CreDtTm>2026-11-04T00:00:00+03:00</CreDtTm></GrpHdr>
  <Stmt>
   <Id>S-1</Id>
   <Acct><Id><IBAN>XX00TEST0000000001</IBAN></Id><Ccy>KES</Ccy></Acct>
   <Bal><Tp><CdOrPrtry><Cd>OPBD</Cd></CdOrPrtry></Tp><Amt Ccy="KES">1000.00</Amt>
    <CdtDbtInd>CRDT</CdtDbtInd><Dt><Dt>2026-11-02</Dt></Dt></Bal>
   <Bal><Tp><CdOrPrtry><Cd>CLBD</Cd></CdOrPrtry></Tp><Amt Ccy="KES">51489.75</Amt>
    <CdtDbtInd>CRDT</CdtDbtInd><Dt><Dt>2026-11-03</Dt></Dt></Bal>
   <Ntry><NtryRef>1</NtryRef><Amt Ccy="KES">50500.00</Amt><CdtDbtInd>CRDT</CdtDbtInd>
    <Sts>BOOK</Sts><BookgDt><Dt>2026-11-02</Dt></BookgDt><ValDt><Dt>2026-11-03</Dt></ValDt>
    <AcctSvcrRef>BANK-1</AcctSvcrRef>
    <NtryDtls><TxDtls>
     <Refs><EndToEndId>PO-100200</EndToEndId></Refs>
     <RltdPties><Dbtr><Nm>PROVIDER LTD</Nm></Dbtr><Cdtr><Nm>THE SHOP</Nm></Cdtr></RltdPties>
     <RmtInf><Ustrd>PAYOUT</Ustrd><Ustrd>PO-100200</Ustrd></RmtInf>
    </TxDtls></NtryDtls></Ntry>
   <Ntry><Amt Ccy="KES">10.25</Amt><CdtDbtInd>DBIT</CdtDbtInd><Sts><Cd>BOOK</Cd></Sts>
    <BookgDt><DtTm>2026-11-03T23:30:00+03:00</DtTm></BookgDt>
    <AddtlNtryInf>MONTHLY FEE &amp; TAX</AddtlNtryInf></Ntry>
   <Ntry><Amt Ccy="KES">77.00</Amt><CdtDbtInd>CRDT</CdtDbtInd><Sts>PDNG</Sts></Ntry>
  </Stmt>
 </BkToCstmrStmt>
</Document>
"""

MT940 = """{1:F01TESTKE22AAAA0000000000}{2:I940TESTKE22AAAAN}{4:
:20:STMT1
:25:12345678/0123456789
:28C:00001/001
:60F:C261231EUR1000,00
:61:2612310102C500,5NTRFNONREF//BANK-1
SUPPLEMENT
:86:166?00GUTSCHRIFT?20EREF+PO-100200?21SVWZ+PAYOUT PO-1002?2200 THANKS?32PROVIDE
R GMBH
:61:270103D1,NMSCNONREF
:86:FEE OF DECEMBER
:61:270104RC0,50NTRFOWN-REF-1//BANK-3
:86:/NAME/PROVIDER BV/REMI/RETURNED/
:62F:C270104EUR1499,00
-}
"""

MT942 = """:20:S
:25:12345678/0123456789
:28C:1/1
:34F:KESD0,
:34F:KESC5,
:13D:2611021200+0300
:61:2611021102C500,NTRFOWN//BANK-1
:86:PAYOUT PO-100200
:61:2611021102D2,5NTRFX//BANK-2
:61:2611031103EC70,NTRFY//BANK-3
:86:EXPECTED
:90D:1KES2,5
:90C:2KES570,
-
"""

OFX = """OFXHEADER:100
DATA:OFXSGML
VERSION:102
SECURITY:NONE
ENCODING:USASCII
CHARSET:1252

<OFX><SIGNONMSGSRSV1><SONRS><STATUS><CODE>0<SEVERITY>INFO</STATUS></SONRS></SIGNONMSGSRSV1>
<BANKMSGSRSV1><STMTTRNRS><TRNUID>1<STMTRS><CURDEF>USD
<BANKACCTFROM><BANKID>011<ACCTID>000999<ACCTTYPE>CHECKING</BANKACCTFROM>
<BANKTRANLIST><DTSTART>20261101<DTEND>20261130
<STMTTRN><TRNTYPE>CREDIT<DTPOSTED>20261102120000.000[-5:EST]<TRNAMT>1050.5<FITID>F1
<NAME>PROVIDER &amp; CO<MEMO>PO-100200</STMTTRN>
<STMTTRN><TRNTYPE>FEE<DTPOSTED>20261103<TRNAMT>-1.00<FITID>F2<NAME>FEE</STMTTRN>
</BANKTRANLIST><LEDGERBAL><BALAMT>1049.50<DTASOF>20261130</LEDGERBAL>
</STMTRS></STMTTRNRS></BANKMSGSRSV1></OFX>
"""

OFX_2 = """<?xml version="1.0" encoding="UTF-8" standalone="no"?>
<?OFX OFXHEADER="200" VERSION="220" SECURITY="NONE" OLDFILEUID="NONE" NEWFILEUID="NONE"?>
<OFX><BANKMSGSRSV1><STMTTRNRS><STMTRS><CURDEF>EUR</CURDEF>
<BANKACCTFROM><ACCTID>42</ACCTID></BANKACCTFROM><BANKTRANLIST>
<STMTTRN><TRNTYPE>CREDIT</TRNTYPE><DTPOSTED>20261102</DTPOSTED><TRNAMT>+5,25</TRNAMT>
<FITID>F9</FITID><REFNUM>PO-7</REFNUM><NAME>Ünal</NAME><BANKACCTTO><ACCTID>7</ACCTID></BANKACCTTO>
</STMTTRN></BANKTRANLIST></STMTRS></STMTTRNRS></BANKMSGSRSV1></OFX>
"""

BAI2 = """01,BANK,SHOP,261103,0600,1,,,2/
02,SHOP,BANK,1,261102,2359,USD,2/
03,000999,,010,100000,,,015,+148949,,/
88,100,50500,1,,400,1551,2,/
16,165,50500,S,500,0,50000,BANK-1,PO-100200,PROVIDER LTD, PAYOUT
88,OF OCTOBER/
16,475,1000,V,261103,,,000123/
16,698,551,D,2,0,500,1,51,NONREF,,MONTHLY FEE/
16,890,,,,,A NOTE/
49,+353051,7/
98,353051,1,9/
99,353051,1,11/
"""

CSV = """account,booked_at,credit,debit,currency,text
main,2026-11-02,500.00,,KES,PAYOUT PO-100200
main,2026-11-03,,10.25,KES,FEE
"""


def shown(found: Found) -> list[tuple[Any, ...]]:
    """(row, day, amount, currency, bank's reference, reference, counterparty, text)"""
    rows, problems = found
    assert not problems
    return [
        (
            row["row"],
            row["booked_at"][:10],
            row["amount"]["amount"],
            row["amount"]["currency"],
            row["entry_reference"],
            row["reference"],
            row["counterparty"],
            row["text"],
        )
        for row in rows
    ]


def test_camt_053(tmp_path: Path) -> None:
    """Booked entries with their texts, on the bank's own day; what is pending is no row."""
    found = bank(CAMT, folder=tmp_path)
    assert shown(found) == [
        (1, "2026-11-02", "50500.00", "KES", "BANK-1", "PO-100200", "PROVIDER LTD",
         "PAYOUT PO-100200"),
        (2, "2026-11-03", "-10.25", "KES", "", "", "", "MONTHLY FEE & TAX"),
    ]  # fmt: skip
    assert {row["account"] for row in found[0]} == {"XX00TEST0000000001"}


def test_camt_053_of_a_later_version(tmp_path: Path) -> None:
    """Parties stand one level deeper there, and an account may have no IBAN."""
    later = CAMT.replace("camt.053.001.02", "camt.053.001.08")
    later = later.replace("<Dbtr><Nm>PROVIDER LTD</Nm></Dbtr>",
                          "<Dbtr><Pty><Nm>PROVIDER LTD</Nm></Pty></Dbtr>")  # fmt: skip
    later = later.replace("<IBAN>XX00TEST0000000001</IBAN>", "<Othr><Id>0100</Id></Othr>")
    found = bank(later, folder=tmp_path)
    assert (shown(found)[0][6], found[0][0]["account"]) == ("PROVIDER LTD", "0100")


DAYLESS = CAMT.replace(
    "<BookgDt><Dt>2026-11-02</Dt></BookgDt><ValDt><Dt>2026-11-03</Dt></ValDt>", ""
)
FROM_TO = (
    "<FrToDt><FrDtTm>2026-11-02T00:00:00</FrDtTm><ToDtTm>2026-11-02T23:59:59</ToDtTm></FrToDt>"
)


@for_each(
    "content",
    [
        DAYLESS.replace("<Dt><Dt>2026-11-03</Dt></Dt>", "<Dt><Dt>2026-11-02</Dt></Dt>"),
        DAYLESS.replace("<Acct>", f"{FROM_TO}<Acct>", 1),
    ],
)
def test_an_entry_of_camt_without_a_day_is_of_its_statement_s_only_day(
    tmp_path: Path, content: str
) -> None:
    path = tmp_path / "bank"
    assert shown(bank(content, folder=tmp_path))[0][:2] == (1, "2026-11-02")
    table = open_bank_table(path, read_mapping(b"", BankForm.FIELDS), BankForm.FIELDS)
    assert [*table.batches()]
    assert table.notes == ["1 entry has no date of its own: the day of its statement is used."]


def test_an_entry_of_camt_without_a_day_in_a_statement_of_several_is_a_problem(
    tmp_path: Path,
) -> None:
    rows, problems = bank(DAYLESS, folder=tmp_path)
    assert ([each["row"] for each in rows], [each[:2] for each in problems]) == (
        [2], [(1, "booked_at")]
    )  # fmt: skip
    assert "its statement covers more than one day" in problems[0][2]


DOCUMENT = CAMT.partition("?>\n")[2]
PLAIN = DOCUMENT.replace(' xmlns="urn:iso:std:iso:20022:tech:xsd:camt.053.001.02"', "")


@for_each(
    "content",
    [
        PLAIN,
        f"<Envelope><Header><Ntry><Amt>1</Amt></Ntry></Header><Body>{DOCUMENT}</Body></Envelope>",
        f'<e:Msg xmlns:e="urn:x"><AppHdr xmlns="urn:iso:std:iso:20022:tech:xsd:head.001.001.02">'
        f"<MsgDefIdr>camt.053.001.02</MsgDefIdr></AppHdr>{PLAIN}</e:Msg>",
    ],
)
def test_camt_053_in_an_envelope_or_without_a_namespace(tmp_path: Path, content: str) -> None:
    assert bank(content, folder=tmp_path) == bank(CAMT, folder=tmp_path)


def test_a_batch_of_several_transfers_is_one_row_with_all_their_references(tmp_path: Path) -> None:
    more = "<TxDtls><Refs><EndToEndId>PO-100201</EndToEndId></Refs></TxDtls></NtryDtls>"
    ((_, _, _, _, _, reference, _, text), _) = shown(
        bank(CAMT.replace("</NtryDtls>", more, 1), folder=tmp_path)
    )
    assert (reference, text) == ("", "PAYOUT PO-100200 PO-100201")


def test_mt940(tmp_path: Path) -> None:
    """The entry's day has no year: that of 2 January is the next one. Codes of field 86 are read,
    and lines that the bank broke are whole again."""
    found = bank(MT940, folder=tmp_path)
    assert shown(found) == [
        (6, "2027-01-02", "500.50", "EUR", "BANK-1", "", "PROVIDER GMBH",
         "SUPPLEMENT EREF+PO-100200 SVWZ+PAYOUT PO-100200 THANKS"),
        (10, "2027-01-03", "-1.00", "EUR", "", "", "", "FEE OF DECEMBER"),
        (12, "2027-01-04", "-0.50", "EUR", "BANK-3", "OWN-REF-1", "PROVIDER BV",
         "/NAME/PROVIDER BV/REMI/RETURNED/"),
    ]  # fmt: skip
    assert {row["account"] for row in found[0]} == {"12345678/0123456789"}


def test_a_reference_of_mt940_ends_where_the_next_keyword_begins(tmp_path: Path) -> None:
    """A payout that is named in EREF alone is found by it; also one that the bank broke in two."""
    lines = "?20EREF+PO-10?210200?22KREF+12?23SVWZ+PAYOUT OF NO?24VEMBER"
    content = MT940.replace("?20EREF+PO-100200?21SVWZ+PAYOUT PO-1002?2200 THANKS", lines)
    text = shown(bank(content, folder=tmp_path))[0][7]
    assert text == "SUPPLEMENT EREF+PO-100200 KREF+12 SVWZ+PAYOUT OF NOVEMBER"
    assert match_key("PO-100200") in named_in([text])


@for_each(("length", "whole"), [(65, True), (64, False)])
def test_a_number_that_a_full_line_of_mt940_breaks_is_whole_again(
    tmp_path: Path, length: int, whole: bool
) -> None:
    """Without codes, as Dutch banks write it: 65 characters a line, wherever that is."""
    line = "/TRTP/SEPA/NAME/PROVIDER/REMI/SETTLEMENT OF OCTOBER 2026 "
    line += "1234567890"[: length - len(line)]
    old = "?20EREF+PO-100200?21SVWZ+PAYOUT PO-1002?2200 THANKS"
    begun = next(each for each in MT940.splitlines() if old.split("?22")[0] in each)
    content = MT940.replace(begun, f":86:{line}\n9001.2610.01/EREF/X")
    (row, *_), problems = bank(content, folder=tmp_path)
    assert (len(line), problems) == (length, [])
    number = line.rpartition(" ")[2]
    assert (match_key(f"{number}9001.2610.01") in named_in([row["text"]])) == whole


DIALECTS = [
    # field 61, its reference, the bank's reference, the text, and what is noted
    ("2612310102C500,5NTRF" + "N" * 17, "N" * 17, "", "", "a reference of more than 16 characters"),
    ("2612310102C500,5NTRF" + "R" * 37, "R" * 37, "", "", "a reference of more than 16 characters"),
    ("2612310102C500,5N044R-1             Jo Doe", "R-1", "", "Jo Doe",
     "a reference of more than 16 characters"),
    ("2612310102C500,5NET NONREF", "", "", "", "a type with a blank, or none"),
    ("2612310102CF500,5S   X", "X", "", "", "a type with a blank, or none"),
    ("2612310102C500,5NONREF", "", "", "", "a type with a blank, or none"),
    ("2612310102C500,5//B-1", "", "B-1", "", "a type with a blank, or none"),
    ("270102    C500,5NTRFOWN", "OWN", "", "", "blanks in place of the entry date"),
    ("2612310102C500,5 NMSCOWN//B-1", "OWN", "B-1", "", "a blank before the type"),
]  # fmt: skip


@for_each(("field", "own", "by_bank", "text", "noted"), DIALECTS)
def test_an_entry_of_mt940_in_a_bank_s_dialect_is_taken_where_the_balances_tie(
    tmp_path: Path, field: str, own: str, by_bank: str, text: str, noted: str
) -> None:
    """With a note; with balances that do not tie it is refused by its row."""
    content = MT940.replace("2612310102C500,5NTRFNONREF//BANK-1\nSUPPLEMENT", field)
    content = content.replace(":86:166?00GUTSCHRIFT?20EREF+PO-100200?21SVWZ+PAYOUT PO-1002?2200 "
                              "THANKS?32PROVIDE\nR GMBH\n", "")  # fmt: skip
    path = tmp_path / "bank"
    path.write_text(content)
    table = open_bank_table(path, read_mapping(b"", BankForm.FIELDS), BankForm.FIELDS)
    assert not table.notes
    assert shown(bank(content, folder=tmp_path))[0] == (
        6, "2027-01-02", "500.50", "EUR", by_bank, own, "", text
    )  # fmt: skip
    assert sum(len(batch.rows) for batch in table.batches()) == 3
    assert [f"1 with {noted}." in each for each in table.notes] == [True]
    _, problems = bank(content.replace("EUR1499,00", "EUR1499,01"), folder=tmp_path)
    assert [each[0] for each in problems] == [6]
    assert "field :61: is not in SWIFT's form" in problems[0][2]
    assert (
        "add up to 499.00 EUR, but its opening and closing balance differ by 499.01 EUR: a "
        "difference of 0.01" in problems[0][2]
    )


@for_each(
    "field",
    [
        "2612310102C500.50NTRFNONREF",
        "2612310102C500,5.0NTRFNONREF",
        "2612310102C500,50,0NTRFNONREF",
        "2612310102X500,5NTRFNONREF",
        "26123101  C500,5NTRFNONREF",
        "      0102C500,5NTRFNONREF",
        "2612310102C500,5NTRF" + "x" * 65,
    ],
)
def test_mark_amount_and_value_date_of_mt940_are_as_swift_has_them(
    tmp_path: Path, field: str
) -> None:
    content = MT940.replace("2612310102C500,5NTRFNONREF//BANK-1", field)
    _, problems = bank(content, folder=tmp_path)
    assert [each[0] for each in problems] == [6]
    assert "field :61: is not in SWIFT's form" in problems[0][2]


@for_each(("content", "amount"), [
    (CAMT, ">10.25<"), (OFX, ">-1.00<"),
])  # fmt: skip
@for_each("written", ["+10.250-", "1,234.50", "\u22125.25", "1.234,50", "(5.25)"])
def test_an_amount_is_as_its_format_has_it_whatever_a_mapping_declares(
    content: str, amount: str, written: str, tmp_path: Path
) -> None:
    """Text could say a sign beside the element that says debit; marks are no remedy."""
    other = f">{written}<"
    declared = 'decimal = "."\nthousands = ","\nbrackets = "negative"\n[suffixes]\n"-" = "minus"\n'
    found = [bank(content.replace(amount, other), said, folder=tmp_path) for said in ("", declared)]
    assert found[0] == found[1]
    (problem,) = found[0][1]
    assert "not an amount such as 1500.00" in problem[2]


def test_camt_053_in_utf_16(tmp_path: Path) -> None:
    plain = bank(CAMT, folder=tmp_path)
    for order in ("utf-16-le", "utf-16-be"):
        content = "\ufeff" + CAMT.replace('encoding="UTF-8"', 'encoding="UTF-16"')
        assert bank(content.encode(order), folder=tmp_path) == plain


@for_each("word", ["NONREF", "NOTPROVIDED", "notprovided"])
def test_a_word_for_no_reference_is_none(tmp_path: Path, word: str) -> None:
    camt = CAMT.replace("BANK-1", word).replace(">PO-100200</End", f">{word}</End")
    table = (
        f"account,booked_at,amount,currency,entry_reference,reference\nm,2026-11-02,1,KES,{word},"
    )
    for content, reference in (
        (camt.replace(">1</NtryRef>", f">{word}</NtryRef>"), ""),
        (MT940.replace("//BANK-1", f"//{word}"), ""),
        (MT940.replace("NTRFNONREF//BANK-1", f"NTRF{word}"), ""),
        (f"{table}{word}\n", ""),
        (f"{table}PO-1\n", "PO-1"),
    ):
        assert shown(bank(content, folder=tmp_path))[0][4:6] == ("", reference)
    assert shown(bank(camt, folder=tmp_path))[0][4] == "1"


def test_mt940_without_an_envelope_and_in_another_encoding(tmp_path: Path) -> None:
    bare = MT940.split("{4:\n")[1].replace("-}", "-").replace("FEE OF", "GEBÜHR")
    rows, _ = bank(bare.encode("cp1252"), 'encoding = "cp1252"', folder=tmp_path)
    assert [row["text"] for row in rows][1] == "GEBÜHR DECEMBER"


def test_bai2(tmp_path: Path) -> None:
    """The type says which way money went; amounts have the currency's decimals."""
    found = bank(BAI2, folder=tmp_path)
    assert shown(found) == [
        (5, "2026-11-02", "505.00", "USD", "BANK-1", "PO-100200", "",
         "PROVIDER LTD, PAYOUT OF OCTOBER"),
        (7, "2026-11-02", "-10.00", "USD", "", "000123", "", ""),
        (8, "2026-11-02", "-5.51", "USD", "", "", "", "MONTHLY FEE"),
    ]  # fmt: skip
    assert {row["account"] for row in found[0]} == {"000999"}
    yen = shown(bank(BAI2.replace("03,000999,", "03,000999,JPY"), folder=tmp_path))
    assert [row[2:4] for row in yen] == [("50500", "JPY"), ("-1000", "JPY"), ("-551", "JPY")]


@for_each(("modifier", "covers"), [("1", False), ("2", True), ("", False)])
def test_bai2_covers_the_day_of_its_final_report_alone(
    tmp_path: Path, modifier: str, covers: bool
) -> None:
    path = tmp_path / "bank"
    path.write_text(BAI2.replace("USD,2/", f"USD,{modifier}/"))
    table = open_bank_table(path, read_mapping(b"", BankForm.FIELDS), BankForm.FIELDS)
    assert [*table.batches()]
    day = "2026-11-02"
    assert [(each.since, each.until, each.name) for each in table.periods] == (
        [(day, day, "000999")] * covers
    )


@for_each(
    ("code", "root", "part"),
    [("052", "BkToCstmrAcctRpt", "Rpt"), ("054", "BkToCstmrDbtCdtNtfctn", "Ntfctn")],
)
def test_a_report_and_a_notification_have_the_entries_of_a_statement_and_no_balances(
    tmp_path: Path, code: str, root: str, part: str
) -> None:
    """An entry without a status is not known to be booked; sums of the day prove nothing yet."""
    content = CAMT.replace("camt.053", f"camt.{code}").replace("BkToCstmrStmt", root)
    content = content.replace("<Stmt>", f"<{part}>").replace("</Stmt>", f"</{part}>")
    expected = shown(bank(CAMT, folder=tmp_path))
    found = bank(content.replace(">51489.75<", ">7.00<"), folder=tmp_path)
    assert shown(found) == expected
    without = bank(content.replace("<Sts>BOOK</Sts>", ""), folder=tmp_path)
    assert len(without[0]) == len(expected) - 1


def test_mt942(tmp_path: Path) -> None:
    """What is expected is not booked; entries are counted with it or without."""
    found = bank(MT942, folder=tmp_path)
    assert shown(found) == [
        (7, "2026-11-02", "500.00", "KES", "BANK-1", "OWN", "", "PAYOUT PO-100200"),
        (9, "2026-11-02", "-2.50", "KES", "BANK-2", "X", "", ""),
    ]
    assert shown(bank(MT942.replace("2KES570", "1KES500"), folder=tmp_path)) == shown(found)


def test_ofx(tmp_path: Path) -> None:
    found = bank(OFX, folder=tmp_path)
    assert shown(found) == [
        (1, "2026-11-02", "1050.50", "USD", "F1", "", "PROVIDER & CO", "PO-100200"),
        (2, "2026-11-03", "-1.00", "USD", "F2", "", "FEE", ""),
    ]
    assert {row["account"] for row in found[0]} == {"000999"}
    later = bank(OFX_2, folder=tmp_path)
    assert shown(later) == [(1, "2026-11-02", "5.25", "EUR", "F9", "PO-7", "Ünal", "")]
    assert later[0][0]["account"] == "42"


def test_an_amount_of_ofx_is_in_the_currency_that_it_names(tmp_path: Path) -> None:
    """With CURRENCY it is as it was; with ORIGCURRENCY it was converted already."""
    for name, currency in (("CURRENCY", "GBP"), ("ORIGCURRENCY", "EUR")):
        aggregate = f"<{name}><CURRATE>1.1</CURRATE><CURSYM>GBP</CURSYM></{name}>"
        ((_, _, amount, stated_currency, *_),) = shown(
            bank(OFX_2.replace("</STMTTRN>", f"{aggregate}</STMTTRN>"), folder=tmp_path)
        )
        assert (amount, stated_currency) == ("5.25", currency)


def test_comments_and_cdata_of_ofx_are_read_as_text(tmp_path: Path) -> None:
    """Text in them that looks like an element is none."""
    content = OFX_2.replace("<NAME>Ünal</NAME>", "<NAME><![CDATA[Ünal <b> &amp; Co]]> 1</NAME>")
    content = content.replace("<STMTTRN>", "<!-- <STMTTRN> <![CDATA[ --><STMTTRN>")
    content = content.replace("<OFX>", "<!-- <OFX> --><OFX>")
    assert shown(bank(content, folder=tmp_path)) == [
        (1, "2026-11-02", "5.25", "EUR", "F9", "PO-7", "Ünal <b> &amp; Co 1", "")
    ]


def test_a_number_in_a_text_is_not_given_away_by_what_names_the_line(tmp_path: Path) -> None:
    """Texts that differ in hidden digits only are one subject; those of other last digits are not,
    and neither are short numbers."""

    def subject(text: str, entry: str = "") -> str:
        path = tmp_path / "b.csv"
        heading = "account,booked_at,amount,currency,entry_reference,text\n"
        path.write_text(f"{heading}main,2026-11-02,5.00,KES,{entry},{text}\n")
        said = read_mapping(b"", BankForm.FIELDS)
        form = BankForm(said)
        table = open_bank_table(path, said, form.FIELDS)
        (batch,) = table.batches()
        return str(Understanding(table, form, said).batch(batch).rows[0][1])

    assert subject("OF 254711223344 PO-1") == subject("OF 0722 229 344 PO-1")
    assert subject("OF 254711223344") != subject("OF 254711223345")
    assert subject("", entry="+254711223344") == subject("", entry="+254799223344")
    assert subject("PO-100200") != subject("PO-100300")


def test_a_table_with_credit_and_debit(tmp_path: Path) -> None:
    rows = shown(bank(CSV, folder=tmp_path))
    assert [row[:4] for row in rows] == [
        (2, "2026-11-02", "500.00", "KES"),
        (3, "2026-11-03", "-10.25", "KES"),
    ]


@for_each(("signs", "debit", "read"), [
    ("", "100.00", "-100.00"), ("", "-25.00", None), ("none", "-25.00", None),
    ("minus", "-25.00", "-25.00"), ("minus", "100.00", None), ("any", "-25.00", "-25.00"),
    ("any", "100.00", "-100.00"), ("sum", "-25.00", "25.00"),
])  # fmt: skip
def test_a_debit_has_the_sign_that_is_declared(
    signs: str, debit: str, read: str | None, tmp_path: Path
) -> None:
    """Two ways of writing it in one file are a question to a person."""
    row = f"account,booked_at,credit,debit,currency,text\nmain,2026-11-02,,{debit},KES,x\n"
    rows, problems = bank(row, f'signs = "{signs}"' * bool(signs), folder=tmp_path)
    assert [each["amount"]["amount"] for each in rows] == ([] if read is None else [read])
    assert ["a debit is written" in each[2] for each in problems] == [True] * (read is None)


@for_each(("written", "account"), [
    ("DE00 0000 1234 5678 90", "DE0000001234567890"),
    ("Till 00 12", "Till 00 12"),
    ("DE00", "DE00"),
])  # fmt: skip
def test_an_account_number_is_the_same_with_blanks_and_without(
    tmp_path: Path, written: str, account: str
) -> None:
    rows, _ = bank(CSV.replace("main,", f"{written},"), folder=tmp_path)
    assert {row["account"] for row in rows} == {account}


@for_each(
    ("total", "is_one"),
    [
        ("Totals,600.00,10.25", True),
        ("Totals,600.00,-10.25", True),
        ("Totals,,10.25", False),
        ("Totals,600.00,10.24", False),
    ],
)
def test_totals_of_credit_and_debit_are_no_booking(
    tmp_path: Path, total: str, is_one: bool
) -> None:
    content = (
        "booked_at,text,credit,debit\n2026-11-02,a,500.00,\n2026-11-03,b,,10.25\n"
        f"2026-11-04,c,100.00,\n,{total}\n"
    )
    mapping = '[defaults]\ncurrency = "KES"\naccount = "main"\n'
    rows, problems = bank(content, mapping, folder=tmp_path)
    assert [row["amount"]["amount"] for row in rows] == ["500.00", "-10.25", "100.00"]
    assert [each[0] for each in problems] == ([] if is_one else [5])


def test_a_table_under_a_mapping(tmp_path: Path) -> None:
    mapping = """
        dates = "day_first"
        decimal = ","
        thousands = "."
        [columns]
        booked_at = "Buchungstag"
        amount = "Betrag"
        text = "Verwendungszweck"
        [defaults]
        currency = "EUR"
        account = "main"
    """
    content = "Buchungstag;Betrag;Verwendungszweck\n02.11.2026;-1.500,25;RENT\n"
    rows, problems = bank(content, mapping, folder=tmp_path)
    assert not problems
    assert (rows[0]["amount"]["amount"], rows[0]["account"]) == ("-1500.25", "main")


@for_each(
    ("row", "sentence"),
    [
        (
            "main,2026-11-02,1.00,1.00,KES,x",
            "the row has more than one of amount, credit and debit",
        ),
        ("main,2026-11-02,,,KES,x", "the row has no amount"),
        (
            "main,2026-11-02,-1.00,,KES,x",
            "a credit is negative: write money that leaves the account as a debit",
        ),
        ("main,,1.00,,KES,x", "is empty: every booking needs a day"),
        (",2026-11-02,1.00,,KES,x", "is empty: give the account with --account NAME"),
    ],
)
def test_a_row_that_is_not_clear_is_reported_alone(tmp_path: Path, row: str, sentence: str) -> None:
    rows, problems = bank(CSV + row + "\n", folder=tmp_path)
    assert (len(rows), [(each[0], each[2]) for each in problems]) == (2, [(4, sentence)])


def test_an_entry_of_a_bank_that_is_not_clear_is_reported_by_its_place(tmp_path: Path) -> None:
    """The others are read; a balance cannot be checked then, and nothing is imported but by
    --accept-good."""
    rows, problems = bank(CAMT.replace('"KES">10.25', '"KES">10.2x'), folder=tmp_path)
    assert ([row["row"] for row in rows], problems[0][:2]) == ([1], (2, "amount"))


ENTITY = '<!DOCTYPE d [<!ENTITY e "x"><!ENTITY f "&e;&e;&e;">]>'
FILE = '<!DOCTYPE d [<!ENTITY e SYSTEM "file:///etc/passwd">]>'
REFUSED: dict[str, tuple[str, str]] = {
    "entities": (CAMT.replace("?>\n", f"?>\n{ENTITY}\n", 1), "declares a document type"),
    "a file of the machine": (
        CAMT.replace("?>\n", f"?>\n{FILE}\n", 1).replace("MONTHLY", "&e;"),
        "declares a document type",
    ),
    "an entity that nobody declared": (CAMT.replace("MONTHLY", "&e;"), "the XML is invalid here"),
    **{
        f"XML that says it is in {encoding}": (
            f'<?xml version="1.0" encoding="{encoding}"?>\n' + CAMT.partition("?>\n")[2],
            "in an encoding that is not supported",
        )
        for encoding in ("utf-7", "shift_jis", "zlib", "idna", "undefined", "nobodys")
    },
    "another message": (CAMT.replace("camt.053", "camt.054"), "is not CAMT.052, 053 or 054: ask"),
    "several messages in one envelope": (
        f"<Envelope>{CAMT.partition('?>')[2] * 2}</Envelope>",
        "has several statement messages",
    ),
    "another message in an envelope": (
        f"<Envelope>{CAMT.partition('?>')[2].replace('camt.053', 'camt.029')}</Envelope>",
        "is not CAMT.052, 053 or 054, but CAMT.029: ask",
    ),
    "a message in a namespace of somebody else": (
        CAMT.replace("urn:iso:std:iso:20022:tech:xsd:camt.053.001.02", "urn:nobody"),
        "is not CAMT.052, 053 or 054: ask",
    ),
    "XML of something else": ("<a>" + "<b/>" * 300 + "</a>", "is not CAMT.052, 053 or 054: ask"),
    "XML that ends early": (CAMT[:1200], "the XML is invalid here"),
    "XML without end of depth": (
        CAMT.replace("<GrpHdr>", "<GrpHdr>" + "<a>" * 50, 1),
        "nested more than 40 levels",
    ),
    "a tag without end": (
        CAMT.replace("<GrpHdr>", "<GrpHdr " + " " * 1_200_000 + ">", 1),
        "a tag or a comment of more than 1,048,576 bytes",
    ),
    "an element without end": (
        CAMT.replace("MONTHLY", "x" * 9_000),
        "holds more than 8,192 characters",
    ),
    "an entry less than the balances say": (
        CAMT.replace(">51489.75<", ">51500.00<"),
        "its opening and closing balance differ by",
    ),
    "MT940 that does not add up": (
        MT940.replace("C270104EUR1499,00", "C270104EUR1499,01"),
        "its opening and closing balance differ by",
    ),
    "MT940 with an amount of another country": (
        MT940.replace(":61:270103D1,NMSC", ":61:270103D1.25,00NMSC"),
        "field :61: is not in SWIFT's form",
    ),
    "MT940 that ends early": (MT940.split(":62F:")[0], "before the closing balance"),
    "MT940 without an opening balance": (
        MT940.replace(":60F:C261231EUR1000,00\n", ""),
        "before any opening balance",
    ),
    "MT940 with a field without end": (
        MT940.replace("FEE OF DECEMBER", "FEE" + "\nx" * 80),
        "the field has more than 64 lines",
    ),
    "MT940 with a message that has no closing balance": (
        MT940.replace(":62F:C270104EUR1499,00\n-}\n", MT940),
        "the previous message has no closing balance",
    ),
    "MT942 that lacks an entry": (
        MT942.replace(":61:2611021102D2,5NTRFX//BANK-2\n", ""),
        "the report states '1KES2,5', but the number of the file's entries is 0 and their sum is 0",
    ),
    "MT942 with an entry of another form": (MT942.replace("D2,5N", "D2.5N"), "field :61: is not"),
    "MT942 and MT940 in one file": (MT942 + MT940, "has both MT940 and MT942 messages"),
    "MT940 and MT942 in one file": (MT940 + MT942, "has both MT940 and MT942 messages"),
    "BAI2 of the day that goes on": (BAI2.replace("USD,2/", "USD,3/"), "intraday report"),
    "BAI2 of a test": (BAI2.replace("BANK,1,26", "BANK,4,26"), "the group is a test"),
    "BAI2 without a day": (BAI2.replace("1,261102,", "1,261302,"), "the group has no day"),
    "BAI2 with another control total": (
        BAI2.replace("49,+353051", "49,353052"),
        "the amounts add up to 353051, but the control total is 353052",
    ),
    "BAI2 that lacks an entry": (
        BAI2.replace("16,475,1000,V,261103,,,000123/\n", "").replace("353051", "352051"),
        "add up to 499.49 USD, but its opening and closing balance differ by 489.49 USD: a "
        "difference of -10.00 USD",
    ),
    "BAI2 with an amount of decimals": (
        BAI2.replace("16,475,1000,", "16,475,10.00,"),
        "has characters other than digits",
    ),
    "BAI2 with a debit that is negative": (
        BAI2.replace("16,475,1000,", "16,475,-1000,"),
        "has a sign, but its type alone says",
    ),
    "BAI2 with a type that is neither": (
        BAI2.replace("16,475,", "16,720,"),
        "neither credit (100-399) nor debit (400-699)",
    ),
    "BAI2 with a record in another place": (
        BAI2.replace("98,353051,1,9/\n", ""),
        "a record 99 (file's end) is not allowed here",
    ),
    "a table that names no account": (
        CSV.replace("account,", "", 1).replace("main,", ""),
        "there is no column 'account'",
    ),
    "OFX that ends early": (OFX.replace("</OFX>", ""), "the file ends before </OFX>"),
    "OFX with entities": (
        OFX_2.replace("<OFX>", f"{ENTITY}<OFX>"),
        "declares a document type or entities",
    ),
    "OFX with a comment without end": (
        OFX_2.replace("<STMTTRN>", "<!-- <STMTTRN>"),
        "the file ends within a section <!-- that has no -->",
    ),
    "OFX of a sign-on that was refused": (
        OFX.replace("<CODE>0<SEVERITY>INFO", "<CODE>15500<SEVERITY>ERROR<MESSAGE>No"),
        "error 15500 (the sign-on was refused: wrong user or password)",
    ),
    "OFX in an encoding that nobody knows": (
        OFX.replace("CHARSET:1252", "CHARSET:125"),
        "names an unknown encoding: give --encoding",
    ),
    "OFX with elements without end": (
        OFX.replace("<STMTRS>", "<STMTRS>" + "<A>" * 200),
        "more than 100 elements are open at a time",
    ),
    "a table of something else": ("a,b\n1,2\n", "there is no column 'booked_at'"),
}


@for_each("name", REFUSED)
def test_what_is_refused_as_a_whole(tmp_path: Path, name: str) -> None:
    """With one sentence that says what to do, and without a word of what stands in it."""
    content, sentence = REFUSED[name]
    _, problems = bank(content, folder=tmp_path)
    assert sentence in problems[-1][2]
    assert "root:" not in str(problems)


def test_a_file_of_ofx_beyond_the_bound_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ofx, "MAX_OFX_BYTES", 100)
    _, problems = bank(OFX, folder=tmp_path)
    assert "fetch it month by month" in problems[0][2]


def test_a_name_of_ofx_without_end_is_read_at_once(tmp_path: Path) -> None:
    """A megabyte of one took hours."""
    began = time.process_time()
    assert shown(
        bank(OFX.replace("<LEDGERBAL>", "<" + "A" * 60_000 + "<LEDGERBAL>"), folder=tmp_path)
    )
    assert time.process_time() - began < 3


@for_each("content", [CAMT, MT940, OFX, BAI2])
def test_a_file_cut_anywhere_is_refused_or_reported(tmp_path: Path, content: str) -> None:
    """No cut passes for a whole statement, and none is a fault of ours."""
    for end in range(0, len(content.rstrip()) - 2, 37):
        _, problems = bank(content[:end], folder=tmp_path)
        assert problems, end


PIECES = [
    b"/", b",", b"\n", b"\n:61:", b"\n16,", b"\n88,", b"<!--", b"<![CDATA[", b"S,", b"D,9,", b"-",
    b"9" * 30, b".", b"\0", b"\xff", b"<", b"&", b"?20",
]  # fmt: skip


@settings(max_examples=examples(60))
@given(
    content=st.sampled_from([CAMT, MT940, OFX, OFX_2, BAI2]),
    damage=st.lists(
        st.tuples(st.integers(0, 600), st.integers(0, 9), st.sampled_from(PIECES)),
        min_size=1,
        max_size=4,
    ),
)
def test_a_damaged_file_of_a_bank_ends_in_rows_and_sentences(
    content: str, damage: list[tuple[int, int, bytes]]
) -> None:
    damaged = bytearray(content.encode())
    for place, less, piece in damage:
        damaged[place : place + less] = piece
    with tempfile.TemporaryDirectory() as folder:
        _, problems = bank(bytes(damaged), folder=Path(folder))
    assert all(sentence and row >= 1 for row, _, sentence in problems)
