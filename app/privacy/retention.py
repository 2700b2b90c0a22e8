"""How long each class of data is kept, as the settings say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from app.core.errors import ConfigurationError
from app.core.text import counted
from app.providers.source import Source
from reconcile.instants import DAY, Duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long each class of what arrived is kept; None: for ever.

    quiet        bodies and headers, after nothing more was heard of their order: together, for
                 neither is evidence without the other, nor can be read. Never less than the longest
                 time in which a source may deliver again
    phones       digests of phone numbers, after nothing more was heard of their order
    rejections   refused deliveries, from their arrival
    book_phones  phone numbers in order books, from their import
    sources      those whose redelivery time is known; deliveries of others are kept
    """

    quiet: Duration | None
    sources: frozenset[str]
    phones: Duration | None = None
    rejections: Duration | None = None
    book_phones: Duration | None = None

    def classes(self) -> dict[str, int | None]:
        """Each class and the days for which it is kept."""
        spans = {
            "bodies": self.quiet,
            "phones": self.phones,
            "rejections": self.rejections,
            "book_phones": self.book_phones,
        }
        return {name: None if span is None else span // DAY for name, span in spans.items()}


def retention_for(
    days: int,
    sources: Mapping[str, Source],
    *,
    phones: int = 0,
    rejections: int = 0,
    book_phones: int = 0,
) -> Retention | None:
    """What settings of so many days mean; None where everything is kept. 0: for `days`, those of
    bodies and headers, for ever; for the others, as long as these.

    Raises ConfigurationError where a source may deliver again after its bodies would be gone.
    """
    given = {"phones": phones, "rejections": rejections, "book_phones": book_phones}
    if not (days or any(given.values())):
        return None
    if days:
        _check_redelivery(days, sources)
    spans = {name: (own or days) * DAY or None for name, own in given.items()}
    return Retention(quiet=days * DAY or None, sources=frozenset(sources), **spans)


def _check_redelivery(days: int, sources: Mapping[str, Source]) -> None:
    spans = {
        name: source.profile.acknowledgement.redelivery_days for name, source in sources.items()
    }
    problems = [
        f"TALLYHOOK_RETENTION_DAYS: {days} is less than the {counted(span, 'day')} within which "
        f"source {name} may deliver again; write {max(spans.values())} or more, or 0 to keep "
        "everything"
        for name, span in spans.items()
        if span > days
    ]
    if problems:
        raise ConfigurationError(problems)
