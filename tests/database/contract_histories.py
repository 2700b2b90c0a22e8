"""Contract of every database for histories: the same for every order of arrival."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.finance.reconcile_rows import refresh_ledger_lines
from app.orders.record_store import add_records, order_records
from app.orders.refold import refold_until_quiet
from app.privacy import check
from app.privacy.check import SAMPLE, check_database
from app.receiving.append_store import Arrival
from app.receiving.inbox import Inbox
from reconcile.ledger.events import Event
from reconcile.ledger.fold import fold
from reconcile.ledger.history import History
from reconcile.ledger.ledger import Ledger
from reconcile.ledger.records import Record
from reconcile.money import Money
from tests.contexts import with_sources
from tests.database.builders import (
    SOURCES,
    all_histories,
    arrival,
    checked,
    commit,
    context,
    events_in,
    fetch,
    histories,
    keep,
    of_the_builders,
    quiet,
    reference_named,
    rows,
    said,
    session_opened,
)
from tests.database.history_tables import TABLES
from tests.reconcile.build import POLICY, seconds
from tests.searching import every, examples

Part = Event | Record
Content = tuple[set[tuple[str, str, str]], set[str]]
Arrivals = tuple[list[Part], frozenset[int]]
_tags = iter(range(10**9))


async def deliver(
    inbox: Inbox, parts: Sequence[Part], *, cuts: frozenset[int] = frozenset()
) -> None:
    """Keep the parts one after another; events up to a cut share a transaction."""
    waiting: list[Arrival] = []
    for place, part in enumerate(parts):
        if isinstance(part, Record):
            await keep(inbox, *waiting)
            waiting = []
            await commit(inbox, add_records, [part])
        else:
            waiting.append(arrival(part))
            if place in cuts:
                await keep(inbox, *waiting)
                waiting = []
    await keep(inbox, *waiting)


OF_ONE_STORE = [HealthCheck.function_scoped_fixture]


class HistoryContract:
    """Gathering and scanning histories. A subclass gives `url`."""

    arrival_orders = 12 // every(3)
    """Arrival orders tried of one case, at most. Each is delivered in three kinds of batches."""

    @pytest.mark.alike
    @pytest.mark.parametrize("name", TABLES)
    async def test_any_arrival_order_gives_the_history(self, inbox: Inbox, name: str) -> None:
        parts, expected = TABLES[name]
        orders = list(permutations(parts))
        chance = random.Random(name)
        for order in chance.sample(orders, min(self.arrival_orders, len(orders))):
            some = frozenset(chance.sample(range(len(parts)), 1))
            for cuts in (frozenset(), some, frozenset(range(len(parts)))):
                tag = f"{next(_tags)}-"
                tagged_parts = {key: tagged(part, tag) for key, part in parts.items()}
                await deliver(inbox, [tagged_parts[key] for key in order], cuts=cuts)
                found = await histories(inbox, [tag + o for o in expected])
                for reference, words in expected.items():
                    wanted = content_of(tagged_parts[word] for word in words.split())
                    assert content(found)[tag + reference] == wanted, (order, cuts, reference)

    @given(orders=st.deferred(lambda: TWO_ORDERS))
    @settings(max_examples=examples(30), suppress_health_check=OF_ONE_STORE)
    @pytest.mark.alike
    async def test_random_evidence_in_two_orders_gives_equal_histories(
        self, inbox: Inbox, orders: list[Arrivals]
    ) -> None:
        found = []
        for parts, cuts in orders:
            tag = f"{next(_tags)}-"
            await deliver(inbox, [tagged(part, tag) for part in parts], cuts=cuts)
            gathered = content(await histories(inbox, [tag + order for order in "ABC"]))
            found.append(without(tag, gathered))
        assert found[0] == found[1]

    @given(parts=st.deferred(lambda: PARTS))
    @settings(max_examples=examples(15), suppress_health_check=OF_ONE_STORE)
    @pytest.mark.alike
    async def test_scan_finds_what_gather_finds(self, inbox: Inbox, parts: list[Part]) -> None:
        tag = f"{next(_tags)}-"
        again = [part for part in parts[:3] if isinstance(part, Event)]
        await deliver(inbox, [tagged(part, tag) for part in [*parts, *again]])
        scanned = await fetch(inbox, all_histories)
        assert scanned == await histories(inbox, scanned)
        assert {tag + part.order for part in parts if part.order is not None} <= scanned.keys()

    @pytest.mark.parametrize(
        ("parts", "outcomes"),
        [
            pytest.param(
                [
                    said("e0", "succeeded", order=None, session="s", payment="p"),
                    said("e1", "pending", order=None, session=None, payment="p"),
                    session_opened("A", "s"),
                    reference_named("B", payment="p"),
                ],
                ["unresolved", "unresolved"],
                id="two orders",
            ),
            pytest.param(
                [
                    said("e0", "succeeded", order=None, session=None, payment="p"),
                    said("e1", "pending", order="A", session="s", payment="p"),
                    session_opened("B", "s"),
                ],
                ["not_attempted", "succeeded"],
                id="one order",
            ),
        ],
    )
    @pytest.mark.alike
    async def test_a_naming_covers_what_events_tie_to_its_reference(
        self, inbox: Inbox, parts: list[Part], outcomes: list[str]
    ) -> None:
        """Its own order and the one that events name conclude the same."""
        await deliver(inbox, [_paying(part) for part in parts])
        found = await histories(inbox, ["A", "B"])
        ledgers = [fold(_priced(each), policy=POLICY, as_of=LONG_AFTER) for each in found.values()]
        assert [each.outcome for each in ledgers] == outcomes

    @given(parts=st.deferred(lambda: CROSSING), placed=st.sets(st.sampled_from("ABC")))
    @settings(max_examples=examples(40), suppress_health_check=OF_ONE_STORE)
    @pytest.mark.alike
    async def test_no_payment_pays_two_orders(
        self, inbox: Inbox, parts: list[Part], placed: set[str]
    ) -> None:
        tag = f"{next(_tags)}-"
        paying = [*map(_paying, parts), *(_placed(order) for order in sorted(placed))]
        await deliver(inbox, [tagged(part, tag) for part in paying])
        found = await histories(inbox, [tag + order for order in "ABC"])
        ledgers = [fold(each, policy=POLICY, as_of=LONG_AFTER) for each in found.values()]
        for key in set().union(*map(_heard_paid, ledgers)):
            sharing = [ledger for ledger in ledgers if key in _heard_paid(ledger)]
            assert len(sharing) == 1 or {each.outcome for each in sharing} == {"unresolved"}

    @pytest.mark.alike
    @pytest.mark.parametrize("at_once", [1, 2, 3, 7])
    async def test_a_scan_of_few_rows_at_a_time_splits_and_skips_no_order(
        self, inbox: Inbox, monkeypatch: pytest.MonkeyPatch, at_once: int
    ) -> None:
        monkeypatch.setattr("app.orders.history_store.ROWS_AT_ONCE", at_once)
        parts: list[Part] = [session_opened(order, f"s{order}") for order in ("A", "C", "E", "Z")]
        parts += [said(f"{o}{n}", order=o, payment=o) for o in "BCDE" for n in range(3)]
        await deliver(inbox, [*parts, *[p for p in parts if isinstance(p, Event)]])
        scanned = await fetch(inbox, all_histories)
        assert list(scanned) == list("ABCDEZ")
        assert scanned == await histories(inbox, "ABCDEZ")

    @pytest.mark.alike
    async def test_news_of_a_contested_order_reaches_the_others_ledger(self, inbox: Inbox) -> None:
        table: list[Part] = [
            said("a", order="A", payment="p"),
            said("b", order="B", payment="p"),
            session_opened("C", "s"),
            said("d", order="D", session="s"),
        ]
        await deliver(inbox, table)
        at = context(inbox, at=10)
        await refold_until_quiet(at, limit=10, progress=quiet)
        await deliver(
            inbox, [said("n", "declined", payment="p"), said("m", "expired", session="s")]
        )
        await refold_until_quiet(at, limit=10, progress=quiet)
        report = await checked(at)
        assert [problem for problem in report.problems if "ledger" in problem] == []
        assert report.orders == 4
        listed = dict(await rows(inbox, "SELECT order_key, outcome FROM ledgers"))
        assert listed == {"A": "failed", "B": "failed", "C": "expired", "D": "not_attempted"}

    @pytest.mark.alike
    async def test_records_come_back_in_the_order_of_recording(self, inbox: Inbox) -> None:
        records = [
            session_opened("A", "s", at=2, record_id="r2"),
            session_opened("A", "t", at=1, record_id="r1"),
        ]
        await commit(inbox, add_records, records, details="{}")
        assert await inbox.database.on_snapshot(order_records, "A") == records[::-1]
        assert (await histories(inbox, ["A"]))["A"].records == frozenset(records)

    @pytest.mark.alike
    @given(parts=st.deferred(lambda: PARTS))
    @settings(max_examples=6, suppress_health_check=OF_ONE_STORE)
    async def test_the_check_accepts_any_history(self, inbox: Inbox, parts: list[Part]) -> None:
        tag = f"{next(_tags)}-"
        again = [part for part in parts[:3] if isinstance(part, Event)]
        await deliver(inbox, [tagged(part, tag) for part in parts])
        at = context(inbox, at=10)
        await refresh_ledger_lines(at, progress=quiet)
        await deliver(inbox, [tagged(part, tag) for part in again])
        await refold_until_quiet(at, limit=500, progress=quiet)
        for deep, sample in ((1, SAMPLE), (None, SAMPLE), (None, 3)):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(check, "SAMPLE", sample)
                report = await check_database(with_sources(at, SOURCES), deep=deep, progress=quiet)
            assert [each for each in report.problems if not of_the_builders(each)] == []


def tagged(part: Part, tag: str) -> Part:
    """Return the part under references of its own, so that many runs share one database."""
    names = ("order", "session", "payment")
    changes = {n: tag + v for n in names if (v := getattr(part, n)) is not None}
    if isinstance(part, Event):
        return replace(part, event_id=tag + part.event_id, digest=tag + part.digest, **changes)
    return replace(part, record_id=tag + part.record_id, key=tag, **changes)


PRICE = Money(minor=1_500, currency="KES")
LONG_AFTER = seconds(10**7)


def _paying(part: Part) -> Part:
    if isinstance(part, Event) and part.claim == "succeeded":
        return replace(part, money=PRICE)
    return part


def _priced(history: History) -> History:
    placed = frozenset([_placed(history.order)])
    return history | History(order=history.order, records=placed)


def _placed(order: str) -> Record:
    return Record(
        record_id=f"placed {order}",
        recorded_at=seconds(0),
        kind="order_placed",
        order=order,
        at=seconds(0),
        money=PRICE,
    )


def _heard_paid(ledger: Ledger) -> set[tuple[str, str, str]]:
    return {h.event.key for h in ledger.case.heard if h.event.claim == "succeeded"}


def content(found: dict[str, History]) -> dict[str, Content]:
    """Return histories as sets of event keys and record ids."""
    return {
        order: (events_in(history), {record.record_id for record in history.records})
        for order, history in found.items()
    }


def content_of(parts: Iterable[Part]) -> Content:
    distinct = list(parts)
    return (
        {part.key for part in distinct if isinstance(part, Event)},
        {part.record_id for part in distinct if isinstance(part, Record)},
    )


def without(tag: str, found: dict[str, Content]) -> dict[str, Content]:
    return {
        order.removeprefix(tag): (
            {
                (source, name.removeprefix(tag), body.removeprefix(tag))
                for source, name, body in keys
            },
            {record.removeprefix(tag) for record in records},
        )
        for order, (keys, records) in found.items()
    }


_maybe = {
    "order": st.sampled_from([None, None, "A", "B", "C"]),
    "session": st.sampled_from([None, "s", "t"]),
    "payment": st.sampled_from([None, "p", "q"]),
    "source": st.sampled_from(["shop", "shop", "other"]),
}
_event = st.builds(
    said,
    st.sampled_from([f"e{n}" for n in range(6)]),
    st.sampled_from(["pending", "succeeded"]),
    **_maybe,
)
_record = st.one_of(
    st.builds(session_opened, st.sampled_from("ABC"), st.sampled_from(["s", "t"])),
    st.builds(reference_named, st.sampled_from("ABC"), payment=st.sampled_from(["p", "q"])),
    st.builds(reference_named, st.sampled_from("ABC"), session=st.sampled_from(["s", "t"])),
)
PARTS: st.SearchStrategy[list[Part]] = st.tuples(
    st.lists(_event, min_size=2, max_size=7, unique_by=lambda e: e.key),
    st.lists(_record, max_size=3, unique_by=lambda r: r.record_id),
).map(lambda both: [*both[0], *both[1]])

_crossing = st.builds(
    said,
    st.sampled_from([f"e{n}" for n in range(4)]),
    st.sampled_from(["pending", "succeeded"]),
    order=st.sampled_from([None, None, "A", "B"]),
    session=st.sampled_from([None, "s"]),
    payment=st.sampled_from([None, "p"]),
)
CROSSING: st.SearchStrategy[list[Part]] = st.tuples(
    st.lists(_crossing, min_size=1, max_size=4, unique_by=lambda e: e.key),
    st.lists(
        st.one_of(
            st.builds(session_opened, st.sampled_from("AB"), st.just("s")),
            st.builds(reference_named, st.sampled_from("AB"), payment=st.just("p")),
            st.builds(reference_named, st.sampled_from("AB"), session=st.just("s")),
        ),
        max_size=3,
    ),
).map(lambda both: [*both[0], *{record.record_id: record for record in both[1]}.values()])
"""Evidence of two orders that is likely to meet."""


def _twice(parts: list[Part]) -> st.SearchStrategy[list[Arrivals]]:
    cuts = st.frozensets(st.integers(0, len(parts)))
    telling = st.tuples(st.permutations(parts), cuts)
    return st.lists(telling, min_size=2, max_size=2)


TWO_ORDERS: st.SearchStrategy[list[Arrivals]] = PARTS.flatmap(_twice)
