"""Send notices of alarms by signed POST or mail.

(1) store the watchdog's alarms  (2) claim due notices  (3) send them  (4) mark them sent

A notice interrupted between (2) and (4) is sent again with the same id.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from email.message import EmailMessage
from email.utils import format_datetime
from hashlib import sha256
from typing import Any, Final, Literal, get_args

import httpx2

from app.access.operators import note_in_trail, permitted
from app.context.context import AppContext
from app.core.alarm import Alarm
from app.core.errors import DeliveryFailed, NotFoundError
from app.core.logs import Repeating, log
from app.core.zones import local_text
from app.monitoring import monitoring_store, notice_ways
from reconcile import instants
from reconcile.instants import Instant

OVER_AFTER: Final[instants.Duration] = 3 * instants.MINUTE
"""Time without a report after which an alarm is over."""

GIVE_UP_AFTER: Final[instants.Duration] = instants.DAY
"""Time for which sending the notice of an alarm's end is retried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmNotice:
    """Notice that an alarm was raised or has ended."""

    message: monitoring_store.AlarmMessage
    merchant: str
    zone: tzinfo

    @property
    def over(self) -> bool:
        """Return whether the notice says that the alarm is over."""
        return self.message.over_at is not None

    @property
    def id(self) -> str:
        """Id of the notice, equal for all attempts and channels."""
        return self._id("over" if self.over else "raised")

    def _id(self, word: str) -> str:
        content = f"{self.message.alarm}|{self.message.raised_at}|{word}"
        return "alm_" + sha256(content.encode()).hexdigest()[:24]

    def body(self) -> bytes:
        """Return the JSON body of the signed POST."""
        message = self.message
        document: dict[str, Any] = {
            "type": "alarm.over" if self.over else "alarm.raised",
            "timestamp": instants.format_instant(message.over_at or message.raised_at),
            "data": {
                "alarm": message.alarm,
                "reason": message.reason,
                "sentence": message.sentence,
                "raised_at": instants.format_instant(message.raised_at),
                "over_at": instants.format_known(message.over_at),
                "merchant": self.merchant,
            },
        }
        return json.dumps(document, ensure_ascii=False).encode()

    def mail(self, *, sender: str, to: Sequence[str]) -> EmailMessage:
        """Return the notice as a mail."""
        message, domain = self.message, sender.rpartition("@")[2]
        mail = EmailMessage()
        whose = f"{self.merchant}: " if self.merchant else ""
        mail["Subject"] = f"{whose}alarm {message.alarm}{' is over' if self.over else ''}"
        mail["From"] = sender
        mail["To"] = ", ".join(to)
        mail["Date"] = format_datetime(instants.moment_of(message.over_at or message.raised_at))
        mail["Message-ID"] = f"<{self.id}@{domain}>"
        if self.over:
            mail["In-Reply-To"] = f"<{self._id('raised')}@{domain}>"
        raised = f"Raised at {instants.format_instant(message.raised_at)}."
        entry = f"Meaning and next steps: see the runbook, Alarms, `{message.alarm}`."
        lines = [message.sentence, raised, entry]
        if message.over_at is not None:
            over = instants.format_instant(message.over_at)
            ended = f"The alarm {message.alarm} ended at {over}."
            lines = [ended, raised, f"It said: {message.sentence}"]
        lines = [local_text(line, self.zone, named=True) for line in lines]
        mail.set_content("\n\n".join(lines) + "\n")
        return mail


class AlarmMessages:
    """Sender of the notices of alarms over the configured channels."""

    def __init__(
        self,
        context: AppContext,
        ways: Mapping[str, notice_ways.SendsNotices],
        *,
        to: Sequence[str],
    ) -> None:
        self._context = context
        self._ways = ways
        self._to = to
        self._failed = Repeating()

    async def note(self, lasting: Mapping[str, Alarm]) -> None:
        """Store a notice for each raised alarm, and note the ended alarms.

        The alarms in `lasting` are those that this process sees now.
        """
        now = self._context.clock.now()
        async with self._context.database.reading() as connection:
            if not lasting and not await monitoring_store.any_lasts(connection):
                return
        async with self._context.database.writing() as connection:
            for name, alarm in lasting.items():
                for way in self._ways:
                    message = monitoring_store.AlarmMessage(
                        alarm=name,
                        way=way,
                        reason=alarm.reason,
                        sentence=alarm.sentence,
                        raised_at=now,
                        seen_at=now,
                        due_at=now,
                    )
                    await monitoring_store.put_seen(connection, message)
            await monitoring_store.put_over(connection, unseen_since=now - OVER_AFTER, now=now)

    async def send_due(self) -> int:
        now = self._context.clock.now()
        async with self._context.database.reading() as connection:
            due = await monitoring_store.messages_due(
                connection, now, beyond=notice_ways.latest_pause(now)
            )
        return sum([await self._send(message, now) for message in due])

    async def _send(self, message: monitoring_store.AlarmMessage, now: Instant) -> bool:
        async with self._context.database.writing() as connection:  # (2)
            if not await monitoring_store.claim_message(
                connection, message, until=now + notice_ways.LEASE
            ):
                return False
        way = self._ways.get(message.way)
        unsaid = message.over_at is not None and message.told_at is None
        if way is None or unsaid:  # channel no longer configured, or alarm over before its notice
            async with self._context.database.writing() as connection:
                await monitoring_store.delete_message(connection, message)
            return False
        try:
            notice = AlarmNotice(
                message=message,
                merchant=self._context.settings.merchant,
                zone=self._context.calendar_zone,
            )
            await way.send(notice, to=self._to, now=now)  # (3)
        except DeliveryFailed as error:
            if times := self._failed.times(f"{message.way} {error}"):
                log.warning(
                    "an alarm was not sent", way=message.way, problem=str(error), count=times
                )
            now = self._context.clock.now()
            async with self._context.database.writing() as connection:
                if message.over_at is not None and now - message.over_at > GIVE_UP_AFTER:
                    await monitoring_store.delete_message(connection, message)
                else:
                    again_at = now + notice_ways.notice_pause(message.tries)
                    await monitoring_store.put_failed(connection, message, again_at=again_at)
            return False
        async with self._context.database.writing() as connection:  # (4)
            if message.over_at is None:
                await monitoring_store.put_notified(
                    connection, message, now=self._context.clock.now()
                )
            else:
                await monitoring_store.delete_message(connection, message)
        return True


def alarm_messages_of(context: AppContext, client: httpx2.AsyncClient) -> AlarmMessages | None:
    """Build the sender of the notices of alarms, if anybody is to be notified.

    Raises ConfigurationError if the secret for the POSTs cannot sign.
    """
    to, ways = context.settings.alarms.mail_to, notice_ways.notice_ways_of(context.settings, client)
    if not to:
        ways.pop("mail", None)
    return AlarmMessages(context, ways, to=to) if ways else None


TakenState = Literal["looking", "waiting"]
TAKEN_STATES: Final[tuple[TakenState, ...]] = get_args(TakenState)


async def take_alarm(
    context: AppContext,
    name: str,
    *,
    lasting: Mapping[str, Alarm],
    state: TakenState,
    by: str | None,
    why: str,
) -> None:
    """Store who handles an alarm, and how far the person is.

    Raises NotFoundError if the alarm is over, and UsageError if permission is missing.
    """
    alarm = lasting.get(name)
    if alarm is None:
        raise NotFoundError(f"the alarm {name!r} has ended")
    async with context.database.writing() as connection:
        now = context.clock.now()
        who = await permitted(connection, by=by, action="alarm_taken")
        await monitoring_store.put_alarm_owner(
            connection,
            monitoring_store.AlarmOwner(
                alarm=name, reason=alarm.reason, owner=who.name, state=state, at=now
            ),
        )
        await note_in_trail(
            connection,
            who,
            action="alarm_taken",
            subject=name,
            at=now,
            reason=why,
            facts={"alarm": alarm.reason, "state": state},
        )


async def owners_of_alarms(
    context: AppContext, lasting: Mapping[str, Alarm]
) -> dict[str, monitoring_store.AlarmOwner]:
    async with context.database.reading() as connection:
        found = await monitoring_store.alarm_owners(connection)
    return {each.alarm: each for each in found if _lasts(each, lasting)}


async def forget_owners(context: AppContext, lasting: Mapping[str, Alarm]) -> None:
    """Delete the owners of alarms that have ended or changed."""
    async with context.database.reading() as connection:
        over = [
            each
            for each in await monitoring_store.alarm_owners(connection)
            if not _lasts(each, lasting)
        ]
    if over:
        async with context.database.writing() as connection:
            for each in over:
                await monitoring_store.delete_alarm_owner(connection, each)


def _lasts(taken: monitoring_store.AlarmOwner, lasting: Mapping[str, Alarm]) -> bool:
    alarm = lasting.get(taken.alarm)
    return alarm is not None and alarm.reason == taken.reason
