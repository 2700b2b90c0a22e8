"""Wiring of the schedule: its entries, and the ways of delivery that are set up."""

from __future__ import annotations

import httpx2

from app.config.settings import Settings
from app.core.clock import Clock
from app.core.errors import ConfigurationError
from app.core.schedule import Way, entries_of
from app.finance.delivering import Delivers, FolderWay, MailWay, PostWay
from app.finance.scheduled_work import Schedule
from app.providers.profile import load_profile
from app.providers.source import Source


def schedule_of(settings: Settings, *, client: httpx2.AsyncClient, clock: Clock) -> Schedule:
    """What is to be done, and the ways that are set up. Raises ConfigurationError where the secret
    of posts cannot sign."""
    reports = settings.reports
    ways: dict[Way, Delivers] = {}
    if reports.folder is not None:
        ways["folder"] = FolderWay(folder=reports.folder)
    if reports.mail_server is not None and reports.mail_from is not None:
        host, _, port = reports.mail_server.rpartition(":")
        password = reports.mail_password
        ways["mail"] = MailWay(
            host=host,
            port=int(port),
            sender=reports.mail_from,
            to=reports.mail_to,
            user=reports.mail_user,
            password=None if password is None else password.get_secret_value(),
        )
    if reports.url is not None and reports.secret is not None:
        signer = _signer(reports.secret.get_secret_value())
        ways["post"] = PostWay(url=reports.url, signer=signer, client=client, clock=clock)
    return Schedule(entries=entries_of(settings.schedule), ways=ways)


def _signer(secret: str) -> Source:
    try:
        return Source(name="reports", profile=load_profile("checkout"), secrets=[secret])
    except ConfigurationError as error:
        raise ConfigurationError(
            [f"TALLYHOOK_REPORTS__SECRET: {problem}" for problem in error.problems]
        ) from None
