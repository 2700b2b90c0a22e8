"""Suggest fee rules from a month's statement lines."""

import asyncio
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from app.context.context import AppContext
from app.core.text import counted
from app.finance.match_rules import current_rules
from app.finance.rule_text import fee_block, with_fees
from app.finance.statement_store import settled_payments
from reconcile.instants import Instant, format_instant
from reconcile.matching.fees import FeeLine, SuggestedFee, suggested_fees
from reconcile.matching.rules import ExpectedFee
from reconcile.money import Money, major_text

MOST: Final = 200_000
"""Maximum number of examined statement lines. Further lines are ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeeSuggestions:
    """Fee rules that statement lines suggest."""

    since: Instant
    until: Instant
    found: tuple[SuggestedFee, ...]
    lines: int
    nameless: int
    more: bool

    @property
    def toml(self) -> str:
        """Return the suggestions as TOML blocks."""
        return "\n".join(map(_block, self.found))

    def document(self) -> dict[str, Any]:
        exact = sum(each.exact for each in self.found)
        return {
            "from": format_instant(self.since),
            "to": format_instant(self.until),
            "lines": self.lines,
            "explained": exact,
            "nameless": self.nameless,
            "more": self.more,
            "fees": [
                {
                    "source": each.rule.source,
                    "currency": each.rule.currency,
                    "where": {name: list(values) for name, values in each.rule.where},
                    "percent": _percent(each.rule),
                    "fixed": _fixed(each.rule),
                    "lines": each.lines,
                    "exact": each.exact,
                }
                for each in self.found
            ],
            "toml": self.toml,
        }


async def suggest_fees(context: AppContext, *, since: Instant, until: Instant) -> FeeSuggestions:
    """Suggest fee rules from the payments of a span of time."""
    lines: list[FeeLine] = []
    nameless, more = 0, False
    async with context.database.reading() as connection:
        async for rows in settled_payments(connection, since=since, until=until):
            found = [FeeLine(*row) for row in rows]
            nameless += sum(not line.source for line in found)
            lines += [line for line in found if line.source]
            if more := len(lines) > MOST:
                break
    suggested = await asyncio.to_thread(suggested_fees, lines[:MOST])
    return FeeSuggestions(
        since=since,
        until=until,
        found=tuple(suggested),
        lines=min(len(lines), MOST),
        nameless=nameless,
        more=more,
    )


async def rules_with(context: AppContext, suggested: FeeSuggestions) -> str:
    """Return the present rules with the suggested fees."""
    saved = await current_rules(context)
    return put_in("" if saved is None else saved.toml, suggested)


def put_in(text: str, suggested: FeeSuggestions) -> str:
    """Replace the suggested fees in a text of rules."""
    own = {(each.rule.source, each.rule.currency) for each in suggested.found}
    return with_fees(
        text,
        suggested.toml,
        replaced=lambda fee: (fee.get("source"), fee.get("currency")) in own,
    )


def _block(suggested: SuggestedFee) -> str:
    rule = suggested.rule
    block = fee_block(
        source=rule.source,
        currency=rule.currency,
        percent=_percent(rule),
        fixed=_fixed(rule),
        where=rule.where,
    )
    return f"# matches exactly {suggested.exact:,} of {counted(suggested.lines, 'line')}\n{block}"


def _percent(rule: ExpectedFee) -> str:
    return format(Decimal(rule.per_million).scaleb(-4).normalize(), "f")


def _fixed(rule: ExpectedFee) -> str:
    return major_text(Money(minor=rule.fixed, currency=rule.currency))
