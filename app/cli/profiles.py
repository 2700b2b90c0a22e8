"""Commands on profiles: list, show, check."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.output import DocumentOption, Format, FormatOption, document, emit

group = typer.Typer(help="How each provider signs and tells its events.", no_args_is_help=True)

COLUMNS = ("profile", "mac", "key", "where", "events", "rests_on")

Name = Annotated[str, typer.Argument(help="A shipped profile's name, or the path of a file.")]


@group.command("list")
def list_profiles(form: FormatOption = Format.table) -> None:
    """List the profiles that are shipped."""
    from app.providers.profile import list_profiles

    emit(list_profiles(), columns=COLUMNS, form=form)


@group.command("show")
def show(name: Name, form: FormatOption = Format.table) -> None:
    """Show everything a profile says, defaults included, and what its facts rest on."""
    from app.providers.profile import rows_of, show_profile

    shown = show_profile(name)
    if form in (Format.json, Format.jsonl):
        document(shown, form)
        return
    rows = [{"key": key, "value": value} for key, value in rows_of(shown)]
    emit(rows, columns=("key", "value"), form=form)


@group.command("check")
def check(
    file: Annotated[str, typer.Argument(help="The profile's file.")],
    form: DocumentOption = Format.table,
) -> None:
    """Tell every mistake of a profile file by line. Exit code 1 where there is one."""
    from app.providers.profile import check_profile

    problems = check_profile(file)
    if form is not Format.table:
        document({"file": file, "valid": not problems, "problems": problems}, form)
    for line in problems or [f"{file} is in order."]:
        if form is Format.table:
            print(line)
    if problems:
        raise typer.Exit(1)
