"""Small worlds of orders, book lines and statement lines that collide as often as they can."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import get_args

from hypothesis import strategies as st

from reconcile.instants import DAY, Instant
from reconcile.ledger.ledger import EntryKind, Outcome
from reconcile.ledger.vocabulary import FindingCode
from reconcile.matching.books import (
    BOOK_KINDS,
    BOOK_STATUSES,
    STATEMENT_KINDS,
    BookLine,
    StatementLine,
    match_key,
)
from reconcile.matching.control import Control
from reconcile.matching.decide import Decision
from reconcile.matching.ledger_lines import Doubted, LedgerLine, Taken
from reconcile.matching.match import Matching
from reconcile.matching.rows import BookRow, StatementRow, TakingRow, ledger_line_row
from reconcile.matching.rules import Coverage, HandMatch, MatchRules, Tolerance
from reconcile.matching.tally import KeepingTally
from reconcile.money import Money
from tests.reconcile.books_truth import (
    AS_OF,
    CALM,
    COVERAGE,
    RULES,
    START,
    Case,
    book_row,
    covered,
    in_key_order,
    statement_row,
)

REFERENCES = ("A-1", "a 1", "A-2", "A-12", "A-1-2", "B1")
PAYMENTS = ("p1", "p2", "p3")
MOVEMENTS: tuple[EntryKind, ...] = ("captured", "captured", "captured", "captured",
                                    "refunded", "reversed", "dispute_lost")  # fmt: skip
AMOUNTS = (1_000, 1_005, 100_000, 500, 2_000)
FINDINGS: tuple[FindingCode, ...] = ("paid_twice", "overpaid", "success_after_deadline",
                                     "amount_mismatch", "same_id_different_body",
                                     "dispute_open")  # fmt: skip
OUTCOMES: tuple[Outcome, ...] = ("succeeded", "succeeded", "refunded", "charged_back",
                                 "partially_refunded", "unresolved", "failed",
                                 "disputed")  # fmt: skip


@dataclass(frozen=True, slots=True)
class World:
    """The input of one matching."""

    takings: tuple[TakingRow, ...]
    book: tuple[BookRow, ...]
    lines: tuple[StatementRow, ...]
    rules: MatchRules = RULES
    coverage: Coverage = COVERAGE
    hands: tuple[HandMatch, ...] = ()

    def matching(self, *, keeping: KeepingTally | None = None) -> Matching:
        return Matching(
            rules=self.rules,
            as_of=AS_OF,
            coverage=self.coverage,
            hands=self.hands,
            keeping=keeping,
        )

    def decided(self, *, keeping: KeepingTally | None = None) -> tuple[list[Decision], Control]:
        matching = self.matching(keeping=keeping)
        reported = list(
            matching.decide(
                takings=in_key_order(self.takings),
                book=in_key_order(self.book),
                statements=in_key_order(self.lines),
            )
        )
        return reported, matching.control()

    def __add__(self, other: World) -> World:
        return replace(
            self,
            takings=self.takings + other.takings,
            book=self.book + other.book,
            lines=self.lines + other.lines,
        )


def dates() -> st.SearchStrategy[Instant]:
    """Draw dates around the margins of the rules."""
    return st.sampled_from([START - DAY, START, START + 5 * DAY, AS_OF - DAY, AS_OF])


def monies() -> st.SearchStrategy[tuple[int, str]]:
    return st.tuples(st.sampled_from(AMOUNTS), st.sampled_from(["KES", "KES", "KES", "UGX"]))


@st.composite
def taken(draw: st.DrawFn) -> Taken:
    minor, currency = draw(monies())
    kind = draw(st.sampled_from(MOVEMENTS))
    payment, at = draw(st.sampled_from(PAYMENTS)), draw(dates())
    return Taken(
        kind=kind,
        source=draw(st.sampled_from(["checkout", "checkout", "other"])),
        payment=payment,
        minor=minor if kind == "captured" else -minor,
        currency=currency,
        at=at,
        received_at=at,
        cites=(f"evt_{payment}_{kind}",),
    )


@st.composite
def takings(draw: st.DrawFn, reference: str) -> LedgerLine:
    moved = tuple(draw(st.lists(taken(), max_size=3)))
    parts = [replace(each, minor=draw(st.sampled_from(AMOUNTS))) for each in moved[:1]]
    moved += tuple([each for each in parts if each.kind == "captured"])  # of one payment
    price = draw(st.none() | monies())
    return LedgerLine(
        key=match_key(reference),
        order=reference,
        as_of=AS_OF,
        outcome=draw(st.sampled_from(OUTCOMES)),
        fulfillable=False,
        expected=None if price is None else Money(minor=price[0], currency=price[1]),
        opened_at=draw(dates()),
        taken=moved,
        payments=tuple(dict.fromkeys([(each.source, each.payment) for each in moved])),
        findings=tuple(draw(st.lists(st.sampled_from(FINDINGS), unique=True, max_size=2))),
        in_doubt=draw(amounts()),
        doubted=tuple([draw(doubts(each)) for each in moved[1:] if draw(st.booleans())]),
        owed=draw(amounts()),
    )


def amounts() -> st.SearchStrategy[tuple[Money, ...]]:
    """Draw mostly nothing, else one amount a currency."""
    some = st.dictionaries(st.sampled_from(["KES", "UGX"]), st.sampled_from(AMOUNTS), max_size=2)
    return (st.just({}) | some).map(
        lambda sums: tuple([Money(minor=m, currency=c) for c, m in sorted(sums.items())])
    )


def doubts(moved: Taken) -> st.SearchStrategy[Doubted]:
    kinds = st.lists(st.sampled_from(get_args(EntryKind)), unique=True, max_size=2)
    return kinds.map(
        lambda unsure: Doubted(
            source=moved.source, payment=moved.payment, unsure=tuple(unsure), cites=moved.cites
        )
    )


@st.composite
def book_lines(draw: st.DrawFn, number: int) -> BookLine:
    """Draw a line of an order book; a few are negative, like credit notes."""
    minor, currency = draw(monies())
    sign = draw(st.sampled_from([1, 1, 1, -1]))
    return BookLine(
        line_id=f"bok{number}.1",
        reference=draw(st.sampled_from(REFERENCES)),
        kind=draw(st.sampled_from(BOOK_KINDS)),
        money=Money(minor=sign * minor, currency=currency),
        placed_at=draw(st.none() | dates()),
        status=draw(st.none() | st.sampled_from(BOOK_STATUSES)),
        group=draw(st.sampled_from([None, None, "A-2", "G"])),
    )


@st.composite
def statement_lines(draw: st.DrawFn, number: int) -> StatementLine:
    gross, currency = draw(monies())
    gross *= draw(st.sampled_from([1, 1, 1, -1]))
    fee = draw(st.sampled_from([0, abs(gross) * 15 // 1_000]))
    payment = draw(st.none() | st.sampled_from(PAYMENTS))
    return StatementLine(
        line_id=f"stm{number}.1",
        payment=payment,
        order=draw(st.sampled_from(REFERENCES if payment is None else (*REFERENCES, None))),
        kind=draw(st.sampled_from(["payment", "payment", "payment", *STATEMENT_KINDS])),
        currency=currency,
        gross=gross,
        fee=fee,
        net=gross - fee,
        settled_at=draw(st.none() | dates()),
        source=draw(st.sampled_from(["", "", "checkout", "other"])),
    )


@st.composite
def rules(draw: st.DrawFn) -> MatchRules:
    return replace(
        RULES,
        date_window=draw(st.sampled_from([None, None, 3 * DAY])),
        tolerances=draw(st.sampled_from([(), (Tolerance(currency="KES", minor=5),)])),
        fees=draw(st.sampled_from([(), RULES.fees])),
    )


@st.composite
def hands(draw: st.DrawFn) -> tuple[HandMatch, ...]:
    """Draw matches by hand, sensible or not."""
    names = st.sampled_from([*REFERENCES, "bok0", "bok1", "bok2", "stm0", "stm1", "nobody"])
    pairs = draw(st.lists(st.tuples(names, names), max_size=2))
    return tuple([HandMatch(one=one, other=other) for one, other in pairs])


@st.composite
def nearly_plain(draw: st.DrawFn) -> World:
    """Draw orders whose lines match otherwise than by reference, which random lines rarely do."""
    names = draw(st.lists(st.sampled_from(NEARLY_PLAIN), unique=True, max_size=2))
    cases = [
        CALM[name](Case(f"C-{place}", 100_000 + 7_000 * place, START + 5 * DAY))
        for place, name in enumerate(names)
    ]
    return World(
        takings=tuple([ledger_line_row(each) for case in cases for each in case.takings]),
        book=tuple([book_row(each) for case in cases for each in case.book]),
        lines=tuple([statement_row(each) for case in cases for each in case.lines]),
    )


NEARLY_PLAIN = tuple(
    [name for name, made in CALM.items() if made(Case("C", 100_000, START)).matches]
)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Draw a few orders and lines with few references, payments and amounts."""
    orders = draw(st.lists(st.sampled_from(REFERENCES), unique=True, max_size=4))
    own = World(
        takings=tuple([ledger_line_row(draw(takings(each))) for each in orders]),
        book=tuple([book_row(draw(book_lines(n))) for n in range(draw(st.integers(0, 5)))]),
        lines=tuple(
            [statement_row(draw(statement_lines(n))) for n in range(draw(st.integers(0, 4)))]
        ),
        rules=draw(rules()),
        coverage=draw(st.sampled_from([COVERAGE, BOTH, NO_STATEMENTS, Coverage()])),
        hands=draw(hands()),
    )
    return own + draw(nearly_plain())


BOTH = replace(
    COVERAGE,
    statements=(*COVERAGE.statements, covered("other")),
)
NO_STATEMENTS = Coverage(books=COVERAGE.books)
