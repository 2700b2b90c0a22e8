"""Due marks of orders, and notes on phone numbers: which are found, and what changes them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.database.statements import run
from app.receiving.due_store import (
    Due,
    backwards,
    call_up,
    claim_orders,
    count_due,
    count_marks,
    due_orders,
    mark_all_due,
    marks_in,
    marks_without_reason,
    next_due,
    put_marks_right,
    settle_marks,
    unchanged,
)
from app.receiving.inbox import Inbox
from app.receiving.phone_store import (
    PhoneNote,
    deliveries_by_phone,
    drop_notes,
    drop_other_keys,
    has_other_keys,
    is_other_key,
    key_in_use,
    notes_of,
    old_notes,
    orders_by_phone,
    phone_note,
    use_key,
    write_phone_notes,
)
from tests.database.builders import arrival, change, commit, keep, opened, said
from tests.receiving.test_inbox_rows import Plain, plain
from tests.reconcile.build import T, seconds

__all__ = ["plain"]


@pytest.fixture
async def inbox(tmp_path: Path) -> AsyncIterator[Inbox]:
    """Open a serving store on a new database."""
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/t.db") as opened_:
        yield opened_


MARK = "INSERT INTO order_due (order_key, due_at, generation, backwards) VALUES (?, ?, ?, 'x')"


def marked(plain: Plain, **due: int | None) -> None:
    """Mark orders, each due so many seconds after T, or not; the first has generation 1."""
    for generation, (order, at) in enumerate(due.items(), 1):
        plain.ask(MARK, (order, None if at is None else seconds(at), generation))


def mark(order: str, generation: int, at: int | None = None) -> Due:
    return Due(order=order, generation=generation, due_at=None if at is None else seconds(at))


def test_orders_are_due_from_their_instant_on_and_the_longest_waiting_come_first(
    plain: Plain,
) -> None:
    assert next_due(plain) is None
    marked(plain, A=None)
    assert next_due(plain) is None
    marked(plain, B=9, C=7, D=5)
    assert next_due(plain) == seconds(5)
    every = [mark("D", 3, 5), mark("C", 2, 7), mark("B", 1, 9)]
    for now, limit, count in ((4, 9, 0), (5, 9, 1), (8, 9, 2), (9, 9, 3), (9, 2, 2)):
        assert due_orders(plain, now=seconds(now), limit=limit) == every[:count]
    marks = marks_in(plain, ["A", "D", "E"])
    assert sorted(marks, key=lambda each: each.order) == [mark("A", 1), mark("D", 3, 5)]


def test_a_mark_is_settled_unless_evidence_has_come_since_the_fold(plain: Plain) -> None:
    """A mark that is not there is made, and can be searched for by its end."""
    marked(plain, A=5, B=6)
    before = marks_in(plain, ["A", "B"])
    settle_marks(plain, [("A", seconds(60), 1), ("B", None, 1), ("Ord-1", None, 4)])
    assert sorted(marks_in(plain, ["A", "B", "Ord-1"]), key=lambda each: each.order) == [
        mark("A", 1, 60), mark("B", 2, 6), mark("Ord-1", 4)
    ]  # fmt: skip
    assert unchanged(plain, before) == [mark("B", 2, 6)]
    kept = plain.ask("SELECT backwards FROM order_due ORDER BY order_key")
    assert kept == [("x",), ("x",), (backwards("Ord-1"),)]
    assert backwards("Ord-12") == "21dro"


def ledger_rows(plain: Plain, **decided: int | None) -> None:
    """Store ledgers that are decided about next so many seconds after T, or never."""
    columns = {row[1]: row for row in plain.ask("PRAGMA table_info(ledgers)")}
    for order, at in decided.items():
        values: dict[str, Any] = {
            name: (0 if "INT" in row[2] else "")
            for name, row in columns.items()
            if row[3] and row[4] is None
        }
        values |= {"order_key": order, "next_decision_at": None if at is None else seconds(at)}
        names = ", ".join(f'"{name}"' for name in values)
        marks = ", ".join("?" * len(values))
        plain.ask(f"INSERT INTO ledgers ({names}) VALUES ({marks})", tuple(values.values()))


def test_marks_are_put_right_by_their_ledgers_within_a_range_of_orders(plain: Plain) -> None:
    """A mark that is missing is made with generation 0; one that is right stays as it is."""
    marked(plain, A=5, B=6, C=7, D=None, F=8)
    ledger_rows(plain, A=50, B=60, C=None, D=None, E=70, F=80, G=90)
    put_marks_right(plain, first="B", last="F")
    assert sorted(marks_in(plain, "ABCDEFG"), key=lambda each: each.order) == [
        mark("A", 1, 5), mark("B", 2, 60), mark("C", 3), mark("D", 4), mark("E", 0, 70),
        mark("F", 5, 80),
    ]  # fmt: skip
    kept = plain.ask("SELECT backwards FROM order_due ORDER BY order_key")
    assert kept == [("x",)] * 4 + [(backwards("E"),), ("x",)]


async def test_marks_are_counted_called_up_and_asked_for_their_reason(inbox: Inbox) -> None:
    await keep(inbox, *(arrival(said(name, order=name)) for name in "ABCD"))
    for name, at in (("A", 5), ("B", 6), ("C", 7)):
        await change(inbox, f"UPDATE order_due SET due_at={seconds(at)} WHERE order_key='{name}'")
    await change(inbox, "UPDATE order_due SET due_at=NULL WHERE order_key='D'")

    async def marks() -> list[Due]:
        found = await inbox.database.on_snapshot(marks_in, "ABCD")
        return sorted(found, key=lambda each: each.order)

    async with inbox.database.reading() as connection:
        assert await count_marks(connection) == 4
        for now, enough, count in ((4, 9, 0), (5, 9, 1), (7, 9, 3), (7, 2, 2), (7, 0, 0)):
            assert await count_due(connection, now=seconds(now), enough=enough) == count
        for beyond, limit, found in ((5, 9, ["B", "C"]), (7, 9, []), (4, 1, 1)):
            orders = await marks_without_reason(connection, beyond=seconds(beyond), limit=limit)
            assert (sorted(orders) if limit > 1 else len(orders)) == found
    await commit(inbox, call_up, list("ABCD"), now=seconds(1), beyond=seconds(6))
    assert await marks() == [mark("A", 1, 5), mark("B", 1, 6), mark("C", 1, 1), mark("D", 1)]
    await commit(inbox, call_up, ["A"], now=seconds(1), beyond=seconds(6))
    await commit(inbox, mark_all_due, now=seconds(3))
    assert await marks() == [mark(name, 2, 3) for name in "ABCD"]


async def test_claimed_orders_come_with_their_generation_and_their_new_due_time() -> None:
    """PostgreSQL locks the marks of due orders, and sets them due at the end of the claim."""
    asked: list[Any] = []

    class Server:
        async def execute(self, sql: Any, values: dict[str, Any]) -> list[tuple[str, int, Any]]:
            asked.append(values)
            return [("A", 1, seconds(60)), ("B", 4, seconds(60))]

    server: Any = Server()
    found = await claim_orders(server, now=seconds(5), limit=2, until=seconds(60))
    assert found == [mark("A", 1, 60), mark("B", 4, 60)]
    assert asked == [{"now": seconds(5), "limit": 2, "until": seconds(60)}]


# --- notes on phone numbers -----------------------------------------------------------------------

KEY, OTHER = b"\x01\xff", b"\x02\x00"
ONE, TWO = KEY + b"one", KEY + b"two"
NOTES: list[PhoneNote] = [
    (ONE, "delivery", "dlv_9", seconds(3)),
    (ONE, "order", "A", seconds(2)),
    (ONE, "order", "B", seconds(5)),
    (TWO, "order", "A", seconds(1)),
]


def test_a_phone_number_is_noted_for_its_order_or_else_for_its_delivery() -> None:
    assert phone_note(ONE, "A", "dlv_1", T) == (ONE, "order", "A", T)
    assert phone_note(ONE, None, "dlv_1", T) == (ONE, "delivery", "dlv_1", T)


async def test_notes_are_found_by_their_numbers_subjects_and_age(inbox: Inbox) -> None:
    """A note that is written again keeps its first instant."""
    later = [(digest, kind, thing, seconds(99)) for digest, kind, thing, _ in NOTES]
    async with inbox.database.writing() as connection:
        await run(connection, write_phone_notes, [*later[:2], *NOTES[:3], *later[2:3]])
        await run(connection, write_phone_notes, [*later, NOTES[3]])
        await run(connection, write_phone_notes, [])
        assert sorted(await notes_of(connection, ["A", "dlv_9", "none"])) == [
            note for note in NOTES if note[2] != "B"
        ]
        assert await orders_by_phone(connection, ONE, limit=9) == ["A", "B"]
        assert await orders_by_phone(connection, ONE, limit=1) == ["A"]
        assert await deliveries_by_phone(connection, ONE) == ["dlv_9"]
        assert await deliveries_by_phone(connection, TWO) == []
        for before, after, limit, found in (
            (5, None, 9, NOTES), (4, None, 9, [*NOTES[:2], NOTES[3]]), (5, None, 2, NOTES[:2]),
            (5, NOTES[0], 9, NOTES[1:]), (5, NOTES[1], 1, NOTES[2:3]), (0, None, 9, []),
        ):  # fmt: skip
            asked: Any = {"before": seconds(before), "after": after, "limit": limit}
            assert await old_notes(connection, **asked) == found
        await drop_notes(connection, [NOTES[1], NOTES[3]])
        asked = {"before": seconds(9), "after": None, "limit": 9}
        assert await old_notes(connection, **asked) == [NOTES[0], NOTES[2]]


@pytest.mark.parametrize(
    ("digest", "others"),
    [(b"\x01\xffx", False), (b"\x01\xfe\xff", True), (b"\x02\x00", True), (b"\x01\xff", False)],
)
async def test_digests_of_another_key_are_those_that_do_not_begin_with_its_name(
    inbox: Inbox, digest: bytes, others: bool
) -> None:
    """Also if the names of two keys follow each other. The name that is stored decides, if any."""
    async with inbox.database.writing() as connection:
        await run(connection, write_phone_notes, [(digest, "order", "A", T)])
        assert await has_other_keys(connection, KEY) is others
        assert await is_other_key(connection, None, KEY) is others
        assert await is_other_key(connection, KEY.hex(), KEY) is False
        assert await is_other_key(connection, OTHER.hex(), KEY) is True
        assert await has_other_keys(connection, b"\xff\xff")
        await use_key(connection, KEY)
        assert await key_in_use(connection) == KEY.hex()
        await drop_other_keys(connection, KEY)
        assert len(await notes_of(connection, ["A"])) == (0 if others else 1)
