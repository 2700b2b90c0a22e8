"""What support does from pages: see a number or a body in full, note, pin, save a list, take an
alarm."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from starlette.responses import Response

from app.access.bookmarks import ORDER, pin_order, remove_bookmark, save_list
from app.access.operators import Reading
from app.console.view import ActionResult, Asked, Field, View
from app.console.words import TAKEN, address
from app.core.errors import UsageError
from app.core.text import counted
from app.finance.worklist import ORDERS
from app.monitoring.alarm_owners import TAKEN_STATES, take_alarm
from app.monitoring.watchdog import alarms
from app.orders.customers import reveal_body, unmask
from app.orders.delivery_log import is_refused, show_delivery
from app.orders.order_notes import add_note
from app.orders.read_orders import explain_order
from reconcile.ledger.ledger import FINDING_CODES, OUTCOMES
from reconcile.matching.breaks import BREAK_CAUSES, STATES

LISTS: Final[Mapping[str, Mapping[str, tuple[str, ...] | None]]] = {
    "orders": {"outcome": OUTCOMES, "finding": FINDING_CODES},
    "breaks": {
        "cause": BREAK_CAUSES,
        "state": STATES[:-1],
        "currency": None,
        "assignee": None,
        "order": tuple(ORDERS),
    },
}
"""Lists that may be saved: the filters of each, and what each may be; None: a word of any kind."""

_READS: Final[Mapping[str, Reading]] = {"orders": "orders", "breaks": "breaks"}

WORD_MAX: Final = 80
"""Characters of a filter that may be any word."""


async def _order(view: View) -> str:
    order = view.needed("order")
    await explain_order(view.context, order)
    return order


async def ask_unmask(view: View) -> Asked:
    """Whose number would be seen."""
    order = await _order(view)
    return Asked(
        subject=order,
        lines=(
            "You see the customer's phone number in full, once: on the next page alone.",
            "The trail keeps that you saw it, and why; it does not keep the number.",
        ),
        back=address("orders", order),
    )


async def do_unmask(view: View, reason: str) -> ActionResult:
    """Show it, once."""
    order = view.needed("order")
    phones = await unmask(
        view.context, order, sources=view.console.sources, reason=reason, by=view.person.name
    )
    return ActionResult(
        title=f"Phone number of {order}",
        lines=(
            f"{counted(len(phones), 'number is', 'numbers are')} kept of this order."
            if phones
            else "No number is kept of this order: none came, or it was erased.",
        ),
        secret=", ".join(f"+{each}" for each in phones),
        back=address("orders", order),
    )


async def ask_body(view: View) -> Asked:
    """Which body would be seen."""
    entry = await show_delivery(view.context, view.needed("delivery"))
    lines = [
        f"You get the body as it came: {counted(entry.size, 'byte')}. It may hold the customer's "
        "name, number and address: keep it no longer than you need it.",
        "The trail keeps that you took it, and why.",
    ]
    if is_refused(entry):
        lines.append("It was refused: nobody vouches for it, and it may be anybody's.")
    return Asked(
        subject=entry.delivery_id,
        lines=tuple(lines),
        back=address("deliveries", entry.delivery_id),
    )


async def do_body(view: View, reason: str) -> Response:
    """The body, as a download that no browser opens."""
    delivery = view.needed("delivery")
    body = await reveal_body(
        view.context,
        delivery,
        sources=view.console.sources,
        reason=reason,
        by=view.person.name,
    )
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", delivery)[:80]
    return Response(
        body,
        media_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="{name}.body"'},
    )


async def ask_note(view: View) -> Asked:
    """On what a note is put."""
    order = await _order(view)
    return Asked(
        subject=order,
        lines=(
            "Everybody who may see the order reads your note, with your name.",
            "Notes are only added: none is changed or taken away, not even by an erasure. So write "
            "nothing about the customer, and no name, number or address.",
        ),
        back=address("orders", order),
        why="Your note",
    )


async def do_note(view: View, reason: str) -> str:
    """Add it."""
    order = view.needed("order")
    await add_note(
        view.context, order, note=reason, sources=view.console.sources, by=view.person.name
    )
    return address("orders", order)


async def ask_pin(view: View) -> Asked:
    """What is pinned."""
    order = await _order(view)
    return Asked(
        subject=order,
        lines=("It stands above your list of orders, for you alone, until you take it away.",),
        back=address("orders", order),
        reason=False,
    )


async def do_pin(view: View, reason: str) -> str:
    """Pin it."""
    order = await _order(view)
    await pin_order(view.context, order, operator=view.person.name)
    return address("orders", order)


async def ask_unpin(view: View) -> Asked:
    """What is pinned no more."""
    order = view.needed("order")
    return Asked(
        subject=order,
        lines=("It stands above your list of orders no more. The order itself stays as it is.",),
        back=address("orders", order),
        reason=False,
    )


async def do_unpin(view: View, reason: str) -> str:
    """Take it away."""
    order = view.needed("order")
    await remove_bookmark(view.context, kind=ORDER, label=order, operator=view.person.name)
    return address("orders", order)


def _list(view: View) -> tuple[str, dict[str, str]]:
    """Which list, and its filters, each as its page takes it. Raises UsageError."""
    page = view.choice("list", LISTS)
    if page is None:
        raise UsageError("list: say which")
    if not view.person.may(_READS[page]):
        raise UsageError("your role may not see that list")
    filters = {}
    for name, among in LISTS[page].items():
        word = view.word(name) if among is None else view.choice(name, among)
        if word is not None and (len(word) > WORD_MAX or not word.isprintable()):
            raise UsageError(f"{name} is 1 to {WORD_MAX} printable characters")
        if word is not None:
            filters[name] = word
    return page, filters


def _told_filters(filters: Mapping[str, Any]) -> str:
    said = ", ".join(f"{name} {str(word).replace('_', ' ')}" for name, word in filters.items())
    return f"The filters: {said}." if said else "It has no filters: it shows all."


async def ask_save_list(view: View) -> Asked:
    """What is saved."""
    page, filters = _list(view)
    return Asked(
        subject=page,
        lines=(
            _told_filters(filters),
            "It stands above the list, for you alone. What it shows is looked up anew each time.",
        ),
        back=f"/{page}{'?' if filters else ''}{urlencode(filters)}",
        reason=False,
        fields=(Field(name="label", label="Name", hint="Such as: disputed, to call"),),
    )


async def do_save_list(view: View, reason: str) -> str:
    """Save it."""
    page, filters = _list(view)
    await save_list(
        view.context,
        view.given.get("label", ""),
        kind=page,
        query=urlencode(filters),
        operator=view.person.name,
    )
    return f"/{page}"


async def ask_drop_list(view: View) -> Asked:
    """What is saved no more."""
    page, label = view.choice("list", LISTS), view.needed("label")
    if page is None:
        raise UsageError("list: say which")
    return Asked(
        subject=label,
        lines=("It stands above the list no more.",),
        back=f"/{page}",
        reason=False,
    )


async def do_drop_list(view: View, reason: str) -> str:
    """Take it away."""
    page, label = view.needed("list"), view.needed("label")
    await remove_bookmark(view.context, kind=page, label=label, operator=view.person.name)
    return f"/{page}"


async def ask_take_alarm(view: View) -> Asked:
    """Which alarm, and what it says."""
    name = view.needed("alarm")
    found = (await alarms(view.console.watched)).get(name)
    if found is None:
        return Asked(
            subject=name.replace("_", " "),
            lines=("This alarm does not last any more: there is nothing to do.",),
            back="/",
            ready=False,
        )
    return Asked(
        subject=name.replace("_", " "),
        lines=(
            found.sentence,
            "You say that you are at it, so that nobody else begins, too. Whoever had it has it no "
            "more. The alarm ends by itself when its reason does.",
        ),
        back="/",
        why="What you do about it",
        fields=(
            Field(
                name="state",
                label="How far it is",
                choices=tuple((each, TAKEN[each]) for each in TAKEN_STATES),
                value=TAKEN_STATES[0],
            ),
        ),
    )


async def do_take_alarm(view: View, reason: str) -> str:
    """Take it."""
    chosen = view.given.get("state")
    state = next((each for each in TAKEN_STATES if each == chosen), None)
    if state is None:
        raise UsageError(f"state is one of: {', '.join(TAKEN_STATES)}")
    await take_alarm(
        view.context,
        view.needed("alarm"),
        lasting=await alarms(view.console.watched),
        state=state,
        by=view.person.name,
        why=reason,
    )
    return "/"
