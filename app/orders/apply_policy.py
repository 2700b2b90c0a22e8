"""Sets every order due where the policy is another than the one by which they were folded.

A ledger is history, policy and instant: with other settings, or by a version with other rules, what
is published, when an order is due next and what a reconciliation has kept are all of the policy
before. New evidence and deadlines would mend them one by one, or never.
"""

from __future__ import annotations

from typing import Final

import structlog

from app.orders.policy_version_store import (
    anything_folded,
    form_of,
    note_change,
    note_changed,
    note_policy,
    noted_policy,
    set_some_due,
)
from app.receiving.context import Desk
from reconcile.ledger.policy import policy_text

log = structlog.get_logger()

AT_ONCE: Final = 1_000
"""Orders set due in one transaction, so that no acknowledgement waits long for it."""


class TakingUp:
    """Takes up the desk's policy, a batch of orders at a time, before anything is folded by it.

    The policy is noted with the last batch; whoever is ended before that begins anew, and sets
    some orders due twice.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._policy = policy_text(desk.policy)
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
        first, now = self._after is None, self._desk.clock.now()
        async with self._desk.store.writing() as connection:
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
        async with self._desk.store.reading() as connection:
            noted = await noted_policy(connection)
        self._known = noted is not None
        self._by_other_form = noted is not None and form_of(noted) != form_of(self._policy)
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
