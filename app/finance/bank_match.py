"""Bank lines with their match, for whoever looks: each with where it stands and its payouts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from app.access.operators import last_done
from app.context.context import AppContext
from app.core.errors import NotFoundError, UsageError
from app.finance.break_store import hand_matches
from app.finance.match_rules import rules_known
from app.finance.reconcile_rows import bank_sides, leg_of
from reconcile.instants import MINUTE, Duration, Instant, format_instant, format_known
from reconcile.matching.bank import BankLeg, BankLine, Payout
from reconcile.matching.control import BUCKETS, FAMILIES, Bucket
from reconcile.matching.exchange import implied_rate
from reconcile.matching.rows import subject_of
from reconcile.money import Money, to_json

T = TypeVar("T")

KEPT_MOST: Final = 50_000
"""Lines of which a matching is kept for the next page: about 50 MB."""

GOOD_FOR: Final[Duration] = MINUTE
"""How long it is kept: what waits for a margin may have come over it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Booked:
    """A bank line, where it stands, and the payouts that it is matched with."""

    line: BankLine
    bucket: Bucket
    payouts: tuple[Payout, ...] = ()
    rate: str | None = None

    def document(self, *, whole: bool = False) -> dict[str, Any]:
        """For JSON. whole: with what names people, the counterparty and the bank's text."""
        line = self.line
        texts = {"counterparty": line.counterparty, "text": line.text} if whole else {}
        return {
            "line": line.line_id,
            "account": line.account,
            "booked_at": format_instant(line.booked_at),
            "amount": to_json(Money(minor=line.minor, currency=line.currency)),
            "reference": line.reference,
            **texts,
            "family": FAMILIES[self.bucket],
            "stands": self.bucket,
            "rate": self.rate,
            "payouts": [payout_document(each) for each in self.payouts],
        }


def check_bucket(name: str | None) -> None:
    """Raises UsageError for what is no place where a line can stand."""
    if name is not None and name not in BUCKETS:
        raise UsageError(f"--stands is one of: {', '.join(BUCKETS)}")


def payout_document(payout: Payout) -> dict[str, Any]:
    """For JSON."""
    return {
        "payout": payout.payout_id,
        "reference": payout.reference,
        "source": payout.source,
        "amount": to_json(Money(minor=payout.minor, currency=payout.currency)),
        "paid_at": format_known(payout.paid_at),
        "lines": payout.lines,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class BookedPage:
    """Some bank lines, of how many.

    counts  lines of each bucket, of all that there are
    more    whether others follow
    """

    lines: list[Booked]
    counts: Mapping[Bucket, int]
    more: bool


@dataclass(slots=True)
class KeptMatch:
    """The bank as it was matched a moment ago, for whoever asks for it page by page. It is good as
    long as nobody does anything: an import, a decision or a rule is an entry of the trail.

    mark   the newest entry then
    asked  the instant as of which it is; None: of `at`, when it was matched
    """

    mark: str = ""
    asked: Instant | None = None
    at: Instant | None = None
    lines: list[Booked] = field(default_factory=list)

    def found(self, mark: str, asked: Instant | None, *, now: Instant) -> list[Booked] | None:
        """All lines; None where they are to be matched anew."""
        same = self.at is not None and (self.mark, self.asked) == (mark, asked)
        return self.lines if same and self.at is not None and now - self.at < GOOD_FOR else None

    def keep(self, lines: list[Booked], mark: str, asked: Instant | None, *, now: Instant) -> None:
        """Have them for the next page, unless they are too many."""
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
    """Bank lines with their match, the newest first: as they are known, or were at an instant.

    stands  only those that stand in this bucket; None: all
    line    only the one of this id, in whatever version; None: all
    after   the id of the line after which to go on; empty: from the first one
    skip    lines to leave out from there
    kept    what the page before was of, and what the next one is to be of
    Raises NotFoundError where that line is not among them, UsageError for what cannot be matched.
    """
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
    """The lines of `booked_page`. Raises as it does."""
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


async def booked_line(
    context: AppContext, name: str, *, as_of: Instant | None = None, kept: KeptMatch | None = None
) -> Booked:
    """One bank line. kept: as of `booked_page`. Raises NotFoundError where there is none of this
    id."""
    return await _matched(context, as_of, partial(_one, name=name), kept=kept)


def _one(every: list[Booked], *, name: str) -> Booked:
    wanted = subject_of(name)
    for each in every:
        if subject_of(each.line.line_id) == wanted:
            return each
    raise NotFoundError(f"there is no bank line {name[:40]!r}; `tallyhook bank list` shows them")


async def _matched(
    context: AppContext,
    as_of: Instant | None,
    use: Callable[[list[Booked]], T],
    *,
    kept: KeptMatch | None,
) -> T:
    """Read under the connection; matched, and looked at, in a thread: with many lines it takes
    seconds, in which whoever serves must answer others."""
    now = context.clock.now()
    at = now if as_of is None else as_of
    mark = "" if kept is None else await last_done(context)
    every = None if kept is None else kept.found(mark, as_of, now=now)
    if every is not None:
        return await asyncio.to_thread(use, every)
    async with context.database.reading() as connection:
        rules = (await rules_known(connection, as_of=at)).match
        sides = await bank_sides(connection, as_of=at)
        hands = tuple(await hand_matches(connection, as_of=at))

    def work() -> list[Booked]:
        if sides is None:
            return []
        return list(_booked(leg_of(sides, as_of=at, rules=rules, hands=hands)))

    every = await asyncio.to_thread(work)
    if kept is not None:
        kept.keep(every, mark, as_of, now=now)
    return await asyncio.to_thread(use, every)


def _booked(leg: BankLeg) -> Iterator[Booked]:
    for link in leg.links:
        rate = None if link.expected is None else implied_rate(link.paid, link.booked)
        for line in link.lines:
            yield Booked(line=line, bucket=link.bucket, payouts=link.payouts, rate=rate)
    for each in leg.alone:
        if each.line is not None:
            yield Booked(line=each.line, bucket=each.bucket)
