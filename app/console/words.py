"""Words, money and moments as pages show them: filters of the templates.

Leaves out: what is said of an order; those sentences are the engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Any, Final
from urllib.parse import quote

from markupsafe import Markup, escape

from app.console.view import FORMS
from reconcile.instants import Duration, Instant, format_instant, parse_instant

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

TONES: Final[Mapping[str, str]] = {
    "succeeded": "good",
    "authorized": "wait",
    "pending": "wait",
    "not_attempted": "quiet",
    "unresolved": "look",
    "disputed": "look",
    "charged_back": "bad",
    "failed": "bad",
    "canceled": "quiet",
    "expired": "quiet",
    "timed_out": "quiet",
    "refunded": "back",
    "partially_refunded": "back",
    "stored": "good",
    "duplicate": "quiet",
    "duplicate_with_different_body": "look",
    "unreadable": "bad",
    "delivered": "good",
    "waiting": "wait",
    "dead": "bad",
    "info": "quiet",
    "warning": "look",
    "error": "bad",
}
"""How a word is coloured; its sign and its text say the same without colour."""

SIGNS: Final[Mapping[str, str]] = {
    "good": "✓", "wait": "…", "look": "!", "bad": "✕", "back": "↩", "quiet": "–",
}  # fmt: skip

VERDICTS: Final[Mapping[str, str]] = {
    "stored": "Taken: its signature is right, and it is kept.",
    "duplicate": "The same event once more; it counts once.",
    "duplicate_with_different_body": "An event id that came before, with other content: both are "
    "kept, and a person must look.",
    "unreadable": "Genuine, and not to be read by the source's profile: correct the profile.",
    "signature_missing": "Refused: no signature came with it.",
    "signature_mismatch": "Refused: its signature fits none of the source's secrets.",
    "timestamp_missing": "Refused: it does not say when it was signed.",
    "timestamp_too_old": "Refused: it was signed too long ago.",
    "timestamp_too_new": "Refused: it was signed in the future; look at the clocks.",
    "source_unknown": "Refused: no source of this name is configured.",
    "body_too_large": "Refused: it is larger than is taken.",
    "wrong_environment": "Refused: it is of the other environment.",
    "wrong_account": "Refused: it is of another account of the provider.",
}
"""What each verdict means, in one sentence."""

OUTCOMES: Final[Mapping[str, str]] = {
    "succeeded": "The money has arrived.",
    "authorized": "The money is reserved at the provider and not taken yet.",
    "pending": "The payment is still under way.",
    "failed": "The payment was declined. No money arrived.",
    "canceled": "The payment was canceled. No money arrived.",
    "expired": "The payment expired before it was made. No money arrived.",
    "timed_out": "No final word on the payment came in time. No money has arrived so far.",
    "not_attempted": "No payment has been started.",
    "refunded": "The money was given back.",
    "partially_refunded": "A part of the money was given back.",
    "disputed": "The payment is disputed at the customer's bank, and that is not decided yet.",
    "charged_back": "The payment was lost in a dispute: the money went back.",
    "unresolved": "What arrived does not fit the order; a person must settle it.",
}
"""What each outcome means, in a sentence that can be read to a customer."""


def badge(word: str) -> Markup:
    """A word of the vocabulary with its sign."""
    tone = TONES.get(word, "bad")
    sign, said = SIGNS[tone], word.replace("_", " ")
    return Markup('<span class="badge {}"><span aria-hidden="true">{}</span> {}</span>').format(
        tone, sign, said
    )


def major(amount: str) -> str:
    """An amount with its thousands apart."""
    return f"{Decimal(amount):,}"


def money(value: Mapping[str, Any] | None) -> Markup:
    """An amount of money, its currency quieter; a dash where none is known."""
    if value is None:
        return Markup('<span class="none">—</span>')
    shown = Markup('<span class="money"><small>{}</small> {}</span>')
    return shown.format(value["currency"], major(value["amount"]))


def plain_money(value: Mapping[str, Any]) -> str:
    """The same in a sentence."""
    return f"{value['currency']} {major(value['amount'])}"


def moment_in(zone: tzinfo) -> Callable[[str | None], Markup]:
    """The filter that shows an RFC 3339 moment in a zone, with UTC in its title."""

    def moment(value: str | None) -> Markup:
        if value is None:
            return Markup('<span class="none">—</span>')
        local = datetime.fromisoformat(value).astimezone(zone)
        shown = Markup('<time datetime="{}" title="{} UTC"><span class="day">{}</span> {}</time>')
        utc = value.replace("T", " ").rstrip("Z")
        return shown.format(value, utc, f"{local:%Y-%m-%d}", f"{local:%H:%M:%S}")

    return moment


def shifted(instant: Instant, zone: tzinfo) -> Instant:
    """An instant that UTC writes as this zone writes the given one."""
    moment = _EPOCH + timedelta(microseconds=instant)
    offset = moment.astimezone(zone).utcoffset() or timedelta()
    return instant + Duration(offset // timedelta(microseconds=1))


def parsed(moment: str) -> Instant:
    """The instant of a document's moment."""
    return parse_instant(moment)


def clock_time(instant: Instant, zone: tzinfo) -> str:
    """Hours and minutes in a zone."""
    return format_instant(shifted(instant, zone))[11:16]


def address(kind: str, name: str, form: str = "") -> str:
    """The address of one thing's page. A name that ends as a form does is told from one."""
    ending = f".{form}" if form else ""
    if not form and name.rpartition(".")[2] in FORMS:
        ending = ".html"
    return f"/{kind}/{quote(name, safe='')}{ending}"


def size(count: int) -> str:
    """Bytes for people."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 10_240 or unit == "GiB":
            return f"{count:,} {unit}"
        count //= 1024
    raise AssertionError


def marked(value: object) -> str:
    """A code as words."""
    return str(escape(str(value).replace("_", " ")))
