"""Sign-in to the console.

1 invite   `operators invite` makes a link that works once within a day
2 set up   the person sets a password, and a one-time code if their role needs one
3 sign in  a session begins; only the cookie's hash is stored
"""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Final

from app.access import credentials, names, operator_store, operators, passkeys, session_store
from app.access.company_account import CompanyAccount, CompanyRefused
from app.access.session_store import OwnSession as OwnSession
from app.access.session_store import Passkey
from app.access.session_store import Way as Way
from app.core.errors import NotFoundError, TallyhookError, UsageError
from app.core.ids import new_token
from app.core.text import is_human_text
from app.database.database import DatabaseContext
from app.database.engine import Connection
from reconcile.instants import DAY, EARLIEST, HOUR, MINUTE, Duration, Instant

INVITED_FOR: Final[Duration] = 24 * HOUR
ENTERED_WITHIN: Final[Duration] = 10 * MINUTE
IDLE: Final[Duration] = 8 * HOUR
LONGEST: Final[Duration] = 7 * DAY
LET_IN_FOR: Final[Duration] = HOUR
"""Duration of a session that begins with a link from the machine's owner."""
NOTED_EVERY: Final[Duration] = 5 * MINUTE
"""Minimum time between two updates of a session's last use."""

WITH_CODE: Final = frozenset({"admin", "finance", "support"})
"""Roles that need a second factor, because they see customers' data."""

WRONG_CODE: Final = "this is not the current code: check the authenticator again, and the clock"

DEMO: Final = "demo"


class SignInRefused(TallyhookError):
    """Error for a refused sign-in. One text serves for all reasons, so that strangers learn
    nothing."""

    def __init__(self) -> None:
        super().__init__("Sign-in failed. Check the name, the password and the code.")


class LinkRefused(TallyhookError):
    """Error for a link that is unknown, used or expired."""

    def __init__(self) -> None:
        super().__init__("This link was already used, is too old, or was never issued.")


async def invite_operator(
    context: DatabaseContext, *, name: str, role: operators.Role | None, by: str | None
) -> str:
    """Create an invitation and return its secret token.

    Raise UsageError if permission is missing, or if the person has another role.
    """
    token = new_token("")
    async with context.database.writing() as connection:
        await operator_store.acting_alone(connection)
        now = context.clock.now()
        known = await operator_store.operators(connection)
        who = await operators.permitted(connection, by=by, action="operator_invited")
        found = next((each for each in known if each.name == name), None)
        if found is None:
            if role is None:
                raise UsageError(f"{name} is new here: add --role")
            if not known and role != "admin":
                raise UsageError("the first operator must have the role admin")
            names.refuse_taken(names.checked(name), (each.name for each in known))
            found = operator_store.Operator(name=name, role=role, created_at=now)
            await operator_store.add_operator(connection, found)
            await operators.note_in_trail(
                connection, who, action="operator_added", subject=name, at=now, facts={"role": role}
            )
        elif found.disabled_at is not None:
            raise UsageError(f"{name} is disabled; choose another name")
        elif found.company is not None:
            raise UsageError(f"{name} signs in with the company's account, and has no password")
        elif role not in (None, found.role):
            raise UsageError(
                f"{name} already has the role {found.role}, and an invitation cannot change "
                "roles: leave --role out"
            )
        totp = credentials.new_totp_secret() if found.role in WITH_CODE else None
        link = session_store.SignInLink(
            kind="invite", name=name, until=now + INVITED_FOR, totp=totp
        )
        await session_store.add_link(connection, link, token=token, now=now)
        await operators.note_in_trail(
            connection, who, action="operator_invited", subject=name, at=now
        )
    return token


async def demo_link(context: DatabaseContext) -> str:
    """Return the token of the demo operator's sign-in link. Raise UsageError if other operators
    exist."""
    token = new_token("")
    async with context.database.writing() as connection:
        now = context.clock.now()
        known = {each.name for each in await operator_store.operators(connection)}
        if known - {DEMO}:
            raise UsageError("this database already has operators: give the demo a new database")
        if not known:
            demo = operator_store.Operator(name=DEMO, role="admin", created_at=now)
            await operator_store.add_operator(connection, demo)
            await operators.note_in_trail(
                connection, demo, action="operator_added", subject=DEMO, at=now,
                facts={"role": demo.role},
            )  # fmt: skip
        link = session_store.SignInLink(
            kind="enter", name=DEMO, until=now + ENTERED_WITHIN, totp=None
        )
        await session_store.add_link(connection, link, token=token, now=now)
    return token


async def read_link(
    context: DatabaseContext, token: str, *, kind: session_store.LinkKind
) -> session_store.SignInLink:
    """Return a token's usable link, or raise LinkRefused."""
    async with context.database.reading() as connection:
        link = await session_store.open_link(connection, token, kind=kind, now=context.clock.now())
    if link is None:
        raise LinkRefused
    return link


async def accept_invitation(
    context: DatabaseContext,
    token: str,
    *,
    password: str,
    code: str,
    merchant: str = "",
    old: str = "",
) -> str:
    """Set an invited person's password and begin a session. Return its cookie.

    Raise LinkRefused for an unusable link, and UsageError for an unsuitable password or code.
    """
    link = await read_link(context, token, kind="invite")
    credentials.check_password(password, names=(merchant, link.name))
    kept = await credentials.password_text(password)
    async with context.database.writing() as connection:
        await operator_store.acting_alone(connection)
        now = context.clock.now()
        step = None
        if link.totp is not None:
            step = credentials.fitting_step(link.totp, code, now=now, after=None)
            if step is None:
                raise UsageError(WRONG_CODE)
        if not await session_store.use_link(connection, token, now=now):
            raise LinkRefused
        credential = session_store.Credential(
            name=link.name, password=kept, totp=link.totp, totp_step=step
        )
        await session_store.set_credential(connection, credential, now=now)
        await session_store.delete_passkeys(connection, link.name)
        await session_store.revoke_sessions_of(connection, link.name, now=now)
        return await _begin(connection, link.name, now=now, old=old)


async def let_in_link(context: DatabaseContext, *, name: str, reason: str, by: str | None) -> str:
    """Return the secret token of a link to an operator's short session.

    Raise UsageError if permission is missing, and NotFoundError for an unknown operator.
    """
    token = new_token("")
    async with context.database.writing() as connection:
        await operator_store.acting_alone(connection)
        now = context.clock.now()
        who = await operators.permitted(connection, by=by, action="operator_invited")
        known = {each.name: each for each in await operator_store.operators(connection)}
        if name not in known or known[name].disabled_at is not None:
            raise operators.no_operator(name)
        link = session_store.SignInLink(
            kind="enter", name=name, until=now + ENTERED_WITHIN, totp=None
        )
        await session_store.add_link(connection, link, token=token, now=now)
        await operators.note_in_trail(
            connection, who, action="operator_invited", subject=name, at=now, reason=reason,
            facts={"way": "link"},
        )  # fmt: skip
    return token


async def enter(
    context: DatabaseContext, token: str, *, demo: bool, old: str = ""
) -> tuple[str, str]:
    """Begin a session with a sign-in link. Return its cookie and operator.

    Raise LinkRefused for an unusable link.
    """
    link = await read_link(context, token, kind="enter")
    async with context.database.writing() as connection:
        now = context.clock.now()
        if link.name == DEMO and not demo:
            raise LinkRefused
        if not await session_store.use_link(connection, token, now=now):
            raise LinkRefused
        lasts = LONGEST if link.name == DEMO else LET_IN_FOR
        begun = await _begin(connection, link.name, now=now, old=old, way="link", lasts=lasts)
        return begun, link.name


async def sign_in_by_company(
    context: DatabaseContext, account: CompanyAccount, *, old: str = ""
) -> tuple[str, str]:
    """Begin a session for a company account. Return its cookie and operator.

    Raise CompanyRefused if the person may not sign in.
    """
    async with context.database.writing() as connection:
        await operator_store.acting_alone(connection)
        now = context.clock.now()
        known = await operator_store.operators(connection)
        found = next((each for each in known if each.company == account.id), None)
        if found is None:
            found = await _new_of_company(connection, account, known, now=now)
        elif found.disabled_at is not None:
            raise CompanyRefused(f"{found.name} is disabled here; an admin can tell you why.")
        else:
            await _take_role(connection, account, found, now=now)
        if found is not None and account.role is not None:
            return await _begin(connection, found.name, now=now, old=old, way="company"), found.name
    raise CompanyRefused(_NO_ROLE)


_NO_ROLE: Final = (
    "Your company's account has no role in Tallyhook, so you cannot sign in: ask the person who "
    "manages accounts for one of the groups that have a role here."
)


async def _take_role(
    connection: Connection,
    account: CompanyAccount,
    who: operator_store.Operator,
    *,
    now: Instant,
) -> None:
    if account.role is None:
        sessions = await session_store.revoke_sessions_of(connection, who.name, now=now)
        tokens = await operator_store.revoke_tokens_of(connection, who.name, now=now)
        if sessions or tokens:
            await operators.note_in_trail(
                connection, who, action="sessions_ended", subject=who.name, at=now,
                facts={"sessions": sessions, "tokens": tokens, "way": "company"},
            )  # fmt: skip
    elif who.role != account.role:
        await operator_store.set_role(connection, who.name, account.role)
        await operators.note_in_trail(
            connection, who, action="role_changed", subject=who.name, at=now,
            facts={"before": who.role, "role": account.role},
        )  # fmt: skip


async def _new_of_company(
    connection: Connection,
    account: CompanyAccount,
    known: Collection[operator_store.Operator],
    *,
    now: Instant,
) -> operator_store.Operator | None:
    if account.role is None:
        return None
    try:
        name = names.checked(account.name)
        names.refuse_taken(name, (each.name for each in known))
    except UsageError as error:
        raise CompanyRefused(
            f"The company's account states a name that cannot be used: {error}. If you already "
            "have an operator's account here, sign in with it, and link the company's account on "
            "the page My account."
        ) from None
    if account.role != "admin" and not known:
        raise CompanyRefused(
            "The first operator here must be an admin: let an admin sign in before you."
        )
    found = operator_store.Operator(
        name=name, role=account.role, created_at=now, company=account.id
    )
    await operator_store.add_operator(connection, found)
    await operators.note_in_trail(
        connection, found, action="operator_added", subject=name, at=now,
        facts={"role": found.role, "way": "company"},
    )  # fmt: skip
    return found


async def prove_by_company(
    context: DatabaseContext, account: CompanyAccount, *, name: str, token: str
) -> str:
    """Give a session a new cookie after another company sign-in.

    Raise CompanyRefused for another person's account, or an account without a role.
    """
    async with context.database.writing() as connection:
        await operator_store.acting_alone(connection)
        known = {each.name: each for each in await operator_store.operators(connection)}
        is_theirs = known[name].company == account.id
        if is_theirs:
            await _take_role(connection, account, known[name], now=context.clock.now())
    if is_theirs and account.role is None:
        raise CompanyRefused(_NO_ROLE)
    renewed = await renew_session(context, token) if is_theirs else None
    if renewed is None:
        raise CompanyRefused(
            f"This session belongs to {name}: sign in with the company's account of {name}."
        )
    return renewed


async def link_company(
    context: DatabaseContext, account: CompanyAccount, *, name: str, token: str
) -> str:
    """Link a person to a company account. Return a new session's cookie.

    The password, invitation and earlier sessions end. Raise CompanyRefused for an unusable account.
    """
    if account.role is None:
        raise CompanyRefused(_NO_ROLE)
    async with context.database.writing() as connection:
        await operator_store.acting_alone(connection)
        now = context.clock.now()
        known = await operator_store.operators(connection)
        who = next(each for each in known if each.name == name)
        holders = [each for each in known if each.company == account.id]
        for holder in [who] if who.company is not None else holders:
            raise CompanyRefused(
                f"{holder.name} already signs in with a company's account: sign in with that "
                f"account, or ask an admin to disable {holder.name}."
            )
        await operator_store.set_company(connection, name, account.id)
        await _take_role(connection, account, who, now=now)
        await session_store.delete_credential(connection, name)
        await session_store.delete_invitations(connection, name)
        await session_store.revoke_sessions_of(connection, name, now=now)
        await operators.note_in_trail(
            connection, who, action="company_linked", subject=name, at=now
        )
        return await _begin(connection, name, now=now, old=token, way="company")


async def sign_in(
    context: DatabaseContext,
    *,
    name: str,
    password: str,
    code: str,
    passkey: passkeys.PasskeyAnswer | None = None,
    old: str = "",
) -> str:
    """Begin a session with a password and a second factor. Return its cookie.

    Raise SignInRefused if anything is wrong.
    """
    async with context.database.reading() as connection:
        known = {each.name: each for each in await operator_store.operators(connection)}
        credential = await session_store.credential_of(connection, name)
        known_keys = await session_store.passkeys_of(connection, name)
    fits = await credentials.password_fits(
        password, None if credential is None else credential.password
    )
    operator = known.get(name)
    if not fits or credential is None or operator is None or operator.disabled_at is not None:
        raise SignInRefused
    if operator.role in WITH_CODE and credential.totp is None and not known_keys:
        raise SignInRefused  # the role is newer than the password: a new invitation sets both
    async with context.database.writing() as connection:
        await operator_store.acting_alone(connection)
        now = context.clock.now()
        kept = await session_store.credential_of(connection, name)
        if kept is None or (kept.password, kept.totp) != (credential.password, credential.totp):
            raise SignInRefused  # they were replaced meanwhile
        if passkey is not None:
            signed = passkeys.signed_count(passkey, known_keys)
            if signed is None or not (
                await session_store.use_form(
                    connection, passkey.challenge, now=now, kept_since=now - LONGEST
                )
                and await session_store.note_signature(
                    connection, signed[0], count=signed[1], now=now
                )
            ):
                raise SignInRefused
        elif credential.totp is None and known_keys:
            raise SignInRefused
        elif credential.totp is not None:
            step = credentials.fitting_step(
                credential.totp, code, now=now, after=credential.totp_step
            )
            if step is None or not await session_store.use_step(connection, name, step):
                raise SignInRefused
        return await _begin(connection, name, now=now, old=old)


async def _begin(
    connection: Connection,
    name: str,
    *,
    now: Instant,
    old: str,
    way: Way = "password",
    lasts: Duration = LONGEST,
) -> str:
    token = new_token("")
    await session_store.revoke_session(connection, old, now=now)
    await session_store.add_session(
        connection, token=token, name=name, now=now, until=now + lasts, way=way
    )
    who = next(each for each in await operator_store.operators(connection) if each.name == name)
    facts = {} if way == "password" else {"way": way}
    await operators.note_in_trail(
        connection, who, action="signed_in", subject=CONSOLE, at=now, facts=facts
    )
    return token


CONSOLE: Final = "the console"

SOMEBODY: Final = operator_store.Operator(name="somebody", role="unknown", created_at=EARLIEST)
"""Operator named in a failed sign-in's audit entry."""


async def note_failure(context: DatabaseContext, *, name: str | None = None) -> None:
    """Record a wrong password in the audit trail."""
    async with context.database.writing() as connection:
        now = context.clock.now()
        known = {each.name: each for each in await operator_store.operators(connection)}
        who = SOMEBODY if name is None else known[name]
        await operators.note_in_trail(
            connection, who, action="sign_in_failed", subject=CONSOLE, at=now
        )


async def confirmed(context: DatabaseContext, *, name: str, password: str) -> bool:
    """Return whether a person typed their own password correctly. Without a stored password, any
    text is right."""
    async with context.database.reading() as connection:
        credential = await session_store.credential_of(connection, name)
    return credential is None or await credentials.password_fits(password, credential.password)


async def session_of(
    context: DatabaseContext, token: str, *, used: bool = True
) -> session_store.OperatorSession | None:
    """Return the cookie's active session, and record its use."""
    now = context.clock.now()
    async with context.database.reading() as connection:
        found = await session_store.session_in_force(
            connection, token, now=now, used_after=now - IDLE
        )
    if used and found is not None and now - found.used_at >= NOTED_EVERY:
        async with context.database.writing() as connection:
            await session_store.note_use(connection, token, now=now)
    return found


async def name_of_session(context: DatabaseContext, token: str) -> str | None:
    """Return the person of a cookie's session, even if expired. Never grant access by this name."""
    async with context.database.reading() as connection:
        return await session_store.name_of_session(connection, token)


async def renew_session(context: DatabaseContext, token: str) -> str | None:
    """Give a session a new cookie. Return None if ended."""
    new = new_token("")
    async with context.database.writing() as connection:
        now = context.clock.now()
        renewed = await session_store.renew_session(connection, token, new=new, now=now)
    return new if renewed else None


async def sign_out(context: DatabaseContext, token: str) -> None:
    async with context.database.writing() as connection:
        await session_store.revoke_session(connection, token, now=context.clock.now())


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInState:
    """An operator's means of signing in, and active sessions."""

    operator: operator_store.Operator
    password: bool
    company: bool
    invited: bool
    sessions: int
    used_at: Instant | None

    @property
    def can_sign_in(self) -> bool:
        return (self.password or self.company) and self.operator.disabled_at is None


async def sign_in_states(context: DatabaseContext) -> list[SignInState]:
    """Return every operator's means of signing in, sorted by name. Disabled operators are
    included."""
    now = context.clock.now()
    async with context.database.reading() as connection:
        known = await operator_store.operators(connection)
        able = await session_store.with_credentials(connection)
        asked = await session_store.invited(connection, now=now)
        open_ = await session_store.sessions_by_name(connection, now=now, used_after=now - IDLE)
    return [
        SignInState(
            operator=each,
            password=each.name in able,
            company=each.company is not None,
            invited=each.name in asked and each.disabled_at is None,
            sessions=open_.get(each.name, (0, None))[0],
            used_at=open_.get(each.name, (0, None))[1],
        )
        for each in known
    ]


async def account_of(context: DatabaseContext, name: str) -> session_store.Credential | None:
    """Return a person's stored password and one-time secret."""
    async with context.database.reading() as connection:
        return await session_store.credential_of(connection, name)


def session_id(token: str) -> str:
    """Return the id by which the account page identifies a session."""
    return operator_store.hashed(token)[: session_store.ID_CHARS]


async def own_sessions(context: DatabaseContext, name: str) -> list[OwnSession]:
    now = context.clock.now()
    async with context.database.reading() as connection:
        return await session_store.sessions_of(connection, name, now=now, used_after=now - IDLE)


async def change_password(
    context: DatabaseContext, *, name: str, password: str, here: str, merchant: str = ""
) -> None:
    """Replace a person's password and end their other sessions.

    The caller checks the old password. Raise UsageError for an unsuitable password.
    """
    credentials.check_password(password, names=(merchant, name))
    kept = await credentials.password_text(password)
    await _set_own(context, name, here=here, action="password_changed", password=kept)


async def set_second_factor(
    context: DatabaseContext, *, name: str, totp: str, code: str, here: str
) -> None:
    """Replace a person's one-time secret and end their other sessions.

    The caller checks the password. Raise UsageError for a wrong secret or code.
    """
    step = None
    if credentials.is_totp_secret(totp):
        step = credentials.fitting_step(totp, code, now=context.clock.now(), after=None)
    if step is None:
        raise UsageError(WRONG_CODE)
    await _set_own(context, name, here=here, action="second_factor_set", totp=totp, totp_step=step)


async def own_passkeys(context: DatabaseContext, name: str) -> list[Passkey]:
    async with context.database.reading() as connection:
        return await session_store.passkeys_of(connection, name)


async def add_passkey(
    context: DatabaseContext, answer: passkeys.PasskeyAnswer, *, name: str, label: str, here: str
) -> None:
    """Store a new passkey and end the person's other sessions.

    Raise UsageError if the passkey is refused.
    """
    if not (0 < len(label) <= names.NAME_MAX and is_human_text(label)):
        raise UsageError(f"give the passkey a name of 1 to {names.NAME_MAX} characters")
    made = passkeys.made_passkey(answer, name=name, label=label, now=context.clock.now())
    if made is None or not await first_use(context, answer.challenge):
        raise UsageError(
            "the browser made no passkey, or the form is too old: open the form again, and send it "
            "within ten minutes"
        )

    async def change(connection: Connection) -> None:
        if len(await session_store.passkeys_of(connection, name)) >= passkeys.MOST:
            raise UsageError(f"you already have {passkeys.MOST} passkeys: remove one first")
        if not await session_store.add_passkey(connection, made):
            raise UsageError("this passkey is stored already")

    await _set_own(context, name, here=here, action="passkey_added", change=change)


async def remove_passkey(context: DatabaseContext, identity: str, *, name: str, here: str) -> None:
    """Delete a passkey and end the person's other sessions.

    Raise NotFoundError for an unknown passkey, and UsageError for the last second factor.
    """

    async def change(connection: Connection) -> None:
        if not await session_store.delete_passkeys(connection, name, identity):
            raise NotFoundError("you have no such passkey: check the list")

    await _set_own(context, name, here=here, action="passkey_removed", change=change)


async def _set_own(
    context: DatabaseContext,
    name: str,
    *,
    here: str,
    action: operators.Action,
    change: Callable[[Connection], Awaitable[None]] | None = None,
    **changed: Any,
) -> None:
    async with context.database.writing() as connection:
        await operator_store.acting_alone(connection)
        now = context.clock.now()
        who = await operators.permitted(connection, by=operators.Proven(name), action=action)
        before = await session_store.credential_of(connection, name)
        if before is None:
            raise UsageError(
                f"{name} has no password yet: ask an admin for an invitation to choose one"
            )
        await session_store.set_credential(connection, replace(before, **changed), now=now)
        if change is not None:
            await change(connection)
        factor = before.totp or changed or await session_store.passkeys_of(connection, name)
        if who.role in WITH_CODE and not factor:
            raise UsageError(
                "your role requires a second factor: set another second factor before you remove "
                "the last one"
            )
        own = await session_store.sessions_of(connection, name, now=now, used_after=now - IDLE)
        others = [each.id for each in own if each.id != session_id(here)]
        ended = await session_store.revoke_own_sessions(connection, name, others, now=now)
        await operators.note_in_trail(
            connection, who, action=action, subject=name, at=now, facts={"sessions": ended}
        )


async def end_own_sessions(context: DatabaseContext, *, name: str, ids: Collection[str]) -> None:
    async with context.database.writing() as connection:
        await operator_store.acting_alone(connection)
        now = context.clock.now()
        known = {each.name: each for each in await operator_store.operators(connection)}
        ended = await session_store.revoke_own_sessions(connection, name, ids, now=now)
        await operators.note_in_trail(
            connection, known[name], action="sessions_ended", subject=name, at=now,
            facts={"sessions": ended},
        )  # fmt: skip


async def end_sessions(context: DatabaseContext, *, name: str, by: str, reason: str) -> int:
    """End all sessions of a person. Return the number of ended sessions.

    Raise NotFoundError for an unknown person, and UsageError if permission is missing.
    """
    async with context.database.writing() as connection:
        await operator_store.acting_alone(connection)
        now = context.clock.now()
        who = await operators.permitted(connection, by=by, action="sessions_ended")
        if name not in {each.name for each in await operator_store.operators(connection)}:
            raise operators.no_operator(name)
        ended = await session_store.revoke_sessions_of(connection, name, now=now)
        await operators.note_in_trail(
            connection,
            who,
            action="sessions_ended",
            subject=name,
            at=now,
            reason=reason,
            facts={"sessions": ended},
        )
    return ended


async def somebody_can_sign_in(context: DatabaseContext) -> bool:
    """Return whether at least one active operator has a password or a company account."""
    async with context.database.reading() as connection:
        return await session_store.any_credential(connection)


async def first_use(context: DatabaseContext, form: str) -> bool:
    """Mark a form's id as used. Return False if the id was used before."""
    async with context.database.writing() as connection:
        now = context.clock.now()
        return await session_store.use_form(connection, form, now=now, kept_since=now - LONGEST)
