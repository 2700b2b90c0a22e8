"""Do what people decide about breaks. Each act is one transaction with an audit entry."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, TypedDict, get_args

from app.access import operator_store, operators, proposals
from app.access.proposal import Proposal
from app.context.context import AppContext
from app.core.document_of import document_of
from app.core.errors import NotFoundError, UsageError
from app.core.text import is_human_text
from app.database.engine import Connection
from app.finance import break_store
from app.finance.limits import Allowance, allowance_of
from app.orders.accept_findings import record_acceptance
from reconcile import documents
from reconcile.canonical import fingerprint
from reconcile.instants import DAY, Instant, format_instant
from reconcile.ledger.ledger import Facts
from reconcile.matching import breaks
from reconcile.matching.candidates import REASON_WORDS, WEIGHTS, suggestions
from reconcile.matching.causes import CAUSES, BreakCause
from reconcile.matching.rows import name_of
from reconcile.matching.rules import own_line
from reconcile.matching.suspense import UNALLOCATED
from reconcile.money import Money, major_text, to_json

# --- reading breaks -------------------------------------------------------------------------------


class CandidateReasonDocument(TypedDict):
    reason: str
    points: documents.Count
    words: str


class CandidateDocument(TypedDict):
    line: str
    reference: str | None
    money: documents.MoneyDocument
    score: Annotated[int, documents.Keywords(minimum=0, maximum=100)]
    reasons: list[CandidateReasonDocument]
    apart: str


class BreakDocument(TypedDict):
    id: Annotated[str, documents.Keywords(examples=["brk_1"])]
    cause: BreakCause
    state: breaks.State
    assignee: str | None
    order: str | None
    payment: str | None
    money: documents.MoneyDocument
    age_days: documents.Count
    since: documents.InstantText
    cites: documents.Cites
    candidates: Annotated[
        list[CandidateDocument], "The nearest lines, and why each one does not match."
    ]
    next_step: str
    sentence: str


class StepDocument(TypedDict):
    at: documents.InstantText
    step: Annotated[str, documents.Keywords(enum=(*get_args(breaks.Turn), *breaks.ACTS))]
    by: str
    second: Annotated[str | None, "Who approved, if two people were needed."]
    value: str
    reason: str
    money: documents.MoneyDocument
    cites: documents.Cites


class WholeBreakDocument(BreakDocument):
    because: str | None
    settling: breaks.LateDecision | None
    closed_by: list[str]
    facts: documents.FactsDocument
    steps: list[StepDocument]


class BreakPageDocument(TypedDict):
    breaks: list[BreakDocument]
    next: documents.NextText


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenBreak:
    """Break with its history and present state."""

    identity: str
    seen: breaks.Break
    steps: tuple[breaks.Step, ...]
    life: breaks.Life

    def document(self, *, as_of: Instant) -> BreakDocument:
        """Return the break as a JSON document."""
        seen = self.seen
        return {
            "id": self.identity,
            "cause": seen.cause,
            "state": self.life.state,
            "assignee": self.life.assignee,
            "order": seen.order,
            "payment": seen.payment,
            "money": to_json(seen.money),
            "age_days": age_days(seen, as_of),
            "since": format_instant(seen.since),
            "cites": list(seen.cites),
            "candidates": [
                {
                    "line": each.candidate.line,
                    "reference": each.candidate.reference,
                    "money": to_json(each.candidate.money),
                    "score": each.score,
                    "reasons": [
                        {"reason": name, "points": WEIGHTS[name], "words": REASON_WORDS[name]}
                        for name in each.reasons
                    ],
                    "apart": breaks.apart_words(each.candidate),
                }
                for each in suggestions(seen)
            ],
            "next_step": breaks.next_step(seen),
            "sentence": breaks.break_sentence(seen),
        }

    def whole_document(self, *, as_of: Instant) -> WholeBreakDocument:
        """Return the break as a document with facts and history."""
        return {
            **self.document(as_of=as_of),
            "because": self.life.because,
            "settling": self.life.settling,
            "closed_by": list(self.life.closed_by),
            "facts": facts_json(self.seen.facts),
            "steps": [
                document_of(StepDocument, step, step=step.kind, by=step.by or f"run {step.run}")
                for step in self.steps
            ],
        }


def age_days(seen: breaks.Break, as_of: Instant) -> int:
    """Return a break's age in whole days."""
    return max(as_of - seen.since, 0) // DAY


def facts_json(facts: Facts) -> dict[str, Any]:
    """Return the facts as JSON values."""
    return {
        name: to_json(value)
        if isinstance(value, Money)
        else format_instant(Instant(value))
        if name.endswith("_at") and isinstance(value, int)
        else value
        for name, value in facts
    }


async def breaks_of_run(
    context: AppContext, number: int, *, after: str = ""
) -> AsyncGenerator[list[SeenBreak]]:
    """Yield a run's breaks in batches sorted by id."""
    while True:
        async with context.database.reading() as connection:
            found = await break_store.seen_by(connection, number, after=after)
            if not found:
                return
            after = found[-1][0]
            living = await _with_lives(connection, dict(found))
        yield living  # outside the transaction, since the reader may pause or stop


async def living_breaks(
    context: AppContext,
    *,
    causes: Collection[str] = (),
    states: Collection[breaks.State] = breaks.STATES,
    assignee: str | None = None,
    after: str = "",
) -> AsyncGenerator[list[SeenBreak]]:
    """Yield published breaks in batches, including closed breaks."""
    while True:
        async with context.database.reading() as connection:
            names = await break_store.breaks_after(
                connection,
                after=after,
                limit=break_store.AT_ONCE,
                causes=causes,
                states=states,
                assignee=assignee,
            )
            if not names:
                return
            after = names[-1]
            living = await seen_breaks(connection, names)
        yield [
            each
            for each in living
            if each.life.state in states and assignee in (None, each.life.assignee)
        ]


async def _with_lives(connection: Connection, seen: Mapping[str, breaks.Break]) -> list[SeenBreak]:
    steps = await break_store.steps_of(connection, list(seen))
    return [
        SeenBreak(
            identity=name,
            seen=each,
            steps=tuple(steps.get(name, ())),
            life=breaks.life(steps.get(name, ())),
        )
        for name, each in sorted(seen.items())
    ]


async def seen_breaks(connection: Connection, names: Sequence[str]) -> list[SeenBreak]:
    return await _with_lives(connection, await break_store.latest_seen(connection, names))


async def living_break(connection: Connection, name: str) -> SeenBreak:
    """Return one published break. Raise NotFoundError for an unknown break."""
    found = await seen_breaks(connection, [name])
    if not found:
        raise NotFoundError(
            f"there is no break {name}: `tallyhook breaks list` shows the open breaks. Only a "
            "reconciliation of all data with the saved rules opens breaks"
        )
    return found[0]


async def _named_breaks(connection: Connection, names: Sequence[str]) -> list[SeenBreak]:
    if len(names) == 1:
        return [await living_break(connection, names[0])]
    found = await seen_breaks(connection, names)
    if len(found) < len(names):
        raise NotFoundError("one of these breaks no longer exists: look at the list again")
    return found


async def one_break(context: AppContext, name: str) -> SeenBreak:
    async with context.database.reading() as connection:
        return await living_break(connection, name)


BREAKS_OF_AN_ORDER: Final = 50


async def breaks_of(context: AppContext, order: str) -> list[SeenBreak]:
    """Return all breaks of one order, including closed breaks."""
    async with context.database.reading() as connection:
        return await _breaks_of(connection, order)


async def breaks_since(
    connection: Connection, order: str, *, since: Instant
) -> list[SeenBreak] | None:
    """Return all breaks of an order; None if no run has changed a break since `since`."""
    last = await break_store.last_lived(connection)
    if last is None or last.at < since:
        return None
    return await _breaks_of(connection, order)


async def _breaks_of(connection: Connection, order: str) -> list[SeenBreak]:
    names = await break_store.breaks_of_order(connection, order, limit=BREAKS_OF_AN_ORDER)
    return await seen_breaks(connection, names)


async def finished_run(context: AppContext, number: int) -> break_store.Run:
    """Return a finished run. Raise NotFoundError for any other number."""
    async with context.database.reading() as connection:
        found = await break_store.run_of(connection, number)
    if found is None:
        raise NotFoundError(f"there is no run {number}; `tallyhook reconcile list` shows the runs")
    return found


async def finished_runs(
    context: AppContext, *, limit: int, before: int | None = None
) -> list[break_store.Run]:
    """Return the last finished runs, newest first."""
    async with context.database.reading() as connection:
        return await break_store.runs(connection, limit=limit, before=before)


# --- what people do about breaks ------------------------------------------------------------------


BREAK_ACTIONS: Final[dict[breaks.Act, operators.Action]] = {
    "assigned": "break_assigned",
    "commented": "break_commented",
    "accepted": "break_accepted",
    "matched": "break_matched",
    "unmatched": "break_unmatched",
    "settled": "late_money_settled",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakAct:
    """A person's act on a break."""

    kind: breaks.Act
    by: str | None
    reason: str = ""
    value: str = ""


MOST_AT_ONCE: Final = 200
"""Maximum number of breaks in one decision."""


NAMED: Final = 10


def mark_of(found: Sequence[SeenBreak]) -> str:
    """Return a digest that changes with the breaks' state."""
    shown = [
        (
            each.identity,
            str(each.seen.money),
            each.life.state,
            each.life.assignee or "",
            each.life.settling or "",
        )
        for each in found
    ]
    return fingerprint(sorted(shown))


def _check_same(found: Sequence[SeenBreak], seen: str | None) -> None:
    if seen in (None, mark_of(found)):
        return
    if len(found) == 1:
        because = found[0].life.because.rstrip(".")
        raise UsageError(
            f"this break has changed since you looked, so nothing was done. {because}. Look at it "
            "again before you decide"
        )
    raise UsageError(
        "these breaks have changed since you looked, so nothing was done: look at the list again "
        "before you decide"
    )


async def some_breaks(context: AppContext, names: Sequence[str]) -> list[SeenBreak]:
    """Return the breaks, by currency and descending amount. Raise UsageError for no id or too
    many."""
    wanted = list(dict.fromkeys(names))
    if not 0 < len(wanted) <= MOST_AT_ONCE:
        raise UsageError(f"choose 1 to {MOST_AT_ONCE} breaks")
    async with context.database.reading() as connection:
        found = await _named_breaks(connection, wanted)
    return sorted(found, key=lambda each: (each.seen.money.currency, -each.seen.money.minor))


async def act_on_breaks(
    context: AppContext,
    names: Sequence[str],
    doing: BreakAct,
    *,
    seen: str | None = None,
    propose: bool = True,
) -> Proposal | None:
    """Assign, comment on, accept or settle breaks: all or none. Return a proposal if a second
    person is needed."""
    to = doing.value if doing.kind == "assigned" else ""
    if to and not (is_human_text(to) and to == to.strip() and len(to) <= 80):
        raise UsageError("--to takes a name of at most 80 printable characters")
    async with _acting(context, doing) as (connection, who):
        found = await _named_breaks(connection, names)
        _check_same(found, seen)
        because = None
        if doing.kind in ("accepted", "settled"):
            for each in found:
                _check_open(each)
            allowance = await allowance_of(context, connection, who.name)
            if len(found) > 1 or not propose:
                _check_alone(allowance, found)
            elif doing.value != "refund":  # a refund accepts no loss
                because = too_much(allowance, found[0].seen)
        if because is None:
            for each in found:
                await _write(context, connection, doing, who, each)
            return None
        return await proposals.propose(
            connection,
            acceptance_kind(context),
            who=who,
            now=context.clock.now(),
            because=because,
            subject=names[0],
            sentence=_proposed_sentence(found[0], doing),
            given={"deed": doing.kind, "value": doing.value},
            reason=doing.reason,
        )


MOST_LINES: Final = 50


async def match_lines(
    context: AppContext, name: str, *, lines: Sequence[str], reason: str, by: str | None
) -> None:
    """Match a break with unmatched lines by hand, and close the lines' breaks. Raise UsageError for
    lines that cannot be matched."""
    if not 0 < len(lines) <= MOST_LINES:
        raise UsageError(f"choose 1 to {MOST_LINES} lines")
    async with _acting(context, BreakAct(kind="matched", by=by, reason=reason)) as (
        connection,
        who,
    ):
        found = await living_break(connection, name)
        if not found.life.matched:  # more lines may be added to an earlier match
            _check_open(found)
        for line in dict.fromkeys(lines):
            if line.startswith(UNALLOCATED):
                payment = line.removeprefix(UNALLOCATED)
                raise UsageError(
                    "this payment has no order, so it cannot be matched: assign it with "
                    f"`tallyhook unallocated assign {payment}`, or on the payment's page in the "
                    "console"
                )
            partners = await _check_line(connection, found, line)
            doing = BreakAct(kind="matched", by=by, reason=reason, value=line)
            await _write(context, connection, doing, who, found)
            back = replace(doing, value=own_line_of(found.seen))
            for each in partners:
                await _write(context, connection, back, who, each)


async def unmatch_break(
    context: AppContext, name: str, *, line: str = "", reason: str, by: str | None
) -> str:
    """Undo a match by hand. Return the matched version."""
    doing = BreakAct(kind="unmatched", by=by, reason=reason, value=line)
    async with _acting(context, doing) as (connection, who):
        found = await living_break(connection, name)
        value = await _standing_match(connection, name, line=line)
        await _write(context, connection, replace(doing, value=value), who, found)
        own = own_line_of(found.seen)
        for each in await _partners(connection, found, value):
            for given in await break_store.lines_matched_with(connection, each.identity):
                if name_of(given) == own:
                    await _write(context, connection, replace(doing, value=given), who, each)
    return value


@asynccontextmanager
async def _acting(
    context: AppContext, doing: BreakAct
) -> AsyncIterator[tuple[Connection, operator_store.Operator]]:
    proposals.check_reason(
        doing.reason, of="a break", needed=doing.kind != "assigned", countries=context.countries
    )
    async with context.database.writing() as connection:
        await break_store.deciding_alone(connection)
        await operator_store.acting_alone(connection)  # so that the limits count every act
        yield (
            connection,
            await operators.permitted(connection, by=doing.by, action=BREAK_ACTIONS[doing.kind]),
        )


def _check_alone(allowance: Allowance, found: Sequence[SeenBreak]) -> None:
    names = [each.identity for each in found if too_much(allowance, each.seen) is not None]
    if names:
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        raise UsageError(
            "nothing was accepted: a second person must approve "
            f"{', '.join(names[:NAMED])}{more}. Propose each of these breaks separately, and "
            "accept the others without them"
        )
    together = allowance.why_not(*(each.seen.money for each in found))
    if together is not None:
        raise UsageError(
            f"{together}, so nothing was accepted: accept fewer breaks, and propose each "
            "remaining break separately"
        )


def _check_open(found: SeenBreak) -> None:
    if found.life.state == "closed":
        raise UsageError(f"{found.identity} is closed: {found.life.because}")


async def _write(
    context: AppContext,
    connection: Connection,
    doing: BreakAct,
    who: operator_store.Operator,
    found: SeenBreak,
    *,
    agreed: proposals.Agreed | None = None,
) -> None:
    now, money = context.clock.now(), found.seen.money
    step = breaks.Step(
        at=now,
        kind=doing.kind,
        money=money,
        by=who.name,
        value=doing.value,
        reason=doing.reason,
        second=None if agreed is None else agreed.second,
    )
    await break_store.add_act(connection, found.identity, step)
    kept = doing.kind == "accepted" or (doing.kind == "settled" and doing.value != "refund")
    codes = CAUSES[found.seen.cause].accepts
    if kept and found.seen.order is not None and codes:
        await record_acceptance(connection, context, found.seen.order, codes=codes, who=who)
        context.signals.evidence_arrived.set()
    facts: dict[str, str | int] = {"amount": major_text(money), "currency": money.currency}
    if doing.value:
        facts["value"] = doing.value
    await operators.note_in_trail(
        connection,
        who,
        action=BREAK_ACTIONS[doing.kind],
        subject=found.identity,
        at=now,
        reason=doing.reason,
        facts=facts if agreed is None else facts | agreed.facts,
    )


def acceptance_kind(context: AppContext) -> proposals.ProposalKind:
    """Build the kind of proposal for acceptances above one person's limit."""

    async def perform(proposal: Proposal, agree: proposals.Agree) -> None:
        kind: breaks.Act = "settled" if proposal.given["deed"] == "settled" else "accepted"
        async with context.database.writing() as connection:
            await break_store.deciding_alone(connection)
            agreed = await agree(connection)
            found = await living_break(connection, proposal.subject)
            doing = BreakAct(
                kind=kind, by=agreed.who.name, reason=proposal.reason, value=proposal.given["value"]
            )
            await _write(context, connection, doing, agreed.who, found, agreed=agreed)

    return proposals.ProposalKind(
        name="accept_above_limit",
        title="Accept a break above the limit",
        action="break_accepted",
        subject_state=_break_state,
        perform=perform,
        where=proposals.shown_in("breaks"),
    )


async def _break_state(connection: Connection, name: str, given: Mapping[str, str]) -> str:
    found = await living_break(connection, name)
    decided = found.life.state if found.life.state in ("accepted", "closed") else "open"
    seen = found.seen
    return json.dumps(
        [seen.cause, to_json(seen.money), facts_json(seen.facts), decided, found.life.settling],
        sort_keys=True,
    )


def _proposed_sentence(found: SeenBreak, doing: BreakAct) -> str:
    seen = found.seen
    what = (
        f"Accept {found.identity}: {_booked(seen)}."
        if doing.kind == "accepted"
        else f"Settle {found.identity}: keep {seen.money} that came late ({doing.value})."
    )
    of_what = ""
    if seen.order is not None:
        of_what = f" Its order is {seen.order}."
    elif seen.payment is not None:
        of_what = f" Its payment is {seen.payment}."
    return f"{what} {breaks.break_sentence(seen)}{of_what}"


def _booked(seen: breaks.Break) -> str:
    if not seen.left:
        return f"nothing is booked; {seen.money} is at stake"
    parts = [
        f"{each} is written off"
        if each.minor > 0
        else f"{replace(each, minor=-each.minor)} is kept, although it was not reported"
        for each in seen.left
    ]
    return ", and ".join(parts)


def not_known(seen: breaks.Break) -> bool:
    """Check if the amount of a break's money is unknown."""
    return seen.cause == "unresolved" and not seen.money.minor


def too_much(allowance: Allowance, seen: breaks.Break) -> str | None:
    """Return why one person may not accept a break alone, or None."""
    if reason := CAUSES[seen.cause].two_people:
        return reason
    if allowance.rules.alone_max and not_known(seen):
        return "the amount at stake is not known, and one person may accept only up to a limit"
    return allowance.why_not(seen.money)


async def matches_of(context: AppContext, name: str) -> list[str]:
    """Return the lines that people matched with a break."""
    async with context.database.reading() as connection:
        return await break_store.lines_matched_with(connection, name)


async def allowance_now(context: AppContext, *, by: str) -> Allowance:
    """Return what a person may still accept alone."""
    async with context.database.reading() as connection:
        return await allowance_of(context, connection, by)


def own_line_of(seen: breaks.Break) -> str:
    """Return the break's line, or else its order."""
    return own_line(seen.cause, order=seen.order, subject=seen.subject)


async def _partners(connection: Connection, found: SeenBreak, line: str) -> list[SeenBreak]:
    names = await break_store.breaks_of_subject(connection, name_of(line))
    names += await break_store.breaks_of_order(connection, line, limit=BREAKS_OF_AN_ORDER)
    causes = CAUSES[found.seen.cause].partners
    return [
        each
        for each in await seen_breaks(connection, [e for e in names if e != found.identity])
        if each.seen.cause in causes and own_line_of(each.seen) == name_of(line)
    ]


async def _check_line(connection: Connection, found: SeenBreak, line: str) -> list[SeenBreak]:
    if otherwise := CAUSES[found.seen.cause].not_by_hand:
        raise UsageError(otherwise)
    if (claimed := await break_store.matched_by_hand(connection, line)) is not None:
        raise UsageError(f"{line} is already matched by hand with {claimed}: choose another line")
    subject = name_of(line)
    near = next((e for e in found.seen.candidates if name_of(e.line) == subject), None)
    if near is not None and found.seen.cause == "refund_not_received":
        if near.money != found.seen.money:
            raise UsageError(
                f"{line} is for {near.money}, but the refund is for {found.seen.money}: choose a "
                "payment of the full amount"
            )
        return []
    partners = [
        each for each in await _partners(connection, found, line) if each.life.state != "closed"
    ]
    if near is not None or partners:
        return partners
    about_it = await break_store.breaks_of_subject(connection, subject)
    others = [each for each in about_it if each != found.identity]
    if any(each.life.state != "closed" for each in await seen_breaks(connection, others)):
        return []
    raise UsageError(
        f"{line} is not an unmatched line: `tallyhook breaks show {found.identity}` names the "
        "break's candidates"
    )


async def _standing_match(connection: Connection, name: str, *, line: str) -> str:
    matched = await break_store.lines_matched_with(connection, name)
    meant = [each for each in matched if not line or name_of(each) == name_of(line)]
    if len(meant) == 1:
        return meant[0]
    if not matched:
        raise UsageError(
            f"{name} has no match by hand; `tallyhook breaks show {name}` shows its history"
        )
    raise UsageError(
        f"{name} is matched by hand with {', '.join(matched)}; name one of these lines with --line"
    )
