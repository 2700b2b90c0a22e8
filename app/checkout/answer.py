"""From what came back for one request to what it means. Pure: no request is made here.

    Heard  ──judge──▶  Opened | Refused | Unclear | Denied | ComeAgain

Only an answer that names a session opens one, and only a refusal of the order's own request
refuses it. Everything else leaves open what the service did: never "failed".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final, TypeGuard

from app.checkout.mask import HIDDEN, Mask, clipped, plain
from app.checkout.request import AnswerForm, is_web_address
from app.core.reading import Unreadable
from app.core.strict_json import parse
from app.providers.dates import DATES
from app.providers.paths import find
from reconcile.canonical import canonical_json
from reconcile.instants import Instant

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


NOT_REACHED: Final = frozenset(
    {"connection_failed", "timed_out", "status_502", "status_503", "status_504"}
)
"""Codes that say nothing of the order, because the service was not there to be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
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
class Refused:
    """The service says that it will not. `reason`: its words, harmless and bounded."""

    reason: str
    details: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unclear:
    """What the service did cannot be known. `code` from a closed list, such as `timed_out`."""

    code: str

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


Judged = Opened | Refused | Unclear | Denied | ComeAgain


def judge(heard: Heard, *, order: str, form: AnswerForm, mask: Mask) -> Judged:
    """What one answer means for the session of `order`."""
    status = heard.status
    if status is None:
        return ComeAgain(code=heard.problem or "connection_failed")
    if status in COME_AGAIN or status >= 500:
        return ComeAgain(code=f"status_{status}", wait_s=_retry_after(heard))
    if status in NOT_THE_ORDER:
        return Denied(status=status)
    if 400 <= status < 500:
        return Unclear(code="key_refused") if _is_about_the_key(heard) else _refused(heard, mask)
    if status not in form.accepted:
        return Unclear(code=f"status_{status}")
    if heard.problem is not None:
        return Unclear(code=heard.problem)
    return _opened(heard.body, order=order, form=form, mask=mask)


# --- opened --------------------------------------------------------------------------------------


def _opened(body: bytes, *, order: str, form: AnswerForm, mask: Mask) -> Opened | Unclear:
    try:
        document = parse(body)
    except Unreadable:
        return Unclear(code="not_json")
    session = find(document, form.reference)
    if not _is_reference(session) or mask.touches(session):
        return Unclear(code="no_reference")
    if find(document, form.order) not in (None, order):
        return Unclear(code="other_order")
    opened = Opened(
        session=session,
        checkout_url=_checkout_url(document, form),
        expires_at=_expires_at(document, form),
        details="",
    )
    return _with_details(opened, body.decode(), form=form, mask=mask)


def _is_reference(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and 1 <= len(value) <= MAX_REFERENCE and value.isprintable()


def _checkout_url(document: object, form: AnswerForm) -> str | None:
    """A customer is sent there: what is not plainly a URL of the web is dropped."""
    url = find(document, form.checkout_url)
    return url if isinstance(url, str) and is_web_address(url) else None


def _expires_at(document: object, form: AnswerForm) -> Instant | None:
    value = find(document, form.expires_at)
    try:
        return None if value is None else DATES[form.dates](value, "expires_at", "+00:00")
    except Unreadable:
        return None


def _with_details(opened: Opened, text: str, *, form: AnswerForm, mask: Mask) -> Opened:
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
    url = _checkout_url(document, form) or find(document, ("read", "checkout_url"))
    return url if isinstance(url, str) and is_web_address(url) and HIDDEN not in url else None


# --- refused, and come again ---------------------------------------------------------------------


def _is_about_the_key(heard: Heard) -> bool:
    """Whether the service objects to the idempotency key, such as to its use with another body.

    Then it remembers an earlier request with this key, which may well have opened a session.
    """
    return b"idempoten" in heard.body.lower()


def _refused(heard: Heard, mask: Mask) -> Refused:
    # Made plain first: a number with invisible characters in it would pass the mask.
    words = clipped(mask.hide(plain(_words(heard.body))), MAX_REASON)
    details: dict[str, object] = {"status": heard.status, "bytes": len(heard.body)}
    if len(heard.body) <= MAX_DETAILS:
        details["answer"] = mask.hide(plain(heard.body.decode("utf-8", "replace")))
    return Refused(
        reason=words or f"HTTP {heard.status} {_phrase(heard.status)}".strip(),
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
        words = find(document, (name,))
        if isinstance(words, str) and plain(words):
            return words
    return ""


def _phrase(status: int | None) -> str:
    try:
        return HTTPStatus(status or 0).phrase
    except ValueError:
        return ""


def _retry_after(heard: Heard) -> float:
    """Seconds that the service asks us to wait: its number, or its date less its own date.

    Our clock takes no part: the two machines need not agree on what time it is.
    """
    text = (heard.retry_after or "").strip()
    if _SECONDS.fullmatch(text):
        return float(text)
    try:
        until, now = parsedate_to_datetime(text), parsedate_to_datetime(heard.date or "")
        return max(0.0, (until - now).total_seconds())
    except (ValueError, TypeError):
        return 0.0


_SECONDS = re.compile(r"\d{1,9}", re.ASCII)
