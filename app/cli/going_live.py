"""Commands before real money moves: doctor, rehearse and golive."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.output import Format, FormatOption, emit, note

SIGNS = ("what", "state", "sentence", "do")
PLAYED = ("scenario", "expected", "seen", "passed", "seconds", "explanation")


def register(application: typer.Typer) -> None:
    """Add the commands."""
    application.command()(doctor)
    application.command()(rehearse)


def doctor(form: FormatOption = Format.table) -> None:
    """Look at the configuration, files of secrets, clock, database, alarms, disk, provider, TLS and
    profiles, and say what to do. Exit code 1 when something must be done."""
    from app.bootstrap_checkup import examine
    from app.cli.running import run_loop
    from app.core.logs import configure_logging

    configure_logging(level="error")
    signs = run_loop(examine())
    rows = [
        {"what": each.what, "state": each.state, "sentence": each.sentence, "do": each.do}
        for each in signs
    ]
    emit(rows, columns=SIGNS, form=form)
    if any(each.state == "must" for each in signs):
        raise typer.Exit(1)


def rehearse(
    patience: Annotated[
        float | None,
        typer.Option(min=1, help="Seconds to wait for each end. Default: beyond its deadline."),
    ] = None,
    form: FormatOption = Format.table,
) -> None:
    """Play the scenarios against the configured provider, beside a service that runs, and compare
    how each ends with how it must. Exit code 1 on any difference."""
    from app.bootstrap_rehearsal import play
    from app.cli.running import with_desk

    note("Playing; each scenario is waited for until its deadline")
    played = with_desk(
        lambda desk, settings: play(
            desk,
            settings,
            patience_s=patience,
            progress=lambda each: note(f"{'ok   ' if each.passed else 'WRONG'} {each.scenario}"),
        ),
        purpose="writing",
    )
    emit([each.document() for each in played], columns=PLAYED, form=form)
    if not all(each.passed for each in played):
        raise typer.Exit(1)
