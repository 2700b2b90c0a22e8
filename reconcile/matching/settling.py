"""Match the captures of one order with its statement lines."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from reconcile.instants import Instant
from reconcile.ledger.ledger import EntryKind, Facts
from reconcile.matching import returning
from reconcile.matching.books import OF_WALLET, StatementKind
from reconcile.matching.breaks import Break, Candidate
from reconcile.matching.candidates import MOST, days_between
from reconcile.matching.causes import BreakCause
from reconcile.matching.decide import Match, MatchKind
from reconcile.matching.exchange import exchanges, exchanges_back, expected_of, implied_rate
from reconcile.matching.funds import Capture, Funds, Return, left_of
from reconcile.matching.ledger_lines import FailedRefund
from reconcile.matching.parts import are_parts, parted
from reconcile.matching.rows import StatementRow, subject_of
from reconcile.matching.rules import Terms, factor_between
from reconcile.matching.tally import Tally
from reconcile.money import Money

_Key = TypeVar("_Key")


@dataclass(slots=True)
class OpenItems:
    """Captures and statement lines for which no partner was found."""

    captures: list[Capture] = field(default_factory=list)
    lines: list[StatementRow] = field(default_factory=list)
    paid_out: list[StatementRow] = field(default_factory=list)
    """Disbursements, which can be refunds of an order."""
    beside: dict[str, list[StatementRow]] = field(default_factory=dict)
    """Lines of each order with a doubtful payment, whose money is added to that break."""


class Settling:
    """Matcher that puts captures and statement lines into buckets."""

    def __init__(self, terms: Terms, tally: Tally) -> None:
        self._terms, self._tally = terms, tally
        self._beside: dict[str, list[StatementRow]] = {}

    def settle(self, funds: Sequence[Funds], rows: Sequence[StatementRow]) -> OpenItems:
        """Put matching rows into buckets, and return the rest."""
        self._beside = {}
        captures = [capture for each in funds for capture in each.captures]
        rows = sorted(rows, key=lambda row: row.line_id)
        self._tally.place_lines([row for row in rows if row.kind == "fee"], "fee_line")
        self._tally.place_lines([row for row in rows if row.kind == "carried"], "carried_line")
        of_wallet = [row for row in rows if row.kind in OF_WALLET and row.kind != "disbursement"]
        self._tally.place_lines(of_wallet, "wallet_line")
        unused = [each for one in funds for each in one.returns]
        moving = [row for row in rows if row.kind not in _NO_MOVEMENT]
        others = [row for row in moving if returning.gives_back(row, unused, self._terms)]
        back = set(map(id, others))
        payments = [row for row in moving if id(row) not in back]
        if any(row.gross < 0 for row in payments):
            known = {capture.payment for capture in captures}
            done, _ = returning.undone([row for row in payments if row.payment not in known])
            self._tally.place_lines(done, "returned")
            payments = [row for row in payments if row not in done]
        moved = bool(captures)
        if len(funds) == 1 and moved:
            captures, payments = self._exchanged(captures, payments, rows=rows)
        if len(funds) == 1 and others:
            unused, others = self._exchanged_back(unused, others)
        if others:
            unused = self._returned(funds, others, unused)
        unresolved = [each.order for each in funds if each.unresolved]
        if not moved and unresolved:
            self._tally.place_lines(payments, "unresolved")  # the order's break reports this money
            self._beside.setdefault(unresolved[0], []).extend(payments)
            opened = OpenItems()
        else:
            opened = self._captured(captures, payments)
            opened.captures, unused = self._reversed(opened.captures, unused)
            opened.lines = [row for row in opened.lines if not self._in_doubt(row, funds)]
        self._never_taken(unused)
        opened.paid_out = [row for row in rows if row.kind == "disbursement"]
        opened.beside = self._beside
        return opened

    def _reversed(
        self, captures: list[Capture], unused: list[Return]
    ) -> tuple[list[Capture], list[Return]]:
        left: list[Capture] = []
        reversals = {(e.source, e.payment, e.currency) for e in unused if e.kind == "reversed"}
        for each in sorted(captures, key=lambda each: each.minor):
            payment = (each.source, each.payment, each.currency)
            back = [
                one
                for one in unused
                if (one.source, one.payment, one.currency) == payment and one.kind != "dispute_lost"
            ]
            if payment in reversals and each.minor <= sum([one.minor for one in back]):
                unused = returning.less(unused, back, each.minor)
                self._tally.place_captures([each], "returned")
            else:
                left.append(each)
        return left, unused

    def _never_taken(self, returns: Sequence[Return]) -> None:
        sums: Counter[tuple[str | bool, ...]] = Counter()
        for each in returns:
            sums[*each[:4], each.currency, each.minor < 0] += abs(each.minor)
        undone = {key: min(minor, sums[*key[:-1], not key[-1]]) for key, minor in sums.items()}
        counts: Counter[str] = Counter()
        for each in returns:
            key = (*each[:4], each.currency, came_back := each.minor < 0)
            minor = abs(each.minor) - (used := min(abs(each.minor), undone[key]))
            undone[key] -= used
            if (used and not minor) or self._terms.waits_for_settlement(
                each.at, source=each.source
            ):
                continue
            name = f"{each.kind}:{each.cites[0]}"
            counts[name] += 1
            more = f"#{counts[name]}" if counts[name] > 1 else ""
            money = Money(minor=minor, currency=each.currency)
            due = each.at + self._terms.rules.settle_margin
            cause: BreakCause = "refund_not_settled"
            facts: Facts = (("returned", money), ("how", each.kind), ("due_at", due))
            if came_back and each.kind == "dispute_lost":
                cause, facts = "dispute_won_not_returned", (("difference", money),)
            elif came_back:
                cause = "failed_refund_not_returned"
                facts = (("settled", money), ("failed_at", each.at))
            left = Money(minor=minor if came_back else -minor, currency=each.currency)
            found = Break(
                cause=cause,
                order=each.order,
                payment=each.payment,
                subject=name + more,
                money=money,
                since=each.at,
                cites=each.cites,
                facts=facts,
                left=left_of([left]),
            )
            self._tally.report(found)

    def _in_doubt(self, row: StatementRow, funds: Sequence[Funds]) -> bool:
        for each in funds:
            if not each.unresolved and not (each.moved and each.at_doubt):
                continue  # no break would report it
            for doubt in each.doubted:
                of_it = row.payment in (None, doubt.payment)
                of_it = of_it and self._terms.settles(row.source, doubt.source)
                if of_it and any(_LINE_KINDS[kind] == row.kind for kind in doubt.unsure):
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
        done: set[int] = set()
        gone: list[Capture] = []
        for capture, lines in exchanges(captures, rows):
            came = Money(minor=capture.minor, currency=capture.currency)
            arrived = Money(minor=sum([row.gross for row in lines]), currency=lines[0].currency)
            due, within = expected_of(came, arrived, self._terms.rules.rates)
            rate = implied_rate(came, arrived)
            if within:
                facts: Facts = (("rate", rate), ("settled", arrived))
                self._tally.report(replace(_match("by_exchange", capture, lines), facts=facts))
                self._place(capture, lines, "by_exchange")
            else:
                missing = Money(minor=due.minor - arrived.minor, currency=due.currency)
                apart = Money(minor=abs(missing.minor), currency=due.currency)
                facts = (
                    ("captured", came), ("settled", arrived), ("against", "statement"),
                    ("difference", apart), ("rate", rate), ("expected", due),
                )  # fmt: skip
                found = _break("amount_differs", capture, lines, minor=apart.minor, facts=facts)
                self._tally.report(replace(found, money=apart, left=left_of([missing])))
                self._place(capture, lines, "amount_differs")
            gone.append(capture)
            done |= set(map(id, lines))
        if not gone:
            return captures, payments
        return (
            [each for each in captures if each not in gone],
            [row for row in payments if id(row) not in done],
        )

    def _exchanged_back(
        self, unused: list[Return], rows: list[StatementRow]
    ) -> tuple[list[Return], list[StatementRow]]:
        done: set[int] = set()
        for parts, lines in exchanges_back(unused, rows):
            came = Money(minor=sum([each.minor for each in parts]), currency=parts[0].currency)
            taken = Money(minor=-sum(map(returning.balance_of, lines)), currency=lines[0].currency)
            due, within = expected_of(came, taken, self._terms.rules.rates)
            rate: Facts = (("rate", implied_rate(came, taken)),)
            if within:
                facts: Facts = (*rate, ("settled", taken))
                match = replace(_match_back(parts, lines), kind="by_exchange", facts=facts)
                self._tally.report(match)
                self._tally.place_lines(lines, "by_exchange")
            else:
                more = Money(minor=taken.minor - due.minor, currency=due.currency)
                apart = Money(minor=abs(more.minor), currency=due.currency)
                facts = (("returned", came), ("how", parts[0].kind), ("settled", taken))
                facts = (*facts, ("difference", apart), *rate, ("expected", due))
                cause: BreakCause = "refund_amount_differs"
                self._report_back(cause, parts, lines, order=parts[0].order, more=more, facts=facts)
            done |= {*map(id, parts), *map(id, lines)}
        return (
            [each for each in unused if id(each) not in done],
            [row for row in rows if id(row) not in done],
        )

    def _captured(self, captures: Sequence[Capture], rows: Sequence[StatementRow]) -> OpenItems:
        rest = OpenItems(captures=list(captures))
        of_payment = _by([row for row in rows if row.payment is not None], lambda row: row.payment)
        for payment, lines in of_payment.items():
            of_it = [each for each in captures if each.payment == payment]
            self._join_by_source(rest, of_it, lines)
        loose = [row for row in rows if row.payment is None]
        if len(rest.captures) == 1:
            self._join_by_source(rest, rest.captures, loose)
            return rest
        for sums, lines in _by(loose, lambda row: (row.currency, row.gross)).items():
            alike = [each for each in rest.captures if (each.currency, each.minor) == sums]
            self._join_by_source(rest, alike, lines)
        return rest

    def _join_by_source(
        self, rest: OpenItems, captures: list[Capture], rows: list[StatementRow]
    ) -> None:
        for fitting, lines in by_source(captures, rows, terms=self._terms):
            if fitting:
                self._join_of_key(rest, fitting, lines)
            else:
                rest.lines += lines

    def _join_of_key(
        self, rest: OpenItems, captures: list[Capture], rows: list[StatementRow]
    ) -> None:
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
        """Match parts of a payment with lines. Return the remaining parts and lines."""
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
        """Match captures and statement lines that fit only each other."""
        capture = captures[0]
        if len(captures) > 1:
            self.ambiguous(captures, rows)
        elif len(rows) == 1:
            self._pair(capture, rows[0], kind=kind)
        elif {row.currency for row in rows} == {capture.currency} and capture.minor == sum(
            [row.gross for row in rows]
        ):
            kind = "by_hand" if kind == "by_hand" else "by_group"
            self._tally.report(_match(kind, capture, rows))
            self._place(capture, rows, kind)
        elif len([row for row in rows if _fits(row, capture)]) > 1:
            self.ambiguous([capture], rows)
        else:
            self._differs(capture, rows)

    def _pair(self, capture: Capture, row: StatementRow, *, kind: MatchKind | None) -> None:
        source, currency = capture.source, capture.currency
        difference = row.gross - capture.minor
        if row.currency != currency or not self._terms.within(difference, currency):
            self._differs(capture, [row])
            return
        kind = kind or ("by_tolerance" if difference else None)
        if kind is not None:
            self._tally.report(_match(kind, capture, [row]))
        self._tally.place_captures([capture], kind or "by_reference")
        expected = self._terms.expected_fee(
            row.gross, source=source, currency=currency, details=row.details
        )
        if expected is None or abs(row.fee - expected[0]) <= expected[1]:
            self._tally.place_lines([row], kind or "by_reference")
            return
        facts: Facts = (
            ("fee", Money(minor=row.fee, currency=currency)),
            ("expected_fee", Money(minor=expected[0], currency=currency)),
        )
        minor = abs(row.fee - expected[0])
        found = _break("fee_unexpected", capture, [row], minor=minor, facts=facts)
        self._tally.report(replace(found, left=left_of(_both(capture, [row]))))
        self._tally.place_lines([row], "fee_unexpected")

    def _differs(self, capture: Capture, rows: list[StatementRow]) -> None:
        currency, settled = capture.currency, sum([row.gross for row in rows])
        stated = [("settled", Money(minor=row.gross, currency=row.currency)) for row in rows]
        captured = Money(minor=capture.minor, currency=currency)
        facts: Facts = (("captured", captured), *stated, ("against", "statement"))
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
        """Report several captures or lines that fit each other. A person must decide."""
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
        """Report a capture that several lines fit, and put it into a bucket.

        The caller must put the lines into buckets.
        """
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
        unused = list(returns)
        done, others = returning.undone(rows)
        self._tally.place_lines(done, "returned")
        failed = [e for one in funds for r in one.rows if r.whole for e in r.whole.failed]
        left: list[StatementRow] = []
        for row in others:
            fitting = [
                each for each in unused if returning.may_settle_exactly(row, each, self._terms)
            ]
            if fitting:
                # A lost dispute comes first: a dispute's line may also belong to a reversal.
                lost = [each for each in fitting if each.kind == "dispute_lost"]
                unused.remove((lost or fitting)[0])
                self._tally.place_lines([row], "by_reference")
            elif failure := returning.failure_of(row, failed, self._terms):
                self._kept(row, failure)
            else:
                left.append(row)
        disputed = {each for one in funds if one.disputed for each in one.payments}
        # Lines that agree in these fields may be parts of one return.
        groups = _by(left, lambda row: (row.payment, row.currency, row.kind, row.source))
        for group in groups.values():
            parts = returning.parts_of(group, unused, self._terms)
            if parts:
                unused = returning.without(unused, parts)
                self._tally.report(_match_back(parts, group))
                self._tally.place_lines(group, "by_group")
                continue
            row = group[0]
            if row.kind == "dispute" and any(
                row.payment in (None, payment) and self._terms.settles(row.source, source)
                for source, payment in disputed
            ):
                self._tally.place_lines(group, "by_reference")
                continue
            rest = [row for row in group if not self._in_doubt(row, funds)]
            if rest:
                unused = self._returned_otherwise(funds, rest, unused)
        return unused

    def _kept(self, row: StatementRow, failure: FailedRefund) -> None:
        if waiting := self._terms.waits_for_settlement(failure.at, source=failure.source):
            self._tally.place_lines([row], waiting)
            return
        found = never_notified(row, self._terms)
        facts = (("settled", found.money), ("failed_at", failure.at))
        self._tally.report(replace(found, cause="failed_refund_not_returned", facts=facts))
        self._tally.place_lines([row], "failed_refund_not_returned")

    def _returned_otherwise(
        self, funds: Sequence[Funds], rows: list[StatementRow], unused: list[Return]
    ) -> list[Return]:
        currency, taken = rows[0].currency, -sum([returning.balance_of(row) for row in rows])
        latest = max([row.settled_at for row in rows if row.settled_at is not None], default=None)
        parts = [each for each in unused if returning.may_settle(rows[0], each, self._terms)]
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
                found = never_notified(row, self._terms)
                known = (("won", True),) if won and returning.balance_of(row) > 0 else ()
                self._tally.report(replace(found, facts=found.facts + known))
            self._tally.place_lines(rows, "settled_never_notified")
            return unused
        named = [e.order for e in funds if any(c.payment == rows[0].payment for c in e.captures)]
        order = parts[0].order if parts else (named or [funds[0].order])[0]
        more = Money(minor=taken - returned, currency=currency)
        self._report_back(cause, parts, rows, order=order, more=more, facts=facts)
        return returning.without(unused, parts)

    def _report_back(
        self,
        cause: BreakCause,
        parts: Sequence[Return],
        rows: Sequence[StatementRow],
        *,
        order: str,
        more: Money,
        facts: Facts,
    ) -> None:
        ids = tuple(sorted([row.line_id for row in rows]))
        dates = [each.at for each in parts]
        dates += [row.settled_at for row in rows if row.settled_at is not None]
        self._tally.report(
            Break(
                cause=cause,
                order=order,
                payment=parts[0].payment if parts else rows[0].payment,
                subject=subject_of(ids[0]),
                money=Money(minor=abs(more.minor), currency=more.currency),
                since=max(dates, default=self._terms.as_of),
                cites=(*dict.fromkeys([c for each in parts for c in each.cites]), *ids),
                facts=facts,
                left=left_of([more]),
            )
        )
        self._tally.place_lines(rows, cause)


def by_source(
    captures: Sequence[Capture], rows: Sequence[StatementRow], *, terms: Terms
) -> list[tuple[list[Capture], list[StatementRow]]]:
    """Group statement lines with the captures of the sources that they may settle."""
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
    found: dict[_Key, list[StatementRow]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def _candidate(row: StatementRow, at: Instant) -> Candidate:
    return Candidate(
        line=row.line_id,
        reference=row.payment or row.order or "",
        money=Money(minor=row.gross, currency=row.currency),
        apart="fits",
        days=days_between(at, row.settled_at),
    )


def never_notified(row: StatementRow, terms: Terms) -> Break:
    """Return the break about a line of an unknown payment."""
    captured = None if row.settled_at is None else row.settled_at - terms.rules.settle_margin
    lost = terms.lost_in(None if captured is None else Instant(captured), row.settled_at)
    facts: Facts = ()
    if lost is not None:
        facts = (("lost_from_at", lost.since), ("lost_until_at", lost.until))
    money = Money(minor=abs(row.gross), currency=row.currency)
    back = row.kind == "dispute" and row.gross > 0
    return Break(
        cause="settled_never_notified",
        order=row.order,
        payment=row.payment,
        subject=subject_of(row.line_id),
        money=money,
        since=terms.as_of if row.settled_at is None else row.settled_at,
        cites=(row.line_id,),
        facts=(("settled", money), ("kind", "returned dispute" if back else row.kind), *facts),
        left=left_of([unsettled_by(row)]),
    )


def unsettled_by(row: StatementRow) -> Money:
    """Return the unsettled amount of a line that settles no movement.

    The amount is negative if the line increases the merchant's balance.
    """
    return Money(minor=-returning.balance_of(row), currency=row.currency)


def _both(capture: Capture, rows: Iterable[StatementRow]) -> list[Money]:
    came = Money(minor=capture.minor, currency=capture.currency)
    return [came, *[unsettled_by(row) for row in rows]]


_NO_MOVEMENT: Final[frozenset[StatementKind]] = OF_WALLET | {"fee", "carried"}

_LINE_KINDS: Final[dict[EntryKind, StatementKind]] = {
    "captured": "payment",
    "refunded": "refund",
    "reversed": "refund",
    "dispute_lost": "dispute",
}


def _match_back(parts: Sequence[Return], rows: Sequence[StatementRow]) -> Match:
    return Match(
        kind="by_group",
        order=parts[0].order,
        payment=parts[0].payment,
        lines=tuple(sorted([row.line_id for row in rows])),
        money=Money(minor=sum([each.minor for each in parts]), currency=parts[0].currency),
    )


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
