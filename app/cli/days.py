"""Times as people type them: days in UTC, or RFC 3339 moments."""

from __future__ import annotations

from app.core.errors import UsageError
from reconcile.instants import DAY, LATEST, Instant, parse_instant


def moment(text: str | None, option: str) -> Instant | None:
    """An RFC 3339 moment, or the beginning of a day in UTC; None for None. Raises UsageError."""
    if text is None:
        return None
    try:
        return parse_instant(f"{text}T00:00:00Z" if _is_day(text) else text)
    except ValueError as error:
        raise UsageError(
            f"{option}: write a day such as 2026-10-01, or an RFC 3339 moment ({error})"
        ) from None


def end_of(text: str | None, option: str) -> Instant | None:
    """The same for an end: of a day, all of it is within; a moment itself is not."""
    found = moment(text, option)
    if found is None or text is None or not _is_day(text):
        return found
    return min(found + DAY, LATEST)


def _is_day(text: str) -> bool:
    return len(text) == len("2026-10-01")
