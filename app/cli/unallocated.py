"""Commands on payments without an order: list, show, assign, withdraw and dismiss."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from app.cli import operators, printing, running
from app.core.text import counted

if TYPE_CHECKING:
    from app.context.context import AppContext
    from app.orders.unallocated import UnallocatedRequest

unallocated_group = typer.Typer(
    help="Verified payments without an order: assign them to an order, or dismiss them.",
    no_args_is_help=True,
)

COLUMNS = (
    "id",
    "received_at",
    "outcome",
    "captured",
    "refunded",
    "held",
    "phone",
    "standing",
    "state",
    "why",
)

AT_ONCE = 200
"""Maximum number of payments that are loaded at a time."""

Payment = Annotated[
    str,
    typer.Argument(
        metavar="PAYMENT", help="The payment's id, or the provider's reference for the payment."
    ),
]
ReasonOption = Annotated[str, typer.Option("--reason", help="Why, in your words.")]
Replaces = Annotated[
    str | None,
    typer.Option(
        metavar="ID",
        help="The decision that you replace; `unallocated show` prints its id. An empty text "
        "means no decision. If there is a newer decision, nothing is done.",
    ),
]


@unallocated_group.command("list")
def list_payments(
    source: Annotated[str | None, typer.Option(help="Only payments of this source.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Include dismissed payments and payments without money.")
    ] = False,
    not_ours: Annotated[
        bool,
        typer.Option(
            "--not-ours", help="Instead, list the payments of other shops on your account."
        ),
    ] = False,
    form: printing.FormatOption = printing.Format.table,
) -> None:
    """List payments without an order, oldest first."""
    from app.orders.unallocated import UnallocatedRequest

    asked = UnallocatedRequest(
        source=source, limit=AT_ONCE, everything=everything, not_ours=not_ours
    )

    async def work(context: AppContext) -> int:
        found = _documents(context, asked, flat=form in printing.FLAT)
        return await printing.print_items(found, columns=COLUMNS, form=form)

    left_out = running.reading(work)
    if left_out:
        more = counted(left_out, "more payment is", "more payments are")
        printing.note(f"{more} not shown: --format csv or jsonl shows all.")


async def _documents(
    context: AppContext, asked: UnallocatedRequest, *, flat: bool
) -> printing.Items:
    from app.orders.unallocated import list_unallocated

    after: str | None = ""
    now = context.clock.now()
    while after is not None:
        page = await list_unallocated(context, replace(asked, after=after))
        rows = [each.document(now=now) for each in page.payments]
        yield [{**row, "why": row["why"]["sentence"]} for row in rows] if flat else rows
        after = page.next


@unallocated_group.command("show")
def show(payment: Payment, form: printing.DocumentOption = printing.Format.table) -> None:
    """Show one payment: its money, why it has no order, and the orders that fit it."""
    from app.finance.place_payment import suggested_orders
    from app.orders.unallocated import read_unallocated

    async def work(context: AppContext) -> dict[str, Any]:
        found = await read_unallocated(context, payment)
        suggested = await suggested_orders(context, found) if found.state == "open" else []
        suggestions = [each.document() for each in suggested]
        return {**found.document(now=context.clock.now()), "suggestions": suggestions}

    document = running.reading(work)
    if printing.printed(document, form):
        return
    printing.say(document["why"]["sentence"])
    beside = ("why", "suggestions")
    printing.members({name: document[name] for name in document if name not in beside})
    for each in document["suggestions"]:
        words = ", ".join(reason["words"] for reason in each["reasons"])
        printing.say(f"{each['order']}{' fits' if each['fits'] else ''}: {words}.")


@unallocated_group.command(
    "assign",
    epilog="Example: tallyhook unallocated assign QK12 --order ORD-7 --reason 'she rang'",
)
def assign(
    payment: Payment,
    order: Annotated[str, typer.Option(metavar="REF", help="The order that the payment is for.")],
    reason: ReasonOption,
    replaces: Replaces = None,
    by: operators.ByOption = None,
) -> None:
    """Assign a payment to an order, or propose this if a second person must approve.

    A payment cannot be divided: assign it to one order, and book the other by hand.
    """
    _place(
        payment,
        {"kind": "assign", "order": order, "replaces": replaces, "reason": reason, "by": by},
        done=f"Assigned to {order}. The ledgers of the affected orders will be computed again.",
    )


@unallocated_group.command("withdraw")
def withdraw(
    payment: Payment,
    reason: ReasonOption,
    replaces: Replaces = None,
    by: operators.ByOption = None,
) -> None:
    """Withdraw a decision about a payment, or propose this if a second person must approve."""
    _place(
        payment,
        {"kind": "withdraw", "replaces": replaces, "reason": reason, "by": by},
        done="Withdrawn: the payment is no longer assigned or dismissed.",
    )


@unallocated_group.command("dismiss")
def dismiss(
    payment: Payment,
    as_: Annotated[
        Literal["to_refund", "other_business"],
        typer.Option(
            "--as",
            help="Why the payment needs no order: you will refund it, or it is not the shop's "
            "business.",
        ),
    ],
    reason: ReasonOption,
    to: Annotated[
        str,
        typer.Option(
            metavar="ACCOUNT",
            help="If the payment is not the shop's business: the account to post it to.",
        ),
    ] = "",
    replaces: Replaces = None,
    by: operators.ByOption = None,
) -> None:
    """Propose to dismiss a payment that belongs to no order. A second person must approve this."""
    _place(
        payment,
        {"kind": "dismiss", "dismiss": as_, "to": to, "replaces": replaces, "reason": reason}
        | {"by": by},
        done="Dismissed.",
    )


def _place(payment: str, asked: dict[str, Any], *, done: str) -> None:
    from app.finance.place_payment import Placing, place_payment

    proposal = running.writing(place_payment, Placing(payment=payment, **asked))
    printing.note(done if proposal is None else operators.proposal_notice(proposal))
