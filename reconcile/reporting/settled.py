"""Statement lines beside the movements that they settle.

Leaves out: whether they agree; that is `match`. Here a line finds the movement whose date places
it in a period and whose order stands behind it in the journal.
"""

from __future__ import annotations

from typing import Final

from reconcile.ledger.ledger import EntryKind
from reconcile.matching.books import StatementKind, StatementLine, match_key
from reconcile.matching.ledger_lines import Taken
from reconcile.reporting.input import OrderSeen
from reconcile.values import frozen

_SETTLES: Final[dict[StatementKind, tuple[EntryKind, ...]]] = {
    "payment": ("captured",),
    "refund": ("refunded", "reversed"),
    "dispute": ("dispute_lost",),
    "fee": (),
}


@frozen
class Settled:
    """A statement line and the movements that it settles; none where the ledger has none.

    gross, fee, net  as they change the merchant's balance: see `signed`
    """

    line: StatementLine
    taken: tuple[Taken, ...]
    gross: int
    fee: int
    net: int


def settled(seen: OrderSeen) -> tuple[Settled, ...]:
    """Every line of the order, each with its movements: of those of its payment that no line has,
    the one with its amount, else all if they add up to it, else the first. A line for which
    nothing is left is a further part of the first movement of its payment."""
    if not seen.lines:
        return ()
    left = [] if seen.taking is None else list(seen.taking.taken)
    claimed: list[Taken] = []
    found = []
    for line in seen.lines:
        gross, fee, net = signed(line)
        fresh, taken = _beside(line, left, claimed, gross)
        left = [each for each in left if each not in fresh]
        claimed += fresh
        found.append(Settled(line=line, taken=taken, gross=gross, fee=fee, net=net))
    return tuple(found)


def _beside(
    line: StatementLine, left: list[Taken], claimed: list[Taken], gross: int
) -> tuple[tuple[Taken, ...], tuple[Taken, ...]]:
    """The movements of the line that no line had before, and its movements. A negative payment is
    what some providers write for a refund or a reversal, else it corrects what came."""
    kinds = [_SETTLES[line.kind]]
    if line.kind == "payment" and gross < 0:
        kinds.insert(0, _SETTLES["refund"])
    for each in kinds:
        fresh = _chosen([one for one in left if _fits(line, one, each)], gross)
        taken = fresh or tuple([one for one in claimed if _fits(line, one, each)][:1])
        if taken:
            return fresh, taken
    return (), ()


def _chosen(fitting: list[Taken], gross: int) -> tuple[Taken, ...]:
    for each in fitting:
        if each.minor == gross:
            return (each,)
    if sum([each.minor for each in fitting]) == gross:
        return tuple(fitting)
    return tuple(fitting[:1])


def _fits(line: StatementLine, taken: Taken, kinds: tuple[EntryKind, ...]) -> bool:
    return (
        taken.kind in kinds
        and taken.currency == line.currency
        and (line.payment is None or match_key(line.payment) == match_key(taken.payment))
    )


def signed(line: StatementLine) -> tuple[int, int, int]:
    """Gross, fee and net as they change the merchant's balance: a refund is negative, whichever
    sign the provider gives it, and a line that is only a fee has no gross. A dispute keeps its
    sign: it takes money, or gives it back once it is won."""
    if line.kind == "fee":
        cost = -line.net if line.fee else abs(line.gross or line.net)
        return 0, cost, -cost
    if line.kind == "refund" and line.gross > 0:
        return -line.gross, line.fee, -line.gross - line.fee
    return line.gross, line.fee, line.net
