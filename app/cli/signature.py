"""`tallyhook signature check`: requests on standard input, one verdict a line."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

group = typer.Typer(help="Judge signatures without a service.", no_args_is_help=True)


@group.callback()
def signature() -> None:
    """Judge signatures without a service."""


@group.command(
    "check", epilog="Such as: tallyhook signature check --profile stripe < requests.jsonl"
)
def check(
    profile: Annotated[
        str | None, typer.Option(help="Profile of the lines that name none: a name, or a path.")
    ] = None,
) -> None:
    """Judge one request a line, each a JSON object, and print one verdict a line, in order.

    Exit code 0 whatever the verdicts are: they are the answer.
    """
    from app.core.clock import SystemClock
    from app.providers.check_signatures import check_lines, lines_of

    lines = lines_of(sys.stdin.buffer)
    for verdict in check_lines(lines, profile=profile, now=SystemClock().now()):
        # At once: whoever asks over a pipe waits for each answer.
        print(verdict, flush=True)
