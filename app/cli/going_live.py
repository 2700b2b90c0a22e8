"""Commands before real money moves: doctor, rehearse and golive."""

from __future__ import annotations

import typer

from app.cli.output import Format, FormatOption, emit

SIGNS = ("what", "state", "sentence", "do")


def register(application: typer.Typer) -> None:
    """Add the commands."""
    application.command()(doctor)


def doctor(form: FormatOption = Format.table) -> None:
    """Look at the configuration, files of secrets, clock, database, disk, provider, TLS and
    profiles, and say what to do. Exit code 1 when something must be done."""
    from app.bootstrap_checkup import examine
    from app.cli.running import run_loop
    from app.logs import configure_logging

    configure_logging(level="error")
    signs = run_loop(examine())
    rows = [
        {"what": each.what, "state": each.state, "sentence": each.sentence, "do": each.do}
        for each in signs
    ]
    emit(rows, columns=SIGNS, form=form)
    if any(each.state == "must" for each in signs):
        raise typer.Exit(1)
