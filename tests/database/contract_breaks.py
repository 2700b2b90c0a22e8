"""Contract of every database for runs and breaks: identity, turns, evidence, acts."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError

from app.access.operator_store import audit_entries
from app.access.operators import Proven, Role, register_operator
from app.access.proposal import Proposal
from app.access.proposals import Proposals
from app.context.context import AppContext
from app.core.errors import UsageError
from app.finance import break_acts as acts
from app.finance.break_choice import act_on_chosen, chosen_for, read_choice
from app.finance.break_store import Run, save_closed, save_seen, seen_by, steps_of, take_run_number
from app.finance.match_rules import current_rules, rules_kind, save_rules
from app.finance.reconcile_period import finish
from app.finance.reconcile_rows import refresh_ledger_lines
from app.finance.worklist import late_document, late_items, settle_late
from app.receiving.inbox import Inbox
from reconcile.matching.breaks import Break, Candidate
from reconcile.matching.control import Control, control_text
from reconcile.money import Money
from tests.contexts import with_settings
from tests.database.builders import arrival, change, commit, context, fetch, keep, quiet, rows, said
from tests.database.contract_ledgers import paid
from tests.finance.deciding import decide
from tests.reconcile.build import T, seconds

KES = Money(minor=150_000, currency="KES")
KEYS = {
    "runs": "number",
    "breaks": "id",
    "break_versions": "version",
    "break_seen": "run",
    "break_turns": "run",
    "break_deeds": "number",
}
"""A column of each table."""

PEOPLE: dict[str, Role] = {"ann": "admin", "bob": "finance", "eve": "support"}


def missing(order: str, *, minor: int = 150_000, lines: Sequence[str] = ()) -> Break:
    """Return a break: the book says paid, and no money came."""
    money = Money(minor=minor, currency="KES")
    return Break(
        cause="book_paid_not_received",
        order=order,
        payment=None,
        subject=f"bok_{order}",
        money=money,
        since=T,
        cites=(f"bok_{order}.1",),
        candidates=tuple(
            Candidate(line=line, reference=line, money=money, apart="reference") for line in lines
        ),
    )


def late(order: str, why: str = "given_up") -> Break:
    """Return a break: money came after the shop had canceled."""
    return Break(
        cause="late_money",
        order=order,
        payment="p",
        subject=None,
        money=KES,
        since=T,
        cites=("e",),
        facts=(("captured", KES), ("why", why)),
    )


async def people(at: AppContext) -> None:
    """Register two operators who may accept, and one who may not."""
    for person, role in PEOPLE.items():
        await register_operator(at, name=person, role=role, by="ann")


async def run(inbox: Inbox, *found: Break, at: int, lived: bool = True, rules: int = 0) -> int:
    """Save a run that saw these breaks."""
    number = await commit(inbox, take_run_number)
    await commit(inbox, save_seen, found, number=number, as_of=seconds(at))
    done = finished(number, at=at, lived=lived, rules=rules, breaks=len(found))
    await finish(context(inbox, at=at), done)
    return number


def finished(number: int, *, at: int, lived: bool = True, rules: int = 0, breaks: int = 1) -> Run:
    """Return a run as of `at` seconds after T."""
    return Run(
        number=number,
        at=seconds(at),
        as_of=seconds(at),
        since=None,
        until=None,
        rules=rules or None,
        lived=lived,
        breaks=breaks,
        ties=True,
        result=control_text(Control(as_of=seconds(at))),
    )


async def living(inbox: Inbox) -> dict[str, str]:
    """Return the state of each living break, by order."""
    found = [each async for part in acts.living_breaks(context(inbox)) for each in part]
    return {str(each.seen.order): each.life.state for each in found}


async def saw(inbox: Inbox, number: int) -> list[Break]:
    return [each.seen async for part in acts.breaks_of_run(context(inbox), number) for each in part]


async def turns(inbox: Inbox, found: Break) -> list[str]:
    one = await acts.one_break(context(inbox), found.identity)
    return [step.kind for step in one.steps if step.by is None]


async def show(inbox: Inbox, found: Break) -> acts.SeenBreak:
    return await acts.one_break(context(inbox), found.identity)


class BreakContract:
    """Runs and breaks. A subclass gives `url`."""

    @pytest.mark.alike
    async def test_a_break_opens_closes_and_reopens_with_its_history(self, inbox: Inbox) -> None:
        """A run that only looks changes nothing."""
        await run(inbox, missing("A"), missing("B"), at=1)
        await run(inbox, missing("A"), missing("B"), at=2)
        await run(inbox, missing("A"), missing("C"), at=3)
        await run(inbox, missing("D"), at=4, lived=False)
        assert await living(inbox) == {"A": "open", "B": "closed", "C": "open"}
        await run(inbox, missing("B"), missing("C", minor=7), at=5)
        assert await living(inbox) == {"A": "closed", "B": "open", "C": "open"}
        assert await turns(inbox, missing("A")) == ["opened", "closed"]
        assert await turns(inbox, missing("B")) == ["opened", "closed", "reopened"]
        assert await turns(inbox, missing("C")) == ["opened", "changed"]
        assert (await show(inbox, missing("C"))).seen.money.minor == 7

    async def test_breaks_are_found_by_cause_state_and_person(self, inbox: Inbox) -> None:
        """A break that the newest run saw is not closed. The last assignment counts."""
        at = context(inbox)
        await people(at)
        await run(inbox, *map(missing, "ABCDEF"), late("L"), at=1)
        for order, whose in (("A", "ann"), ("B", "ann"), ("B", "bob"), ("C", "ann"), ("F", "ann")):
            await decide(at, missing(order).identity, "assigned", value=whose, by="ann")
        await decide(at, missing("D").identity, "accepted", reason="small", by="ann")
        await run(inbox, *map(missing, "ABDEF"), late("L"), at=2)
        await decide(at, missing("F").identity, "assigned", value="", by="ann")
        asked: list[tuple[dict[str, Any], str]] = [
            ({}, "ABCDEFL"),
            ({"states": ("open", "assigned", "accepted")}, "ABDEFL"),
            ({"states": ("closed",)}, "C"),
            ({"states": ("assigned",)}, "AB"),
            ({"states": ("accepted",)}, "D"),
            ({"states": ("open",)}, "EFL"),
            ({"assignee": "ann", "states": ("open", "assigned")}, "A"),
            ({"assignee": "ann"}, "AC"),
            ({"assignee": "bob"}, "B"),
            ({"causes": ["late_money"], "states": ("open",)}, "L"),
            ({"causes": ["late_money"], "states": ("closed",)}, ""),
        ]
        for words, orders in asked:
            found = [one async for part in acts.living_breaks(at, **words) for one in part]
            assert [one.identity for one in found] == sorted(one.identity for one in found)
            assert "".join(sorted(str(one.seen.order) for one in found)) == orders, words

    @pytest.mark.alike
    async def test_a_break_without_a_date_ages_from_its_first_run(self, inbox: Inbox) -> None:
        for at in (1, 2, 3):
            await run(inbox, replace(missing("A"), since=seconds(at)), at=at)
        await run(inbox, replace(missing("A", minor=7), since=seconds(4)), at=4)
        assert await turns(inbox, missing("A")) == ["opened", "changed"]
        (first,) = [seen for _, seen in await fetch(inbox, seen_by, 3, after="")]
        assert first.since == seconds(1)

    @pytest.mark.alike
    async def test_every_run_can_be_shown_as_it_was(self, inbox: Inbox) -> None:
        """A later run changes nothing of an earlier one. Runs that see the same share a version."""
        first = await run(inbox, missing("A"), at=1)
        await run(inbox, missing("A"), at=2)
        third = await run(inbox, missing("A", minor=7), late("A"), at=3)
        both = [missing("A", minor=7), late("A")]
        assert await saw(inbox, first) == [missing("A")]
        assert sorted(await saw(inbox, third), key=lambda each: each.cause) == both
        versions = await rows(inbox, "SELECT break_id, version FROM break_versions")
        assert len(versions) == 3

    @pytest.mark.alike
    async def test_a_run_that_was_overtaken_opens_no_break(self, inbox: Inbox) -> None:
        """No run would ever close a break that the later run no longer saw."""
        async with inbox.database.writing() as connection:
            early = [await take_run_number(connection) for _ in range(2)]
            for number in early:
                await save_seen(connection, [missing("A")], number=number, as_of=seconds(1))
        await run(inbox, at=2)
        with pytest.raises(UsageError, match="another run finished"):
            await finish(context(inbox, at=3), finished(early[0], at=1))
        await finish(context(inbox, at=3), finished(early[1], at=1, lived=False))
        assert (await living(inbox), await saw(inbox, early[1])) == ({}, [missing("A")])

    @pytest.mark.alike
    async def test_breaks_that_a_refused_run_closed_stay_open(self, inbox: Inbox) -> None:
        """The run began later than the one that overtook it, and had already finished."""
        await run(inbox, missing("A"), at=1)
        async with inbox.database.writing() as connection:
            early, late_one = [await take_run_number(connection) for _ in range(2)]
            await save_closed(connection, [(missing("A").identity, 1, ["evt"])], number=late_one)
            await save_seen(connection, [missing("A", minor=7)], number=early, as_of=seconds(2))
        await finish(context(inbox, at=3), finished(early, at=2))
        found = await show(inbox, missing("A"))
        assert (found.seen.money.minor, found.life.state) == (7, "open")

    @pytest.mark.alike
    async def test_acts_during_a_run_come_before_what_it_found(self, inbox: Inbox) -> None:
        await run(inbox, missing("A"), at=1)
        async with inbox.database.writing() as connection:
            number = await take_run_number(connection)
            await save_seen(connection, [missing("A", minor=7)], number=number, as_of=seconds(3))
        name = missing("A").identity
        await decide(context(inbox, at=5), name, "accepted", reason="small", by="ann")
        await finish(context(inbox, at=9), finished(number, at=3))
        found = await show(inbox, missing("A"))
        assert [(step.kind, step.at) for step in found.steps] == [
            ("opened", seconds(1)),
            ("accepted", seconds(5)),
            ("changed", seconds(9)),
        ]
        assert found.life.state == "open"

    @pytest.mark.alike
    async def test_rows_of_a_killed_run_are_invisible(self, inbox: Inbox) -> None:
        """The next run is compared with the last that finished."""
        await run(inbox, missing("A"), at=1)
        async with inbox.database.writing() as connection:
            number = await take_run_number(connection)
            await save_seen(connection, [missing("B")], number=number, as_of=seconds(2))
        await run(inbox, missing("A"), missing("B"), at=3)
        assert await turns(inbox, missing("A")) == ["opened"]
        assert await turns(inbox, missing("B")) == ["opened"]

    @pytest.mark.alike
    async def test_a_closed_break_cites_its_later_events_and_new_rules(self, inbox: Inbox) -> None:
        """Events of its order count under any spelling; earlier events and other orders do not."""
        await keep(inbox, arrival(said("old", order="ord 1", payment="p"), at=1))
        await run(inbox, missing("ORD-1"), missing("X"), at=2)
        await keep(inbox, arrival(paid("ord 1"), at=3), arrival(paid("other"), at=3))
        await refresh_ledger_lines(context(inbox, at=4), progress=quiet)
        await run(inbox, missing("X"), at=4)
        closed = await show(inbox, missing("ORD-1"))
        assert closed.life.closed_by == ("paid-ord 1",)
        assert "paid-ord 1" in closed.life.because
        await run(inbox, at=5, rules=1)
        assert (await show(inbox, missing("X"))).life.closed_by == ("rules 1",)

    @pytest.mark.alike
    async def test_acts_on_breaks_are_append_only_and_in_the_trail(self, inbox: Inbox) -> None:
        await run(inbox, missing("A"), at=1)
        name, at = missing("A").identity, context(inbox, at=2)
        await decide(at, name, "assigned", value="bob", by="ann")
        await decide(at, name, "commented", reason="asked the bank", by="ann")
        assert await living(inbox) == {"A": "assigned"}
        await decide(at, name, "accepted", reason="small", by="ann")
        assert await living(inbox) == {"A": "accepted"}
        await run(inbox, missing("A", minor=7), at=3)
        found = await show(inbox, missing("A"))
        assert (found.life.state, found.life.assignee) == ("assigned", "bob")
        assert [step.kind for step in found.steps] == [
            "opened", "assigned", "commented", "accepted", "changed",
        ]  # fmt: skip
        async with inbox.database.reading() as connection:
            earlier = await steps_of(connection, [name], as_of=seconds(1))
            trail = await audit_entries(connection, limit=9, subject=name)
        assert [(each.action, each.who, each.reason) for each in trail] == [
            ("break_assigned", "ann", ""),
            ("break_commented", "ann", "asked the bank"),
            ("break_accepted", "ann", "small"),
        ]
        assert trail[-1].facts["amount"] == "1500.00"
        assert [step.kind for step in earlier[name]] == ["opened"]

    @pytest.mark.alike
    async def test_above_the_limit_two_operators_accept(self, inbox: Inbox) -> None:
        """The same operator twice is refused, and so is one without the right."""
        at = context(inbox, at=2)
        await save_rules(at, '[accept_alone_max]\nKES = "1000.00"\n', by="ann")
        await run(inbox, missing("A"), missing("B", minor=100_000), late("C"), at=1)
        big, small, late_one = (each.identity for each in (missing("A"), missing("B"), late("C")))
        proposals = Proposals(at, [acts.acceptance_kind(at), rules_kind(at)])
        await decide(at, small, "accepted", reason="at the limit", by="ann")
        for by in (Proven("ann"), "ann"):
            with pytest.raises(UsageError, match="a second operator must approve"):
                await decide(at, big, "accepted", reason="x", by=by)
        await people(at)
        proposal = await decide(at, big, "accepted", reason="gone", by=Proven("ann"))
        assert proposal is not None
        assert f"Accept {big}: nothing is booked; KES 1,500.00 is at stake" in proposal.sentence
        for by, why in (
            ("ann", "yourself"),
            ("eve", "support"),
            ("mallory", "not an active operator"),
        ):
            with pytest.raises(UsageError, match=why):
                await proposals.approve(proposal.id, by=Proven(by), reason="x")
        with pytest.raises(UsageError, match="to decide a proposal, sign in"):
            await proposals.approve(proposal.id, by="bob", reason="x")
        assert await living(inbox) == {"A": "open", "B": "accepted", "C": "open"}
        await proposals.approve(proposal.id, by=Proven("bob"), reason="I saw it")
        assert "ann and bob" in (await show(inbox, missing("A"))).life.because
        await settle_late(at, late_one, action="refund", reason="it goes back", by="ann")
        kept = await settle_late(at, late_one, action="credit", reason="a gift", by=Proven("bob"))
        assert isinstance(kept, Proposal)
        await proposals.approve(kept.id, by=Proven("ann"), reason="so be it")
        life = (await show(inbox, late("C"))).life
        assert (life.settling, "bob and ann" in life.because) == ("credit", True)
        trail = await fetch(inbox, audit_entries, limit=99, subject=big)
        assert [(each.action, each.who, each.facts["second"]) for each in trail] == [
            ("break_accepted", "ann", "bob")
        ]

    @pytest.mark.alike
    @pytest.mark.parametrize(
        ("left", "said"),
        [
            ((), "nothing is booked; KES 2,000.00 is at stake."),
            ((Money(minor=2000_00, currency="KES"),), "KES 2,000.00 is written off."),
            (
                (Money(minor=-20_00, currency="KES"),),
                "KES 20.00 is kept, although it was not reported.",
            ),
            (
                (Money(minor=5, currency="KES"), Money(minor=-7_00, currency="USD")),
                "KES 0.05 is written off, and USD 7.00 is kept, although it was not reported.",
            ),
        ],
    )
    async def test_a_proposal_states_what_is_booked(
        self, inbox: Inbox, left: tuple[Money, ...], said: str
    ) -> None:
        """That is what the break leaves to settle: a mistake of the book leaves nothing."""
        at = context(inbox, at=2)
        await save_rules(at, '[accept_alone_max]\nKES = "1.00"\n', by="ann")
        found = replace(missing("A", minor=2000_00), left=left)
        await run(inbox, found, at=1)
        await people(at)
        proposal = await decide(at, found.identity, "accepted", reason="x", by=Proven("ann"))
        assert proposal is not None
        assert proposal.sentence.startswith(f"Accept {found.identity}: {said} ")

    @pytest.mark.alike
    async def test_small_acceptances_add_up_in_the_merchants_day_and_month(
        self, inbox: Inbox
    ) -> None:
        """What two decided, what another decided and what goes back use up nothing."""
        hour, limits = 3_600, '[accept_alone_max]\nKES = "1000.00"\n'
        at = context(inbox, at=2)
        month = '[accept_alone_month]\nKES = "1800.00"\n'
        await save_rules(at, limits + month, by="ann")
        await people(at)
        found = {name: missing(name, minor=90_000) for name in "ABCDEFG"}
        await run(inbox, *found.values(), late("L"), at=1)
        proposals = Proposals(at, [acts.acceptance_kind(at), rules_kind(at)])

        async def accept(name: str, *, by: str, at: AppContext) -> Proposal | None:
            given = {"reason": "gone", "by": Proven(by)}
            return await decide(at, found[name].identity, "accepted", **given)

        await settle_late(at, late("L").identity, action="refund", reason="back", by=Proven("ann"))
        assert await accept("A", by="ann", at=at) is None
        second = await accept("B", by="ann", at=at)
        assert second is not None
        assert second.sentence.endswith(
            "This needs two people: KES 900.00 of the KES 1,000.00 that one person may decide "
            "about alone in a day is used up today: less than KES 900.00 is left."
        )
        assert await accept("C", by="bob", at=at) is None
        await proposals.approve(second.id, by=Proven("bob"), reason="so be it")
        late_evening = context(inbox, at=13 * hour)  # 23:00 in UTC, and the next day in Nairobi
        assert await accept("D", by="ann", at=late_evening) is not None
        in_nairobi = with_settings(late_evening, timezone="Africa/Nairobi")
        assert await accept("E", by="ann", at=in_nairobi) is None
        names = [found[name].identity for name in "FG"]
        seen = acts.mark_of(await acts.some_breaks(at, names))
        tomorrow = context(inbox, at=30 * hour)
        with pytest.raises(
            UsageError, match="nothing was accepted: a second person must approve brk_"
        ):
            await acts.act_on_breaks(
                tomorrow,
                names,
                acts.BreakAct(kind="accepted", reason="x", by=Proven("ann")),
                seen=seen,
            )
        next_month = context(inbox, at=11 * 24 * hour)
        assert await accept("F", by="ann", at=next_month) is None

    @pytest.mark.alike
    async def test_a_chosen_break_above_a_limit_set_meanwhile_is_refused(
        self, inbox: Inbox
    ) -> None:
        """Chosen breaks are never proposed, not even a single one: it would be reported done."""
        at, doing = context(inbox, at=2), acts.BreakAct(kind="accepted", reason="x", by="ann")
        await run(inbox, missing("A"), at=1)
        chosen = await chosen_for(at, read_choice("order=A"), doing, least=0)
        await save_rules(at, '[accept_alone_max]\nKES = "1.00"\n', by="ann")
        await people(at)
        assert [each.identity for each in chosen.of] == [missing("A").identity]
        with pytest.raises(UsageError, match="nothing was accepted: a second person must"):
            await act_on_chosen(at, chosen, replace(doing, by=Proven("ann")))
        assert await Proposals(at, [acts.acceptance_kind(at)]).waiting() == []
        assert await living(inbox) == {"A": "open"}

    @pytest.mark.alike
    async def test_a_proposal_is_not_approved_after_its_break_changed(self, inbox: Inbox) -> None:
        """A name or a note is no change."""
        at = context(inbox, at=9)
        await save_rules(at, '[accept_alone_max]\nKES = "1000.00"\n', by="ann")
        await run(inbox, missing("A"), missing("B"), at=1)
        await people(at)
        proposals = Proposals(at, [acts.acceptance_kind(at), rules_kind(at)])
        found = [
            await decide(at, missing(name).identity, "accepted", reason="gone", by=Proven("ann"))
            for name in "AB"
        ]
        first, other = (each.id for each in found if each is not None)
        await decide(at, missing("A").identity, "commented", reason="asked the bank", by="bob")
        await decide(at, missing("A").identity, "assigned", value="bob", by="bob")
        await run(inbox, missing("A"), missing("B", minor=150_001), at=3)
        with pytest.raises(UsageError, match="has changed since"):
            await proposals.approve(other, by=Proven("bob"), reason="x")
        await proposals.approve(first, by=Proven("bob"), reason="x")
        with pytest.raises(UsageError, match="bob has already approved this"):
            await proposals.approve(first, by=Proven("bob"), reason="x")
        assert await living(inbox) == {"A": "accepted", "B": "open"}

    @pytest.mark.alike
    async def test_an_unknown_amount_is_above_every_limit(self, inbox: Inbox) -> None:
        """Without a limit one person accepts it."""
        at = context(inbox, at=2)
        unknown = replace(missing("A", minor=0), cause="unresolved")
        await run(inbox, unknown, replace(unknown, order="B"), at=1)
        await decide(at, unknown.identity, "accepted", reason="a gift", by="ann")
        await save_rules(at, '[accept_alone_max]\nJPY = "5"\n', by="ann")
        name = replace(unknown, order="B").identity
        with pytest.raises(UsageError, match="is not known"):
            await decide(at, name, "accepted", reason="a gift", by="ann")

    @pytest.mark.alike
    async def test_rules_with_a_limit_are_changed_by_two(self, inbox: Inbox) -> None:
        """Any change counts: a wide tolerance hides as much as a high limit. One person sets the
        first limit. A change in between ends the proposal."""
        at = context(inbox)
        low, high = (f'[accept_alone_max]\nKES = "{n}.00"\n' for n in (10, 11))
        for rules in ('book_margin = "1 day"\n', low):
            await save_rules(at, rules, by="ann")
        await people(at)
        for rules in (high, "", 'book_margin = "2 days"\n' + low):
            with pytest.raises(UsageError, match="a second operator must approve"):
                await save_rules(at, rules, by="ann")
        proposals = Proposals(at, [acts.acceptance_kind(at), rules_kind(at)])
        proposal = await save_rules(at, high, by=Proven("ann"), reason="prices rose")
        assert isinstance(proposal, Proposal)
        with pytest.raises(UsageError, match="already made the same proposal"):
            await save_rules(at, "", by=Proven("bob"), reason="another opinion")
        await proposals.approve(proposal.id, by=Proven("bob"), reason="they did")
        saved = await current_rules(at)
        assert saved is not None
        assert (saved.number, saved.toml, saved.who) == (3, high, "ann")
        trail = await fetch(inbox, audit_entries, limit=9, action="rules_saved")
        assert [each.facts.get("second") for each in trail] == [None, None, "bob"]

    @pytest.mark.alike
    async def test_late_money_waits_for_evidence_of_its_refund(self, inbox: Inbox) -> None:
        at = context(inbox, at=2)
        twice = replace(late("B"), cause="paid_twice")
        await run(inbox, late("A"), twice, missing("C"), late("D", "canceled"), at=1)
        items = [each async for part in late_items(at, closed=False) for each in part]
        documents = {each.seen.order: late_document(each) for each in items}
        assert {o: (t["proposed"], t["state"]) for o, t in documents.items()} == {
            "A": ("accept", "to_decide"),
            "B": ("refund", "to_decide"),
            "D": ("refund", "to_decide"),
        }
        with pytest.raises(UsageError, match="not late money"):
            await settle_late(at, missing("C").identity, action="refund", reason="x", by="ann")
        for found, action in ((late("A"), "accept"), (twice, "refund")):
            await settle_late(at, found.identity, action=action, reason="agreed", by="ann")
        assert await living(inbox) == {"A": "accepted", "B": "open", "C": "open", "D": "open"}
        items = [each async for part in late_items(at, closed=False) for each in part]
        assert [late_document(each)["state"] for each in items if each.seen.order == "B"] == [
            "waits_for_refund"
        ]
        await run(inbox, late("A"), at=3)
        items = [each async for part in late_items(at, closed=False) for each in part]
        assert [late_document(each)["state"] for each in items] == ["settled"]

    @pytest.mark.alike
    async def test_an_act_without_a_reason_or_name_writes_nothing(self, inbox: Inbox) -> None:
        await run(inbox, missing("A"), at=1)
        at = context(inbox, at=2)
        for reason, why in (("  ", "give a reason"), ("he said so: 0711 223 344", "phone number")):
            with pytest.raises(UsageError, match=why):
                await decide(at, missing("A").identity, "accepted", reason=reason, by="ann")
        with pytest.raises(UsageError, match="printable"):
            await decide(at, missing("A").identity, "assigned", value="a\nb", by="ann")
        assert await rows(inbox, "SELECT 1 FROM break_deeds UNION ALL SELECT 1 FROM audit") == []

    async def test_the_database_refuses_to_change_runs_and_acts(self, inbox: Inbox) -> None:
        await run(inbox, missing("A"), at=1)
        await decide(
            context(inbox, at=2), missing("A").identity, "commented", reason="seen", by="ann"
        )
        for table, key in KEYS.items():
            for sql in (f"DELETE FROM {table}", f"UPDATE {table} SET {key}={key}"):
                with pytest.raises(DBAPIError, match="only added"):
                    await change(inbox, sql)
