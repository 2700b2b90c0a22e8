"""Slow payments in shipped profiles, and mistakes in a section [slow]."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.providers.fetched import AnswerReader, keep_answer
from app.providers.profile import load_profile
from app.providers.reader import EventReader
from app.providers.request import Incoming
from reconcile.instants import SECOND, Instant, format_known, parse_instant
from reconcile.ledger.events import Event
from tests.providers.builders import load, problem_of
from tests.rows import for_each

FRIDAY = parse_instant("2026-11-20T10:00:00Z")
CREATED = FRIDAY // SECOND


def stripe(kind: str, **members: Any) -> Event:
    event = {
        "id": "evt_1",
        "type": kind,
        "created": CREATED,
        "livemode": False,
        "data": {"object": {"id": "x_1", "metadata": {"order_id": "ORD-1"}, **members}},
    }
    return read("stripe", event)


def read(profile: str, body: dict[str, Any]) -> Event:
    raw = json.dumps(body).encode()
    (found,) = (
        EventReader("shop", load_profile(profile)).read(raw, Incoming((), raw), digest="d").events
    )
    return found


def answered(profile: str, answer: dict[str, Any], *, at: Instant | None = FRIDAY) -> Event:
    asked = Event(
        source="shop", event_id="e", digest="d", kind="k", claim="pending", occurred_at=at,
        order="ORD-1", payment="p_1", standing="unconfirmed",
    )  # fmt: skip
    kept = keep_answer(asked, question="GET …", status=200, answer=json.dumps(answer).encode())
    return AnswerReader("shop", load_profile(profile)).read(kept, digest="d")


def window(event: Event) -> tuple[str | None, str | None, int | None]:
    return event.method, format_known(event.expected_by), event.revocable_days


INTENT = {"object": "payment_intent", "amount": 9000, "currency": "eur"}
PROCESSING = "payment_intent.processing"


@for_each(
    ("types", "said"),
    [
        (["sepa_debit"], ("sepa_debit", "2026-12-10T10:00:00Z", 56)),
        (["us_bank_account"], ("us_bank_account", "2026-12-04T10:00:00Z", 60)),
        (["bacs_debit"], ("bacs_debit", "2026-11-30T10:00:00Z", None)),
        (["card"], (None, None, None)),
        (["card", "sepa_debit"], ("unknown", "2026-12-10T10:00:00Z", 60)),
        (["customer_balance"], ("unknown", "2026-12-10T10:00:00Z", 60)),
        (None, ("unknown", "2026-12-10T10:00:00Z", 60)),
        (7, ("unknown", "2026-12-10T10:00:00Z", 60)),
    ],
)
def test_a_debit_has_the_window_of_its_method_and_an_unknown_one_the_longest(
    types: Any, said: tuple[Any, ...]
) -> None:
    assert window(stripe(PROCESSING, **INTENT, payment_method_types=types)) == said


@pytest.mark.parametrize(
    ("method", "details", "expiry"),
    [
        ("boleto", "boleto_display_details", "expires_at"),
        ("oxxo", "oxxo_display_details", "expires_after"),
        ("konbini", "konbini_display_details", "expires_at"),
        ("multibanco", "multibanco_display_details", "expires_at"),
    ],
)
def test_a_voucher_is_open_until_five_business_days_after_its_own_expiry(
    method: str, details: str, expiry: str
) -> None:
    ends = parse_instant("2026-11-27T10:00:00Z") // SECOND
    event = stripe(
        "payment_intent.requires_action", **INTENT, payment_method_types=[method],
        next_action={"type": details, details: {expiry: ends}},
    )  # fmt: skip
    assert window(event) == (method, "2026-12-04T10:00:00Z", None)


@pytest.mark.parametrize("expiry", ["tomorrow", -1, [], {}])
def test_an_expiry_that_is_no_date_leaves_the_event_readable(expiry: Any) -> None:
    event = stripe(
        "payment_intent.requires_action", **INTENT, payment_method_types=["boleto"],
        next_action={"boleto_display_details": {"expires_at": expiry}},
    )  # fmt: skip
    assert (event.claim, window(event)) == ("pending", (None, None, None))


def test_a_session_that_ended_unpaid_is_slow_and_one_that_is_being_confirmed_is_not() -> None:
    session = {"object": "checkout.session", "payment_status": "unpaid", "amount_total": 9000}
    said = stripe("checkout.session.completed", **session, currency="eur",
                  payment_method_types=["bacs_debit"])  # fmt: skip
    assert window(said) == ("bacs_debit", "2026-11-30T10:00:00Z", None)
    three_d_secure = {"next_action": {"type": "use_stripe_sdk"}}
    asked = stripe("payment_intent.requires_action", **INTENT, **three_d_secure)
    assert window(asked) == (None, None, None)


def test_a_capture_says_by_which_slow_method_it_came() -> None:
    intent = {**INTENT, "status": "succeeded", "amount_received": 9000}
    paid = stripe("payment_intent.succeeded", **intent, payment_method_types=["sepa_debit"])
    assert window(paid) == ("sepa_debit", None, 56)
    paid = stripe("payment_intent.succeeded", **intent, payment_method_types=["card"])
    assert window(paid) == (None, None, None)


@pytest.mark.parametrize(
    ("scheme", "said"),
    [
        ("sepa_core", ("sepa_core", "2026-12-15T00:00:00Z", 56)),
        ("ach", ("ach", "2026-12-09T00:00:00Z", 60)),
        ("bacs", ("bacs", "2026-12-03T00:00:00Z", None)),
        (None, ("unknown", "2026-12-15T00:00:00Z", 60)),
    ],
)
def test_the_window_of_gocardless_counts_from_the_charge_date(
    scheme: str | None, said: tuple[Any, ...]
) -> None:
    payment = {
        "id": "PM1", "amount": 1000, "currency": "EUR", "status": "submitted", "scheme": scheme,
        "charge_date": "2026-11-25", "metadata": {"order_id": "ORD-1"},
    }  # fmt: skip
    event = answered("gocardless", {"payments": payment})
    assert (event.standing, window(event)) == ("fetched", said)
    payment["charge_date"] = "soon"
    undated = answered("gocardless", {"payments": payment}, at=None)
    assert (undated.method, undated.expected_by) == (said[0], None)


def test_what_gocardless_has_not_confirmed_extends_nothing() -> None:
    event = {
        "id": "EV1", "resource_type": "payments", "action": "submitted",
        "created_at": "2026-11-20T10:00:00Z", "links": {"payment": "PM1"},
        "resource_metadata": {"order_id": "ORD-1"},
    }  # fmt: skip
    said = read("gocardless", {"events": [event]})
    assert (said.standing, window(said)) == ("unconfirmed", (None, None, None))


def test_paypal_says_itself_that_an_echeck_is_under_way_and_its_webhook_does_not() -> None:
    capture = {
        "id": "WH-1", "event_type": "PAYMENT.CAPTURE.PENDING", "resource_type": "capture",
        "create_time": "2026-11-20T10:00:00Z",
        "resource": {
            "id": "2GG", "custom_id": "ORD-1", "status_details": {"reason": "ECHECK"},
            "amount": {"value": "90.00", "currency_code": "EUR"},
        },
    }  # fmt: skip
    said = read("paypal", capture)
    assert (said.standing, window(said)) == ("unconfirmed", (None, None, None))
    assert window(answered("paypal", capture)) == ("ECHECK", "2026-11-30T10:00:00Z", None)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"status": "pending", "method": "directdebit", "createdAt": "2026-11-20T10:00:00+00:00"},
         ("directdebit", "2026-12-10T10:00:00Z", 56)),
        ({"status": "open", "method": "banktransfer", "expiresAt": "2026-12-02T10:00:00Z"},
         ("banktransfer", "2026-12-09T10:00:00Z", None)),
        ({"status": "open", "method": "ideal", "expiresAt": "2026-11-20T10:15:00Z"},
         (None, None, None)),
    ],
)  # fmt: skip
def test_mollie_is_asked_for_the_method(answer: dict[str, Any], said: tuple[Any, ...]) -> None:
    payment = {"id": "tr_1", "mode": "test", "metadata": {"order_id": "ORD-1"},
               "amount": {"value": "90.00", "currency": "EUR"}, **answer}  # fmt: skip
    assert window(answered("mollie_classic", payment)) == said


# --- the section itself ---------------------------------------------------------------------------


CLAIMS: dict[str, Any] = {"claims": {"paid": "succeeded", "processing": "pending"}}
SLOW: dict[str, Any] = {"claims": "processing", "method": "json:method"}
WINDOWS: dict[str, Any] = {"sepa": 14}
WHOLE: dict[str, Any] = {**CLAIMS, "slow": SLOW, "slow.windows": WINDOWS}


def test_a_section_that_is_whole_loads(tmp_path: Path) -> None:
    profile = load(tmp_path, **WHOLE)
    assert profile.slow.windows == (("sepa", 14),)


@pytest.mark.parametrize(
    ("change", "tables", "problem"),
    [
        ({"claims": "paid"}, {}, "names 'paid', which no claim maps to pending"),
        ({}, {"windows": {"card": 0}}, "slow.windows: is missing"),
        ({}, {"windows": {"sepa": 41}}, "must be a whole number from 0 to 40"),
        ({}, {"windows": {"a b": 1}}, "is not a method's name"),
        ({"expires": "json:expiry"}, {}, "must be given with slow.expires"),
        ({}, {"vouchers": {"oxxo": 5}}, "must be given with slow.expires"),
        ({}, {"revocable": {"card": 5}}, "is not a slow method of this profile"),
        ({"method": "header:x-method"}, {}, "slow.method"),
    ],
)
def test_each_mistake_of_the_section_is_named(
    tmp_path: Path, change: dict[str, Any], tables: dict[str, Any], problem: str
) -> None:
    sections: dict[str, Any] = {
        f"slow.{name}": days for name, days in ({"windows": WINDOWS} | tables).items()
    }
    assert problem in problem_of(tmp_path, **CLAIMS, slow=SLOW | change, **sections)
