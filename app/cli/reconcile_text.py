"""A run as a person reads it, and as a program does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from app.cli.output import Format, emit, note, shown
from app.cli.streams import print_document, print_items
from app.core.text import counted
from app.finance.read_breaks import breaks_of_run
from app.finance.reconcile_period import BUILT_IN, Ran
from app.finance.run_document import run_document
from app.receiving.context import Desk
from reconcile.instants import Instant, format_instant

BREAKS = ("id", "cause", "state", "order", "payment", "money", "age_days", "sentence")
CSV = (*BREAKS[:-1], "assignee", "since", "cites", "next_step", "sentence")


async def print_run(desk: Desk, found: Ran, form: Format) -> None:
    """The totals and ties of a run, then its breaks as they are read."""
    items = _documents(desk, found.number, as_of=found.as_of)
    if form is Format.csv:
        await print_items(items, columns=CSV, form=form)
    elif form is Format.table:
        _print_totals(found)
        left_out = await print_items(items, columns=BREAKS, form=form) if found.breaks else 0
        if left_out:
            more = counted(left_out, "more break is", "more breaks are")
            note(f"{more} not shown: --format csv or json shows all.")
    else:
        await print_document(run_document(found), items, name="breaks", form=form)


async def _documents(
    desk: Desk, number: int, *, as_of: Instant
) -> AsyncIterator[list[dict[str, Any]]]:
    async for found in breaks_of_run(desk, number):
        yield [each.document(as_of=as_of) for each in found]


def _print_totals(found: Ran) -> None:
    told = run_document(found)
    print(f"Run {found.number}, as of {format_instant(found.as_of)}, under {_rules(found)}.")
    columns = ("side", "family", "bucket", "count", "sum")
    emit(told["control"], columns=columns, form=Format.table)
    for tie in told["broken_ties"]:
        print(f"DOES NOT TIE: {tie['name']} ({tie['side']}): {tie['left']} and {tie['right']}")
    if told["ties"]:
        print(f"All {counted(told['ties_checked'], 'sum ties', 'sums tie')}.")
    matched = told["matched"]
    sums = ", ".join(map(shown, matched["sums"])) or "0"
    orders, breaks = counted(matched["count"], "order"), counted(found.breaks, "break")
    print(f"Matched: {orders}, {sums}. {breaks}, {found.open:,} open.")


def _rules(found: Ran) -> str:
    if found.rules is None:
        return "the rules of a file"
    return f"rules {found.rules}" if found.rules != BUILT_IN else "the rules that are built in"
