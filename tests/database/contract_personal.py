"""Contract of every database for data of customers: kept, and deleted on request."""

from collections.abc import Awaitable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Integer, LargeBinary, text
from sqlalchemy.exc import DBAPIError

from app.access.operator_store import AuditEntry, add_entry
from app.access.proposal import Decided, Proposal
from app.access.proposal_store import add_decision, add_proposal
from app.context.context import AppContext
from app.core.errors import ConfigurationError, NotFoundError
from app.core.phone_key import PhoneKey
from app.database.engine import scratch_database
from app.database.marks import GROUNDS, Mark
from app.database.statements import run
from app.database.tables import metadata
from app.orders.find_orders import find_orders
from app.orders.refold import refold_until_quiet
from app.orders.retention_store import prune
from app.privacy.consistency_store import phones_not_noted
from app.privacy.erase import ErasureRequest, erase
from app.privacy.erase_finding import Erasure, ErasureFinder
from app.privacy.erase_store import IN_TRANSIT, note_lines, rows_that_hold
from app.privacy.erasure_journal import key_path_of, make_journal
from app.privacy.export import files_of
from app.privacy.export_finding import find_person
from app.privacy.fit_journal import journal_state
from app.privacy.pending_erasures import IDLE_S, REST_S, PendingErasures
from app.privacy.places import UNEXPECTED, columns, is_emptied
from app.privacy.replay_erasures import (
    ErasureReplay,
    emptied_by,
    replay_after_restore,
)
from app.receiving import phone_store as phones
from app.receiving.append_store import Envelope
from app.receiving.correlation_store import ORPHANS
from app.receiving.inbox import Inbox
from app.receiving.journal_state import WAITS, JournalState, long_pending
from app.receiving.restriction_store import (
    due_restrictions,
    order_beside,
    restriction_totals,
    restrictions_of,
    restrictions_of_deliveries,
    write_restrictions,
)
from reconcile.instants import DAY, SECOND, TICK, Instant
from reconcile.ledger.events import Event
from reconcile.money import Money
from tests.contexts import with_given, with_settings
from tests.database.builders import (
    arrival,
    change,
    commit,
    context,
    fetch,
    keep,
    plan_of,
    quiet,
    rejection,
    rows,
    said,
)
from tests.reconcile.build import T

KEY = PhoneKey(b"k" * 32)
PHONE = "254711223344"
PEOPLE = PHONE, pytest.param("email:jane@example.com", marks=pytest.mark.alike)
DIGEST = KEY.digest(PHONE)
PRICE = Money(minor=150_000, currency="KES")
ONLY_ADDED_TO = (
    "audit", "records", "revisions", "signoffs", "erasures", "proposals", "proposal_decisions",
)  # fmt: skip
PROPOSAL = Proposal(
    id="prp_1",
    kind="accept_above_limit",
    subject="brk_1",
    sentence="Accept it.",
    subject_state="as it was",
    who="Ann",
    role="finance",
    reason="gone",
    at=T,
    until=T + DAY,
)
DECIDED = Decided(decision="approved", who="Ben", role="finance", reason="seen", at=T)


def paid(event_id: str, order: str, payment: str = "p1") -> Event:
    """Return an event that settles its order."""
    return said(event_id, "succeeded", order=order, payment=payment, money=PRICE, order_money=PRICE)


def of_customer(event_id: str, digest: bytes = DIGEST, **words: Any) -> Any:
    """Return an arrival whose event names a customer."""
    body = f'{{"{event_id}": "{PHONE}"}}'.encode()
    return arrival(said(event_id, **words), body=body, customer=(digest,))


def a_month_later(inbox: Inbox, folder: Path) -> AppContext:
    """Return a context that may erase."""
    later = context(inbox, at=40 * DAY // SECOND)
    return with_given(with_settings(later, erasure_journal=folder / "erasures"), phone_key=KEY)


def erasing(then: AppContext, phone: str = PHONE) -> Awaitable[Erasure]:
    asked = ErasureRequest(phone=f"+{phone}", reason="asked", by="Ann")
    return erase(then, asked, dry_run=False, progress=quiet)


def again(then: AppContext) -> ErasureReplay:
    return ErasureReplay(then, progress=quiet)


async def with_bodies(inbox: Inbox) -> list[str]:
    """Return the events whose bodies are there."""
    sql = "SELECT event_id FROM deliveries WHERE body IS NOT NULL ORDER BY 1"
    return [row[0] for row in await rows(inbox, sql)]


async def ids_of(inbox: Inbox) -> list[str]:
    """Return the deliveries."""
    return [row[0] for row in await rows(inbox, "SELECT id FROM deliveries")]


FOUND_BY: dict[str, tuple[str, dict[str, Any], str]] = {
    "the notes of an order": (phones.NOTES_OF.format("'A', 'B'"), {}, "ix_phones_thing"),
}
"""Queries of an erasure on large tables, and the index that answers each."""

ORPHANED: dict[str, tuple[str, dict[str, Any], str]] = {
    f"{kind}s of no order": (f"{ORPHANS}{kind} IN ('a', 'b')", {}, f"ix_events_orphaned_{kind}")
    for kind in ("payment", "session")
}
OF_ORDERS = "SELECT event_id FROM events WHERE order_key IN ('A', 'B')"
FOUND_BY |= ORPHANED | {"events of an order": (OF_ORDERS, {}, "ix_events_order_key")}
"""Statements that every batch of deliveries and every fold runs."""


def is_searched(where: str, mark: Mark) -> bool:
    """Return whether a number in this place is looked for: keys and hashes of ours are not read."""
    table, _, column = where.partition(".")
    is_blob = isinstance(metadata.tables[table].columns[column].type, LargeBinary)
    return table not in IN_TRANSIT and not (is_blob and mark.personal == "not")


def planted_rows(phone: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield one insert for each marked column, with the number in it."""
    for number, (where, mark) in enumerate(columns(), 1):
        name, _, planted = where.partition(".")
        if not is_searched(where, mark):
            continue
        values: dict[str, Any] = {}
        for column in metadata.tables[name].columns:
            text_ = f"of {phone} in {where}" if column.name == planted else where
            if column.name == planted or column.primary_key or not column.nullable:
                is_blob = isinstance(column.type, LargeBinary)
                value: Any = text_.encode() if is_blob else text_
                values[column.name] = number if isinstance(column.type, Integer) else value
        names, given = (", ".join(each) for each in ((f'"{n}"' for n in values),
                                                      (f":{n}" for n in values)))  # fmt: skip
        yield f"INSERT INTO {name} ({names}) VALUES ({given})", values


async def standing(inbox: Inbox, phone: str) -> dict[str, int]:
    """Return in how many rows of each place a number or address stands, by reading the
    whole database."""
    found = {}
    for where, mark in columns():
        table, _, column = where.partition(".")
        if is_searched(where, mark):
            texts = await rows(inbox, f'SELECT "{column}" FROM {table}')
            found[where] = sum(phone in str(each) for (each,) in texts)
    return {where: count for where, count in found.items() if count}


class PersonalContract:
    """Phones by digest, erasure, and append-only tables. A subclass gives `url`."""

    @pytest.mark.alike
    async def test_an_order_is_found_by_its_customers_digest(self, inbox: Inbox) -> None:
        """Of its own event, and of one that found its order later."""
        await keep(inbox, of_customer("e1", order="A", payment="p1"))
        await keep(inbox, of_customer("e1", order="A", payment="p1"))
        await keep(inbox, of_customer("e2", payment="p2"))
        assert await fetch(inbox, phones.orders_by_phone, DIGEST, limit=9) == ["A"]
        await keep(inbox, arrival(said("e3", order="B", payment="p2")))
        async with inbox.database.reading() as connection:
            assert await phones.orders_by_phone(connection, DIGEST, limit=9) == ["A", "B"]
            assert await phones.orders_by_phone(connection, DIGEST, limit=1) == ["A"]
            assert await phones.orders_by_phone(connection, KEY.digest("1234567890"), limit=9) == []
            assert len(await phones.notes_of(connection, ["A", "B"])) == 1
            assert await phones.old_notes(connection, before=T - TICK, after=None, limit=9) == []
            first, *others = await phones.old_notes(connection, before=T + DAY, after=None, limit=9)
            assert (
                await phones.old_notes(connection, before=T + DAY, after=first, limit=9) == others
            )

    @pytest.mark.alike
    async def test_orders_are_found_by_whom_a_statement_paid(self, inbox: Inbox) -> None:
        """Known by then; a number of nobody else leads to no order."""
        await keep(inbox, of_customer("e1", order="A", payment="p1"))
        await keep(inbox, of_customer("e2", payment="p2"))
        await keep(inbox, arrival(said("e3", order="B", payment="p2")))
        other = KEY.digest("1234567890")
        notes = [
            phones.recipient_note(digest, payment, T + DAY)
            for digest, payment in ((DIGEST, "UJ1"), (other, "UJ2"))
        ]
        async with inbox.database.writing() as connection:
            await run(connection, phones.write_phone_notes, notes)
        async with inbox.database.reading() as connection:
            found = [await phones.orders_of_recipients(connection, as_of=at) for at in (T, T + DAY)]
            assert found == [{}, {"UJ1": {"A", "B"}}]
            assert await phones.recipient_notes(connection, [other]) == notes[1:]
            assert await phones.orders_by_phone(connection, DIGEST, limit=9) == ["A", "B"]

    @pytest.mark.parametrize("asked", FOUND_BY)
    async def test_large_tables_are_asked_by_index(self, inbox: Inbox, asked: str) -> None:
        if inbox.database.spread:
            pytest.skip("the nodes of a cluster choose their plans by themselves")
        sql, values, index = FOUND_BY[asked]
        if inbox.database.shared:  # without statistics either index of orphans looks as good
            index = index.removesuffix("_payment").removesuffix("_session")
        assert index in await plan_of(inbox, sql, values)

    async def test_digests_of_another_key_are_kept_apart(self, inbox: Inbox) -> None:
        await keep(inbox, of_customer("e1", order="A"))
        other = PhoneKey(b"o" * 32)
        async with inbox.database.writing() as connection:
            assert not await phones.has_other_keys(connection, KEY.name)
            assert await phones.has_other_keys(connection, other.name)
            await phones.drop_other_keys(connection, other.name)
            assert not await phones.has_other_keys(connection, other.name)

    async def test_the_first_host_decides_which_key_a_database_uses(self, inbox: Inbox) -> None:
        """Two hosts may start at once, each with a key file of its own."""
        other = PhoneKey(b"o" * 32)
        async with inbox.database.writing() as connection:
            assert await phones.key_in_use(connection) is None
            assert await phones.claim_key(connection, KEY.name)
            assert await phones.claim_key(connection, KEY.name)
            assert not await phones.claim_key(connection, other.name)
            used = await phones.key_in_use(connection)
            assert used == KEY.name.hex()
            assert not await phones.is_other_key(connection, used, KEY.name)
            assert await phones.is_other_key(connection, used, other.name)

    async def test_numbers_that_are_not_noted_are_counted(self, inbox: Inbox) -> None:
        """Each once for each order. A number noted for the delivery is noted for its order."""
        await keep(inbox, of_customer("e1", order="A"))
        other = PhoneKey(b"o" * 32).digest(PHONE)
        named = [(DIGEST, "order", "A", T), (DIGEST, "order", "B", T), (other, "order", "A", T)]
        async with inbox.database.writing() as connection, scratch_database() as scratch:
            await run(scratch, phones.write_phone_notes, named)
            assert await phones_not_noted(connection, scratch) == 2
            (note,) = await phones.notes_of(connection, ["A"])
            await phones.drop_notes(connection, [note])
            assert await phones_not_noted(connection, scratch) == 3
            owner = await connection.scalar(text("SELECT id FROM deliveries"))
            await run(connection, phones.write_phone_notes, [(DIGEST, "delivery", owner, T)])
            assert await phones_not_noted(connection, scratch) == 2

    @pytest.mark.alike
    async def test_an_order_is_found_by_amount_and_day(self, inbox: Inbox) -> None:
        await keep(inbox, arrival(paid("e1", "A")))
        await refold_until_quiet(context(inbox), limit=10, progress=quiet)
        for text_, orders in (("1500.00", ["A"]), ("KES 1500", ["A"]), ("1500.01", [])):
            found = await find_orders(context(inbox), text_, limit=5)
            assert [hit["order"] for hit in found.hits] == orders
        found = await find_orders(context(inbox), "A", limit=5)
        assert found.hits[0]["found"] == "this is its reference"

    async def test_what_is_erased_is_empty(self, inbox: Inbox, tmp_path: Path) -> None:
        refused = rejection(body=PHONE.encode())
        body = f'{{"phone": "{PHONE}"}}'.encode()
        customer = (DIGEST, KEY.digest("email:jane@example.com"), KEY.digest("name:doe jane"))
        await keep(inbox, arrival(paid("e1", "A"), body=body, customer=customer), refused)
        await refold_until_quiet(context(inbox), limit=10, progress=quiet)
        erasure = await erase(
            a_month_later(inbox, tmp_path),
            ErasureRequest(phone=f"+{PHONE}", reason="asked", by="Ann"),
            dry_run=False,
            progress=quiet,
        )
        assert (erasure.kept, erasure.tidied, erasure.counts()["orders"]) == ([], True, 1)
        found = await rows(inbox, "SELECT body, headers FROM deliveries")
        assert found == [(None, "")]
        for table in ("phones", "rejections"):
            assert await rows(inbox, f"SELECT 1 FROM {table}") == []

    @pytest.mark.alike
    @pytest.mark.parametrize("person", PEOPLE)
    async def test_a_person_in_any_column_is_found_and_reported(
        self, inbox: Inbox, tmp_path: Path, person: str
    ) -> None:
        """One row for each marked column, which holds the number or address there alone. What an
        erasure reports of every column is what a search of the whole database finds, before and
        after; each that keeps it says on which ground."""
        shown = person.removeprefix("email:")
        async with inbox.database.writing() as connection:
            for sql, values in planted_rows(shown):
                await connection.execute(text(sql), values)
            await connection.execute(text("UPDATE imports SET published_at = 1"))
        planted = {where: mark for where, mark in columns() if is_searched(where, mark)}
        assert await standing(inbox, shown) == dict.fromkeys(planted, 1)
        then = a_month_later(inbox, tmp_path)
        async with inbox.database.reading() as connection:
            erasure = await ErasureFinder(then, quiet).of_identifier(connection, person)
        told = {each.where: each for each in erasure.places()}
        assert told.keys() == planted.keys()
        journal = make_journal(tmp_path / "erasures", at=T)
        emptied, named = emptied_by(erasure, journal.key)
        lines = journal.append(emptied, at=max(then.clock.now(), erasure.latest))
        await ErasureReplay(then, progress=quiet).carry_out(lines, named)
        async with inbox.database.reading() as connection:
            erasure.holding = await rows_that_hold(connection, [person], progress=quiet)
        left = await standing(inbox, shown)
        assert left == {each.where: each.stays for each in told.values() if each.stays}
        assert told == {each.where: each for each in erasure.places()}
        assert {where for where, mark in planted.items() if not is_emptied(mark)} <= left.keys()
        for where in left:
            law = tuple(f"({each})" for each in GROUNDS.values())
            expected = told[where].why == UNEXPECTED
            assert expected if planted[where].personal == "not" else told[where].why.endswith(law)

    @pytest.mark.parametrize("person", PEOPLE)
    async def test_a_person_in_any_column_is_in_their_copy(
        self, inbox: Inbox, tmp_path: Path, person: str
    ) -> None:
        """Each marked column that may hold personal data, and no other: a new one needs no code."""
        async with inbox.database.writing() as connection:
            for sql, values in planted_rows(person.removeprefix("email:")):
                await connection.execute(text(sql), values)
        then = a_month_later(inbox, tmp_path)
        async with inbox.database.reading() as connection:
            found = await find_person(then, connection, person=person, order=None, progress=quiet)
            members, _ = await files_of(
                then, connection, found, set(), then.clock.now(), attachments=False
            )
        told = b"\n".join(members[each] for each in sorted(members) if each.startswith("data/"))
        for where, mark in columns():
            if is_searched(where, mark):
                marker = f"of {person.removeprefix('email:')} in {where}".encode()
                assert (marker in told) is (mark.personal != "not"), where

    async def test_an_unread_part_keeps_the_whole_body(self, inbox: Inbox, tmp_path: Path) -> None:
        body, whole = f'{{"phone": "{PHONE}"}}'.encode(), Envelope("d" * 64, PHONE.encode())
        event = paid("e1", "A")
        unread = arrival(None, whole=whole)
        parts: dict[str, Any] = {"body": body, "whole": whole}
        await keep(inbox, arrival(event, customer=(DIGEST,), **parts), unread)
        await refold_until_quiet(context(inbox), limit=10, progress=quiet)
        words: dict[str, Any] = {"progress": quiet}
        then, asked = (
            a_month_later(inbox, tmp_path),
            ErasureRequest(phone=PHONE, reason="-", by="Ann"),
        )
        erasure = await erase(then, asked, dry_run=False, **words)
        assert [(each.what, each.why) for each in erasure.kept] == [("A", "beside_unread")]
        await commit(inbox, prune, [unread.delivery_id], now=T)
        erasure = await erase(then, asked, dry_run=False, **words)
        assert (erasure.kept, [each.order for each in erasure.orders]) == ([], ["A"])
        for again, kept in (
            ([arrival(event, **parts), arrival(None, whole=whole)], 0),
            ([arrival(said("e2", order="B"), whole=whole)], 1),
        ):
            await keep(inbox, *again)
            assert await rows(inbox, "SELECT count(body) FROM envelopes") == [(kept,)]

    @pytest.mark.alike
    async def test_nobody_is_erased_without_a_journal(self, inbox: Inbox) -> None:
        """On PostgreSQL its place must be given; on SQLite it is made beside the database."""
        await keep(inbox, of_customer("e1", order="A"))
        journal = inbox.settings.erasure_journal_path
        assert (journal is None) is inbox.database.shared
        if journal is not None:
            await erasing(with_given(context(inbox, at=40 * DAY // SECOND), phone_key=KEY))
            begun = JournalState(path=journal, begun=True, waits=[])
            assert await journal_state(context(inbox)) == begun
            for file, missing in (
                (journal, ", only its key; put"),
                (key_path_of(journal), "; copy"),
            ):
                file.unlink()
                state = await journal_state(context(inbox))
                said = f"there is no journal of erasures at {journal}{missing}"
                assert (state.begun, said in str(state.problem)) == (True, True)
            return
        with pytest.raises(ConfigurationError, match="TALLYHOOK_ERASURE_JOURNAL: is not set"):
            await erasing(context(inbox, at=40 * DAY // SECOND))
        assert await with_bodies(inbox) == ["e1"]
        state = await journal_state(context(inbox))
        assert (state.problem, state.begun) == (None, False)

    @pytest.mark.alike
    async def test_the_rows_in_the_journal_are_emptied_again_and_no_others(
        self, inbox: Inbox, tmp_path: Path
    ) -> None:
        """In an older backup, where nothing of them was over yet; what came after stays."""
        then = a_month_later(inbox, tmp_path)
        journal = make_journal(tmp_path / "erasures", at=T)
        digest = partial(journal.key.digest, "orders")
        ids = dict[str, str]()
        for name in ("A", "B", "C", "D"):
            event = said(f"e-{name}", "pending", order=name, payment=f"p-{name}")
            at = 2 * DAY // SECOND if name == "D" else 0
            came = arrival(event, body=PHONE.encode(), customer=(DIGEST,), at=at)
            ids[name] = came.delivery_id
            await keep(inbox, came)
        refused = rejection(body=PHONE.encode())
        await keep(inbox, refused)
        await refold_until_quiet(context(inbox), limit=10, progress=quiet)
        journal.append(
            {
                "deliveries": [ids["A"], ids["C"], "dlv_unknown"],
                "rejections": [refused.delivery_id],
                "orders": [digest(each) for each in ("A", "C", "D", "nobody's")],
            },
            at=T + DAY,
        )
        waits = JournalState(path=journal.path, begun=False, pending=3, waits=[WAITS[""]])
        assert await journal_state(then) == waits
        replayed = await replay_after_restore(again(then), without=None)
        gone = {"deliveries": 2, "orders": 2, "rejections": 1}
        assert (replayed.lines, replayed.counts, replayed.pending) == (3, gone, {})
        assert await with_bodies(inbox) == ["e-B", "e-D"]
        assert await rows(inbox, "SELECT DISTINCT thing FROM phones ORDER BY 1") == [("B",), ("D",)]
        state = await journal_state(then)
        assert (state.begun, state.pending, state.problem) == (True, 0, None)
        assert len(await rows(inbox, "SELECT 1 FROM erasures")) == 4
        assert not (await replay_after_restore(again(then), without=None)).counts

    @pytest.mark.alike
    @pytest.mark.parametrize("why", ["refused", "unread", "beside", "set_aside"])
    async def test_what_had_been_read_when_it_was_erased_waits_until_it_is_read(
        self, inbox: Inbox, tmp_path: Path, why: str
    ) -> None:
        """It is money's evidence. It stays pending, is an alarm, and goes once it was read."""
        then = a_month_later(inbox, tmp_path)
        journal = make_journal(tmp_path / "erasures", at=T)
        whole = Envelope("d" * 64, PHONE.encode())
        read = arrival(paid("e1", "A"), body=PHONE.encode(), whole=whole)
        waits: Any = arrival(None, whole=whole, body=PHONE.encode())
        if why == "refused":
            waits = rejection(body=PHONE.encode())
        if why == "set_aside":
            await keep(inbox, read)
            await change(
                inbox,
                "INSERT INTO suspects (seq, aside, tries, orders, record, received_at) "
                "SELECT 1, 1, 3, '', body, 0 FROM deliveries",
            )
        else:
            await keep(inbox, read, waits)
        named = [read.delivery_id] if why == "beside" else [read.delivery_id, waits.delivery_id]
        journal.append({"deliveries": named}, at=T + DAY)
        code = {"beside": "unread"}.get(why, why)
        replayed = await replay_after_restore(again(then), without=None)
        assert (replayed.pending, replayed.counts["deliveries"]) == ({code: 1}, 1)
        left = await rows(inbox, "SELECT count(body) FROM envelopes")
        assert left == [(int(code == "unread"),)]
        assert (await journal_state(then)).waits == [WAITS[code]]
        assert (await long_pending(then))[0] == 1
        for sql in (
            "UPDATE deliveries SET verdict = 'stored' WHERE verdict = 'unreadable'",
            "DELETE FROM rejections",
            "DELETE FROM suspects",
        ):
            await change(inbox, sql)
        assert await PendingErasures(then).work() == 1
        assert (await journal_state(then)).pending == 0
        assert len(await with_bodies(inbox)) == (1 if why == "beside" else 0)
        assert await rows(inbox, "SELECT count(body) FROM envelopes") == [(0,)]

    @pytest.mark.alike
    async def test_an_erasure_that_was_cut_short_is_ended_by_the_next(
        self, inbox: Inbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its line is in the journal before the first row changes."""
        other = "254799888777"
        for name, phone in (("A", PHONE), ("B", other)):
            event = paid(f"e-{name}", name, f"p-{name}")
            await keep(inbox, arrival(event, body=f"{name} {phone}".encode()))
        await refold_until_quiet(context(inbox), limit=10, progress=quiet)
        then = a_month_later(inbox, tmp_path)

        async def crash(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(ErasureReplay, "carry_out", crash)
            with pytest.raises(KeyboardInterrupt):
                await erasing(then)
        assert await with_bodies(inbox) == ["e-A", "e-B"]
        assert (await journal_state(then)).pending == 2
        assert (await long_pending(then))[0] == 0, "it may be under way"
        await erasing(then, other)
        assert await with_bodies(inbox) == []
        assert (await journal_state(then)).pending == 0
        with pytest.raises(NotFoundError):
            await erasing(then)

    async def test_what_is_restricted_stands_until_its_period_ends(
        self, inbox: Inbox, tmp_path: Path
    ) -> None:
        """An older line that a restore repeats does not undo what was judged since."""
        await keep(inbox, arrival(paid("e1", "A"), body=PHONE.encode(), customer=(DIGEST,)))
        await refold_until_quiet(context(inbox), limit=10, progress=quiet)
        then = with_settings(a_month_later(inbox, tmp_path), retention_disputes_days=60)
        then = with_given(then, phone_key=KEY)
        assert [each.why for each in (await erasing(then)).kept] == ["disputable"]
        [row] = await fetch(inbox, run, due_restrictions, Instant(T + 60 * DAY), limit=9)
        assert (row.kind, row.thing, row.look_at) == ("order", "A", row.until)
        async with inbox.database.writing() as connection:
            (noted,) = await run(connection, restrictions_of_deliveries, await ids_of(inbox))
            assert noted[1] == row
            await run(connection, write_restrictions, [row._replace(why="not_over")])
            newer = Instant(row.erasure + 1)
            later = row._replace(why="to_settle", since=newer, erasure=newer)
            for _ in range(2):
                (after,) = await run(connection, restrictions_of, "order", ["A", "B"])
                assert after.why == ("disputable" if after.erasure == row.erasure else "to_settle")
                await run(connection, write_restrictions, [later])
            assert (after.since, after.erasure) == (row.since, newer)
            assert await run(connection, order_beside, after.erasure) == "A"
            assert await run(connection, restriction_totals) == (1, row.until, row.look_at)
        ended = with_settings(context(inbox, at=61 * DAY // SECOND), retention_disputes_days=60,
                              erasure_journal=tmp_path / "erasures")  # fmt: skip
        task = PendingErasures(ended)
        assert await task.work() == 0
        assert await with_bodies(inbox) == []
        async with inbox.database.reading() as connection:
            assert await run(connection, restriction_totals) == (0, None, None)
        assert task.rest_s(0) == REST_S, "the next round looks at what is restricted by then"
        await task.work()
        assert (task.rest_s(0), task.rest_s(2)) == (IDLE_S, REST_S)

    @pytest.mark.parametrize("table", ONLY_ADDED_TO)
    async def test_some_rows_can_only_be_added(self, inbox: Inbox, table: str) -> None:
        await commit(
            inbox,
            add_entry,
            AuditEntry(at=T, who="Ann", role="admin", action="erased", subject="A"),
        )
        await keep(inbox, arrival(said("e1", order="A", payment="p1")))
        await refold_until_quiet(context(inbox), limit=10, progress=quiet)
        async with inbox.database.writing() as connection:
            await note_lines(connection, "j", [(0, "a line")])
            await add_proposal(connection, PROPOSAL)
            await add_decision(connection, PROPOSAL.id, DECIDED)
        columns = {"signoffs": "item", "audit": "subject", "erasures": "line"}
        columns |= {"proposals": "subject", "proposal_decisions": "reason"}
        column = columns.get(table, "order_key")
        before = await rows(inbox, f"SELECT {column} FROM {table}")
        for statement in (f"UPDATE {table} SET {column} = 'x'", f"DELETE FROM {table}"):
            if not before and inbox.database.path is not None:
                continue  # SQLite asks row by row
            with pytest.raises(DBAPIError, match="only added"):
                await change(inbox, statement)
        assert await rows(inbox, f"SELECT {column} FROM {table}") == before
