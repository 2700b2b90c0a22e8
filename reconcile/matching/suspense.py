"""Unallocated payments as finance sees them: money in suspense."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from reconcile.instants import DAY, Instant
from reconcile.matching.breaks import Break
from reconcile.matching.control import Bucket
from reconcile.matching.ledger_lines import Taken
from reconcile.matching.rows import StatementRow
from reconcile.money import Money

PlacedIn = Literal["order", "nowhere", "to_refund", "other_business"]
"""Decision of a person about an unallocated payment.

With `nowhere`, the person takes the payment back from its order.
"""

SuspenseFlow = Literal["received", "refunded", "assigned", "other_business"]
"""Reasons why the money in suspense changes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Decision of a person about an unallocated payment."""

    at: Instant
    """Time when the decision was recorded."""
    into: PlacedIn
    order: str | None = None
    """The order that the payment was assigned to."""
    account: str | None = None
    """The account of other business. None for the default."""
    record: str
    """Id of the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspenseStep:
    """Change of the money in suspense, positive for an increase."""

    at: Instant
    """The provider's date of a movement, or the time of a person's record."""
    known: Instant
    """Time when the change became known."""
    flow: SuspenseFlow
    minor: int
    currency: str
    cites: tuple[str, ...]
    order: str | None = None
    account: str | None = None


UNALLOCATED: Final = "unallocated:"
"""Prefix of a candidate's id, if the candidate is an unallocated payment.

Such a payment cannot be matched with a break by hand.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended:
    """Payment that is unallocated, or that was unallocated earlier."""

    source: str
    payment: str
    taken: tuple[Taken, ...]
    """Movements of the payment, in the order in which they became known."""
    steps: tuple[SuspenseStep, ...]
    """Changes of the money in suspense, in the order in which they became known."""
    stands: Placement | None
    """Last valid decision of a person, if any."""
    other_shop: bool = False
    """True if the payment belongs to another shop, and so is not in suspense."""

    def in_suspense(self, taken: Taken) -> bool:
        """Check whether a movement of the payment was posted to suspense."""
        cites = set(taken.cites)
        return any(
            step.flow in _MOVEMENTS
            and (step.known, step.minor, step.currency)
            == (taken.received_at, taken.minor, taken.currency)
            and cites.issuperset(step.cites)
            for step in self.steps
        )

    def held(self, *, before: Instant | None = None, known: bool = False) -> dict[str, int]:
        """Return the money in suspense for each currency, in minor units.

        If `known` is set, `before` limits when steps became known.
        """
        sums: Counter[str] = Counter()
        for step in self.steps:
            if before is None or (step.known if known else step.at) < before:
                sums[step.currency] += step.minor
        return {currency: minor for currency, minor in sums.items() if minor}

    @property
    def bucket(self) -> Bucket | None:
        """Return the bucket of the payment's statement lines.

        None means that the payment belongs to an order.
        """
        stands = self.stands
        if stands is not None and stands.into == "order":
            return None
        if self.other_shop:
            return "other_shop"
        if stands is not None and stands.into == "other_business":
            return "other_business"
        if not self.held():
            return "returned"
        return "payment_unallocated" if stands is None else "awaiting_refund"

    def found(self, lines: list[StatementRow]) -> Break | None:
        """Return the break that asks for an assignment, if needed."""
        if self.bucket != "payment_unallocated":
            return None
        held = self.held()
        currency, minor = min(held.items())
        money = Money(minor=abs(minor), currency=currency)
        cites = dict.fromkeys(cite for each in self.taken for cite in each.cites)
        return Break(
            cause="payment_unallocated",
            payment=self.payment,
            subject=self.source,
            money=money,
            since=min([each.at for each in self.taken]),
            cites=(*cites, *sorted(line.line_id for line in lines)),
            facts=(("captured", money), ("payment", self.payment), ("source", self.source)),
        )


def suspended(
    source: str, payment: str, *, taken: Iterable[Taken], placements: Iterable[Placement]
) -> Suspended:
    """Compute the money of a payment in suspense."""
    moved = sorted(taken, key=lambda each: (each.received_at, each.at, each.cites))
    held: Counter[str] = Counter()
    stands: Placement | None = None
    steps: list[SuspenseStep] = []
    events: list[tuple[Instant, Taken | Placement]] = [
        *((each.at, each) for each in placements),
        *((each.received_at, each) for each in moved),
    ]
    for known, each in sorted(events, key=lambda one: one[0]):  # a decision comes first
        if isinstance(each, Placement):
            if stands is not None:
                steps += _moved(held, stands, at=known, back=True)
            stands = None if each.into == "nowhere" else each
            steps += _moved(held, each, at=known)
            continue
        if stands is not None and stands.into == "other_business":
            steps += _moved(held, stands, at=known, back=True)
            stands = None
        held[each.currency] += each.minor
        if stands is None or stands.into == "to_refund":
            steps.append(
                SuspenseStep(
                    at=each.at,
                    known=known,
                    flow="received" if each.minor > 0 else "refunded",
                    minor=each.minor,
                    currency=each.currency,
                    cites=each.cites,
                )
            )
    return Suspended(
        source=source, payment=payment, taken=tuple(moved), steps=tuple(steps), stands=stands
    )


_MOVEMENTS: Final[frozenset[SuspenseFlow]] = frozenset({"received", "refunded"})


def _moved(
    held: Counter[str], placing: Placement, *, at: Instant, back: bool = False
) -> Iterator[SuspenseStep]:
    if placing.into not in ("order", "other_business"):
        return
    for currency, minor in sorted(held.items()):
        if minor:
            yield SuspenseStep(
                at=at,
                known=at,
                flow="assigned" if placing.into == "order" else "other_business",
                minor=minor if back else -minor,
                currency=currency,
                cites=(placing.record,),
                order=placing.order,
                account=placing.account,
            )


Age = Literal["days_0_to_30", "days_31_to_90", "days_over_90"]


def age_of(suspended: Suspended, *, at: Instant) -> Age:
    """Return the payment's age as a range of days."""
    days = (at - min(each.at for each in suspended.taken)) // DAY
    return "days_0_to_30" if days <= 30 else "days_31_to_90" if days <= 90 else "days_over_90"


class Suspense:
    """All payments in suspense of one matching, for lookups by the provider's references."""

    def __init__(
        self,
        payments: Iterable[Suspended],
        *,
        since: Instant | None = None,
        until: Instant | None = None,
    ) -> None:
        self._since, self._until = since, until
        self._by_payment: dict[str, list[Suspended]] = {}
        for each in payments:
            if each.bucket is not None:
                self._by_payment.setdefault(each.payment, []).append(each)

    def of(self, line: StatementRow) -> Suspended | None:
        """Return the unallocated payment that a statement line names; None if there is none."""
        found = self._by_payment.get(line.payment or "", ())
        fitting = [each for each in found if not line.source or line.source == each.source]
        return fitting[0] if fitting else None

    def of_period(self) -> Iterator[Suspended]:
        """Yield the payments of the period, sorted by reference and source."""
        for _, several in sorted(self._by_payment.items()):
            for each in sorted(several, key=lambda one: one.source):
                if each.other_shop:
                    continue
                first = min([taken.at for taken in each.taken])
                after = self._since is None or first >= self._since
                if after and (self._until is None or first < self._until):
                    yield each


NO_SUSPENSE: Final = Suspense(())
