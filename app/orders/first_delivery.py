"""Wait for a source's first delivery, and report the result.

    log ──look, every half second──▶ taken │ refused, with the likely mistake │ nothing came

This module only reads the running service's delivery log.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from app.context.context import AppContext
from app.core.errors import UsageError
from app.orders.delivery_log import is_refused, list_deliveries, no_order_sentence
from app.providers.doctor import Account, Diagnosis
from app.receiving.delivery_log_store import LogEntry
from app.receiving.diagnose import diagnose_delivery

LOOK_EVERY_S: Final = 0.5
_LOOKED_AT: Final = 50

Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDelivery:
    """First delivery that came after somebody began to wait for it."""

    entry: LogEntry
    refused: bool
    unknown: bool
    """True if the delivery's source name is not configured."""
    diagnoses: list[Diagnosis]
    """Each mistake that would explain a refusal."""
    no_order: str | None = None
    """Advice if the delivery is in no order's ledger, or None."""


async def wait_for_delivery(
    context: AppContext,
    source: str,
    *,
    accounts: Mapping[str, Account],
    seconds: float,
    sleep: Sleep,
    began: Callable[[], None] = lambda: None,
) -> FirstDelivery | None:
    """Wait for the source's next delivery, and return it.

    If no delivery comes in time, return the latest delivery that named an unknown source, or None.

    began  called before the wait begins
    """
    seen = {each.delivery_id for name in (source, None) for each in await _latest(context, name)}
    began()
    for _ in range(max(1, round(seconds / LOOK_EVERY_S))):
        fresh = [each for each in await _latest(context, source) if each.delivery_id not in seen]
        if fresh:
            return await _explained(context, fresh[-1], accounts=accounts)
        await sleep(LOOK_EVERY_S)
    # The delivery may be ours under a wrong name, or a stranger's.
    strangers = [
        each
        for each in await _latest(context, None)
        if each.delivery_id not in seen and each.source not in accounts
    ]
    return await _explained(context, strangers[0], accounts=accounts) if strangers else None


async def _latest(context: AppContext, source: str | None) -> list[LogEntry]:
    return (await list_deliveries(context, source=source, limit=_LOOKED_AT)).entries


async def _explained(
    context: AppContext, entry: LogEntry, *, accounts: Mapping[str, Account]
) -> FirstDelivery:
    refused, found = is_refused(entry), list[Diagnosis]()
    if refused:
        try:
            done = await diagnose_delivery(context, entry.delivery_id, accounts=accounts)
            found = done.diagnoses
        except UsageError as error:  # too little of its body was kept
            found = [Diagnosis(mistake="body_not_kept", sentence=str(error))]
    unknown = entry.source not in accounts
    return FirstDelivery(
        entry=entry,
        refused=refused,
        unknown=unknown,
        diagnoses=found,
        no_order=no_order_sentence(context, entry),
    )
