"""Breaks for whoever looks: of a run, or all that live, each with its state."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.core.errors import NotFoundError
from app.database.engine import Connection
from app.finance.break_store import breaks_after, latest_seen, steps_of
from app.finance.run_store import AT_ONCE, Run, run_of, runs, seen_by
from app.receiving.context import AppContext
from reconcile.instants import DAY, Instant, format_instant
from reconcile.ledger.ledger import Facts
from reconcile.matching.breaks import (
    Break,
    Life,
    Step,
    apart_words,
    break_sentence,
    life,
    next_step,
)
from reconcile.money import Money, to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenBreak:
    """A break as it was last seen, or as a run saw it, and where it stands."""

    identity: str
    seen: Break
    steps: tuple[Step, ...]
    life: Life

    def document(self, *, as_of: Instant) -> dict[str, Any]:
        """For JSON. Its age is in whole days."""
        seen = self.seen
        return {
            "id": self.identity,
            "cause": seen.cause,
            "state": self.life.state,
            "assignee": self.life.assignee,
            "order": seen.order,
            "payment": seen.payment,
            "money": to_json(seen.money),
            "age_days": age_days(seen, as_of),
            "since": format_instant(seen.since),
            "cites": list(seen.cites),
            "candidates": [
                {
                    "line": each.line,
                    "reference": each.reference,
                    "money": to_json(each.money),
                    "apart": apart_words(each),
                }
                for each in seen.candidates
            ],
            "next_step": next_step(seen),
            "sentence": break_sentence(seen),
        }

    def history(self) -> dict[str, Any]:
        """The same for its steps."""
        return {
            "because": self.life.because,
            "settling": self.life.settling,
            "closed_by": list(self.life.closed_by),
            "facts": facts_json(self.seen.facts),
            "steps": [_step_json(step) for step in self.steps],
        }


def age_days(seen: Break, as_of: Instant) -> int:
    """Whole days since what disagrees was last dated; never negative."""
    return max(as_of - seen.since, 0) // DAY


def facts_json(facts: Facts) -> dict[str, Any]:
    """Instants as dates, money as decimal strings."""
    return {
        name: to_json(value)
        if isinstance(value, Money)
        else format_instant(value)
        if name.endswith("_at") and isinstance(value, int)
        else value
        for name, value in facts
    }


def _step_json(step: Step) -> dict[str, Any]:
    return {
        "at": format_instant(step.at),
        "step": step.kind,
        "by": step.by or f"run {step.run}",
        "second": step.second,
        "value": step.value,
        "reason": step.reason,
        "money": to_json(step.money),
        "cites": list(step.cites),
    }


async def breaks_of_run(context: AppContext, number: int) -> AsyncIterator[list[SeenBreak]]:
    """What a run saw, by id, some hundreds at a time; each with where it stands now."""
    after = ""
    while True:
        async with context.store.reading() as connection:
            found = await seen_by(connection, number, after=after, limit=AT_ONCE)
            if not found:
                return
            after = found[-1][0]
            told = await _with_lives(connection, dict(found))
        yield told  # outside: who reads may stop, or wait for long


async def living_breaks(
    context: AppContext, *, causes: Sequence[str] = ()
) -> AsyncIterator[list[SeenBreak]]:
    """All breaks that a run gave life, closed ones too, by id, some hundreds at a time."""
    after = ""
    while True:
        async with context.store.reading() as connection:
            names = await breaks_after(connection, after=after, limit=AT_ONCE, causes=causes)
            if not names:
                return
            after = names[-1]
            seen = await latest_seen(connection, names)
            told = await _with_lives(connection, seen)
        yield told


async def _with_lives(connection: Connection, seen: Mapping[str, Break]) -> list[SeenBreak]:
    steps = await steps_of(connection, list(seen))
    return [
        SeenBreak(
            identity=name,
            seen=each,
            steps=tuple(steps.get(name, ())),
            life=life(steps.get(name, ())),
        )
        for name, each in sorted(seen.items())
    ]


async def break_in(connection: Connection, name: str) -> SeenBreak:
    """One break. Raises NotFoundError where no run has given it life."""
    found = await _with_lives(connection, await latest_seen(connection, [name]))
    if not found:
        raise NotFoundError(
            f"no break {name} lives: `tallyhook breaks list` shows those that do; a run that only "
            "looked gives life to none"
        )
    return found[0]


async def one_break(context: AppContext, name: str) -> SeenBreak:
    """One break. Raises NotFoundError where no run has given it life."""
    async with context.store.reading() as connection:
        return await break_in(connection, name)


async def finished_run(context: AppContext, number: int) -> Run:
    """One run. Raises NotFoundError where there is none."""
    async with context.store.reading() as connection:
        found = await run_of(connection, number)
    if found is None:
        raise NotFoundError(f"there is no run {number}; `tallyhook reconcile list` shows them")
    return found


async def finished_runs(context: AppContext, *, limit: int) -> list[Run]:
    """The last runs, newest first."""
    async with context.store.reading() as connection:
        return await runs(connection, limit=limit)
