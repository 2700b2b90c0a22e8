"""Floods of requests that nobody signs: genuine callbacks of what the shop named get through."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.orders.find_orders import find_orders
from app.providers.request import Incoming
from app.receiving import unsigned
from app.receiving.confirm import AT_ONCE, confirm_due
from app.receiving.refusals import RejectionRate
from app.receiving.source_state import source_states
from app.receiving.unsigned import (
    MAX_BYTES_PER_MINUTE,
    MAX_NAMING_BYTES,
    PER_REFERENCE,
    UnsignedAllowance,
)
from reconcile.ledger.plain import NOT_KEPT
from tests.api.driving import Driver
from tests.monitoring.alarms import told
from tests.receiving.asking import PAID, Provider, asking
from tests.security.asked import asking as on_demand
from tests.security.playing import Target
from tests.security.test_unsigned import SOURCES, post, pushed
from tests.security.test_unsigned import callback as stk_callback
from tests.waiting import soon

__all__ = ["asking"]


def callback(session: str, *, address: str = "196.201.214.200", more: int = 0) -> Incoming:
    """Return Safaricom's callback for a push."""
    stated = {"CheckoutRequestID": session, "ResultCode": 0, "ResultDesc": "x" * more}
    body = json.dumps({"Body": {"stkCallback": stated}}).encode()
    return Incoming((), body, "POST", "/webhooks/mpesa", "mpesa", address)


class Clock:
    """Seconds that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def allowance(clock: Clock, *, named: int = 20) -> UnsignedAllowance:
    """Return a receiver's allowance that knows so many sessions."""
    made = UnsignedAllowance(RejectionRate(in_all=1200, per_address=600, clock=clock), clock=clock)
    made.name(("mpesa", f"ws_CO_{n}") for n in range(named))
    return made


@pytest.mark.parametrize("named", [20, 0])
def test_a_flood_of_three_addresses_leaves_room_for_callbacks_of_named_sessions(
    clock: Clock, named: int
) -> None:
    """Each sends 50 requests a second; what names nothing shares what is left."""
    allowed = allowance(clock, named=named)
    for second in range(30):
        clock.now = second
        for number in range(150):
            forged = callback(f"forged_{second}_{number}", address=f"203.0.113.{number % 3}")
            allowed.takes("mpesa", forged)
    taken = sum(allowed.takes("mpesa", callback(f"ws_CO_{n}")) for n in range(20))
    assert (taken == 20) is (named > 0)


def test_who_knows_one_session_uses_its_allowance_alone(clock: Clock) -> None:
    """A customer knows the own session, and takes nothing from another's."""
    allowed = allowance(clock)
    for _ in range(3_000):
        allowed.takes("mpesa", callback("ws_CO_1", address="203.0.113.1"))
        allowed.takes("mpesa", callback("forged", address="203.0.113.2"))
        allowed.takes("mpesa", callback("forged", address="203.0.113.3"))
    own = [allowed.takes("mpesa", callback("ws_CO_1")) for _ in range(PER_REFERENCE)]
    assert not any(own)
    assert all(allowed.takes("mpesa", callback("ws_CO_2")) for _ in range(PER_REFERENCE))
    assert not allowed.takes("other", callback("ws_CO_3")), "it was named at another source"


@pytest.mark.parametrize(
    ("session", "more"), [("forged", 20_000), ("ws_CO_1", MAX_NAMING_BYTES), ("forged", 60_000)]
)
def test_bytes_that_are_kept_of_what_names_nothing_known_are_bounded(
    clock: Clock, session: str, more: int
) -> None:
    """However few requests they are; those not kept are counted, once a second."""
    allowed, kept = allowance(clock), 0
    for number in range(1_000):
        large = callback(session, address=f"203.0.113.{number % 200}", more=more)
        kept += len(large.body) if allowed.takes("mpesa", large) else 0
    assert MAX_BYTES_PER_MINUTE * 0.9 < kept <= MAX_BYTES_PER_MINUTE
    assert allowed.to_note("mpesa") > 0
    assert not allowed.takes("mpesa", callback("forged", more=more))
    assert allowed.to_note("mpesa") == 0
    clock.now = 1.0
    assert allowed.to_note("mpesa") == 1


def test_while_too_much_was_never_asked_about_only_named_sessions_are_kept(clock: Clock) -> None:
    allowed = allowance(clock)
    allowed.fill(["mpesa"])
    assert not allowed.takes("mpesa", callback("forged"))
    assert allowed.takes("mpesa", callback("ws_CO_1"))
    assert allowed.takes("other", callback("forged"))
    allowed.fill([])
    assert allowed.takes("mpesa", callback("forged"))


def test_only_so_many_references_bytes_and_values_are_compared(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unsigned, "MAX_REFERENCES", 2)
    allowed = allowance(clock, named=3)
    allowed.fill(["mpesa"])
    assert [allowed.takes("mpesa", callback(f"ws_CO_{n}")) for n in range(3)] == [False, True, True]
    most = MAX_NAMING_BYTES - len(callback("ws_CO_1").body)
    for more in (0, 1):
        assert allowed.takes("mpesa", callback("ws_CO_1", more=most + more)) is (more == 0)
    monkeypatch.setattr(unsigned, "MAX_NAMING_VALUES", 3)
    for before in (2, 3):
        values = json.dumps(["x"] * before + ["ws_CO_1"]).encode()
        assert allowed.takes("mpesa", Incoming((), values)) is (before == 2)


async def flood(driver: Driver, count: int) -> list[int]:
    """Send so many forged callbacks."""
    return [
        (await driver.send({**PAID, "id": f"forged_{n}"}, [], source="weak")).status_code
        for n in range(count)
    ]


async def test_a_named_payment_gets_through_and_others_may_be_lost_which_is_said(
    asking: Any,
) -> None:
    """Of the time of the flood nothing says that no payment came."""
    async with asking(Provider(404), UNSIGNED_PER_MINUTE="10") as driver:
        price = {"amount": "700.00", "currency": "KES"}
        references = [{"source": "weak", "payment": "pay_9"}]
        await driver.api("PUT", "/orders/ORD-9", json=price | {"references": references})
        await driver.api("PUT", "/orders/ORD-8", json=price)
        known = driver.service.webhooks.receiver.unsigned
        await soon(lambda: bool(known._named))
        assert set(await flood(driver, 30)) == {200, 429}
        assert (await driver.send(PAID, [], source="weak")).status_code == 200
        lost = "SELECT sum(count) FROM refusals WHERE verdict='not_kept'"
        await soon(lambda: driver.rows(lost) != [(None,)])
        assert driver.rows("SELECT count(*) FROM rejections") == [(0,)]
        found = (await driver.api("GET", "/orders/ORD-8")).json()
        assert found["plain"]["answer"][0] == NOT_KEPT
        assert "look the payment up at the provider" in " ".join(found["staff"])
        unknown = (await driver.api("GET", "/orders/ORD-7")).json()
        assert "unsigned requests were not stored" in unknown["detail"]
        (note,) = (await find_orders(driver.context, "ORD-7", limit=5)).notes
        assert "one may be about it" in note
        (state,) = [s for s in await source_states(driver.context) if s.source == "weak"]
        assert (state.state, "not stored in the last day" in state.sentence) == ("flooded", True)


@pytest.mark.parametrize("named_first", [True, False])
async def test_one_round_of_questions_pays_a_named_push_behind_a_flood(
    named_first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the shop names the push after its callback."""
    async with on_demand(tmp_path, monkeypatch, **SOURCES) as (driver, truth):
        target = Target(driver, "OURS-1")
        truth.known[target.session] = {"ResponseCode": "0", "ResultCode": "0"}
        if named_first:
            await pushed(target)
        for number in range(40):
            await post(target, "mpesa", stk_callback(f"forged-{number}"))
        await post(target, "mpesa", stk_callback(target.session))
        for number in range(40, 80):
            await post(target, "mpesa", stk_callback(f"forged-{number}"))
        if not named_first:
            await pushed(target)
        (confirmer,) = truth.confirmers
        assert await confirm_due(confirmer, "mpesa") == AT_ONCE
        ledger = await target.ledger()
        assert (ledger["outcome"], ledger["fulfillable"]) == ("succeeded", True)


async def test_junk_raises_no_alarm_about_genuine_messages(asking: Any) -> None:
    async with asking(Provider(404)) as driver:
        for _ in range(3):
            await driver.send({}, [], source="weak")
        assert await told(driver, "unreadable") == []
        assert driver.rows("SELECT count(*) FROM deliveries WHERE verdict='unreadable'") != [(0,)]
