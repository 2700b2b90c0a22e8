"""Scenarios of the sandbox: deliveries and truth from one table, as the interface promises."""

import re
from pathlib import Path
from typing import Any

import app.sandbox
from app.sandbox.scenarios import SCENARIOS
from app.sandbox.settings import SHORTEST_LIFETIME_UNITS
from reconcile.instants import parse_instant
from tests.rows import for_each
from tests.sandbox.harness import Arrival, World, world

PAID = "1500.00"
OTHER = "1499.00"

# ending: (deliveries in order as kind/attempt/amount, outcome, captured, refunded, payments)
TABLE: dict[str, tuple[str, str, str, str, str]] = {
    "01": ("pending/1 succeeded/1", "succeeded", PAID, "0.00", "succeeded"),
    "02": ("pending/1 declined/1", "failed", "0.00", "0.00", "declined"),
    "03": ("pending/1", "timed_out", "0.00", "0.00", "timed_out"),
    "04": (
        "pending/1 pending/1 pending/1 succeeded/1 succeeded/1 succeeded/1",
        "succeeded",
        PAID,
        "0.00",
        "succeeded",
    ),
    "05": ("pending/1 succeeded/1", "succeeded", PAID, "0.00", "succeeded"),
    "06": ("succeeded/1 pending/1", "succeeded", PAID, "0.00", "succeeded"),
    "07": (
        "pending/1 declined/1 pending/2 succeeded/2",
        "succeeded",
        PAID,
        "0.00",
        "declined succeeded",
    ),
    "08": (
        "pending/1 succeeded/1 pending/2 succeeded/2",
        "succeeded",
        "3000.00",
        "0.00",
        "succeeded succeeded",
    ),
    "09": ("pending/1 succeeded/1/1499.00", "unresolved", OTHER, "0.00", "succeeded"),
    "10": ("pending/1 succeeded/1 succeeded/1/1499.00", "unresolved", PAID, "0.00", "succeeded"),
    "11": ("pending/1 succeeded/1/1499.00! succeeded/1", "succeeded", PAID, "0.00", "succeeded"),
    "12": (
        "pending/1 succeeded/1 refunded/1 refunded/1",
        "refunded",
        PAID,
        PAID,
        "succeeded",
    ),
    "13": (
        "pending/1 succeeded/1 disputed/1 dispute_won/1",
        "succeeded",
        PAID,
        "0.00",
        "succeeded",
    ),
    "14": ("pending/1 timed_out/1 succeeded/1", "succeeded", PAID, "0.00", "succeeded"),
    "15": ("pending/1 succeeded/1", "succeeded", PAID, "0.00", "succeeded"),
    "16": ("pending/1 succeeded/1", "succeeded", PAID, "0.00", "succeeded"),
    "77": ("pending/1 succeeded/1", "succeeded", PAID, "0.00", "succeeded"),
}


async def opened(w: World, ending: str) -> dict[str, Any]:
    """Open a session of the scenario, with as many tries as it takes."""
    for _ in range(4):
        try:
            answer = await w.open(f"2547000000{ending}")
        except ConnectionAbortedError:
            continue
        if answer.status_code == 201:
            document: dict[str, Any] = answer.json()
            return document
    raise AssertionError("the session could not be opened")


def described(arrivals: list[Arrival]) -> str:
    """Write the arrivals like the table; `!` marks a wrong signature."""
    attempts: list[str] = []
    words = []
    for arrival in arrivals:
        payment = arrival.event["data"]["payment"]
        if payment["reference"] not in attempts:
            attempts.append(payment["reference"])
        amount = "" if str(payment["amount"]) == PAID else f"/{payment['amount']}"
        number = attempts.index(payment["reference"]) + 1
        words.append(f"{arrival.kind}/{number}{amount}{'' if arrival.genuine else '!'}")
    return " ".join(words)


def test_the_table_here_knows_every_scenario() -> None:
    assert set(TABLE) == {*SCENARIOS, "77"}
    assert len(SCENARIOS) == 16


def test_all_money_moves_before_the_shortest_session_ends() -> None:
    steps = [step for row in SCENARIOS.values() for step in row.steps]
    assert max(step.at for step in steps) < SHORTEST_LIFETIME_UNITS


@for_each("ending", TABLE)
async def test_a_scenario_delivers_what_the_table_says_and_the_truth_follows(ending: str) -> None:
    deliveries, outcome, captured, refunded, payments = TABLE[ending]
    async with world() as w:
        session = await opened(w, ending)
        await w.drained()
        (entry,) = await w.get("/sandbox/truth")
        assert described(w.receiver.arrivals) == deliveries
    assert entry == {
        "order": f"ORD-{ending}",
        "scenario": ending if ending != "77" else "01",
        "session": session["reference"],
        "outcome": outcome,
        "captured": {"amount": captured, "currency": "KES"},
        "refunded": {"amount": refunded, "currency": "KES"},
        "payments": entry["payments"],
    }
    assert [p["outcome"] for p in entry["payments"]] == payments.split()
    assert {a.event["data"]["payment"]["reference"] for a in w.receiver.arrivals} == {
        p["reference"] for p in entry["payments"]
    }


async def test_an_event_carries_everything_the_profile_reads() -> None:
    async with world() as w:
        session = await opened(w, "02")
        await w.drained()
        declined = w.receiver.arrivals[1]
    event = declined.event
    assert event["data"] == {
        "order": {"reference": "ORD-02", "amount": 1500, "currency": "KES"},
        "session": {"reference": session["reference"]},
        "payment": {
            "reference": event["data"]["payment"]["reference"],
            "amount": 1500,
            "currency": "KES",
            "reason": "insufficient_funds",
        },
        "customer": {"phone": "254700000002"},
    }
    assert event["id"] == declined.headers["fake-id"]
    assert event["environment"] == "sandbox"
    assert event["type"] == "payment.declined"
    assert event["occurred_at"] == "2026-11-20T10:00:03.143Z"
    assert declined.headers["content-type"] == "application/json"


@for_each(
    ("amount", "currency", "written"),
    [("1500.00", "KES", b"1500.00"), (7, "JPY", b"7"), ("90071992547409.93", "EUR", None)],
)
async def test_amounts_are_numbers_written_digit_for_digit(
    amount: Any, currency: str, written: bytes | None
) -> None:
    async with world() as w:
        assert (await w.open(amount=amount, currency=currency)).status_code == 201
        await w.drained()
        body = w.receiver.arrivals[-1].body
    assert body.count(b'"amount": ' + (written or str(amount).encode()) + b",") == 2


async def test_the_delayed_event_happened_before_the_expiry_and_arrives_after() -> None:
    async with world() as w:
        expires_at = parse_instant((await opened(w, "05"))["expires_at"])
        await w.drained()
        final = w.receiver.arrivals[-1]
    assert parse_instant(final.event["occurred_at"]) < expires_at < final.at


async def test_events_out_of_order_keep_their_true_times() -> None:
    async with world() as w:
        await opened(w, "06")
        await w.drained()
        first, second = w.receiver.arrivals
    assert (first.kind, second.kind) == ("succeeded", "pending")
    assert first.event["occurred_at"] > second.event["occurred_at"]


async def test_one_id_with_two_bodies_is_signed_properly_both_times() -> None:
    async with world() as w:
        await opened(w, "10")
        await w.drained()
        _, one, other = w.receiver.arrivals
    assert one.event["id"] == other.event["id"]
    assert one.body != other.body
    assert one.genuine
    assert other.genuine


async def test_the_tampered_delivery_is_refused_once_and_the_true_one_follows() -> None:
    async with world() as w:
        await opened(w, "11")
        await w.drained()
        _, tampered, true = w.receiver.arrivals
    assert (tampered.status, true.status) == (401, 200)
    assert tampered.event["id"] == true.event["id"]
    assert tampered.headers["fake-signature"] != ""


async def test_duplicates_have_one_id_and_one_body() -> None:
    async with world() as w:
        await opened(w, "04")
        await w.drained()
        arrivals = w.receiver.arrivals
    assert len({(a.event["id"], a.body) for a in arrivals[:3]}) == 1
    assert len({(a.event["id"], a.body) for a in arrivals}) == 2


async def test_refunds_are_a_third_and_the_rest_with_references_of_their_own() -> None:
    async with world() as w:
        await w.open("254700000012", amount="100.00")
        await w.drained()
        refunds = [a.event["data"]["refund"] for a in w.receiver.arrivals[2:]]
    assert [str(r["amount"]) for r in refunds] == ["33.33", "66.67"]
    assert len({r["reference"] for r in refunds}) == 2
    assert all(r["reference"].startswith("re_") for r in refunds)


@for_each(
    ("amount", "paid"), [("1.01", "0.01"), ("1.00", "0.99"), ("0.02", "0.01"), ("0.01", "1.01")]
)
async def test_another_amount_is_less_than_the_orders_where_there_is_less(
    amount: str, paid: str
) -> None:
    """An order of 1.00 was paid with 2.00, which is a success."""
    async with world() as w:
        await w.open("254700000009", amount=amount)
        await w.drained()
        (entry,) = await w.get("/sandbox/truth")
    assert entry["captured"]["amount"] == paid
    assert entry["outcome"] == ("unresolved" if paid < amount else "succeeded")


async def test_a_refund_of_the_smallest_coin_is_whole_at_once() -> None:
    async with world() as w:
        await w.open("254700000012", amount="0.01")
        await w.drained()
        (entry,) = await w.get("/sandbox/truth")
        kinds = [a.kind for a in w.receiver.arrivals]
    assert kinds == ["pending", "succeeded", "refunded"]
    assert entry["outcome"] == "refunded"


async def test_a_dispute_and_its_end_speak_of_one_movement() -> None:
    async with world() as w:
        await opened(w, "13")
        await w.drained()
        disputed, won = (a.event["data"]["refund"] for a in w.receiver.arrivals[2:])
    assert disputed == won
    assert disputed["amount"] == 1500


def test_the_readme_tells_the_same_table() -> None:
    readme = Path(app.sandbox.__file__).with_name("README.md").read_text()
    rows = re.findall(r"^\| (\d\d) \|([^|]+) \|[^|]+ \|(\w+)", readme, re.MULTILINE)
    assert rows == [(row.ending, row.name, TABLE[row.ending][1]) for row in SCENARIOS.values()]
