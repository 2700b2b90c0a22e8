"""Commands that report: a period for people and programs, and its money as a journal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from app.cli.output import measure, note, progress
from app.errors import UsageError

if TYPE_CHECKING:
    from app.config import Settings
    from app.operations.desk import Desk
    from reconcile.instants import Instant
    from reconcile.report import Basis, Scope

group = typer.Typer(help="What became of a period's orders and money.", no_args_is_help=True)
