"""Other shops and sellers on our own provider account, in the twelve most used profiles.

Each provider's documented payment, refund and dispute are sent by another shop, which names our
order. Only the member that states the shop differs from our own.
"""

import copy
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import pytest

from app.config.settings import SourceSettings
from app.context.configured import only_locations
from app.providers.fetched import AnswerReader
from app.providers.reader import EventReader
from app.providers.request import Incoming
from app.providers.source import Source
from reconcile.ledger.events import Delivery, Event
from reconcile.ledger.fold import fold
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.records import Record
from reconcile.ledger.shops import judge_shops
from tests.providers.builders import raw
from tests.providers.test_payloads import LINES, answer_to, sent, source_of
from tests.reconcile.build import POLICY, delivery, history, record, seconds

OURS, THEIRS = "1001", "2002"


@dataclass(frozen=True)
class Shared:
    """Events of one provider, and the member that tells shops apart.

    opens    names of payloads that open or pay the payment, and state the member
    follows  names of payloads of its refunds and disputes, which need not state it
    path     the member in the body, or in the answer
    only     the member as ONLY names it; empty: ACCOUNT asks for it
    """

    profile: str
    opens: tuple[str, ...]
    follows: tuple[str, ...]
    path: tuple[Any, ...]
    only: str = ""


METADATA = "data.object.metadata.shop"
ITEM = ("notificationItems", 0, "NotificationRequestItem", "merchantAccountCode")
SHARED = (
    Shared("stripe", ("pi_succeeded",), ("refund_created", "dispute_created"),
           ("body", "data", "object", "metadata", "shop"), METADATA),
    Shared("stripe", ("pi_succeeded", "refund_created", "dispute_created"), (),
           ("body", "account")),
    Shared("paypal", ("capture_completed",), ("refunded_in_part", "dispute_created"),
           ("answer", "resource", "payee", "merchant_id")),
    Shared("adyen", ("authorised", "captured"), ("refund_in_part", "chargeback"),
           ("body", *ITEM)),
    Shared("square", ("completed",), ("refund_completed", "dispute_created"),
           ("body", "data", "object", "payment", "location_id")),
    Shared("checkout_com", ("approved", "captured"), ("refunded_in_part", "dispute_received"),
           ("body", "data", "processing_channel_id")),
    Shared("checkout_com", ("approved", "captured"), ("refunded_in_part", "dispute_received"),
           ("body", "data", "metadata", "shop"), "data.metadata.shop"),
    Shared("braintree", ("settled",), ("refund_settled", "dispute_opened"),
           ("body", "merchant-account-id"),
           "notification.subject.transaction.merchant_account_id"),
    Shared("razorpay", ("order_paid", "captured"), ("refund_processed", "dispute_created"),
           ("body", "account_id")),
    Shared("razorpay", ("order_paid",), ("refund_processed", "dispute_created"),
           ("body", "payload", "payment", "entity", "notes", "shop"),
           "payload.payment.entity.notes.shop"),
    Shared("paystack", ("charge_success",), ("refund_processed", "dispute_create"),
           ("body", "data", "metadata", "shop"), "data.metadata.shop"),
    Shared("flutterwave", ("charge_succeeded",), ("refund_succeeded",),
           ("body", "data", "meta", "shop"), "data.meta.shop"),
    Shared("mpesa_stk", ("paid",), (), ("answer", "shop"), "shop"),
    Shared("mollie", ("payment_paid",), ("refund_refunded", "chargeback_received"),
           ("body", "_embedded", "entity", "profileId")),
    Shared("mercadopago", ("approved",), ("refunded_in_part", "chargeback_open"),
           ("answer", "collector_id")),
)  # fmt: skip

each_shared = pytest.mark.parametrize(
    "shared", SHARED, ids=[f"{each.profile}-{each.path[-1]}" for each in SHARED]
)


def source(shared: Shared, *, asks: bool) -> Source:
    """Make our source; where it asks, with the setting that names our shop."""
    known = copy.copy(source_of(shared.profile))
    if asks:
        profile = known.profile
        given = SourceSettings(only={shared.only: (OURS,)} if shared.only else {})
        ours: dict[str, Any] = {
            "accounts": frozenset() if shared.only else frozenset({OURS}),
            "only": only_locations(given, profile),
        }
        known._reader = EventReader(shared.profile, profile, **ours)
        known._answers = AnswerReader(shared.profile, profile, **ours) if known._answers else None
    return known


def read(shared: Shared, name: str, shop: str, *, asks: bool = True) -> list[Event]:
    """Read a documented payload, and its provider's answer, that state a shop."""
    line = copy.deepcopy(next(each for each in LINES[shared.profile] if each["name"] == name))
    if name in shared.opens and shop:
        put(line, shared.path, shop)
    of = source(shared, asks=asks)
    request = sent(of, line)
    incoming = Incoming(raw(request.headers), request.body, line.get("method", "POST"), request.url)
    events = list(of.read(incoming, digest=hashlib.sha256(request.body).hexdigest()).events)
    return events + ([answer_to(of, line, events[0])] if "answer" in line else [])


def put(line: dict[str, Any], path: tuple[Any, ...], value: str) -> None:
    if isinstance(line[path[0]], str):
        tag = path[-1]
        line["body"] = line["body"].replace(
            "<transaction>", f"<transaction><{tag}>{value}</{tag}>", 1
        )
        return
    place: Any = line
    for step in path[:-1]:
        if isinstance(place, dict):
            place.setdefault(step, {})
        if step == path[-2] and not isinstance(place[step], dict):
            place[step] = {}
        place = place[step]
    place[path[-1]] = value


def deliveries(shared: Shared, shop: str, *, asks: bool = True) -> list[Delivery]:
    names = (*shared.opens, *shared.follows)
    stated = shop if asks else ""
    events = [event for name in names for event in read(shared, name, stated, asks=asks)]
    return [delivery(f"d{number}", number, event) for number, event in enumerate(events)]


def ledger(members: Iterable[Delivery | Record], order: str) -> Ledger:
    placed = record("r1", "order_placed", 0, order=order)
    return fold(history(placed, *members, order=order), policy=POLICY, as_of=seconds(1000))


def order_of(members: list[Delivery]) -> str:
    found = [each.event.order or each.event.suggested for each in members]
    return next((order for order in found if order is not None), "ORD-1042")


@each_shared
def test_another_shops_payment_and_all_that_follows_it_change_no_order(shared: Shared) -> None:
    theirs = deliveries(shared, THEIRS)
    order = order_of(theirs)
    assert ledger(deliveries(shared, THEIRS, asks=False), order).entries  # it would have counted
    bare = ledger([], order)
    for size in range(1, len(theirs) + 1):
        for some in permutations(theirs, size):
            found = ledger(some, order)
            assert (found.entries, found.fulfillable) == ((), False)
    assert found.outcome == bare.outcome


@each_shared
def test_our_own_payment_counts_as_if_nothing_were_asked(shared: Shared) -> None:
    ours, plain = deliveries(shared, OURS), deliveries(shared, OURS, asks=False)
    order = order_of(plain)
    found, expected = ledger(ours, order), ledger(plain, order)
    assert found.outcome == expected.outcome
    assert [(e.kind, e.money, e.at) for e in found.entries] == [
        (e.kind, e.money, e.at) for e in expected.entries
    ]
    assert found.case.not_ours == []


@each_shared
def test_refunds_and_disputes_wait_for_the_payment_that_says_whose_they_are(
    shared: Shared,
) -> None:
    waiting = [
        event
        for name in shared.follows
        for event in read(shared, name, OURS)
        if event.shop == "unstated"
    ]
    paid = [event for name in shared.opens for event in read(shared, name, OURS)]
    theirs = [event for name in shared.opens for event in read(shared, name, THEIRS)]
    signed = [event for event in waiting if event.standing != "unconfirmed"]
    assert set(judge_shops(waiting).aside.values()) <= {"unknown"}
    for event in signed:
        assert judge_shops([event]).aside == {event.key: "unknown"}
        assert judge_shops([event, *paid]).aside == {}
        assert judge_shops([event, *theirs]).aside[event.key] == "other"


def test_a_connected_accounts_event_never_counts_unless_its_account_is_listed() -> None:
    connect = Shared("stripe", ("pi_succeeded",), (), ("body", "account"))
    [event] = read(connect, "pi_succeeded", "acct_1SELLER", asks=False)
    assert event.shop == "other"
    [listed] = read(connect, "pi_succeeded", OURS)
    assert listed.shop == "ours"
    [own] = read(Shared("stripe", (), (), ()), "pi_succeeded", "")
    assert own.shop is None
