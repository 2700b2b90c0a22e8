"""Contract of every database for a changed policy: all orders come due once, and it is noted."""

from dataclasses import replace
from typing import Any

import pytest

from app.context.context import AppContext
from app.finance.reconcile_rows import refresh_ledger_lines
from app.orders import refold
from app.orders.policy_version_store import noted_policy
from app.orders.rebuild import refold_all
from app.orders.refold import TakingUp, gathered, refold_due, refold_until_quiet
from app.receiving.due_store import count_due
from app.receiving.inbox import Inbox
from reconcile.instants import HOUR, MINUTE
from reconcile.ledger.policy import Policy, policy_text
from tests.database.builders import arrival, change, context, fetch, keep, quiet, rows, said
from tests.database.contract_ledgers import paid, revisions
from tests.reconcile.build import T, seconds

ORDERS = "ABCDE"


def waiting_long(inbox: Inbox, *, at: int = 0) -> AppContext:
    """Return a context whose merchant waits two hours for a payment."""
    return replace(context(inbox, at=at), policy=Policy(payment_window=2 * HOUR))


async def noted(inbox: Inbox) -> str | None:
    return await fetch(inbox, noted_policy)


async def taken_up(at: AppContext) -> list[int]:
    """Take up the policy; return the sizes of the batches of orders set due."""
    taking_up, found = TakingUp(at), []
    while done := await taking_up.some():
        found.append(done)
    return found


async def marks(inbox: Inbox) -> list[tuple[Any, ...]]:
    """Return (order, due_at, generation), in key order."""
    return await rows(inbox, "SELECT order_key, due_at, generation FROM order_due ORDER BY 1")


async def orders(inbox: Inbox) -> None:
    """Fold paid orders by the ordinary policy; the first is open."""
    at = context(inbox, at=9)
    assert await taken_up(at) == []
    await keep(inbox, arrival(said("a", order="A")), *(arrival(paid(each)) for each in ORDERS[1:]))
    await refold_until_quiet(at, limit=9, progress=quiet)


class PolicyContract:
    """Changes of the policy. A subclass gives `url`."""

    @pytest.mark.alike
    async def test_a_changed_policy_sets_every_order_due(self, inbox: Inbox) -> None:
        """Once, with a new generation; then it is noted."""
        await orders(inbox)
        before = await marks(inbox)
        assert await taken_up(waiting_long(inbox, at=20)) == [5]
        assert await marks(inbox) == [(o, seconds(20), number + 1) for o, _, number in before]
        assert await noted(inbox) == policy_text(Policy(payment_window=2 * HOUR))
        assert await taken_up(waiting_long(inbox, at=30)) == []
        await refold_until_quiet(waiting_long(inbox, at=30), limit=2, progress=quiet)
        assert [mark[1] for mark in await marks(inbox)] == [T + 125 * MINUTE, *[None] * 4]

    @pytest.mark.alike
    async def test_orders_that_are_due_already_keep_their_place(self, inbox: Inbox) -> None:
        await orders(inbox)
        await keep(inbox, arrival(said("news", order="C"), at=12))
        await taken_up(waiting_long(inbox, at=20))
        due = {order: at for order, at, _ in await marks(inbox)}
        assert due == dict.fromkeys("ABDE", seconds(20)) | {"C": seconds(12)}

    @pytest.mark.alike
    async def test_the_same_policy_and_an_empty_store_set_nothing_due(self, inbox: Inbox) -> None:
        assert await taken_up(context(inbox)) == []
        assert await noted(inbox) == policy_text(Policy())
        await orders(inbox)
        before = await marks(inbox)
        assert await taken_up(context(inbox, at=20)) == []
        assert await marks(inbox) == before

    @pytest.mark.alike
    async def test_a_store_that_notes_no_policy_is_folded_once(self, inbox: Inbox) -> None:
        """As after a rebuild that was broken off."""
        await orders(inbox)
        await change(inbox, "DELETE FROM meta WHERE name='policy'")
        assert await taken_up(context(inbox, at=20)) == [5]
        assert await taken_up(context(inbox, at=20)) == []

    @pytest.mark.alike
    @pytest.mark.parametrize("at_once", [1, 2, 4, 5, 6])
    async def test_a_change_that_was_broken_off_begins_anew(
        self, inbox: Inbox, monkeypatch: pytest.MonkeyPatch, at_once: int
    ) -> None:
        """The policy is noted with the last batch. Each order is in one batch."""
        monkeypatch.setattr(refold, "AT_ONCE", at_once)
        await orders(inbox)
        at = waiting_long(inbox, at=20)
        await TakingUp(at).some()
        assert (await noted(inbox) == policy_text(at.policy)) == (at_once > 5)
        before = {order: number for order, _, number in await marks(inbox)}
        batches = await taken_up(at)
        assert sum(batches) == (0 if at_once > 5 else 5)
        assert max(batches, default=0) <= at_once
        if batches:
            assert {o: n for o, _, n in await marks(inbox)} == {o: n + 1 for o, n in before.items()}
        assert await noted(inbox) == policy_text(at.policy)

    @pytest.mark.alike
    async def test_going_back_during_a_change_sets_all_due_again(
        self, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(refold, "AT_ONCE", 2)
        await orders(inbox)
        await TakingUp(waiting_long(inbox, at=20)).some()
        assert sum(await taken_up(context(inbox, at=30))) == 5
        assert await noted(inbox) == policy_text(Policy())

    @pytest.mark.alike
    async def test_a_fold_under_way_while_the_policy_changes_is_dropped(
        self, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await orders(inbox)
        await keep(inbox, arrival(paid("A"), at=12))

        async def gather_slowly(*arguments: Any) -> Any:
            monkeypatch.undo()
            await taken_up(waiting_long(inbox, at=20))
            return await gathered(*arguments)

        monkeypatch.setattr(refold, "gathered", gather_slowly)
        await refold_due(context(inbox, at=15), limit=9)
        assert [r.outcome for r in await revisions(inbox) if r.order == "A"] == ["pending"]
        assert await fetch(inbox, count_due, now=seconds(20), enough=9) == 5

    @pytest.mark.alike
    async def test_a_process_that_folds_by_an_older_policy_is_noticed(self, inbox: Inbox) -> None:
        """The next start sets every order due, whichever of the two policies it has."""
        await orders(inbox)
        await taken_up(waiting_long(inbox, at=20))
        await refold_due(context(inbox, at=21), limit=2)
        assert await noted(inbox) == "several"
        await refold_due(waiting_long(inbox, at=21), limit=2)
        assert await noted(inbox) == "several"
        assert await taken_up(waiting_long(inbox, at=30)) == [5]
        await refold_due(waiting_long(inbox, at=31), limit=2)
        assert await taken_up(waiting_long(inbox, at=32)) == []

    @pytest.mark.alike
    async def test_a_process_that_folds_by_an_older_policy_during_a_change_is_noticed(
        self, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(refold, "AT_ONCE", 2)
        await orders(inbox)
        change = TakingUp(waiting_long(inbox, at=20))
        await change.some()
        await refold_due(context(inbox, at=21), limit=1)
        while await change.some():
            pass
        assert await noted(inbox) == "several"

    async def test_two_processes_take_up_one_policy_at_once(
        self, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(refold, "AT_ONCE", 2)
        await orders(inbox)
        at = waiting_long(inbox, at=20)
        one, other = TakingUp(at), TakingUp(at)
        await one.some()
        while await other.some():
            await refold_due(at, limit=1)
        while await one.some():
            await refold_due(at, limit=1)
        assert await noted(inbox) == policy_text(at.policy)

    @pytest.mark.alike
    async def test_ledger_lines_are_behind_a_changed_policy(self, inbox: Inbox) -> None:
        await orders(inbox)
        assert await refresh_ledger_lines(context(inbox, at=20), progress=quiet) == 5
        assert await refresh_ledger_lines(context(inbox, at=20), progress=quiet) == 0
        await taken_up(waiting_long(inbox, at=20))
        assert await refresh_ledger_lines(waiting_long(inbox, at=20), progress=quiet) == 5

    @pytest.mark.alike
    async def test_a_rebuild_notes_its_policy(
        self, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """After a rebuild that was broken off, the next start sets all due, even by the earlier
        policy."""
        await orders(inbox)
        await refold_all(waiting_long(inbox, at=20), progress=quiet)
        assert await taken_up(waiting_long(inbox, at=21)) == []

        def broken(count: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            await refold_all(context(inbox, at=22), progress=broken)
        assert await noted(inbox) is None
        assert await taken_up(waiting_long(inbox, at=23)) == [5]
