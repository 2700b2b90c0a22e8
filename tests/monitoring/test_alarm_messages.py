"""Alarms are told to whoever is called: once each, and once that they are over."""

import asyncio
import json
from collections.abc import Mapping
from email import message_from_bytes
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.config.load import load_settings
from app.core.alarm import Alarm
from app.core.errors import ConfigurationError
from app.core.http import outgoing_client
from app.core.mail import MailServer as Server
from app.monitoring.alarm_messages import (
    GIVE_UP_AFTER,
    OVER_AFTER,
    AlarmMessages,
)
from app.monitoring.monitoring_store import claim_message, messages_due
from app.monitoring.notice_ways import LEASE, MailsNotices, PostsNotices, SendsNotices
from app.monitoring.watchdog import REST_S
from app.providers.profile import load_profile
from app.providers.request import Incoming
from app.providers.source import Source
from reconcile.instants import MINUTE, SECOND, TICK
from tests.api.driving import SECRET, Driver, driving, secret
from tests.contexts import with_settings
from tests.finance.test_delivering import MailServer, mail_server

HELD = Alarm(reason="orders_held", problem="2 orders are held", do="look at them")
LASTING = {"held": HELD}


class Pager:
    """Receiver of posts that answers with the given statuses, then with 200."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.seen: list[httpx2.Request] = []
        self.signer = Source(name="alarms", profile=load_profile("checkout"), secrets=[SECRET])
        self.way = PostsNotices(
            url="https://pager.example/tallyhook",
            signer=self.signer,
            client=outgoing_client(timeout_s=5, transport=httpx2.MockTransport(self._answer)),
        )

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.seen.append(request)
        status = self.answers.pop(0) if self.answers else 200
        return httpx2.Response(status, stream=httpx2.ByteStream(b""))

    @property
    def types(self) -> list[str]:
        return [json.loads(request.content)["type"] for request in self.seen]


def mailing(server: MailServer) -> MailsNotices:
    host, port = server.server_address[:2]
    ours = Server(host=str(host), port=int(port))
    return MailsNotices(server=ours, sender="tallyhook@shop.example")


def telling(driver: Driver, **ways: SendsNotices) -> AlarmMessages:
    """Build the sender as a new process does."""
    return AlarmMessages(driver.context, ways, to=("oncall@shop.example",))


async def looked(driver: Driver, messages: AlarmMessages, lasting: Mapping[str, Alarm]) -> int:
    """Return what is told at the watchdog's next look."""
    driver.clock.put(driver.clock.now() + int(REST_S) * SECOND)
    await messages.note(lasting)
    return await messages.send_due()


async def over(driver: Driver, messages: AlarmMessages) -> int:
    """Return what is told once no look has seen it for long enough."""
    assert await looked(driver, messages, {}) == 0
    driver.clock.put(driver.clock.now() + OVER_AFTER)
    return await looked(driver, messages, {})


async def test_each_is_told_once_and_so_is_its_recovery(tmp_path: Path) -> None:
    """By each way, however often it is seen, also after a restart."""
    pager = Pager()
    with mail_server() as server:
        async with driving(tmp_path, with_worker=False, looking=True) as driver:
            ways: dict[str, SendsNotices] = {"post": pager.way, "mail": mailing(server)}
            first = telling(driver, **ways)
            assert [await looked(driver, first, LASTING) for _ in range(3)] == [2, 0, 0]
            restarted = telling(driver, **ways)
            assert [await looked(driver, restarted, LASTING) for _ in range(3)] == [0, 0, 0]
            assert await over(driver, restarted) == 2
            assert await looked(driver, restarted, {}) == 0
            assert await looked(driver, restarted, LASTING) == 2  # another time
    assert pager.types == ["alarm.raised", "alarm.over", "alarm.raised"]
    ids = [request.headers["webhook-id"] for request in pager.seen]
    assert len(set(ids)) == 3
    raised, recovery, again = (message_from_bytes(mail) for mail in server.mails)
    assert (raised["Subject"], recovery["Subject"]) == ("alarm held", "alarm held is over")
    assert recovery["In-Reply-To"] == raised["Message-ID"] != again["Message-ID"]
    assert HELD.sentence in str(raised.get_payload())


async def test_a_mail_tells_times_in_the_merchants_zone_and_a_post_in_utc(tmp_path: Path) -> None:
    pager, problem = Pager(), "Nothing was taken since 2026-11-20T09:05:00Z"
    silent = {"silence": Alarm(reason="silence", problem=problem, do="ask")}
    with mail_server() as server:
        async with driving(tmp_path, with_worker=False) as driver:
            driver.context = with_settings(driver.context, timezone="Africa/Nairobi")
            messages = telling(driver, post=pager.way, mail=mailing(server))
            assert await looked(driver, messages, silent) == 2
            assert await over(driver, messages) == 2
    raised, recovery = (str(message_from_bytes(mail).get_payload()) for mail in server.mails)
    assert "Nothing was taken since 2026-11-20 12:05 EAT: ask." in raised
    assert "Raised at 2026-11-20 13:0" in raised
    assert "The alarm silence ended at 2026-11-20 13:0" in recovery
    assert "Z" not in raised + recovery
    data = [json.loads(request.content)["data"] for request in pager.seen]
    assert [each["sentence"] for each in data] == [f"{problem}: ask."] * 2
    assert all(each["raised_at"].endswith("Z") for each in data)


async def test_a_post_is_signed_and_says_what_and_since_when(tmp_path: Path) -> None:
    pager = Pager()
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        await looked(driver, telling(driver, post=pager.way), LASTING)
        now = driver.clock.now()
    (request,) = pager.seen
    headers = [(name.encode(), value.encode()) for name, value in request.headers.items()]
    assert pager.signer.verify(Incoming(headers, request.content), now=now) is None
    data = json.loads(request.content)["data"]
    assert (data["alarm"], data["reason"], data["over_at"]) == ("held", "orders_held", None)
    assert data["sentence"] == HELD.sentence


async def test_what_is_not_taken_is_told_again_by_itself(tmp_path: Path) -> None:
    """With the same id, after a growing pause; the other way does not repeat it."""
    pager = Pager(503, 503)
    with mail_server() as server:
        async with driving(tmp_path, with_worker=False, looking=True) as driver:
            messages = telling(driver, post=pager.way, mail=mailing(server))
            assert await looked(driver, messages, LASTING) == 1
            pauses: list[int] = []
            for _ in range(2):
                before = driver.clock.now()
                while len(pager.seen) == len(pauses) + 1:
                    driver.clock.put(driver.clock.now() + 30 * SECOND)
                    await messages.note(LASTING)
                    await messages.send_due()
                pauses.append(driver.clock.now() - before)
    assert pauses == [MINUTE, 2 * MINUTE]
    assert len({request.headers["webhook-id"] for request in pager.seen}) == 1
    assert len({request.content for request in pager.seen}) == 1
    assert len(server.mails) == 1


async def test_two_processes_tell_it_once(tmp_path: Path) -> None:
    pager = Pager()
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        one, other = telling(driver, post=pager.way), telling(driver, post=pager.way)
        await one.note(LASTING)
        await other.note(LASTING)
        assert sum(await asyncio.gather(one.send_due(), other.send_due())) == 1
    assert pager.types == ["alarm.raised"]


async def test_what_was_told_in_the_same_instant_is_no_other_s_to_tell(tmp_path: Path) -> None:
    pager = Pager()
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        messages = telling(driver, post=pager.way)
        await messages.note(LASTING)
        now = driver.clock.now()
        async with driver.service.inbox.database.reading() as connection:
            (due,) = await messages_due(connection, now)
        assert await messages.send_due() == 1
        async with driver.service.inbox.database.writing() as connection:
            assert not await claim_message(connection, due, until=now + MINUTE)


async def test_one_that_ended_while_it_told_is_followed(tmp_path: Path) -> None:
    """When its lease has ended, with the same id."""

    class Ending(Exception):
        pass

    class Dies:
        async def send(self, notice: object, *, to: object, now: int) -> None:
            raise Ending

    pager = Pager()
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        dying, next_one = telling(driver, post=Dies()), telling(driver, post=pager.way)
        with pytest.raises(Ending):
            await looked(driver, dying, LASTING)
        assert await looked(driver, next_one, LASTING) == 0
        driver.clock.put(driver.clock.now() + LEASE)
        assert await looked(driver, next_one, LASTING) == 1
    assert pager.types == ["alarm.raised"]


async def test_one_that_comes_and_goes_is_not_over(tmp_path: Path) -> None:
    """And a receiver that was not told of it hears of no recovery."""
    pager, silent = Pager(), Pager(503, 503, 503, 503, 503, 503, 503)
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        messages = telling(driver, post=pager.way)
        for _ in range(8):
            await looked(driver, messages, LASTING)
            await looked(driver, messages, {})
        assert pager.types == ["alarm.raised"]
        assert await over(driver, messages) == 1
        unheard = telling(driver, post=silent.way)
        assert await looked(driver, unheard, LASTING) == 0
        driver.clock.put(driver.clock.now() + OVER_AFTER + TICK)
        await unheard.note({})
        silent.answers.clear()
        driver.clock.put(driver.clock.now() + GIVE_UP_AFTER)
        assert await unheard.send_due() == 0
        assert driver.rows("SELECT * FROM alarm_messages") == []
    assert silent.types == ["alarm.raised"]


async def test_a_recovery_is_given_up_after_a_day(tmp_path: Path) -> None:
    pager = Pager(200, *[500] * 99)
    async with driving(tmp_path, with_worker=False, looking=True) as driver:
        messages = telling(driver, post=pager.way)
        await looked(driver, messages, LASTING)
        assert await over(driver, messages) == 0
        driver.clock.put(driver.clock.now() + GIVE_UP_AFTER + MINUTE)
        assert await messages.send_due() == 0
        assert driver.rows("SELECT * FROM alarm_messages") == []


async def test_a_service_tells_what_its_watchdog_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def seen(watched: object) -> Mapping[str, Alarm]:
        return LASTING

    monkeypatch.setattr("app.monitoring.watchdog.alarms", seen)
    kept = "SELECT alarm, way FROM alarm_messages"
    told: dict[str, Any] = {
        "ALARMS__URL": "http://127.0.0.1:9/",
        "ALARMS__SECRET": secret(b"of alarms " * 3),
    }
    for name in ("told", "untold"):
        (tmp_path / name).mkdir()
    async with driving(tmp_path / "told", with_worker=False, looking=True, **told) as driver:
        assert "the task that sends alarms" in dict(driver.service.parts)
        await driver.service.watchdog.look()
        assert driver.rows(kept) == [("held", "post")]
    async with driving(tmp_path / "untold", with_worker=False, looking=True) as driver:
        await driver.service.watchdog.look()
        assert driver.rows(kept) == []


GIVEN = {
    "TALLYHOOK_ENVIRONMENT": "live",
    "TALLYHOOK_ALARMS__URL": "https://pager.example/tallyhook",
    "TALLYHOOK_ALARMS__SECRET": SECRET,
    "TALLYHOOK_ALARMS__MAIL_TO": "oncall@shop.example",
    "TALLYHOOK_REPORTS__MAIL_SERVER": "smtp.example",
    "TALLYHOOK_REPORTS__MAIL_FROM": "tallyhook@shop.example",
}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"TALLYHOOK_ALARMS__URL": None}, "ALARMS__URL: is missing"),
        ({"TALLYHOOK_ALARMS__URL": "http://pager.example/"}, "ALARMS__URL: sends alarms unencr"),
        ({"TALLYHOOK_ALARMS__SECRET": None}, "ALARMS__SECRET: is missing"),
        ({"TALLYHOOK_ALARMS__MAIL_TO": "nobody"}, "ALARMS__MAIL_TO: must be an address"),
        ({"TALLYHOOK_REPORTS__MAIL_SERVER": None}, "REPORTS__MAIL_SERVER: is missing"),
    ],
)
def test_what_is_missing_or_wrong_stops_the_start(
    changed: dict[str, str | None], said: str
) -> None:
    assert load_settings(GIVEN).alarms.mail_to == ("oncall@shop.example",)
    given = {name: value for name, value in {**GIVEN, **changed}.items() if value is not None}
    with pytest.raises(ConfigurationError, match=said):
        load_settings(given)
