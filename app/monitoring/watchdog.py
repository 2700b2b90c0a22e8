"""Watch for costly problems that nothing else reports."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from math import inf
from typing import Final, NamedTuple

from app.context.context import AppContext
from app.core.alarm import Alarm
from app.core.logs import log
from app.core.schedule import schedule_entries
from app.core.text import capital, counted
from app.database.servers import START_STANDBYS, server_state
from app.database.statements import run
from app.database.writer import MIB
from app.evidence.witnesses import CONTRADICTING, PROBLEMS, cosigned_size, witnesses_of
from app.finance import scheduled_store
from app.monitoring import arrivals, monitoring_store
from app.monitoring.alarm_messages import AlarmMessages, forget_owners
from app.monitoring.health import COUNTED
from app.orders import counter_store, hold_store, notification_store
from app.orders.clock_correction import clock_alarm
from app.orders.notify_shop import destination_of
from app.orders.unallocated import UnallocatedTotals, unallocated_totals
from app.receiving import inbox_store, unread
from app.receiving.caught_up import behind_s
from app.receiving.journal_state import long_pending
from app.receiving.refusals import RefusedAges
from app.receiving.source_state import SourceState, SourceWord, explained_states, source_states
from app.sealing import departure_store, log_store
from reconcile import instants
from reconcile.instants import SECOND, Instant
from reconcile.ledger.vocabulary import FindingCode

REST_S: Final = 45.0
"""Maximum number of seconds between two rounds of checks."""

AGAIN_S: Final = 2.0

UNREAD_MONEY: Final[FindingCode] = "unread_money_event"

WATCHED: Final[tuple[FindingCode, ...]] = (
    "paid_but_not_fulfilled",
    "fulfilled_but_not_paid",
    UNREAD_MONEY,
)
"""Findings on which a shop must act."""

SHOP_PATIENCE: Final[instants.Duration] = 30 * instants.SECOND
"""Time of refused notifications before an alarm."""


NAMED: Final = 3
"""Maximum number of payments that an alarm's sentence names."""


class Watched(NamedTuple):
    """Input of the watchdog's checks."""

    context: AppContext
    ages: RefusedAges | None = None
    """Deliveries that this process refused for their age. None if it receives none."""
    unallocated: UnallocatedTotals | None = None
    """Payments without an order. None if not counted yet."""
    ends: list[Instant] | None = None
    """List to which each check adds the time at which a condition becomes an alarm, or None."""

    def is_patient(self, since: Instant, patience: instants.Duration) -> bool:
        """Check whether a condition has lasted for less than `patience`."""
        end = Instant(since + patience)
        if self.ends is not None:
            self.ends.append(end)
        return self.context.clock.now() < end


Look = Callable[[Watched], Awaitable[Alarm | None]]


class Watch(NamedTuple):
    """A condition that the watchdog checks."""

    name: str
    """Key in the readiness answer. Also part of the metric `tallyhook_<name>_alarm`."""
    figure: str
    """Help text of the metric."""
    look: Look
    """Checks once, and returns the alarm if there is a reason for it."""
    dated: bool = False
    """True if the metric `tallyhook_<name>_since_seconds` exists."""


WATCHES: Final = list[Watch]()


def _watch(figure: str, *, dated: bool = False) -> Callable[[Look], Look]:
    def add(look: Look) -> Look:
        WATCHES.append(Watch(look.__name__.removeprefix("_"), figure, look, dated))
        return look

    return add


@_watch("1 while fewer verified events arrive than is usual at this time.")
async def _silence(watched: Watched) -> Alarm | None:
    if await behind_s(watched.context, patience="none"):
        return None  # deliveries arrive but are not read, which the alarm `reader` reports
    now = watched.context.clock.now()
    async with watched.context.database.reading() as connection:
        last = await monitoring_store.last_delivery(connection, now)
        start = now - arrivals.LONGEST if last is None else last
        end = min(now, start + arrivals.LONGEST)
        usual = [
            await monitoring_store.deliveries_between(
                connection,
                start - days * instants.DAY,
                end - days * instants.DAY,
                enough=arrivals.EXPECTED,
            )
            for days in range(1, arrivals.DAYS + 1)
        ]
        sessions = await monitoring_store.sessions_since(
            connection, start, enough=arrivals.SESSIONS
        )
    return arrivals.silence(arrivals.Arrivals(now=now, last=last, usual=usual, sessions=sessions))


@_watch(f"1 while genuine deliveries of the last {unread.DAYS} could not be read.")
async def _unreadable(watched: Watched) -> Alarm | None:
    start = watched.context.clock.now() - unread.WINDOW
    unvouched = [name for name, each in watched.context.sources.items() if not each.vouches]
    async with watched.context.database.reading() as connection:
        return unread.unread(
            await monitoring_store.unreadable_since(
                connection, start, unvouched=unvouched, enough=unread.ENOUGH
            )
        )


@_watch("1 while none of the last payments of a source belongs to an order.")
async def _no_order(watched: Watched) -> Alarm | None:
    now = watched.context.clock.now()
    until = now - arrivals.PATIENCE
    async with watched.context.database.reading() as connection:
        rows = await monitoring_store.paid_until(connection, until, looked_at=arrivals.LOOKED_AT)
        tied = await monitoring_store.tied_since(connection, until, looked_at=arrivals.LOOKED_AT)
        came = await monitoring_store.deliveries_between(
            connection, instants.EARLIEST, until, enough=arrivals.LOOKED_AT
        )
    paid = map(arrivals.Paid._make, rows)
    return arrivals.no_order(
        arrivals.Seen(now, paid, whole=came < arrivals.LOOKED_AT, tied_since=tied)
    )


@_watch("1 while a source delivers only payments of other shops or sellers.")
async def _not_ours(watched: Watched) -> Alarm | None:
    return await _of_sources(watched, "not_ours", reason="only_other_shops")


@_watch("1 while unsigned requests were not stored within a day.")
async def _flooded(watched: Watched) -> Alarm | None:
    return await _of_sources(watched, "flooded", reason="requests_not_kept")


async def _of_sources(watched: Watched, state: SourceWord, *, reason: str) -> Alarm | None:
    found = [each for each in await source_states(watched.context) if each.state == state]
    if not found:
        return None
    sentences = " ".join(f"Source {each.source}: {each.sentence}" for each in found)
    return Alarm(reason=reason, problem=sentences.removesuffix("."), do=str(found[0].do))


@_watch(
    "1 while a payment without an order has waited TALLYHOOK_UNALLOCATED_ALARM_S for a decision.",
    dated=True,
)
async def _unallocated(watched: Watched) -> Alarm | None:
    found = watched.unallocated or await unallocated_totals(watched.context)
    if found.back_of_unknown:
        count = counted(len(found.back_of_unknown), "payment")
        return Alarm(
            reason="money_back_of_unknown_shop",
            problem=f"Money went back on {count}, and it may be another shop's money "
            f"({', '.join(found.back_of_unknown[:NAMED])})",
            do="look each payment up at the provider. Then assign the payment to its order, or "
            "dismiss it as other business (`tallyhook unallocated list`, or the page Unallocated "
            "payments)",
        )
    patience = watched.context.settings.unallocated_alarm_s * instants.SECOND
    if found.oldest_at is None or watched.is_patient(found.oldest_at, patience):
        return None
    return Alarm(
        reason="payments_unallocated",
        problem=f"{unallocated_words(found)}, the oldest since "
        f"{instants.format_instant(found.oldest_at)}",
        do="assign each to its order, or dismiss it (`tallyhook unallocated list`, or the page "
        "Unallocated payments)",
        pressing=False,
        since=found.oldest_at,
    )


def unallocated_words(found: UnallocatedTotals) -> str:
    """Return the number and sum of unallocated payments."""
    count = counted(found.count, "payment is", "payments are")
    sums = [str(money) for money in found.held]
    if found.unclear:
        sums.append(f"{counted(found.unclear, 'amount', 'amounts')} unclear")
    more = ", or more" if found.more else ""
    return f"{count} in no order ({', '.join(sums)}{more})"


@_watch("1 while genuine deliveries are refused for their age, or the clock was ahead.")
async def _clock(watched: Watched) -> Alarm | None:
    ages = watched.ages
    refused = None if ages is None else ages.alarm(watched.context.clock.now())
    return refused or await clock_alarm(watched.context)


@_watch(
    "1 while the shop accepts no notifications: check what runs at TALLYHOOK_SHOP__URL.", dated=True
)
async def _shop_away(watched: Watched) -> Alarm | None:
    url = watched.context.settings.shop.url
    if url is None:
        return None
    async with watched.context.database.reading() as connection:
        health = await notification_store.away(connection, destination_of(url))
        waiting, dead = await notification_store.notification_counts(connection, enough=COUNTED)
    if health is None or watched.is_patient(health.since, SHOP_PATIENCE):
        return None
    given_up = f", {dead:,} given up" if dead else ""
    return Alarm(
        reason="shop_takes_no_notifications",
        problem="The shop has accepted no notification since "
        f"{instants.format_instant(health.since)} ({counted(health.failures, 'try', 'tries')}; "
        f"the last ended with {health.problem}; {waiting:,} waiting{given_up})",
        do="check that the receiver at TALLYHOOK_SHOP__URL runs, is reachable and answers 2xx. The "
        "service tries one notification every minute, and `tallyhook notifications redeliver` "
        "tries at once. Once the shop accepts one, all waiting notifications are sent",
        since=health.since,
    )


@_watch("1 while the shop repeatedly refuses a notification but accepts others.", dated=True)
async def _notification_stuck(watched: Watched) -> Alarm | None:
    url = watched.context.settings.shop.url
    if url is None:
        return None
    async with watched.context.database.reading() as connection:
        if await notification_store.away(connection, destination_of(url)) is not None:
            return None
        found = await notification_store.stuck_notifications(connection, enough=COUNTED)
    if found is None or watched.is_patient(found.since, SHOP_PATIENCE):
        return None
    others = f", and {found.count - 1:,} more" if found.count > 1 else ""
    return Alarm(
        reason="notifications_stuck",
        problem=f"The shop refuses the notification of order {found.order}{others}, but accepts "
        "other notifications. The first refusal was at "
        f"{instants.format_instant(found.since)}, and the last try ended with "
        f"{found.problem}",
        do="check in the shop's log why it fails on this order. `tallyhook notifications list "
        "--state stuck` lists the refused notifications. Each of them is tried again "
        "automatically",
        since=found.since,
    )


@_watch("1 while orders are held until a person releases them.")
async def _held(watched: Watched) -> Alarm | None:
    async with watched.context.database.reading() as connection:
        count = await hold_store.count_held(connection)
    if not count:
        return None
    orders = counted(count, "order is", "orders are")
    return Alarm(
        reason="orders_held",
        problem=f"{orders} held, and must not be fulfilled before a person has checked",
        do="`tallyhook orders list --finding held_back` shows these orders and the reasons, and "
        "`tallyhook orders release` releases them. An order held for an unreadable delivery is "
        "released automatically once `tallyhook deliveries poisoned --retry` has read it",
        pressing=False,
    )


@_watch("1 while orders have events of unknown kinds that speak of money going back.")
async def _unread_money(watched: Watched) -> Alarm | None:
    async with watched.context.database.reading() as connection:
        count = (await counter_store.finding_counts(connection, (UNREAD_MONEY,)))[UNREAD_MONEY]
    if not count:
        return None
    orders = counted(count, "order has", "orders have")
    return Alarm(
        reason="money_events_unread",
        problem=f"{orders} an event of a kind that the source's profile does not know. The name "
        "of the kind suggests that money went back",
        do="do not fulfill these orders. `tallyhook "
        f"orders list --finding {UNREAD_MONEY}` shows them. Map the kind in the profile's "
        '[claims] to its meaning or "ignored", then run `tallyhook reindex`',
    )


@_watch(
    "1 while accepted deliveries wait longer than TALLYHOOK_INBOX_ALARM_S to be read.", dated=True
)
async def _reader(watched: Watched) -> Alarm | None:
    oldest = (await watched.context.inbox.backlog()).oldest
    patience = watched.context.settings.inbox_alarm_s * instants.SECOND
    if oldest is None or watched.context.clock.now() - oldest < patience:
        return None
    return Alarm(
        reason="deliveries_not_read",
        problem=f"Deliveries received from {instants.format_instant(oldest)} on are accepted and "
        "stored but not read yet, so orders may be out of date",
        do="check the log, whether the machine is overloaded, and on PostgreSQL whether a "
        "`tallyhook worker` runs",
        since=oldest,
    )


KEPT_MOST: Final = 256 * MIB
"""Maximum bytes of read deliveries before an alarm."""


@_watch("1 while the inbox has more than 256 MiB of deliveries that were already read.")
async def _inbox_kept(watched: Watched) -> Alarm | None:
    kept = await watched.context.inbox.kept_bytes()
    if kept <= KEPT_MOST:
        return None
    return Alarm(
        reason="inbox_not_emptied",
        problem=f"The inbox still has {kept // MIB:,} MiB of deliveries that were read, because "
        "the database's write-ahead log cannot be checkpointed",
        do="end long reads, such as a backup. Nothing is lost",
        pressing=False,
    )


@_watch("1 while accepted deliveries are set aside as unreadable.")
async def _poisoned(watched: Watched) -> Alarm | None:
    async with watched.context.database.reading() as connection:
        count = await run(connection, inbox_store.count_set_aside)
    if not count:
        return None
    deliveries = counted(count, "accepted delivery is", "accepted deliveries are")
    return Alarm(
        reason="deliveries_set_aside",
        problem=f"{deliveries} set aside as unreadable",
        do="`tallyhook deliveries poisoned` lists them, and the log says why. Correct the cause, "
        "then run `tallyhook deliveries poisoned --retry`",
    )


@_watch("1 while the last run of an entry of TALLYHOOK_SCHEDULE has failed.", dated=True)
async def _schedule(watched: Watched) -> Alarm | None:
    scheduled = [entry.name for entry in schedule_entries(watched.context.settings.schedule)]
    if not scheduled:
        return None
    async with watched.context.database.reading() as connection:
        failed = await scheduled_store.failed_runs(connection, scheduled)
    if not failed:
        return None
    each = "; ".join(
        f"{run.name}: {run.problem}; "
        + (
            "not tried again automatically"
            if run.until is None
            else f"again at {instants.plain_instant(run.until)}"
        )
        for run in failed
    )
    entries = counted(len(failed), "scheduled run", "scheduled runs")
    return Alarm(
        reason="scheduled_run_failed",
        problem=f"{entries} failed ({each})",
        do="`tallyhook schedule run NAME` repeats one at once",
        pressing=False,
        since=min([run.due_at for run in failed]),
    )


WAITS: Final[instants.Duration] = instants.HOUR
"""Time for which scheduled work may wait for unread deliveries."""


@_watch(
    "1 while scheduled work has waited an hour or longer for accepted deliveries to be read.",
    dated=True,
)
async def _schedule_waits(watched: Watched) -> Alarm | None:
    scheduled = [entry.name for entry in schedule_entries(watched.context.settings.schedule)]
    if not scheduled:
        return None
    async with watched.context.database.reading() as connection:
        waiting = await scheduled_store.waiting_runs(connection, scheduled)
    waits = {run.name: run.waits_since for run in waiting if run.waits_since is not None}
    long = {name: at for name, at in waits.items() if not watched.is_patient(at, WAITS)}
    if not long:
        return None
    entries = counted(len(long), "scheduled run waits", "scheduled runs wait")
    return Alarm(
        reason="scheduled_run_waits",
        problem=f"{entries} for accepted deliveries to be read ({', '.join(long)}), because "
        "nothing is reconciled or reported while deliveries are unread",
        do="see the log and `/readyz` for why the reader has stopped. The runs continue "
        "automatically once all are read",
        since=min(long.values()),
    )


@_watch(
    "1 while too few witnesses cosign checkpoints, or one has cosigned another log.", dated=True
)
async def _witnesses(watched: Watched) -> Alarm | None:
    witnesses = witnesses_of(watched.context.settings)
    if witnesses is None:
        return None
    async with watched.context.database.reading() as connection:
        states = await departure_store.witness_states(connection)
        size = await cosigned_size(connection, witnesses)
        waiting = await log_store.heads_after(connection, size, limit=1)
    own = {witness.key.name: states.get(witness.name) for witness in witnesses.each}
    failing = {name: each for name, each in own.items() if each and each.problem and each.since}
    problems = "; ".join(f"{name}: {PROBLEMS[str(each.problem)]}" for name, each in failing.items())
    against = [each for each in failing.values() if each.problem in CONTRADICTING]
    if against:
        return Alarm(
            reason="witness_contradicts",
            problem=f"A witness has cosigned a log that differs from this one ({problems})",
            do="`tallyhook log verify` shows the differences. If a backup was restored, run "
            "`tallyhook log rename`; otherwise somebody with the key has rewritten the log",
            since=min(Instant(each.since or 0) for each in against),
        )
    asked = [each.since or each.cosigned_at for each in own.values() if each]
    begun = [Instant(each) for each in asked if each]
    if not waiting or not begun:  # nobody has been asked yet
        return None
    since = max(waiting[0].at, min(begun))
    if watched.is_patient(Instant(since), witnesses.alarm_after):
        return None
    return Alarm(
        reason="checkpoints_not_cosigned",
        problem=f"Since {instants.plain_instant(since)} no checkpoint was cosigned by "
        f"{counted(witnesses.quorum, 'witness', 'witnesses')} of "
        f"{len(witnesses.each)}{f' ({problems})' if problems else ''}",
        do="`tallyhook log witnesses` shows them. They are asked again automatically",
        pressing=False,
        since=since,
    )


@_watch(
    "1 while the journal of erasures has lines that are not carried out in this database.",
    dated=True,
)
async def _erasures(watched: Watched) -> Alarm | None:
    count, reasons, since = await long_pending(watched.context)
    if not count:
        return None
    lines = counted(count, "line of the journal of erasures is", "lines of the journal are")
    return Alarm(
        reason="erasures_pending",
        problem=f"{lines} not carried out yet, so this database still contains personal data that "
        f"must be erased ({'; '.join(reasons)})",
        do="correct what the reasons name. The service tries again every minute",
        since=since,
    )


@_watch("1 while fewer synchronous standbys than TALLYHOOK_STANDBYS copy the database server.")
async def _standbys(watched: Watched) -> Alarm | None:
    database, expected = watched.context.database, watched.context.settings.standbys
    if not (expected and database.shared):
        return None
    async with database.reading() as connection:
        missing = (await server_state(connection)).missing(expected)
    if missing is None:
        return None
    return Alarm(reason="standbys_missing", problem=capital(missing), do=START_STANDBYS)


async def alarms(watched: Watched) -> dict[str, Alarm]:
    """Return all present alarms by name."""
    seen = [(watch.name, await watch.look(watched)) for watch in WATCHES]
    return {name: alarm for name, alarm in seen if alarm is not None}


FIGURES: Final = {f"{watch.name}_alarm": watch.figure for watch in WATCHES} | {
    f"{watch.name}_since_seconds": f"Unix time when {watch.name} began; 0 if it is not raised."
    for watch in WATCHES
    if watch.dated
}


class Watchdog:
    """Watchdog with the results of its last round.

    findings  number of orders with each watched finding
    sources  state of each source, with the reason why deliveries are refused
    unallocated  payments without an order
    """

    def __init__(self, watched: Watched, messages: AlarmMessages | None = None) -> None:
        """Prepare a watchdog. Without `messages`, nobody is notified."""
        self._watched = watched
        self._messages = messages
        self._ends = list[Instant]()
        self._asked_at = 0.0
        self.alarms: Mapping[str, Alarm] = {}
        self.findings: Mapping[str, int] = dict.fromkeys(WATCHED, 0)
        self.sources: Sequence[SourceState] = ()
        self.unallocated = UnallocatedTotals()

    @property
    def sentences(self) -> list[str]:
        return [alarm.sentence for alarm in self.alarms.values()]

    def due_in_s(self) -> float:
        """Return the seconds until a known condition can raise an alarm.

        The result is infinity without such a condition.
        """
        now = self._watched.context.clock.now()
        return max(AGAIN_S, (min(self._ends) - now) / SECOND) if self._ends else inf

    def reader_changed(self, oldest: Instant | None) -> bool:
        """Check whether the `reader` alarm seems to have changed."""
        now, context = asyncio.get_running_loop().time(), self._watched.context
        limit = context.settings.inbox_alarm_s * SECOND
        late = oldest is not None and context.clock.now() - oldest >= limit
        if late == ("reader" in self.alarms) or now < self._asked_at + AGAIN_S:
            return False
        self._asked_at = now
        return True

    async def look(self) -> int:
        """Run all checks once, store the results, and log changes."""
        known = self.findings
        async with self._watched.context.database.reading() as connection:
            self.findings = await counter_store.finding_counts(connection, WATCHED)
        for code, count in self.findings.items():
            if count > known[code]:
                log.warning("findings need attention", finding=code, count=count)
        self.sources = await explained_states(self._watched.context)
        self.unallocated = await unallocated_totals(self._watched.context)
        ends = list[Instant]()
        watched = self._watched._replace(unallocated=self.unallocated, ends=ends)
        before, self.alarms = self.alarms, await alarms(watched)
        now = watched.context.clock.now()
        self._ends = [end for end in ends if end > now]
        await forget_owners(self._watched.context, self.alarms)
        if self._messages is not None:
            await self._messages.note(self.alarms)
        for name, alarm in self.alarms.items():
            if name not in before:
                log.error("an alarm is raised", alarm=name, reason=alarm.reason)
        for name, alarm in before.items():
            if name not in self.alarms:
                log.info("an alarm has ended", alarm=name, reason=alarm.reason)
        return 0
