"""The rules in force, saving new ones, and what they would change before they are saved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from app.access.operators import note_deed, permitted, seconded
from app.core.errors import UsageError
from app.finance.ledger_lines import refresh_takings
from app.finance.matching_store import in_step
from app.finance.reconcile_rows import Known, Snapshot, known_in, snapshot_of
from app.finance.rule_file import Rules, read_rules
from app.finance.rule_store import SavedRules, add_rules, rules_in_force
from app.receiving.context import AppContext
from reconcile.instants import Instant, format_instant
from reconcile.matching.breaks import Break, break_sentence
from reconcile.matching.compare import Change, compare
from reconcile.matching.match import Decision
from reconcile.money import Money, to_json

MOST_TOLD: Final = 1_000
"""Changes that a preview tells one by one, about a kilobyte each; all are counted."""


async def current_rules(context: AppContext) -> SavedRules | None:
    """The saved rules in force; None where none were ever saved."""
    async with context.store.reading() as connection:
        return await rules_in_force(connection)


async def save_rules(
    context: AppContext, text: str, *, by: str | None, second: str | None = None
) -> SavedRules:
    """Put rules in force. Where those in force limit what one person may accept, a second must
    agree: else one person could raise the limit, or a tolerance, and be alone after all.

    Raises ConfigurationError for mistakes, UsageError for who may not, and where they are in force
    already.
    """
    read_rules(text)
    async with context.store.writing() as connection:
        now = context.clock.now()
        who = await permitted(connection, by=by, action="rules_saved")
        last = await rules_in_force(connection)
        if last is not None and last.toml == text:
            raise UsageError(f"these are the rules {last.number}, which are in force")
        limited = last is not None and read_rules(last.toml).alone_max
        because = "the rules in force limit what one person may do alone" if limited else None
        agreed = await seconded(connection, who, by=second, action="rules_saved", because=because)
        saved = await add_rules(connection, at=now, who=who.name, toml=text)
        await note_deed(
            connection,
            who,
            action="rules_saved",
            subject=f"rules {saved.number}",
            at=now,
            facts={"sha256": saved.digest} | ({} if agreed is None else {"second": agreed}),
        )
    return saved


@dataclass(slots=True, kw_only=True)
class Preview:
    """What other rules would change.

    totals  how many changes, and their money in minor units, by (effect, kind or cause, currency)
    told    the first MOST_TOLD changes
    """

    as_of: Instant
    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    sums: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    told: list[Change] = field(default_factory=list)

    def add(self, change: Change) -> None:
        """Count one more."""
        decision = change.after or change.before
        assert decision is not None
        key = (change.effect, kind_of(decision), decision.money.currency)
        self.counts[key] += 1
        self.sums[key] += decision.money.minor
        if len(self.told) < MOST_TOLD:
            self.told.append(change)

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "as_of": format_instant(self.as_of),
            "totals": self.totals(),
            "changes": [_change_json(each) for each in self.told],
            "not_told": self.counts.total() - len(self.told),
        }

    def totals(self) -> list[dict[str, Any]]:
        """One row for each effect, kind and currency."""
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
    """A break's cause, a match's kind."""
    return decision.cause if isinstance(decision, Break) else decision.kind


def _change_json(change: Change) -> dict[str, Any]:
    return {
        "effect": change.effect,
        "before": None if change.before is None else decision_json(change.before),
        "after": None if change.after is None else decision_json(change.after),
    }


def decision_json(decision: Decision) -> dict[str, Any]:
    """What it is, of what, and its money."""
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


async def preview_rules(
    context: AppContext, text: str, *, progress: Callable[[int], None]
) -> Preview:
    """Match everything under the rules in force and under these, and compare. Nothing of it is
    kept. Raises ConfigurationError with every mistake of the file."""
    rules = read_rules(text)
    await refresh_takings(context, progress=progress)
    async with snapshot_of(context, None, progress) as snapshot:
        saved = await rules_in_force(snapshot.connection)
        before = Rules() if saved is None else read_rules(saved.toml)
        known = await known_in(context, snapshot, as_of=None, rules=before.match, period=None)
        other = replace(known, rules=rules.match)
        found = Preview(as_of=known.as_of)

        def work() -> None:
            two = (_decided(snapshot, each, progress) for each in (known, other))
            for change in compare(*two):
                found.add(change)

        await in_step(snapshot.connection, work)
    return found


def _decided(snapshot: Snapshot, known: Known, progress: Callable[[int], None]) -> Any:
    matching = known.matching()
    yield from snapshot.merged(matching, known, progress=progress)
    yield from matching.rest()
