"""Money as whole minor units of one currency, without rounding."""

from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact, InvalidOperation
from typing import Final

from reconcile.documents import MoneyDocument

# Currency codes by their number of decimals, from ISO 4217 list one, as of 2026.
_BY_EXPONENT: Final[dict[int, str]] = {
    0: """
        BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF
    """,
    2: """
        AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP
        BYN BZD CAD CDF CHE CHF CHW CNY COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB
        EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES
        KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR
        MWK MXN MXV MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD
        RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP
        TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XAD XCD XCG YER ZAR ZMW ZWG
    """,
    3: """
        BHD IQD JOD KWD LYD OMR TND
    """,
    4: """
        CLF UYW
    """,
}

EXPONENTS: Final[dict[str, int]] = {
    code: exponent for exponent, codes in _BY_EXPONENT.items() for code in codes.split()
}
"""Number of decimals of each currency. The keys are ISO 4217 codes."""

MAX_MINOR: Final = 2**63 - 1
"""Maximum number of minor units: a signed 64-bit integer, which both databases hold exactly."""

_EXACT: Final = Context(prec=128, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[Inexact, InvalidOperation])
"""Decimal arithmetic that raises an error instead of rounding."""

_TOO_LONG: Final = 19
"""Maximum number of digits of a 64-bit amount."""


class MoneyError(ValueError):
    """Error for an amount or currency that is invalid. The message is one sentence."""


class InexactAmount(MoneyError):
    """Error for an amount with more non-zero decimals than its currency has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Money:
    """Amount in minor units (cents, paise, fils …) of an ISO 4217 currency."""

    minor: int
    currency: str

    def __str__(self) -> str:
        sign, whole, decimals = split_minor(self.minor, exponent_of(self.currency))
        return f"{self.currency} {sign}{int(whole):,}{'.' + decimals if decimals else ''}"


def is_currency(value: object) -> bool:
    """Check whether a value is an ISO 4217 currency code with minor units."""
    return isinstance(value, str) and value in EXPONENTS


def exponent_of(currency: str) -> int:
    """Return a currency's decimals. Raise MoneyError if unknown."""
    exponent = EXPONENTS.get(currency)
    if exponent is None:
        shown = currency[:8]
        hint = f"; write {shown.upper()}" if shown.upper() in EXPONENTS else ""
        raise MoneyError(f"{shown!r} is not a currency code of ISO 4217 with minor units{hint}")
    return exponent


def money(minor: int, currency: str) -> Money:
    """Return an amount of money. Raise MoneyError if invalid."""
    exponent_of(currency)
    if not -MAX_MINOR - 1 <= minor <= MAX_MINOR:
        raise MoneyError("the amount does not fit in 64 bits of minor units")
    return Money(minor=minor, currency=currency)


def from_major(amount: Decimal | int | str, currency: str) -> Money:
    """Convert an amount in major units exactly.

    Raise InexactAmount for too many decimals, and MoneyError for other unusable values.
    """
    exponent = exponent_of(currency)
    try:
        scaled = _EXACT.scaleb(_EXACT.create_decimal(amount), exponent)
    except Inexact:
        raise InexactAmount(f"the amount has more than {_EXACT.prec} digits") from None
    except InvalidOperation:
        raise MoneyError("the amount is not a decimal number") from None
    if not scaled.is_finite():
        raise MoneyError("the amount is not a finite number")
    if scaled and scaled.adjusted() >= _TOO_LONG:  # before int(): 1e999999999 would fill the memory
        raise MoneyError("the amount does not fit in 64 bits of minor units")
    minor = int(scaled) if scaled else 0
    if minor != scaled:
        raise InexactAmount(f"the amount has more than the {exponent} decimals of {currency}")
    return money(minor, currency)


def split_minor(minor: int, exponent: int) -> tuple[str, str, str]:
    """Return an amount's sign, whole units and decimals as text."""
    digits = str(abs(minor)).rjust(exponent + 1, "0")
    cut = len(digits) - exponent
    return "-" if minor < 0 else "", digits[:cut], digits[cut:]


def to_json(amount: Money) -> MoneyDocument:
    """Return an amount as JSON in major units: `{"amount": "1500.00", "currency": "KES"}`."""
    return {"amount": major_text(amount), "currency": amount.currency}


def major_text(amount: Money) -> str:
    """Return an amount in major units, such as `1500.00`."""
    sign, whole, decimals = split_minor(amount.minor, exponent_of(amount.currency))
    return f"{sign}{whole}.{decimals}" if decimals else sign + whole
