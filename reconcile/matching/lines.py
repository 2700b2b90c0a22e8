"""What the order book says of one reference, put together from its lines.

Leaves out: the money. Some lines claim that money moved (`paid`, `refunded`, an accounting entry);
some say that none did (`unpaid`, `canceled`); an order list without a status says nothing of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from reconcile.instants import DAY, Instant
from reconcile.matching.books import BookStatus
from reconcile.matching.rows import BookRow, subject_of
from reconcile.money import Money
from reconcile.values import frozen

Said = BookStatus | Literal["nothing"]


@dataclass(slots=True)
class Lines:
    """The lines of one reference that count together.

    rest      lines of the reference that claim nothing while others claim something
    said      what the lines say became of the money
    charge    the sum of what is positive; credit: of what is negative, and of what was refunded
    placed_at the latest date among them; None where there is none
    """

    rows: tuple[BookRow, ...]
    rest: tuple[BookRow, ...]
    said: Said
    currencies: frozenset[str]
    charge: int
    credit: int
    placed_at: Instant | None

    @property
    def currency(self) -> str:
        """The currency of the first line."""
        return self.rows[0].currency

    @property
    def claims(self) -> bool:
        """Whether the book claims that money moved."""
        return self.said in ("paid", "refunded")

    @property
    def reference(self) -> str:
        """As the book writes it."""
        return self.rows[0].reference

    @property
    def subject(self) -> str:
        """What is stable of its first line's id."""
        return subject_of(self.rows[0].line_id)

    @property
    def ids(self) -> tuple[str, ...]:
        """Every line's id."""
        return tuple([row.line_id for row in self.rows])

    @property
    def groups(self) -> frozenset[str]:
        """The groups that its lines name."""
        return frozenset([row.group for row in self.rows if row.group])

    @property
    def money(self) -> Money:
        """What the book expects to have come, else to have gone back."""
        return Money(minor=self.charge or self.credit, currency=self.currency)


def claims(row: BookRow) -> bool:
    """Whether this line says that money moved. An accounting entry without a status does."""
    if row.status is None:
        return row.kind == "entry"
    return row.status in ("paid", "refunded")


def lines_of(rows: Sequence[BookRow]) -> Lines:
    """The lines of one reference; what claims nothing stands aside where something is claimed."""
    ordered = sorted(rows, key=lambda row: row.line_id)
    counted = [row for row in ordered if claims(row)]
    if not counted:
        counted = [row for row in ordered if row.status != "canceled"] or ordered
    kept = set(map(id, counted))
    dates = [row.placed_at for row in counted if row.placed_at is not None]
    return Lines(
        rows=tuple(counted),
        rest=tuple([row for row in ordered if id(row) not in kept]),
        said=_said(counted),
        currencies=frozenset([row.currency for row in counted]),
        charge=sum([row.minor for row in counted if row.minor > 0]),
        credit=sum([_credit(row) for row in counted]),
        placed_at=max(dates, default=None),
    )


def _credit(row: BookRow) -> int:
    return -row.minor if row.minor < 0 else row.minor if row.status == "refunded" else 0


def _said(rows: Sequence[BookRow]) -> Said:
    if claims(rows[0]):
        return "refunded" if all(row.status == "refunded" for row in rows) else "paid"
    statuses = {row.status for row in rows}
    if None in statuses:
        return "nothing"
    return "unpaid" if "unpaid" in statuses else "canceled"


# --- which line of a statement that is known already a row of a new file speaks of ----------------


@frozen
class Moved:
    """One movement as a row tells it: all that it says (`told`), and of it currency and gross."""

    kind: str
    told: tuple[Any, ...]
    money: tuple[str, int]
    settled_at: Instant | None
    payout: str | None


def paired(*, told: Sequence[Moved], known: Sequence[Moved]) -> list[int | None]:
    """For each row the place of the known line that it speaks of; None for a new line.

    All are of one source, subject and kind. Equal ones are paired first, each once; then those
    that can only be the same movement, in their order.
    """
    left = defaultdict[tuple[Any, ...], list[int]](list)
    for place in reversed(range(len(known))):
        left[known[place].told].append(place)
    places = [left[row.told].pop() if left[row.told] else None for row in told]
    free = sorted(place for each in left.values() for place in each)
    for number, row in enumerate(told):
        if places[number] is None:
            found = next((place for place in free if is_same(row, known[place])), None)
            if found is not None:
                free.remove(found)
                places[number] = found
    return places


def is_same(one: Moved, other: Moved) -> bool:
    """Whether two rows that differ can only be one movement, told twice.

    A payout that both name decides; else the day of settlement, if both have one. A payment is
    captured once, so its amount may have been corrected; of refunds, fees and disputes there may
    be several, and another amount is another movement.
    """
    if one.kind != "payment" and one.money != other.money:
        return False
    if one.payout is not None and other.payout is not None:
        return one.payout == other.payout
    if one.settled_at is not None and other.settled_at is not None:
        return one.settled_at // DAY == other.settled_at // DAY
    return True
