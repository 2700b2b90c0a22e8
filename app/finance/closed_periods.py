"""Closed months: which there are, what each says, and what was stated of them since."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from app.core.errors import NotFoundError
from app.database.engine import Connection
from app.finance.period_store import Closed, closed_periods, closing_of_period, print_of
from app.finance.reports.render import ReportFormat, render
from app.orders.policy_version_store import form_of
from app.receiving.context import AppContext
from reconcile.ledger.policy import Policy, policy_text
from reconcile.reporting.closing import Closing, Stated
from reconcile.reporting.report import Basis, Scope
from reconcile.reporting.tables import report_of

CLOSING_BASIS: Final[Basis] = "captured"
"""A month is closed, and compared with its closing, by the dates on which money moved."""


RULES_BEFORE: Final = "v1"
"""The engine's rules by which months were closed whose closing does not name them."""

MATCHING_FORM: Final = "m3"
"""The form of the matching and of the report, where they find more than before in equal evidence.
m2: what went back and no statement takes, won disputes, lines of payments in doubt. m3: rows of one
order that add up are one story; what groups, decisions and payments join is of one month whole, and
a line counts in one month."""


def rules_form(policy: Policy) -> str:
    """The form of the engine's rules, as a closing names it: what the same evidence comes to may
    be another under each."""
    return f"{form_of(policy_text(policy))}+{MATCHING_FORM}"


def rules_of_closing(closing: Closing) -> str:
    """The form of the rules that a month was closed by."""
    return closing.program.get("rules", RULES_BEFORE)


async def list_closed(context: AppContext) -> list[Closed]:
    """Every closed month, the earliest first."""
    async with context.store.reading() as connection:
        return await closed_periods(connection)


async def closed_report(context: AppContext, period: str, form: ReportFormat) -> bytes:
    """The bytes of a closed month's report: those that were kept at closing, where it was printed
    in this format then, else printed now from the report that was kept.

    Raises NotFoundError for a month that is not closed, UsageError for a format that cannot be
    printed here.
    """
    async with context.store.reading() as connection:
        kept = await print_of(connection, period, form)
        if kept is not None:
            return kept
        closing = await closing_named(connection, period)
    return render(report_of(dict(closing.report)), form)


async def closing_named(connection: Connection, period: str) -> Closing:
    """The closing of a month. Raises NotFoundError where it is not closed."""
    closing = await closing_of_period(connection, period)
    if closing is None:
        raise NotFoundError(
            f"{period[:40]} is not closed; `tallyhook period list` shows which months are"
        )
    return closing


async def stated_before(connection: Connection, scope: Scope) -> list[Stated]:
    """What was said of each closed month, for a report that begins where the closed books ended at
    its instant; nothing for any other report."""
    closed = [each for each in await closed_periods(connection) if each.closed_at <= scope.as_of]
    if not closed:
        return []
    last = await closing_named(connection, closed[-1].period)
    if last.month.end != scope.start:
        return []
    found: dict[str, Stated] = {}
    for each in closed:
        closing = await closing_named(connection, each.period)
        for adjusted in closing.adjusted:
            old = found[adjusted.period]
            found[adjusted.period] = replace(old, told=(*old.told, *adjusted.figures))
        found[each.period] = Stated(
            month=closing.month, closing=each.digest, original=closing.figures
        )
    return list(found.values())
