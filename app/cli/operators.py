"""Commands on operators, tokens, the audit trail, and proposals that need a second person."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli import printing, running
from app.core.errors import UsageError
from reconcile.instants import format_instant, format_known

if TYPE_CHECKING:
    from app.access.proposal import Proposal
    from app.access.proposals import Proposals
    from app.access.tokens import TokenScope
    from app.context.context import AppContext


operators_group = typer.Typer(
    help="Operators: the people who sign in, and what their roles allow.", no_args_is_help=True
)

OperatorName = Annotated[
    str, typer.Argument(help="The person's name, as the audit trail will show it.")
]
ByOption = Annotated[
    str | None,
    typer.Option("--by", help="The operator who runs the command. Default: TALLYHOOK_OPERATOR."),
]


@operators_group.command("add", epilog="Example: tallyhook operators add Ann --role admin")
def add_operator(
    name: OperatorName,
    role: Annotated[str, typer.Option(help="finance, support, admin or viewer.")],
    by: ByOption = None,
) -> None:
    """Add a person with a role. The first person must be an admin."""
    from app.access.operators import ROLES, register_operator

    found = next((each for each in ROLES if each == role), None)
    if found is None:
        raise UsageError(f"--role must be one of: {', '.join(ROLES)}")
    running.writing(register_operator, name=name, role=found, by=by)
    printing.note(f"Added {name} as {role}.")


@operators_group.command("invite", epilog="Example: tallyhook operators invite Ann --role admin")
def invite(
    name: OperatorName,
    role: Annotated[
        str | None, typer.Option(help="For a new person: finance, support, admin or viewer.")
    ] = None,
    by: ByOption = None,
) -> None:
    """Print a link for setting a person's console password, also after a forgotten one.

    The link works once, within a day.
    """
    from app.access.company_account import refuse_without_passwords
    from app.access.operators import ROLES
    from app.access.proposals import VOUCHING, newcomer_notice
    from app.access.sessions import invite_operator
    from app.core.zones import local_text

    found = next((each for each in ROLES if each == role), None)
    if role is not None and found is None:
        raise UsageError(f"--role must be one of: {', '.join(ROLES)}")

    async def inviting(context: AppContext) -> tuple[str, str, str]:
        refuse_without_passwords(context.settings.oidc)
        token = await invite_operator(context, name=name, role=found, by=by)
        console = context.settings.console
        notice = newcomer_notice(name, now=context.clock.now())
        notice = local_text(notice, context.calendar_zone, named=True)
        return console.public_url or f"http://127.0.0.1:{console.port}", token, notice

    address, token, notice = running.writing(inviting)
    print(f"{address}/invite#{token}")
    printing.note(
        f"Give this link to {name} only: it works once within 24 hours, and anyone who "
        f"has it can sign in as {name}."
    )
    printing.note(f"{notice}. {VOUCHING[0].upper()}{VOUCHING[1:]}")


@operators_group.command(
    "let-in", epilog="Example: tallyhook operators let-in Ann --by Ann --reason 'provider is down'"
)
def let_in(
    name: OperatorName,
    reason: Annotated[str, typer.Option(help="The reason, for the audit trail.")],
    by: ByOption = None,
) -> None:
    """Print a link that opens the console without a password or company account.

    Use it when nobody can sign in otherwise. The link works once, within ten minutes, and opens a
    session of one hour. The audit trail records it as an invitation by the operator whom --by
    names.
    """
    from app.access.sessions import let_in_link

    async def making(context: AppContext) -> tuple[str, str]:
        console = context.settings.console
        token = await let_in_link(context, name=name, reason=reason, by=by)
        return console.public_url or f"http://127.0.0.1:{console.port}", token

    address, token = running.writing(making)
    print(f"{address}/enter#{token}")
    printing.note(
        f"Anyone who opens this link within ten minutes is signed in as {name} for an hour."
    )


@operators_group.command(
    "vouch", epilog="Example: tallyhook operators vouch Ann Bob --reason 'both founded the shop'"
)
def vouch_for(
    one: OperatorName,
    other: OperatorName,
    reason: Annotated[str, typer.Option(help="Why, in your words.")],
) -> None:
    """Declare that two operators are two different persons. Only the machine's owner can do this,
    during set-up.

    The two may then approve each other's proposals at once, even if one invited the other. The
    command is refused after the first complete go-live checklist or closed month.
    """
    from app.golive.golive import vouch

    running.writing(vouch, one, other, reason=reason)
    printing.note(f"{one} and {other} may approve each other's proposals from now on.")


@operators_group.command(
    "notices",
    epilog="Example: tallyhook operators notices Ann --when daily --mail ann@my.shop",
)
def choose_notices_of(
    name: OperatorName,
    when: Annotated[str, typer.Option(help="at-once, daily or off.")],
    mail: Annotated[str | None, typer.Option(help="The mail address to send to.")] = None,
    post: Annotated[
        bool, typer.Option("--post", help="Notify by a signed POST to TALLYHOOK_ALARMS__URL.")
    ] = False,
    by: ByOption = None,
) -> None:
    """Choose how a person is notified of assigned breaks and of proposals to approve.

    Each causes one notification, sent at once or with others at 8 in the morning. No notification
    names a customer.
    """
    from app.monitoring.work_notices import PACES, choose_notices

    pace = next((each for each in PACES if each.replace("_", "-") == when), None)
    if pace is None:
        raise UsageError("--when must be one of: at-once, daily, off")
    if pace != "off" and (mail is None) != post:
        raise UsageError("give either --mail ADDRESS or --post")
    running.writing(
        choose_notices, name, pace=pace, way="post" if post else "mail", address=mail or "", by=by
    )
    printing.note(
        f"{name} is no longer notified."
        if pace == "off"
        else f"{name} is notified {when.replace('-', ' ')} from now on."
    )


@operators_group.command("list")
def list_operators(form: printing.FormatOption = printing.Format.table) -> None:
    """List all operators, including disabled ones, sorted by name.

    `company` is true for operators who sign in with a company account.
    """
    from app.access.operators import known_operators

    rows = [
        {
            "name": each.name,
            "role": each.role,
            "created_at": format_instant(each.created_at),
            "disabled_at": None if each.disabled_at is None else format_instant(each.disabled_at),
            "company": each.company is not None,
        }
        for each in running.reading(known_operators)
    ]
    printing.emit(rows, columns=("name", "role", "created_at", "disabled_at", "company"), form=form)


@operators_group.command("disable")
def disable_operator(name: OperatorName, by: ByOption = None) -> None:
    """Disable an operator. The audit trail keeps the person's name."""
    from app.access.operators import retire_operator

    running.writing(retire_operator, name=name, by=by)
    printing.note(f"Disabled {name}.")


@operators_group.command(
    "token", epilog="Example: tallyhook operators token Ann --until 90d --by Boss"
)
def make_own_token(
    name: OperatorName,
    until: Annotated[
        str,
        typer.Option(
            help="When the token expires: a date, an RFC 3339 time, or a duration such as "
            "90d or 12h."
        ),
    ],
    by: ByOption = None,
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """Make a person's own token and show it once. Commands with the token act in the person's name.

    Pass the token in --token-file FILE, in TALLYHOOK_OPERATOR_TOKEN, or to the API. `tokens list`
    lists it, and `tokens revoke` revokes it.
    """
    from app.access.tokens import issue_own_token

    token, entry = running.with_context(
        lambda context: issue_own_token(
            context, operator=name, until=until, by=by, zone=context.calendar_zone
        ),
        purpose="writing",
    )
    if form is not printing.Format.table:
        made = {"name": entry.name, "token": token, "until": format_known(entry.until)}
        printing.document({"operator": name, **made}, form)
    else:
        print(token)
        printing.note(
            f"Save the token now in a file that only {name} can read. It is not shown again, and "
            f"anyone who has it acts as {name}. Revoke it with `tallyhook tokens revoke "
            f"{entry.name}`."
        )


tokens_group = typer.Typer(help="Tokens of programs that use the API.", no_args_is_help=True)

TokenName = Annotated[
    str, typer.Argument(help="A name for the program that will use the token, such as shop.")
]


@tokens_group.command("add", epilog="Example: tallyhook tokens add books --scope read --until 90d")
def add_token(
    name: TokenName,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            help="Scope of the token: read, orders, checkout, finance or evidence. Repeat for "
            "several scopes. Default: read, orders and checkout.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            help="When the token expires: a date, an RFC 3339 time, or a duration such as "
            "90d or 12h."
        ),
    ] = None,
    by: ByOption = None,
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """Make a token for a program and show it once."""
    from app.access.tokens import UNNAMED, issue_token, token_of

    scopes = _scopes(scope) if scope else UNNAMED

    async def work(context: AppContext) -> dict[str, Any]:
        token = await issue_token(
            context, name=name, scopes=scopes, until=until, by=by, zone=context.calendar_zone
        )
        entry = await token_of(context, token)
        assert entry is not None, "it was made just now"
        made = {"scopes": list(entry.scopes), "until": format_known(entry.until)}
        return {"name": name, "token": token, **made}

    made = running.writing(work)
    if form is not printing.Format.table:
        printing.document(made, form)
    else:
        print(made["token"])
        printing.note("Save the token now: it is not shown again.")
    if not scope:
        printing.note(
            f"The token's scopes are {', '.join(UNNAMED)}. Use --scope for other scopes, such as "
            "finance or evidence."
        )


def _scopes(given: list[str]) -> list[TokenScope]:
    from app.access.tokens import TOKEN_SCOPES

    found = [scope for scope in TOKEN_SCOPES if scope in given]
    if set(given) - set(TOKEN_SCOPES):
        raise UsageError(f"--scope must be one of: {', '.join(TOKEN_SCOPES)}")
    return found


TOKEN_COLUMNS = ("name", "operator", "scopes", "until", "created_at", "revoked_at", "changed_at")


@tokens_group.command("list")
def list_tokens(form: printing.FormatOption = printing.Format.table) -> None:
    """List tokens with their scopes, sorted by name. The tokens themselves are not shown."""
    from app.access.tokens import known_tokens

    rows = [
        {
            **entry.document(),
            "scopes": " ".join(entry.scopes),
            "changed_at": format_instant(entry.changed_at),
        }
        for entry in running.reading(known_tokens)
    ]
    printing.emit(rows, columns=TOKEN_COLUMNS, form=form)


@tokens_group.command("revoke")
def revoke_token(name: TokenName, by: ByOption = None) -> None:
    """Revoke a token. The next request with this token is refused."""
    from app.access.tokens import withdraw_token

    running.writing(withdraw_token, name=name, by=by)
    printing.note(f"Revoked {name}.")


audit_group = typer.Typer(
    help="The append-only audit trail: who did what, to what, when and why.", no_args_is_help=True
)

TRAIL_COLUMNS = ("number", "at", "who", "role", "action", "subject", "reason", "facts")


@audit_group.callback()
def audit() -> None:
    """Show the audit trail: who did what, to what, when and why. Entries are never changed."""


@audit_group.command("list")
def list_entries(
    subject: Annotated[
        str | None, typer.Option(help="Only entries about this order, token or file.")
    ] = None,
    who: Annotated[str | None, typer.Option(help="Only entries by this person.")] = None,
    action: Annotated[str | None, typer.Option(help="Only this action, such as erased.")] = None,
    after: Annotated[
        int,
        typer.Option(
            min=0, max=printing.MAX_NUMBER, help="Only entries after the entry with this number."
        ),
    ] = 0,
    limit: Annotated[
        int, typer.Option(min=1, max=100_000, help="Maximum number of entries.")
    ] = 100,
    form: printing.FormatOption = printing.Format.table,
) -> None:
    """List the entries of the audit trail, oldest first."""
    from app.access.operators import MAY, trail

    if action is not None and action not in MAY:
        raise UsageError(f"{action!r} is none of: {', '.join(MAY)}")
    found = running.reading(
        trail, subject=subject, who=who, action=action, after=after, limit=limit
    )
    rows: list[Mapping[str, Any]] = [entry.document() for entry in found]
    if form in (printing.Format.table, printing.Format.csv):
        rows = [
            {**row, "facts": [f"{name} {value}" for name, value in row["facts"].items()]}
            for row in rows
        ]
    printing.emit(rows, columns=TRAIL_COLUMNS, form=form)
    if len(rows) == limit:
        printing.note(f"There may be more: continue with --after {rows[-1]['number']}")


# --- proposals ------------------------------------------------------------------------------------

proposals_group = typer.Typer(
    help="Acts that need a second person: list, approve or reject them with your own token.",
    no_args_is_help=True,
)

COLUMNS = ("id", "kind", "state", "by", "until", "sentence", "reason")
DECIDED = ("subject", "at", "decided_by", "decided_at", "decided_because")

Name = Annotated[str, typer.Argument(metavar="ID", help="The proposal's id.")]
Reason = Annotated[str, typer.Option(help="Why, in your words.")]


def proposal_notice(proposal: Proposal) -> str:
    """Return the notice that a command made a proposal instead of acting."""
    from reconcile.instants import format_instant

    return (
        f"Proposed as {proposal.id}. It is done once another operator approves it before "
        f"{format_instant(proposal.until)} on the console's page Proposals, or with their own "
        f"token: tallyhook --token-file FILE proposals approve {proposal.id} --reason "
        f"WHY\n{proposal.sentence}"
    )


def _proposals(context: AppContext) -> Proposals:
    from app.wiring.work import proposals_of

    return proposals_of(context)


@proposals_group.command("list")
def list_proposals(
    everything: Annotated[
        bool, typer.Option("--all", help="Include proposals that were decided or have expired.")
    ] = False,
    limit: Annotated[
        int, typer.Option(min=1, max=10_000, help="Maximum number of past proposals.")
    ] = 100,
    form: printing.FormatOption = printing.Format.table,
) -> None:
    """List proposals that wait for a second person. The first to expire comes first."""

    async def work(context: AppContext) -> Sequence[Mapping[str, Any]]:
        proposals = _proposals(context)
        found = await proposals.waiting()
        if everything:
            found += await proposals.past(limit=limit)
        rows = [proposals.document(each) for each in found]
        if form is not printing.Format.table:
            return rows
        return [printing.local_sentence(row, context.calendar_zone) for row in rows]

    rows = running.reading(work)
    printing.emit(
        rows, columns=COLUMNS if form is printing.Format.table else (*COLUMNS, *DECIDED), form=form
    )


@proposals_group.command("show")
def show(name: Name, form: printing.DocumentOption = printing.Format.table) -> None:
    """Show one proposal: the proposed act, who proposed it and why, and its result."""

    async def work(context: AppContext) -> Mapping[str, Any]:
        proposals = _proposals(context)
        shown = proposals.document(await proposals.one(name))
        return (
            printing.local_sentence(shown, context.calendar_zone)
            if form is printing.Format.table
            else shown
        )

    shown = running.reading(work)
    if printing.printed(shown, form):
        return
    given = shown["given"]
    printing.members({name: value for name, value in shown.items() if name != "given"})
    for key, value in given.items():
        if isinstance(value, list):
            printing.emit(value, columns=("what", "before", "after", "note"), form=form)
        elif value:
            print(f"{key}: {value}" if "\n" not in value else f"{key}:\n{value}")


Decide = Callable[["Proposals"], Awaitable["Proposal"]]


def _decided(decide: Decide) -> Proposal:
    async def work(context: AppContext) -> Proposal:
        return await decide(_proposals(context))

    return running.writing(work)


@proposals_group.command(
    "approve",
    epilog="Example: tallyhook --token-file my.token proposals approve ID --reason seen",
)
def approve(
    name: Name,
    reason: Reason,
    typed: Annotated[
        str,
        typer.Option(
            help="For an erasure: the phone number or email address again. Proposals do not "
            "store it."
        ),
    ] = "",
) -> None:
    """Approve a proposal of another operator, and carry it out at once."""
    done = _decided(lambda proposals: proposals.approve(name, by=None, reason=reason, typed=typed))
    printing.note(f"Approved and carried out in the names of {done.who} and you: {done.sentence}")


@proposals_group.command("reject")
def reject(name: Name, reason: Reason) -> None:
    """Reject a proposal of another operator."""
    done = _decided(lambda proposals: proposals.reject(name, by=None, reason=reason))
    printing.note(f"Rejected {done.id}: nothing was changed.")


@proposals_group.command("withdraw")
def withdraw(name: Name, reason: Reason) -> None:
    """Withdraw your own proposal."""
    done = _decided(lambda proposals: proposals.withdraw(name, by=None, reason=reason))
    printing.note(f"Withdrawn {done.id}: nothing was changed.")
