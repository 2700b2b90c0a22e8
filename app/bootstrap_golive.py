"""Wiring: the checks of the go-live checklist, from the configuration and over the network."""

from __future__ import annotations

from collections.abc import Iterator

from app.bootstrap_sources import compile_sources
from app.config.load import load_settings
from app.config.settings import Settings
from app.core.errors import ConfigurationError
from app.core.http import outgoing_client
from app.golive.golive import (
    Item,
    checklist,
    keys_item,
    separation_item,
    webhook_item,
)
from app.golive.webhook_trial import LIMIT_S, try_endpoint
from app.providers.source import Source
from app.receiving.context import Desk
from app.sandbox.settings import SANDBOX_TOKEN


async def run_checklist(desk: Desk, settings: Settings) -> list[Item]:
    """Check what can be checked, and add what was rehearsed and stated."""
    sources = compile_sources(settings)
    unmarked = [name for name, each in sources.items() if not each.profile.environment.where]
    checked = [
        keys_item(list(_key_problems(desk, settings))),
        await _tried(desk, settings, sources),
        separation_item(desk.store.environment or "no environment", unmarked=unmarked),
    ]
    return await checklist(desk, checked)


def _key_problems(desk: Desk, settings: Settings) -> Iterator[str]:
    try:
        load_settings(serving=True)
    except ConfigurationError as error:
        yield from error.problems
    token = settings.checkout.token
    if token is None:
        yield "TALLYHOOK_CHECKOUT__TOKEN: is missing; no payment can be started"
    elif desk.store.environment == "live" and token.get_secret_value() == SANDBOX_TOKEN:
        yield "TALLYHOOK_CHECKOUT__TOKEN: is the simulated provider's; write the live one"


async def _tried(desk: Desk, settings: Settings, sources: dict[str, Source]) -> Item:
    address = settings.public_url
    trials = []
    async with outgoing_client(timeout_s=LIMIT_S) as client:
        for name, source in sources.items() if address else ():
            url = f"{address}/webhooks/{name}"
            trials.append(await try_endpoint(client, source, url=url, now=desk.clock.now()))
    return webhook_item(trials, public_url=address)
