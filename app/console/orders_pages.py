"""Pages of orders and deliveries, and the start page Now."""

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from app.access.bookmarks import ORDER, bookmarks_of
from app.console.proposals_pages import proposal_row, shown_kinds
from app.console.view import Document, Filters, View
from app.console.words import VERDICTS as SENTENCES
from app.context.configured import accounts
from app.core.errors import NotFoundError, UsageError
from app.evidence.dispute_case import dispute_deadlines
from app.finance import close_period, trail, worklist
from app.finance.break_acts import breaks_of
from app.finance.import_folder import import_task_documents
from app.monitoring.alarm_messages import owners_of_alarms
from app.monitoring.health import COUNTED, overview
from app.monitoring.watchdog import Watched, alarms
from app.orders import delivery_log, find_orders, notify_shop, order_notes, read_orders
from app.orders.delivery_log import arrivals_by_minute
from app.orders.read_orders import newest_orders
from app.orders.unallocated import unallocated_totals
from app.receiving.diagnose import diagnose_delivery
from app.receiving.kept_request import no_delivery
from reconcile.instants import Instant, format_instant, format_known
from reconcile.ledger.attention import ACCEPTABLE, NEEDS_A_PERSON
from reconcile.ledger.ledger import OUTCOMES as OUTCOME_WORDS
from reconcile.ledger.vocabulary import FINDING_CODES
from reconcile.money import Money, to_json

# --- Now ------------------------------------------------------------------------------------------

GROUPS: Final = {
    "paid": ("succeeded",),
    "under_way": ("authorized", "pending"),
    "never_tried": ("not_attempted",),
    "not_paid": ("failed", "canceled", "expired", "timed_out"),
    "given_back": ("refunded", "partially_refunded", "charged_back"),
}

SHOWN: Final = 15
"""Maximum number of the start page's orders that need a person."""


async def now_document(view: View) -> Document:
    """Return the content of `GET /`: the start page Now."""
    state = await overview(view.context)
    waiting = await newest_orders(view.context, limit=SHOWN, finding=NEEDS_A_PERSON)
    needing = await read_orders.counted_findings(view.context, [NEEDS_A_PERSON])
    totals = await unallocated_totals(view.context)
    found = await alarms(Watched(view.context, unallocated=totals))
    waits = await view.console.proposals.waiting(kinds=shown_kinds(view))
    owners = await owners_of_alarms(view.context, found)
    return {
        "at": format_instant(view.context.clock.now()),
        "groups": {
            name: sum(state.outcomes.get(word, 0) for word in words)
            for name, words in GROUPS.items()
        }
        | {"needs_a_person": needing[NEEDS_A_PERSON]},
        "outcomes": {word: count for word, count in state.outcomes.items() if count},
        "orders": sum(state.outcomes.values()),
        "arrivals": [
            {"minute": format_instant(minute), "taken": taken, "refused": refused}
            for minute, taken, refused in await arrivals_by_minute(view.context)
        ],
        "alarms": [
            {
                "name": name,
                "reason": alarm.reason,
                "sentence": alarm.sentence,
                "since": None if alarm.since is None else format_instant(alarm.since),
                "owner": None
                if (taken := owners.get(name)) is None
                else {
                    "name": taken.owner,
                    "state": taken.state,
                    "at": format_instant(taken.at),
                },
            }
            for name, alarm in found.items()
        ],
        "proposals": [proposal_row(view, each) for each in waits]
        if view.person.may("proposals")
        else [],
        "import_tasks": await import_task_documents(view.context)
        if view.person.may("imports")
        else [],
        "finance": await _finance_now(view),
        "unallocated": {
            "count": totals.count,
            "held": [to_json(money) for money in totals.held],
            "unclear": totals.unclear,
            "oldest_at": format_known(totals.oldest_at),
            "more": totals.more,
        },
        "waiting": [row_of(each) for each in waiting],
        "state": {
            "unread": state.unread,
            "due": state.due,
            "set_aside": state.aside,
            "notifications_waiting": state.notifications[0],
            "notifications_dead": state.notifications[1],
            "counted_up_to": COUNTED,
            "sealed": state.sealed[0],
            "unsealed": state.sealed[1],
            "free_bytes": state.free,
        },
    }


_HELD: Final = ("held_back", "maybe_other_shop")

DUE_SHOWN: Final = 10
"""Maximum number of disputes with deadlines on the start page."""


async def _finance_now(view: View) -> dict[str, Any] | None:
    person, context = view.person, view.context
    if not person.may("breaks"):
        return None
    breaks = await worklist.open_breaks(context, person=person.name)
    month, counted = None, False
    if person.may("periods"):
        closed, left = await close_period.months(context)
        counted = bool(closed or left)
        month = next((each for each in left if each.end <= context.clock.now()), None)
    disputed = await newest_orders(context, limit=DUE_SHOWN, finding="dispute_open")
    deadlines = await dispute_deadlines(context, [each.ledger.order for each in disputed])
    due = sorted(deadlines.items(), key=lambda each: (each[1] is None, each[1] or 0, each[0]))
    count = await read_orders.counted_findings(context, ["dispute_open"])
    now = context.clock.now()
    return {
        "run": None
        if breaks is None
        else {
            "number": breaks.run.number,
            "at": format_instant(breaks.run.at),
            "breaks": breaks.run.breaks,
            "ties": breaks.run.ties,
        },
        "ages": []
        if breaks is None
        else [
            {
                "age": age,
                "currency": currency,
                "count": breaks.ages[age, currency][0],
                "money": to_json(Money(minor=breaks.ages[age, currency][1], currency=currency)),
            }
            for currency in sorted({currency for _, currency in breaks.ages})
            for age in worklist.AGES
            if (age, currency) in breaks.ages
        ],
        "assigned": 0 if breaks is None else breaks.assigned,
        "month": None
        if month is None
        else {"period": month.name, "ended_at": format_instant(month.end)},
        "months_known": counted,
        "disputed": count["dispute_open"],
        "disputes": [
            {
                "order": order,
                "respond_by": format_known(until),
                "over": until is not None and until < now,
            }
            for order, until in due
        ],
    }


# --- orders ---------------------------------------------------------------------------------------

FILTERS: Final[Filters] = {
    "outcome": OUTCOME_WORDS,
    "group": tuple(GROUPS),
    "finding": (*FINDING_CODES, NEEDS_A_PERSON),
}

CHOOSE: Final = ("numbers",)
"""Values of the parameter that shows checkboxes."""

FOUND: Final = 20
"""Maximum number of orders that a search shows."""

SUGGESTED: Final = 8
"""Maximum number of orders suggested during typing."""

EVENTS: Final = 100
"""Maximum number of events, of attempts and of deliveries on an order's page."""

_CITES: Final = re.compile(r" \[([^\[\]]*?)(?: and ([\d,]+) more)?\]\.$")


def row_of(changed: read_orders.Changed) -> dict[str, Any]:
    """Return an order's row for a list of orders."""
    return {
        **read_orders.order_row(changed.ledger, changed.facts),
        "changed_at": format_instant(changed.at) if changed.seq else None,
        "revision": changed.seq,
    }


async def orders_document(view: View) -> Document:
    """Return the content of `GET /orders?outcome=&group=&finding=&before=&after=&choose=`.

    `group` is a key of GROUPS.
    """
    filters = view.filters(FILTERS)
    outcome, group, finding = (filters[name] for name in ("outcome", "group", "finding"))
    outcomes = GROUPS[group] if group is not None else () if outcome is None else (outcome,)
    untried = finding is None and outcomes == GROUPS["never_tried"]
    after = view.word("after") if untried else None
    found = (
        await read_orders.untried_orders(view.context, after=after or "", limit=view.rows)
        if untried
        else await read_orders.newest_orders(
            view.context,
            before=view.number("before"),
            limit=view.rows,
            outcomes=outcomes,
            finding=finding,
        )
    )
    counts = await read_orders.counted_outcomes(view.context)
    kept = await bookmarks_of(view.context, view.person.name)
    last = found[-1] if len(found) == view.rows else None
    return {
        "filters": {**filters, "before": view.number("before"), "after": after},
        "all": await read_orders.counted_listed(view.context),
        "counts": {word: counts[word] for word in OUTCOME_WORDS if counts.get(word)},
        "choosing": view.choice("choose", CHOOSE) is not None and view.person.may("unmasked"),
        "pinned": [each.label for each in kept if each.kind == ORDER],
        "saved": saved_lists(kept, "orders"),
        "orders": [row_of(each) for each in found],
        "next": None if last is None or untried else last.seq,
        "next_after": last.ledger.order if last is not None and untried else None,
    }


def saved_lists(kept: Sequence[Any], page: str) -> list[dict[str, str]]:
    """Return the lists that a person saved for one page, each with its filters."""
    return [{"label": each.label, "query": each.query} for each in kept if each.kind == page]


async def find_document(view: View, text: str) -> Document:
    """Return the orders and bank lines that match the text.

    The page does not show the text, which can be a phone number.
    """
    found = await find_orders.find_orders(
        view.context,
        text,
        limit=FOUND,
        refused=view.person.may("refused_deliveries"),
        by=view.person.name,
    )
    money = trail.FoundMoney(rows=[])
    if view.person.may("bank"):
        money = await trail.find_money(view.context, text, before=view.instant("before"))
    return {
        "looked_for": found.looked_for,
        "looked_in": found.looked_in,
        "unallocated": found.unallocated,
        "money": money.rows,
        "more_money": money.more,
        "searched_to": format_known(money.before),
        "go_on_with": "" if money.before is None else text,
        "orders": found.hits,
        "more": found.more,
        "notes": found.notes,
    }


async def order_page_document(view: View) -> Document:
    """Return everything about one order for `GET /orders/{order}`."""
    order, as_of = view.subject, view.instant("as_of")
    now = as_of or view.context.clock.now()
    ledger: dict[str, Any] = {**await read_orders.order_document(view.context, order, as_of=as_of)}
    records = await read_orders.merchant_records(view.context, order, as_of=as_of)
    names = {order, *(each["reference"] for each in ledger["attempts"])}
    kept = await bookmarks_of(view.context, view.person.name)
    notified = await notify_shop.list_notifications(
        view.context, state=None, limit=view.rows, order=order
    )
    events, before = ledger.pop("timeline"), view.number("before")
    end = len(events) + 1 if before is None else max(1, min(before, len(events) + 1))
    first = max(1, end - EVENTS)
    numbers = {each["event"]: n for n, each in reversed([*enumerate(events, 1)])}
    sentences = [sentence_of(each) for each in ledger.pop("explanation")]
    cited = {cite for each in sentences for cite in each["cites"]}
    attempts = ledger["attempts"]
    arrivals = await read_orders.arrivals_of(view.context, order, as_of=as_of)
    return {
        "order": order,
        "then": format_known(as_of),
        "answer": " ".join(ledger["plain"]["answer"]),
        "money": order_money(ledger),
        "sentences": sentences,
        "numbers": {cite: numbers[cite] for cite in cited if cite in numbers},
        "events": len(events),
        "first": first,
        "ledger": ledger
        | {"timeline": events[first - 1 : end - 1], "attempts": attempts[-EVENTS:]},
        "attempts": len(attempts),
        "arrivals": arrivals[-EVENTS:],
        "arrived": len(arrivals),
        "refused": await _refused(view, names, as_of),
        "records": records,
        "published": [
            {
                "revision": each.seq,
                "at": format_instant(each.at),
                "outcome": each.outcome,
                "fulfillable": each.fulfillable,
            }
            for each in await read_orders.published_of_order(view.context, order, as_of=as_of)
        ],
        "notes": [
            {"at": format_instant(each.at), "who": each.who, "note": each.reason}
            for each in await order_notes.notes_of(view.context, order)
            if as_of is None or each.at <= as_of
        ],
        "acceptable": any(each["code"] in ACCEPTABLE for each in ledger["findings"]),
        "held": not {each["code"] for each in ledger["findings"]}.isdisjoint(_HELD),
        "pinned": any(each.kind == ORDER and each.label == order for each in kept),
        "notifications": [
            {
                "revision": each.seq,
                "published_at": format_instant(each.published_at),
                "outcome": each.outcome,
                "state": each.state,
                "tries": each.tries,
                "problem": each.problem,
            }
            for each in notified
            if as_of is None or each.published_at <= as_of
        ],
        "breaks": [each.document(as_of=now) for each in await breaks_of(view.context, order)],
    }


async def _refused(view: View, names: set[str], as_of: Instant | None) -> list[dict[str, Any]]:
    if not view.person.may("refused_deliveries"):
        return []
    return [
        {
            "delivery": each.delivery_id,
            "received_at": format_instant(each.received_at),
            "source": each.source,
            "verdict": each.verdict,
        }
        for each in await delivery_log.refused_that_may_be_of(view.context, names)
        if as_of is None or each.received_at <= as_of
    ]


def sentence_of(text: str) -> dict[str, Any]:
    """Split an explanation's sentence into its text and cited ids."""
    found = _CITES.search(text)
    if found is None:
        return {"text": text, "cites": [], "more": None}
    cites = found[1].split(", ")
    return {"text": text[: found.start()] + ".", "cites": cites, "more": found[2]}


def order_money(ledger: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of an order's money, each an amount or None.

    The part `owed_back` excludes money in `on_its_way`.
    """
    totals = ledger["totals"]
    due, held, captured = totals["expected"], totals["held"], totals["captured"]
    money = {
        "price": totals.get("price"),
        "tenders": totals.get("tenders", []),
        "discount": totals.get("discount"),
        "on_top": totals.get("on_top", []),
        "due": due,
        "captured": captured,
        "refunded": totals["refunded"],
        "given_back": totals["refunded"],
        "lost": totals.get("lost"),
        "held": held,
        "disputed": None,
        "owed_back": totals.get("owed_back"),
        "on_its_way": totals.get("on_its_way"),
    }
    if captured is None:
        return money
    back = _added(totals.get("refunded"), totals.get("reversed"))
    money["given_back"] = {"amount": str(back), "currency": captured["currency"]}
    if held is None:
        return money
    left = Decimal(captured["amount"]) - back - _added(totals.get("lost"))
    money["disputed"] = _amount(held, left - Decimal(held["amount"]))
    return money


def _added(*amounts: dict[str, str] | None) -> Decimal:
    return sum((Decimal(each["amount"]) for each in amounts if each), Decimal(0))


def _amount(like: dict[str, str], value: Decimal) -> dict[str, str] | None:
    return {"amount": str(value), "currency": like["currency"]} if value > 0 else None


# --- deliveries -----------------------------------------------------------------------------------


def _delivery_row(entry: Any) -> dict[str, Any]:
    return delivery_log.listed_delivery(entry) | {
        "nameless": delivery_log.is_nameless(entry),
        "sentence": SENTENCES[entry.verdict],
    }


async def deliveries_document(view: View) -> Document:
    """Return the content of `GET /deliveries?verdict=&source=&kind=&order=&no_order=&before=`: the
    list of deliveries."""
    refused = view.person.may("refused_deliveries")
    verdicts = delivery_log.verdicts(refused=refused)
    texts = dict.fromkeys(("source", "kind", "order"))
    filters = view.filters({"verdict": verdicts, **texts, "no_order": ("yes",)})
    asked, before = {**filters, "no_order": filters["no_order"] is not None}, view.word("before")
    page = await delivery_log.list_deliveries(
        view.context, **asked, refused=refused, before=before, limit=view.rows
    )
    rows = [_delivery_row(each) for each in page.entries]
    if view.format == "csv":
        for row, entry in zip(rows, page.entries, strict=True):
            row["order"] = delivery_log.order_cell(entry)
    return {
        "filters": {**filters, "before": before},
        "filtered": any(filters.values()),
        "verdicts": list(verdicts),
        "sources": sorted(view.context.sources),
        "deliveries": rows,
        "next": page.older,
        "searched": page.searched,
    }


async def delivery_document(view: View) -> Document:
    """Return a single delivery."""
    entry = await delivery_log.show_delivery(view.context, view.subject)
    refused = delivery_log.is_refused(entry)
    if refused:
        if not view.person.may("refused_deliveries"):
            raise no_delivery(view.subject)
        await delivery_log.note_reading(view.context, entry, by=view.person.name)
    phones, headers = await delivery_log.masked_parts(view.context, entry)
    pairs = [line.partition(": ") for line in headers]
    return _delivery_row(entry) | {
        "no_order": delivery_log.no_order_sentence(view.context, entry),
        "refused": refused,
        "problem": entry.problem,
        "digest": entry.digest,
        "phone": ", ".join(phones) or None,
        "restricted": entry.restricted,
        "pruned_at": format_known(entry.pruned_at),
        "headers": [{"name": name, "value": value} for name, _, value in pairs],
        "doctor": await _doctor(view) if refused else None,
    }


async def _doctor(view: View) -> dict[str, Any]:
    try:
        found = await diagnose_delivery(
            view.context, view.subject, accounts=accounts(view.context.settings)
        )
    except (UsageError, NotFoundError) as error:
        return {"mistakes": [], "untried": str(error), "unexplained": None}
    return {
        "mistakes": [
            {"mistake": each.mistake, "sentence": each.sentence} for each in found.diagnoses
        ],
        "untried": None,
        "unexplained": None if found.diagnoses else found.unexplained,
    }
