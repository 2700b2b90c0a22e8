"""Correct dates that a fast clock gave to stored rows, once the clock is right again.

    1 notice    that stored rows are dated later than now, by more than machines' clocks differ
    2 wait      until all deliveries dated later than now are read
    3 compare   with the providers' dates: if these are later than now as well, this clock is slow
    4 redate    each such row, by adding a record with the corrected instant
    5 fold      again the orders with redated evidence
    6 end       sessions, invitations and proposals that would last too long
    7 note      in the audit trail and for `doctor` when the clock was fast

Stored instants do not change, except the arrivals of refused deliveries.
"""

from enum import Enum
from time import monotonic
from typing import Final

from app.access.operator_store import keep_entry
from app.access.operators import SERVICE, entry_of
from app.access.proposal import Decided
from app.access.proposal_store import withdraw_later
from app.access.session_store import end_access
from app.context.context import AppContext
from app.core.alarm import Alarm
from app.core.clock import CLOCKS_DIFFER
from app.core.ids import new_id
from app.core.logs import log
from app.database.locks import REDATING, take_lock
from app.database.statements import PlainConnection
from app.orders import clock_correction_store as store
from app.orders.clock_correction_store import ClockCorrection
from app.orders.record_store import BY_SERVICE, keep_records
from app.orders.refold import call_up_early
from app.receiving.append_store import mark_due
from app.receiving.inbox_store import BEAT
from app.receiving.refusal_store import redate_rejections
from app.receiving.source_state_store import put_back
from reconcile.instants import DAY, SECOND, TICK, Duration, Instant, format_duration, format_instant
from reconcile.ledger.records import Record

STEP: Final[Duration] = SECOND
"""Difference by which a clock must go back to count as set back. A smaller difference is an
ordinary adjustment."""

AT_ONCE: Final = 1_000
"""Maximum number of rows redated, or orders marked as due, in one transaction."""

COMPARED: Final = 1_000
"""Number of newest deliveries whose provider dates are compared with the clock. Among so many, a
few wrong dates do not matter."""


class ClockState(Enum):
    """Result of comparing stored dates with this machine's clock.

    RIGHT    every row that was dated later than now has been redated
    UNREAD   some unread deliveries are dated later than now
    BEHIND   this clock seems slow, because the providers' dates are later than now, too
    """

    RIGHT = "right"
    UNREAD = "unread"
    BEHIND = "behind"


class ClockWatch:
    """Detector of jumps of the system clock. It compares the system clock with the monotonic clock,
    which nobody can set."""

    def __init__(self, context: AppContext) -> None:
        self._context = context
        self._latest: Instant | None = None
        self._elapsed = 0
        self._leap: tuple[Instant, int] | None = None
        self._set_back: ClockCorrection | None = None
        self._again = False
        self._look_at = 0

    def note(self) -> None:
        """Compare the system clock with the elapsed time, and remember a jump.

        Call it after each use of the clock for a stored date, to notice a short jump.
        """
        elapsed = round(monotonic() * SECOND)
        now, latest = self._context.clock.now(), self._latest
        if latest is None:
            self._again = True
        else:
            leap = now - latest - (elapsed - self._elapsed)
            if leap > CLOCKS_DIFFER:
                self._leap = latest, leap
            if now < latest - STEP:
                self._set_back = self._seen(latest, now)
                self._again = True  # until it has worked: the store may be busy
        self._latest, self._elapsed = now, elapsed

    async def look(self) -> None:
        """Correct the dates that a fast clock gave, and mark the postponed orders as due.

        Call this method in every round; most calls do nothing.
        """
        context = self._context
        self.note()
        elapsed = self._elapsed
        if context.signals.dated_ahead:
            self._again = True
        if not (self._again or (context.database.shared and elapsed >= self._look_at)):
            return
        self._look_at = elapsed + CLOCKS_DIFFER
        if self._again and (count := await call_up_early(context)):
            log.warning("orders were waiting because the clock was ahead", count=count)
        self._again = await put_right(context, seen=self._set_back) is ClockState.UNREAD

    def _seen(self, latest: Instant, now: Instant) -> ClockCorrection:
        """Return the correction for a clock that was set back from `latest` to `now`.

        It became fast at its last jump ahead of about this size, or at an unknown time.
        """
        leap = self._leap
        began = leap is not None and abs(leap[1] - (latest - now)) <= CLOCKS_DIFFER
        return ClockCorrection(leap[0] if leap is not None and began else None, now, latest)


async def put_right(context: AppContext, *, seen: ClockCorrection | None = None) -> ClockState:
    """Correct the dates of rows dated later than now, and mark the affected orders as due.

    seen  the correction of the clock that this process saw, if any
    """
    database, now = context.database, context.clock.now()
    newest = await database.on_snapshot(store.newest_ahead, now)
    if newest - now > CLOCKS_DIFFER or context.signals.dated_ahead:
        if (await context.inbox.backlog()).is_dated_ahead(now):
            return ClockState.UNREAD
        context.signals.dated_ahead = False
        newest = await database.on_snapshot(store.newest_ahead, now)
    if newest - now <= CLOCKS_DIFFER:
        return ClockState.RIGHT
    agree = await database.on_snapshot(store.providers_agree, now, looked_at=COMPARED)
    if agree is None and seen is None:
        log.warning("either this clock is behind, or it was ahead earlier; set it by NTP")
        return ClockState.BEHIND
    if agree is False:
        log.warning("this clock is behind the providers' clocks; set it by NTP")
        return ClockState.BEHIND
    since = None if seen is None else seen.since
    if since is None:
        since = await database.on_snapshot(store.last_before, now)
    latest = newest if seen is None else max(newest, seen.latest)
    things, at, is_all = 0, now, False
    while not is_all:
        now = context.clock.now()
        at = max(at, now)  # after dates that were just later than now
        more, is_all = await database.writer.commit(_redate, now, at)
        things, at = things + more, Instant(at + more * TICK)
    orders = await _fold_again(context, now)
    correction, leapt = ClockCorrection(since, now, latest), None if seen is None else seen.since
    await database.writer.commit(_note, correction, leapt or now, things, orders)
    context.signals.alarming.set()
    log.warning(
        "the clock was ahead and is right again; entries that it dated in the future now count",
        count=things,
    )
    return ClockState.RIGHT


def _redate(connection: PlainConnection, now: Instant, at: Instant) -> tuple[int, bool]:
    """Redate the earliest rows dated later than now, by adding a record for each.

    The corrected instants keep the rows' sequence. Return the number of rows, and whether all are
    redated.
    """
    take_lock(connection, REDATING)
    found, is_all = store.dated_ahead(connection, now=now, limit=AT_ONCE)
    records = [
        Record(
            record_id=new_id("rec_", now),
            recorded_at=Instant(at + place * TICK),
            kind="redated",
            order=each.order,
            at=Instant(at + place * TICK),
            expires_at=each.stored,
            author=BY_SERVICE,
            replaces=each.thing,
        )
        for place, each in enumerate(found)
    ]
    keep_records(connection, records)
    return len(records), is_all


async def _fold_again(context: AppContext, now: Instant) -> int:
    count, after, orders = 0, "", [""]
    while orders:
        async with context.database.reading() as connection:
            orders = await store.folded_ahead(connection, now=now, after=after, limit=AT_ONCE)
        if orders:
            await context.database.writer.commit(mark_due, dict.fromkeys(orders, now))
            count, after = count + len(orders), orders[-1]
    return count


def _note(
    connection: PlainConnection,
    correction: ClockCorrection,
    after: Instant,
    things: int,
    orders: int,
) -> None:
    """Store a correction of the clock, and end what the fast clock made too long.

    after   latest instant that a correct clock can have given
    things  number of redated rows
    orders  number of orders that were marked as due
    """
    until = correction.until
    refused = redate_rejections(connection, until)
    put_back(connection, until, also=BEAT)
    end_access(connection, after=after, now=until)
    withdrawn = Decided(
        decision="withdrawn",
        who=SERVICE.name,
        role=SERVICE.role,
        reason="Proposed while the clock was ahead: propose it again if it is still needed.",
        at=until,
    )
    withdraw_later(connection, withdrawn, after=after)
    store.note_correction(connection, correction)
    since = correction.since
    facts: dict[str, str | int] = {
        "since": "unknown" if since is None else format_instant(since),
        "until": format_instant(until),
        "ahead_by": format_duration(correction.latest - until),
        "redated": things,
        "folded_again": orders,
        "refused": refused,
    }
    keep_entry(
        connection,
        entry_of(SERVICE, action="clock_put_right", subject="clock", at=until, facts=facts),
    )


REPORTED_FOR: Final[Duration] = DAY
"""Time for which the alarm about a corrected clock lasts, so that people learn of it."""


async def clock_alarm(context: AppContext) -> Alarm | None:
    """Return an alarm if stored dates are later than now, or if the clock was recently fast.
    Otherwise return None."""
    now = context.clock.now()
    newest, last = await context.database.on_snapshot(_dated_by_clocks, now)
    if newest - now > CLOCKS_DIFFER:
        return Alarm(
            reason="dated_later_than_now",
            problem=f"The newest stored date is {format_instant(newest)}, "
            f"{format_duration(newest - now)} later than this machine's clock",
            do="set the clock by NTP. If the clock is correct, it was ahead earlier. A running "
            "service then corrects the stored dates, as soon as providers' dates or a clock that "
            "was set back prove this",
        )
    if last is None or not now - REPORTED_FOR < last.until <= now:
        return None
    begun = "" if last.since is None else f"between {format_instant(last.since)} and "
    return Alarm(
        reason="clock_was_ahead",
        problem=f"The clock was ahead by {format_duration(last.latest - last.until)} "
        f"{begun or 'until '}{format_instant(last.until)}, and the dates that it gave "
        "were corrected",
        do="set the clock by NTP. Then run `tallyhook deliveries reverify` to accept deliveries "
        "that were refused meanwhile. `tallyhook audit list --action clock_put_right` shows the "
        "number of corrections",
        pressing=False,
        since=last.until,
    )


def _dated_by_clocks(
    connection: PlainConnection, now: Instant
) -> tuple[Instant, ClockCorrection | None]:
    return store.newest_ahead(connection, now), store.last_correction(connection)
