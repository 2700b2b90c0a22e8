"""Wiring of what leaves by folder, mail and signed post: the schedule's reports, and alarms."""

from __future__ import annotations

import httpx2

from app.bootstrap_sources import signer_of_section
from app.config.settings import Settings
from app.context.context import AppContext
from app.core.clock import Clock
from app.core.mail import MailServer
from app.core.schedule import Way, schedule_entries
from app.finance.scheduled_work import Delivers, FolderWay, MailWay, PostWay, Schedule
from app.monitoring.alarm_messages import AlarmMessages, MailsAlarms, PostsAlarms, SendsAlarms


def schedule_of(settings: Settings, *, client: httpx2.AsyncClient, clock: Clock) -> Schedule:
    """What is to be done, and the ways that are set up. Raises ConfigurationError where the secret
    of posts cannot sign."""
    reports = settings.reports
    ways: dict[Way, Delivers] = {}
    if reports.folder is not None:
        ways["folder"] = FolderWay(folder=reports.folder)
    server = mail_server_of(settings)
    if server is not None and reports.mail_from is not None and reports.mail_to:
        ways["mail"] = MailWay(server=server, sender=reports.mail_from, to=reports.mail_to)
    if reports.url is not None and reports.secret is not None:
        signer = signer_of_section("reports", reports.secret)
        ways["post"] = PostWay(url=reports.url, signer=signer, client=client, clock=clock)
    return Schedule(entries=schedule_entries(settings.schedule), ways=ways)


def alarm_messages_of(
    context: AppContext, settings: Settings, *, client: httpx2.AsyncClient
) -> AlarmMessages | None:
    """What sends alarms; None where nobody is notified. Raises ConfigurationError where the secret
    of posts cannot sign."""
    alarms, reports = settings.alarms, settings.reports
    ways: dict[str, SendsAlarms] = {}
    if alarms.url is not None and alarms.secret is not None:
        signer = signer_of_section("alarms", alarms.secret)
        ways["post"] = PostsAlarms(url=alarms.url, signer=signer, client=client)
    server = mail_server_of(settings)
    if alarms.mail_to and server is not None and reports.mail_from is not None:
        ways["mail"] = MailsAlarms(server=server, sender=reports.mail_from, to=alarms.mail_to)
    return AlarmMessages(context, ways) if ways else None


def mail_server_of(settings: Settings) -> MailServer | None:
    """Who takes our mails, where that is set up."""
    reports = settings.reports
    if reports.mail_server is None:
        return None
    host, _, port = reports.mail_server.rpartition(":")
    password = reports.mail_password
    return MailServer(
        host=host,
        port=int(port),
        user=reports.mail_user,
        password=None if password is None else password.get_secret_value(),
    )
