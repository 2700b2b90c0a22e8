"""Commands on operators, tokens and the audit trail; and on proposals that need a second person."""

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
    help="People: who may do what for finance, support and administration.", no_args_is_help=True
)

OperatorName = Annotated[
    str, typer.Argument(help="The person's name, as the audit trail will show it.")
]
ByOption = Annotated[
    str | None,
    typer.Option("--by", help="The operator who asks; else TALLYHOOK_OPERATOR names them."),
]


@operators_group.command("add", epilog="Such as: tallyhook operators add Ann --role admin")
def add_operator(
    name: OperatorName,
    role: Annotated[str, typer.Option(help="finance, support, admin or viewer.")],
    by: ByOption = None,
) -> None:
    """Add a person with a role. The first one must be an admin."""
    from app.access.operators import ROLES, register_operator

    found = next((each for each in ROLES if each == role), None)
    if found is None:
        raise UsageError(f"--role is one of: {', '.join(ROLES)}")
    running.writing(register_operator, name=name, role=found, by=by)
    printing.note(f"Added {name} as {role}.")


@operators_group.command("invite", epilog="Such as: tallyhook operators invite Ann --role admin")
def invite(
    name: OperatorName,
    role: Annotated[
        str | None, typer.Option(help="finance, support, admin or viewer; of a new person.")
    ] = None,
    by: ByOption = None,
) -> None:
    """Print a link with which a person sets their password for the console: once, within a day.

    It also sets a new one for a person who has one.
    """
    from app.access.company_account import refuse_without_passwords
    from app.access.operators import ROLES
    from app.access.proposals import VOUCHING, newcomer_notice
    from app.access.sessions import invite_operator
    from app.core.zones import local_text

    found = next((each for each in ROLES if each == role), None)
    if role is not None and found is None:
        raise UsageError(f"--role is one of: {', '.join(ROLES)}")

    async def inviting(context: AppContext) -> tuple[str, str, str]:
        refuse_without_passwords(context.settings.oidc)
        token = await invite_operator(context, name=name, role=found, by=by)
        console = context.settings.console
        notice = newcomer_notice(name, now=context.clock.now())
        notice = local_text(notice, context.calendar_zone, named=True)
        return console.public_url or f"http://127.0.0.1:{console.port}", token, notice

    address, token, notice = running.writing(inviting)
    print(f"{address}/invite#{token}")
    printing.note(f"{name} opens this within 24 hours, once; whoever has the link can be {name}.")
    printing.note(f"{notice}. {VOUCHING[0].upper()}{VOUCHING[1:]}")


@operators_group.command(
    "let-in", epilog="Such as: tallyhook operators let-in Ann --by Ann --reason 'provider is down'"
)
def let_in(
    name: OperatorName,
    reason: Annotated[str, typer.Option(help="Why, in your words; the trail keeps it.")],
    by: ByOption = None,
) -> None:
    """Print a link that opens the console for a person without password and company's account.

    For when nobody can sign in otherwise. It works once, within ten minutes, for an hour. The trail
    shows it, and it counts as an invitation by who asks.
    """
    from app.access.sessions import let_in_link

    async def making(context: AppContext) -> tuple[str, str]:
        console = context.settings.console
        token = await let_in_link(context, name=name, reason=reason, by=by)
        return console.public_url or f"http://127.0.0.1:{console.port}", token

    address, token = running.writing(making)
    print(f"{address}/enter#{token}")
    printing.note(f"Whoever opens this within ten minutes is {name}, for an hour.")


@operators_group.command(
    "vouch", epilog="Such as: tallyhook operators vouch Ann Bob --reason 'both founded the shop'"
)
def vouch_for(
    one: OperatorName,
    other: OperatorName,
    reason: Annotated[str, typer.Option(help="Why, in your words.")],
) -> None:
    """State as the machine's owner that two operators are two persons, at set-up, once.

    Then they approve each other's proposals at once, though one invited the other. Later it is
    refused: after the checklist was complete, or a month was closed.
    """
    from app.golive.golive import vouch

    running.writing(vouch, one, other, reason=reason)
    printing.note(f"{one} and {other} may approve each other's proposals from now on.")


@operators_group.command(
    "notices",
    epilog="Such as: tallyhook operators notices Ann --when daily --mail ann@my.shop",
)
def choose_notices_of(
    name: OperatorName,
    when: Annotated[str, typer.Option(help="at-once, daily or off.")],
    mail: Annotated[str | None, typer.Option(help="The mail address to send to.")] = None,
    post: Annotated[
        bool, typer.Option("--post", help="A signed post to TALLYHOOK_ALARMS__URL.")
    ] = False,
    by: ByOption = None,
) -> None:
    """Choose how a person is notified of assigned breaks and of proposals to approve.

    Each thing is notified once, at once or together at 8 in the morning, and names no customer.
    """
    from app.monitoring.work_notices import PACES, choose_notices

    pace = next((each for each in PACES if each.replace("_", "-") == when), None)
    if pace is None:
        raise UsageError("--when is one of: at-once, daily, off")
    if pace != "off" and (mail is None) != post:
        raise UsageError("say either --mail ADDRESS or --post")
    running.writing(
        choose_notices, name, pace=pace, way="post" if post else "mail", address=mail or "", by=by
    )
    printing.note(
        f"{name} is not notified any more."
        if pace == "off"
        else f"{name} is notified {when.replace('-', ' ')} from now on."
    )


@operators_group.command("list")
def list_operators(form: printing.FormatOption = printing.Format.table) -> None:
    """List all operators by name, the disabled included.

    `company` is true for who signs in with the company's account.
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
    """Disable a person; the audit trail keeps their name."""
    from app.access.operators import retire_operator

    running.writing(retire_operator, name=name, by=by)
    printing.note(f"Disabled {name}.")


@operators_group.command(
    "token", epilog="Such as: tallyhook operators token Ann --until 90d --by Boss"
)
def make_own_token(
    name: OperatorName,
    until: Annotated[
        str,
        typer.Option(help="When it ends: a day, a moment, or a length of time such as 90d or 12h."),
    ],
    by: ByOption = None,
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """Make a person's own token and show it, this once. With it they act in their own name.

    It is given by --token-file FILE or TALLYHOOK_OPERATOR_TOKEN, or to the API; `tokens list` shows
    it, and `tokens revoke` ends it.
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
            f"Keep it in a file that only {name} can read: it is not shown again, and whoever has "
            f"it is {name}. `tallyhook tokens revoke {entry.name}` ends it."
        )


tokens_group = typer.Typer(help="Programs that may use the API.", no_args_is_help=True)

TokenName = Annotated[str, typer.Argument(help="A name for the program, such as shop.")]


@tokens_group.command("add", epilog="Such as: tallyhook tokens add books --scope read --until 90d")
def add_token(
    name: TokenName,
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            help="What it may be used for: read, orders, checkout, finance or evidence; again for "
            "several. Without: read, orders and checkout.",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(help="When it ends: a day, a moment, or a length of time such as 90d or 12h."),
    ] = None,
    by: ByOption = None,
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """Make a token and show it, this once."""
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
        printing.note("Keep it now: it is not shown again.")
    if not scope:
        printing.note(
            f"Its scopes are {', '.join(UNNAMED)}; --scope names others, finance and evidence "
            "among them."
        )


def _scopes(given: list[str]) -> list[TokenScope]:
    from app.access.tokens import TOKEN_SCOPES

    found = [scope for scope in TOKEN_SCOPES if scope in given]
    if set(given) - set(TOKEN_SCOPES):
        raise UsageError(f"--scope is one of: {', '.join(TOKEN_SCOPES)}")
    return found


TOKEN_COLUMNS = ("name", "operator", "scopes", "until", "created_at", "revoked_at", "changed_at")


@tokens_group.command("list")
def list_tokens(form: printing.FormatOption = printing.Format.table) -> None:
    """List tokens by name, with what each is for; never the tokens themselves."""
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
    """Revoke a token; the next request with it is refused."""
    from app.access.tokens import withdraw_token

    running.writing(withdraw_token, name=name, by=by)
    printing.note(f"Revoked {name}.")


audit_group = typer.Typer(
    help="The audit trail: who did what, to what, when and why; append-only.", no_args_is_help=True
)

TRAIL_COLUMNS = ("number", "at", "who", "role", "action", "subject", "reason", "facts")


@audit_group.callback()
def audit() -> None:
    """Show the audit trail: who did what, to what, when and why. It is append-only."""


@audit_group.command("list")
def list_entries(
    subject: Annotated[
        str | None, typer.Option(help="Only what was done to this: an order, a token, a file.")
    ] = None,
    who: Annotated[str | None, typer.Option(help="Only what this person did.")] = None,
    action: Annotated[str | None, typer.Option(help="Only this, such as erased.")] = None,
    after: Annotated[
        int, typer.Option(min=0, max=printing.MAX_NUMBER, help="Only numbers after this one.")
    ] = 0,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Entries at most.")] = 100,
    form: printing.FormatOption = printing.Format.table,
) -> None:
    """List what was done, in the order in which it was done."""
    from app.access.operators import MAY, trail

    if action is not None and action not in MAY:
        raise UsageError(f"{action!r} is none of: {', '.join(MAY)}")
    found = running.reading(
        trail, subject=subject, who=who, action=action, after=after, limit=limit
    )
    rows = [entry.document() for entry in found]
    if form in (printing.Format.table, printing.Format.csv):
        for row in rows:
            row["facts"] = [f"{name} {value}" for name, value in row["facts"].items()]
    printing.emit(rows, columns=TRAIL_COLUMNS, form=form)
    if len(rows) == limit:
        printing.note(f"There may be more: --after {rows[-1]['number']}")


# --- proposals ------------------------------------------------------------------------------------

proposals_group = typer.Typer(
    help="Acts that need a second person: what waits, and deciding about it with a token of one's "
    "own.",
    no_args_is_help=True,
)

COLUMNS = ("id", "kind", "state", "by", "until", "sentence", "reason")
DECIDED = ("subject", "at", "decided_by", "decided_at", "decided_because")

Name = Annotated[str, typer.Argument(metavar="ID", help="The proposal's id.")]
Reason = Annotated[str, typer.Option(help="Why, in your words.")]


def proposal_notice(proposal: Proposal) -> str:
    """Describe the proposal that a command made instead of acting."""
    from reconcile.instants import format_instant

    return (
        f"Proposed as {proposal.id}: it is done when another operator approves it before "
        f"{format_instant(proposal.until)}, on the console's page Proposals, or with their own "
        f"token: tallyhook --token-file FILE proposals approve {proposal.id} --reason WHY\n"
        f"{proposal.sentence}"
    )


def _proposals(context: AppContext) -> Proposals:
    from app.wiring.work import proposals_of

    return proposals_of(context)


@proposals_group.command("list")
def list_proposals(
    everything: Annotated[
        bool, typer.Option("--all", help="Also those that were decided or have ended.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Most past ones.")] = 100,
    form: printing.FormatOption = printing.Format.table,
) -> None:
    """List what waits for a second person, the first to end first."""

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
    """Show one proposal: its act, who asked, why, and what became of it."""

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
    epilog="Such as: tallyhook --token-file my.token proposals approve ID --reason seen",
)
def approve(
    name: Name,
    reason: Reason,
    typed: Annotated[
        str,
        typer.Option(
            help="The number or address to erase, typed once more, since no proposal may hold it."
        ),
    ] = "",
) -> None:
    """Approve what another operator proposed; it is done at once."""
    done = _decided(lambda proposals: proposals.approve(name, by=None, reason=reason, typed=typed))
    printing.note(f"Approved, and done in the names of {done.who} and you: {done.sentence}")


@proposals_group.command("reject")
def reject(name: Name, reason: Reason) -> None:
    """Decline what another operator proposed."""
    done = _decided(lambda proposals: proposals.reject(name, by=None, reason=reason))
    printing.note(f"Rejected {done.id}: nothing was done.")


@proposals_group.command("withdraw")
def withdraw(name: Name, reason: Reason) -> None:
    """Withdraw what you proposed yourself."""
    done = _decided(lambda proposals: proposals.withdraw(name, by=None, reason=reason))
    printing.note(f"Withdrawn {done.id}: nothing was done.")
