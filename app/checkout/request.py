"""A request to open a session: what the shop asks, its checks, its bytes and its digest.

Leaves out: tokens and keys. A SoundRequest is made by `checked` only.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Final, Literal, cast
from urllib.parse import SplitResult, urlsplit, urlunsplit

from app.checkout.faults import CheckoutRequestError
from app.core.references import RULE, is_reference
from app.providers.fields import is_own_order
from app.providers.paths import Path, compile_path
from app.providers.sections import CheckoutRule
from reconcile.canonical import fingerprint
from reconcile.instants import HOUR, SECOND, Duration
from reconcile.money import Money, MoneyError, exponent_of, from_major, major_text

MAX_URL: Final = 2_048
"""Characters of a URL; what every browser and proxy in use takes."""


def is_web_address(url: object, *, encrypted: bool = False) -> bool:
    """Whether this is an absolute http or https URL (`encrypted`: https) without a user in it.

    Blanks, backslashes and anything but printable ASCII are refused: browsers and libraries
    disagree about the host of such a URL.
    """
    if not isinstance(url, str) or len(url) > MAX_URL:
        return False
    if not (url.isascii() and url.isprintable()) or " " in url or "\\" in url:
        return False
    parts = _split(url)
    if parts is None or not parts.hostname or "@" in parts.netloc:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and not encrypted)


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # raises for a port that is no number
    except ValueError:
        return None
    return parts


def without_query(url: str) -> str:
    """The URL up to its path: queries and fragments carry what belongs to one customer."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))


AmountForm = Literal["major_number", "major_text", "minor_number"]
"""1500.00, "1500.00" or 150000 for KES 1,500.00."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerForm:
    """The defaults are the service's own document, which the simulated provider speaks.

    path          where sessions are opened, after the base URL
    amount        how the request writes money
    requires      of `phone`, `success_url` and `cancel_url` those that a request must have
    accepted      HTTP statuses that say the session is open
    reference     the service's reference of the session
    checkout_url  where the customer pays; may be absent
    expires_at    written as `dates` says; may be absent
    order         the order's reference, where the answer repeats it: it must then be ours
    key_lifetime  how long the service remembers an idempotency key. After that the same key
                  would open a second session, so nothing is sent any more. 24 hours is the
                  shortest that any service publishes
    """

    path: str = "/api/v1/checkout/sessions"
    amount: AmountForm = "major_number"
    requires: frozenset[str] = frozenset()
    accepted: frozenset[int] = frozenset({200, 201})
    reference: Path = ("reference",)
    checkout_url: Path = ("checkout_url",)
    expires_at: Path = ("expires_at",)
    dates: str = "rfc3339"
    order: Path = ("order", "reference")
    key_lifetime: Duration = 24 * HOUR


def form_of(rule: CheckoutRule) -> AnswerForm:
    """What a profile says of its service."""
    return AnswerForm(
        path=rule.path,
        amount=cast("AmountForm", rule.amount),
        requires=frozenset(rule.requires),
        accepted=frozenset(rule.accepted),
        reference=compile_path(rule.reference),
        checkout_url=compile_path(rule.checkout_url),
        expires_at=compile_path(rule.expires_at),
        dates=rule.dates,
        order=compile_path(rule.order),
        key_lifetime=rule.key_lifetime_s * SECOND,
    )


def token_is_foreign(token: str, rule: CheckoutRule, *, environment: str) -> bool:
    """Whether the token looks like one of the other environment."""
    foreign = rule.sandbox_tokens if environment == "live" else rule.live_tokens
    return any(fnmatchcase(token.lower(), pattern.lower()) for pattern in foreign)


_PHONE = re.compile(r"[1-9]\d{7,14}", re.ASCII)
_AMOUNT = re.compile(r"[+-]?\d{1,19}(\.\d{1,19})?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckoutRequest:
    """What the shop asks, as it came. `amount` is in major units; `phone` E.164 without the +."""

    order: str
    amount: Decimal | int | str
    currency: str
    phone: str | None = field(default=None, repr=False)
    success_url: str | None = field(default=None, repr=False)
    cancel_url: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoundRequest:
    """A request that passed every check."""

    order: str
    money: Money
    phone: str | None = field(repr=False)
    success_url: str | None = field(repr=False)
    cancel_url: str | None = field(repr=False)


def checked(
    request: CheckoutRequest, *, live: bool, requires: frozenset[str] = frozenset()
) -> SoundRequest:
    """The request, sound. Raises CheckoutRequestError with every problem at once.

    requires  of `phone`, `success_url` and `cancel_url` those that the service insists on
    """
    money, problem = _exact(request)
    absent = {name for name in _OPTIONAL if getattr(request, name) is None} - requires
    found = [each for each in _problems(request, live=live) if each[0] not in absent]
    problems = [*found, *([("amount", problem)] if problem else [])]
    if problems or money is None:
        raise CheckoutRequestError(problems)
    return SoundRequest(
        order=request.order,
        money=money,
        phone=request.phone,
        success_url=request.success_url,
        cancel_url=request.cancel_url,
    )


_OPTIONAL: Final = ("phone", "success_url", "cancel_url")


def _problems(request: CheckoutRequest, *, live: bool) -> Iterator[tuple[str, str]]:
    if not is_reference(request.order):
        yield "order", f"Give the order's reference: {RULE}."
    elif is_own_order(request.order):
        yield "order", "Give an order of the shop's; @name: begins those of a source's own."
    if not _is_currency(request.currency):
        yield "currency", "Give a currency code of ISO 4217 in capitals, such as KES."
    if not isinstance(request.phone, str) or _PHONE.fullmatch(request.phone) is None:
        yield (
            "phone",
            "Give the customer's phone number as 8 to 15 digits, country code first, no +.",
        )
    kind = "https" if live else "http or https"
    for name in ("success_url", "cancel_url"):
        if not is_web_address(getattr(request, name), encrypted=live):
            yield name, f"Give {name} as an absolute {kind} URL without a user in it."


def _is_currency(value: object) -> bool:
    try:
        return isinstance(value, str) and exponent_of(value) >= 0
    except MoneyError:
        return False


def _exact(request: CheckoutRequest) -> tuple[Money | None, str]:
    """The money, or the sentence that says why it is none."""
    amount = request.amount
    if isinstance(amount, bool) or not isinstance(amount, Decimal | int | str):
        return None, "Give the amount as a decimal number or text, never as a binary float."
    if isinstance(amount, str) and _AMOUNT.fullmatch(amount) is None:
        return None, "Give the amount in major units, such as 1500.00."
    # An unknown currency has its own sentence; whether the amount is positive can still be told.
    currency = request.currency if _is_currency(request.currency) else "XAF"
    try:
        money = from_major(amount, currency)
    except MoneyError as error:
        return None, "" if currency != request.currency else f"Mend the amount: {error}."
    return (money, "") if money.minor > 0 else (None, "Give an amount of more than zero.")


def body_of(request: SoundRequest, *, amount: AmountForm) -> bytes:
    """The JSON that is sent; for one request always the same bytes.

    Written by hand because the amount must be an exact number (1500.00), which `json` cannot
    write without making it a binary float.
    """
    money = request.money
    order = (
        f'{{"reference":{_text(request.order)},"amount":{_amount(money, amount)},'
        f'"currency":{_text(money.currency)}}}'
    )
    customer = _given(phone=request.phone)
    urls = _given(success=request.success_url, cancel=request.cancel_url)
    parts = [("customer", customer), ("return_urls", urls)]
    rest = "".join(f',"{name}":{part}' for name, part in parts if part != "{}")
    return f'{{"order":{order}{rest}}}'.encode()


def _given(**texts: str | None) -> str:
    """The JSON object of those that are there."""
    found = [f'"{name}":{_text(value)}' for name, value in texts.items() if value is not None]
    return "{" + ",".join(found) + "}"


def phone_in(body: bytes) -> str | None:
    """The customer's phone number in what `body_of` wrote."""
    phone: str | None = json.loads(body).get("customer", {}).get("phone")
    return phone


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _amount(money: Money, form: AmountForm) -> str:
    if form == "minor_number":
        return str(money.minor)
    return major_text(money) if form == "major_number" else _text(major_text(money))


def digest_of(request: SoundRequest) -> str:
    """`sha256:…` of the request in canonical form, the phone number only as its check.

    A digest over the number itself would give it away: everything else in the body stands beside
    the digest, and 10^9 numbers are tried in minutes. See README.md.
    """
    return fingerprint(
        {
            "order": {"reference": request.order, "minor": request.money.minor},
            "currency": request.money.currency,
            "phone_check": phone_check(request.phone),
            "return_urls": {"success": request.success_url, "cancel": request.cancel_url},
        }
    )


def phone_check(phone: str | None) -> int | None:
    """One of 256 values, or None without a number: tells 255 of 256 other numbers apart, and fits
    millions of numbers.

    The same for every order of one customer, so that several orders tell no more than one does.
    """
    if phone is None:
        return None
    return hashlib.sha256(b"phone check:" + phone.encode()).digest()[0]
