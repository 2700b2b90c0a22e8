"""Commands on orders, on checkout, and on notifications to the shop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from app.cli import operators, printing, running
from app.core.errors import UsageError
from app.core.text import counted
from reconcile.ledger.attention import ACCEPTABLE, NEEDS_A_PERSON
from reconcile.ledger.ledger import OUTCOMES
from reconcile.ledger.records import HOLD_REASONS
from reconcile.ledger.vocabulary import FINDING_CODES

if TYPE_CHECKING:
    from datetime import tzinfo

    from app.checkout.open_checkout import CheckoutResult
    from app.checkout.request import CheckoutRequest
    from app.context.context import AppContext
    from reconcile.instants import Instant


def print_ledger(
    ledger: Mapping[str, Any], records: Sequence[Mapping[str, Any]], *, zone: tzinfo
) -> None:
    """Print a ledger for people. Times of the plain answer are local, all others in UTC."""
    from app.core.zones import local_text

    ship = "may be fulfilled" if ledger["fulfillable"] else "must not be fulfilled"
    if ledger["fulfilled_at"] not in (None, "unknown"):
        ship = f"fulfilled at {ledger['fulfilled_at']}"
    elif ledger["fulfilled_at"] is not None and ledger["fulfillable"]:
        ship = "not known whether it was fulfilled"
    printing.say(f"{ledger['order']}: {ledger['outcome']}, {ship} (as of {ledger['as_of']})")
    print()
    findings = [each["plain"] for each in ledger["findings"]]
    for sentence in dict.fromkeys([*ledger["plain"]["answer"], *findings]):
        printing.say(f"  {local_text(sentence, zone, named=True)}")
    print()
    print("To do:")
    print()
    for sentence in ledger["staff"]:
        printing.say(f"  {local_text(sentence, zone, named=True)}")
    print()
    print("Reasons, with the ids of the evidence in brackets:")
    print()
    for sentence in ledger["explanation"]:
        printing.say(f"  {sentence}")
    print()
    if ledger["timeline"]:
        printing.emit_newest(
            ledger["timeline"],
            columns=("occurred_at", "received_at", "event", "kind", "attempt", "money", "note"),
        )
    if ledger["entries"]:
        printing.emit_newest(ledger["entries"], columns=("at", "kind", "money", "attempt", "cites"))
    if ledger.get("unread"):
        print("Unreadable messages that may be about this order:")
        print()
        printing.emit_newest(
            ledger["unread"],
            columns=("delivery", "received_at", "source", "names_order", "problem"),
        )
    if ledger.get("unallocated"):
        print("Unallocated payments that may be for this order:")
        print()
        printing.emit_newest(ledger["unallocated"], columns=("payment", "received_at", "money"))
    if records:
        printing.emit_newest(list(map(_record, records)), columns=("at", "record", "what", "by"))
    method = ledger["method_class"]
    if ledger["expected_by"] is not None:
        print(f"Slow payment ({method}): the final result is expected by {ledger['expected_by']}.")
    if ledger["revocable_until"] is not None:
        print(f"The customer can revoke the payment ({method}) until {ledger['revocable_until']}.")
    if ledger["next_decision_at"] is not None:
        print(
            f"Next decision at {ledger['next_decision_at']}, unless new evidence arrives earlier."
        )
    if "restricted" in ledger:
        printing.say(ledger["restricted"]["sentence"])
    if "pruned" in ledger:
        printing.say(ledger["pruned"]["sentence"])
    print(f"Fingerprint {ledger['fingerprint']}")


async def _refused(
    context: AppContext, ledger: Mapping[str, Any], as_of: Instant | None
) -> list[str]:
    from app.orders.delivery_log import refused_that_may_be_of

    names = {ledger["order"], *(attempt["reference"] for attempt in ledger["attempts"])}
    found = await refused_that_may_be_of(context, names)
    return [each.delivery_id for each in found if as_of is None or each.received_at <= as_of]


def _print_refused(refused: Sequence[str]) -> None:
    if refused:
        count = counted(len(refused), "delivery", "deliveries")
        counts = (
            "was refused and does not count"
            if len(refused) == 1
            else "were refused and do not count"
        )
        print(
            f"{count} that may be about this order {counts}: `tallyhook deliveries show "
            f"{refused[0]}` says why."
        )


def _record(record: Mapping[str, Any]) -> dict[str, Any]:
    named = [f"{kind} {record[kind]}" for kind in ("session", "payment") if kind in record]
    money = record.get("money")
    amounts = [] if money is None else [f"{money['currency']} {money['amount']}"]
    amounts += ["free"] if record.get("free") else []
    amounts += [
        f"{each['currency']} {each['amount']} paid by {each['kind']}"
        for each in record.get("tenders", ())
    ]
    return {
        "at": record["at"],
        "record": record["kind"],
        "what": ", ".join([*amounts, *named]),
        "by": record.get("author"),
    }


orders_group = typer.Typer(help="Orders and their explained ledgers.", no_args_is_help=True)

HOW_TO_WRITE = (
    "Write a date as 2026-11-20, an amount as KES 1500.00, a phone number as +254 700 000 001."
)

COLUMNS = ("order", "outcome", "fulfillable", "captured", "findings", "explanation")
FOUND = ("order", "outcome", "captured", "phone", "found", "explanation")


def _for_whom(
    rows: Sequence[Mapping[str, Any]], form: printing.Format
) -> Sequence[Mapping[str, Any]]:
    if form is not printing.Format.table:
        return rows
    zone = printing.merchant_zone()
    shown: list[Mapping[str, Any]] = [
        printing.local_sentence(row, zone, name="explanation") for row in rows
    ]
    return [
        printing.local_sentence(row, zone, name="found") if "found" in row else row for row in shown
    ]


@orders_group.command("list")
def list_orders(
    outcome: Annotated[
        str | None,
        typer.Option(help=f"Only orders with this outcome. One of: {', '.join(OUTCOMES)}."),
    ] = None,
    finding: Annotated[str | None, typer.Option(help="Only orders with this finding.")] = None,
    after: Annotated[
        str, typer.Option(help="Only orders whose reference comes after this one.")
    ] = "",
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Maximum number of orders.")] = 100,
    form: printing.FormatOption = printing.Format.table,
) -> None:
    """List orders with their outcome and one line of explanation."""
    from app.orders import read_orders

    for word, words in ((outcome, OUTCOMES), (finding, (*FINDING_CODES, NEEDS_A_PERSON))):
        if word is not None and word not in words:
            raise UsageError(f"{word!r} is none of: {', '.join(words)}")

    async def listed(context: AppContext) -> Sequence[Mapping[str, Any]]:
        ledgers = await read_orders.list_orders(
            context,
            after=after,
            limit=limit,
            outcome=outcome,
            finding=finding,
        )
        return await read_orders.listed_documents(context, ledgers)

    rows = running.reading(listed)
    if form in printing.FLAT:
        rows = [{**row, "captured": row["totals"]["captured"]} for row in rows]
    printing.emit(_for_whom(rows, form), columns=COLUMNS, form=form)
    if len(rows) == limit:
        printing.note(f"There may be more: continue with --after {rows[-1]['order']}")


@orders_group.command("find", epilog="Example: tallyhook orders find KES 1500.00 2026-11-20")
def find(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="TEXT",
            help="What to search for: a reference or its end, a payment, a refund, a session, an "
            "event id, a phone number (+254 700 000 001), an email address, a first and a last "
            "name, a card's last four digits, an amount (KES 1,500.00), a day (2026-11-20 or "
            "20/11/2026), an amount and a day, or the text of the SMS that confirms a payment.",
        ),
    ],
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="Maximum number of orders.")] = 20,
    by: operators.ByOption = None,
    form: printing.FormatOption = printing.Format.table,
) -> None:
    """Find an order by anything that the customer knows about it.

    A search for a person needs the role support or finance, and is recorded in the audit trail. The
    exit code is 5 if nothing is found.
    """
    from app.orders.find_orders import find_orders
    from app.orders.sought import understood

    text = " ".join(words)
    sought = understood(text)
    found = running.with_context(
        partial(find_orders, text=text, limit=limit, by=by),
        purpose="writing" if sought.of_a_person or sought.national else "reading",
    )
    if form is printing.Format.json:
        printing.document(asdict(found), form)
    else:
        rows = [{**hit, "captured": hit["totals"]["captured"]} for hit in found.hits]
        printing.emit(_for_whom(rows, form), columns=FOUND, form=form)
    printing.note(f"Looked for: {'; '.join(found.looked_for)}.")
    for sentence in found.notes:
        printing.note(sentence)
    if found.more:
        printing.note(
            f"There are more than {printing.these(found.hits)}: raise --limit, or narrow the "
            f"search."
        )
    if not found.hits and not found.unallocated:
        places = "; ".join(found.looked_in)
        printing.note(f"No order was found. Searched: {places or 'nothing'}. {HOW_TO_WRITE}")
        raise typer.Exit(5)


@orders_group.command("show")
def show_order(
    reference: printing.OrderArgument,
    as_of: Annotated[
        str | None, typer.Option(help="Use what was known at this RFC 3339 time. Default: now.")
    ] = None,
    with_personal_data: Annotated[
        bool,
        typer.Option(
            "--with-personal-data",
            help="Show the customer's full phone number. Needs --reason; the audit trail records "
            "it.",
        ),
    ] = False,
    reason: Annotated[str, typer.Option(help="Why you need the full phone number.")] = "",
    by: operators.ByOption = None,
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """Show one order's ledger: what happened, why, and what would change it."""

    instant = printing.moment(as_of, "--as-of")

    async def look(
        context: AppContext,
    ) -> tuple[Mapping[str, Any], list[dict[str, Any]], list[str]]:
        from app.orders.read_orders import merchant_records, order_document

        shown = await order_document(context, reference, as_of=instant)
        records = await merchant_records(context, reference, as_of=instant)
        refused = await _refused(context, shown, instant)
        if not with_personal_data:
            return shown, records, refused
        from app.orders.customers import unmask

        phones = await unmask(context, reference, reason=reason, by=by)
        return {**shown, "customer": {"phones": phones}}, records, refused

    found, records, refused = running.with_context(
        look, purpose="writing" if with_personal_data else "reading"
    )
    if printing.printed(found, form):
        return
    print_ledger(found, records, zone=printing.merchant_zone())
    _print_refused(refused)
    if with_personal_data:
        print("\nCustomer's phone: " + (", ".join(found["customer"]["phones"]) or "none is kept"))


@orders_group.command(
    "release", epilog="Example: tallyhook orders release ORD-1042 --reason settled"
)
def release_orders(
    references: printing.OrderArguments = None,
    everything: Annotated[
        bool,
        typer.Option(
            "--all", help="Release all orders that are held for the reason in --held-for."
        ),
    ] = False,
    held_for: Annotated[
        str,
        typer.Option(help=f"The reason of the hold: one of {', '.join(HOLD_REASONS)}."),
    ] = "rules_changed",
    reason: Annotated[str, typer.Option(help="The reason, for the audit trail.")] = "",
    by: operators.ByOption = None,
) -> None:
    """Release held orders: they are published, and the shop is notified.

    After an upgrade, new rules can make more orders fulfillable; these orders are held until you
    release them. `orders list --finding held_back` lists them. If one given order is not held, no
    order is released, and the exit code is 5.
    """
    from app.core.text import counted
    from app.orders import holds
    from app.orders.customers import checked_reason

    if bool(references) == everything:
        raise UsageError("give either the orders to release or --all, not both")
    held = next((each for each in HOLD_REASONS if each == held_for), None)
    if held is None:
        raise UsageError(f"--held-for must be one of: {', '.join(HOLD_REASONS)}")

    async def work(context: AppContext) -> int:
        why = checked_reason(context, reason) if reason else ""
        if references:
            return await holds.release(context, set(references), reason=held, why=why, by=by)
        return await holds.release_all(context, reason=held, why=why, by=by)

    count = running.writing(work)
    if count:
        printing.note(
            f"{counted(count, 'order')} released. The running service or worker publishes them and "
            f"notifies the shop."
        )
    else:
        printing.note(f"No order is held for the reason {held}.")


@orders_group.command(
    "accept",
    epilog="Example: tallyhook orders accept ORD-1042 --finding overpaid --reason tip",
)
def accept_finding(
    reference: printing.OrderArgument,
    finding: Annotated[str, typer.Option(help=f"One of {', '.join(ACCEPTABLE)}.")],
    reason: Annotated[str, typer.Option(help="The reason, for the audit trail.")],
    by: operators.ByOption = None,
) -> None:
    """Accept a finding of an order.

    The finding stays in the ledger. After new evidence, it needs a person again.
    """
    from app.orders import accept_findings

    running.writing(accept_findings.accept_finding, reference, code=finding, reason=reason, by=by)
    printing.note(f"Accepted: {finding} of {reference}.")


NUMBERS = ("order", "phones", "note")


@orders_group.command(
    "unmask",
    epilog="Example: tallyhook orders unmask ORD-1 ORD-2 --purpose refund --reason X",
)
def unmask_orders(
    purpose: Annotated[
        str,
        typer.Option(
            help="Why you need the phone numbers: payment, refund, delivery, warning, authority "
            "or other."
        ),
    ],
    reason: Annotated[str, typer.Option(help="The reason, for the audit trail.")],
    references: printing.OrderArguments = None,
    outcome: Annotated[
        str | None,
        typer.Option(help=f"All orders with one of these outcomes: {', '.join(OUTCOMES)}."),
    ] = None,
    finding: Annotated[str | None, typer.Option(help="All orders with this finding.")] = None,
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """Propose to see the customers' phone numbers of several orders. This needs your own token.

    After another operator's approval, `orders numbers` shows the numbers to you alone, for a day.
    """
    from app.cli import operators
    from app.orders.customers import NAME, UnmaskRequest, chosen_orders, propose_unmasking
    from app.wiring.work import proposals_of

    if bool(references) == bool(outcome or finding):
        raise UsageError("give the orders, or select them with --outcome or --finding")
    for word, words in ((outcome, OUTCOMES), (finding, (*FINDING_CODES, NEEDS_A_PERSON))):
        if word is not None and word not in words:
            raise UsageError(f"{word!r} is none of: {', '.join(words)}")

    async def work(context: AppContext) -> tuple[Mapping[str, Any], str]:
        orders = references or await chosen_orders(context, outcome=outcome, finding=finding)
        asked = UnmaskRequest(orders=orders, purpose=purpose, reason=reason, by=None)
        proposals = proposals_of(context)
        made = await propose_unmasking(context, proposals.kinds[NAME], asked)
        return proposals.document(made), operators.proposal_notice(made)

    made, notice = running.writing(work)
    if form is not printing.Format.table:
        printing.document(made, form)
    printing.note(f"{made['sentence']} {notice}")


@orders_group.command(
    "numbers", epilog="Example: tallyhook --token-file my.token orders numbers ID --format csv"
)
def numbers(
    proposal: Annotated[str, typer.Argument(metavar="ID", help="The approved proposal's id.")],
    form: printing.FormatOption = printing.Format.table,
) -> None:
    """Show the customers' phone numbers that your approved proposal allows you to see.

    This needs your own token. The audit trail records every look at an order's number.
    """
    from app.orders.customers import NAME, see_numbers
    from app.wiring.work import proposals_of

    async def work(context: AppContext) -> Sequence[Mapping[str, Any]]:
        proposals = proposals_of(context)
        found, kind = await proposals.one(proposal), proposals.kinds[NAME]
        seen = await see_numbers(context, kind, found, by=None)
        return [each.document() for each in seen]

    printing.emit(running.writing(work), columns=NUMBERS, form=form)


checkout_group = typer.Typer(help="Payments that this installation starts.", no_args_is_help=True)

EXIT_CODES: Final = {
    "opened": 0, "paid": 1, "expired": 1, "refused": 1, "unresolved": 1, "unknown": 4
}  # fmt: skip
"""Exit codes of a checkout, by state."""


@checkout_group.callback()
def checkout() -> None:
    """Start payments at the payment service."""


@checkout_group.command(
    "start", epilog="Example: tallyhook checkout start --order ORD-1 --amount 15 --currency KES"
)
def start(
    order: Annotated[str, typer.Option(help="The order's reference.")],
    amount: Annotated[str, typer.Option(help="Amount in major units, such as 1500.00.")],
    currency: Annotated[str, typer.Option(help="ISO 4217 code, such as KES.")],
    phone: Annotated[
        str | None,
        typer.Option(help="The customer's phone number: digits with country code, no +."),
    ] = None,
    success_url: Annotated[
        str | None, typer.Option(help="Where the customer returns after paying.")
    ] = None,
    cancel_url: Annotated[
        str | None, typer.Option(help="Where the customer returns if they have not paid.")
    ] = None,
    new_payment: Annotated[
        bool,
        typer.Option("--new-payment", help="Start a new payment after the earlier one has ended."),
    ] = False,
    by: operators.ByOption = None,
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """Open the order's checkout session, or return the open one. The command can safely be
    repeated.

    Exit code 0: the customer can pay · 1: the order is paid, the amount paid is in doubt, its
    session has expired, or the service refuses · 4: nobody knows yet whether the service opened the
    session.
    """
    from app.checkout.open_checkout import result_document
    from app.checkout.request import CheckoutRequest

    request = CheckoutRequest(
        order=order,
        amount=amount,
        currency=currency,
        phone=phone,
        success_url=success_url,
        cancel_url=cancel_url,
    )
    result = running.writing(_start, request, new_payment=new_payment, by=by)
    if form is not printing.Format.table:
        printing.document(result_document(result), form)
    elif result.state == "opened" and result.checkout_url is not None:
        print(result.checkout_url)
    printing.note(result.sentence)
    raise typer.Exit(EXIT_CODES[result.state])


async def _start(
    context: AppContext,
    request: CheckoutRequest,
    *,
    new_payment: bool,
    by: str | None,
) -> CheckoutResult:
    from app.access.operators import author_of_command
    from app.checkout.client import CheckoutClient, client_settings
    from app.checkout.open_checkout import open_checkout

    author = await author_of_command(context, by=by)
    async with CheckoutClient(client_settings(context.settings)) as client:
        return await open_checkout(
            context, client, request=request, new_payment=new_payment, author=author
        )


notifications_group = typer.Typer(
    help="Notifications to the shop at TALLYHOOK_SHOP__URL, and their results.",
    no_args_is_help=True,
)

NOTIFICATION_COLUMNS = (
    "id",
    "order",
    "outcome",
    "state",
    "tries",
    "published_at",
    "due_at",
    "problem",
)


@notifications_group.command("list")
def list_notifications(
    state: Annotated[
        str | None,
        typer.Option(
            help="Only notifications in this state: waiting, stuck (refused again and "
            "again), delivered, dead (given up after three days)."
        ),
    ] = None,
    limit: Annotated[
        int, typer.Option(min=1, max=100_000, help="Maximum number of notifications.")
    ] = 50,
    form: printing.FormatOption = printing.Format.table,
) -> None:
    """List notifications to the shop, newest first. Their ids equal those of the changes in the
    outcome feed."""
    from app.orders import notify_shop

    chosen = next((each for each in notify_shop.STATES if each == state), None)
    if state is not None and chosen is None:
        raise UsageError(f"{state!r} is none of: {', '.join(notify_shop.STATES)}")
    entries = running.reading(notify_shop.list_notifications, state=chosen, limit=limit)
    printing.emit_up_to(
        limit,
        [notify_shop.notification_document(entry) for entry in entries],
        columns=NOTIFICATION_COLUMNS,
        form=form,
    )
    if not entries and state is None:
        printing.note(
            "The shop has not been notified yet. Notifications go to TALLYHOOK_SHOP__URL."
        )


@notifications_group.command("redeliver")
def redeliver(
    ids: Annotated[
        list[int] | None,
        typer.Argument(
            min=1,
            max=printing.MAX_NUMBER,
            help="Ids from `notifications list`. Default: all waiting and dead notifications.",
        ),
    ] = None,
    by: operators.ByOption = None,
) -> None:
    """Send notifications again, with the same ids. After a refusal, further attempts follow for
    three days."""
    from app.orders import notify_shop

    count = running.writing(notify_shop.redeliver, ids or None, by=by)
    if not count:
        printing.note("No notification has failed. Waiting ones are sent automatically.")
        return
    behind = "" if ids else ". The waiting notifications follow as soon as the shop accepts one"
    printing.note(f"The running service will send {counted(count, 'notification')} again{behind}.")
