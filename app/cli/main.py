"""`tallyhook …`: the commands and what their errors become.

Heavy things are imported inside commands: the time that `--help` takes is felt.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer

from app.cli import (
    audit,
    breaks,
    checkout,
    deliveries,
    evidence,
    going_live,
    golive,
    keeping,
    late,
    log,
    notifications,
    operators,
    orders,
    periods,
    personal,
    profiles,
    reconcile,
    records,
    report,
    serving,
    signature,
    statement,
    store,
    tokens,
)
from app.cli.output import note
from app.errors import ConfigurationError, TallyhookError

application = typer.Typer(
    name="tallyhook",
    help="Receives a payment service's signed webhooks, keeps them, and explains what happened "
    "to every order's money.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

for module in (serving, store, keeping, personal, going_live):
    module.register(application)
application.add_typer(orders.group, name="orders")
application.add_typer(deliveries.group, name="deliveries")
application.add_typer(checkout.group, name="checkout")
application.add_typer(evidence.group, name="evidence")
application.add_typer(golive.group, name="golive")
application.add_typer(log.group, name="log")
application.add_typer(notifications.group, name="notifications")
application.add_typer(audit.group, name="audit")
application.add_typer(operators.group, name="operators")
application.add_typer(reconcile.group, name="reconcile")
application.add_typer(breaks.group, name="breaks")
application.add_typer(late.group, name="late")
application.add_typer(report.group, name="report")
application.add_typer(tokens.group, name="tokens")
application.add_typer(periods.group, name="period")
application.add_typer(profiles.group, name="profiles")
application.add_typer(records.group, name="records")
application.add_typer(signature.group, name="signature")
application.add_typer(statement.group, name="statement")
application.add_typer(store.group, name="db")


def run(words: Sequence[str]) -> int:
    """Run one command and return its exit code. An error is a sentence, never a traceback."""
    try:
        application(list(words))
    except SystemExit as end:  # how Typer ends, with a sentence where the words do not fit
        return end.code if isinstance(end.code, int) else 0
    except ConfigurationError as error:
        for problem in error.problems:
            note(problem)
        return error.exit_code
    except TallyhookError as error:
        note(f"tallyhook: {error}")
        return error.exit_code
    except UnicodeEncodeError:
        if all(map(_is_text, words)):
            raise
        note("tallyhook: a word of the command is not UTF-8 text: type it again")
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        sys.stderr.close()
    return 0


def _is_text(word: str) -> bool:
    """Whether it can be written as UTF-8; bytes that could not be read are half signs."""
    return word.encode("utf-8", "replace").decode() == word
