"""A request to open a session: what the shop asks, its checks, its bytes and its digest; and what
can be wrong with being asked, each sentence for the shop's people.

    UsageError
    ├── CheckoutRequestError   the request itself; `problems` has every sentence
    ├── CheckoutConflictError  the order already has another payment; `before` and `asked`
    ├── PaymentNotOverError    a new payment, while the earlier one can still bring money
    └── OrderCanceledError     the shop has canceled the order
    UnreachableError
    ├── CheckoutDeniedError    the service refuses our token or knows no such address
    └── CheckoutBusyError      too many calls at this moment

None carries a phone number, a URL or a token. Leaves out: tokens and keys. A SoundRequest is made
by `checked` only.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from email.utils import parsedate_to_datetime
from fnmatch import fnmatchcase
from http import HTTPStatus
from typing import Final, Literal, TypeGuard, cast
from urllib.parse import SplitResult, urlsplit, urlunsplit

from app.core.errors import UnreachableError, UsageError
from app.core.masking import HIDDEN, Mask, clipped, masked_words, plain
from app.core.reading import Unreadable
from app.core.references import RULE, is_reference
from app.core.strict_json import parse
from app.providers.dates import DATES
from app.providers.fields import is_own_order
from app.providers.paths import JsonPath, compile_path, find_paths
from app.providers.sections import CheckoutRule
from reconcile.canonical import canonical_json, fingerprint
from reconcile.instants import HOUR, SECOND, Duration, Instant
from reconcile.money import Money, MoneyError, from_major, is_currency, major_text

# --- what can be wrong with it --------------------------------------------------------------------


class CheckoutRequestError(UsageError):
    """The request cannot be sent. `problems` holds (field, sentence) for each mistake."""

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        super().__init__(" ".join(sentence for _, sentence in problems))
        self.problems = tuple(problems)


class CheckoutConflictError(UsageError):
    """The order's payment was asked for otherwise before; nothing was sent.

    before, asked  the money of then and of now; equal where something else differs
    """

    def __init__(self, sentence: str, *, before: Money | None, asked: Money) -> None:
        super().__init__(sentence)
        self.before = before
        self.asked = asked


class PaymentNotOverError(UsageError):
    """A new payment was asked for, and the order's earlier one is not over; nothing was sent.

    ask_again_at  when it is over, unless the service says before what became of it; None: nobody
                  knows
    """

    def __init__(self, sentence: str, *, ask_again_at: Instant | None = None) -> None:
        super().__init__(sentence)
        self.ask_again_at = ask_again_at


class OrderCanceledError(UsageError):
    """The shop has canceled the order: what came for it would be owed back. Nothing was sent."""


class CheckoutDeniedError(UnreachableError):
    """The service does not take our credentials, or there is nothing at our address."""


class CheckoutBusyError(UnreachableError):
    """More calls are under way than one process takes."""


# --- the request ----------------------------------------------------------------------------------

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
    reference: JsonPath = ("reference",)
    checkout_url: JsonPath = ("checkout_url",)
    expires_at: JsonPath = ("expires_at",)
    dates: str = "rfc3339"
    order: JsonPath = ("order", "reference")
    key_lifetime: Duration = 24 * HOUR


def answer_form(rule: CheckoutRule) -> AnswerForm:
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
    """The money, or the sentence that says why it is none."""
    amount = request.amount
    if isinstance(amount, bool) or not isinstance(amount, Decimal | int | str):
        return None, "Give the amount as a decimal number or text, never as a binary float."
    if isinstance(amount, str) and _AMOUNT.fullmatch(amount) is None:
        return None, "Give the amount in major units, such as 1500.00."
    # An unknown currency has its own sentence; whether the amount is positive can still be known.
    currency = request.currency if is_currency(request.currency) else "XAF"
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


def start_digest(request: SoundRequest) -> str:
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


# --- from what came back for one request to what it means -----------------------------------------


MAX_DETAILS: Final = 8_192
"""Characters of an answer that are kept beside its record."""

MAX_REASON: Final = 300
"""Characters of the service's own words that are kept: about three sentences."""

MAX_PROBLEM: Final = 65_536
"""Bytes of a refusal that are searched for words; more would only hold up other requests."""

MAX_REFERENCE: Final = 200
"""Characters of the service's reference of a session."""

COME_AGAIN: Final = frozenset({408, 409, 425, 429})
"""The request may be repeated with the same key: too slow, still running, too early, too many."""

NOT_THE_ORDER: Final = frozenset({401, 403, 404, 405, 407})
"""About our credentials or the address we were given, so they say nothing of the order."""


HELD_OFF: Final = "asked_to_wait"
"""Nothing was sent, because the service has asked for no requests until later."""

NOT_REACHED: Final = frozenset(
    {"connection_failed", "timed_out", "status_502", "status_503", "status_504", HELD_OFF}
)
"""Codes that say nothing of the order, because the service was not there to be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back for one request.

    status       None: no whole answer came; `problem` says why
    problem      `connection_failed`, `timed_out`, `too_large`, `encoded`; None: read to its end
    retry_after  the header as it came; `date` the one beside it, which dates a Retry-After
    """

    status: int | None = None
    problem: str | None = None
    body: bytes = field(default=b"", repr=False)
    retry_after: str | None = None
    date: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The service says that the session is open. `details`: its answer, to be kept."""

    session: str
    checkout_url: str | None
    expires_at: Instant | None
    details: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRefused:
    """The service says that it will not. `reason`: its words, harmless and bounded."""

    reason: str
    details: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerUnclear:
    """What the service did cannot be known. `code` from a closed list, such as `timed_out`.
    `wait_s`: for how long the service has asked for no requests at all."""

    code: str
    wait_s: float = 0.0

    @property
    def reached(self) -> bool:
        """Whether the service itself answered; a gateway that does not find it is not it."""
        return self.code not in NOT_REACHED


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    """Our credentials or address are wrong; says nothing of the order."""

    status: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ComeAgain:
    """Repeat with the same key, after at least `wait_s` seconds."""

    code: str
    wait_s: float = 0.0


Judged = Opened | SessionRefused | AnswerUnclear | Denied | ComeAgain


def judge(reply: Reply, *, order: str, form: AnswerForm, mask: Mask, lost: bool = False) -> Judged:
    """What one answer means for the session of `order`.

    lost  whether the service may have had a request with this key before, whose answer did not
          come: then a refusal that is not in its own form may be of somebody between us
    """
    status = reply.status
    if status is None:
        return ComeAgain(code=reply.problem or "connection_failed")
    if status in COME_AGAIN or status >= 500:
        return ComeAgain(code=f"status_{status}", wait_s=_retry_after(reply))
    if status in NOT_THE_ORDER:
        return Denied(status=status)
    if 400 <= status < 500:
        if _is_about_the_key(reply):
            return AnswerUnclear(code="key_refused")
        if lost and not _is_a_document(reply.body):
            return AnswerUnclear(code=f"status_{status}")
        return _refused(reply, mask)
    if status not in form.accepted:
        return AnswerUnclear(code=f"status_{status}")
    if reply.problem is not None:
        return AnswerUnclear(code=reply.problem)
    return _opened(reply.body, order=order, form=form, mask=mask)


# --- opened --------------------------------------------------------------------------------------


def _opened(body: bytes, *, order: str, form: AnswerForm, mask: Mask) -> Opened | AnswerUnclear:
    try:
        document = parse(body)
    except Unreadable:
        return AnswerUnclear(code="not_json")
    session = find_paths(document, form.reference)
    if not _is_reference(session) or mask.touches(session):
        return AnswerUnclear(code="no_reference")
    if find_paths(document, form.order) not in (None, order):
        return AnswerUnclear(code="other_order")
    opened = Opened(
        session=session,
        checkout_url=_checkout_url(document, form),
        expires_at=_expires_at(document, form),
        details="",
    )
    return _with_details(opened, body.decode(), mask=mask)


def _is_reference(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and 1 <= len(value) <= MAX_REFERENCE and value.isprintable()


def _checkout_url(document: object, form: AnswerForm) -> str | None:
    """A customer is sent there: what is not plainly a URL of the web is dropped."""
    url = find_paths(document, form.checkout_url)
    return url if isinstance(url, str) and is_web_address(url) else None


def _expires_at(document: object, form: AnswerForm) -> Instant | None:
    value = find_paths(document, form.expires_at)
    try:
        return None if value is None else DATES[form.dates](value, "expires_at", "+00:00")
    except Unreadable:
        return None


def _with_details(opened: Opened, text: str, *, mask: Mask) -> Opened:
    """The answer verbatim; what we read of it where that is too long or hides something."""
    if len(text) > MAX_DETAILS or mask.touches(text):
        kept = {"session": opened.session, "checkout_url": mask.hide(opened.checkout_url or "")}
        text = canonical_json({"read": kept}).decode()
    return Opened(
        session=opened.session,
        checkout_url=opened.checkout_url,
        expires_at=opened.expires_at,
        details=text,
    )


def kept_checkout_url(details: str | None, form: AnswerForm) -> str | None:
    """The checkout URL from the details of a session that was opened earlier."""
    try:
        document = parse((details or "").encode())
    except Unreadable:
        return None
    url = _checkout_url(document, form) or find_paths(document, ("read", "checkout_url"))
    return url if isinstance(url, str) and is_web_address(url) and HIDDEN not in url else None


# --- refused, and come again ---------------------------------------------------------------------


def _is_about_the_key(reply: Reply) -> bool:
    """Whether the service objects to the idempotency key, such as to its use with another body.

    Then it remembers an earlier request with this key, which may well have opened a session.
    """
    return b"idempoten" in reply.body.lower()


def _is_a_document(body: bytes) -> bool:
    """Whether it is a JSON object, as services refuse by; what stands before them writes pages."""
    try:
        return isinstance(parse(body), dict)
    except Unreadable:
        return False


def _refused(reply: Reply, mask: Mask) -> SessionRefused:
    # Made plain first: a number with invisible characters in it would pass the mask.
    words = clipped(masked_words(mask.hide(plain(_words(reply.body)))), MAX_REASON)
    details: dict[str, object] = {"status": reply.status, "bytes": len(reply.body)}
    if len(reply.body) <= MAX_DETAILS:
        details["answer"] = mask.hide(plain(reply.body.decode("utf-8", "replace")))
    return SessionRefused(
        reason=words or f"HTTP {reply.status} {_phrase(reply.status)}".strip(),
        details=canonical_json(details).decode(),
    )


def _words(body: bytes) -> str:
    """`detail`, else `title`, of a problem document (RFC 9457)."""
    if len(body) > MAX_PROBLEM:
        return ""
    try:
        document = parse(body)
    except Unreadable:
        return ""
    for name in ("detail", "title"):
        words = find_paths(document, (name,))
        if isinstance(words, str) and plain(words):
            return words
    return ""


def _phrase(status: int | None) -> str:
    try:
        return HTTPStatus(status or 0).phrase
    except ValueError:
        return ""


def _retry_after(reply: Reply) -> float:
    """Seconds that the service asks us to wait: its number, or its date less its own date.

    Our clock takes no part: the two machines need not agree on what time it is.
    """
    text = (reply.retry_after or "").strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    try:
        until, now = parsedate_to_datetime(text), parsedate_to_datetime(reply.date or "")
        return max(0.0, (until - now).total_seconds())
    except (ArithmeticError, ValueError, TypeError):  # the first of a year that is far too large
        return 0.0


_SECONDS = re.compile(r"\d{1,9}", re.ASCII)
