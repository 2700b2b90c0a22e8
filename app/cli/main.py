"""The command `tallyhook` with its subcommands, help and error reports."""

import os
import sys
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from app.cli import (
    breaks,
    cases,
    connect,
    deliveries,
    evidence,
    golive,
    imports,
    local,
    operators,
    orders,
    printing,
    privacy,
    reconcile,
    report,
    running,
    serving,
    store,
    unallocated,
)
from app.core.errors import ConfigurationError, TallyhookError

# --- how commands are listed, and how a value that does not fit is reported -----------------------

SECTIONS: Final = {
    "Run it": ("serve", "worker", "console", "sandbox", "demo"),
    "Go live": ("deploy", "doctor", "rehearse", "golive", "tokens", "operators", "proposals"),
    "Orders and payments": (
        "orders",
        "unallocated",
        "deliveries",
        "checkout",
        "notifications",
    ),
    "Providers": ("connect", "trigger", "listen", "profiles", "signature"),
    "Finance": (
        "import",
        "records",
        "statement",
        "bank",
        "presets",
        "mappings",
        "coverage",
        "reconcile",
        "breaks",
        "late",
        "fees",
        "report",
        "period",
        "schedule",
    ),
    "Evidence and personal data": ("evidence", "log", "audit", "erase", "privacy"),
    "The store": ("db", "backup", "restore", "prune", "prove", "refold", "reindex"),
}
"""Sections of `tallyhook --help`, with their commands."""

_WHOLE: Final = 1_000

_THE_LIBRARY_SAYS: Final = "Value error, "


class Commands(TyperGroup):
    """Command group whose help shows whole first sentences."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands for the help."""
        sections = SECTIONS if ctx.parent is None else {"Commands": tuple(self.commands)}
        for title, names in sections.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name, self.commands[name].get_short_help_str(_WHOLE)) for name in names]
                )

    def invoke(self, ctx: Any) -> Any:
        """Run a command. Remove the library's prefix from the error message about an invalid
        value."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix(_THE_LIBRARY_SAYS)
            raise


# --- the commands ---------------------------------------------------------------------------------

application = typer.Typer(
    name="tallyhook",
    cls=Commands,
    help="Receives a payment service's signed webhooks, keeps them, and explains what happened "
    "to every order's money.\n\n"
    "Settings are environment variables, or lines of the file that TALLYHOOK_CONFIG names. "
    "`tallyhook deploy show config` prints all of them.",
    epilog="Exit codes: 0 done; 1 done, and something is wrong; 2 usage; 3 "
    "configuration; 4 the store or the provider cannot be reached; 5 not found.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

GROUPS = {
    "audit": operators.audit_group,
    "bank": imports.bank_group,
    "breaks": breaks.breaks_group,
    "checkout": orders.checkout_group,
    "coverage": imports.coverage_group,
    "db": store.group,
    "deliveries": deliveries.group,
    "deploy": golive.deploy_group,
    "evidence": evidence.evidence_group,
    "fees": reconcile.fees_group,
    "golive": golive.golive_group,
    "late": breaks.late_group,
    "log": evidence.log_group,
    "mappings": imports.mappings_group,
    "notifications": orders.notifications_group,
    "operators": operators.operators_group,
    "orders": orders.orders_group,
    "unallocated": unallocated.unallocated_group,
    "period": report.period_group,
    "presets": imports.presets_group,
    "privacy": privacy.privacy_group,
    "profiles": connect.profiles_group,
    "proposals": operators.proposals_group,
    "reconcile": reconcile.group,
    "records": imports.records_group,
    "report": report.report_group,
    "schedule": report.schedule_group,
    "signature": connect.signature_group,
    "statement": imports.statement_group,
    "tokens": operators.tokens_group,
}


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"tallyhook {version('tallyhook')}")
        raise typer.Exit


@application.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    token_file: Annotated[
        Path | None,
        typer.Option(
            help="A file with your own token, so that the command acts in your name. Default: the "
            f"token in {running.BY_OWN}. `operators token` makes one."
        ),
    ] = None,
) -> None:
    """Declare the options of `tallyhook` itself."""
    running.GIVEN_FILE.set(token_file)


for module in (serving, store, privacy, golive, connect, local, imports):
    module.register(application)
cases.register()
for name, group in GROUPS.items():
    application.add_typer(group, name=name, cls=Commands)


def run(words: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    printing.show_what_lacks()
    try:
        code = _typed(words)
        sys.stdout.flush()
        return code
    except ConfigurationError as error:
        for problem in error.problems:
            printing.note(problem)
        return error.exit_code
    except TallyhookError as error:
        printing.note(f"tallyhook: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        return _unwritten(error)
    except Exception as error:
        if all(map(_is_text, words)) or not _is_of_a_text(error):
            return _unforeseen(error)
        printing.note("tallyhook: an argument is not valid UTF-8: type it again")
        return 2


def _is_of_a_text(error: BaseException) -> bool:
    seen = list[BaseException]()
    cause: BaseException | None = error
    while cause is not None and cause not in seen:  # an error may be raised from itself
        seen.append(cause)
        cause = getattr(cause, "orig", None) or cause.__cause__
    return any(isinstance(each, UnicodeEncodeError) for each in seen)


def application_for(words: Sequence[str]) -> typer.Typer:
    """Return an application with the first word's command, or all."""
    alone = copy(application)
    alone.registered_commands = [
        each
        for each in application.registered_commands
        if each.callback is not None and (each.name or each.callback.__name__) in words[:1]
    ]
    alone.registered_groups = [
        each for each in application.registered_groups if each.name in words[:1]
    ]
    return alone if alone.registered_commands or alone.registered_groups else application


def _typed(words: Sequence[str]) -> int:
    try:
        application_for(words)(list(words), prog_name="tallyhook")
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):
            raise end.__context__ from None
        # Typer would treat an interrupted question as one answered with no.
        stopped = end.__context__ and end.__context__.__context__
        if isinstance(stopped, KeyboardInterrupt):
            raise stopped from None
        return end.code if isinstance(end.code, int) else 0
    return 0


def _unwritten(error: OSError) -> int:
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # else it is tried once more at the end
    if isinstance(error, BrokenPipeError):
        return 0
    printing.note(f"tallyhook: reading or writing failed: {error.strerror or error}")
    return 1


def _unforeseen(error: Exception) -> int:
    """Report an internal error without its message, which can contain phone numbers."""
    from app.core.logs import class_and_places

    kind, places = class_and_places(error)
    printing.note(f"tallyhook: internal error. Report it with this line: {kind} at {places}")
    return 1


def _is_text(word: str) -> bool:
    return word.encode("utf-8", "replace").decode() == word
