"""Match payouts with bank lines, to tell whether payouts arrived in the bank.

1 join       by hand, by reference, then by amount and date
2 judge      equal, within tolerance, exchanged, or different
3 explain    rows without a partner wait, belong elsewhere, or are a break
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from reconcile.instants import DAY, Duration, Instant
from reconcile.ledger.ledger import Facts, FactValue
from reconcile.matching.books import BankLine, BookLine, Payout, match_key
from reconcile.matching.breaks import Break, Candidate
from reconcile.matching.candidates import Index, Searchable, entry_of, nearest_of
from reconcile.matching.control import Bucket, Control, ControlLine, Read, Side, break_totals
from reconcile.matching.decide import MATCH_KINDS, Decision, Match
from reconcile.matching.exchange import expected_of, implied_rate
from reconcile.matching.funds import left_of
from reconcile.matching.outside import Transfer, Transfers, of_book_line
from reconcile.matching.period import Period
from reconcile.matching.rows import subject_of
from reconcile.matching.rules import (
    Coverage,
    Covered,
    HandMatch,
    MatchRules,
    Span,
    common_spans,
    waits_in,
)
from reconcile.matching.tally import Unsettled
from reconcile.matching.texts import named_in, telling
from reconcile.matching.wallets import PAST_MOST, due_after
from reconcile.money import MAX_MINOR, Money


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """Payouts and bank lines that belong to one transfer of money.

    The expected amount is None if all are in one currency.
    """

    bucket: Bucket
    payouts: tuple[Payout, ...]
    lines: tuple[BankLine, ...]
    expected: Money | None = None

    @property
    def paid(self) -> Money:
        """Return the sum of the payouts, which the provider says it paid."""
        return Money(
            minor=sum([each.minor for each in self.payouts]), currency=self.payouts[0].currency
        )

    @property
    def booked(self) -> Money:
        """Return the sum that the bank booked."""
        return Money(
            minor=sum([each.minor for each in self.lines]), currency=self.lines[0].currency
        )

    @property
    def missing(self) -> Money:
        """Return the amount missing in the bank; negative if too much came."""
        due = self.paid if self.expected is None else self.expected
        return Money(minor=due.minor - self.booked.minor, currency=due.currency)

    @property
    def at(self) -> Instant:
        """Return the date that decides the transfer's period."""
        paid = [each.paid_at for each in self.payouts if each.paid_at is not None]
        return max(paid) if paid else min([each.booked_at for each in self.lines])


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """Payout or bank line for which no partner was found."""

    bucket: Bucket
    payout: Payout | None = None
    line: BankLine | None = None
    due_at: Instant | None = None

    @property
    def at(self) -> Instant | None:
        return self.line.booked_at if self.line else self.payout.paid_at if self.payout else None


NAMED_WITHIN: Final[Duration] = 90 * DAY
"""Maximum time between a payout and a bank line that names it."""

EARLY: Final[Duration] = DAY
"""Maximum time by which a bank may date a transfer before the provider's date."""

NAMES_REPORTED: Final = 3
"""Maximum number of payouts that a break's sentence names."""


class BankLeg:
    """All payouts and bank lines, matched as of one instant."""

    def __init__(
        self,
        *,
        payouts: Iterable[Payout],
        lines: Iterable[BankLine],
        rules: MatchRules,
        as_of: Instant,
        coverage: Coverage,
        hands: Iterable[HandMatch] = (),
        orders: Iterable[BookLine] = (),
    ) -> None:
        """Match the payouts with the bank lines. Raises ValueError for sums over 64 bits.

        hands   pairs that a person matched
        orders  book lines of orders paid outside providers, or matched by a person
        """
        self._rules, self._as_of = rules, as_of
        self._payouts = sorted(payouts, key=_payout_order)
        self._lines = sorted(lines, key=_line_order)
        self._payers = tuple([each.casefold() for each in rules.bank_payers])
        self._others = tuple([each.casefold() for each in rules.other_business])
        self._joined: set[str] = set()
        self.late: tuple[Break, ...] = ()
        self._stated = {each.name: each.spans for each in coverage.statements}
        self._orders, hands = Transfers(orders, methods=rules.methods), tuple(hands)
        links = [*self._by_name(hands)]
        transfers = [*self._claimed(self._orders.by_hand(self._left_lines(), hands))]
        transfers += self._claimed(self._orders.by_name(self._left_lines()))
        links += [*self._by_date(), *self._returned()]
        ours = [e for e in self._left_lines() if not (self._payers and self._is_payers(e))]
        self.transfers = (*transfers, *self._claimed(self._orders.by_date(ours)))
        links = self._sent_again(links)
        self.links = tuple(sorted(links, key=lambda link: link.payouts[0].payout_id))
        # Once payouts were found in some accounts of a currency, only these must cover it.
        known = {(e.currency, e.account) for link in self.links for e in link.lines}
        with_payouts = {currency for currency, _ in known}
        self._in_bank = _covering(
            coverage.bank,
            {
                (line.currency, line.account)
                for line in self._lines
                if line.currency not in with_payouts or (line.currency, line.account) in known
            },
        )
        self._paid = _covering(
            coverage.statements, {(each.currency, each.source) for each in self._payouts}
        )
        self.alone = (*map(self._alone_payout, self._left_payouts()),
                      *map(self._alone_line, self._left_lines()))  # fmt: skip

    # --- 1 join, 2 judge

    def _left_payouts(self) -> list[Payout]:
        return [each for each in self._payouts if each.payout_id not in self._joined]

    def _failed(self) -> Iterator[tuple[Payout, Instant]]:
        for payout in self._left_payouts():
            if payout.sent and not payout.minor and payout.paid_at is not None:
                yield payout, payout.paid_at

    def _left_lines(self) -> list[BankLine]:
        return [each for each in self._lines if each.line_id not in self._joined]

    def _by_name(self, hands: Iterable[HandMatch]) -> Iterator[Link]:
        edges = self._edges({(hand.one, hand.other) for hand in hands})
        yield from self._grouped([edge for edge in edges if edge.by_hand], whole=True)
        left = self._unjoined(edges)
        yield from self._grouped([e for e in left if e.payout.currency == e.line.currency])
        left = self._unjoined(left)
        yield from self._grouped([e for e in left if e.payout.minor > 0 < e.line.minor])

    def _claimed(self, found: Iterable[Transfer]) -> Iterator[Transfer]:
        for each in found:
            self._joined |= set(each.lines)
            yield each

    def _unjoined(self, edges: Sequence[_Edge]) -> list[_Edge]:
        joined = self._joined
        return [e for e in edges if not {e.payout.payout_id, e.line.line_id} & joined]

    def _edges(self, by_hand: set[tuple[str, str]]) -> list[_Edge]:
        by_key: dict[str, list[Payout]] = defaultdict(list)
        by_id = {each.payout_id: each for each in self._payouts}
        for payout in self._payouts:
            if telling(key := match_key(payout.reference)):
                by_key[key].append(payout)
        pairs = by_hand | {(other, one) for one, other in by_hand}
        given: dict[str, list[str]] = defaultdict(list)
        for one, other in sorted(pairs):
            given[one].append(other)
        found = []
        for line in self._lines:
            for name in given.get(subject_of(line.line_id), ()):
                if name in by_id:
                    found.append(_Edge(payout=by_id[name], line=line, by_hand=True))
            texts = (line.reference, line.counterparty, line.text)
            keys = named_in(texts) & by_key.keys()
            for payout in (each for key in keys for each in by_key[key]):
                paid_at = payout.paid_at
                if paid_at is None or abs(line.booked_at - paid_at) <= NAMED_WITHIN:
                    found.append(_Edge(payout=payout, line=line))
        return found

    def _grouped(self, edges: Sequence[_Edge], *, whole: bool = False) -> Iterator[Link]:
        for group in _connected(edges):
            link = self._judged(group)
            if link is not None and not (whole and link.bucket != "by_hand"):
                self._joined |= {each.payout_id for each in link.payouts}
                self._joined |= {each.line_id for each in link.lines}
                yield link

    def _judged(self, edges: Sequence[_Edge]) -> Link | None:
        payouts = sorted({e.payout.payout_id: e.payout for e in edges}.values(), key=_payout_order)
        lines = sorted({e.line.line_id: e.line for e in edges}.values(), key=_line_order)
        link = Link(bucket="by_reference", payouts=tuple(payouts), lines=tuple(lines))
        if len({each.currency for each in payouts}) > 1 or len({e.currency for e in lines}) > 1:
            return None
        for some in (link.payouts, link.lines):
            if sum([abs(each.minor) for each in some]) > MAX_MINOR:
                raise ValueError(
                    f"the amounts matched with payout {payouts[0].reference} add up to more than "
                    "can be stored"
                )
        currency, missing = link.paid.currency, link.missing.minor
        if currency != link.booked.currency:
            due, within = expected_of(link.paid, link.booked, self._rules.rates)
            bucket: Bucket = "by_exchange" if within else "payout_amount_differs"
            return replace(link, bucket=bucket, expected=due)
        tolerance = next((e.minor for e in self._rules.tolerances if e.currency == currency), 0)
        if missing:
            bucket = "by_tolerance" if abs(missing) <= tolerance else "payout_amount_differs"
        elif any(edge.by_hand for edge in edges):
            bucket = "by_hand"
        else:
            bucket = "by_group" if len(payouts) > 1 or len(lines) > 1 else "by_reference"
        return replace(link, bucket=bucket)

    def _by_date(self) -> Iterator[Link]:
        payouts: dict[tuple[str, int], list[Payout]] = defaultdict(list)
        for payout in self._left_payouts():
            if payout.paid_at is not None and payout.minor:
                payouts[payout.currency, payout.minor].append(payout)
        lines: dict[tuple[str, int], list[BankLine]] = defaultdict(list)
        for line in self._left_lines():
            if not self._payers or self._is_payers(line):
                lines[line.currency, line.minor].append(line)
        for key, some in payouts.items():
            waiting = iter(lines.get(key, []))
            free = next(waiting, None)
            for payout in some:
                assert payout.paid_at is not None
                while free is not None and free.booked_at < payout.paid_at - EARLY:
                    free = next(waiting, None)
                if free is not None and free.booked_at <= payout.paid_at + self._rules.bank_margin:
                    self._joined |= {payout.payout_id, free.line_id}
                    yield Link(bucket="by_date_window", payouts=(payout,), lines=(free,))
                    free = next(waiting, None)

    def _returned(self) -> Iterator[Link]:
        lines: dict[tuple[str, int], list[BankLine]] = defaultdict(list)
        for line in self._left_lines():
            lines[line.currency, line.minor].append(line)
        for payout, paid_at in self._failed():
            came, went = (lines[payout.currency, sign * payout.sent] for sign in (1, -1))
            until = paid_at + self._rules.bank_margin
            pair = next(
                (
                    (one, other)
                    for one in came
                    for other in went
                    if abs(one.booked_at - paid_at) <= NAMED_WITHIN
                    and one.booked_at <= other.booked_at <= until
                ),
                None,
            )
            if pair is not None:
                came.remove(pair[0])
                went.remove(pair[1])
                self._joined |= {payout.payout_id, *[line.line_id for line in pair]}
                yield Link(bucket="by_group", payouts=(payout,), lines=pair)

    def _sent_again(self, links: Sequence[Link]) -> list[Link]:
        found = list(links)
        sums: dict[tuple[str, str, int], list[tuple[Instant, int]]] = defaultdict(list)
        for place, link in enumerate(found):
            for each in link.payouts:
                if each.paid_at is not None:
                    sums[each.source, each.currency, each.minor].append((each.paid_at, place))
        for payout, paid_at in self._failed():
            sent = sums[payout.source, payout.currency, payout.sent]
            later = [each for each in sent if each[0] >= paid_at]
            if later:
                link = found[min(later)[1]]
                payouts = sorted([*link.payouts, payout], key=_payout_order)
                found[min(later)[1]] = replace(link, payouts=tuple(payouts))
                self._joined.add(payout.payout_id)
        return found

    # --- 3 explain

    def _alone_payout(self, payout: Payout) -> Alone:
        if not payout.minor:
            return Alone(bucket="nothing_due", payout=payout)
        if payout.paid_at is None:
            return Alone(bucket="not_covered", payout=payout)
        due = payout.paid_at + self._rules.bank_margin
        bank = self._in_bank.get(payout.currency, ())
        waits = waits_in(bank, payout.paid_at, due=due, as_of=self._as_of)
        if waits == "not_covered":
            return Alone(bucket=waits, payout=payout)
        bucket: Bucket = "awaiting_bank" if waits else "payout_not_in_bank"
        return Alone(bucket=bucket, payout=payout, due_at=due)

    def _alone_line(self, line: BankLine) -> Alone:
        ours = self._is_payers(line) if self._payers else line.minor > 0
        if not line.minor or not ours or self._says(line, self._others):
            return Alone(bucket="other_business", line=line)
        paid = self._paid.get(line.currency, ())
        if paid and line.booked_at >= paid[-1].until:
            return Alone(bucket="awaiting_statement", line=line)
        since = line.booked_at - self._rules.bank_margin  # its payout may be as old as this
        covered = any(span.since <= since and line.booked_at < span.until for span in paid)
        return Alone(bucket="bank_line_unknown" if covered else "not_covered", line=line)

    def _is_payers(self, line: BankLine) -> bool:
        return self._says(line, self._payers)

    def _says(self, line: BankLine, texts: tuple[str, ...]) -> bool:
        text = f"{line.counterparty or ''}\n{line.reference or ''}\n{line.text or ''}".casefold()
        return any(each in text for each in texts)

    def credits_alone(self) -> list[Searchable]:
        """Return the incoming bank lines without a partner, which may be transfers for orders."""
        return [_of_line(e.line) for e in self.alone if e.line is not None and e.line.minor > 0]

    def decisions(
        self, period: Period | None = None, *, unpaid: Iterable[Searchable] = ()
    ) -> Iterator[Decision]:
        """Yield the breaks and the unusual matches of a period.

        unpaid  book lines without a payment, which are suggested as possible partners
        """
        own = [of_book_line(each) for each in self._orders.orders.values()]
        near = _Near(self.alone, self._rules, orders=[*own, *unpaid])
        for link in self.links:
            if period is None or link.at in period:
                if link.bucket == "payout_amount_differs":
                    yield _differs(link)
                elif link.bucket in MATCH_KINDS:
                    yield _match(link)
        for transfer in self.transfers:
            decision = transfer.decision()
            if decision is not None and (period is None or transfer.at in period):
                yield decision
        for each in self.alone:
            if (period is None or each.at in period) and each.bucket in _ALONE:
                yield _alone(each, near)
        for late in self.late:
            if period is None or late.since in period:
                yield late

    def expect(self, unsettled: Iterable[Unsettled]) -> None:
        """Store a break for each provider with a late payout."""
        waiting = list(unsettled)
        paid: dict[tuple[str, str], dict[Instant, str]] = defaultdict(dict)
        for each in self._payouts:
            if each.paid_at is not None and each.minor > 0 and not each.withdrawn:
                paid[each.source, each.currency][each.paid_at] = each.payout_id
        self.late = ()
        for (source, currency), own in sorted(paid.items()):
            last_at, last = [*own.items()][-1]
            due = due_after([*own][-PAST_MOST:])
            if due is None or due > self._as_of:
                continue
            spans = self._stated.get(source, ())
            minor = sum(
                each.minor
                for each in waiting
                if (each.source, each.currency) == (source, currency)
                and due - last_at <= each.days * DAY < self._rules.settle_margin
            )
            if minor > 0 and any(e.since <= last_at and due <= e.until for e in spans):
                money = Money(minor=minor, currency=currency)
                facts: Facts = (
                    ("wallet", source),
                    ("waiting", money),
                    ("last_at", last_at),
                    ("due_at", due),
                )
                self.late += (
                    Break(
                        cause="payout_late",
                        subject=last,
                        money=money,
                        since=due,
                        cites=(last,),
                        facts=facts,
                    ),
                )

    def placed(self, period: Period | None = None) -> list[tuple[Bucket, Payout | BankLine]]:
        """Return each payout and bank line of a period with its bucket."""
        found: list[tuple[Bucket, Payout | BankLine]] = []
        for link in self.links:
            if period is None or link.at in period:
                found += [(link.bucket, payout) for payout in link.payouts]
                found += [(link.bucket, line) for line in link.lines]
        by_id = {line.line_id: line for line in self._lines}
        for transfer in self.transfers:
            if period is None or transfer.at in period:
                found += [("outside_providers", by_id[name]) for name in transfer.lines]
        for alone in self.alone:
            one = alone.payout or alone.line
            if one is not None and (period is None or alone.at in period):
                found.append((alone.bucket, one))
        return found

    def control(self, period: Period | None = None) -> Control:
        """Return the control totals of a period's payouts and bank lines."""
        read: dict[tuple[Side, str], list[int]] = defaultdict(lambda: [0, 0])
        placed: dict[tuple[Side, str, Bucket], list[int]] = defaultdict(lambda: [0, 0])
        for bucket, one in self.placed(period):
            side: Side = "payouts" if isinstance(one, Payout) else "bank"
            for sums in (read[side, one.currency], placed[side, one.currency, bucket]):
                sums[0] += 1
                sums[1] += one.minor
        return Control(
            as_of=self._as_of,
            lines=tuple(
                ControlLine(side=side, currency=currency, bucket=bucket, count=count, sum=minor)
                for (side, currency, bucket), (count, minor) in sorted(placed.items())
            ),
            read=tuple(
                Read(side=side, currency=currency, count=count, sum=minor)
                for (side, currency), (count, minor) in sorted(read.items())
            ),
            breaks=break_totals(
                [each for each in self.decisions(period) if isinstance(each, Break)]
            ),
        )


def _covering(
    covered: Iterable[Covered], names: Iterable[tuple[str, str]]
) -> dict[str, tuple[Span, ...]]:
    spans = {each.name: each.spans for each in covered}
    by_currency: dict[str, list[tuple[Span, ...]]] = defaultdict(list)
    for currency, name in names:
        by_currency[currency].append(spans.get(name, ()))
    return {currency: common_spans(some) for currency, some in by_currency.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edge:
    payout: Payout
    line: BankLine
    by_hand: bool = False


def _payout_order(payout: Payout) -> tuple[bool, Instant, str]:
    return payout.paid_at is None, payout.paid_at or Instant(0), payout.payout_id


def _line_order(line: BankLine) -> tuple[Instant, str]:
    return line.booked_at, line.line_id


def _connected(edges: Sequence[_Edge]) -> list[list[_Edge]]:
    parent: dict[str, str] = {}

    def root(node: str) -> str:
        while (up := parent.setdefault(node, node)) != node:
            parent[node] = parent[up]
            node = up
        return node

    for edge in edges:
        one, other = sorted((root(edge.payout.payout_id), root(edge.line.line_id)))
        parent[other] = one
    found: dict[str, list[_Edge]] = defaultdict(list)
    for edge in edges:
        found[root(edge.payout.payout_id)].append(edge)
    return [found[name] for name in sorted(found)]


_ALONE: Final = frozenset(("payout_not_in_bank", "bank_line_unknown"))


def _match(link: Link) -> Match:
    facts: Facts = ()
    if link.bucket == "by_exchange":
        facts = (("rate", implied_rate(link.paid, link.booked)), ("in_bank", link.booked))
    elif link.missing.minor:
        facts = (("difference", link.missing),)
    ids = [*[each.payout_id for each in link.payouts], *[each.line_id for each in link.lines]]
    return Match(
        kind=link.bucket,  # type: ignore[arg-type]
        lines=tuple(sorted(ids)),
        money=link.paid,
        facts=facts,
    )


def _differs(link: Link) -> Break:
    missing = link.missing
    apart = Money(minor=abs(missing.minor), currency=missing.currency)
    facts: list[tuple[str, FactValue]] = [
        ("payout", ", ".join([each.reference for each in link.payouts][:NAMES_REPORTED])),
        ("paid_out", link.paid),
        ("in_bank", link.booked),
        ("difference", apart),
    ]
    if link.expected is not None:
        facts += [("rate", implied_rate(link.paid, link.booked)), ("expected", link.expected)]
    return Break(
        cause="payout_amount_differs",
        subject=min([each.payout_id for each in link.payouts]),
        money=apart,
        since=max([each.booked_at for each in link.lines]),
        cites=(*[p.payout_id for p in link.payouts], *[line.line_id for line in link.lines]),
        facts=tuple(facts),
        left=left_of([missing]),
    )


def _alone(each: Alone, near: _Near) -> Break:
    if each.payout is not None:
        payout = each.payout
        assert payout.paid_at is not None
        assert each.due_at is not None
        money = Money(minor=payout.minor, currency=payout.currency)
        return Break(
            cause="payout_not_in_bank",
            subject=payout.payout_id,
            money=replace(money, minor=abs(money.minor)),
            since=payout.paid_at,
            cites=(payout.payout_id,),
            facts=(("payout", payout.reference), ("paid_out", money), ("due_at", each.due_at)),
            candidates=near.lines(payout),
            left=left_of([money]),
        )
    assert each.line is not None
    line = each.line
    money = Money(minor=line.minor, currency=line.currency)
    return Break(
        cause="bank_line_unknown",
        subject=subject_of(line.line_id),
        money=replace(money, minor=abs(money.minor)),
        since=line.booked_at,
        cites=(line.line_id,),
        facts=(("in_bank", money), ("booked_at", line.booked_at)),
        candidates=near.partners(line),
        left=left_of([Money(minor=-line.minor, currency=line.currency)]),
    )


class _Near:
    def __init__(
        self, alone: Sequence[Alone], rules: MatchRules, *, orders: Iterable[Searchable]
    ) -> None:
        self._window = rules.bank_margin
        self._orders = Index({each.line: each for each in orders}.values())
        self._payouts = Index([_of_payout(e.payout) for e in alone if e.payout is not None])
        lines = [e.line for e in alone if e.line is not None and e.bucket != "other_business"]
        self._lines = Index([_of_line(each) for each in lines])

    def lines(self, payout: Payout) -> tuple[Candidate, ...]:
        return nearest_of(_of_payout(payout), charged=(self._lines,), window=self._window)

    def partners(self, line: BankLine) -> tuple[Candidate, ...]:
        both = (self._payouts, self._orders)
        return nearest_of(_of_line(line), charged=both, window=self._window)


def _of_payout(payout: Payout) -> Searchable:
    return entry_of(
        payout.payout_id,
        names=[payout.reference],
        minor=payout.minor,
        currency=payout.currency,
        at=payout.paid_at,
    )


def _of_line(line: BankLine) -> Searchable:
    return entry_of(
        line.line_id,
        names=[subject_of(line.line_id)],
        minor=line.minor,
        currency=line.currency,
        at=line.booked_at,
        texts=[line.reference, line.counterparty, line.text],
    )
