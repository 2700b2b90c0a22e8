"""Find the statement lines that can settle returned money."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from reconcile.matching.books import StatementLine
from reconcile.matching.funds import Return
from reconcile.matching.ledger_lines import FailedRefund
from reconcile.matching.rows import StatementRow
from reconcile.matching.rules import Terms


def balance_of(line: StatementRow | StatementLine) -> int:
    """Return a line's change of the merchant's balance."""
    if line.kind == "fee":
        return 0
    return -line.gross if line.kind == "refund" and line.gross > 0 else line.gross


def may_settle_exactly(row: StatementRow, taken: Return, terms: Terms) -> bool:
    """Check whether a statement line may settle a refund or chargeback of equal amount."""
    if row.kind == "dispute" and row.gross > 0:
        return False  # it returns money, for which the ledger has no movement
    return taken.minor == abs(row.gross) and (
        may_settle(row, taken, terms)
        or (
            (row.kind, taken.kind) == ("dispute", "reversed")
            and (row.payment, row.currency) == (taken.payment, taken.currency)
            and terms.settles(row.source, taken.source)
        )
    )


def may_settle(row: StatementRow, taken: Return, terms: Terms) -> bool:
    """Check whether a statement line may settle a refund or chargeback, whatever their amounts."""
    return (
        row.kind != "returned"
        and taken.currency == row.currency
        and terms.settles(row.source, taken.source)
        and row.payment in (None, taken.payment)
        and (taken.kind == "dispute_lost") == (row.kind == "dispute")
    )


def failure_of(
    row: StatementRow, failed: Iterable[FailedRefund], terms: Terms
) -> FailedRefund | None:
    """Return the failed refund of a line, if any."""
    if row.kind != "refund":
        return None
    for each in failed:
        named = (
            (row.refund, each.refund) if row.refund and each.refund else (row.payment, each.payment)
        )
        amount = each.minor is None or (each.minor, each.currency) == (abs(row.gross), row.currency)
        if named[0] == named[1] and amount and terms.settles(row.source, each.source):
            return each
    return None


def gives_back(row: StatementRow, returns: Sequence[Return], terms: Terms) -> bool:
    """Check whether a statement line is about returned money."""
    if row.kind != "payment":
        return True
    fitting = [each for each in returns if may_settle(row, each, terms)] if row.gross < 0 else []
    amounts = [each.minor for each in fitting]
    return bool(amounts) and -row.gross in (*amounts, sum(amounts))


def parts_of(rows: Sequence[StatementRow], unused: Sequence[Return], terms: Terms) -> list[Return]:
    """Return the refunds and chargebacks that add up to the lines."""
    fitting = [each for each in unused if may_settle(rows[0], each, terms)]
    total = -sum(map(balance_of, rows))
    one = [each for each in fitting if each.minor == total]
    latest = max([row.settled_at for row in rows if row.settled_at is not None], default=None)
    until = [each for each in fitting if latest is not None and each.at <= latest]
    for parts in (one[:1], fitting, until):
        if parts and sum([each.minor for each in parts]) == total:
            return parts
    return []


def undone(rows: Iterable[StatementRow]) -> tuple[list[StatementRow], list[StatementRow]]:
    """Separate lines that cancel each other out from the rest."""
    found: list[StatementRow] = []
    left: dict[str, StatementRow] = {}
    by_name: dict[tuple[str | None, ...], list[StatementRow]] = defaultdict(list)
    for row in rows:
        names = [("payment", row.payment)]
        if row.refund:
            names.insert(0, ("refund", row.refund))
        alike = (each for name in names for each in by_name[name] if each.line_id in left)
        other = next((each for each in alike if _undoes(row, each)), None)
        if other is None:
            left[row.line_id] = row
            for name in names:
                by_name[name].append(row)
        else:
            found += [left.pop(other.line_id), row]
    # Lines that name a payment come first: others may belong to any payment of the order.
    rest = sorted(left.values(), key=lambda row: (row.payment is None, row.line_id))
    return found, rest


def _undoes(row: StatementRow, other: StatementRow) -> bool:
    if row.currency != other.currency or balance_of(row) != -balance_of(other):
        return False
    kinds = {row.kind, other.kind}
    if kinds == {"refund", "returned"} and row.refund and other.refund:
        return row.refund == other.refund
    undone = ({"dispute"}, {"dispute", "returned"}, {"payment"}, {"refund", "returned"})
    return row.payment == other.payment and kinds in undone


def less(unused: Sequence[Return], back: Sequence[Return], minor: int) -> list[Return]:
    """Return the refunds and reversals left after a deduction.

    unused  all movements
    back    movements to deduct from, reversals first
    minor   amount to deduct, in minor units
    """
    rest = {id(each): each.minor for each in back}
    for each in sorted(back, key=lambda each: each.kind != "reversed"):
        used = min(minor, each.minor)
        rest[id(each)], minor = each.minor - used, minor - used
    left = [each._replace(minor=rest.get(id(each), each.minor)) for each in unused]
    return [each for each in left if each.minor]


def without(unused: Sequence[Return], parts: Sequence[Return]) -> list[Return]:
    """Return the refunds of `unused` that are not in `parts`.

    Objects are compared, because one event may report two equal refunds.
    """
    gone = set(map(id, parts))
    return [each for each in unused if id(each) not in gone]
