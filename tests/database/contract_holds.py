"""Contract of every database for holds: orders fulfillable only by new rules wait for a person.

The old rules are a fold that calls every paid order unresolved, under the policy text's old form.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pytest

from app.context.context import AppContext
from app.core.errors import NotFoundError
from app.monitoring.watchdog import Watched, alarms
from app.orders import holds, rebuild, refold
from app.orders.hold_store import count_held
from app.orders.holds import hold_if_due, release, release_all
from app.orders.policy_version_store import note_required
from app.orders.read_orders import explain_order, list_orders
from app.orders.rebuild import refold_all
from app.orders.record_store import add_records
from app.orders.refold import TakingUp, refold_due
from app.receiving import pace
from app.receiving.inbox import Inbox
from app.receiving.refusals import RefusedAges
from reconcile.ledger.fold import fold
from reconcile.ledger.ledger import Ledger, Outcome
from reconcile.money import Money
from tests.database.builders import arrival, change, commit, context, fetch, keep, quiet, rows, said
from tests.database.contract_ledgers import folded, paid
from tests.reconcile.build import DUE, record, seconds


def of_before(history: Any, *, outcome: Outcome = "unresolved", **words: Any) -> Ledger:
    """Fold by earlier rules: a paid order has another outcome and is not fulfillable."""
    ledger = fold(history, **words)
    if not ledger.fulfillable:
        return ledger
    return replace(ledger, outcome=outcome, fulfillable=False)


@contextmanager
def rules_of_before(outcome: Outcome = "unresolved") -> Iterator[None]:
    """Fold by earlier rules."""
    old = partial(of_before, outcome=outcome)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("reconcile.ledger.policy.FORM", 1)
        patch.setattr(refold, "fold", old)
        patch.setattr(holds, "fold", old)
        yield


async def before_the_upgrade(inbox: Inbox, *orders: str, at: int = 9) -> None:
    """Publish paid orders by earlier rules."""
    with rules_of_before():
        await keep(inbox, *(arrival(paid(each)) for each in orders))
        await started(context(inbox, at=at))


async def started(at: AppContext) -> None:
    """Take up the rules and fold, as a worker does when it starts."""
    taking_up = TakingUp(at)
    while await taking_up.some():
        pass
    await folded(at)


async def published(inbox: Inbox) -> list[tuple[str, str, int]]:
    """Return (order, outcome, fulfillable) of each revision, in the order of the feed."""
    return await rows(inbox, "SELECT order_key, outcome, fulfillable FROM revisions ORDER BY seq")


async def hold_records(inbox: Inbox) -> list[tuple[Any, ...]]:
    """Return (order, kind, reason, author) of the records of holds."""
    return await rows(
        inbox,
        "SELECT order_key, kind, reason, author FROM records "
        "WHERE kind IN ('held', 'released') ORDER BY order_key, recorded_at",
    )


MORE: Final = Money(minor=2 * DUE.minor, currency=DUE.currency)
HELD_A = ("A", "held", "rules_changed", "service")
OF_BEFORE = ("A", "unresolved", 0)
AS_HELD = ("A", "succeeded", 0)
AS_RELEASED = ("A", "succeeded", 1)


def is_held(ledger: Ledger) -> bool:
    return not ledger.fulfillable and "held_back" in {each.code for each in ledger.findings}


class HoldContract:
    """Holds and releases. A subclass gives `url`."""

    @pytest.mark.alike
    async def test_orders_that_only_new_rules_make_fulfillable_are_held(self, inbox: Inbox) -> None:
        """They are published as paid, never as fulfillable. Further starts and a rebuild add no
        second hold."""
        await before_the_upgrade(inbox, "A")
        assert await published(inbox) == [OF_BEFORE]
        for at in (20, 30):
            await started(context(inbox, at=at))
            assert await published(inbox) == [OF_BEFORE, AS_HELD]
            assert await hold_records(inbox) == [HELD_A]
        await refold_all(context(inbox, at=40), progress=quiet)
        assert await published(inbox) == [OF_BEFORE, AS_HELD]
        assert await hold_records(inbox) == [HELD_A]
        (found,) = await list_orders(context(inbox, at=41), finding="held_back")
        assert found.order == "A"
        assert is_held(found)

    @pytest.mark.alike
    async def test_a_rebuild_holds_as_well(self, inbox: Inbox) -> None:
        await before_the_upgrade(inbox, "A", "B")
        await refold_all(context(inbox, at=20), progress=quiet)
        assert [each[2] for each in await published(inbox)] == [0, 0, 0, 0]
        assert len(await hold_records(inbox)) == 2
        await started(context(inbox, at=30))
        assert len(await published(inbox)) == 4

    @pytest.mark.alike
    async def test_evidence_after_the_upgrade_is_not_held(self, inbox: Inbox) -> None:
        half = Money(minor=DUE.minor // 2, currency=DUE.currency)
        with rules_of_before():
            await keep(
                inbox,
                arrival(said("a", order="A")),
                arrival(
                    said("b", "succeeded", order="B", payment="p1", money=half, order_money=DUE)
                ),
            )
            await started(context(inbox, at=9))
        await keep(
            inbox,
            arrival(paid("A"), at=15),
            arrival(
                said("b2", "succeeded", order="B", payment="p2", money=half, order_money=DUE), at=15
            ),
        )
        await started(context(inbox, at=20))
        assert await hold_records(inbox) == []
        assert (await published(inbox))[-2:] == [("A", "succeeded", 1), ("B", "succeeded", 1)]

    @pytest.mark.alike
    async def test_a_redelivery_does_not_make_old_knowledge_new(self, inbox: Inbox) -> None:
        await before_the_upgrade(inbox, "A")
        await keep(inbox, arrival(paid("A"), at=15))
        await started(context(inbox, at=20))
        assert await hold_records(inbox) == [HELD_A]
        assert await published(inbox) == [OF_BEFORE, AS_HELD]

    @pytest.mark.alike
    async def test_an_order_that_was_never_published_is_not_held(self, inbox: Inbox) -> None:
        await before_the_upgrade(inbox)
        await keep(inbox, arrival(paid("A")))
        await started(context(inbox, at=20))
        assert await published(inbox) == [AS_RELEASED]
        assert await hold_records(inbox) == []

    @pytest.mark.alike
    async def test_what_was_fulfillable_before_stays_fulfillable(self, inbox: Inbox) -> None:
        await keep(inbox, arrival(paid("A")))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("reconcile.ledger.policy.FORM", 1)
            await started(context(inbox, at=9))
        await started(context(inbox, at=20))
        assert await published(inbox) == [AS_RELEASED]

    @pytest.mark.alike
    async def test_evidence_that_is_read_late_is_not_held(self, inbox: Inbox) -> None:
        """An earlier arrival that is read after the fold by new rules is news: rules have not
        changed since."""
        await before_the_upgrade(inbox)
        with rules_of_before():
            await keep(inbox, arrival(said("a", order="A")))
            await started(context(inbox, at=9))
        await started(context(inbox, at=20))
        await keep(inbox, arrival(paid("A"), at=5))
        await started(context(inbox, at=30))
        assert await hold_records(inbox) == []
        assert (await published(inbox))[-1] == AS_RELEASED

    @pytest.mark.alike
    async def test_dropped_ledgers_hold_too_much_and_never_too_little(self, inbox: Inbox) -> None:
        """Without its ledger, the rules by which an order was folded are unknown."""
        await before_the_upgrade(inbox, "A")
        await change(inbox, "DELETE FROM ledgers")
        await started(context(inbox, at=20))
        assert await published(inbox) == [OF_BEFORE, AS_HELD]

    @pytest.mark.parametrize("rebuilt", [False, True])
    @pytest.mark.parametrize(
        "step",
        ["between", *(pytest.param(each, marks=pytest.mark.alike) for each in ("before", "after"))],
    )
    async def test_hold_and_publication_are_one_transaction(
        self, inbox: Inbox, monkeypatch: pytest.MonkeyPatch, step: str, rebuilt: bool
    ) -> None:
        await before_the_upgrade(inbox, "A")
        name = {"before": "hold_back", "between": "publish", "after": "publish"}[step]
        module: Any = rebuild if rebuilt and name == "publish" else refold
        sound: Callable[..., Any] = getattr(module, name)

        def broken(*arguments: Any, **words: Any) -> None:
            if step == "after":
                sound(*arguments, **words)
            raise KeyboardInterrupt

        monkeypatch.setattr(module, name, broken)
        at = context(inbox, at=20)
        with pytest.raises(KeyboardInterrupt):
            await (refold_all(at, progress=quiet) if rebuilt else started(at))
        monkeypatch.undo()
        assert await published(inbox) == [OF_BEFORE]
        assert await hold_records(inbox) == []
        assert is_held(await explain_order(context(inbox, at=21), "A"))
        await started(context(inbox, at=30 + 60))
        assert await published(inbox) == [OF_BEFORE, AS_HELD]
        assert await hold_records(inbox) == [HELD_A]

    async def test_of_several_workers_one_holds_and_publishes(self, inbox: Inbox) -> None:
        orders = "ABCDEFGH"
        await before_the_upgrade(inbox, *orders)
        workers = [context(inbox, at=20) for _ in range(3)]
        taking_up = [TakingUp(each) for each in workers]
        for _ in range(40):
            await asyncio.gather(*(each.some() for each in taking_up))
            await asyncio.gather(*(refold_due(each, limit=3) for each in workers))
        await folded(context(inbox, at=90))
        assert await hold_records(inbox) == [(each, *HELD_A[1:]) for each in orders]
        assert sorted(await published(inbox)) == sorted(
            [(each, *OF_BEFORE[1:]) for each in orders] + [(each, *AS_HELD[1:]) for each in orders]
        )

    @pytest.mark.alike
    async def test_an_order_is_read_as_held_before_the_worker_folds_it(self, inbox: Inbox) -> None:
        """As of any instant since it was published. Orders that were never published, and news, are
        read as they are."""
        await before_the_upgrade(inbox, "A")
        await keep(inbox, arrival(paid("B"), at=15))
        at = context(inbox, at=20)
        first = await explain_order(at, "A")
        assert is_held(first)
        assert first.outcome == "succeeded"
        assert is_held(await explain_order(at, "A", as_of=seconds(12)))
        assert [is_held(each) for each in await list_orders(at)] == [True]
        assert (await explain_order(at, "B")).fulfillable
        await started(at)
        assert is_held(await explain_order(context(inbox, at=21), "A"))

    @pytest.mark.alike
    async def test_a_hold_recorded_before_the_fold_is_recorded_once(self, inbox: Inbox) -> None:
        await before_the_upgrade(inbox, "A")
        at = context(inbox, at=20)
        for _ in range(2):
            await hold_if_due(at, ["A", "unheard-of"])
            assert await hold_records(inbox) == [HELD_A]
        await started(at)
        assert await published(inbox) == [OF_BEFORE, AS_HELD]
        assert await hold_records(inbox) == [HELD_A]

    @pytest.mark.alike
    async def test_a_release_publishes(self, inbox: Inbox) -> None:
        """The record says who, and the trail why. The next upgrade does not hold the order
        again."""
        await before_the_upgrade(inbox, "A", "B")
        await started(context(inbox, at=20))
        assert (
            await release(context(inbox, at=30), ["A"], reason="rules_changed", why="shipped") == 1
        )
        await folded(context(inbox, at=31))
        assert (await published(inbox))[-1] == AS_RELEASED
        assert (await explain_order(context(inbox, at=32), "A")).fulfillable
        held, released, _ = await hold_records(inbox)
        assert held == HELD_A
        assert released[:3] == ("A", "released", "rules_changed")
        assert released[3].startswith("account:")
        (entry,) = await rows(inbox, "SELECT action, subject, reason, facts FROM audit")
        assert entry == (
            "orders_released", "A", "shipped", '{"held_for":"rules_changed","orders":1}',
        )  # fmt: skip
        await refold_all(context(inbox, at=40), progress=quiet)
        assert [each[0] for each in await published(inbox)].count("A") == 3

    @pytest.mark.alike
    async def test_a_release_that_does_not_fit_releases_nothing(self, inbox: Inbox) -> None:
        await before_the_upgrade(inbox, "A")
        await started(context(inbox, at=20))
        at = context(inbox, at=30)
        with pytest.raises(NotFoundError, match=r"^C is not held \(rules_changed\)"):
            await release(at, ["A", "C"], reason="rules_changed")
        with pytest.raises(
            NotFoundError, match=r"^A is not held \(poisoned_del.*for rules_changed"
        ):
            await release(at, ["A"], reason="poisoned_delivery")
        assert await hold_records(inbox) == [HELD_A]
        assert await rows(inbox, "SELECT * FROM audit") == []
        await release(at, ["A"], reason="rules_changed")
        with pytest.raises(NotFoundError, match=r"^A, B are not held \(rules_changed\)"):
            await release(at, ["A", "B"], reason="rules_changed")

    @pytest.mark.alike
    async def test_an_order_that_reads_as_held_can_be_released(self, inbox: Inbox) -> None:
        await before_the_upgrade(inbox, "A")
        assert await release(context(inbox, at=20), ["A"], reason="rules_changed") == 1
        await started(context(inbox, at=21))
        assert [each[1] for each in await hold_records(inbox)] == ["held", "released"]
        assert await published(inbox) == [OF_BEFORE, AS_RELEASED]

    async def test_all_holds_of_a_reason_are_released_in_parts(
        self, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each part is an entry of the trail."""
        monkeypatch.setattr(holds, "MOST_RELEASED", 2)
        monkeypatch.setattr(pace, "SHORT_S", 3_600.0)
        await before_the_upgrade(inbox, *"ABCDE")
        await started(context(inbox, at=20))
        at = context(inbox, at=30)
        assert await release_all(at, reason="poisoned_delivery") == 0
        assert await release_all(at, reason="rules_changed", by="ann") == 5
        assert await release_all(at, reason="rules_changed") == 0
        await folded(context(inbox, at=31))
        assert [each[2] for each in await published(inbox)] == [0] * 10 + [1] * 5
        entries = await rows(inbox, "SELECT who, subject FROM audit ORDER BY number")
        assert entries == [("ann", "A, B"), ("ann", "C, D"), ("ann", "E")]

    async def test_held_orders_raise_an_alarm_until_they_are_released(self, inbox: Inbox) -> None:
        await before_the_upgrade(inbox, "A", "B")
        await started(context(inbox, at=20))
        at = context(inbox, at=30)
        seen = []
        for order in ("A", "B"):
            seen.append((await alarms(Watched(at, RefusedAges())))["held"].sentence)
            await release(at, [order], reason="rules_changed")
        assert [each.partition(", and")[0] for each in seen] == [
            "2 orders are held", "1 order is held",
        ]  # fmt: skip
        assert "held" not in await alarms(Watched(at, RefusedAges()))
        assert await fetch(inbox, count_held) == 0

    @pytest.mark.alike
    @pytest.mark.parametrize(
        ("changed", "held"),
        [
            ({}, True),
            ({"live": False}, False),
            ({"required": False}, False),
            ({"stranger": False}, False),
            ({"money": DUE}, False),
            ({"named": True}, False),
            ({"shop": "other"}, False),
        ],
        ids=["all of it", "sandbox", "no records required", "no orders of nobody", "the price",
             "named by the shop", "the stranger's is known as such"],
    )  # fmt: skip
    async def test_more_than_the_price_on_an_account_with_strangers_waits_for_a_person(
        self, inbox: Inbox, changed: dict[str, Any], held: bool
    ) -> None:
        case = {"live": True, "required": True, "stranger": True, "money": MORE, "named": False,
                "shop": None} | changed  # fmt: skip
        if case["live"]:
            await change(inbox, "UPDATE meta SET value='live' WHERE name='environment'")
        if case["required"]:
            await commit(inbox, note_required, now=seconds(-99))
        placed = record("rec_1", "order_placed", -9, order="A", money=DUE)
        naming = record("rec_2", "reference_named", -8, order="A", source="shop", payment="p-A")
        await commit(inbox, add_records, [placed, naming] if case["named"] else [placed])
        other = said("other", "succeeded", order="B", payment="p-B", money=MORE, shop=case["shop"])
        ours = said("ours", "succeeded", order="A", payment="p-A", money=case["money"])
        await keep(inbox, *([arrival(other)] if case["stranger"] else []), arrival(ours, at=1))
        expected = [("A", "held", "maybe_other_shop", "service")] if held else []
        assert await hold_records(inbox) == expected

    @pytest.mark.alike
    async def test_a_person_releases_what_may_be_another_shops_once_for_all(
        self, inbox: Inbox
    ) -> None:
        """Later events of strangers neither add a hold nor lift one."""
        await change(inbox, "UPDATE meta SET value='live' WHERE name='environment'")
        await commit(inbox, note_required, now=seconds(-99))
        placed = record("rec_1", "order_placed", -9, order="A", money=DUE)
        await commit(inbox, add_records, [placed])
        ours = said("ours", "succeeded", order="A", payment="p-A", money=MORE)
        await keep(inbox, arrival(ours, at=1))
        assert await hold_records(inbox) == []
        again = replace(ours, event_id="again", digest="ab" * 32)
        other = said("other", "succeeded", order="B", payment="p-B", money=MORE)
        await keep(inbox, arrival(other, at=2), arrival(again, at=2))
        await folded(context(inbox, at=3))
        assert len(await hold_records(inbox)) == 1
        (ledger,) = await list_orders(context(inbox, at=4), finding="maybe_other_shop")
        assert is_held(ledger)
        await release(context(inbox, at=5), ["A"], reason="maybe_other_shop")
        last = replace(ours, event_id="last", digest="cd" * 32)
        await keep(inbox, arrival(last, at=6))
        await folded(context(inbox, at=7))
        assert len(await hold_records(inbox)) == 2
        assert [each[2] for each in await published(inbox)][-1] == 1
