"""Pages of payments without an order. Actions assign a payment to an order, undo an assignment, or
dismiss a payment."""

from typing import Any, Final

from app.access.operators import MAY
from app.console.proposals_pages import proposed, waiting_about
from app.console.view import PROPOSE, Act, ActionResult, Document, Field, Form, View
from app.console.words import address
from app.core.text import capital
from app.finance import place_payment as placing
from app.orders import unallocated
from reconcile.ledger.records import DISMISSED_AS
from reconcile.money import to_json

DISMISSED: Final = {
    "to_refund": "It is to be refunded",
    "other_business": ("It is not the shop's business"),
}

ONE_ORDER: Final = (
    "One payment for two orders is not supported: assign it to one of them, and book the other by "
    "hand."
)


async def unallocated_document(view: View) -> Document:
    """Return the content of `GET /unallocated?source=&all=&not_ours=&after=`: the payments without
    an order."""
    filters = view.filters({"source": None, "all": ("true",), "not_ours": ("true",)})
    request = unallocated.UnallocatedRequest(
        source=filters["source"],
        after=view.word("after") or "",
        limit=view.rows,
        everything=filters["all"] is not None,
        not_ours=filters["not_ours"] is not None,
    )
    page = await unallocated.list_unallocated(view.context, request)
    totals, now = await unallocated.unallocated_totals(view.context), view.context.clock.now()
    return {
        "filters": filters,
        "not_ours": totals.not_ours,
        "after": view.word("after"),
        "waiting": totals.count,
        "more": totals.more,
        "unclear": totals.unclear,
        "held": [to_json(each) for each in totals.held],
        "payments": [each.document(now=now) for each in page.payments],
        "next": page.next,
    }


async def payment_document(view: View) -> Document:
    """Return the content of `GET /unallocated/{payment}`: a single payment, with suggested
    orders."""
    found = await unallocated.read_unallocated(view.context, view.subject)
    suggested = []
    if found.state == "open":
        suggested = await placing.suggested_orders(view.context, found)
    return found.document(now=view.context.clock.now()) | {
        "suggestions": [each.document() for each in suggested],
        "only": placing.only_fit(suggested),
        "dismissed_words": DISMISSED,
        "proposal": await waiting_about(view, found.id),
    }


# --- actions -------------------------------------------------------------------------------------


async def _payment(view: View) -> unallocated.Unallocated:
    return await unallocated.read_unallocated(view.context, view.needed("payment"))


def _form(
    found: unallocated.Unallocated, *lines: str, fields: tuple[Field, ...] = (), **more: Any
) -> Form:
    money = "an amount that is not clear" if found.held is None else str(found.held)
    seen = Field("replaces", "", kind="hidden", value=found.last_act or "", required=False)
    return Form(
        f"{found.id}: {money}",
        address("unallocated", found.id),
        unallocated.WHY[found.why],
        *lines,
        fields=(*fields, seen),
        **more,
    )


def _button(view: View, *, alone: bool) -> str:
    return "" if alone and view.person.role in MAY["payment_assigned"] else PROPOSE


async def ask_assign_payment(view: View) -> Form:
    found = await _payment(view)
    suggested = await placing.suggested_orders(view.context, found)
    named = view.word("order")
    order = Field(
        "order",
        "The order that it is for",
        value=named or "",
        hint="The order's reference, as the shop states it.",
    )
    because, ready = None, found.state == "open"
    if named is not None and ready:
        because = await placing.why_not_alone(view.context, _asked(view, "assign", order=named))
    lines = [
        f"{each.order}: {', '.join(placing.REASON_WORDS[reason] for reason in each.reasons)}."
        for each in suggested
        if named in (None, each.order)
    ]
    if because is not None:
        lines.append(
            f"{capital(because)}. The payment is assigned when another operator approves that."
        )
    lines.append(ONE_ORDER)
    return _form(
        found,
        *lines,
        fields=(order,),
        ready=ready,
        button=_button(view, alone=because is None and named is not None),
    )


async def ask_withdraw_payment(view: View) -> Form:
    found = await _payment(view)
    because, ready = None, found.state in ("assigned", "dismissed")
    if ready:
        because = await placing.why_not_alone(view.context, _asked(view, "withdraw"))
    line = "The payment then belongs to no order, unless its events or the shop name one."
    if because is not None:
        line = f"{capital(because)}. The decision is withdrawn when another operator approves that."
    return _form(
        found,
        line,
        ready=ready,
        button=_button(view, alone=because is None),
    )


async def ask_dismiss_payment(view: View) -> Form:
    found = await _payment(view)
    why = Field(
        "as",
        "What it is",
        choices=tuple((each, DISMISSED[each]) for each in DISMISSED_AS),
        value=DISMISSED_AS[0],
    )
    to = Field(
        "to",
        "The account that other business goes to",
        hint="Leave it empty for a refund: the money stays a liability until it is refunded.",
        required=False,
    )
    line = "A dismissal needs two people. A later refund or dispute of the payment reopens it."
    return _form(found, line, fields=(why, to), ready=found.state == "open", button=PROPOSE)


def _asked(view: View, kind: placing.ActKind, **more: Any) -> placing.Placing:
    reason = more.pop("reason", "")
    return placing.Placing(
        kind=kind, payment=view.needed("payment"), reason=reason, by=view.person.name, **more
    )


async def _do(view: View, asked: placing.Placing) -> str | ActionResult:
    proposal = await placing.place_payment(view.context, asked)
    if proposal is not None:
        return proposed(proposal)
    return address("unallocated", asked.payment)


async def do_assign_payment(view: View, reason: str) -> str | ActionResult:
    order, seen = view.given.get("order", "").strip(), view.given.get("replaces", "")
    return await _do(view, _asked(view, "assign", order=order, reason=reason, replaces=seen))


async def do_withdraw_payment(view: View, reason: str) -> str | ActionResult:
    seen = view.given.get("replaces", "")
    return await _do(view, _asked(view, "withdraw", reason=reason, replaces=seen))


async def do_dismiss_payment(view: View, reason: str) -> str | ActionResult:
    why = {str(each): each for each in DISMISSED_AS}.get(view.given.get("as", ""))
    to, seen = view.given.get("to", "").strip(), view.given.get("replaces", "")
    return await _do(
        view, _asked(view, "dismiss", dismiss=why, to=to, reason=reason, replaces=seen)
    )


ACTS: Final = (
    Act(
        "Assign a payment to an order",
        "payment_proposed",
        ask_assign_payment,
        do_assign_payment,
        done="The payment belongs to the order now, and the order is judged again.",
    ),
    Act(
        "Withdraw a decision about a payment",
        "payment_proposed",
        ask_withdraw_payment,
        do_withdraw_payment,
        done="The decision was withdrawn; the order that had the payment is judged again.",
    ),
    Act(
        "Dismiss a payment that belongs to no order",
        "payment_proposed",
        ask_dismiss_payment,
        do_dismiss_payment,
        button="Propose it",
    ),
)
