"""Commands that reconcile: run, show, list, preview, and the rules in force."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.days import end_of, moment
from app.cli.operators import ByOption
from app.cli.output import (
    MAX_NUMBER,
    DocumentOption,
    Format,
    FormatOption,
    document,
    emit,
    emit_up_to,
    note,
    progress,
)

if TYPE_CHECKING:
    from app.operations.desk import Desk

group = typer.Typer(
    help="Match ledgers, order books and statements; find and explain every difference.",
    no_args_is_help=True,
)
rules_group = typer.Typer(help="The rules that matching goes by.", no_args_is_help=True)
group.add_typer(rules_group, name="rules")

RulesFile = Annotated[
    Path, typer.Argument(exists=True, dir_okay=False, help="A TOML file of rules.")
]
FailOption = Annotated[
    bool, typer.Option("--fail-on-breaks", help="Exit code 1 where a break is open.")
]


@group.command("run")
def run(
    since: Annotated[
        str | None,
        typer.Option("--from", help="What was placed from this day (UTC) or moment on."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--to", help="What was placed up to this day, all of it, or to a moment."),
    ] = None,
    as_of: Annotated[
        str | None, typer.Option(help="As it could be known at this RFC 3339 moment.")
    ] = None,
    rules: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Other rules than those in force."),
    ] = None,
    fail_on_breaks: FailOption = False,
    form: FormatOption = Format.table,
) -> None:
    """Match everything and keep what was found.

    Without --from, --to, --as-of and --rules the run moves the lives of breaks: new ones open, and
    those that evidence has ended close. With any of them it only looks.

    Totals have four sides: book, the lines of the order book; takings, what was captured, held
    against the book; settlement, the same, held against the statements; statement, their lines.
    """
    from app.cli.reconcile_text import print_run
    from app.cli.running import with_desk
    from app.operations.finance.reconcile_period import Asked, Ran, reconcile_period
    from app.operations.finance.reconcile_rows import rows_ahead

    asked = Asked(
        since=moment(since, "--from"),
        until=end_of(until, "--to"),
        as_of=moment(as_of, "--as-of"),
        rules=None if rules is None else _text_of(rules),
    )

    async def work(desk: Desk) -> Ran:
        with progress("reconciling", await rows_ahead(desk, as_of=asked.as_of)) as advance:
            found = await reconcile_period(desk, asked, progress=advance)
        await print_run(desk, found, form)
        return found

    found = with_desk(lambda desk, settings: work(desk), purpose="writing")
    if not found.lived:
        note("This run only looked: it opened and closed no break.")
    if fail_on_breaks and found.open:
        raise typer.Exit(1)


@group.command("show")
def show(
    number: Annotated[
        int, typer.Argument(metavar="RUN", min=1, max=MAX_NUMBER, help="The run's number.")
    ],
    fail_on_breaks: FailOption = False,
    form: FormatOption = Format.table,
) -> None:
    """Show a run again: its totals, and each break that it saw with where that stands now."""
    from app.cli.reconcile_text import print_run
    from app.cli.running import with_desk
    from app.operations.finance.read_breaks import finished_run
    from app.operations.finance.reconcile_period import Ran, ran

    async def work(desk: Desk) -> Ran:
        found = await ran(desk, await finished_run(desk, number))
        await print_run(desk, found, form)
        return found

    found = with_desk(lambda desk, settings: work(desk))
    if fail_on_breaks and found.open:
        raise typer.Exit(1)


@group.command("list")
def list_runs(
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Runs at most.")] = 20,
    form: FormatOption = Format.table,
) -> None:
    """List runs, newest first."""
    from app.cli.running import with_desk
    from app.operations.finance.read_breaks import finished_runs
    from reconcile.instants import format_instant

    def shown(instant: int | None) -> str | None:
        return None if instant is None else format_instant(instant)

    rows = [
        {
            "run": each.number,
            "at": shown(each.at),
            "as_of": shown(each.as_of),
            "from": shown(each.since),
            "to": shown(each.until),
            "rules": each.rules,
            "kind": "lived" if each.lived else "look",
            "breaks": each.breaks,
            "ties": each.ties,
        }
        for each in with_desk(lambda desk, settings: finished_runs(desk, limit=limit))
    ]
    columns = ("run", "at", "as_of", "from", "to", "rules", "kind", "breaks", "ties")
    emit_up_to(limit, rows, columns=columns, form=form)


@group.command("preview")
def preview(
    rules: Annotated[
        Path, typer.Option(exists=True, dir_okay=False, help="The rules that would be saved.")
    ],
    form: DocumentOption = Format.table,
) -> None:
    """Show what other rules would newly match, lose and change, with money. Nothing is kept."""
    from app.cli.running import with_desk
    from app.operations.finance.match_rules import Preview, preview_rules
    from app.operations.finance.reconcile_rows import rows_ahead

    text = _text_of(rules)

    async def work(desk: Desk) -> Preview:
        with progress("comparing", 2 * await rows_ahead(desk, as_of=None)) as advance:
            return await preview_rules(desk, text, progress=advance)

    found = with_desk(lambda desk, settings: work(desk), purpose="writing")
    if form is Format.table:
        _print_preview(found.document())
    else:
        document(found.document(), form)


def _print_preview(found: dict[str, Any]) -> None:
    if not found["totals"]:
        note("These rules would change nothing.")
        return
    emit(found["totals"], columns=("effect", "kind", "count", "money"), form=Format.table)
    rows = [
        {"effect": each["effect"], **(each["after"] or each["before"])}
        for each in found["changes"][:50]
    ]
    emit(rows, columns=("effect", "kind", "order", "payment", "money"), form=Format.table)
    left_out = len(found["changes"]) + found["not_told"] - len(rows)
    if left_out:
        note(f"{left_out} more changes are not shown: --format json tells the first thousand.")


@rules_group.command("show")
def show_rules(form: DocumentOption = Format.table) -> None:
    """Show the rules in force, and who saved them when."""
    from app.cli.running import with_desk
    from app.operations.finance.match_rules import current_rules
    from reconcile.instants import format_instant

    found = with_desk(lambda desk, settings: current_rules(desk))
    if found is None:
        note("No rules were saved: nothing is tolerated, and margins are as built in.")
        if form is not Format.table:
            document({"number": None, "toml": ""}, form)
    elif form is Format.table:
        note(f"Rules {found.number}, saved {format_instant(found.at)} by {found.who}.")
        print(found.toml, end="" if found.toml.endswith("\n") else "\n")
    else:
        told = {"number": found.number, "at": format_instant(found.at), "by": found.who}
        document(told | {"digest": f"sha256:{found.digest}", "toml": found.toml}, form)


@rules_group.command("save")
def save(
    file: RulesFile,
    by: ByOption = None,
    second: Annotated[
        str | None,
        typer.Option(help="Who agrees; needed where the rules in force have an accept_alone_max."),
    ] = None,
) -> None:
    """Put the rules of a file in force for the runs to come. `reconcile preview` shows first what
    they would change."""
    from app.cli.running import with_desk
    from app.operations.finance.match_rules import save_rules

    text = _text_of(file)
    saved = with_desk(
        lambda desk, settings: save_rules(desk, text, by=by, second=second),
        purpose="writing",
    )
    note(f"Saved as rules {saved.number}.")


def _text_of(file: Path) -> str:
    """The text of a file of rules that has no mistake; mistakes are told with the file's name."""
    from app.errors import ConfigurationError
    from app.operations.finance.rule_file import MAX_BYTES, read_rules

    try:
        with file.open("rb") as opened:
            text = opened.read(MAX_BYTES + 1).decode()
    except UnicodeDecodeError:
        raise ConfigurationError([f"{file}: the rules are not UTF-8 text"]) from None
    except OSError as error:
        raise ConfigurationError([f"{file}: {error.strerror}"]) from None
    read_rules(text, name=str(file))
    return text
