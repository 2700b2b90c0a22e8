"""Rows behind deliveries as their stores give them: the log, raw bodies, due marks, counts, phones
and links, each with its bounds."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.database.locks import LINKING, REFUSING
from app.database.statements import insert_rows, run
from app.providers.request import Incoming
from app.receiving import append_store
from app.receiving.append_store import (
    ARRIVALS_KEPT,
    Arrival,
    Envelope,
    Ready,
    append_ready,
    count_arrivals,
    read_counts,
)
from app.receiving.correlation_store import Linking, LinkMemory
from app.receiving.delivery_log_store import (
    LogEntry,
    LogFilter,
    RawDelivery,
    _by_arrival,
    arrivals_since,
    delivery_before,
    find_in_log,
    last_arrivals,
    list_log,
    newest_arrival,
    raw_deliveries,
    raw_delivery,
    refused_naming,
)
from app.receiving.due_store import due_orders, marks_of, next_due
from app.receiving.inbox import Inbox
from app.receiving.inbox_store import next_suspects
from app.receiving.refusal_store import Rejection, RejectionRing
from app.receiving.unread_store import UnreadMessage, keep_unread
from reconcile.instants import MILLISECOND, MINUTE, Instant
from reconcile.money import Money
from tests.database.builders import arrival, change, keep, opened, rejection, rows, said
from tests.reconcile.build import T, seconds


@pytest.fixture
async def inbox(tmp_path: Path) -> AsyncIterator[Inbox]:
    """Open a serving store on a new database."""
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/t.db") as opened_:
        yield opened_


def entries_of(refused: Rejection, unread: Arrival, taken: Arrival) -> list[LogEntry]:
    """List the log's entries of these."""
    return [
        LogEntry(
            delivery_id=refused.delivery_id,
            received_at=seconds(2),
            source="shop",
            verdict="signature_mismatch",
            digest="0" * 64,
            size=3,
            problem="not genuine",
            headers="a: b",
            event_id=None,
            pruned_at=None,
        ),
        LogEntry(
            delivery_id=unread.delivery_id,
            received_at=seconds(1),
            source="shop",
            verdict="unreadable",
            digest=unread.digest,
            size=len(unread.body),
            problem="the body is not JSON",
            headers="webhook-id: x",
            event_id=None,
            pruned_at=None,
        ),
        LogEntry(
            delivery_id=taken.delivery_id,
            received_at=seconds(0),
            source="shop",
            verdict="stored",
            digest=taken.digest,
            size=len(taken.body),
            problem=None,
            headers="webhook-id: x",
            event_id="e1",
            pruned_at=None,
            kind="payment.pending",
            claim="pending",
            order="A",
        ),
    ]


async def test_an_arrival_and_a_refusal_as_the_log_has_them(inbox: Inbox) -> None:
    """Each member of it, in the list and alone; newest first, before an id, up to a limit."""
    taken = arrival(said("e1", order="A"))
    unread = arrival(None, at=1)
    refused = replace(rejection(body=b"{7}"), received_at=seconds(2))
    async with inbox.database.reading() as connection:
        assert await newest_arrival(connection) == ""
    await keep(inbox, taken, unread, refused)
    entries = entries_of(refused, unread, taken)
    async with inbox.database.reading() as connection:
        for entry in entries:
            assert await find_in_log(connection, entry.delivery_id) == entry
        assert await find_in_log(connection, "dlv_none") is None
        assert await newest_arrival(connection) == refused.delivery_id
        for words, found in (
            ({}, [0, 1, 2]),
            ({"limit": 1}, [0]),
            ({"limit": 2}, [0, 1]),
            ({"before": refused.delivery_id}, [1, 2]),
            ({"before": unread.delivery_id}, [2]),
            ({"before": taken.delivery_id}, []),
            ({"verdict": "unreadable"}, [1]),
            ({"verdict": "stored"}, [2]),
            ({"verdict": "duplicate"}, []),
            ({"verdict": "signature_mismatch"}, [0]),
            ({"verdict": "signature_mismatch", "refused": False}, []),
            ({"refused": False}, [1, 2]),
            ({"source": "other"}, []),
            ({"source": "shop"}, [0, 1, 2]),
            ({"since": unread.delivery_id}, [0, 1]),
            ({"since": refused.delivery_id, "before": refused.delivery_id}, []),
            ({"kind": "payment.pending"}, [2]),
            ({"kind": "payment.declined"}, []),
            ({"order": "A"}, [2]),
            ({"order": "B"}, []),
            ({"order": "A", "verdict": "duplicate"}, []),
            ({"no_order": True}, []),
        ):
            asked: Any = dict(words)
            names = {"limit", "before", "since"} & asked.keys()
            bounds = {name: asked.pop(name) for name in names}
            listed = await list_log(connection, LogFilter(**asked), **{"limit": 9, **bounds})
            assert listed == [entries[n] for n in found], words


async def test_an_entry_has_the_money_of_its_event_and_the_log_is_read_on_by_count(
    inbox: Inbox,
) -> None:
    """A redelivery has it, too. The delivery so many before another is found by its id."""
    money = Money(minor=150_000, currency="KES")
    paid = said("e1", "succeeded", money=money, payment="p1")
    came = [arrival(paid), arrival(paid, at=1), arrival(said("e2"), at=2)]
    await keep(inbox, *came)
    ids = [each.delivery_id for each in came]
    async with inbox.database.reading() as connection:
        listed = await list_log(connection, LogFilter(no_order=True), limit=9)
        found = [(each.delivery_id, each.money, each.order, each.claim) for each in listed]
        assert found == [
            (ids[2], None, None, "pending"), (ids[1], money, None, "succeeded"),
            (ids[0], money, None, "succeeded"),
        ]  # fmt: skip
        for before, count, delivery in (
            (None, 1, ids[2]), (None, 3, ids[0]), (None, 4, None), (ids[2], 2, ids[0]),
            (ids[1], 1, ids[0]), (ids[0], 1, None),
        ):  # fmt: skip
            assert await delivery_before(connection, before, count=count) == delivery


@pytest.mark.parametrize(
    ("words", "no_index"),
    [
        ({}, False),
        ({"kind": "paid"}, True),
        ({"no_order": True}, True),
        ({"order": "A", "kind": "paid"}, False),
        ({"source": "shop", "verdict": "stored"}, False),
    ],
)
def test_events_are_read_one_by_one_if_no_index_covers_a_filter(
    words: dict[str, Any], no_index: bool
) -> None:
    assert LogFilter(**words).has_no_index is no_index


async def test_refused_arrivals_that_name_something(inbox: Inbox) -> None:
    """Be it at the beginning of their bodies; of the latest ones, up to a limit, newest first."""
    refused = [rejection(body=body) for body in (b"ORD-1", b"x ORD-2 y", b"nothing", b'"ORD-1"')]
    await keep(inbox, *refused)
    names = [each.delivery_id for each in refused]
    async with inbox.database.reading() as connection:
        for words, looked_at, limit, found in (
            (["ORD-1"], 9, 9, [3, 0]),
            (["ORD-1", "ORD-2"], 9, 9, [3, 1, 0]),
            (["ORD-1"], 9, 1, [3]),
            (["ORD-1"], 3, 9, [3]),
            (["ORD-3"], 9, 9, []),
        ):
            shown = await refused_naming(connection, words, looked_at=looked_at, limit=limit)
            assert [each.delivery_id for each in shown] == [names[n] for n in found]
        (first,) = await refused_naming(connection, ["nothing"], looked_at=9, limit=9)
        assert (first.problem, first.headers, first.event_id) == ("not genuine", "a: b", None)


async def test_bodies_as_they_are_read_again(inbox: Inbox) -> None:
    """A repeat has none of its own; one of several has the whole beside it, and its event where
    that is gone."""
    event = said("e1", order="A")
    one, again, unread = arrival(event), arrival(event, at=1), arrival(None, at=2)
    part = arrival(said("e2", order="B"), at=3, whole=Envelope("f" * 64, b"[1,2]"))
    nameless = arrival(said("e3"), at=4)
    await keep(inbox, one, again, unread, part, nameless)
    raw = RawDelivery(
        delivery_id=one.delivery_id,
        received_at=seconds(0),
        source="shop",
        verdict="stored",
        event_id="e1",
        digest=one.digest,
        headers="webhook-id: x",
        body=one.body,
        whole=None,
        pruned_at=None,
        kept=None,
    )
    async with inbox.database.reading() as connection:
        assert await raw_delivery(connection, one.delivery_id) == raw
        assert await raw_delivery(connection, again.delivery_id) is None
        assert await raw_delivery(connection, "dlv_none") is None
        pages = [page async for page in raw_deliveries(connection, at_once=1)]
        several = await raw_delivery(connection, part.delivery_id)
    assert [each.delivery_id for page in pages for each in page] == [
        each.delivery_id for each in (one, unread, part, nameless)
    ]
    assert several is not None
    assert (several.whole, several.lone, several.kept) == (b"[1,2]", False, None)
    async with inbox.database.writing() as connection:
        await connection.exec_driver_sql("UPDATE envelopes SET body = NULL")
        await connection.exec_driver_sql(
            "UPDATE deliveries SET body = NULL, pruned_at = 9 "
            f"WHERE id IN ('{one.delivery_id}', '{nameless.delivery_id}')"
        )
    async with inbox.database.reading() as connection:
        several = await raw_delivery(connection, part.delivery_id)
        pruned = await raw_delivery(connection, one.delivery_id)
        of_none = await raw_delivery(connection, nameless.delivery_id)
    assert several is not None
    assert pruned is not None
    assert (several.whole, several.lone, several.kept) == (None, True, part.event)
    assert of_none is not None
    assert of_none.kept == nameless.event
    assert (pruned.body, pruned.pruned_at, pruned.kept, pruned.lone) == (None, 9, event, False)


async def test_what_comes_by_id_is_put_in_the_order_of_arrival() -> None:
    """Within a millisecond an id says nothing; the last one of a part waits for the next part."""
    ms = int(MILLISECOND)
    given = [
        [("a", 5 * ms + 2), ("b", 5 * ms + 1)],
        [("c", 5 * ms), ("d", 6 * ms + 9), ("e", 6 * ms + 8)],
        [("f", 7 * ms - 1), ("g", 7 * ms)],
    ]

    async def parts() -> AsyncIterator[Any]:
        for part in given:
            yield part

    found = [[row[0] for row in part] async for part in _by_arrival(parts())]
    assert found == [["c", "b", "a"], ["e", "d", "f"], ["g"]]


# --- counts ---------------------------------------------------------------------------------------


async def test_what_came_in_each_minute(inbox: Inbox) -> None:
    """Taken and refused apart, of all sources; those of names that no source has are one. What was
    counted long ago goes with what comes."""
    minute = int(T) // MINUTE
    unknown = replace(rejection(), verdict="source_unknown", source="made up")
    old = replace(rejection(), received_at=Instant(T - ARRIVALS_KEPT * MINUTE))
    edge = replace(rejection(), received_at=Instant(T - (ARRIVALS_KEPT - 1) * MINUTE))
    await keep(inbox, old, edge)
    async with inbox.database.reading() as connection:
        assert len(await arrivals_since(connection, 0)) == 2
    known = arrival(said("e1", order="A"), at=60)
    other = arrival(said("e2", order="A"))._replace(source="other")
    await keep(inbox, known, other, rejection(), rejection(), unknown)
    async with inbox.database.reading() as connection:
        found = await arrivals_since(connection, minute - ARRIVALS_KEPT)
        assert found == {minute - ARRIVALS_KEPT + 1: (0, 1), minute: (1, 3), minute + 1: (1, 0)}
        assert await arrivals_since(connection, minute + 1) == {minute + 1: (1, 0)}
        assert await last_arrivals(connection, "shop") == (minute + 1, minute)
        assert await last_arrivals(connection, "other") == (minute, None)
        assert await last_arrivals(connection, "") == (None, minute)
        assert await last_arrivals(connection, "made up") == (None, None)


async def test_counts_of_long_ago_go_by_what_came_last(inbox: Inbox) -> None:
    """Not by what is oldest in a transaction."""
    early = replace(rejection(), received_at=Instant(T - 10 * MINUTE))
    gone = replace(rejection(), received_at=Instant(T - (ARRIVALS_KEPT + 5) * MINUTE))
    await keep(inbox, gone)
    await keep(inbox, early, rejection())
    async with inbox.database.reading() as connection:
        first = min(await arrivals_since(connection, 0))
    assert first == int(T) // MINUTE - 10
    async with inbox.database.writing() as connection:
        await run(connection, count_arrivals, [], [])


async def test_what_was_read_by_source_and_verdict(inbox: Inbox) -> None:
    """Redelivered and unreadable ones, too; a source's name may have blanks."""
    event = said("e1", order="A")
    await keep(inbox, arrival(event), arrival(event), arrival(None, source="a b"))
    await keep(inbox, arrival(event))
    async with inbox.database.reading() as connection:
        assert await run(connection, read_counts) == {
            ("shop", "stored"): 1,
            ("shop", "duplicate"): 2,
            ("a b", "unreadable"): 1,
        }


async def test_both_locks_are_taken_before_any_row_of_the_ring(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this order everywhere, else two could wait for each other."""
    locks: list[str] = []
    names = {LINKING: "linking", REFUSING: "refusing"}
    monkeypatch.setattr(append_store, "take_lock", lambda _, lock: locks.append(names[lock]))
    ring = RejectionRing(max_count=9, max_bytes=10**6)
    one = arrival(said("e1", order="A"))
    for ready, taken in (
        (Ready(None, [one]), ["linking"]),
        (Ready(None, [], [rejection()]), ["linking", "refusing"]),
        (Ready(None, []), []),
    ):
        locks.clear()
        async with inbox.database.writing() as connection:
            await run(connection, append_ready, [ready], memory=LinkMemory(), ring=ring)
        assert locks == taken


async def test_a_delivery_is_appended_once_by_its_id(inbox: Inbox) -> None:
    """Within a transaction, too."""
    one = arrival(said("e1", order="A"))
    found = await inbox.append([Ready(None, [one, one])])
    assert [verdict for _, verdict in found] == ["stored"]
    assert await inbox.append([Ready(None, [one])]) == []
    assert await rows(inbox, "SELECT count(*) FROM deliveries") == [(1,)]


async def test_a_suspect_that_is_stored_already_is_unread_no_more(inbox: Inbox) -> None:
    """Its order is due again as of when it came."""
    one = arrival(said("e1", order="A"))
    await keep(inbox, one)
    await change(inbox, "UPDATE order_due SET due_at = NULL")
    async with inbox.database.writing() as connection:
        noted = UnreadMessage("A", one.delivery_id, one.source, one.received_at)
        await run(connection, keep_unread, [noted])
        await run(
            connection,
            insert_rows,
            table="suspects",
            columns=("received_at", "tries", "aside", "orders", "record"),
            rows=[(one.received_at, 0, 0, "", b"")],
        )
        (alone,) = await run(connection, next_suspects, aside=False, limit=9)
    assert await inbox.append([Ready(alone, [one])]) == []
    assert await rows(inbox, "SELECT count(*) FROM suspects") == [(0,)]
    assert await rows(inbox, "SELECT count(*) FROM unread_values") == [(0,)]
    assert await rows(inbox, "SELECT order_key, due_at FROM order_due") == [("A", one.received_at)]


# --- due marks ------------------------------------------------------------------------------------


async def test_what_is_said_of_an_order_sets_it_due(inbox: Inbox) -> None:
    """Since the first of it; each adds to its generation. What is nameless and has no order sets
    none."""
    await keep(
        inbox,
        arrival(said("e1", order="B"), at=5),
        arrival(said("e2", order="B"), at=3),
        arrival(said("e3", order="A"), at=4),
        arrival(said("e4", payment="p"), at=1),
    )
    async with inbox.database.reading() as connection:
        marks = {each.order: each for each in await marks_of(connection, ["A", "B", "C"])}
        assert {name: (each.due_at, each.generation) for name, each in marks.items()} == {
            "A": (seconds(4), 1),
            "B": (seconds(3), 1),
        }
        assert await run(connection, next_due) == seconds(3)
        for now, limit, due in ((2, 9, []), (3, 9, ["B"]), (4, 9, ["B", "A"]), (9, 1, ["B"])):
            found = await run(connection, due_orders, now=seconds(now), limit=limit)
            assert [each.order for each in found] == due
    await keep(inbox, arrival(said("e5", order="A", payment="p"), at=9))
    async with inbox.database.reading() as connection:
        (mark,) = await marks_of(connection, ["A"])
        assert (mark.due_at, mark.generation) == (seconds(4), 2)
    adopted = await rows(inbox, "SELECT order_key FROM events WHERE event_id = 'e4'")
    assert adopted == [("A",)]


async def test_an_order_that_changes_through_a_link_alone_is_due_with_it(inbox: Inbox) -> None:
    """At the latest moment of the transaction: nothing of its own came."""
    await keep(inbox, arrival(said("e1", order="A", payment="p")))
    async with inbox.database.writing() as connection:
        await connection.exec_driver_sql("DELETE FROM order_due")
    await keep(
        inbox,
        arrival(said("e2", order="B", payment="p"), at=5),
        arrival(said("e3", order="C"), at=8),
    )
    async with inbox.database.reading() as connection:
        marks = {each.order: each.due_at for each in await marks_of(connection, ["A", "B", "C"])}
    assert marks == {"A": seconds(8), "B": seconds(5), "C": seconds(8)}
    assert await rows(inbox, "SELECT order_key, other FROM contested ORDER BY 1") == [
        ("A", "B"), ("B", "A"),
    ]  # fmt: skip


# --- links ----------------------------------------------------------------------------------------


def test_as_many_links_as_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the bound all stay; beyond it the memory begins afresh."""
    memory = LinkMemory()
    many = {(str(n), "payment", "shop"): "A" for n in range(19_999)}
    memory.add(many)
    memory.add({("x", "payment", "shop"): "B"})
    assert len(memory.orders) == 20_000
    memory.add({("y", "payment", "shop"): "C"})
    assert memory.orders == {("y", "payment", "shop"): "C"}
    memory.forget()
    assert memory.orders == {}


@pytest.mark.parametrize(
    ("one", "other", "contested"),
    [
        ("A", "B", {("A", "B"), ("B", "A")}),
        ("A", "A", set()),
        (None, "B", set()),
        ("A", None, set()),
    ],
)
def test_two_orders_that_share_something(
    one: str | None, other: str | None, contested: set[tuple[str, str]]
) -> None:
    """Each sees the other; one that is not known is none."""
    linking = Linking(LinkMemory())
    linking.contest(one, other)
    assert linking.contested == contested


async def test_where_many_rows_are_written_at_once_orphans_are_adopted_in_one_statement() -> None:
    """PostgreSQL's form: their rows, and their orders beside them."""
    asked: list[Any] = []

    class Server:
        dialect = "postgresql"
        spread = False

        def ask(self, sql: str, values: Any = ()) -> list[Any]:
            asked.append((sql, values))
            return []

    linking = Linking(LinkMemory(), adopted={7: "A", 9: "B"})
    linking._write_adopted(Server())
    ((sql, values),) = asked
    assert sql.startswith("UPDATE events SET order_key=adopted.order_key")
    assert values == ([7, 9], ["A", "B"])


def test_a_request_is_a_post_of_no_address_unless_it_says_otherwise() -> None:
    assert Incoming([], b"") == Incoming([], b"", "POST", "", "", "")
