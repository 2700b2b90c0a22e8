"""Commands on providers: profiles, and signatures checked without a service."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from app.cli.output import DocumentOption, Format, FormatOption, document, emit
from app.core.clock import SystemClock

profiles_group = typer.Typer(
    help="How each provider signs and tells its events.", no_args_is_help=True
)

COLUMNS = ("profile", "mac", "key", "where", "events", "rests_on")

Name = Annotated[str, typer.Argument(help="A shipped profile's name, or the path of a file.")]


@profiles_group.command("list")
def list_profiles(form: FormatOption = Format.table) -> None:
    """List the profiles that are shipped."""
    from app.providers.profile import list_profiles

    emit(list_profiles(), columns=COLUMNS, form=form)


@profiles_group.command("show")
def show_profile_file(name: Name, form: FormatOption = Format.table) -> None:
    """Show everything a profile says, defaults included, and what its facts rest on."""
    from app.providers.connecting import setup_facts
    from app.providers.profile import load_profile, rows_of, show_profile

    shown = show_profile(name)
    if form in (Format.json, Format.jsonl):
        document(shown, form)
        return
    # People are told what the file does not say; programs see that it is not there.
    shown["setup"] = dict(setup_facts(load_profile(name)))
    rows = [{"key": key, "value": value} for key, value in rows_of(shown)]
    emit(rows, columns=("key", "value"), form=form)


@profiles_group.command("check")
def check_profile_file(
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


signature_group = typer.Typer(help="Verify signatures without a service.", no_args_is_help=True)


@signature_group.callback()
def signature() -> None:
    """Verify signatures without a service."""


@signature_group.command(
    "check", epilog="Such as: tallyhook signature check --profile stripe < requests.jsonl"
)
def check_signatures(
    profile: Annotated[
        str | None, typer.Option(help="Profile of the lines that name none: a name, or a path.")
    ] = None,
) -> None:
    """Verify one request a line, each a JSON object, and print one verdict a line, in order.

    Exit code 0 whatever the verdicts are: they are the answer.
    """
    from app.providers.check_signatures import check_lines, lines_of

    lines = lines_of(sys.stdin.buffer)
    for verdict in check_lines(lines, profile=profile, now=SystemClock().now()):
        # At once: whoever asks over a pipe waits for each answer.
        print(verdict, flush=True)
