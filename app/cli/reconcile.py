"""Commands that reconcile payments with books and statements: run, show, list, preview, and the
matching rules."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from app.cli import operators, printing, running
from app.core.errors import ConfigurationError
from app.core.text import counted
from reconcile.instants import format_instant

if TYPE_CHECKING:
    from app.context.context import AppContext
    from app.finance.match_rules import RulesPreviewDocument
    from app.finance.reconcile_period import Ran, RunRequest

BREAKS = ("id", "cause", "state", "order", "payment", "money", "age_days", "sentence")
CSV = (*BREAKS[:-1], "assignee", "since", "cites", "next_step", "sentence")


async def print_run(context: AppContext, found: Ran, form: printing.Format) -> None:
    """Print a reconciliation: its control totals, then its breaks. CSV has only the breaks."""
    from app.finance.break_acts import breaks_of_run
    from app.finance.reconcile_period import run_document

    async def documents() -> AsyncIterator[Sequence[Mapping[str, Any]]]:
        async for seen in breaks_of_run(context, found.number):
            yield [each.document(as_of=found.as_of) for each in seen]

    items = printing.for_people(documents(), context.calendar_zone, form)
    if form is printing.Format.csv:
        await printing.print_items(items, columns=CSV, form=form)
    elif form is printing.Format.table:
        _print_totals(found)
        left_out = (
            await printing.print_items(items, columns=BREAKS, form=form) if found.breaks else 0
        )
        if left_out:
            more = counted(left_out, "more break is", "more breaks are")
            printing.note(f"{more} not shown: --format csv or json shows all.")
    else:
        await printing.print_document(run_document(found), items, name="breaks", form=form)


def _print_totals(found: Ran) -> None:
    from app.finance.reconcile_period import run_document

    totals = run_document(found)
    print(f"Run {found.number}, as of {format_instant(found.as_of)}, under {_rules(found)}.")
    columns = ("side", "family", "bucket", "count", "sum")
    printing.emit(totals["control"], columns=columns, form=printing.Format.table)
    for tie in found.control.ties():
        if not tie.holds:
            print(f"DOES NOT TIE: {tie.name} ({tie.side}): {tie.sides}")
    if totals["ties"]:
        print(f"All {counted(totals['ties_checked'], 'sum ties', 'sums tie')}.")
    matched = totals["matched"]
    sums = ", ".join(map(printing.shown, matched["sums"])) or "0"
    orders, breaks = counted(matched["count"], "order"), counted(found.breaks, "break")
    print(f"Matched: {orders}, {sums}. {breaks}, {found.open:,} open.")


def _rules(found: Ran) -> str:
    from app.finance.reconcile_period import BUILT_IN

    if found.rules is None:
        return "the rules of a file"
    return f"rules {found.rules}" if found.rules != BUILT_IN else "the rules that are built in"


group = typer.Typer(
    help="Match ledgers, order books and statements; find and explain every difference.",
    no_args_is_help=True,
)
rules_group = typer.Typer(help="The rules for matching.", no_args_is_help=True)
group.add_typer(rules_group, name="rules")

RulesFile = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, help="A TOML file of rules.")
]
FailOption = Annotated[
    bool, typer.Option("--fail-on-breaks", help="Exit with code 1 if a break is open.")
]

JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        min=1,
        max=64,
        help="Number of processes for matching, if there are more than 50,000 orders. Default: "
        "one per core, at most 2. With 1, the command itself does the work.",
    ),
]


@group.command("run")
def run(
    since: Annotated[
        str | None,
        typer.Option("--from", help="Only orders placed on or after this date or time."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--to", help="Only orders placed up to the end of this date, or up to this time."
        ),
    ] = None,
    as_of: Annotated[
        str | None, typer.Option(help="Use what was known at this RFC 3339 time. Default: now.")
    ] = None,
    rules: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="A file of rules to use instead of the rules in force.",
        ),
    ] = None,
    fail_on_breaks: FailOption = False,
    jobs: JobsOption = None,
    form: printing.FormatOption = printing.Format.table,
) -> None:
    """Match everything and store the result.

    Without --from, --to, --as-of and --rules, the run opens new breaks, and closes breaks that new
    evidence has resolved. With any of these options, it changes no break.

    The totals have six sides. `book` has the order book's lines, `statement` the statements' lines,
    and `bank` the booked bank lines. `takings` compares the captured payments with the book,
    `settlement` compares them with the statements, and `payouts` compares the statements' payouts
    with the bank.
    """
    from app.finance.reconcile_period import RunRequest

    asked = RunRequest(
        since=printing.moment(since, "--from"),
        until=printing.end_of(until, "--to"),
        as_of=printing.moment(as_of, "--as-of"),
        rules=None if rules is None else _text_of(rules),
    )

    found = _run(asked, running.processes(jobs, most=MOST_PROCESSES), form)
    if not found.lived:
        printing.note("This run was read-only: it opened and closed no break.")
    if fail_on_breaks and found.open:
        raise typer.Exit(1)


MOST_PROCESSES: Final = 2
"""Default for the maximum number of matching processes. Each needs about 100 MiB of memory."""


def _run(asked: RunRequest, jobs: int, form: printing.Format) -> Ran:
    from app.finance.reconcile_period import reconcile_period
    from app.finance.reconcile_rows import rows_ahead

    kept = list[int]()

    async def work(context: AppContext) -> Ran:
        with printing.progress(
            "reconciling", await rows_ahead(context, as_of=asked.as_of)
        ) as advance:
            found = await reconcile_period(context, asked, progress=advance, jobs=jobs)
        kept.append(found.number)
        await print_run(context, found, form)
        return found

    try:
        return running.writing(work)
    except KeyboardInterrupt:
        printing.note(_interrupted(*kept))
        raise


def _interrupted(number: int | None = None) -> str:
    if number is not None:
        return (
            f"Interrupted while printing. Run {number} is stored: `tallyhook reconcile show "
            f"{number}` prints it again."
        )
    return (
        "Interrupted: the run was not stored, and no break was opened or closed. Run the same "
        "command again. `tallyhook reconcile list` shows completed runs."
    )


@group.command("show")
def show(
    number: Annotated[
        int, typer.Argument(metavar="RUN", min=1, max=printing.MAX_NUMBER, help="The run's number.")
    ],
    fail_on_breaks: FailOption = False,
    form: printing.FormatOption = printing.Format.table,
) -> None:
    """Show a run again: its totals, and the current state of each of its breaks."""
    from app.finance.break_acts import finished_run
    from app.finance.reconcile_period import ran

    async def work(context: AppContext) -> Ran:
        found = await ran(context, await finished_run(context, number))
        await print_run(context, found, form)
        return found

    found = running.reading(work)
    if fail_on_breaks and found.open:
        raise typer.Exit(1)


@group.command("list")
def list_runs(
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Maximum number of runs.")] = 20,
    form: printing.FormatOption = printing.Format.table,
) -> None:
    """List runs, newest first."""
    from app.finance.break_acts import finished_runs
    from app.finance.reconcile_period import listed_run

    found = running.reading(finished_runs, limit=limit)
    rows = [listed_run(each) for each in found]
    columns = ("run", "at", "as_of", "from", "to", "rules", "kind", "breaks", "ties")
    printing.emit_up_to(limit, rows, columns=columns, form=form)


@group.command("preview")
def preview(
    rules: Annotated[
        Path, typer.Option(exists=True, dir_okay=False, help="The file of rules to try.")
    ],
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """Show which matches other rules would add, lose and change. Nothing is stored."""
    from app.finance.match_rules import RulesPreview, preview_rules
    from app.finance.reconcile_rows import rows_ahead

    text = _text_of(rules)

    async def work(context: AppContext) -> RulesPreview:
        with printing.progress("comparing", 2 * await rows_ahead(context, as_of=None)) as advance:
            return await preview_rules(context, text, progress=advance)

    found = running.writing(work)
    if form is printing.Format.table:
        _print_preview(found.document())
    else:
        printing.document(found.document(), form)


def _print_preview(found: RulesPreviewDocument) -> None:
    columns = ("what", "before", "after", "note")
    printing.emit(found["rules"], columns=columns, form=printing.Format.table)
    if not found["totals"]:
        printing.note("These rules would change no match and no break.")
        return
    printing.emit(
        found["totals"], columns=("effect", "kind", "count", "money"), form=printing.Format.table
    )
    rows = [
        {"effect": each["effect"], **(each["after"] or each["before"] or {})}
        for each in found["changes"][:50]
    ]
    printing.emit(
        rows, columns=("effect", "kind", "order", "payment", "money"), form=printing.Format.table
    )
    left_out = len(found["changes"]) + found["not_told"] - len(rows)
    if left_out:
        printing.note(
            f"{counted(left_out, 'more change is', 'more changes are')} not shown: --format json "
            "shows the first thousand changes."
        )


@rules_group.command("show")
def show_rules(form: printing.DocumentOption = printing.Format.table) -> None:
    """Show the matching rules in force, who saved them, and when."""
    from app.finance.match_rules import current_rules, rules_document

    found = running.reading(current_rules)
    if found is None:
        printing.note("No rules are saved, so the defaults apply: differences are not tolerated.")
        if form is not printing.Format.table:
            printing.document(rules_document(None), form)
    elif form is printing.Format.table:
        printing.note(f"Rules {found.number}, saved {format_instant(found.at)} by {found.who}.")
        printing.print_file(found.toml)
    else:
        printing.document(rules_document(found), form)


@rules_group.command("save")
def save(
    file: RulesFile,
    by: operators.ByOption = None,
    reason: Annotated[
        str,
        typer.Option(
            help="The reason. Required if the rules in force limit what one person may do."
        ),
    ] = "",
) -> None:
    """Save a file's rules for future runs. Run `reconcile preview` first to see the effect. If the
    present rules limit one person, the command makes a proposal instead."""
    from app.access.proposal import Proposal
    from app.finance.match_rules import save_rules

    text = _text_of(file)
    done = running.writing(save_rules, text, by=by, reason=reason)
    if isinstance(done, Proposal):
        printing.note(operators.proposal_notice(done))
    else:
        printing.note(f"Saved as rules {done.number}.")


def _text_of(file: Path) -> str:
    from app.finance.rule_file import MAX_BYTES, read_rules

    try:
        with file.open("rb") as opened:
            text = opened.read(MAX_BYTES + 1).decode()
    except UnicodeDecodeError:
        raise ConfigurationError([f"{file}: the rules are not UTF-8 text"]) from None
    except OSError as error:
        raise ConfigurationError([f"{file}: {error.strerror}"]) from None
    read_rules(text, name=str(file))
    return text


fees_group = typer.Typer(
    help="Fees that providers took, and the rules that explain them.", no_args_is_help=True
)


@fees_group.callback()
def fees() -> None:
    """Suggest rules that explain the fees of providers."""


@fees_group.command(
    "suggest", epilog="Example: tallyhook fees suggest --from 2026-10-01 --to 2026-10-31"
)
def suggest(
    since: Annotated[
        str, typer.Option("--from", help="Only payments settled on or after this date or time.")
    ],
    until: Annotated[
        str,
        typer.Option(
            "--to", help="Only payments settled up to the end of this date, or up to this time."
        ),
    ],
    form: printing.DocumentOption = printing.Format.table,
) -> None:
    """Print fee rules that explain a month's statement lines, as TOML.

    The rules distinguish method, scheme, card type, card country and channel, as far as the
    statement states them. Compare the rules with your contract before you save them.
    """
    from app.finance.fee_suggestions import suggest_fees

    begin, end = printing.moment(since, "--from"), printing.end_of(until, "--to")
    assert begin is not None
    assert end is not None
    found = running.reading(suggest_fees, since=begin, until=end)
    document = found.document()
    if printing.printed(document, form):
        return
    if found.found:
        printing.print_file(found.toml)
    printing.note(
        f"The rules give the exact fees of {document['explained']:,} of "
        f"{counted(found.lines, 'payment')} in this period."
    )
    if found.nameless:
        printing.note(
            f"{counted(found.nameless, 'more payment is', 'more payments are')} in statements "
            "without a source: import these statements with --source."
        )
    if found.more:
        printing.note("There are more payments in this period: shorten it to see the others.")
