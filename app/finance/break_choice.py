"""Many breaks at once, chosen by what is said of them: `cause=not_settled currency=KES amount<10`.

First what would be done is added up; then it is done to each of them, some at a time, each part in
one transaction. What one person may not accept alone is left out, and counted.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from operator import eq, ge, gt, le, lt
from typing import Any, Final

from app.context.context import AppContext
from app.core.errors import UsageError
from app.core.text import counted
from app.finance import break_acts, break_store, match_rules, worklist
from reconcile.canonical import fingerprint
from reconcile.instants import Instant
from reconcile.matching.breaks import BREAK_CAUSES, STATES, BreakCause, State
from reconcile.matching.candidates import the_one
from reconcile.matching.rows import name_of
from reconcile.money import Money, MoneyError, exponent_of, from_major

# --- what is said of them -------------------------------------------------------------------------

_CONDITION: Final = re.compile(r"([a-z]+)(<=|>=|<|>|=)(.*)")

_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": eq, "<": lt, "<=": le, ">": gt, ">=": ge,
}  # fmt: skip

_WORDS: Final[dict[str, tuple[str, ...] | None]] = {
    "cause": BREAK_CAUSES,
    "state": STATES,
    "currency": None,
    "assignee": None,
    "order": None,
    "payment": None,
}
"""What is equal or is not, with its vocabulary where it has one."""

_AGE: Final = re.compile(r"(\d{1,6})d?", re.ASCII)

NAMES: Final = (*_WORDS, "amount", "age")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which breaks are meant: all of these hold. Without a state: what is to be done.

    words    what a word of the break is
    amounts  how its money compares with so many minor units of `currency`
    ages     how many whole days it is old
    """

    words: tuple[tuple[str, str], ...] = ()
    amounts: tuple[tuple[str, int], ...] = ()
    ages: tuple[tuple[str, int], ...] = ()

    @property
    def causes(self) -> list[str]:
        """The cause, where one is named."""
        return [value for name, value in self.words if name == "cause"][:1]

    @property
    def states(self) -> Collection[State]:
        """Those in which a break is meant."""
        named = dict(self.words).get("state")
        return worklist.TO_DO if named is None else [each for each in STATES if each == named]

    def fits(self, found: break_acts.SeenBreak, *, as_of: Instant) -> bool:
        """Whether a break is meant. Of an amount nothing is so that is not known."""
        return self._is_of(found, as_of=as_of) and self._comes_to(found)

    def leaves_open(self, found: break_acts.SeenBreak, *, as_of: Instant) -> bool:
        """Whether it cannot be determined: all else is so, and what is at stake is not known."""
        unknown = bool(self.amounts) and break_acts.not_known(found.seen)
        return unknown and self._is_of(found, as_of=as_of)

    def _comes_to(self, found: break_acts.SeenBreak) -> bool:
        if not self.amounts:
            return True
        minor = found.seen.money.minor
        return not break_acts.not_known(found.seen) and all(
            _COMPARE[sign](minor, most) for sign, most in self.amounts
        )

    def _is_of(self, found: break_acts.SeenBreak, *, as_of: Instant) -> bool:
        facts = {
            "cause": found.seen.cause,
            "state": found.life.state,
            "currency": found.seen.money.currency,
            "assignee": found.life.assignee or "",
            "order": found.seen.order or "",
            "payment": found.seen.payment or "",
        }
        if "state" not in dict(self.words) and found.life.state not in worklist.TO_DO:
            return False
        age = break_acts.age_days(found.seen, as_of)
        return all(facts[name] == value for name, value in self.words) and all(
            _COMPARE[sign](age, days) for sign, days in self.ages
        )


def read_choice(text: str) -> Choice:
    """`cause=… currency=… amount<… age>…`, in any order; what has blanks in quotes, as a shell has
    them. Raises UsageError with what is wrong."""
    try:
        conditions = [_condition(word) for word in shlex.split(text)]
    except ValueError:
        raise UsageError(
            "--where: a quote is not closed: end it with the same mark, such as order='A 7'"
        ) from None
    if not conditions:
        raise UsageError(f"--where says which breaks, by {', '.join(NAMES)}")
    words = [(name, value) for name, sign, value in conditions if name in _WORDS]
    names = [name for name, _ in words]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--where says {name} twice: no break has two")
    currency = dict(words).get("currency")
    return Choice(
        words=tuple(words),
        amounts=tuple(
            [
                (sign, _minor(value, currency))
                for name, sign, value in conditions
                if name == "amount"
            ]
        ),
        ages=tuple([(sign, _days(value)) for name, sign, value in conditions if name == "age"]),
    )


def condition_text(conditions: Mapping[str, str | None]) -> str:
    """Words of breaks as `read_choice` reads them, without those that are None."""
    return shlex.join(f"{name}={value}" for name, value in conditions.items() if value is not None)


def _condition(word: str) -> tuple[str, str, str]:
    found = _CONDITION.fullmatch(word)
    if found is None or found[1] not in NAMES:
        raise UsageError(
            f"--where: {word[:40]!r} is no condition; write NAME=VALUE by {', '.join(NAMES)}; "
            "amount and age also with < <= > >="
        )
    name, sign, value = found.groups()
    words = _WORDS.get(name)
    if name in _WORDS and sign != "=":
        raise UsageError(f"--where: {name} is compared with = only")
    if words is not None and value not in words:
        raise UsageError(f"--where: {name} is one of {', '.join(words)}")
    if name == "currency":
        _checked_currency(value)
    return name, sign, value


def _checked_currency(code: str) -> None:
    try:
        exponent_of(code)
    except MoneyError:
        raise UsageError(f"--where: {code[:40]!r} is no currency; write one such as KES") from None


def _minor(text: str, currency: str | None) -> int:
    if currency is None:
        raise UsageError(
            "--where: say currency=… beside amount: amounts of two currencies cannot be compared"
        )
    try:
        return from_major(text, currency).minor
    except MoneyError as error:
        raise UsageError(f"--where: amount: {error}") from None


def _days(text: str) -> int:
    found = _AGE.fullmatch(text)
    if found is None:
        raise UsageError("--where: age is a number of whole days, such as age>30")
    return int(found[1])


# --- which they are, and what they come to --------------------------------------------------------

MOST: Final = 10_000
"""Breaks that are chosen at once: each is read whole; about fifty megabytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sums:
    """How many breaks of one cause and currency, and their money."""

    cause: BreakCause
    count: int
    money: Money


def sums_of(found: Sequence[break_acts.SeenBreak]) -> list[Sums]:
    """By cause and currency."""
    counts: Counter[tuple[BreakCause, str]] = Counter()
    minors: Counter[tuple[BreakCause, str]] = Counter()
    for each in found:
        key = (each.seen.cause, each.seen.money.currency)
        counts[key] += 1
        minors[key] += each.seen.money.minor
    return [
        Sums(cause=cause, count=count, money=Money(minor=minors[cause, code], currency=code))
        for (cause, code), count in sorted(counts.items())
    ]


@dataclass(slots=True, kw_only=True)
class Chosen:
    """Breaks that something is to be done to.

    of       these
    apart    left out: of each kind of reason how many
    lines    of those that are to be matched: with which line
    against  why it may not be done to all of them together; None: it may
    """

    of: list[break_acts.SeenBreak]
    apart: Counter[str] = field(default_factory=Counter)
    lines: dict[str, str] = field(default_factory=dict)
    against: str | None = None

    @property
    def mark(self) -> str:
        """What is shown of them, in sixteen digits: another one as soon as anything of it is."""
        whole = fingerprint([break_acts.mark_of(self.of), sorted(self.lines.items())])
        return whole.removeprefix("sha256:")[:16]

    def left_out(self) -> list[str]:
        """A sentence for each kind of reason."""
        return [
            f"Left out: {counted(count, 'break')}: {why}."
            for why, count in self.apart.items()
            if count
        ]


NOT_KNOWN: Final = (
    "what is at stake is not known, so no amount says which; decide about each by itself"
)
NOT_ALONE: Final = "one person may not accept so much alone; accept each by itself to propose it"
NOBODY_NEAR: Final = "no suggestion stands out with so many points"
CLAIMED: Final = "the suggestion is matched by hand already"
SHARED: Final = "the suggestion is that of another one as well"
"""Why something is left out."""


async def few_breaks(context: AppContext, where: str) -> Chosen:
    """Those that are meant, where they can be decided about in one transaction. Raises UsageError
    for none and for too many."""
    chosen = await every_chosen(context, read_choice(where))
    if not chosen.of:
        sentences = ("no break is meant: look at the list again", *chosen.left_out())
        raise UsageError(". ".join(sentences).rstrip("."))
    if len(chosen.of) > break_acts.MOST_AT_ONCE:
        raise UsageError(
            f"{counted(len(chosen.of), 'break')} are meant, and a page decides about "
            f"{break_acts.MOST_AT_ONCE} at most: say more of them, or use `tallyhook breaks accept "
            "--where`"
        )
    chosen.of.sort(key=lambda each: (each.seen.money.currency, -each.seen.money.minor))
    return chosen


async def every_chosen(context: AppContext, choice: Choice) -> Chosen:
    """All that are meant, by id. Raises UsageError for more than MOST."""
    now, chosen = context.clock.now(), Chosen(of=[])
    found = break_acts.living_breaks(context, causes=choice.causes, states=choice.states)
    async with aclosing(found) as parts:
        async for some in parts:
            chosen.of += [each for each in some if choice.fits(each, as_of=now)]
            chosen.apart[NOT_KNOWN] += sum([choice.leaves_open(e, as_of=now) for e in some])
            if len(chosen.of) > MOST:
                raise UsageError(f"more than {MOST:,} breaks are meant: narrow --where")
    return chosen


# --- what is done to them -------------------------------------------------------------------------


async def to_accept(context: AppContext, choice: Choice) -> Chosen:
    """Those that one person may accept alone, and whether that is so of all of them together;
    nothing can be accepted that is closed."""
    chosen = await every_chosen(context, choice)
    async with context.database.reading() as connection:
        rules = await match_rules.rules_known(connection)
    alone = [each for each in chosen.of if break_acts.too_much(rules, each.seen) is None]
    return Chosen(
        of=alone,
        apart=chosen.apart + Counter({NOT_ALONE: len(chosen.of) - len(alone)}),
        against=break_acts.too_much_together(rules, alone),
    )


async def to_match(context: AppContext, choice: Choice, *, least: int) -> Chosen:
    """Those of which one suggestion stands out, with at least so many points."""
    chosen = await every_chosen(context, choice)
    found = chosen.of
    best = {each.identity: the_one(each.seen, least=least) for each in found}
    lines = {name: each.candidate.line for name, each in best.items() if each is not None}
    taken = Counter(lines.values())
    single = {name: line for name, line in lines.items() if taken[line] == 1}
    async with context.database.reading() as connection:
        claimed = await break_store.claimed_by_hand(connection)
    free = {name: line for name, line in single.items() if name_of(line) not in claimed}
    left = {
        NOBODY_NEAR: len(found) - len(lines),
        SHARED: len(lines) - len(single),
        CLAIMED: len(single) - len(free),
    }
    return Chosen(
        of=[each for each in found if each.identity in free],
        apart=chosen.apart + Counter(left),
        lines=free,
    )


async def accept_chosen(
    context: AppContext, chosen: Chosen, *, reason: str, by: str | None
) -> None:
    """Write them off."""

    async def act(part: list[break_acts.SeenBreak]) -> None:
        names = [each.identity for each in part]
        await break_acts.accept_breaks(
            context, names, reason=reason, by=by, seen=break_acts.mark_of(part)
        )

    await _by_parts(chosen, act)


async def assign_chosen(context: AppContext, chosen: Chosen, *, to: str, by: str | None) -> None:
    """Make them somebody's."""

    async def act(part: list[break_acts.SeenBreak]) -> None:
        names = [each.identity for each in part]
        await break_acts.assign_breaks(context, names, to=to, by=by, seen=break_acts.mark_of(part))

    await _by_parts(chosen, act)


async def comment_chosen(context: AppContext, chosen: Chosen, *, note: str, by: str | None) -> None:
    """Say something about each of them."""

    async def act(part: list[break_acts.SeenBreak]) -> None:
        names = [each.identity for each in part]
        await break_acts.comment_breaks(
            context, names, note=note, by=by, seen=break_acts.mark_of(part)
        )

    await _by_parts(chosen, act)


async def match_chosen(context: AppContext, chosen: Chosen, *, reason: str, by: str | None) -> None:
    """Match each with its suggestion, one after the other."""

    async def act(part: list[break_acts.SeenBreak]) -> None:
        (one,) = part
        line = chosen.lines[one.identity]
        await break_acts.match_break(context, one.identity, line=line, reason=reason, by=by)

    await _by_parts(chosen, act, at_once=1)


async def _by_parts(
    chosen: Chosen,
    act: Callable[[list[break_acts.SeenBreak]], Awaitable[None]],
    at_once: int = break_acts.MOST_AT_ONCE,
) -> None:
    """Each part in a transaction of its own. Raises UsageError where one is refused, and says how
    many were done before."""
    for done in range(0, len(chosen.of), at_once):
        try:
            await act(chosen.of[done : done + at_once])
        except UsageError as error:
            if not done:
                raise
            raise UsageError(
                f"{done:,} of {counted(len(chosen.of), 'break')} were done, and then: {error}. Say "
                "the same again for the others"
            ) from None
