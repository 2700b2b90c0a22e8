"""The desk of late money: payments after cancel or expiry, double payments, refunds owed.

It judges nothing itself: what it shows are breaks of four causes, and what people decided.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final, Literal

from app.core.errors import UsageError
from app.finance.break_acts import settle_break
from app.finance.read_breaks import SeenBreak, living_breaks, one_break
from app.receiving.context import Desk
from reconcile.matching.breaks import BreakCause
from reconcile.matching.breaks_life import SETTLINGS, Settling

Standing = Literal["to_decide", "waits_for_refund", "settled", "closed"]
"""to_decide: nobody has said what becomes of it. waits_for_refund: it is to go back, and has not
yet. settled: it was accepted or credited. closed: evidence has ended it."""

LATE: Final[tuple[BreakCause, ...]] = (
    "late_money",
    "paid_twice",
    "overpaid",
    "refund_not_received",
)

_PROPOSED: Final[dict[str, Settling]] = {
    "late_money": "accept",
    "paid_twice": "refund",
    "overpaid": "refund",
    "refund_not_received": "refund",
}


def proposed(found: SeenBreak) -> Settling:
    """What the desk proposes. Money of an order that the shop has canceled goes back."""
    if ("why", "canceled") in found.seen.facts:
        return "refund"
    return _PROPOSED[found.seen.cause]


def standing(found: SeenBreak) -> Standing:
    """Where its settling stands."""
    life = found.life
    if life.state == "closed":
        return "closed"
    if life.state == "accepted":
        return "settled"
    return "waits_for_refund" if life.settling == "refund" else "to_decide"


async def late_items(desk: Desk, *, closed: bool) -> AsyncIterator[list[SeenBreak]]:
    """What is late, by id, some hundreds at a time; with what is closed, or without."""
    async for found in living_breaks(desk, causes=LATE):
        yield [each for each in found if closed or each.life.state != "closed"]


async def settle_late(
    desk: Desk, name: str, *, action: str, reason: str, by: str | None, second: str | None = None
) -> SeenBreak:
    """Decide what becomes of late money. Raises UsageError where that is not for this desk."""
    if action not in SETTLINGS:
        raise UsageError(f"--action is one of: {', '.join(SETTLINGS)}")
    found = await one_break(desk, name)
    if found.seen.cause not in LATE:
        raise UsageError(
            f"{name} is {found.seen.cause}, not late money; see `tallyhook breaks show {name}`"
        )
    await settle_break(desk, name, action=action, reason=reason, by=by, second=second)
    return await one_break(desk, name)


def late_document(found: SeenBreak) -> dict[str, Any]:
    """For listings: what is late, the proposal and where it stands."""
    shown = found.document(as_of=found.steps[-1].at)
    return {
        "id": shown["id"],
        "cause": shown["cause"],
        "order": shown["order"],
        "payment": shown["payment"],
        "money": shown["money"],
        "proposed": proposed(found),
        "state": standing(found),
        "decided": found.life.settling,
        "because": found.life.because,
        "cites": shown["cites"],
    }
