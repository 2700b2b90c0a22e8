"""Acts on the customers' numbers of several orders: propose to see them, and see them once another
operator has agreed."""

from __future__ import annotations

import re
from typing import Final

from starlette.responses import Response

from app.access.proposal import Proposal
from app.access.proposals import ProposalKind
from app.console.pages import as_csv, as_json
from app.console.proposals_pages import proposal_shown, proposed
from app.console.view import ActionResult, Asked, Field, Table, View
from app.console.words import address
from app.core.errors import NotFoundError, UsageError
from app.core.text import counted
from app.orders.unmask_many import (
    MOST_ORDERS,
    NAME,
    OPEN_FOR,
    PURPOSES,
    UnmaskRequest,
    check_open,
    chosen_orders,
    numbers_document,
    propose_unmasking,
    see_numbers,
)
from reconcile.instants import HOUR
from reconcile.ledger.ledger import FINDING_CODES, OUTCOMES

FORMS: Final = {"page": "a page", "csv": "a file for a spreadsheet (CSV)", "json": "a JSON file"}

_HOURS: Final = OPEN_FOR // HOUR


def _kind(view: View) -> ProposalKind:
    return view.console.proposals.kinds[NAME]


async def _chosen(view: View) -> list[str]:
    """Those that were ticked, those of a list's filters, or none yet."""
    ticked = view.request.query_params.getlist("order")
    if ticked or view.word("list") is None:
        return ticked
    return await chosen_orders(
        view.context,
        outcome=view.choice("outcome", OUTCOMES),
        finding=view.choice("finding", FINDING_CODES),
    )


async def ask_unmask_many(view: View) -> Asked:
    """Whose numbers are wanted, and for what."""
    # What was sent is shown again by the form, or not, where a number stands in it.
    chosen = [] if "orders" in view.given else await _chosen(view)
    return Asked(
        subject=counted(len(chosen), "order") if chosen else "Several orders",
        lines=(
            "You propose to see the customers' phone numbers of these orders. Another operator who "
            f"may see numbers must approve it; then you alone see them, for {_HOURS} hours.",
            "The trail keeps each look for each order, with your reason; it keeps no number.",
        ),
        back="/orders",
        fields=(
            Field(
                name="orders",
                label="The orders",
                kind="area",
                value="\n".join(chosen),
                hint=f"One a line, {MOST_ORDERS} at most. Take out those that you do not need.",
            ),
            Field(name="purpose", label="What for", choices=tuple(PURPOSES.items())),
        ),
        why="Why you need to call them",
    )


def _lines(text: str) -> list[str]:
    return [each for each in re.split(r"\r?\n", text) if each.strip()]


async def do_unmask_many(view: View, reason: str) -> ActionResult:
    """Propose it."""
    asked = UnmaskRequest(
        orders=_lines(view.given.get("orders", "")),
        purpose=view.given.get("purpose", ""),
        reason=reason,
        by=view.person.name,
    )
    try:
        return proposed(await propose_unmasking(view.context, _kind(view), asked))
    except NotFoundError as error:  # one of those that were written: the form is shown again
        raise UsageError(str(error)) from None


async def ask_see_numbers(view: View) -> Asked:
    """What would be seen, and until when."""
    found = await proposal_shown(view, view.needed("proposal"))
    back = address("proposals", found.id)
    said = (found.sentence, f"Your reason: “{found.reason}”")
    if (why := await _why_not(view, found)) is not None:
        return Asked(subject=found.subject, lines=(*said, why), back=back, ready=False)
    return Asked(
        subject=found.subject,
        lines=(
            *said,
            "You see them in full in the answer alone. This look is noted in the trail for each "
            "order. Keep a file no longer than you need it.",
        ),
        back=back,
        reason=False,
        fields=(Field(name="as", label="As", choices=tuple(FORMS.items()), value="page"),),
    )


async def _why_not(view: View, proposal: Proposal) -> str | None:
    try:
        await check_open(view.context, _kind(view), proposal, by=view.person.name)
    except UsageError as error:
        said = str(error)
        return f"{said[:1].upper()}{said[1:]}."
    return None


async def do_see_numbers(view: View, reason: str) -> ActionResult | Response:
    """Show them, or hand them over as a file."""
    form = view.given.get("as", "page")
    if form not in FORMS:
        raise UsageError(f"as is one of: {', '.join(FORMS)}")
    found = await proposal_shown(view, view.needed("proposal"))
    kind = _kind(view)
    seen = await see_numbers(
        view.context, kind, found, sources=view.console.sources, by=view.person.name
    )
    document = numbers_document(kind, found, seen)
    if form == "page":
        rows = tuple(
            (each.order, ", ".join(f"+{phone}" for phone in each.phones) or each.note)
            for each in seen
        )
        return ActionResult(
            title=f"Numbers of {found.subject}",
            lines=(
                f"{counted(sum(bool(each.phones) for each in seen), 'order')} with a number, of "
                f"{len(seen)}. You may look again until {document['open_until']}.",
            ),
            back=address("proposals", found.id),
            table=Table(columns=("Order", "Numbers"), rows=rows),
        )
    answer = as_csv(document, "orders") if form == "csv" else as_json(document)
    answer.headers["Content-Disposition"] = f'attachment; filename="numbers-{found.id}.{form}"'
    return answer
