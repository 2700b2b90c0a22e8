"""Compute the money beyond the price, and providers' discounts."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from reconcile.ledger.events import Part, PartKind
from reconcile.ledger.movements import Payment
from reconcile.money import Money

ON_TOP: Final[tuple[PartKind, ...]] = ("tip", "donation", "surcharge", "fee", "shipping", "tax")
"""Kinds of parts paid on top of a price, in order."""


@dataclass(slots=True)
class Counted:
    """Amounts of one payment, in minor units of one currency."""

    captured: int
    kept: int
    """Amount that came, less returns and open disputes. Can be negative."""
    beyond: int = 0
    """Part of `captured` above the base that the provider states."""
    named: int = 0
    """Sum of the named parts of captures without a stated base."""
    kinds: dict[PartKind, int] | None = None
    """Sum of the named parts for each kind."""
    discount: int = 0
    """Sum of the discounts that the shop pays for."""
    financed: int = 0
    """Sum of the discounts that the provider pays for."""

    def less(self, minor: int) -> "Counted":
        """Return a copy whose `kept` amount is smaller by `minor`."""
        return replace(self, kept=self.kept - minor)

    def surely_on_top(self, price: int) -> int:
        """Return the amount that was certainly paid on top."""
        return self.beyond + min(self.named, max(0, self.captured - self.beyond - price))


def counted_of(payment: Payment, currency: str, *, kept: int) -> Counted:
    """Return the amounts of a payment for the price comparison."""
    found = Counted(captured=payment.captured(currency), kept=kept)
    if not payment.attempt.parts:
        return found
    kinds: dict[PartKind, int] = {}
    seen: set[int] = set()
    for capture in payment.captures:
        if capture.money is None or capture.money.currency != currency:
            continue
        own = [h.event.parts for h in capture.heard if h.event.parts and id(h) not in seen]
        seen |= {id(h) for h in capture.heard}
        stated = _stated(own, currency)
        base = stated.pop("base", None)
        found.discount += stated.pop("discount", 0)
        found.financed += stated.pop("financed_discount", 0)
        named = sum(stated.values())
        if base is None:
            found.named += min(named, capture.money.minor)
        else:
            beyond = max(0, capture.money.minor - base)
            found.beyond += beyond
            stated["surcharge"] = stated.get("surcharge", 0) + max(0, beyond - named)
        for kind, minor in stated.items():
            kinds[kind] = kinds.get(kind, 0) + minor
    found.kinds = kinds
    return found


def _stated(events: Iterable[Sequence[Part]], currency: str) -> dict[PartKind, int]:
    found: dict[PartKind, int] = {}
    for parts in events:
        own: dict[PartKind, int] = {}
        for part in parts:
            if part.money.currency == currency:
                own[part.kind] = own.get(part.kind, 0) + max(0, part.money.minor)
        for kind, minor in own.items():
            best = min if kind == "base" else max
            found[kind] = best(found.get(kind, minor), minor)
    return found


def counting(shares: Sequence[Counted], price: int | None) -> int:
    """Return the money that pays the price, in minor units."""
    over_all = _counting(shares, price)
    untouched = [each for each in shares if each.kept == each.captured or each.kept < 0]
    if len(untouched) == len(shares):
        return over_all
    return max(over_all, _counting(untouched, price))


def _counting(shares: Sequence[Counted], price: int | None) -> int:
    kept = beyond = named = excess = 0
    for each in shares:
        own = min(each.beyond, max(0, each.kept))
        kept += each.kept
        beyond += own
        excess += each.captured - each.beyond
        if price is not None and each.named:
            most, alone = each.named, each.captured - each.beyond - price
            # A payment of at least the price may name parts that are within the price.
            named += min(most if alone < 0 else min(most, alone), max(0, each.kept - own))
    return kept - beyond - min(named, max(0, excess - (price or 0)))


def discounted(shares: Sequence[Counted], price: int, *, percent: int) -> tuple[int, int]:
    """Return the discounts that the provider pays, and those that the shop pays.

    An order paid twice gets one discount.
    """
    lacking = price - sum([s.captured - s.beyond for s in shares if s.kept == s.captured])
    taken = []
    left = [share for share in shares if share.kept > 0] or shares
    for given, most in (
        ([share.financed for share in left], price),
        ([share.discount for share in left], price * percent // 100),
    ):
        off = min(most, sum(given), max([*given, lacking]))
        taken.append(off)
        lacking -= off
    financed, discount = taken
    return financed, min(discount, price - financed)


def by_kind(shares: Sequence[Counted], minor: int, currency: str) -> tuple[Part, ...]:
    """Divide an amount among the kinds of parts on top."""
    found = []
    for kind in ON_TOP:
        given = sum([(each.kinds or {}).get(kind, 0) for each in shares])
        part = min(given, minor)
        minor -= part
        if part:
            found.append(Part(kind=kind, money=Money(minor=part, currency=currency)))
    return tuple(found)
