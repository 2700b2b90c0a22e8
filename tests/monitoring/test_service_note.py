"""Note of a service for `doctor`: its state, and the settings in force."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.config.load import load_settings
from app.context.configured import keep_profiles
from app.context.context import AppContext
from app.context.unread import Backlog
from app.core.phone_key import PhoneKey
from app.database.writer import Space
from app.golive.examine import of_running_service
from app.monitoring import health
from app.monitoring.preflight import Check
from app.monitoring.service_note import note_service, noted_service, settings_digests
from app.providers.profile import SHIPPED
from app.receiving.inbox import Inbox
from reconcile.instants import MINUTE, Instant
from tests.api.driving import SECRET, Driver, driving, environ, event
from tests.database.test_journal import a_read_only_file

ADDRESS = "http://service"
GRACE = "TALLYHOOK_GRACE_S"


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Driver]:
    """Run a service that has noted itself."""
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        service = driver.service
        await note_service(service.context, address=ADDRESS, name=service.name)
        yield driver


async def said(driver: Driver, **changed: str) -> list[Check]:
    """Return the lines of a doctor that reads these settings now."""
    settings = load_settings(environ(driver.path.parent, **changed), serving=True)
    context = replace(driver.service.context, settings=settings)
    return await of_running_service(context, driver.client)


async def test_nothing_is_said_before_the_first_start(tmp_path: Path) -> None:
    async with driving(tmp_path, with_worker=False) as driver:
        assert await said(driver) == []


async def test_a_service_that_is_ready(served: Driver) -> None:
    (line,) = await said(served)
    assert (line.what, line.state) == ("service", "ok")


# --- readiness ------------------------------------------------------------------------------------


async def part_failed(driver: Driver, patch: pytest.MonkeyPatch, stack: AsyncExitStack) -> None:
    driver.service.fail("the reader of the inbox failed")


async def part_ended(driver: Driver, patch: pytest.MonkeyPatch, stack: AsyncExitStack) -> None:
    patch.setattr(driver.service.parts[0][1], "alive", False)


async def queue_ended(driver: Driver, patch: pytest.MonkeyPatch, stack: AsyncExitStack) -> None:
    patch.setattr(driver.service, "_journal_alive", False)


async def worker_gone(driver: Driver, patch: pytest.MonkeyPatch, stack: AsyncExitStack) -> None:
    patch.setattr(driver.service, "worker_missing", lambda: "the process has not been running")


async def disk_low(driver: Driver, patch: pytest.MonkeyPatch, stack: AsyncExitStack) -> None:
    patch.setattr(Space, "free_bytes", lambda space: 1)


async def write_slow(driver: Driver, patch: pytest.MonkeyPatch, stack: AsyncExitStack) -> None:
    patch.setattr(driver.service.inbox.queue, "stalled", "a write takes too long; try again")


async def disk_failed(driver: Driver, patch: pytest.MonkeyPatch, stack: AsyncExitStack) -> None:
    inbox = driver.service.inbox.file
    assert inbox is not None
    await stack.enter_async_context(a_read_only_file(inbox.writer, inbox.path))
    await driver.send(event("e1", note={"filler": "x" * 100_000}))


async def unread(driver: Driver, patch: pytest.MonkeyPatch, stack: AsyncExitStack) -> None:
    async def backlog(inbox: Inbox) -> Backlog:
        return Backlog(records=1, oldest=Instant(driver.clock.now() - 10 * MINUTE))

    patch.setattr(Inbox, "backlog", backlog)


async def no_reader(driver: Driver, patch: pytest.MonkeyPatch, stack: AsyncExitStack) -> None:
    driver.service.read_elsewhere = True
    driver.clock.put(driver.clock.now() + 10 * MINUTE)


async def Reason(driver: Driver, patch: pytest.MonkeyPatch, stack: AsyncExitStack) -> None:
    async def refusal(context: AppContext) -> str:
        return "a reason that nobody knows yet"

    patch.setattr(health, "refusal", refusal)


@pytest.mark.parametrize(
    "trouble",
    [
        part_failed,
        part_ended,
        queue_ended,
        worker_gone,
        disk_low,
        write_slow,
        disk_failed,
        unread,
        no_reader,
        Reason,
    ],
)
async def test_whatever_turns_readiness_red_is_a_line(
    served: Driver, monkeypatch: pytest.MonkeyPatch, trouble: Callable[..., object]
) -> None:
    """Each of them, since the lines are made of the service's own answer."""
    async with AsyncExitStack() as stack:
        await trouble(served, monkeypatch, stack)  # type: ignore[misc]
        answer = await served.client.get("/readyz")
        lines = await said(served)
        monkeypatch.undo()
    reasons = answer.json()["reasons"]
    assert (answer.status_code, bool(reasons)) == (503, True)
    assert [each.sentence for each in lines] == [f"Not ready: {reason}." for reason in reasons]
    assert {each.state for each in lines} == {"must"}


@pytest.mark.parametrize("answering", ["nobody", "another", "nobody in time"])
async def test_a_service_that_cannot_be_asked(
    tmp_path: Path, served: Driver, answering: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has ended is no fault; one that answers nothing is."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        if answering == "another":
            return httpx2.Response(503, stream=httpx2.ByteStream(b'{"reasons": ["not ours"]}'))
        kind = httpx2.ConnectError if answering == "nobody" else httpx2.ReadTimeout
        raise kind("planned", request=request)

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client:
        (line,) = await of_running_service(served.service.context, client)
    assert line.state == ("must" if answering == "nobody in time" else "weak")
    assert ADDRESS in line.sentence
    assert "ours" not in line.sentence


# --- settings -------------------------------------------------------------------------------------


async def test_settings_that_changed_since_the_start_are_a_line(served: Driver) -> None:
    """By name: values may be secret."""
    other = SECRET[:-4] + "AAA="
    changed = {"GRACE_S": "77", "SOURCES__SHOP__SECRETS": other, "SOURCES__NEW__SECRETS": SECRET}
    (line, _) = await said(served, **changed)
    assert (line.what, line.state) == ("settings", "weak")
    for name in changed:
        assert f"TALLYHOOK_{name}" in line.sentence
    assert "restart the service" in (line.do or "")


async def test_a_profile_that_changed_since_the_start_is_a_line(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text((SHIPPED / "checkout.toml").read_text())
    own: dict[str, Any] = {"SOURCES__SHOP__PROFILE": str(path)}
    async with driving(tmp_path, **own) as driver:
        service = driver.service
        keep_profiles(service.context.settings)
        await note_service(service.context, address=ADDRESS, name=service.name)
        assert len(await said(driver, **own)) == 1
        path.write_text(path.read_text() + "# changed\n")
        (line, _) = await said(driver, **own)
    assert "TALLYHOOK_SOURCES__SHOP__PROFILE" in line.sentence


async def test_the_note_reveals_no_setting(served: Driver) -> None:
    """Not even to somebody who tries all short passwords: the key is not in the database."""
    note = await noted_service(served.service.context)
    assert note is not None
    secret = "TALLYHOOK_SOURCES__SHOP__SECRETS"
    assert SECRET not in str(note.settings)
    settings = served.service.context.settings
    assert settings_digests(settings, PhoneKey(b"0" * 32))[secret] != note.settings[secret]
