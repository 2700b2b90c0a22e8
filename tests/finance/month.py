"""A month of a shop, generated: what came to the door, the books, and the truth about both.

    month = Month(orders=200, seed=1)
    for story in month.stories(): …     in the order in which the orders were placed
    truth = month.truth()               what any report of the month must find

The truth is what the plots decided. Nothing of it is computed by the code that it judges.
"""

import csv
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from reconcile.instants import (
    DAY,
    HOUR,
    MILLISECOND,
    SECOND,
    Instant,
    format_instant,
    parse_instant,
)
from tests.finance.plots import CYCLE, UNDECIDED, Plot, never_notified, pays
from tests.finance.story import FEE_PERCENT, Arrived, Gap, Story, Telling, major

CURRENCIES = ("KES", "JPY", "KWD")
DAYS = 31
OCTOBER = parse_instant("2026-10-01T00:00:00Z")
CLOSED_AT = parse_instant("2026-11-12T09:00:00Z")
"""Instant at which the month is closed: all but late events has come, and every margin is over."""

ACCOUNT_FEE = 900
"""Minor units that the provider takes for the account in each currency, each time."""

ACCOUNT_FEE_DAYS = (0, DAYS + 9)
"""Days of the fee, counted from the month's first. The statement covers both and all between."""

BOOK_COLUMNS = ("reference", "kind", "amount", "currency", "placed_at", "status", "group")
STATEMENT_COLUMNS = (
    "payment_reference",
    "order_reference",
    "type",
    "gross",
    "fee",
    "net",
    "currency",
    "settled_at",
    "payout",
)


@dataclass(slots=True, kw_only=True)
class Truth:
    """Known truth of a month. Money is in minor units.

    outcomes    orders by (currency, outcome): those that anybody spoke to us of
    gaps        every break, by (cause, order)
    not_notified  sums of the statement lines of its orders that no webhook stated, by currency
    captured, returned, lost, fees, settled
                sums by currency; `fees` and `settled` (net) are those of the statement: of lines
                whose movement is of the month and, where no movement is known, whose order is
    """

    orders: int = 0
    deliveries: int = 0
    book_rows: int = 0
    statement_rows: int = 0
    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    captured: Counter[str] = field(default_factory=Counter)
    returned: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    fees: Counter[str] = field(default_factory=Counter)
    settled: Counter[str] = field(default_factory=Counter)
    not_notified: Counter[str] = field(default_factory=Counter)
    gaps: dict[tuple[str, str], Gap] = field(default_factory=dict)

    def count(self, cause: str) -> int:
        """Count the breaks of a cause."""
        return sum(gap.cause == cause for gap in self.gaps.values())

    def at_stake(self, cause: str) -> Counter[str]:
        """Return the money of these breaks, by currency."""
        found: Counter[str] = Counter()
        for gap in self.gaps.values():
            if gap.cause == cause:
                found[gap.currency] += gap.minor
        return found

    def add(self, story: Story) -> None:
        """Count one story of the month."""
        self.deliveries += len(story.arrivals)
        self.book_rows += len(story.book)
        self.statement_rows += len(story.statement)
        if story.outcome is not None:
            self.orders += 1
            self.outcomes[story.currency, story.outcome] += 1
        self.captured[story.currency] += story.captured
        self.returned[story.currency] += story.returned
        self.lost[story.currency] += story.lost
        for row in story.statement:
            self.fees[row.currency] += row.fee
            self.settled[row.currency] += row.net
            if any(gap.cause == "settled_never_notified" for gap in story.gaps):
                self.not_notified[row.currency] += row.gross
        for gap in story.gaps:
            self.gaps[gap.cause, gap.order] = gap


@dataclass(frozen=True, slots=True, kw_only=True)
class Month:
    """A number of orders, placed evenly from the first day's first hour to the last day's evening.

    undecided_every  number of cycles of plots among which only the first has undecided orders:
                     a person decides them one by one before the month can be closed
    """

    orders: int
    undecided_every: int = 1
    plots: tuple[Plot, ...] = CYCLE
    seed: int = 1
    starts: Instant = OCTOBER
    prefix: str = "10-"

    def stories(self) -> Iterator[Story]:
        """Yield every story, in the order in which the orders were placed."""
        return map(self._story, range(self.orders))

    def _story(self, number: int) -> Story:
        span = DAYS * DAY - 8 * HOUR
        cycle, place = divmod(number, len(self.plots))
        plot = self.plots[place]
        if plot in UNDECIDED and cycle % self.undecided_every:
            plot = pays
        telling = Telling(
            plot.__name__,
            number=number,
            prefix=self.prefix,
            seed=self.seed,
            currency=CURRENCIES[number % len(CURRENCIES)],
            placed_at=self.starts + HOUR + (number * span // self.orders) // SECOND * SECOND,
        )
        plot(telling)
        if plot is never_notified:
            telling.hears_late("succeeded", 60)
        telling.story.arrivals.sort(key=lambda each: each.at)
        return telling.story

    def truth(self) -> Truth:
        """Return what is true of the month, as known when it is closed."""
        truth = Truth()
        for story in self.stories():
            truth.add(story)
        truth.statement_rows += len(ACCOUNT_FEE_DAYS) * len(CURRENCIES)
        for currency in CURRENCIES:  # the later one is none of the month's
            truth.fees[currency] += ACCOUNT_FEE
            truth.settled[currency] -= ACCOUNT_FEE
        return truth

    def late(self, at: Instant) -> list[Arrived]:
        """Return the missed webhooks of the month, which come at last, one a millisecond from `at`
        on: the payments that only the statement has known."""
        late = (each for story in self.stories() for each in story.late)
        return [
            Arrived(at + place * MILLISECOND, each.event_id, each.body)
            for place, each in enumerate(late)
        ]

    def write_book(self, path: Path) -> Path:
        """Write the merchant's order book as CSV."""
        rows = (
            (
                row.reference,
                row.kind,
                major(row.minor, row.currency),
                row.currency,
                format_instant(row.placed_at),
                row.status,
                row.group,
            )
            for story in self.stories()
            for row in story.book
        )
        return _written(path, BOOK_COLUMNS, rows)

    def write_statement(self, path: Path) -> Path:
        """Write the provider's statement as CSV."""
        rows = (
            (
                row.payment,
                row.order,
                row.kind,
                *(major(minor, row.currency) for minor in (row.gross, row.fee, row.net)),
                row.currency,
                format_instant(row.settled_at),
                f"po_{row.settled_at // DAY}_{row.currency}",
            )
            for story in self.stories()
            for row in story.statement
        )
        # What is not on the statement by the last of these days is missing; without that line it
        # could still come, and would be no break.
        fees = []
        for day in ACCOUNT_FEE_DAYS:
            at = format_instant(self.starts + day * DAY)
            for currency in CURRENCIES:
                fee = major(ACCOUNT_FEE, currency)
                names = ("", "", "fee", major(0, currency), fee, f"-{fee}")
                fees.append((*names, currency, at, f"fee_{currency}_{day}"))
        return _written(path, STATEMENT_COLUMNS, chain(rows, fees))

    def settled_between(self, since: Instant, until: Instant) -> tuple[Counter[str], Counter[str]]:
        """Return fees and net by currency of the statement's lines of this time, without `until`:
        what a report on the basis `settled` must find."""
        fees, net = Counter[str](), Counter[str]()
        for story in self.stories():
            for row in story.statement:
                if since <= row.settled_at < until:
                    fees[row.currency] += row.fee
                    net[row.currency] += row.net
        days = [day for day in ACCOUNT_FEE_DAYS if since <= self.starts + day * DAY < until]
        for currency in CURRENCIES:
            fees[currency] += ACCOUNT_FEE * len(days)
            net[currency] -= ACCOUNT_FEE * len(days)
        return fees, net

    @property
    def days(self) -> tuple[str, str]:
        """The first and the last day that book and statement cover."""
        ends = [self.starts + day * DAY for day in ACCOUNT_FEE_DAYS]
        first, last = [format_instant(Instant(each))[:10] for each in ends]
        return first, last

    def write_rules(self, path: Path) -> Path:
        """Write the merchant's rules: the fee that was agreed in each currency."""
        fees = (
            f'[[fee]]\nsource = "shop"\ncurrency = "{currency}"\npercent = "{percent}"\n'
            for currency, percent in FEE_PERCENT.items()
        )
        path.write_text("\n".join(fees), encoding="utf-8")
        return path


def _written(path: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)
    return path
