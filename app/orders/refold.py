"""Folds due orders and publishes what changed.

One mechanism wakes an order for new evidence and for the passing of a deadline alike: its due
mark. Publishing compares generations, so evidence that arrives during a fold is never missed.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Final

import structlog

from app.context.context import AppContext
from app.core.logs import LogLine
from app.database.statements import PlainConnection
from app.orders.history_store import contests_of, histories_of
from app.orders.holds import hold_back
from app.orders.ledger_store import (
    Publication,
    last_positions,
    new_publication,
    publish,
)
from app.orders.notification_store import LEASE, call_up_notifications
from app.orders.policy_version_store import (
    anything_folded,
    engine_form,
    note_change,
    note_changed,
    note_folded,
    note_policy,
    noted_policy,
    rules_of,
    set_some_due,
)
from app.receiving.due_store import (
    Due,
    call_up,
    claim_orders,
    due_orders,
    marks_in,
    marks_without_reason,
    settle_marks,
    unchanged,
)
from app.receiving.pace import Pace
from reconcile.instants import MINUTE, SECOND, TICK, Instant
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.policy import Policy, policy_text
from reconcile.ledger.revise import Position, position_of, revise

log = structlog.get_logger()

_log_revision = LogLine("revision", "delivery", "order", "outcome")

AT_ONCE: Final = 1_000
"""Orders set due in one transaction, so that no acknowledgement waits long for it."""


class TakingUp:
    """Takes up the context's policy, a batch of orders at a time, before anything is folded by it.

    The policy is noted with the last batch; whoever is ended before that begins anew, and sets
    some orders due twice.
    """

    def __init__(self, context: AppContext) -> None:
        self._context = context
        self._policy = policy_text(context.policy)
        self._known = False
        self._by_other_form = False
        self._after: str | None = None
        self._count = 0
        self._over = False

    async def some(self) -> int:
        """Set a batch of orders due. Returns how many; 0 when there is nothing left to do."""
        if self._over or await self._is_noted():
            self._over = True
            return 0
        first, now = self._after is None, self._context.clock.now()
        async with self._context.database.writing() as connection:
            if not self._known and first and not await anything_folded(connection):
                await note_policy(connection, self._policy)
                self._over = True
                return 0
            orders = await set_some_due(connection, after=self._after or "", limit=AT_ONCE, now=now)
            last, alone = len(orders) < AT_ONCE, True
            if first:
                await (note_policy if last else note_change)(connection, self._policy)
            elif last:
                alone = await note_changed(connection, self._policy)
        self._after = max(orders, default=self._after)
        self._count += len(orders)
        self._over = last
        if last:
            self._tell(alone=alone)
        return len(orders)

    async def _is_noted(self) -> bool:
        """Whether there is nothing to take up: asked once, at the start."""
        if self._after is not None:
            return False
        async with self._context.database.reading() as connection:
            noted = await noted_policy(connection)
        self._known = noted is not None
        self._by_other_form = noted is not None and engine_form(noted) != engine_form(self._policy)
        return noted == self._policy

    def _tell(self, *, alone: bool) -> None:
        if not alone:
            tell_of_several()
        if not self._count:
            return
        if self._by_other_form:
            log.warning(
                "this version folds by other rules; all orders were set due to be folded by "
                "them, and what only they make fulfillable is held until it is released",
                count=self._count,
            )
        elif self._known:
            log.warning(
                "the settings that orders are judged by have changed; all orders were set due to "
                "be folded by them",
                count=self._count,
            )
        else:
            log.warning(
                "by which settings the orders were folded is not known; all were set due to "
                "be folded by these",
                count=self._count,
            )


def tell_of_several() -> None:
    """Say that orders are folded by one policy here, and by another one there."""
    log.warning(
        "another process folds by other settings; give all the same, and start them again: every "
        "order is then folded anew"
    )


PUT_ASIDE: Final = 10 * MINUTE
"""When an order that could not be folded is tried again; also when new evidence arrives."""


CLAIM: Final = 30 * SECOND
"""How long other workers pass over an order that one has taken: many times what a round takes. If
that one dies, another takes the order then."""


CALLED_AT_ONCE: Final = 1_000
"""Orders called up in one transaction: a delivery never waits for more."""


async def refold_due(context: AppContext, *, limit: int, pace: Pace | None = None) -> int:
    """Fold up to `limit` due orders and publish, in as many transactions as `pace` asks for, by
    default in one. Returns how many were due.

    Orders that share evidence with a due one are folded with it: it may be evidence of theirs.
    Whoever else folded an order in the meantime has published it; then this fold is dropped. One of
    which something was said after what may be published is due as of that.
    """
    now, policy = await publishable(context), policy_text(context.policy)
    due = await _taken(context, now=now, limit=limit)
    if not due:
        return 0
    left, histories = await gathered(context, due)
    said_at = {order: history.instant_at(now) for order, history in histories.items()}
    latest = context.clock.now()  # what is dated beyond it is of a clock that was ahead
    later = {order: at for order, at in said_at.items() if now < at <= latest}
    ledgers = {
        order: None if order in later else _folded(context, history, as_of=said_at[order])
        for order, history in histories.items()
    }
    writer, pace = context.database.writer, pace or Pace(first=len(ledgers), most=len(ledgers))
    while left:
        part = _next_part(left, size=pace.fitting(context.database))
        published, several = await writer.commit(
            _publish_standing, context, part, ledgers, later=later, now=now, policy=policy
        )
        pace.learn(sum(map(len, part)), seconds=writer.held_s)
        for each in published:
            if each.revision is not None:
                _log_published(histories[each.order], ledgers[each.order])
        if several:
            tell_of_several()
    return len(due)


Sharing = list[Due]
"""The marks of orders that share evidence; of most orders one alone."""


async def gathered(
    context: AppContext, due: Sequence[Due]
) -> tuple[list[Sharing], dict[str, History]]:
    """The marks and histories of due orders, and of those that share evidence with them, as of one
    instant."""
    return await context.database.on_snapshot(_gathered, due)


def _gathered(
    connection: PlainConnection, due: Sequence[Due]
) -> tuple[list[Sharing], dict[str, History]]:
    orders = [mark.order for mark in due]
    contests = contests_of(connection, orders)
    contested = set().union(*contests)
    shared = {mark.order: mark for mark in marks_in(connection, contested)}
    marks = [[mark] for mark in due if mark.order not in contested]
    marks += [[shared[order] for order in sorted(each & shared.keys())] for each in contests]
    return marks, histories_of(connection, [mark.order for mark in chain(*marks)])


def _next_part(left: list[Sharing], *, size: int) -> list[Sharing]:
    """Take about so many marks, and never some of those that stand or fall together."""
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
    later: Mapping[str, Instant],
    now: Instant,
    policy: str,
) -> tuple[list[Publication], bool]:
    """What was published of the orders of which nothing was said since they were read, and whether
    others fold by another policy. `later`: those that are not published now, and when they are due
    then."""
    due, before, several = _standing(connection, marks, policy)
    current = [ledger for mark in due if (ledger := ledgers.get(mark.order)) is not None]
    rules = rules_of(policy)
    found = (decided_or_log(each, before.get(each.order), rules=rules) for each in current)
    decisions = [each for each in found if each is not None]
    publications = with_holds(connection, context, decisions)
    waiting = [
        (mark.order, later[mark.order], mark.generation) for mark in due if mark.order in later
    ]
    if waiting:
        settle_marks(connection, waiting)
    publish(
        connection,
        publications,
        due=[mark for mark in due if mark.order not in later],
        put_aside_until=now + PUT_ASIDE,
        notify=now if context.notifies_shop else None,
    )
    return publications, several


def _standing(
    connection: PlainConnection, marks: Sequence[Sharing], policy: str
) -> tuple[list[Due], dict[str, Position], bool]:
    """Those of the marks that stand as they stood, what was last published of their orders, and
    whether others fold by another policy. Of orders that share evidence all stand, or none does:
    what was said of one may be evidence of all, and somebody else may have published it."""
    standing = set(unchanged(connection, list(chain(*marks))))
    found = list(chain(*(sharing for sharing in marks if standing.issuperset(sharing))))
    positions = last_positions(connection, [mark.order for mark in found])
    return found, positions, note_folded(connection, policy)


def _log_published(history: History, ledger: Ledger | None) -> None:
    """One line for a revision, under the newest delivery that it rests on: the id by which the
    receiver's and the reader's lines are found, too."""
    known = [(each.received_at, each.delivery_id) for each in history.deliveries]
    newest = max(known)[1] if known else None
    _log_revision(newest, history.order, None if ledger is None else ledger.outcome)


async def publishable(context: AppContext) -> Instant:
    """The latest instant as of which anything may be published: now, or just before the arrival of
    the oldest delivery that was accepted and is not read yet. It might say otherwise."""
    now = context.clock.now()
    oldest = (await context.inbox.backlog()).oldest
    return now if oldest is None else min(now, oldest - TICK)


async def call_up_early(context: AppContext) -> int:
    """Set due what waits for an instant that only a clock that was ahead can have given.

    An order's mark is the instant at which something was said of it, or its ledger's next decision.
    Where the clock has been set back the first may lie ahead: money that is here would be published
    as late as that. So it is with notifications to the shop. Returns how many orders there were.
    """
    now = context.clock.now()
    # Where several fold, a mark may be a claim; where one does, an order that was put aside is
    # tried again a little early.
    beyond = now + CLAIM if context.database.shared else now
    found = 0
    while True:
        async with context.database.reading() as connection:
            orders = await marks_without_reason(connection, beyond=beyond, limit=CALLED_AT_ONCE)
        if not orders:
            break
        async with context.database.writing() as connection:
            await call_up(connection, orders, now=now, beyond=beyond)
        found += len(orders)
    if context.notifies_shop:
        async with context.database.writing() as connection:
            await call_up_notifications(connection, now=now, beyond=now + LEASE)
    return found


async def _taken(context: AppContext, *, now: Instant, limit: int) -> list[Due]:
    """Due orders to fold. Where others fold, too, they are first claimed."""
    if not context.database.shared:
        return await context.database.on_snapshot(due_orders, now=now, limit=limit)
    async with context.database.writing() as connection:
        return await claim_orders(connection, now=now, limit=limit, until=now + CLAIM)


def _folded(context: AppContext, history: History, *, as_of: Instant) -> Ledger | None:
    return fold_or_log(history, policy=context.policy, as_of=as_of)


def fold_or_log(history: History, *, policy: Policy, as_of: Instant) -> Ledger | None:
    """The ledger. An order that cannot be folded is a fault of ours: it is logged and put aside,
    so that it does not stop the others."""
    try:
        return fold(history, policy=policy, as_of=as_of)
    except Exception as error:
        log.error("an order cannot be folded", order=history.order, exc_info=error)
        return None


def decided(ledger: Ledger, before: Position | None, *, rules: str) -> Publication:
    """What is to be published of a ledger folded by these rules, when `before` was published
    last."""
    position = position_of(ledger)
    codes = "|".join(dict.fromkeys([finding.code for finding in ledger.findings]))
    return new_publication(
        order=ledger.order,
        as_of=ledger.as_of,
        position=position,
        findings=f"|{codes}|" if codes else "",
        next_decision_at=ledger.next_decision_at,
        rules=rules,
        revision=revise(before, ledger, after=position),
    )


def decided_or_log(ledger: Ledger, before: Position | None, *, rules: str) -> Publication | None:
    """The same; None of an order that can be folded and not published: see `fold_or_log`."""
    try:
        return decided(ledger, before, rules=rules)
    except Exception as error:
        log.error("an order cannot be folded", order=ledger.order, exc_info=error)
        return None


def with_holds(
    connection: PlainConnection, context: AppContext, publications: Sequence[Publication]
) -> list[Publication]:
    """The publications, where only new rules make an order fulfillable with its hold, which is
    recorded in this transaction: so nobody is ever notified that it may be fulfilled."""
    turning = {each.order: each for each in publications if _turns_fulfillable(each)}
    held = hold_back(connection, context, turning)
    anew = {
        order: _folded_held(context, history, turning[order]) for order, history in held.items()
    }
    found = [anew.get(each.order, each) for each in publications]
    return [each for each in found if each is not None]


def _folded_held(
    context: AppContext, history: History, instead_of: Publication
) -> Publication | None:
    ledger = _folded(context, history, as_of=history.instant_at(context.clock.now()))
    if ledger is None or instead_of.revision is None:
        return None
    return decided_or_log(ledger, instead_of.revision.before, rules=instead_of.rules)


def _turns_fulfillable(publication: Publication) -> bool:
    """Whether it says that an order may be fulfilled of which it was published that it may not."""
    before = None if publication.revision is None else publication.revision.before
    return publication.position.fulfillable and before is not None and not before.fulfillable


async def refold_until_quiet(
    context: AppContext, *, limit: int, progress: Callable[[int], None]
) -> int:
    """Fold due orders until none is due. Returns how many folds that took."""
    total = 0
    while folded := await refold_due(context, limit=limit):
        total += folded
        progress(folded)
    return total
