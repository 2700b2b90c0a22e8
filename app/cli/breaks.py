"""Commands that list, show and settle breaks and late money."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli import operators, printing, running
from app.core.errors import UsageError
from app.core.text import counted
from reconcile.instants import Instant

if TYPE_CHECKING:
    from datetime import tzinfo

    from app.context.context import AppContext
    from app.finance.break_acts import BreakAct
    from app.finance.break_choice import ChosenBreaks
    from reconcile.matching.breaks import Act

breaks_group = typer.Typer(
    help="Differences between ledgers, books and statements, and decisions on them.",
    no_args_is_help=True,
)

COLUMNS = ("id", "cause", "state", "assignee", "order", "payment", "money", "age_days", "sentence")

Name = Annotated[str, typer.Argument(metavar="ID", help="The break's id.")]
Reason = Annotated[str, typer.Option(help="Why, in your words.")]


@breaks_group.command("list")
def list_breaks(
    cause: Annotated[str | None, typer.Option(help="Only breaks with this cause.")] = None,
    state: Annotated[
        str | None,
        typer.Option(help="Only breaks in this state: open, assigned, accepted or closed."),
    ] = None,
    assignee: Annotated[
        str | None, typer.Option(help="Only breaks assigned to this person.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Include closed breaks.")] = False,
    form: printing.FormatOption = printing.Format.table,
) -> None:
    """List open breaks, sorted by id. With --all, include closed breaks."""
    from app.finance.break_acts import living_breaks
    from reconcile.matching.breaks import STATES
    from reconcile.matching.causes import BREAK_CAUSES

    for word, words in ((cause, BREAK_CAUSES), (state, STATES)):
        if word is not None and word not in words:
            raise UsageError(f"{word!r} is none of: {', '.join(words)}")
    wanted = STATES if everything else STATES[:-1]
    wanted = wanted if state is None else tuple(each for each in STATES if each == state)

    async def documents(context: AppContext) -> AsyncIterator[Sequence[Mapping[str, Any]]]:
        now, causes = context.clock.now(), [] if cause is None else [cause]
        async for found in living_breaks(context, causes=causes, states=wanted, assignee=assignee):
            yield [each.document(as_of=now) for each in found]

    _print_list(documents, COLUMNS, form, name="sentence")


def _print_list(
    documents: Callable[[AppContext], printing.Items],
    columns: Sequence[str],
    form: printing.Format,
    *,
    name: str,
) -> None:
    from app.finance.break_acts import finished_runs

    async def work(context: AppContext) -> int | None:
        items = printing.for_people(documents(context), context.calendar_zone, form, name=name)
        left_out = await printing.print_items(items, columns=columns, form=form)
        return left_out if await finished_runs(context, limit=1) else None

    left_out = running.reading(work)
    if left_out is None:
        printing.note(
            "Nothing has been reconciled yet: run `tallyhook reconcile run` to find differences."
        )
    elif left_out:
        more = counted(left_out, "more break is", "more breaks are")
        printing.note(f"{more} not shown: --format csv or jsonl shows all.")


@breaks_group.command("show")
def show(name: Name, form: printing.DocumentOption = printing.Format.table) -> None:
    """Show one break: difference, next step, nearest lines and history."""
    from app.finance.break_acts import SeenBreak, one_break

    async def work(context: AppContext) -> tuple[SeenBreak, Instant, tzinfo]:
        return await one_break(context, name), context.clock.now(), context.calendar_zone

    found, now, zone = running.reading(work)
    document: Mapping[str, Any] = found.whole_document(as_of=now)
    if printing.printed(document, form):
        return
    for part in ("sentence", "next_step", "because"):
        printing.say(printing.local_sentence(document, zone, name=part)[part])
    plain = ("id", "cause", "state", "assignee", "order", "payment", "money", "age_days", "cites")
    printing.members({part: document[part] for part in plain})
    if document["candidates"]:
        columns = ("line", "reference", "money", "score", "apart")
        printing.emit(document["candidates"], columns=columns, form=form)
        for each in document["candidates"]:
            printing.say(f"{each['line']}: {_reasons(each)}")
    steps = ("at", "step", "by", "second", "value", "reason", "money", "cites")
    printing.emit(document["steps"], columns=steps, form=form)


def _reasons(candidate: Mapping[str, Any]) -> str:
    reasons = [f"{each['words']} ({each['points']})" for each in candidate["reasons"]]
    return ", ".join(reasons) or "it is the nearest line, but nothing in it matches"


def _choice(
    name: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="The break's id. Without it, --where selects breaks."),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(help='Filter, such as "cause=not_settled currency=KES amount<10.00 age>30".'),
    ] = None,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", help="Apply the change. Without it, the selected breaks are only listed."
        ),
    ] = False,
    seen: Annotated[
        str | None,
        typer.Option(
            metavar="MARK",
            help="With --yes: the MARK that the list printed. If the breaks have changed since "
            "then, nothing is changed.",
        ),
    ] = None,
    by: operators.ByOption = None,
) -> None:
    """Declare the parameters that the commands on breaks share."""


@breaks_group.command("assign")
@printing.sharing(_choice)
def assign(
    to: Annotated[
        str, typer.Option(help="The operator's name. An empty text removes the assignee.")
    ],
    **choice: Any,
) -> None:
    """Assign one break or several breaks to a person."""
    from app.access.operators import known_operators

    whose = f"{to}'s" if to else "nobody's"
    _act("assigned", value=to, one=f"{choice['name']} is {whose}.", each=f"is {whose}", **choice)
    if to and not any(
        each.name == to and each.disabled_at is None for each in running.reading(known_operators)
    ):
        printing.note(
            f"Check the name: no active operator is named {to}. `tallyhook operators list` shows "
            "the names."
        )


@breaks_group.command("comment")
@printing.sharing(_choice)
def comment(
    note: Annotated[str, typer.Option("--note", help="The text of the note.")], **choice: Any
) -> None:
    """Add a note to the history of one break or several breaks."""
    _act("commented", reason=note, one=f"Noted on {choice['name']}.", each="has the note", **choice)


@breaks_group.command(
    "accept",
    epilog="Example: tallyhook breaks accept ID --reason 'less than a cent' --by Ann",
)
@printing.sharing(_choice)
def accept(reason: Reason, **choice: Any) -> None:
    """Write off breaks, or propose this if a break needs a second person.

    A break opens again as soon as its money changes. With --where, breaks that need a second person
    are skipped.
    """
    _act("accepted", reason=reason, one=f"Accepted {choice['name']}.", each="is accepted", **choice)


@breaks_group.command("match")
@printing.sharing(_choice)
def match(
    reason: Reason,
    line: Annotated[
        list[str] | None,
        typer.Option(help="An unmatched line that belongs to the break. Repeat for several lines."),
    ] = None,
    score: Annotated[
        int,
        typer.Option(
            min=1,
            max=100,
            help="With --where: minimum score of a suggestion, in points.",
        ),
    ] = 60,
    **choice: Any,
) -> None:
    """Match a break with unmatched lines by hand. The breaks of all these lines are closed at once.

    If the sums differ, the next run reports the difference. With --where, each break gets its best
    suggestion of at least --score points.
    """
    if line and choice["where"] is not None and choice["name"] is None:
        raise UsageError(
            "--line works with one break only: leave --line out; --where matches each break with "
            "its own suggestion"
        )
    one = f"Matched: {choice['name']} is closed."
    each = "is matched and closed"
    _act("matched", reason=reason, lines=line or (), least=score, one=one, each=each, **choice)


def _act(
    kind: Act,
    *,
    name: str | None,
    where: str | None,
    yes: bool,
    seen: str | None,
    by: str | None,
    one: str,
    each: str,
    reason: str = "",
    value: str = "",
    lines: Sequence[str] = (),
    least: int = 0,
) -> None:
    from app.finance.break_acts import BreakAct, act_on_breaks, match_lines

    if (name is None) == (where is None):
        raise UsageError("give the id of a break, or select breaks with --where")
    if where is None and seen is not None:
        raise UsageError("--seen works with --where only: leave it out when you give an id")
    doing = BreakAct(kind=kind, by=by, reason=reason, value=value)
    if name is None:
        _act_on_chosen(doing, where=where or "", yes=yes, seen=seen, each=each, least=least)
    elif kind == "matched":
        if not lines:
            raise UsageError(
                "--line is missing: give the id of the unmatched line; `tallyhook breaks show "
                f"{name}` lists the nearest lines"
            )
        running.writing(match_lines, name, lines=lines, reason=reason, by=by)
        printing.note(one)
    else:
        proposal = running.writing(act_on_breaks, [name], doing)
        printing.note(one if proposal is None else operators.proposal_notice(proposal))


def _act_on_chosen(
    doing: BreakAct, *, where: str, yes: bool, seen: str | None, each: str, least: int
) -> None:
    from app.finance.break_choice import act_on_chosen, chosen_for, read_choice

    choice = read_choice(where)
    if seen is not None and not yes:
        raise UsageError("--seen works with --yes only: add --yes")

    async def work(context: AppContext) -> ChosenBreaks:
        chosen = await chosen_for(context, choice, doing, least=least)
        _preview(chosen)
        _check_chosen(chosen, seen)
        if yes and chosen.of:
            await act_on_chosen(context, chosen, doing)
        return chosen

    chosen = running.with_context(work, purpose="writing" if yes else "reading")
    count = counted(len(chosen.of), "break")
    if not chosen.of:
        printing.note("No break was selected, so nothing was changed.")
    elif yes:
        printing.note(f"{count}: each {each}.")
    else:
        printing.note(
            f"Nothing was changed. Add --yes --seen {chosen.mark} to change {count}. If the "
            "breaks change before then, nothing will be changed."
        )


def _check_chosen(chosen: ChosenBreaks, seen: str | None) -> None:
    if seen is not None and seen.strip() != chosen.mark:
        raise UsageError(
            "nothing was changed, because the breaks have changed since the list. List them "
            "again, and give the new MARK with --seen"
        )
    if chosen.against is not None:
        raise UsageError(f"{chosen.against}; nothing was changed")


def _preview(chosen: ChosenBreaks) -> None:
    from app.finance.break_choice import sums_of
    from reconcile.money import to_json

    rows = [
        {"cause": each.cause, "breaks": each.count, "money": to_json(each.money)}
        for each in sums_of(chosen.of)
    ]
    if rows:
        printing.emit(rows, columns=("cause", "breaks", "money"), form=printing.Format.table)
    for sentence in chosen.left_out():
        printing.note(sentence)


@breaks_group.command(
    "unmatch",
    epilog="Example: tallyhook breaks unmatch ID --reason 'another customer' --by Ann",
)
def unmatch(
    name: Name,
    reason: Reason,
    line: Annotated[
        str, typer.Option(help="The line to unmatch, if the break was matched with several.")
    ] = "",
    by: operators.ByOption = None,
) -> None:
    """Undo a match that was made by hand, even if its break is closed. The next run ignores the
    match."""
    from app.finance.break_acts import unmatch_break

    was = running.writing(unmatch_break, name, line=line, reason=reason, by=by)
    printing.note(
        f"{name} and {was} are no longer matched. Run `tallyhook reconcile run` to reopen the "
        "breaks."
    )


late_group = typer.Typer(
    help="Payments after cancel or expiry, double payments, and refunds that are owed.",
    no_args_is_help=True,
)

LATE_COLUMNS = ("id", "cause", "order", "payment", "money", "proposed", "state", "because")


@late_group.command("list")
def list_late(
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Include items that need no decision, because later evidence explains them.",
        ),
    ] = False,
    form: printing.FormatOption = printing.Format.table,
) -> None:
    """List late money as of the last run, with a proposed action for each item."""
    from app.finance.worklist import late_document, late_items

    async def documents(context: AppContext) -> AsyncIterator[Sequence[Mapping[str, Any]]]:
        async for found in late_items(context, closed=everything):
            yield [late_document(each) for each in found]

    _print_list(documents, LATE_COLUMNS, form, name="because")


@late_group.command(
    "settle", epilog="Example: tallyhook late settle ID --action refund --reason 'paid twice'"
)
def settle_late_money(
    name: Annotated[str, typer.Argument(metavar="ID", help="The id, as `late list` shows it.")],
    action: Annotated[str, typer.Option(help="accept, refund or credit.")],
    reason: Reason,
    by: operators.ByOption = None,
) -> None:
    """Decide what to do with late money. A refund stays on the list until the provider reports it.

    An accepted amount above one person's limit only becomes a proposal.
    """
    from app.finance.break_acts import SeenBreak
    from app.finance.worklist import settle_late

    done = running.writing(settle_late, name, action=action, reason=reason, by=by)
    printing.note(
        done.life.because if isinstance(done, SeenBreak) else operators.proposal_notice(done)
    )
