"""Compute the ledgers of orders that are due, and publish what changed.

Evidence makes an order due at once; a deadline makes it due later. If evidence arrives during a
fold, the order stays due. The module `worker` decides when this code runs.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Final

from app.context.context import AppContext
from app.core.logs import LogLine, log
from app.database.layout import settle
from app.database.statements import PlainConnection
from app.orders import policy_version_store
from app.orders.history_store import contests_of, histories_of
from app.orders.holds import hold_back
from app.orders.ledger_store import Publication, last_positions, publish
from app.orders.notification_store import LEASE, call_up_notifications
from app.orders.service_holds import record_holds
from app.receiving import due_store
from app.receiving.due_store import Due
from app.receiving.pace import Pace
from reconcile.instants import EARLIEST, MINUTE, SECOND, TICK, Instant
from reconcile.ledger.attention import NEEDS_A_PERSON, needs_person
from reconcile.ledger.fold import fold, is_known
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.policy import Policy, policy_text
from reconcile.ledger.revise import Position, position_of, revise

_log_revision = LogLine("revision", "delivery", "order", "outcome")

AT_ONCE: Final = 1_000
"""Maximum number of orders that one transaction marks as due. Acknowledgements of deliveries wait
until the transaction ends."""


class TakingUp:
    """Task that marks orders as due, in batches, after a change of policy or an accepted gap.

    It ends before any order is folded. After an interruption, the next process starts over.
    """

    def __init__(self, context: AppContext) -> None:
        self._context = context
        self._policy = policy_text(context.policy)
        self._known = False
        self._by_other_form = False
        self._after: str | None = None
        self._count = 0
        self._over = False
        self._gaps_after: str | None = ""

    async def some(self) -> int:
        """Mark a batch of orders as due. Return 0 if nothing is left to do."""
        return await self._for_policy() or await self._for_gaps()

    async def _for_gaps(self) -> bool:
        """Mark a batch of orders as due whose result may change because a gap was accepted. Return
        whether more orders are left."""
        if self._gaps_after is None:
            return False
        store = policy_version_store
        async with self._context.database.reading() as connection:
            gaps = await store.gaps_to_follow(connection)
        if gaps is None:
            self._gaps_after = None
            return False
        async with self._context.database.writing() as connection:
            self._gaps_after = await store.set_some_with_money_due(
                connection,
                after=self._gaps_after,
                limit=AT_ONCE,
                now=self._context.clock.now(),
            )
            if self._gaps_after is None:
                await store.note_gaps_followed(connection, gaps)
        return self._gaps_after is not None

    async def _for_policy(self) -> int:
        store, first, now = policy_version_store, self._after is None, self._context.clock.now()
        if first and not self._over:
            async with self._context.database.reading() as connection:
                noted = await store.noted_policy(connection)
            self._known = noted is not None
            form = store.engine_form(self._policy)
            self._by_other_form = noted is not None and store.engine_form(noted) != form
            self._over = noted == self._policy
        if self._over:
            return 0
        async with self._context.database.writing() as connection:
            if not self._known and first and not await store.anything_folded(connection):
                await store.note_policy(connection, self._policy)
                self._over = True
                return 0
            orders = await store.set_some_due(
                connection, after=self._after or "", limit=AT_ONCE, now=now
            )
            last, alone = len(orders) < AT_ONCE, True
            if first:
                await (store.note_policy if last else store.note_change)(connection, self._policy)
            elif last:
                alone = await store.note_changed(connection, self._policy)
        self._after = max(orders, default=self._after)
        self._count += len(orders)
        self._over = last
        if last and not alone:
            warn_of_several()
        if last and self._count:
            self._warn()
        return len(orders)

    def _warn(self) -> None:
        if self._by_other_form:
            log.warning(
                "this version folds by other rules; all orders will be folded again. Orders that "
                "become fulfillable only by the new rules are held until released",
                count=self._count,
            )
        elif self._known:
            log.warning(
                "settings that affect outcomes have changed; all orders will be folded again",
                count=self._count,
            )
        else:
            log.warning(
                "the settings of the last folds are unknown; all orders will be folded again",
                count=self._count,
            )


def warn_of_several() -> None:
    """Log a warning that another process computes ledgers with other settings."""
    log.warning(
        "another process computes ledgers with other settings; give all processes the same "
        "settings and restart them, so that all ledgers are computed again"
    )


PUT_ASIDE: Final = 10 * MINUTE
"""Time until an order that could not be folded is tried again. New evidence causes an earlier
try."""

CLAIM: Final = 30 * SECOND
"""Time for which a worker reserves an order, many times longer than a round."""

CALLED_AT_ONCE: Final = 1_000
"""Maximum number of orders that one transaction marks as due. Deliveries wait until the transaction
ends."""


async def refold_due(context: AppContext, *, limit: int, pace: Pace | None = None) -> int:
    """Fold and publish up to `limit` due orders. Return the number of due orders.

    pace  divides the work into several transactions; None for one

    Orders that share evidence with a due order are folded, too. A result is dropped if another
    process has published the order.
    """
    now, policy = await publishable(context), policy_text(context.policy)
    due = await _taken(context, now=now, limit=limit)
    if not due:
        return 0
    left, histories = await gathered(context, due)
    said_at = {order: history.instant_at(now) for order, history in histories.items()}
    latest = context.clock.now()  # later dates came from a fast clock
    later = {order: at for order, at in said_at.items() if now < at <= latest}
    policy_now = context.policy
    ledgers = {
        order: None
        if order in later
        else fold_or_log(history, policy=policy_now, as_of=said_at[order])
        for order, history in histories.items()
    }
    writer, pace = context.database.writer, pace or Pace(first=len(ledgers), most=len(ledgers))
    while left:
        part = _next_part(left, size=pace.fitting(context.database))
        published, several = await writer.commit(
            _publish_standing,
            context,
            part,
            ledgers,
            histories=histories,
            later=later,
            now=now,
            policy=policy,
        )
        pace.learn(sum(map(len, part)), seconds=writer.held_s)
        for each in published:
            if each.revision is not None:
                # Log it under the id of its newest delivery, as the receiver and the reader do.
                known = [(d.received_at, d.delivery_id) for d in histories[each.order].deliveries]
                ledger = ledgers[each.order]
                outcome = None if ledger is None else ledger.outcome
                _log_revision(max(known)[1] if known else None, each.order, outcome)
        if several:
            warn_of_several()
    return len(due)


Sharing = list[Due]
"""Due orders that share evidence with each other. Most orders share none, so most lists have one
member."""


async def gathered(
    context: AppContext, due: Sequence[Due]
) -> tuple[list[Sharing], dict[str, History]]:
    """Read due orders and their evidence from one snapshot. Return the due orders, grouped by
    shared evidence, and their histories."""

    def read(connection: PlainConnection) -> tuple[list[Sharing], dict[str, History]]:
        contests = contests_of(connection, [mark.order for mark in due])
        contested = set().union(*contests)
        shared = {mark.order: mark for mark in due_store.marks_in(connection, contested)}
        marks = [[mark] for mark in due if mark.order not in contested]
        marks += [[shared[order] for order in sorted(each & shared.keys())] for each in contests]
        return marks, histories_of(connection, [mark.order for mark in chain(*marks)])

    return await context.database.on_snapshot(read)


def _next_part(left: list[Sharing], *, size: int) -> list[Sharing]:
    """Remove about `size` due orders from the list and return them. Orders that share evidence stay
    together."""
    part, count = [left.pop(0)], 0
    while left and (count := count + len(part[-1])) < size:
        part.append(left.pop(0))
    return part


def _publish_standing(
    connection: PlainConnection,
    context: AppContext,
    marks: Sequence[Sharing],
    ledgers: Mapping[str, Ledger | None],
    *,
    histories: Mapping[str, History],
    later: Mapping[str, Instant],
    now: Instant,
    policy: str,
) -> tuple[list[Publication], bool]:
    """Publish the orders that got no new evidence since they were read.

    Return the publications, and whether other processes use a different policy.

    later  for each order that must wait, the instant at which it is due again
    """
    settle(connection)  # before any row is locked: a hold reads histories
    # Orders that share evidence are published together or not at all: new evidence on one of them
    # may concern all, and another process may have published it.
    standing = set(due_store.unchanged(connection, list(chain(*marks))))
    due = list(chain(*(sharing for sharing in marks if standing.issuperset(sharing))))
    before = last_positions(connection, [mark.order for mark in due])
    several = policy_version_store.note_folded(connection, policy)
    folded = {m.order: histories[m.order] for m in due if ledgers.get(m.order) is not None}
    noted = record_holds(connection, context, folded)
    latest = context.clock.now()
    ledgers = dict(ledgers) | {
        order: fold_or_log(history, policy=context.policy, as_of=history.instant_at(latest))
        for order, history in noted.items()
    }
    current = [ledger for mark in due if (ledger := ledgers.get(mark.order)) is not None]
    rules = policy_version_store.rules_of(policy)
    found = (decided_or_log(each, before.get(each.order), rules=rules) for each in current)
    decisions = [each for each in found if each is not None]
    publications = with_holds(connection, context, decisions)
    waiting = [
        (mark.order, later[mark.order], mark.generation) for mark in due if mark.order in later
    ]
    if waiting:
        due_store.settle_marks(connection, waiting)
    publish(
        connection,
        publications,
        due=[mark for mark in due if mark.order not in later],
        put_aside_until=now + PUT_ASIDE,
        notify=now if context.notifies_shop else None,
    )
    return publications, several


async def publishable(context: AppContext) -> Instant:
    """Return the latest instant as of which an order's ledger may be published.

    That is now, or just before the oldest unread delivery; EARLIEST if a fast clock dated unread
    deliveries.
    """
    now, backlog = context.clock.now(), await context.inbox.backlog()
    if backlog.is_dated_ahead(now):
        context.signals.dated_ahead = True
        return EARLIEST
    return now if backlog.oldest is None else min(now, backlog.oldest - TICK)


async def call_up_early(context: AppContext) -> int:
    """Mark orders and notifications as due that a fast clock has delayed. Return how many
    orders."""
    now = context.clock.now()
    # If several processes fold, a mark may be a claim. If one does, an order that was put aside is
    # only tried again a little early.
    beyond = now + CLAIM if context.database.shared else now
    found = 0
    while True:
        async with context.database.reading() as connection:
            orders = await due_store.marks_without_reason(
                connection, beyond=beyond, limit=CALLED_AT_ONCE
            )
        if not orders:
            break
        async with context.database.writing() as connection:
            await due_store.call_up(connection, orders, now=now, beyond=beyond)
        found += len(orders)
    if context.notifies_shop:
        async with context.database.writing() as connection:
            await call_up_notifications(connection, now=now, beyond=now + LEASE)
    return found


async def _taken(context: AppContext, *, now: Instant, limit: int) -> list[Due]:
    if not context.database.shared:
        return await context.database.on_snapshot(due_store.due_orders, now=now, limit=limit)
    async with context.database.writing() as connection:
        return await due_store.claim_orders(connection, now=now, limit=limit, until=now + CLAIM)


def fold_or_log(history: History, *, policy: Policy, as_of: Instant) -> Ledger | None:
    """Return the order's ledger, or log an error and return None if it cannot be computed.

    The caller puts such an order aside, so that it does not block others.
    """
    try:
        return fold(history, policy=policy, as_of=as_of)
    except Exception as error:
        log.error("an order cannot be folded", order=history.order, exc_info=error)
        return None


def decided(ledger: Ledger, before: Position | None, *, rules: str) -> Publication:
    """Return what must be published about a ledger, with a revision if it differs from `before`.

    before  the order's last published position; None if it was never published
    rules   the rules by which the ledger was computed
    """
    position = position_of(ledger)
    words: list[str] = [finding.code for finding in ledger.findings]
    if needs_person(ledger):
        words.append(NEEDS_A_PERSON)
    codes = "|".join(dict.fromkeys(words))
    known = is_known(ledger)
    return Publication(
        order=ledger.order,
        as_of=ledger.as_of,
        position=position,
        findings=f"|{codes}|" if codes else "",
        next_decision_at=ledger.next_decision_at,
        rules=rules,
        window=ledger.window,
        known=known,
        revision=revise(before, ledger, after=position) if known or before is not None else None,
    )


def decided_or_log(ledger: Ledger, before: Position | None, *, rules: str) -> Publication | None:
    """Return what must be published about a ledger. If this fails, log an error and return None."""
    try:
        return decided(ledger, before, rules=rules)
    except Exception as error:
        log.error("an order cannot be folded", order=ledger.order, exc_info=error)
        return None


def with_holds(
    connection: PlainConnection, context: AppContext, publications: Sequence[Publication]
) -> list[Publication]:
    """Hold orders that only changed rules make fulfillable. Return all publications with these
    holds.

    The caller's transaction records the holds.
    """
    turning: dict[str, tuple[Publication, Position]] = {}
    for each in publications:
        before = None if each.revision is None else each.revision.before
        if each.position.fulfillable and before is not None and not before.fulfillable:
            turning[each.order] = each, before
    anew: dict[str, Publication | None] = {}
    for order, history in hold_back(connection, context, turning).items():
        as_of = history.instant_at(context.clock.now())
        ledger = fold_or_log(history, policy=context.policy, as_of=as_of)
        each, before = turning[order]
        anew[order] = None if ledger is None else decided_or_log(ledger, before, rules=each.rules)
    found = [anew.get(each.order, each) for each in publications]
    return [each for each in found if each is not None]


async def refold_until_quiet(
    context: AppContext, *, limit: int, progress: Callable[[int], None]
) -> int:
    """Compute and publish ledgers until no order is due. Return how many.

    progress  called with the number of ledgers after each round
    """
    total = 0
    while folded := await refold_due(context, limit=limit):
        total += folded
        progress(folded)
    return total
