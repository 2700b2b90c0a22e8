"""Lines of order books and settlement files as a bundle holds them: JSON, money as decimal text."""

from __future__ import annotations

from typing import Any

from reconcile.instants import Instant, format_instant
from reconcile.matching.books import BookLine, StatementLine
from reconcile.money import Money, to_json


def book_document(line: BookLine) -> dict[str, Any]:
    """One line of an order book."""
    return {
        "from": "order book",
        "line": line.line_id,
        "reference": line.reference,
        "kind": line.kind,
        "money": to_json(line.money),
        "placed_at": _instant(line.placed_at),
        "status": line.status,
        "group": line.group,
    }


def statement_document(line: StatementLine) -> dict[str, Any]:
    """One line of a settlement file."""
    amounts = {"gross": line.gross, "fee": line.fee, "net": line.net}
    return {
        "from": "statement",
        "line": line.line_id,
        "kind": line.kind,
        "payment": line.payment,
        "order": line.order,
        **{
            name: to_json(Money(minor=minor, currency=line.currency))
            for name, minor in amounts.items()
        },
        "settled_at": _instant(line.settled_at),
        "payout": line.payout,
    }


def _instant(instant: Instant | None) -> str | None:
    return None if instant is None else format_instant(instant)
