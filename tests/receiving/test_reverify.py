"""Refused deliveries judged again: what a preview says is what a pass does, and changes nothing."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app.config.load import load_settings
from app.context.configured import compile_sources
from app.core.errors import ConfigurationError
from app.orders.clock_correction import ClockWatch, clock_alarm
from app.providers.request import Incoming
from app.receiving.reverify import (
    Reverified,
    _refusal_within,
    count_genuine,
    previewed,
    reverify,
)
from app.receiving.source_state import source_arrivals
from reconcile.instants import DAY, HOUR, MILLISECOND, MINUTE, SECOND, Duration, Instant
from tests.api.driving import KEY, Driver, driving, environ, event, of_order, secret, signed
from tests.contexts import with_sources
from tests.reconcile.build import T

ROTATED = b"the key that the provider signs with now"
OTHER = b"the key of the other source, not a secret"
SENT: list[tuple[int, str, bytes | None, bytes]] = [
    (1, "shop", ROTATED, json.dumps(event("e1")).encode()),
    (2, "shop", ROTATED, json.dumps(event("e2")).encode()),
    (3, "shop", ROTATED, json.dumps(event("e1")).encode()),
    (4, "shop", b"nobody's key, which nobody is given", json.dumps(event("e3")).encode()),
    (5, "shop", None, json.dumps(event("e4")).encode()),
    (6, "shop", ROTATED, b"{}" + b" " * 2_000),
    (7, "other", ROTATED, json.dumps(event("e6")).encode()),
    (8, "nobody", ROTATED, json.dumps(event("e7")).encode()),
]
"""Refused deliveries: minute of arrival, source, signing key and body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """A service that refused all of these, and how its sources are configured now."""

    driver: Driver

    def kept(self) -> list[tuple[Any, ...]]:
        """List the rejections that are left."""
        return self.driver.rows("SELECT id FROM rejections ORDER BY id")


@pytest.fixture
async def refusals(tmp_path: Path) -> AsyncIterator[Refusals]:
    """Put the secret of one source right; leave that of the other as it was."""
    more: dict[str, Any] = {"SOURCES__OTHER__SECRETS": secret(OTHER), "MAX_BODY_BYTES": "1024"}
    async with driving(tmp_path, with_worker=False, **more) as driver:
        for minute, source, key, body in SENT:
            driver.clock.put(Instant(T + minute * MINUTE))
            headers = [] if key is None else signed(body, at=driver.clock.now(), key=key)
            assert (await driver.send(body, headers, source=source)).status_code >= 400
        now = environ(tmp_path, **{**more, "SOURCES__SHOP__SECRETS": secret(ROTATED)})
        driver.context = with_sources(driver.context, compile_sources(load_settings(now)))
        yield Refusals(driver=driver)


ALL = (8, 3, 1, {"signature_mismatch": 2, "signature_missing": 1, "source_unknown": 1})
SHOP = (6, 3, 1, {"signature_mismatch": 1, "signature_missing": 1})
OTHERS = (1, 0, 0, {"signature_mismatch": 1})


def counts(done: Reverified) -> tuple[int, int, int, dict[str, int]]:
    """Return the counts of a pass."""
    return done.judged, len(done.accepted), done.cut, done.refused


async def test_a_source_no_longer_refuses_once_a_kept_rejection_is_accepted(
    refusals: Refusals,
) -> None:
    before = (await source_arrivals(refusals.driver.context))["shop"]
    assert (before.refusing_since, before.refused_since_then) == (T + MINUTE, 6)
    await reverify(refusals.driver.context, only="shop")
    after = (await source_arrivals(refusals.driver.context))["shop"]
    assert (after.refusing_since, after.refused_since_then) == (None, 0)
    assert (after.last_read_at, after.last_accepted_at) == (T + 3 * MINUTE, T + 3 * MINUTE)


@pytest.mark.parametrize(("only", "wanted"), [(None, ALL), ("shop", SHOP), ("other", OTHERS)])
async def test_a_pass_does_what_its_preview_says(
    refusals: Refusals, only: str | None, wanted: tuple[int, int, int, dict[str, int]]
) -> None:
    """Of one source or of all. The preview gives the verdicts of before, the pass those of now."""
    context, before = refusals.driver.context, refusals.kept()
    found = await previewed(context, only=only)
    assert counts(found) == wanted
    assert {verdict for _, verdict in found.accepted} <= {"signature_mismatch"}
    assert refusals.kept() == before
    assert refusals.driver.rows("SELECT count(*) FROM deliveries") == [(0,)]
    seen: list[int] = []
    done = await reverify(context, only=only, progress=seen.append)
    assert (counts(done), sum(seen)) == (wanted, len(SENT))
    assert len(refusals.kept()) == len(before) - wanted[1]
    assert sorted(name for name, _ in done.accepted) == sorted(name for name, _ in found.accepted)
    stored = ["stored", "stored", "duplicate"][: wanted[1]]
    assert [verdict for _, verdict in done.accepted] == stored
    rows = refusals.driver.rows("SELECT facts FROM audit WHERE action='deliveries_reverified'")
    assert [json.loads(facts) for (facts,) in rows] == [
        {"judged": wanted[0], "accepted": wanted[1]}
    ]


async def test_a_second_pass_finds_what_the_first_left(refusals: Refusals) -> None:
    """What was accepted is no rejection any more."""
    context = refusals.driver.context
    for accepted in (3, 0):
        done = await reverify(context, only=None, progress=lambda count: None)
        assert (done.judged, len(done.accepted)) == (5 + accepted, accepted)


async def test_how_many_genuine_ones_wait_from_when_to_when(refusals: Refusals) -> None:
    """Those of the first moment are among them, those of the last are not."""
    for since, until, genuine in ((0, 9, 3), (1, 2, 1), (1, 3, 2), (2, 9, 2), (4, 9, 0), (0, 1, 0)):
        found = await count_genuine(
            refusals.driver.context,
            since=Instant(T + since * MINUTE),
            until=Instant(T + until * MINUTE),
        )
        assert found == genuine, (since, until)


async def test_a_source_that_is_not_configured_is_reported(refusals: Refusals) -> None:
    """Nothing is judged, and nothing noted."""
    with pytest.raises(ConfigurationError, match="SOURCES__NEW__PROFILE"):
        await reverify(refusals.driver.context, only="new", progress=lambda count: None)
    assert refusals.driver.rows("SELECT count(*) FROM audit") == [(0,)]


@pytest.mark.parametrize(("ahead", "lasts"), [(DAY, HOUR), (HOUR, DAY)])
async def test_what_a_clock_that_was_ahead_refused_is_accepted_once_it_is_right(
    tmp_path: Path, ahead: Duration, lasts: Duration
) -> None:
    """Genuine ones, by the command that the alarm names, whether they are dated later than the
    correction or not. One that was signed before, and one of another key, stay refused."""
    async with driving(tmp_path, with_worker=False) as driver:
        watch = ClockWatch(driver.context)
        await watch.look()
        await driver.send(of_order("before", "before"))
        for number in range(6):
            sent = Instant(T + (number + 1) * lasts // 6 - MINUTE)
            driver.clock.put(sent + ahead)
            stamp = Instant(T - HOUR) if number == 0 else sent
            key = ROTATED if number == 1 else KEY
            body = json.dumps(of_order(f"O{number}", f"e{number}")).encode()
            answer = await driver.send(body, signed(body, at=stamp, key=key))
            assert answer.status_code == 401
        await watch.look()
        right = Instant(T + lasts)
        driver.clock.put(right)
        await watch.look()
        alarm = await clock_alarm(driver.context)
        assert alarm is not None
        assert "run `tallyhook deliveries reverify` to accept" in alarm.sentence
        assert driver.rows("SELECT max(received_at) FROM rejections") == [(right,)]
        driver.clock.put(right + SECOND)
        assert len((await previewed(driver.context, only=None)).accepted) == 4
        done = await reverify(driver.context, only=None)
        assert [verdict for _, verdict in done.accepted] == ["stored"] * 4
        assert done.refused == {"timestamp_too_old": 1, "signature_mismatch": 1}
        assert driver.rows("SELECT max(received_at) FROM deliveries") == [(right,)]
        assert (await driver.api("GET", "/orders/O3")).json()["outcome"] == "succeeded"


@pytest.mark.parametrize(
    ("off", "verdicts"), [(10 * MINUTE, ["stored"]), (-3 * DAY, ["stored"]), (HOUR, [])]
)
async def test_what_a_wrong_clock_refused_is_accepted_though_nobody_saw_it_put_right(
    tmp_path: Path, off: Duration, verdicts: list[str]
) -> None:
    """A clock that was ahead no more than clocks differ, or was behind. A request that was older
    stays refused."""
    async with driving(tmp_path, with_worker=False, at=Instant(T + off)) as driver:
        body = json.dumps(of_order("A", "e1")).encode()
        assert (await driver.send(body, signed(body, at=T))).status_code == 401
        driver.clock.put(Instant(T + 2 * HOUR))
        done = await reverify(driver.context, only=None)
        assert [verdict for _, verdict in done.accepted] == verdicts


@pytest.mark.parametrize(
    ("at", "earliest", "latest", "verdict"),
    [
        (0, 0, 0, None),
        (100_000, -1_000_000, 200_000, None),
        (100_000, 50_000, 200_000, "timestamp_too_old"),
        (-100_000, -200_000, 1_000_000, None),
        (-100_000, -200_000, -50_000, "timestamp_too_new"),
        (5_500, 4_500, 9_000, None),
        (5_500, 4_501, 9_000, "timestamp_too_old"),
        (-5_500, -9_000, -4_500, None),
        (-5_500, -9_000, -4_501, "timestamp_too_new"),
    ],
)
def test_an_instant_of_arrival_at_which_the_timestamp_is_valid_is_searched_to_the_second(
    at: int, earliest: int, latest: int, verdict: str | None
) -> None:
    """In milliseconds after the timestamp, which is valid for five seconds before and after."""

    def verify(incoming: Incoming, *, now: Instant) -> Any:
        if abs(now - T) <= 5 * SECOND:
            return None
        reason = "timestamp_too_old" if now > T else "timestamp_too_new"
        return SimpleNamespace(reason=reason, sentence="it has another age")

    source: Any = SimpleNamespace(
        verify=verify, greet=lambda incoming: None, belonging=lambda incoming: None
    )
    came, *bounds = (Instant(T + each * MILLISECOND) for each in (at, earliest, latest))
    found = _refusal_within(
        source, Incoming([], b""), came, (bounds[0], bounds[1]), environment="sandbox"
    )
    assert getattr(found, "verdict", None) == verdict


def test_a_request_that_is_refused_for_another_reason_is_tried_once() -> None:
    tried: list[Instant] = []

    def verify(incoming: Incoming, *, now: Instant) -> Any:
        tried.append(now)
        return SimpleNamespace(reason="signature_mismatch", sentence="it is not genuine")

    source: Any = SimpleNamespace(verify=verify)
    bounds = Instant(T - HOUR), Instant(T + HOUR)
    found = _refusal_within(source, Incoming([], b""), T, bounds, environment="sandbox")
    assert (getattr(found, "verdict", None), tried) == ("signature_mismatch", [T])
