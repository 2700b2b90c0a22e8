"""The rows of one key: decided, or put aside for the second look.

Leaves out: how the key's rows were found, and how one order is judged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from reconcile.instants import EARLIEST, Instant
from reconcile.ledger.ledger import Facts
from reconcile.matching.breaks import Break, BreakCause, Candidate
from reconcile.matching.candidates import MOST, days_between
from reconcile.matching.decide import (
    Decision,
    MatchKind,
    Pair,
    Verdict,
    amounts_fit,
    decide,
    decide_alone,
    decide_unpaid,
)
from reconcile.matching.funds import Capture, Funds, Left, captures_of, funds_of, keep, left_of
from reconcile.matching.rows import (
    BookRow,
    Lines,
    StatementRow,
    TakingRow,
    claims,
    lines_of,
    subject_of,
)
from reconcile.matching.rules import Terms
from reconcile.matching.settling import Settling, never_notified, unsettled_by
from reconcile.matching.tally import Group, Tally
from reconcile.money import Money

APART: Final[frozenset[BreakCause]] = frozenset({"paid_twice", "overpaid", "payment_in_doubt"})
"""Reported apart from an order's price: no line of the book was looked for."""

NOT_SEARCHED: Facts = (("searched", False),)
"""Stands in a break for which no partner was looked for beyond its key."""


Rows = tuple[BookRow, ...]
"""The lines of one reference."""


class Deciding:
    """Decides groups; places every row, now or at last."""

    def __init__(self, terms: Terms, tally: Tally, left: Left) -> None:
        self.terms, self.tally, self.left = terms, tally, left
        self.settling = Settling(terms, tally)

    def group(self, group: Group) -> None:
        """Decide one key."""
        if _nobody_paid(group):
            self._untouched(group)
            return
        funds = [funds_of([row]) for row in sorted(group.takings, key=lambda row: row.order)]
        opened = self.settling.settle(funds, group.statements)
        for capture in opened.captures:
            self.unsettled(capture)
        for line in opened.lines:
            self._line(line)
        if opened.beside:
            funds = [_with(each, opened.beside.get(each.order, ())) for each in funds]
        self._orders(funds, group.book)

    def _untouched(self, group: Group) -> None:
        """The short way of what comes often: an order that nobody paid, and its book line."""
        self.tally.place_orders(group.takings, "nothing_due")
        for row in group.book:
            if claims(row):
                self._unpaid([row])
            elif not keep(self.left.idle, (row,)):
                self.tally.place_book([row], "nothing_due")
                self.tally.unsearched += 1

    # --- orders and their book lines

    def _orders(self, funds: list[Funds], book: Sequence[BookRow]) -> None:
        references: dict[str, list[BookRow]] = {}
        for row in sorted(book, key=lambda row: row.line_id):
            references.setdefault(row.reference.strip(), []).append(row)
        moved = [each for each in funds if each.moved]
        self._still([each for each in funds if not each.moved])
        several = len(funds) > 1 or len(references) > 1
        if several and moved and self.terms.any_hands:
            moved, references = self._by_hand(moved, references)
            several = len(moved) > 1 or len(references) > 1
        if not moved or not references:
            self._apart(moved, references)
        elif several:
            self.ambiguous(moved, [row for rows in references.values() for row in rows])
        else:
            self.pair(moved[0], *references.values())

    def _apart(self, funds: list[Funds], references: dict[str, list[BookRow]]) -> None:
        """Orders without book lines, or book lines without money."""
        for each in funds:
            if not keep(self.left.orders, each.rows[0]):
                self.end_order(each, facts=NOT_SEARCHED)
        for rows in references.values():
            self._unpaid(rows)

    def _still(self, funds: Iterable[Funds]) -> None:
        """Orders on which no money moved."""
        for each in funds:
            self.tally.place_orders(each.rows, "nothing_due")

    def _unpaid(self, rows: Sequence[BookRow]) -> None:
        lines = lines_of(rows)
        self.tally.place_book(lines.rest, "nothing_due")
        pool = self.left.book if lines.claims else self.left.idle
        if not keep(pool, lines.rows):
            self.end_book(lines, facts=NOT_SEARCHED)

    def _by_hand(
        self, funds: list[Funds], references: dict[str, list[BookRow]]
    ) -> tuple[list[Funds], dict[str, list[BookRow]]]:
        """Pair what people paired; give back the rest."""
        rest = []
        for each in funds:
            rows = self._given(each, [row for lines in references.values() for row in lines])
            if not rows:
                rest.append(each)
                continue
            self.pair(each, rows, kind="by_hand")
            references = _without(references, rows)
        return rest, references

    def pair(self, funds: Funds, rows: Sequence[BookRow], *, kind: MatchKind | None = None) -> None:
        """An order with money, and the lines of one reference (or whatever `kind` put together)."""
        lines = lines_of(rows)
        pair = Pair(funds, lines, self.terms, kind)
        if lines.repeated and not amounts_fit(pair):
            apart = Pair(funds, lines_of(rows, apart=True), self.terms, kind)
            pair = apart if amounts_fit(apart) else pair
            lines = pair.lines
        if len(lines.rows) > 1 and not funds.unresolved and not amounts_fit(pair):
            same = [row for row in lines.rows if row.minor == funds.worth]
            given = self._given(funds, same)
            if len(same) > 1 and len(given) == 1:
                same, kind = given, "by_hand"
            if len(same) > 1:
                self.tally.place_book(lines.rest, "nothing_due")
                self.ambiguous([funds], lines.rows)
                return
            if same:
                self._unpaid_others(lines, same[0])
                pair = Pair(funds, lines_of(same), self.terms, kind)
        self.tally.place_book(lines.rest, "nothing_due")
        if kind is not None or not self._may_be_of_a_group(pair):
            self.place(decide(pair), funds=funds, lines=pair.lines)

    def _given(self, funds: Funds, rows: Iterable[BookRow]) -> list[BookRow]:
        """Those of the lines that people paired with the order."""
        partners = self.terms.partners(funds.order)
        return [row for row in rows if subject_of(row.line_id) in partners]

    def _unpaid_others(self, lines: Lines, matched: BookRow) -> None:
        for row in lines.rows:
            if row is not matched:
                self._unpaid([row])

    def _may_be_of_a_group(self, pair: Pair) -> bool:
        """Whether both were put aside: the order may have paid other lines of the group, too."""
        funds, lines = pair.funds, pair.lines
        if not lines.groups or amounts_fit(pair) or len(funds.rows) > 1:
            return False
        pool = self.left.book if lines.claims else self.left.idle
        if not keep(self.left.orders, funds.rows[0]):
            return False
        if not keep(pool, lines.rows):
            self.left.orders.pop()
            return False
        self.left.together[funds.order] = lines.rows[0].line_id
        return True

    def ambiguous(self, funds: Sequence[Funds], rows: Sequence[BookRow]) -> None:
        """Several orders or lines that fit each other: nothing is guessed."""
        for each in funds:
            self.report_ambiguous(each, rows)
        self.tally.place_book(rows, "ambiguous")

    def report_ambiguous(self, funds: Funds, rows: Sequence[BookRow]) -> None:
        """An order that these book lines fit, which are placed apart."""
        found = Break(
            cause="ambiguous",
            order=funds.order,
            payment=None,
            subject=None,
            money=funds.money(funds.captured),
            since=max([funds.at, *[row.placed_at or EARLIEST for row in rows]]),
            cites=funds.cites + tuple([row.line_id for row in rows]),
            facts=(
                ("captured", funds.money(funds.captured)),
                ("fits", len(rows)),
                ("against", "book"),
            ),
            candidates=tuple([_candidate(row, funds.at) for row in rows[:MOST]]),
            left=funds.beside,
        )
        self.tally.report(found)
        self.tally.place_orders(funds.rows, "ambiguous")

    def place(self, verdict: Verdict, *, funds: Funds, lines: Lines) -> None:
        """Where both stand, and what is reported of them."""
        self.tally.place_orders(funds.rows, verdict.orders)
        self.tally.place_book(lines.rows, verdict.lines)
        for each in verdict.decisions:
            self.tally.report(each)

    # --- captures and statement lines

    def _line(self, line: StatementRow) -> None:
        if not keep(self.left.lines, line):
            self.end_line(line, facts=NOT_SEARCHED)

    def plainly_unsettled(self, row: TakingRow) -> None:
        """A plain order whose capture has no statement line."""
        self.unsettled(captures_of(row)[0])

    def unsettled(self, capture: Capture) -> None:
        """A capture without a statement line: put aside, or awaited."""
        waits = self.terms.waits_for_settlement(capture.at, source=capture.source)
        if waits == "not_covered":
            self.tally.place_captures([capture], waits)
        elif not keep(self.left.awaited if waits else self.left.captures, capture):
            self.end_capture(capture, facts=NOT_SEARCHED)

    def absorb(self, left: Left) -> None:
        """Take over what was put aside elsewhere, as far as there is room, in the order in which
        one matching would have come to it."""
        orders, books = (
            defaultdict[str, list[TakingRow]](list),
            defaultdict[str, list[Rows]](list),
        )
        for row in left.orders:
            orders[row.key].append(row)
        for rows in (*left.book, *left.idle):
            books[rows[0].key].append(rows)
        for key in sorted(orders.keys() | books.keys()):
            self._absorb_key(orders[key], books[key], left.together)
        for capture in (*left.captures, *left.awaited):
            self.unsettled(capture)
        for line in left.lines:
            self._line(line)

    def _absorb_key(
        self, orders: list[TakingRow], books: list[Rows], together: Mapping[str, str]
    ) -> None:
        """Orders and book lines of one key. Those that were put aside together may be of a group,
        and are a pair where there is no room for them."""
        own = {together[row.order]: row for row in orders if row.order in together}
        self._apart([funds_of([row]) for row in orders if row.order not in together], {})
        for rows in books:
            order = own.get(rows[0].line_id)
            if order is None:
                self._unpaid(rows)
            else:
                self.pair(funds_of([order]), rows)

    # --- at last, without a partner

    def end_order(
        self, funds: Funds, *, candidates: tuple[Candidate, ...] = (), facts: Facts = ()
    ) -> None:
        """An order that has no book line."""
        verdict = decide_alone(funds, self.terms)
        self.tally.place_orders(funds.rows, verdict.orders)
        self._report(verdict.decisions, candidates=candidates, facts=facts)

    def end_book(
        self, lines: Lines, *, candidates: tuple[Candidate, ...] = (), facts: Facts = ()
    ) -> None:
        """Book lines that have no money."""
        verdict = decide_unpaid(lines, self.terms)
        self.tally.place_book(lines.rows, verdict.lines)
        self._report(verdict.decisions, candidates=candidates, facts=facts)

    def end_line(
        self, row: StatementRow, *, candidates: tuple[Candidate, ...] = (), facts: Facts = ()
    ) -> None:
        """A statement line that no ledger knows of."""
        self.tally.place_lines([row], "settled_never_notified")
        self._report(
            (never_notified(row, as_of=self.terms.as_of),), candidates=candidates, facts=facts
        )

    def end_capture(
        self, capture: Capture, *, candidates: tuple[Candidate, ...] = (), facts: Facts = ()
    ) -> None:
        """A capture that has no statement line."""
        waits = self.terms.waits_for_settlement(capture.at, source=capture.source)
        self.tally.place_captures([capture], waits or "not_settled")
        decisions = () if waits else (_not_settled(capture, self.terms),)
        self._report(decisions, candidates=candidates, facts=facts)

    def _report(
        self, decisions: tuple[Decision, ...], *, candidates: tuple[Candidate, ...], facts: Facts
    ) -> None:
        if facts == NOT_SEARCHED:
            self.tally.unsearched += 1
        for each in decisions:
            if isinstance(each, Break) and each.cause not in APART:
                each = replace(each, candidates=candidates, facts=each.facts + facts)
            self.tally.report(each)


def _with(funds: Funds, lines: Sequence[StatementRow]) -> Funds:
    """The same order, and what these lines leave to be settled, which its break reports."""
    beside = left_of([unsettled_by(row) for row in lines])
    return funds_of([row._replace(beside=beside) for row in funds.rows]) if beside else funds


def _nobody_paid(group: Group) -> bool:
    """One plain order without money, at most one book line, and nothing else."""
    if group.statements or len(group.takings) != 1 or len(group.book) > 1:
        return False
    return group.takings[0].whole is None and not group.takings[0].minor


def _without(
    references: dict[str, list[BookRow]], rows: Sequence[BookRow]
) -> dict[str, list[BookRow]]:
    left = {ref: [row for row in own if row not in rows] for ref, own in references.items()}
    return {reference: own for reference, own in left.items() if own}


def _candidate(row: BookRow, at: Instant) -> Candidate:
    return Candidate(
        line=row.line_id,
        reference=row.reference,
        money=Money(minor=row.minor, currency=row.currency),
        apart="fits",
        days=days_between(at, row.placed_at),
    )


def _not_settled(capture: Capture, terms: Terms) -> Break:
    money = Money(minor=capture.minor, currency=capture.currency)
    due = capture.at + terms.rules.settle_margin
    return Break(
        cause="not_settled",
        order=capture.order,
        payment=capture.payment,
        subject=capture.subject,
        money=money,
        since=capture.at,
        cites=capture.cites,
        facts=(("captured", money), ("due_at", due)),
        left=(money,),
    )
