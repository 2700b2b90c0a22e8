"""What went back, and which statement lines may be of it.

Leaves out: what becomes of either. A payment that a line names decides, and so does the source
whose statement it is; a refund takes money, whichever sign its file gives it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reconcile.matching.books import StatementLine
from reconcile.matching.funds import Return
from reconcile.matching.rows import StatementRow
from reconcile.matching.rules import Terms


def balance_of(line: StatementRow | StatementLine) -> int:
    """The gross as it changes the merchant's balance: a refund takes, whichever sign the provider
    gives it. A dispute keeps its sign: it takes money, or gives it back once it is won."""
    if line.kind == "fee":
        return 0
    return -line.gross if line.kind == "refund" and line.gross > 0 else line.gross


def is_of(row: StatementRow, taken: Return, terms: Terms) -> bool:
    """Whether a line is just what went back."""
    if row.kind == "dispute" and row.gross > 0:
        return False  # it gives back, and the ledger has no movement for that
    return taken.minor == abs(row.gross) and (
        may_be_of(row, taken, terms) or _disputes_reversal(row, taken, terms)
    )


def _disputes_reversal(row: StatementRow, taken: Return, terms: Terms) -> bool:
    """Whether a dispute's line may be of a reversal: of what a bank takes back some providers tell
    in webhooks that it was reversed, and their statements have a dispute. It names the payment."""
    return (
        (row.kind, taken.kind) == ("dispute", "reversed")
        and (row.payment, row.currency) == (taken.payment, taken.currency)
        and terms.settles(row.source, taken.source)
    )


def may_be_of(row: StatementRow, taken: Return, terms: Terms) -> bool:
    """Whether a line may be of what went back, whatever the amount: so a line of another source is
    not, where that source has statements of its own."""
    return (
        taken.currency == row.currency
        and terms.settles(row.source, taken.source)
        and row.payment in (None, taken.payment)
        and (taken.kind == "dispute_lost") == (row.kind == "dispute")
    )


def gives_back(row: StatementRow, returns: Sequence[Return], terms: Terms) -> bool:
    """Whether a line is of what went back: so is a negative payment, where so much of its payment
    did. Any other is a part of what the payment brought."""
    if row.kind != "payment":
        return True
    fitting = [each for each in returns if may_be_of(row, each, terms)] if row.gross < 0 else []
    amounts = [each.minor for each in fitting]
    return bool(amounts) and -row.gross in (*amounts, sum(amounts))


def parts_of(rows: Sequence[StatementRow], unused: Sequence[Return], terms: Terms) -> list[Return]:
    """What went back that these lines of one payment are together: one, else all there is, else all
    until the last of them. Part of a lost dispute may have come again, and one sum may stand for
    several refunds."""
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
    """Disputes that took money and those that gave the same back, once they were won, pair by pair:
    the ledger has no movement of them. And the rest."""
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
    # What names its payment first: another line may be of any payment of the order.
    return found, sorted(left, key=lambda row: (row.payment is None, row.line_id))


def less(unused: Sequence[Return], back: Sequence[Return], minor: int) -> list[Return]:
    """What is left when so much of what went back is accounted for, reversals first."""
    rest = {id(each): each.minor for each in back}
    for each in sorted(back, key=lambda each: each.kind != "reversed"):
        used = min(minor, each.minor)
        rest[id(each)], minor = each.minor - used, minor - used
    left = [each._replace(minor=rest.get(id(each), each.minor)) for each in unused]
    return [each for each in left if each.minor]


def without(unused: Sequence[Return], parts: Sequence[Return]) -> list[Return]:
    """The others, equal ones among them: one event may report two movements of one amount."""
    gone = set(map(id, parts))
    return [each for each in unused if id(each) not in gone]
