"""Types of the rows that matching reads.

Streams are sorted by `key` in the order of code points.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple, TypeVar

from reconcile.instants import DAY, HOUR, MINUTE, Duration, Instant
from reconcile.ledger.vocabulary import FindingCode
from reconcile.matching import books
from reconcile.matching.ledger_lines import LedgerLine
from reconcile.money import Money
from reconcile.periods import IN_UTC, Calendar

WEIGHTY: Final[frozenset[FindingCode]] = frozenset(
    {
        "paid_twice",
        "paid_after_cancel",
        "success_after_deadline",
        "same_id_different_body",
        "conflicting_amounts",
        "amount_mismatch",
        "amount_off_by_minor_unit",
        "currency_mismatch",
        "refund_without_payment",
        "refund_standalone",
        "refund_exceeds_capture",
        "dispute_open",
        "dispute_won",
        "assignment_contradicted",
    }
)

NO_KEY: Final = ""
"""Key of a statement line without an order. Such lines come first."""


class TakingRow(NamedTuple):
    """Money of one order."""

    key: str
    order: str
    minor: int
    """Captured minor units; 0 if no money moved."""
    currency: str
    """Currency of the capture, or else of the price. Empty if unknown."""
    source: str
    """Source of the capture. Empty if no money moved."""
    payment: str
    """Payment reference of the capture. Empty if no money moved."""
    cite: str
    """Id of the event that states the capture. Empty if no money moved."""
    at: Instant
    """The provider's date of the capture, or else `opened_at`."""
    opened_at: Instant
    whole: LedgerLine | None = None
    """Ledger line of an order with unusual money, which replaces the other fields."""
    beside: tuple[Money, ...] = ()
    """Unsettled money of statement lines. Set by the matching."""


class BookRow(NamedTuple):
    """One line of an order book: the match key of its reference, then the fields of a
    `BookLine`."""

    key: str
    line_id: str
    reference: str
    kind: books.BookKind
    minor: int
    currency: str
    placed_at: Instant | None = None
    status: books.BookStatus | None = None
    group: str | None = None
    refunded: int | None = None
    refunded_at: Instant | None = None
    method: str | None = None


class StatementRow(NamedTuple):
    """One line of a provider's statement: a match key and a statement line's fields."""

    key: str
    """Match key of the named order, else of the payment's only order, else NO_KEY."""
    line_id: str
    payment: str | None
    order: str | None
    kind: books.StatementKind
    currency: str
    gross: int
    fee: int
    net: int
    settled_at: Instant | None = None
    payout: str | None = None
    source: str = ""
    """Source of the statement. Empty if unknown."""
    known_at: Instant | None = None
    """Time when a line without a date was first imported. None for other lines."""
    wallet: str | None = None
    refund: str | None = None
    details: str | None = None


def ledger_line_row(taking: LedgerLine) -> TakingRow:
    """Convert a ledger line to a row."""
    price, plain = taking.expected, is_plain(taking)
    money = taking.taken[0] if plain and taking.taken else None
    return TakingRow(
        key=taking.key,
        order=taking.order,
        minor=0 if money is None else money.minor,
        currency=(money.currency if money is not None else "" if price is None else price.currency),
        source="" if money is None else money.source,
        payment="" if money is None else money.payment,
        cite="" if money is None else money.cites[0],
        at=taking.opened_at if money is None else money.at,
        opened_at=taking.opened_at,
        whole=None if plain else taking,
    )


def is_plain(taking: LedgerLine) -> bool:
    """Check whether a flat row is enough for the order's money."""
    odd = taking.tendered or taking.owed or taking.doubted or taking.on_top or taking.failed
    if odd or not WEIGHTY.isdisjoint(taking.findings):
        return False
    if not taking.taken:
        return taking.outcome != "unresolved"
    only = taking.taken[0]
    return (
        taking.outcome == "succeeded"
        and len(taking.taken) == 1
        and only.kind == "captured"
        and only.minor > 0
        and len(only.cites) == 1
    )


def subject_of(line_id: str) -> str:
    """Return a line id without its version."""
    return line_id.partition(".")[0]


def name_of(named: str) -> str:
    """Return the name of a line or order in a hand match."""
    return subject_of(named) if named.startswith(("bok_", "stm_", "bnk_")) else named


LinesStatus = books.BookStatus | Literal["nothing"]


@dataclass(slots=True)
class Lines:
    """Book lines of one reference that count together."""

    rows: tuple[BookRow, ...]
    """Lines that count."""
    rest: tuple[BookRow, ...]
    """Lines that do not count, such as lines without money beside lines with money."""
    status: LinesStatus
    """Common status of the lines."""
    currencies: frozenset[str]
    charge: int
    """Sum of the positive amounts. If two lines state one charge, it counts once."""
    credit: int
    """Sum of the negative amounts and of the refunds, as a positive number."""
    placed_at: Instant | None
    """Latest date, if any."""
    refunded_at: Instant | None
    """Latest date of a refund, if any."""
    repeated: bool
    """True if two lines state one charge."""

    @property
    def currency(self) -> str:
        return self.rows[0].currency

    @property
    def claims(self) -> bool:
        """Check whether the book says that money moved."""
        return self.status in ("paid", "refunded")

    @property
    def reference(self) -> str:
        return self.rows[0].reference

    @property
    def subject(self) -> str:
        return subject_of(self.rows[0].line_id)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple([row.line_id for row in self.rows])

    @property
    def groups(self) -> frozenset[str]:
        return frozenset([row.group for row in self.rows if row.group])

    @property
    def money(self) -> Money:
        """Return the amount that came, or else that went back."""
        return Money(minor=self.charge or self.credit, currency=self.currency)


def claims(row: BookRow) -> bool:
    """Check whether a book line says that money moved."""
    if row.status is None:
        return row.kind == "entry" or bool(row.refunded)
    return row.status in ("paid", "refunded")


def lines_of(rows: Sequence[BookRow], *, apart: bool = False) -> Lines:
    """Combine the book lines of one reference.

    If `apart` is set, a `refunded` line always counts as another charge.
    """
    ordered = sorted(rows, key=lambda row: row.line_id)
    counted = [row for row in ordered if claims(row)]
    status: LinesStatus
    if counted:
        status = "refunded" if all(row.status == "refunded" for row in counted) else "paid"
    else:
        counted = [row for row in ordered if row.status != "canceled"] or ordered
        statuses = {row.status for row in counted}
        status = "unpaid" if "unpaid" in statuses else "canceled"
        if None in statuses:
            status = "nothing"
    kept = set(map(id, counted))
    repeated = set[int]() if apart or len(counted) == 1 else _repeated(counted)
    dates = [row.placed_at for row in counted if row.placed_at is not None]
    back = [
        row.placed_at if row.refunded_at is None else row.refunded_at
        for row in counted
        if _credit(row)
    ]
    return Lines(
        rows=tuple(counted),
        rest=tuple([row for row in ordered if id(row) not in kept]),
        status=status,
        currencies=frozenset([row.currency for row in counted]),
        charge=sum([row.minor for row in counted if row.minor > 0 and id(row) not in repeated]),
        credit=sum([_credit(row) for row in counted]),
        placed_at=max(dates, default=None),
        refunded_at=max([at for at in back if at is not None], default=None),
        repeated=bool(repeated),
    )


def _repeated(rows: Sequence[BookRow]) -> set[int]:
    found: set[int] = set()
    by_reference: dict[str, list[BookRow]] = defaultdict(list)
    for row in rows:
        by_reference[row.key].append(row)
    for own in by_reference.values():
        back = [row for row in own if row.status == "refunded" and row.minor > 0]
        paid = sum([row.minor for row in own if row.status != "refunded" and row.minor > 0])
        if sum(map(_credit, back)) <= paid:
            found |= set(map(id, back))
    return found


def _credit(row: BookRow) -> int:
    if row.minor < 0:
        return -row.minor
    return row.refunded or (row.minor if row.status == "refunded" else 0)


# --- rows of a new statement file that are lines already known -----------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """One movement of money, as a row of a statement file states it.

    A fee's amount is its net amount, any other amount is gross.
    """

    kind: str
    stated: tuple[Any, ...]
    """All fields of the row."""
    money: tuple[str, int]
    """Currency and gross. For a fee, currency and net."""
    settled_at: Instant | None
    payout: str | None
    wallet: str | None = None


_Stated = TypeVar("_Stated", bound=Hashable)


def paired(
    *, stated: Sequence[_Stated], known: Sequence[_Stated], same: Callable[[_Stated, _Stated], bool]
) -> list[int | None]:
    """Return the index of the known line that each row repeats.

    same  checks whether a row and a known line are versions of one line
    """
    if len(stated) == len(known) == 1:  # the usual case
        return [0 if stated[0] == known[0] or same(stated[0], known[0]) else None]
    left = defaultdict[_Stated, list[int]](list)
    for place in reversed(range(len(known))):
        left[known[place]].append(place)
    places = [left[row].pop() if left[row] else None for row in stated]
    free = sorted(place for each in left.values() for place in each)
    for number, row in enumerate(stated):
        if places[number] is None:
            found = next((place for place in free if same(row, known[place])), None)
            if found is not None:
                free.remove(found)
                places[number] = found
    return places


def is_same(one: Moved, other: Moved, calendar: Calendar = IN_UTC) -> bool:
    """Check whether two different rows state one movement of money."""
    if one.money != other.money and (
        one.kind != "payment" or _opposite(one, other) or _timed_apart(one, other)
    ):
        return False
    if one.wallet is not None and other.wallet is not None and one.wallet != other.wallet:
        return False
    if one.payout is not None and other.payout is not None:
        return one.payout == other.payout
    if one.settled_at is not None and other.settled_at is not None:
        return _of_one_day(one.settled_at, other.settled_at, calendar)
    return True


def is_like(one: Moved, other: Moved, calendar: Calendar = IN_UTC) -> bool:
    """Check whether two rows with different amounts may be one movement that was corrected."""
    if one.money == other.money or _opposite(one, other) or _timed_apart(one, other):
        return False
    return is_same(replace(one, money=other.money), other, calendar)


_EAST: Final[Duration] = 14 * HOUR
"""Largest offset of a time zone ahead of UTC."""

_QUARTER: Final[Duration] = 15 * MINUTE


def _opposite(one: Moved, other: Moved) -> bool:
    return (one.money[1] < 0) != (other.money[1] < 0)


def _timed_apart(one: Moved, other: Moved) -> bool:
    if one.settled_at is None or other.settled_at is None:
        return False
    times = (one.settled_at, other.settled_at, abs(one.settled_at - other.settled_at))
    return all(time % _QUARTER for time in times)


def _of_one_day(row: Instant, known: Instant, calendar: Calendar) -> bool:
    if calendar.day_of(row) == calendar.day_of(known):
        return True
    if not known % DAY:
        return row == calendar.day(IN_UTC.day_of(known))[0]
    return not row % DAY and 0 < row - known <= _EAST and not known % _QUARTER
