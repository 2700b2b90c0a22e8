"""Interpret the text of a search: find everything that the text can mean."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from decimal import Decimal
from typing import Final
from unicodedata import category

from app.core.errors import UsageError
from app.core.masking import masked_phone
from app.core.references import composed
from app.providers import identifiers
from app.providers.identifiers import phone_digits
from reconcile.instants import Instant
from reconcile.money import EXPONENTS, MoneyError, from_major
from reconcile.periods import Calendar

MAX_TEXT: Final = 256
"""Maximum number of characters in a search text. No provider has longer references."""

MAX_MESSAGE: Final = 1_000
"""Maximum number of characters in a pasted message. Several joined SMS are not longer."""

GRAMMAR: Final = (
    "type a reference or its end, a payment, a refund, a session, an event id, a phone number "
    "(+254 700 000 001), an email address, a first and a last name, a card's last four digits, an "
    "amount (KES 1,500.00), a day (2026-11-20 or 20/11/2026), or an amount and a day; or paste the "
    "SMS that confirms the payment"
)

_DAY: Final = re.compile(
    r"(?P<y>\d{4})([-/.])(?P<m>\d{1,2})\2(?P<d>\d{1,2})"
    r"|(?P<first>\d{1,2})([-/.])(?P<second>\d{1,2})\6(?P<year>\d{4})",
    re.ASCII,
)
"""Pattern of a date: year, month and day, or day and month in either order and then the year."""

_NUMBER: Final = re.compile(
    r"\d{1,15}(?:\.\d{1,4})?"
    r"|\d{1,3}([,'\u2019 ])\d{3}(?:\1\d{3}){0,3}(?:\.\d{1,4})?"
    r"|\d{1,2}(?:,\d{2}){1,4},\d{3}(?:\.\d{1,4})?",
    re.ASCII,
)
"""Pattern of an amount with a decimal point. Commas, quotes or blanks may separate thousands, also
as in India: `1,50,000`."""
_COMMA: Final = re.compile(
    r"(?:\d{1,15}|\d{1,3}([.'\u2019 ])\d{3}(?:\1\d{3}){0,3}),\d{1,2}", re.ASCII
)
"""Pattern of an amount with a decimal comma and at most two decimals, such as `1.500,00`."""
_SIGN: Final = r"[^\d\s.,'\u2019+()#/_=-]{1,5}"
_AMOUNT: Final = re.compile(
    rf"(?:(?P<before>{_SIGN})\.? ?)?(?P<number>\d(?:[\d.,'\u2019 ]*\d)?)"
    rf"(?:/[=-]| ?(?P<after>{_SIGN})\.?)?",
    re.ASCII,
)
"""Pattern of a number with a currency's code or sign beside it. `/=` and `/-` say that no cents
follow."""

_SIGNS: Final[dict[str, str]] = {
    "$": "USD CAD AUD NZD SGD HKD TWD MXN CLP COP ARS NAD LRD JMD TTD BBD BSD BZD FJD GYD XCD",
    "us$": "USD", "a$": "AUD", "c$": "CAD", "ca$": "CAD", "nz$": "NZD", "hk$": "HKD", "s$": "SGD",
    "nt$": "TWD", "mx$": "MXN", "r$": "BRL", "n$": "NAD", "€": "EUR", "£": "GBP EGP",
    "¥": "JPY CNY", "ksh": "KES", "kshs": "KES", "tsh": "TZS", "ush": "UGX",
    "sh": "KES TZS UGX SOS", "shs": "KES TZS UGX SOS", "₦": "NGN",
    "₵": "GHS", "gh₵": "GHS", "gh¢": "GHS", "r": "ZAR", "k": "ZMW PGK MMK", "frw": "RWF",
    "rf": "RWF", "fcfa": "XOF XAF", "cfa": "XOF XAF", "birr": "ETB", "br": "ETB BYN",
    "₹": "INR", "rs": "INR PKR LKR NPR MUR SCR", "৳": "BDT", "tk": "BDT", "rp": "IDR",
    "rm": "MYR", "₱": "PHP", "฿": "THB", "₫": "VND", "đ": "VND", "₩": "KRW", "₽": "RUB",
    "₴": "UAH", "₸": "KZT", "₺": "TRY", "tl": "TRY", "₪": "ILS", "zł": "PLN", "kč": "CZK",
    "ft": "HUF", "lei": "RON MDL", "kr": "SEK NOK DKK ISK", "fr": "CHF", "sfr": "CHF",
    "dh": "AED MAD", "dhs": "AED MAD", "₡": "CRC", "₲": "PYG", "le": "SLE",
}  # fmt: skip

_PHONE: Final = re.compile(r"\+?[\d\s().-]{7,30}", re.ASCII)
_KINDS: Final = frozenset(EXPONENTS.values())


_BARE_NATIONAL: Final = re.compile(r"[1-9]\d{6,9}", re.ASCII)

_CARD: Final = re.compile(
    r"(?:(?:card|visa|mastercard|amex|ending|in) +)*[*xX.\u2022 -]*(?P<last>\d{4})", re.ASCII | re.I
)

_RECEIPTS: Final = (
    re.compile(r"\b([A-Z0-9]{6,14})\.? (?:Confirmed|Imethibitishwa)\b"),
    re.compile(
        r"\b(?:Trans(?:action)?\.? ?(?:ID|No|Ref)|Txn\.? ?ID|TID|Ref(?:erence)?(?: ?(?:No|ID))?|"
        r"Receipt(?: ?No)?)\b[.:# ]*(?=[\w.-]*\d)([\w.-]{5,40}\w)",
        re.ASCII | re.I,
    ),
    re.compile(r"\b((?=[A-Z]*\d)(?=\d*[A-Z])[A-Z0-9]{8,14})\b"),
)
"""Patterns of the receipt number in an SMS of M-PESA, Airtel Money and MTN MoMo."""

_ACCOUNT: Final = re.compile(
    r"\b(?:for account|account(?: number)?|acc\.?(?: no\.?)?)[.: ]+(?=[\w#/-]*\d)([\w#/-]{1,40})",
    re.ASCII | re.I,
)

_PRICED: Final = re.compile(r"(?<![^\W_])[A-Za-z\u00a2\u20b5]{2,5}\.? ?\d(?:[\d.,]*\d)?", re.ASCII)
_MONEY_AFTER: Final = re.compile(r"(?<![\w.,])\d(?:[\d.,]*\d)? ?[A-Z]{3}\b", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sought:
    """Possible meanings of a search text; empty or None where a meaning is impossible.

    email, person, card  identifiers in the form that `identifiers` returns
    """

    names: tuple[str, ...] = ()
    """References or ids, or the beginning or end of an order's reference."""
    phones: tuple[str, ...] = ()
    """Phone numbers as E.164 digits."""
    email: str | None = None
    person: str | None = None
    card: str | None = None
    amounts: dict[int, int] | None = None
    """The amount in minor units, by the currency's number of decimals."""
    currencies: tuple[str, ...] = ()
    """Possible currencies of the amount. Empty for any."""
    days: Mapping[str, tuple[Instant, Instant]] = field(default_factory=dict)
    """Begin and end of each possible day."""
    zone: str = "UTC"
    """Time zone of the days."""
    national: bool = False
    """True if the text looks like a phone number without a known country code."""
    message: bool = False
    """True if the text is a pasted SMS."""

    @property
    def of_a_person(self) -> str:
        """Return the kind of personal identifier in the search, for the audit trail, or ""."""
        if self.phones:
            return "a phone number"
        if self.email is not None:
            return "an email address"
        return "" if self.person is None else "a name"

    def sentences(self) -> list[str]:
        """Return a sentence for each meaning that is searched for. Phone numbers are masked."""
        sentences = []
        if self.names:
            sentences.append(
                "an order's reference or its end, a payment, a session, a refund, a dispute, a "
                "charge, a payout, an event or a delivery"
            )
        if self.message:
            sentences[0] = f"{_listed(self.names)}, which the message names"
        sentences += [f"the phone number {masked_phone(digits)}" for digits in self.phones]
        if self.email is not None:
            sentences.append("a customer's email address")
        if self.person is not None:
            sentences.append("a customer's name")
        if self.card is not None:
            sentences.append(f"a card that ends in {self.card[-4:]}")
        if self.amounts is not None:
            sentences.append(f"an amount in {_listed(self.currencies) or 'any currency'}")
        if self.days:
            did = "happened, was received or was ordered" if self.amounts else "was received"
            sentences.append(f"what {did} on {_listed([*self.days])} ({self.zone})")
        return sentences


def understood(text: str, *, countries: Iterable[str] = (), zone: tzinfo = UTC) -> Sought:
    """Return the possible meanings of a search text. Raise UsageError if it has none.

    countries  calling codes for national phone numbers
    zone       time zone of the days
    """
    calendar, text = Calendar(zone), composed(text)
    if not text.isprintable():
        # Copied text may have invisible characters: marks of a direction, which telephones put
        # around a number, and other blanks.
        kinds = {each: category(each) for each in set(text)}
        seen = [each for each in text if kinds[each] != "Cf"]
        text = "".join(" " if kinds[each] == "Zs" else each for each in seen)
    text = text.strip()
    if (message := _message(text)) is not None:
        return message
    if not (0 < len(text) <= MAX_TEXT) or not text.isprintable():
        raise UsageError(f"this text cannot be searched for: {GRAMMAR}")
    words = text.split()
    dated = [word for word in words if _DAY.fullmatch(word.rstrip(","))]
    rest = " ".join(word for word in words if word not in dated)
    days = _days(dated[0].rstrip(","), calendar) if len(dated) == 1 else {}
    currencies, amounts = _amount(rest.rstrip(","))
    if days and (not rest or amounts is not None):
        return Sought(
            days=days,
            zone=calendar.name,
            amounts=amounts,
            currencies=currencies,
            names=() if rest else (text,),
        )
    like_a_phone = _PHONE.fullmatch(text) is not None
    known = sorted(set(countries))
    read = [phone_digits(text, each) for each in (None, *known) if like_a_phone]
    if _BARE_NATIONAL.fullmatch(digits := re.sub(r"[\s().-]", "", text)):
        read += [phone_digits(each + digits, None) for each in known if digits[: len(each)] != each]
    phones = tuple(dict.fromkeys([digits for digits in read if digits is not None]))
    if " " in text and not currencies and like_a_phone:
        amounts = None  # grouped like a phone number, and too long for an amount
    card = _CARD.fullmatch(text)
    return Sought(
        names=(text,),
        phones=phones,
        email=identifiers.email(text),
        person=identifiers.name(text) if not any(map(str.isdigit, text)) else None,
        card=None if card is None else identifiers.card(card["last"]),
        amounts=amounts,
        currencies=currencies,
        national=not phones and text.startswith(("0", "(0")) and like_a_phone,
    )


def _message(text: str) -> Sought | None:
    text = " ".join(text.split())
    if not (len(text.split()) > 4 and len(text) <= MAX_MESSAGE and text.isprintable()):
        return None
    receipt = next((found[1] for each in _RECEIPTS if (found := each.search(text))), None)
    currencies, amounts = next(_priced(text), ((), None))
    if receipt is None or amounts is None:
        return None
    account = _ACCOUNT.search(text)
    return Sought(
        names=(receipt,) if account is None else (receipt, account[1].rstrip("/-")),
        amounts=amounts,
        currencies=currencies,
        message=True,
    )


def _priced(text: str) -> Iterator[tuple[tuple[str, ...], dict[int, int]]]:
    """Yield the amounts of money in a text, with their possible currencies.

    The paid amount comes before balance and fees.
    """
    for each in (_PRICED, _MONEY_AFTER):
        for found in each.finditer(text):
            currencies, amounts = _amount(found[0])
            if currencies and amounts:
                yield currencies, amounts


def _listed(words: Sequence[str]) -> str:
    shown = [*words[:3], *(["another of that sign"] if len(words) > 3 else [])]
    return " or ".join(filter(None, (", ".join(shown[:-1]), *shown[-1:])))


def _days(word: str, calendar: Calendar) -> dict[str, tuple[Instant, Instant]]:
    """Return the days that a word can mean, with begin and end: `05/11/2026` has two."""
    found = _DAY.fullmatch(word)
    if found is None:
        return {}
    read = [(found["y"], found["m"], found["d"])]
    if found["year"]:
        first, second = found["first"], found["second"]
        read = [(found["year"], second, first), (found["year"], first, second)]
    days = {}
    for year, month, day in read:
        name = f"{year}-{int(month):02}-{int(day):02}"
        with suppress(ValueError):
            days[name] = calendar.day(name)
    return days


def _amount(text: str) -> tuple[tuple[str, ...], dict[int, int] | None]:
    """Return the possible currencies of an amount, and its minor units by number of decimals.

    The first is empty if every currency is possible. The second is None if the text is no amount.
    """
    found = _AMOUNT.fullmatch(text)
    if found is None:
        return (), None
    plain = re.sub("['\u2019 ]", "", found["number"])
    if _COMMA.fullmatch(found["number"]):
        number = Decimal(plain.replace(".", "").replace(",", "."))
    elif _NUMBER.fullmatch(found["number"]):
        number = Decimal(plain.replace(",", ""))
    else:
        return (), None
    signs = [each for each in (found["before"], found["after"]) if each is not None]
    said = [
        [sign.upper()] if sign.upper() in EXPONENTS else _SIGNS.get(sign.lower(), "").split()
        for sign in signs
    ]
    currencies = [each for each in (said or [[]])[0] if all(each in other for other in said)]
    if said and not currencies:
        return (), None
    amounts = {}
    for exponent in {EXPONENTS[each] for each in currencies} if said else _KINDS:
        code = next(code for code, decimals in EXPONENTS.items() if decimals == exponent)
        with suppress(MoneyError):  # too many decimals
            if minor := from_major(number, code).minor:
                amounts[exponent] = minor
    return tuple(currencies), amounts or None
