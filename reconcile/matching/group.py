"""Match the rows that share one key, or set them aside until other methods of matching are
tried."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from reconcile.instants import DAY, EARLIEST
from reconcile.ledger.ledger import Facts
from reconcile.matching.breaks import Break, Candidate
from reconcile.matching.candidates import MOST, days_between
from reconcile.matching.causes import CAUSES
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
from reconcile.matching.funds import (
    Capture,
    Funds,
    Left,
    RefundDue,
    captures_of,
    funds_of,
    keep,
    left_of,
)
from reconcile.matching.rows import (
    NO_KEY,
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

NOT_SEARCHED: Facts = (("searched", False),)
"""Fact of a break without a complete search for partners."""


class Deciding:
    """Matcher of rows, which puts each row into a bucket, at once or at the end."""

    def __init__(self, terms: Terms, tally: Tally, left: Left) -> None:
        self.terms, self.tally, self.left = terms, tally, left
        self.settling = Settling(terms, tally)

    def group(self, group: Group) -> None:
        plain_unpaid = (
            not group.statements
            and len(group.takings) == 1
            and len(group.book) <= 1
            and group.takings[0].whole is None
            and not group.takings[0].minor
        )
        if plain_unpaid:  # a frequent case: an unpaid order and its book line
            self.tally.place_orders(group.takings, "nothing_due")
            for row in group.book:
                if claims(row):
                    self._unpaid([row])
                elif not keep(self.left.idle, (row,)):
                    self.tally.place_book([row], "nothing_due")
                    self.tally.unsearched += 1
            return
        funds = [funds_of([row]) for row in sorted(group.takings, key=lambda row: row.order)]
        opened = self.settling.settle(funds, group.statements)
        for capture in opened.captures:
            self.unsettled(capture)
        for line in opened.lines:
            self._line(line)
        moved = any(each.moved for each in funds)
        for line in opened.paid_out:
            self._paid_out(line if moved else line._replace(key=NO_KEY))
        for place, each in enumerate(funds):
            unsettled = [unsettled_by(row) for row in opened.beside.get(each.order, ())]
            if beside := left_of(unsettled):
                funds[place] = funds_of([row._replace(beside=beside) for row in each.rows])
        self._orders(funds, group.book)

    # --- orders and their book lines

    def _orders(self, funds: list[Funds], book: Sequence[BookRow]) -> None:
        references: dict[str, list[BookRow]] = {}
        for row in sorted(book, key=lambda row: row.line_id):
            references.setdefault(row.reference.strip(), []).append(row)
        moved = [each for each in funds if each.moved]
        for each in funds:
            if not each.moved:
                self.tally.place_orders(each.rows, "nothing_due")
        several = len(funds) > 1 or len(references) > 1
        if several and moved and self.terms.any_hands:
            moved, references = self._by_hand(moved, references)
            several = len(moved) > 1 or len(references) > 1
        if not moved and len(funds) == len(references) == 1 and funds[0].tendered:
            self._tendered(funds[0], *references.values())
        elif not moved or not references:
            self._apart(moved, references)
        elif several:
            self.ambiguous(moved, [row for rows in references.values() for row in rows])
        else:
            self.pair(moved[0], *references.values())

    def _apart(self, funds: list[Funds], references: dict[str, list[BookRow]]) -> None:
        for each in funds:
            if not keep(self.left.orders, each.rows[0]):
                self.end_order(each, facts=NOT_SEARCHED)
        for rows in references.values():
            self._unpaid(rows)

    def _tendered(self, funds: Funds, rows: Sequence[BookRow]) -> None:
        lines = lines_of(rows)
        if lines.currencies != {funds.currency}:
            self._unpaid(rows)
            return
        self.tally.place_book(lines.rest, "nothing_due")
        verdict = decide_unpaid(lines, self.terms, tendered=funds.tendered)
        self.tally.place_book(lines.rows, verdict.lines)
        self._report(verdict.decisions, candidates=(), facts=())

    def _unpaid(self, rows: Sequence[BookRow]) -> None:
        lines = lines_of(rows)
        self.tally.place_book(lines.rest, "nothing_due")
        pool = self.left.book if lines.claims else self.left.idle
        if not keep(pool, lines.rows):
            self.end_book(lines, facts=NOT_SEARCHED)

    def _by_hand(
        self, funds: list[Funds], references: dict[str, list[BookRow]]
    ) -> tuple[list[Funds], dict[str, list[BookRow]]]:
        rest = []
        for each in funds:
            rows = self._given(each, [row for lines in references.values() for row in lines])
            if not rows:
                rest.append(each)
                continue
            self.pair(each, rows, kind="by_hand")
            left = {ref: [row for row in own if row not in rows] for ref, own in references.items()}
            references = {reference: own for reference, own in left.items() if own}
        return rest, references

    def pair(self, funds: Funds, rows: Sequence[BookRow], *, kind: MatchKind | None = None) -> None:
        """Match an order with book lines.

        The method `kind` joined lines of another reference with the order.
        """
        lines = lines_of(rows)
        pair = Pair(funds, lines, self.terms, kind)
        if lines.repeated and not amounts_fit(pair):
            apart = Pair(funds, lines_of(rows, apart=True), self.terms, kind)
            pair = apart if amounts_fit(apart) else pair
            lines = pair.lines
        if len(lines.rows) > 1 and not funds.unresolved and not amounts_fit(pair):
            due = (funds.worth, funds.worth + funds.tendered)
            same = [row for row in lines.rows if row.minor in due]
            given = self._given(funds, same)
            if len(same) > 1 and len(given) == 1:
                same, kind = given, "by_hand"
            if len(same) > 1:
                self.tally.place_book(lines.rest, "nothing_due")
                self.ambiguous([funds], lines.rows)
                return
            if same:
                for row in lines.rows:
                    if row is not same[0]:
                        self._unpaid([row])
                pair = Pair(funds, lines_of(same), self.terms, kind)
        self.tally.place_book(lines.rest, "nothing_due")
        if kind is not None or not self._may_be_of_a_group(pair):
            self.place(decide(pair), funds=funds, lines=pair.lines)

    def _given(self, funds: Funds, rows: Iterable[BookRow]) -> list[BookRow]:
        partners = self.terms.partners(funds.order)
        return [row for row in rows if subject_of(row.line_id) in partners]

    def _may_be_of_a_group(self, pair: Pair) -> bool:
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
        """Report several orders or lines that fit each other. No match is guessed."""
        for each in funds:
            self.report_ambiguous(each, rows)
        self.tally.place_book(rows, "ambiguous")

    def report_ambiguous(self, funds: Funds, rows: Sequence[BookRow]) -> None:
        """Report an order that several book lines fit.

        The caller must put the lines into buckets.
        """
        found = Break(
            cause="ambiguous",
            order=funds.order,
            money=funds.money(funds.captured),
            since=max([funds.at, *[row.placed_at or EARLIEST for row in rows]]),
            cites=funds.cites + tuple([row.line_id for row in rows]),
            facts=(
                ("captured", funds.money(funds.captured)),
                ("fits", len(rows)),
                ("against", "book"),
            ),
            candidates=tuple(
                [
                    Candidate(
                        line=row.line_id,
                        reference=row.reference,
                        money=Money(minor=row.minor, currency=row.currency),
                        apart="fits",
                        days=days_between(funds.at, row.placed_at),
                    )
                    for row in rows[:MOST]
                ]
            ),
            left=funds.beside,
        )
        self.tally.report(found)
        self.tally.place_orders(funds.rows, "ambiguous")

    def place(self, verdict: Verdict, *, funds: Funds, lines: Lines) -> None:
        """Put an order and its book lines into their buckets."""
        if [each.cause for each in verdict.decisions if isinstance(each, Break)] == [
            "refund_not_received"
        ]:
            (found,) = verdict.decisions
            assert isinstance(found, Break)
            if keep(self.left.refunds, RefundDue(found, funds.rows, lines.rows)):
                return
        self.tally.place_orders(funds.rows, verdict.orders)
        self.tally.place_book(lines.rows, verdict.lines)
        for each in verdict.decisions:
            self.tally.report(each)

    # --- captures and statement lines

    def _line(self, line: StatementRow) -> None:
        payment = self.terms.suspense.of(line)
        if payment is not None:
            if payment.bucket is not None:
                self.tally.place_lines([line], payment.bucket)
            keep(self.left.suspended, line)  # the break cites no lines beyond the limit
            return
        if not keep(self.left.lines, line):
            self.end_line(line, facts=NOT_SEARCHED)

    def _paid_out(self, line: StatementRow) -> None:
        if not keep(self.left.paid_out, line):
            self.tally.place_lines([line], "other_business")
            self.tally.unsearched += 1

    def plainly_unsettled(self, row: TakingRow) -> None:
        """Set aside the capture of an ordinary order that no statement line settles."""
        self.unsettled(captures_of(row)[0])

    def unsettled(self, capture: Capture) -> None:
        """Set aside a capture that no statement line settles."""
        waits = self.terms.waits_for_settlement(capture.at, source=capture.source)
        if waits == "not_covered" and not self.terms.has_statements(capture.source):
            self.tally.place_captures([capture], waits)
        elif not keep(self.left.awaited if waits else self.left.captures, capture):
            self.end_capture(capture, facts=NOT_SEARCHED)

    def absorb(self, left: Left) -> None:
        """Take over the rows that another matching has set aside."""
        orders = defaultdict[str, list[TakingRow]](list)
        books = defaultdict[str, list[tuple[BookRow, ...]]](list)
        for row in left.orders:
            orders[row.key].append(row)
        for rows in (*left.book, *left.idle):
            books[rows[0].key].append(rows)
        for key in sorted(orders.keys() | books.keys()):
            # If there is no room, orders and lines that were put aside together are paired.
            own = {left.together[r.order]: r for r in orders[key] if r.order in left.together}
            self._apart([funds_of([r]) for r in orders[key] if r.order not in left.together], {})
            for rows in books[key]:
                order = own.get(rows[0].line_id)
                if order is None:
                    self._unpaid(rows)
                else:
                    self.pair(funds_of([order]), rows)
        for capture in (*left.captures, *left.awaited):
            self.unsettled(capture)
        for line in left.lines:
            self._line(line)
        for line in left.paid_out:
            self._paid_out(line)
        for due in left.refunds:
            if not keep(self.left.refunds, due):
                self.end_refund(due)
        for line in left.suspended:  # the other matching has placed them
            keep(self.left.suspended, line)

    # --- at last, without a partner

    def end_suspense(self, lines: Iterable[StatementRow]) -> None:
        """Report the unallocated payments, each with the statement lines that name it."""
        own: dict[tuple[str, str], list[StatementRow]] = defaultdict(list)
        for line in lines:
            payment = self.terms.suspense.of(line)
            if payment is not None:
                own[payment.source, payment.payment].append(line)
        for payment in self.terms.suspense.of_period():
            found = payment.found(own[payment.source, payment.payment])
            if found is not None:
                self.tally.report(found)

    def end_refund(self, due: RefundDue, *, candidates: tuple[Candidate, ...] = ()) -> None:
        """Report a refund that the book states and that has not arrived."""
        self.tally.place_orders(due.orders, due.found.cause)
        self.tally.place_book(due.book, due.found.cause)
        self.tally.report(replace(due.found, candidates=candidates))

    def end_order(
        self, funds: Funds, *, candidates: tuple[Candidate, ...] = (), facts: Facts = ()
    ) -> None:
        """Report an order for which no book line was found."""
        verdict = decide_alone(funds, self.terms)
        self.tally.place_orders(funds.rows, verdict.orders)
        self._report(verdict.decisions, candidates=candidates, facts=facts)

    def end_book(
        self, lines: Lines, *, candidates: tuple[Candidate, ...] = (), facts: Facts = ()
    ) -> bool:
        """Report book lines that no provider paid. Return whether a break was reported."""
        if self.terms.any_hands and any(map(self._in_bank, lines.rows)):
            self.tally.place_book(lines.rows, "outside_providers")
            return False
        verdict = decide_unpaid(lines, self.terms)
        self.tally.place_book(lines.rows, verdict.lines)
        self._report(verdict.decisions, candidates=candidates, facts=facts)
        return bool(verdict.decisions)

    def _in_bank(self, row: BookRow) -> bool:
        partners = self.terms.partners(subject_of(row.line_id))
        return any(name.startswith("bnk_") for name in partners)

    def end_line(
        self, row: StatementRow, *, candidates: tuple[Candidate, ...] = (), facts: Facts = ()
    ) -> None:
        """Report a statement line whose payment is in no ledger."""
        self.tally.place_lines([row], "settled_never_notified")
        found = never_notified(row, self.terms)
        self._report((found,), candidates=candidates, facts=facts)

    def end_capture(
        self, capture: Capture, *, candidates: tuple[Candidate, ...] = (), facts: Facts = ()
    ) -> None:
        """Report a capture for which no statement line was found."""
        waits = self.terms.waits_for_settlement(capture.at, source=capture.source)
        self.tally.place_captures([capture], waits or "not_settled")
        if self.terms.is_covered(capture.at, source=capture.source):
            days = max(self.terms.as_of - capture.at, 0) // DAY
            self.tally.keep_unsettled(capture, days=days)
        money = Money(minor=capture.minor, currency=capture.currency)
        due = capture.at + self.terms.rules.settle_margin
        found = Break(
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
        self._report(() if waits else (found,), candidates=candidates, facts=facts)

    def _report(
        self, decisions: tuple[Decision, ...], *, candidates: tuple[Candidate, ...], facts: Facts
    ) -> None:
        if facts == NOT_SEARCHED:
            self.tally.unsearched += 1
        for each in decisions:
            if isinstance(each, Break) and not CAUSES[each.cause].apart:
                each = replace(each, candidates=candidates, facts=each.facts + facts)
            self.tally.report(each)
