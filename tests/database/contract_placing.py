"""Contract of every database for payments of no order: list, assign, withdraw, dismiss."""

from dataclasses import replace
from typing import Any

import pytest

from app.access.operator_store import audit_entries
from app.access.operators import Proven
from app.access.proposal import Proposal
from app.access.proposals import Proposals
from app.context.context import AppContext
from app.core.errors import NotFoundError, UsageError
from app.finance import place_payment as placing
from app.finance.evidence_digest_store import evidence_digests
from app.finance.imports import ImportRequest, import_statement
from app.finance.match_rules import save_rules
from app.finance.suspense import suspended_payments
from app.orders.find_orders import find_orders
from app.orders.order_facts import OrderFacts, Reference, ReferenceTaken, tell_order
from app.orders.read_orders import explain_order
from app.orders.record_store import add_records
from app.orders.reindex import reindex
from app.orders.unallocated import (
    Unallocated,
    UnallocatedRequest,
    list_unallocated,
    read_unallocated,
    unallocated_totals,
)
from app.orders.unallocated_store import NAMED_BY_OTHERS
from app.receiving.inbox import Inbox
from reconcile.instants import EARLIEST
from reconcile.ledger.records import Record
from reconcile.money import Money
from tests.contexts import with_sources
from tests.database.builders import (
    SOURCES,
    arrival,
    checked,
    commit,
    context,
    fetch,
    keep,
    of_the_builders,
    plan_of,
    quiet,
    rows,
    said,
)
from tests.database.contract_breaks import people
from tests.database.contract_ledgers import folded
from tests.reconcile.build import seconds

KES = Money(minor=150_000, currency="KES")
DIGEST = bytes(36)
"""The keyed digest of the payer's number."""

ANN, BOB, EVE = Proven("ann"), Proven("bob"), Proven("eve")
"""An admin, one of finance and one of support."""

LIMIT = '[accept_alone_max]\nKES = "1500.00"\n[accept_alone_day]\nKES = "9000.00"\n'


def till(event_id: str = "e1", claim: Any = "succeeded", **more: Any) -> Any:
    """Return an event of a payment into the till."""
    return said(event_id, claim, **{"payment": "R1", "money": KES, **more})


def priced(order: str, *, minor: int = 150_000, at: int = 0) -> Record:
    return Record(
        record_id=f"price_{order}",
        recorded_at=seconds(at),
        kind="order_placed",
        order=order,
        at=seconds(at),
        money=Money(minor=minor, currency="KES"),
    )


async def prepared(inbox: Inbox, *orders: str, rules: str = LIMIT, payer: str = "A") -> AppContext:
    """Return a context with people, a payment R1, and orders of its amount; the payer is known by
    an event of one of them."""
    at = context(inbox, at=10)
    await people(at)
    if rules:
        await save_rules(at, rules, by="ann")
    await commit(inbox, add_records, [priced(order) for order in orders])
    await keep(inbox, arrival(till(), customer=(DIGEST,), at=1))
    if payer in orders:
        await keep(
            inbox, arrival(said("seen", order=payer, session="s1"), customer=(DIGEST,), at=1)
        )
    return at


async def assign(at: AppContext, order: str, *, by: str, **more: Any) -> Proposal | None:
    asked = {"kind": "assign", "payment": "R1", "order": order, "by": by, "reason": "they rang"}
    return await placing.place_payment(at, placing.Placing(**{**asked, **more}))


async def withdraw(at: AppContext, *, by: str, **more: Any) -> Proposal | None:
    asked = {"kind": "withdraw", "payment": "R1", "by": by, "reason": "a mistake"}
    return await placing.place_payment(at, placing.Placing(**{**asked, **more}))


async def dismiss(at: AppContext, as_: Any, *, by: str, **more: Any) -> Proposal | None:
    asked = {"kind": "dismiss", "payment": "R1", "by": by, "reason": "rent", "dismiss": as_}
    return await placing.place_payment(at, placing.Placing(**{**asked, **more}))


async def approve(at: AppContext, proposal: Proposal | None, *, by: str) -> None:
    assert proposal is not None
    proposals = Proposals(at, placing.placing_kinds(at).values())
    await proposals.approve(proposal.id, by=by, reason="I saw it")


async def listed(at: AppContext) -> list[Unallocated]:
    return (await list_unallocated(at, UnallocatedRequest(everything=True))).payments


async def outcome(at: AppContext, order: str) -> tuple[str, bool]:
    ledger = await explain_order(at, order)
    return ledger.outcome, ledger.fulfillable


class PlacingContract:
    """Properties of payments of no order."""

    @pytest.mark.alike
    @pytest.mark.parametrize("later_first", [False, True])
    async def test_a_renewal_is_on_no_order_until_the_shop_or_a_person_says_which(
        self, inbox: Inbox, later_first: bool
    ) -> None:
        at = context(inbox, at=10)
        await people(at)
        await save_rules(at, LIMIT, by="ann")
        await commit(inbox, add_records, [priced("A"), priced("B")])
        payments = [
            till(f"e{number}", order="A", payment=f"R{number}", agreement="sub",
                 occurred_at=seconds(number))
            for number in (1, 2, 3)
        ]  # fmt: skip
        for each in reversed(payments) if later_first else payments:
            await keep(inbox, arrival(each, at=5))
        assert await outcome(at, "A") == ("succeeded", True)
        found = await listed(at)
        assert {(each.id, each.why, each.suggested) for each in found} == {
            ("shop:R2", "renewal", ("A",)),
            ("shop:R3", "renewal", ("A",)),
        }
        totals = await unallocated_totals(at)
        assert (totals.count, totals.held) == (2, (Money(minor=300_000, currency="KES"),))
        held = await fetch(inbox, suspended_payments, policy=at.policy, as_of=seconds(10))
        assert {(each.payment, len(each.taken)) for each in held} == {("R2", 1), ("R3", 1)}
        await approve(at, await assign(at, "B", by=EVE, payment="R2"), by=BOB)
        await tell_order(
            at,
            OrderFacts(
                order="A",
                money=Money(minor=300_000, currency="KES"),
                references=(Reference(source="shop", payment="R3"),),
            ),
        )
        assert await outcome(at, "B") == ("succeeded", True)
        assert await outcome(at, "A") == ("succeeded", True)
        assert [each for each in await listed(at) if each.state == "open"] == []

    @pytest.mark.alike
    async def test_a_refund_of_no_payment_and_no_order_is_listed_and_raises_no_alarm(
        self, inbox: Inbox
    ) -> None:
        at = context(inbox, at=10)
        await keep(inbox, arrival(till(claim="refunded", movement="b2c", standalone=True), at=1))
        [found] = (await list_unallocated(at, UnallocatedRequest())).payments
        assert (found.id, found.refunded, found.waits) == ("shop:R1", KES, False)
        assert (await unallocated_totals(at)).count == 0
        await keep(inbox, arrival(till("e2"), at=2))  # it names a payment of ours
        [found] = await listed(at)
        assert found.captured == KES
        assert not found.standalone

    @pytest.mark.alike
    @pytest.mark.parametrize("makes", ["the shop", "an event"])
    @pytest.mark.parametrize("names_payment", [True, False])
    async def test_a_refund_of_no_payment_is_the_orders_once_something_else_makes_it(
        self, inbox: Inbox, makes: str, names_payment: bool
    ) -> None:
        at = context(inbox, at=10)
        reference = "R1" if names_payment else None
        alone = said("e1", "refunded", order="71", payment=reference, money=KES, standalone=True)
        name = "shop:R1" if names_payment else "shop:e1"
        await keep(inbox, arrival(alone, at=1))
        await folded(at)
        for _ in range(2):
            [found] = await listed(at)
            assert (found.id, found.why, found.suggested) == (name, "order_not_made", ("71",))
            assert (found.refunded, found.waits) == (KES, False)
            assert (await read_unallocated(at, name)).suggested == ("71",)
            with pytest.raises(NotFoundError, match=f"{name} names it, .* standalone refund"):
                await explain_order(at, "71")
            assert await rows(inbox, "SELECT order_key FROM revisions") == []
            [held] = await fetch(inbox, suspended_payments, policy=at.policy, as_of=seconds(10))
            assert len(held.taken) == 1
            await reindex(with_sources(at, SOURCES))
        if makes == "the shop":
            await tell_order(at, OrderFacts(order="71", money=KES))
        else:
            await keep(inbox, arrival(said("e2", "pending", order="71", payment="R2"), at=2))
        ledger = await explain_order(at, "71")
        assert "refund_standalone" in {each.code for each in ledger.findings}
        assert await listed(at) == []
        assert await fetch(inbox, suspended_payments, policy=at.policy, as_of=seconds(99)) == ()

    @pytest.mark.alike
    async def test_money_of_a_refund_of_no_payment_joins_the_capture_that_names_its_payment(
        self, inbox: Inbox
    ) -> None:
        at = context(inbox, at=10)
        alone = till("e1", "refunded", order="71", standalone=True)
        await keep(inbox, arrival(alone, at=1), arrival(till("e2"), at=2))
        [found] = await listed(at)
        assert (found.captured, found.refunded, found.named) == (KES, KES, ())

    @pytest.mark.alike
    async def test_one_person_assigns_to_the_only_order_that_fits(self, inbox: Inbox) -> None:
        at = await prepared(inbox, "A", "B")
        [payment] = await listed(at)
        found = await placing.suggested_orders(at, payment)
        assert [(each.order, each.fits, each.reasons) for each in found] == [
            ("A", True, ("amount", "number", "time")),
            ("B", False, ("amount", "time")),
        ]
        assert await assign(at, "A", by=BOB) is None
        assert await outcome(at, "A") == ("succeeded", True)
        assert (await listed(at), (await unallocated_totals(at)).count) == ([], 0)
        assert (await read_unallocated(at, "R1")).assigned_to == "A"
        [entry] = await fetch(inbox, audit_entries, limit=9, subject="shop:R1")
        assert (entry.action, entry.who, entry.reason) == ("payment_assigned", "bob", "they rang")
        assert {"order": "A", "amount": "1500.00"}.items() <= entry.facts.items()

    @pytest.mark.alike
    @pytest.mark.parametrize(
        ("rules", "payer", "order", "by", "why"),
        [
            pytest.param(LIMIT, "A", "A", EVE, "support proposes", id="support"),
            pytest.param(LIMIT, "A", "B", BOB, "not the only one", id="another order fits"),
            pytest.param(LIMIT, "-", "A", BOB, "not the only one", id="the number is not known"),
            pytest.param("", "A", "A", BOB, "no rule says", id="no limit"),
            pytest.param(
                LIMIT.replace("1500.00", "1499.99"),
                "A",
                "A",
                BOB,
                "more than",
                id="above the limit",
            ),
        ],
    )
    async def test_otherwise_a_second_person_decides(
        self, inbox: Inbox, rules: str, payer: str, order: str, by: str, why: str
    ) -> None:
        at = await prepared(inbox, "A", "B", rules=rules, payer=payer)
        with pytest.raises(UsageError, match=f"{why}.*a second operator must approve"):
            await assign(at, order, by=str(by))  # named, and not proved
        proposal = await assign(at, order, by=by)
        assert proposal is not None
        assert proposal.sentence.startswith("Assign payment shop:R1 (KES 1,500.00, received ")
        assert len(await listed(at)) == 1
        with pytest.raises(UsageError, match="support"):
            await approve(at, proposal, by=EVE)
        await approve(at, proposal, by=ANN)
        assert await outcome(at, order) == ("succeeded", True)

    @pytest.mark.alike
    async def test_two_orders_of_the_payer_that_owe_the_amount_take_a_second_person(
        self, inbox: Inbox
    ) -> None:
        at = await prepared(inbox, "A", "B")
        await keep(inbox, arrival(said("too", order="B", session="s2"), customer=(DIGEST,), at=2))
        assert await assign(at, "A", by=BOB) is not None

    @pytest.mark.alike
    async def test_the_second_of_two_people_is_told_what_the_first_did(self, inbox: Inbox) -> None:
        at = await prepared(inbox, "A", "B")
        shown = (await read_unallocated(at, "R1")).last_act or ""
        proposed = await assign(at, "B", by=ANN)
        await assign(at, "A", by=BOB, replaces=shown)
        with pytest.raises(UsageError, match=r"operator:bob assigned it to order A .* since you"):
            await assign(at, "B", by=ANN, replaces=shown)
        with pytest.raises(UsageError, match="withdraw"):
            await assign(at, "B", by=ANN)
        with pytest.raises(UsageError, match="has changed since this was proposed"):
            await approve(at, proposed, by=BOB)
        assert await outcome(at, "A") == ("succeeded", True)

    @pytest.mark.alike
    async def test_one_person_withdraws_unless_the_order_was_ever_fulfillable(
        self, inbox: Inbox
    ) -> None:
        at = await prepared(inbox, "A")
        await assign(at, "A", by=BOB)
        assert await withdraw(at, by=BOB) is None
        [payment] = await listed(at)
        assert (payment.why, payment.state) == ("assignment_withdrawn", "open")
        await assign(at, "A", by=BOB)
        await folded(at)
        proposal = await withdraw(at, by=BOB)
        assert proposal is not None
        assert await outcome(at, "A") == ("succeeded", True)
        await approve(at, proposal, by=ANN)
        assert await outcome(at, "A") == ("pending", False)
        await folded(at)
        assert len(await listed(at)) == 1

    @pytest.mark.alike
    async def test_assigning_and_withdrawing_use_up_the_day(self, inbox: Inbox) -> None:
        at = await prepared(inbox, "A", rules='[accept_alone_max]\nKES = "1500.00"\n')
        assert await assign(at, "A", by=BOB) is None
        proposal = await withdraw(at, by=BOB)
        assert proposal is not None
        assert "KES 1,500.00 of the KES 1,500.00 that one person may" in proposal.sentence
        assert await withdraw(at, by=ANN) is None

    @pytest.mark.alike
    async def test_assigned_elsewhere_both_orders_are_folded_again(self, inbox: Inbox) -> None:
        """The first order names the payment itself. Reindexing and the check change nothing."""
        at = await prepared(inbox, "A", "B", "C")
        await keep(inbox, arrival(till("e2", order="C"), at=2))
        await folded(at)
        assert await outcome(at, "C") == ("succeeded", True)
        await approve(at, await assign(at, "A", by=BOB), by=ANN)
        await folded(at)
        assert await outcome(at, "C") == ("not_attempted", False)
        await approve(at, await withdraw(at, by=BOB), by=ANN)
        await folded(at)
        assert (await outcome(at, "C"), await listed(at)) == (("succeeded", True), [])
        await approve(at, await assign(at, "B", by=BOB), by=ANN)
        await folded(context(inbox, at=60))
        assert dict(await rows(inbox, "SELECT order_key, outcome FROM ledgers")) == {
            "A": "pending",
            "B": "succeeded",
            "C": "not_attempted",
        }
        seen = {each: await outcome(at, each) for each in "ABC"}
        assert seen == {
            "A": ("pending", False),
            "B": ("succeeded", True),
            "C": ("not_attempted", False),
        }
        for _ in range(2):
            report = await checked(at)
            assert [each for each in report.problems if not of_the_builders(each)] == []
            await reindex(with_sources(at, SOURCES))
        assert {each: await outcome(at, each) for each in "ABC"} == seen

    @pytest.mark.alike
    async def test_what_a_closed_month_rests_on_is_as_it_was_after_an_assignment(
        self, inbox: Inbox
    ) -> None:
        """An event that named no order is an order's then; its day's digest has not changed."""
        at = await prepared(inbox, "A")
        span: dict[str, Any] = {"after": EARLIEST, "until": seconds(5), "progress": quiet}
        before = await fetch(inbox, evidence_digests, **span)
        await assign(at, "A", by=BOB)
        assert await fetch(inbox, evidence_digests, **span) == before
        later = await fetch(inbox, evidence_digests, **{**span, "until": seconds(99)})
        assert len(before) < sum(each.count for each in later)

    @pytest.mark.alike
    async def test_withdrawn_twice_a_payment_is_unallocated_again(self, inbox: Inbox) -> None:
        at = await prepared(inbox, "A", "B")
        for order in "AB":
            await approve(at, await assign(at, order, by=EVE), by=ANN)
            assert (await listed(at), await outcome(at, order)) == ([], ("succeeded", True))
            await withdraw(at, by=BOB)
        for _ in range(2):
            [payment] = await listed(at)
            assert (payment.waits, payment.held, payment.named) == (True, KES, ())
            await reindex(with_sources(at, SOURCES))

    async def test_after_a_withdrawal_the_shop_may_name_the_order(self, inbox: Inbox) -> None:
        at = await prepared(inbox, "A", "B")
        await assign(at, "A", by=BOB)
        await withdraw(at, by=BOB)
        await keep(inbox, arrival(till("e2", "refunded", movement="m", money=KES), at=3))
        [payment] = await listed(at)
        assert (payment.events, payment.waits) == (("e1", "e2"), False)
        later = context(inbox, at=30)
        named = (Reference(source="shop", payment="R1"),)
        await tell_order(later, OrderFacts(order="B", money=KES, references=named))
        with pytest.raises(ReferenceTaken, match="belongs to order B"):
            await tell_order(later, OrderFacts(order="A", money=KES, references=named))
        assert await listed(later) == []
        assert await outcome(later, "B") == ("refunded", False)
        assert await outcome(later, "A") == ("pending", False)

    @pytest.mark.alike
    async def test_a_dismissal_takes_two_and_money_that_goes_back_reopens_it(
        self, inbox: Inbox
    ) -> None:
        at = await prepared(inbox, "A")
        with pytest.raises(UsageError, match="name the account"):
            await dismiss(at, "other_business", by=BOB)
        proposal = await dismiss(at, "other_business", by=BOB, to="Income:Rent")
        assert len(await listed(at)) == 1
        await approve(at, proposal, by=ANN)
        [payment] = await listed(at)
        assert payment.dismissed is not None
        assert (payment.state, payment.dismissed.key) == ("dismissed", "Income:Rent")
        assert (await unallocated_totals(at)).count == 0
        with pytest.raises(UsageError, match=r"dismissed it .* withdraw"):
            await assign(at, "A", by=BOB)
        refund = till("e2", "refunded", movement="m", money=Money(minor=1, currency="KES"))
        await keep(inbox, arrival(refund, at=60))
        [payment] = await listed(at)
        assert (payment.state, payment.waits) == ("open", True)

    @pytest.mark.alike
    @pytest.mark.parametrize(("claim", "state"), [("refunded", "dismissed"), ("disputed", "open")])
    async def test_the_refund_that_a_dismissal_waits_for_reopens_nothing(
        self, inbox: Inbox, claim: Any, state: str
    ) -> None:
        at = await prepared(inbox)
        await approve(at, await dismiss(at, "to_refund", by=EVE), by=ANN)
        await keep(inbox, arrival(till("e2", claim, movement="m"), at=60))
        assert (await read_unallocated(at, "R1")).state == state

    @pytest.mark.alike
    async def test_an_answered_payment_is_assigned_with_the_amount_of_a_statement_line(
        self, inbox: Inbox, tmp_path: Any
    ) -> None:
        at = await prepared(inbox, "A")
        asked = till("u", "pending", payment="R2", standing="unconfirmed")
        told = replace(asked, event_id="u-answer", digest="a" * 64, claim="succeeded")
        await keep(inbox, arrival(asked, at=2))
        assert "shop:R2" not in {each.id for each in await listed(at)}
        await keep(inbox, arrival(replace(told, standing="answered"), at=3))
        with pytest.raises(UsageError, match="no statement line does"):
            await assign(at, "A", by=BOB, payment="R2")
        path = tmp_path / "statement.csv"
        path.write_text("payment_reference,gross,currency,type\nR2,1400.00,KES,payment\n")
        await import_statement(at, ImportRequest(path=path, by=BOB), source="shop")
        await approve(at, await assign(at, "A", by=BOB, payment="R2"), by=ANN)
        ledger = await explain_order(at, "A")
        assert ledger.held == Money(minor=140_000, currency="KES")

    @pytest.mark.alike
    @pytest.mark.parametrize(
        ("asked", "error", "why"),
        [
            ({"order": "Z"}, NotFoundError, "let the shop state it"),
            ({"order": "A", "payment": "R9"}, NotFoundError, "no unallocated payment"),
            ({"order": "A", "reason": " "}, UsageError, "give a reason"),
            ({"order": ""}, UsageError, "reference"),
        ],
        ids=["unknown order", "unknown payment", "no reason", "no order"],
    )
    async def test_what_is_not_possible_is_refused_with_what_to_do(
        self, inbox: Inbox, asked: dict[str, str], error: type[Exception], why: str
    ) -> None:
        at = await prepared(inbox, "A")
        with pytest.raises(error, match=why):
            await assign(at, **{"by": BOB, **asked})

    @pytest.mark.alike
    async def test_payments_of_other_shops_are_listed_counted_and_found_by_their_number(
        self, inbox: Inbox
    ) -> None:
        at = await prepared(inbox, "A")
        others = [
            till("o1", order="A", payment="po_1", shop="other"),
            till("o2", "refunded", payment="po_1", movement="re_1", shop="other"),
            till("o3", order="X", payment="po_2", shop="other"),
        ]
        await keep(inbox, *(arrival(each, at=2) for each in others))
        asked = UnallocatedRequest(not_ours=True, limit=1)
        first = await list_unallocated(at, asked)
        second = await list_unallocated(at, replace(asked, after=first.next or ""))
        found = [*first.payments, *second.payments]
        assert [(each.id, each.state) for each in found] == [
            ("shop:po_1", "not_ours"),
            ("shop:po_2", "not_ours"),
        ]
        assert (await unallocated_totals(at)).not_ours == 2
        assert await outcome(at, "A") == ("pending", False)
        sought = await find_orders(at, "A", limit=5)
        assert [each["order"] for each in sought.hits] == ["A"]
        assert "po_1" in repr(sought.unallocated)
        with pytest.raises(NotFoundError, match="shop:po_2 names it"):
            await explain_order(at, "X")
        sql = NAMED_BY_OTHERS.replace("?", ":order", 1).replace("?", ":until")
        plan = await plan_of(inbox, sql, {"order": "X", "until": seconds(9)})
        assert "other_shops" in plan
