"""Commands on proposals: what waits for a second person, and deciding about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.output import (
    DocumentOption,
    Format,
    FormatOption,
    document,
    emit,
    local_sentence,
    note,
)
from app.cli.running import with_context

if TYPE_CHECKING:
    from app.access.proposal import Proposal
    from app.access.proposals import Proposals
    from app.config.settings import Settings
    from app.receiving.context import AppContext

group = typer.Typer(
    help="Acts that need a second person: what waits, and deciding about it with a token of one's "
    "own.",
    no_args_is_help=True,
)

COLUMNS = ("id", "kind", "state", "by", "until", "sentence", "reason")
DECIDED = ("subject", "at", "decided_by", "decided_at", "decided_because")

Name = Annotated[str, typer.Argument(metavar="ID", help="The proposal's id.")]
Reason = Annotated[str, typer.Option(help="Why, in your words.")]


def proposal_notice(proposal: Proposal) -> str:
    """What a command says that has proposed its act."""
    from reconcile.instants import format_instant

    return (
        f"Proposed as {proposal.id}: it is done when another operator approves it before "
        f"{format_instant(proposal.until)}, on the console's page Proposals, or with their own "
        f"token: tallyhook --token-file FILE proposals approve {proposal.id} --reason WHY"
    )


def _proposals(context: AppContext, settings: Settings) -> Proposals:
    from app.bootstrap_proposals import proposals_of

    return proposals_of(context, settings)


@group.command("list")
def list_proposals(
    everything: Annotated[
        bool, typer.Option("--all", help="Those that were decided or have ended, too.")
    ] = False,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Past ones at most.")] = 100,
    form: FormatOption = Format.table,
) -> None:
    """List what waits for a second person, the first to end first."""

    async def work(context: AppContext, settings: Settings) -> list[dict[str, Any]]:
        proposals = _proposals(context, settings)
        found = await proposals.waiting()
        if everything:
            found += await proposals.past(limit=limit)
        rows = [proposals.document(each) for each in found]
        if form is not Format.table:
            return rows
        return [local_sentence(row, context.calendar_zone) for row in rows]

    rows = with_context(work)
    emit(rows, columns=COLUMNS if form is Format.table else (*COLUMNS, *DECIDED), form=form)


@group.command("show")
def show(name: Name, form: DocumentOption = Format.table) -> None:
    """Show one proposal: what would be done, who asked, why, and what became of it."""

    async def work(context: AppContext, settings: Settings) -> dict[str, Any]:
        proposals = _proposals(context, settings)
        told = proposals.document(await proposals.one(name))
        return local_sentence(told, context.calendar_zone) if form is Format.table else told

    told = with_context(work)
    if form is not Format.table:
        document(told, form)
        return
    given = told.pop("given")
    rows = [{"what": key.replace("_", " "), "value": value} for key, value in told.items()]
    emit(rows, columns=("what", "value"), form=form)
    for key, value in given.items():
        if value:
            print(f"{key}: {value}" if "\n" not in value else f"{key}:\n{value}")


Decide = Callable[["Proposals"], Awaitable["Proposal"]]


def _decided(decide: Decide) -> Proposal:
    async def work(context: AppContext, settings: Settings) -> Proposal:
        return await decide(_proposals(context, settings))

    return with_context(work, purpose="writing")


@group.command(
    "approve",
    epilog="Such as: tallyhook --token-file my.token proposals approve ID --reason seen",
)
def approve(name: Name, reason: Reason) -> None:
    """Agree to what another operator proposed; it is done at once."""
    done = _decided(lambda proposals: proposals.approve(name, by=None, reason=reason))
    note(f"Approved, and done in the names of {done.who} and you: {done.sentence}")


@group.command("reject")
def reject(name: Name, reason: Reason) -> None:
    """Say that what another operator proposed is not to be done."""
    done = _decided(lambda proposals: proposals.reject(name, by=None, reason=reason))
    note(f"Rejected {done.id}: nothing was done.")


@group.command("withdraw")
def withdraw(name: Name, reason: Reason) -> None:
    """Take back what you proposed yourself."""
    done = _decided(lambda proposals: proposals.withdraw(name, by=None, reason=reason))
    note(f"Withdrawn {done.id}: nothing was done.")
