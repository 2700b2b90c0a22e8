"""Compute adjusting entries for changes of closed months."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from typing import Any, Final

from reconcile.instants import Instant
from reconcile.matching.breaks import Break
from reconcile.money import Money
from reconcile.periods import Calendar, Month
from reconcile.reporting.journal import Adjusts, Posting, Role, Transaction

_Content = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenMonth:
    month: Month
    calendar: Calendar
    transactions: Iterator[Transaction]


def with_adjusting(
    fresh: Iterable[Transaction], closed: Sequence[FrozenMonth], *, at: Instant
) -> Iterator[Transaction]:
    """Yield open months' transactions, then the adjusting entries."""
    starts = [each.month.start for each in closed]
    left = Counter[_Content]()
    samples: dict[_Content, Transaction] = {}

    def add(key: _Content, count: int, sample: Transaction) -> None:
        left[key] += count
        if left[key]:
            samples[key] = sample
        else:
            del left[key], samples[key]

    def subtract(some: Iterable[Transaction], of: FrozenMonth) -> None:
        for each in some:
            if (adjusts := each.adjusts) is None:
                add(_content(each, of.month.name, of.calendar.day_of(each.at)), -1, each)
            else:
                original = _reversed(each) if adjusts.reverses else each
                key = _content(original, adjusts.period, adjusts.original_date)
                add(key, 1 if adjusts.reverses else -1, original)

    for each in fresh:
        place = bisect_right(starts, each.at) - 1
        if place < 0 or each.at >= closed[place].month.end:
            yield each
            continue
        of = closed[place]
        add(_content(each, of.month.name, of.calendar.day_of(each.at)), 1, each)
        subtract(islice(of.transactions, 1), of)
    for of in closed:
        subtract(of.transactions, of)
    for key in sorted(left, key=lambda key: (key[:2], left[key] > 0, repr(key))):
        count, period, day = left[key], key[0], key[1]
        adjusts = Adjusts(period=period, original_date=day, tax_date=day, reverses=count < 0)
        entry = _reversed(samples[key]) if count < 0 else samples[key]
        yield from [replace(entry, at=at, adjusts=adjusts)] * abs(count)


def _content(transaction: Transaction, period: str, day: str) -> _Content:
    sums = Counter[tuple[str, str, str]]()
    for each in transaction.postings:
        sums[each.role, each.account or "", each.sub_account or ""] += each.minor
    return (
        period,
        day,
        transaction.currency,
        transaction.source,
        transaction.order,
        transaction.payment,
        transaction.method,
        tuple(sorted(sums.items())),
    )


_REVERSED: Final = "reversed: "


def _reversed(transaction: Transaction) -> Transaction:
    what = transaction.what
    done = what.removeprefix(_REVERSED)
    return replace(
        transaction,
        what=f"{_REVERSED}{what}" if done == what else done,
        postings=tuple([replace(each, minor=-each.minor) for each in transaction.postings]),
    )


CITED: Final = 20
"""Maximum number of ids that a break cites."""


class AdjustedMoney:
    """Amount that adjusting entries move, by closed month and currency."""

    def __init__(self) -> None:
        self._accounts = Counter[tuple[str, str, Role, str]]()
        self._cites: dict[tuple[str, str], dict[str, None]] = {}
        self._at: Instant | None = None

    def add(self, transaction: Transaction) -> None:
        """Add the money of an adjusting entry."""
        adjusts, currency = transaction.adjusts, transaction.currency
        if adjusts is None:
            return
        self._at = transaction.at
        for each in transaction.postings:
            self._accounts[adjusts.period, currency, each.role, each.account or ""] += each.minor
        cites = self._cites.setdefault((adjusts.period, currency), {})
        if len(cites) < CITED:
            cites |= dict.fromkeys(transaction.cites)

    def sums(self) -> Mapping[tuple[str, str], int]:
        found = Counter[tuple[str, str]]()
        for (period, currency, _, _), minor in self._accounts.items():
            found[period, currency] += max(0, minor)
        return found

    def breaks(self, limits: Mapping[str, int]) -> Iterator[Break]:
        """Yield a break for each adjusted amount above its limit. Limits are in minor units; 0
        means no limit."""
        for (period, currency), minor in sorted(self.sums().items()):
            limit = limits.get(currency, 0)
            if limit and minor > limit and self._at is not None:
                money = Money(minor=minor, currency=currency)
                yield Break(
                    cause="closed_month_changed",
                    subject=f"{period} {currency}",
                    money=money,
                    since=self._at,
                    cites=tuple(list(self._cites[period, currency])[:CITED]),
                    facts=(
                        ("period", period),
                        ("adjusted", money),
                        ("limit", Money(minor=limit, currency=currency)),
                    ),
                )


_PLAIN: Final = tuple(
    each.name for each in fields(Transaction) if each.name not in ("postings", "adjusts")
)


def transaction_document(transaction: Transaction) -> dict[str, Any]:
    """Return a transaction as JSON values."""
    adjusts = transaction.adjusts
    return {
        **{name: getattr(transaction, name) for name in _PLAIN},
        "postings": [
            [each.role, each.minor, each.account, each.sub_account] for each in transaction.postings
        ],
        "adjusts": adjusts and [getattr(adjusts, each.name) for each in fields(Adjusts)],
    }


def transaction_of(document: Mapping[str, Any]) -> Transaction:
    """Parse a transaction from JSON values. Raises KeyError, TypeError or ValueError for invalid
    values."""
    adjusts = document["adjusts"]
    names = [each.name for each in fields(Adjusts)]
    return Transaction(
        **{name: document[name] for name in _PLAIN if name != "cites"},
        cites=tuple(document["cites"]),
        postings=tuple(
            Posting(role=role, minor=minor, account=account, sub_account=sub_account)
            for role, minor, account, sub_account in document["postings"]
        ),
        adjusts=None if adjusts is None else Adjusts(**dict(zip(names, adjusts, strict=True))),
    )
