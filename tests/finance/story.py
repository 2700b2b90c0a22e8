"""Story of one order: its events, and all that provider, shop and books wrote of it.

The maker of a story notes the truth meanwhile. Nothing here asks the product.
"""

import random
from dataclasses import dataclass, field
from typing import Any

from reconcile.instants import DAY, EARLIEST, HOUR, SECOND, Instant, format_instant

EXPONENTS = {"KES": 2, "JPY": 0, "KWD": 3, "USD": 2}
"""Decimals of the currencies that stories use; written here, not asked of the product."""

FACTORS = {"KES": 100, "JPY": 100, "KWD": 1000}
"""Factor by which an amount in the wrong unit is wrong."""

FEE_PERCENT = {"KES": 2, "JPY": 3, "KWD": 1}
"""Fee of the provider, in percent of a payment."""

PRICE_STEP = 600
"""Prices are multiples of it: halves and thirds are whole, and so is every fee."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """One webhook as it came: when, under which id, and its bytes."""

    at: Instant
    event_id: str
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ShopSaid:
    """The shop's statement of an order, at `placed_at`, or at `canceled_at` for a cancellation."""

    order: str
    minor: int
    currency: str
    placed_at: Instant
    canceled_at: Instant | None = None

    @property
    def at(self) -> Instant:
        """Return the instant at which it was stated to us."""
        return self.placed_at if self.canceled_at is None else self.canceled_at


@dataclass(frozen=True, slots=True, kw_only=True)
class BookRow:
    """A row of the order book."""

    reference: str
    kind: str
    minor: int
    currency: str
    placed_at: Instant
    status: str
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementRow:
    """A row of the provider's statement."""

    payment: str
    order: str
    kind: str
    gross: int
    fee: int
    currency: str
    settled_at: Instant

    @property
    def net(self) -> int:
        """Return the amount that is paid out."""
        return self.gross - self.fee


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A break that is really there: its cause, its order and the money at stake."""

    cause: str
    order: str
    minor: int
    currency: str


@dataclass(slots=True, kw_only=True)
class Story:
    """One order's story. `late`: what we did not hear before the month was closed."""

    order: str
    plot: str
    outcome: str | None = None
    currency: str
    captured: int = 0
    returned: int = 0
    lost: int = 0
    arrivals: list[Arrived] = field(default_factory=list)
    late: list[Arrived] = field(default_factory=list)
    said: list[ShopSaid] = field(default_factory=list)
    book: list[BookRow] = field(default_factory=list)
    statement: list[StatementRow] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)


def major(minor: int, currency: str) -> str:
    """Return the amount as digits in major units: 150005 of KES is 1500.05."""
    places = EXPONENTS[currency]
    sign, digits = "-" if minor < 0 else "", str(abs(minor)).rjust(places + 1, "0")
    return sign + (f"{digits[:-places]}.{digits[-places:]}" if places else digits)


_BODY = (
    '{{"id": "{event}", "type": "payment.{kind}", "occurred_at": "{at}", "environment": "sandbox", '
    '"data": {{"order": {{"reference": "{order}", "amount": {price}, "currency": "{currency}"}}, '
    '"session": {{"reference": "{session}"}}, "payment": {{"reference": "{payment}", '
    '"amount": {paid}, "currency": "{paid_in}"{reason}}}{refund}, '
    '"customer": {{"phone": "{phone}"}}}}}}'
)
_REASON = ', "reason": "insufficient_funds"'
_REFUND = ', "refund": {{"reference": "{}", "amount": {}, "currency": "{}"}}'


class Telling:
    """Tells one story. The shop places the order; each method adds one thing that happened.

    number     of the order in its month; references follow from it
    price      what the order costs, in minor units of `currency`
    placed_at  when it was placed; `after` in all methods is seconds from then
    """

    def __init__(
        self, plot: str, *, number: int, prefix: str, seed: int, currency: str, placed_at: Instant
    ) -> None:
        self._chance = random.Random(seed << 40 | number)
        self._tag = f"{prefix}{number:06d}"
        self.placed_at = placed_at
        self.currency = currency
        self.price = PRICE_STEP * self._chance.randrange(2, 1_500)
        self.order = f"ORD-{self._tag}"
        self.story = Story(order=self.order, plot=plot, currency=currency)
        self._phone = f"2547{self._chance.randrange(10**8):08d}"
        self._ids = 0
        self._says(None)

    def payment(self, place: int = 0) -> str:
        """Return the provider's reference of the order's first payment, or of a further one."""
        return f"pay_{self._tag}{'abc'[place]}"

    # --- provider and shop -----------------------------------------------------------------------

    def _says(self, canceled_at: Instant | None) -> None:
        self.story.said.append(
            ShopSaid(
                order=self.order,
                minor=self.price,
                currency=self.currency,
                placed_at=self.placed_at,
                canceled_at=canceled_at,
            )
        )

    def cancels(self, after: int) -> None:
        """Let the shop report that the order is canceled."""
        self._says(self.placed_at + after * SECOND)

    def waits(self, **how: Any) -> None:
        """Let the provider report a pending payment."""
        self.hears("pending", 20, **how)

    def sells(
        self,
        *,
        after: int = 60,
        place: int = 0,
        paid: int | None = None,
        book: str | None = "paid",
        booked: int | None = None,
        settled: bool = True,
        **how: Any,
    ) -> str:
        """Tell a plain sale: paid, in the book and on the statement. Returns the event's id."""
        event = self.hears("succeeded", after, place=place, paid=paid, **how)
        if book is not None:
            self.books(book, booked)
        if settled:
            self.settles(minor=paid, place=place)
        self.ends("succeeded", captured=self.price if paid is None else paid)
        return event

    def hears(
        self,
        kind: str,
        after: int,
        *,
        place: int = 0,
        paid: int | None = None,
        back: int = 0,
        again: tuple[int, ...] = (),
        lag: int = 2,
        event_id: str | None = None,
        of: str | None = None,
    ) -> str:
        """Let the provider send an event on a payment, which arrives `lag` seconds later, and after
        each of `again`; `of`: the event whose refund it is about. Returns the event's id."""
        at = self.placed_at + after * SECOND
        event, body = self._body(kind, at, event_id, place=place, paid=paid, back=back, of=of)
        for delay in (lag, *again):
            self.story.arrivals.append(Arrived(at + delay * SECOND, event, body))
        return event

    def hears_late(self, kind: str, after: int) -> None:
        """Let the provider send an event that does not arrive before the month is closed."""
        at = self.placed_at + after * SECOND
        self.story.late.append(Arrived(at, *self._body(kind, at)))

    def _body(
        self,
        kind: str,
        at: Instant,
        event: str | None = None,
        *,
        place: int = 0,
        paid: int | None = None,
        back: int = 0,
        of: str | None = None,
    ) -> tuple[str, bytes]:
        if event is None:
            self._ids += 1
            event = f"evt_{self._tag}_{self._ids}"
        refund = _REFUND.format(f"re_{of or event}", major(back, self.currency), self.currency)
        body = _BODY.format(
            event=event,
            kind=kind,
            at=format_instant(at),
            order=self.order,
            price=major(self.price, self.currency),
            currency=self.currency,
            session=f"cs_{self._tag}",
            payment=self.payment(place),
            paid=major(self.price if paid is None else paid, self.currency),
            paid_in=self.currency,
            reason=_REASON if kind == "declined" else "",
            refund=refund if back else "",
            phone=self._phone,
        )
        return event, body.encode()

    # --- books -----------------------------------------------------------------------------------

    def books(
        self,
        status: str,
        minor: int | None = None,
        *,
        currency: str | None = None,
        reference: str | None = None,
        kind: str = "order",
        group: str = "",
    ) -> None:
        """Add a row to the merchant's book."""
        row = BookRow(
            reference=reference or self.order,
            kind=kind,
            minor=self.price if minor is None else minor,
            currency=currency or self.currency,
            placed_at=self.placed_at,
            status=status,
            group=group,
        )
        self.story.book.append(row)

    def settles(
        self,
        kind: str = "payment",
        minor: int | None = None,
        *,
        place: int = 0,
        more_fee: int = 0,
        in_days: int = 2,
    ) -> None:
        """Add a row to the provider's statement: a payment or, negative, what went back."""
        gross = self.price if minor is None else minor
        fee = gross * FEE_PERCENT[self.currency] // 100 if kind == "payment" else 0
        row = StatementRow(
            payment=self.payment(place),
            order=self.order,
            kind=kind,
            gross=gross if kind == "payment" else -gross,
            fee=fee + more_fee,
            currency=self.currency,
            settled_at=EARLIEST + (self.placed_at // DAY + in_days) * DAY + 6 * HOUR,
        )
        self.story.statement.append(row)

    # --- the truth -------------------------------------------------------------------------------

    def ends(
        self, outcome: str | None, *, captured: int = 0, returned: int = 0, lost: int = 0
    ) -> None:
        """Set how it ended, and the money that truly moved; None: nobody told us of it."""
        self.story.outcome = outcome
        self.story.captured, self.story.returned, self.story.lost = captured, returned, lost

    def leaves(self, cause: str, minor: int) -> None:
        """Add a break with so much money at stake."""
        self.story.gaps.append(
            Gap(cause=cause, order=self.order, minor=minor, currency=self.currency)
        )
