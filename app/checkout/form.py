"""How one payment service writes session requests and answers: data, from a profile's [checkout].

Leaves out: everything the services agree on (bearer token, `Idempotency-Key`, problem+json).
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal, cast

from app.providers.paths import Path, compile_path
from app.providers.sections import CheckoutRule
from reconcile.instants import HOUR, SECOND, Duration

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
