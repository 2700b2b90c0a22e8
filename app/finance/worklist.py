"""List breaks that need a person, and late money."""

from collections import Counter
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any, Final, TypedDict

from app.access.proposal import Proposal
from app.context.context import AppContext
from app.core.errors import UsageError
from app.database.engine import Connection
from app.finance import break_acts
from app.finance.break_store import Run, breaks_done_about, breaks_in_run, last_lived, steps_of
from reconcile.documents import Cites, MoneyDocument, NextText
from reconcile.instants import DAY, Instant
from reconcile.matching import breaks
from reconcile.matching.causes import CAUSES, BreakCause
from reconcile.money import Money

TO_DO: Final[tuple[breaks.State, ...]] = ("open", "assigned")


AGES: Final[dict[str, int]] = {"week": 7, "month": 30, "older": 1_000_000}
"""Age groups of breaks, with the maximum age in days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorklistRow:
    """Facts about a break for filtering and sorting."""

    name: str
    cause: str
    money: Money
    since: Instant
    state: breaks.State = "open"
    assignee: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorklistRequest:
    """Filters of the worklist. Without a `state`, only breaks that need a person are listed."""

    cause: str | None = None
    state: breaks.State | None = None
    age: str | None = None
    currency: str | None = None
    assignee: str | None = None
    order: str = "money"
    skip: int = 0
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Worklist:
    """Worklist of breaks. `causes` and `states` ignore the filter of their own name."""

    run: Run | None
    totals: tuple[tuple[int, Money], ...] = ()
    causes: dict[str, int]
    states: dict[str, int]
    shown: tuple[break_acts.SeenBreak, ...] = ()
    found: int = 0


def _by_money(entry: WorklistRow) -> tuple[Any, ...]:
    # Within a currency: amounts of two currencies have no order.
    return (entry.money.currency, -entry.money.minor, entry.since, entry.name)


def _by_age(entry: WorklistRow) -> tuple[Any, ...]:
    return (entry.since, entry.money.currency, -entry.money.minor, entry.name)


ORDERS: Final[dict[str, Callable[[WorklistRow], tuple[Any, ...]]]] = {
    "money": _by_money,
    "age": _by_age,
}


async def worklist(context: AppContext, asked: WorklistRequest) -> Worklist:
    """Return the worklist of the newest run that changed breaks."""
    now = context.clock.now()
    async with context.database.reading() as connection:
        run = await last_lived(connection)
        if run is None:
            return Worklist(run=None, causes={}, states={})
        entries = [
            each
            for each in await _entries(connection, run.number)
            if asked.currency in (None, each.money.currency)
            and asked.assignee in (None, each.assignee)
            and asked.age in (None, age_of(each.since, now))
        ]
        wanted = TO_DO if asked.state is None else (asked.state,)
        of_state = [each for each in entries if each.state in wanted]
        of_cause = [each for each in entries if asked.cause in (None, each.cause)]
        found = [each for each in of_state if asked.cause in (None, each.cause)]
        found.sort(key=ORDERS[asked.order])
        names = [each.name for each in found[asked.skip : asked.skip + asked.limit]]
        seen = {each.identity: each for each in await break_acts.seen_breaks(connection, names)}
    counts, sums = Counter[str](), Counter[str]()
    for each in found:
        counts[each.money.currency] += 1
        sums[each.money.currency] += each.money.minor
    return Worklist(
        run=run,
        totals=tuple(
            (count, Money(minor=sums[currency], currency=currency))
            for currency, count in sorted(counts.items())
        ),
        causes=dict(sorted(Counter(each.cause for each in of_state).items())),
        states=dict(Counter(each.state for each in of_cause)),
        shown=tuple(seen[name] for name in names),
        found=len(found),
    )


def age_of(since: Instant, now: Instant) -> str:
    days = max(now - since, 0) // DAY
    return next((age for age, last in AGES.items() if days <= last), "older")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBreaks:
    """Work left on the breaks of the newest run."""

    run: Run
    ages: dict[tuple[str, str], tuple[int, int]]
    assigned: int


SUMMED: Final = 5_000
"""Maximum number of breaks whose sums a page computes."""


async def open_breaks(context: AppContext, *, person: str) -> OpenBreaks | None:
    """Return the number and sums of the breaks for people."""
    now = context.clock.now()
    async with context.database.reading() as connection:
        run = await last_lived(connection)
        if run is None:
            return None
        entries = await _entries(connection, run.number) if run.breaks <= SUMMED else []
    counts, sums = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    open_ones = [each for each in entries if each.state in TO_DO]
    for each in open_ones:
        counts[age_of(each.since, now), each.money.currency] += 1
        sums[age_of(each.since, now), each.money.currency] += each.money.minor
    return OpenBreaks(
        run=run,
        ages={key: (counts[key], sums[key]) for key in counts},
        assigned=sum(each.assignee == person for each in open_ones),
    )


async def newest_run(context: AppContext) -> Run | None:
    async with context.database.reading() as connection:
        return await last_lived(connection)


async def _entries(connection: Connection, run: int) -> list[WorklistRow]:
    lives: dict[str, breaks.Life] = {}
    async for names in breaks_done_about(connection, run):
        lives |= {
            name: breaks.life(steps) for name, steps in (await steps_of(connection, names)).items()
        }
    found = []
    async for rows in breaks_in_run(connection, run):
        for name, cause, minor, currency, since in rows:
            being = lives.get(name)
            found.append(
                WorklistRow(
                    name=name,
                    cause=cause,
                    money=Money(minor=minor, currency=currency),
                    since=Instant(since),
                    state="open" if being is None else being.state,
                    assignee=None if being is None else being.assignee,
                )
            )
    return found


LATE: Final[dict[BreakCause, breaks.LateDecision]] = {
    code: cause.late for code, cause in CAUSES.items() if cause.late is not None
}


def proposed_settling(found: break_acts.SeenBreak) -> breaks.LateDecision:
    """Return the proposed decision on late money."""
    if ("why", "canceled") in found.seen.facts:
        return "refund"
    return LATE[found.seen.cause]


def settling_state(found: break_acts.SeenBreak) -> breaks.LateStanding:
    """Return the state of late money."""
    life = found.life
    if life.state == "closed":
        return "closed"
    if life.state == "accepted":
        return "settled"
    return "waits_for_refund" if life.settling == "refund" else "to_decide"


async def late_items(
    context: AppContext, *, closed: bool, after: str = ""
) -> AsyncGenerator[list[break_acts.SeenBreak]]:
    """Yield the breaks about late money in batches by id."""
    states = breaks.STATES if closed else breaks.STATES[:-1]
    async for found in break_acts.living_breaks(context, causes=LATE, states=states, after=after):
        yield [e for e in found if e.seen.cause != "refund_not_received" or not e.seen.candidates]


async def settle_late(
    context: AppContext,
    name: str,
    *,
    action: str,
    reason: str,
    by: str | None,
    seen: str | None = None,
) -> break_acts.SeenBreak | Proposal:
    """Decide about late money, or propose the decision if two people are needed. Raise UsageError
    for an unknown action or another break."""
    if action not in breaks.SETTLINGS:
        raise UsageError(f"--action must be one of: {', '.join(breaks.SETTLINGS)}")
    found = await break_acts.one_break(context, name)
    if found.seen.cause not in LATE:
        raise UsageError(
            f"{name} is {found.seen.cause}, not late money; see `tallyhook breaks show {name}`"
        )
    doing = break_acts.BreakAct(kind="settled", by=by, reason=reason, value=action)
    proposal = await break_acts.act_on_breaks(context, [name], doing, seen=seen)
    return await break_acts.one_break(context, name) if proposal is None else proposal


class LateItemDocument(TypedDict):
    id: str
    cause: BreakCause
    order: str | None
    payment: str | None
    money: MoneyDocument
    proposed: breaks.LateDecision
    state: breaks.LateStanding
    decided: breaks.LateDecision | None
    because: str | None
    cites: Cites


class LatePageDocument(TypedDict):
    late: list[LateItemDocument]
    next: NextText


def late_document(found: break_acts.SeenBreak) -> LateItemDocument:
    shown = found.document(as_of=found.steps[-1].at)
    return {
        "id": shown["id"],
        "cause": shown["cause"],
        "order": shown["order"],
        "payment": shown["payment"],
        "money": shown["money"],
        "proposed": proposed_settling(found),
        "state": settling_state(found),
        "decided": found.life.settling,
        "because": found.life.because,
        "cites": shown["cites"],
    }
