"""Return the present matching rules, and preview new rules."""

import json
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Annotated, Any, Final, NotRequired, TypedDict

from app.access.operator_store import Operator, acting_alone
from app.access.operators import note_in_trail, permitted
from app.access.proposal import Proposal
from app.access.proposals import Agree, Agreed, ProposalKind, check_reason, propose
from app.context.context import AppContext
from app.core.document_of import document_of
from app.core.errors import UsageError
from app.core.jobs import silent
from app.core.text import counted
from app.database.engine import Connection
from app.finance import reconcile_rows
from app.finance.matching_store import SavedRules, add_rules, in_step, rules_in_force, wait_for
from app.finance.rule_file import PERIODS, Period, Rules, read_rules
from app.receiving.caught_up import must_have_read
from reconcile.documents import Count, InstantText, Keywords, MoneyDocument
from reconcile.instants import Instant, format_instant
from reconcile.matching.breaks import Break, break_sentence
from reconcile.matching.match import Change, Decision, Effect, compare
from reconcile.money import Money, major_text, to_json

# --- comparing two sets of rules ------------------------------------------------------------------


class RuleChangeDocument(TypedDict):
    what: str
    before: str
    after: str
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleChange:
    """Setting that differs between two sets of rules."""

    what: str
    before: str
    after: str
    note: str = ""

    @property
    def values(self) -> str:
        """Return a limit's values, with a word such as `lowered`."""
        before, after = self.before or "none", self.after or "none"
        return f"{before} to {after} ({self.note.partition(':')[0]})"

    @property
    def sentence(self) -> str:
        """Return a sentence that states how a limit changes."""
        before, after = self.before or "none", self.after or "none"
        return f"{self.what} changes from {before} to {after} ({self.note})."


def compare_rules(before: str, after: str) -> list[RuleChange]:
    """Return the settings that differ, limits first."""
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
    found = {} if rules.close_alone else {"close_alone": "false"}
    for currency, minor in rules.alone_max.items():
        of_periods = [each for each in PERIODS if (each, currency) in stated]
        limits = [("max", minor), *((each, rules.limit(each, currency)) for each in of_periods)]
        for name, limit in limits:
            money = Money(minor=limit or 0, currency=currency)
            found[f"accept_alone_{name}.{currency}"] = major_text(money)
    return found


def _limit_note(what: str, before: str, after: str, rules: Sequence[Rules]) -> str:
    others_had, others_have = [what != "close_alone" and bool(e.alone_max) for e in rules]
    if not before:
        return (
            "new: one person may decide about up to this amount"
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
    """Return sentences that state the changed limits."""
    limits = [each.sentence for each in changes if each.note]
    others = len(changes) - len(limits)
    said = limits[:LIMITS_NAMED] or ["No limit changes."]
    if len(limits) > LIMITS_NAMED:
        said.append(f"And {counted(len(limits) - LIMITS_NAMED, 'more limit')}.")
    if others:
        said.append(f"Other settings change: {others}.")
    return " ".join(said)


LIMITS_NAMED: Final = 9


# --- current rules, new rules, and their preview --------------------------------------------------


MOST_REPORTED: Final = 1_000


async def current_rules(context: AppContext) -> SavedRules | None:
    """Return the newest saved rules, or None."""
    async with context.database.reading() as connection:
        return await rules_in_force(connection)


class RulesDocument(TypedDict):
    number: Count | None
    at: NotRequired[InstantText]
    by: NotRequired[str]
    digest: NotRequired[str]
    toml: Annotated[
        str, "The rules as they were saved.", Keywords(examples=["settle_margin = '9 days'\n"])
    ]


def rules_document(saved: SavedRules | None) -> RulesDocument:
    """Return saved rules as a document."""
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
    """Return the rules in force, or the default rules."""
    return rules_of(await rules_in_force(connection, as_of=as_of))


def rules_of(saved: SavedRules | None) -> Rules:
    """Parse saved rules. For None, return the default rules."""
    return Rules() if saved is None else read_rules(saved.toml)


async def save_rules(
    context: AppContext, text: str, *, by: str | None, reason: str = ""
) -> SavedRules | Proposal:
    """Save new rules, or propose the rules if one person's limits are set. Raise ConfigurationError
    for mistakes."""
    read_rules(text)
    check_reason(reason, needed=False, countries=context.countries)
    async with context.database.writing() as connection:
        await acting_alone(connection)
        now = context.clock.now()
        who = await permitted(connection, by=by, action="rules_saved")
        last = await rules_in_force(connection)
        if last is not None and last.toml == text:
            raise UsageError(
                f"these rules are already in force, as version {last.number} of the rules"
            )
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
            sentence=f"Replace version {last.number} of the matching rules with other rules. "
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
    # The state changes with every saved version of the rules.
    last = await rules_in_force(connection)
    return "0" if last is None else str(last.number)


class EffectTotalDocument(TypedDict):
    effect: Effect
    kind: str
    count: Count
    money: MoneyDocument


class DecisionDocument(TypedDict):
    id: str
    kind: Annotated[str, "A break's cause, a match's kind."]
    order: str | None
    payment: str | None
    money: MoneyDocument
    sentence: NotRequired[Annotated[str, "A sentence on the break."]]
    lines: NotRequired[Annotated[list[str], "The lines that a match combines."]]


class ChangeDocument(TypedDict):
    effect: Effect
    before: DecisionDocument | None
    after: DecisionDocument | None


class RulesPreviewDocument(TypedDict):
    as_of: InstantText
    rules: Annotated[
        list[RuleChangeDocument],
        "Settings that differ from the rules in force, limits first. An empty text means that a "
        "setting is not given.",
    ]
    totals: list[EffectTotalDocument]
    changes: list[ChangeDocument]
    not_told: Annotated[
        Count, "Number of changes beyond the first thousand; the totals include them."
    ]


@dataclass(slots=True, kw_only=True)
class RulesPreview:
    """Effect of new rules on the results of matching. The keys of `counts` and `sums` are (effect,
    kind or cause, currency)."""

    as_of: Instant
    rules: Sequence[RuleChange] = ()
    counts: Counter[tuple[Effect, str, str]] = field(default_factory=Counter)
    sums: Counter[tuple[Effect, str, str]] = field(default_factory=Counter)
    listed: list[Change] = field(default_factory=list)

    def add(self, change: Change) -> None:
        decision = change.after or change.before
        assert decision is not None
        key = (change.effect, kind_of(decision), decision.money.currency)
        self.counts[key] += 1
        self.sums[key] += decision.money.minor
        if len(self.listed) < MOST_REPORTED:
            self.listed.append(change)

    def document(self) -> RulesPreviewDocument:
        return {
            "as_of": format_instant(self.as_of),
            "rules": [document_of(RuleChangeDocument, each) for each in self.rules],
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

    def totals(self) -> list[EffectTotalDocument]:
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


def decision_json(decision: Decision) -> DecisionDocument:
    shown: DecisionDocument = {
        "id": decision.identity,
        "kind": kind_of(decision),
        "order": decision.order,
        "payment": decision.payment,
        "money": to_json(decision.money),
    }
    if isinstance(decision, Break):
        return {**shown, "sentence": break_sentence(decision)}
    return {**shown, "lines": list(decision.lines)}


async def previewed_rules(context: AppContext, text: str) -> RulesPreviewDocument:
    """Return the effect of new rules as a document."""
    return (await preview_rules(context, text)).document()


async def preview_rules(
    context: AppContext, text: str, *, progress: Callable[[int], None] = silent
) -> RulesPreview:
    """Match everything by the present and by new rules, and compare the results. Raise
    ConfigurationError for mistakes, and NotAllRead for unread deliveries."""
    rules = read_rules(text)
    await must_have_read(context)
    await reconcile_rows.refresh_ledger_lines(context, progress=progress)
    async with reconcile_rows.snapshot_of(context, None, progress) as snapshot:
        saved = await rules_in_force(snapshot.connection)
        before = rules_of(saved).match
        known = await reconcile_rows.known_in(
            context, snapshot, as_of=None, rules=before, period=None
        )
        other = replace(known, rules=rules.match)
        changes = compare_rules("" if saved is None else saved.toml, text)
        found = RulesPreview(as_of=known.as_of, rules=changes)

        def work() -> None:
            two = [_decided(snapshot, each, progress) for each in (known, other)]
            for change in compare(*two):
                found.add(change)

        await in_step(snapshot.connection, work)
    return found


def _decided(
    snapshot: reconcile_rows.Snapshot, known: reconcile_rows.Known, progress: Callable[[int], None]
) -> Any:
    matching = known.matching()
    yield from snapshot.merged(matching, known, progress=progress)
    yield from reconcile_rows.last_decisions(matching, wait_for(snapshot.bank(known)), known.period)
