"""The page Now: outcomes, arrivals of the last hour, alarms, what waits for a person, the store."""

from __future__ import annotations

from typing import Any, Final

from app.console.orders_pages import row_of
from app.console.proposals_pages import shown_kinds
from app.console.view import Document, View
from app.monitoring.alarm_messages import owners_of
from app.monitoring.health import COUNTED, overview
from app.monitoring.watchdog import alarms
from app.orders.delivery_log import arrivals_by_minute
from app.orders.read_orders import newest_orders
from reconcile.instants import format_instant

GROUPS: Final = {
    "paid": ("succeeded",),
    "under_way": ("authorized", "pending", "not_attempted"),
    "not_paid": ("failed", "canceled", "expired", "timed_out"),
    "given_back": ("refunded", "partially_refunded", "charged_back"),
    "needs_a_person": ("unresolved", "disputed"),
}
"""Outcomes as a person counts them."""

SHOWN: Final = 5
"""Orders of each kind that wait for a person."""


async def now_document(view: View) -> Document:
    """GET /"""
    state = await overview(view.context)
    waiting = [
        *await newest_orders(view.context, limit=SHOWN, outcome="unresolved"),
        *await newest_orders(view.context, limit=SHOWN, outcome="disputed"),
        *await newest_orders(view.context, limit=SHOWN, finding="held_back"),
    ]
    rows = {each.ledger.order: each for each in sorted(waiting, key=lambda each: -each.seq)}
    found = await alarms(view.console.watched)
    waits = await view.console.proposals.waiting(kinds=shown_kinds(view))
    proposals = len(waits) if view.person.may_read("proposals") else None
    owners = await owners_of(view.context, found)
    return {
        "at": format_instant(view.context.clock.now()),
        "groups": {
            name: sum(state.outcomes.get(word, 0) for word in words)
            for name, words in GROUPS.items()
        },
        "outcomes": {word: count for word, count in state.outcomes.items() if count},
        "orders": sum(state.outcomes.values()),
        "arrivals": [
            {"minute": format_instant(minute), "taken": taken, "refused": refused}
            for minute, taken, refused in await arrivals_by_minute(view.context)
        ],
        "alarms": [
            {
                "name": name,
                "reason": alarm.reason,
                "sentence": alarm.sentence,
                "since": None if alarm.since is None else format_instant(alarm.since),
                "owner": _owner(owners.get(name)),
            }
            for name, alarm in found.items()
        ],
        "proposals": proposals,
        "waiting": [row_of(each) for each in rows.values()],
        "state": {
            "unread": state.unread,
            "due": state.due,
            "set_aside": state.aside,
            "notifications_waiting": state.notifications[0],
            "notifications_dead": state.notifications[1],
            "counted_up_to": COUNTED,
            "sealed": state.sealed[0],
            "unsealed": state.sealed[1],
            "free_bytes": state.free,
        },
    }


def _owner(taken: Any) -> dict[str, Any] | None:
    """Who is at an alarm; None: nobody has said so."""
    if taken is None:
        return None
    return {"name": taken.owner, "state": taken.state, "at": format_instant(taken.at)}
