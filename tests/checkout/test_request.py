"""The checks, the bytes and the digest of a request."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.checkout.request import (
    CheckoutRequestError,
    check_request,
    phone_check,
    phone_in,
    request_body,
    request_digest,
)
from reconcile.money import Money
from tests.checkout.service import PHONE, asked
from tests.rows import for_each

WRONG: list[tuple[str, Any]] = [
    ("order", ""),
    ("order", "   "),
    ("order", "x" * 201),
    ("order", "ORD\n1"),
    ("order", "ORD\x001"),
    ("order", "ORD\ud800"),
    ("order", None),
    ("amount", "0"),
    ("amount", "0.00"),
    ("amount", "-1.00"),
    ("amount", "1500.005"),
    ("amount", "1,500.00"),
    ("amount", "1_500"),
    ("amount", " 1500"),
    ("amount", "１５００"),
    ("amount", "NaN"),
    ("amount", Decimal("Infinity")),
    ("amount", Decimal("1e999999")),
    ("amount", Decimal("1e-999999")),
    ("amount", "99999999999999999999"),
    ("amount", 1500.0),
    ("amount", True),
    ("amount", None),
    ("currency", "kes"),
    ("currency", "XAU"),
    ("currency", ""),
    ("currency", None),
    ("phone", "+254712345678"),
    ("phone", "0712345678"),
    ("phone", "1234567"),
    ("phone", "1234567890123456"),
    ("phone", "25471234567８"),
    ("phone", "254712345678\n"),
    ("phone", 254712345678),
    ("success_url", "/ok"),
    ("success_url", "ftp://shop.test/ok"),
    ("success_url", "javascript:alert(1)"),
    ("success_url", "https://"),
    ("success_url", "https://shop.test:port/"),
    ("success_url", "https://user@shop.test/"),
    ("success_url", "https://shop.test\\@evil.test/"),
    ("success_url", "https://shop.test/a b"),
    ("success_url", "https://shop.test/\r\nX: 1"),
    ("cancel_url", "https://shop.test/" + "x" * 2048),
    ("cancel_url", ""),
]


@for_each(("field", "value"), WRONG)
def test_one_wrong_field_is_one_problem_of_that_field(field: str, value: Any) -> None:
    with pytest.raises(CheckoutRequestError) as caught:
        check_request(asked(**{field: value}), live=False)
    assert [name for name, _ in caught.value.problems] == [field]


def test_all_problems_are_reported_at_once_and_none_repeats_the_phone_number() -> None:
    request = asked(
        order="\x07",
        amount="-1",
        currency="kes",
        phone="+" + PHONE,
        success_url=PHONE,
        cancel_url="",
    )
    with pytest.raises(CheckoutRequestError) as caught:
        check_request(request, live=False)
    fields = {name for name, _ in caught.value.problems}
    assert fields == {"order", "amount", "currency", "phone", "success_url", "cancel_url"}
    assert "2547" not in str(caught.value) + repr(request)


def test_only_what_the_service_requires_must_be_given() -> None:
    bare = asked(phone=None, success_url=None, cancel_url=None)
    sound = check_request(bare, live=True)
    body = request_body(sound)
    assert body == b'{"order":{"reference":"ORD-1","amount":1500.00,"currency":"KES"}}'
    assert phone_in(body) is None
    with pytest.raises(CheckoutRequestError) as caught:
        check_request(bare, live=False, requires={"phone", "cancel_url"})
    assert [name for name, _ in caught.value.problems] == ["phone", "cancel_url"]
    one = request_body(check_request(asked(phone=None, cancel_url=None), live=False))
    assert b'"customer":' not in one
    assert one.endswith(b'"return_urls":{"success":"https://shop.test/ok?customer=c77"}}')
    assert request_digest(sound) != request_digest(check_request(asked(), live=False))


def test_live_return_urls_must_be_encrypted() -> None:
    request = asked(success_url="http://shop.test/ok")
    check_request(request, live=False)
    with pytest.raises(CheckoutRequestError, match="https"):
        check_request(request, live=True)


@for_each(
    ("amount", "currency", "minor", "written"),
    [
        ("1500.00", "KES", 150_000, b"1500.00"),
        ("1500", "KES", 150_000, b"1500.00"),
        (Decimal("15e2"), "KES", 150_000, b"1500.00"),
        (1500, "JPY", 1500, b"1500"),
        ("0.001", "BHD", 1, b"0.001"),
        ("92233720368547758.07", "KES", 2**63 - 1, b"92233720368547758.07"),
    ],
)
def test_the_amount_is_sent_as_an_exact_number(
    amount: Any, currency: str, minor: int, written: bytes
) -> None:
    sound = check_request(asked(amount=amount, currency=currency), live=False)
    assert sound.money == Money(minor=minor, currency=currency)
    assert b'"amount":' + written + b"," in request_body(sound)


def test_the_digest_changes_with_every_field_but_not_with_the_writing_of_the_amount() -> None:
    def digest(**changes: Any) -> str:
        return request_digest(check_request(asked(**changes), live=False))

    assert digest(amount="1500") == digest()
    others = [
        digest(order="ORD-2"), digest(amount="1500.01"), digest(currency="USD"),
        digest(phone="254712345679"), digest(success_url="https://shop.test/ok?customer=c78"),
        digest(cancel_url="https://shop.test/yes"),
    ]  # fmt: skip
    assert len({digest(), *others}) == 7


@given(st.integers(10**9, 10**12))
def test_the_phone_check_keeps_eight_bits_and_no_more(number: int) -> None:
    check = phone_check(str(number))
    assert check is not None
    assert 0 <= check < 256
