"""Proposals: acts that need two operators.

1 propose  an operator with a proved identity requests an act
2 look     other operators read the proposal
3 decide   another operator approves or rejects, or the proposer withdraws
4 act      one transaction stores the approval and does the act

An approval is refused if the subject has changed since the proposal.
"""

import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, TypedDict

from app.access import operator_store, operators, proposal_store
from app.access.proposal import Decided, Decision, Proposal, Standing
from app.core.clock import CLOCKS_DIFFER
from app.core.document_of import document_of
from app.core.errors import NotFoundError, UsageError
from app.core.ids import new_id
from app.core.masking import looks_like_a_phone
from app.core.text import is_human_text
from app.database.database import DatabaseContext
from app.database.engine import Connection
from reconcile.documents import InstantText, NextText
from reconcile.instants import DAY, Duration, Instant, format_instant, format_known

STANDS_FOR: Final[Duration] = 7 * DAY
"""Time for which a proposal can be approved."""

REASON_MAX: Final = 2_000

LAST: Final = "~"


class ProposalDocument(TypedDict):
    id: str
    kind: str
    subject: Annotated[str, "What the act is about, such as an order or a file."]
    sentence: Annotated[str, "What would be done, and how much money it affects."]
    state: Standing
    by: Annotated[str, "The proposer."]
    reason: str
    at: InstantText
    until: Annotated[InstantText, "When the proposal expires: nobody can approve it after that."]
    given: Annotated[dict[str, Any], "Further facts that the act needs."]
    decided_by: str | None
    decided_at: InstantText | None
    decided_because: str | None
    open_until: Annotated[
        InstantText | None,
        "Until when the proposer may carry out the approved act; `null` if the approval carries "
        "it out.",
    ]


class ProposalPageDocument(TypedDict):
    proposals: list[ProposalDocument]
    next: NextText


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreed:
    """Agreement of two permitted persons on an act."""

    who: operator_store.Operator
    second: str
    proposal: str

    @property
    def facts(self) -> dict[str, str | int]:
        """Return the values that the act's audit entry states about the agreement."""
        return {"second": self.second, "proposal": self.proposal}


@dataclass(frozen=True, slots=True, kw_only=True)
class Agree:
    """Function that stores the approval within a transaction.

    After a UsageError, do nothing more in the transaction.
    """

    second: str
    store: Callable[[Connection], Awaitable[Agreed]]
    typed: str = field(default="", repr=False)

    async def __call__(self, connection: Connection) -> Agreed:
        return await self.store(connection)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposalKind:
    """Kind of act that can be proposed."""

    name: str
    title: str
    action: operators.Action
    """Permission that both persons need."""
    subject_state: Callable[[Connection, str, Mapping[str, str]], Awaitable[str]]
    """Describes the subject. A changed description refuses the approval."""
    perform: Callable[[Proposal, Agree], Awaitable[None]]
    """Does the act. Calls `agree` once, first in the transaction."""
    proposing: operators.Action | None = None
    """The proposer's permission, if different from `action`."""
    takes_long: bool = False
    """True if the act can take minutes. The webhook receiver skips such acts."""
    for_good: bool = False
    """True if the act is irreversible and needs the approver's password."""
    where: Callable[[Proposal], tuple[str, str]] | None = None
    """Returns the list and id of the subject's page, or None."""
    particulars: Mapping[str, str] = field(default_factory=dict)
    """Headings of members of `given` that the sentence omits."""
    tables: Mapping[str, str] = field(default_factory=dict)
    """Headings of members of `given` that hold table rows as JSON."""
    unfinished: Callable[[Proposal], Awaitable[str | None]] | None = None
    """Returns a sentence if the act began but did not finish."""
    typed: str = ""
    """Heading of a value that the approver must type again."""
    must_fit: Callable[[Proposal, str], None] | None = None
    open_for: Duration | None = None
    """Time in which the proposer can do the approved act."""

    @property
    def may_propose(self) -> frozenset[operators.Role]:
        return operators.MAY[self.proposing or self.action]

    def open_until(self, proposal: Proposal) -> Instant | None:
        """Return the time until which the proposer may perform the approved act."""
        decided = proposal.decided
        if self.open_for is None or decided is None or decided.decision != "approved":
            return None
        return Instant(decided.at + self.open_for)


def must_be_open(
    kind: ProposalKind, proposal: Proposal, *, who: operator_store.Operator, now: Instant
) -> None:
    """Raise UsageError unless this person can see the result."""
    if proposal.kind != kind.name:
        raise UsageError(f"{proposal.id} is not a proposal of the kind {kind.title!r}")
    if not proved(who) or who.name != proposal.who:
        raise UsageError(
            f"only {proposal.who} may see the result of this proposal: sign in as {proposal.who}, "
            "or make your own proposal"
        )
    open_until = kind.open_until(proposal)
    if open_until is None:
        raise UsageError(f"nobody has approved the proposal: it is {proposal.standing(now)}")
    if proposal.decided is not None and proposal.decided.at > now + CLOCKS_DIFFER:
        raise UsageError(
            "this machine's clock was ahead at the approval, so the approval does not count: "
            "make a new proposal"
        )
    if now >= open_until:
        raise UsageError(
            f"the approval expired at {format_instant(open_until)}: make a new proposal"
        )


async def always_same(connection: Connection, subject: str, given: Mapping[str, str]) -> str:
    """Return a constant text as the state of any subject."""
    return ""


def only_agreed(context: DatabaseContext) -> Callable[[Proposal, Agree], Awaitable[None]]:
    """Return a `perform` function that only stores the approval."""

    async def perform(proposal: Proposal, agree: Agree) -> None:
        async with context.database.writing() as connection:
            await agree(connection)

    return perform


def shown_in(pages: str) -> Callable[[Proposal], tuple[str, str]]:
    """Return a `ProposalKind.where` function for the list `pages`."""
    return lambda proposal: (pages, proposal.subject)


def proved(who: operator_store.Operator) -> bool:
    """Return whether an operator has proved their identity. The machine's owner has not."""
    return who.account is None and who.role in operators.ROLES


PROPOSE: Final = (
    "{}: a second operator must approve it. Propose it on a page of the console, or with your own "
    "token: tallyhook --token-file FILE … (`tallyhook operators token NAME --until 90d` makes one)"
)


async def propose(
    connection: Connection,
    kind: ProposalKind,
    *,
    who: operator_store.Operator,
    now: Instant,
    because: str,
    subject: str,
    sentence: str,
    given: Mapping[str, str] | None = None,
    reason: str,
) -> Proposal:
    """Insert a proposal and its audit entry.

    Raise UsageError for an unproved identity or an equal waiting proposal.
    """
    if not proved(who):
        raise UsageError(PROPOSE.format(because))
    check_reason(reason)
    settled = dict(given or {})
    proposal = Proposal(
        id=new_id("prp_", now),
        kind=kind.name,
        subject=subject,
        sentence=f"{sentence} This needs two people: {because}.",
        given=settled,
        subject_state=await kind.subject_state(connection, subject, settled),
        who=who.name,
        role=who.role,
        reason=reason,
        at=now,
        until=Instant(now + STANDS_FOR),
    )
    # The audit entry comes first: it locks out other proposals until this transaction ends.
    await _note(connection, who, proposal, action="proposed", reason=reason, now=now)
    same = await proposal_store.waiting_proposal_of(
        connection, kind=kind.name, subject=subject, now=now
    )
    if same is not None:
        raise UsageError(
            f"{same.who} has already made the same proposal, {same.id}: a second person must "
            f"decide it; `tallyhook proposals show {same.id}` shows it"
        )
    await proposal_store.add_proposal(connection, proposal)
    return proposal


def check_reason(
    reason: str,
    *,
    of: str = "a proposal",
    needed: bool = True,
    countries: Collection[str] = (),
) -> None:
    """Raise UsageError for an unusable reason.

    The calling codes in `countries` help find phone numbers.
    """
    length = len(reason.strip())
    if length > REASON_MAX or (needed and not length):
        raise UsageError(f"give a reason of 1 to {REASON_MAX} characters")
    if not is_human_text(reason.replace("\r\n", " ").replace("\n", " ")):
        raise UsageError("give a reason in printable characters: no tabs, no control characters")
    if looks_like_a_phone(reason, countries):
        raise UsageError(
            f"remove the phone number from the reason for {of}: the reason is kept permanently"
        )


async def _note(
    connection: Connection,
    who: operator_store.Operator,
    proposal: Proposal,
    *,
    action: operators.Action,
    reason: str,
    now: Instant,
) -> None:
    facts: dict[str, str | int] = {"kind": proposal.kind, "about": proposal.subject}
    if who.name != proposal.who:
        facts["proposer"] = proposal.who
    await operators.note_in_trail(
        connection, who, action=action, subject=proposal.id, at=now, reason=reason, facts=facts
    )


_DONE: Final[Mapping[Decision, operators.Action]] = {
    "approved": "proposal_approved",
    "rejected": "proposal_rejected",
    "withdrawn": "proposal_withdrawn",
}


class Proposals:
    """The proposals of one database, and the kinds of acts that can be proposed."""

    def __init__(
        self,
        context: DatabaseContext,
        kinds: Iterable[ProposalKind],
        *,
        countries: Collection[str] = (),
    ) -> None:
        """Prepare access to the proposals. `countries` has calling codes."""
        self._context = context
        self._countries = countries
        self.kinds: Final[Mapping[str, ProposalKind]] = {each.name: each for each in kinds}

    def shown_to(self, role: str) -> frozenset[str] | None:
        """Return the proposal kinds for a role; None for all."""
        if role in operators.MAY_READ["all_proposals"]:
            return None
        return frozenset(name for name, kind in self.kinds.items() if role in kind.may_propose)

    async def waiting(self, *, kinds: frozenset[str] | None = None) -> list[Proposal]:
        """Return the waiting proposals of these kinds."""
        async with self._context.database.reading() as connection:
            found = await proposal_store.waiting_proposals(
                connection, now=self._context.clock.now()
            )
        return [each for each in found if kinds is None or each.kind in kinds]

    async def past(
        self, *, before: str = LAST, limit: int, kinds: frozenset[str] | None = None
    ) -> list[Proposal]:
        """Return decided and expired proposals of these kinds with ids below `before`, newest
        first."""
        async with self._context.database.reading() as connection:
            return await proposal_store.past_proposals(
                connection, now=self._context.clock.now(), before=before, limit=limit, kinds=kinds
            )

    async def one(self, identity: str, *, kinds: frozenset[str] | None = None) -> Proposal:
        """Return a proposal. Raise NotFoundError for an unknown id or another kind."""
        async with self._context.database.reading() as connection:
            found = await _known(connection, identity)
        if kinds is not None and found.kind not in kinds:
            raise _unknown(identity)
        return found

    async def why_not(self, proposal: Proposal, *, by: str) -> str | None:
        """Return the reason why this person cannot approve now."""
        kind = self.kinds.get(proposal.kind)
        look = kind is None or not kind.takes_long
        async with self._context.database.reading() as connection:
            try:
                await self._may_approve(connection, proposal.id, by=by, look=look)
            except (NotFoundError, UsageError) as error:
                return str(error)
        return None

    def check_typed(self, proposal: Proposal, typed: str) -> None:
        """Raise UsageError if the approver typed another value than the proposer."""
        kind = self.kinds.get(proposal.kind)
        if kind is not None and kind.must_fit is not None:
            kind.must_fit(proposal, typed)

    async def approve(
        self, identity: str, *, by: str | None, reason: str, typed: str = ""
    ) -> Proposal:
        """Approve a proposal and carry out its act.

        Raise NotFoundError for an unknown proposal, and UsageError for a refused approval.
        """
        check_reason(reason, countries=self._countries)
        async with self._context.database.reading() as connection:  # before a long act begins
            proposal, approver, _ = await self._may_approve(connection, identity, by=by)
        self.check_typed(proposal, typed)

        async def store(connection: Connection) -> Agreed:
            found, second, proposer = await self._may_approve(connection, identity, by=by)
            await self._decided(connection, found, second, "approved", reason)
            return Agreed(who=proposer, second=second.name, proposal=identity)

        agree = Agree(second=approver.name, store=store, typed=typed)
        await self.kinds[proposal.kind].perform(proposal, agree)
        return await self.one(identity)

    async def reject(self, identity: str, *, by: str | None, reason: str) -> Proposal:
        """Reject a proposal.

        Raises NotFoundError for an unknown proposal, and UsageError without the right.
        """
        check_reason(reason, countries=self._countries)
        async with self._context.database.writing() as connection:
            proposal = await self._open(connection, identity)
            who = await self._second(connection, proposal, by=by, action="proposal_rejected")
            await self._decided(connection, proposal, who, "rejected", reason)
        return await self.one(identity)

    async def withdraw(self, identity: str, *, by: str | None, reason: str) -> Proposal:
        """Withdraw the person's own proposal.

        Raise NotFoundError for an unknown proposal, and UsageError without the right.
        """
        check_reason(reason, countries=self._countries)
        async with self._context.database.writing() as connection:
            proposal = await self._open(connection, identity)
            who = await self._person(connection, by=by, action="proposal_withdrawn")
            if who.name != proposal.who:
                raise UsageError(
                    f"only {proposal.who} may withdraw this proposal; reject it instead"
                )
            await self._decided(connection, proposal, who, "withdrawn", reason)
        return await self.one(identity)

    async def _may_approve(
        self, connection: Connection, identity: str, *, by: str | None, look: bool = True
    ) -> tuple[Proposal, operator_store.Operator, operator_store.Operator]:
        proposal = await self._open(connection, identity)
        second = await self._second(connection, proposal, by=by, action="proposal_approved")
        await _two_persons(connection, proposal, second)
        kind = self.kinds[proposal.kind]
        known = {each.name: each for each in await operator_store.operators(connection)}
        proposer = known.get(proposal.who)
        if (
            proposer is None
            or proposer.disabled_at is not None
            or proposer.role not in kind.may_propose
        ):
            raise UsageError(
                f"{proposal.who} may no longer make such proposals: reject this proposal. If the "
                "act is still right, make your own proposal"
            )
        if not look:
            return proposal, second, proposer
        state = await kind.subject_state(connection, proposal.subject, proposal.given)
        if state != proposal.subject_state:
            raise UsageError(
                f"{proposal.subject} has changed since this was proposed: reject the proposal, and "
                f"ask {proposal.who} for a new one"
            )
        return proposal, second, proposer

    async def _open(self, connection: Connection, identity: str) -> Proposal:
        proposal = await _known(connection, identity)
        if proposal.decided is not None:
            raise UsageError(
                f"{proposal.decided.who} has already {proposal.decided.decision} this proposal at "
                f"{format_instant(proposal.decided.at)}"
            )
        if self._context.clock.now() >= proposal.until:
            raise UsageError(
                f"the proposal expired at {format_instant(proposal.until)} without a decision: "
                "make a new proposal"
            )
        if proposal.kind not in self.kinds:
            raise UsageError(
                f"this version of Tallyhook does not know proposals of the kind {proposal.kind}: "
                "use the version that made the proposal"
            )
        return proposal

    async def _person(
        self, connection: Connection, *, by: str | None, action: operators.Action
    ) -> operator_store.Operator:
        who = await operators.permitted(connection, by=by, action=action)
        if not proved(who):
            raise UsageError(
                "to decide a proposal, sign in to the console, or give your own token: tallyhook "
                "--token-file FILE …"
            )
        return who

    async def _second(
        self,
        connection: Connection,
        proposal: Proposal,
        *,
        by: str | None,
        action: operators.Action,
    ) -> operator_store.Operator:
        who = await self._person(connection, by=by, action=action)
        await operators.permitted(connection, by=by, action=self.kinds[proposal.kind].action)
        if who.name == proposal.who:
            raise UsageError(
                "you made this proposal yourself: let a second operator decide, or withdraw the "
                "proposal"
            )
        return who

    async def _decided(
        self,
        connection: Connection,
        proposal: Proposal,
        who: operator_store.Operator,
        decision: Decision,
        reason: str,
    ) -> None:
        now = self._context.clock.now()
        decided = Decided(decision=decision, who=who.name, role=who.role, reason=reason, at=now)
        if not await proposal_store.add_decision(connection, proposal.id, decided):
            raise UsageError(
                "somebody decided this proposal in the meantime: look at the proposal again"
            )
        await _note(connection, who, proposal, action=_DONE[decision], reason=reason, now=now)

    def document(self, proposal: Proposal) -> ProposalDocument:
        decided, kind = proposal.decided, self.kinds.get(proposal.kind)
        open_until = None if kind is None else kind.open_until(proposal)
        return document_of(
            ProposalDocument,
            proposal,
            state=proposal.standing(self._context.clock.now()),
            by=proposal.who,
            given={
                name: json.loads(value) if kind is not None and name in kind.tables else value
                for name, value in proposal.given.items()
            },
            decided_by=None if decided is None else decided.who,
            decided_at=None if decided is None else format_instant(decided.at),
            decided_because=None if decided is None else decided.reason,
            open_until=format_known(open_until),
        )


async def _known(connection: Connection, identity: str) -> Proposal:
    proposal = await proposal_store.proposal_of(connection, identity)
    if proposal is None:
        raise _unknown(identity)
    return proposal


def _unknown(identity: str) -> NotFoundError:
    return NotFoundError(
        f"there is no proposal {identity[:80]!r}; `tallyhook proposals list` shows those that wait"
    )


def newcomer_notice(name: str, *, now: Instant) -> str:
    """Return a notice about the proposals that a new operator cannot approve yet."""
    return (
        f"{name} and the person who invited them cannot approve each other's proposals that are "
        f"made before {format_instant(Instant(now + STANDS_FOR))}; a third operator must decide "
        "about these"
    )


VOUCHING: Final = (
    "during set-up, until the go-live checklist is complete and a month is closed, the machine's "
    "owner may vouch for two founders: tallyhook operators vouch ONE OTHER --reason WHY"
)


async def _two_persons(
    connection: Connection, proposal: Proposal, second: operator_store.Operator
) -> None:
    known = {each.name: each for each in await operator_store.operators(connection)}
    proposer = known.get(proposal.who)
    if proposer is not None and (proposer.company is None) != (second.company is None):
        raise UsageError(
            f"{proposal.who} and {second.name} may be one person: one signs in with a password, "
            "the other with the company's account. Let another operator approve the proposal. Or "
            "let the operator with the password link the company's account on the page My account"
        )
    made = await operator_store.ways_in_since(connection, Instant(proposal.at - STANDS_FOR))
    for first, other in ((proposal.who, second.name), (second.name, proposal.who)):
        reached, ahead = set[str](), {first}  # all who may have come in through the first
        while ahead:
            ahead = {of for by, of in made if by in ahead and of != by} - reached
            reached |= ahead
        if other in reached:
            raise UsageError(
                f"{first} and {other} may be one person: less than {STANDS_FOR // DAY} days "
                f"before the proposal, or later, {first} gave {other} an invitation or a token, "
                "directly or through others. Let another operator approve the proposal"
            )
