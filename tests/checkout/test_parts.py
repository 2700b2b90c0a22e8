"""The pauses, turns and settings of the client."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.checkout.client import ClientSettings, RetrySettings, SingleFlight, pause_before
from app.core.errors import ConfigurationError, UnreachableError

RETRY = RetrySettings()


@given(st.integers(2, 10_000), st.text(), st.floats(0, 1e9))
def test_a_pause_is_at_least_what_was_asked_and_bounded(
    number: int, key: str, asked: float
) -> None:
    pause = pause_before(number, key=key, asked_s=asked, settings=RETRY)
    assert asked <= pause <= max(asked, RETRY.most_s) + RETRY.jitter_s


def test_pauses_grow_and_differ_between_orders() -> None:
    def pauses(number: int) -> list[float]:
        return [
            pause_before(number, key=f"key_{n}", asked_s=0, settings=RETRY) for n in range(1000)
        ]

    for number, least in ((2, 0.2), (3, 0.4), (4, 0.8), (9, 4.0)):
        found = pauses(number)
        assert least <= min(found) < least + 0.01
        assert least + 0.49 < max(found) <= least + 0.5
        assert len(set(found)) > 990


async def test_turns_are_bounded_and_freed() -> None:
    flights: SingleFlight[int] = SingleFlight(limit=2)
    async with flights.of("a"), flights.of("b"):
        with pytest.raises(UnreachableError, match="try again"):
            async with flights.of("c"):
                raise AssertionError("beyond the limit")
    assert len(flights) == 0
    async with flights.of("c") as turn:
        assert turn.answer_to("x") is None


async def test_an_answer_is_shared_only_between_equal_requests() -> None:
    flights: SingleFlight[int] = SingleFlight()

    async def call(asked: str, answer: int) -> int:
        async with flights.of("a") as turn:
            await asyncio.sleep(0)
            return turn.answer_to(asked) or turn.leave(asked, answer)

    answers = await asyncio.gather(call("x", 1), call("x", 2), call("y", 3))
    assert list(answers) == [1, 1, 3]


def test_settings_report_all_their_problems_and_never_the_token() -> None:
    with pytest.raises(ConfigurationError) as caught:
        ClientSettings(base_url="ftp://pay", token="se\ncret", source="")
    assert len(caught.value.problems) == 3
    assert "cret" not in str(caught.value)
