"""Values of an unreadable message that may name an order or a payment."""

import json

import pytest

from app.core.reading import TRIAL
from app.providers.request import Incoming
from app.receiving.unread_store import NO_VALUE
from app.receiving.unread_values import MOST_VALUES, values_of, whole_values


def inside(*, levels: int) -> str:
    """Return a reference in a list, as JSON within this many levels of JSON."""
    text = "ORD-1"
    for _ in range(levels + 1):
        text = json.dumps([text])
    return text


@pytest.mark.parametrize(
    ("body", "values"),
    [
        (b'{"id": "e2", "order" : "ORD-1", "order": "ORD-2"}', ["e2", "ORD-1", "ORD-2"]),
        (b'\xef\xbb\xbf {"data": {"order": {"reference": "ORD-1"', ["ORD-1"]),
        (b'[4711, -4712, 1.5, "n 4713"]', ["4711", "n 4713"]),
        (b'["ORD-\\u0031", "\xff", "a\\q"]', ["ORD-1", "\ufffd", "a\\q"]),
        (b'["ORD-\\u0031\n"]', ["ORD-1\n"]),
        (inside(levels=3).encode(), [inside(levels=each) for each in (2, 1, 0)] + ["ORD-1"]),
        (inside(levels=4).encode(), [inside(levels=each) for each in (3, 2, 1, 0)]),
        (b"<event><order> ORD-1 </order></event>", ["ORD-1"]),
        (b'id=e2&order=ORD%2D1&more={"a":"ORD-2"}', ["e2", "ORD-1", '{"a":"ORD-2"}', "ORD-2"]),
        (b"ORD-1", []),
    ],
)
def test_each_form_of_a_body_yields_its_whole_values_and_no_names(
    body: bytes, values: list[str]
) -> None:
    assert list(whole_values(body, "")) == values


def test_the_query_of_an_address_yields_its_values() -> None:
    assert list(whole_values(b"", "https://shop/pay?order=ORD-1&b=2#c=3")) == ["ORD-1", "2"]


def found(*values: str, body: bytes = b"") -> frozenset[str]:
    return values_of(None, Incoming((), body or json.dumps(values).encode()))


def test_values_are_bounded_in_length_and_number() -> None:
    """A mark says that there were none, or too many."""
    assert found("KES", "KES1", "  KES", "    ", "x\n12", "x" * 9_999) == {"KES1", "  KES"}
    assert found("KES") == {NO_VALUE}
    most = [f"{each:04}" for each in range(MOST_VALUES)]
    assert found(*most) == {*most}
    assert found(*most, "9998", "9999") == {*most, NO_VALUE}


def test_the_trial_of_the_public_endpoint_names_nothing() -> None:
    assert found(body=TRIAL) == frozenset()


def test_one_event_of_several_is_searched_without_the_address() -> None:
    whole = Incoming((), b'["ORD-1", "ORD-2"]', url="https://shop/pay?order=ORD-3")
    assert values_of(None, whole) == {"ORD-1", "ORD-2", "ORD-3"}
    assert values_of(None, whole, item=b'"ORD-2"') == {NO_VALUE}
    assert values_of(None, whole, item=b'["ORD-2"]') == {"ORD-2"}
