"""Contract of every database for the log: every row has one leaf, whoever seals and when."""

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from app.access.operator_store import AuditEntry, add_entry
from app.core.errors import NotFoundError
from app.database.engine import Connection
from app.database.statements import run
from app.evidence import seal as seal_room
from app.evidence.prove_sealed import paths_to, proofs_of, prove_growth, prove_sealed
from app.evidence.seal import (
    GATHER_S,
    REST_S,
    Sealer,
    note_holds,
    read_checkpoint,
    seal_all,
    seal_orders_if_due,
)
from app.evidence.verify_log import VerifiedLog, verify_log
from app.orders.record_store import add_records
from app.orders.refold import refold_until_quiet
from app.privacy.facts_store import prove_log
from app.receiving.append_store import Arrival, keep_arrivals
from app.receiving.inbox import Inbox
from app.sealing import departure_store as leaving
from app.sealing import log_queue_store
from app.sealing.log_queue_store import count_unsealed, mark_read_again, without_leaf
from app.sealing.log_store import begin_log, leaves_after, newest_head
from app.sealing.order_store import NamedOrder, forget_order, named_orders
from app.sealing.order_tree_store import SealedTree, all_trees, entry_in
from reconcile.instants import Instant
from reconcile.ledger.records import Record
from reconcile.money import Money
from reconcile.transparency.merkle import consistency_holds, inclusion_holds, leaf_hash
from reconcile.transparency.order_tree import root_by
from tests.database.builders import (
    SIGNER,
    arrival,
    change,
    commit,
    context,
    fetch,
    keep,
    quiet,
    rows,
    said,
    seal,
)
from tests.reconcile.build import T

DAY_S = 24 * 60 * 60

TABLES = "deliveries", "records", "revisions", "audit", "order_trees"


def genuine(event_id: str, **fields: Any) -> Arrival:
    """Return a delivery whose digest is that of its body."""
    found = arrival(said(event_id, "succeeded", **fields))
    digest = hashlib.sha256(found.body).hexdigest()
    assert found.event is not None
    return found._replace(digest=digest, event=replace(found.event, digest=digest))


def placed(number: int, order: str = "A") -> Record:
    return Record(
        record_id=f"rec_{number:08}",
        recorded_at=T,
        kind="order_placed",
        order=order,
        at=T,
        money=Money(minor=1_500, currency="KES"),
    )


async def begin(inbox: Inbox) -> None:
    """Begin the log, as a start does."""
    public = SIGNER.key.public.raw.hex()
    await commit(inbox, begin_log, origin=SIGNER.origin, public=public, now=T)


async def some_of_each(inbox: Inbox) -> None:
    """Keep deliveries of several verdicts, a record, an audit entry, and the revisions of a
    fold."""
    again = genuine("e1", order="A")
    await keep(inbox, again, again._replace(delivery_id="dlv_again"), arrival(None))
    async with inbox.database.writing() as connection:
        await add_records(connection, [placed(1)], details='{"answer": "kept"}')
        await add_entry(
            connection, AuditEntry(at=T, who="ann", role="admin", action="x", subject="A")
        )
    await refold_until_quiet(context(inbox), limit=100, progress=quiet)


async def verified(inbox: Inbox) -> VerifiedLog:
    return await verify_log(context(inbox), progress=lambda done, of: None)


async def everything_is_sealed_once(inbox: Inbox) -> int:
    """Check that each row has one leaf, numbered without gaps and verified. Return their number."""
    counts = [await rows(inbox, f"SELECT count(*) FROM {table}") for table in TABLES]
    total: int = sum(count for ((count,),) in counts)
    numbers = await rows(inbox, "SELECT number FROM log_leaves ORDER BY number")
    assert [number for (number,) in numbers] == list(range(total))
    found = await verified(inbox)
    assert (found.problems, found.leaves, found.waiting) == ([], total, 0)
    return total


async def sealed(inbox: Inbox) -> list[dict[str, Any]]:
    """Return the members of every leaf, in the log's order."""
    return [leaf.members() for leaf in await fetch(inbox, leaves_after, 0, limit=1_000)]


class SealingContract:
    """Sealing, with one sealer and with several. A subclass gives `url`."""

    @pytest.mark.alike
    async def test_rows_of_every_kind_are_sealed(self, inbox: Inbox) -> None:
        await begin(inbox)
        await some_of_each(inbox)
        async with inbox.database.reading() as connection:
            assert await count_unsealed(connection) == 6
            # Four are marked, and two are numbered.
            counts = [await count_unsealed(connection, enough=each) for each in (2, 4, 5, 6, 7)]
            assert counts == [2, 4, 5, 6, 6]
            assert await without_leaf(connection, ["dlv_again"]) == {"dlv_again"}
        await seal(inbox)
        assert await everything_is_sealed_once(inbox) == 6
        async with inbox.database.reading() as connection:
            assert await count_unsealed(connection) == 0
            assert await without_leaf(connection, ["dlv_again", "no"]) == {"no"}
            head = await newest_head(connection)
        assert head is not None
        assert note_holds(head.note, name=SIGNER.origin, public=SIGNER.key.public)
        signed = read_checkpoint(head.note)
        assert (signed.size, signed.head) == (6, head.head)
        assert await seal(inbox) == 0

    @pytest.mark.alike
    @pytest.mark.parametrize(
        ("module", "bound", "rests"),
        [
            (log_queue_store, "MARKS_AT_ONCE", [0.0, GATHER_S, REST_S]),  # two marks, one mark
            (seal_room, "AT_ONCE", [0.0, 0.0, GATHER_S, REST_S]),  # a row, two, a row
        ],
    )
    async def test_a_sealer_rests_where_one_round_took_all(
        self,
        inbox: Inbox,
        monkeypatch: pytest.MonkeyPatch,
        module: ModuleType,
        bound: str,
        rests: list[float],
    ) -> None:
        """So that rows gather. Where there may be more, it goes on at once."""
        await begin(inbox)
        await seal(inbox)
        await keep(inbox, genuine("e0", order="A"))
        await keep(inbox, genuine("e1", order="A"), genuine("e2", order="A"))
        await keep(inbox, genuine("e3", order="A"))
        monkeypatch.setattr(module, bound, 2)
        sealer, found = Sealer(context(inbox), SIGNER), list[float]()
        for _ in rests:
            found.append(sealer.rest_s(await sealer.seal_some()))
        assert found == rests
        assert await everything_is_sealed_once(inbox) == 4

    @pytest.mark.alike
    async def test_rows_without_a_mark_are_found_by_id_in_steps(self, inbox: Inbox) -> None:
        await begin(inbox)
        await keep(inbox, *(genuine(f"e{n}", order="A") for n in range(30)))
        async with inbox.database.writing() as connection:
            await add_records(connection, [placed(n) for n in range(5)])
            await connection.exec_driver_sql("DELETE FROM unsealed")
        await keep(inbox, genuine("later", order="B"))
        assert await seal(inbox) >= 36
        assert await everything_is_sealed_once(inbox) == 36

    async def test_a_row_without_its_mark_is_reported_and_sealed(self, inbox: Inbox) -> None:
        await begin(inbox)
        await keep(inbox, genuine("e1", order="A"))
        await seal(inbox)
        await keep(inbox, genuine("e2", order="A"))
        await change(inbox, "DELETE FROM unsealed")
        assert await seal(inbox) == 0
        found = await verified(inbox)
        assert found.found == 1
        assert "has no leaf" in found.problems[0]
        await seal_all(context(inbox), SIGNER, sweep=True)
        assert await everything_is_sealed_once(inbox) == 2

    @pytest.mark.alike
    async def test_a_row_that_the_sweep_sealed_is_not_sealed_by_its_mark(
        self, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(log_queue_store, "MARKS_AT_ONCE", 2)
        await begin(inbox)
        for number in range(5):
            await keep(inbox, genuine(f"e{number}", order="A"))
        await seal(inbox)
        assert await everything_is_sealed_once(inbox) == 5
        assert await rows(inbox, "SELECT * FROM unsealed") == []

    async def test_several_sealers_seal_everything_once(self, inbox: Inbox) -> None:
        await begin(inbox)
        for part in range(6):
            await keep(inbox, *(genuine(f"e{part}.{n}", order="A") for n in range(50)))
            sealers = [Sealer(context(inbox), SIGNER) for _ in range(3)]
            await asyncio.gather(*(sealer.seal_some() for sealer in sealers))
        await seal(inbox)
        assert await everything_is_sealed_once(inbox) == 300

    @pytest.mark.alike
    async def test_a_row_with_a_lower_id_than_sealed_ones_is_sealed(self, inbox: Inbox) -> None:
        await begin(inbox)
        late = genuine("late", order="A")
        await keep(inbox, *(genuine(f"e{n}", order="A") for n in range(3)))
        await seal(inbox)
        await commit(inbox, keep_arrivals, [late])
        assert await seal(inbox) == 1
        assert await everything_is_sealed_once(inbox) == 4

    @pytest.mark.alike
    async def test_every_leaf_and_every_growth_is_proved(self, inbox: Inbox) -> None:
        """By the newest checkpoint, and by the first that covers the leaf, which stays the same."""
        await begin(inbox)
        await some_of_each(inbox)
        await seal(inbox)
        first = await self._proofs(inbox)
        await keep(inbox, *(genuine(f"later{n}", order="C") for n in range(300)))
        await seal(inbox)
        newest = await self._proofs(inbox)
        assert await self._proofs(inbox, earliest=True) == first
        assert (first["size"], newest["size"]) == (6, 306)
        grown = await prove_growth(context(inbox), old=6, new=306)
        assert consistency_holds(
            old=6,
            old_head=first["head"],
            size=306,
            head=newest["head"],
            proof=[bytes.fromhex(each) for each in grown["path"]],
        )

    async def _proofs(self, inbox: Inbox, *, earliest: bool = False) -> dict[str, Any]:
        subjects = ["dlv_again", "rec_00000001", "revision:1", "deed:1"]
        found = await fetch(inbox, proofs_of, subjects, earliest=earliest)
        head, size = found.checkpoint.head, found.checkpoint.size
        for proof in found.proofs:
            assert leaf_hash((proof.text or "").encode()) == proof.leaf_hash
            assert inclusion_holds(
                proof.leaf_hash, index=proof.number, size=size, proof=proof.path, head=head
            )
        documents = {proof.subject: proof.document() for proof in found.proofs}
        assert set(documents) == set(subjects)
        return {"size": size, "head": head, "note": found.note, "proofs": documents}

    @pytest.mark.alike
    async def test_an_unsealed_row_has_no_proof(self, inbox: Inbox) -> None:
        await begin(inbox)
        waiting = genuine("e1", order="A")
        await keep(inbox, waiting)
        for subject in (waiting.delivery_id, "deed:7", "no"):
            with pytest.raises(
                NotFoundError, match=r"does not exist or is not sealed yet.*log seal"
            ):
                await prove_sealed(context(inbox), subject)

    @pytest.mark.alike
    async def test_leaves_of_an_order_are_chained_under_its_own_name(self, inbox: Inbox) -> None:
        await begin(inbox)
        for part in range(2):
            await keep(inbox, *(genuine(f"{order}{part}", order=order) for order in "ABA"[part:]))
            await keep(inbox, arrival(None))
            await seal(inbox)
        leaves = await sealed(inbox)
        names = {leaf.get("of") for leaf in leaves}
        assert len(names) == 3
        for of in names - {None}:
            own = [n for n, leaf in enumerate(leaves) if leaf.get("of") == of]
            assert [(leaves[n]["nth"], leaves[n]["after"]) for n in own] == list(
                zip(range(1, len(own) + 1), [None, *own], strict=False)
            )
        assert await everything_is_sealed_once(inbox) == 7

    @pytest.mark.alike
    async def test_a_delivery_joined_to_its_order_gets_a_second_leaf(self, inbox: Inbox) -> None:
        await begin(inbox)
        orphan = genuine("e1", payment="p")
        await keep(inbox, orphan, orphan._replace(delivery_id="dlv_again"))
        await seal(inbox)
        await keep(inbox, genuine("e2", order="A", payment="p"))
        assert await seal(inbox) == 3
        async with inbox.database.writing() as connection:
            await run(connection, mark_read_again, [orphan.delivery_id])
        await seal(inbox)
        leaves = await sealed(inbox)
        assert [(each["kind"], "of" in each) for each in leaves] == [
            ("delivery", False), ("delivery", False), ("delivery", True), ("reading", True),
            ("reading", True),
        ]  # fmt: skip
        assert len({each.get("of") for each in leaves}) == 2
        assert {each["delivery"] for each in leaves[3:]} == {orphan.delivery_id, "dlv_again"}
        found = await verified(inbox)
        assert (found.problems, found.reread) == ([], 2)
        assert await fetch(inbox, prove_log, limit=5) == []

    @pytest.mark.alike
    async def test_only_a_changed_reading_is_sealed_again(self, inbox: Inbox) -> None:
        await begin(inbox)
        await keep(inbox, genuine("e1", order="A"), genuine("e2", order="A"))
        await seal(inbox)
        ids = [each["id"] for each in await sealed(inbox)]
        for claim in ("declined", "declined", "succeeded"):  # the last one counts
            async with inbox.database.writing() as connection:
                await connection.exec_driver_sql(f"UPDATE events SET claim = '{claim}' WHERE "
                                                 "event_id = 'e1'")  # fmt: skip
                await run(connection, mark_read_again, ids)
            await seal(inbox)
        leaves = await sealed(inbox)
        kinds = [each["kind"] for each in leaves]
        assert kinds == ["delivery", "delivery", "reading", "reading"]
        assert leaves[2]["delivery"] == leaves[0]["id"]
        assert leaves[2]["parts"] not in (None, leaves[0]["parts"])

    @pytest.mark.alike
    async def test_an_erased_order_gets_a_new_name_and_the_log_verifies(self, inbox: Inbox) -> None:
        await begin(inbox)
        await keep(inbox, genuine("e1", order="A"))
        await commit(inbox, add_records, [placed(1)])
        await seal(inbox)
        await commit(inbox, forget_order, "A")
        await commit(inbox, add_records, [placed(2)])
        await seal(inbox)
        leaves = await sealed(inbox)
        assert [each["nth"] for each in leaves] == [1, 2, 1]
        assert len({each["of"] for each in leaves}) == 2
        assert await everything_is_sealed_once(inbox) == 3

    @pytest.mark.alike
    async def test_a_leaf_inserted_into_an_orders_chain_is_found(self, inbox: Inbox) -> None:
        await begin(inbox)
        await keep(inbox, genuine("e1", order="A"))
        await seal(inbox)
        await change(inbox, "UPDATE order_keys SET leaves = 2")
        await keep(inbox, genuine("e2", order="A"))
        await seal(inbox)
        found = await verified(inbox)
        assert found.first == 1
        assert "is not the next leaf of its order" in found.problems[0]

    @pytest.mark.parametrize(
        ("sql", "table"),
        [
            ("UPDATE order_nodes SET hash = (SELECT head FROM log_checkpoints LIMIT 1) "
             "WHERE level = 16", "order_nodes"),
            ("DELETE FROM order_nodes WHERE level = 8", "order_nodes"),
            ("UPDATE order_states SET leaves = leaves + 1", "order_states"),
            ("DELETE FROM order_states", "order_states"),
        ],
    )  # fmt: skip
    @pytest.mark.alike
    async def test_a_changed_hash_of_the_order_tree_is_found_before_it_is_sealed(
        self, inbox: Inbox, sql: str, table: str
    ) -> None:
        await begin(inbox)
        for day in (1, 2):
            await keep(inbox, *(genuine(f"e{day}-{n}", order=f"order {n * day}") for n in range(9)))
            await seal(inbox)
            assert await seal_orders_if_due(context(inbox, at=day * DAY_S))
            await seal(inbox)
        await keep(inbox, genuine("late", order="order 1"))
        await seal(inbox)
        assert (await verified(inbox)).problems == []
        await change(inbox, sql)
        (found,) = (await verified(inbox)).problems
        assert f"a row of {table} was changed or deleted" in found

    @pytest.mark.alike
    async def test_after_a_tree_dated_ahead_there_is_one_each_day_again(self, inbox: Inbox) -> None:
        await begin(inbox)
        await keep(inbox, genuine("e1", order="A"))
        await seal(inbox)
        assert await seal_orders_if_due(context(inbox, at=3 * DAY_S))
        await seal(inbox)
        assert await seal_orders_if_due(context(inbox, at=2 * DAY_S))
        await seal(inbox)
        assert not await seal_orders_if_due(context(inbox, at=2 * DAY_S + 60))
        assert await seal_orders_if_due(context(inbox, at=3 * DAY_S))
        await seal(inbox)
        assert (await verified(inbox)).problems == []

    @pytest.mark.alike
    async def test_the_tree_of_all_orders_grows_as_the_log_does(self, inbox: Inbox) -> None:
        """It has each order's count of that day, also of an erased order."""
        await begin(inbox)
        await keep(inbox, *(genuine(f"e{n}", order=f"order {n % 40}") for n in range(60)))
        await seal(inbox)
        assert not await seal_orders_if_due(context(inbox)), "on the day on which the log began"
        assert await seal_orders_if_due(context(inbox, at=DAY_S))
        assert not await seal_orders_if_due(context(inbox, at=DAY_S + 60))
        await seal(inbox)
        await commit(inbox, forget_order, "order 7")
        await keep(inbox, *(genuine(f"f{n}", order=f"order {n}") for n in range(35, 45)))
        await seal(inbox)
        assert await seal_orders_if_due(context(inbox, at=2 * DAY_S))
        await seal(inbox)
        async with inbox.database.reading() as connection:
            named = await named_orders(connection, [f"order {n}" for n in range(45)])
            trees = await all_trees(connection)
            counts = [await self._counts(connection, named, tree) for tree in trees]
        assert [tree.orders for tree in trees] == [40, 45]
        assert counts[0] == {f"order {n}": 1 + (n < 20) for n in range(40) if n != 7}
        assert counts[1] == {
            f"order {n}": 1 + (n < 20) + (35 <= n < 40) for n in range(45) if n != 7
        }
        assert await everything_is_sealed_once(inbox) == 72
        await change(inbox, "UPDATE order_trees SET orders = 39 WHERE number = 1")
        found = await verified(inbox)
        assert ["all orders" in each for each in found.problems] == [True]

    async def _counts(
        self, connection: Connection, named: Mapping[str, NamedOrder], tree: SealedTree
    ) -> dict[str, int]:
        """Return the number of leaves of each order in a tree, from entries that lead to its
        root."""
        counts = {}
        for order, each in named.items():
            found = await entry_in(connection, each.commitment, tree)
            if found is not None:
                assert root_by(*found) == tree.root
                counts[order] = found[0].leaves
        return counts

    async def test_published_checkpoints_are_kept_by_size_and_way(self, inbox: Inbox) -> None:
        first, second = (
            leaving.Departure(size=n, way="mail", head=bytes(32), at=T) for n in (3, 9)
        )
        cosigned = [
            leaving.Departure(size=size, way=way, head=bytes(32), at=T, line=f"by {way}")
            for size, way in ((5, "a+1"), (5, "b+2"), (7, "b+2"), (9, "a+1"), (9, "c+3"))
        ]
        assert await fetch(inbox, leaving.last_to_leave) is None
        cosigned[-1] = replace(cosigned[-1], at=Instant(T + 9))
        async with inbox.database.writing() as connection:
            for each in (first, second, *cosigned, replace(first, head=b"x" * 32)):
                await leaving.add_departure(connection, each)
        async with inbox.database.reading() as connection:
            found = [await leaving.departures_after(connection, 0, "", limit=2)]
            while found[-1]:
                last = found[-1][-1]
                found.append(
                    await leaving.departures_after(connection, last.size, last.way, limit=2)
                )
            whole = [each for some in found for each in some]
            assert whole == sorted((first, second, *cosigned), key=lambda d: (d.size, d.way))
            newest = await leaving.newest_departures(connection)
            assert [(each.size, each.way) for each in newest] == [
                (9, "a+1"), (9, "c+3"), (9, "mail"), (7, "b+2"),
            ]  # fmt: skip
            assert await leaving.last_to_leave(connection) == (9, T + 9)
            assert await leaving.last_by(connection, "mail") == second
            assert await leaving.last_by(connection, "published") is None
            at_five = await leaving.cosignatures_of(connection, size=5, head=bytes(32))
            assert [each.line for each in at_five] == ["by a+1", "by b+2"]
            assert await leaving.cosignatures_of(connection, size=5, head=b"x" * 32) == []
            for names, quorum, over, size in (
                (["a+1", "b+2"], 2, 0, 5), (["a+1", "b+2"], 1, 5, 7), (["a+1"], 1, 5, 9),
                (["a+1", "b+2"], 2, 5, None), (["d+4"], 1, 0, None),
            ):  # fmt: skip
                assert size == await leaving.first_cosigned_over(
                    connection, over, witnesses=names, quorum=quorum
                )
            both = ["a+1", "b+2"]
            assert await leaving.last_cosigned(connection, witnesses=both, quorum=2) == 5
            assert await leaving.last_cosigned(connection, witnesses=both, quorum=1) == 9
            assert await leaving.last_cosigned(connection, witnesses=both, quorum=3) == 0
        with pytest.raises(Exception, match="only added"):
            await change(inbox, "DELETE FROM log_departures WHERE size = 3")

    async def test_of_two_that_ask_a_witness_one_has_it(self, inbox: Inbox) -> None:
        async with inbox.database.writing() as connection:
            assert await leaving.claim_witness(connection, "a+1", before=None, until=T)
            assert not await leaving.claim_witness(connection, "a+1", before=None, until=T)
            later = Instant(T + 5)
            assert await leaving.claim_witness(connection, "a+1", before=T, until=later)
            assert not await leaving.claim_witness(connection, "a+1", before=T, until=later)
            state = leaving.WitnessState(
                witness="a+1", size=7, cosigned_at=T, next_at=T, failures=2, since=T, problem="x"
            )
            await leaving.change_witness(connection, state)
        assert await fetch(inbox, leaving.witness_states) == {"a+1": state}

    @pytest.mark.alike
    async def test_a_long_log_keeps_few_hashes_and_proves_every_leaf(self, inbox: Inbox) -> None:
        await begin(inbox)
        for part in range(3):
            await keep(inbox, *(genuine(f"e{part}.{n}", order="A") for n in range(250)))
            await seal(inbox)
        assert await rows(inbox, "SELECT level, place FROM log_nodes ORDER BY place") == [
            (8, 0),
            (8, 1),
        ]
        async with inbox.database.reading() as connection:
            leaves = await leaves_after(connection, 0, limit=1_000)
            head = await newest_head(connection)
            assert head is not None
            for leaf in leaves[::37]:
                (proof,) = await paths_to(connection, [leaf.number], size=head.size)
                assert inclusion_holds(
                    leaf.hash, index=leaf.number, size=750, proof=proof, head=head.head
                )
        assert await everything_is_sealed_once(inbox) == 750
