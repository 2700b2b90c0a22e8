"""What can be wrong with being asked to open a session. Each sentence is for the shop's people.

    UsageError
    ├── CheckoutRequestError   the request itself; `problems` has every sentence
    ├── CheckoutConflictError  the order already has another payment; `before` and `asked`
    └── PaymentNotOverError    a new payment, while the earlier one can still bring money
    UnreachableError
    ├── CheckoutDeniedError    the service refuses our token or knows no such address
    └── CheckoutBusyError      too many calls at this moment

None carries a phone number, a URL or a token.
"""

from __future__ import annotations

from collections.abc import Sequence

from app.core.errors import UnreachableError, UsageError
from reconcile.instants import Instant
from reconcile.money import Money


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


class CheckoutDeniedError(UnreachableError):
    """The service does not take our credentials, or there is nothing at our address."""


class CheckoutBusyError(UnreachableError):
    """More calls are under way than one process takes."""
