"""A request to open a session: its checks, bytes and digest, and the meaning of the answer.

    UsageError
    ├── CheckoutRequestError   the request is bad; `problems` has every sentence
    ├── CheckoutConflictError  the order already has another payment
    ├── PaymentNotOverError    an earlier payment can still bring money
    └── OrderCanceledError     the shop has canceled the order
    UnreachableError
    ├── CheckoutDeniedError    the service refuses our token or knows no such address
    └── CheckoutBusyError      too many calls at this moment

No error contains a phone number, a URL or a token.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from app.checkout.session_api import SessionApi
from app.core.errors import UnreachableError, UsageError
from app.core.masking import HIDDEN, Mask, clipped, masked_words, plain
from app.core.reading import Unreadable
from app.core.references import RULE, composed, is_reference
from app.core.strict_json import parse
from app.providers.dates import DATES
from app.providers.fields import is_own_order
from app.providers.paths import find_paths
from reconcile.canonical import canonical_json, fingerprint
from reconcile.instants import Instant
from reconcile.money import Money, MoneyError, from_major, is_currency, major_text

# --- errors ---------------------------------------------------------------------------------------


class CheckoutRequestError(UsageError):
    """Error for a request that cannot be sent. `problems` holds pairs of a field's name and a
    sentence."""

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        super().__init__(" ".join(sentence for _, sentence in problems))
        self.problems = tuple(problems)


class CheckoutConflictError(UsageError):
    """Error for a request that differs from the order's earlier request. Nothing was sent.

    before  money of the earlier request
    asked  money of the present request; can be equal to `before`
    """

    def __init__(self, sentence: str, *, before: Money | None, asked: Money) -> None:
        super().__init__(sentence)
        self.before = before
        self.asked = asked


class PaymentNotOverError(UsageError):
    """Error for a request for a new payment while the earlier one has not ended. Nothing was sent.

    ask_again_at  latest end of the earlier payment, if known
    """

    def __init__(self, sentence: str, *, ask_again_at: Instant | None = None) -> None:
        super().__init__(sentence)
        self.ask_again_at = ask_again_at


class OrderCanceledError(UsageError):
    """Error for a request to pay an order that the shop has canceled. Nothing was sent."""


class CheckoutDeniedError(UnreachableError):
    """Error raised if the payment service refuses our credentials, or if there is no service at the
    address."""


class CheckoutBusyError(UnreachableError):
    """Error for a call that is refused because this process already has too many calls."""


# --- the request ----------------------------------------------------------------------------------

MAX_URL: Final = 2_048
"""Maximum number of characters of a URL. All current browsers and proxies accept URLs of this
length."""


def is_web_address(url: object, *, encrypted: bool = False) -> bool:
    """Return whether a value is an absolute http or https URL without a user name.

    encrypted  whether only https is accepted

    Blanks, backslashes and non-ASCII are refused, because programs disagree about the host then.
    """
    if not isinstance(url, str) or len(url) > MAX_URL:
        return False
    if not (url.isascii() and url.isprintable()) or " " in url or "\\" in url:
        return False
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # raises for a port that is no number
    except ValueError:
        return False
    if not parts.hostname or "@" in parts.netloc:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and not encrypted)


def without_query(url: str) -> str:
    """Return the URL without its query and fragment, because these parts may identify a
    customer."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))


_PHONE = re.compile(r"[1-9]\d{7,14}", re.ASCII)
_AMOUNT = re.compile(r"[+-]?\d{1,19}(\.\d{1,19})?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckoutRequest:
    """The shop's request as it was sent, unchecked. `amount` is in major units; `phone` is an E.164
    number without the plus sign."""

    order: str
    amount: Decimal | int | str
    currency: str
    phone: str | None = field(default=None, repr=False)
    success_url: str | None = field(default=None, repr=False)
    cancel_url: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoundRequest:
    """A request that has passed every check."""

    order: str
    money: Money
    phone: str | None = field(repr=False)
    success_url: str | None = field(repr=False)
    cancel_url: str | None = field(repr=False)


def check_request(
    request: CheckoutRequest, *, live: bool, requires: Collection[str] = ()
) -> SoundRequest:
    """Check the shop's request. Raise one CheckoutRequestError that lists every problem.

    live  whether real money is paid
    requires  optional fields that this payment service requires
    """
    money, problem = _exact(request)
    absent = {name for name in _OPTIONAL if getattr(request, name) is None}.difference(requires)
    found = [each for each in _problems(request, live=live) if each[0] not in absent]
    problems = [*found, *([("amount", problem)] if problem else [])]
    if problems or money is None:
        raise CheckoutRequestError(problems)
    return SoundRequest(
        order=composed(request.order),
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
        yield (
            "order",
            "Give a reference of the shop. A reference that begins with @NAME: belongs to the "
            "source NAME.",
        )
    if not is_currency(request.currency):
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


def _exact(request: CheckoutRequest) -> tuple[Money | None, str]:
    """Return the amount as money, and a sentence that says what is wrong with it, or "".

    The money is None if the amount or the currency is invalid.
    """
    amount = request.amount
    if isinstance(amount, bool) or not isinstance(amount, Decimal | int | str):
        return None, "Give the amount as a decimal number or text, never as a binary float."
    if isinstance(amount, str) and _AMOUNT.fullmatch(amount) is None:
        return None, "Give the amount in major units, such as 1500.00."
    # An unknown currency gets its own sentence. The amount's sign can still be checked with XAF.
    currency = request.currency if is_currency(request.currency) else "XAF"
    try:
        money = from_major(amount, currency)
    except MoneyError as error:
        return None, "" if currency != request.currency else f"Correct the amount: {error}."
    return (money, "") if money.minor > 0 else (None, "Give an amount of more than zero.")


def request_body(request: SoundRequest) -> bytes:
    """Return the JSON to send. Equal requests give equal bytes. The amount is written as an exact
    number such as 1500.00."""
    order = (
        f'{{"reference":{_text(request.order)},"amount":{major_text(request.money)},'
        f'"currency":{_text(request.money.currency)}}}'
    )
    customer = _given(phone=request.phone)
    urls = _given(success=request.success_url, cancel=request.cancel_url)
    parts = [("customer", customer), ("return_urls", urls)]
    rest = "".join(f',"{name}":{part}' for name, part in parts if part != "{}")
    return f'{{"order":{order}{rest}}}'.encode()


def _given(**texts: str | None) -> str:
    found = [f'"{name}":{_text(value)}' for name, value in texts.items() if value is not None]
    return "{" + ",".join(found) + "}"


def phone_in(body: bytes) -> str | None:
    """Return the customer's phone number in a body that `request_body` has built; None if there is
    none."""
    phone: str | None = json.loads(body).get("customer", {}).get("phone")
    return phone


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def request_digest(request: SoundRequest) -> str:
    """Return `sha256:…` of the request in canonical form, with a checksum of the phone number.

    A digest of the whole number would reveal it, because all other parts of the request are stored.
    See README.md.
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
    """Return a checksum of the phone number, from 0 to 255. Return None without a number.

    It detects most changed numbers, and reveals little, because millions of numbers share a
    checksum.
    """
    if phone is None:
        return None
    return hashlib.sha256(b"phone check:" + phone.encode()).digest()[0]


# --- the meaning of an answer ---------------------------------------------------------------------


MAX_DETAILS: Final = 8_192
"""Maximum number of characters of a service's answer that is stored whole with its record."""

MAX_REASON: Final = 300
"""Maximum number of characters of the service's reason that are stored: about three sentences."""

MAX_PROBLEM: Final = 65_536
"""Maximum bytes of a refusal that is searched for a reason. Searching a longer refusal would delay
other requests."""

MAX_REFERENCE: Final = 200
"""Maximum number of characters of the session reference that the service gives."""

RETRY_STATUSES: Final = frozenset({408, 409, 425, 429})
"""HTTP statuses after which the request is repeated with its idempotency key.

The request was too slow (408), still running (409), too early (425), or one of too many (429).
"""

DENIED_STATUSES: Final = frozenset({401, 403, 404, 405, 407})
"""HTTP statuses that concern our credentials or the address, and say nothing about the order."""


HELD_OFF: Final = "asked_to_wait"
"""Code of a call that sent nothing, because the service had asked for a pause."""

NOT_REACHED: Final = frozenset(
    {"connection_failed", "timed_out", "status_502", "status_503", "status_504", HELD_OFF}
)
"""Codes of unclear answers that did not come from the service itself, but from the network, a
gateway or this client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceReply:
    """HTTP answer of the payment service to one request."""

    status: int | None = None
    """HTTP status. None without a complete answer."""
    problem: str | None = None
    """`connection_failed`, `timed_out`, `too_large` or `encoded`. None for a complete answer."""
    body: bytes = field(default=b"", repr=False)
    retry_after: str | None = None
    """Unparsed Retry-After header."""
    date: str | None = None
    """Date header, from which a pause until a date is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The service's answer that the session is open. `details` is the part of the answer to
    store."""

    session: str
    checkout_url: str | None
    expires_at: Instant | None
    details: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRefused:
    """The service's answer that it refuses to open a session. The reason is masked and
    shortened."""

    reason: str
    details: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerUnclear:
    """A missing or unclear answer."""

    code: str
    """Reason from a closed list, such as `timed_out`."""
    wait_s: float = 0.0
    """Seconds that the service asks us to wait."""

    @property
    def reached(self) -> bool:
        """Return whether the service itself answered, and not a gateway in front of it."""
        return self.code not in NOT_REACHED


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    """The service's answer that it refuses our credentials or the address. The answer says nothing
    about the order."""

    status: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryLater:
    """The service's answer that the request should be sent again with its key, after `wait_s`
    seconds."""

    code: str
    wait_s: float = 0.0


Verdict = Opened | SessionRefused | AnswerUnclear | Denied | RetryLater


def judge_reply(
    reply: ServiceReply, *, order: str, api: SessionApi, mask: Mask, lost: bool = False
) -> Verdict:
    """Return what an HTTP answer means for the order's session.

    lost  whether an earlier request may be unanswered; a refusal without a JSON object is then
          unclear
    """
    status = reply.status
    if status is None:
        return RetryLater(code=reply.problem or "connection_failed")
    if status in RETRY_STATUSES or status >= 500:
        return RetryLater(code=f"status_{status}", wait_s=_retry_after(reply))
    if status in DENIED_STATUSES:
        return Denied(status=status)
    if 400 <= status < 500:
        # A service that objects to the key remembers an earlier request with it. That request may
        # have had another body, and may well have opened a session.
        if b"idempoten" in reply.body.lower():
            return AnswerUnclear(code="key_refused")
        # Services refuse with a JSON object, gateways with a page.
        if lost and not isinstance(_document_in(reply.body), dict):
            return AnswerUnclear(code=f"status_{status}")
        return _refused(reply, mask)
    if status not in api.accepted:
        return AnswerUnclear(code=f"status_{status}")
    if reply.problem is not None:
        return AnswerUnclear(code=reply.problem)
    return _opened(reply.body, order=order, api=api, mask=mask)


def _document_in(body: bytes) -> object:
    try:
        return parse(body)
    except Unreadable:
        return None


def _opened(body: bytes, *, order: str, api: SessionApi, mask: Mask) -> Opened | AnswerUnclear:
    try:
        stated = api.read(parse(body))
    except Unreadable:
        return AnswerUnclear(code="not_json")
    session, expires_at = stated.reference, stated.expires_at
    if (
        not isinstance(session, str)
        or not 1 <= len(session) <= MAX_REFERENCE
        or not session.isprintable()
        or mask.touches(session)
    ):
        return AnswerUnclear(code="no_reference")
    if stated.order not in (None, order):
        return AnswerUnclear(code="other_order")
    if expires_at is not None:
        try:
            expires_at = DATES["rfc3339"](expires_at, "expires_at", "+00:00")
        except Unreadable:
            expires_at = None
    checkout_url, details = _web_address(stated.checkout_url), body.decode()
    if len(details) > MAX_DETAILS or mask.touches(details):
        kept = {"session": session, "checkout_url": mask.hide(checkout_url or "")}
        details = canonical_json({"read": kept}).decode()
    return Opened(
        session=session, checkout_url=checkout_url, expires_at=expires_at, details=details
    )


def _web_address(url: object) -> str | None:
    return url if isinstance(url, str) and is_web_address(url) else None


def kept_checkout_url(details: str | None, api: SessionApi) -> str | None:
    """Return the checkout URL in the stored details of an opened session, or None."""
    document = _document_in((details or "").encode())
    url = _web_address(api.read(document).checkout_url) or _web_address(
        find_paths(document, ("read", "checkout_url"))
    )
    return url if url is not None and HIDDEN not in url else None


def _refused(reply: ServiceReply, mask: Mask) -> SessionRefused:
    words = ""
    # `detail`, else `title`, of a problem document (RFC 9457).
    document = _document_in(reply.body) if len(reply.body) <= MAX_PROBLEM else None
    for name in ("title", "detail"):
        found = find_paths(document, (name,))
        if isinstance(found, str) and plain(found):
            words = found
    # `plain` comes first: a number with invisible characters in it would pass the mask.
    words = clipped(masked_words(mask.hide(plain(words))), MAX_REASON)
    details: dict[str, object] = {"status": reply.status, "bytes": len(reply.body)}
    if len(reply.body) <= MAX_DETAILS:
        details["answer"] = mask.hide(plain(reply.body.decode("utf-8", "replace")))
    if not words:
        with suppress(ValueError):  # a status without a phrase
            words = HTTPStatus(reply.status or 0).phrase
        words = f"HTTP {reply.status} {words}".strip()
    return SessionRefused(reason=words, details=canonical_json(details).decode())


def _retry_after(reply: ServiceReply) -> float:
    """Return the seconds that the service asks us to wait.

    A date is compared with the answer's Date header, because our clock may be wrong.
    """
    text = (reply.retry_after or "").strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    try:
        until, now = parsedate_to_datetime(text), parsedate_to_datetime(reply.date or "")
        return max(0.0, (until - now).total_seconds())
    except (ArithmeticError, ValueError, TypeError):  # ArithmeticError: the year is far too large
        return 0.0


_SECONDS = re.compile(r"\d{1,9}", re.ASCII)
