"""Matching rules: read from a file, in force, and what new ones would change.

`rule_text.py` lists the settings of a file, each with an example.
"""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, PlainValidator

from app.access.operator_store import Operator, acting_alone
from app.access.operators import note_in_trail, permitted
from app.access.proposal import Proposal
from app.access.proposals import Agree, Agreed, ProposalKind, check_reason, propose
from app.context.context import AppContext
from app.core.errors import UsageError
from app.core.jobs import silent
from app.core.text import counted
from app.core.toml_file import TomlMistake, TomlTable, Values, read_toml, yes_or_no
from app.database.engine import Connection
from app.finance.files.statements import DETAILS, MAX_DETAIL
from app.finance.matching_store import SavedRules, add_rules, in_step, rules_in_force, wait_for
from app.finance.reconcile_rows import (
    Known,
    Snapshot,
    known_in,
    last_decisions,
    refresh_ledger_lines,
    snapshot_of,
)
from app.receiving.caught_up import must_have_read
from reconcile.instants import DAY, HOUR, Duration, Instant, format_instant
from reconcile.matching.books import Methods
from reconcile.matching.breaks import Break, break_sentence
from reconcile.matching.exchange import MICROS
from reconcile.matching.match import Change, Decision, compare
from reconcile.matching.rules import ExpectedFee, ExpectedRate, MatchRules, Tolerance
from reconcile.money import Money, MoneyError, exponent_of, from_major, major_text, to_json

# --- files of matching rules ----------------------------------------------------------------------


MAX_BYTES: Final = 64 * 1024
"""A file of rules has some dozens of lines; a much larger one is another file."""

DURATIONS: Final = (
    "date_window",
    "settle_margin",
    "book_margin",
    "money_margin",
    "refund_margin",
    "bank_margin",
)

_DURATION: Final = re.compile(r"([0-9]{1,4}) ?(day|days|hour|hours)", re.ASCII)
_DECIMAL: Final = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,6})?", re.ASCII)
_MILLION: Final = 10_000
"""Parts per million in one per cent."""


Period = Literal["day", "month"]
PERIODS: Final[tuple[Period, ...]] = ("day", "month")

DAYS_IN_A_MONTH: Final = 5
"""Days of a month on which one person may use up the limit of a day, unless the rules say more: one
day a week."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The merchant's rules.

    match        rules of the matcher
    alone_max    minor units by currency up to which one person may accept a break; nothing alone in
                 a currency without an entry, unless there is none at all
    alone        minor units by currency up to which one person may decide alone in a period, where
                 the rules state it; `limit` has the defaults
    close_alone  whether one person may close a month
    adjustment_limit
                 minor units by currency above which a change of a closed month is a break; no
                 entry, or 0, means none
    """

    match: MatchRules = field(default_factory=MatchRules)
    alone_max: Mapping[str, int] = field(default_factory=dict)
    alone: Mapping[Period, Mapping[str, int]] = field(default_factory=dict)
    close_alone: bool = True
    adjustment_limit: Mapping[str, int] = field(default_factory=dict)

    @property
    def limits(self) -> bool:
        """Whether there is anything that one person may not do alone."""
        return bool(self.alone_max) or not self.close_alone

    def limit(self, period: Period, currency: str) -> int | None:
        """Return the minor units that one person may decide about alone in a period."""
        stated = self.alone.get(period, {}).get(currency)
        if stated is not None or currency not in self.alone_max:
            return stated
        if period == "day":
            return self.alone_max[currency]
        return (self.limit("day", currency) or 0) * DAYS_IN_A_MONTH

    def above(self, money: Money) -> str | None:
        """Return why this is more than one person may accept; None if it is not."""
        if not self.alone_max or not money.minor:
            return None
        limit = self.alone_max.get(money.currency)
        if limit is None:
            return (
                f"no rule says how much {money.currency} one person may accept (accept_alone_max), "
                "as one does for other currencies"
            )
        most = Money(minor=limit, currency=money.currency)
        return (
            f"{money} is more than the {most} that one person may accept"
            if money.minor > limit
            else None
        )


def _duration(value: Any) -> Duration:
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError('write a length of time such as "2 days" or "36 hours"')
    return int(found[1]) * (DAY if found[2].startswith("day") else HOUR)


def _currency(code: str) -> str:
    exponent_of(code)  # raises for an unknown one
    return code


def _number(value: Any) -> Decimal:
    text = str(value) if isinstance(value, str | int | Decimal) else ""
    if isinstance(value, bool) or _DECIMAL.fullmatch(text) is None:
        raise ValueError('write a decimal number such as "1.00"')
    return Decimal(text)


def _per_million(value: Any) -> int:
    parts = _number(value) * _MILLION
    if parts != int(parts) or not 0 <= parts <= 1_000_000:
        raise ValueError("a number from 0 to 100 with at most four decimals")
    return int(parts)


MOST_PAYERS: Final = 100
"""A merchant has a handful of providers; each pays out under some names."""

MOST_METHODS: Final = 100
"""A shop offers a dozen payment methods, in a few spellings."""

_Duration = Annotated[int, PlainValidator(_duration)]
_Currency = Annotated[str, AfterValidator(_currency)]
_Number = Annotated[Decimal, PlainValidator(_number)]


MOST_WHERE: Final = 300
"""Values of a detail in one rule: all countries are 250."""


def _where(value: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the details of a rule by name, each with its values."""
    if not isinstance(value, dict) or not value.keys() <= set(DETAILS):
        raise ValueError(f"a table of details, of {', '.join(DETAILS)}")
    found = {name: [one] if isinstance(one, str) else one for name, one in value.items()}
    for values in found.values():
        good = isinstance(values, list) and 0 < len(values) <= MOST_WHERE
        if not good or not all(isinstance(e, str) and len(e) <= MAX_DETAIL for e in values):
            raise ValueError('a text, or a list of texts such as ["US", "CA"]; "" is not stated')
    return tuple((name, tuple(values)) for name, values in sorted(found.items()))


class _FeeTable(TomlTable):
    source: str
    currency: _Currency
    percent: Annotated[int, PlainValidator(_per_million)] = 0
    fixed: _Number = Decimal(0)
    tolerance: _Number | None = None
    where: Annotated[Any, PlainValidator(_where)] | None = None


def _rate(value: Any) -> int:
    micros = _number(value) * MICROS
    if not 0 < micros <= MICROS**2:
        raise ValueError("a rate is more than nothing, and at most a million")
    return int(micros)


def _payers(value: Any) -> list[str]:
    good = isinstance(value, list) and len(value) <= MOST_PAYERS
    if not good or not all(isinstance(e, str) and 3 <= len(e.strip()) <= 80 for e in value):
        raise ValueError(
            f"at most {MOST_PAYERS} texts of 3 to 80 characters, such as the name in the bank line"
        )
    return [each.strip() for each in value]


def _method_names(value: Any) -> list[str]:
    good = isinstance(value, list) and len(value) <= MOST_METHODS
    if not good or not all(isinstance(e, str) and 0 < len(e.strip()) <= 80 for e in value):
        raise ValueError(f"at most {MOST_METHODS} names of at most 80 characters, as the book has")
    return [each.strip() for each in value]


_MethodNames = Annotated[list[str], PlainValidator(_method_names)]


class _MethodsTable(TomlTable):
    outside: _MethodNames | None = None
    bank: _MethodNames | None = None
    tender: _MethodNames | None = None


class _ExchangeTable(TomlTable):
    currency: _Currency
    into: _Currency
    rate: Annotated[int, PlainValidator(_rate)]
    tolerance_percent: Annotated[int, PlainValidator(_per_million)] = 0


class _RuleFile(TomlTable):
    date_window: _Duration | None = None
    settle_margin: _Duration | None = None
    book_margin: _Duration | None = None
    money_margin: _Duration | None = None
    refund_margin: _Duration | None = None
    bank_margin: _Duration | None = None
    bank_payers: Annotated[list[str], PlainValidator(_payers)] | None = None
    other_business: Annotated[list[str], PlainValidator(_payers)] | None = None
    currency: _Currency | None = None
    close_alone: Annotated[bool, PlainValidator(yes_or_no)] = True
    tolerance: dict[str, _Number] = Field(default_factory=dict, examples=['KES = "1.00"'])
    accept_alone_max: dict[str, _Number] = Field(default_factory=dict, examples=['KES = "5.00"'])
    accept_alone_day: dict[str, _Number] = Field(default_factory=dict, examples=['KES = "9.00"'])
    accept_alone_month: dict[str, _Number] = Field(default_factory=dict, examples=['KES = "9.00"'])
    adjustment_limit: dict[str, _Number] = Field(default_factory=dict, examples=['KES = "9.00"'])
    methods: _MethodsTable = Field(default_factory=_MethodsTable)
    fee: list[_FeeTable] = Field(default_factory=list)
    exchange: list[_ExchangeTable] = Field(default_factory=list)


def read_rules(text: str, *, name: str = "the rules") -> Rules:
    """Return the rules of a file. Raises ConfigurationError with a line for every mistake."""
    values = read_toml(
        text, _RuleFile, name=name, most_bytes=MAX_BYTES, together=lambda read: [*_amounts(read)]
    )
    chosen = {key: values[key] for key in (*DURATIONS, "currency") if values[key] is not None}
    tolerances = values["tolerance"]
    match = MatchRules(
        **chosen,
        tolerances=tuple(
            Tolerance(currency=currency, minor=tolerances[currency])
            for currency in sorted(tolerances)
        ),
        fees=tuple(
            ExpectedFee(
                source=fee["source"],
                currency=fee["currency"],
                per_million=fee["percent"],
                fixed=fee["fixed"],
                tolerance=max(1, fee["tolerance"] or 0),
                where=fee["where"] or (),
            )
            for fee in values["fee"]
        ),
        bank_payers=tuple(values["bank_payers"] or ()),
        other_business=tuple(values["other_business"] or ()),
        rates=tuple(
            ExpectedRate(
                currency=rate["currency"],
                into=rate["into"],
                micros=rate["rate"],
                tolerance_per_million=rate["tolerance_percent"],
            )
            for rate in values["exchange"]
        ),
        methods=Methods(
            **{name: tuple(given) for name, given in values["methods"].items() if given is not None}
        ),
    )
    return Rules(
        match=match,
        alone_max=values["accept_alone_max"],
        alone={period: values[f"accept_alone_{period}"] for period in PERIODS},
        close_alone=values["close_alone"],
        adjustment_limit=values["adjustment_limit"],
    )


def _amounts(values: Values) -> Iterator[TomlMistake]:
    """Replace amounts in major units by minor units; find fees and rates that are given twice."""
    for name in (
        "tolerance",
        "accept_alone_max",
        "accept_alone_day",
        "accept_alone_month",
        "adjustment_limit",
    ):
        amounts = values.get(name, {})
        for currency in amounts:
            yield from _to_minor(amounts, currency, currency, f"{name}.")
    yield from _limits_apart(values)
    ended = dict[tuple[str, str], int]()
    for place, fee in enumerate(values.get("fee", []), 1):
        where = f"fee.{place}"
        if "currency" in fee:
            yield from _to_minor(fee, "fixed", fee["currency"], f"{where}.")
            yield from _to_minor(fee, "tolerance", fee["currency"], f"{where}.")
        if "source" in fee and "currency" in fee:
            pair = fee["source"], fee["currency"]
            if pair in ended:
                yield TomlMistake(
                    where, f"it never counts: fee.{ended[pair]} before it fits all of these lines"
                )
            elif not fee.get("where"):
                ended[pair] = place
    pairs = set[tuple[str, str]]()
    for place, rate in enumerate(values.get("exchange", []), 1):
        if "currency" not in rate or "into" not in rate:
            continue
        pair = (rate["currency"], rate["into"])
        if pair[0] == pair[1]:
            yield TomlMistake(f"exchange.{place}", "currency and into are the same")
        if pair in pairs:
            yield TomlMistake(f"exchange.{place}", "there is one for these two currencies")
        pairs.add(pair)


def _limits_apart(values: Values) -> Iterator[TomlMistake]:
    """Find limits of a day or a month that are below the limit of one act, or of a day."""
    names = ("accept_alone_max", "accept_alone_day", "accept_alone_month")
    for place, name in enumerate(names[1:], 1):
        for currency, minor in values.get(name, {}).items():
            if currency not in values.get(names[0], {}):
                yield TomlMistake(f"{name}.{currency}", f"{names[0]}.{currency} must be given, too")
            for below in names[:place]:
                if values.get(below, {}).get(currency, minor) > minor:
                    yield TomlMistake(f"{name}.{currency}", f"it is less than {below}.{currency}")
                    break


def _to_minor(given: Values, key: str, currency: str, where: str) -> Iterator[TomlMistake]:
    amount = given.get(key)
    if amount is None:
        return
    try:
        given[key] = from_major(amount, currency).minor
    except MoneyError as error:
        yield TomlMistake(f"{where}{key}", str(error))
    else:
        if given[key] < 0:
            yield TomlMistake(f"{where}{key}", "an amount is not negative")


# --- rules beside others --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleChange:
    """A setting in two sets of rules.

    before, after  its values; "" where a set has none
    note           for limits: the change in words; "" for other settings
    """

    what: str
    before: str
    after: str
    note: str = ""

    @property
    def values(self) -> str:
        """Return a limit before and after, with what that means in a word."""
        before, after = self.before or "none", self.after or "none"
        return f"{before} to {after} ({self.note.partition(':')[0]})"

    @property
    def sentence(self) -> str:
        """Say how a limit changes."""
        before, after = self.before or "none", self.after or "none"
        return f"{self.what} changes from {before} to {after} ({self.note})."


def compare_rules(before: str, after: str) -> list[RuleChange]:
    """Return the settings in which two files of rules differ, limits first.

    Limits of a day or a month are compared as they count, where one of the two states them.
    """
    rules = [read_rules(each) for each in (before, after)]
    stated = {
        (period, currency)
        for each in rules
        for period in PERIODS
        for currency in each.alone.get(period, ())
    }
    limits = [_limits_of(each, stated) for each in rules]
    found = [
        RuleChange(what=what, before=one, after=other, note=_limit_note(what, one, other, rules))
        for what in sorted({*limits[0], *limits[1]})
        if (one := limits[0].get(what, "")) != (other := limits[1].get(what, ""))
    ]
    plain = [_settings_of(tomllib.loads(each, parse_float=Decimal)) for each in (before, after)]
    for what in sorted({*plain[0], *plain[1]}):
        old, new = (each.get(what, []) for each in plain)
        for kind, a, b, c, d in SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes():
            pairs = zip_longest(old[a:b], new[c:d], fillvalue="") if kind != "equal" else ()
            found += [RuleChange(what=what, before=one, after=other) for one, other in pairs]
    return found


def _limits_of(rules: Rules, stated: set[tuple[Period, str]]) -> dict[str, str]:
    """Return what one person may do alone, as text in major units by setting.

    stated  periods and currencies whose limits are wanted
    """
    found = {} if rules.close_alone else {"close_alone": "false"}
    for currency, minor in rules.alone_max.items():
        of_periods = [each for each in PERIODS if (each, currency) in stated]
        limits = [("max", minor), *((each, rules.limit(each, currency)) for each in of_periods)]
        for name, limit in limits:
            money = Money(minor=limit or 0, currency=currency)
            found[f"accept_alone_{name}.{currency}"] = major_text(money)
    return found


def _limit_note(what: str, before: str, after: str, rules: Sequence[Rules]) -> str:
    """Say what a limit's change means; a currency has none like the others, or as the only one."""
    others_had, others_have = [what != "close_alone" and bool(e.alone_max) for e in rules]
    if not before:
        return (
            "new: one person may decide about so much"
            if others_had
            else "new: it takes a second person"
        )
    if not after:
        return (
            "dropped: it takes a second person, whatever the amount"
            if others_have
            else "dropped: one person may do it alone, whatever the amount"
        )
    return (
        "lowered: one person may decide about less"
        if Decimal(after) < Decimal(before)
        else "raised: one person may decide about more"
    )


_LIMITS: Final = ("accept_alone_max", "accept_alone_day", "accept_alone_month", "close_alone")


def _settings_of(document: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the values of settings that are no limits, as text; a table's by its key."""
    found: dict[str, list[str]] = {}
    for name, value in document.items():
        if name in _LIMITS:
            continue
        if isinstance(value, dict):
            found |= {f"{name}.{key}": [str(each)] for key, each in value.items()}
        else:
            found[name] = (
                [_setting_text(each) for each in value] if isinstance(value, list) else [str(value)]
            )
    return found


def _setting_text(value: Any) -> str:
    if not isinstance(value, dict):
        return "/".join(map(str, value)) if isinstance(value, list) else str(value)
    return ", ".join(f"{key} {_setting_text(each)}" for key, each in value.items())


def limits_sentence(changes: Sequence[RuleChange]) -> str:
    """Say how limits change, and how many other settings do."""
    limits = [each.sentence for each in changes if each.note]
    others = len(changes) - len(limits)
    said = limits[:LIMITS_NAMED] or ["No limit changes."]
    if len(limits) > LIMITS_NAMED:
        said.append(f"And {counted(len(limits) - LIMITS_NAMED, 'more limit')}.")
    if others:
        said.append(f"Other settings change: {others}.")
    return " ".join(said)


LIMITS_NAMED: Final = 9
"""Changed limits that a sentence names: those of three currencies."""


# --- rules in force, new rules, and their preview -------------------------------------------------


MOST_REPORTED: Final = 1_000
"""Changes that a preview lists, about a kilobyte each; all are counted."""


async def current_rules(context: AppContext) -> SavedRules | None:
    """Return the saved rules in force; None if none were ever saved."""
    async with context.database.reading() as connection:
        return await rules_in_force(connection)


def rules_document(saved: SavedRules | None) -> dict[str, Any]:
    """Return saved rules for JSON. None: no rules were ever saved."""
    if saved is None:
        return {"number": None, "toml": ""}
    return {
        "number": saved.number,
        "at": format_instant(saved.at),
        "by": saved.who,
        "digest": f"sha256:{saved.digest}",
        "toml": saved.toml,
    }


async def rules_known(connection: Connection, *, as_of: Instant | None = None) -> Rules:
    """Return the rules in force, now or at an instant; the defaults if none were ever saved."""
    return rules_of(await rules_in_force(connection, as_of=as_of))


def rules_of(saved: SavedRules | None) -> Rules:
    """Read a saved set; None gives the defaults."""
    return Rules() if saved is None else read_rules(saved.toml)


async def save_rules(
    context: AppContext, text: str, *, by: str | None, reason: str = ""
) -> SavedRules | Proposal:
    """Put rules in force, or propose them if those in force limit what one person may do.

    Otherwise one person could raise the limit, or a tolerance, and act alone after all.
    reason  why, for the trail, and for the second person

    Raises ConfigurationError for mistakes, UsageError for a person who may not, and for rules that
    are in force already.
    """
    read_rules(text)
    check_reason(reason, needed=False, countries=context.countries)
    async with context.database.writing() as connection:
        await acting_alone(connection)
        now = context.clock.now()
        who = await permitted(connection, by=by, action="rules_saved")
        last = await rules_in_force(connection)
        if last is not None and last.toml == text:
            raise UsageError(f"these are the rules {last.number}, which are in force")
        if last is None or not rules_of(last).limits:
            return await _save(connection, text, who, at=now, reason=reason)
        changes = compare_rules(last.toml, text)
        return await propose(
            connection,
            rules_kind(context),
            who=who,
            now=now,
            because="the rules in force limit what one person may do alone",
            subject=RULES,
            sentence=f"Put other matching rules in force, in place of the rules {last.number}. "
            f"{limits_sentence(changes)}",
            given={"toml": text, "changes": json.dumps([asdict(each) for each in changes])},
            reason=reason,
        )


async def may_save_alone(context: AppContext) -> bool:
    return not rules_of(await current_rules(context)).limits


async def _save(
    connection: Connection,
    text: str,
    who: Operator,
    *,
    at: Instant,
    reason: str = "",
    agreed: Agreed | None = None,
) -> SavedRules:
    last = await rules_in_force(connection)
    changes = compare_rules("" if last is None else last.toml, text)
    limits = {each.what: each.values for each in changes if each.note}
    saved = await add_rules(connection, at=at, who=who.name, toml=text)
    await note_in_trail(
        connection,
        who,
        action="rules_saved",
        subject=f"rules {saved.number}",
        at=at,
        reason=reason,
        facts={"sha256": saved.digest, **limits} | ({} if agreed is None else agreed.facts),
    )
    return saved


RULES: Final = "the matching rules"
"""The subject of a proposal to change them."""


def rules_kind(context: AppContext) -> ProposalKind:
    async def perform(proposal: Proposal, agree: Agree) -> None:
        async with context.database.writing() as connection:
            agreed = await agree(connection)
            text, now = proposal.given["toml"], context.clock.now()
            await _save(connection, text, agreed.who, at=now, reason=proposal.reason, agreed=agreed)

    return ProposalKind(
        name="change_rules",
        title="Change the matching rules",
        action="rules_saved",
        subject_state=_rules_state,
        perform=perform,
        tables={"changes": "Settings before and after"},
        particulars={"toml": "The rules that would be in force"},
    )


async def _rules_state(connection: Connection, subject: str, given: Mapping[str, str]) -> str:
    # It changes with the rules in force.
    last = await rules_in_force(connection)
    return "0" if last is None else str(last.number)


@dataclass(slots=True, kw_only=True)
class RulesPreview:
    """What other rules would change.

    rules         settings that differ from those in force
    counts, sums  number of changes, and their minor units, by (effect, kind or cause, currency)
    listed        the first MOST_REPORTED changes
    """

    as_of: Instant
    rules: Sequence[RuleChange] = ()
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    sums: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    listed: list[Change] = field(default_factory=list)

    def add(self, change: Change) -> None:
        decision = change.after or change.before
        assert decision is not None
        key = (change.effect, kind_of(decision), decision.money.currency)
        self.counts[key] += 1
        self.sums[key] += decision.money.minor
        if len(self.listed) < MOST_REPORTED:
            self.listed.append(change)

    def document(self) -> dict[str, Any]:
        return {
            "as_of": format_instant(self.as_of),
            "rules": [asdict(each) for each in self.rules],
            "totals": self.totals(),
            "changes": [
                {
                    "effect": each.effect,
                    "before": None if each.before is None else decision_json(each.before),
                    "after": None if each.after is None else decision_json(each.after),
                }
                for each in self.listed
            ],
            "not_told": self.counts.total() - len(self.listed),
        }

    def totals(self) -> list[dict[str, Any]]:
        return [
            {
                "effect": effect,
                "kind": kind,
                "count": count,
                "money": to_json(Money(minor=self.sums[effect, kind, currency], currency=currency)),
            }
            for (effect, kind, currency), count in sorted(self.counts.items())
        ]


def kind_of(decision: Decision) -> str:
    return decision.cause if isinstance(decision, Break) else decision.kind


def decision_json(decision: Decision) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": decision.identity,
        "kind": kind_of(decision),
        "order": decision.order,
        "payment": decision.payment,
        "money": to_json(decision.money),
    }
    if isinstance(decision, Break):
        return shown | {"sentence": break_sentence(decision)}
    return shown | {"lines": list(decision.lines)}


async def previewed_rules(context: AppContext, text: str) -> dict[str, Any]:
    """Return the document of `preview_rules`."""
    return (await preview_rules(context, text)).document()


async def preview_rules(
    context: AppContext, text: str, *, progress: Callable[[int], None] = silent
) -> RulesPreview:
    """Match everything under the rules in force and under these, and compare; store nothing.

    Raises ConfigurationError with every mistake of the file, and NotAllRead over unread deliveries.
    """
    rules = read_rules(text)
    await must_have_read(context)
    await refresh_ledger_lines(context, progress=progress)
    async with snapshot_of(context, None, progress) as snapshot:
        saved = await rules_in_force(snapshot.connection)
        before = rules_of(saved).match
        known = await known_in(context, snapshot, as_of=None, rules=before, period=None)
        other = replace(known, rules=rules.match)
        changes = compare_rules("" if saved is None else saved.toml, text)
        found = RulesPreview(as_of=known.as_of, rules=changes)

        def work() -> None:
            two = [_decided(snapshot, each, progress) for each in (known, other)]
            for change in compare(*two):
                found.add(change)

        await in_step(snapshot.connection, work)
    return found


def _decided(snapshot: Snapshot, known: Known, progress: Callable[[int], None]) -> Any:
    matching = known.matching()
    yield from snapshot.merged(matching, known, progress=progress)
    yield from last_decisions(matching, wait_for(snapshot.bank(known)), known.period)
