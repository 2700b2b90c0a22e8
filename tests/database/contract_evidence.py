"""Contract of every database for an order's evidence: its bytes, proofs and publications."""

import hashlib
from dataclasses import replace

import pytest

from app.evidence.bundle import BundleRequest, build_evidence
from app.evidence.store import arrived, details_of_records, revisions_of, size_of_arrived
from app.evidence.verify_evidence import verify_evidence
from app.finance.read_lines import lines_naming
from app.orders.record_store import add_records
from app.receiving.append_store import Envelope
from app.receiving.inbox import Inbox
from reconcile.ledger.events import ClaimKind
from reconcile.ledger.records import Record
from reconcile.money import Money
from tests.database.builders import arrival, commit, context, keep, said
from tests.database.contract_ledgers import folded
from tests.reconcile.build import T, seconds

PLACED = Record(
    record_id="rec_1",
    recorded_at=T,
    kind="order_placed",
    order="A",
    at=T,
    money=Money(minor=100, currency="KES"),
)


class EvidenceContract:
    """Bytes, proofs and publications of an order's evidence. A subclass gives `url`."""

    @pytest.mark.alike
    async def test_deliveries_come_in_order_of_arrival_with_their_bytes(self, inbox: Inbox) -> None:
        """A duplicate has no body, and a part the whole."""
        event = said("e1", order="A", payment="p")
        whole = b"both events"
        digest = hashlib.sha256(whole).hexdigest()
        first = arrival(event, at=1, whole=Envelope(digest, whole))
        again, late = arrival(event, at=3), arrival(said("e2", order="A", payment="p"), at=2)
        for each in (first, again, late):
            await keep(inbox, each)
        ids = [first.delivery_id, again.delivery_id, late.delivery_id]
        async with inbox.database.reading() as connection:
            found = await arrived(connection, [*ids, "dlv_none"])
            size = await size_of_arrived(connection, ids)
            assert await arrived(connection, []) == []
        assert [each.delivery_id for each in found] == [ids[0], ids[2], ids[1]]
        assert [each.verdict for each in found] == ["stored", "stored", "duplicate"]
        assert [each.body for each in found] == [first.body, late.body, None]
        assert (found[0].whole, found[0].envelope) == (whole, digest)
        assert found[1].whole is None
        assert size == sum(each.size + len(each.headers) for each in found) + len(whole)

    @pytest.mark.alike
    async def test_revisions_and_details_up_to_an_instant_are_given(self, inbox: Inbox) -> None:
        await commit(inbox, add_records, [PLACED], details='{"a":1}')
        claims: dict[int, ClaimKind] = {1: "pending", 5: "succeeded"}
        for at, claim in claims.items():
            money = Money(minor=100, currency="KES")
            await keep(inbox, arrival(said(f"e{at}", claim, order="A", payment="p", money=money)))
            await folded(context(inbox, at=at))
        async with inbox.database.reading() as connection:
            found = await revisions_of(connection, "A", until=seconds(5))
            assert [each.outcome for each in found] == ["pending", "succeeded"]
            assert len(await revisions_of(connection, "A", until=seconds(4))) == 1
            assert await revisions_of(connection, "B", until=seconds(9)) == []
            assert await details_of_records(connection, ["rec_1", "x"]) == {"rec_1": '{"a":1}'}

    async def test_a_bundle_holds_and_is_the_same_again(self, inbox: Inbox) -> None:
        """Its proofs end at the first checkpoint that covers all, whatever was sealed since."""
        await commit(inbox, add_records, [PLACED])
        body = b"a body"
        digest = hashlib.sha256(body).hexdigest()
        event = said("e1", "succeeded", order="A", payment="p", money=PLACED.money)
        event = replace(event, digest=digest)
        await keep(inbox, arrival(event, body=body))
        await folded(context(inbox, at=1))
        request = BundleRequest(order="A", as_of=seconds(1), reason="why")
        built = [
            await build_evidence(context(inbox, at=at), request, lines=lines_naming)
            for at in (2, 3)
        ]
        assert built[0].archive == built[1].archive
        steps = {
            each.name: each.passed
            for each in verify_evidence(built[0].archive, now=seconds(3)).steps
        }
        assert [steps[name] for name in ("deliveries", "inclusion", "checkpoint", "ledger")] == [
            True, True, True, True,
        ]  # fmt: skip
