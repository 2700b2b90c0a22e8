"""LINK_MISMATCH = hold: what only the order number links counts at a price of the order alone."""

from dataclasses import replace
from itertools import permutations
from typing import Any

from reconcile.ledger.events import Delivery, Part
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.records import Record
from reconcile.money import Money
from tests.reconcile.build import (
    DUE,
    POLICY,
    delivery,
    document_bytes,
    event,
    history,
    record,
    seconds,
)
from tests.rows import for_each

HOLD = replace(POLICY, mismatch_held=("shop",), provider_discount_percent=10)
HALF, OTHER = Money(minor=75_000, currency="KES"), Money(minor=250_000, currency="KES")
DOLLARS = Money(minor=150_000, currency="USD")


TIP = Part(kind="tip", money=Money(minor=20_000, currency="KES"))
BASE = Part(kind="base", money=Money(minor=130_000, currency="KES"))
LESS = Part(kind="discount", money=Money(minor=10_000, currency="KES"))


def paid(name: str, money: Money | None, *, at: int = 100, **fields: Any) -> Delivery:
    said = event(f"e{name}", "succeeded", at, payment=f"p{name}", money=money, **fields)
    return delivery(f"d{name}", at + 1, said)


def placed(name: str, money: Money, *, at: int = 0) -> Record:
    return record(name, "order_placed", at, money=money)


PLACED = placed("r1", DUE)
CASES: dict[str, tuple[History, str, tuple[str, ...]]] = {
    "the price": (history(PLACED, paid("1", DUE)), "succeeded", ()),
    "another amount": (history(PLACED, paid("1", OTHER)), "unresolved", ("e1",)),
    "another currency": (history(PLACED, paid("1", DOLLARS)), "unresolved", ("e1",)),
    "two halves": (history(PLACED, paid("1", HALF), paid("2", HALF)), "succeeded", ()),
    "a stranger beside two halves": (
        history(PLACED, paid("1", HALF), paid("2", HALF), paid("3", OTHER)), "succeeded", ("e3",),
    ),
    "a later price": (
        history(PLACED, placed("r2", OTHER, at=200), paid("1", OTHER)), "succeeded", (),
    ),
    "a price of before": (
        history(PLACED, placed("r2", OTHER, at=50), paid("1", DUE)), "unresolved", ("e1",),
    ),
    "a price that rose since": (
        history(PLACED, placed("r2", OTHER, at=200), paid("1", DUE)), "unresolved", (),
    ),
    "no price": (history(paid("1", OTHER)), "unresolved", ("e1",)),
    "a payment that the shop named": (
        history(PLACED, paid("1", OTHER),
                record("r3", "reference_named", 300, source="shop", payment="p1")),
        "succeeded", (),
    ),
    "a session that the shop named": (
        history(PLACED, paid("1", OTHER, session="s1"),
                record("r3", "reference_named", 300, source="shop", session="s1")),
        "succeeded", (),
    ),
    "a session that we opened": (
        history(PLACED, paid("1", OTHER, session="s1"),
                record("r3", "session_requested", 1, source="shop", key="k", money=DUE),
                record("r4", "session_opened", 2, source="shop", key="k", session="s1")),
        "succeeded", (),
    ),
    "a payment that a person assigned": (
        history(PLACED, paid("1", OTHER),
                record("r3", "payment_assigned", 300, source="shop", payment="p1")),
        "succeeded", (),
    ),
    "the price and a tip": (
        history(PLACED, paid("1", Money(minor=170_000, currency="KES"), parts=(TIP,))),
        "succeeded", (),
    ),
    "less than the price beside its base": (
        history(PLACED, paid("1", DUE, parts=(TIP, BASE))), "unresolved", ("e1",),
    ),
    "the price less an accepted discount": (
        history(PLACED, paid("1", Money(minor=140_000, currency="KES"), parts=(LESS,))),
        "succeeded", (),
    ),
    "another source": (history(PLACED, paid("1", OTHER, source="till")), "succeeded", ()),
}  # fmt: skip


@for_each("name", CASES)
def test_an_amount_that_is_no_price_is_in_doubt_unless_the_shop_named_it(name: str) -> None:
    whole, outcome, doubtful = CASES[name]
    ledger = fold(whole, policy=HOLD, as_of=seconds(1_000))
    found = [each for each in ledger.findings if each.code == "amount_not_price"]
    assert (ledger.outcome, tuple(c for each in found for c in each.cites)) == (outcome, doubtful)
    accepted = fold(whole, policy=POLICY, as_of=seconds(1_000))
    assert not [each for each in accepted.findings if each.code == "amount_not_price"]
    members: list[Delivery | Record] = [*whole.deliveries, *whole.records]
    documents = {
        document_bytes(fold(_arrived(some), policy=HOLD, as_of=seconds(1_000)))
        for some in list(permutations(members))[:24]
    }
    assert len(documents) == 1


def _arrived(members: tuple[Delivery | Record, ...]) -> History:
    """Join histories of one member each, in this order."""
    found = history()
    for each in members:
        found |= history(each)
    return found


def test_a_later_price_never_unlinks_what_counted() -> None:
    before = history(PLACED, paid("1", DUE))
    for later in (HALF, OTHER, DOLLARS):
        ledger = fold(
            before | history(placed("r2", later, at=500)), policy=HOLD, as_of=seconds(999)
        )
        assert not [each for each in ledger.findings if each.code == "amount_not_price"]


@for_each(("count", "doubtful"), [(8, 0), (9, 9)])
def test_sums_of_at_most_eight_payments_are_compared_with_the_price(
    count: int, doubtful: int
) -> None:
    part, price = (Money(minor=minor, currency="KES") for minor in (10_000, 10_000 * count))
    whole = history(placed("r1", price), *[paid(str(n), part) for n in range(count)])
    ledger = fold(whole, policy=HOLD, as_of=seconds(1_000))
    found = [each for each in ledger.findings if each.code == "amount_not_price"]
    assert len(found) == doubtful


def test_a_strangers_payment_stops_no_order() -> None:
    """As law 10 demands, whatever its amount is."""
    ours = history(PLACED, paid("1", HALF), paid("2", HALF))
    for minor in (1, 75_000, 150_000, 300_000):
        theirs = history(paid("3", Money(minor=minor, currency="KES")))
        assert fold(ours | theirs, policy=HOLD, as_of=seconds(999)).fulfillable
