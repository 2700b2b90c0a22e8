"""Tables in Markdown pages that are generated from the program."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import typer

from app.cli.main import SECTIONS, application
from app.config.example import example_text
from app.evidence.rendering import verifier_digest
from app.privacy.places import places_table

ROOMS: Final = Path(__file__).parents[1]
EXAMPLE: Final = ROOMS.parent / "config.example.env"


def command_table() -> str:
    """Return a Markdown table of all commands, in the order of `--help`."""
    commands: Any = typer.main.get_command(application)
    lines = ["Write `tallyhook` before each command:"]
    for names in SECTIONS.values():
        for name in names:
            lines += _rows(name, commands.commands[name])
    return "\n".join(lines) + "\n"


def _rows(path: str, command: Any) -> Iterator[str]:
    inner = getattr(command, "commands", {})
    if not inner or command.invoke_without_command:
        yield _row(path, command)
    for name in inner:
        yield from _rows(f"{path} {name}", inner[name])


def _row(path: str, command: Any) -> str:
    arguments = [
        p.metavar or p.name.upper() for p in command.params if p.param_type_name == "argument"
    ]
    return f"- `{' '.join([path, *arguments])}`: {command.get_short_help_str(1_000)}"


TABLES: Final[Mapping[str, Callable[[], str]]] = {
    "cli/README.md": command_table,
    "privacy/README.md": places_table,
}


def with_table(page: str, table: str) -> str:
    """Return the page with a new version of one table. Raise ValueError if the page lacks that
    table."""
    lines, rows = page.split("\n"), table.rstrip("\n").split("\n")
    begin = lines.index(rows[0])
    end = next((n for n in range(begin, len(lines)) if not lines[n]), len(lines))
    return "\n".join([*lines[:begin], *rows, *lines[end:]])


if __name__ == "__main__":
    for name, table in TABLES.items():
        path = ROOMS / name
        path.write_text(with_table(path.read_text("utf-8"), table()), "utf-8")
    EXAMPLE.write_text(example_text(), "utf-8")
    (ROOMS / "evidence" / "verify.sha256").write_text(verifier_digest(), "utf-8")
