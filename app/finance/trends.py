"""Compute trends of twelve months: settled or open captures, and fees."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Final

from app.context.context import AppContext
from app.finance import trend_store, worklist
from app.finance.coverage_store import coverage
from reconcile.documents import MoneyDocument
from reconcile.instants import Instant, format_known
from reconcile.money import Money, to_json
from reconcile.periods import Calendar

MONTHS: Final = 12


@dataclass(slots=True, kw_only=True)
class MonthSettled:
    """Captures of one source and month, by their settlement."""

    captures: int = 0
    settled_captures: int = 0
    not_covered_captures: int = 0
    captured: int = 0
    settled: int = 0
    not_covered: int = 0

    @property
    def open(self) -> int:
        return self.captured - self.settled - self.not_covered

    @property
    def open_captures(self) -> int:
        return self.captures - self.settled_captures - self.not_covered_captures


@dataclass(slots=True, kw_only=True)
class MonthFees:
    """Payments of one month, source and method, in minor units."""

    payments: int = 0
    gross: int = 0
    fee: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Trends:
    """Settlement and fees by source, currency and month."""

    as_of: Instant | None
    months: tuple[str, ...]
    settling: dict[tuple[str, str], dict[str, MonthSettled]]
    fees: dict[tuple[str, str, str], dict[str, MonthFees]]


async def trends(context: AppContext) -> Trends:
    """Return the trends of twelve months, including the current month."""
    now = context.clock.now()
    calendar = Calendar(context.calendar_zone)
    months = _last_months(calendar, now)
    since = calendar.month(months[0]).start
    settling = defaultdict[tuple[str, str], dict[str, MonthSettled]](dict)
    fees = defaultdict[tuple[str, str, str], dict[str, MonthFees]](dict)
    run = await worklist.newest_run(context)
    as_of = None if run is None else run.as_of
    async with context.database.reading() as connection:
        known = await coverage(connection, as_of=now)
        spans = {each.name: each.spans for each in known.statements}
        async for some in trend_store.captured_sums(connection, since=since, as_of=now):
            for each in some:
                own = settling[each.source, each.currency]
                month = own.setdefault(calendar.day_of(each.at)[:7], MonthSettled())
                month.captures += each.captures
                month.settled_captures += each.settled_captures
                month.captured += each.minor
                month.settled += each.settled_minor
                if not any(one.since <= each.at < one.until for one in spans.get(each.source, ())):
                    month.not_covered_captures += each.captures - each.settled_captures
                    month.not_covered += each.minor - each.settled_minor
        async for paid in trend_store.fee_sums(connection, since=since, as_of=now):
            for fee in paid:
                costs = fees[fee.source, fee.currency, fee.method]
                entry = costs.setdefault(calendar.day_of(fee.at)[:7], MonthFees())
                entry.payments += fee.payments
                entry.gross += fee.gross
                entry.fee += fee.fee
    return Trends(
        as_of=as_of,
        months=tuple(months),
        settling=dict(sorted(settling.items())),
        fees=dict(sorted(fees.items())),
    )


def _last_months(calendar: Calendar, now: Instant) -> list[str]:
    year, month = map(int, calendar.day_of(now)[:7].split("-"))
    last = year * 12 + month - 1
    return [f"{each // 12}-{each % 12 + 1:02d}" for each in range(last - MONTHS + 1, last + 1)]


def trends_document(found: Trends) -> dict[str, Any]:
    """Return the trends as a document. Rates are in percent."""
    return {
        "as_of": format_known(found.as_of),
        "months": list(found.months),
        "settling": [
            {
                "source": source,
                "currency": currency,
                "month": name,
                "captures": month.captures,
                "captured": _money(month.captured, currency),
                "settled": _money(month.settled, currency),
                "open": _money(month.open, currency),
                "open_captures": month.open_captures,
                "not_covered": _money(month.not_covered, currency),
                "match_rate": _percent(month.settled, month.captured - month.not_covered),
            }
            for (source, currency), months in found.settling.items()
            for name, month in sorted(months.items())
        ],
        "fees": [
            {
                "source": source,
                "method": method,
                "currency": currency,
                "month": name,
                "payments": month.payments,
                "gross": _money(month.gross, currency),
                "fee": _money(month.fee, currency),
                "fee_rate": _percent(month.fee, month.gross),
            }
            for (source, currency, method), months in found.fees.items()
            for name, month in sorted(months.items())
        ],
    }


def _money(minor: int, currency: str) -> MoneyDocument:
    return to_json(Money(minor=minor, currency=currency))


def _percent(part: int, whole: int) -> str | None:
    if whole <= 0:
        return None
    hundredths = (part * 20_000 + whole) // (2 * whole)  # rounded half up
    return f"{hundredths // 100}.{hundredths % 100:02d}"
