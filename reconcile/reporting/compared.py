"""Coverage rows of a report: days that imported files cover."""

from collections.abc import Iterator, Mapping
from typing import Final, Literal

from reconcile.instants import Instant
from reconcile.matching.rules import Coverage, Covered
from reconcile.reporting.report import CoverageRow

_KINDS: Final[tuple[Literal["statement", "bank", "book"], ...]] = ("statement", "bank", "book")


def coverage_rows(
    coverage: Coverage, *, captures: Mapping[str, int], start: Instant, end: Instant
) -> tuple[CoverageRow, ...]:
    """Return the report's coverage rows."""
    with_wallets = {each.name for each in coverage.wallets}
    sources = [each for each in coverage.statements if each.name not in with_wallets]
    known = {each.name for each in coverage.statements}
    sources += [Covered(name=name) for name in captures if name not in known]
    by_kind = {
        "statement": [*sources, *coverage.wallets],
        "bank": [*coverage.bank],
        "book": [*coverage.books],
    }
    return tuple(
        row
        for kind in _KINDS
        for each in sorted(by_kind[kind], key=lambda one: (one.name, one.wallet or ""))
        for row in _rows(kind, each, payments=captures.get(each.name, 0) if kind == "statement"
                         else 0, start=start, end=end)
    )  # fmt: skip


def _rows(
    kind: Literal["statement", "bank", "book"],
    covered: Covered,
    *,
    payments: int,
    start: Instant,
    end: Instant,
) -> Iterator[CoverageRow]:
    within: list[tuple[Instant | None, Instant | None]] = [
        (max(span.since, start), min(span.until, end))
        for span in covered.spans
        if span.since < end and span.until > start
    ]
    for since, until in within or [(None, None)]:
        yield CoverageRow(
            kind=kind,
            name=covered.name,
            wallet=covered.wallet,
            since=since,
            until=until,
            whole=(since, until) == (start, end),
            payments=payments,
            declared_by=", ".join(covered.declared_by),
        )
