"""Messages that a provider signed and nobody could read: what they may be about is held."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.core.errors import NotFoundError
from app.core.reading import TRIAL
from app.orders.find_orders import find_orders
from app.orders.holds import release
from app.orders.reindex import reindex
from app.orders.retention_store import prune
from app.orders.set_aside import judge_unread
from reconcile.instants import MINUTE, Instant
from reconcile.ledger.plain import REFUSED, UNREAD
from tests.api.driving import Driver, driving, event, of_order
from tests.waiting import soon

BAD_DATE = "yesterday"
PLACED = {"amount": "1500.00", "currency": "KES"}


def unreadable(event_id: str, claim: str = "refunded", **changes: Any) -> dict[str, Any]:
    """Make an event whose date is none, so that nobody can read it."""
    return {**event(event_id, claim, **changes), "occurred_at": BAD_DATE}


async def order(driver: Driver, reference: str = "ORD-1") -> dict[str, Any]:
    found: dict[str, Any] = (await driver.api("GET", f"/orders/{reference}")).json()
    return found


async def test_a_message_that_names_a_paid_order_withholds_it_until_a_person_judged(
    tmp_path: Path,
) -> None:
    async with driving(tmp_path) as driver:
        await driver.api("PUT", "/orders/ORD-1", json=PLACED)
        await driver.send(event("e1"))
        assert (await order(driver))["fulfillable"]
        answer = await driver.send(unreadable("e2", order=None))  # it names the payment alone
        assert answer.json()["verdict"] == "unreadable"
        held = await order(driver)
        assert (held["outcome"], held["fulfillable"]) == ("succeeded", False)
        (finding,) = [each for each in held["findings"] if each["code"] == "held_back"]
        assert finding["facts"]["hold"] == "unreadable_delivery"
        await release(driver.context, ["ORD-1"], reason="unreadable_delivery", why="looked at it")
        assert (await order(driver))["fulfillable"]
        driver.clock.put(Instant(driver.clock.now() + MINUTE))
        await driver.send(unreadable("e3"))
        assert not (await order(driver))["fulfillable"], "a later one is judged by itself"


BODIES: list[tuple[str, dict[str, Any], bool]] = [
    ("the order", {"payment": None, "session": None}, True),
    ("the order as a number", {"order": {"reference": 4711}, "payment": None}, True),
    ("the payment", {"order": None, "session": None}, True),
    ("the session", {"order": None, "payment": None}, True),
    ("another order", {"order": {"reference": "ORD-11"}, "payment": None, "session": None}, False),
    ("a part of a text", {"order": {"reference": "of ORD-1"}, "payment": None}, False),
    ("nothing", {"order": None, "payment": None, "session": None}, False),
]


@pytest.mark.parametrize(("changes", "concerned"), [each[1:] for each in BODIES], ids=lambda _: "")
async def test_only_whole_values_name_an_order(
    tmp_path: Path, changes: dict[str, Any], concerned: bool
) -> None:
    reference = "4711" if changes.get("order") == {"reference": 4711} else "ORD-1"
    if reference == "4711" or changes.get("order") == {"reference": "of ORD-1"}:
        changes = {**changes, "session": None}
    async with driving(tmp_path) as driver:
        await driver.api("PUT", f"/orders/{reference}", json=PLACED)
        await driver.send(event("e1", order={"reference": reference}))
        await driver.send(unreadable("e2", **changes))
        assert (await order(driver, reference))["fulfillable"] is not concerned


async def test_values_are_found_in_a_body_that_is_broken(tmp_path: Path) -> None:
    body = b'{"id": "e2", "data": {"order": {"reference": "ORD-1"'
    async with driving(tmp_path) as driver:
        await driver.send(event("e1"))
        assert (await order(driver))["fulfillable"]
        assert (await driver.send(body)).json()["verdict"] == "unreadable"
        assert not (await order(driver))["fulfillable"]


@pytest.mark.parametrize(("reference", "concerned"), [("7", True), ("K", True), ("KES", False)])
async def test_the_order_member_counts_at_any_length_and_no_other_short_value(
    tmp_path: Path, reference: str, concerned: bool
) -> None:
    async with driving(tmp_path) as driver:
        await driver.send(event("e1", order={"reference": reference}))
        named = {"reference": reference} if concerned else None
        await driver.send(unreadable("e2", order=named, payment={"reference": "p_9"}, session=None))
        assert (await order(driver, reference))["fulfillable"] is not concerned


async def test_an_order_that_is_paid_after_the_message_came_is_held(tmp_path: Path) -> None:
    async with driving(tmp_path) as driver:
        await driver.send(unreadable("e1"))
        await driver.send(event("e2"))
        found = await order(driver)
        assert (found["outcome"], found["fulfillable"]) == ("succeeded", False)
        held = [("held", "unreadable_delivery")]
        await soon(lambda: driver.rows("SELECT kind, reason FROM records") == held)


async def test_a_message_that_is_read_after_all_ends_the_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with driving(tmp_path) as driver:
        await driver.send(event("e1"))
        await driver.send(unreadable("e2"))
        assert not (await order(driver))["fulfillable"]
        body = json.dumps(event("e2", "refunded")).encode()
        async with driver.context.database.writing() as connection:
            await connection.exec_driver_sql(
                "UPDATE deliveries SET body=? WHERE verdict='unreadable'", (body,)
            )
        await reindex(driver.context)
        found = await order(driver)
        assert found["outcome"] == "refunded"
        assert "held_back" not in [each["code"] for each in found["findings"]]
        assert driver.rows("SELECT count(*) FROM unread_values") == [(0,)]


async def test_the_answer_says_that_a_message_cannot_be_read_and_claims_no_absence(
    tmp_path: Path,
) -> None:
    async with driving(tmp_path) as driver:
        assert (await driver.api("GET", "/orders/ORD-1")).status_code == 404
        answer = await driver.send(unreadable("e1", "succeeded"))
        missing = (await driver.api("GET", "/orders/ORD-1")).json()
        assert "a message from shop names it but is unreadable" in missing["detail"]
        await driver.api("PUT", "/orders/ORD-1", json=PLACED)
        found = await order(driver)
        assert found["plain"]["answer"] == [UNREAD]
        assert found["outcome"] == "not_attempted"
        (message,) = found["unread"]
        assert message["delivery"] == answer.json()["delivery"]
        assert (message["source"], message["names_order"]) == ("shop", True)
        assert message["problem"].startswith("occurred_at is not")
        assert any(message["delivery"] in sentence for sentence in found["staff"])


async def test_a_message_without_any_value_concerns_every_order_without_a_capture(
    tmp_path: Path,
) -> None:
    async with driving(tmp_path) as driver:
        for reference in ("ORD-1", "ORD-2"):
            await driver.api("PUT", f"/orders/{reference}", json=PLACED)
        await driver.send(event("e1"))
        await driver.send(b"\x00\x01\x02")
        paid, unpaid = await order(driver), await order(driver, "ORD-2")
        assert paid["fulfillable"]
        assert "unread" not in paid
        assert (unpaid["plain"]["answer"], unpaid["unread"][0]["names_order"]) == ([UNREAD], False)
        assert driver.rows("SELECT count(*) FROM records WHERE kind='held'") == [(0,)]


async def test_refused_messages_change_the_answer_only_while_nothing_is_accepted(
    tmp_path: Path,
) -> None:
    """Anyone can send them."""
    async with driving(tmp_path) as driver:
        await driver.api("PUT", "/orders/ORD-1", json=PLACED)
        assert "refusing" not in await order(driver)
        await driver.send(event("e1"), headers=[])
        await driver.send(event("e1"), headers=[])
        await soon(lambda: driver.rows("SELECT count(*) FROM rejections") == [(2,)])
        found = await order(driver)
        assert found["plain"]["answer"] == [REFUSED]
        assert [(each["source"], each["refused"]) for each in found["refusing"]] == [("shop", 2)]
        unknown = await driver.api("GET", "/orders/ORD-9")
        assert "every delivery of shop has been refused since" in unknown.json()["detail"]
        await driver.send(of_order("ORD-2", "e2"))
        found = await order(driver)
        assert "refusing" not in found
        unknown = await driver.api("GET", "/orders/ORD-9")
        assert unknown.json()["detail"] == "Nothing is known of order 'ORD-9'."
        assert found["plain"]["answer"] == ["We have had no word of a payment for this order."]


async def test_the_trial_of_the_public_endpoint_concerns_no_order(tmp_path: Path) -> None:
    async with driving(tmp_path) as driver:
        await driver.api("PUT", "/orders/ORD-1", json=PLACED)
        assert (await driver.send(TRIAL)).json()["verdict"] == "unreadable"
        assert "unread" not in await order(driver)


async def test_a_search_names_the_messages_that_cannot_be_read(tmp_path: Path) -> None:
    async with driving(tmp_path) as driver:
        name = (await driver.send(unreadable("e1", "succeeded"))).json()["delivery"]
        for text in ("ORD-1", "pay_1"):
            (note,) = (await find_orders(driver.context, text, limit=5)).notes
            assert f"names {text} but is unreadable" in note
            assert name in note
        await driver.send(of_order("ORD-1", "e2"))
        (hit,) = (await find_orders(driver.context, "ORD-1", limit=5)).hits
        assert hit["unread"] == [name]
        await driver.send(b"\x00")
        (note,) = (await find_orders(driver.context, "ORD-9", limit=5)).notes
        assert note.startswith("1 message without any readable value")


async def test_a_person_who_judged_a_message_ends_what_it_withheld(tmp_path: Path) -> None:
    async with driving(tmp_path) as driver:
        for reference in ("ORD-1", "ORD-2"):
            await driver.api("PUT", f"/orders/{reference}", json=PLACED)
        await driver.send(event("e1"))
        named = (await driver.send(unreadable("e2"))).json()["delivery"]
        nameless = (await driver.send(b"\x00")).json()["delivery"]
        assert not (await order(driver))["fulfillable"]
        for delivery in (named, nameless):
            await judge_unread(driver.context, delivery, reason="a payout notice")
        assert (await order(driver))["fulfillable"]
        assert "unread" not in await order(driver, "ORD-2")
        trail = driver.rows("SELECT subject, reason FROM audit WHERE action='message_judged'")
        assert trail == [(named, "a payout notice"), (nameless, "a payout notice")]
        with pytest.raises(NotFoundError, match="not an unreadable message"):
            await judge_unread(driver.context, named, reason="again")


async def test_a_message_whose_bytes_are_erased_withholds_its_order_as_before(
    tmp_path: Path,
) -> None:
    async with driving(tmp_path) as driver:
        await driver.send(event("e1"))
        name = (await driver.send(unreadable("e2", customer={"phone": "254711223344"}))).json()[
            "delivery"
        ]
        async with driver.context.database.writing() as connection:
            await prune(connection, [name], now=driver.clock.now())
        left = {value for (value,) in driver.rows("SELECT value FROM unread_values")}
        assert left == {"ORD-1", "pay_1", "cs_1"}
        assert not (await order(driver))["fulfillable"]
