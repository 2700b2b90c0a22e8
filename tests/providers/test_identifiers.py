"""Equal identifiers get the same form, and values that are no identifier are left out."""

import json
from collections.abc import Callable

from app.core.phone_key import PhoneKey
from app.providers import identifiers
from app.providers.profile import load_profile
from app.providers.request import Incoming
from app.providers.source import Source
from tests.rows import for_each

KEY = PhoneKey(b"k" * 32)

WRITTEN: list[tuple[Callable[[object], str | None], object, str | None]] = [
    (identifiers.email, " Jane@Example.COM ", "email:jane@example.com"),
    (identifiers.email, "jane at example", None),
    (identifiers.email, "a@b@example.com", None),
    (identifiers.email, None, None),
    (identifiers.name, "José  Doe", "name:doe jose"),
    (identifiers.name, "DOE, José", "name:doe jose"),
    (identifiers.name, "Mary-Ann O’Neil", "name:mary-ann o'neil"),
    (identifiers.name, "Jane", None),
    (identifiers.name, {"first": "Jane"}, None),
    (identifiers.card, "4242", "card:4242"),
    (identifiers.card, 1111, "card:1111"),
    (identifiers.card, "**** **** **** 4242", "card:4242"),
    (identifiers.card, "48111111-1114", "card:1114"),
    (identifiers.card, "4111111111111111", "card:1111"),
    (identifiers.card, "2026", "card:2026"),
    (identifiers.card, "12345", None),
    (identifiers.card, "visa", None),
    (identifiers.further_id, "ch_1", "id:ch_1"),
    (identifiers.further_id, "two words", None),
    (identifiers.further_id, "x" * 300, None),
]


@for_each(("identify", "value", "written"), WRITTEN)
def test_an_identifier_is_written_one_way(
    identify: Callable[[object], str | None], value: object, written: str | None
) -> None:
    assert identify(value) == written


def test_a_reading_has_the_digest_of_each_and_none_of_the_text() -> None:
    body = {
        "id": "evt_1",
        "type": "charge.succeeded",
        "created": 1,
        "livemode": False,
        "data": {
            "object": {
                "object": "charge",
                "id": "ch_1",
                "payment_intent": "pi_1",
                "amount": 500,
                "amount_captured": 500,
                "captured": True,
                "currency": "eur",
                "billing_details": {"email": "Jane@Example.com", "name": "Jane Doe"},
                "payment_method_details": {"card": {"last4": "4242"}},
                "balance_transaction": "txn_1",
            }
        },
    }
    source = Source(
        name="s", profile=load_profile("stripe"), secrets=["whsec_" + "a" * 32], phone_key=KEY
    )
    reading = source.read(Incoming([], json.dumps(body).encode()), digest="d")
    expected = (
        "email:jane@example.com", "name:doe jane", "card:4242", "id:ch_1", "id:txn_1",
    )  # fmt: skip
    assert reading.customer(0) == tuple(map(KEY.digest, expected))
