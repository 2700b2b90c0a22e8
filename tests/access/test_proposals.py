"""Four eyes: who may propose, approve, reject and withdraw, until when, and operators' tokens."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from app.access.operator_store import AuditEntry, Operator, audit_entries
from app.access.operators import (
    Proven,
    Role,
    asking_by_token,
    note_in_trail,
    permitted,
    register_operator,
    retire_operator,
)
from app.access.proposal import Proposal
from app.access.proposals import (
    STANDS_FOR,
    Agree,
    ProposalKind,
    Proposals,
    check_reason,
    must_be_open,
    newcomer_notice,
    propose,
)
from app.access.sessions import invite_operator
from app.access.tokens import (
    ScopeMissing,
    TokenNotInForce,
    admit,
    holder_of,
    issue_own_token,
    issue_token,
    withdraw_token,
)
from app.context.context import AppContext
from app.core.errors import NotFoundError, TallyhookError, UsageError
from app.database.engine import Connection
from app.golive.golive import SIGNER, WHOLE, vouch
from app.golive.signoff_store import Signoff, add_signoff
from reconcile.instants import DAY, HOUR, Instant, format_instant
from tests.api.driving import Driver, driving
from tests.rows import for_each

PEOPLE: dict[str, Role] = {"Boss": "admin", "Ann": "finance", "Ben": "finance", "Sue": "support"}


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[Driver]:
    async with driving(tmp_path, with_worker=False) as driver:
        assert isinstance(driver, Driver)
        for name, role in PEOPLE.items():
            await register_operator(driver.service.context, name=name, role=role, by="Boss")
        yield driver


@pytest.fixture
def context(driver: Driver) -> AppContext:
    return driver.service.context


class Vault:
    """A vault that two people open: an act as a room of the product has it."""

    def __init__(self, context: AppContext) -> None:
        self.context = context
        self.opened_by: list[tuple[str, str]] = []
        self.content = "gold"
        self.jammed = False
        self.kind = ProposalKind(
            name="open_vault",
            title="Open the vault",
            action="break_accepted",
            subject_state=self.state,
            perform=self.perform,
        )

    async def state(self, connection: Connection, subject: str, given: Mapping[str, str]) -> str:
        return self.content

    async def perform(self, proposal: Proposal, agree: Agree) -> None:
        async with self.context.database.writing() as connection:
            agreed = await agree(connection)
            if self.jammed:
                raise UsageError("it is jammed")
            await note_in_trail(
                connection,
                agreed.who,
                action="break_accepted",
                subject=proposal.subject,
                at=self.context.clock.now(),
                facts=agreed.facts,
            )
        self.opened_by.append((agreed.who.name, agreed.second))

    async def propose(self, by: str | None, subject: str = "vault") -> Proposal:
        async with self.context.database.writing() as connection:
            return await propose(
                connection,
                self.kind,
                who=await permitted(connection, by=by, action="break_accepted"),
                now=self.context.clock.now(),
                because="nobody opens it alone",
                subject=subject,
                sentence="Open the vault.",
                reason="audit day",
            )


@pytest.fixture
def vault(context: AppContext) -> Vault:
    return Vault(context)


@pytest.fixture
def proposals(context: AppContext, vault: Vault) -> Proposals:
    return Proposals(context, [vault.kind])


async def trail(context: AppContext) -> list[AuditEntry]:
    """Return the audit entries of proposals and their acts."""
    async with context.database.reading() as connection:
        found = await audit_entries(connection, limit=100)
    return [each for each in found if each.action.startswith(("propos", "break"))]


async def test_another_operator_approves_and_the_act_stands_in_both_names(
    context: AppContext, vault: Vault, proposals: Proposals
) -> None:
    made = await vault.propose(Proven("Ann"))
    assert [each.id for each in await proposals.waiting()] == [made.id]
    done = await proposals.approve(made.id, by=Proven("Ben"), reason="I counted it")
    assert vault.opened_by == [("Ann", "Ben")]
    assert done.decided is not None
    assert (done.decided.decision, done.decided.who) == ("approved", "Ben")
    assert await proposals.waiting() == []
    assert [(each.who, each.action, each.subject) for each in await trail(context)] == [
        ("Ann", "proposed", made.id),
        ("Ben", "proposal_approved", made.id),
        ("Ann", "break_accepted", "vault"),
    ]
    assert (await trail(context))[-1].facts == {"second": "Ben", "proposal": made.id}


@pytest.mark.parametrize(
    ("by", "why"),
    [
        (Proven("Ann"), "you made this proposal yourself"),
        (Proven("Sue"), "has the role support"),
        (Proven("Mallory"), "not an active operator"),
        ("Ben", "to decide a proposal, sign in"),  # the owner of the machine says so
        (None, "no operator is named"),
    ],
)
async def test_nobody_else_decides(
    vault: Vault, proposals: Proposals, by: str | None, why: str
) -> None:
    made = await vault.propose(Proven("Ann"))
    with pytest.raises(UsageError, match=why):
        await proposals.approve(made.id, by=by, reason="x")
    with pytest.raises(UsageError, match=why):
        await proposals.reject(made.id, by=by, reason="x")
    assert (vault.opened_by, len(await proposals.waiting())) == ([], 1)


async def test_the_owner_of_the_machine_proposes_nothing(context: AppContext, vault: Vault) -> None:
    with pytest.raises(UsageError, match="nobody opens it alone: a second operator"):
        await vault.propose("Ann")
    assert await trail(context) == []


async def test_one_proposal_of_one_thing_waits(vault: Vault, proposals: Proposals) -> None:
    first = await vault.propose(Proven("Ann"))
    with pytest.raises(UsageError, match=f"Ann has already made the same proposal, {first.id}"):
        await vault.propose(Proven("Ben"))
    other = await vault.propose(Proven("Ben"), "another vault")
    assert {each.id for each in await proposals.waiting()} == {first.id, other.id}
    await proposals.reject(first.id, by=Proven("Ben"), reason="not today")
    again = await vault.propose(Proven("Ben"))
    assert again.id in {each.id for each in await proposals.waiting()}
    assert [each.id for each in await proposals.past(limit=9)] == [first.id]


async def test_a_proposal_ends(driver: Driver, vault: Vault, proposals: Proposals) -> None:
    made = await vault.propose(Proven("Ann"))
    driver.clock.put(Instant(made.until - 1))
    assert await proposals.why_not(made, by=Proven("Ben")) is None
    driver.clock.put(made.at + STANDS_FOR)
    with pytest.raises(UsageError, match="the proposal expired at"):
        await proposals.approve(made.id, by=Proven("Ben"), reason="x")
    assert await proposals.waiting() == []
    (past,) = await proposals.past(limit=9)
    assert proposals.document(past)["state"] == "expired"
    await vault.propose(Proven("Ann"))


async def test_nobody_acts_on_an_approval_of_a_clock_that_was_ahead(
    driver: Driver, context: AppContext, vault: Vault
) -> None:
    """The proposer would have a day longer for the act."""
    vault.kind = replace(vault.kind, open_for=DAY)
    proposals, clock = Proposals(context, [vault.kind]), driver.clock
    start = clock.now()
    made = await vault.propose(Proven("Ann"))
    clock.put(Instant(start + DAY))
    await proposals.approve(made.id, by=Proven("Ben"), reason="yes")
    ann = Operator(name="Ann", role="finance", created_at=start)
    must_be_open(vault.kind, await proposals.one(made.id), who=ann, now=clock.now())
    clock.put(Instant(start + HOUR))
    with pytest.raises(UsageError, match="this machine's clock was ahead at the approval"):
        must_be_open(vault.kind, await proposals.one(made.id), who=ann, now=clock.now())


@for_each(
    ("reason", "why"),
    [
        (" ", "give a reason"),
        ("x" * 2_001, "give a reason"),
        ("a\tb", "printable"),
        ("a\x1b[31m", "printable"),
        ("he said so: 0711 223 344", "remove the phone number from the reason for a month"),
    ],
)
def test_a_reason_is_some_lines_without_a_phone_number(reason: str, why: str) -> None:
    check_reason("first\r\nsecond\nthird")
    check_reason("", needed=False)
    with pytest.raises(UsageError, match=why):
        check_reason(reason, of="a month")


async def test_the_proposer_alone_withdraws(vault: Vault, proposals: Proposals) -> None:
    made = await vault.propose(Proven("Ann"))
    with pytest.raises(UsageError, match="only Ann may withdraw this proposal; reject it instead"):
        await proposals.withdraw(made.id, by=Proven("Ben"), reason="x")
    done = await proposals.withdraw(made.id, by=Proven("Ann"), reason="I was wrong")
    assert proposals.document(done)["state"] == "withdrawn"
    for decide in (proposals.approve, proposals.reject):
        with pytest.raises(UsageError, match="Ann has already withdrawn this proposal"):
            await decide(made.id, by=Proven("Ben"), reason="x")
    assert vault.opened_by == []


async def test_what_has_changed_is_not_approved(vault: Vault, proposals: Proposals) -> None:
    made = await vault.propose(Proven("Ann"))
    vault.content = "sand"
    with pytest.raises(UsageError, match="vault has changed since this was proposed"):
        await proposals.approve(made.id, by=Proven("Ben"), reason="x")
    assert (vault.opened_by, len(await proposals.waiting())) == ([], 1)


async def test_an_act_that_fails_leaves_the_proposal_waiting(
    context: AppContext, vault: Vault, proposals: Proposals
) -> None:
    """The approval and the act are one transaction."""
    made, vault.jammed = await vault.propose(Proven("Ann")), True
    with pytest.raises(UsageError, match="jammed"):
        await proposals.approve(made.id, by=Proven("Ben"), reason="x")
    assert [each.action for each in await trail(context)] == ["proposed"]
    vault.jammed = False
    await proposals.approve(made.id, by=Proven("Ben"), reason="x")
    assert vault.opened_by == [("Ann", "Ben")]


async def test_a_proposer_who_was_disabled_is_not_followed(
    context: AppContext, vault: Vault, proposals: Proposals
) -> None:
    made = await vault.propose(Proven("Ann"))
    await retire_operator(context, name="Ann", by="Boss")
    with pytest.raises(UsageError, match="Ann may no longer make such proposals"):
        await proposals.approve(made.id, by=Proven("Ben"), reason="x")


async def test_a_reason_is_said_and_holds_no_phone_number(
    vault: Vault, proposals: Proposals
) -> None:
    made = await vault.propose(Proven("Ann"))
    for reason in ("", " ", "x" * 2_001, "call +254 712 345 678"):
        with pytest.raises(UsageError):
            await proposals.approve(made.id, by=Proven("Ben"), reason=reason)
    with pytest.raises(NotFoundError):
        await proposals.approve("prp_0", by=Proven("Ben"), reason="x")


# --- one person who has two names -----------------------------------------------------------------


async def way_in(context: AppContext, made: str, *, of: str, by: str) -> None:
    """Make an invitation or a token: its holder can come in."""
    if made == "invitation":
        await invite_operator(context, name=of, role=None, by=Proven(by))
    else:
        await issue_own_token(context, operator=of, until="1d", by=Proven(by))


@pytest.mark.parametrize("made", ["invitation", "token"])
@pytest.mark.parametrize(
    ("proposer", "ways"),
    [
        ("Boss", [("Boss", "Ann")]),
        ("Ann", [("Boss", "Ann")]),
        ("Boss", [("Boss", "Vic"), ("Vic", "Ann")]),
    ],
    ids=["of who approves", "of who proposes", "of who made it"],
)
async def test_who_made_the_other_s_way_in_is_no_second_person(
    driver: Driver, context: AppContext, vault: Vault, proposals: Proposals,
    made: str, proposer: str, ways: list[tuple[str, str]],
) -> None:  # fmt: skip
    """Before or after the proposal: the holder of the link or the token is both of them."""
    await register_operator(context, name="Vic", role="admin", by="Boss")
    second = "Ann" if proposer == "Boss" else "Boss"
    before = await vault.propose(Proven(proposer))
    for by, of in ways:
        await way_in(context, made, of=of, by=by)
    after = await vault.propose(Proven(proposer), "another vault")
    for each in (before, after):
        assert f"gave {ways[-1][1]} an invitation or a token" in (
            await proposals.why_not(each, by=Proven(second)) or ""
        )
        with pytest.raises(UsageError, match="may be one person"):
            await proposals.approve(each.id, by=Proven(second), reason="x")
    await proposals.approve(before.id, by=Proven("Ben"), reason="I counted it")
    await proposals.reject(after.id, by=Proven(second), reason="it takes nobody else to say no")
    driver.clock.put(Instant(driver.clock.now() + STANDS_FOR + 1))
    later = await vault.propose(Proven(proposer))
    assert await proposals.why_not(later, by=Proven(second)) is None


async def test_who_invited_both_stands_in_no_way(
    context: AppContext, vault: Vault, proposals: Proposals
) -> None:
    for name in ("Ann", "Ben"):
        await way_in(context, "invitation", of=name, by="Boss")
    made = await vault.propose(Proven("Ann"))
    assert await proposals.why_not(made, by=Proven("Ben")) is None


async def test_the_owner_vouches_once_for_two_founders(
    driver: Driver, context: AppContext, vault: Vault, proposals: Proposals
) -> None:
    """A later invitation counts, as a link that the other may hold."""
    await way_in(context, "invitation", of="Ann", by="Boss")
    notice = newcomer_notice("Ann", now=driver.clock.now())
    assert f"made before {format_instant(Instant(driver.clock.now() + 7 * DAY))}" in notice
    with asking_by_token(Proven("Boss")), pytest.raises(UsageError, match="machine's owner"):
        await vouch(context, "Boss", "Ann", reason="we founded it")
    for pair, why in (
        (("Boss", "Boss"), "two different operators"),
        (("Boss", "Zoe"), "no active operator"),
    ):
        with pytest.raises(TallyhookError, match=why):
            await vouch(context, *pair, reason="we founded it")
    await vouch(context, "Ann", "Boss", reason="we founded it")
    with pytest.raises(UsageError, match="once"):
        await vouch(context, "Boss", "Ben", reason="we founded it")
    made = await vault.propose(Proven("Boss"))
    assert await proposals.why_not(made, by=Proven("Ann")) is None
    driver.clock.put(Instant(driver.clock.now() + 1))
    await way_in(context, "token", of="Ann", by="Boss")
    assert "may be one person" in (await proposals.why_not(made, by=Proven("Ann")) or "")


async def test_nobody_is_vouched_for_after_set_up(context: AppContext) -> None:
    signoff = Signoff(item=WHOLE, state="passed", at=context.clock.now(), signer=SIGNER, note="")
    async with context.database.writing() as connection:
        await add_signoff(connection, signoff)
    with pytest.raises(UsageError, match="set-up is over"):
        await vouch(context, "Boss", "Ann", reason="we founded it")


# --- tokens of operators --------------------------------------------------------------------------


async def test_an_own_token_is_its_operators_until_it_ends(
    driver: Driver, context: AppContext
) -> None:
    token, entry = await issue_own_token(context, operator="Ann", until="1d", by="Boss")
    _, other = await issue_own_token(context, operator="Ann", until="2d", by="Boss")
    assert (entry.name, other.name, entry.operator) == ("Ann", "Ann-2", "Ann")
    assert (await holder_of(context, token)).name == "Ann"
    assert await admit(context, token, scope="read") == "Ann"
    with pytest.raises(ScopeMissing):
        await admit(context, token, scope="orders")
    assert token not in str(driver.rows("SELECT * FROM tokens"))
    driver.clock.put(driver.clock.now() + DAY)
    with pytest.raises(TokenNotInForce, match="expired at"):
        await holder_of(context, token)


async def test_an_own_token_ends_with_a_person_or_by_one(context: AppContext) -> None:
    first, entry = await issue_own_token(context, operator="Ann", until="1d", by="Boss")
    second, _ = await issue_own_token(context, operator="Ben", until="1d", by="Boss")
    await withdraw_token(context, name=entry.name, by="Boss")
    await retire_operator(context, name="Ben", by="Boss")
    for token in (first, second):
        with pytest.raises(TokenNotInForce):
            await holder_of(context, token)
    with pytest.raises(NotFoundError, match="no active operator named Ben"):
        await issue_own_token(context, operator="Ben", until="1d", by="Boss")
    with pytest.raises(UsageError, match="the role must be admin"):
        await issue_own_token(context, operator="Ann", until="1d", by="Ann")


async def test_a_programs_token_is_nobodys(context: AppContext) -> None:
    token = await issue_token(context, name="shop", by="Boss")
    with pytest.raises(ScopeMissing, match="belongs to a program"):
        await holder_of(context, token)
