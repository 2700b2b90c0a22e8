"""A bundle says what may be about its order and was not read, and when its sources were heard."""

import json
from html import unescape
from pathlib import Path
from typing import Any

from app.evidence.verify import unpack
from app.evidence.verify_evidence import verify_evidence
from reconcile.ledger.plain import REFUSED, UNREAD
from tests.api.driving import Driver, driving, event, of_order
from tests.evidence.conftest import build
from tests.waiting import soon

PLACED = {"amount": "1500.00", "currency": "KES"}


async def built(driver: Driver) -> tuple[dict[str, bytes], list[str], str]:
    """Return the files of a bundle as of now, what is not proven of it, and its page's text."""
    archive = await build(driver, as_of=None)
    found = verify_evidence(archive)
    assert False not in [each.passed for each in found.steps], found.steps
    files = unpack(archive)
    return files, list(found.not_proven), unescape(files["report.html"].decode())


async def test_a_message_that_names_the_order_and_cannot_be_read_stands_in_every_part(
    tmp_path: Path,
) -> None:
    async with driving(tmp_path, looking=True) as driver:
        await driver.api("PUT", "/orders/ORD-1", json=PLACED)
        answer = await driver.send({**event("e1"), "occurred_at": "yesterday"})
        name = answer.json()["delivery"]
        files, not_proven, page = await built(driver)
        (message,) = json.loads(files["heard.json"])["unread"]
        assert (message["delivery"], message["names_order"]) == (name, True)
        assert files["explanation.txt"].decode().startswith(UNREAD)
        assert any("unreadable messages" in each and name in each for each in not_proven)
        assert UNREAD in page
        assert f"[{name}]" in page
        assert "1 request from the payment service arrived but cannot be read" in page
        assert "No message of the payment service about this order" not in page
        assert '<td class="number">nothing' not in page
        assert "not known" in page


async def test_a_source_that_refuses_everything_is_named_before_anything_is_called_absent(
    tmp_path: Path,
) -> None:
    async with driving(tmp_path, looking=True) as driver:
        await driver.api("PUT", "/orders/ORD-1", json=PLACED)
        await driver.send(event("e1"), headers=[])
        await soon(lambda: driver.rows("SELECT count(*) FROM rejections") == [(1,)])
        files, not_proven, page = await built(driver)
        assert files["explanation.txt"].decode().startswith(REFUSED)
        assert any("every delivery from it has been refused" in each for each in not_proven)
        assert "Requests arrived but were refused" in page
        assert "No message of the payment service about this order" not in page
        await driver.send(of_order("ORD-2", "e2"))
        files, not_proven, page = await built(driver)
        assert "No message of the payment service about this order" in page
        assert any("1 in all: they do not count, and anyone can send them" in n for n in not_proven)
        assert not any("every delivery from it has been refused" in each for each in not_proven)


async def test_every_bundle_states_when_its_source_last_delivered_something_that_was_read(
    tmp_path: Path,
) -> None:
    async with driving(tmp_path, looking=True) as driver:
        await driver.api("PUT", "/orders/ORD-1", json=PLACED)
        files, _, page = await built(driver)
        assert _last_read(files) is None
        assert "shop has delivered no readable message yet" in page
        await driver.send(of_order("ORD-2", "e2"))
        await driver.send({**of_order("ORD-2", "e3"), "id": "\n"})
        files, not_proven, page = await built(driver)
        assert _last_read(files) is not None
        assert "shop last delivered a readable message at" in page
        assert any(each.startswith("when each source last delivered") for each in not_proven)


def _last_read(files: dict[str, bytes]) -> Any:
    (source,) = json.loads(files["heard.json"])["sources"]
    return source["last_read_at"]
