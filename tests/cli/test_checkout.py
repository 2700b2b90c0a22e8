"""A payment started from the command line, of an order that has its session already."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from tests.api.driving import environ, event
from tests.api.test_checkouts import shop, start
from tests.checkout.service import EXPIRES, LATE, TOKEN, opened

ASKED = ("checkout", "start", "--order", "ORD-1", "--amount", "1500", "--currency", "KES")


def shopped(folder: Path, *said: dict[str, Any], expires_at: str) -> None:
    """Make an order that has its session, and what the provider has said of it."""

    async def do() -> None:
        async with shop(folder, opened(expires_at=expires_at)) as (driver, _):
            assert (await start(driver)).status_code == 201
            for each in said:
                assert (await driver.send(each)).status_code == 200

    asyncio.run(do())


@pytest.mark.parametrize(
    ("said", "expires_at", "code", "out", "err"),
    [
        ([], LATE, 0, "https://pay.test/checkout/cs_1\n",
         "The checkout session cs_1 of order ORD-1 is open.\n"),
        ([], EXPIRES, 1, "",
         f"The checkout session cs_1 of order ORD-1 expired at {EXPIRES}, and the order's outcome "
         "is timed_out. Ask for a new payment, so that the customer can try again.\n"),
        ([event("e1")], EXPIRES, 1, "",
         "Order ORD-1 is paid, according to the verified event e1: its outcome is succeeded. "
         "No new payment was started.\n"),
    ],
)  # fmt: skip
def test_where_to_pay_is_said_while_there_is_something_to_pay(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    said: list[dict[str, Any]],
    expires_at: str,
    code: int,
    out: str,
    err: str,
) -> None:
    """Found without asking the service, which is no longer there."""
    shopped(tmp_path, *said, expires_at=expires_at)
    there = {"CHECKOUT__BASE_URL": "http://127.0.0.1:9", "CHECKOUT__TOKEN": TOKEN}
    for name, value in environ(tmp_path, **there).items():
        monkeypatch.setenv(name, value)
    capsys.readouterr()  # what was logged so far
    assert main.run(ASKED) == code
    assert capsys.readouterr() == (out, err)
