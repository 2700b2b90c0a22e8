"""The judgement of money movements, beyond what the sixteen scenarios show."""

from app.sandbox.provider import Happening, outcome_of
from reconcile.instants import EARLIEST, TICK
from reconcile.money import Money
from tests.rows import for_each
from tests.sandbox.harness import world

ORDER = Money(minor=1000, currency="KES")

# what happened, in order: kind, payment, minor units and movement; then the order's outcome
CASES = [
    ("", "timed_out"),
    ("pending/a", "timed_out"),
    ("authorized/a", "authorized"),
    ("declined/a pending/b", "timed_out"),
    ("declined/a canceled/b", "canceled"),
    ("canceled/a declined/b", "failed"),
    ("expired/a", "expired"),
    ("timed_out/a", "timed_out"),
    ("succeeded/a", "succeeded"),
    ("succeeded/a succeeded/b", "succeeded"),
    ("succeeded/a/999", "unresolved"),
    ("succeeded/a refunded/a/300/r1", "partially_refunded"),
    ("succeeded/a refunded/a/300/r1 refunded/a/700/r2", "refunded"),
    ("succeeded/a succeeded/b refunded/b/1000/r1", "succeeded"),
    ("succeeded/a/1001", "succeeded"),
    ("succeeded/a/600 succeeded/b/400", "succeeded"),
    ("succeeded/a succeeded/b disputed/b/1000/d1", "succeeded"),
    ("succeeded/a/1001 refunded/a/2/r1", "partially_refunded"),
    ("succeeded/a disputed/a/400/d1 dispute_lost/a/400/d1", "charged_back"),
    ("succeeded/a disputed/a/400/d1 dispute_lost/a/400/d1 refunded/a/600/r1", "charged_back"),
    ("succeeded/a disputed/a/1000/d1", "disputed"),
    ("succeeded/a disputed/a/1000/d1 dispute_won/a/1000/d1", "succeeded"),
    ("succeeded/a disputed/a/1000/d1 dispute_lost/a/1000/d1", "charged_back"),
]


def happenings(text: str) -> list[Happening]:
    """Parse events, one a tick: `kind/payment[/minor[/movement]]`."""
    found = []
    for at, word in enumerate(text.split()):
        kind, payment, *more = word.split("/")
        minor, movement = [*more, None, None][:2]
        money = Money(minor=int(minor or 1000), currency="KES")
        found.append(
            Happening(
                at=EARLIEST + at * TICK,
                kind=f"payment.{kind}",
                payment=payment,
                money=money,
                movement=movement,
            )
        )
    return found


@for_each(("course", "outcome"), CASES)
def test_an_outcome_follows_from_what_happened_to_the_money(course: str, outcome: str) -> None:
    assert outcome_of(ORDER, happenings(course)) == outcome


def test_money_in_another_currency_leaves_the_order_unresolved() -> None:
    paid = Happening(
        at=EARLIEST + TICK,
        kind="payment.succeeded",
        payment="a",
        money=Money(minor=1000, currency="UGX"),
    )
    assert outcome_of(ORDER, [paid]) == "unresolved"


async def test_an_order_paid_in_two_sessions_has_one_entry_with_all_its_money() -> None:
    async with world() as w:
        await w.open("254700000001", key="a", reference="ORD")
        await w.open("254700000002", key="b", reference="ORD")
        last = (await w.open("254700000001", key="c", reference="ORD")).json()
        await w.drained()
        (entry,) = await w.get("/sandbox/truth")
    assert entry["session"] == last["reference"]
    assert entry["captured"] == {"amount": "3000.00", "currency": "KES"}
    assert entry["outcome"] == "succeeded"
    assert sorted(p["outcome"] for p in entry["payments"]) == ["declined", "succeeded", "succeeded"]
