"""Several receivers start one order's payment at once: the service is asked once."""

import asyncio

import pytest

from app.checkout.ask_session import ask_again_due
from app.checkout.client import RetrySettings
from app.checkout.open_checkout import open_checkout
from app.context.context import AppContext
from app.core.clock import SystemClock
from app.receiving.inbox import Inbox
from tests.checkout.service import LATE, answer, asked, opened, service
from tests.database.builders import change
from tests.postgres.test_sharing import several
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.postgres

AT_EACH = 100


def context_of(inbox: Inbox) -> AppContext:
    return inbox.context(clock=SystemClock())


@pytest.mark.costly
async def test_two_hundred_calls_at_two_receivers_make_one_request(url: str) -> None:
    """Each receiver has a client with turns of its own; the database grants the one right to
    ask."""

    async def slow(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.3)
        await opened(expires_at=LATE)(writer)

    patient = RetrySettings(try_s=PATIENCE_S, total_s=PATIENCE_S)
    async with (
        service(slow) as pay,
        several(url) as stores,
        pay.client(patient) as one,
        pay.client(patient) as two,
        asyncio.timeout(PATIENCE_S),
    ):
        pairs = [(stores[0], one), (stores[1], two)] * AT_EACH
        calls = [open_checkout(context_of(s), c, request=asked()) for s, c in pairs]
        results = await asyncio.gather(*calls)
    assert len(pay.seen) == 1
    assert {each.session for each in results} == {"cs_1"}
    assert [each.created for each in results].count(True) == 1


async def test_two_that_ask_again_in_the_background_ask_once(url: str) -> None:
    once = RetrySettings(tries=1)
    async with (
        service(answer(429), opened(expires_at=LATE)) as pay,
        several(url) as stores,
        pay.client(once) as one,
        pay.client(once) as two,
    ):
        contexts = [context_of(inbox) for inbox in stores]
        await open_checkout(contexts[0], one, request=asked())
        await change(stores[0], "UPDATE unanswered SET due_at=0")
        await asyncio.gather(ask_again_due(contexts[0], one), ask_again_due(contexts[1], two))
        found = await open_checkout(contexts[1], two, request=asked())
    assert (found.state, len(pay.seen), len(pay.keys)) == ("opened", 2, 1)
