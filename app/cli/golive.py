"""Commands on the go-live checklist and on deployment files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from app.cli import printing, running
from app.core.errors import UsageError
from app.core.text import counted
from reconcile.instants import Instant, format_instant

if TYPE_CHECKING:
    from app.context.context import AppContext
    from app.golive.golive import ChecklistItem


_WORDS: Final = {
    "passed": "✓ passed",
    "failed": "✗ failed",
    "not_run_yet": "· not run yet",
    "to_sign": "☐ to sign",
}


def page_of(rows: Sequence[Mapping[str, Any]], *, environment: str, at: Instant) -> str:
    """Return the go-live checklist as an HTML page.

    rows  documents of the checklist's items
    """
    from app.core.pages import page

    values = {
        "rows": rows,
        "words": _WORDS,
        "environment": environment,
        "at": format_instant(at),
        "complete": all(row["state"] == "passed" for row in rows),
    }
    return page("golive.html", values)


SIGNS = ("what", "state", "sentence", "do")
PLAYED = ("scenario", "expected", "seen", "passed", "seconds", "explanation")


def register(application: typer.Typer) -> None:
    """Add the commands `doctor` and `rehearse`."""
    application.command()(doctor)
    application.command()(rehearse)


def doctor(
    capacity: Annotated[
        bool,
        typer.Option(
            "--capacity",
            help="Instead of the checks, measure for some seconds how much this machine can "
            "handle, how long its disk lasts, and when to move to PostgreSQL or several machines.",
        ),
    ] = False,
    form: printing.FormatOption = printing.Format.table,
) -> None:
    """Check configuration, secrets, clock, database, alarms, disk, provider, TLS and profiles, and
    say what to do. The exit code is 1 if something must be done."""
    from app.core.logs import configure_logging
    from app.golive.capacity import examine_capacity
    from app.golive.examine import examine

    configure_logging(level="error")
    checks = running.run_loop(examine_capacity() if capacity else examine())
    printing.emit([asdict(each) for each in checks], columns=SIGNS, form=form)
    if any(each.state == "must" for each in checks):
        raise typer.Exit(1)


def rehearse(
    patience: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="Seconds to wait for each scenario's end. Default: until after its deadline.",
        ),
    ] = None,
    form: printing.FormatOption = printing.Format.table,
) -> None:
    """Play the scenarios with the configured provider while the service runs. The exit code is 1 if
    an outcome differs."""
    from app.golive.rehearse import play

    printing.note("Playing the scenarios. Each may take until its deadline")
    played = running.writing(
        play,
        patience_s=patience,
        progress=lambda each: printing.note(
            f"{'ok   ' if each.passed else 'WRONG'} {each.scenario}"
        ),
    )
    rows = [{name: getattr(each, name) for name in PLAYED} for each in played]
    printing.emit(rows, columns=PLAYED, form=form)
    if not all(each.passed for each in played):
        raise typer.Exit(1)


golive_group = typer.Typer(invoke_without_command=True)

COLUMNS = ("item", "state", "by", "at", "note", "sentence")


@golive_group.callback()
def golive(
    invocation: typer.Context,
    page: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Also write the checklist to this HTML file, for printing."
        ),
    ] = None,
    form: printing.FormatOption = printing.Format.table,
) -> None:
    """Show the go-live checklist: what a program can check, and what people must sign.

    The list covers keys, the public endpoint, the environment, rehearsals and signed statements.
    The exit code is 1 until the list is complete.
    """
    if invocation.invoked_subcommand is not None:
        return
    from app.cli import printing
    from app.golive.examine import check_now
    from app.golive.golive import checklist, open_items

    printing.check_output(page, binary=False, what="the page")

    async def check(context: AppContext) -> tuple[str, list[ChecklistItem], Instant]:
        items = await checklist(context, await check_now(context))
        return context.database.environment or "", items, context.clock.now()

    environment, items, now = running.writing(check)
    rows = [item.document() for item in items]
    printing.emit(rows, columns=COLUMNS, form=form)
    if page is not None:
        with printing.whole_file(page) as file:
            file.write(page_of(rows, environment=environment, at=now).encode())
        printing.note(f"Wrote {page}.")
    left = open_items(items)
    if left:
        printing.note(f"These items are not complete: {', '.join(left)}.")
        raise typer.Exit(1)


@golive_group.command("sign")
def sign(
    item: Annotated[str, typer.Argument(help="The item's name in the checklist.")],
    by: Annotated[str, typer.Option(help="The name of the person who signs.")],
    text: Annotated[
        str, typer.Option("--note", help="What the person states, and where the proof is kept.")
    ],
) -> None:
    """Sign a checklist item that no program can check. Signed statements are never changed."""
    from app.golive import golive

    async def signing(context: AppContext) -> str | None:
        await golive.sign(context, item, by=by, note=text)
        return await golive.what_a_signature_is_worth(context, item)

    doubt = running.writing(signing)
    printing.note(f"{by} has signed {item}.{f' {doubt}' if doubt else ''}")


# --- files to deploy with -------------------------------------------------------------------------

deploy_group = typer.Typer(
    help="Files to deploy with: settings, containers, systemd, databases, proxies, alarms.",
    no_args_is_help=True,
)

FOLDER: Final = Path(__file__).parents[1] / "deploy"

SETS: Final = {
    "config": "All settings with their defaults and reasons. Copy it as your configuration file.",
    "compose": "A container image, and a Compose file with receiver, worker, console, PostgreSQL, "
    "a nightly dump and Caddy.",
    "systemd": (
        "systemd units for one merchant on SQLite, with a socket that stays open during "
        "restarts, and templates for several merchants."
    ),
    "ha": "Two database nodes and a witness: Patroni, etcd and HAProxy.",
    "proxy": "Caddy and nginx in front of a service on the same machine.",
    "prometheus": "Alert rules that call somebody when money is at stake.",
    "grafana": "A dashboard: money at stake, deliveries, queues.",
}


@deploy_group.command("list")
def list_sets(form: printing.FormatOption = printing.Format.table) -> None:
    """List the sets of files that `deploy show` can print."""
    rows = [
        {"set": name, "files": len(files_of(name)), "what": what} for name, what in SETS.items()
    ]
    printing.emit(rows, columns=("set", "files", "what"), form=form)


@deploy_group.command(
    "show", epilog="Example: tallyhook deploy show systemd -o /etc/systemd/system"
)
def show(
    name: Annotated[str, typer.Argument(metavar="SET", help=f"One of: {', '.join(SETS)}.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the files into this folder.")
    ] = None,
) -> None:
    """Print the files of a set, or write them into a folder. Existing files are not replaced."""
    if name not in SETS:
        raise UsageError(f"{name!r} is none of: {', '.join(SETS)}")
    files = files_of(name)
    if output is None:
        for path in files:
            printing.print_file(f"# --- {path.name} ---\n{path.read_text()}\n")
        return
    there = [path.name for path in files if (output / path.name).exists()]
    if there:
        raise UsageError(
            f"{output} already has {', '.join(there)}, possibly edited. Move these files away, "
            f"or name another folder"
        )
    output.mkdir(parents=True, exist_ok=True)
    for path in files:
        (output / path.name).write_text(path.read_text())
    printing.note(f"{counted(len(files), 'file')} in {output}; each says what to change.")


def files_of(name: str) -> list[Path]:
    """Return the files of a set, sorted by name."""
    return sorted(FOLDER.joinpath(name).iterdir())
