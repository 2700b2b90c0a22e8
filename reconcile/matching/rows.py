"""What the matcher reads: one flat row a ledger line, a book line, a statement line, in key order.

Leaves out: values. A million rows stream past, and nearly all of them agree; a tuple that the
database's own row becomes without anything being built costs a fraction of a value. A stream may
even give the database's own bare tuples, of a plain ledger line without its last fields: the
matcher makes rows of those that it looks at. Whoever has values gets rows from `ledger_line_row`,
`book_row` and `statement_row`.

All three streams are in ascending order of `key`, compared as Python compares strings: by code
point, which is the order of SQLite's BINARY and of PostgreSQL's `COLLATE "C"`. The order of rows
with one key does not matter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple

from reconcile.instants import DAY, HOUR, MINUTE, Duration, Instant
from reconcile.ledger.vocabulary import FindingCode
from reconcile.matching.books import (
    BookKind,
    BookLine,
    BookStatus,
    StatementKind,
    StatementLine,
    match_key,
)
from reconcile.matching.ledger_lines import LedgerLine
from reconcile.money import Money
from reconcile.periods import IN_UTC, Calendar
from reconcile.values import frozen

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
        "refund_exceeds_capture",
        "dispute_open",
        "dispute_won",
    }
)
"""Findings that bear on a match: an order with one of them is not plain."""

NO_KEY: Final = ""
"""The key of a statement line that belongs to no order: such lines come first."""


class TakingRow(NamedTuple):
    """One order's money, flat where it is plain.

    An order is plain when its outcome is `succeeded` with one capture that rests on one event, or
    when no money moved and it is not `unresolved`; in both cases without any finding of WEIGHTY,
    with no payment in doubt and nothing owed back.

    minor      captured minor units; 0 where no money moved
    currency   of the capture, else of the price; empty where neither is known
    source, payment, cite   of the capture; empty where no money moved
    at         the provider's date of the capture, else `opened_at`
    whole      the ledger line itself where the order is not plain; the six fields above then count
               for nothing
    beside     what statement lines of it leave to be settled that its break in doubt reports; a
               matching adds it
    """

    key: str
    order: str
    minor: int
    currency: str
    source: str
    payment: str
    cite: str
    at: Instant
    opened_at: Instant
    whole: LedgerLine | None = None
    beside: tuple[Money, ...] = ()


class BookRow(NamedTuple):
    """One line of an order book: a `BookLine`, flat, after the key of its reference."""

    key: str
    line_id: str
    reference: str
    kind: BookKind
    minor: int
    currency: str
    placed_at: Instant | None = None
    status: BookStatus | None = None
    group: str | None = None
    refunded: int | None = None
    refunded_at: Instant | None = None


class StatementRow(NamedTuple):
    """One line of a statement: a `StatementLine`, flat, after a key.

    key  `match_key` of the order reference that the line bears; where it bears none, of the one
         order whose ledger knows its payment, where there is exactly one; else NO_KEY. Whoever
         reads the lines finds it. What the line says itself goes first: it never changes, so that
         lines lie in this order already. A line that names another order than its payment is of
         fits nothing there, and the second look finds it by its payment.
    source  whose statement it is; empty where that is not known. Another source's payment of the
            same reference is another payment, where that source has statements of its own
    known_at  when a line without a date of its own was first imported; None for any other
    """

    key: str
    line_id: str
    payment: str | None
    order: str | None
    kind: StatementKind
    currency: str
    gross: int
    fee: int
    net: int
    settled_at: Instant | None = None
    payout: str | None = None
    source: str = ""
    known_at: Instant | None = None


def ledger_line_row(taking: LedgerLine) -> TakingRow:
    """The row of a ledger line: flat where that is plain, with the line itself where it is not."""
    first = taking.taken[0] if taking.taken else None
    price = taking.expected
    plain = is_plain(taking)
    money = first if plain else None
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
    """Whether a flat row says everything about it that a match needs to know."""
    if taking.owed or taking.doubted or not WEIGHTY.isdisjoint(taking.findings):
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


def book_row(line: BookLine) -> BookRow:
    """The row of a book line."""
    return BookRow(
        key=match_key(line.reference),
        line_id=line.line_id,
        reference=line.reference,
        kind=line.kind,
        minor=line.money.minor,
        currency=line.money.currency,
        placed_at=line.placed_at,
        status=line.status,
        group=line.group,
        refunded=line.refunded,
        refunded_at=line.refunded_at,
    )


def statement_row(line: StatementLine, *, key: str | None = None) -> StatementRow:
    """The row of a statement line; `key` where it names no order and its payment is of one."""
    own = NO_KEY if line.order is None else match_key(line.order)
    return StatementRow(
        key=own if key is None else key,
        line_id=line.line_id,
        payment=line.payment,
        order=line.order,
        kind=line.kind,
        currency=line.currency,
        gross=line.gross,
        fee=line.fee,
        net=line.net,
        settled_at=line.settled_at,
        payout=line.payout,
        source=line.source,
    )


def subject_of(line_id: str) -> str:
    """What is stable of a line id from one version of the line to the next: all before the dot."""
    return line_id.partition(".")[0]


def name_of(named: str) -> str:
    """What a hand match goes by of what a person named: the subject of a line of a book, statement
    or bank; an order's reference whole, which may hold a dot as well."""
    return subject_of(named) if named.startswith(("bok_", "stm_", "bnk_")) else named


LinesStatus = BookStatus | Literal["nothing"]


@dataclass(slots=True)
class Lines:
    """The lines of one reference that count together.

    rest      lines of the reference that claim nothing while others claim something
    status    what the lines say became of the money
    charge    the sum of what is positive, without lines that say what became of another's charge
    credit    of what is negative, and of what was refunded
    placed_at the latest date among them; None where there is none
    refunded_at  the latest date of what was refunded; None where there is none
    repeated  whether a line is about another line's charge: `lines_of` can take it as a part of
              its own
    """

    rows: tuple[BookRow, ...]
    rest: tuple[BookRow, ...]
    status: LinesStatus
    currencies: frozenset[str]
    charge: int
    credit: int
    placed_at: Instant | None
    refunded_at: Instant | None
    repeated: bool

    @property
    def currency(self) -> str:
        """The currency of the first line."""
        return self.rows[0].currency

    @property
    def claims(self) -> bool:
        """Whether the book claims that money moved."""
        return self.status in ("paid", "refunded")

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
    """Whether this line says that money moved. Without a status an accounting entry does, and so
    does a line with an amount that was refunded."""
    if row.status is None:
        return row.kind == "entry" or bool(row.refunded)
    return row.status in ("paid", "refunded")


def lines_of(rows: Sequence[BookRow], *, apart: bool = False) -> Lines:
    """The lines of one reference; what claims nothing stands aside where something is claimed.

    A line that says `refunded` beside one of its reference that says `paid`, and of no more money,
    says what became of the same charge: an order's rows are one story. apart: it is a charge of
    its own, which came and went back.
    """
    ordered = sorted(rows, key=lambda row: row.line_id)
    counted = [row for row in ordered if claims(row)]
    if not counted:
        counted = [row for row in ordered if row.status != "canceled"] or ordered
    kept = set(map(id, counted))
    repeated = frozenset[int]() if apart or len(counted) == 1 else _repeated(counted)
    dates = [row.placed_at for row in counted if row.placed_at is not None]
    return Lines(
        rows=tuple(counted),
        rest=tuple([row for row in ordered if id(row) not in kept]),
        status=_status_of(counted),
        currencies=frozenset([row.currency for row in counted]),
        charge=sum([row.minor for row in counted if row.minor > 0 and id(row) not in repeated]),
        credit=sum([_credit(row) for row in counted]),
        placed_at=max(dates, default=None),
        refunded_at=max(
            [at for row in counted if (at := _went_back_at(row)) is not None], default=None
        ),
        repeated=bool(repeated),
    )


def _repeated(rows: Sequence[BookRow]) -> frozenset[int]:
    """The lines, by `id`, that say what became of a charge that another line states."""
    found: set[int] = set()
    by_reference: dict[str, list[BookRow]] = defaultdict(list)
    for row in rows:
        by_reference[row.key].append(row)
    for own in by_reference.values():
        back = [row for row in own if row.status == "refunded" and row.minor > 0]
        paid = sum([row.minor for row in own if row.status != "refunded" and row.minor > 0])
        if sum(map(_credit, back)) <= paid:
            found |= set(map(id, back))
    return frozenset(found)


def _credit(row: BookRow) -> int:
    """What a line says went back: the amount that it states, else all of one that says `refunded`.
    A 0 states no amount: exports have it in every row of that column, and the status counts."""
    if row.minor < 0:
        return -row.minor
    return row.refunded or (row.minor if row.status == "refunded" else 0)


def _went_back_at(row: BookRow) -> Instant | None:
    if not _credit(row):
        return None
    return row.placed_at if row.refunded_at is None else row.refunded_at


def _status_of(rows: Sequence[BookRow]) -> LinesStatus:
    if claims(rows[0]):
        return "refunded" if all(row.status == "refunded" for row in rows) else "paid"
    statuses = {row.status for row in rows}
    if None in statuses:
        return "nothing"
    return "unpaid" if "unpaid" in statuses else "canceled"


# --- which line of a statement that is known already a row of a new file speaks of ----------------


@frozen
class Moved:
    """One movement as a row states it: all that it says (`stated`), and of it currency and gross,
    of a fee net."""

    kind: str
    stated: tuple[Any, ...]
    money: tuple[str, int]
    settled_at: Instant | None
    payout: str | None


def paired(
    *, stated: Sequence[Moved], known: Sequence[Moved], calendar: Calendar = IN_UTC
) -> list[int | None]:
    """For each row the place of the known line that it speaks of; None for a new line.

    All are of one source, subject and kind. Equal ones are paired first, each once; then those
    that can only be the same movement, in their order. calendar: that of the file's zone.
    """
    left = defaultdict[tuple[Any, ...], list[int]](list)
    for place in reversed(range(len(known))):
        left[known[place].stated].append(place)
    places = [left[row.stated].pop() if left[row.stated] else None for row in stated]
    free = sorted(place for each in left.values() for place in each)
    for number, row in enumerate(stated):
        if places[number] is None:
            found = next((place for place in free if is_same(row, known[place], calendar)), None)
            if found is not None:
                free.remove(found)
                places[number] = found
    return places


def is_same(one: Moved, other: Moved, calendar: Calendar = IN_UTC) -> bool:
    """Whether two rows that differ can only be one movement, stated twice.

    Another amount is another movement, but of a payment, whose amount may have been corrected; of
    a payment, two amounts at two times of day are two captures. Otherwise a payout that both name
    decides; else the day of settlement, if both have one, in whatever zone it was read.
    """
    if one.money != other.money and (one.kind != "payment" or _timed_apart(one, other)):
        return False
    if one.payout is not None and other.payout is not None:
        return one.payout == other.payout
    if one.settled_at is not None and other.settled_at is not None:
        return _of_one_day(one.settled_at, other.settled_at, calendar)
    return True


def is_like(one: Moved, other: Moved, calendar: Calendar = IN_UTC) -> bool:
    """Whether two rows of other amounts could be one movement, the one corrected by the other, but
    may as well be two, such as two refunds of a payment on one day."""
    if one.money == other.money or _timed_apart(one, other):
        return False
    return is_same(replace(one, money=other.money), other, calendar)


_EAST: Final[Duration] = 14 * HOUR
"""How far ahead of UTC a zone is at most."""

_QUARTER: Final[Duration] = 15 * MINUTE
"""Of an hour: by whole ones zones lie apart."""


def _timed_apart(one: Moved, other: Moved) -> bool:
    """Whether both bear a time of day, and no two zones make it one moment: those that lie whole
    quarters of an hour apart may be one, read in two zones."""
    if one.settled_at is None or other.settled_at is None:
        return False
    times = (one.settled_at, other.settled_at, abs(one.settled_at - other.settled_at))
    return all(time % _QUARTER for time in times)


def _of_one_day(row: Instant, known: Instant, calendar: Calendar) -> bool:
    """Of the calendar's days. Or a day alone, which has become its first moment, read in one zone
    first and in another then: as of UTC while no zone was known, or only now."""
    if calendar.day_of(row) == calendar.day_of(known):
        return True
    if not known % DAY:
        return row == calendar.day(IN_UTC.day_of(known))[0]
    return not row % DAY and 0 < row - known <= _EAST and not known % _QUARTER
