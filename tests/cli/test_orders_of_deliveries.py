"""`tallyhook deliveries show`: whose ledger an arrival is in, and what to do where none."""

import asyncio
from pathlib import Path
from typing import Any

from tests.api.driving import driving, event
from tests.cli.test_commands import Run, run

__all__ = ["run"]


async def sent(folder: Path, *bodies: Any) -> list[str]:
    """Deliver these bodies; return the ids of their deliveries."""
    async with driving(folder, with_worker=False) as driver:
        return [(await driver.send(body)).json()["delivery"] for body in bodies]


def test_the_order_of_an_event_and_of_its_redelivery(run: Run, tmp_path: Path) -> None:
    """Both are of the order that the event names."""
    for delivery in asyncio.run(sent(tmp_path, event("e1"), event("e1"))):
        shown = run("deliveries", "show", delivery, "--format", "json")
        assert shown.document["order"] == "ORD-1"
        assert "names no order" not in shown.err


def test_an_event_of_no_order(run: Run, tmp_path: Path) -> None:
    """Money that is in no ledger is not passed over in silence, until something ties it."""
    nameless = event("e1", order={"reference": None})
    (delivery,) = asyncio.run(sent(tmp_path, nameless))
    shown = run("deliveries", "show", delivery, "--format", "json")
    assert (shown.code, shown.document["order"]) == (0, None)
    assert "`order` in the source's profile" in shown.err
    assert "`references` in PUT /api/v1/orders/REF" in shown.err
    asyncio.run(sent(tmp_path, event("e2", "pending")))
    assert run("deliveries", "show", delivery, "--format", "json").document["order"] == "ORD-1"


def test_what_was_not_read_is_of_no_order(run: Run, tmp_path: Path) -> None:
    """Its problem says why; the profile's `order` is not to blame."""
    (delivery,) = asyncio.run(sent(tmp_path, b'{"id": '))
    shown = run("deliveries", "show", delivery, "--format", "json")
    assert shown.document["order"] is None
    assert "names no order" not in shown.err
