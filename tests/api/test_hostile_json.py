"""Hostile JSON over HTTP, genuinely signed: as the whole body, and within an event."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from app.core.reading import Unreadable
from app.core.strict_json import parse
from tests.api.driving import Driver, driving, event
from tests.providers.json_corpus import READ, REFUSED
from tests.searching import every

LONGEST = 1_000_000
"""Largest document in bytes that fits into a body of 1 MiB. Longer ones are answered with 413."""


def within(number: int, document: bytes) -> bytes:
    """Return an event with the document as an additional member."""
    whole = json.dumps(event(f"evt_{number}"))
    return whole[:-1].encode() + b', "more": ' + document + b"}"


def bodies(every: int = 1) -> Iterator[tuple[bytes, str]]:
    """Yield every nth body with its verdict.

    No document of the corpus is an event by itself. An event stays one with any readable member
    added, two levels deeper or not.
    """
    documents = [*READ.values(), *(document for document, _ in REFUSED.values())]
    documents = [each for each in documents if len(each) <= LONGEST]
    for number, document in enumerate(documents[::every]):
        yield document, "unreadable"
        body, verdict = within(number, document), "unreadable"
        with suppress(Unreadable):
            parse(body)
            verdict = "stored"
        yield body, verdict


async def verdicts_of(driver: Driver, every: int) -> list[str]:
    """Send many at once, and return the verdict of each. All must be acknowledged."""
    found, whole = [], [body for body, _ in bodies(every)]
    for start in range(0, len(whole), 100):
        answers = await asyncio.gather(*map(driver.send, whole[start : start + 100]))
        assert {answer.status_code for answer in answers} == {200}
        found += [answer.json()["verdict"] for answer in answers]
    assert await driver.ready()
    return found


async def check(driver: Driver, *, every: int = 1) -> None:
    """Check that every body is acknowledged with its verdict and kept byte for byte."""
    expected = list(bodies(every))
    assert await verdicts_of(driver, every) == [verdict for _, verdict in expected]
    stored = [verdict for _, verdict in expected].count("stored")
    # Four documents are too deep within an event.
    assert len(READ) // every - 4 <= stored <= len(READ) // every + 3
    ledger = (await driver.api("GET", "/orders/ORD-1")).json()
    assert len(ledger["timeline"]) == stored


async def test_every_hostile_document_is_acknowledged_and_kept(tmp_path: Path) -> None:
    """It is stored where it can be read, unreadable where it cannot, and never an error."""
    some = every(3)
    async with driving(tmp_path, with_worker=False, raising=True) as driver:
        await check(driver, every=some)
        kept = [row[0] for row in driver.rows("SELECT body FROM deliveries ORDER BY rowid")]
        assert sorted(kept) == sorted(body for body, _ in bodies(some))
