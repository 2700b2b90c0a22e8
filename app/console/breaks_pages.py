"""Pages of breaks and of late money: the worklist of the newest run, one break, late money."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from app.access.bookmarks import bookmarks_of
from app.console.case_pages import attachments_of_break
from app.console.orders_pages import saved_lists
from app.console.proposals_pages import waiting_about
from app.console.view import ROWS, Document, View
from app.console.words import CAUSES
from app.core.errors import NotFoundError
from app.finance.break_acts import matches_of, one_break, why_not_alone
from app.finance.break_choice import said_of
from app.finance.worklist import (
    LATE,
    ORDERS,
    WorklistRequest,
    late_document,
    late_items,
    proposed_settling,
    standing,
    worklist,
)
from reconcile.instants import format_instant
from reconcile.matching.breaks import BREAK_CAUSES, STANDINGS, STATES
from reconcile.money import Money, to_json

LIVING: Final = STATES[:-1]
"""States that a break of the newest run may have."""

CONDITIONS: Final = ("cause", "state", "currency", "assignee")
"""Filters that also say of which breaks something is to be done to all."""

MOST_SKIPPED: Final = 1_000_000


async def breaks_document(view: View) -> Document:
    """GET /breaks?cause=&state=&currency=&assignee=&order=&skip="""
    filters = {
        "cause": view.choice("cause", BREAK_CAUSES),
        "state": view.choice("state", LIVING),
        "currency": view.word("currency"),
        "assignee": view.word("assignee"),
        "order": view.choice("order", tuple(ORDERS)),
    }
    skip = min(view.number("skip") or 0, MOST_SKIPPED)
    found = await worklist(
        view.context,
        WorklistRequest(
            cause=filters["cause"],
            state=next((each for each in LIVING if each == filters["state"]), None),
            currency=filters["currency"],
            assignee=filters["assignee"],
            order=filters["order"] or "money",
            skip=skip,
            limit=ROWS,
        ),
    )
    now = view.context.clock.now()
    return {
        "filters": filters,
        "where": said_of({name: filters[name] for name in CONDITIONS}),
        "saved": saved_lists(await bookmarks_of(view.context, view.person.name), "breaks"),
        "skip": skip or None,
        "run": None
        if found.run is None
        else {"number": found.run.number, "at": format_instant(found.run.at)},
        "found": found.found,
        "totals": [{"count": count, "money": to_json(money)} for count, money in found.totals],
        "causes": found.causes,
        "states": {state: found.states.get(state, 0) for state in LIVING},
        "breaks": [each.document(as_of=now) for each in found.shown],
        "next": skip + ROWS if found.found > skip + ROWS else None,
    }


async def break_document(view: View) -> Document:
    """GET /breaks/{break}"""
    try:
        found = await one_break(view.context, view.subject)
    except NotFoundError:
        raise NotFoundError(
            f"there is no break {view.subject!r}: the list of breaks shows those that the newest "
            "run saw"
        ) from None
    told = found.document(as_of=view.context.clock.now()) | found.history()
    closed = found.life.state == "closed"
    return told | {
        "means": CAUSES[found.seen.cause],
        "matched": await matches_of(view.context, found.identity),
        "late": found.seen.cause in LATE,
        "not_alone": None if closed else await why_not_alone(view.context, found),
        "proposal": await waiting_about(view, found.identity),
        "attachments": await attachments_of_break(view, found.identity),
    }


async def late_money_document(view: View) -> Document:
    """GET /late?state=&skip="""
    wanted = view.choice("state", STANDINGS)
    found = []
    async for some in late_items(view.context, closed=wanted == "closed"):
        found += some
    states = Counter(standing(each) for each in found)
    fitting = [each for each in found if wanted in (None, standing(each))]
    fitting.sort(key=lambda each: (each.seen.money.currency, -each.seen.money.minor, each.identity))
    sums: dict[tuple[str, str], tuple[int, int]] = {}
    for each in fitting:
        name = (proposed_settling(each), each.seen.money.currency)
        count, minor = sums.get(name, (0, 0))
        sums[name] = (count + 1, minor + each.seen.money.minor)
    skip = min(view.number("skip") or 0, MOST_SKIPPED)
    return {
        "filters": {"state": wanted},
        "skip": skip or None,
        "states": dict(states),
        "found": len(fitting),
        "totals": [
            {
                "proposed": action,
                "count": count,
                "money": to_json(Money(minor=minor, currency=currency)),
            }
            for (action, currency), (count, minor) in sorted(sums.items())
        ],
        "late": [_late(each) for each in fitting[skip : skip + ROWS]],
        "next": skip + ROWS if len(fitting) > skip + ROWS else None,
    }


def _late(found: Any) -> dict[str, Any]:
    return late_document(found) | {"sentence": CAUSES[found.seen.cause]}
