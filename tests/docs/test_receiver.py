"""The documented receiver of notifications ships exactly once, whatever comes how often."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.operations.orders.notify_shop import notification_body, notification_id
from app.providers.profile import load_profile
from app.providers.source import Source
from app.store.folding.published import Published
from tests.reconcile.build import T

DOCUMENT = Path(__file__).resolve().parents[2] / "app" / "outbound" / "README.md"
SECRET = "whsec_MDEyMzQ1Njc4OWFiY2RlZmdoaWprbG1ub3BxcnN0"
SHOP = Source(name="shop", profile=load_profile("checkout"), secrets=[SECRET], strict=False)

Send = Callable[..., Any]


def revision(number: int, order: str, *, fulfillable: bool) -> Published:
    """One revision of an order."""
    return Published(
        seq=number, order=order, at=T, outcome="succeeded" if fulfillable else "pending",
        fulfillable=fulfillable, before_outcome=None, before_fulfillable=None, because=("So.",),
    )  # fmt: skip


@pytest.fixture
async def send(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The receiver as it stands in the text, in an empty folder."""
    from app.clock import SystemClock

    (code,) = re.findall(r"^```python\n(.*?)^```$", DOCUMENT.read_text(), re.M | re.S)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TALLYHOOK_SHOP__SECRET", SECRET)
    room: dict[str, Any] = {}
    exec(compile(code, str(DOCUMENT), "exec"), room)
    transport = httpx2.ASGITransport(app=room["app"])
    async with httpx2.AsyncClient(transport=transport, base_url="http://shop") as client:

        async def send(published: Published, *, body: bytes | None = None) -> int:
            genuine = notification_body(published)
            headers = SHOP.sign(
                genuine, event_id=notification_id(published), now=SystemClock().now()
            )
            content = genuine if body is None else body
            answer = await client.post("/payments/outcomes", content=content, headers=headers)
            return answer.status_code

        yield send
    room["shop"].close()


def parcels() -> list[str]:
    """What the shop has packed."""
    with closing(sqlite3.connect("shop.db")) as shop:
        return [row[0] for row in shop.execute("SELECT ref FROM parcels")]


async def test_it_ships_exactly_once(send: Send) -> None:
    """Repeats, and an older one that is redelivered late, pack nothing more."""
    pending, paid = revision(1, "A", fulfillable=False), revision(2, "A", fulfillable=True)
    refunded, again = revision(3, "A", fulfillable=False), revision(4, "A", fulfillable=True)
    assert await send(pending) == 204
    assert parcels() == []
    for each in (paid, paid, pending, paid, refunded, paid, again):
        assert await send(each) == 204
    assert parcels() == ["A"]


async def test_what_is_late_does_not_ship(send: Send) -> None:
    """A notification that was overtaken by a later one of its order is only answered."""
    assert await send(revision(9, "B", fulfillable=False)) == 204
    assert await send(revision(8, "B", fulfillable=True)) == 204
    assert parcels() == []


async def test_what_is_not_genuine_is_refused(send: Send) -> None:
    """A changed body ships nothing."""
    forged = notification_body(revision(1, "C", fulfillable=True))
    assert await send(revision(1, "C", fulfillable=False), body=forged) == 401
    assert parcels() == []
