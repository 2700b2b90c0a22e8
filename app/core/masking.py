"""What is seen of personal data: enough to tell two customers apart, too little to reach one.

Whatever prints, lists, draws or bundles takes phone numbers and names through here. The full ones
are for a person who may unmask and says why. `Mask` hides one known number and one token in texts
of others: services repeat what they were sent, most often in the sentence of a refusal.
"""

from __future__ import annotations

import binascii
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final
from urllib.parse import unquote_plus

DOT: Final = "•"

_HIDDEN_AT_LEAST: Final = 5
"""Digits: a hundred thousand numbers look the same."""

_SIGNIFICANT: Final = 8
"""Digits at the end that identify a customer however the number is written before them
(254712345678, +254 712 345 678, 0712-345678)."""

_BETWEEN: Final = r"[ ().-]{0,2}"
"""Between the digits of what only may be a number. Digests rest on it: it stays as it is."""

_FILLING: Final = r"[ \t\u00a0\u2000-\u2015\u202a-\u202f\u2060-\u2069\u2212().\-/]"

APART: Final = rf"{_FILLING}{{0,3}}"
"""Between the digits of a number that is known: also blanks and dashes that no keyboard has, as
address books copy them, marks of direction, and two of them about a dash."""

_SOME_PHONE: Final = re.compile(
    rf"(?<![\w.-])(?:\+|\(?0\)?){_BETWEEN}\d(?:{_BETWEEN}\d){{7,13}}(?!\d)", re.ASCII
)

_NOT_LETTERS: Final = re.compile(r"[^a-z]")

_PHONE_WORDS: Final = ("phone", "msisdn", "mobile")

_OTHER_WORDS: Final = ("email", "address")

_NAMES: Final = frozenset(
    f"{whose}{which}name"
    for whose in ("", "customer", "payer", "buyer", "cardholder", "accountholder", "consumer")
    for which in ("", "first", "middle", "last", "full", "family", "given")
) | {"surname", "cardholder", "accountholder"}


def masked_phone(digits: str) -> str:
    """E.164 digits as they are shown: `+254 ••• ••• •01`."""
    head = min(3, len(digits) - 2 - _HIDDEN_AT_LEAST)
    hidden = DOT * (len(digits) - head - 2)
    groups = [hidden[at : at + 3] for at in range(0, len(hidden), 3)]
    last = " " if len(groups[-1]) == 3 else ""
    return f"+{digits[:head]} {' '.join(groups)}{last}{digits[-2:]}"


def masked_name(name: str) -> str:
    """A person's name as it is shown: the first letter, and not how long it is."""
    text = name.strip()
    return text[0] + 3 * DOT if text else ""


def phone_pattern(digits: str) -> re.Pattern[str]:
    """Finds a number in a text however it is written: with a plus, blanks, dashes, or national.

    Whatever else ends in the same eight digits is found too: better hidden than distinguished.
    """
    last = _spaced(digits[-_SIGNIFICANT:])
    # The bound keeps the search linear in a long run of digits.
    return re.compile(rf"\+?(?:\d{APART}){{0,7}}{last}", re.ASCII)


def looks_like_a_phone(text: str) -> bool:
    """Whether some number stands in the text as people write it: behind a plus or a zero."""
    return _SOME_PHONE.search(text) is not None


_TELLING: Final = 3
"""Digits at the end that tell texts apart whose numbers are hidden, and not whose they are."""

_MAYBE_PHONE: Final = re.compile(
    rf"(?<!\d)\d(?:{_BETWEEN}\d){{{_SIGNIFICANT - 1},14}}(?!\d)", re.ASCII
)


def without_phones(text: str) -> str:
    """The text with all but the last digits hidden of whatever may be a phone number, however it is
    written: for a digest that must not be a way to try numbers out."""
    return _MAYBE_PHONE.sub(lambda found: DOT + found[0][-_TELLING:], text)


_CODE: Final = r"\d{3}\.\d{3}\.\d{3}(?![\w.-])"

_LOOSE_PHONE: Final = re.compile(
    rf"(?:\+|(?!{_CODE}))(?<!\w)\d(?:{_BETWEEN}\d){{{_SIGNIFICANT - 1},}}", re.ASCII
)


def masked_words(text: str) -> str:
    """Somebody's words as they are kept: of whatever may be a phone number the last digits alone.

    Digits behind a letter are a part of a code (`DP00800001006`), and three groups of three between
    points are one (`000.100.110`): they stay. Of what was masked it gives the same again.
    """
    return _LOOSE_PHONE.sub(lambda found: DOT + found[0][-_TELLING:], text)


_EMAIL: Final = re.compile(r"(?<![\w.%+-])[\w.%+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+", re.ASCII)

_AT_SIGHT: Final = re.compile(
    rf"(?<![\w.-])(?:(?:\+|\(?0\)?){APART}\d(?:{APART}\d){{7,13}}"
    r"|[1-9]\d{10,14}|[1-9]\d{0,3}(?:[ \u00a0-]\d{2,4}){2,4})(?![\w.:-])",
    re.ASCII,
)

_MORE_THAN_A_DATE: Final = 9
"""Digits: 2026-11-20 has eight."""


def masked_at_sight(text: str) -> str:
    """A text of which nobody knows what is in it, without what is written as people write a number
    (behind a plus or a zero, or in groups), eleven digits and more, and e-mail addresses. Dates,
    seconds and addresses of machines stay."""
    text = _AT_SIGHT.sub(lambda found: _at_sight(found[0]), text)
    return _EMAIL.sub(lambda found: masked_name(found[0]), text)


def _at_sight(text: str) -> str:
    digits = sum(each.isdigit() for each in text)
    return text if digits < _MORE_THAN_A_DATE else _shown_phone(text)


def written_pattern(digits: str) -> re.Pattern[str]:
    """Finds this very number: whole, or national behind a zero, and no part of a longer one.

    Stricter than `phone_pattern`: for what is deleted where it is found.
    """
    # A country's code has one to three digits (ITU-T E.164), and is not written behind a zero.
    national = [rf"\(?0\)?{APART}{_spaced(digits[code:])}" for code in (1, 2, 3)]
    # In groups, it must not be the end of a longer number that is written in groups.
    grouped = rf"(?<!\d{_FILLING})(?:\+|00)?{APART}{_spaced(digits)}"
    whole = rf"(?:\+|00)?{digits}"
    return re.compile(rf"(?<!\d)(?:{'|'.join((whole, grouped, *national))})(?!\d)", re.ASCII)


def hint_pattern(digits: str) -> re.Pattern[bytes]:
    """Finds, a good deal faster, what is in every text in which `written_pattern` finds something:
    the last digits, which all forms share. It begins with a character to look for."""
    # What may stand between two of them has three bytes at most, each, in UTF-8 and in Latin-1.
    return re.compile(rb"[^0-9A-Za-z]{0,9}".join(digits[-5:].encode("ascii")[at : at + 1]
                                               for at in range(5)))  # fmt: skip


def _spaced(digits: str) -> str:
    return APART.join(digits)


_ESCAPED: Final = re.compile(r"\\+u([0-9a-fA-F]{4})")
"""More than one where a document is a text of another."""

_LINE_END: Final = re.compile(r"\r?\n|\\n")

_BASE64_LETTERS: Final = r"[A-Za-z0-9+/_-]"

_LONG: Final = 60
"""Digits of base64: a number alone is not sent so, and ids are short."""

_BASE64: Final = re.compile(
    rf"(?<!{_BASE64_LETTERS}){_BASE64_LETTERS}{{{_LONG},}}"
    rf"(?:(?:{_LINE_END.pattern}){_BASE64_LETTERS}+)*",
    re.ASCII,
)

_LETTER_OR_NOT: Final = bytes(
    ord("x" if re.fullmatch(_BASE64_LETTERS, chr(each)) else " ") for each in range(256)
)


def written_out(text: str) -> str:
    """The text, and behind it what it says where characters stand in it as `\\u0032` or `%32`, or a
    document as base64: for patterns, which find a number in either."""
    return "\n".join([text, *_behind(text)])


def is_written_out(content: bytes) -> bool:
    """Whether `written_out` finds nothing behind these bytes, so that they may be looked through as
    they are."""
    return b"%" not in content and b"\\u" not in content and not _has_base64(content)


def _has_base64(content: bytes) -> bool:
    # Asked of every body: a pattern takes a hundred times as long.
    return b"x" * _LONG in content.translate(_LETTER_OR_NOT)


def _behind(text: str) -> Iterator[str]:
    if "\\u" in text:
        yield _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)
    decoded = text
    if "%" in text:
        decoded = unquote_plus(text)
        yield decoded
    if not _has_base64(decoded.encode("utf-8", "replace")):
        return
    for found in _BASE64.finditer(decoded):
        digits = _LINE_END.sub("", found[0]).translate(_FROM_URL)
        whole = digits[:-1] if len(digits) % 4 == 1 else digits
        content = binascii.a2b_base64(whole + "=" * (-len(whole) % 4))
        yield content.decode("utf-8", "replace")


_FROM_URL: Final = str.maketrans("-_", "+/")


class Masking:
    """Hides the phone numbers it was given, and what fields of JSON call a phone, a name, an e-mail
    or an address. Does not show what it hides."""

    __slots__ = ("_patterns",)

    def __init__(self, phones: Iterable[str] = ()) -> None:
        """phones: E.164 digits that are known of the customers whose texts pass here."""
        self._patterns = [(phone_pattern(each), masked_phone(each)) for each in set(phones)]

    def __repr__(self) -> str:
        return "Masking()"

    def text(self, text: str) -> str:
        """The text with each number in its masked form."""
        for pattern, shown in self._patterns:
            text = pattern.sub(shown, text)
        return text

    def touches(self, text: str) -> bool:
        """Whether one of the numbers is in the text."""
        return any(pattern.search(text) for pattern, _ in self._patterns)

    def value(self, value: Any) -> Any:
        """A JSON value, as the standard library reads it, with everything personal masked. A
        number that is masked becomes a text."""
        if isinstance(value, dict):
            return {self.text(name): self._field(name, each) for name, each in value.items()}
        if isinstance(value, list):
            return [self.value(each) for each in value]
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, int) and not isinstance(value, bool) and self.touches(str(value)):
            return self.text(str(value))
        return value

    def _field(self, name: str, value: Any) -> Any:
        word = _NOT_LETTERS.sub("", name.lower().removeprefix("x-"))  # as headers begin
        if any(each in word for each in _PHONE_WORDS):
            return self._each(value, _shown_phone)
        if word in _NAMES or any(each in word for each in _OTHER_WORDS):
            return self._each(value, masked_name)
        return self.value(value)

    def _each(self, value: Any, shown: Callable[[str], str]) -> Any:
        """What is personal by its name, whole or in parts: an address has lines, a name is two."""
        if isinstance(value, dict):
            return {self.text(name): self._each(each, shown) for name, each in value.items()}
        if isinstance(value, list):
            return [self._each(each, shown) for each in value]
        if isinstance(value, str | int) and not isinstance(value, bool):
            return shown(str(value))
        return self.value(value)


def _shown_phone(text: str) -> str:
    digits = re.sub(r"[^0-9]", "", text)
    if digits.startswith("0") or len(digits) < _HIDDEN_AT_LEAST + 3:  # no country code to show
        return f"{3 * DOT}{digits[-2:]}" if digits else masked_name(text)
    return masked_phone(digits)


HIDDEN: Final = "***"

_NOTHING = re.compile(r"(?!)")


class Mask:
    """Hides one phone number (digits), if there is one, and one token. Shows neither itself."""

    __slots__ = ("_phone", "_token")

    def __init__(self, *, phone: str | None, token: str) -> None:
        self._phone = _NOTHING
        if phone:
            self._phone = phone_pattern(phone)
        self._token = token

    def __repr__(self) -> str:
        return "Mask()"

    def hide(self, text: str) -> str:
        """The text with `***` where either was."""
        return self._phone.sub(HIDDEN, text.replace(self._token, HIDDEN))

    def touches(self, text: str) -> bool:
        """Whether either is in the text."""
        return self.hide(text) != text


def plain(text: str) -> str:
    """One line without control, format or unassigned characters."""
    shown = "".join(" " if unicodedata.category(c)[0] in "CZ" else c for c in text)
    return " ".join(shown.split())


def clipped(text: str, limit: int) -> str:
    """At most `limit` characters, the last of them … where something was cut."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
