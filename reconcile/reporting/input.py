"""What a report is made from, one order or break at a time.

Leaves out: where it comes from. Whoever gathers it gives every order, line and break once, in any
order; nothing here is kept.
"""

from __future__ import annotations

from reconcile.instants import Instant
from reconcile.ledger.ledger import Outcome
from reconcile.matching.books import StatementLine
from reconcile.matching.breaks import Break
from reconcile.matching.ledger_lines import Taking
from reconcile.values import frozen


@frozen
class OrderSeen:
    """One order with the statement lines that are its own; `taking` is None for lines that no
    ledger knows of."""

    taking: Taking | None
    lines: tuple[StatementLine, ...] = ()


@frozen
class BreakSeen:
    """One break, what people made of it, and its words.

    state  `open`, `assigned` or `accepted`
    """

    found: Break
    state: str
    sentence: str
    next_step: str


@frozen
class ChangeSeen:
    """An order whose published outcome differs between the period's start and its end.

    at       when the last revision in the period was published, and `because` its sentences
    before   what was published last before the start
    """

    order: str
    at: Instant
    before: Outcome
    after: Outcome
    because: tuple[str, ...]
