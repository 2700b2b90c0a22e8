"""Looks whether closed months still follow from the evidence that they were closed on.

    1 chain     the closing is what was written, and names the closing before it and a checkpoint of
                the sealed log
    2 prints    the bytes that were kept are those of the closing
    3 history   everything that was known then is there, and is what it was
    4 figures   the report made again, as of then and by the policy of then, has the same figures;
                where the month was closed by an earlier version's rules, how many are otherwise now

Beside that, each format is printed again from the report that was kept. One that would look
otherwise now is named and is no fault: what was kept is what is shown.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from app.core.errors import NotFoundError
from app.core.text import counted
from app.finance.close_period import printed, scope_of
from app.finance.closed_periods import rules_form, rules_of_closing
from app.finance.period_store import Closed, closed_periods, closing_text, print_of
from app.finance.report_period import Progress, report_period
from app.orders.history_store import history_digests
from app.receiving.context import AppContext
from app.sealing.log_store import head_of
from reconcile.ledger.policy import Policy
from reconcile.reporting.closing import (
    Closing,
    Figure,
    adjusted_in,
    closing_of,
    difference,
    figures,
    first_difference,
)
from reconcile.reporting.tables import report_of

Step = Literal["chain", "prints", "history", "figures"]

UNREADABLE: Final = (KeyError, TypeError, ValueError)
"""What reading a document raises that is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedPeriods:
    """One step on one month. `sentence` says what was found, or the first difference."""

    period: str
    step: Step
    passed: bool
    sentence: str

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "period": self.period,
            "step": self.step,
            "passed": self.passed,
            "sentence": self.sentence,
        }


async def verify_periods(
    context: AppContext, *, only: str | None, progress: Progress
) -> AsyncIterator[VerifiedPeriods]:
    """Every step on every closed month, or on one, the earliest first. A month whose closing is
    not what was written is looked at no further.

    Raises NotFoundError for a month that is not closed.
    """
    async with context.store.reading() as connection:
        closed = await closed_periods(connection)
    if only is not None and only not in {each.period for each in closed}:
        raise NotFoundError(
            f"{only[:40]} is not closed; `tallyhook period list` shows which months are"
        )
    for place, each in enumerate(closed):
        if only not in (None, each.period):
            continue
        closing, found = await _chain(context, each, closed[place - 1] if place else None)
        yield found
        if closing is not None:
            yield await _prints(context, closing)
            yield await _history(context, closing, progress)
            yield await _figures(context, closing, progress)


async def _chain(
    context: AppContext, closed: Closed, before: Closed | None
) -> tuple[Closing | None, VerifiedPeriods]:
    async with context.store.reading() as connection:
        text = await closing_text(connection, closed.period) or ""
    written = f"sha256:{hashlib.sha256(text.encode('utf-8', 'backslashreplace')).hexdigest()}"
    expected = None if before is None else before.digest
    try:
        closing = closing_of(json.loads(text))
    except UNREADABLE:
        closing = None
    if closing is None or written != closed.digest:
        sentence = "the closing is not what was written; its digest is another"
    elif closing.before != expected:
        sentence = f"it names the closing {closing.before} before it, and that is {expected}"
    elif not await _is_sealed(context, closing):
        sentence = "it names a checkpoint that is not one of the sealed log"
    else:
        sentence = f"the closing is {written}"
        return closing, _verified(closed.period, "chain", None, sentence)
    return None, _verified(closed.period, "chain", sentence, "")


async def _is_sealed(context: AppContext, closing: Closing) -> bool:
    named = closing.checkpoint
    if named is None:
        return True
    async with context.store.reading() as connection:
        head = await head_of(connection, named["size"])
    return head is not None and head.head.hex() == named["head"]


def _verified(period: str, step: Step, wrong: str | None, right: str) -> VerifiedPeriods:
    return VerifiedPeriods(period=period, step=step, passed=wrong is None, sentence=wrong or right)


# --- the printed report --------------------------------------------------------------------------


async def _prints(context: AppContext, closing: Closing) -> VerifiedPeriods:
    period = closing.month.name
    wrong = []
    async with context.store.reading() as connection:
        for each in closing.prints:
            kept = await print_of(connection, period, each.format)
            if kept is None or hashlib.sha256(kept).hexdigest() != each.sha256:
                wrong.append(each.format)
    if wrong:
        sentence = f"what was kept of {', '.join(wrong)} is not what was printed at closing"
        return _verified(period, "prints", sentence, "")
    return _verified(period, "prints", None, _printing_now(closing))


def _printing_now(closing: Closing) -> str:
    kept = ", ".join(each.format for each in closing.prints)
    try:
        now = printed(report_of(dict(closing.report)))
    except UNREADABLE:
        return f"{kept} are as at closing; this version would print none of them anew"
    other = [
        each.format
        for each in closing.prints
        if each.format in now and hashlib.sha256(now[each.format]).hexdigest() != each.sha256
    ]
    if not other:
        return f"{kept} are as at closing, and this version prints the same"
    return f"{kept} are as at closing; this version would print {', '.join(other)} differently"


# --- the evidence --------------------------------------------------------------------------------


async def _history(context: AppContext, closing: Closing, progress: Progress) -> VerifiedPeriods:
    async with context.store.reading() as connection:
        now = await history_digests(
            connection, after=closing.known_after, until=closing.as_of, progress=progress
        )
    rows = sum(each.count for each in now)
    return _verified(
        closing.month.name,
        "history",
        first_difference(closing.evidence, now),
        counted(rows, "row of evidence is as it was", "rows of evidence are as they were"),
    )


async def _figures(context: AppContext, closing: Closing, progress: Progress) -> VerifiedPeriods:
    then = replace(context, policy=Policy(**closing.policy))
    report = await report_period(
        then, scope_of(context, closing.month, closing.as_of), progress=progress
    )
    now = figures(report)
    changes = difference(closing.figures, now)
    wrong = _told(changes[0]) if changes else None
    if wrong is None and adjusted_in(report.adjustments) != closing.adjusted:
        wrong = "the adjustments to months before are not those that follow from the evidence"
    right = f"{len(now):,} figures follow from the evidence"
    by, of_now = rules_of_closing(closing), rules_form(then.policy)
    if wrong is not None and by != of_now:
        wrong, right = None, _by_other_rules(len(changes), by=by, of_now=of_now)
    return _verified(closing.month.name, "figures", wrong, right)


def _by_other_rules(changes: int, *, by: str, of_now: str) -> str:
    """A month stays what it was closed as; what an upgrade makes of its evidence is told later."""
    return (
        f"closed by the rules {by} of an earlier version; by those of now ({of_now}) "
        f"{counted(changes, 'figure is', 'figures are')} otherwise, which the report of the open "
        "month tells as adjustments"
    )


def _told(change: Figure) -> str:
    line = " ".join(part for part in (change.currency, change.line, change.what) if part)
    return (
        f"{change.table}, {line}: the evidence gives {change.count:+,} in number and "
        f"{change.sum:+,} in minor units beyond what was closed"
    )
