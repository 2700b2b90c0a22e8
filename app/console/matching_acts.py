"""What finance does about breaks from pages beside one's own: match by hand and take that back,
decide about several at once, decide about late money."""

from __future__ import annotations

from typing import Final

from app.access.proposal import Proposal
from app.console.finance_acts import assignee_field, assignee_given, said_of, seen_break
from app.console.proposals_pages import proposed
from app.console.view import ActionResult, Asked, Field, View
from app.console.words import address, plain_money
from app.core.errors import UsageError
from app.core.text import counted
from app.finance.break_acts import (
    SeenBreak,
    accept_breaks,
    assign_breaks,
    mark_of,
    match_break,
    matches_of,
    some_breaks,
    unmatch_break,
    why_not_alone,
    why_not_each,
    why_not_together,
)
from app.finance.break_choice import Chosen, few_breaks, sums_of
from app.finance.worklist import LATE, proposed_settling, settle_late
from reconcile.matching.breaks import apart_words
from reconcile.matching.rows import name_of
from reconcile.money import Money, to_json
from reconcile.reporting.words import CAUSE_WORDS

# --- matching by hand -----------------------------------------------------------------------------


async def ask_match(view: View) -> Asked:
    """What is matched with what, and what keeps the two apart."""
    found, line = await seen_break(view), view.word("line")
    back = address("breaks", found.identity)
    lines = said_of(found)
    if found.life.state == "closed":
        closed = (*lines, "It is closed: there is nothing to match.")
        return Asked(subject=found.identity, lines=closed, back=back, ready=False)
    near = {name_of(each.line): each for each in found.seen.candidates}
    candidate = None if line is None else near.get(name_of(line))
    if candidate is not None:
        lines = (
            *lines,
            f"The other line is {candidate.reference}, of {_money(candidate.money)}.",
            f"What keeps the two apart: {apart_words(candidate)}.",
        )
    fields = () if line is not None else (
        Field(
            name="line",
            label="The left-over line",
            hint="The id of a line, as the page of the break that is about it shows it.",
        ),
    )  # fmt: skip
    return Asked(
        subject=found.identity,
        lines=(
            *lines,
            "Nothing changes at once: the next run takes the two as one and the same, and closes "
            "the break if their money fits. It can be taken back.",
        ),
        back=back,
        fields=fields,
        why="Why they belong together",
    )


async def do_match(view: View, reason: str) -> str:
    """Match the break with the line."""
    found = await seen_break(view)
    line = (view.word("line") or view.given.get("line", "")).strip()
    if not line:
        raise UsageError("say which line")
    await match_break(view.context, found.identity, line=line, reason=reason, by=view.person.name)
    return address("breaks", found.identity)


async def ask_unmatch(view: View) -> Asked:
    """Which match is taken back."""
    found = await seen_break(view)
    matched = await matches_of(view.context, found.identity)
    back = address("breaks", found.identity)
    if not matched:
        none = (*said_of(found), "No match by hand stands.")
        return Asked(subject=found.identity, lines=none, back=back, ready=False)
    return Asked(
        subject=found.identity,
        lines=(*said_of(found), "The next run opens again what the two leave without each other."),
        back=back,
        fields=(
            Field(
                name="line",
                label="The line that does not belong to it",
                choices=tuple((each, each) for each in matched),
                value=view.word("line") or matched[0],
            ),
        ),
    )


async def do_unmatch(view: View, reason: str) -> str:
    """Take the match back."""
    found = await seen_break(view)
    await unmatch_break(
        view.context,
        found.identity,
        line=view.given.get("line", ""),
        reason=reason,
        by=view.person.name,
    )
    return address("breaks", found.identity)


# --- several breaks at once -----------------------------------------------------------------------

SHOWN: Final = 10
"""Breaks that a preview names; all are counted and added up."""


async def _chosen(view: View) -> Chosen:
    """Those that were ticked, or those of which something is so."""
    where = view.word("where")
    if where is not None:
        return await few_breaks(view.context, where)
    ticked = view.request.query_params.getlist("break")
    return Chosen(of=await some_breaks(view.context, ticked))


def _preview(chosen: Chosen) -> tuple[str, ...]:
    """How many of each cause and currency, and their money; the largest of them; and what is left
    out."""
    found = chosen.of
    totals = [
        f"{CAUSE_WORDS[each.cause]}: {counted(each.count, 'break')} of {_money(each.money)}."
        for each in sums_of(found)
    ]
    named = [_named(each) for each in found[:SHOWN]]
    more = len(found) - len(named)
    return (
        *totals,
        *named,
        *((f"And {counted(more, 'more', 'more')}.",) if more else ()),
        *chosen.left_out(),
    )


def _money(money: Money) -> str:
    shown = to_json(money)
    return plain_money(shown) if shown else "no sum"


def _named(found: SeenBreak) -> str:
    about = found.seen.order or found.seen.payment or found.identity
    cause = CAUSE_WORDS[found.seen.cause]
    return (
        f"{about}: {cause[:1].lower()}{cause[1:]}, {_money(found.seen.money)}, {found.life.state}."
    )


def _sealed(chosen: Chosen) -> Field:
    return Field(name="seen", label="What was shown", kind="hidden", value=mark_of(chosen.of))


async def ask_assign_all(view: View) -> Asked:
    """Whose these breaks are to be."""
    chosen = await _chosen(view)
    return Asked(
        subject=counted(len(chosen.of), "break"),
        lines=_preview(chosen),
        back="/breaks",
        reason=False,
        fields=(await assignee_field(view, view.person.name), _sealed(chosen)),
    )


async def do_assign_all(view: View, reason: str) -> str:
    """Make all of them somebody's."""
    chosen, to = await _chosen(view), await assignee_given(view)
    await assign_breaks(
        view.context,
        [each.identity for each in chosen.of],
        to=to,
        by=view.person.name,
        seen=view.given.get("seen", ""),
    )
    return "/breaks"


async def ask_accept_all(view: View) -> Asked:
    """What is written off together, and what stands against that."""
    chosen = await _chosen(view)
    subject = counted(len(chosen.of), "break")
    if against := await _against(view, chosen.of):
        lines = (*_preview(chosen), "They are accepted together or not at all.", *against)
        return Asked(subject=subject, lines=lines, back="/breaks", ready=False)
    return Asked(
        subject=subject,
        lines=(
            *_preview(chosen),
            "All of them are written off in your name with the same reason: they leave what is to "
            "be done, and reports count them as accepted. Each opens again as soon as its money "
            "changes.",
        ),
        back="/breaks",
        fields=(_sealed(chosen),),
    )


async def _against(view: View, found: list[SeenBreak]) -> list[str]:
    """Why they may not be accepted together, and what to do."""
    against = []
    alone = await why_not_each(view.context, found)
    for each, because in zip(found, alone, strict=True):
        if each.life.state in ("closed", "accepted"):
            against.append(f"{_named(each)} Nothing is to be done about it.")
        elif because is not None:
            against.append(f"{_named(each)} One person may not accept it alone: {because}.")
    if against:
        return [
            "Go back and leave these out; what takes a second person is proposed on its own page:",
            *against[:SHOWN],
        ]
    together = await why_not_together(view.context, found)
    return [] if together is None else [f"{together[:1].upper()}{together[1:]}."]


async def do_accept_all(view: View, reason: str) -> str:
    """Write all of them off."""
    chosen = await _chosen(view)
    await accept_breaks(
        view.context,
        [each.identity for each in chosen.of],
        reason=reason,
        by=view.person.name,
        seen=view.given.get("seen", ""),
    )
    return "/breaks"


# --- late money -----------------------------------------------------------------------------------

SETTLING: Final = {
    "refund": "Give it back",
    "accept": "Keep it",
    "credit": "Credit it to the customer",
}
"""What may become of late money."""

CONSEQUENCES: Final = {
    "refund": "Given back, it stays on the list until the refund has come.",
    "accept": "Kept, the order is served after all.",
    "credit": "Credited, it stays here in the customer's favour.",
}


async def ask_settle(view: View) -> Asked:
    """What becomes of late money, and what one person may decide."""
    found = await seen_break(view)
    lines, back = said_of(found), "/late"
    if found.seen.cause not in LATE:
        lines = (*lines, "This is no late money: it is decided on its own page.")
        return Asked(
            subject=found.identity,
            lines=lines,
            back=address("breaks", found.identity),
            ready=False,
        )
    if found.life.state == "closed":
        lines = (*lines, "It is closed: there is nothing to decide.")
        return Asked(subject=found.identity, lines=lines, back=back, ready=False)
    if (because := await why_not_alone(view.context, found)) is not None:
        lines = (
            *lines,
            f"{because[:1].upper()}{because[1:]}: to keep or to credit it you propose, and another "
            "operator approves that. That it goes back, you decide alone.",
        )
    return Asked(
        subject=found.seen.order or found.seen.payment or found.identity,
        lines=(
            *lines,
            " ".join(CONSEQUENCES.values()),
            f"Proposed: {SETTLING[proposed_settling(found)].lower()}. Nothing is sent to the provider by "
            "this.",
        ),
        back=back,
        fields=(
            Field(
                name="action",
                label="What becomes of it",
                choices=tuple(SETTLING.items()),
                value=proposed_settling(found),
            ),
        ),
    )


async def do_settle(view: View, reason: str) -> str | ActionResult:
    """Write the decision down, or propose it."""
    found, action = await seen_break(view), view.given.get("action", "")
    if action not in SETTLING:
        raise UsageError("choose what becomes of it")
    done = await settle_late(
        view.context, found.identity, action=action, reason=reason, by=view.person.name
    )
    return proposed(done) if isinstance(done, Proposal) else "/late"
