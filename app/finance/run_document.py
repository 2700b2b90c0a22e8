"""A run as a document: its control totals and ties. Its breaks stand beside it."""

from __future__ import annotations

from typing import Any

from app.finance.reconcile_period import Ran
from reconcile.instants import format_instant
from reconcile.matching.control import FAMILIES, Control, ControlLine, Tie
from reconcile.money import Money, to_json


def run_document(found: Ran) -> dict[str, Any]:
    """For JSON."""
    control = found.control
    ties = control.ties()
    return {
        "run": found.number,
        "at": format_instant(found.at),
        "as_of": format_instant(found.as_of),
        "from": None if found.since is None else format_instant(found.since),
        "to": None if found.until is None else format_instant(found.until),
        "rules": found.rules,
        "lived": found.lived,
        "ties": control.holds,
        "ties_checked": len(ties),
        "broken_ties": [_tie(tie) for tie in ties if not tie.holds],
        "control": [_line(line) for line in control.lines],
        "matched": _matched(control),
        "unsearched": control.unsearched,
        "open": found.open,
    }


def _line(line: ControlLine) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "side": line.side,
        "currency": line.currency,
        "family": FAMILIES[line.bucket],
        "bucket": line.bucket,
        "count": line.count,
        "sum": _money(line.sum, line.currency),
    }
    if line.side == "statement":
        shown["fee"] = _money(line.fee, line.currency)
        shown["net"] = _money(line.net, line.currency)
    return shown


def _money(minor: int, currency: str) -> dict[str, str] | None:
    """Orders without money may have no currency, and then no sum."""
    return to_json(Money(minor=minor, currency=currency)) if currency else None


def _tie(tie: Tie) -> dict[str, Any]:
    return {name: getattr(tie, name) for name in ("name", "side", "currency", "left", "right")}


def _matched(control: Control) -> dict[str, Any]:
    """Orders that agree with the book, and what was captured of them."""
    lines = [
        line
        for line in control.lines
        if line.side == "takings" and FAMILIES[line.bucket] == "matched"
    ]
    sums: dict[str, int] = {}
    for line in lines:
        if line.currency:
            sums[line.currency] = sums.get(line.currency, 0) + line.sum
    return {
        "count": sum(line.count for line in lines),
        "sums": [to_json(Money(minor=sums[each], currency=each)) for each in sorted(sums)],
    }
