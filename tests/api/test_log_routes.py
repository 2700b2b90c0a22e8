"""Deliveries and notifications through the API, for people: by role, masked, without bodies."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.access.operators import register_operator
from app.access.tokens import issue_own_token, issue_token
from app.database.statements import run
from app.orders.refold import refold_until_quiet
from app.receiving.restriction_store import RestrictionRow, write_restrictions
from app.sealing.departure_store import (
    Departure,
    WitnessState,
    add_departure,
    change_witness,
    claim_witness,
)
from reconcile.instants import SECOND
from tests.api.described import not_as_described
from tests.api.driving import Driver, driving, event, of_order, signed
from tests.evidence.witness import TestWitness
from tests.reconcile.build import T

PEOPLE = (("Boss", "admin"), ("Ann", "finance"), ("Sue", "support"), ("Vic", "viewer"))
PHONE = "254712345678"
REASON = {"reason": "their server was down"}


WITNESS = TestWitness("witness.example", lambda: 0).key


class Desk:
    """Operators with tokens of their own, and a delivery log with notifications."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.tokens: dict[str, str] = {}

    async def begin(self) -> None:
        """Create three deliveries of two orders, one refused delivery, and three notifications."""
        driver = self.driver
        for name, role in PEOPLE:
            await register_operator(driver.context, name=name, role=role, by="Boss")  # type: ignore[arg-type]
            token, _ = await issue_own_token(driver.context, operator=name, until="30d", by="Boss")
            self.tokens[name] = token
        phone = {"phone": PHONE}
        forged = [(b"webhook-signature", b"v1,AA==")]
        for number, (document, changed) in enumerate((
            (event("e1", customer=phone), []), (of_order("ORD-2", "e2", "pending"), []),
            (event("e3", "disputed"), []), (event("e4", customer=phone), forged),
        )):  # fmt: skip
            driver.clock.put(T + number * SECOND)
            body = httpx2.Request("POST", "http://x", json=document).content
            headers = [
                each for each in signed(body, at=driver.clock.now())
                if not changed or each[0] != changed[0][0]
            ]  # fmt: skip
            more = [(b"x-customer", PHONE.encode()), (b"x-api-key", b"hush")]
            await driver.send(body, [*headers, *changed, *more])
            await refold_until_quiet(driver.context, limit=100, progress=lambda count: None)

    async def ask(self, who: str, path: str, method: str = "GET", **words: Any) -> httpx2.Response:
        """Return an answer after checking it against the description."""
        answer = await self.driver.client.request(
            method,
            f"/api/v1/{path}",
            headers={"Authorization": f"Bearer {self.tokens[who]}"},
            **words,
        )
        assert not_as_described(answer) == [], answer.text
        return answer


@asynccontextmanager
async def desk_in(folder: Path) -> AsyncIterator[Desk]:
    """Run a service with a shop to notify; nothing is sent automatically."""
    settings: dict[str, Any] = {
        "SHOP__URL": "https://shop.example/told",
        "SHOP__SECRET": "whsec_c2hvcC1zZWNyZXQtb2YtMzAtYnl0ZXMtbG9uZyE=",
        "EVIDENCE__WITNESSES": f"{WITNESS} https://witness.example",
    }
    async with driving(folder, with_worker=False, looking=True, **settings) as driver:
        desk = Desk(driver)
        await desk.begin()
        yield desk


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with desk_in(tmp_path) as found:
        yield found


async def test_what_arrived_newest_first_in_pages(desk: Desk) -> None:
    whole = (await desk.ask("Sue", "deliveries")).json()
    assert [each["event"] for each in whole["deliveries"]] == [None, "e3", "e2", "e1"]
    assert whole["next"] is None
    found: list[Any] = []
    following: str | None = ""
    while following is not None:
        page = (await desk.ask("Sue", f"deliveries?limit=1&before={following}")).json()
        found += page["deliveries"]
        following = page["next"]
    assert found == whole["deliveries"]
    for query, events in (
        ("verdict=stored", ["e3", "e2", "e1"]), ("verdict=signature_mismatch", [None]),
        ("source=shop&verdict=stored&limit=1", ["e3"]), ("source=other", []),
    ):  # fmt: skip
        narrowed = (await desk.ask("Ann", f"deliveries?{query}")).json()
        assert [each["event"] for each in narrowed["deliveries"]] == events, query
    for wrong in ("verdict=x", "limit=0", "after=x"):
        assert (await desk.ask("Ann", f"deliveries?{wrong}")).status_code == 422


async def test_one_arrival_is_masked_and_has_no_body(desk: Desk) -> None:
    listed = (await desk.ask("Sue", "deliveries")).json()["deliveries"]
    one = await desk.ask("Vic", f"deliveries/{listed[-1]['delivery']}")
    body = one.json()
    assert (body["order"], body["event"], body["verdict"]) == ("ORD-1", "e1", "stored")
    assert body | listed[-1] == body
    for secret in (PHONE, "hush"):
        assert secret not in one.text
    assert len(body["phones"]) == 1
    assert any(each.startswith("webhook-id: ") for each in body["headers"])
    assert (await desk.ask("Sue", "deliveries/dlv_x")).json()["code"] == "delivery_unknown"


async def test_refused_ones_are_for_who_may_see_them_and_the_trail_says_who_did(
    desk: Desk,
) -> None:
    """Nobody vouches for them: they may hold anybody's data."""
    everything = (await desk.ask("Sue", "deliveries")).json()["deliveries"]
    seen = (await desk.ask("Vic", "deliveries")).json()["deliveries"]
    assert seen == everything[1:]
    asked = (await desk.ask("Vic", "deliveries?verdict=signature_mismatch")).json()
    assert asked["deliveries"] == []
    path = f"deliveries/{everything[0]['delivery']}"
    refused = await desk.ask("Vic", path)
    assert (refused.status_code, refused.json()["code"]) == (403, "role_missing")
    noted = "SELECT who, subject FROM audit WHERE action='rejection_read'"
    assert desk.driver.rows(noted) == []
    answer = await desk.ask("Sue", path)
    assert (answer.status_code, answer.json()["phones"]) == (200, [])
    assert PHONE not in answer.text
    assert desk.driver.rows(noted) == [("Sue", everything[0]["delivery"])]


async def test_what_the_shop_is_sent_newest_first_in_pages(desk: Desk) -> None:
    whole = (await desk.ask("Ann", "notifications")).json()
    assert [each["order"] for each in whole["notifications"]] == ["ORD-1", "ORD-2", "ORD-1"]
    first = (await desk.ask("Ann", "notifications?limit=2")).json()
    then = (await desk.ask("Ann", f"notifications?limit=2&before={first['next']}")).json()
    assert first["notifications"] + then["notifications"] == whole["notifications"]
    assert then["next"] is None
    of_one = (await desk.ask("Ann", "notifications?order=ORD-2&state=waiting")).json()
    assert [each["order"] for each in of_one["notifications"]] == ["ORD-2"]
    assert (await desk.ask("Ann", "notifications?state=dead")).json()["notifications"] == []
    assert (await desk.ask("Ann", "notifications?state=x")).status_code == 422
    assert (await desk.ask("Vic", "notifications")).json()["code"] == "role_missing"


async def test_a_notification_is_sent_again_by_a_person_with_a_reason(desk: Desk) -> None:
    """One that was given up waits again; the audit trail has the person and the reason."""
    driver = desk.driver
    listed = (await desk.ask("Sue", "notifications")).json()["notifications"]
    number = listed[-1]["id"]
    path = f"notifications/{number}/redeliver"
    for who, words, status in (
        ("Vic", REASON, 403), ("Sue", {}, 422), ("Sue", {"reason": "x" * 2_001}, 422),
    ):  # fmt: skip
        assert (await desk.ask(who, path, "POST", json=words)).status_code == status
    trail = "SELECT who, subject, reason FROM audit WHERE action='notifications_redelivered'"
    assert driver.rows(trail) == []
    driver.clock.put(T + 100 * SECOND)
    again = await desk.ask("Sue", path, "POST", json=REASON)
    assert again.status_code == 200
    assert (again.json()["id"], again.json()["state"]) == (number, "waiting")
    assert again.json()["due_at"] != listed[-1]["due_at"]
    assert driver.rows(trail) == [("Sue", str(number), REASON["reason"])]
    for none in ("99", "x", "0"):
        missing = await desk.ask("Sue", f"notifications/{none}/redeliver", "POST", json=REASON)
        assert (missing.status_code, missing.json()["code"]) == (404, "notification_unknown")


async def test_what_is_restricted_shows_no_header_and_is_in_no_list_of_its_order(
    desk: Desk,
) -> None:
    """Its answers are as described, and say since when it is restricted, and why."""
    driver = desk.driver
    row = RestrictionRow(
        kind="order", thing="ORD-1", since=T, until=None, why="disputed", look_at=T, erasure=T
    )
    async with driver.context.database.writing() as connection:
        await run(connection, write_restrictions, [row])
    listed = await desk.ask("Sue", "deliveries?order=ORD-1")
    assert (listed.status_code, "restricted since" in listed.text) == (422, True)
    (name,) = driver.rows("SELECT id FROM deliveries WHERE event_id = 'e1'")[0]
    shown = (await desk.ask("Sue", f"deliveries/{name}")).json()
    assert (shown["phones"], shown["headers"]) == ([], [])
    assert "restricted since" in shown["problem"]
    order = (await desk.ask("Sue", "orders/ORD-1")).json()
    assert (order["restricted"]["until"], order["restricted"]["why"]) == (None, "disputed")


async def test_a_programs_token_sees_none_of_it(desk: Desk) -> None:
    """Whatever its scopes: it names no person."""
    token = await issue_token(
        desk.driver.context, name="shop", scopes=["read", "evidence"], by="Boss"
    )
    desk.tokens["shop"] = token
    for path, method in (
        ("deliveries", "GET"), ("deliveries/dlv_x", "GET"), ("notifications", "GET"),
        ("notifications/1/redeliver", "POST"),
    ):  # fmt: skip
        refused = await desk.ask("shop", path, method)
        assert (refused.status_code, refused.json()["code"]) == (403, "scope_missing")


async def test_the_witnesses_of_the_log_and_what_left(desk: Desk) -> None:
    """Every role may read them; one that fails says what to do."""
    context = desk.driver.context
    async with context.database.writing() as connection:
        await add_departure(connection, Departure(size=4, way="mail", head=bytes(32), at=T))
    body = (await desk.ask("Vic", "log/witnesses")).json()
    (one,) = body["witnesses"]
    assert (body["quorum"], body["cosigned"]) == (1, 0)
    assert (one["key"], one["state"], one["leaves"]) == (WITNESS, "waiting", 0)
    assert [(each["way"], each["leaves"]) for each in body["left"]] == [("mail", 4)]
    async with context.database.writing() as connection:
        await claim_witness(connection, WITNESS, before=None, until=T)
        state = WitnessState(witness=WITNESS, next_at=T, failures=1, since=T, problem="clock_off")
        await change_witness(connection, state)
    (one,) = (await desk.ask("Sue", "log/witnesses")).json()["witnesses"]
    assert (one["state"], one["problem"]) == ("fails", "clock_off")
    assert "ten minutes off" in one["sentence"]
