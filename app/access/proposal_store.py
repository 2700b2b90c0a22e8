"""Database rows of proposals and of the decisions about them. Rows are never changed or deleted."""

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, astuple
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, column, or_, select, table, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.access.proposal import Decided, Proposal
from app.database.statements import PlainConnection, insert_rows
from reconcile.instants import Instant


async def add_proposal(connection: AsyncConnection, proposal: Proposal) -> None:
    await connection.execute(
        text(
            "INSERT INTO proposals (id, kind, subject, sentence, given, state, who, role, reason, "
            "at, until) VALUES (:id, :kind, :subject, :sentence, :given, :subject_state, :who, "
            ":role, :reason, :at, :until)"
        ),
        asdict(proposal)
        | {"given": json.dumps(dict(proposal.given), sort_keys=True, ensure_ascii=False)},
    )


async def add_decision(connection: AsyncConnection, proposal: str, decided: Decided) -> bool:
    """Insert the decision about a proposal. Return False if the proposal was already decided."""
    rows = await connection.execute(
        text(
            "INSERT INTO proposal_decisions (proposal, decision, who, role, reason, at) "
            "VALUES (:proposal, :decision, :who, :role, :reason, :at) "
            "ON CONFLICT (proposal) DO NOTHING RETURNING proposal"
        ),
        asdict(decided) | {"proposal": proposal},
    )
    return rows.first() is not None


_PROPOSALS: Final = table(
    "proposals",
    *map(column, ("id", "kind", "subject", "sentence", "given", "state")),
    *map(column, ("who", "role", "reason", "at", "until")),
)
_DECISIONS: Final = table(
    "proposal_decisions",
    *map(column, ("decision", "who", "role", "reason", "at", "proposal")),
)
_PROPOSED, _DECIDED = _PROPOSALS.c, _DECISIONS.c

_ALL: Final = select(*_PROPOSED, *_DECIDED[:-1]).join_from(
    _PROPOSALS, _DECISIONS, _DECIDED.proposal == _PROPOSED.id, isouter=True
)


def _waiting(now: Instant) -> ColumnElement[bool]:
    return and_(_DECIDED.decision.is_(None), _PROPOSED.until > now)


async def proposal_of(connection: AsyncConnection, identity: str) -> Proposal | None:
    rows = await connection.execute(_ALL.where(_PROPOSED.id == identity))
    row = rows.first()
    return None if row is None else _proposal(tuple(row))


async def waiting_proposals(connection: AsyncConnection, *, now: Instant) -> list[Proposal]:
    """Return all waiting proposals by time of expiry."""
    waiting = _ALL.where(_waiting(now)).order_by(_PROPOSED.until, _PROPOSED.id)
    rows = await connection.execute(waiting)
    return [_proposal(tuple(row)) for row in rows]


async def waiting_proposal_of(
    connection: AsyncConnection, *, kind: str, subject: str, now: Instant
) -> Proposal | None:
    rows = await connection.execute(
        _ALL.where(_waiting(now), _PROPOSED.kind == kind, _PROPOSED.subject == subject)
    )
    row = rows.first()
    return None if row is None else _proposal(tuple(row))


async def approved_proposal_of(
    connection: AsyncConnection, *, kind: str, subject: str
) -> Proposal | None:
    """Return the newest approved proposal of this kind and subject."""
    approved = _ALL.where(
        _DECIDED.decision == "approved", _PROPOSED.kind == kind, _PROPOSED.subject == subject
    )
    rows = await connection.execute(approved.order_by(_PROPOSED.id.desc()).limit(1))
    row = rows.first()
    return None if row is None else _proposal(tuple(row))


async def past_proposals(
    connection: AsyncConnection,
    *,
    now: Instant,
    before: str,
    limit: int,
    kinds: Collection[str] | None = None,
) -> list[Proposal]:
    """Return past proposals below the id `before`, newest first."""
    over = or_(_DECIDED.decision.is_not(None), _PROPOSED.until <= now)
    past = _ALL.where(_PROPOSED.id < before, over)
    if kinds is not None:
        past = past.where(_PROPOSED.kind.in_(sorted(kinds)))
    rows = await connection.execute(past.order_by(_PROPOSED.id.desc()).limit(limit))
    return [_proposal(tuple(row)) for row in rows]


def withdraw_later(connection: PlainConnection, decided: Decided, *, after: Instant) -> None:
    """Store the decision for every waiting proposal that is dated later than `after`."""
    rows = connection.ask(
        "SELECT id FROM proposals WHERE at > ? AND until > ? "
        "AND id NOT IN (SELECT proposal FROM proposal_decisions)",
        (after, decided.at),
    )
    insert_rows(
        connection,
        table="proposal_decisions",
        columns=("proposal", "decision", "who", "role", "reason", "at"),
        rows=[(name, *astuple(decided)) for (name,) in rows],
        conflict="ON CONFLICT (proposal) DO NOTHING",
    )


def _proposal(row: Sequence[Any]) -> Proposal:
    identity, kind, subject, sentence, given, state, who, role, reason, at, until, *rest = row
    decision, decider, decider_role, why, decided_at = rest
    return Proposal(
        id=identity,
        kind=kind,
        subject=subject,
        sentence=sentence,
        given=json.loads(given),
        subject_state=state,
        who=who,
        role=role,
        reason=reason,
        at=at,
        until=until,
        decided=None
        if decision is None
        else Decided(decision=decision, who=decider, role=decider_role, reason=why, at=decided_at),
    )
