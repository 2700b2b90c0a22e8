"""Operators, their permissions and the audit trail. Without operators, everybody has all
permissions."""

import os
import pwd
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Final, Literal

from app.access import names, operator_store, session_store
from app.config.values import ROLES as ROLES
from app.config.values import Role as Role
from app.core.errors import NotFoundError, UsageError
from app.database.database import DatabaseContext
from app.database.engine import Connection
from reconcile.instants import EARLIEST, Instant

OWNER: Final = "owner"
"""Author of records that the machine's owner makes without an operator."""

SERVICE_AUTHOR: Final = "service"

Action = Literal[
    "records_imported",
    "statement_imported",
    "bank_imported",
    "mapping_saved",
    "mapping_deleted",
    "records_withdrawn",
    "statement_withdrawn",
    "bank_withdrawn",
    "coverage_declared",
    "coverage_withdrawn",
    "rules_saved",
    "break_assigned",
    "break_commented",
    "break_accepted",
    "break_matched",
    "break_unmatched",
    "late_money_settled",
    "payment_proposed",
    "payment_assigned",
    "payment_withdrawn",
    "payment_dismissed",
    "reconciled",
    "schedule_run",
    "report_delivered",
    "period_closed",
    "period_reopened",
    "evidence_built",
    "letter_taken",
    "attached",
    "detached",
    "attachment_read",
    "unmasked",
    "person_sought",
    "erased",
    "data_exported",
    "restored_without_erasures",
    "key_rotated",
    "log_renamed",
    "operator_added",
    "operator_disabled",
    "operator_invited",
    "founders_vouched",
    "sessions_ended",
    "token_added",
    "token_revoked",
    "item_signed",
    "notifications_redelivered",
    "orders_released",
    "finding_accepted",
    "deliveries_reverified",
    "deliveries_retried",
    "message_judged",
    "rejection_read",
    "pruned",
    "price_changed",
    "backed_up",
    "restored",
    "inbox_adopted",
    "gap_accepted",
    "took_over",
    "proposed",
    "proposal_approved",
    "proposal_rejected",
    "proposal_withdrawn",
    "note_added",
    "alarm_taken",
    "test_event_sent",
    "golive_checked",
    "notices_chosen",
    "signed_in",
    "sign_in_failed",
    "password_changed",
    "second_factor_set",
    "passkey_added",
    "passkey_removed",
    "company_linked",
    "role_changed",
    "clock_put_right",
]

_FINANCE: Final = frozenset[Role]({"finance", "admin"})
_SUPPORT: Final = frozenset[Role]({"support", "admin"})
_ADMIN: Final = frozenset[Role]({"admin"})

MAY: Final[Mapping[Action, frozenset[Role]]] = {
    "records_imported": _FINANCE,
    "statement_imported": _FINANCE,
    "bank_imported": _FINANCE,
    "mapping_saved": _FINANCE,
    "mapping_deleted": _FINANCE,
    "records_withdrawn": _FINANCE,
    "statement_withdrawn": _FINANCE,
    "bank_withdrawn": _FINANCE,
    "coverage_declared": _FINANCE,
    "coverage_withdrawn": _FINANCE,
    "rules_saved": _FINANCE,
    "break_assigned": _FINANCE | _SUPPORT,
    "break_commented": _FINANCE | _SUPPORT,
    "break_accepted": _FINANCE,
    "break_matched": _FINANCE,
    "break_unmatched": _FINANCE,
    "late_money_settled": _FINANCE,
    "payment_proposed": _FINANCE | _SUPPORT,  # one of the next three; never an entry of its own
    "payment_assigned": _FINANCE,
    "payment_withdrawn": _FINANCE,
    "payment_dismissed": _FINANCE,
    "reconciled": _FINANCE,  # from a page; by command it is the machine's owner
    "schedule_run": _FINANCE,
    "report_delivered": frozenset(),  # only by the schedule
    "period_closed": _FINANCE,
    "period_reopened": _FINANCE,
    "evidence_built": _FINANCE | _SUPPORT,
    "letter_taken": _FINANCE | _SUPPORT,
    "attached": _FINANCE | _SUPPORT,
    "detached": _FINANCE | _SUPPORT,
    "attachment_read": _FINANCE | _SUPPORT,
    "unmasked": _SUPPORT,
    "person_sought": _FINANCE | _SUPPORT,
    "erased": _ADMIN,
    "data_exported": _ADMIN,
    "restored_without_erasures": _ADMIN,
    "key_rotated": _ADMIN,
    "log_renamed": _ADMIN,
    "operator_added": _ADMIN,
    "operator_disabled": _ADMIN,
    "operator_invited": _ADMIN,
    "founders_vouched": frozenset(),  # only by the machine's owner
    "sessions_ended": _ADMIN,
    "token_added": _ADMIN,
    "token_revoked": _ADMIN,
    "item_signed": _FINANCE | _SUPPORT,
    "notifications_redelivered": _FINANCE | _SUPPORT,
    "orders_released": _FINANCE,
    "finding_accepted": _FINANCE,
    "deliveries_reverified": _SUPPORT,
    "deliveries_retried": _SUPPORT,
    "message_judged": _FINANCE,
    "rejection_read": _FINANCE | _SUPPORT,
    "pruned": _ADMIN,
    "price_changed": _ADMIN,  # by the shop's programs, which need a token's scope, not a role
    "backed_up": frozenset(),  # only by the machine's owner
    "restored": _ADMIN,
    "inbox_adopted": _ADMIN,
    "gap_accepted": _ADMIN,
    "proposed": _FINANCE | _SUPPORT,  # these four also need the act's own permission
    "proposal_approved": _FINANCE | _SUPPORT,
    "proposal_rejected": _FINANCE | _SUPPORT,
    "proposal_withdrawn": _FINANCE | _SUPPORT,
    "note_added": _FINANCE | _SUPPORT,
    "alarm_taken": _FINANCE | _SUPPORT,
    "test_event_sent": _FINANCE | _SUPPORT,
    "golive_checked": _FINANCE | _SUPPORT,
    "notices_chosen": frozenset(ROLES),  # one's own; an admin's for others
    "signed_in": frozenset(ROLES),
    "sign_in_failed": frozenset(),  # nobody's act
    "password_changed": frozenset(ROLES),  # these two only one's own
    "second_factor_set": frozenset(ROLES),
    "passkey_added": frozenset(ROLES),
    "passkey_removed": frozenset(ROLES),
    "company_linked": frozenset(ROLES),
    "role_changed": frozenset(),  # by the company's account alone
    "clock_put_right": frozenset(),  # by the service alone
    "took_over": frozenset(),
}

Reading = Literal[
    "now",
    "orders",
    "cases",
    "deliveries",
    "refused_deliveries",
    "notifications",
    "breaks",
    "unallocated",
    "late",
    "bank",
    "imports",
    "proposals",
    "all_proposals",
    "runs",
    "periods",
    "reports",
    "log",
    "golive",
    "audit",
    "people",
    "tokens",
    "privacy",
    "setup",
    "me",
]

_ALL: Final = frozenset(ROLES)

MAY_READ: Final[Mapping[Reading, frozenset[Role]]] = {
    "now": _ALL,
    "orders": _ALL,
    "cases": _FINANCE | _SUPPORT,
    "deliveries": _ALL,
    "refused_deliveries": _FINANCE | _SUPPORT,
    "notifications": _FINANCE | _SUPPORT,
    "breaks": _FINANCE | _SUPPORT,
    "unallocated": _FINANCE | _SUPPORT,
    "late": _FINANCE,
    "bank": _FINANCE,
    "imports": _FINANCE,
    "proposals": _FINANCE | _SUPPORT,  # of acts that the role may do
    "all_proposals": _FINANCE,
    "runs": _FINANCE,
    "periods": _FINANCE,
    "reports": _FINANCE,
    "log": _ALL,
    "golive": _ALL,
    "audit": _FINANCE,
    "people": _ADMIN,
    "tokens": _ADMIN,
    "privacy": _ADMIN,
    "setup": _ALL,
    "me": _ALL,
}

ASKED_BY: Final = "TALLYHOOK_OPERATOR"
"""Environment variable that names the acting operator for commands without `--by`."""


class Proven(str):
    """Name of an operator who has proved their identity."""

    __slots__ = ()


_BY_TOKEN: Final[ContextVar[Proven | None]] = ContextVar("by_token", default=None)


@contextmanager
def asking_by_token(name: Proven | None) -> Iterator[None]:
    """Make a token's owner the acting operator inside the `with` block."""
    before = _BY_TOKEN.set(name)
    try:
        yield
    finally:
        _BY_TOKEN.reset(before)


SERVICE: Final = operator_store.Operator(name="tallyhook", role="service", created_at=EARLIEST)


def author_of_token(name: str) -> str:
    """Return the author's name for facts that a program states with the named token."""
    return f"token:{name}"


def author_of_import(number: int) -> str:
    """Return the author's name for facts that come from an imported file."""
    return f"import:{number}"


def _asking(by: str | None) -> str | None:
    holder = _BY_TOKEN.get()
    if holder is None or isinstance(by, Proven):
        return by or os.environ.get(ASKED_BY)
    if by is not None and by != holder:
        raise UsageError(f"the token belongs to {holder}, but --by names {by}: leave --by out")
    return holder


async def author_of_command(context: DatabaseContext, *, by: str | None = None) -> str:
    """Return a command's author. Raise UsageError for an inactive operator."""
    async with context.database.reading() as connection:
        everybody = await operator_store.operators(connection)
    named = _asking(by)
    if named in {each.name for each in everybody if each.disabled_at is None}:
        return f"operator:{named}"
    if by is not None:
        raise UsageError(f"{by!r} is not an active operator; `tallyhook operators list` shows them")
    return OWNER


async def vouch_for_founders(
    connection: Connection, founders: tuple[str, str], *, reason: str, at: Instant
) -> None:
    """Record that two operators are different persons.

    Raise UsageError except for the machine's owner, and NotFoundError for an unknown name.
    """
    await operator_store.acting_alone(connection)
    if _BY_TOKEN.get() is not None:
        raise UsageError(
            "only the machine's owner may vouch for operators: run the command without a token"
        )
    if await operator_store.audit_entries(connection, limit=1, action=operator_store.VOUCHED):
        raise UsageError(
            "the machine's owner has already vouched for two operators, and may do so only once"
        )
    known = await operator_store.operators(connection)
    in_force = {each.name for each in known if each.disabled_at is None}
    for name in founders:
        if name not in in_force:
            raise no_operator(name)
    one, other = founders
    if one == other:
        raise UsageError("name two different operators")
    await note_in_trail(
        connection,
        owner(),
        action="founders_vouched",
        subject=f"{one}, {other}",
        at=at,
        reason=reason,
        facts={"one": one, "other": other},
    )


def owner() -> operator_store.Operator:
    """Return the machine's owner as an operator, without a look into the database."""
    return operator_store.Operator(name=_account(), role="account", created_at=EARLIEST)


async def permitted(
    connection: Connection, *, by: str | None, action: Action
) -> operator_store.Operator:
    """Return the acting person. Raise UsageError if permission is missing."""
    known = {each.name: each for each in await operator_store.operators(connection)}
    named = _asking(by)
    if not known:
        return replace(owner(), name=named) if named else owner()
    who = known.get(named or "")
    allowed = " or ".join(sorted(MAY[action]))
    if who is None or who.disabled_at is not None:
        problem = f"{named!r} is not an active operator" if named else "no operator is named"
        raise UsageError(
            f"{problem}: name an operator with the role {allowed} in --by or {ASKED_BY}; "
            "`tallyhook operators list` shows all operators"
        )
    if who.role not in MAY[action]:
        raise UsageError(f"{who.name} has the role {who.role}, but the role must be {allowed}")
    return who if isinstance(named, Proven) else replace(who, account=_account())


async def who_may(
    context: DatabaseContext, *, by: str | None, action: Action
) -> operator_store.Operator:
    """Return the acting person if the person's role permits the action. Raise UsageError
    otherwise."""
    async with context.database.reading() as connection:
        return await permitted(connection, by=by, action=action)


def _account() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


async def note_in_trail(
    connection: Connection,
    who: operator_store.Operator,
    *,
    action: Action,
    subject: str,
    at: Instant,
    reason: str = "",
    facts: Mapping[str, str | int] | None = None,
    order: str | None = None,
) -> int:
    """Append an audit entry in the act's transaction.

    Read `at` inside the transaction, so that no closed month contains `at`.
    """
    entry = entry_of(who, action=action, subject=subject, at=at, reason=reason, facts=facts)
    return await operator_store.add_entry(connection, replace(entry, order=order))


def entry_of(
    who: operator_store.Operator,
    *,
    action: Action,
    subject: str,
    at: Instant,
    reason: str = "",
    facts: Mapping[str, str | int] | None = None,
) -> operator_store.AuditEntry:
    """Build an audit entry for an operator's act."""
    return operator_store.AuditEntry(
        at=at,
        who=who.name,
        role=who.role,
        action=action,
        subject=subject,
        reason=reason,
        facts={**(facts or {}), **({} if who.account is None else {"account": who.account})},
    )


async def register_operator(
    context: DatabaseContext, *, name: str, role: Role, by: str | None
) -> None:
    """Add an operator. Raise UsageError for an unusable name, or if permission is missing."""
    names.checked(name)
    async with context.database.writing() as connection:
        await operator_store.acting_alone(connection)
        now = context.clock.now()
        who = await permitted(connection, by=by, action="operator_added")
        known = await operator_store.operators(connection)
        names.refuse_taken(name, (each.name for each in known))
        if not known and role != "admin":
            raise UsageError("the first operator must have the role admin")
        await operator_store.add_operator(
            connection, operator_store.Operator(name=name, role=role, created_at=now)
        )
        await note_in_trail(
            connection, who, action="operator_added", subject=name, at=now, facts={"role": role}
        )


def no_operator(name: str) -> NotFoundError:
    return NotFoundError(
        f"there is no active operator named {name}: `tallyhook operators list` shows all"
    )


async def retire_operator(context: DatabaseContext, *, name: str, by: str | None) -> None:
    """Disable an operator and end their sessions and tokens.

    Raise NotFoundError for an unknown operator, and UsageError for the last admin.
    """
    async with context.database.writing() as connection:
        await operator_store.acting_alone(connection)
        now = context.clock.now()
        who = await permitted(connection, by=by, action="operator_disabled")
        left = [
            each for each in await operator_store.operators(connection) if each.disabled_at is None
        ]
        if [each.name for each in left if each.role == "admin"] == [name]:
            raise UsageError(f"{name} is the last admin: add another admin first")
        if not await operator_store.disable_operator(connection, name, now=now):
            raise no_operator(name)
        await session_store.revoke_sessions_of(connection, name, now=now)
        await operator_store.revoke_tokens_of(connection, name, now=now)
        await note_in_trail(connection, who, action="operator_disabled", subject=name, at=now)


AFTER_ALL: Final = 2**62
"""Number that is higher than the number of every audit entry."""


async def trail(
    context: DatabaseContext,
    *,
    subject: str | None = None,
    who: str | None = None,
    action: str | None = None,
    after: int = 0,
    before: int | None = None,
    limit: int,
) -> list[operator_store.AuditEntry]:
    """Return the matching audit entries; with `before`, newest first."""
    async with context.database.reading() as connection:
        return await operator_store.audit_entries(
            connection,
            subject=subject,
            who=who,
            action=action,
            after=after,
            before=before,
            limit=limit,
        )


async def last_done(context: DatabaseContext) -> str:
    """Return a text that changes with every new entry of the audit trail."""
    return str([each.number for each in await trail(context, before=AFTER_ALL, limit=1)])


async def known_operators(context: DatabaseContext) -> list[operator_store.Operator]:
    async with context.database.reading() as connection:
        return await operator_store.operators(connection)
