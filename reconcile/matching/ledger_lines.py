"""What a ledger contributes to a reconciliation: one order's money, and what is odd about it.

Leaves out: everything that explains. A taking is small, so that a million can stream past; whoever
wants to know why reads the ledger.
"""

from __future__ import annotations

from reconcile.instants import Instant
from reconcile.ledger.ledger import EntryKind, FindingCode, Outcome
from reconcile.money import Money
from reconcile.values import frozen


@frozen
class Taken:
    """One movement of money, as the ledger entered it; what went back is negative.

    at           the provider's date
    received_at  when we first knew of it
    cites        the event ids that it rests on
    """

    kind: EntryKind
    source: str
    payment: str
    minor: int
    currency: str
    at: Instant
    received_at: Instant
    cites: tuple[str, ...]


@frozen
class Doubted:
    """A payment in doubt: nothing of it counts as sure.

    unsure  the kinds of its movements of which no one amount is known
    cites   the event ids that its movements rest on
    """

    source: str
    payment: str
    unsure: tuple[EntryKind, ...] = ()
    cites: tuple[str, ...] = ()


@frozen
class Taking:
    """One order as of an instant.

    key        match_key(order): takings, books and statements are merged in its order
    expected   what the order costs, where that is known
    opened_at  when the order was first spoken of: the earliest date among its evidence
    payments   every attempt's (source, reference), those without money too
    findings   codes of the ledger's findings, each once
    reason     the code of the reason that decided the outcome
    closed_at  `settle.closed_at` of the ledger: None while the outcome is not final
    in_doubt   what may have been captured beside `taken`: an amount for each payment, and for each
               currency that was stated for it
    doubted    the payments in doubt; what of them is in `taken` is not sure
    owed       what is held beyond the price and owed back, in each currency; nothing of an
               unresolved order, of which that is not known
    """

    key: str
    order: str
    as_of: Instant
    outcome: Outcome
    fulfillable: bool
    expected: Money | None
    opened_at: Instant
    taken: tuple[Taken, ...]
    payments: tuple[tuple[str, str], ...]
    findings: tuple[FindingCode, ...]
    reason: str = ""
    closed_at: Instant | None = None
    in_doubt: tuple[Money, ...] = ()
    doubted: tuple[Doubted, ...] = ()
    owed: tuple[Money, ...] = ()
