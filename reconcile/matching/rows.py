"""Types of the rows that matching reads, one for each ledger, book or statement line.

A stream can yield the database's bare tuples, because reading a tuple is much faster than building
a value; only the few that are examined become rows. Each stream is sorted by `key` in order of code
points, as SQLite's BINARY and PostgreSQL's `COLLATE "C"` sort.
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
"""Key of a statement line that belongs to no order. Such lines come first in a stream."""


class TakingRow(NamedTuple):
    """Money of one order. Only orders with unusual money have a whole ledger line."""

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
    """Ledger line of an order with unusual money, used instead of the fields above."""
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
    """One line of a provider's statement: a match key, then the fields of a `StatementLine`."""

    key: str
    """Match key of the named order, else of the only order whose ledger has the payment, else
    NO_KEY."""
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
    """Source whose statement has the line. Empty if unknown. Equal payment references of two
    sources mean two payments."""
    known_at: Instant | None = None
    """Time when a line without a date was first imported. None for other lines."""
    wallet: str | None = None
    refund: str | None = None
    details: str | None = None


def ledger_line_row(taking: LedgerLine) -> TakingRow:
    """Convert a ledger line to a row. A ledger line with unusual money is kept whole in the row."""
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
    """Check whether the order's money is so simple that a flat row is enough for matching.

    - the order succeeded with one capture that one event states, or no money moved and the order is
      not unresolved
    - no finding about wrong or returned money (WEIGHTY), no payment in doubt, no failed refund
    - nothing owed back, no tenders, nothing on top of the price
    """
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
    """Return the part of a line id before the dot, which all versions of the line share."""
    return line_id.partition(".")[0]


def name_of(named: str) -> str:
    """Return the name of a line or order in a match by hand.

    That is the part of a line's id that all versions share, or an order's whole reference.
    """
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
    """Sum of the positive amounts. A charge that two lines state counts once."""
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
        """Return the amount that came according to the book; if none came, the amount that went
        back."""
        return Money(minor=self.charge or self.credit, currency=self.currency)


def claims(row: BookRow) -> bool:
    """Check whether a book line says that money moved.

    Its status is `paid` or `refunded`; or it has no status, and is an accounting entry or states a
    refund.
    """
    if row.status is None:
        return row.kind == "entry" or bool(row.refunded)
    return row.status in ("paid", "refunded")


def lines_of(rows: Sequence[BookRow], *, apart: bool = False) -> Lines:
    """Combine the book lines of one reference.

    If some lines say that money moved, all others become `rest`. A `paid` line and a `refunded`
    line of at most its amount usually state one charge.

    apart  whether a `refunded` line always counts as another charge
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
    """Return the `id()` of each line that repeats the charge of another line."""
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
    """Return the amount that went back according to a book line.

    If a `refunded` line states 0, its whole amount went back, because exports write 0 if they do
    not know the refunded amount.
    """
    if row.minor < 0:
        return -row.minor
    return row.refunded or (row.minor if row.status == "refunded" else 0)


# --- rows of a new statement file that are lines already known -----------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """One movement of money, as a row of a statement file states it."""

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
    """Return the index of the known line that each row repeats; None for a new line.

    Equal lines are paired first, and no line is paired twice.

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
    """Check whether two different rows state one movement of money.

    They state two movements if:

    - their amounts differ, unless both are payment lines with equal signs and times of day
    - they are lines of two wallets
    - they name different payouts
    - one names no payout, and their days of settlement differ in every possible time zone
    """
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
    """Check whether two lines have different times of day.

    Times that differ by quarter hours, or are full quarter hours, count as equal, because of zones.
    """
    if one.settled_at is None or other.settled_at is None:
        return False
    times = (one.settled_at, other.settled_at, abs(one.settled_at - other.settled_at))
    return all(time % _QUARTER for time in times)


def _of_one_day(row: Instant, known: Instant, calendar: Calendar) -> bool:
    """Check whether two instants are on one day of the calendar.

    An instant at midnight may be a bare date that was read in UTC or in the calendar's zone. Both
    readings are tried.
    """
    if calendar.day_of(row) == calendar.day_of(known):
        return True
    if not known % DAY:
        return row == calendar.day(IN_UTC.day_of(known))[0]
    return not row % DAY and 0 < row - known <= _EAST and not known % _QUARTER
