"""Limit what one person may decide alone."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from app.access.operator_store import acts_since
from app.access.operators import Action
from app.context.context import AppContext
from app.database.engine import Connection
from app.finance.match_rules import rules_known
from app.finance.rule_file import PERIODS, Period, Rules
from reconcile.money import MAX_MINOR, Money, from_major
from reconcile.periods import Calendar

COUNTED: Final[tuple[Action, ...]] = (
    "break_accepted",
    "late_money_settled",
    "payment_assigned",
    "payment_withdrawn",
)
"""Acts whose amounts count toward a person's limits."""

_WORDS: Final[Mapping[Period, tuple[str, str]]] = {
    "day": ("today", "in a day"),
    "month": ("this month", "in a month"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """A person's limits, and the amounts decided alone today and this month. Amounts are minor
    units."""

    rules: Rules
    used: Mapping[Period, Mapping[str, int]] = field(default_factory=dict)

    def why_not(self, *moneys: Money) -> str | None:
        """Return why one person may not decide alone, or None."""
        for each in moneys:
            above = self.rules.above(each)
            if above is not None:
                return above
        sums = Counter[str]()
        for each in moneys:
            sums[each.currency] += each.minor
        for currency, minor in sorted(sums.items()):
            for period in PERIODS:
                limit = self.rules.limit(period, currency)
                used = self.used.get(period, {}).get(currency, 0)
                if limit is None or not minor or used + minor <= limit:
                    continue
                asked, spent, most = (
                    Money(minor=min(each, MAX_MINOR), currency=currency)
                    for each in (minor, used, limit)
                )
                when, span = _WORDS[period]
                of_most = f"the {most} that one person may decide about alone {span}"
                if used:
                    return f"{spent} of {of_most} is used up {when}: less than {asked} is left"
                return f"together they amount to {asked}, more than {of_most}"
        return None


async def allowance_of(context: AppContext, connection: Connection, who: str) -> Allowance:
    """Return a person's limits with the used amounts."""
    rules = await rules_known(connection)
    if not rules.alone_max:
        return Allowance(rules=rules)
    calendar = Calendar(context.calendar_zone)
    today = calendar.day_of(context.clock.now())
    starts = {"day": calendar.day(today)[0], "month": calendar.month(today[:7]).start}
    used: dict[Period, Counter[str]] = {period: Counter() for period in PERIODS}
    for act in await acts_since(connection, starts["month"], who=who, actions=COUNTED):
        facts = act.facts
        if "second" in facts or "amount" not in facts or facts.get("value") == "refund":
            continue
        money = from_major(Decimal(str(facts["amount"])), str(facts["currency"]))
        for period in PERIODS:
            if act.at >= starts[period]:
                used[period][money.currency] += money.minor
    return Allowance(rules=rules, used=used)
