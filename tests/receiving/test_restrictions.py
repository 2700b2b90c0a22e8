"""Data that an erasure may not delete yet: their sentences, refused people and waiting lines."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import get_args

import pytest

from app.core.errors import UsageError
from app.database.marks import GROUNDS
from app.database.statements import run
from app.receiving.inbox import Inbox
from app.receiving.journal_state import PATIENCE, WAITS, long_pending
from app.receiving.restriction_store import RestrictionRow, write_restrictions
from app.receiving.restrictions import (
    REASONS,
    Kind,
    Restriction,
    refuse_restricted,
    restricted_deliveries,
    restricted_orders,
    restriction_of,
)
from reconcile.instants import MINUTE, TICK, Instant, format_instant
from tests.database.builders import arrival, change, context, keep, opened, said
from tests.reconcile.build import T, seconds


@pytest.fixture
async def inbox(tmp_path: Path) -> AsyncIterator[Inbox]:
    """Open a serving store on a new database."""
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/t.db") as opened_:
        yield opened_


def row(kind: str, thing: str, *, until: Instant | None = None) -> RestrictionRow:
    return RestrictionRow(kind, thing, T, until, "not_over", seconds(5), seconds(9))


@pytest.mark.parametrize("why", REASONS)
@pytest.mark.parametrize(
    ("until", "shown"), [(None, "that ends"), (seconds(60), format_instant(seconds(60)))]
)
def test_a_restriction_says_since_when_until_when_and_why(
    why: str, until: Instant | None, shown: str
) -> None:
    """On one of the legal grounds."""
    because, ground = REASONS[why]
    end = "for good" if why == "in_the_reference" else f"until {shown}"
    found = Restriction(kind="order", thing="A", since=T, until=until, why=why)
    sentence = (
        f"Its customer's data are restricted since {format_instant(T)}, {end}: {because} "
        f"({GROUNDS[ground]})."
    )
    assert found.sentence == sentence
    assert found.document() == {
        "since": format_instant(T),
        "until": None if until is None else format_instant(until),
        "why": why,
        "sentence": sentence,
    }


@pytest.mark.parametrize("kind", get_args(Kind))
def test_a_restriction_is_what_its_row_says(kind: Kind) -> None:
    assert restriction_of(row(kind, "A", until=seconds(60))) == Restriction(
        kind=kind, thing="A", since=T, until=seconds(60), why="not_over"
    )


async def test_what_is_restricted_is_refused_by_its_order_and_by_its_delivery(
    inbox: Inbox,
) -> None:
    """Also a delivery whose order is restricted. Other orders and deliveries are not refused."""
    one, other = arrival(said("e1", order="A")), arrival(said("e2", order="B"))
    alone, free = arrival(said("e3")), arrival(said("e4", order="C"))
    await keep(inbox, one, other, alone, free)
    restrictions = [row("order", "A"), row("delivery", alone.delivery_id), row("whole", "B")]
    async with inbox.database.writing() as connection:
        await run(connection, write_restrictions, restrictions)
    async with inbox.database.reading() as connection:
        assert await run(connection, restricted_orders, ["A", "B", "C"]) == {
            "A": restriction_of(row("order", "A"))
        }
        ids = [each.delivery_id for each in (one, other, alone, free)]
        assert await run(connection, restricted_deliveries, ids) == {
            one.delivery_id: restriction_of(row("order", "A")),
            alone.delivery_id: restriction_of(row("delivery", alone.delivery_id)),
        }
        await refuse_restricted(connection, order="C")
        await refuse_restricted(connection, delivery=free.delivery_id)
        said_ = restriction_of(row("order", "A")).sentence.rstrip(".")
        for asked in ({"order": "A"}, {"delivery": one.delivery_id}):
            with pytest.raises(UsageError) as raised:
                await refuse_restricted(connection, **asked)
            assert str(raised.value) == said_


async def test_a_line_of_the_journal_waits_too_long_after_ten_minutes_or_for_a_reason(
    inbox: Inbox,
) -> None:
    """Each reason is given once, with the time of the oldest line."""
    assert PATIENCE == 10 * MINUTE
    now = context(inbox).clock.now()
    assert await long_pending(context(inbox)) == (0, [], None)
    lines = [
        (1, now - PATIENCE + TICK, ""), (2, now - PATIENCE, ""), (3, now - 5 * TICK, "unread"),
        (4, now, "refused"), (5, now, "unread"),
    ]  # fmt: skip
    for number, since, why in lines[:1]:
        await change(inbox, PENDING.format(number, since, why))
    assert await long_pending(context(inbox)) == (0, [], None)
    for number, since, why in lines[1:]:
        await change(inbox, PENDING.format(number, since, why))
    assert await long_pending(context(inbox)) == (
        4, [WAITS[""], WAITS["refused"], WAITS["unread"]], now - PATIENCE
    )  # fmt: skip


@pytest.mark.parametrize(
    ("why", "said", "ground"),
    [
        ("accounts", "books", "accounts"),
        ("disputable", "can be disputed", "claims"),
        ("unallocated", "has no order", "claims"),
        ("not_over", "is not over", "claims"),
        ("revocable", "can revoke", "claims"),
        ("disputed", "is disputed", "claims"),
        ("to_settle", "must settle", "claims"),
        ("shared", "which order", "claims"),
        ("minimum", "law requires", "accounts"),
        ("refused", "be read first", "claims"),
        ("unread", "be read first", "claims"),
        ("beside_unread", "be read first", "claims"),
        ("set_aside", "be read first", "claims"),
        ("in_the_reference", "reference contains", "accounts"),
        ("changed", "new data", "claims"),
    ],
)
def test_each_reason_of_a_restriction_has_its_words_and_its_ground(
    why: str, said: str, ground: str
) -> None:
    assert said in REASONS[why].because
    assert REASONS[why].ground == ground
    assert [key for key, each in REASONS.items() if said in each.because] == (
        [why] if said != "be read first" else ["refused", "unread", "beside_unread", "set_aside"]
    )


def test_each_reason_to_wait_names_the_command_that_ends_the_wait() -> None:
    commands = {
        "": "`tallyhook db restored`",
        "set_aside": "`tallyhook deliveries poisoned --retry`",
        "refused": "`tallyhook deliveries reverify`",
        "unread": "`tallyhook reindex`",
    }
    for why, command in commands.items():
        assert [key for key, said in WAITS.items() if command in said] == [why]
    assert WAITS.keys() == commands.keys()


PENDING = "INSERT INTO pending_erasures (number, since, why) VALUES ({}, {}, '{}')"
