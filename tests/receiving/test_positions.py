"""Answers that state a position: which of them are stored, and when the provider is asked again."""

import json
from dataclasses import replace
from email.utils import format_datetime
from typing import Any

import httpx2
import pytest

from app.receiving.confirm import ASK_AGAIN, ask_again_after, says_nothing_new
from reconcile.instants import DAY, HOUR, MINUTE, NO_TIME, SECOND, Duration, moment_of
from reconcile.ledger.events import Event, State
from reconcile.money import Money
from tests.database.contract_gaps import accept_gap
from tests.database.contract_holds import started
from tests.receiving.asking import PAID, PROFILE, asking, deliver, outcome, stream, until
from tests.reconcile.build import T, event
from tests.waiting import soon

__all__ = ["asking"]


def answer(refunded: int, *, after: Duration) -> Event:
    """Return an answer that states a sum of refunds."""
    state = State(member="refunded", money=Money(minor=refunded, currency="KES"))
    made = event(f"a{after}", "succeeded", 0, payment="p", standing="fetched")
    return replace(made, states=(state,), stated_at=T + after)


FIRST, UNDONE = answer(90, after=NO_TIME), answer(0, after=10 * SECOND)


@pytest.mark.parametrize(
    ("new", "known", "nothing_new"),
    [
        (FIRST, [], False),
        (answer(90, after=2 * HOUR), [FIRST], True),
        (UNDONE, [FIRST], False),
        (answer(0, after=HOUR), [UNDONE, FIRST], True),
        (answer(0, after=HOUR + 10 * SECOND), [UNDONE, FIRST], False),
        (answer(0, after=9 * HOUR), [answer(0, after=2 * HOUR), UNDONE], True),
    ],
    ids=["the first", "a repetition", "a change", "too early", "repeats an undoing", "once"],
)
def test_an_equal_answer_is_stored_again_only_where_it_repeats_an_undoing_an_hour_later(
    new: Event, known: list[Event], nothing_new: bool
) -> None:
    assert says_nothing_new(new, known) == nothing_new


UNDER_WAY = replace(
    FIRST, states=(State(member="refund", word="pending", money=None, reference="re_1"),)
)


@pytest.mark.parametrize(
    ("new", "known", "pauses"),
    [
        (FIRST, [FIRST], [None]),
        (answer(90, after=HOUR), [FIRST], [*ASK_AGAIN, None]),
        (UNDONE, [UNDONE, FIRST], [*ASK_AGAIN, HOUR]),
        (answer(0, after=MINUTE), [UNDONE, FIRST], [*ASK_AGAIN, HOUR]),
        (answer(0, after=DAY), [answer(0, after=DAY), UNDONE], [None]),
        (UNDER_WAY, [UNDER_WAY], [DAY]),
    ],
    ids=["the first", "a repetition", "a change", "not yet repeated", "repeated", "under way"],
)
def test_a_position_is_asked_about_until_it_is_final_and_repeated(
    new: Event, known: list[Event], pauses: list[Duration | None]
) -> None:
    assert [ask_again_after(new, known, tries=n) for n, _ in enumerate(pauses)] == pauses


async def test_a_refund_that_an_answer_takes_back_ships_once_it_is_repeated(asking: Any) -> None:
    """A refund that the provider's copy does not know yet stops the order, and so does its undoing
    until it is repeated. Equal answers are not kept."""
    rule = 'states_refunded = "json:back"\n[fetch_back.headers]'
    profile = PROFILE.replace("{json:id}:{json:state}", "{json:id}")
    profile = profile.replace("[fetch_back.headers]", rule)
    paid = {"state": "COMPLETE", "order": "ORD-9", "amount": 700}
    sums = [0, 700, 0, 0, 0, 0, 0]
    asked: list[httpx2.Request] = []

    def provider(request: httpx2.Request) -> httpx2.Response:
        back = sums[min(len(asked), len(sums) - 1)]
        asked.append(request)
        dated = format_datetime(moment_of(driver.clock.now()), usegmt=True)
        content = stream(json.dumps({**paid, "back": back}).encode())
        return httpx2.Response(200, headers={"date": dated}, content=content)

    async with asking(provider, profile) as driver:
        order = {"amount": "700.00", "currency": "KES"}
        await driver.api("PUT", "/orders/ORD-9", json=order)

        async def ships() -> bool:
            await outcome(driver)
            return bool((await driver.api("GET", "/orders/ORD-9")).json()["fulfillable"])

        await deliver(driver, PAID)
        await until(driver, "succeeded")
        assert await ships()
        driver.clock.put(T + HOUR)
        await deliver(driver, PAID)
        await until(driver, "refunded")
        for number, pause in enumerate((10 * SECOND, MINUTE, 10 * MINUTE, HOUR), 3):
            tried = f"SELECT 1 FROM confirmations WHERE tries={number - 2}"
            await soon(lambda tried=tried: driver.rows(tried))
            assert not await ships()
            driver.clock.put(driver.clock.now() + pause)
            await soon(lambda number=number: len(asked) >= number)
        await until(driver, "succeeded")
        fetched = "SELECT count(*) FROM deliveries WHERE headers LIKE ':fetched%'"
        await soon(lambda: driver.rows(fetched) == [(4,)])
        assert await ships()


async def test_an_equal_answer_after_an_accepted_gap_is_kept_and_ends_the_hold(
    asking: Any,
) -> None:
    """It proves that no refund was lost; where one was, it states the refund."""
    profile = PROFILE.replace(
        "[fetch_back.headers]", 'states_refunded = "json:back"\n[fetch_back.headers]'
    )
    asked: list[httpx2.Request] = []

    def provider(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        dated = format_datetime(moment_of(driver.clock.now()), usegmt=True)
        content = stream(
            json.dumps({"state": "COMPLETE", "order": "ORD-9", "amount": 700, "back": 0}).encode()
        )
        return httpx2.Response(200, headers={"date": dated}, content=content)

    async with asking(provider, profile) as driver:
        await driver.api("PUT", "/orders/ORD-9", json={"amount": "700.00", "currency": "KES"})
        await deliver(driver, PAID)
        await until(driver, "succeeded")
        driver.clock.put(T + HOUR)
        await accept_gap(driver.context, since=60, until=120, at=3_600)
        before = len(asked)
        driver.clock.put(T + HOUR + MINUTE)
        assert not (await driver.api("GET", "/orders/ORD-9")).json()["fulfillable"]
        await started(driver.context)
        await soon(lambda: len(asked) > before)
        released = "SELECT 1 FROM records WHERE kind='released' AND reason='gap_accepted'"
        await soon(lambda: driver.rows(released) == [(1,)])
        assert (await driver.api("GET", "/orders/ORD-9")).json()["fulfillable"]
