"""Match orders paid outside providers with bank lines.

1 by hand    even if the sums differ, which is a break
2 by name    if the line's texts name the order, and the sums agree
3 by date    if sum and date fit nothing else, and the book states a bank transfer
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from reconcile.instants import DAY, Duration, Instant
from reconcile.matching.books import BankLine, BookLine, Methods
from reconcile.matching.breaks import Break
from reconcile.matching.candidates import Searchable, entry_of
from reconcile.matching.decide import Match, MatchKind
from reconcile.matching.fallback import Offer, fits
from reconcile.matching.rows import subject_of
from reconcile.matching.rules import HandMatch
from reconcile.matching.texts import named_in, order_names
from reconcile.money import Money

TRANSFER_WITHIN: Final[Duration] = 14 * DAY
"""Maximum time between an order and its bank transfer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Orders paid outside providers, and the bank lines that paid them.

    The kind is None for a plain match by name and sum.
    """

    kind: MatchKind | None
    """Kind of match. None for a plain match by name and sum."""
    orders: tuple[BookLine, ...]
    lines: tuple[str, ...]
    booked: Money
    at: Instant

    def decision(self) -> Match | Break | None:
        """Return the match or break to report, if any."""
        due = sum([each.money.minor for each in self.orders])
        ids = (*[each.line_id for each in self.orders], *self.lines)
        apart = Money(minor=abs(due - self.booked.minor), currency=self.booked.currency)
        if self.kind == "by_hand" and apart.minor:
            return Break(
                cause="amount_differs",
                order=self.orders[0].reference,
                subject=subject_of(self.lines[0]),
                money=apart,
                since=self.at,
                cites=ids,
                facts=(
                    ("in_bank", self.booked),
                    ("booked", Money(minor=due, currency=self.booked.currency)),
                    ("difference", apart),
                    ("against", "book"),
                ),
            )
        if self.kind is None:
            return None
        return Match(
            kind=self.kind,
            order=self.orders[0].reference,
            lines=tuple(sorted(ids)),
            money=self.booked,
        )


class Transfers:
    """Orders paid outside providers that are not yet matched with bank lines."""

    def __init__(self, orders: Iterable[BookLine], *, methods: Methods) -> None:
        self.orders = {subject_of(each.line_id): each for each in orders}
        self._methods = methods
        self._names: dict[str, set[str]] = defaultdict(set)
        for subject, order in self.orders.items():
            if self._paid(order):
                for name in order_names(order.reference):
                    self._names[name].add(subject)

    def _paid(self, order: BookLine) -> bool:
        outside = self._methods.parts(order.method) & {"outside", "bank"}
        return bool(outside) and order.status in ("paid", "refunded")

    def by_hand(self, lines: Sequence[BankLine], hands: Iterable[HandMatch]) -> Iterator[Transfer]:
        """Yield the bank transfers and orders that people matched with each other."""
        known = {subject_of(line.line_id): line for line in lines}
        given: dict[str, set[str]] = defaultdict(set)
        for hand in hands:
            for one, other in ((hand.one, hand.other), (hand.other, hand.one)):
                if one in known and other in self.orders:
                    given[one].add(other)
        while given:
            subject = min(given)
            orders = given.pop(subject)
            own = [subject, *[each for each in sorted(given) if given[each] & orders]]
            for each in own[1:]:
                orders |= given.pop(each)
            found = [self.orders.pop(each) for each in sorted(orders) if each in self.orders]
            if found and len({*[o.money.currency for o in found], known[subject].currency}) == 1:
                yield _transfer("by_hand", found, [known[each] for each in own])

    def by_name(self, lines: Sequence[BankLine]) -> Iterator[Transfer]:
        """Yield the bank transfers whose texts name orders."""
        parts: dict[str, list[BankLine]] = defaultdict(list)
        for line in lines:
            if line.minor <= 0:
                continue
            named = self.named_by(line)
            exact = [each for each in named if self._fits(self.orders[each], line.minor)]
            if len(exact) == 1:
                yield _transfer(None, [self.orders.pop(exact[0])], [line])
            elif line.minor == sum([self._minor(each) for each in named]):
                yield _transfer("by_group", [self.orders.pop(each) for each in named], [line])
            elif len(named) == 1:
                parts[named[0]].append(line)
        for subject, own in sorted(parts.items()):
            whole = sum([line.minor for line in own])
            if subject in self.orders and self._minor(subject) == whole:
                yield _transfer("by_group", [self.orders.pop(subject)], own)

    def named_by(self, line: BankLine) -> list[str]:
        """Return the orders that the bank line's texts name."""
        if not self._names:
            return []
        keys = named_in((line.reference, line.counterparty, line.text)) & self._names.keys()
        found = {subject for key in keys for subject in self._names[key]} & self.orders.keys()
        return sorted(s for s in found if self.orders[s].money.currency == line.currency)

    def _minor(self, subject: str) -> int:
        return self.orders[subject].money.minor

    def _fits(self, order: BookLine, minor: int) -> bool:
        tendered = "tender" in self._methods.parts(order.method)
        return minor <= order.money.minor if tendered else minor == order.money.minor

    def by_date(self, lines: Sequence[BankLine]) -> Iterator[Transfer]:
        """Yield the bank transfers that fit exactly one order."""
        orders = [
            Offer(each.money.currency, each.money.minor, each.placed_at, subject)
            for subject, each in self.orders.items()
            if each.placed_at is not None
            and self._paid(each)
            and "bank" in self._methods.parts(each.method)
        ]
        known = {line.line_id: line for line in lines if line.minor > 0}
        offers = [Offer(e.currency, e.minor, e.booked_at, name) for name, e in known.items()]
        found = fits(orders, offers, window=TRANSFER_WITHIN, tolerance=lambda _: 0)
        for subject, name in found.pairs:
            yield _transfer("by_date_window", [self.orders.pop(subject)], [known[name]])


def of_book_line(line: BookLine) -> Searchable:
    return entry_of(
        line.line_id,
        names=[line.reference],
        minor=line.money.minor,
        currency=line.money.currency,
        at=line.placed_at,
    )


def _transfer(
    kind: MatchKind | None, orders: Sequence[BookLine], lines: Sequence[BankLine]
) -> Transfer:
    return Transfer(
        kind=kind,
        orders=tuple(orders),
        lines=tuple([line.line_id for line in lines]),
        booked=Money(minor=sum([line.minor for line in lines]), currency=lines[0].currency),
        at=min([line.booked_at for line in lines]),
    )
