"""Takes a person's act on one break."""

from typing import Any

from app.access.proposal import Proposal
from app.context.context import AppContext
from app.finance.break_acts import BreakAct, act_on_breaks
from reconcile.matching.breaks import Act


async def decide(at: AppContext, name: str, kind: Act, **given: Any) -> Proposal | None:
    """Take an act of this kind on one break."""
    return await act_on_breaks(at, [name], BreakAct(kind=kind, **given))
