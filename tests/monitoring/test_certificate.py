"""Expiry of the public URL's certificate: looked at, and shown in the figures."""

from pathlib import Path

import pytest

from app.monitoring.health import AGAIN_S, UNANSWERED_S, PublicCertificate, rest
from app.providers import provider_client
from app.providers.provider_client import trusted_until
from reconcile.instants import DAY, EARLIEST, SECOND, Instant
from tests.api.driving import Driver, driving
from tests.reconcile.build import T
from tests.waiting import soon

ADDRESS = "https://hooks.example"

Seen = tuple[str | None, str | None, Instant | None]


def shows(monkeypatch: pytest.MonkeyPatch, seen: Seen) -> list[str]:
    """Have every handshake end so; return the addresses that are asked."""
    asked: list[str] = []

    async def handshake(url: str) -> Seen:
        asked.append(url)
        return seen

    monkeypatch.setattr(provider_client, "_handshake", handshake)
    return asked


@pytest.mark.parametrize(
    ("seen", "ends"),
    [
        (("TLSv1.3", None, T), T),
        ((None, "certificate has expired", None), EARLIEST),
        ((None, None, None), None),
    ],
)
async def test_until_when_strangers_trust_it(
    monkeypatch: pytest.MonkeyPatch, seen: Seen, ends: Instant | None
) -> None:
    """The beginning of time if they do not; nothing if nobody answers."""
    shows(monkeypatch, seen)
    assert await trusted_until(ADDRESS) == ends


async def test_what_was_seen_stays_while_nobody_answers() -> None:
    """It is probed again within the hour, else within a day."""
    answers = iter([None, T, None])

    async def look(url: str) -> Instant | None:
        return next(answers)

    certificate = PublicCertificate(ADDRESS, look=look)
    rests, ends = [], []
    for _ in range(3):
        rests.append(rest(await certificate.look()))
        ends.append(certificate.ends)
    assert rests == [UNANSWERED_S, AGAIN_S, UNANSWERED_S]
    assert ends == [None, T, T]


async def figure(driver: Driver) -> list[str]:
    """Return the metric's value."""
    text = (await driver.client.get("/metrics")).text
    return [line for line in text.splitlines() if line.startswith("tallyhook_certificate")]


async def test_the_figures_tell_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = shows(monkeypatch, ("TLSv1.3", None, EARLIEST + 20_000 * DAY))
    async with driving(tmp_path, with_worker=False, PUBLIC_URL=ADDRESS, looking=True) as driver:
        await soon(lambda: bool(asked))
        (line,) = await figure(driver)
        assert float(line.split()[1]) == 20_000 * DAY // SECOND
    assert asked == [ADDRESS]


async def test_nothing_is_asked_without_an_https_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = shows(monkeypatch, ("TLSv1.3", None, T))
    async with driving(
        tmp_path, with_worker=False, PUBLIC_URL="http://127.0.0.1:8080", looking=True
    ) as driver:
        assert not any("certificate" in name for name, _ in driver.service.parts)
        assert await figure(driver) == []
    assert asked == []
