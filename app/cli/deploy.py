"""Files to deploy with, printed or written out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from app.cli.output import Format, FormatOption, emit, note
from app.core.errors import UsageError
from app.core.text import counted

group = typer.Typer(
    help="Files to deploy with: settings, containers, systemd, proxies, alarms.",
    no_args_is_help=True,
)

FOLDER: Final = Path(__file__).parents[1] / "deploy"

SETS: Final = {
    "config": "Every setting with its default and its reason, to copy as the configuration's file.",
    "compose": "A container image, and a Compose file with receiver, worker, console, PostgreSQL, "
    "a nightly dump and Caddy.",
    "systemd": "Units for one merchant on SQLite, with a socket that stays open over restarts, and "
    "templates for several merchants.",
    "proxy": "Caddy and nginx in front of a service on the same machine.",
    "prometheus": "Rules that call somebody when money is at stake.",
    "grafana": "A dashboard of the same figures: is money at stake, deliveries, what waits.",
}


@group.command("list")
def list_sets(form: FormatOption = Format.table) -> None:
    """List the sets of files that `deploy show` knows."""
    rows = [
        {"set": name, "files": len(files_of(name)), "what": what} for name, what in SETS.items()
    ]
    emit(rows, columns=("set", "files", "what"), form=form)


@group.command("show", epilog="Such as: tallyhook deploy show systemd -o /etc/systemd/system")
def show(
    name: Annotated[str, typer.Argument(metavar="SET", help=f"One of: {', '.join(SETS)}.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the files into this folder.")
    ] = None,
) -> None:
    """Print the files of a set, or write them into a folder. What is there stays as it is."""
    if name not in SETS:
        raise UsageError(f"{name!r} is none of: {', '.join(SETS)}")
    files = files_of(name)
    if output is None:
        for path in files:
            print(f"# --- {path.name} ---\n{path.read_text()}")
        return
    there = [path.name for path in files if (output / path.name).exists()]
    if there:
        raise UsageError(
            f"{', '.join(there)}: there already in {output}, and may have been changed; move them "
            "away, or name another folder"
        )
    output.mkdir(parents=True, exist_ok=True)
    for path in files:
        (output / path.name).write_text(path.read_text())
    note(f"{counted(len(files), 'file')} in {output}; each says what to change.")


def files_of(name: str) -> list[Path]:
    """The files of a set, by name."""
    return sorted(FOLDER.joinpath(name).iterdir())
