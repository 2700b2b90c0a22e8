"""Fee rules that a month's statement lines suggest, and the rules in force with them.

1 read     payments that statements settled from one day to another
2 suggest  percentages and fixed parts by details (`reconcile.matching.fees`)
3 put in   each `[[fee]]` of a suggested source and currency is replaced in the file in force
"""

import asyncio
import json
import re
import tomllib
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from app.context.context import AppContext
from app.core.errors import TallyhookError, UsageError
from app.core.text import counted
from app.finance.match_rules import current_rules, read_rules
from app.finance.statement_store import settled_payments
from reconcile.instants import Instant, format_instant
from reconcile.matching.fees import FeeLine, SuggestedFee, suggested_fees
from reconcile.matching.rules import ExpectedFee
from reconcile.money import Money, major_text

MOST: Final = 200_000
"""Lines that are looked at, some 60 MiB; the first of the span."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeeSuggestions:
    """Fee rules suggested by the lines of a span.

    lines    payments with a source
    nameless payments of statements whose source is not known: no rule can be of them
    more     whether there were more lines than MOST
    """

    since: Instant
    until: Instant
    found: tuple[SuggestedFee, ...]
    lines: int
    nameless: int
    more: bool

    @property
    def toml(self) -> str:
        """Return the rules as blocks of a file of rules."""
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
    """Suggest rules from the payments that statements settled from `since` to before `until`."""
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
    """Return the rules in force with the suggested fees in place of those of their sources and
    currencies. Raises UsageError where the file is not written as it would have to be."""
    saved = await current_rules(context)
    return put_in("" if saved is None else saved.toml, suggested)


_HEADER: Final = re.compile(r"\s*\[")
_FEE: Final = re.compile(r"\s*\[\[\s*fee\s*\]\]")
_OF_FEE: Final = re.compile(r"\s*\[\s*fee\s*\.")


def put_in(text: str, suggested: FeeSuggestions) -> str:
    """Return rules with other fees. Other lines stay as they are, comments too."""
    replaced = {(each.rule.source, each.rule.currency) for each in suggested.found}
    kept: list[str] = []
    block: list[str] | None = None
    for line in [*text.splitlines(), "["]:  # the last one ends a block
        if block is not None and _HEADER.match(line) and not _OF_FEE.match(line):
            try:
                (fee,) = tomllib.loads("\n".join(block), parse_float=Decimal)["fee"]
            except (ValueError, KeyError):
                raise UsageError(_BY_HAND) from None
            if (fee.get("source"), fee.get("currency")) not in replaced:
                kept += block
            block = None
        if _FEE.match(line):
            block = []
        (kept if block is None else block).append(line)
    whole = "\n".join(kept[:-1]).rstrip()
    whole = f"{whole}\n\n{suggested.toml}" if whole else suggested.toml
    try:
        read_rules(whole)
    except TallyhookError:
        raise UsageError(_BY_HAND) from None
    return whole


_BY_HAND: Final = (
    "the fees of the rules in force are not written as [[fee]] with one key a line: put the "
    "suggestions of `tallyhook fees suggest` in by hand"
)


def _block(suggested: SuggestedFee) -> str:
    rule = suggested.rule
    lines = [
        f"# explains exactly {suggested.exact:,} of {counted(suggested.lines, 'line')}",
        "[[fee]]",
        f"source = {_text(rule.source)}",
        f"currency = {_text(rule.currency)}",
        f'percent = "{_percent(rule)}"',
        f'fixed = "{_fixed(rule)}"',
    ]
    if rule.where:
        stated = [f"{name} = [{', '.join(map(_text, values))}]" for name, values in rule.where]
        lines.append(f"where = {{{', '.join(stated)}}}")
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _percent(rule: ExpectedFee) -> str:
    return format(Decimal(rule.per_million).scaleb(-4).normalize(), "f")


def _fixed(rule: ExpectedFee) -> str:
    return major_text(Money(minor=rule.fixed, currency=rule.currency))
