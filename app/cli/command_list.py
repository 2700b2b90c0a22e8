"""Command reference in Markdown: `python -m app.cli.command_list` prints the table of README.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from app.cli.help import SECTIONS
from app.cli.main import application


def command_table() -> str:
    """Every command in the order of `--help`: its arguments, its options, its first sentence."""
    commands: Any = typer.main.get_command(application)
    lines = ["| command | options | what it does |", "|---|---|---|"]
    for names in SECTIONS.values():
        for name in names:
            lines += _rows(f"tallyhook {name}", commands.commands[name])
    return "\n".join(lines) + "\n"


def _rows(path: str, command: Any) -> Iterator[str]:
    inner = getattr(command, "commands", {})
    if not inner or command.invoke_without_command:
        yield _row(path, command)
    for name in inner:
        yield from _rows(f"{path} {name}", inner[name])


def _row(path: str, command: Any) -> str:
    shown = [p for p in command.params if not getattr(p, "hidden", False)]
    arguments = [p.metavar or p.name.upper() for p in shown if p.param_type_name == "argument"]
    options = [f"`{p.opts[0]}`" for p in shown if p.param_type_name == "option"]
    sentence = command.get_short_help_str(1_000).replace("|", "\\|")
    return f"| `{' '.join([path, *arguments])}` | {' '.join(options)} | {sentence} |"


if __name__ == "__main__":
    print(command_table(), end="")
