"""Meaning of single cells, read by other means than the product's: for comparison only.

Amounts are read character by character and counted with Decimal, dates by `strptime`. Neither looks
at the product's code, so that both must be wrong alike to agree on a wrong amount or day.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final
from zoneinfo import ZoneInfo

DECIMALS: Final = {"KES": 2, "EUR": 2, "USD": 2, "JPY": 0, "KWD": 3}


class Unclear(Exception):
    """A cell that must be refused; the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notation:
    """Notation of a file's cells; a mapping says the same.

    decimal   None: not declared
    suffixes  word behind an amount to its sign
    empty     words of cells that say nothing
    signs_say what a statement's signs say of money that leaves
    zone      of times without one; None: such times must be refused
    """

    decimal: str | None = None
    thousands: str = ""
    brackets: bool = False
    signs: Mapping[str, str] = field(default_factory=dict)
    suffixes: Mapping[str, str] = field(default_factory=dict)
    empty: Sequence[str] = ()
    dates: str = "iso"
    zone: str | None = "UTC"
    zones: Mapping[str, str] = field(default_factory=dict)
    signs_say: str | None = None

    def mapping(self) -> str:
        """Return the lines of a mapping that say this."""
        lines = [f'dates = "{self.dates}"']
        lines += [f'zone = "{self.zone}"'] if self.zone else []
        lines += [f'thousands = "{self.thousands}"'] if self.thousands else []
        lines += [f'signs = "{self.signs_say}"'] if self.signs_say else []
        lines += [f'decimal = "{self.decimal}"'] if self.decimal else []
        lines += ['brackets = "negative"'] if self.brackets else []
        lines += [f"empty = {list(self.empty)}".replace("'", '"')] if self.empty else []
        return "\n".join(lines) + "\n"

    def sections(self) -> str:
        lines = ["[currency_signs]", *(f'"{sign}" = "{code}"' for sign, code in self.signs.items())]
        lines += ["[suffixes]"]
        lines += [f'"{word}" = "{way}"' for word, way in self.suffixes.items()]
        lines += ["[zones]", *(f'"{word}" = "{zone}"' for word, zone in self.zones.items())]
        return "\n".join(lines) + "\n"


BLANKS: Final = "\u00a0\u202f\u2009\u2007 "


def _plain(text: str) -> str:
    """Make all blanks, all hyphens and both apostrophes one, and drop blanks at the ends."""
    plain = ""
    for character in text:
        if character in BLANKS:
            plain += " "
        elif unicodedata.category(character) == "Pd" and character != "—":
            plain += "-"
        else:
            plain += {"\u2212": "-", "’": "'"}.get(character, character)
    return plain.strip()


def amount(text: str, currency: str, notation: Notation) -> Decimal:
    """Return the amount that a text states, in major units. Raises Unclear."""
    left, ways, seen = _plain(text), list[str](), False
    while left and not (left[0].isdigit() and left[-1].isdigit()):
        sign = next((s for s in notation.signs if left.startswith(s) or left.endswith(s)), None)
        word = next((w for w in notation.suffixes if left.lower().endswith(w.lower())), None)
        if sign is not None and not seen:
            seen = True
            if notation.signs[sign] != currency:
                raise Unclear("the sign is of another currency")
            left = left.removeprefix(sign) if left.startswith(sign) else left.removesuffix(sign)
        elif notation.brackets and left[0] == "(" and left[-1] == ")":
            ways.append("minus")
            left = left[1:-1]
        elif word is not None:
            ways.append(notation.suffixes[word])
            left = left[: len(left) - len(word)]
        elif left[0] in "+-":
            ways.append("plus" if left[0] == "+" else "minus")
            left = left[1:]
        else:
            raise Unclear("there is something beside the amount")
        left = left.strip()
    if not left or len(ways) > 1:
        raise Unclear("there is no amount, or two signs")
    whole, mark, decimals = left.partition(notation.decimal or ".")
    if not _digits(decimals) and mark:
        raise Unclear("the decimals are not digits")
    thousands = _plain(f"x{notation.thousands}x")[1:-1]
    groups = whole.split(thousands) if thousands else [whole]
    if not all(map(_digits, groups)):
        raise Unclear("the marks are not the declared ones")
    if len(groups) > 1:
        first, *middle, last = groups
        if len(first) > 3 or len(last) != 3 or any(len(each) not in (2, 3) for each in middle):
            raise Unclear("the groups are no thousands")
    declared = bool(notation.decimal or notation.thousands)
    if len(decimals) == 3 and DECIMALS[currency] < 3 and not declared:
        raise Unclear("three digits may be thousands")
    value = Decimal("".join(groups) + mark.replace(",", ".") + decimals)
    return -value if ways == ["minus"] else value


def minor(value: Decimal, currency: str) -> int:
    """Return minor units of an exact amount. Raises Unclear."""
    scaled = value.scaleb(DECIMALS[currency])
    if scaled != scaled.to_integral_value():
        raise Unclear("the currency has fewer decimals")
    if abs(scaled) >= 2**63:
        raise Unclear("64 bits do not hold it")
    return int(scaled)


def _digits(text: str) -> bool:
    return bool(text) and len(text) <= 30 and all(each in "0123456789" for each in text)


# --- dates ----------------------------------------------------------------------------------------

_OFFSETS: Final = {
    "Z": 0, "UTC": 0, "CET": 1, "CEST": 2, "CDT": -5, "PDT": -7, "EAT": 3, "WAT": 1
}  # fmt: skip
_CLEAR: Final = ("%Y-%m-%d", "%Y/%m/%d", "%Y%m%d", "%b %d, %Y", "%d %b %Y", "%d-%b-%Y", "%B %d, %Y")
_TIMES: Final = ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p")
_FORMS: Final = {
    "day_first": ("%d/%m/%Y", "%d.%m.%Y", "%d-%m-%Y", "%d.%m.%y", "%d-%b-%y"),
    "month_first": ("%m/%d/%Y", "%m-%d-%Y", "%m.%d.%y", "%d-%b-%y"),
}


def date(text: str, notation: Notation, *, column: str = "") -> str | None:
    """Return an instant in UTC; None for an empty cell. Raises Unclear.

    column  what the row's zone column says
    """
    plain = " ".join("".join(" " if each in BLANKS else each for each in text).split())
    if not plain:
        return None
    if notation.dates in ("unix_s", "unix_ms"):
        if not plain.isdigit():
            raise Unclear("is no number")
        seconds = Decimal(plain) / (1 if notation.dates == "unix_s" else 1000)
        return _told(
            datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(seconds * 10**6))
        )
    if notation.dates == "excel" and re.fullmatch(r"[0-9]{5}(\.[0-9]+)?", plain):
        days, part = divmod(Decimal(plain), 1)
        moment = datetime(1899, 12, 30) + timedelta(days=int(days))
        moment += timedelta(seconds=int((part * 86_400).to_integral_value()))
        return _told(_placed(moment, column if part else "", notation, is_day=not part))
    plain = re.sub(r"(?<=\d)T(?=\d)", " ", plain).replace("Sept ", "Sep ")
    body, zone = plain, ""
    found = re.search(r" ?([+-]\d\d:?\d\d|(?<=\d)Z)$| ([A-Z]{3,4}|\w+/\w+)$", plain)
    if found is not None and ":" in plain[: found.start()]:
        body, zone = plain[: found.start()], found[1] or found[2]
    forms = (*_FORMS.get(notation.dates, ()), *_CLEAR)
    for form in forms + tuple(f"{day} {time}" for day in forms for time in _TIMES):
        try:
            moment = datetime.strptime(body, form)
        except ValueError:
            continue
        if ":" not in form:
            return _told(_placed(moment, "", notation, is_day=True))
        if zone and column and _zone(zone, moment, notation) != _zone(column, moment, notation):
            raise Unclear("two zones")
        return _told(_placed(moment, zone or column, notation))
    raise Unclear("is no date of the declared form")


def _zone(name: str, moment: datetime, notation: Notation) -> timedelta:
    name = notation.zones.get(name, name)
    if name in _OFFSETS:
        return timedelta(hours=_OFFSETS[name])
    if found := re.fullmatch(r"([+-])(\d\d):?(\d\d)", name):
        length = timedelta(hours=int(found[2]), minutes=int(found[3]))
        return length if found[1] == "+" else -length
    if "/" in name:
        return moment.replace(tzinfo=ZoneInfo(name)).utcoffset() or timedelta()
    raise Unclear("nothing is said of the zone")


def _placed(moment: datetime, zone: str, notation: Notation, *, is_day: bool = False) -> datetime:
    if not (zone or notation.zone or is_day):
        raise Unclear("nothing is said of its zone")
    zone = zone or notation.zone or "UTC"
    return (moment - _zone(zone, moment, notation)).replace(tzinfo=UTC)


def _told(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def same_moment(product: str | None, other: str | None) -> bool:
    """Return whether two texts, with or without decimals of a second, are one moment."""
    if product is None or other is None:
        return product is other
    return datetime.fromisoformat(product) == datetime.fromisoformat(other)


# --- references -----------------------------------------------------------------------------------


def reference(text: str) -> str:
    """Return a reference. Raises Unclear."""
    plain = text.strip()
    if not plain.strip("-–—_./* \t\u00a0"):
        raise Unclear("is empty")
    if len(plain) > 200:
        raise Unclear("is too long")
    if plain[0] in "=@":
        raise Unclear("is a formula")
    if any(ord(each) < 32 or each in "\u2028\u2029\x7f" for each in plain):
        raise Unclear("has control characters")
    return plain
