"""Find the period that a file states."""

import re
from collections.abc import Iterable, Iterator
from datetime import UTC
from pathlib import Path
from typing import Final

from app.finance.files.dates import Dates
from app.finance.files.mapping import FileMapping
from app.finance.files.presets import ChosenReading
from app.finance.files.tables import SourceTable, StatedPeriod, UnclearCell
from reconcile.instants import HOUR, MINUTE, SECOND, Instant
from reconcile.matching.rules import Span
from reconcile.periods import Calendar

_DATE: Final = (
    r"(?:\d{4}[-/.]\d\d?[-/.]\d\d?|\d\d?[-/.]\d\d?[-/.]\d{4})"
    r"(?:[T ]\d\d?:\d\d(?::\d\d)?(?:\s?[AP]\.?M\.?)?)?"
)
_PERIOD: Final = re.compile(
    rf"(?<!\d)({_DATE})\"?[\s,;|]*(?:to|until|till|through|-|–|bis|au|hadi)[\s:,;|]*\"?({_DATE})(?!\d)",
    re.ASCII | re.IGNORECASE,
)

_NAMED: Final = re.compile(
    r"(?<!\d)(\d{4}-\d\d-\d\d)[ _-]?(?:to|_|-)[ _-]?(\d{4}-\d\d-\d\d)(?!\d)", re.ASCII
)

LONGEST_LINE: Final = 1_000
"""Maximum characters of a line that is searched for a period."""


def in_head(lines: Iterable[str]) -> Iterator[StatedPeriod]:
    """Yield the period stated above a table."""
    found = {
        match.groups() for line in lines for match in _PERIOD.finditer(line.strip()[:LONGEST_LINE])
    }
    if len(found) == 1:
        ((since, until),) = found
        yield StatedPeriod(since=since, until=until)


def in_name(name: str) -> Iterator[StatedPeriod]:
    """Yield the period in a file's name, such as `2026-10-01_2026-10-31`."""
    found = _NAMED.search(name)
    if found is not None:
        yield StatedPeriod(since=found[1], until=found[2])


def spans_of(table: SourceTable, path: Path, chosen: ChosenReading) -> list[tuple[str, Span]]:
    """Return (account, span) for each period that a file states, after all rows are read. The whole
    file's account is empty."""
    periods = [*table.periods] or [*in_head(table.head)]
    if not periods and chosen.preset is not None:
        periods = [*in_name(path.name)]
    mapping = chosen.mapping
    found = [(" ".join(each.name.split()), span_of(each, mapping)) for each in periods]
    return [(name, span) for name, span in found if span is not None]


def span_of(period: StatedPeriod, mapping: FileMapping) -> Span | None:
    """Return a stated period's span; None for an invalid period."""
    zone = mapping.zone or UTC
    dates, calendar = Dates(mapping.dates, zone, mapping.zones), Calendar(zone)
    try:
        since, until = dates.read([period.since, period.until])
    except UnclearCell:
        return None
    if since is None or until is None or since > until:
        return None
    if ":" not in period.until:
        return Span(since=since, until=calendar.next_day(until))
    # 23:59 and 23:59:59 mean the end of the last minute or second.
    return Span(since=since, until=_end(until, minute=period.until.count(":") == 1))


def _end(last: Instant, *, minute: bool) -> Instant:
    length, whole = (MINUTE, HOUR) if minute else (SECOND, MINUTE)
    return Instant(last + length) if (last + length) % whole == 0 else last


def days_of(since: str, until: str, mapping: FileMapping) -> Span:
    """Return the span of whole days. Raise ValueError, with a sentence for people, for invalid
    days."""
    calendar = Calendar(mapping.zone or UTC)
    span = Span(since=calendar.day(since)[0], until=calendar.day(until)[1])
    if span.since >= span.until:
        raise ValueError("the first day comes after the last")
    return span
