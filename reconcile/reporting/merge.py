"""Orders and statement lines in key order, brought together order by order.

Leaves out: judging whether they agree. A line of no order, or of one that no ledger knows, stands
alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from reconcile.matching.books import StatementLine
from reconcile.matching.ledger_lines import Taking
from reconcile.matching.rows import StatementRow
from reconcile.reporting.input import OrderSeen


def merged(takings: Iterable[Taking], rows: Iterable[StatementRow]) -> Iterator[OrderSeen]:
    """Every taking once and every line once; both streams ascend by key."""
    orders = groupby(takings, key=lambda taking: taking.key)
    lines = groupby(rows, key=lambda row: row.key)
    order, line = next(orders, None), next(lines, None)
    while order is not None or line is not None:
        if order is None or (line is not None and line[0] < order[0]):
            assert line is not None
            yield from (OrderSeen(taking=None, lines=(line_of(row),)) for row in line[1])
            line = next(lines, None)
        elif line is None or order[0] < line[0]:
            yield from (OrderSeen(taking=taking) for taking in order[1])
            order = next(orders, None)
        else:
            yield from _together(list(order[1]), list(line[1]))
            order, line = next(orders, None), next(lines, None)


def _together(takings: list[Taking], rows: list[StatementRow]) -> Iterator[OrderSeen]:
    """Orders whose references are written differently have one key: a line goes to the one that
    knows its payment, else to the one whose reference it has, else to the first."""
    shares: list[list[StatementLine]] = [[] for _ in takings]
    for row in rows:
        shares[_place(takings, row)].append(line_of(row))
    for taking, share in zip(takings, shares, strict=True):
        yield OrderSeen(taking=taking, lines=tuple(share))


def _place(takings: list[Taking], row: StatementRow) -> int:
    for place, taking in enumerate(takings):
        if any(payment == row.payment for _, payment in taking.payments):
            return place
    named = [place for place, taking in enumerate(takings) if taking.order == row.order]
    return named[0] if named else 0


def line_of(row: StatementRow) -> StatementLine:
    """The line of a row."""
    return StatementLine(
        line_id=row.line_id,
        payment=row.payment,
        order=row.order,
        kind=row.kind,
        currency=row.currency,
        gross=row.gross,
        fee=row.fee,
        net=row.net,
        settled_at=row.settled_at,
        payout=row.payout,
    )
