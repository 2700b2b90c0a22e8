"""What finance and support do from pages: assign, comment on and accept a break; start a run."""

from __future__ import annotations

from app.access.operators import MAY, known_operators
from app.console.finance_pages import day
from app.console.view import Asked, Field, View
from app.console.words import address, plain_money
from app.core.errors import UsageError
from app.finance.break_acts import (
    SeenBreak,
    accept_break,
    assign_break,
    comment_break,
    one_break,
    why_not_alone,
)
from app.finance.reconcile_period import RunRequest, reconcile_for
from reconcile.matching.breaks import break_sentence
from reconcile.money import to_json


async def _break(view: View) -> SeenBreak:
    return await one_break(view.context, view.needed("break"))


def _said(found: SeenBreak) -> tuple[str, ...]:
    """What it is about, and what is at stake."""
    money = to_json(found.seen.money)
    stake = f"At stake: {plain_money(money)}." if money else "No sum is at stake."
    return (break_sentence(found.seen), stake, f"Where it stands: {found.life.because}")


async def ask_assign(view: View) -> Asked:
    """Whose the break is to be."""
    found = await _break(view)
    people = [
        each.name
        for each in await known_operators(view.context)
        if each.disabled_at is None and each.role in MAY["break_assigned"]
    ]
    chosen = Field(
        name="to",
        label="To whom",
        choices=(*((name, name) for name in people), ("", "nobody")),
        value=found.life.assignee or view.person.name,
        required=False,
    )
    return Asked(
        subject=found.identity,
        lines=_said(found),
        back=address("breaks", found.identity),
        reason=False,
        fields=(chosen,),
    )


async def do_assign(view: View, reason: str) -> str:
    """Make it somebody's."""
    found, to = await _break(view), view.given.get("to", "")
    if to and to not in {each.name for each in await known_operators(view.context)}:
        raise UsageError("there is no operator of this name")
    await assign_break(view.context, found.identity, to=to, by=view.person.name)
    return address("breaks", found.identity)


async def ask_comment(view: View) -> Asked:
    """What was found out."""
    found = await _break(view)
    return Asked(
        subject=found.identity,
        lines=_said(found),
        back=address("breaks", found.identity),
        why="What you found out",
    )


async def do_comment(view: View, reason: str) -> str:
    """Add it to the break's history."""
    found = await _break(view)
    await comment_break(view.context, found.identity, note=reason, by=view.person.name)
    return address("breaks", found.identity)


async def ask_accept(view: View) -> Asked:
    """What is written off, and whether one person may do that."""
    found = await _break(view)
    lines, ready = _said(found), True
    if found.life.state == "closed":
        lines, ready = (*lines, "It is closed: there is nothing to accept."), False
    elif (because := await why_not_alone(view.context, found)) is not None:
        ready = False
        lines = (
            *lines,
            f"{because[:1].upper()}{because[1:]}. A second person of finance must agree, on the "
            f"machine: tallyhook breaks accept {found.identity} --reason TEXT --by "
            f"{view.person.name!r} --second NAME",
        )
    else:
        lines = (
            *lines,
            "It is written off in your name: it leaves what is to be done, and reports count it as "
            "accepted. It opens again as soon as its money changes.",
        )
    return Asked(
        subject=found.identity,
        lines=lines,
        back=address("breaks", found.identity),
        ready=ready,
    )


async def do_accept(view: View, reason: str) -> str:
    """Write it off."""
    found = await _break(view)
    because = await why_not_alone(view.context, found)
    if because is not None:
        raise UsageError(f"{because}: a second person must agree")
    await accept_break(
        view.context, found.identity, reason=reason, by=view.person.name, second=None
    )
    return address("breaks", found.identity)


async def ask_run(view: View) -> Asked:
    """What a run does, and of what time."""
    return Asked(
        subject="a run",
        lines=(
            "A run matches orders with order books and statements, and finds every difference.",
            "Without days it is of everything, and moves the lives of breaks: new ones open, and "
            "those that evidence has ended close. With days it only looks, and changes no break.",
            "With many orders it takes some minutes; leave this page open until it answers.",
        ),
        back="/runs",
        fields=(
            Field(
                name="since",
                label="From (UTC)",
                hint="A day such as 2026-10-01, or nothing.",
                required=False,
            ),
            Field(
                name="until",
                label="To, that day included",
                hint="A day such as 2026-10-31, or nothing.",
                required=False,
            ),
        ),
    )


async def do_run(view: View, reason: str) -> str:
    """Run it now."""
    zone = view.context.calendar_zone
    asked = RunRequest(
        since=day(view.given.get("since", ""), "From", zone=zone),
        until=day(view.given.get("until", ""), "To", zone=zone, after=True),
    )
    await reconcile_for(
        view.context, asked, by=view.person.name, reason=reason, progress=lambda _: None
    )
    return "/runs"
