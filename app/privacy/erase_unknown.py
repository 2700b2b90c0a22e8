"""Judges for an erasure what no ledger knows of: deliveries of no order, refused ones, and events
that are read from a body which they share with others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from app.database.engine import Connection
from app.database.statements import run
from app.privacy.erase_rules import Kept, Rules, kept_since, kept_unknown
from app.privacy.erase_store import owners, rejections_that_hold, unread_beside
from app.receiving.inbox_store import next_suspects
from reconcile.instants import Instant

MOST_ASIDE: Final = 10_000
"""Deliveries looked at that are set aside; there should be none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """By what is judged, and when. `staying`: an order that stays, if any does. `until`: what came
    after it is not asked about; None: all is."""

    rules: Rules
    now: Instant
    staying: str | None
    until: Instant | None = None

    def asks(self, heard: Instant) -> bool:
        """Whether what arrived at an instant is asked about."""
        return self.until is None or heard <= self.until


@dataclass(slots=True)
class Judged:
    """Ids of what may go, and what stays."""

    going: list[str] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)

    def add(self, name: str, kept: Kept | None) -> None:
        """One more."""
        if kept is None:
            self.going.append(name)
        else:
            self.kept.append(kept)


async def judge_strays(connection: Connection, deliveries: Iterable[str], by: Judging) -> Judged:
    """Those of the deliveries that have no order: one that was read is kept as an event."""
    judged = Judged()
    for owned in await owners(connection, deliveries):
        if owned.order is not None or owned.pruned or not by.asks(owned.received_at):
            continue
        name, heard = owned.delivery_id, owned.received_at
        if owned.unread:
            kept = kept_unknown(
                name, heard, by.rules, why="unread", beside=by.staying, as_of=by.now
            )
        else:
            kept = kept_since(name, heard, by.rules, as_of=by.now)
        judged.add(name, kept)
    return judged


async def judge_refused(connection: Connection, named: re.Pattern[str], by: Judging) -> Judged:
    """Refused deliveries in which the pattern finds something."""
    judged = Judged()
    for name, heard in await rejections_that_hold(connection, [named]):
        if by.asks(heard):
            judged.add(
                name,
                kept_unknown(name, heard, by.rules, why="refused", beside=by.staying, as_of=by.now),
            )
    return judged


async def kept_wholes(
    connection: Connection, brought: Mapping[str, Sequence[str]], *, going: Iterable[str]
) -> dict[str, Kept]:
    """What must stay since it came in one body with an event that is not read yet: that is read
    from the whole body, which would go.

    brought  orders and stray deliveries, each with the deliveries of which the bodies would go
    going    stray deliveries that go, and so wait for nothing
    """
    unread = await unread_beside(connection, chain.from_iterable(brought.values()))
    found, gone = dict[str, Kept](), set(going)
    for what, deliveries in brought.items():
        others = set[str]().union(*(unread.get(each, ()) for each in deliveries)) - gone
        if others:
            found[what] = Kept(what=what, why="beside_unread", detail=min(others))
    return found


async def judge_set_aside(connection: Connection, named: re.Pattern[str]) -> list[Kept]:
    """Accepted deliveries that nothing could read, and that hold what the pattern finds."""
    found = []
    for one in await run(connection, next_suspects, aside=True, limit=MOST_ASIDE):
        if named.search(one.record.decode("utf-8", "replace")):
            name = f"row {one.seq}" if one.item is None else one.item.delivery_id
            found.append(Kept(what=name, why="set_aside"))
    return found
