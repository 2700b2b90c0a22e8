"""Channels for notices to people: a signed POST to TALLYHOOK_ALARMS__URL, and mail."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from email.message import EmailMessage
from typing import Final, Protocol

import httpx2

from app.config.settings import Settings
from app.context.configured import signer_of_section
from app.core.clock import CLOCKS_DIFFER
from app.core.errors import DeliveryFailed
from app.core.mail import MailServer, mail_server
from app.providers.signed_post import post_signed
from app.providers.source import Source
from reconcile.instants import HOUR, MINUTE, Duration, Instant

LEASE: Final[Duration] = 5 * MINUTE
"""Time for which a process reserves a notice. Sending a mail takes much less."""

LIMIT_S: Final = 10.0
"""Seconds within which a POST must be answered."""

FIRST_PAUSE: Final[Duration] = MINUTE
LONGEST_PAUSE: Final[Duration] = HOUR


def notice_pause(tries: int) -> Duration:
    """Return the pause after this many failed tries, at most an hour."""
    return Duration(min(FIRST_PAUSE << min(tries, 10), LONGEST_PAUSE))


def latest_pause(now: Instant) -> Instant:
    """Return the latest plausible end of a pause or claim."""
    return Instant(now + LONGEST_PAUSE + CLOCKS_DIFFER)


class Notice(Protocol):
    """Message to people by signed POST or mail."""

    @property
    def id(self) -> str: ...

    def body(self) -> bytes:
        """Return the JSON body of the signed POST."""

    def mail(self, *, sender: str, to: Sequence[str]) -> EmailMessage: ...


class SendsNotices(Protocol):
    """Channel over which people are notified."""

    async def send(self, notice: Notice, *, to: Sequence[str], now: Instant) -> None:
        """Send a notice. Raise DeliveryFailed if this fails.

        A POST does not use the addresses in `to`.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class PostsNotices:
    """Channel that sends notices as signed POSTs."""

    url: str = field(repr=False)
    signer: Source = field(repr=False)
    client: httpx2.AsyncClient = field(repr=False)

    async def send(self, notice: Notice, *, to: Sequence[str], now: Instant) -> None:
        answer = await post_signed(
            self.client,
            self.url,
            notice.body(),
            signer=self.signer,
            event_id=notice.id,
            now=now,
            limit_s=LIMIT_S,
        )
        if not answer.taken:
            why = answer.why.replace("_", " ")
            raise DeliveryFailed(f"the receiver at TALLYHOOK_ALARMS__URL refuses it ({why})")


@dataclass(frozen=True, slots=True, kw_only=True)
class MailsNotices:
    """Channel that sends notices as mail, through the mail server for reports."""

    server: MailServer
    sender: str

    async def send(self, notice: Notice, *, to: Sequence[str], now: Instant) -> None:
        await self.server.send(notice.mail(sender=self.sender, to=to))


def notice_ways_of(
    settings: Settings, client: httpx2.AsyncClient | None
) -> dict[str, SendsNotices]:
    """Build the configured channels.

    Raise ConfigurationError if the secret for the POSTs cannot sign.
    """
    ways, alarms, reports = dict[str, SendsNotices](), settings.alarms, settings.reports
    server = mail_server(
        reports.mail_server, user=reports.mail_user, password=reports.mail_password
    )
    if server is not None and reports.mail_from is not None:
        ways["mail"] = MailsNotices(server=server, sender=reports.mail_from)
    if client is not None and alarms.url is not None and alarms.secret is not None:
        signer = signer_of_section("alarms", alarms.secret)
        ways["post"] = PostsNotices(url=alarms.url, signer=signer, client=client)
    return ways
