"""Commands that keep the store safe: backup and restore."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.output import Format, FormatOption, document, measure, note, refuse_csv


def register(application: typer.Typer) -> None:
    """Add the commands."""
    application.command()(backup)
    application.command()(restore)


def backup(
    file: Annotated[Path, typer.Argument(help="The file to make.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    form: FormatOption = Format.table,
) -> None:
    """Copy the database to a file, also while it is served, and check the copy."""
    from app.cli.running import run_loop
    from app.config import load_settings
    from app.operations.backup import back_up

    refuse_csv(form)
    settings = load_settings()
    with measure("copying") as show:
        contents = run_loop(
            back_up(
                settings.database_url,
                file,
                environment=settings.environment,
                replace=force,
                progress=show,
            )
        )
    if form is Format.table:
        print(f"{file}: {contents.sentence()}. Checked.")
    else:
        document({"file": str(file), **contents.document()}, form)


def restore(
    file: Annotated[Path, typer.Argument(help="A file that `backup` made.")],
    force: Annotated[
        bool, typer.Option("--force", help="Take the place of a database that exists.")
    ] = False,
    form: FormatOption = Format.table,
) -> None:
    """Put a backup in the database's place. The service must be stopped; the database that was
    there is kept beside it."""
    from app.cli.running import run_loop
    from app.clock import SystemClock
    from app.config import load_settings
    from app.operations.backup import restore as put_back

    refuse_csv(form)
    settings = load_settings()
    with measure("copying") as show:
        restored = run_loop(
            put_back(
                settings.database_url,
                file,
                environment=settings.environment,
                replace=force,
                clock=SystemClock(),
                progress=show,
            )
        )
    contents, kept = restored.contents, restored.kept
    if form is Format.table:
        print(f"Restored: {contents.sentence()}.")
    else:
        kept_as = None if kept is None else str(kept)
        document({"file": str(file), "kept": kept_as, **contents.document()}, form)
    if kept is not None:
        note(f"The database that was there is kept as {kept}.")
    note(
        "Now: `tallyhook db check`, then `serve`. What came after the backup is not in it: have "
        "the provider deliver it again, revoke again what tokens were revoked since, and set "
        f"readers of the outcome feed back to {contents.last_revision}."
    )
