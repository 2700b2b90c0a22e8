"""How commands are listed by `--help`, and how a word that does not fit is told."""

from __future__ import annotations

from typing import Any, Final

import typer
from typer.core import TyperGroup

SECTIONS: Final = {
    "Run it": ("serve", "worker", "console", "sandbox", "demo"),
    "Go live": ("deploy", "doctor", "rehearse", "golive", "tokens", "operators", "proposals"),
    "Orders and payments": ("orders", "deliveries", "checkout", "notifications"),
    "Providers": ("connect", "trigger", "listen", "profiles", "signature"),
    "Finance": (
        "records",
        "statement",
        "bank",
        "presets",
        "reconcile",
        "breaks",
        "late",
        "report",
        "period",
        "schedule",
    ),
    "Evidence and personal data": ("evidence", "log", "audit", "erase"),
    "The store": ("db", "backup", "restore", "prune", "prove", "refold", "reindex"),
}
"""The commands of `tallyhook --help`: those of one person's work together, in their order."""

_WHOLE: Final = 1_000
"""Characters of a first sentence at most: more than any has, so that none is cut."""

_THE_LIBRARY_SAYS: Final = "Value error, "


class Commands(TyperGroup):
    """A group that lists its commands with their whole first sentences."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands; where there are many, in sections."""
        sections = SECTIONS if ctx.parent is None else {"Commands": tuple(self.commands)}
        for title, names in sections.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name, self.commands[name].get_short_help_str(_WHOLE)) for name in names]
                )

    def invoke(self, ctx: Any) -> Any:
        """Run a command; a value that does not fit is told without the library's words for it."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix(_THE_LIBRARY_SAYS)
            raise
