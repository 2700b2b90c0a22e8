"""Show bank lines with their buckets, payouts and orders."""

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Final, TypedDict, TypeVar

from app.access.operators import last_done
from app.context.context import AppContext
from app.core.document_of import document_of
from app.core.errors import NotFoundError, UsageError
from app.finance import bank_store
from app.finance.break_store import hand_matches
from app.finance.match_rules import rules_known
from app.finance.reconcile_rows import bank_sides, leg_of
from reconcile.documents import Count, InstantText, Keywords, MoneyDocument, NextText
from reconcile.instants import MINUTE, Duration, Instant, format_instant
from reconcile.matching.books import BankLine, BookLine, Payout
from reconcile.matching.control import BUCKETS, FAMILIES, Bucket, Family
from reconcile.matching.exchange import implied_rate
from reconcile.matching.rows import subject_of
from reconcile.money import Money, to_json

T = TypeVar("T")

KEPT_MOST: Final = 50_000
"""Maximum number of matched bank lines in the cache."""

GOOD_FOR: Final[Duration] = MINUTE
"""Time for which matched bank lines are cached."""


class PayoutDocument(TypedDict):
    payout: str
    reference: str | None
    source: str
    amount: MoneyDocument
    paid_at: InstantText | None
    lines: Count


class BookedOrderDocument(TypedDict):
    order: str
    line: str
    amount: MoneyDocument


class BankLineDocument(TypedDict):
    line: str
    account: str
    booked_at: InstantText
    amount: MoneyDocument
    reference: str | None
    family: Family
    stands: Annotated[str, Keywords(enum=BUCKETS)]
    rate: str | None
    payouts: list[PayoutDocument]
    orders: list[BookedOrderDocument]


class WholeBankLineDocument(BankLineDocument):
    counterparty: str | None
    text: str | None


class BankPageDocument(TypedDict):
    lines: list[BankLineDocument]
    next: NextText


@dataclass(frozen=True, slots=True, kw_only=True)
class Booked:
    """Bank line with its bucket, payouts and orders."""

    line: BankLine
    bucket: Bucket
    payouts: tuple[Payout, ...] = ()
    orders: tuple[BookLine, ...] = ()
    rate: str | None = None

    def document(self) -> BankLineDocument:
        line = self.line
        return {
            "line": line.line_id,
            "account": line.account,
            "booked_at": format_instant(line.booked_at),
            "amount": to_json(Money(minor=line.minor, currency=line.currency)),
            "reference": line.reference,
            "family": FAMILIES[self.bucket],
            "stands": self.bucket,
            "rate": self.rate,
            "payouts": [payout_document(each) for each in self.payouts],
            "orders": [
                {"order": each.reference, "line": each.line_id, "amount": to_json(each.money)}
                for each in self.orders
            ],
        }

    def whole_document(self) -> WholeBankLineDocument:
        """Return the line with the bank's texts, which name people."""
        line = self.line
        return {**self.document(), "counterparty": line.counterparty, "text": line.text}


def check_bucket(name: str | None) -> None:
    """Raise UsageError for an unknown bucket. None is allowed."""
    if name is not None and name not in BUCKETS:
        raise UsageError(f"--stands must be one of: {', '.join(BUCKETS)}")


def payout_document(payout: Payout) -> PayoutDocument:
    amount = to_json(Money(minor=payout.minor, currency=payout.currency))
    return document_of(PayoutDocument, payout, payout=payout.payout_id, amount=amount)


@dataclass(frozen=True, slots=True, kw_only=True)
class BookedPage:
    """Page of bank lines."""

    lines: list[Booked]
    counts: Mapping[Bucket, int]
    more: bool


@dataclass(slots=True)
class KeptMatch:
    """Cache of all matched bank lines, valid for GOOD_FOR unless the audit trail grows."""

    mark: str = ""
    asked: Instant | None = None
    at: Instant | None = None
    lines: list[Booked] = field(default_factory=list)

    def found(self, mark: str, asked: Instant | None, *, now: Instant) -> list[Booked] | None:
        """Return the cached bank lines, or None if outdated."""
        same = self.at is not None and (self.mark, self.asked) == (mark, asked)
        return self.lines if same and self.at is not None and now - self.at < GOOD_FOR else None

    def keep(self, lines: list[Booked], mark: str, asked: Instant | None, *, now: Instant) -> None:
        """Cache the matched bank lines, unless there are too many."""
        fits = len(lines) <= KEPT_MOST
        self.lines, self.mark, self.asked = lines if fits else [], mark, asked
        self.at = now if fits else None


async def booked_page(
    context: AppContext,
    *,
    as_of: Instant | None = None,
    stands: str | None = None,
    line: str | None = None,
    after: str = "",
    skip: int = 0,
    limit: int,
    kept: KeptMatch | None = None,
) -> BookedPage:
    """Return one page of bank lines with their matches, newest first. Raise NotFoundError for an
    unknown `line`, and UsageError for a failed matching."""
    show = partial(_page, stands=stands, line=line, after=after, skip=skip, limit=limit)
    return await _matched(context, as_of, show, kept=kept)


async def booked_lines(
    context: AppContext,
    *,
    as_of: Instant | None = None,
    stands: str | None = None,
    after: str = "",
    limit: int,
) -> list[Booked]:
    """Return bank lines with their matches, newest first."""
    page = await booked_page(context, as_of=as_of, stands=stands, after=after, limit=limit)
    return page.lines


def _page(
    every: list[Booked],
    *,
    stands: str | None,
    line: str | None,
    after: str,
    skip: int,
    limit: int,
) -> BookedPage:
    lines = [each for each in every if stands in (None, each.bucket)]
    if line is not None:
        lines = [each for each in lines if subject_of(each.line.line_id) == subject_of(line)]
    lines.sort(key=lambda each: (-each.line.booked_at, each.line.line_id))
    begin = skip
    if after:
        names = [subject_of(each.line.line_id) for each in lines]
        if subject_of(after) not in names:
            raise NotFoundError(f"there is no bank line {after[:40]!r} in this list")
        begin += names.index(subject_of(after)) + 1
    return BookedPage(
        lines=lines[begin : begin + limit],
        counts=Counter(each.bucket for each in every),
        more=len(lines) > begin + limit,
    )


async def booked_with(
    context: AppContext,
    *,
    subjects: Collection[str] = (),
    payouts: Collection[str] = (),
    orders: Collection[str] = (),
) -> list[Booked]:
    """Return the bank lines with one of these subjects, payouts or orders. `orders` has subjects of
    book lines."""
    if not (subjects or payouts or orders):
        return []

    def those(every: list[Booked]) -> list[Booked]:
        return [
            each
            for each in every
            if subject_of(each.line.line_id) in subjects
            or any(payout.payout_id in payouts for payout in each.payouts)
            or any(subject_of(order.line_id) in orders for order in each.orders)
        ]

    return await _matched(context, None, those, kept=None)


async def named_lines(context: AppContext, names: Iterable[str]) -> dict[str, BankLine]:
    """Return the bank lines with these names, by subject."""
    async with context.database.reading() as connection:
        found = await bank_store.bank_lines_named(connection, names, as_of=context.clock.now())
    return {subject_of(each.line_id): each for each in found}


def bank_words(line: BankLine) -> str:
    """Return the payer and the text of a bank line."""
    return ": ".join([each for each in (line.counterparty, line.text) if each])


async def booked_line(
    context: AppContext, name: str, *, as_of: Instant | None = None, kept: KeptMatch | None = None
) -> Booked:
    """Return one bank line with its matches."""
    return await _matched(context, as_of, partial(_one, name=name), kept=kept)


def _one(every: list[Booked], *, name: str) -> Booked:
    wanted = subject_of(name)
    for each in every:
        if subject_of(each.line.line_id) == wanted:
            return each
    raise NotFoundError(
        f"there is no bank line {name[:40]!r}; `tallyhook bank list` shows the bank lines"
    )


async def _matched(
    context: AppContext,
    as_of: Instant | None,
    use: Callable[[list[Booked]], T],
    *,
    kept: KeptMatch | None,
) -> T:
    now = context.clock.now()
    at = now if as_of is None else as_of
    mark = "" if kept is None else await last_done(context)
    every = None if kept is None else kept.found(mark, as_of, now=now)
    if every is not None:
        return await asyncio.to_thread(use, every)
    async with context.database.reading() as connection:
        rules = (await rules_known(connection, as_of=at)).match
        hands = tuple(await hand_matches(connection, as_of=at))
        sides = await bank_sides(connection, as_of=at, rules=rules, hands=hands)

    def work() -> list[Booked]:
        if sides is None:
            return []
        leg, found = leg_of(sides, as_of=at, rules=rules, hands=hands), []
        for link in leg.links:
            rate = None if link.expected is None else implied_rate(link.paid, link.booked)
            found += [
                Booked(line=line, bucket=link.bucket, payouts=link.payouts, rate=rate)
                for line in link.lines
            ]
        by_id = {line.line_id: line for line in sides[1]}
        for transfer in leg.transfers:
            found += [
                Booked(line=by_id[name], bucket="outside_providers", orders=transfer.orders)
                for name in transfer.lines
            ]
        for each in leg.alone:
            if each.line is not None:
                found.append(Booked(line=each.line, bucket=each.bucket))
        return found

    every = await asyncio.to_thread(work)
    if kept is not None:
        kept.keep(every, mark, as_of, now=now)
    return await asyncio.to_thread(use, every)
