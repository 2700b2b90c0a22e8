"""Returned money, and the statement lines that may settle it.

Leaves out: what is reported. The payment that a line names decides, and so does the source of the
statement. A refund takes money, whatever sign its file uses.
"""

from collections.abc import Iterable, Sequence

from reconcile.matching.books import StatementLine
from reconcile.matching.funds import Return
from reconcile.matching.rows import StatementRow
from reconcile.matching.rules import Terms


def balance_of(line: StatementRow | StatementLine) -> int:
    """Return the gross as it changes the merchant's balance.

    A refund takes money, whatever its sign. A dispute keeps its sign: a won one returns money.
    """
    if line.kind == "fee":
        return 0
    return -line.gross if line.kind == "refund" and line.gross > 0 else line.gross


def is_of(row: StatementRow, taken: Return, terms: Terms) -> bool:
    """Return whether a line settles exactly this return.

    A dispute line may also settle a reversal of the payment that it names: some providers report a
    chargeback as reversed in webhooks and as a dispute in statements.
    """
    if row.kind == "dispute" and row.gross > 0:
        return False  # it returns money, for which the ledger has no movement
    return taken.minor == abs(row.gross) and (
        may_be_of(row, taken, terms)
        or (
            (row.kind, taken.kind) == ("dispute", "reversed")
            and (row.payment, row.currency) == (taken.payment, taken.currency)
            and terms.settles(row.source, taken.source)
        )
    )


def may_be_of(row: StatementRow, taken: Return, terms: Terms) -> bool:
    """Return whether a line may settle this return, whatever the amount."""
    return (
        taken.currency == row.currency
        and terms.settles(row.source, taken.source)
        and row.payment in (None, taken.payment)
        and (taken.kind == "dispute_lost") == (row.kind == "dispute")
    )


def gives_back(row: StatementRow, returns: Sequence[Return], terms: Terms) -> bool:
    """Return whether a line settles a return.

    A negative payment line does if so much of its payment went back; else it is a part of the
    capture.
    """
    if row.kind != "payment":
        return True
    fitting = [each for each in returns if may_be_of(row, each, terms)] if row.gross < 0 else []
    amounts = [each.minor for each in fitting]
    return bool(amounts) and -row.gross in (*amounts, sum(amounts))


def parts_of(rows: Sequence[StatementRow], unused: Sequence[Return], terms: Terms) -> list[Return]:
    """Return the returns whose sum these lines of one payment are.

    It is one return, else all of them, else all until the last line: part of a lost dispute may
    have come back, and one sum may cover several refunds.
    """
    fitting = [each for each in unused if may_be_of(rows[0], each, terms)]
    total = -sum(map(balance_of, rows))
    one = [each for each in fitting if each.minor == total]
    latest = max([row.settled_at for row in rows if row.settled_at is not None], default=None)
    until = [each for each in fitting if latest is not None and each.at <= latest]
    for parts in (one[:1], fitting, until):
        if parts and sum([each.minor for each in parts]) == total:
            return parts
    return []


def undone(rows: Iterable[StatementRow]) -> tuple[list[StatementRow], list[StatementRow]]:
    """Split off pairs of disputes: one took money, and its win returned it. Return pairs and rest.

    The ledger has no movement for these pairs.
    """
    open_ones: dict[tuple[str | None, str, int], list[StatementRow]] = {}
    found: list[StatementRow] = []
    left: list[StatementRow] = []
    for row in rows:
        opposite = open_ones.get((row.payment, row.currency, -row.gross))
        if row.kind != "dispute":
            left.append(row)
        elif opposite:
            found += [opposite.pop(), row]
        else:
            open_ones.setdefault((row.payment, row.currency, row.gross), []).append(row)
    left += [row for alone in open_ones.values() for row in alone]
    # Lines that name a payment come first: others may be of any payment of the order.
    return found, sorted(left, key=lambda row: (row.payment is None, row.line_id))


def less(unused: Sequence[Return], back: Sequence[Return], minor: int) -> list[Return]:
    """Return what is left of the returns after `minor` is deducted, from reversals first."""
    rest = {id(each): each.minor for each in back}
    for each in sorted(back, key=lambda each: each.kind != "reversed"):
        used = min(minor, each.minor)
        rest[id(each)], minor = each.minor - used, minor - used
    left = [each._replace(minor=rest.get(id(each), each.minor)) for each in unused]
    return [each for each in left if each.minor]


def without(unused: Sequence[Return], parts: Sequence[Return]) -> list[Return]:
    """Return the others, by identity: one event may report two equal movements."""
    gone = set(map(id, parts))
    return [each for each in unused if id(each) not in gone]
