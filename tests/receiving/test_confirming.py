"""Confirmation: an unsigned event counts only after its provider was asked."""

import asyncio
import io
import json
from typing import Any

import httpx2
import pytest

from app.receiving import confirm
from reconcile.instants import HOUR, MINUTE, SECOND
from tests.receiving.asking import (
    PAID,
    PROFILE,
    Provider,
    asking,
    deliver,
    outcome,
    questions,
    stream,
    until,
    waiting,
)
from tests.reconcile.build import T
from tests.waiting import soon

__all__ = ["asking"]


async def test_it_counts_once_the_provider_confirms(asking: Any) -> None:
    """Pending with the reason at first; paid after the provider's own word, asked at its fixed
    host with the credentials, and nowhere that the event names."""
    provider = Provider(
        httpx2.ConnectError("down"), {"state": "COMPLETE", "order": "ORD-9", "amount": 700}
    )
    async with asking(provider) as driver:
        evil = {**PAID, "url": "https://evil.example"}
        assert await deliver(driver, evil) == "stored"
        ledger = (await driver.api("GET", "/orders/ORD-9")).json()
        assert ledger["outcome"] == "pending"
        assert not ledger["fulfillable"]
        assert "has not confirmed it yet" in ledger["explanation"][0]
        await questions(driver, provider, 1)
        driver.clock.put(T + 6 * SECOND)
        await until(driver, "succeeded")
        request = provider.asked[-1]
        assert str(request.url) == "https://sandbox.provider.example/v1/payments/pay_9"
        assert request.headers["authorization"] == "Bearer k-api-0123456789"
        assert request.headers["x-subscription"] == "sub-987"
        await waiting(driver, 0)
        kept = driver.rows("SELECT headers, body FROM deliveries WHERE source='weak'")
        assert not any("k-api" in str(row) or "sub-987" in str(row) for row in kept)


async def test_a_forged_success_is_settled_by_the_denial(asking: Any) -> None:
    """What the provider calls failed is failed, whatever anybody wrote to us."""
    provider = Provider({"state": "FAILED", "order": "ORD-9", "amount": 700})
    async with asking(provider) as driver:
        await deliver(driver, PAID)
        await until(driver, "failed")


@pytest.mark.parametrize(("second", "wanted"), [("FAILED", "failed"), ("COMPLETE", "succeeded")])
async def test_a_refusal_that_may_change_is_asked_about_once_more(
    asking: Any, second: str, wanted: str
) -> None:
    """Before the deadline, and no third time; a success that came after all outranks it."""
    profile = PROFILE.replace("[fetch_back.headers]", 'again = ["FAILED"]\n[fetch_back.headers]')
    answer = {"order": "ORD-9", "amount": 700}
    provider = Provider({"state": "FAILED", **answer}, {"state": second, **answer})
    async with asking(provider, profile) as driver:
        await deliver(driver, PAID)
        await until(driver, "failed")
        await waiting(driver, 1)
        driver.clock.put(T + 15 * MINUTE)
        await waiting(driver, 0)
        await until(driver, wanted)
        assert len(provider.asked) == 2


@pytest.mark.parametrize("named", ["ORD-8", None])
async def test_a_true_payment_of_another_order_pays_for_nothing_else(
    asking: Any, named: str | None
) -> None:
    """Whoever writes another order beside a payment of their own: only the provider's counts, and
    where it names none, none. The unconfirmed word shares nothing with the order that is paid."""
    provider = Provider({"state": "COMPLETE", "order": named, "amount": 700})
    async with asking(provider) as driver:
        await deliver(driver, PAID)
        fetched = "SELECT 1 FROM deliveries WHERE headers LIKE ':fetched%'"
        await soon(lambda: driver.rows(fetched))
        assert await outcome(driver) == "pending"
        ledger = (await driver.api("GET", "/orders/ORD-9")).json()
        assert not ledger["fulfillable"]
        if named:
            paid = (await driver.api("GET", f"/orders/{named}")).json()
            assert paid["outcome"] == "succeeded"


async def test_an_answer_of_the_other_environment_is_none(asking: Any) -> None:
    """Where the answer says of which it is: one that a key of the other is given moves no money,
    and is kept as unreadable to be looked at."""
    says = PROFILE.replace(
        "[fetch_back.headers]", 'environment = "json:mode"\n[fetch_back.headers]'
    )
    paid = {"state": "COMPLETE", "order": "ORD-9", "amount": 700}
    provider = Provider({**paid, "mode": "live"})
    async with asking(provider, says) as driver:
        await deliver(driver, PAID)
        unread = "SELECT problem FROM deliveries WHERE headers LIKE ':fetched%'"
        await soon(lambda: driver.rows(unread))
        assert driver.rows(unread) == [("the answer does not state that it belongs to sandbox",)]
        assert await outcome(driver) == "pending"
        provider.answers = [{**paid, "mode": "sandbox"}]
        driver.clock.put(driver.clock.now() + HOUR)
        await until(driver, "succeeded")


async def test_a_payment_that_the_provider_does_not_know_moves_no_money(asking: Any) -> None:
    """Asked several times, since some are slow to know; then the word is void and time decides."""
    provider = Provider(404)
    async with asking(provider) as driver:
        await deliver(driver, PAID)
        await questions(driver, provider, confirm.SURE_NOT_FOUND)
        await waiting(driver, 0)
        assert await outcome(driver) == "pending"  # its time counts from the answer
        driver.clock.put(driver.clock.now() + HOUR)
        await until(driver, "timed_out")
        assert len(provider.asked) == confirm.SURE_NOT_FOUND


async def test_asking_survives_a_restart_and_a_repeated_answer_is_kept_once(asking: Any) -> None:
    """A pending answer is asked again later, by the next process too; equal answers are one."""
    provider = Provider({"state": "PENDING"})
    async with asking(provider) as driver:
        await deliver(driver, PAID)
        await questions(driver, provider, 2)
        later = driver.clock.now() + HOUR
    provider.answers = [{"state": "COMPLETE", "order": "ORD-9", "amount": 700}]
    async with asking(provider) as driver:
        driver.clock.put(later)
        await until(driver, "succeeded")
        fetched = driver.rows("SELECT verdict FROM deliveries WHERE headers LIKE ':fetched%'")
        assert fetched == [("stored",), ("stored",)]


async def test_an_event_that_is_asked_for_by_its_id_is_asked_for_once(asking: Any) -> None:
    """It will say the same for ever; a payment that is asked for goes on."""
    by_id = PROFILE.replace("/payments/{payment}", "/events/{id}")
    provider = Provider({"state": "PENDING"})
    async with asking(provider, by_id) as driver:
        await deliver(driver, PAID)
        await questions(driver, provider, 1)
        await waiting(driver, 0)
        assert await outcome(driver) == "pending"


async def test_what_is_said_again_is_asked_again(asking: Any) -> None:
    """A provider that says no more than that something changed says it in the same words twice."""
    ping = PROFILE.replace("{json:id}:{json:state}", "{json:id}").replace(
        'COMPLETE = "succeeded"', 'CHANGED = "pending"', 1
    )
    provider = Provider({"state": "FAILED", "order": "ORD-9", "amount": 700})
    async with asking(provider, ping) as driver:
        changed = {**PAID, "state": "CHANGED"}
        assert await deliver(driver, changed) == "stored"
        await until(driver, "failed")
        await waiting(driver, 0)
        provider.answers = [{"state": "COMPLETE", "order": "ORD-9", "amount": 700}]
        assert await deliver(driver, changed) == "duplicate"
        await until(driver, "succeeded")
        await waiting(driver, 0)


async def test_what_is_said_while_the_provider_is_asked_is_asked_again(asking: Any) -> None:
    """The answer under way may be older than what was said: it settles nothing then."""
    states = ["FAILED", "COMPLETE"]
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(request: httpx2.Request) -> httpx2.Response:
        state = states.pop(0)
        begun.set()
        await go_on.wait()
        content = json.dumps({"state": state, "order": "ORD-9", "amount": 700}).encode()
        return httpx2.Response(200, content=stream(content))

    async with asking(slow) as driver:
        await deliver(driver, PAID)
        await begun.wait()
        assert await deliver(driver, PAID) == "duplicate"
        go_on.set()
        await until(driver, "succeeded")
        await waiting(driver, 0)


async def test_a_provider_that_is_slow_to_know_is_not_believed_at_once(asking: Any) -> None:
    """Until it was asked often enough its not knowing is kept nowhere, and no time runs out."""
    known = {"state": "COMPLETE", "order": "ORD-9", "amount": 700}
    provider = Provider(*[404] * (confirm.SURE_NOT_FOUND - 1), known)
    async with asking(provider) as driver:
        driver.clock.put(T + 9 * HOUR)  # long after any deadline that counts from the event's date
        await deliver(driver, PAID)
        assert await outcome(driver) == "pending"
        await questions(driver, provider, confirm.SURE_NOT_FOUND)
        await until(driver, "succeeded")
        assert driver.rows("SELECT count(*) FROM deliveries") == [(2,)]


async def test_a_status_we_cannot_use_changes_nothing(asking: Any, log: io.StringIO) -> None:
    """Refused credentials, trouble and redirects: pending, asked again, and each logged once a
    minute."""
    provider = Provider(401, 403, 302, 500, 429)
    async with asking(provider) as driver:
        await deliver(driver, PAID)
        await questions(driver, provider, 8)
        assert await outcome(driver) == "pending"
    assert log.getvalue().count("provider gave no answer") == 5


async def test_an_event_that_names_nothing_is_asked_about_no_more(
    asking: Any,
) -> None:
    """What the address needs is missing: nothing is sent, and its order says that it waits."""
    provider = Provider(500)
    async with asking(provider, PROFILE.replace('payment = "json:id"\n', "")) as driver:
        await deliver(driver, PAID)
        await waiting(driver, 0)
        assert await outcome(driver) == "pending"
        assert provider.asked == []
