"""Bodies that come in several parts: each has its bound, and what is long of all together."""

import asyncio
from typing import Any, cast

import pytest

from app.config.settings import Settings
from app.receiving.endpoint import FREE_BYTES, ClientGone, NoRoom, Webhooks

Limits = Settings.model_construct
ROOM = 1_000
MOST = FREE_BYTES + ROOM
LIMITS = Limits(max_body_bytes=2 * MOST, max_header_bytes=1_000, max_bodies_bytes=ROOM)


def endpoint() -> Webhooks:
    """Build an endpoint that only takes bodies."""
    return Webhooks(cast(Any, None), limits=LIMITS, metrics=cast(Any, None))


def parts(*sizes: int | None) -> list[dict[str, Any]]:
    """List the messages of a body in parts of these sizes; None: the sender hangs up."""
    messages: list[dict[str, Any]] = [
        {"type": "http.disconnect"}
        if size is None
        else {"type": "http.request", "body": b"x" * size, "more_body": place < len(sizes)}
        for place, size in enumerate(sizes, 1)
    ]
    return messages


async def taken(webhooks: Webhooks, *sizes: int | None) -> int | None:
    """Return the length of the body that is taken; None where it is too large."""
    left = iter(parts(*sizes))

    async def receive() -> dict[str, Any]:
        return next(left)

    body = await webhooks._body(0, receive)
    return None if body is None else len(body)


@pytest.mark.parametrize(
    ("sizes", "length"),
    [
        ((5,), 5),
        ((2 * MOST,), 2 * MOST),
        ((2 * MOST + 1,), None),
        ((5, 0), 5),
        ((FREE_BYTES, ROOM), MOST),
        ((MOST - 1, 1), MOST),
    ],
)
async def test_a_body_up_to_its_bound_is_taken(sizes: tuple[int, ...], length: int | None) -> None:
    """In one part it is there already, and takes no room of the long ones."""
    webhooks = endpoint()
    for _ in range(2):
        assert await taken(webhooks, *sizes) == length


@pytest.mark.parametrize("sizes", [(FREE_BYTES, ROOM + 1), (MOST + 1, 0), (1, MOST)])
async def test_one_byte_more_than_there_is_room_for_is_asked_to_try_again(
    sizes: tuple[int, ...],
) -> None:
    """And leaves no room taken behind it, as one whose sender hangs up does not."""
    webhooks = endpoint()
    for _ in range(2):
        with pytest.raises(NoRoom):
            await taken(webhooks, *sizes)
        with pytest.raises(ClientGone):
            await taken(webhooks, FREE_BYTES, ROOM, None)
    assert await taken(webhooks, FREE_BYTES, ROOM) == MOST


async def test_a_body_larger_than_its_own_bound_leaves_no_room_taken() -> None:
    """It is given up as soon as it is, whatever is still to come."""
    wide = Limits(max_body_bytes=MOST, max_header_bytes=1_000, max_bodies_bytes=9 * MOST)
    webhooks = Webhooks(cast(Any, None), limits=wide, metrics=cast(Any, None))
    for _ in range(12):
        assert await taken(webhooks, MOST, 1, 0) is None
    assert await taken(webhooks, MOST, 0) == MOST


@pytest.mark.parametrize(("second", "fits"), [(ROOM // 2, True), (ROOM // 2 + 1, False)])
async def test_long_bodies_under_way_share_the_room(second: int, fits: bool) -> None:
    """What the first took is free again once it is whole; a short one always has a place."""
    webhooks, more = endpoint(), asyncio.Event()
    first = iter(parts(FREE_BYTES, ROOM // 2, 0))

    async def slowly() -> dict[str, Any]:
        message = next(first)
        if not message["more_body"]:
            await more.wait()
        return message

    waiting = asyncio.create_task(webhooks._body(0, slowly))
    await asyncio.sleep(0)
    if fits:
        assert await taken(webhooks, FREE_BYTES, second) == FREE_BYTES + second
    else:
        with pytest.raises(NoRoom):
            await taken(webhooks, FREE_BYTES, second)
    assert await taken(webhooks, 1, FREE_BYTES - 1) == FREE_BYTES
    more.set()
    assert len(await waiting or b"") == FREE_BYTES + ROOM // 2
    assert await taken(webhooks, FREE_BYTES, ROOM) == MOST
