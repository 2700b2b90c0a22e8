"""Late money: what came or went after all was over, with what is proposed and where that stands."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Final

from app.access.proposal import Proposal
from app.core.errors import UsageError
from app.finance.break_acts import SeenBreak, living_breaks, one_break, settle_break
from app.receiving.context import AppContext
from reconcile.matching.breaks import SETTLINGS, STATES, BreakCause, Settling, Standing

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


async def late_items(
    context: AppContext, *, closed: bool, after: str = ""
) -> AsyncGenerator[list[SeenBreak]]:
    """What is late, by id, some hundreds at a time; with what is closed, or without."""
    states = STATES if closed else STATES[:-1]
    async for found in living_breaks(context, causes=LATE, states=states, after=after):
        yield found


async def settle_late(
    context: AppContext, name: str, *, action: str, reason: str, by: str | None
) -> SeenBreak | Proposal:
    """Decide what becomes of late money; what needs a second person is proposed. Raises UsageError
    where that is not for this desk."""
    if action not in SETTLINGS:
        raise UsageError(f"--action is one of: {', '.join(SETTLINGS)}")
    found = await one_break(context, name)
    if found.seen.cause not in LATE:
        raise UsageError(
            f"{name} is {found.seen.cause}, not late money; see `tallyhook breaks show {name}`"
        )
    proposal = await settle_break(context, name, action=action, reason=reason, by=by)
    return await one_break(context, name) if proposal is None else proposal


def late_document(found: SeenBreak) -> dict[str, Any]:
    """For listings: what is late, the proposal and where it stands."""
    shown = found.document(as_of=found.steps[-1].at)
    return {
        **{name: shown[name] for name in ("id", "cause", "order", "payment", "money")},
        "proposed": proposed(found),
        "state": standing(found),
        "decided": found.life.settling,
        "because": found.life.because,
        "cites": shown["cites"],
    }
