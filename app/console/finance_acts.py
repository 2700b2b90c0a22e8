"""What finance and support do from pages: assign, comment on and accept a break; start a run, try
rules, close a month."""

from __future__ import annotations

from typing import Any, Final

from app.access.operators import MAY, known_operators
from app.access.proposal import Proposal
from app.console.finance_pages import day, month_of, preview_of, rules_tried, tried_as
from app.console.proposals_pages import proposed
from app.console.view import ActionResult, Asked, Field, View
from app.console.words import address, plain_money
from app.core.errors import UsageError
from app.core.jobs import Job
from app.core.text import counted
from app.finance.break_acts import (
    SeenBreak,
    accept_break,
    assign_break,
    comment_break,
    one_break,
    why_not_alone,
)
from app.finance.close_period import may_close_alone
from app.finance.match_rules import current_rules, may_save_alone
from app.finance.reconcile_period import RunRequest
from app.finance.reconcile_rows import rows_ahead
from reconcile.matching.breaks import break_sentence
from reconcile.money import to_json


async def seen_break(view: View) -> SeenBreak:
    """The break that a form is about."""
    return await one_break(view.context, view.needed("break"))


def said_of(found: SeenBreak) -> tuple[str, ...]:
    """What it is about, and what is at stake."""
    money = to_json(found.seen.money)
    stake = f"At stake: {plain_money(money)}." if money else "No sum is at stake."
    return (break_sentence(found.seen), stake, f"Where it stands: {found.life.because}")


async def _people(view: View) -> list[str]:
    """Whose a break may be: who is in force, and may work on it."""
    return [
        each.name
        for each in await known_operators(view.context)
        if each.disabled_at is None and each.role in MAY["break_assigned"]
    ]


async def assignee_field(view: View, value: str) -> Field:
    """The field of a form that assigns."""
    return Field(
        name="to",
        label="To whom",
        choices=(*((name, name) for name in await _people(view)), ("", "nobody")),
        value=value,
        required=False,
    )


async def assignee_given(view: View) -> str:
    """Who was chosen; empty: nobody. Raises UsageError for who may not be."""
    to = view.given.get("to", "")
    if to and to not in await _people(view):
        raise UsageError("nobody of this name may work on breaks")
    return to


async def ask_assign(view: View) -> Asked:
    """Whose the break is to be."""
    found = await seen_break(view)
    return Asked(
        subject=found.identity,
        lines=said_of(found),
        back=address("breaks", found.identity),
        reason=False,
        fields=(await assignee_field(view, found.life.assignee or view.person.name),),
    )


async def do_assign(view: View, reason: str) -> str:
    """Make it somebody's."""
    found, to = await seen_break(view), await assignee_given(view)
    await assign_break(view.context, found.identity, to=to, by=view.person.name)
    return address("breaks", found.identity)


async def ask_comment(view: View) -> Asked:
    """What was found out."""
    found = await seen_break(view)
    return Asked(
        subject=found.identity,
        lines=said_of(found),
        back=address("breaks", found.identity),
        why="What you found out",
    )


async def do_comment(view: View, reason: str) -> str:
    """Add it to the break's history."""
    found = await seen_break(view)
    await comment_break(view.context, found.identity, note=reason, by=view.person.name)
    return address("breaks", found.identity)


async def ask_accept(view: View) -> Asked:
    """What is written off, and whether one person may do that."""
    found = await seen_break(view)
    lines, ready = said_of(found), True
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


async def do_accept(view: View, reason: str) -> str | ActionResult:
    """Write it off, or propose that."""
    found = await seen_break(view)
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
            "Everything that is against it is looked for once more, which takes some minutes with "
            "many orders: you may leave the page, and the month says how it goes.",
            "You close it in your name."
            if alone
            else "The rules in force let nobody close a month alone: you propose it, and it is "
            "closed when another operator approves it.",
        ),
        back=address("periods", month),
        password=True,
    )


async def do_close(view: View, reason: str) -> str | ActionResult:
    """Close the month, or propose that, and wait a little. Raises UsageError with everything that
    is against it."""
    month = (await month_of(view.context, view.needed("month"))).name
    jobs, by = view.console.jobs, view.person.name

    async def work() -> Proposal | None:
        return await view.console.work.close(month, by, reason)

    job = jobs.begin("close", month, by=by, work=work)
    await jobs.wait(job)
    return address("periods", month) if job.result is None else proposed(job.result)


async def ask_run(view: View) -> Asked:
    """What a run does, and of what time."""
    rows = await rows_ahead(view.context, as_of=None)
    return Asked(
        subject="a run",
        lines=(
            "A run matches orders with order books and statements, and finds every difference.",
            "Without days it is of everything, and opens and closes breaks: what is new, and what "
            "evidence has ended. With days it only looks, and changes no break.",
            f"It reads about {counted(rows, 'row')}, in a process of its own: you may leave the "
            "page, and the list of runs says how it goes.",
        ),
        back="/runs",
        fields=(
            Field(
                name="since",
                label=f"From ({view.context.calendar_zone})",
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


RUN: Final = "run"
"""What runs of a console are about: one at a time."""


async def do_run(view: View, reason: str) -> str:
    """Start it, and wait a little."""
    zone = view.context.calendar_zone
    asked = RunRequest(
        since=day(view.given.get("since", ""), "From", zone=zone),
        until=day(view.given.get("until", ""), "To", zone=zone, after=True),
    )
    if asked.since is not None and asked.until is not None and asked.since >= asked.until:
        raise UsageError("From must be before To")
    jobs, by = view.console.jobs, view.person.name

    async def work() -> int:
        return await view.console.work.reconcile(asked, by, reason)

    await jobs.wait(jobs.begin("run", RUN, by=by, work=work))
    return "/runs"


async def ask_preview(view: View) -> Asked:
    """Which rules are tried."""
    saved = await current_rules(view.context)
    return Asked(
        subject="matching rules",
        lines=(
            "Everything is matched under the rules in force and under these, and you see what "
            "would newly match, be lost or change, with money. Nothing of it is kept.",
            "When you have seen that, you may put them in force, or propose that.",
        ),
        back="/runs",
        reason=False,
        fields=(
            Field(
                name="rules",
                label="Rules (TOML)",
                kind="area",
                value="" if saved is None else saved.toml,
                hint='Such as date_window = "2 days". At most 12,000 characters.',
                required=False,
            ),
        ),
    )


async def do_preview(view: View, reason: str) -> str:
    """Compare, and wait a little."""
    rules = view.given.get("rules", "").replace("\r\n", "\n")  # read where it can be ended
    jobs, by = view.console.jobs, view.person.name

    async def work() -> dict[str, Any]:
        return await view.console.work.preview(rules)

    mark = await tried_as(view, rules)
    job = jobs.begin("preview", by, by=by, work=work, mark=mark)
    await jobs.wait(job)
    return address("previews", job.name)


async def ask_save_rules(view: View) -> Asked:
    """Which rules would be in force, and whether one person may put them there."""
    job = preview_of(view, view.needed("preview"))
    back, subject = address("previews", job.name), "the rules that were tried"
    if job.ended is None or job.problem is not None:
        lines: tuple[str, ...] = ("What they would change is not known: look at the preview.",)
        return Asked(subject=subject, lines=lines, back=back, ready=False)
    if not await _still_against(view, job):
        lines = ("Other rules were put in force since these were tried: try them again.",)
        return Asked(subject=subject, lines=lines, back=back, ready=False)
    count = sum(each["count"] for each in job.result["totals"])
    return Asked(
        subject=subject,
        lines=(
            f"They would change {counted(count, 'match or break', 'matches and breaks')}, as the "
            "preview shows."
            if count
            else "They would change no match and no break.",
            "The next run goes by them; runs and closed months of before stay what they are.",
            "You put them in force in your name."
            if await may_save_alone(view.context)
            else "The rules in force limit what one person may do alone: you propose these, and "
            "they are in force when another operator approves them.",
        ),
        back=back,
    )


async def do_save_rules(view: View, reason: str) -> str | ActionResult:
    """Put them in force, or propose that."""
    job = preview_of(view, view.needed("preview"))
    if job.ended is None or job.problem is not None or not await _still_against(view, job):
        raise UsageError("what these rules would change now is not known: try them again")
    done = await view.console.work.save_rules(rules_tried(job), view.person.name, reason)
    return "/runs" if done is None else proposed(done)


async def _still_against(view: View, job: Job) -> bool:
    """Whether the rules in force are those with which they were compared."""
    return job.mark == await tried_as(view, rules_tried(job))
