"""A bank statement that does not add up counts when two people accept exactly its difference."""

from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from app.access.operator_store import audit_entries
from app.access.operators import Proven, register_operator
from app.access.proposals import Proposals
from app.context.context import AppContext
from app.core.clock import SetClock
from app.core.errors import UsageError
from app.finance.bank_balances import difference_kind
from app.finance.imports import Imported, ImportRequest, import_bank
from app.finance.report_period import report_period
from app.finance.withdraw_import import withdraw_import
from reconcile.instants import DAY, MINUTE, Instant, parse_instant
from reconcile.reporting.closing import in_report
from reconcile.reporting.report import PeriodReport, Scope
from tests.database.builders import context as context_of
from tests.database.builders import opened

HEAD = ":20:S\n:25:main\n"
TIES = HEAD + ":60F:C260105KES5,\n:61:2601060106C5,NTRFNONREF//B1\n:62F:C260106KES10,\n-\n"
DIFFERS = HEAD + ":60F:C260106KES10,\n:61:2601070107C5,NTRFNONREF//B2\n:62F:C260107KES17,50\n-\n"
NEXT = HEAD + ":60F:C260107KES{},\n:62F:C260108KES{},\n-\n"
BECAUSE = {"accept_difference": "2.50", "reason": "the bank books it later"}


class Bank:
    """An account's statements, and the people who import them."""

    def __init__(self, context: AppContext, folder: Path) -> None:
        self.context, self._folder = context, folder
        self.proposals = Proposals(context, [difference_kind(context)])

    async def takes(self, content: str, **said: Any) -> Imported:
        path = self._folder / "bank.sta"
        path.write_text(content)
        given = {"by": Proven("Ann"), **said}
        return await import_bank(self.context, ImportRequest(path=path, **given))

    async def accepts(self, content: str = DIFFERS) -> int:
        """Have two people accept the difference, and import the file. Returns its number."""
        made = await self.takes(content, **BECAUSE)
        assert made.proposal is not None
        await self.proposals.approve(made.proposal, by=Proven("Ben"), reason="I asked the bank")
        done = await self.takes(content)
        assert done.number is not None
        return done.number

    async def report(self) -> PeriodReport:
        start = parse_instant("2026-01-01T00:00:00Z")
        assert isinstance(self.context.clock, SetClock)
        now = Instant(self.context.clock.now() + MINUTE)  # each import is a tick after the last
        self.context.clock.put(now)
        scope = Scope(
            start=start, end=start + 31 * DAY, as_of=now, basis="settled", environment="sandbox"
        )
        return await report_period(self.context, scope)


@pytest.fixture
async def bank(tmp_path: Path) -> AsyncIterator[Bank]:
    async with opened(f"sqlite+aiosqlite:///{tmp_path}/t.db") as inbox:
        context = context_of(inbox, at=0)
        await register_operator(context, name="Root", role="admin", by=None)
        for name in ("Ann", "Ben"):
            await register_operator(context, name=name, role="finance", by="Root")
        yield Bank(context_of(inbox, at=400 * 86_400), tmp_path)


async def test_a_difference_is_refused_until_a_second_person_approves_it(bank: Bank) -> None:
    refused = await bank.takes(DIFFERS)
    assert (refused.number, refused.refused, refused.proposal) == (None, True, None)
    assert "a difference of 2.50 KES" in refused.problems[0].sentence
    looked = await bank.takes(DIFFERS, dry_run=True, **BECAUSE)
    assert (looked.new, looked.problems, looked.proposal) == (1, [], None)
    assert "a difference of 2.50 KES; it is imported unchanged." in looked.notes[-1]
    made = await bank.takes(DIFFERS, **BECAUSE)
    assert (made.number, made.problems) == (None, [])
    assert made.proposal is not None
    assert (await bank.takes(DIFFERS)).refused
    await bank.proposals.approve(made.proposal, by=Proven("Ben"), reason="I asked the bank")
    assert (await bank.takes(DIFFERS.replace("17,50", "17,60"))).refused
    done = await bank.takes(DIFFERS)
    assert (done.new, done.problems) == (1, [])
    async with bank.context.database.reading() as connection:
        (entry,) = await audit_entries(connection, action="bank_imported", limit=9)
    assert entry.facts["accepted_differences"] == "KES 2.50"
    assert entry.facts["proposals"] == made.proposal


@pytest.mark.parametrize(
    ("said", "content", "sentence"),
    [
        ({"accept_difference": "2.51"}, DIFFERS, "the difference is 2.50 KES"),
        ({"accept_difference": "-2.50"}, DIFFERS, "the difference is 2.50 KES"),
        ({"accept_difference": "all"}, DIFFERS, "as a decimal number"),
        ({"accept_difference": "sNaN"}, DIFFERS, "the difference is 2.50 KES|decimal number"),
        ({"accept_difference": "1e99999999999999999999"}, DIFFERS, "2.50 KES|decimal number"),
        ({}, TIES, "every statement in the file adds up"),
        ({"reason": ""}, DIFFERS, "give both"),
        ({"by": "Ann"}, DIFFERS, "a second operator must approve"),
    ],
)
async def test_nothing_but_the_exact_difference_is_proposed(
    bank: Bank, said: dict[str, Any], content: str, sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        await bank.takes(content, **{**BECAUSE, **said})


async def test_each_difference_of_a_file_takes_its_own_proposal(bank: Bank) -> None:
    both = DIFFERS + NEXT.format("17", "18")
    for amount in ("2.50", "1"):
        refused = await bank.takes(both)
        assert refused.differs is not None
        assert refused.differs.difference() == Decimal(amount)
        made = await bank.takes(both, **{**BECAUSE, "accept_difference": amount})
        await bank.proposals.approve(str(made.proposal), by=Proven("Ben"), reason="I asked")
    done = await bank.takes(both)
    assert [each.difference for each in done.balances] == [250, 100]


@pytest.mark.parametrize(
    ("opening", "state", "blocks"), [("17,50", "confirmed", 0), ("15", "reopened", 1)]
)
async def test_the_next_statement_confirms_an_accepted_difference_or_opens_it_again(
    bank: Bank, opening: str, state: str, blocks: int
) -> None:
    await bank.takes(TIES)
    number = await bank.accepts()
    (row,) = (await bank.report()).balances
    assert (row.difference, row.state, row.accepted_by, row.second) == (250, "open", "Ann", "Ben")
    after = await bank.takes(NEXT.format(opening, opening).replace(",50,", ",50"))
    assert any("is confirmed" in note or "is open again" in note for note in after.notes)
    report = await bank.report()
    assert [each.state for each in report.balances] == [state]
    assert len([each for each in in_report(report) if each.code == "balances"]) == blocks
    await withdraw_import(bank.context, number, kind="bank", by=Proven("Ann"), reason="wrong file")
    assert (await bank.report()).balances == ()


async def test_statements_that_do_not_join_are_noted(bank: Bank) -> None:
    assert (await bank.takes(TIES)).notes == []
    later = await bank.takes(NEXT.format("12", "12"))
    (note,) = [each for each in later.notes if "missing" in each]
    assert note.startswith(
        "The statement of main that closes on 2026-01-06 ends with KES 10.00, but the next one, of "
        "2026-01-07, begins with KES 12.00. A statement between them is missing"
    )


async def test_pages_of_one_statement_are_one(bank: Bank) -> None:
    pages = (
        TIES.replace(":62F:", ":62M:")
        + HEAD
        + ":60M:C260106KES10,\n:61:2601060106D4,NTRFNONREF//B9\n:62F:C260106KES6,\n-\n"
    )
    done = await bank.takes(pages)
    assert [each.stated for each in done.balances] == [("2026-01-05", "2026-01-06", 500, 600)]


async def test_a_difference_of_one_page_is_accepted_with_the_whole_statement(bank: Bank) -> None:
    pages = (
        DIFFERS.replace(":62F:", ":62M:")
        + HEAD
        + ":60M:C260107KES17,50\n:61:2601080108C1,NTRFNONREF//B9\n:62F:C260108KES18,50\n-\n"
    )
    await bank.accepts(pages)
    (row,) = (await bank.report()).balances
    assert (row.opened, row.closed, row.difference) == ("2026-01-06", "2026-01-08", 250)
    assert (row.accepted_by, row.second) == ("Ann", "Ben")
