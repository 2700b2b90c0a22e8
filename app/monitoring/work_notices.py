"""Notify operators about assigned breaks and waiting proposals.

(1) read   audit entries after the last notified one
(2) keep   entries about work that is still to do
(3) send   one mail or signed post, at once or each morning
(4) store  the number of the last entry

A notice names no customer and no order.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from email.message import EmailMessage
from email.utils import format_datetime
from hashlib import sha256
from typing import Any, Final, Literal, get_args

from app.access.operator_store import AuditEntry, operators
from app.access.operators import Proven, note_in_trail, permitted
from app.access.proposals import Proposals
from app.config.values import mail_address
from app.context.context import AppContext
from app.core.errors import DeliveryFailed, NotFoundError, UsageError
from app.core.logs import Repeating, log
from app.core.text import counted
from app.core.zones import local_text
from app.finance.break_acts import SeenBreak, one_break
from app.monitoring import work_notice_store as store
from app.monitoring.notice_ways import LEASE, SendsNotices, latest_pause, notice_pause
from reconcile.instants import HOUR, Instant, format_instant, moment_of
from reconcile.matching.causes import CAUSES
from reconcile.periods import Calendar

Pace = Literal["off", "at_once", "daily"]
PACES: Final[tuple[Pace, ...]] = get_args(Pace)

Way = Literal["mail", "post"]
WAYS: Final[tuple[Way, ...]] = get_args(Way)

MORNING: Final = 8 * HOUR
"""Time of the daily notice, in the merchant's time zone."""

MOST: Final = 200
"""Maximum number of audit entries for one notice."""

ADDRESS_MAX: Final = 254
"""Maximum number of characters of a mail address (RFC 5321)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkItem:
    """A task that waits for an operator, with a sentence about it and the path of its page."""

    kind: Literal["break_assigned", "approval_waits"]
    subject: str
    sentence: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkNotice:
    """Notice that tells one operator about all waiting work."""

    id: str
    """Id, equal for all attempts."""
    operator: str
    at: Instant
    items: tuple[WorkItem, ...]
    merchant: str
    console: str
    zone: tzinfo

    def body(self) -> bytes:
        """Return the JSON body of the signed POST."""
        document: dict[str, Any] = {
            "type": "work.waits",
            "timestamp": format_instant(self.at),
            "data": {
                "operator": self.operator,
                "merchant": self.merchant,
                "items": [
                    {
                        "kind": each.kind,
                        "subject": each.subject,
                        "sentence": each.sentence,
                        "page": f"{self.console}{each.path}",
                    }
                    for each in self.items
                ],
            },
        }
        return json.dumps(document, ensure_ascii=False).encode()

    def mail(self, *, sender: str, to: Sequence[str]) -> EmailMessage:
        mail, domain = EmailMessage(), sender.rpartition("@")[2]
        whose = f"{self.merchant}: " if self.merchant else ""
        mail["Subject"] = f"{whose}{counted(len(self.items), 'thing waits', 'things wait')} for you"
        mail["From"] = sender
        mail["To"] = ", ".join(to)
        mail["Date"] = format_datetime(moment_of(self.at))
        mail["Message-ID"] = f"<{self.id}@{domain}>"
        lines = [
            f"{local_text(each.sentence, self.zone, named=True)}\n{self.console}{each.path}"
            for each in self.items
        ]
        choice = f"You chose to be notified. Change this on {self.console}/me"
        mail.set_content("\n\n".join([*lines, choice]) + "\n")
        return mail


def ways_set_up(context: AppContext) -> tuple[Way, ...]:
    settings = context.settings
    mails = settings.reports.mail_server is not None and settings.reports.mail_from is not None
    posts = settings.alarms.url is not None and settings.alarms.secret is not None
    there: dict[Way, bool] = {"mail": mails, "post": posts}
    return tuple(way for way in WAYS if there[way])


# --- an operator's choice -------------------------------------------------------------------------


async def notice_choice(context: AppContext, operator: str) -> store.NoticeChoice | None:
    """Return an operator's choice; None for no notices."""
    async with context.database.reading() as connection:
        return await store.choice_of(connection, operator)


async def choose_notices(
    context: AppContext, operator: str, *, pace: Pace, way: Way, address: str, by: str | None
) -> None:
    """Store an operator's choice of notices.

    Raise UsageError for an invalid choice, or without the right.
    """
    settled = address.strip() or None
    if pace != "off":
        if way not in ways_set_up(context):
            raise UsageError(
                "no mail can be sent: set TALLYHOOK_REPORTS__MAIL_SERVER and __MAIL_FROM"
                if way == "mail"
                else "nothing can be posted: set TALLYHOOK_ALARMS__URL and its secret"
            )
        if way == "mail":
            _check_address(settled)
    async with context.database.writing() as connection:
        who = await permitted(connection, by=by, action="notices_chosen")
        if who.name != operator and who.role not in ("admin", "account"):
            raise UsageError(
                "you may change only your own notifications; an admin may change those of others"
            )
        known = {each.name for each in await operators(connection) if each.disabled_at is None}
        if operator not in known:
            raise NotFoundError(f"there is no active operator named {operator}")
        now = context.clock.now()
        if pace == "off":
            await store.delete_choice(connection, operator)
        else:
            choice = store.NoticeChoice(
                operator=operator,
                pace=pace,
                way=way,
                address=settled if way == "mail" else None,
                position=await store.newest_entry(connection),
                due_at=now if pace == "at_once" else next_morning(context, now),
            )
            await store.put_choice(connection, choice)
        facts = {"pace": pace, **({} if pace == "off" else {"way": way})}
        await note_in_trail(
            connection, who, action="notices_chosen", subject=operator, at=now, facts=facts
        )


def _check_address(address: str | None) -> None:
    try:
        if address is None or len(address) > ADDRESS_MAX:
            raise ValueError
        mail_address(address)
    except ValueError:
        raise UsageError("give your mail address, such as ann@shop.example") from None


def next_morning(context: AppContext, now: Instant) -> Instant:
    """Return the time at which the next daily notice is sent."""
    calendar = Calendar(context.calendar_zone)
    today = Instant(calendar.day(calendar.day_of(now))[0] + MORNING)
    return today if today > now else Instant(calendar.next_day(now) + MORNING)


# --- sending --------------------------------------------------------------------------------------


class WorkNotices:
    """Sender of notices about work over the configured channels."""

    def __init__(
        self, context: AppContext, ways: Mapping[str, SendsNotices], proposals: Proposals
    ) -> None:
        self._context = context
        self._ways = ways
        self._proposals = proposals
        self._failed = Repeating()

    async def send_due(self) -> int:
        now = self._context.clock.now()
        async with self._context.database.reading() as connection:
            due = await store.choices_due(
                connection, now, beyond=latest_pause(next_morning(self._context, now))
            )
            known = {each.name for each in await operators(connection) if each.disabled_at is None}
        sent = 0
        for choice in due:
            if choice.operator in known:
                sent += await self._look(choice, now)
                continue
            async with self._context.database.writing() as connection:
                await store.delete_choice(connection, choice.operator)
        return sent

    async def _look(self, choice: store.NoticeChoice, now: Instant) -> bool:
        async with self._context.database.reading() as connection:  # (1)
            entries = await store.work_entries(connection, after=choice.position, limit=MOST)
        later = now if choice.pace == "at_once" else next_morning(self._context, now)
        if not entries:
            if later != now:
                await self._store(choice, position=choice.position, due_at=later)
            return False
        way = self._ways.get(choice.way)
        if way is None:  # another process has it, or it is no longer configured
            return False
        async with self._context.database.writing() as connection:
            if not await store.claim_choice(connection, choice, until=Instant(now + LEASE)):
                return False
        items = [item for each in entries if (item := await self._item(choice, each)) is not None]
        if items:
            try:
                to = () if choice.address is None else (choice.address,)
                await way.send(self._notice(choice, items, now), to=to, now=now)  # (3)
            except DeliveryFailed as error:
                if times := self._failed.times(f"{choice.way} {error}"):
                    log.warning(
                        "an operator was not notified",
                        way=choice.way,
                        problem=str(error),
                        count=times,
                    )
                again = Instant(self._context.clock.now() + notice_pause(choice.tries))
                tries = choice.tries + 1
                await self._store(choice, position=choice.position, due_at=again, tries=tries)
                return False
        full = len(entries) == MOST
        await self._store(choice, position=entries[-1].number, due_at=now if full else later)  # (4)
        return bool(items)

    async def _store(
        self, choice: store.NoticeChoice, *, position: int, due_at: Instant, tries: int = 0
    ) -> None:
        async with self._context.database.writing() as connection:
            await store.put_looked(
                connection, choice, position=position, due_at=due_at, tries=tries
            )

    async def _item(self, choice: store.NoticeChoice, entry: AuditEntry) -> WorkItem | None:
        me = choice.operator
        if entry.who == me:
            return None
        if entry.action == "break_assigned":
            if entry.facts.get("value") != me:
                return None
            found = await self._break(entry.subject)
            if found is None or found.life.assignee != me or found.life.state == "closed":
                return None
            cause = CAUSES[found.seen.cause].name
            return WorkItem(
                kind="break_assigned",
                subject=entry.subject,
                sentence=f"{entry.who} assigned a break to you: {cause[:1].lower()}{cause[1:]}, "
                f"{found.seen.money}.",
                path=f"/breaks/{entry.subject}",
            )
        try:
            proposal = await self._proposals.one(entry.subject)
        except NotFoundError:
            return None
        kind = self._proposals.kinds.get(proposal.kind)
        now = self._context.clock.now()
        if kind is None or proposal.standing(now) != "waiting":
            return None
        if await self._proposals.why_not(proposal, by=Proven(me)) is not None:
            return None
        title = f"{kind.title[:1].lower()}{kind.title[1:]}"
        return WorkItem(
            kind="approval_waits",
            subject=proposal.id,
            sentence=f"{proposal.who} proposed to {title}. It waits for your approval until "
            f"{format_instant(proposal.until)}.",
            path=f"/proposals/{proposal.id}",
        )

    async def _break(self, name: str) -> SeenBreak | None:
        try:
            return await one_break(self._context, name)
        except NotFoundError:
            return None

    def _notice(
        self, choice: store.NoticeChoice, items: Sequence[WorkItem], now: Instant
    ) -> WorkNotice:
        settings = self._context.settings
        content = f"{choice.operator}|{choice.position}"
        return WorkNotice(
            id="wrk_" + sha256(content.encode()).hexdigest()[:24],
            operator=choice.operator,
            at=now,
            items=tuple(items),
            merchant=settings.merchant,
            console=settings.console.public_url or f"http://127.0.0.1:{settings.console.port}",
            zone=self._context.calendar_zone,
        )
