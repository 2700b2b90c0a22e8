"""Contract of every database for arrivals: verdicts, rows, values at their limits."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import text

from app.database import statements
from app.database.faults import driver_errors
from app.database.mapping import EVENT_COLUMNS
from app.receiving.delivery_log_store import LogFilter, find_in_log, list_log
from app.receiving.inbox import Inbox
from app.receiving.source_state_store import (
    REFUSALS_KEPT,
    SourceArrivals,
    arrivals_by_source,
    refused_in,
)
from app.receiving.unread_store import (
    NO_VALUE,
    UnreadMessage,
    any_unread,
    forget_unread,
    messages_with,
)
from reconcile.instants import HOUR, Instant
from reconcile.ledger.events import Part, State
from reconcile.money import Money
from tests.database.builders import (
    arrival,
    events_in,
    fetch,
    histories,
    keep,
    rejection,
    rows,
    said,
)
from tests.reconcile.build import T, seconds

KES = Money(minor=325_000, currency="KES")

CASES = [
    ("one", [["a"]], [["stored"]]),
    ("twice in one batch", [["a", "a"]], [["stored", "duplicate"]]),
    ("twice in two batches", [["a"], ["a"]], [["stored"], ["duplicate"]]),
    ("another body in one batch", [["a", "A"]], [["stored", "duplicate_with_different_body"]]),
    ("another body later", [["a"], ["A"]], [["stored"], ["duplicate_with_different_body"]]),
    (
        "both bodies again",
        [["a", "A"], ["A", "a"]],
        [["stored", "duplicate_with_different_body"], ["duplicate", "duplicate"]],
    ),
    ("no event", [["-", "-"], ["-"]], [["unreadable", "unreadable"], ["unreadable"]]),
    ("an id of another source", [["a"], ["b"]], [["stored"], ["stored"]]),
]

EVENTS: dict[str, Any] = {
    "a": said("evt_1", order="ORD-1"),
    "A": said("evt_1", order="ORD-1", payment="pay_9"),
    "b": said("evt_1", order="ORD-1", source="other"),
    "-": None,
}

MARKED = "SELECT order_key, generation FROM order_due"

MARKS: dict[str, Any] = {"table": "order_due", "columns": ("order_key", "due_at", "generation")}


class VerdictContract:
    """Verdicts and rows of arrivals. A subclass gives `url`."""

    @pytest.mark.alike
    @pytest.mark.parametrize(
        ("batches", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
    )
    async def test_each_arrival_is_judged_against_all_before_it(
        self, inbox: Inbox, batches: list[list[str]], expected: list[list[str]]
    ) -> None:
        found = [await keep(inbox, *(arrival(EVENTS[name]) for name in b)) for b in batches]
        assert found == expected

    @pytest.mark.alike
    async def test_every_arrival_is_kept_and_one_body_of_each(self, inbox: Inbox) -> None:
        arrivals = [arrival(EVENTS[name]) for name in ("a", "a", "A", "-")]
        await keep(inbox, *arrivals)
        await keep(inbox, arrival(EVENTS["a"]))
        kept = await rows(inbox, "SELECT verdict, body, size FROM deliveries ORDER BY id")
        assert kept == [
            ("stored", arrivals[0].body, len(arrivals[0].body)),
            ("duplicate", None, len(arrivals[0].body)),
            ("duplicate_with_different_body", arrivals[2].body, len(arrivals[2].body)),
            ("unreadable", arrivals[3].body, len(arrivals[3].body)),
            ("duplicate", None, len(arrivals[0].body)),
        ]

    async def test_refusals_of_a_source_count_until_it_has_an_accepted_delivery(
        self, inbox: Inbox
    ) -> None:
        """By verdict and hour, also those that the same transaction brings before or after it."""

        def refused(at: int, verdict: str = "signature_mismatch", source: str = "shop") -> Any:
            received = seconds(at)
            return replace(rejection(), received_at=received, verdict=verdict, source=source)

        async def state(source: str = "shop") -> SourceArrivals:
            sources: Any = {name: SimpleNamespace(unsigned=name == "other") for name in known}
            found = await inbox.database.on_snapshot(arrivals_by_source, sources)
            return found[source]

        known = ("shop", "other")
        assert await state() == SourceArrivals()
        for source in known:  # what nobody signs can be of any length
            await keep(inbox, refused(5, "body_too_large", source))
        assert await state("other") == SourceArrivals()
        assert (await state()).refused_by_verdict == {"body_too_large": 1}
        await keep(inbox, arrival(None, at=6))
        await keep(inbox, refused(7_210), refused(10), refused(20, "timestamp_too_old"))
        await keep(inbox, refused(1, "source_unknown", "made up"), refused(9, source="other"))
        assert await state() == SourceArrivals(
            last_accepted_at=seconds(6),
            refusing_since=seconds(10),
            refused_since_then=3,
            refused_by_verdict={"signature_mismatch": 2, "timestamp_too_old": 1},
        )
        await keep(inbox, refused(7_290), refused(7_310), refused(7_305), arrival(None, at=7_300))
        assert await state() == SourceArrivals(
            last_accepted_at=seconds(7_300),
            refusing_since=seconds(7_305),
            refused_since_then=2,
            refused_by_verdict={"signature_mismatch": 2},
        )
        await keep(inbox, arrival(EVENTS["a"], at=7_400), arrival(EVENTS["a"], at=7_395))
        await keep(inbox, arrival(EVENTS["a"], at=7_390))
        read_at = seconds(7_400)
        assert await state() == SourceArrivals(last_accepted_at=read_at, last_read_at=read_at)
        await keep(inbox, refused(7_500))
        assert (await state()).refusing_since == seconds(7_500)
        assert (await state("other")).refused_since_then == 1
        window = {"since": seconds(7_200), "until": seconds(7_600)}
        count = await inbox.database.on_snapshot(refused_in, ["shop", "none"], **window)
        assert count == 5

    async def test_a_message_that_cannot_be_read_is_found_by_its_values_until_it_is_forgotten(
        self, inbox: Inbox
    ) -> None:
        """The orders that it names, by themselves or by a payment of its source, become due."""

        async def marks() -> dict[str, int]:
            return dict(await rows(inbox, MARKED))

        await keep(inbox, arrival(said("e1", order="A")), arrival(said("e2", order="@shop:7")))
        await keep(inbox, arrival(said("e3", order="B", payment="p_1")))
        await keep(inbox, arrival(said("e4", order="C", payment="p_2", source="other")))
        before = await marks()
        values = frozenset({"A", "p_1", "p_2", "7", NO_VALUE})
        message = arrival(None, values=values, at=9)
        await keep(inbox, message)
        due = {order for order, generation in (await marks()).items() if generation > before[order]}
        assert due == {"A", "B", "@shop:7"}
        found = await inbox.database.on_snapshot(messages_with, ["A", "none"])
        assert found == [UnreadMessage("A", message.delivery_id, "shop", seconds(9))]
        assert await inbox.database.writer.commit(forget_unread, [message.delivery_id]) == due
        assert not await inbox.database.on_snapshot(any_unread)

    async def test_refusals_are_counted_for_ninety_days(self, inbox: Inbox) -> None:
        long_ago = Instant(T - (REFUSALS_KEPT + 1) * HOUR)
        await keep(inbox, replace(rejection(), received_at=long_ago))
        await keep(inbox, rejection())
        assert await rows(inbox, "SELECT sum(count) FROM refusals") == [(1,)]

    @pytest.mark.alike
    async def test_history_counts_redeliveries(self, inbox: Inbox) -> None:
        await keep(inbox, arrival(EVENTS["a"], at=1), arrival(EVENTS["a"], at=2))
        await keep(inbox, arrival(EVENTS["A"], at=3), arrival(EVENTS["a"], at=4))
        await keep(inbox, arrival(EVENTS["A"], at=5))
        history = (await histories(inbox, ["ORD-1"]))["ORD-1"]
        arrived = sorted((d.received_at, d.event) for d in history.deliveries)
        assert arrived == [
            (seconds(1), EVENTS["a"]),
            (seconds(2), EVENTS["a"]),
            (seconds(3), EVENTS["A"]),
            (seconds(4), EVENTS["a"]),
            (seconds(5), EVENTS["A"]),
        ]

    @pytest.mark.parametrize("minor", [0, 1, -1, 2**63 - 1, -(2**63)])
    async def test_money_comes_back_exactly(self, inbox: Inbox, minor: int) -> None:
        money, due = Money(minor=minor, currency="KES"), Money(minor=-minor - 1, currency="JPY")
        event = said("evt_1", "succeeded", order="ORD-1", money=money, order_money=due)
        await keep(inbox, arrival(event))
        (delivery,) = (await histories(inbox, ["ORD-1"]))["ORD-1"].deliveries
        assert delivery.event == event

    async def test_every_field_of_an_event_comes_back(self, inbox: Inbox) -> None:
        full = said(
            "evt_1", "refunded", order="Ü/ñ 注文", session="cs 'x'", payment='p"y', movement="re",
            reason="𝔷", money=Money(minor=1, currency="KES"), occurred_at=seconds(-5),
            unclear="amount", method="sepa_debit", expected_by=seconds(9), revocable_days=56,
            shop="ours", suggested="ORD-7", agreement="sub_1", standalone=True,
            parts=(Part(kind="tip", money=Money(minor=1, currency="KES")),), stated_at=seconds(2),
            states=(State(member="refund", word="undone", reference="re", at=seconds(3),
                          money=Money(minor=1, currency="KES")),),
        )  # fmt: skip
        empty = said("evt_2", "unrecognized", order="Ü/ñ 注文", occurred_at=None)
        await keep(inbox, arrival(full), arrival(empty))
        history = (await histories(inbox, ["Ü/ñ 注文"]))["Ü/ñ 注文"]
        assert {delivery.event for delivery in history.deliveries} == {full, empty}

    @pytest.mark.parametrize("limit", [1, 33, 34, 40])
    async def test_a_batch_of_several_statements_loses_no_row(
        self, inbox: Inbox, monkeypatch: pytest.MonkeyPatch, limit: int
    ) -> None:
        monkeypatch.setattr(statements, "MAX_PARAMETERS", max(limit, len(EVENT_COLUMNS)))
        orders = [f"ORD-{n}" for n in range(50)]
        events = [said(f"evt_{n}", order=order, payment=f"p{n}") for n, order in enumerate(orders)]
        known = said("known", order="ORD-0")
        await keep(inbox, arrival(known))
        for verdict in ("stored", "duplicate"):
            verdicts = await keep(inbox, arrival(known), *map(arrival, events))
            assert verdicts == ["duplicate", *[verdict] * 50]
        found = await histories(inbox, orders)
        assert [len(found[order].deliveries) for order in orders] == [5, *[2] * 49]

    @pytest.mark.parametrize("width", [1, 3, 18, 19])
    def test_no_statement_has_more_parameters_than_sqlite_allows(self, width: int) -> None:
        columns = tuple(f"c{number}" for number in range(width))
        rows = [(number,) * width for number in range(70_000 // width)]
        sizes: list[int] = []

        class Counting:
            dialect = "sqlite"
            spread = False

            def ask(self, _sql: str, values: Sequence[Any] = ()) -> statements.Rows:
                sizes.append(len(values))
                return []

        statements.insert_rows(Counting(), table="t", columns=columns, rows=rows)
        assert sum(sizes) == len(rows) * width
        assert max(sizes) <= statements.MAX_PARAMETERS

    def test_few_statements_stay_prepared(self) -> None:
        """Whatever the sizes of batches. Statements of every size would fill hundreds of
        megabytes."""
        inserted, asked = dict[str, int](), dict[str, int]()
        seen: list[Any] = []

        class Preparing:
            dialect = "sqlite"
            spread = False

            def ask(self, sql: str, values: Sequence[Any] = ()) -> statements.Rows:
                (inserted if sql.startswith("INSERT") else asked)[sql] = len(values)
                seen.extend(values)
                return []

        for count in range(1, 700):
            seen.clear()
            rows = [(number, 0) for number in range(count)]
            statements.insert_rows(Preparing(), table="t", columns=("a", "b"), rows=rows)
            assert seen[::2] == list(range(count))
            seen.clear()
            statements.select_rows(Preparing(), sql="SELECT a IN ({})", values=range(count))
            assert set(seen) == set(range(count))
        assert len(inserted) <= 10
        assert len(asked) <= 11

    async def test_the_database_takes_statements_up_to_our_limit(self, inbox: Inbox) -> None:
        count = 2 * statements.MAX_PARAMETERS // 3 + 7
        marks = [(f"ORD-{n}", n, 1) for n in range(count)]
        async with inbox.database.writing() as connection:
            await statements.run(connection, statements.insert_rows, rows=marks, **MARKS)
        found = await fetch(
            inbox,
            statements.select_in,
            sql="SELECT order_key, due_at, generation FROM order_due WHERE order_key IN ({})",
            values=[f"ORD-{n}" for n in range(statements.MAX_PARAMETERS + 10)],
        )
        assert sorted(found) == sorted(marks)

    async def test_a_refused_row_leaves_nothing_of_its_transaction(self, inbox: Inbox) -> None:
        for at, keys in enumerate((["a"], ["b", "c", "b"], ["d"])):
            with nullcontext() if at != 1 else pytest.raises(driver_errors()):
                async with inbox.database.writing() as connection:
                    await connection.execute(
                        text("UPDATE order_due SET generation=:at"), {"at": at}
                    )
                    rows = [(key, at, at) for key in keys]
                    await statements.run(connection, statements.insert_rows, rows=rows, **MARKS)
        async with inbox.database.reading() as connection:
            found = await connection.execute(text("SELECT order_key, generation FROM order_due"))
            assert sorted(map(tuple, found)) == [("a", 2), ("d", 2)]

    async def test_the_delivery_log_lists_both_kinds_newest_first(self, inbox: Inbox) -> None:
        first, refused, last = arrival(EVENTS["a"]), rejection(), arrival(None)
        for item in (first, refused, last):
            await keep(inbox, item)
        async with inbox.database.reading() as connection:
            entries = await list_log(connection, LogFilter(), limit=10)
            assert [e.delivery_id for e in entries] == [
                last.delivery_id,
                refused.delivery_id,
                first.delivery_id,
            ]
            assert len(await list_log(connection, LogFilter(), limit=2)) == 2
            mismatch = LogFilter(verdict="signature_mismatch")
            (entry,) = await list_log(connection, mismatch, limit=10)
            assert (entry.problem, entry.event_id) == ("not genuine", None)
            found = await find_in_log(connection, first.delivery_id)
            assert found is not None
            assert (found.verdict, found.event_id) == ("stored", "evt_1")
            assert await find_in_log(connection, "dlv_none") is None

    async def test_the_delivery_log_is_filtered_by_what_its_events_say(self, inbox: Inbox) -> None:
        """Redeliveries are among them; refused and unreadable deliveries have no event."""
        paid, nameless = EVENTS["a"], said("evt_9", "succeeded", payment="pay_9", money=KES)
        other = said("evt_8", "declined", order="ORD-8", source="other")
        came = [arrival(paid), arrival(nameless), arrival(other), arrival(nameless), arrival(paid)]
        await keep(inbox, *came, arrival(None), rejection())
        for words, found in (
            ({"order": "ORD-1"}, [4, 0]),
            ({"order": "ORD-1", "verdict": "duplicate"}, [4]),
            ({"order": "ORD-1", "no_order": True}, []),
            ({"order": "ORD-2"}, []),
            ({"no_order": True}, [3, 1]),
            ({"no_order": True, "verdict": "stored"}, [1]),
            ({"no_order": True, "source": "other"}, []),
            ({"no_order": True, "kind": "payment.pending"}, []),
            ({"kind": "payment.declined"}, [2]),
            ({"kind": "payment.declined", "order": "ORD-8", "source": "other"}, [2]),
            ({"kind": "payment.declined", "verdict": "signature_mismatch"}, []),
            ({"kind": "payment"}, []),
        ):
            asked: Any = words
            async with inbox.database.reading() as connection:
                entries = await list_log(connection, LogFilter(**asked), limit=9)
                one_less = await list_log(connection, LogFilter(**asked), limit=1)
            assert [each.delivery_id for each in entries] == [came[n].delivery_id for n in found], (
                words
            )
            assert one_less == entries[:1], words
        async with inbox.database.reading() as connection:
            nothing, unread, *_, unplaced, first = await list_log(connection, LogFilter(), limit=9)
            alone = await find_in_log(connection, unplaced.delivery_id)
        assert {(each.kind, each.claim, each.order, each.money) for each in (nothing, unread)} == {
            (None, None, None, None)
        }
        assert (first.kind, first.order, first.money) == (paid.kind, "ORD-1", paid.money)
        seen = (unplaced.kind, unplaced.claim, unplaced.order, unplaced.money)
        assert seen == ("payment.succeeded", "succeeded", None, KES)
        assert alone == unplaced

    @pytest.mark.alike
    async def test_events_without_an_order_are_in_no_history(self, inbox: Inbox) -> None:
        await keep(inbox, arrival(said("evt_1", payment="pay_1")), arrival(EVENTS["b"]))
        found = await histories(inbox, ["ORD-1", ""])
        assert events_in(found["ORD-1"]) == {EVENTS["b"].key}
        assert not found[""].deliveries
