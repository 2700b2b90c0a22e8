"""The captures of one order against its statement lines: settled, settled otherwise, or open.

Leaves out: the book, and lines that no key brings to an order. A payment that a line names decides
which capture it is of; a line that names none may only be of the one capture that it fits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from reconcile.instants import Instant
from reconcile.ledger.ledger import EntryKind, Facts
from reconcile.matching.breaks import Break, BreakCause, Candidate
from reconcile.matching.candidates import MOST, days_between
from reconcile.matching.decide import Match, MatchKind
from reconcile.matching.exchange import exchanges, exchanges_back, expected_of, implied_rate
from reconcile.matching.funds import Capture, Funds, Return, left_of
from reconcile.matching.parts import are_parts, parted
from reconcile.matching.returning import (
    balance_of,
    gives_back,
    is_of,
    less,
    may_be_of,
    parts_of,
    undone,
    without,
)
from reconcile.matching.rows import StatementRow, subject_of
from reconcile.matching.rules import Terms, factor_between
from reconcile.matching.tally import Tally
from reconcile.money import Money

_Key = TypeVar("_Key")

Payment = tuple[str, str, str]
"""Source, reference, currency."""


@dataclass(slots=True)
class OpenItems:
    """What stayed without a partner: captures, and lines of payments.

    beside  the lines that the break in doubt of an order reports, by the order's reference
    """

    captures: list[Capture] = field(default_factory=list)
    lines: list[StatementRow] = field(default_factory=list)
    beside: dict[str, list[StatementRow]] = field(default_factory=dict)


class Settling:
    """Places captures and statement lines."""

    def __init__(self, terms: Terms, tally: Tally) -> None:
        self._terms, self._tally = terms, tally
        self._beside: dict[str, list[StatementRow]] = {}

    def settle(self, funds: Sequence[Funds], rows: Sequence[StatementRow]) -> OpenItems:
        """Place what belongs together, and the fees, refunds and disputes; give back the rest."""
        self._beside = {}
        captures = [capture for each in funds for capture in each.captures]
        rows = sorted(rows, key=lambda row: row.line_id)
        self._tally.place_lines([row for row in rows if row.kind == "fee"], "fee_line")
        self._tally.place_lines([row for row in rows if row.kind == "carried"], "carried_line")
        unused = [each for one in funds for each in one.returns]
        moving = [row for row in rows if row.kind not in ("fee", "carried")]
        others = [row for row in moving if gives_back(row, unused, self._terms)]
        placed = set(map(id, others))
        payments = [row for row in rows if row.kind == "payment" and id(row) not in placed]
        moved = bool(captures)
        if len(funds) == 1 and moved:
            captures, payments = self._exchanged(captures, payments, rows=rows)
        if len(funds) == 1 and others:
            unused, others = self._exchanged_back(unused, others)
        if others:
            unused = self._returned(funds, others, unused)
        unresolved = [each.order for each in funds if each.unresolved]
        if not moved and unresolved:
            self._tally.place_lines(payments, "unresolved")  # its break reports this money
            self._beside.setdefault(unresolved[0], []).extend(payments)
            opened = OpenItems()
        else:
            opened = self._captured(captures, payments)
            opened.captures, unused = self._reversed(opened.captures, unused)
            opened.lines = [row for row in opened.lines if not self._in_doubt(row, funds)]
        self._never_taken(unused)
        opened.beside = self._beside
        return opened

    def _reversed(
        self, captures: list[Capture], unused: list[Return]
    ) -> tuple[list[Capture], list[Return]]:
        """Captures without a line are not missed where a reversal took them back before anything
        was paid out: they are placed here. The rest of both is given back."""
        left: list[Capture] = []
        reversals = {_payment_of(each) for each in unused if each.kind == "reversed"}
        for each in sorted(captures, key=lambda each: each.minor):
            payment = _payment_of(each)
            back = [one for one in unused if _payment_of(one) == payment]
            back = [one for one in back if one.kind != "dispute_lost"]
            if payment in reversals and each.minor <= sum([one.minor for one in back]):
                unused = less(unused, back, each.minor)
                self._tally.place_captures([each], "returned")
            else:
                left.append(each)
        return left, unused

    def _never_taken(self, returns: Sequence[Return]) -> None:
        """What went back and has no line is a break once it must have one."""
        counts: Counter[str] = Counter()
        for each in returns:
            if self._terms.waits_for_settlement(each.at, source=each.source):
                continue
            name = f"{each.kind}:{each.cites[0]}"
            counts[name] += 1
            more = f"#{counts[name]}" if counts[name] > 1 else ""
            money = Money(minor=each.minor, currency=each.currency)
            due = each.at + self._terms.rules.settle_margin
            found = Break(
                cause="refund_not_settled",
                order=each.order,
                payment=each.payment,
                subject=name + more,
                money=money,
                since=each.at,
                cites=each.cites,
                facts=(("returned", money), ("how", each.kind), ("due_at", due)),
                left=left_of([_negative(money)]),
            )
            self._tally.report(found)

    def _in_doubt(self, row: StatementRow, funds: Sequence[Funds]) -> bool:
        """Whether the line may be of a movement that is known, and its amount is not: the break of
        that payment, or of its order, reports this money. Such a line is placed."""
        for each in funds:
            if not each.unresolved and not (each.moved and each.at_doubt):
                continue  # no break would report it
            for doubt in each.doubted:
                of_it = row.payment in (None, doubt.payment)
                of_it = of_it and self._terms.settles(row.source, doubt.source)
                if of_it and any(_is_of_kind(row, kind) for kind in doubt.unsure):
                    bucket: BreakCause = "unresolved" if each.unresolved else "payment_in_doubt"
                    self._tally.place_lines([row], bucket)
                    self._beside.setdefault(each.order, []).append(row)
                    return True
        return False

    # --- payments

    def _exchanged(
        self,
        captures: list[Capture],
        payments: list[StatementRow],
        *,
        rows: Sequence[StatementRow],
    ) -> tuple[list[Capture], list[StatementRow]]:
        """The captures and lines that are left once those are placed that the statement settles in
        another currency."""
        done: set[int] = set()
        gone: list[Capture] = []
        for capture, lines in exchanges(captures, rows):
            self._at_a_rate(capture, lines)
            gone.append(capture)
            done |= set(map(id, lines))
        if not gone:
            return captures, payments
        return (
            [each for each in captures if each not in gone],
            [row for row in payments if id(row) not in done],
        )

    def _at_a_rate(self, capture: Capture, rows: list[StatementRow]) -> None:
        came = Money(minor=capture.minor, currency=capture.currency)
        arrived = Money(minor=sum([row.gross for row in rows]), currency=rows[0].currency)
        due, within = expected_of(came, arrived, self._terms.rules.rates)
        rate = implied_rate(came, arrived)
        if within:
            match = _match("by_exchange", capture, rows)
            facts: Facts = (("rate", rate), ("settled", arrived))
            self._tally.report(replace(match, facts=facts))
            self._place(capture, rows, "by_exchange")
            return
        missing = Money(minor=due.minor - arrived.minor, currency=due.currency)
        apart = Money(minor=abs(missing.minor), currency=due.currency)
        facts = (
            ("captured", came), ("settled", arrived), ("against", "statement"),
            ("difference", apart), ("rate", rate), ("expected", due),
        )  # fmt: skip
        found = _break("amount_differs", capture, rows, minor=apart.minor, facts=facts)
        self._tally.report(replace(found, money=apart, left=left_of([missing])))
        self._place(capture, rows, "amount_differs")

    def _exchanged_back(
        self, unused: list[Return], rows: list[StatementRow]
    ) -> tuple[list[Return], list[StatementRow]]:
        """The same of what went back."""
        done: set[int] = set()
        for parts, lines in exchanges_back(unused, rows):
            self._back_at_a_rate(parts, lines)
            done |= {*map(id, parts), *map(id, lines)}
        return (
            [each for each in unused if id(each) not in done],
            [row for row in rows if id(row) not in done],
        )

    def _back_at_a_rate(self, parts: list[Return], rows: list[StatementRow]) -> None:
        """By what was taken: a rate has no sign."""
        came = Money(minor=sum([each.minor for each in parts]), currency=parts[0].currency)
        taken = Money(minor=-sum(map(balance_of, rows)), currency=rows[0].currency)
        due, within = expected_of(came, taken, self._terms.rules.rates)
        rate: Facts = (("rate", implied_rate(came, taken)),)
        if within:
            match = _match_back(parts, rows)
            self._tally.report(
                replace(match, kind="by_exchange", facts=(*rate, ("settled", taken)))
            )
            self._tally.place_lines(rows, "by_exchange")
            return
        apart = Money(minor=abs(taken.minor - due.minor), currency=due.currency)
        facts: Facts = (("returned", came), ("how", parts[0].kind), ("settled", taken))
        facts = (*facts, ("difference", apart), *rate, ("expected", due))
        self._tally.report(_taken_otherwise(parts, rows, due=due, taken=taken, facts=facts))
        self._tally.place_lines(rows, "refund_amount_differs")

    def _captured(self, captures: Sequence[Capture], rows: Sequence[StatementRow]) -> OpenItems:
        rest = OpenItems(captures=list(captures))
        of_payment = _by([row for row in rows if row.payment is not None], lambda row: row.payment)
        for payment, lines in of_payment.items():
            of_it = [each for each in captures if each.payment == payment]
            self._join_by_source(rest, of_it, lines)
        loose = [row for row in rows if row.payment is None]
        if loose:
            self._loose(rest, loose)
        return rest

    def _loose(self, rest: OpenItems, rows: list[StatementRow]) -> None:
        """Lines that name the order only."""
        if len(rest.captures) == 1:
            self._join_by_source(rest, rest.captures, rows)
            return
        for sums, lines in _by(rows, lambda row: (row.currency, row.gross)).items():
            alike = [each for each in rest.captures if (each.currency, each.minor) == sums]
            self._join_by_source(rest, alike, lines)

    def _join_by_source(
        self, rest: OpenItems, captures: list[Capture], rows: list[StatementRow]
    ) -> None:
        """What may be of each other by their sources, each apart from the others."""
        for fitting, lines in by_source(captures, rows, terms=self._terms):
            if fitting:
                self._join_of_key(rest, fitting, lines)
            else:
                rest.lines += lines

    def _join_of_key(
        self, rest: OpenItems, captures: list[Capture], rows: list[StatementRow]
    ) -> None:
        """The same as `join`; but of several lines that fit one capture equally a person may have
        said which it is, and then the others are open."""
        if are_parts(captures):
            others = [each for each in rest.captures if each not in captures]
            captures, rows = self.join_parts(captures, rows)
            rest.captures = others + captures
            if not (captures and rows):
                rest.lines += rows
                return
        same = [row for row in rows if _fits(row, captures[0])]
        partners = self._terms.partners(captures[0].order)
        given = [row for row in same if subject_of(row.line_id) in partners]
        if len(captures) == 1 and len(same) > 1 and len(given) == 1:
            self.join(captures, given, kind="by_hand")
            rest.lines += [row for row in rows if row is not given[0]]
        else:
            self.join(captures, rows)
        rest.captures = [each for each in rest.captures if each not in captures]

    def join_parts(
        self,
        captures: list[Capture],
        rows: list[StatementRow],
        *,
        kind: MatchKind | None = None,
    ) -> tuple[list[Capture], list[StatementRow]]:
        """Captures of one payment, and its lines: those that are left once each that can only be
        of one, and what adds up, is placed."""
        found = parted(captures, rows)
        for capture, row in found.pairs:
            self._pair(capture, row, kind=kind)
        if not found.adds_up:
            return list(found.captures), list(found.lines)
        match = _match("by_group", found.captures[0], found.lines)
        total = Money(minor=sum([c.minor for c in found.captures]), currency=match.money.currency)
        self._tally.report(replace(match, money=total, facts=()))
        self._tally.place_captures(found.captures, "by_group")
        self._tally.place_lines(found.lines, "by_group")
        return [], []

    def join(
        self,
        captures: list[Capture],
        rows: list[StatementRow],
        *,
        kind: MatchKind | None = None,
    ) -> None:
        """Captures and lines that can only be of each other. `kind`: what brought them together."""
        if len(captures) > 1:
            self.ambiguous(captures, rows)
        elif len(rows) == 1:
            self._pair(captures[0], rows[0], kind=kind)
        else:
            self._parts(captures[0], rows, kind="by_hand" if kind == "by_hand" else "by_group")

    def _parts(self, capture: Capture, rows: list[StatementRow], *, kind: MatchKind) -> None:
        same = [row for row in rows if row.currency == capture.currency]
        settled = sum([row.gross for row in same])
        if len(same) == len(rows) and settled == capture.minor:
            self._tally.report(_match(kind, capture, rows))
            self._place(capture, rows, kind)
        elif len([row for row in same if _fits(row, capture)]) > 1:
            self.ambiguous([capture], rows)
        else:
            self._differs(capture, rows)

    def _pair(self, capture: Capture, row: StatementRow, *, kind: MatchKind | None) -> None:
        same = row.currency == capture.currency
        difference = row.gross - capture.minor
        if not same or not self._terms.within(difference, row.currency):
            self._differs(capture, [row])
            return
        kind = kind or ("by_tolerance" if difference else None)
        if kind is not None:
            self._tally.report(_match(kind, capture, [row]))
        self._tally.place_captures([capture], kind or "by_reference")
        fee = self._fee(capture, row)
        if fee is not None:
            self._tally.report(fee)
        bucket = "fee_unexpected" if fee is not None else kind or "by_reference"
        self._tally.place_lines([row], bucket)

    def _fee(self, capture: Capture, row: StatementRow) -> Break | None:
        source, currency = capture.source, capture.currency
        found = self._terms.expected_fee(row.gross, source=source, currency=currency)
        if found is None or abs(row.fee - found[0]) <= found[1]:
            return None
        facts: Facts = (
            ("fee", Money(minor=row.fee, currency=currency)),
            ("expected_fee", Money(minor=found[0], currency=currency)),
        )
        minor = abs(row.fee - found[0])
        found_break = _break("fee_unexpected", capture, [row], minor=minor, facts=facts)
        return replace(found_break, left=left_of(_both(capture, [row])))

    def _differs(self, capture: Capture, rows: list[StatementRow]) -> None:
        currency, settled = capture.currency, sum([row.gross for row in rows])
        settled_facts = tuple(
            [("settled", Money(minor=row.gross, currency=row.currency)) for row in rows]
        )
        captured = Money(minor=capture.minor, currency=currency)
        facts: Facts = (("captured", captured), *settled_facts, ("against", "statement"))
        cause: BreakCause = "currency_differs"
        minor = capture.minor
        if all(row.currency == currency for row in rows):
            minor = abs(settled - capture.minor)
            facts = (*facts, ("difference", Money(minor=minor, currency=currency)))
            factor = factor_between(capture.minor, settled, currency)
            cause = "amount_differs" if factor is None else "off_by_minor_unit"
            facts = facts if factor is None else (*facts, ("factor", factor))
        found = _break(cause, capture, rows, minor=minor, facts=facts)
        self._tally.report(replace(found, left=left_of(_both(capture, rows))))
        self._place(capture, rows, cause)

    def ambiguous(self, captures: list[Capture], rows: list[StatementRow]) -> None:
        """Several captures or lines that fit each other: a person decides."""
        free = list(rows)
        for place, capture in enumerate(captures, 1):
            fitting = [row for row in free if _fits(row, capture)][:1]
            own = free if place == len(captures) else fitting
            free = [row for row in free if row not in own]
            self.report_ambiguous(capture, rows, own=own)
        self._tally.place_lines(rows, "ambiguous")

    def report_ambiguous(
        self, capture: Capture, rows: Sequence[StatementRow], *, own: Sequence[StatementRow]
    ) -> None:
        """A capture that these lines fit, which are placed apart; a person may choose one. own:
        those of which no other capture's break says what they leave to be settled."""
        money = Money(minor=capture.minor, currency=capture.currency)
        facts: Facts = (("captured", money), ("fits", len(rows)), ("against", "statement"))
        found = _break("ambiguous", capture, rows, minor=capture.minor, facts=facts)
        candidates = tuple([_candidate(row, capture.at) for row in rows[:MOST]])
        left = left_of(_both(capture, own))
        self._tally.report(replace(found, candidates=candidates, left=left))
        self._tally.place_captures([capture], "ambiguous")

    def _place(
        self, capture: Capture, rows: list[StatementRow], bucket: MatchKind | BreakCause
    ) -> None:
        self._tally.place_captures([capture], bucket)
        self._tally.place_lines(rows, bucket)

    # --- what went back

    def _returned(
        self, funds: Sequence[Funds], rows: Iterable[StatementRow], returns: list[Return]
    ) -> list[Return]:
        """Place the lines of what went back; what of `returns` no line is of."""
        unused = list(returns)
        done, others = undone(rows)
        self._tally.place_lines(done, "returned")
        left: list[StatementRow] = []
        for row in others:
            fitting = [each for each in unused if is_of(row, each, self._terms)]
            if fitting:
                # One that was lost first: a dispute's line may be of a reversal, too.
                lost = [each for each in fitting if each.kind == "dispute_lost"]
                unused.remove((lost or fitting)[0])
                self._tally.place_lines([row], "by_reference")
            else:
                left.append(row)
        disputed = {each for one in funds if one.disputed for each in one.payments}
        for group in _by(left, _of_one_story).values():
            parts = parts_of(group, unused, self._terms)
            if parts:
                unused = without(unused, parts)
                self._tally.report(_match_back(parts, group))
                self._tally.place_lines(group, "by_group")
                continue
            if group[0].kind == "dispute" and self._is_of_any(group[0], disputed):
                self._tally.place_lines(group, "by_reference")
                continue
            rest = [row for row in group if not self._in_doubt(row, funds)]
            if rest:
                unused = self._returned_otherwise(funds, rest, unused)
        return unused

    def _is_of_any(self, row: StatementRow, payments: Iterable[tuple[str, str]]) -> bool:
        """Whether a line may be of one of these (source, payment)."""
        return any(
            row.payment in (None, payment) and self._terms.settles(row.source, source)
            for source, payment in payments
        )

    def _returned_otherwise(
        self, funds: Sequence[Funds], rows: list[StatementRow], unused: list[Return]
    ) -> list[Return]:
        """Lines of one payment and kind whose sum is not what went back; what is left of that."""
        currency, taken = rows[0].currency, -sum([balance_of(row) for row in rows])
        latest = max([row.settled_at for row in rows if row.settled_at is not None], default=None)
        parts = [each for each in unused if may_be_of(rows[0], each, self._terms)]
        parts = [each for each in parts if latest is None or each.at <= latest]
        returned = sum([each.minor for each in parts])
        won = rows[0].kind == "dispute" and any("dispute_won" in e.findings for e in funds)
        settled = ("settled", Money(minor=taken, currency=currency))
        difference = Money(minor=abs(taken - returned), currency=currency)
        if won and taken > returned:
            cause: BreakCause = "dispute_won_not_returned"
            facts: Facts = (settled, ("difference", difference))
        elif parts and taken > 0:
            cause = "refund_amount_differs"
            went_back = Money(minor=returned, currency=currency)
            how = ("how", parts[0].kind)
            facts = (("returned", went_back), how, settled, ("difference", difference))
        else:
            for row in rows:
                found = never_notified(row, as_of=self._terms.as_of)
                known = (("won", True),) if won and balance_of(row) > 0 else ()
                self._tally.report(replace(found, facts=found.facts + known))
            self._tally.place_lines(rows, "settled_never_notified")
            return unused
        ids = tuple(sorted([row.line_id for row in rows]))
        dates = [each.at for each in parts] + ([] if latest is None else [latest])
        self._tally.report(
            Break(
                cause=cause,
                order=parts[0].order if parts else _order_of(rows[0].payment, funds),
                payment=parts[0].payment if parts else rows[0].payment,
                subject=subject_of(ids[0]),
                money=difference,
                since=max(dates, default=self._terms.as_of),
                cites=(*dict.fromkeys([c for each in parts for c in each.cites]), *ids),
                facts=facts,
                left=left_of([Money(minor=taken - returned, currency=currency)]),
            )
        )
        self._tally.place_lines(rows, cause)
        return without(unused, parts)


def by_source(
    captures: Sequence[Capture], rows: Sequence[StatementRow], *, terms: Terms
) -> list[tuple[list[Capture], list[StatementRow]]]:
    """The lines, with the captures that they may be of by their sources: apart from each other
    where no capture may be of both. Captures that no line may be of are left out."""
    found: list[tuple[set[str], list[StatementRow]]] = []
    for row in rows:
        sources = {each.source for each in captures if terms.settles(row.source, each.source)}
        near = [each for each in found if each[0] & sources]
        found = [each for each in found if not each[0] & sources]
        lines = [line for _, some in near for line in some]
        found.append((sources.union(*[each for each, _ in near]), [*lines, row]))
    return [
        (
            [each for each in captures if each.source in sources],
            sorted(lines, key=lambda row: row.line_id),
        )
        for sources, lines in found
    ]


def _fits(row: StatementRow, capture: Capture) -> bool:
    return (row.currency, row.gross) == (capture.currency, capture.minor)


def _by(
    rows: Iterable[StatementRow], key: Callable[[StatementRow], _Key]
) -> dict[_Key, list[StatementRow]]:
    """The rows by what they state."""
    found: dict[_Key, list[StatementRow]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def _of_one_story(row: StatementRow) -> tuple[str | None, ...]:
    """Lines that agree in this may be parts of what went back."""
    return row.payment, row.currency, row.kind, row.source


def _candidate(row: StatementRow, at: Instant) -> Candidate:
    return Candidate(
        line=row.line_id,
        reference=row.payment or row.order or "",
        money=Money(minor=row.gross, currency=row.currency),
        apart="fits",
        days=days_between(at, row.settled_at),
    )


def never_notified(row: StatementRow, *, as_of: Instant) -> Break:
    """The break of a statement line that no ledger knows of."""
    money = Money(minor=abs(row.gross), currency=row.currency)
    back = row.kind == "dispute" and row.gross > 0
    return Break(
        cause="settled_never_notified",
        order=row.order,
        payment=row.payment,
        subject=subject_of(row.line_id),
        money=money,
        since=as_of if row.settled_at is None else row.settled_at,
        cites=(row.line_id,),
        facts=(("settled", money), ("kind", "returned dispute" if back else row.kind)),
        left=left_of([unsettled_by(row)]),
    )


def unsettled_by(row: StatementRow) -> Money:
    """What a line of which no movement is known leaves to be settled: what it paid too much."""
    return Money(minor=-balance_of(row), currency=row.currency)


def _both(capture: Capture, rows: Iterable[StatementRow]) -> list[Money]:
    """What a capture and these lines leave to be settled, one by one."""
    came = Money(minor=capture.minor, currency=capture.currency)
    return [came, *[unsettled_by(row) for row in rows]]


def _negative(money: Money) -> Money:
    return Money(minor=-money.minor, currency=money.currency)


def _is_of_kind(row: StatementRow, kind: EntryKind) -> bool:
    if kind == "captured":
        return row.kind == "payment"
    return row.kind == ("dispute" if kind == "dispute_lost" else "refund")


def _match_back(parts: Sequence[Return], rows: Sequence[StatementRow]) -> Match:
    return Match(
        kind="by_group",
        order=parts[0].order,
        payment=parts[0].payment,
        lines=tuple(sorted([row.line_id for row in rows])),
        money=Money(minor=sum([each.minor for each in parts]), currency=parts[0].currency),
    )


def _order_of(payment: str | None, funds: Sequence[Funds]) -> str:
    """The order that a payment is of, where several have one key; the first where it is of none."""
    return next(
        (each.order for each in funds if any(c.payment == payment for c in each.captures)),
        funds[0].order,
    )


def _taken_otherwise(
    parts: Sequence[Return], rows: Sequence[StatementRow], *, due: Money, taken: Money, facts: Facts
) -> Break:
    """What a statement took for what went back, and should not have, or should have beside."""
    left = Money(minor=taken.minor - due.minor, currency=due.currency)
    ids = tuple(sorted([row.line_id for row in rows]))
    dates = [row.settled_at for row in rows if row.settled_at is not None]
    return Break(
        cause="refund_amount_differs",
        order=parts[0].order,
        payment=parts[0].payment,
        subject=subject_of(ids[0]),
        money=Money(minor=abs(left.minor), currency=left.currency),
        since=max([*[each.at for each in parts], *dates]),
        cites=(*dict.fromkeys([c for each in parts for c in each.cites]), *ids),
        facts=facts,
        left=left_of([left]),
    )


def _payment_of(each: Capture | Return) -> Payment:
    return each.source, each.payment, each.currency


def _match(kind: MatchKind, capture: Capture, rows: Sequence[StatementRow]) -> Match:
    difference = sum([row.gross for row in rows]) - capture.minor
    facts: Facts = (("difference", Money(minor=difference, currency=capture.currency)),)
    return Match(
        kind=kind,
        order=capture.order,
        payment=capture.payment,
        lines=tuple(sorted([row.line_id for row in rows])),
        money=Money(minor=capture.minor, currency=capture.currency),
        facts=facts if difference else (),
    )


def _break(
    cause: BreakCause, capture: Capture, rows: Sequence[StatementRow], *, minor: int, facts: Facts
) -> Break:
    dates = [row.settled_at for row in rows if row.settled_at is not None]
    ordered = sorted([row.line_id for row in rows])
    return Break(
        cause=cause,
        order=capture.order,
        payment=capture.payment,
        subject=capture.subject if cause == "ambiguous" else subject_of(ordered[0]),
        money=Money(minor=minor, currency=capture.currency),
        since=max([capture.at, *dates]),
        cites=(*capture.cites, *ordered),
        facts=facts,
    )
