"""Format numbers and dates on pages in the reader's locale."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Final

from jinja2 import Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Locale:
    """Rules for writing numbers and dates in one language."""

    name: str
    group: str
    """Separator of thousands."""
    decimal: str
    """Decimal separator."""
    day: str
    """Format of a day for `strftime`."""


ENGLISH: Final = Locale(name="en", group=",", decimal=".", day="%Y-%m-%d")

LOCALES: Final = {
    each.name: each
    for each in (
        ENGLISH,
        Locale(name="de", group=".", decimal=",", day="%d.%m.%Y"),
        Locale(name="fr", group="\u202f", decimal=",", day="%d/%m/%Y"),
        Locale(name="sw", group=",", decimal=".", day="%d/%m/%Y"),
    )
}
"""The known locales by language code, from Unicode's CLDR."""

MOST_LANGUAGES: Final = 20
"""Maximum number of languages that are read from an Accept-Language header."""

_SHOWN: Final = ContextVar("locale", default=ENGLISH)


def locale_of(accepted: str) -> Locale:
    """Return the locale that an Accept-Language header prefers (RFC 9110, section 12.5.4)."""
    wanted = list[tuple[float, int, str]]()
    for place, part in enumerate(accepted.split(",")[:MOST_LANGUAGES]):
        tag, _, weight = part.partition(";q=")
        try:
            wanted.append((-float(weight or 1), place, tag.strip().partition("-")[0].lower()))
        except ValueError:
            continue
    return next((LOCALES[tag] for _, _, tag in sorted(wanted) if tag in LOCALES), ENGLISH)


@contextmanager
def shown_in(locale: Locale) -> Iterator[None]:
    """Format numbers and dates in the given locale inside the `with` block."""
    token = _SHOWN.set(locale)
    try:
        yield
    finally:
        _SHOWN.reset(token)


def shown_locale() -> Locale:
    return _SHOWN.get()


def local_number(value: int | Decimal) -> str:
    locale, text = _SHOWN.get(), f"{value:,}"
    if locale.group == ",":
        return text
    return locale.decimal.join(part.replace(",", locale.group) for part in text.split("."))


def local_day(value: date) -> str:
    return f"{value:{_SHOWN.get().day}}"


class _Number(int):
    """Integer whose `{:,}` format uses the locale's separators."""

    def __format__(self, form: str) -> str:
        return local_number(int(self)) if form == "," else super().__format__(form)


class LocalEnvironment(Environment):
    """Template environment in which `"{:,}".format(…)` uses the locale's separators."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        if attribute == "format" and isinstance(obj, str):

            def local(*values: Any, **named: Any) -> str:
                numbers = (_Number(each) if type(each) is int else each for each in values)
                return obj.format(*numbers, **named)

            return local
        return super().getattr(obj, attribute)
