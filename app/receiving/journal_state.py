"""State of the journal of erasures: its lines that are not carried out in this database yet."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.context.context import AppContext
from app.receiving.restriction_store import pending_lines
from reconcile.instants import MINUTE, Duration, Instant

PATIENCE: Final[Duration] = Duration(10 * MINUTE)
"""Time for which an erasure may be unfinished before an alarm is raised."""

WAITS: Final[Mapping[str, str]] = {
    "": "they were started but not completed: the service completes them within an hour, or "
    "`tallyhook db restored` does so now",
    "set_aside": "their data is in deliveries that are set aside: see the log, then run "
    "`tallyhook deliveries poisoned --retry`",
    "refused": "their data was refused in this database but read before the erasure: correct the "
    "secret or the profile, then run `tallyhook deliveries reverify`",
    "unread": "their data is unreadable in this database but was read before the erasure: correct "
    "the profile, then run `tallyhook reindex`",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalState:
    """State of the journal of erasures."""

    path: Path | None
    """File of the journal. None without the setting."""
    begun: bool
    problem: str | None = None
    """Reason why the journal cannot be used, with the remedy, or None."""
    pending: int = 0
    waits: Sequence[str] = ()
    """Reasons why pending lines wait, with the remedies."""
    torn: bool = False
    restricted: int = 0
    """Number of restricted items, which an erasure could not delete yet."""
    next_end: Instant | None = None


async def long_pending(context: AppContext) -> tuple[int, Sequence[str], Instant | None]:
    """Return number, reasons and earliest time of long-waiting lines."""
    now = context.clock.now()
    waiting = await context.database.on_snapshot(pending_lines)
    long = [each for each in waiting if each.why or each.since <= now - PATIENCE]
    since = min((each.since for each in long), default=None)
    return len(long), [WAITS[each] for each in sorted({each.why for each in long})], since
