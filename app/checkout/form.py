"""How one payment service writes session requests and answers: data, so that a profile can say it.

Leaves out: everything the services agree on (bearer token, `Idempotency-Key`, problem+json).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from reconcile.instants import HOUR, Duration

Path = tuple[str, ...]
"""Names from the document's root to a field: ("data", "id")."""

AmountForm = Literal["major_number", "major_text", "minor_number"]
"""1500.00, "1500.00" or 150000 for KES 1,500.00."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerForm:
    """The defaults are the service's own document, which the simulated provider speaks.

    path          where sessions are opened, after the base URL
    amount        how the request writes money
    accepted      HTTP statuses that say the session is open
    reference     the service's reference of the session
    checkout_url  where the customer pays; may be absent
    expires_at    RFC 3339; may be absent
    order         the order's reference, where the answer repeats it: it must then be ours
    key_lifetime  how long the service remembers an idempotency key. After that the same key
                  would open a second session, so nothing is sent any more. 24 hours is the
                  shortest that any service publishes
    """

    path: str = "/api/v1/checkout/sessions"
    amount: AmountForm = "major_number"
    accepted: frozenset[int] = frozenset({200, 201})
    reference: Path = ("reference",)
    checkout_url: Path = ("checkout_url",)
    expires_at: Path = ("expires_at",)
    order: Path = ("order", "reference")
    key_lifetime: Duration = 24 * HOUR


def value_at(document: object, path: Path) -> object:
    """The value at the path, or None where there is none."""
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document


def with_value(document: dict[str, object], path: Path, value: object) -> None:
    """Put a value at the path, making the objects that lead to it."""
    for name in path[:-1]:
        inner = document.setdefault(name, {})
        assert isinstance(inner, dict), "two paths of a form contradict each other"
        document = inner
    document[path[-1]] = value
