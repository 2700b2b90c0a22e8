"""Wiring: a rehearsal with the configured provider and test numbers."""

from __future__ import annotations

from collections.abc import Callable

from app.bootstrap_sources import checkout_settings
from app.checkout.client import CheckoutClient
from app.config.settings import Settings
from app.golive.rehearsal_plan import Plan, numbers_for
from app.golive.rehearse import Played, rehearse
from app.receiving.context import Desk


async def play(
    desk: Desk,
    settings: Settings,
    *,
    patience_s: float | None,
    progress: Callable[[Played], None],
) -> list[Played]:
    """Every scenario that has a number. Raises ConfigurationError where there is no provider, or
    in live no number."""
    given = {name: each.get_secret_value() for name, each in settings.rehearsal.numbers.items()}
    plan = Plan(
        numbers=numbers_for(given, environment=desk.store.environment),
        amount=settings.rehearsal.amount,
        currency=settings.rehearsal.currency,
        patience_s=patience_s,
    )
    async with CheckoutClient(checkout_settings(settings)) as client:
        return await rehearse(desk, client, plan=plan, progress=progress)
