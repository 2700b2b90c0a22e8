"""Actions on orders and deliveries, such as downloading evidence or notifying the shop again."""

import json
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

from starlette.responses import Response

from app.access.bookmarks import ORDER, pin_order, remove_bookmark, save_list
from app.access.operators import Reading
from app.access.proposals import ProposalKind
from app.console import breaks_pages, orders_pages
from app.console.pages import as_csv, as_json, download, file_part
from app.console.proposals_pages import proposal_shown, proposed
from app.console.view import Act, ActionResult, Document, Field, Filters, Form, View, stated
from app.console.words import FINDINGS, HOLDS, TAKEN, address
from app.core.errors import NotFoundError, UsageError
from app.core.text import capital, counted, is_human_text
from app.evidence.bundle import BundleRequest, build_evidence
from app.evidence.prove_sealed import prove_each
from app.finance.read_lines import lines_naming
from app.monitoring.alarm_messages import TAKEN_STATES, take_alarm
from app.monitoring.watchdog import Watched, alarms
from app.orders import (
    accept_findings,
    customers,
    delivery_log,
    notify_shop,
    order_notes,
    read_orders,
)
from app.receiving.reverify import previewed, reverify
from reconcile.instants import HOUR
from reconcile.ledger.attention import left_to_settle
from reconcile.ledger.ledger import OUTCOMES
from reconcile.ledger.vocabulary import FINDING_CODES

# --- evidence, the shop, refused deliveries -------------------------------------------------------


async def ask_evidence(view: View) -> Form:
    order, as_of = view.needed("order"), view.instant("as_of")
    ledger = await read_orders.order_document(view.context, order, as_of=as_of)
    return Form(
        order,
        address("orders", order),
        " ".join(ledger["plain"]["answer"]),
        "You get one ZIP file. With it a stranger can check, without this program and without "
        "a network, what was received and what was concluded.",
        "Phone numbers and names are masked in it. The audit trail records that you took it.",
        reason=False,
        fields=(
            Field(
                "attachments",
                "What is attached to the order",
                choices=(("", "is not in it"), ("yes", "is in it, by its digests")),
                required=False,
            ),
        ),
    )


async def do_evidence(view: View, reason: str) -> Response:
    """Return the order's redacted evidence bundle as a download."""
    asked = BundleRequest(
        order=view.needed("order"),
        as_of=view.instant("as_of"),
        reason=None,
        by=view.person.name,
        attachments=view.given.get("attachments") == "yes",
    )
    built = await view.console.makes(build_evidence, asked, lines=lines_naming)
    return download(built.archive, f"evidence-{file_part(built.order)}.zip", "application/zip")


async def ask_prove(view: View) -> Form:
    order = view.needed("order")
    count = len(await _sealed_of(view, order))
    what = counted(count, "delivery or outcome", "deliveries and outcomes")
    return Form(
        order,
        address("orders", order),
        f"You get one JSON file. For {what} of this order, it has the proof that the leaf is in "
        "the log of the newest signed checkpoint (RFC 9162). With the public key, anybody can "
        "check that nothing was changed after sealing.",
        ready=count > 0,
        reason=False,
    )


async def do_prove(view: View, reason: str) -> Response:
    """Return the proofs of the order's log entries as a download.

    Raises UsageError if some entries are not sealed yet.
    """
    order = view.needed("order")
    try:
        found = await view.console.makes(prove_each, await _sealed_of(view, order))
    except NotFoundError as error:
        raise UsageError(f"{error}; the running service seals new entries within seconds") from None
    content = json.dumps({"order": order, **found}, indent=1).encode()
    return download(content, f"proof-{file_part(order)}.json", "application/json")


async def _sealed_of(view: View, order: str) -> list[str]:
    arrivals = await read_orders.arrivals_of(view.context, order)
    published = await read_orders.published_of_order(view.context, order)
    return [
        *(each["delivery"] for each in arrivals),
        *(f"revision:{each.seq}" for each in published),
    ]


async def ask_tell_again(view: View) -> Form:
    order = view.needed("order")
    ledger = await read_orders.order_document(view.context, order)
    found = await notify_shop.list_notifications(view.context, state=None, limit=1, order=order)
    if not found:
        lines: tuple[str, ...] = (
            "The shop has no notification of this order: no address for notifications was set.",
        )
    else:
        last = found[0]
        lines = (
            f"The shop is sent its last notification of this order once more: {last.outcome}.",
            f"It was published as number {last.seq}. Its state is {last.state}, after "
            f"{counted(last.tries, 'try', 'tries')}.",
            " ".join(ledger["plain"]["answer"]),
            "A shop that follows the rules recognizes a known number, and ignores the repeat.",
        )
    return Form(order, address("orders", order), *lines, ready=bool(found))


async def do_tell_again(view: View, reason: str) -> str:
    order = view.needed("order")
    found = await notify_shop.list_notifications(view.context, state=None, limit=1, order=order)
    if not found:
        raise UsageError("the shop has no notification of this order")
    await notify_shop.redeliver(view.context, [found[0].seq], by=view.person.name, why=reason)
    return address("orders", order)


async def ask_reverify(view: View) -> Form:
    """Return a form with the present judgement on refused deliveries."""
    source = view.choice("source", tuple(view.context.sources))
    found = await previewed(view.context, only=source)
    lines = [
        f"{counted(found.judged, 'refused delivery is', 'refused deliveries are')} kept. With "
        f"the present secrets and profiles, {len(found.accepted)} would be accepted, and "
        f"{sum(found.refused.values())} stay refused."
    ]
    if found.cut:
        lines.append(f"{found.cut} cannot be judged, because too little of them was stored.")
    lines.append(
        "Accepted deliveries are stored, their orders are judged again, and the shop is notified "
        "of what changes."
        if found.accepted
        else "There is nothing to do: correct the secret or the profile first."
    )
    return Form(source or "all sources", "/deliveries", *lines, ready=bool(found.accepted))


async def do_reverify(view: View, reason: str) -> str:
    await reverify(
        view.context,
        only=view.choice("source", tuple(view.context.sources)),
        by=view.person.name,
        why=reason,
    )
    return "/deliveries"


# --- a number, a body; notes, pins, lists, alarms -------------------------------------------------

LISTS: Final[Mapping[str, Filters]] = {
    "orders": orders_pages.FILTERS,
    "breaks": breaks_pages.FILTERS,
}

_READS: Final[Mapping[str, Reading]] = {"orders": "orders", "breaks": "breaks"}

WORD_MAX: Final = 80
"""Maximum number of characters in a filter of free text."""


async def _readable_order(view: View) -> str:
    order = view.needed("order")
    await read_orders.explain_order(view.context, order)
    return order


async def ask_unmask(view: View) -> Form:
    order = await _readable_order(view)
    return Form(
        order,
        address("orders", order),
        "The next page shows the customer's full phone number, once.",
        "The audit trail records that you saw it, and why; it does not keep the number.",
    )


async def do_unmask(view: View, reason: str) -> ActionResult:
    order = view.needed("order")
    phones = await customers.unmask(view.context, order, reason=reason, by=view.person.name)
    return ActionResult(
        f"Phone number of {order}",
        address("orders", order),
        f"{counted(len(phones), 'number is', 'numbers are')} kept of this order."
        if phones
        else "No number is kept of this order: none came, or it was erased.",
        secret=", ".join(f"+{each}" for each in phones),
    )


async def ask_body(view: View) -> Form:
    entry = await delivery_log.show_delivery(view.context, view.needed("delivery"))
    lines = [
        f"You get the unchanged body: {counted(entry.size, 'byte')}. It may contain the "
        "customer's name, number and address: keep it no longer than you need it.",
        "The audit trail records that you took it, and why.",
    ]
    if delivery_log.is_refused(entry):
        lines.append("This delivery was refused and does not count: anybody may have sent it.")
    return Form(entry.delivery_id, address("deliveries", entry.delivery_id), *lines)


async def do_body(view: View, reason: str) -> Response:
    delivery, by = view.needed("delivery"), view.person.name
    body = await customers.reveal_body(view.context, delivery, reason=reason, by=by)
    return download(body, f"{file_part(delivery)}.body")


async def ask_note(view: View) -> Form:
    order = await _readable_order(view)
    return Form(
        order,
        address("orders", order),
        "Everybody who may see the order reads your note, with your name.",
        "A note can never be changed or removed, not even by an erasure. So write nothing about "
        "the customer: no name, number or address.",
        why="Your note",
    )


async def do_note(view: View, reason: str) -> str:
    order = view.needed("order")
    await order_notes.add_note(view.context, order, note=reason, by=view.person.name)
    return address("orders", order)


async def ask_accept_finding(view: View) -> Form:
    order = await _readable_order(view)
    left = left_to_settle(await read_orders.explain_order(view.context, order))
    if not left:
        nothing = "Nothing is left to settle or accept for this order."
        return Form(order, address("orders", order), nothing, ready=False)
    choices = tuple((code, FINDINGS[code]) for code in left)
    return Form(
        order,
        address("orders", order),
        "Accept a finding if nothing is left to do about it. The finding stays, but the order no "
        "longer needs a person for it.",
        "The order needs a person again as soon as something new about the finding arrives.",
        fields=(Field("finding", "What you accept", choices=choices),),
    )


async def do_accept_finding(view: View, reason: str) -> str:
    order = view.needed("order")
    await accept_findings.accept_finding(
        view.context, order, code=view.given.get("finding", ""), reason=reason, by=view.person.name
    )
    return address("orders", order)


async def ask_release(view: View) -> Form:
    order = view.needed("order")
    holds = (await read_orders.explain_order(view.context, order)).case.filed.holds
    if not holds:
        nothing = "This order is not held: there is nothing to release."
        return Form(order, address("orders", order), nothing, ready=False)
    choices = tuple((each, HOLDS[each]) for each in HOLDS if each in holds)
    return Form(
        order,
        address("orders", order),
        "The order is then published like any other, and the shop is notified that it may ship "
        "the order.",
        "Release it only after you have checked the reason for the hold, for example with the "
        "payment service.",
        fields=(Field("held_for", "What it is held for", choices=choices),),
    )


async def do_release(view: View, reason: str) -> str:
    order, held_for = view.needed("order"), view.given.get("held_for")
    await accept_findings.release_hold(
        view.context, order, held_for=held_for, reason=reason, by=view.person.name
    )
    return address("orders", order)


async def ask_pin(view: View) -> Form:
    order = await _readable_order(view)
    return Form(
        order,
        address("orders", order),
        "The order is pinned above your list of orders, for you alone, until you unpin it.",
        reason=False,
    )


async def do_pin(view: View, reason: str) -> str:
    order = await _readable_order(view)
    await pin_order(view.context, order, operator=view.person.name)
    return address("orders", order)


async def ask_unpin(view: View) -> Form:
    order = view.needed("order")
    return Form(
        order,
        address("orders", order),
        "The order is no longer pinned above your list of orders. The order itself does not "
        "change.",
        reason=False,
    )


async def do_unpin(view: View, reason: str) -> str:
    order = view.needed("order")
    await remove_bookmark(view.context, kind=ORDER, label=order, operator=view.person.name)
    return address("orders", order)


def _list(view: View) -> tuple[str, dict[str, str]]:
    page = stated("list", view.choice("list", LISTS))
    if not view.person.may(_READS[page]):
        raise UsageError("your role may not see this list")
    filters = {name: word for name, word in view.filters(LISTS[page]).items() if word is not None}
    for name, word in filters.items():
        if len(word) > WORD_MAX or not is_human_text(word):
            raise UsageError(f"{name} must have 1 to {WORD_MAX} printable characters")
    return page, filters


async def ask_save_list(view: View) -> Form:
    page, filters = _list(view)
    words = ", ".join(f"{name} {str(word).replace('_', ' ')}" for name, word in filters.items())
    return Form(
        page,
        f"/{page}{'?' if filters else ''}{urlencode(filters)}",
        f"The filters: {words}." if words else "The list has no filters: it shows all.",
        "The saved list is shown above the other one, for you alone. Its content is looked up "
        "again each time.",
        reason=False,
        fields=(Field("label", "Name", hint="Such as: disputed, to call"),),
    )


async def do_save_list(view: View, reason: str) -> str:
    page, filters = _list(view)
    await save_list(
        view.context,
        view.given.get("label", ""),
        kind=page,
        query=urlencode(filters),
        operator=view.person.name,
    )
    return f"/{page}"


async def ask_drop_list(view: View) -> Form:
    page, label = stated("list", view.choice("list", LISTS)), view.needed("label")
    return Form(
        label, f"/{page}", "The saved list is no longer shown above the other one.", reason=False
    )


async def do_drop_list(view: View, reason: str) -> str:
    page, label = view.needed("list"), view.needed("label")
    await remove_bookmark(view.context, kind=page, label=label, operator=view.person.name)
    return f"/{page}"


async def ask_take_alarm(view: View) -> Form:
    name = view.needed("alarm")
    found = (await alarms(Watched(view.context))).get(name)
    if found is None:
        return Form(
            name.replace("_", " "),
            "/",
            "This alarm has ended: there is nothing to do.",
            ready=False,
        )
    return Form(
        name.replace("_", " "),
        "/",
        found.sentence,
        "You take this alarm, so that nobody else starts on it. If somebody else has taken it, "
        "you take it over. The alarm ends by itself when its cause ends.",
        why="What you do about it",
        fields=(
            Field(
                "state",
                "How far it is",
                choices=tuple((each, TAKEN[each]) for each in TAKEN_STATES),
                value=TAKEN_STATES[0],
            ),
        ),
    )


async def do_take_alarm(view: View, reason: str) -> str:
    chosen = view.given.get("state")
    state = next((each for each in TAKEN_STATES if each == chosen), None)
    if state is None:
        raise UsageError(f"state must be one of: {', '.join(TAKEN_STATES)}")
    await take_alarm(
        view.context,
        view.needed("alarm"),
        lasting=await alarms(Watched(view.context)),
        state=state,
        by=view.person.name,
        why=reason,
    )
    return "/"


# --- numbers of several orders --------------------------------------------------------------------

SHOWN_AS: Final = {"page": "a page", "csv": "a file for a spreadsheet (CSV)", "json": "a JSON file"}

_HOURS: Final = customers.OPEN_FOR // HOUR


def _kind(view: View) -> ProposalKind:
    return view.console.proposals.kinds[customers.NAME]


async def _chosen(view: View) -> list[str]:
    ticked = view.request.query_params.getlist("order")
    if ticked or view.word("list") is None:
        return ticked
    return await customers.chosen_orders(
        view.context,
        outcome=view.choice("outcome", OUTCOMES),
        finding=view.choice("finding", FINDING_CODES),
    )


async def ask_unmask_many(view: View) -> Form:
    # A refused form shows the submitted orders again, unless they hold a number.
    chosen = [] if "orders" in view.given else await _chosen(view)
    return Form(
        counted(len(chosen), "order") if chosen else "Several orders",
        "/orders",
        "You propose to see the customers' phone numbers of these orders. Another operator who "
        f"may see numbers must approve it; then you alone see them, for {_HOURS} hours.",
        "The audit trail records every time that you see the numbers, for each order and with "
        "your reason. It does not store the numbers.",
        fields=(
            Field(
                "orders",
                "The orders",
                kind="area",
                value="\n".join(chosen),
                hint=f"One order a line, at most {customers.MOST_ORDERS} orders. Delete the orders "
                "that you do not need.",
            ),
            Field("purpose", "What for", choices=tuple(customers.PURPOSES.items())),
        ),
        why="Why you need to call them",
    )


async def do_unmask_many(view: View, reason: str) -> ActionResult:
    """Propose to show the phone numbers of the selected orders' customers."""
    orders = re.split(r"\r?\n", view.given.get("orders", ""))
    asked = customers.UnmaskRequest(
        orders=[each for each in orders if each.strip()],
        purpose=view.given.get("purpose", ""),
        reason=reason,
        by=view.person.name,
    )
    try:
        return proposed(await customers.propose_unmasking(view.context, _kind(view), asked))
    except NotFoundError as error:  # a mistyped order: the form is shown again
        raise UsageError(str(error)) from None


async def ask_see_numbers(view: View) -> Form:
    found = await proposal_shown(view, view.needed("proposal"))
    back = address("proposals", found.id)
    lines = (found.sentence, f"Your reason: “{found.reason}”")
    try:
        await customers.check_open(view.context, _kind(view), found, by=view.person.name)
    except UsageError as error:
        why = f"{capital(str(error))}."
        return Form(found.subject, back, *lines, why, ready=False)
    return Form(
        found.subject,
        back,
        *lines,
        "The numbers appear in full on the next page only. The audit trail records for each "
        "order that you saw them. Keep a file no longer than you need it.",
        reason=False,
        fields=(Field("as", "As", choices=tuple(SHOWN_AS.items()), value="page"),),
    )


async def do_see_numbers(view: View, reason: str) -> ActionResult | Response:
    """Show the approved phone numbers on a page, or return them as a file."""
    form = view.given.get("as", "page")
    if form not in SHOWN_AS:
        raise UsageError(f"choose how to show the phone numbers: {', '.join(SHOWN_AS)}")
    found = await proposal_shown(view, view.needed("proposal"))
    kind = _kind(view)
    seen = await customers.see_numbers(view.context, kind, found, by=view.person.name)
    document: Document = {**customers.numbers_document(kind, found, seen)}
    if form == "page":
        rows = tuple(
            (each.order, ", ".join(f"+{phone}" for phone in each.phones) or each.note)
            for each in seen
        )
        return ActionResult(
            f"Numbers of {found.subject}",
            address("proposals", found.id),
            f"{counted(sum(bool(each.phones) for each in seen), 'order')} with a number, of "
            f"{len(seen)}. You may look again until {document['open_until']}.",
            columns=("Order", "Numbers"),
            rows=rows,
        )
    zone = view.context.calendar_zone
    answer = as_csv(document, "orders", zone=zone) if form == "csv" else as_json(document)
    answer.headers["Content-Disposition"] = f'attachment; filename="numbers-{found.id}.{form}"'
    return answer


ACTS: Final = (
    Act(
        "Evidence bundle",
        "evidence_built",
        ask_evidence,
        do_evidence,
        button="Download the bundle",
        download=True,
    ),
    Act(
        "Prove that it is sealed",
        "orders",
        ask_prove,
        do_prove,
        button="Download the proofs",
        download=True,
    ),
    Act(
        "Notify the shop again",
        "notifications_redelivered",
        ask_tell_again,
        do_tell_again,
        button="Notify the shop again",
        done="The shop is being notified again. The list of notifications below shows whether "
        "the shop accepts them.",
    ),
    Act(
        "Judge refused deliveries again",
        "deliveries_reverified",
        ask_reverify,
        do_reverify,
        button="Judge them again",
        done="The refused deliveries were judged again. Those that were accepted are in the list "
        "now.",
    ),
    Act("See the phone number", "unmasked", ask_unmask, do_unmask, button="Show it"),
    Act("See customers' numbers", "unmasked", ask_unmask_many, do_unmask_many, button="Propose it"),
    Act("See the numbers", "unmasked", ask_see_numbers, do_see_numbers, button="Show them"),
    Act("Take the body", "unmasked", ask_body, do_body, button="Download it", download=True),
    Act(
        "Accept a finding",
        "finding_accepted",
        ask_accept_finding,
        do_accept_finding,
        done="The finding is accepted. It needs attention again only if something new "
        "arrives for the order.",
    ),
    Act(
        "Release a held order",
        "orders_released",
        ask_release,
        do_release,
        done="The order is released, and judged again.",
    ),
    Act("Add a note", "note_added", ask_note, do_note, done="Your note is below."),
    Act(
        "Pin an order",
        "orders",
        ask_pin,
        do_pin,
        done="The order is pinned above your list of orders.",
    ),
    Act("Unpin an order", "orders", ask_unpin, do_unpin, done="The order is no longer pinned."),
    Act(
        "Save a list",
        "orders",
        ask_save_list,
        do_save_list,
        done="The list is saved. A link above the table opens it.",
    ),
    Act(
        "Take a saved list away",
        "orders",
        ask_drop_list,
        do_drop_list,
        button="Take it away",
        done="The list is no longer saved.",
    ),
    Act(
        "Take an alarm",
        "alarm_taken",
        ask_take_alarm,
        do_take_alarm,
        done="The alarm is now assigned to you.",
    ),
)
