"""Pages of waiting and past proposals. Actions approve, reject or withdraw a proposal."""

import json
from functools import partial
from typing import Any, Final

from app.access.proposal import Proposal
from app.access.proposals import LAST
from app.console.view import Act, ActionResult, Document, Field, Form, View
from app.console.words import BEGUN, DONE_BY, OPEN, PROPOSALS, address
from app.core.jobs import job_document
from app.core.text import capital
from reconcile.instants import format_instant, parse_instant


async def proposals_document(view: View) -> Document:
    """Return the waiting and past proposals, newest first."""
    before, kinds = view.word("before"), shown_kinds(view)
    waiting = [] if before else await view.console.proposals.waiting(kinds=kinds)
    past = await view.console.proposals.past(before=before or LAST, limit=view.rows, kinds=kinds)
    return {
        "before": before,
        "waiting": len(waiting),
        "proposals": [proposal_row(view, each) for each in (*waiting, *past)],
        "next": past[-1].id if len(past) == view.rows else None,
    }


def shown_kinds(view: View) -> frozenset[str] | None:
    """Return the kinds of proposals that the operator may see.

    None means all kinds.
    """
    return view.console.proposals.shown_to(view.person.role)


async def proposal_shown(view: View, identity: str) -> Proposal:
    """Return a proposal. Raises NotFoundError if the operator may not see it."""
    return await view.console.proposals.one(identity, kinds=shown_kinds(view))


def proposal_row(view: View, proposal: Proposal) -> dict[str, Any]:
    """Return a proposal's row for a list."""
    document = view.console.proposals.document(proposal)
    kind = view.console.proposals.kinds.get(proposal.kind)
    title = proposal.kind.replace("_", " ") if kind is None else kind.title
    means = PROPOSALS[document["state"]] if document["open_until"] is None else OPEN
    shown = {name: value for name, value in document.items() if name != "given"}
    return shown | {"title": title, "means": means}


async def proposal_document(view: View) -> Document:
    found = await proposal_shown(view, view.subject)
    row = proposal_row(view, found)
    waits = row["state"] == "waiting"
    decided, own = found.decided, found.who == view.person.name
    steps = [{"at": row["at"], "who": found.who, "did": "proposed", "reason": found.reason}]
    if decided is not None:
        done = {"who": decided.who, "did": decided.decision, "reason": decided.reason}
        steps.append({"at": format_instant(decided.at), **done})
    kind = view.console.proposals.kinds.get(found.kind)
    job = job_document(view.console.jobs.newest("approve", found.id))
    under_way = job is not None and job["ended"] is None
    asks = None if kind is None or under_way else kind.unfinished
    unfinished = None if asks is None else await asks(found)
    if unfinished is not None and row["state"] == "approved":
        row["means"] = BEGUN
    may_see = own and row["open_until"] is not None
    open_now = may_see and view.context.clock.now() < parse_instant(row["open_until"])
    return row | {
        "unfinished": unfinished,
        "where": None if kind is None or kind.where is None else address(*kind.where(found)),
        "given": {
            label: found.given[name]
            for name, label in ({} if kind is None else kind.particulars).items()
            if name in found.given
        },
        "tables": {
            label: json.loads(found.given[name])
            for name, label in ({} if kind is None else kind.tables).items()
            if name in found.given
        },
        "mine": waits and own,
        "yours_to_do": DONE_BY.get(found.kind) if open_now else None,
        "not_you": await view.console.proposals.why_not(found, by=view.person.name)
        if waits
        else None,
        "steps": steps,
        "job": job,
    }


async def waiting_about(view: View, subject: str) -> dict[str, str] | None:
    """Return the id and proposer of a waiting proposal."""
    if not view.person.may("proposals"):
        return None
    waiting = await view.console.proposals.waiting(kinds=shown_kinds(view))
    about = [{"id": each.id, "by": each.who} for each in waiting if each.subject == subject]
    return about[0] if about else None


def proposed(proposal: Proposal) -> ActionResult:
    """Return the result page that says that a second person must approve the action."""
    return ActionResult(
        "Proposed to a second person",
        address("proposals", proposal.id),
        proposal.sentence,
        "The act is carried out when another operator approves it, before "
        f"{format_instant(proposal.until)}. Until then nothing changes.",
    )


async def _form(view: View, *consequence: str, own: bool = False, second: bool = False) -> Form:
    found = await proposal_shown(view, view.needed("proposal"))
    row, kind = proposal_row(view, found), view.console.proposals.kinds.get(found.kind)
    lines = [found.sentence, f"{found.who} proposed it: \u201c{found.reason}\u201d"]
    why = None if row["state"] == "waiting" else row["means"]
    if why is None and second:
        why = await view.console.proposals.why_not(found, by=view.person.name)
    if why is None and own != (found.who == view.person.name):
        why = f"{found.who} proposed it." if own else "You proposed it yourself."
    return Form(
        row["title"],
        address("proposals", found.id),
        *lines,
        *(consequence if why is None else (capital(why),)),
        ready=why is None,
        password=second and kind is not None and kind.for_good,
        fields=(Field("typed", kind.typed, echo=False),)
        if second and why is None and kind is not None and kind.typed
        else (),
    )


async def ask_approve(view: View) -> Form:
    return await _form(
        view,
        "You approve the act, and it is carried out at once, in both your names. You cannot undo "
        "it here.",
        second=True,
    )


async def do_approve(view: View, reason: str) -> str | ActionResult:
    """Approve a proposal."""
    found = await proposal_shown(view, view.needed("proposal"))
    kind, by = view.console.proposals.kinds.get(found.kind), view.person.name
    back, typed = address("proposals", found.id), view.given.get("typed", "")
    view.console.proposals.check_typed(found, typed)  # a job would report the mistake late
    if kind is None or not kind.takes_long:
        await view.console.proposals.approve(found.id, by=by, reason=reason, typed=typed)
        return back
    work = partial(view.console.approve, found.id, by, reason, typed)
    job = await view.job("approve", found.id, work=work)
    if job.ended is None:
        line = "You may leave this page. Your approval counts as soon as it is done."
        return ActionResult("The act is being carried out", back, line)
    return back


async def ask_reject(view: View) -> Form:
    return await _form(
        view, "You reject the proposal, and the act is not carried out. Nothing else changes."
    )


async def do_reject(view: View, reason: str) -> str:
    name, by = view.needed("proposal"), view.person.name
    done = await view.console.proposals.reject(name, by=by, reason=reason)
    return address("proposals", done.id)


async def ask_withdraw(view: View) -> Form:
    return await _form(view, "You withdraw the proposal. Nothing else changes.", own=True)


async def do_withdraw(view: View, reason: str) -> str:
    name, by = view.needed("proposal"), view.person.name
    done = await view.console.proposals.withdraw(name, by=by, reason=reason)
    return address("proposals", done.id)


ACTS: Final = (
    Act(
        "Approve a proposal",
        "proposal_approved",
        ask_approve,
        do_approve,
        done="You approved the proposal, and the act was carried out.",
        kept=False,
    ),  # it may have a number
    Act(
        "Reject a proposal",
        "proposal_rejected",
        ask_reject,
        do_reject,
        done="You rejected the proposal; nothing was done.",
    ),
    Act(
        "Withdraw a proposal",
        "proposal_withdrawn",
        ask_withdraw,
        do_withdraw,
        button="Take it back",
        done="You withdrew the proposal; nothing was done.",
    ),
)
