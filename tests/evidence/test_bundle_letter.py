"""Statements about money in the letter of an evidence bundle."""

from app.evidence.bundle_letter import (
    LetterArrival,
    LetterFacts,
    _money,
    bundle_letter,
    price_rows,
)
from app.evidence.verify import unpack
from reconcile.instants import SECOND
from reconcile.ledger.events import Part
from reconcile.ledger.fold import fold
from reconcile.ledger.policy import Policy
from reconcile.money import Money
from tests.evidence.conftest import Bundles
from tests.reconcile.build import DUE, T, delivery, event, history, record, seconds
from tests.rows import for_each


def test_what_is_left_is_without_all_that_went_back_in_whichever_way() -> None:
    """A refund, a loss and a reversal each have their line, and nothing is left."""
    said = [
        event("e1", "succeeded", payment="p", money=DUE),
        event(
            "e2", "refunded", 1, payment="p", movement="r", money=Money(minor=300, currency="KES")
        ),
        event("e3", "dispute_lost", 2, payment="p", money=Money(minor=200, currency="KES")),
    ]
    lost = history(*[delivery(f"d{n}", n, each) for n, each in enumerate(said)])
    shown = dict(_money(fold(lost, policy=Policy(), as_of=seconds(9))))
    left = Money(minor=DUE.minor - 500, currency="KES")
    assert shown["Given back"] == "KES 3.00"
    assert shown["Lost in disputes"] == "KES 2.00"
    assert shown["Left with the shop"] == str(left)
    gone = history(*lost.deliveries, delivery("d9", 5, event("e9", "reversed", 3, payment="p")))
    shown = dict(_money(fold(gone, policy=Policy(), as_of=seconds(9))))
    assert (shown["Reversed"], shown["Left with the shop"]) == (str(left), "KES 0.00")


def page_of(*arrivals: LetterArrival) -> str:
    """Render the letter of an order with these arrivals."""
    paid = [event(f"e{n}", "succeeded", payment="p", money=DUE) for n in range(len(arrivals))]
    heard = zip(arrivals, paid, strict=True)
    one = history(*[delivery(e.event_id, (a.received_at - T) // SECOND, e) for a, e in heard])
    facts = LetterFacts(
        history=one,
        revisions=(),
        arrivals=arrivals,
        checkpoint="",
        sealed=0,
        unsealed=0,
        key="k",
    )
    return bundle_letter(fold(one, policy=Policy(), as_of=seconds(9)), facts)


def arrival(
    second: int, scheme: str = "hmac-sha256", key: str | None = "0011223344556677"
) -> LetterArrival:
    return LetterArrival(
        source="shop",
        received_at=seconds(second),
        key=key,
        scheme=scheme,
        public=False,
        signed_at=None,
    )


@for_each(
    ("came", "said"),
    [
        (
            [1],
            ["1 request of", "arrived, at 2026-11-20T10:00:01", "It was verified", "Its signature"],
        ),
        ([1, 1], ["2 requests of", "arrived, at 2026-11-20T10:00:01", "Each was", "of 2 of them"]),
        ([3, 1], ["2 requests of", "arrived, from 2026-11-20T10:00:01", "to 2026-11-20T10:00:03"]),
    ],
)
def test_one_delivery_came_at_one_time(came: list[int], said: list[str]) -> None:
    """Of a single one nothing is said in the plural, and no span of time."""
    page = page_of(*map(arrival, came))
    assert [each for each in said if each not in page] == []


def test_a_secret_that_a_request_brings_is_no_signature() -> None:
    """It tells who sent the request, and nothing of what is in it."""
    one, brought = page_of(arrival(1, "token")), "the secret that the payment service shares with"
    assert f"It contained {brought}" in one
    assert "ignature was" not in one
    some = page_of(arrival(1, "basic"), arrival(2), arrival(3, key=None))
    assert f"1 of them contained {brought}" in some
    assert "The signatures of 1 of them were checked again" in some


def test_a_page_that_was_made_in_a_sandbox_says_so(bundles: Bundles) -> None:
    """By the name of the log, which whoever verifies has, too."""
    page = unpack(bundles.redacted)["report.html"].decode()
    assert page.count("SANDBOX") == 2
    assert "SANDBOX: made with a test account. No money moved" in page


def test_a_letter_names_what_a_discount_took_off_the_price() -> None:
    part = Part(kind="discount", money=Money(minor=10_000, currency="KES"))
    paid = event("e1", "succeeded", 5, payment="pay_1", parts=(part,),
                 money=Money(minor=140_000, currency="KES"))  # fmt: skip
    known = history(record("rec_1", "order_placed", 0, money=DUE), delivery("d1", 5, paid))
    for percent, rows in (
        (0, [("Ordered", "KES 1,500.00")]),
        (
            10,
            [
                ("Ordered", "KES 1,500.00"),
                ("Discount at the payment service", "KES 100.00"),
                ("Due", "KES 1,400.00"),
            ],
        ),
    ):
        policy = Policy(provider_discount_percent=percent)
        ledger = fold(known, policy=policy, as_of=seconds(9))
        assert price_rows(ledger, price="Ordered", due="Due") == rows
