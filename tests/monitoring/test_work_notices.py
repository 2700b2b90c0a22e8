"""Operators are notified of work that waits for them: each thing once, at once or each morning."""

import asyncio
import json
from collections.abc import AsyncIterator
from email import message_from_bytes
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import httpx2
import pytest

from app.access.operators import Proven, retire_operator
from app.config.load import load_settings
from app.context.context import AppContext
from app.core.errors import ConfigurationError, UsageError
from app.core.http import outgoing_client
from app.core.mail import MailServer as Server
from app.finance.match_rules import save_rules
from app.monitoring.notice_ways import MailsNotices, PostsNotices, SendsNotices
from app.monitoring.work_notices import (
    Pace,
    Way,
    WorkNotices,
    choose_notices,
    next_morning,
    notice_choice,
)
from app.providers.profile import load_profile
from app.providers.request import Incoming
from app.providers.source import Source
from app.receiving.inbox import inbox_of
from app.wiring.work import proposals_of
from reconcile.instants import MINUTE, Instant, parse_instant
from tests.api.driving import SECRET, Driver, driving
from tests.contexts import with_settings
from tests.database.contract_breaks import missing, people, run
from tests.finance.deciding import decide
from tests.finance.test_delivering import mail_server

RULES = '[accept_alone_max]\nKES = "1.00"\n'
MAIL: dict[str, Any] = {
    "reports": {"mail_server": "smtp.example:587", "mail_from": "tallyhook@shop.example"},
    "alarms": {"url": "https://pager.example/in", "secret": SECRET},
    "timezone": "Africa/Nairobi",
    "console": {"public_url": "https://books.shop.example"},
}


class Inbox:
    """Receiver of notices that fails as often as it is told to."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.seen: list[httpx2.Request] = []
        self.signer = Source(name="alarms", profile=load_profile("checkout"), secrets=[SECRET])
        client = outgoing_client(timeout_s=5, transport=httpx2.MockTransport(self._answer))
        self.way = PostsNotices(url="https://pager.example/in", signer=self.signer, client=client)

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.seen.append(request)
        status = self.answers.pop(0) if self.answers else 200
        return httpx2.Response(status, stream=httpx2.ByteStream(b""))

    @property
    def told(self) -> list[tuple[str, list[str]]]:
        """Return operator and subjects of each post."""
        found = [json.loads(each.content)["data"] for each in self.seen]
        return [(each["operator"], [one["kind"] for one in each["items"]]) for each in found]


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[Driver]:
    """Run a service with three operators and two breaks above the limit of one person."""
    async with driving(tmp_path, with_worker=False) as driver:
        assert isinstance(driver, Driver)
        driver.context = with_settings(driver.context, **MAIL)
        await save_rules(driver.context, RULES, by=None)
        await people(driver.context)
        await run(inbox_of(driver.context), missing("A"), missing("B"), at=1)
        yield driver


async def chosen(at: AppContext, name: str, *, pace: Pace = "at_once", way: Way = "post") -> None:
    await choose_notices(at, name, pace=pace, way=way, address="bob@shop.example", by=Proven(name))


def sender(driver: Driver, **ways: SendsNotices) -> WorkNotices:
    return WorkNotices(driver.context, ways, proposals_of(driver.context))


async def assign(at: AppContext, order: str, *, to: str, by: str = "ann") -> None:
    await decide(at, missing(order).identity, "assigned", value=to, by=Proven(by))


async def test_each_thing_is_notified_once_to_whose_it_is(driver: Driver) -> None:
    """Not what one did oneself, nor what somebody else may decide; also after a restart."""
    at, inbox = driver.context, Inbox()
    for name in ("ann", "bob", "eve"):
        await chosen(at, name)
    await assign(at, "A", to="bob")
    await assign(at, "B", to="ann")
    await decide(at, missing("A").identity, "accepted", reason="x", by=Proven("ann"))
    first = sender(driver, post=inbox.way)
    assert [await first.send_due() for _ in range(2)] == [1, 0]
    assert await sender(driver, post=inbox.way).send_due() == 0
    assert inbox.told == [("bob", ["break_assigned", "approval_waits"])]
    await assign(at, "B", to="bob")
    await assign(at, "B", to="ann", by="bob")
    assert await first.send_due() == 1  # it is not bob's any more
    assert inbox.told[1:] == [("ann", ["break_assigned"])]
    (post, *_) = inbox.seen
    headers = [(name.lower().encode(), value.encode()) for name, value in post.headers.items()]
    asked = Incoming(headers, post.content, url=str(post.url))
    assert inbox.signer.verify(asked, now=driver.clock.now()) is None


async def test_a_notice_names_no_customer_and_links_to_the_page(driver: Driver) -> None:
    at = driver.context
    await chosen(at, "bob", way="mail")
    await assign(at, "A", to="bob")
    await decide(at, missing("A").identity, "accepted", reason="gone", by=Proven("ann"))
    with mail_server() as server:
        host, port = server.server_address[:2]
        way = MailsNotices(
            server=Server(host=str(host), port=int(port)), sender="tallyhook@shop.example"
        )
        assert await sender(driver, mail=way).send_due() == 1
    (mail,) = (message_from_bytes(each) for each in server.mails)
    text = bytes(mail.get_payload(decode=True) or b"").decode()
    assert (mail["To"], mail["Subject"]) == ("bob@shop.example", "2 things wait for you")
    assert f"https://books.shop.example/breaks/{missing('A').identity}" in text
    assert "ann proposed to accept a break above the limit." in text
    assert "waits for your approval until 2026-11-27 13:" in text  # in Nairobi
    assert "gone" not in text


@pytest.mark.parametrize(
    ("now", "then"),
    [
        ("2026-11-20T04:59:59Z", "2026-11-20T05:00:00Z"),
        ("2026-11-20T05:00:00Z", "2026-11-21T05:00:00Z"),
        ("2026-11-20T21:30:00Z", "2026-11-21T05:00:00Z"),
    ],
)
def test_a_digest_comes_at_eight_in_the_merchants_morning(now: str, then: str) -> None:
    at: Any = SimpleNamespace(calendar_zone=ZoneInfo("Africa/Nairobi"))
    assert next_morning(at, parse_instant(now)) == parse_instant(then)


async def test_a_digest_has_what_came_since_the_last(driver: Driver) -> None:
    at, inbox = driver.context, Inbox()
    await chosen(at, "bob", pace="daily")
    notices = sender(driver, post=inbox.way)
    await assign(at, "A", to="bob")
    assert await notices.send_due() == 0  # it is afternoon
    await assign(at, "B", to="bob")
    driver.clock.put(parse_instant("2026-11-21T05:00:00Z"))
    assert [await notices.send_due() for _ in range(2)] == [1, 0]
    assert inbox.told == [("bob", ["break_assigned"] * 2)]
    driver.clock.put(parse_instant("2026-11-22T06:00:00Z"))
    assert await notices.send_due() == 0
    await assign(at, "A", to="")
    await assign(at, "A", to="bob")
    assert await notices.send_due() == 0  # the morning is over, though it brought nothing
    driver.clock.put(parse_instant("2026-11-23T06:00:00Z"))
    assert await notices.send_due() == 1


async def test_what_could_not_be_sent_is_sent_again_with_its_id(driver: Driver) -> None:
    """Two processes that look at once send it once."""
    at, inbox = driver.context, Inbox(503, 503)
    await chosen(at, "bob")
    await assign(at, "A", to="bob")
    one, other = (sender(driver, post=inbox.way) for _ in range(2))
    for wait in (0, MINUTE, 2 * MINUTE):
        driver.clock.put(Instant(driver.clock.now() + wait))
        sent = sum(await asyncio.gather(one.send_due(), other.send_due()))
    assert (sent, len(inbox.seen)) == (1, 3)
    assert len({each.headers["webhook-id"] for each in inbox.seen}) == 1
    assert await one.send_due() == 0


async def test_a_retired_operators_address_is_deleted(driver: Driver) -> None:
    at = driver.context
    await chosen(at, "bob", way="mail")
    await assign(at, "A", to="bob")
    await retire_operator(at, name="bob", by=Proven("ann"))
    assert await sender(driver, post=Inbox().way).send_due() == 0
    assert await notice_choice(at, "bob") is None


async def test_everybody_chooses_for_themselves(driver: Driver) -> None:
    """An admin may for others; what is not set up cannot be chosen; the trail has no address."""
    at = driver.context
    with pytest.raises(UsageError, match="only your own notifications"):
        await choose_notices(
            at, "ann", pace="daily", way="mail", address="a@b.example", by=Proven("bob")
        )
    for address in ("", "nobody", "a@b.example\nBcc: c@d.example", "x" * 250 + "@b.example"):
        with pytest.raises(UsageError, match="mail address"):
            await choose_notices(
                at, "bob", pace="daily", way="mail", address=address, by=Proven("bob")
            )
    await choose_notices(
        at, "bob", pace="daily", way="mail", address="bob@b.example", by=Proven("ann")
    )
    assert "bob@b.example" not in str(driver.rows("SELECT facts FROM audit"))
    await choose_notices(at, "bob", pace="off", way="mail", address="", by=Proven("bob"))
    assert await notice_choice(at, "bob") is None
    with pytest.raises(UsageError, match="TALLYHOOK_REPORTS__MAIL_SERVER"):
        await choose_notices(
            with_settings(at, reports={}),
            "bob", pace="daily", way="mail", address="b@b.example", by=Proven("bob"),
        )  # fmt: skip


def test_a_mail_server_needs_no_recipients_but_of_reports() -> None:
    """Operators give their own addresses."""
    given = {
        "TALLYHOOK_ENVIRONMENT": "sandbox",
        "TALLYHOOK_REPORTS__MAIL_SERVER": "smtp.example",
        "TALLYHOOK_REPORTS__MAIL_FROM": "tallyhook@shop.example",
    }
    assert load_settings(given).reports.mail_to == ()
    scheduled = given | {"TALLYHOOK_SCHEDULE": "month | 0 6 12 * * | month pdf mail"}
    with pytest.raises(ConfigurationError, match="MAIL_TO: is missing"):
        load_settings(scheduled)
