"""Payments of more than the price on an account with strangers: which of them hold their order."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.database import mapping
from app.database.statements import run, select_rows
from app.orders.policy_version_store import note_required
from app.orders.record_store import add_records
from app.receiving import other_shop_store
from app.receiving.inbox import Inbox
from reconcile.instants import TICK, Instant
from reconcile.ledger.events import UNCONFIRMED, Event
from reconcile.ledger.records import Record
from reconcile.money import Money
from tests.database.builders import arrival, change, commit, keep, opened, rows, said
from tests.reconcile.build import DUE, record, seconds

MORE = replace(DUE, minor=DUE.minor + 1)
STRANGER = said("other", "succeeded", order="B", payment="p-B", money=MORE)


@pytest.fixture
async def inbox(tmp_path: Path) -> AsyncIterator[Inbox]:
    """Open a live store in which a price is the shop's own, with an order of the shop."""
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/t.db") as opened_:
        await change(opened_, "UPDATE meta SET value='live' WHERE name='environment'")
        await commit(opened_, note_required, now=seconds(-99))
        await placed(opened_, "A", "C")
        yield opened_


async def placed(inbox: Inbox, *orders: str) -> None:
    """Place orders of one price."""
    made = [record(f"rec_{each}", "order_placed", -9, order=each, money=DUE) for each in orders]
    await commit(inbox, add_records, made)


def ours(event_id: str = "ours", **fields: Any) -> Event:
    """Return a payment of one unit too much."""
    content = {"order": "A", "payment": f"p-{event_id}", "money": MORE, **fields}
    return said(event_id, content.pop("claim", "succeeded"), **content)


async def held(inbox: Inbox) -> list[Record]:
    """Return the holds, and check that they are to be sealed."""
    sql = f"SELECT {mapping.RECORD_SELECT} FROM records WHERE kind IN ({{}}) ORDER BY id"
    async with inbox.database.reading() as connection:
        found = await run(connection, select_rows, sql=sql, values=["held"])
    holds = [mapping.record_of(row) for row in found]
    waiting = await rows(inbox, "SELECT ids FROM unsealed WHERE kind = 'record'")
    assert {each.record_id for each in holds} <= {
        each for (ids,) in waiting for each in ids.split("\n")
    }
    return sorted(holds, key=lambda each: each.order)


def hold(of: Record, at: Instant, order: str = "A") -> Record:
    return Record(
        record_id=of.record_id, recorded_at=at, kind="held", order=order, at=at,
        reason="maybe_other_shop", author="service",
    )  # fmt: skip


async def test_an_order_is_held_once_for_all_its_payments_of_a_batch(inbox: Inbox) -> None:
    """As of the latest arrival, or just after what was recorded last of it."""
    late = record("rec_late", "order_fulfilled", 50, order="C")
    await commit(inbox, add_records, [late])
    await keep(
        inbox,
        arrival(STRANGER),
        arrival(ours(), at=5),
        arrival(ours("again"), at=7),
        arrival(ours("others", order="C"), at=6),
    )
    found = await held(inbox)
    assert found == [
        hold(found[0], seconds(7)), hold(found[1], Instant(seconds(50) + TICK), "C")
    ]  # fmt: skip
    await keep(inbox, arrival(ours("later"), at=9))
    assert await held(inbox) == found


async def test_only_a_payment_of_more_than_the_price_holds_its_order(inbox: Inbox) -> None:
    """A paid one that is certain, in the price's currency, of an order that the shop placed."""
    less: dict[str, dict[str, Any]] = {
        "A1": {"money": DUE},
        "A2": {"money": Money(minor=MORE.minor, currency="USD")},
        "A3": {"money": None},
        "A4": {"claim": "authorized"},
        "A5": {"standing": UNCONFIRMED},
        "nobody's": {},
        "A6": {"order": None},
    }
    await placed(inbox, *(name for name in less if name[0] == "A"))
    payments = [ours(name, **{"order": name, **fields}) for name, fields in less.items()]
    await keep(inbox, arrival(STRANGER), *map(arrival, payments))
    assert await held(inbox) == []


async def test_a_stranger_pays_on_the_same_account_for_an_order_that_nobody_placed(
    inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among the latest events, and not as a known stranger."""
    strangers: dict[str, dict[str, Any]] = {
        "A1": {},
        "A2": {"source": "another"},
        "A3": {"claim": "pending"},
        "A4": {"standing": UNCONFIRMED},
        "A5": {"order": None},
        "A6": {"shop": "other"},
        "A7": {"shop": "unstated"},
        "A8": {"order": "A"},
    }
    await placed(inbox, *strangers)
    for number, (name, fields) in enumerate(strangers.items()):
        content = {"order": f"B{number}", "payment": "p-B", "source": name, "money": DUE, **fields}
        stranger = said(f"o{number}", content.pop("claim", "succeeded"), **content)
        await keep(inbox, arrival(stranger), arrival(ours(name, order=name, source=name)))
    assert [each.order for each in await held(inbox)] == ["A1", "A7"]
    for name, looked_at in (("A9", 1), ("A10", 2)):
        monkeypatch.setattr(other_shop_store, "LOOKED_AT", looked_at)
        await placed(inbox, name)
        late = replace(STRANGER, event_id=name, order=f"B-{name}", source=name)
        await keep(inbox, arrival(late))
        await keep(inbox, arrival(ours(name, order=name, source=name)))
    assert [each.order for each in await held(inbox)] == ["A1", "A10", "A7"]
