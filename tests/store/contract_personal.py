"""What every database must keep of customers, and let go when it is asked to."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from app.operations.folding.refold import refold_until_quiet
from app.operations.keeping.erase import Asked, erase
from app.operations.keeping.erase_rules import Rules
from app.operations.orders.find_orders import find_orders
from app.phone_key import PhoneKey
from app.store.arrivals.intake import Whole
from app.store.arrivals.phones import (
    drop_notes,
    drop_other_keys,
    has_other_keys,
    note_phones,
    notes_of,
    old_notes,
    orders_by_phone,
)
from app.store.database.scratch import scratch_database
from app.store.folding.comparing import phones_not_noted
from app.store.keeping.retention import prune
from app.store.people.audit import Deed, add_deed
from app.store.store import Store
from reconcile.events import Event
from reconcile.instants import DAY, SECOND
from reconcile.money import Money
from tests.reconcile.build import T
from tests.store.builders import arrival, desk, keep, rejection, rows, said
from tests.store.contract_checking import quiet

KEY = PhoneKey(b"k" * 32)
PHONE = "254711223344"
DIGEST = KEY.digest(PHONE)
PRICE = Money(minor=150_000, currency="KES")


def paid(event_id: str, order: str) -> Event:
    """An event after which nothing of the order waits."""
    return said(event_id, "succeeded", order=order, payment="p1", money=PRICE, order_money=PRICE)


def of_customer(event_id: str, digest: bytes = DIGEST, **words: Any) -> Any:
    """An arrival whose event names a customer."""
    body = f'{{"{event_id}": "{PHONE}"}}'.encode()
    return arrival(said(event_id, **words), body=body, customer=digest)


class PersonalContract:
    """Phones by digest, erasure, and tables that are only added to; `store` is the fixture."""

    async def test_an_order_is_found_by_its_customers_digest(self, store: Store) -> None:
        """Of its own event, and of one that found its order later."""
        await keep(store, of_customer("e1", order="A", payment="p1"))
        await keep(store, of_customer("e1", order="A", payment="p1"))
        await keep(store, of_customer("e2", payment="p2"))
        async with store.reading() as connection:
            assert await orders_by_phone(connection, DIGEST, limit=9) == ["A"]
        await keep(store, arrival(said("e3", order="B", payment="p2")))
        async with store.reading() as connection:
            assert await orders_by_phone(connection, DIGEST, limit=9) == ["A", "B"]
            assert await orders_by_phone(connection, DIGEST, limit=1) == ["A"]
            assert await orders_by_phone(connection, KEY.digest("1234567890"), limit=9) == []
            assert len(await notes_of(connection, ["A", "B"])) == 1
            assert await old_notes(connection, before=T - 1, after=None, limit=9) == []
            first, *others = await old_notes(connection, before=T + DAY, after=None, limit=9)
            assert await old_notes(connection, before=T + DAY, after=first, limit=9) == others

    async def test_digests_of_another_key_are_told_apart(self, store: Store) -> None:
        await keep(store, of_customer("e1", order="A"))
        other = PhoneKey(b"o" * 32)
        async with store.writing() as connection:
            assert not await has_other_keys(connection, KEY.name)
            assert await has_other_keys(connection, other.name)
            await drop_other_keys(connection, other.name)
            assert not await has_other_keys(connection, other.name)

    async def test_numbers_that_are_not_noted_are_counted(self, store: Store) -> None:
        """Each once for each order; one that is noted for the delivery is noted for its order."""
        await keep(store, of_customer("e1", order="A"))
        other = PhoneKey(b"o" * 32).digest(PHONE)
        named = [(DIGEST, "order", "A", T), (DIGEST, "order", "B", T), (other, "order", "A", T)]
        async with store.writing() as connection, scratch_database() as scratch:
            await note_phones(scratch, named)
            assert await phones_not_noted(connection, scratch) == 2
            (note,) = await notes_of(connection, ["A"])
            await drop_notes(connection, [note])
            assert await phones_not_noted(connection, scratch) == 3
            owner = await connection.scalar(text("SELECT id FROM deliveries"))
            await note_phones(connection, [(DIGEST, "delivery", owner, T)])
            assert await phones_not_noted(connection, scratch) == 2

    async def test_an_order_is_found_by_amount_and_day(self, store: Store) -> None:
        await keep(store, arrival(paid("e1", "A")))
        await refold_until_quiet(desk(store), limit=10, progress=quiet)
        for text_, orders in (("1500.00", ["A"]), ("KES 1500", ["A"]), ("1500.01", [])):
            found = await find_orders(desk(store), text_, sources={}, limit=5)
            assert [hit["order"] for hit in found.hits] == orders
        found = await find_orders(desk(store), "A", sources={}, limit=5)
        assert found.hits[0]["found"] == "this is its reference"

    async def test_what_is_erased_is_empty(self, store: Store) -> None:
        refused = rejection(body=PHONE.encode())
        body = f'{{"phone": "{PHONE}"}}'.encode()
        await keep(store, arrival(paid("e1", "A"), body=body, customer=DIGEST), refused)
        await refold_until_quiet(desk(store), limit=10, progress=quiet)
        erasure = await erase(
            desk(store, at=40 * DAY // SECOND),
            Asked(phone=f"+{PHONE}", reason="asked", by="Ann"),
            sources={},
            rules=Rules(),
            dry_run=False,
            progress=quiet,
        )
        assert (erasure.kept, erasure.tidied, erasure.counts()["orders"]) == ([], True, 1)
        found = await rows(store, "SELECT body, headers FROM deliveries")
        assert found == [(None, "")]
        for table in ("phones", "rejections"):
            assert await rows(store, f"SELECT 1 FROM {table}") == []

    async def test_what_is_not_read_yet_keeps_the_body_that_it_shares(self, store: Store) -> None:
        """Then the whole body does not come back with what nobody can read."""
        body, whole = f'{{"phone": "{PHONE}"}}'.encode(), Whole("d" * 64, PHONE.encode())
        event = paid("e1", "A")
        unread, parts = arrival(None, whole=whole), {"body": body, "whole": whole}
        await keep(store, arrival(event, customer=DIGEST, **parts), unread)
        await refold_until_quiet(desk(store), limit=10, progress=quiet)
        words: dict[str, Any] = {"sources": {}, "rules": Rules(), "progress": quiet}
        then, asked = desk(store, at=40 * DAY // SECOND), Asked(phone=PHONE, reason="-", by="Ann")
        erasure = await erase(then, asked, dry_run=False, **words)
        assert [(each.what, each.why) for each in erasure.kept] == [("A", "beside_unread")]
        async with store.writing() as connection:
            await prune(connection, [unread.delivery_id], now=T)
        erasure = await erase(then, asked, dry_run=False, **words)
        assert (erasure.kept, [each.order for each in erasure.orders]) == ([], ["A"])
        for again, kept in (
            ([arrival(event, **parts), arrival(None, whole=whole)], 0),
            ([arrival(said("e2", order="B"), whole=whole)], 1),
        ):
            await keep(store, *again)
            assert await rows(store, "SELECT count(body) FROM envelopes") == [(kept,)]

    @pytest.mark.parametrize("table", ["audit", "records", "revisions", "signoffs"])
    async def test_some_rows_can_only_be_added(self, store: Store, table: str) -> None:
        """The database itself refuses, whoever asks."""
        async with store.writing() as connection:
            await add_deed(
                connection, Deed(at=T, who="Ann", role="admin", action="erased", subject="A")
            )
        await keep(store, arrival(said("e1", order="A", payment="p1")))
        await refold_until_quiet(desk(store), limit=10, progress=quiet)
        column = {"signoffs": "item", "audit": "subject"}.get(table, "order_key")
        before = await rows(store, f"SELECT {column} FROM {table}")
        for deed in (f"UPDATE {table} SET {column} = 'x'", f"DELETE FROM {table}"):
            if not before and store.path is not None:
                continue  # SQLite asks row by row
            with pytest.raises(DBAPIError, match="only added"):
                async with store.writing() as connection:
                    await connection.execute(text(deed))
        assert await rows(store, f"SELECT {column} FROM {table}") == before
