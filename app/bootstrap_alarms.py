"""Wiring of what is told of alarms: the ways to whoever is called that are set up."""

from __future__ import annotations

import httpx2

from app.bootstrap_schedule import mail_server_of
from app.bootstrap_sources import signer_of_section
from app.config.settings import Settings
from app.monitoring.alarm_messages import AlarmMessages, MailsAlarms, PostsAlarms, TellsAlarms
from app.receiving.context import AppContext


def alarm_messages_of(
    context: AppContext, settings: Settings, *, client: httpx2.AsyncClient
) -> AlarmMessages | None:
    """What tells of alarms; None where nobody is told. Raises ConfigurationError where the secret
    of posts cannot sign."""
    alarms, reports = settings.alarms, settings.reports
    ways: dict[str, TellsAlarms] = {}
    if alarms.url is not None and alarms.secret is not None:
        signer = signer_of_section("alarms", alarms.secret)
        ways["post"] = PostsAlarms(url=alarms.url, signer=signer, client=client)
    server = mail_server_of(settings)
    if alarms.mail_to and server is not None and reports.mail_from is not None:
        ways["mail"] = MailsAlarms(server=server, sender=reports.mail_from, to=alarms.mail_to)
    return AlarmMessages(context, ways) if ways else None
