"""Takes an import back: from then on it is as if its lines had never been there.

    1 look      what of its lines is in force, their money, and how much is of closed months
    2 refuse    what is no import of this kind, or was taken back already
    3 propose   where its money is more than one person may accept alone
    4 write     an import of its own, which ends these lines and says again what was said before;
                with the audit entry, in one transaction

Nothing is deleted: runs and reports as of an instant before see the lines, closed months stay what
they are, and the report of the first open month tells what changed of them as adjustments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from app.access.operator_store import Operator
from app.access.operators import Action, author_of_import, note_in_trail, permitted
from app.access.proposal import Proposal
from app.access.proposals import Agree, Agreed, ProposalKind, propose
from app.core.errors import NotFoundError, UsageError
from app.core.masking import looks_like_a_phone
from app.core.text import counted
from app.database.engine import Connection
from app.finance.closed_periods import closing_named
from app.finance.import_store import (
    KINDS,
    Import,
    ImportKind,
    begin_import,
    publish_import,
    under_way,
)
from app.finance.match_rules import read_rules
from app.finance.matching_store import rules_in_force
from app.finance.period_store import closed_periods
from app.finance.withdrawal_store import (
    InForce,
    import_numbered,
    in_force,
    later_imports,
    named_by,
    take_back,
    withdrawal_of,
)
from app.receiving.context import AppContext
from reconcile.instants import EARLIEST, Instant
from reconcile.money import Money

ACTIONS: Final[Mapping[ImportKind, Action]] = {
    "book": "records_withdrawn",
    "statement": "statement_withdrawn",
    "bank": "bank_withdrawn",
}

GROUPS: Final[Mapping[ImportKind, str]] = {
    "book": "records",
    "statement": "statement",
    "bank": "bank",
}
"""The commands of each kind."""

REASON_MAX: Final = 2_000
"""Characters of why: a page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn:
    """An import that was taken back.

    number    of the import that took it back
    lines     how many lines it had in force; restored: of them, say again what was said before
    closed    of them, of months that are closed
    unchanged numbers of later imports that found rows unchanged, which may have been its lines
    named     orders of which it said what they were paid by; that stays
    """

    number: int
    withdrawn: Import
    lines: int
    restored: int
    closed: int
    unchanged: tuple[int, ...]
    named: int

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person must know of it, a sentence each."""
        return _notes(self.withdrawn.kind, self.closed, self.unchanged, self.named)


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawable:
    """An import, and what taking it back would do now.

    lines    how many are in force by it; money: theirs by currency, without signs
    notes    what a person must know of it, a sentence each
    because  why one person may not do it alone; None: they may
    mark     of what was seen, for `withdraw_import`
    """

    found: Import
    lines: int
    money: tuple[Money, ...]
    notes: tuple[str, ...]
    because: str | None
    mark: str


def _notes(
    kind: ImportKind, closed: int, unchanged: tuple[int, ...], named: int
) -> tuple[str, ...]:
    found = []
    if closed:
        found.append(
            f"{counted(closed, 'line is', 'lines are')} of closed months: those stay as "
            "they were closed, and the report of the first open month tells what changes as "
            "adjustments."
        )
    if unchanged:
        told = ", ".join(map(str, unchanged))
        found.append(
            f"Later imports ({told}) had rows that were unchanged then, maybe these: import "
            f"their files again (`tallyhook {GROUPS[kind]} imports` names them)."
        )
    if named:
        orders = counted(named, "order was", "orders were")
        found.append(f"What it said {orders} paid by stays: events follow it already.")
    return tuple(found)


async def withdrawable(
    context: AppContext, number: int, *, kind: ImportKind, by: str | None
) -> Withdrawable:
    """What `withdraw_import` would do now; nothing is written. Raises as it does."""
    async with context.store.reading() as connection:
        await permitted(connection, by=by, action=ACTIONS[kind])
        found = await _withdrawable(connection, number, kind=kind)
        seen = await in_force(connection, found, before=await _closed_until(connection))
        return Withdrawable(
            found=found,
            lines=seen.lines,
            money=tuple(Money(minor=seen.sums[each], currency=each) for each in sorted(seen.sums)),
            notes=_notes(
                kind,
                seen.before,
                await later_imports(connection, found),
                await named_by(connection, author_of_import(number)),
            ),
            because=await _too_much(connection, seen),
            mark=_mark(seen),
        )


async def withdrawn_by(context: AppContext, number: int) -> Import | None:
    """The import that took this one back; None: it stands."""
    async with context.store.reading() as connection:
        return await withdrawal_of(connection, number)


async def withdraw_import(
    context: AppContext,
    number: int,
    *,
    kind: ImportKind,
    by: str | None,
    reason: str,
    seen_as: str = "",
) -> Withdrawn | Proposal:
    """Take it back, or propose that where its money is above what one person may accept.

    seen_as  the mark of what the person saw of it; empty: they did not look

    Raises NotFoundError where there is no such import, UsageError for who may not, for one that was
    taken back, for one that has changed since it was seen, and while another import is under way.
    """
    _check_reason(reason)
    async with context.store.writing() as connection:
        who = await permitted(connection, by=by, action=ACTIONS[kind])
        found = await _withdrawable(connection, number, kind=kind)
        seen = await in_force(connection, found)
        if seen_as not in ("", _mark(seen)):
            raise UsageError("what stands by this import has changed since you saw it: look again")
        because = await _too_much(connection, seen)
        if because is None:
            return await _take_back(context, connection, found, who, reason=reason)
        return await propose(
            connection,
            withdrawal_kind(context),
            who=who,
            now=context.clock.now(),
            because=because,
            subject=_subject(number),
            sentence=f"Take back import {number} of {kind} lines ({found.file}): "
            f"{counted(seen.lines, 'line')}, {_moneys(seen)}.",
            given={"import": str(number), "kind": kind},
            reason=reason,
        )


def _check_reason(reason: str) -> None:
    if not 0 < len(reason.strip()) <= REASON_MAX:
        raise UsageError(f"say why, in 1 to {REASON_MAX} characters")
    if looks_like_a_phone(reason):
        raise UsageError("leave the phone number out: what is said of an import is kept for ever")


def _subject(number: int) -> str:
    return f"import {number}"


def _moneys(seen: InForce) -> str:
    sums = [str(Money(minor=seen.sums[each], currency=each)) for each in sorted(seen.sums)]
    return ", ".join(sums) or "no money"


async def _withdrawable(connection: Connection, number: int, *, kind: ImportKind) -> Import:
    found = await import_numbered(connection, number)
    group = GROUPS[kind]
    if found is None or found.kind != kind:
        raise NotFoundError(
            f"there is no import {number} of {group}: `tallyhook {group} imports` shows which are"
        )
    if found.withdraws is not None:
        raise UsageError(
            f"import {number} is the withdrawal of import {found.withdraws}: to have its lines "
            "again, import the file again"
        )
    by = await withdrawal_of(connection, number)
    if by is not None:
        raise UsageError(f"import {number} was taken back already, by {by.who}: {by.reason}")
    if await under_way(connection) is not None:
        raise UsageError(
            "an import is under way: take this one back when it is done; one that was killed is "
            "cleared away by the next import"
        )
    return found


async def _too_much(connection: Connection, seen: InForce) -> str | None:
    """Why one person may not take so much back alone; None where they may."""
    saved = await rules_in_force(connection)
    limits = {} if saved is None else read_rules(saved.toml).alone_max
    for currency, minor in sorted(seen.sums.items()):
        if currency in limits and minor > limits[currency]:
            most = Money(minor=limits[currency], currency=currency)
            money = Money(minor=minor, currency=currency)
            return f"its lines of {money} are more than the {most} that one person may accept"
    return None


async def _closed_until(connection: Connection) -> Instant:
    """The end of the last closed month; the beginning of time where none is closed."""
    closed = await closed_periods(connection)
    return (await closing_named(connection, closed[-1].period)).month.end if closed else EARLIEST


async def _take_back(
    context: AppContext,
    connection: Connection,
    found: Import,
    who: Operator,
    *,
    reason: str,
    agreed: Agreed | None = None,
) -> Withdrawn:
    now = context.clock.now()
    seen = await in_force(connection, found, before=await _closed_until(connection))
    wanted = Import(
        kind=found.kind,
        file=found.file,
        sha256=found.sha256,
        who=who.name,
        started_at=now,
        read=seen.lines,
        withdraws=found.number,
        reason=reason,
    )
    begun, _ = await begin_import(connection, wanted)
    restored = await take_back(connection, found, by=begun.number)
    done = Withdrawn(
        number=begun.number,
        withdrawn=found,
        lines=seen.lines,
        restored=restored,
        closed=seen.before,
        unchanged=await later_imports(connection, found),
        named=await named_by(connection, author_of_import(found.number)),
    )
    at = await publish_import(connection, begun, now=now)
    await note_in_trail(
        connection,
        who,
        action=ACTIONS[found.kind],
        subject=_subject(found.number),
        at=at,
        reason=reason,
        facts=_facts(done) if agreed is None else _facts(done) | agreed.facts,
    )
    return done


def _facts(done: Withdrawn) -> dict[str, str | int]:
    return {
        "file": done.withdrawn.file,
        "by_import": done.number,
        "lines": done.lines,
        "restored": done.restored,
        "of_closed_months": done.closed,
    }


def withdrawal_kind(context: AppContext) -> ProposalKind:
    """Taking back an import of more than one person may accept alone."""

    async def perform(proposal: Proposal, agree: Agree) -> None:
        async with context.store.writing() as connection:
            agreed = await agree(connection)
            found = await _given(connection, proposal.given)
            await _take_back(
                context, connection, found, agreed.who, reason=proposal.reason, agreed=agreed
            )

    return ProposalKind(
        name="withdraw_import",
        title="Take an import back",
        action="records_withdrawn",
        subject_state=_state,
        perform=perform,
        takes_long=True,
        where=lambda proposal: ("imports", proposal.given["import"]),
    )


async def _given(connection: Connection, given: Mapping[str, str]) -> Import:
    (kind,) = [each for each in KINDS if each == given["kind"]]
    return await _withdrawable(connection, int(given["import"]), kind=kind)


async def _state(connection: Connection, subject: str, given: Mapping[str, str]) -> str:
    """How many lines would be taken back, and their money."""
    return _mark(await in_force(connection, await _given(connection, given)))


def _mark(seen: InForce) -> str:
    return json.dumps([seen.lines, seen.sums], sort_keys=True)
