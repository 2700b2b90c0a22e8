"""Statement lines beside the movements that they settle.

Leaves out: whether they agree; that is `match`. Here a line finds the movement whose date places
it in a period and whose order stands behind it in the journal.
"""

from __future__ import annotations

from typing import Final

from reconcile.books import StatementKind, StatementLine, match_key
from reconcile.ledger import EntryKind
from reconcile.report_input import OrderSeen
from reconcile.takings import Taken
from reconcile.values import frozen

_SETTLES: Final[dict[StatementKind, EntryKind]] = {
    "payment": "captured",
    "refund": "refunded",
    "dispute": "dispute_lost",
}


@frozen
class Settled:
    """A statement line and the movement that it settles; None where the ledger has none.

    gross, fee, net  as they change the merchant's balance: see `signed`
    """

    line: StatementLine
    taken: Taken | None
    gross: int
    fee: int
    net: int


def settled(seen: OrderSeen) -> tuple[Settled, ...]:
    """Every line of the order, each with its movement. A movement that nothing else claims goes
    to the line of its payment with its amount, then to any line of its payment; a further line of
    a payment that is claimed is a further part of it."""
    if not seen.lines:
        return ()
    left = [] if seen.taking is None else list(seen.taking.taken)
    claimed: list[Taken] = []
    found = []
    for line in seen.lines:
        gross, fee, net = signed(line)
        taken = _movement(line, gross, left) or _movement(line, gross, claimed)
        if taken in left:
            left.remove(taken)
            claimed.append(taken)
        found.append(Settled(line=line, taken=taken, gross=gross, fee=fee, net=net))
    return tuple(found)


def _movement(line: StatementLine, gross: int, among: list[Taken]) -> Taken | None:
    kind = _SETTLES.get(line.kind)
    fitting = [
        taken
        for taken in among
        if taken.kind == kind
        and taken.currency == line.currency
        and (line.payment is None or match_key(line.payment) == match_key(taken.payment))
    ]
    return next((taken for taken in fitting if taken.minor == gross), None) or next(
        iter(fitting), None
    )


def signed(line: StatementLine) -> tuple[int, int, int]:
    """Gross, fee and net as they change the merchant's balance: money that goes back is negative,
    whichever sign the provider gives it, and a line that is only a fee has no gross."""
    if line.kind == "fee" and not line.fee:
        cost = abs(line.gross or line.net)
        return 0, cost, -cost
    if line.kind in ("refund", "dispute") and line.gross > 0:
        return -line.gross, line.fee, -line.gross - line.fee
    return line.gross, line.fee, line.net
