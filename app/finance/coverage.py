"""List, declare and withdraw the coverage of imported files."""

from dataclasses import dataclass, replace
from datetime import UTC

from app.access.operators import note_in_trail, permitted
from app.access.proposals import check_reason
from app.context.context import AppContext
from app.core.errors import NotFoundError, UsageError
from app.finance.coverage_store import BY_FILE as BY_FILE
from app.finance.coverage_store import CoverageLine as CoverageLine
from app.finance.coverage_store import add_coverage, coverage_lines
from app.finance.import_store import ImportKind, importing_alone
from reconcile.instants import TICK, Instant, format_instant
from reconcile.matching.rules import Span
from reconcile.periods import Calendar

KIND_WORDS = {"book": "order book", "statement": "source", "bank": "bank account"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """A person's declaration of the days that imported files cover. Without a wallet, the
    declaration covers the whole source."""

    kind: ImportKind
    name: str
    first: str
    last: str
    reason: str
    wallet: str | None = None
    by: str | None = None


async def list_coverage(context: AppContext) -> list[CoverageLine]:
    """Return the coverage lines in force, sorted by number."""
    async with context.database.reading() as connection:
        return await coverage_lines(connection, as_of=context.clock.now())


def days_of_span(line: CoverageLine, calendar: Calendar) -> str:
    """Return a coverage line's days, such as `2026-10-01 to 2026-10-31`."""
    if line.since is None or line.until is None:
        return ""
    return f"{calendar.day_of(line.since)} to {calendar.day_of(Instant(line.until - TICK))}"


async def declare_coverage(context: AppContext, asked: Declaration) -> CoverageLine:
    """Store a declaration of covered days. Raise UsageError for invalid or future days, and
    NotFoundError for an unknown name."""
    check_reason(asked.reason, of="coverage", countries=context.countries)
    span = span_of_days(context, asked.first, asked.last)
    async with context.database.writing() as connection:
        await importing_alone(connection)
        who = await permitted(connection, by=asked.by, action="coverage_declared")
        now = context.clock.now()
        known = {line.name for line in await coverage_lines(connection, as_of=now)
                 if line.kind == asked.kind}  # fmt: skip
        if asked.name not in known:
            there = (
                f"there are imported files of {', '.join(sorted(known))}"
                if known
                else ("nothing was imported yet")
            )
            raise NotFoundError(
                f"no file of the {KIND_WORDS[asked.kind]} {asked.name[:80]!r} was imported; {there}"
            )
        line = CoverageLine(
            kind=asked.kind,
            name=asked.name,
            wallet=asked.wallet,
            since=span.since,
            until=span.until,
            who=who.name,
            at=now,
            reason=asked.reason.strip(),
        )
        number = await add_coverage(connection, [line])
        facts = {"kind": line.kind, "since": format_instant(span.since),
                 "until": format_instant(span.until), "number": str(number)}  # fmt: skip
        await note_in_trail(
            connection, who, action="coverage_declared", subject=line.name, at=now,
            reason=asked.reason, facts=facts,
        )  # fmt: skip
    return replace(line, number=number)


def span_of_days(context: AppContext, first: str, last: str) -> Span:
    """Return the span of whole days in the merchant's zone. Raise UsageError for invalid days."""
    calendar = Calendar(context.zone or UTC)
    try:
        span = Span(since=calendar.day(first.strip())[0], until=calendar.day(last.strip())[1])
    except ValueError:
        raise UsageError("give the first and the last day, such as 2026-10-01") from None
    if span.since >= span.until:
        raise UsageError("the first day comes after the last")
    if span.until > context.clock.now():
        raise UsageError("the last day has not ended yet: no file can cover future days")
    return span


async def withdraw_coverage(
    context: AppContext, number: int, *, reason: str, by: str | None
) -> CoverageLine:
    """Withdraw a declared coverage line. Raise NotFoundError if no such line is in force."""
    check_reason(reason, of="coverage", countries=context.countries)
    async with context.database.writing() as connection:
        await importing_alone(connection)
        who = await permitted(connection, by=by, action="coverage_withdrawn")
        now = context.clock.now()
        lines = await coverage_lines(connection, as_of=now)
        found = next((line for line in lines if line.number == number), None)
        if found is None:
            raise NotFoundError(
                f"no declared coverage {number} is in force; `tallyhook coverage list` shows the "
                "declarations in force"
            )
        if found.who == BY_FILE:
            raise UsageError(
                f"this coverage comes from a file: withdraw import {found.of_import} instead"
            )
        await add_coverage(
            connection,
            [replace(found, of_import=None, who=who.name, at=now, reason=reason, withdraws=number)],
        )
        await note_in_trail(
            connection, who, action="coverage_withdrawn", subject=found.name, at=now,
            reason=reason, facts={"kind": found.kind, "number": str(number)},
        )  # fmt: skip
    return found
