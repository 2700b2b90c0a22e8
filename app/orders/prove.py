"""Test with stored evidence that an order's ledger does not depend on the order of its evidence.

Each trial shuffles an order's deliveries and records, joins overlapping parts, and computes the
ledger, which must be equal byte for byte. A redelivery may change only counts. Whether the rules
are right is not tested.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_changes
from typing import Final

from app.context.context import AppContext
from app.core.ids import Chance, seeded_chance
from app.core.text import DELIVERY, counted
from app.database.statements import run
from app.orders.history_store import gather, scan
from app.orders.read_orders import nothing_known, of_another_shop, spoken_of
from reconcile.canonical import canonical_json
from reconcile.instants import Instant
from reconcile.ledger.events import Delivery
from reconcile.ledger.explain import ledger_document
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.policy import Policy
from reconcile.ledger.revise import position_of
from reconcile.transparency.evidence import by_event

EVENTS: Final = 500
"""Maximum number of events for which an order gets all trials. A hundred trials of such an order
take some seconds."""

LEAST: Final = 5

MAX_EXAMPLES = 20
"""Maximum number of counterexamples that are kept. One counterexample is enough to act on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterExample:
    """Trial in which a law did not hold, with everything that is needed to repeat the trial."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Result of the trials: their number, and the counterexamples. The counterexample with the
    smallest history comes first."""

    orders: int
    trials: int
    counter_examples: tuple[CounterExample, ...]

    def sentence(self) -> str:
        """Return a sentence for people that summarizes the result."""
        tried = f"{counted(self.orders, 'order')}, {counted(self.trials, 'trial')}"
        return f"{tried}; counter-examples: {len(self.counter_examples) or 'none'}"


async def prove_orders(
    context: AppContext,
    references: Sequence[str] | None,
    *,
    shuffles: int,
    seed: int,
    progress: Callable[[int], None],
) -> Proof:
    """Run the trials on the given orders, or on all. Raise NotFoundError for an unknown reference.

    shuffles  number of trials for an order with few events
    seed      seed of the random choices
    progress  called with 1 after each trial
    """
    as_of = context.clock.now()
    found, tried = list[CounterExample](), Counter[str]()

    async def try_order(history: History) -> None:
        tried["orders"] += 1
        trials = prove(history, policy=context.policy, as_of=as_of, shuffles=shuffles, seed=seed)
        for broken in trials:
            found.extend(broken)
            tried["trials"] += 1
            progress(1)
            await asyncio.sleep(0)  # lets an interruption in between two trials

    async with context.database.reading() as connection:
        if references is None:
            async for histories in scan(connection):
                for history in histories:
                    await try_order(history)
        else:
            for history in (await gather(connection, references)).values():
                if not spoken_of(history):
                    aside = await run(connection, of_another_shop, history, until=as_of)
                    raise nothing_known(history, None, aside=aside)
                await try_order(history)
    found.sort(key=lambda example: (example.deliveries, example.order))
    return Proof(
        orders=tried["orders"],
        trials=tried["trials"],
        counter_examples=tuple(found[:MAX_EXAMPLES]),
    )


def trials_of(events: int, *, shuffles: int) -> int:
    """Return the number of trials for an order: `shuffles`, or fewer above 500 events."""
    return max(min(shuffles, LEAST), shuffles * EVENTS // max(events, EVENTS))


def prove(
    history: History, *, policy: Policy, as_of: Instant, shuffles: int, seed: int
) -> Iterator[list[CounterExample]]:
    """Yield, for each trial of one history, the counterexamples that the trial found.

    A trial takes each event's first delivery and one random later delivery. Its ledger must agree
    with the whole history's in outcome, fulfillability and substance.
    """
    events = by_event(history.deliveries)
    known = [d.received_at for d in history.deliveries] + [r.recorded_at for r in history.records]
    whole = position_of(fold(history, policy=policy, as_of=as_of))
    for trial in range(trials_of(len(events), shuffles=shuffles)):
        chance = seeded_chance(f"{seed}:{history.order}:{trial}")
        thin = _thinned(history, events, chance)
        ledger = fold(thin, policy=policy, as_of=as_of)
        document = canonical_json(ledger_document(ledger))
        same = _bytes(_regrouped(thin, chance), policy, as_of) == document
        again = _redelivered(thin, chance, as_of)
        positions = [ledger, fold(again, policy=policy, as_of=as_of)]
        redelivered = [position_of(each) for each in positions] == [whole, whole]
        then = Instant(chance.randint(min(known, default=as_of), max(as_of, *known, as_of)))
        travels = _bytes(thin, policy, then) == _bytes(thin.known_at(then), policy, then)
        held = {"order and grouping": same, "duplication": redelivered, "time travel": travels}
        yield [
            CounterExample(
                order=history.order,
                law=law,
                trial=trial,
                seed=seed,
                deliveries=len(history.deliveries),
            )
            for law, holds in held.items()
            if not holds
        ]


def _thinned(history: History, events: Sequence[Sequence[Delivery]], chance: Chance) -> History:
    kept = [first for first, *_ in events]
    kept += [chance.choice(later) for _, *later in events if later]
    return History(order=history.order, deliveries=frozenset(kept), records=history.records)


def _bytes(history: History, policy: Policy, as_of: Instant) -> bytes:
    return canonical_json(ledger_document(fold(history, policy=policy, as_of=as_of)))


def _regrouped(history: History, chance: Chance) -> History:
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


def _redelivered(history: History, chance: Chance, as_of: Instant) -> History:
    if not history.deliveries:
        return history
    first = chance.choice(sorted(history.deliveries, key=lambda d: d.delivery_id))
    later = Instant(chance.randint(first.received_at, max(as_of, first.received_at)))
    again = with_changes(first, delivery_id=first.delivery_id + "~again", received_at=later)
    return history | History(order=history.order, deliveries=frozenset((again,)))
