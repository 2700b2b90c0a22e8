"""Bank statements whose balances do not agree with their entries or the previous statement.

1 refuse   the statement with the difference
2 propose  to accept exactly this difference of this file
3 import   the file again after the approval
4 judge    whether the next statement begins with the stated balance
"""

import hashlib
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from app.access.operators import permitted
from app.access.proposal import Proposal
from app.access.proposal_store import approved_proposal_of, proposal_of
from app.access.proposals import Agree, ProposalKind, check_reason, propose
from app.context.context import AppContext
from app.core.errors import UsageError
from app.database.engine import Connection
from app.finance.bank_store import standing_balances
from app.finance.files.bank import account_name
from app.finance.files.banks.entries import Balances as Balances
from app.finance.import_store import replace_import_tasks
from reconcile.instants import Instant
from reconcile.matching import balances
from reconcile.money import Money, MoneyError, from_major, to_json
from reconcile.reporting.report import BalanceRow

KIND: Final = "accept_balance_difference"

SHOWN: Final = 3


def stored_form(found: Sequence[Balances], *, account: str) -> list[balances.StatementBalances]:
    """Convert complete balances of bank statements to minor units."""
    stored = list[balances.StatementBalances]()
    for place, each in enumerate(found):
        if not (each.opened and each.closed) or each.opening is None or each.closing is None:
            continue
        sums = (each.opening, each.closing, each.difference())
        try:
            minors = [from_major(amount, each.currency).minor for amount in sums]
        except MoneyError:
            continue
        opening, closing, difference = minors
        stored.append(
            balances.StatementBalances(
                account=account_name(each.account) or account,
                currency=each.currency,
                opened=each.opened,
                closed=each.closed,
                opening=opening,
                closing=closing,
                difference=difference,
                place=place,
                proposal=each.proposal,
            )
        )
    return stored


def _subject(sha256: str, differs: Balances) -> str:
    digest = hashlib.sha256(f"{sha256} {differs.name}".encode()).hexdigest()
    return f"bank statement {digest[:16]}"


async def approval_of(context: AppContext, sha256: str, differs: Balances) -> str | None:
    """Return the id of the proposal that accepted a difference."""
    async with context.database.reading() as connection:
        found = await approved_proposal_of(connection, kind=KIND, subject=_subject(sha256, differs))
    return None if found is None else found.id


def check_amount(differs: Balances, amount: str) -> None:
    """Raise UsageError unless the amount is exactly the statement's difference."""
    difference = differs.difference()
    try:
        exact = Decimal(amount.strip()) == difference
    except InvalidOperation:
        raise UsageError("write the difference as a decimal number, such as -12.50") from None
    if not exact:
        raise UsageError(
            f"the difference is {difference:f} {differs.currency}; only exactly this amount can "
            "be accepted"
        )


async def propose_difference(
    context: AppContext,
    differs: Balances,
    *,
    file: str,
    sha256: str,
    reason: str,
    by: str | None,
) -> Proposal:
    """Propose to import a bank statement with a difference."""
    check_reason(reason, countries=context.countries)
    account = account_name(differs.account) or "without a name"
    async with context.database.writing() as connection:
        who = await permitted(connection, by=by, action="bank_imported")
        return await propose(
            connection,
            difference_kind(context),
            who=who,
            now=context.clock.now(),
            because="accepting a statement that does not add up needs two people",
            subject=_subject(sha256, differs),
            sentence=f"Accept the file {file} of the bank account {account}: in the statement that "
            f"closes on {differs.closed or 'a day that it does not state'}, {differs.said()}. "
            "If the next statement begins with this closing balance, the difference is confirmed. "
            "Otherwise the difference is open again.",
            given={"file": file, "sha256": sha256},
            reason=reason,
        )


def difference_kind(context: AppContext) -> ProposalKind:
    """Return the kind of proposal that accepts a difference of balances. An approval imports
    nothing: the file must be imported again."""

    async def perform(proposal: Proposal, agree: Agree) -> None:
        async with context.database.writing() as connection:
            await agree(connection)
            await replace_import_tasks(connection, ())  # the file may wait in the watched folder

    async def always_same(connection: Connection, subject: str, given: Mapping[str, str]) -> str:
        return ""  # the subject has the file's digest and the difference

    return ProposalKind(
        name=KIND,
        title="Accept a difference of balances",
        action="bank_imported",
        subject_state=always_same,
        perform=perform,
        particulars={"file": "The file", "sha256": "Its SHA-256"},
    )


async def notes_on_joins(
    connection: Connection, found: Sequence[balances.StatementBalances], *, as_of: Instant
) -> list[str]:
    """Return sentences on statements that confirm or contradict the previous balance."""
    known = await standing_balances(connection, as_of=as_of) if found else []
    own, said = set(found), list[str]()
    accounts = {each.account for each in found}
    for each, after in balances.followed(
        one for one in (*known, *found) if one.account in accounts
    ):
        if after is None or not (each in own or after in own):
            continue
        closing, opening = (
            Money(minor=minor, currency=each.currency) for minor in (each.closing, after.opening)
        )
        state = balances.difference_state(each, after)
        if each.difference and state == "confirmed":
            difference = Money(minor=each.difference, currency=each.currency)
            said.append(
                f"The accepted difference of {difference} in the statement of {each.account} that "
                f"closes on {each.closed} is confirmed: the next statement begins with its "
                f"closing balance, {closing}."
            )
        elif state == "reopened":
            again = " The accepted difference is open again." if each.difference else ""
            said.append(
                f"The statement of {each.account} that closes on {each.closed} ends with "
                f"{closing}, but the next one, of {after.opened}, begins with {opening}. A "
                f"statement between them is missing, or one of them is incomplete.{again}"
            )
    left = len(said) - SHOWN
    if left > 0:
        said[SHOWN:] = [
            f"In {left:,} more places, a statement does not begin with the closing balance of the "
            "statement before it."
        ]
    return said


async def list_balances(context: AppContext) -> list[dict[str, Any]]:
    """Return all bank statements' balances, by account and day."""
    async with context.database.reading() as connection:
        known = await standing_balances(connection, as_of=context.clock.now())
    return [
        {
            "account": each.account,
            "opened": each.opened,
            "opening": to_json(Money(minor=each.opening, currency=each.currency)),
            "closed": each.closed,
            "closing": to_json(Money(minor=each.closing, currency=each.currency)),
            "difference": to_json(Money(minor=each.difference, currency=each.currency)),
            "state": _STATES[balances.difference_state(each, after)],
            "import": each.of_import,
            "proposal": each.proposal,
        }
        for each, after in balances.followed(known)
    ]


_STATES: Final[Mapping[balances.DifferenceState, str]] = {
    "open": "last",
    "confirmed": "joined",
    "reopened": "not_joined",
}


async def accepted_differences(
    connection: Connection, *, as_of: Instant, first: str, last: str
) -> tuple[BalanceRow, ...]:
    """Return accepted differences, and unconfirmed earlier differences."""
    found = list[BalanceRow]()
    for each, after in balances.followed(await standing_balances(connection, as_of=as_of)):
        state = balances.difference_state(each, after)
        if (
            not each.difference
            or each.opened > last
            or (each.closed < first and state == "confirmed")
        ):
            continue
        proposal = await proposal_of(connection, each.proposal or "")
        decided = None if proposal is None else proposal.decided
        found.append(
            BalanceRow(
                account=each.account,
                currency=each.currency,
                opened=each.opened,
                closed=each.closed,
                opening=each.opening,
                closing=each.closing,
                difference=each.difference,
                state=state,
                next_opening=None if after is None else after.opening,
                accepted_by="" if proposal is None else proposal.who,
                second="" if decided is None else decided.who,
                why="" if proposal is None else proposal.reason,
            )
        )
    return tuple(found)
