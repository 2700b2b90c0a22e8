"""What finance and support do from pages: assign, comment on and accept a break; start a run."""

from __future__ import annotations

from app.access.operators import MAY, known_operators
from app.access.proposal import Proposal
from app.console.finance_pages import day, month_of
from app.console.proposals_pages import proposed
from app.console.view import Asked, Field, Told, View
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
from app.finance.close_period import CloseRequest, close_period, may_close_alone
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
        lines = (
            *lines,
            f"{because[:1].upper()}{because[1:]}. You propose it in your name, and it is written "
            "off when another operator approves it.",
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


async def do_accept(view: View, reason: str) -> str | Told:
    """Write it off, or propose that."""
    found = await _break(view)
    proposal = await accept_break(view.context, found.identity, reason=reason, by=view.person.name)
    return address("breaks", found.identity) if proposal is None else proposed(proposal)


async def ask_close(view: View) -> Asked:
    """What closing does, and whether one person may."""
    month = (await month_of(view.context, view.needed("month"))).name
    alone = await may_close_alone(view.context)
    return Asked(
        subject=month,
        lines=(
            f"The report of {month} is kept as it is now, with everything it rests on. What is "
            "learned later stands in the reports of later months. It cannot be taken back.",
            "Everything that is against it is looked for first, which takes some minutes with many "
            "orders; leave this page open until it answers.",
            "You close it in your name."
            if alone
            else "The rules in force let nobody close a month alone: you propose it, and it is "
            "closed when another operator approves it.",
        ),
        back=address("periods", month),
    )


async def do_close(view: View, reason: str) -> str | Told:
    """Close the month, or propose that. Raises UsageError with everything that is against it."""
    month = (await month_of(view.context, view.needed("month"))).name
    request = CloseRequest(
        period=month,
        by=view.person.name,
        as_of=None,
        margin_days=view.console.closing_margin_days,
        sources=view.console.sources,
        reason=reason,
    )
    done = await close_period(view.context, request, progress=lambda _: None)
    if isinstance(done, Proposal):
        return proposed(done)
    if isinstance(done, tuple):
        raise UsageError(" ".join(each.sentence for each in done))
    return address("periods", month)


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
