"""Mask personal data, so that customers can be told apart but not contacted.

Other modules decide who may see the whole text.
"""

import binascii
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Final
from urllib.parse import unquote_plus

DOT: Final = "•"

UNSHOWN: Final = 3 * DOT

_HIDDEN_AT_LEAST: Final = 5
"""Minimum number of digits that a mask hides: each mask fits a hundred thousand numbers."""

_SIGNIFICANT: Final = 8
"""Number of last digits that identify a customer in every notation of a phone number."""

_BETWEEN: Final = r"[ ().-]{0,2}"
"""Pattern of characters between two digits of a phone number. Stored digests depend on it."""

_FILLING: Final = r"[ \t\u00a0\u2000-\u2015\u202a-\u202f\u2060-\u2069\u2212().\-/]"

APART: Final = rf"{_FILLING}{{0,3}}"
"""Pattern of characters between two digits of a known number, with invisible direction marks."""

_SOME_PHONE: Final = re.compile(
    rf"(?<![\w.-])(?:\+|\(?0\)?){_BETWEEN}\d(?:{_BETWEEN}\d){{7,13}}(?!\d)", re.ASCII
)

_NATIONAL: Final = rf"(?:{_BETWEEN}\d){{8,10}}(?!\d)"
"""Pattern of the digits that follow a calling code. Fewer than eight digits are more likely an
amount."""

_NOT_LETTERS: Final = re.compile(r"[^a-z]")

_PHONE_WORDS: Final = ("phone", "msisdn", "mobile")

_OTHER_WORDS: Final = ("email", "address")

_NAMES: Final = frozenset(
    f"{whose}{which}name"
    for whose in ("", "customer", "payer", "buyer", "cardholder", "accountholder", "consumer")
    for which in ("", "first", "middle", "last", "full", "family", "given")
) | {"surname", "cardholder", "accountholder"}

_ROLES: Final = (
    "customer", "payer", "payee", "buyer", "shopper", "consumer", "holder", "recipient", "receiver",
    "beneficiary", "sender", "contact", "consignee", "billing", "shipping",
)  # fmt: skip


def masked_phone(digits: str) -> str:
    """Mask an international phone number, given as E.164 digits, as in `+254 ••• ••• •01`."""
    head = min(3, len(digits) - 2 - _HIDDEN_AT_LEAST)
    hidden = DOT * (len(digits) - head - 2)
    groups = [hidden[at : at + 3] for at in range(0, len(hidden), 3)]
    last = " " if len(groups[-1]) == 3 else ""
    return f"+{digits[:head]} {' '.join(groups)}{last}{digits[-2:]}"


def masked_name(name: str) -> str:
    """Mask a person's name except for the first letter. The mask does not reveal the name's
    length."""
    text = name.strip()
    return text[0] + 3 * DOT if text else ""


def phone_pattern(digits: str) -> re.Pattern[str]:
    """Return a pattern that finds a phone number in any notation.

    It also finds other numbers with the same last eight digits: hiding too many is safer.
    """
    last = _spaced(digits[-_SIGNIFICANT:])
    # The limit keeps the search linear in a long run of digits.
    return re.compile(rf"\+?(?:\d{APART}){{0,7}}{last}", re.ASCII)


def looks_like_a_phone(text: str, countries: Collection[str] = ()) -> bool:
    """Return whether a text contains a phone number as people or M-PESA write it.

    A number follows a plus or a zero, or in M-PESA's texts a calling code (`254712345678`).

    countries  calling codes to look for
    """
    bare = "|".join(countries)
    return _SOME_PHONE.search(text) is not None or (
        bare != "" and re.search(rf"(?<!\d)(?:{bare}){_NATIONAL}", text, re.ASCII) is not None
    )


_TELLING: Final = 3
"""Number of last digits that stay visible. The digits help to tell masked numbers apart, but
identify nobody."""

_MAYBE_PHONE: Final = re.compile(
    rf"(?<!\d)\d(?:{_BETWEEN}\d){{{_SIGNIFICANT - 1},14}}(?!\d)", re.ASCII
)


def without_phones(text: str) -> str:
    """Hide all but the last digits of every possible phone number in a text.

    Call it before computing a digest, from which a number could be guessed.
    """
    return _MAYBE_PHONE.sub(lambda found: DOT + found[0][-_TELLING:], text)


_CODE: Final = r"\d{3}\.\d{3}\.\d{3}(?![\w.-])"

_LOOSE_PHONE: Final = re.compile(
    rf"(?:\+|(?!{_CODE}))(?<!\w)\d(?:{_BETWEEN}\d){{{_SIGNIFICANT - 1},}}", re.ASCII
)


def masked_words(text: str) -> str:
    """Mask a text for storage: hide all but the last digits of every possible phone number.

    Two forms of codes stay: digits after a letter (`DP00800001006`), and groups of three between
    dots (`000.100.110`).
    """
    return _LOOSE_PHONE.sub(lambda found: DOT + found[0][-_TELLING:], text)


_SOME_CODE: Final = re.compile(r"[a-z][a-z0-9_.:-]*|(?=.*[0-9_])[A-Za-z0-9_.:-]+", re.ASCII)


def is_code(reason: str) -> bool:
    """Return whether a provider's reason is a code, such as `insufficient_funds` or `1032`. A
    reason in words may contain a person's name."""
    return _SOME_CODE.fullmatch(reason) is not None and masked_words(reason) == reason


_EMAIL: Final = re.compile(r"(?<![\w.%+-])[\w.%+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+", re.ASCII)

_LOGGED_NUMBER: Final = re.compile(
    rf"\+?\d(?:[ ()]{{0,2}}\d){{{_SIGNIFICANT},}}"
    rf"|(?:\+|(?<!\d)0)(?:{_BETWEEN}\d){{{_SIGNIFICANT},}}",
    re.ASCII,
)
"""Pattern of a phone number in a log: nine or more digits, or eight after a plus or a zero."""

_MAYBE_LOGGED: Final = re.compile(r"\d[\d ().-]{7}|@", re.ASCII)


def masked_reference(reference: str) -> str:
    """Mask a reference for the log. The last digits of a possible phone number and the first letter
    of a mail address stay visible.

    Eight digits without a plus or zero before them can be a date, and are not masked.
    """
    if _MAYBE_LOGGED.search(reference) is None:
        return reference
    if "@" in reference:
        reference = _EMAIL.sub(lambda found: masked_name(found[0]), reference)
    return _LOGGED_NUMBER.sub(lambda found: DOT + found[0][-_TELLING:], reference)


_AT_SIGHT: Final = re.compile(
    rf"(?<![\w.-])(?:(?:\+|\(?0\)?){APART}\d(?:{APART}\d){{7,13}}"
    r"|[1-9]\d{10,14}|[1-9]\d{0,3}(?:[ \u00a0-]\d{2,4}){2,4})(?![\w-]|[.:]\w)",
    re.ASCII,
)

_MORE_THAN_A_DATE: Final = 9
"""Minimum number of digits that are masked. A date such as 2026-11-20 has eight digits, and stays
visible."""


def masked_at_sight(text: str) -> str:
    """Mask phone numbers and mail addresses in a text of unknown content.

    Digits are masked after a plus or a zero, in groups, or if they are at least eleven. Dates,
    seconds and IP addresses stay.
    """

    def shown(found: re.Match[str]) -> str:
        digits = sum(each.isdigit() for each in found[0])
        return found[0] if digits < _MORE_THAN_A_DATE else shown_phone(found[0])

    return _EMAIL.sub(lambda found: masked_name(found[0]), _AT_SIGHT.sub(shown, text))


_ONE_DIGIT: Final = "1 7"
_TWO_DIGITS: Final = (
    "20 27 30 31 32 33 34 36 39 40 41 43 44 45 46 47 48 49 51 52 53 54 55 56 57 58 60 61 62 63 64 "
    "65 66 81 82 84 86 90 91 92 93 94 95 98"
)
_THREE_DIGITS: Final = "21 22 23 24 25 26 29 35 37 38 42 50 59 67 68 69 80 85 87 88 96 97 99"
"""First two digits of the calling codes that have three digits."""

CALLING_CODES: Final = frozenset(
    (
        *_ONE_DIGIT.split(),
        *_TWO_DIGITS.split(),
        *(f"{two}{last}" for two in _THREE_DIGITS.split() for last in range(10)),
    )
)
"""All calling codes that are or can be assigned (ITU-T E.164, annex to Operational Bulletin
994)."""


_LEAST_BARE: Final = 8
"""Minimum number of digits in a national number without its leading zero. A shorter number may be
an amount."""


EMAIL_KIND: Final = "email:"


def written_pattern(identifier: str) -> re.Pattern[str]:
    """Return a pattern that finds exactly this phone number, or this mail address in any case.

    It is stricter than `phone_pattern`, because the text that it finds is deleted.
    """
    if identifier.startswith(EMAIL_KIND):
        address = re.escape(identifier.removeprefix(EMAIL_KIND))
        return re.compile(rf"(?:(?<![\w.%+-])|(?<=\\[nrt])){address}(?![\w-]|\.\w)", re.IGNORECASE)
    digits = identifier
    # A country's code has one to three digits (ITU-T E.164), and no zero before it.
    national = [rf"\(?0\)?{APART}{_spaced(digits[code:])}" for code in (1, 2, 3)]
    # In groups, it must not be the end of a longer number in groups.
    grouped = rf"(?<!\d{_FILLING})(?:\+|00)?{APART}{_spaced(digits)}"
    whole = rf"(?:\+|00)?{digits}"
    forms = [rf"(?<!\d)(?:{'|'.join((whole, grouped, *national))})(?!\d)"]
    bare = next((digits[n:] for n in (1, 2, 3) if digits[:n] in CALLING_CODES), "")
    if len(bare) >= _LEAST_BARE:
        # After another calling code it is a different number, and between letters part of an id.
        others = "".join(rf"(?<!\+\d{{{n}}}{_FILLING})" for n in (1, 2, 3))
        begins = r"(?:(?<![0-9A-Za-z])|(?<=\\[nrt]))"
        grouped = rf"(?<!\d{_FILLING}){_spaced(bare)}"
        forms.append(rf"{begins}{others}(?:{bare}|{grouped})(?![0-9A-Za-z])")
    return re.compile("|".join(forms), re.ASCII)


def hint_pattern(identifier: str) -> re.Pattern[bytes]:
    """Return a fast pattern that finds every match of `written_pattern`, and possibly more."""
    if identifier.startswith(EMAIL_KIND):
        domain = identifier.rpartition("@")[2]
        plain = domain if domain.isascii() else ""  # byte patterns ignore case only in ASCII
        return re.compile(rb"@(?i:%b)" % re.escape(plain.encode("ascii")))
    digits = identifier
    # Each of up to three characters between two digits has three bytes at most in UTF-8.
    return re.compile(rb"[^0-9A-Za-z]{0,9}".join(digits[-5:].encode("ascii")[at : at + 1]
                                               for at in range(5)))  # fmt: skip


def _spaced(digits: str) -> str:
    return APART.join(digits)


_ESCAPED: Final = re.compile(r"\\+u([0-9a-fA-F]{4})")
"""Pattern of an escaped character in JSON. If JSON text is a value in other JSON, several
backslashes precede the `u`."""

_LINE_END: Final = re.compile(r"\r?\n|\\n")

_BASE64_LETTERS: Final = r"[A-Za-z0-9+/_-]"

_LONG: Final = 60
"""Minimum length of base64 text that is decoded. A shorter text is more likely an id."""

_BASE64: Final = re.compile(
    rf"(?<!{_BASE64_LETTERS}){_BASE64_LETTERS}{{{_LONG},}}"
    rf"(?:(?:{_LINE_END.pattern}){_BASE64_LETTERS}+)*",
    re.ASCII,
)

_LETTER_OR_NOT: Final = bytes(
    ord("x" if re.fullmatch(_BASE64_LETTERS, chr(each)) else " ") for each in range(256)
)


def written_out(text: str) -> str:
    r"""Return a text with decoded copies of its escaped (`\u0032`, `%32`) and base64 parts."""
    return "\n".join([text, *_decoded(text)])


def is_written_out(content: bytes) -> bool:
    """Return whether a body has no escaped or base64 parts. Such a body can be searched as it
    is."""
    return b"%" not in content and b"\\u" not in content and not _has_base64(content)


def _has_base64(content: bytes) -> bool:
    # Called for every body: a pattern takes a hundred times as long.
    return b"x" * _LONG in content.translate(_LETTER_OR_NOT)


def _decoded(text: str) -> Iterator[str]:
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


def names_a_phone(field: str) -> bool:
    """Return whether the name of a field or header suggests a phone number."""
    return any(each in field.lower() for each in _PHONE_WORDS)


def names_a_person(field: str, *, within: str) -> bool:
    """Return whether a field probably contains a person's name, judging by field names.

    within  name of the object around the field; `name` alone can be a product's
    """
    word, around = (_NOT_LETTERS.sub("", each.lower()) for each in (field, within))
    if word in _ROLES or (word in _NAMES and word != "name"):
        return True
    return word.endswith("name") and any(each in word or each in around for each in _ROLES)


def is_an_address(field: str) -> bool:
    """Return whether a field's name suggests a postal or mail address."""
    return any(each in field.lower() for each in _OTHER_WORDS)


class Masking:
    """Masking of given phone numbers and words, and of JSON fields with telling names.

    The repr shows none of these.
    """

    __slots__ = ("_patterns", "_words")

    def __init__(self, phones: Iterable[str] = (), *, words: Iterable[str] = ()) -> None:
        """Prepare to mask these phone numbers and words.

        phones  E.164 digits, or mail addresses after `email:`
        words   texts that are hidden completely
        """
        self._patterns = [
            (written_pattern(each), masked_name(each.removeprefix(EMAIL_KIND)))
            if each.startswith(EMAIL_KIND)
            else (phone_pattern(each), masked_phone(each))
            for each in set(phones)
        ]
        self._words = sorted({*words} - {""}, key=lambda each: (-len(each), each))

    def __repr__(self) -> str:
        return "Masking()"

    def text(self, text: str) -> str:
        for word in self._words:
            if text == word:
                return UNSHOWN
            # A single word may also occur in one of our own sentences.
            cited = word if " " in word else f"({word})"
            text = text.replace(cited, cited.replace(word, UNSHOWN))
        for pattern, shown in self._patterns:
            text = pattern.sub(shown, text)
        return text

    def touches(self, text: str) -> bool:
        """Return whether a text contains one of the phone numbers or words."""
        return self.text(text) != text

    def value(self, value: Any) -> Any:
        """Return a JSON value in which all personal data is masked. A masked number becomes a
        text."""
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
        word = _NOT_LETTERS.sub("", name.lower().removeprefix("x-"))  # the prefix of headers
        if names_a_phone(name):
            return self._each(value, shown_phone)
        if word in _NAMES or is_an_address(word):
            return self._each(value, masked_name)
        return self.value(value)

    def _each(self, value: Any, shown: Callable[[str], str]) -> Any:
        if isinstance(value, dict):
            return {self.text(name): self._each(each, shown) for name, each in value.items()}
        if isinstance(value, list):
            return [self._each(each, shown) for each in value]
        if isinstance(value, str | int) and not isinstance(value, bool):
            return shown(str(value))
        return self.value(value)


def shown_phone(text: str) -> str:
    """Mask a text that consists of one phone number in any notation."""
    digits = re.sub(r"[^0-9]", "", text)
    if digits.startswith("0") or len(digits) < _HIDDEN_AT_LEAST + 3:  # no country code to show
        return f"{3 * DOT}{digits[-2:]}" if digits else masked_name(text)
    return masked_phone(digits)


HIDDEN: Final = "***"

_NOTHING = re.compile(r"(?!)")


class Mask:
    """Masking of a token, and of a phone number if one is known. The repr shows neither the token
    nor the number."""

    __slots__ = ("_phone", "_token")

    def __init__(self, *, phone: str | None, token: str) -> None:
        self._phone = _NOTHING
        if phone:
            self._phone = phone_pattern(phone)
        self._token = token

    def __repr__(self) -> str:
        return "Mask()"

    def hide(self, text: str) -> str:
        """Replace the phone number and the token in a text with `***`."""
        return self._phone.sub(HIDDEN, text.replace(self._token, HIDDEN))

    def touches(self, text: str) -> bool:
        """Return whether a text contains the phone number or the token."""
        return self.hide(text) != text


def plain(text: str) -> str:
    """Return a text on one line, without control, format or unassigned characters."""
    shown = "".join(" " if unicodedata.category(c)[0] in "CZ" else c for c in text)
    return " ".join(shown.split())


def clipped(text: str, limit: int) -> str:
    """Cut a text to `limit` characters. A text that was longer ends with `…`."""
    return text if len(text) <= limit else text[: limit - 1] + "…"
