"""Deliveries: repeated until acknowledged, signed afresh, bounded, and the same in every run."""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from app.core.errors import ConfigurationError
from app.sandbox.settings import SandboxSettings
from reconcile.instants import SECOND, Instant
from tests.rows import for_each
from tests.sandbox.harness import FakeSigner, world
from tests.waiting import PATIENCE_S

ENDINGS = [f"{n:02d}" for n in range(1, 17)]


async def test_a_delivery_is_repeated_with_growing_pauses_until_a_2xx() -> None:
    async with world(unit_s=0.5, retry_schedule_units=(1.0, 2.0, 4.0)) as w:
        answers: list[Any] = [500, httpx2.ConnectError("no"), 404, 301, 429, 204]
        w.receiver.answers = lambda n: answers[n] if n < len(answers) else 200
        await w.open("254700000003")
        await w.drained()
        tries = w.receiver.arrivals
    pauses = [(b.at - a.at) / SECOND for a, b in pairwise(tries)]
    assert pauses == [0.5, 1.0, 2.0, 2.0, 2.0]
    assert [t.status for t in tries] == [500, 0, 404, 301, 429, 204]


async def test_every_try_is_signed_afresh_under_the_same_event_id() -> None:
    async with world() as w:
        w.receiver.answers = lambda n: 200 if n == 3 else 503
        await w.open("254700000003")
        await w.drained()
        tries = w.receiver.arrivals
    assert len(tries) == 4
    assert len({t.body for t in tries}) == 1
    assert len({t.headers["fake-id"] for t in tries}) == 1
    assert len({t.headers["fake-signature"] for t in tries}) == 4
    assert all(t.genuine for t in tries)


async def test_a_slow_receiver_is_given_up_and_tried_again() -> None:
    tries = 0

    async def receive(_: httpx2.Request) -> httpx2.Response:
        nonlocal tries
        tries += 1
        if tries == 1:
            await anyio.sleep_forever()
        return httpx2.Response(200)

    async with world(receive=receive, delivery_timeout_s=0.02) as w:
        await w.open("254700000003")
        await w.drained()
    assert tries == 2


async def test_redirects_are_not_followed() -> None:
    async with world() as w:
        w.receiver.headers = {"Location": "http://elsewhere.test/"}
        w.receiver.answers = lambda n: 307 if n == 0 else 200
        await w.open("254700000003")
        await w.drained()
        hosts = [a.headers["host"] for a in w.receiver.arrivals]
    assert hosts == ["receiver.test", "receiver.test"]


async def test_a_tampered_delivery_is_repeated_after_trouble_but_not_after_a_refusal() -> None:
    answers = {2: 503, 4: 400}
    tries = []

    async def receive(request: httpx2.Request) -> httpx2.Response:
        tries.append(request)
        return httpx2.Response(answers.get(len(tries), 200))

    async with world(receive=receive) as w:
        await w.open("254700000011")
        await w.drained()
    pending, tampered, true, again = (t.content for t in tries)
    assert tampered == again, "503 says nothing of the signature, so the delivery is repeated"
    assert len({pending, tampered, true}) == 3


async def test_the_state_tells_what_is_still_to_come() -> None:
    go_on = anyio.Event()

    async def sleep(seconds: float) -> None:
        await (go_on.wait() if seconds > 0.5 else anyio.lowlevel.checkpoint())

    async with world(sleep=sleep, unit_s=10.0) as w:
        await w.open("254700000004")
        before = await w.get("/sandbox/state")
        w.receiver.answers = lambda _: 500
        go_on.set()
        await w.reached(pending_events=0, undelivered=6)
        w.receiver.answers = lambda _: 200
        await w.drained()
    assert before == {"sessions": 1, "pending_events": 6, "undelivered": 0}


async def test_deliveries_run_together_but_bounded() -> None:
    under_way, most, four = 0, 0, anyio.Event()

    async def receive(_: httpx2.Request) -> httpx2.Response:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if under_way == 4:
            four.set()
        await four.wait()
        await anyio.sleep(0.001)
        under_way -= 1
        return httpx2.Response(200)

    async with world(receive=receive, max_concurrent=4) as w:
        for number in range(20):
            await w.open(key=f"k{number}")
        await w.drained()
    assert most == 4


async def played(seed: int, order: list[str]) -> tuple[list[Any], list[str]]:
    """Open all scenarios in this order; return the truth, and the bodies without their times."""
    async with world(seed=seed) as w:
        for ending in order:
            for _ in range(3):
                try:
                    await w.open(f"2547000000{ending}")
                except ConnectionAbortedError:
                    continue
        await w.drained()
        truth = await w.get("/sandbox/truth")
        bodies = [a.body.decode() for a in w.receiver.arrivals]
    return truth, sorted(re.sub(r'"occurred_at": "[^"]*"', "", body) for body in bodies)


async def test_one_seed_gives_one_run_whatever_the_order_of_requests() -> None:
    first = await played(7, ENDINGS)
    again = await played(7, ENDINGS[::-1])
    other = await played(8, ENDINGS)
    assert first == again
    assert {e["session"] for e in first[0]}.isdisjoint(e["session"] for e in other[0])
    assert [e["outcome"] for e in first[0]] == [e["outcome"] for e in other[0]]


async def test_the_truth_file_is_whole_sorted_and_as_new_as_the_state(tmp_path: Path) -> None:
    path = tmp_path / "new" / "truth.json"
    async with world(truth_path=path) as w:
        assert json.loads(path.read_text()) == []
        await w.open("254700000012")
        await w.open("254700000001")
        await w.drained()
        seen = json.loads(path.read_text())
        assert seen == await w.get("/sandbox/truth")
    assert [e["order"] for e in seen] == ["ORD-01", "ORD-12"]
    assert [p.name for p in path.parent.iterdir()] == ["truth.json"]


async def test_a_truth_file_that_cannot_be_written_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises((OSError, ExceptionGroup)):
        async with world(truth_path=tmp_path / "file" / "truth.json"):
            pass


async def test_when_the_truth_file_cannot_be_kept_the_sandbox_says_so(tmp_path: Path) -> None:
    path = tmp_path / "truth.json"
    async with world(truth_path=path) as w:
        path.unlink()
        (path / "in the way").mkdir(parents=True)
        await w.open()
        state, health = await w.client.get("/sandbox/state"), await w.client.get("/livez")
    assert (state.status_code, health.status_code) == (503, 503)
    assert "truth file" in health.json()["detail"]


async def test_when_playing_fails_the_sandbox_says_so_and_opens_no_more() -> None:
    class BrokenSigner(FakeSigner):
        def sign(self, body: bytes, *, event_id: str, now: Instant) -> list[tuple[str, str]]:
            raise RuntimeError("no key")

    async with world(signer=BrokenSigner()) as w:
        assert (await w.client.get("/livez")).status_code == 200
        await w.open()
        with anyio.fail_after(PATIENCE_S):
            while (health := await w.client.get("/livez")).status_code == 200:
                await anyio.lowlevel.checkpoint()
        session = await w.open(key="another")
    assert (health.status_code, session.status_code) == (503, 503)
    assert "no key" in health.json()["detail"]


@for_each("token", ["live_x", "sk_live_x", "SK_LIVE_x"])
def test_no_live_token_opens_a_sandbox(token: str) -> None:
    with pytest.raises(ConfigurationError, match="live token"):
        SandboxSettings(token=token)


def test_settings_tell_every_problem_at_once_and_no_secret() -> None:
    with pytest.raises(ConfigurationError) as caught:
        SandboxSettings(
            webhook_url="receiver",
            token="live_x",
            unit_s=0,
            session_lifetime_units=5,
            retry_schedule_units=(),
        )
    assert len(caught.value.problems) == 5
    assert "live_x" not in str(caught.value)
    good = SandboxSettings(webhook_url="http://receiver.test/", token="tok", secrets=("sec",))
    assert "tok" not in repr(good).replace("token", "")
    assert "sec" not in repr(good).replace("secrets", "")
