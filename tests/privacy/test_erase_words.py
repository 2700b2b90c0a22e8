"""A number in a provider's words for a failure: masked where they are read, gone when erased."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.evidence.verify import unpack
from app.evidence.verify_evidence import verify_evidence
from app.orders.refold import refold_until_quiet
from app.privacy.check import check_database
from reconcile.instants import DAY, MINUTE
from tests.api.driving import Driver, driving, of_order, signed
from tests.evidence.conftest import build
from tests.evidence.world import LATER
from tests.privacy.test_erase import PHONE, erased, quiet
from tests.reconcile.build import T

SAID = f"no wallet of +{PHONE}"
KEPT = "no wallet of •344"
GLUED = f"msisdn{PHONE}"


def declined(reason: str) -> dict[str, Any]:
    """Make an order's event with a reason that holds the customer's number."""
    found = of_order("ORD-1", "e1", "declined")
    found["data"]["customer"] = {"phone": PHONE}
    found["data"]["payment"]["reason"] = reason
    return found


async def shown(driver: Driver) -> str:
    """Return what the API says of the order and of its revisions."""
    asked = [f"/orders/ORD-1{each}" for each in ("", "/timeline", "/revisions")] + ["/revisions"]
    answers = [await driver.api("GET", each) for each in asked]
    return "".join(each.text for each in answers)


async def problems(driver: Driver) -> list[str]:
    """Return the problems of a check that reads every body again."""
    return list((await check_database(driver.service.context, deep=1, progress=quiet)).problems)


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[Driver]:
    """Run a service to which nothing has been sent."""
    async with driving(tmp_path, with_worker=False) as driven:
        driven.context = driven.service.context
        yield driven


async def said(driver: Driver, reason: str) -> None:
    assert (await driver.send(declined(reason))).json()["verdict"] == "stored"
    driver.clock.put(T + 40 * DAY)
    await refold_until_quiet(driver.context, limit=10, progress=quiet)


async def test_a_number_in_a_reason_is_in_no_event_and_no_answer(driver: Driver) -> None:
    await said(driver, SAID)
    assert driver.rows("SELECT reason FROM events") == [(KEPT,)]
    assert PHONE not in str(driver.rows("SELECT because FROM revisions"))
    answers = await shown(driver)
    assert (PHONE in answers, KEPT in answers) == (False, True)
    assert await problems(driver) == []


async def test_a_number_that_is_a_part_of_a_word_goes_with_an_erasure(driver: Driver) -> None:
    """No ledger changes by it, and nothing is published anew."""
    await said(driver, GLUED)
    revisions = driver.rows("SELECT * FROM revisions")
    told = await erased(driver, dry_run=True)
    assert (told.counts()["reasons"], driver.rows("SELECT reason FROM events")) == (1, [(GLUED,)])
    assert (await erased(driver)).counts()["reasons"] == 1
    assert driver.rows("SELECT reason FROM events") == [("•",)]
    await refold_until_quiet(driver.context, limit=10, progress=quiet)
    assert driver.rows("SELECT * FROM revisions") == revisions
    assert await problems(driver) == []


NAME = "Wanjiku"


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        (SAID, "•••"),
        (f"{NAME} Kamau has no money", "•••"),
        (NAME, "•••"),
        ("insufficient_funds", "insufficient_funds"),
    ],
)
async def test_a_redacted_bundle_shows_no_words_of_others(
    driver: Driver, reason: str, shown: str
) -> None:
    """Of a reason codes alone, of an address no query, and of headers those that are harmless; it
    verifies, as the one in full does, in which all of it stands."""
    body = json.dumps(declined(reason)).encode()
    headers = [*signed(body, at=driver.clock.now()), (b"x-customer", f"{NAME} K".encode())]
    sent = await driver.client.post(
        f"/webhooks/shop?of={NAME}%20K&empty", content=body, headers=headers
    )
    assert sent.json()["verdict"] == "stored"
    driver.clock.put(T + 40 * DAY)
    await refold_until_quiet(driver.context, limit=10, progress=quiet)
    driver.clock.put(LATER + MINUTE)
    full = await build(driver, reason="dispute 12")
    whole = verify_evidence(full, now=LATER + DAY)
    assert whole.valid, whole.steps
    redacted = await build(driver)
    assert verify_evidence(redacted, now=LATER + DAY).valid
    assert (PHONE.encode() in redacted, NAME.encode() in redacted) == (False, False)
    assert NAME.encode() in full
    files = unpack(redacted)
    events = [each["event"] for each in json.loads(files["history.json"])["deliveries"]]
    assert {each["reason"] for each in events} == {shown}
    assert f"({shown})" in files["explanation.txt"].decode()
    stated = [json.loads(files[name]) for name in files if re.match("delivery-.*json$", name)]
    assert {each["address"].partition("?")[2] for each in stated} == {"of=•••&empty"}
    pairs = dict(pair for each in stated for pair in each["headers_shown"])
    assert (pairs["x-customer"], pairs["content-type"]) == ("•••", "application/json")
