"""A verified body is read as an event exactly, or not at all."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.core.reading import Reading, Unreadable
from app.providers.profile import load_profile
from app.providers.request import Incoming
from app.providers.source import Source
from reconcile.instants import parse_instant
from reconcile.ledger.events import CLAIM_KINDS, UNCLEAR_AMOUNT, Event
from reconcile.money import Money
from tests.providers.builders import EVENT, body_of, changed, made, only, source
from tests.rows import for_each
from tests.searching import examples

DIGEST = "d" * 64
SOURCE = source()
BACK = [
    "refunded", "refund_pending", "refund_failed", "reversed",
    "disputed", "dispute_won", "dispute_lost",
]  # fmt: skip


def kes(minor: int) -> Money:
    return Money(minor=minor, currency="KES")


def reading(body: bytes, headers: Any = ()) -> Reading:
    return SOURCE.read(Incoming(headers, body), digest=DIGEST)


def event(**values: Any) -> Event:
    (only,) = reading(body_of(**values)).events
    return only


def raw(amount: str, currency: str = '"KES"') -> bytes:
    """Return the example with the payment's amount and currency as given."""
    body = body_of(data__payment__amount="AMOUNT", data__payment__currency="CURRENCY").decode()
    return body.replace('"AMOUNT"', amount).replace('"CURRENCY"', currency).encode()


def test_the_published_example_is_read_whole_except_for_the_phone() -> None:
    seen = reading(body_of(data__payment__reason="insufficient_funds"))
    assert seen.environment == "sandbox"
    assert seen.events == (
        Event(
            source="acme",
            event_id="evt_01",
            digest=DIGEST,
            kind="payment.succeeded",
            claim="succeeded",
            occurred_at=parse_instant("2026-11-20T10:00:00.123Z"),
            order="ORD-1042",
            session="cs_01",
            payment="pay_01",
            money=kes(150050),
            order_money=kes(150050),
            reason="insufficient_funds",
        ),
    )
    assert EVENT["data"]["customer"]["phone"] not in repr(seen)


@pytest.mark.parametrize(
    ("member", "value"), [("amount", "ten"), ("transaction_reference", 7), ("createdAt", "soon")]
)
def test_an_error_names_the_location_that_the_body_has(member: str, value: object) -> None:
    """Not the first of the profile's list."""
    paystack = Source(name="p", profile=load_profile("paystack"), secrets=["sk_test_" + "k7" * 16])
    data = {"id": 1, "transaction_reference": "A", "amount": 1, "currency": "NGN", member: value}
    body = json.dumps({"event": "refund.processed", "data": data}).encode()
    with pytest.raises(Unreadable) as caught:
        paystack.read(Incoming([], body), digest=DIGEST)
    assert str(caught.value).startswith(f"data.{member} ")


@for_each("claim", sorted({*CLAIM_KINDS} - {"unrecognized", "ignored"}))
def test_every_published_type_has_its_claim(claim: str) -> None:
    assert event(type=f"payment.{claim}").claim == claim


@pytest.mark.parametrize("kind", ["payment.succeeded ", "Payment.Succeeded", "unrecognized", "x"])
def test_an_unknown_type_is_kept_as_unrecognized(kind: str) -> None:
    seen = event(type=kind)
    assert (seen.kind, seen.claim, seen.order) == (kind, "unrecognized", "ORD-1042")


def test_an_unknown_type_of_unknown_shape_keeps_only_id_and_type() -> None:
    seen = event(type="customer.updated", data=["other", "shape"])
    assert seen == Event(
        source="acme",
        event_id="evt_01",
        digest=DIGEST,
        kind="customer.updated",
        claim="unrecognized",
    )


@pytest.mark.parametrize("gone", ["data__payment", "data__session", "data__order", "data"])
def test_each_part_of_an_event_may_be_missing(gone: str) -> None:
    for nothing in (..., None):
        seen = event(**{gone: nothing})
        assert (seen.payment is None) == (gone in ("data__payment", "data"))
        assert (seen.session is None) == (gone in ("data__session", "data"))
        assert (seen.order is None) == (gone in ("data__order", "data"))


def test_an_event_without_a_date_has_none() -> None:
    assert event(occurred_at=...).occurred_at is None
    assert event(occurred_at=None).occurred_at is None


REFUND = {"reference": "re_01", "amount": 500, "currency": "KES"}


@for_each("claim", BACK)
def test_money_going_back_has_the_refunds_amount_and_reference(claim: str) -> None:
    seen = event(type=f"payment.{claim}", data__refund=REFUND)
    assert (seen.money, seen.movement) == (kes(50000), "re_01")


@for_each("claim", BACK)
def test_money_going_back_without_an_amount_has_the_payments(claim: str) -> None:
    seen = event(type=f"payment.{claim}", data__payment__amount=1200)
    assert (seen.money, seen.movement) == (kes(120000), None)
    assert event(type=f"payment.{claim}", data__payment=...).money is None


def test_a_refund_may_state_only_the_sum_so_far_or_also_its_own_amount() -> None:
    seen = event(type="payment.refunded", data__refunded_total=700)
    assert (seen.money, seen.movement, seen.refunded_total) == (None, None, kes(70000))
    seen = event(type="payment.refunded", data__refund=REFUND, data__refunded_total=700)
    assert (seen.money, seen.movement, seen.refunded_total) == (kes(50000), "re_01", kes(70000))


@pytest.mark.parametrize("claim", ["succeeded", "refund_pending", "disputed", "declined"])
def test_any_final_claim_may_state_a_sum(claim: str) -> None:
    seen = event(type=f"payment.{claim}", data__refunded_total=700)
    assert (seen.money, seen.refunded_total) == (kes(150050), kes(70000))


@pytest.mark.parametrize("kind", ["payment.pending", "payment.unheard_of"])
def test_a_claim_that_is_not_final_states_no_sum(kind: str) -> None:
    """A sum counts as money that went back."""
    assert event(type=kind, data__refunded_total=700).refunded_total is None


@pytest.mark.parametrize("claim", ["succeeded", "authorized"])
def test_a_success_without_an_amount_has_the_orders_amount(claim: str) -> None:
    seen = event(type=f"payment.{claim}", data__payment__amount=..., data__refund=REFUND)
    assert (seen.money, seen.movement) == (kes(150050), None)


@for_each("claim", ["pending", "declined", "canceled", "expired", "timed_out"])
def test_claims_that_move_no_money_take_no_amount_from_the_order(claim: str) -> None:
    assert event(type=f"payment.{claim}").money == kes(150050)
    seen = event(type=f"payment.{claim}", data__payment__amount=...)
    assert (seen.money, seen.order_money) == (None, kes(150050))


def test_an_amount_without_a_currency_takes_the_orders_currency() -> None:
    seen = event(
        data__payment__currency=..., data__order={"currency": "JPY"}, data__payment__amount=5
    )
    assert (seen.money, seen.order_money) == (Money(minor=5, currency="JPY"), None)


@for_each(
    ("amount", "minor"),
    [
        ("1500.00", 150000),
        ("1500", 150000),
        ("1500.5", 150050),
        ("0", 0),
        ("-0.0", 0),
        ("1500.500", 150050),
        ("1.5e3", 150000),
        ('"1500.00"', 150000),
        ('"0.01"', 1),
        ("92233720368547758.07", 2**63 - 1),
        ("0.07", 7),
        ("1.1", 110),
    ],
)
def test_amounts_are_exact(amount: str, minor: int) -> None:
    (seen,) = reading(raw(amount)).events
    assert seen.money == kes(minor)


@for_each(
    "amount",
    [
        "-1",
        "-0.01",
        "1e999999999",
        "92233720368547758.08",
        "9223372036854775807",
        "true",
        "[]",
        "{}",
        '""',
        '" "',
        '"abc"',
        '"-5"',
        '"+5"',
        '"1e3"',
        '"1,500.00"',
        '"1_500"',
        '" 1500"',
        '"1500."',
        '".5"',
        '"NaN"',
        '"0x10"',
        '"\uff11\uff15"',
        '"%s"' % ("9" * 5000),
        "1" + "0" * 30,
    ],
)
def test_an_amount_that_is_no_number_is_unreadable(amount: str) -> None:
    with pytest.raises(Unreadable):
        reading(raw(amount))


@pytest.mark.parametrize("amount", ["1500.001", '"0.001"', "0.000000001", "1e-999999999"])
def test_an_amount_that_is_not_exact_keeps_the_event_and_is_marked_unclear(amount: str) -> None:
    """Also where the order states the same amount exactly: the event does not mean that one."""
    (seen,) = reading(raw(amount)).events
    assert (seen.event_id, seen.claim, seen.order) == ("evt_01", "succeeded", "ORD-1042")
    assert (seen.money, seen.unclear) == (None, UNCLEAR_AMOUNT)


def test_the_amount_of_a_refund_that_is_not_exact_is_not_that_of_its_payment() -> None:
    seen = event(type="payment.refunded", data__refund={"amount": 10.001, "currency": "KES"})
    assert (seen.money, seen.unclear) == (None, UNCLEAR_AMOUNT)


@for_each("amount", ["10900.0", '"10900.00"', "10900"])
@for_each(("currency", "factor"), [("JPY", 1), ("KES", 100), ("KWD", 1_000)])
def test_a_number_whose_decimals_are_zero_is_whole_in_any_currency(
    amount: str, currency: str, factor: int
) -> None:
    (seen,) = reading(raw(amount, f'"{currency}"')).events
    assert seen.money == Money(minor=10_900 * factor, currency=currency)
    assert seen.unclear is None


UNDESCRIBED: list[object] = [None, "", " ", 1, 1.5, True, [], {}, ["x"]]


@for_each(
    ("reason", "kept"),
    [
        ("declined\nby the bank", "declined\\nby the bank"),
        ("a\x00b\u2028c", "a\\x00b\\u2028c"),
        ("\ud800", "\\ud800"),
        ("x" * 201, "x" * 200),
        *((value, None) for value in UNDESCRIBED),
    ],
)
def test_words_that_nothing_depends_on_never_make_an_event_unreadable(
    reason: object, kept: str | None
) -> None:
    assert event(data__payment__reason=reason).reason == kept


@for_each(
    "currency",
    ['"XXQ"', '"kes"', '"KE"', '"KESH"', '""', "404", "[]", "true", '"K\\u0000S"', '"XAU"'],
)
def test_an_unknown_currency_is_unreadable(currency: str) -> None:
    with pytest.raises(Unreadable):
        reading(raw("1500", currency))


def test_an_amount_without_any_currency_is_unreadable() -> None:
    for order in (..., {"reference": "ORD-1042"}):
        with pytest.raises(Unreadable, match=r"data\.payment\.amount has no currency"):
            event(data__payment__currency=..., data__order=order)


TEXT_FIELDS = ["type", "data__order__reference", "data__session__reference"]
TEXT_FIELDS += ["data__payment__reference"]


UNSTORABLE = ["", " ", "\u00a0\u3000", "a\x00", "a\nb", "\x7f", "\x85", "\u2028"]
UNSTORABLE += ["\ud800", "\udc00x", "x" * 201]


@for_each("path", TEXT_FIELDS)
@for_each("value", [*UNSTORABLE, 1, 1.5, True, [], {}, ["x"]])
def test_a_text_that_cannot_be_stored_is_unreadable(path: str, value: object) -> None:
    with pytest.raises(Unreadable, match=path.replace("__", r"\.")):
        event(**{path: value})


@for_each("value", ["x", "ORD 1042", "\u0926\u200d\u093e", "x" * 200, "\U0001f600", "\u00a0a"])
def test_any_other_text_is_kept_as_it_is(value: str) -> None:
    assert event(data__order__reference=value).order == value


@for_each("value", ["", " ", "evt 1", "evt_\u00e9", "evt\n", "x" * 256, "\x7f", 7, True, [], {}])
def test_an_id_that_is_not_printable_ascii_is_unreadable(value: object) -> None:
    with pytest.raises(Unreadable, match=r"^id is not"):
        reading(body_of(id=value), headers=[(b"webhook-id", b"evt_02")])


def test_the_id_comes_from_the_body_else_from_the_header() -> None:
    header = [(b"webhook-id", b"evt_02")]
    assert reading(body_of(), header).events[0].event_id == "evt_01"
    assert reading(body_of(id=...), header).events[0].event_id == "evt_02"
    assert reading(body_of(id=None), header).events[0].event_id == "evt_02"
    for headers in ((), [(b"webhook-id", b"")], [(b"webhook-id", b"\xff")], header * 2):
        with pytest.raises(Unreadable):
            reading(body_of(id=...), headers)
    assert event(id="x" * 255).event_id == "x" * 255


@for_each(
    ("values", "fault"),
    [
        ({"id": ...}, "id is missing"),
        ({"type": ...}, "type is missing"),
        ({"type": None}, "type is missing"),
        ({"occurred_at": ""}, "occurred_at is not an RFC 3339"),
        ({"occurred_at": "yesterday"}, "occurred_at is not an RFC 3339"),
        ({"occurred_at": "2026-11-20T10:00:00"}, "occurred_at is not an RFC 3339"),
        ({"occurred_at": "2026-02-30T10:00:00Z"}, "occurred_at is not an RFC 3339"),
        ({"occurred_at": "1969-12-31T23:59:59Z"}, "occurred_at is not an RFC 3339"),
        ({"occurred_at": 1614265330}, "occurred_at is not a text"),
        ({"environment": "production"}, "environment is neither sandbox nor live"),
        ({"environment": "Live"}, "environment is neither"),
        ({"environment": ""}, "environment is neither"),
        ({"environment": True}, "environment is neither"),
        ({"environment": []}, "environment is neither"),
        ({"data": []}, "is not an object"),
        ({"data": "x"}, "is not an object"),
        ({"data__order": "ORD-1042"}, "is not an object"),
        ({"data__payment": ["pay_01"]}, "is not an object"),
        ({"data__order__amount": -1}, r"data\.order\.amount is negative"),
        (
            {"type": "payment.refunded", "data__refund": {"reference": 5}},
            r"data\.refund\.reference",
        ),
        ({"type": "payment.refunded", "data__refund": {"amount": "x"}}, r"data\.refund\.amount"),
    ],
)
def test_an_invalid_field_is_unreadable_and_named(values: dict[str, Any], fault: str) -> None:
    with pytest.raises(Unreadable, match=fault):
        event(**values)


@for_each("body", [b"[]", b'"x"', b"1", b"null", b"true", b"[{}]"])
def test_a_body_that_is_no_object_is_unreadable(body: bytes) -> None:
    with pytest.raises(Unreadable, match="not a JSON object"):
        reading(body)


def test_unused_fields_may_hold_anything() -> None:
    more = {"note": "\ud800\x00", "big": 1.5, "list": [1, [2]], "": {"": None}}
    body = json.dumps({**changed(), **more}).encode()
    assert reading(body).events == reading(body_of()).events


@pytest.mark.parametrize("environment", ["sandbox", "live", None])
def test_the_environment_is_read_where_it_is_stated(environment: str | None) -> None:
    assert reading(body_of(environment=environment)).environment == environment


ODD = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=4,
)
PATHS = ["id", "type", "occurred_at", "environment", "data", "data__order", "data__payment"]
PATHS += ["data__payment__amount", "data__order__currency", "data__session__reference"]


@pytest.mark.slow
@settings(derandomize=True, database=None, max_examples=examples(300))
@given(path=st.sampled_from(PATHS), value=ODD)
def test_no_value_of_a_field_raises_anything_but_unreadable(path: str, value: object) -> None:
    with suppress(Unreadable):
        assert len(reading(body_of(**{path: value})).events) == 1


@pytest.mark.parametrize("planted", ["PLANTED", "planted words", "1e5PLANTED"])
def test_no_sentence_quotes_a_field(planted: str) -> None:
    for path in (
        "id",
        "occurred_at",
        "environment",
        "data__payment__amount",
        "data__order__currency",
    ):
        bad = planted + "\n"
        with pytest.raises(Unreadable) as caught:
            event(**{path: bad})
        assert "planted" not in str(caught.value).lower()


MINOR = {"unit": "minor", "payment": "json:amount", "payment_currency": "json:currency"}


def minor_units(folder: Path, amount: object) -> Money | None:
    body = {"id": "e", "type": "paid", "order": "o", "amount": amount, "currency": "KES"}
    return only(made(folder, amounts=MINOR), body).money


def test_a_profile_may_count_in_minor_units(tmp_path: Path) -> None:
    assert minor_units(tmp_path, 150050) == kes(150050)
    assert minor_units(tmp_path, "150050") == kes(150050)
    assert minor_units(tmp_path, 1500.0) == kes(1500)
    assert minor_units(tmp_path, "1500.00") == kes(1500)
    assert minor_units(tmp_path, 1500.5) is minor_units(tmp_path, "1500.50") is None
    for bad in (-1, True, 2**63, "x", "9" * 19, "1.5.0"):
        with pytest.raises(Unreadable):
            minor_units(tmp_path, bad)
