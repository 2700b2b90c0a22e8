"""Event ids that resemble others: each is a separate event of its source, or is refused."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.api.driving import Driver, driving, of_order, secret, signed

TILL = b"another key for tests, no secret"

PLAIN = "evt_1"
KEPT = [
    PLAIN, "EVT_1", "Evt_1", "eVT_1", "evt-1", "evt.1", "evt_1.", ".evt_1", "evt_1,", "evt_1;",
    "evt_l", "evt_I", "evt_01", "evt_1_", "_evt_1", "evt__1", "evt_1-0", "evt_1-1", "evt%5f1",
    "evt%201", "evt_1%00", "evt_1\\u0000", "evt_1\\n", "shop:evt_1", "till:evt_1", "shop/evt_1",
    "shop|evt_1", "shop.evt_1", "(shop,evt_1)", "'evt_1'", '"evt_1"', "evt_1'--", "evt_1;--",
    "evt_1%", "evt__", "evt_*", "evt_?", "../evt_1", "/evt_1", "evt_1/", "#evt_1", "evt_1?", "1",
    "01", "1.0", "1e0", "null", "None", "true", "[]", "{}", "$id", "{id}", "0x1", "x" * 254,
    "x" * 255, "X" * 255, "evt_1" + "0" * 250, "=evt_1", "+evt_1", "@evt_1", "-evt_1", "~evt_1",
]  # fmt: skip
"""Valid ids: printable ASCII without blanks, within the length limit."""

NO_IDS = [
    "", " ", "evt_1 ", " evt_1", "evt 1", "evt_1\t", "evt_1\n", "evt_1\r\n", "evt_1\x00", "\x00",
    "evt_1\x00x", "evt_1\x7f", "evt_1\x1b[0m", "evt_1\u00a0", "evt_1\u200b", "evt_1\u200d",
    "\u202eevt_1", "evt_1\ufeff", "\u0435vt_1", "ev\u0442_1", "evt_\u0661", "evt_\uff11",
    "\uff45\uff56\uff54_1", "e\u0301vt_1", "\u00e9vt_1", "evt_\u00b9", "evt_1\u2028", "\ud800",
    "evt_1\udfff", "\U0001f600", "x" * 256, "x" * 10_240, "evt_1" + " " * 10_000, "\u0130",
    "\u0131", 1, 1.5, True, ["evt_1"], {"id": "evt_1"},
]  # fmt: skip
"""Invalid ids: look-alikes, blanks, control characters, too long, or no text."""


def with_id(event_id: Any, source: str) -> bytes:
    """Return an event with this id, for an order that depends on the source."""
    return json.dumps(of_order(f"O-{source}", "e") | {"id": event_id}).encode()


async def verdicts(driver: Driver, ids: list[Any], source: str) -> list[str]:
    """Return the verdicts of events with these ids, sent at once and signed with the source's
    secret."""
    key: dict[str, Any] = {"key": TILL} if source == "till" else {}
    bodies = [with_id(event_id, source) for event_id in ids]
    answers = await asyncio.gather(
        *(driver.send(each, signed(each, event_id="m", **key), source=source) for each in bodies)
    )
    assert {answer.status_code for answer in answers} == {200}
    return [answer.json()["verdict"] for answer in answers]


@pytest.fixture
def two(tmp_path: Path) -> Any:
    return driving(tmp_path, with_worker=False, SOURCES__TILL__SECRETS=secret(TILL))


async def test_no_id_is_taken_for_another(two: Any) -> None:
    """Each is stored once for each source; its own redelivery is the only duplicate."""
    assert len(set(KEPT)) == len(KEPT)
    assert len(KEPT) + len(NO_IDS) >= 100
    async with two as driver:
        for verdict in ("stored", "duplicate"):
            for source in ("shop", "till"):
                found = zip(KEPT, await verdicts(driver, KEPT, source), strict=True)
                assert [event_id for event_id, said in found if said != verdict] == []
        kept = set(driver.rows("SELECT source, event_id FROM events"))
        assert kept == {(source, each) for source in ("shop", "till") for each in KEPT}


async def test_what_is_no_id_is_kept_as_unreadable(two: Any) -> None:
    """It is no event, whatever valid id it resembles, before and after that one."""
    async with two as driver:
        for _ in range(2):
            for source in ("shop", "till"):
                assert set(await verdicts(driver, NO_IDS, source)) == {"unreadable"}
            await verdicts(driver, [PLAIN], "shop")
        assert driver.rows("SELECT source, event_id FROM events") == [("shop", PLAIN)]
