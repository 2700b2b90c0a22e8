"""Pauses between questions to a provider, and their end."""

import asyncio
from typing import Any

import httpx2
import pytest

from app.providers.provider_client import LIMIT_S
from app.receiving import confirm
from app.receiving.confirm import ASK_FOR, ask_before, unanswered_by
from reconcile.instants import HOUR, SECOND, Instant
from tests.api.driving import Driver
from tests.receiving.asking import PAID, Provider, asking, deliver, outcome, stream, waiting
from tests.waiting import soon

__all__ = ["asking"]


async def due_after(driver: Driver, tries: int) -> int:
    """Return when the only waiting event is due after this many questions."""
    await soon(lambda: driver.rows("SELECT tries FROM confirmations") == [(tries,)])
    ((due,),) = driver.rows("SELECT due_at FROM confirmations")
    return int(due)


async def test_pauses_double_up_to_an_hour_and_end_when_the_longest_window_has(asking: Any) -> None:
    """Then it is asked about no more; its order stays pending."""
    async with asking(Provider(500)) as driver:
        await deliver(driver, PAID)
        pauses = []
        for tries in range(1, 13):
            due = await due_after(driver, tries)
            pauses.append((due - driver.clock.now()) // SECOND)
            driver.clock.put(due)
        hour = HOUR // SECOND
        assert pauses == [5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, hour, hour]
        await due_after(driver, 13)
        driver.clock.put(driver.clock.now() + ASK_FOR)
        await waiting(driver, 0)
        assert await outcome(driver) == "pending"


async def test_a_provider_that_asks_for_longer(asking: Any) -> None:
    """Its Retry-After is kept to, but for no longer than our own longest pause."""
    asked = [(503, "90"), (429, "2"), (429, "86400"), (503, "a while")]
    answers = [
        httpx2.Response(status, headers={"retry-after": wait}, content=stream(b""))
        for status, wait in asked
    ]
    async with asking(lambda request: answers.pop(0)) as driver:
        await deliver(driver, PAID)
        pauses = []
        for tries in range(1, 5):
            due = await due_after(driver, tries)
            pauses.append((due - driver.clock.now()) // SECOND)
            if answers:
                driver.clock.put(due)
    assert pauses == [90, 10, HOUR // SECOND, 40]


async def test_nobody_else_takes_what_is_being_asked(asking: Any) -> None:
    """Its lease outlasts a token and a question that both take as long as they may."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def hanging(request: httpx2.Request) -> httpx2.Response:
        begun.set()
        await go_on.wait()
        return httpx2.Response(500)

    async with asking(hanging) as driver:
        await deliver(driver, PAID)
        await begun.wait()
        ((due,),) = driver.rows("SELECT due_at FROM confirmations")
        assert due - driver.clock.now() > 2 * LIMIT_S * SECOND
        go_on.set()


async def test_what_is_not_final_is_asked_about_once_more_before_a_month_is_closed(
    asking: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what came before its end. A provider that gives no answer has not been asked."""
    provider = Provider({"state": "PENDING", "order": "ORD-9", "amount": 700})
    async with asking(provider) as driver:
        await deliver(driver, PAID)
        await due_after(driver, 1)
        now = driver.clock.now()
        assert await ask_before(driver.context, until=now) == []
        assert len(provider.asked) == 1
        assert await ask_before(driver.context, until=Instant(now + 1)) == []
        await soon(lambda: len(provider.asked) == 2)  # this clock dates both answers alike
        driver.clock.put(Instant(now + SECOND))
        provider.answers = [500]
        monkeypatch.setattr(confirm, "PATIENCE_S", 1.0)
        [left] = await ask_before(driver.context, until=Instant(now + 1))
        assert (left.source, left.payment, len(provider.asked)) == ("weak", "pay_9", 3)


async def test_a_moment_that_is_past_rests_on_the_answers_from_the_months_end_until_then(
    asking: Any,
) -> None:
    """Nobody is asked: an answer of now was not known of then."""
    provider = Provider({"state": "PENDING", "order": "ORD-9", "amount": 700})
    async with asking(provider) as driver:
        await deliver(driver, PAID)
        came = driver.clock.now()
        driver.clock.put(await due_after(driver, 1))
        await due_after(driver, 2)
        answered = driver.clock.now()
        found = [
            [each.payment for each in await unanswered_by(driver.context, until=until, as_of=as_of)]
            for until, as_of in (
                (came, answered),
                (Instant(came + 1), answered),
                (Instant(came + 1), Instant(answered - 1)),
                (Instant(answered + 1), Instant(answered + SECOND)),
            )
        ]
    assert found == [[], [], ["pay_9"], ["pay_9"]]
    assert len(provider.asked) == 2
