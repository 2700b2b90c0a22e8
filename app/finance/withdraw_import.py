"""Withdraw an import, so that its lines count as if never imported. Results as of an earlier
instant keep the lines."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from app.access import operator_store
from app.access.operators import Action, author_of_import, note_in_trail, permitted
from app.access.proposal import Proposal
from app.access.proposals import Agree, Agreed, ProposalKind, check_reason, propose
from app.context.context import AppContext
from app.core.errors import NotFoundError, UsageError
from app.core.text import counted
from app.database.engine import Connection
from app.finance import import_store, line_version_store, period_store
from app.finance.closed_periods import closing_named
from app.finance.import_digest_store import digests_of
from app.finance.match_rules import rules_known
from reconcile.instants import EARLIEST
from reconcile.money import MAX_MINOR, Money

ACTIONS: Final[Mapping[import_store.ImportKind, Action]] = {
    "book": "records_withdrawn",
    "statement": "statement_withdrawn",
    "bank": "bank_withdrawn",
}

GROUPS: Final[Mapping[import_store.ImportKind, str]] = {
    "book": "records",
    "statement": "statement",
    "bank": "bank",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """Expected effect of withdrawing an import. `named` counts orders whose links to payments
    stay."""

    withdrawn: import_store.Import
    seen: line_version_store.StandingLines
    unchanged: tuple[int, ...]
    named: int
    because: str | None

    @property
    def lines(self) -> int:
        return self.seen.lines

    @property
    def closed(self) -> int:
        """Return the number of lines in closed months."""
        return self.seen.before

    @property
    def notes(self) -> tuple[str, ...]:
        """Return sentences for a person who withdraws the import."""
        found = []
        group = GROUPS[self.withdrawn.kind]
        if self.closed:
            found.append(
                f"{counted(self.closed, 'line is', 'lines are')} in closed months: these months "
                "stay unchanged, and the first open month reports the changes as adjustments."
            )
        if self.unchanged:
            numbers = ", ".join(map(str, self.unchanged))
            found.append(
                f"Later imports ({numbers}) skipped unchanged rows, perhaps rows of this import: "
                f"import their files again (`tallyhook {group} imports` names them)."
            )
        if self.named:
            orders = counted(self.named, "order")
            found.append(
                f"Payments that this import linked to {orders} stay linked, because events "
                "already depend on the link."
            )
        return tuple(found)

    @property
    def moneys(self) -> str:
        """Return the sums of the lines by currency, as text."""
        sums = sorted(self.seen.sums.items())
        return ", ".join(_money(minor, currency) for currency, minor in sums) or "no money"

    @property
    def mark(self) -> str:
        """Return a text that changes with the import's current lines."""
        return _mark(self.seen)


async def withdrawable(
    context: AppContext, number: int, *, kind: import_store.ImportKind, by: str | None
) -> Foreseen:
    """Return what `withdraw_import` would do now."""
    async with context.database.reading() as connection:
        await permitted(connection, by=by, action=ACTIONS[kind])
        return await _foreseen(connection, await _withdrawable(connection, number, kind=kind))


async def withdrawn_by(context: AppContext, number: int) -> import_store.Import | None:
    """Return the import that withdrew this import, or None."""
    async with context.database.reading() as connection:
        return await import_store.withdrawal_of(connection, number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn(Foreseen):
    """Result of withdrawing an import."""

    number: int
    restored: int


async def withdraw_import(
    context: AppContext,
    number: int,
    *,
    kind: import_store.ImportKind,
    by: str | None,
    reason: str,
    seen_as: str = "",
) -> Withdrawn | Proposal:
    """Withdraw an import, or propose this above one person's limit. Raise UsageError for a
    withdrawn import or changed lines."""
    check_reason(reason, of="an import", countries=context.countries)
    async with context.database.writing() as connection:
        await import_store.importing_alone(connection)
        who = await permitted(connection, by=by, action=ACTIONS[kind])
        found = await _withdrawable(connection, number, kind=kind)
        foreseen = await _foreseen(connection, found)
        if seen_as not in ("", foreseen.mark):
            raise UsageError("the lines of this import have changed since you looked: look again")
        if foreseen.because is None:
            return await _take_back(context, connection, foreseen, who, reason=reason)
        what = f"Withdraw import {number} of {kind} lines ({found.file}): "
        money = f"{counted(foreseen.lines, 'line')}, {foreseen.moneys}."
        return await propose(
            connection,
            withdrawal_kind(context),
            who=who,
            now=context.clock.now(),
            because=foreseen.because,
            subject=f"import {number}",
            sentence=" ".join((what + money, *foreseen.notes)),
            given={"import": str(number), "kind": kind},
            reason=reason,
        )


def _money(minor: int, currency: str) -> str:
    most = Money(minor=min(minor, MAX_MINOR), currency=currency)
    return f"more than {most}" if minor > MAX_MINOR else str(most)


async def _withdrawable(
    connection: Connection, number: int, *, kind: import_store.ImportKind
) -> import_store.Import:
    found = await import_store.one_import(connection, number)
    group = GROUPS[kind]
    if found is None or found.kind != kind:
        raise NotFoundError(
            f"there is no import {number} of {group}: `tallyhook {group} imports` lists the imports"
        )
    if found.withdraws is not None:
        raise UsageError(
            f"import {number} is the withdrawal of import {found.withdraws}: to restore the "
            "withdrawn lines, import the file again"
        )
    by = await import_store.withdrawal_of(connection, number)
    if by is not None:
        raise UsageError(f"import {number} was withdrawn already, by {by.who}: {by.reason}")
    if await import_store.under_way(connection) is not None:
        raise UsageError(
            "another import is running: withdraw this import when the other has finished. If the "
            "other import was killed, the next import removes its remaining rows"
        )
    return found


async def _foreseen(connection: Connection, found: import_store.Import) -> Foreseen:
    closed = await period_store.closed_periods(connection)
    end = (await closing_named(connection, closed[-1].period)).month.end if closed else EARLIEST
    seen = await line_version_store.standing_lines(connection, found, before=end)
    rules, because = await rules_known(connection), None
    for currency, minor in sorted(seen.sums.items()):
        above = rules.above(Money(minor=min(minor, MAX_MINOR), currency=currency))
        if above is not None:
            because = f"for the sum of all its lines, {above}"
            break
    return Foreseen(
        withdrawn=found,
        seen=seen,
        unchanged=await import_store.later_imports(connection, found),
        named=await import_store.named_by(connection, author_of_import(found.number)),
        because=because,
    )


async def _take_back(
    context: AppContext,
    connection: Connection,
    foreseen: Foreseen,
    who: operator_store.Operator,
    *,
    reason: str,
    agreed: Agreed | None = None,
) -> Withdrawn:
    now, found = context.clock.now(), foreseen.withdrawn
    wanted = import_store.Import(
        kind=found.kind,
        file=found.file,
        sha256=found.sha256,
        who=who.name,
        started_at=now,
        read=foreseen.lines,
        withdraws=found.number,
        reason=reason,
    )
    begun, _ = await import_store.begin_import(connection, wanted)
    restored = await line_version_store.take_back(connection, found, by=begun.number)
    await import_store.replace_import_tasks(connection, ())  # a file may have waited for this
    done = Withdrawn(
        number=begun.number,
        restored=restored,
        withdrawn=found,
        seen=foreseen.seen,
        unchanged=foreseen.unchanged,
        named=foreseen.named,
        because=foreseen.because,
    )
    digests = await digests_of(connection, found.kind, number=begun.number)
    facts: dict[str, str | int] = {
        "file": found.file,
        "by_import": done.number,
        "lines": done.lines,
        "restored": done.restored,
        "of_closed_months": done.closed,
        "later_imports": ", ".join(map(str, done.unchanged)),
    }
    at = await import_store.publish_import(connection, begun, now=now)
    await note_in_trail(
        connection,
        who,
        action=ACTIONS[found.kind],
        subject=f"import {found.number}",
        at=at,
        reason=reason,
        facts=facts | digests | ({} if agreed is None else agreed.facts),
    )
    return done


def withdrawal_kind(context: AppContext) -> ProposalKind:
    async def perform(proposal: Proposal, agree: Agree) -> None:
        async with context.database.writing() as connection:
            await import_store.importing_alone(connection)
            agreed = await agree(connection)
            foreseen = await _foreseen(connection, await _given(connection, proposal.given))
            await _take_back(
                context, connection, foreseen, agreed.who, reason=proposal.reason, agreed=agreed
            )

    return ProposalKind(
        name="withdraw_import",
        title="Withdraw an import",
        action="records_withdrawn",
        subject_state=_state,
        perform=perform,
        takes_long=True,
        where=lambda proposal: ("imports", proposal.given["import"]),
    )


async def _given(connection: Connection, given: Mapping[str, str]) -> import_store.Import:
    (kind,) = [each for each in import_store.KINDS if each == given["kind"]]
    return await _withdrawable(connection, int(given["import"]), kind=kind)


async def _state(connection: Connection, subject: str, given: Mapping[str, str]) -> str:
    # The state changes with the lines that would be withdrawn, and with their money.
    return _mark(
        await line_version_store.standing_lines(connection, await _given(connection, given))
    )


def _mark(seen: line_version_store.StandingLines) -> str:
    return json.dumps([seen.lines, seen.sums], sort_keys=True)
