"""Rows of proposals and of what became of them. Both are only added to."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any, Final

from sqlalchemy import bindparam, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.access.proposal import Decided, Proposal
from reconcile.instants import Instant


async def add_proposal(connection: AsyncConnection, proposal: Proposal) -> None:
    """Keep a new one."""
    await connection.execute(
        text(
            "INSERT INTO proposals (id, kind, subject, sentence, given, state, who, role, reason, "
            "at, until) VALUES (:id, :kind, :subject, :sentence, :given, :state, :who, :role, "
            ":reason, :at, :until)"
        ),
        {
            "given": json.dumps(dict(proposal.given), sort_keys=True, ensure_ascii=False),
            "state": proposal.subject_state,
            **{
                name: getattr(proposal, name)
                for name in (
                    "id", "kind", "subject", "sentence", "who", "role", "reason", "at", "until",
                )
            },
        },
    )  # fmt: skip


async def add_decision(connection: AsyncConnection, proposal: str, decided: Decided) -> bool:
    """Keep what became of one; False where somebody decided before."""
    rows = await connection.execute(
        text(
            "INSERT INTO proposal_decisions (proposal, decision, who, role, reason, at) "
            "VALUES (:proposal, :decision, :who, :role, :reason, :at) "
            "ON CONFLICT (proposal) DO NOTHING RETURNING proposal"
        ),
        {
            "proposal": proposal,
            "decision": decided.decision,
            "who": decided.who,
            "role": decided.role,
            "reason": decided.reason,
            "at": decided.at,
        },
    )
    return rows.first() is not None


_SELECT: Final = (
    "SELECT id, kind, subject, sentence, given, state, proposals.who, proposals.role, "
    "proposals.reason, proposals.at, until, decision, proposal_decisions.who, "
    "proposal_decisions.role, proposal_decisions.reason, proposal_decisions.at "
    "FROM proposals LEFT JOIN proposal_decisions ON proposal = id"
)

_PAST: Final = (
    f"{_SELECT} WHERE id < :before AND (decision IS NOT NULL OR until <= :now) "
    "ORDER BY id DESC LIMIT :limit"
)
_PAST_OF_KINDS: Final = (
    f"{_SELECT} WHERE id < :before AND (decision IS NOT NULL OR until <= :now) "
    "AND kind IN :kinds ORDER BY id DESC LIMIT :limit"
)

_WAITING: Final = "decision IS NULL AND until > :now"


async def proposal_of(connection: AsyncConnection, identity: str) -> Proposal | None:
    """One by its id."""
    rows = await connection.execute(text(f"{_SELECT} WHERE id = :id"), {"id": identity})
    row = rows.first()
    return None if row is None else _proposal(tuple(row))


async def waiting_proposals(connection: AsyncConnection, *, now: Instant) -> list[Proposal]:
    """All that wait for a second person, the first to end first."""
    rows = await connection.execute(
        text(f"{_SELECT} WHERE {_WAITING} ORDER BY until, id"), {"now": now}
    )
    return [_proposal(tuple(row)) for row in rows]


async def waiting_proposal_of(
    connection: AsyncConnection, *, kind: str, subject: str, now: Instant
) -> Proposal | None:
    """The one of this kind that waits and is about this subject."""
    rows = await connection.execute(
        text(f"{_SELECT} WHERE {_WAITING} AND kind = :kind AND subject = :subject"),
        {"now": now, "kind": kind, "subject": subject},
    )
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
    """Those that nobody can approve any more, with ids below this one, the newest first; of these
    kinds, or of all."""
    values: dict[str, Any] = {"before": before, "now": now, "limit": limit}
    if kinds is None:
        rows = await connection.execute(text(_PAST), values)
    else:
        some = text(_PAST_OF_KINDS).bindparams(bindparam("kinds", expanding=True))
        rows = await connection.execute(some, {**values, "kinds": sorted(kinds)})
    return [_proposal(tuple(row)) for row in rows]


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
