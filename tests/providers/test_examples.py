"""Made-up events from every documented example have its shape, a genuine signature and the wanted
values."""

import hashlib
import json

import pytest

from app.core.errors import ConfigurationError, NotFoundError, UsageError
from app.core.reading import Reading
from app.providers.examples import Example, WantedEvent, examples_of, find_example, shape_event
from app.providers.kit import Signed
from app.providers.profile import load_profile, shipped_profiles
from app.providers.request import Incoming
from app.providers.source import Source
from reconcile.instants import SECOND, parse_instant
from reconcile.money import from_major
from tests.api.driving import SECRET
from tests.providers.builders import raw
from tests.providers.test_payloads import VECTORS
from tests.rows import for_each
from tests.searching import every

NOW = parse_instant("2026-11-20T10:00:00.25Z")
ADDRESS = "https://hooks.shop.example"

ONLY_THE_PROVIDER = {
    "bitso", "pawapay", "paypal", "plaid", "sendgrid", "snap_winpay", "wise", "wise_sha1", "woovi"
}  # fmt: skip
"""Profiles with events that are signed with a key that only the provider has."""

WITHOUT = {"convoy", "integrated_finance", "rfc9421"}
"""Profiles without documented events, because their senders' bodies may have any content."""


def source_of(profile: str) -> Source:
    path = VECTORS / f"{profile}.jsonl"
    secret: str | list[str] | dict[str, str] = SECRET
    if path.exists():
        vectors = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        secret = next(each for each in vectors if each["valid"]).get("secret", [])
    listed = [secret] if isinstance(secret, str) else secret
    return Source(name="s", profile=load_profile(profile), secrets=listed, strict=False)


def shaped(source: Source, example: Example, wanted: WantedEvent) -> tuple[Signed, Reading]:
    """Return a request shaped from the example, and its reading, after verifying it."""
    url = f"{ADDRESS}/webhooks/s"
    request = shape_event(source, example, wanted, now=NOW, url=url)
    incoming = Incoming(raw(request.headers), request.body, example.method, request.url or url)
    refusal = source.verify(incoming, now=NOW)
    assert refusal is None, refusal
    return request, source.read(incoming, digest=hashlib.sha256(request.body).hexdigest())


def test_every_profile_has_examples_but_those_of_anybodys_bodies() -> None:
    assert {name for name in shipped_profiles() if not examples_of(name)} == WITHOUT


@for_each("name", sorted(set(shipped_profiles()) - ONLY_THE_PROVIDER - WITHOUT))
def test_each_example_is_sent_as_it_is_and_with_another_order_and_amount(name: str) -> None:
    source, profile = source_of(name), load_profile(name)
    for example in examples_of(name)[:: every(3)]:
        _, plain = shaped(source, example, WantedEvent())
        event = plain.events[0]
        assert event.kind == example.event
        assert plain.environment in ("sandbox", None), example.event
        if event.occurred_at is not None and not profile.verifies_only:
            assert abs(NOW - event.occurred_at) < 2 * SECOND, example.event
        if event.order is not None:
            _, of_order = shaped(source, example, WantedEvent(order="77001"))
            assert (of_order.events[0].kind, of_order.events[0].order) == (event.kind, "77001")
        if event.money is not None:
            money = from_major("25", event.money.currency)
            _, priced = shaped(source, example, WantedEvent(amount=money))
            assert (priced.events[0].kind, priced.events[0].money) == (event.kind, money)


@for_each("name", sorted(ONLY_THE_PROVIDER))
def test_what_only_the_provider_can_sign_is_reported(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"private|public key|only"):
        shape_event(
            source_of(name),
            examples_of(name)[0],
            WantedEvent(),
            now=NOW,
            url=f"{ADDRESS}/webhooks/s",
        )


def test_ids_derive_from_the_order() -> None:
    """One order's events share its payment, and each has its own id."""
    source = source_of("stripe")

    def event(word: str, order: str) -> tuple[str, str | None]:
        _, reading = shaped(source, find_example("stripe", word), WantedEvent(order=order))
        return reading.events[0].event_id, reading.events[0].payment

    paid = event("payment_intent.succeeded", "A")
    assert paid == event("payment_intent.succeeded", "A")
    failed = event("payment_intent.payment_failed", "A")
    assert (failed[0] != paid[0], failed[1]) == (True, paid[1])
    other = event("payment_intent.succeeded", "B")
    assert other[0] != paid[0]
    assert other[1] != paid[1]


def test_a_refund_that_names_no_order_refers_to_the_orders_payment() -> None:
    source = source_of("stripe")
    found = {}
    for word in ("payment_intent.succeeded", "refund.created:succeeded"):
        _, reading = shaped(source, find_example("stripe", word), WantedEvent(order="A"))
        found[word] = reading.events[0]
    refund = found["refund.created:succeeded"]
    assert refund.order is None
    assert refund.payment == found["payment_intent.succeeded"].payment


def test_money_in_another_currency_is_written_as_the_provider_writes_it() -> None:
    for name, word, money, written in (
        ("stripe", "payment_intent.succeeded", ("25.10", "USD"), '"amount": 2510'),
        ("stripe", "payment_intent.succeeded", ("25", "JPY"), '"amount": 25,'),
        ("stripe", "payment_intent.succeeded", ("25", "USD"), '"currency": "usd"'),
        ("adyen", "CAPTURE:true", ("25", "ISK"), '"value":2500'),
        ("flutterwave", "charge.completed:succeeded", ("25.5", "KES"), '"amount": 25.5'),
    ):
        request, _ = shaped(
            source_of(name), find_example(name, word), WantedEvent(amount=from_major(*money))
        )
        assert written in request.body.decode(), request.body


def test_a_value_that_the_event_cannot_hold_is_reported() -> None:
    mpesa, paid = source_of("mpesa_stk"), find_example("mpesa_stk", "paid")
    for wanted, said in (
        (WantedEvent(order="ORD-1"), "leave --order out"),
        (WantedEvent(amount=from_major("5", "USD")), "leave --amount out"),
    ):
        with pytest.raises(UsageError, match=said):
            shape_event(mpesa, paid, wanted, now=NOW, url=f"{ADDRESS}/webhooks/s")
    _, reading = shaped(mpesa, paid, WantedEvent(session="ws_CO_1", amount=from_major("5", "KES")))
    assert reading.events[0].session == "ws_CO_1"


def test_an_example_is_found_by_name_word_or_unambiguous_beginning() -> None:
    assert find_example("mpesa_stk", "paid") == find_example("mpesa_stk", "0")
    assert find_example("stripe", "refund.failed").event == "refund.failed:failed"
    with pytest.raises(UsageError, match=r"charge\.completed:succeeded, charge\.completed:failed"):
        find_example("flutterwave", "charge.completed")
    with pytest.raises(NotFoundError, match=r"there are .*charge\.success"):
        find_example("paystack", "charge")
    with pytest.raises(NotFoundError, match="no example was found in its"):
        find_example("convoy", "anything")
    assert not examples_of("../profiles/stripe")


def test_an_example_is_called_by_the_providers_own_name_of_the_event() -> None:
    won = find_example("stripe", "charge.dispute.closed:won")
    assert won == find_example("stripe", "charge.dispute:won") == find_example("stripe", won.name)
    assert (won.word, won.event) == ("charge.dispute.closed:won", "charge.dispute:won")
    closed = find_example("cashfree", "DISPUTE_CLOSED")
    assert closed.word == "DISPUTE_CLOSED:CHARGEBACK_MERCHANT_WON"
    with pytest.raises(UsageError, match=r"dispute\.state\.updated:LOST, dispute\.state\.upda"):
        find_example("square", "dispute.state.updated")
    for name in shipped_profiles():
        events = load_profile(name).setup.events
        for example in examples_of(name):
            assert find_example(name, example.name).name == example.name
            said = [each for each in events if example.word.startswith(each)]
            assert bool(example.named) <= bool(said), (name, example.word)
