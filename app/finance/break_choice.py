"""Choose breaks by conditions, and decide about all at once."""

import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from operator import eq, ge, gt, le, lt
from typing import Any, Final

from app.access.operators import permitted
from app.context.context import AppContext
from app.core.errors import UsageError
from app.core.text import counted
from app.finance import break_acts, break_store, worklist
from app.finance.break_acts import BreakAct
from app.finance.limits import allowance_of
from reconcile.canonical import fingerprint
from reconcile.instants import Instant
from reconcile.matching.breaks import STATES, State
from reconcile.matching.candidates import the_one
from reconcile.matching.causes import BREAK_CAUSES, BreakCause
from reconcile.matching.rows import name_of
from reconcile.money import Money, MoneyError, exponent_of, from_major

# --- conditions -----------------------------------------------------------------------------------

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

_AGE: Final = re.compile(r"(\d{1,6})d?", re.ASCII)

NAMES: Final = (*_WORDS, "amount", "age")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Conditions that every chosen break meets. Without a state, only breaks that need a person are
    chosen."""

    words: tuple[tuple[str, str], ...] = ()
    amounts: tuple[tuple[str, int], ...] = ()
    ages: tuple[tuple[str, int], ...] = ()

    @property
    def causes(self) -> list[str]:
        return [value for name, value in self.words if name == "cause"][:1]

    @property
    def states(self) -> Collection[State]:
        named = dict(self.words).get("state")
        return worklist.TO_DO if named is None else [each for each in STATES if each == named]

    def fits(self, found: break_acts.SeenBreak, *, as_of: Instant) -> bool:
        """Check if a break meets all conditions. An unknown amount meets no condition on
        amounts."""
        minor = found.seen.money.minor
        return self._is_of(found, as_of=as_of) and (
            not self.amounts
            or (
                not break_acts.not_known(found.seen)
                and all(_COMPARE[sign](minor, most) for sign, most in self.amounts)
            )
        )

    def leaves_open(self, found: break_acts.SeenBreak, *, as_of: Instant) -> bool:
        """Check if a break with an unknown amount meets all other conditions."""
        unknown = bool(self.amounts) and break_acts.not_known(found.seen)
        return unknown and self._is_of(found, as_of=as_of)

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
    """Parse conditions such as `cause=… currency=… amount<… age>…`. Raise UsageError for a wrong
    condition."""
    try:
        conditions = [_condition(word) for word in shlex.split(text)]
    except ValueError:
        raise UsageError(
            "--where: a quotation mark is not closed; write order='A 7', for example"
        ) from None
    if not conditions:
        raise UsageError(f"--where: write a condition on one of: {', '.join(NAMES)}")
    words: dict[str, str] = {}
    for name, _, value in conditions:
        if name in words:
            raise UsageError(f"--where: {name} is given twice; give it once")
        if name in _WORDS:
            words[name] = value
    amounts, ages = list[tuple[str, int]](), list[tuple[str, int]]()
    for name, sign, value in conditions:
        if name == "amount":
            amounts.append((sign, _minor(value, words.get("currency"))))
        elif name == "age":
            days = _AGE.fullmatch(value)
            if days is None:
                raise UsageError("--where: age must be a whole number of days, such as age>30")
            ages.append((sign, int(days[1])))
    return Choice(words=tuple(words.items()), amounts=tuple(amounts), ages=tuple(ages))


def condition_text(conditions: Mapping[str, str | None]) -> str:
    """Format conditions for `read_choice`, without empty conditions."""
    return shlex.join(f"{name}={value}" for name, value in conditions.items() if value is not None)


def _condition(word: str) -> tuple[str, str, str]:
    found = _CONDITION.fullmatch(word)
    if found is None or found[1] not in NAMES:
        raise UsageError(
            f"--where: {word[:40]!r} is not a condition. Write NAME=VALUE; NAME is one of "
            f"{', '.join(NAMES)}. Instead of =, amount and age also take <, <=, > and >="
        )
    name, sign, value = found.groups()
    words = _WORDS.get(name)
    if name in _WORDS and sign != "=":
        raise UsageError(f"--where: {name} can only be compared with =")
    if words is not None and value not in words:
        raise UsageError(f"--where: {name} must be one of {', '.join(words)}")
    if name == "currency":
        try:
            exponent_of(value)
        except MoneyError:
            raise UsageError(
                f"--where: {value[:40]!r} is not a currency; write one such as KES"
            ) from None
    return name, sign, value


def _minor(text: str, currency: str | None) -> int:
    if currency is None:
        raise UsageError(
            "--where: give currency=… with amount, because amounts in two currencies cannot be "
            "compared"
        )
    try:
        return from_major(text, currency).minor
    except MoneyError as error:
        raise UsageError(f"--where: amount: {error}") from None


# --- chosen breaks, and their sums ----------------------------------------------------------------

MOST: Final = 10_000
"""Maximum number of breaks that are chosen at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseSum:
    cause: BreakCause
    count: int
    money: Money


def sums_of(found: Sequence[break_acts.SeenBreak]) -> list[CauseSum]:
    counts: Counter[tuple[BreakCause, str]] = Counter()
    minors: Counter[tuple[BreakCause, str]] = Counter()
    for each in found:
        key = (each.seen.cause, each.seen.money.currency)
        counts[key] += 1
        minors[key] += each.seen.money.minor
    return [
        CauseSum(cause=cause, count=count, money=Money(minor=minors[cause, code], currency=code))
        for (cause, code), count in sorted(counts.items())
    ]


@dataclass(slots=True, kw_only=True)
class ChosenBreaks:
    """Breaks to act on. `apart` counts the breaks left out, by reason."""

    of: list[break_acts.SeenBreak]
    apart: Counter[str] = field(default_factory=Counter)
    lines: dict[str, str] = field(default_factory=dict)
    against: str | None = None

    @property
    def mark(self) -> str:
        """Return sixteen hex digits that change with the chosen breaks."""
        whole = fingerprint([break_acts.mark_of(self.of), sorted(self.lines.items())])
        return whole.removeprefix("sha256:")[:16]

    def left_out(self) -> list[str]:
        return [
            f"Left out: {counted(count, 'break')}: {why}."
            for why, count in self.apart.items()
            if count
        ]


NOT_KNOWN: Final = "the amount at stake is not known; decide about each one separately"
NOT_ALONE: Final = "the amount is above one person's limit; propose each one separately"
NOBODY_NEAR: Final = "no suggestion has enough points and is clearly better than the others"
CLAIMED: Final = "the suggested line is already matched by hand"
SHARED: Final = "the same line is suggested for another break, too"


async def few_breaks(context: AppContext, where: str) -> ChosenBreaks:
    """Return the breaks that meet the conditions. Raise UsageError for none, or for too many."""
    chosen = await every_chosen(context, read_choice(where))
    if not chosen.of:
        sentences = ("no break is chosen: look at the list again", *chosen.left_out())
        raise UsageError(". ".join(sentences).rstrip("."))
    if len(chosen.of) > break_acts.MOST_AT_ONCE:
        raise UsageError(
            f"{counted(len(chosen.of), 'break')} are chosen, but the page takes at most "
            f"{break_acts.MOST_AT_ONCE}: choose fewer, or use `tallyhook breaks accept --where`"
        )
    chosen.of.sort(key=lambda each: (each.seen.money.currency, -each.seen.money.minor))
    return chosen


async def every_chosen(context: AppContext, choice: Choice) -> ChosenBreaks:
    """Return all breaks that meet the conditions, sorted by id."""
    now, chosen = context.clock.now(), ChosenBreaks(of=[])
    found = break_acts.living_breaks(context, causes=choice.causes, states=choice.states)
    async with aclosing(found) as parts:
        async for some in parts:
            chosen.of += [each for each in some if choice.fits(each, as_of=now)]
            chosen.apart[NOT_KNOWN] += sum([choice.leaves_open(e, as_of=now) for e in some])
            if len(chosen.of) > MOST:
                raise UsageError(f"--where fits more than {MOST:,} breaks: add a condition")
    return chosen


# --- acting on chosen breaks ----------------------------------------------------------------------


async def chosen_for(
    context: AppContext, choice: Choice, doing: BreakAct, *, least: int
) -> ChosenBreaks:
    """Return the chosen breaks on which the person may act."""
    chosen = await every_chosen(context, choice)
    if doing.kind == "matched":
        return await _to_match(context, chosen, least=least)
    if doing.kind != "accepted":
        return chosen
    async with context.database.reading() as connection:
        who = await permitted(connection, by=doing.by, action="break_accepted")
        allowance = await allowance_of(context, connection, who.name)
    alone = [each for each in chosen.of if break_acts.too_much(allowance, each.seen) is None]
    return ChosenBreaks(
        of=alone,
        apart=chosen.apart + Counter({NOT_ALONE: len(chosen.of) - len(alone)}),
        against=allowance.why_not(*(each.seen.money for each in alone)),
    )


async def _to_match(context: AppContext, chosen: ChosenBreaks, *, least: int) -> ChosenBreaks:
    found = chosen.of
    best = {each.identity: the_one(each.seen, least=least) for each in found}
    lines = {name: each.candidate.line for name, each in best.items() if each is not None}
    taken = Counter(lines.values())
    single = {name: line for name, line in lines.items() if taken[line] == 1}
    async with context.database.reading() as connection:
        claimed = await break_store.claimed_by_hand(connection)
    free = {name: line for name, line in single.items() if name_of(line) not in claimed}
    halves = set[str]()  # a match closes the break about its line too
    for each in found:
        if each.identity in free:
            if break_acts.own_line_of(each.seen) in halves:
                del free[each.identity]
            else:
                halves.add(name_of(free[each.identity]))
    left = {
        NOBODY_NEAR: len(found) - len(lines),
        SHARED: len(lines) - len(single),
        CLAIMED: len([line for line in single.values() if name_of(line) in claimed]),
    }
    return ChosenBreaks(
        of=[each for each in found if each.identity in free],
        apart=chosen.apart + Counter(left),
        lines=free,
    )


async def act_on_chosen(context: AppContext, chosen: ChosenBreaks, doing: BreakAct) -> None:
    """Act on the chosen breaks in batches. After an error, earlier batches stay done."""
    at_once = 1 if doing.kind == "matched" else break_acts.MOST_AT_ONCE
    for done in range(0, len(chosen.of), at_once):
        part = chosen.of[done : done + at_once]
        names = [each.identity for each in part]
        try:
            if doing.kind == "matched":
                lines = [chosen.lines[names[0]]]
                await break_acts.match_lines(
                    context, names[0], lines=lines, reason=doing.reason, by=doing.by
                )
            else:
                seen = break_acts.mark_of(part)
                await break_acts.act_on_breaks(context, names, doing, seen=seen, propose=False)
        except UsageError as error:
            if not done:
                raise
            raise UsageError(
                f"{done:,} of {counted(len(chosen.of), 'break')} were done, then the request "
                f"failed: {error}. Repeat the request for the remaining breaks"
            ) from None
