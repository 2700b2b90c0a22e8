"""Two people, or two processes, that act at the same instant: as if one acted after the other."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from app.access.operators import Proven, register_operator, retire_operator
from app.access.sessions import invite_operator
from app.access.tokens import issue_token
from app.context.context import AppContext
from app.core.errors import UsageError
from app.evidence import attachment_store
from app.evidence.attachment_store import attached_bytes, empty_attachments
from app.evidence.attachments import AttachRequest, attach
from app.finance import close_period as closing
from app.finance import reconcile_rows
from app.finance.close_period import CloseRequest, close_period
from app.finance.import_store import Import, begin_import, publish_import
from app.finance.match_rules import save_rules
from app.finance.reconcile_rows import refresh_ledger_lines
from app.golive.golive import ITEMS, sign
from app.orders.order_facts import OrderFacts, tell_order
from app.receiving.inbox import Inbox
from reconcile.money import Money
from reconcile.reporting.closing import Closing
from tests.database.builders import arrival, commit, context, fetch, keep, quiet, rows, said
from tests.database.contract_breaks import missing, people, run
from tests.finance.closing import QUIET
from tests.finance.deciding import decide
from tests.finance.loading import into_store, settle
from tests.finance.month import CLOSED_AT
from tests.postgres.test_sharing import several
from tests.reconcile.build import T, seconds

pytestmark = pytest.mark.postgres

ROUNDS = 5
ORDERS = range(20)


async def one_after_the_other(*acts: Awaitable[object]) -> object:
    """Begin acts at once; check that one is done and the others are refused, and return its
    result."""
    found = await asyncio.gather(*acts, return_exceptions=True)
    refused = [each for each in found if isinstance(each, BaseException)]
    assert [type(each) for each in refused] == [UsageError] * (len(acts) - 1)
    return next(each for each in found if each not in refused)


async def test_the_last_two_admins_do_not_disable_each_other(url: str) -> None:
    """Without an admin nobody could be added."""
    async with several(url) as (one, other):
        await register_operator(context(one), name="ada", role="admin", by=None)
        for number in range(ROUNDS):
            (last,) = await in_force(one)
            name = f"bea {number}"
            await register_operator(context(one), name=name, role="admin", by=last)
            await one_after_the_other(
                retire_operator(context(one), name=name, by=last),
                retire_operator(context(other), name=last, by=name),
            )
            assert len(await in_force(one)) == 1


async def in_force(inbox: Inbox) -> list[str]:
    found = await rows(inbox, "SELECT name FROM operators WHERE disabled_at IS NULL")
    return [name for (name,) in found]


async def test_a_name_of_an_operator_or_token_is_given_once(url: str) -> None:
    async with several(url) as stores:
        await register_operator(context(stores[0]), name="ada", role="admin", by=None)
        for number in range(ROUNDS):
            name = f"bea-{number}"
            await one_after_the_other(
                *(register_operator(context(s), name=name, role="viewer", by="ada") for s in stores)
            )
            await one_after_the_other(
                *(issue_token(context(s), name=name, by="ada") for s in stores)
            )
            for each in await asyncio.gather(
                *(invite_operator(context(s), name=f"c{number}", role="viewer", by="ada")
                  for s in stores)
            ):  # fmt: skip
                assert each
        links = await rows(stores[0], "SELECT count(*) FROM invitations")
        assert links == [(ROUNDS,)]


async def test_two_sign_offs_at_once_are_both_kept(url: str) -> None:
    async with several(url) as stores:
        for _ in range(ROUNDS):
            await asyncio.gather(
                *(sign(context(s), next(iter(ITEMS)), by="ada", note="seen") for s in stores)
            )
        numbers = await rows(stores[0], "SELECT number FROM signoffs ORDER BY number")
        assert [number for (number,) in numbers] == list(range(1, 2 * ROUNDS + 1))


async def test_new_limits_cannot_be_evaded_by_saving_rules_at_once(url: str) -> None:
    async with several(url) as (one, other):
        await one_after_the_other(
            save_rules(context(one), "close_alone = false\n", by=None),
            save_rules(context(other), "close_alone = false\n# the same\n", by=None),
        )
        assert await rows(one, "SELECT number FROM match_rules") == [(1,)]


async def test_one_person_does_not_use_up_a_limit_twice_at_once(url: str) -> None:
    async with several(url) as stores:
        at = [context(store, at=2) for store in stores]
        await people(at[0])
        await save_rules(at[0], '[accept_alone_max]\nKES = "1500.00"\n', by="ann")
        found = [missing(f"O{number}") for number in range(len(stores))]
        await run(stores[0], *found, at=1)
        done = await asyncio.gather(
            *(
                decide(each, one.identity, "accepted", reason="gone", by=Proven("ann"))
                for each, one in zip(at, found, strict=True)
            )
        )
        assert done.count(None) == 1


async def test_an_order_stated_at_two_receivers_at_once_is_one_record(url: str) -> None:
    """The trail of another price says what the price was before."""
    async with several(url) as stores:
        for number in range(ROUNDS):
            told = OrderFacts(
                order=f"O{number}",
                money=Money(minor=1_000, currency="EUR"),
                placed_at=T,
                canceled_at=seconds(1),
            )
            found = await asyncio.gather(*(tell_order(context(s, at=3), told) for s in stores))
            assert sorted(map(len, found)) == [0, 2]
        count = await rows(stores[0], "SELECT count(*) FROM records")
        assert count == [(2 * ROUNDS,)]


async def test_a_month_is_closed_once(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closing, "REPORT_FORMATS", ("json",))
    both = asyncio.Barrier(2)
    rests_on = closing._rests_on

    async def at_one_moment(*given: object, **words: object) -> object:
        found = await rests_on(*given, **words)  # type: ignore[arg-type]
        await both.wait()
        return found

    monkeypatch.setattr(closing, "_rests_on", at_one_moment)
    async with several(url) as stores:
        await into_store(url, QUIET)
        await settle(stores[0], QUIET)
        request = CloseRequest(period="2026-10", by=None, as_of=None, margin_days=10, still_s=0.0)
        done = await one_after_the_other(
            *(close_period(at_the_end(s), request, progress=quiet) for s in stores)
        )
        assert isinstance(done, Closing)
        assert await rows(stores[0], "SELECT period FROM closings") == [("2026-10",)]


async def test_an_import_begins_after_one_that_is_just_being_published(url: str) -> None:
    """One that was silent for long and taken for killed may be published at that moment."""
    async with several(url) as (one, other):
        first, _ = await commit(one, begin_import, import_of_a_book("a.csv"))

        async def begin_another() -> tuple[Import, bool]:
            return await commit(other, begin_import, import_of_a_book("b.csv"))

        async with one.database.writing() as connection:
            await publish_import(connection, first, now=seconds(1))
            beginning = asyncio.create_task(begin_another())
            await asyncio.sleep(0.3)
            assert not beginning.done()
        begun, is_there_one_to_undo = await beginning
        assert (begun.number, is_there_one_to_undo) == (first.number + 1, False)


async def test_two_runs_that_find_the_same_orders_behind_make_their_lines_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = asyncio.Barrier(2)
    made_anew = reconcile_rows._made_anew

    async def at_one_moment(*given: Any, **words: Any) -> Any:
        found = await made_anew(*given, **words)
        await both.wait()
        return found

    monkeypatch.setattr(reconcile_rows, "_made_anew", at_one_moment)
    async with several(url) as stores:
        for number in range(2):
            await keep(stores[0], *(arrival(said(f"{number} {n}", order=f"O{n}")) for n in ORDERS))
            found = await asyncio.gather(
                *(refresh_ledger_lines(context(s, at=1), progress=quiet) for s in stores)
            )
            assert found == [len(ORDERS)] * 2
        assert await rows(stores[0], "SELECT count(*) FROM takings") == [(len(ORDERS),)]


async def test_a_file_attached_again_during_an_erasure_keeps_its_bytes(url: str) -> None:
    async with several(url) as (one, other):
        await keep(one, *(arrival(said(name, order=name)) for name in ("A", "B")))
        first = await attach(context(one), attached_to("A"))

        async def let_go() -> None:
            await commit(other, empty_attachments, [first.record.attachment_id], now=T)

        begun = asyncio.Event()
        add = attachment_store.add_attachment

        async def slowly(*given: Any) -> None:
            await add(*given)
            begun.set()
            await asyncio.sleep(0.3)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(attachment_store, "add_attachment", slowly)
            attaching = asyncio.create_task(attach(context(one), attached_to("B")))
            await begun.wait()
            await let_go()
            second = await attaching
        assert await fetch(one, attached_bytes, second.record.sha256) == attached_to("B").content


def attached_to(order: str) -> AttachRequest:
    return AttachRequest(
        about="order", subject=order, name="a.txt", kind="other", content=b"the very same", by=None
    )


def import_of_a_book(file: str) -> Import:
    return Import(kind="book", file=file, sha256="0" * 64, who="ada", started_at=T)


def at_the_end(inbox: Inbox) -> AppContext:
    """Return the context of a service after the month's margin."""
    return context(inbox, at=(CLOSED_AT - T) // 1_000_000)
