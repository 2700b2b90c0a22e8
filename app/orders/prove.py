"""Proves the laws on stored evidence: a history in any order and grouping gives the same ledger.

Each trial shuffles an order's deliveries and records, splits them into overlapping parts, joins the
parts again by union, and folds: the document must be the same, byte for byte. It then adds a
redelivery, which may change only counts, and compares both ways to fold as of an earlier instant.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_changes
from typing import Any

from app.context.context import AppContext
from app.core.ids import Chance, seeded_chance
from app.core.text import DELIVERY, counted
from app.database.statements import run
from app.orders.history_store import gather, scan
from app.orders.read_orders import nothing_known, of_another_shop, spoken_of
from reconcile.canonical import canonical_json
from reconcile.instants import Instant
from reconcile.ledger.explain import ledger_document
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.policy import Policy
from reconcile.ledger.revise import position_of

MAX_EXAMPLES = 20
"""Counter-examples that are kept; one is enough to act on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterExample:
    """Trial that broke a law, with what is needed to repeat it."""

    order: str
    law: str
    trial: int
    seed: int
    deliveries: int

    def __str__(self) -> str:
        return (
            f"{self.order}: {self.law} does not hold over {counted(self.deliveries, *DELIVERY)} "
            f"(trial {self.trial}, --seed {self.seed})"
        )

    def document(self) -> dict[str, Any]:
        return {
            name: getattr(self, name) for name in ("order", "law", "trial", "seed", "deliveries")
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Counts of what was tried, and the counter-examples, the smallest history first."""

    orders: int
    trials: int
    counter_examples: tuple[CounterExample, ...]

    def sentence(self) -> str:
        """Sum it up in a sentence for people."""
        tried = f"{counted(self.orders, 'order')}, {counted(self.trials, 'trial')}"
        return f"{tried}; counter-examples: {len(self.counter_examples) or 'none'}"

    def document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        examples = [example.document() for example in self.counter_examples]
        return {"orders": self.orders, "trials": self.trials, "counter_examples": examples}


async def prove_orders(
    context: AppContext,
    references: Sequence[str] | None,
    *,
    shuffles: int,
    seed: int,
    progress: Callable[[int], None],
) -> Proof:
    """Prove the given orders, or all. Raises NotFoundError for an unknown reference."""
    as_of = context.clock.now()
    orders, found = 0, list[CounterExample]()
    async with context.database.reading() as connection:
        if references is None:
            async for histories in scan(connection):
                for history in histories:
                    await asyncio.sleep(0)  # an interruption is heard between two orders
                    found += prove(
                        history, policy=context.policy, as_of=as_of, shuffles=shuffles, seed=seed
                    )
                orders += len(histories)
                progress(len(histories))
        else:
            for history in (await gather(connection, references)).values():
                if not spoken_of(history):
                    aside = await run(connection, of_another_shop, history, until=as_of)
                    raise nothing_known(history, None, aside=aside)
                found += prove(
                    history, policy=context.policy, as_of=as_of, shuffles=shuffles, seed=seed
                )
                orders += 1
                progress(1)
    found.sort(key=lambda example: (example.deliveries, example.order))
    return Proof(
        orders=orders, trials=orders * shuffles, counter_examples=tuple(found[:MAX_EXAMPLES])
    )


def prove(
    history: History, *, policy: Policy, as_of: Instant, shuffles: int, seed: int
) -> Iterator[CounterExample]:
    """Return the counter-examples among `shuffles` trials of one history."""
    expected = _bytes(history, policy, as_of)
    known = [d.received_at for d in history.deliveries] + [r.recorded_at for r in history.records]
    for trial in range(shuffles):
        chance = seeded_chance(f"{seed}:{history.order}:{trial}")
        same = _bytes(_regrouped(history, chance), policy, as_of) == expected
        redelivered = _redelivered_agrees(history, chance, policy, as_of)
        then = Instant(chance.randint(min(known, default=as_of), max(as_of, *known, as_of)))
        travels = _bytes(history, policy, then) == _bytes(history.known_at(then), policy, then)
        held = {"order and grouping": same, "duplication": redelivered, "time travel": travels}
        for law, holds in held.items():
            if not holds:
                yield CounterExample(
                    order=history.order,
                    law=law,
                    trial=trial,
                    seed=seed,
                    deliveries=len(history.deliveries),
                )


def _bytes(history: History, policy: Policy, as_of: Instant) -> bytes:
    return canonical_json(ledger_document(fold(history, policy=policy, as_of=as_of)))


def _regrouped(history: History, chance: Chance) -> History:
    """Shuffle a history, cut it into overlapping parts and join them again."""
    deliveries = sorted(history.deliveries, key=lambda d: d.delivery_id)
    records = sorted(history.records, key=lambda r: r.record_id)
    chance.shuffle(deliveries)
    chance.shuffle(records)
    cuts = sorted(chance.randint(0, len(deliveries)) for _ in range(chance.randint(0, 3)))
    joined = History(order=history.order, records=frozenset(records))
    for start, end in zip([0, *cuts], [*cuts, len(deliveries)], strict=True):
        part = frozenset(deliveries[max(start - 1, 0) : end])
        joined = History(order=history.order, deliveries=part) | joined | joined
    return joined


def _redelivered_agrees(history: History, chance: Chance, policy: Policy, as_of: Instant) -> bool:
    """Deliver one delivery once more, later: counts may change, the position may not."""
    if not history.deliveries:
        return True
    first = chance.choice(sorted(history.deliveries, key=lambda d: d.delivery_id))
    later = Instant(chance.randint(first.received_at, max(as_of, first.received_at)))
    again = with_changes(first, delivery_id=first.delivery_id + "~again", received_at=later)
    more = history | History(order=history.order, deliveries=frozenset((again,)))
    return position_of(fold(more, policy=policy, as_of=as_of)) == position_of(
        fold(history, policy=policy, as_of=as_of)
    )
