"""Find unmatched lines that can be a break's counterpart."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from app.context.context import AppContext
from app.core.errors import UsageError
from app.finance import break_acts
from app.finance.bank_match import Booked, bank_words, named_lines
from reconcile.instants import Instant, format_instant
from reconcile.matching.books import BankLine, match_key
from reconcile.matching.breaks import STATES, Break
from reconcile.matching.causes import CAUSES, BreakCause
from reconcile.matching.rows import name_of
from reconcile.money import Money, MoneyError, from_major, to_json

SEARCHED: Final = 20_000

OF_BANK: Final = 1_000
"""Maximum number of searched bank lines without a provider."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOver:
    """Unmatched line that a person may match with a break."""

    line: str
    of: str | None
    reference: str
    money: Money
    at: Instant
    text: str = ""

    def document(self, *, chosen: bool) -> dict[str, Any]:
        return {
            "line": self.line,
            "break": self.of,
            "reference": self.reference,
            "money": to_json(self.money),
            "at": format_instant(self.at),
            "text": self.text,
            "chosen": chosen,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LineSearch:
    """Conditions of a search for lines."""

    text: str = ""
    amount: str = ""
    since: Instant | None = None
    until: Instant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLines:
    """Lines that a search found. `left` is the break's sum minus the chosen lines; None if
    currencies differ."""

    lines: list[LeftOver]
    chosen: list[LeftOver]
    left: Money | None
    more: bool


async def find_lines(
    context: AppContext,
    found: break_acts.SeenBreak,
    sought: LineSearch,
    *,
    chosen: list[str],
    texts: bool = True,
    other_business: Sequence[Booked] = (),
) -> FoundLines:
    """Search for possible counterparts of a break."""
    seen = found.seen
    wanted = _minor(sought.amount, seen.money.currency)
    every, more = await _left_over(context, found, texts=texts)
    every += [_of_bank(each.line) for each in other_business if each.line.minor > 0]
    names = {name_of(line) for line in chosen}
    picked = [each for each in every if each.line in names]
    fitting = [
        each
        for each in every
        if each.line not in names
        and (wanted is None or each.money.minor == wanted)
        and (sought.since is None or each.at >= sought.since)
        and (sought.until is None or each.at < sought.until)
        and _says(each, sought.text)
    ]
    left = seen.money.minor - sum([each.money.minor for each in picked])
    one_currency = {each.money.currency for each in picked} <= {seen.money.currency}
    fitting.sort(
        key=lambda each: (
            each.money.currency != seen.money.currency,
            abs(each.money.minor - left),
            abs(each.at - seen.since),
            each.line,
        )
    )
    return FoundLines(
        lines=fitting,
        chosen=picked,
        left=Money(minor=left, currency=seen.money.currency) if one_currency else None,
        more=more,
    )


def may_be_other_business(cause: BreakCause) -> bool:
    """Check if bank lines without a provider fit the break."""
    return "bank_line_unknown" in CAUSES[cause].partners


def _minor(amount: str, currency: str) -> int | None:
    if not amount.strip():
        return None
    try:
        return from_major(Decimal(amount.strip().replace(",", "")), currency).minor
    except (InvalidOperation, MoneyError):
        raise UsageError(f"write the amount in {currency}, such as 1500.00") from None


def _says(line: LeftOver, text: str) -> bool:
    sought = text.strip().casefold()
    if not sought:
        return True
    words = f"{line.reference}\n{line.text}".casefold()
    return sought in words or match_key(sought) in match_key(line.reference)


async def _left_over(
    context: AppContext, found: break_acts.SeenBreak, *, texts: bool
) -> tuple[list[LeftOver], bool]:
    causes, every = CAUSES[found.seen.cause].partners, list[LeftOver]()
    if not causes:
        return [], False
    async for some in break_acts.living_breaks(context, causes=causes, states=STATES[:-1]):
        every += [
            LeftOver(
                line=break_acts.own_line_of(each.seen),
                of=each.identity,
                reference=_reference(each.seen),
                money=each.seen.money,
                at=each.seen.since,
            )
            for each in some
        ]
        if len(every) > SEARCHED:
            return every[:SEARCHED], True
    if texts and "bank_line_unknown" in causes:
        every = await _with_texts(context, every)
    return every, False


def _reference(seen: Break) -> str:
    payout = dict(seen.facts).get("payout")
    return seen.order or seen.payment or (payout if isinstance(payout, str) else "")


async def _with_texts(context: AppContext, lines: list[LeftOver]) -> list[LeftOver]:
    booked = await named_lines(
        context, [each.line for each in lines if each.line.startswith("bnk_")]
    )
    texts = {name: _of_bank(line) for name, line in booked.items()}
    return [
        replace(each, reference=texts[each.line].reference, text=texts[each.line].text)
        if each.line in texts
        else each
        for each in lines
    ]


def _of_bank(line: BankLine) -> LeftOver:
    return LeftOver(
        line=name_of(line.line_id),
        of=None,
        reference=line.reference or "",
        money=Money(minor=line.minor, currency=line.currency),
        at=line.booked_at,
        text=bank_words(line),
    )
