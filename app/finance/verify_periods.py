"""Verify that closed months still follow from the evidence on which they were closed.

1 chain    each closing or reopening names the previous digest and a checkpoint
2 prints   the stored bytes are those of the closing
3 history  everything that was known at the closing is still there, unchanged
4 figures  the report, made again, has equal figures
5 journal  the transactions of the journal, made again, are equal
"""

import hashlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Annotated, Final, Literal, TypedDict

from app.context.context import AppContext
from app.core.document_of import document_of
from app.core.errors import NotFoundError
from app.core.jobs import silent
from app.core.text import counted
from app.finance import period_store, report_period
from app.finance.close_period import chain_of, printed, scope_of
from app.finance.closed_periods import rules_form
from app.finance.evidence_digest_store import evidence_digests
from app.sealing import log_store
from reconcile.documents import Count, Keywords
from reconcile.ledger.policy import Policy
from reconcile.reporting import closing as closings
from reconcile.reporting.journal import Transaction
from reconcile.reporting.tables import report_of

Step = Literal["chain", "prints", "history", "figures", "journal"]

UNREADABLE: Final = (KeyError, TypeError, ValueError)


class VerifiedStepDocument(TypedDict):
    period: Annotated[str, Keywords(examples=["2026-10"])]
    version: Count
    step: Annotated[str, Keywords(examples=["chain"])]
    passed: bool
    sentence: str


class VerificationDocument(TypedDict):
    passed: Annotated[bool, "Whether every step passed."]
    steps: list[VerifiedStepDocument]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedPeriods:
    """Result of one verification step for one closing."""

    period: str
    version: int
    step: Step
    passed: bool
    sentence: str

    def document(self) -> VerifiedStepDocument:
        return document_of(VerifiedStepDocument, self)


async def verify_periods(
    context: AppContext, *, only: str | None, progress: report_period.Progress = silent
) -> AsyncIterator[VerifiedPeriods]:
    """Yield the result of each step for each closing. Raise NotFoundError for a month without a
    closing."""
    async with context.database.reading() as connection:
        made = await period_store.all_closings(connection)
    if only is not None and only not in {each.period for each in made}:
        raise NotFoundError(
            f"{only[:40]} is not closed; `tallyhook period list` shows which months are"
        )
    chain = [None, *[digest for _, digest in chain_of(made)]]
    for each in made:
        if only not in (None, each.period):
            continue
        closing, found = await _chain(context, each, chain[chain.index(each.digest) - 1])
        yield found
        if closing is not None:
            yield await _prints(context, closing)
            yield await _history(context, closing, progress)
            yield await _figures(context, closing, progress)
            yield await _journal(context, closing, progress)
        if each.reopening is not None:
            yield await _reopening(context, each, chain[chain.index(each.reopening) - 1])


async def _chain(
    context: AppContext, closed: period_store.Closed, expected: str | None
) -> tuple[closings.Closing | None, VerifiedPeriods]:
    async with context.database.reading() as connection:
        text = await period_store.closing_text(connection, closed.period, version=closed.version)
    written = _digest_of(text)
    try:
        closing = closings.closing_of(json.loads(text or ""))
    except UNREADABLE:
        closing = None
    sealed = True
    if closing is not None and closing.checkpoint is not None:
        async with context.database.reading() as connection:
            head = await log_store.head_of(connection, closing.checkpoint["size"])
        sealed = head is not None and head.head.hex() == closing.checkpoint["head"]
    if closing is None or written != closed.digest:
        sentence = "the closing was changed after it was written: its digest differs"
    elif closing.before != expected:
        sentence = f"it names {closing.before} as the closing before it, but that is {expected}"
    elif not sealed:
        sentence = "it names a checkpoint that does not belong to the sealed log"
    else:
        sentence = f"the closing is {written}"
        return closing, _verified(closed, "chain", None, sentence)
    return None, _verified(closed, "chain", sentence, "")


async def _reopening(
    context: AppContext, closed: period_store.Closed, expected: str | None
) -> VerifiedPeriods:
    async with context.database.reading() as connection:
        text = await period_store.reopening_text(connection, closed.period, version=closed.version)
    try:
        reopening = closings.reopening_of(json.loads(text or ""))
    except UNREADABLE:
        reopening = None
    wrong = None
    if reopening is None or _digest_of(text) != closed.reopening:
        wrong = "its reopening was changed after it was written: its digest differs"
    elif reopening.before != expected:
        wrong = f"its reopening names {reopening.before} before it, and that is {expected}"
    return _verified(closed, "chain", wrong, f"it was reopened: {closed.reopening}")


def _digest_of(text: str | None) -> str:
    content = (text or "").encode("utf-8", "backslashreplace")
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _verified(
    of: period_store.Closed | closings.Closing, step: Step, wrong: str | None, right: str
) -> VerifiedPeriods:
    period = of.period if isinstance(of, period_store.Closed) else of.month.name
    sentence = wrong or right
    return VerifiedPeriods(
        period=period, version=of.version, step=step, passed=wrong is None, sentence=sentence
    )


async def _prints(context: AppContext, closing: closings.Closing) -> VerifiedPeriods:
    wrong = []
    async with context.database.reading() as connection:
        for each in closing.prints:
            digest = hashlib.sha256()
            async for part in period_store.print_parts(
                connection, closing.month.name, each.format, version=closing.version
            ):
                digest.update(part)
            if digest.hexdigest() != each.sha256:
                wrong.append(each.format)
    if wrong:
        sentence = f"the stored {', '.join(wrong)} differs from what was printed at closing"
        return _verified(closing, "prints", sentence, "")
    kept_forms = ", ".join(each.format for each in closing.prints)
    try:
        now = {
            form: made.described(form)
            for form, made in printed(report_of(dict(closing.report))).items()
        }
    except UNREADABLE:
        right = "this version of Tallyhook cannot print them again"
        return _verified(
            closing, "prints", None, f"{kept_forms} are unchanged since the closing; {right}"
        )
    other = [
        each.format for each in closing.prints if each.format in now and now[each.format] != each
    ]
    right = ", and this version of Tallyhook prints the same files"
    if other:
        right = f"; this version of Tallyhook would print {', '.join(other)} differently"
    return _verified(
        closing, "prints", None, f"{kept_forms} are unchanged since the closing{right}"
    )


async def _history(
    context: AppContext, closing: closings.Closing, progress: report_period.Progress
) -> VerifiedPeriods:
    async with context.database.reading(settled=True) as connection:
        now = await evidence_digests(
            connection, after=closing.known_after, until=closing.as_of, progress=progress
        )
    rows = sum(each.count for each in now)
    return _verified(
        closing,
        "history",
        closings.first_difference(closing.evidence, now),
        counted(rows, "row of evidence is unchanged", "rows of evidence are unchanged"),
    )


async def _figures(
    context: AppContext, closing: closings.Closing, progress: report_period.Progress
) -> VerifiedPeriods:
    then = replace(context, policy=Policy(**closing.policy))
    report = await report_period.report_period(
        then, scope_of(context, closing.month, closing.as_of), progress=progress
    )
    now = closings.figures(report)
    changes = closings.difference(closing.figures, now)
    wrong = None
    if changes:
        first = changes[0]
        line = " ".join(part for part in (first.currency, first.line, first.what) if part)
        wrong = (
            f"{first.table}, {line}: compared with the closed figures, the evidence differs by "
            f"{first.count:+,} in number and {first.sum:+,} in minor units"
        )
    if wrong is None and closings.adjusted_in(report.adjustments) != closing.adjusted:
        wrong = "the adjustments to earlier months do not follow from the evidence"
    right = f"{len(now):,} figures follow from the evidence"
    if wrong is not None and (other := _other_rules(closing)):
        wrong = None
        right = (
            f"{other} {counted(len(changes), 'figure is', 'figures are')} different, which the "
            "report of the open month gives as adjustments"
        )
    return _verified(closing, "figures", wrong, right)


def _other_rules(closing: closings.Closing) -> str | None:
    by, now = closing.program["rules"], rules_form(Policy(**closing.policy))
    if by == now:
        return None
    return (
        f"the month was closed by the rules {by} of an earlier version. By the current rules "
        f"({now})"
    )


async def _journal(
    context: AppContext, closing: closings.Closing, progress: report_period.Progress
) -> VerifiedPeriods:
    then = replace(context, policy=Policy(**closing.policy))
    scope = scope_of(context, closing.month, closing.as_of)
    kept, now = period_store.PrintParts(), 0

    def write(transaction: Transaction) -> None:
        nonlocal now
        kept.write(report_period.kept_line(transaction))
        now += 1

    await report_period.report_journal(
        then, scope, write=write, revenue=closing.revenue, progress=progress
    )
    right, wrong = f"{counted(now, 'transaction follows', 'transactions follow')}", None
    if kept.described(report_period.TRANSACTIONS) not in closing.prints:
        wrong = "the transactions from the evidence differ from the closed transactions"
    right = f"{right} from the evidence"
    if wrong is not None and (other := _other_rules(closing)):
        wrong = None
        right = (
            f"{other} its transactions are different, which the journal of the open month gives "
            "as adjusting entries"
        )
    return _verified(closing, "journal", wrong, right)
