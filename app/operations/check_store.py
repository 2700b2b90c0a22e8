"""Checks the store against itself: bodies by their digests, ledgers by their histories."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from app.operations.desk import Desk
from app.store.deliveries import raw_deliveries
from app.store.histories import scan
from app.store.integrity import damage
from app.store.ledgers import cached_positions
from reconcile.fold import fold
from reconcile.revise import position_of

AT_ONCE = 500
MAX_PROBLEMS = 50


@dataclass(slots=True, kw_only=True)
class Report:
    """What was looked at, and what does not fit."""

    bodies: int = 0
    orders: int = 0
    problems: list[str] = field(default_factory=list)

    def sentence(self) -> str:
        """For a person."""
        verdict = f"{len(self.problems)} problems" if self.problems else "all is as it should be"
        return f"{self.bodies} bodies and {self.orders} ledgers checked: {verdict}"

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return {"bodies": self.bodies, "orders": self.orders, "problems": self.problems}

    def add(self, problem: str) -> None:
        """Keep a problem; after the first some, only that there are more matters."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)


async def check_store(desk: Desk, *, progress: Callable[[int], None]) -> Report:
    """Check everything. Orders that are due are folded but not compared: their mark says so."""
    report, now = Report(), desk.clock.now()
    async with desk.store.reading() as connection:
        for problem in await damage(connection):
            report.add(problem)
        async for deliveries in raw_deliveries(connection, at_once=AT_ONCE):
            for delivery in deliveries:
                if hashlib.sha256(delivery.body).hexdigest() != delivery.digest:
                    report.add(f"the body of {delivery.delivery_id} does not have its digest")
            report.bodies += len(deliveries)
            progress(len(deliveries))
        async for histories in scan(connection):
            orders = [history.order for history in histories]
            cached = await cached_positions(connection, orders, now=now)
            for history in histories:
                ledger = fold(history, policy=desk.policy, as_of=now)
                if cached.get(history.order) not in (None, position_of(ledger)):
                    report.add(f"the ledger of {history.order} is not what its history gives")
            report.orders += len(orders)
            progress(len(orders))
    return report
