"""Figures beside their bars, shown as a table and written as JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from tests.bench.sizes import Bar

BOUNDS = 3
"""Lines of a profile that are printed for a missed bar."""

_SIGNS = {"at least": "≥", "at most": "≤"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured value beside its bar.

    bar      None if nothing is promised
    checks   sentences that must be true for the value to mean anything
    details  what else was measured, by name
    """

    name: str
    value: float
    unit: str
    bar: Bar | None = None
    checks: Mapping[str, bool] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Return whether the value meets its bar and every check is true."""
        return self.verdict in ("", "held", "goal")

    @property
    def verdict(self) -> str:
        """Return the table's verdict on the value."""
        if not all(self.checks.values()):
            return "VOID"
        if self.bar is None:
            return ""
        if self.bar.goal is not None and self.bar.met(self.value, self.bar.goal):
            return "goal"
        return "held" if self.bar.met(self.value, self.bar.value) else "MISSED"

    def document(self) -> dict[str, Any]:
        """Return the figure as JSON values."""
        details = dict(self.details)
        if self.bar is not None:
            details |= {"bar_means": self.bar.sense, "goal": self.bar.goal}
        if self.checks:
            details["checks"] = dict(self.checks)
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "bar": self.bar and self.bar.value,
            "holds": self.holds,
            "details": details,
        }


def number(value: object) -> str:
    """Format a number with as many digits as a reader can use; anything else with `str`."""
    if isinstance(value, list | tuple):
        return ", ".join(map(number, value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 1000 else f"{value:,.3g}"


def write_json(path: Path, figures: Sequence[Figure]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    documents = [figure.document() for figure in figures]
    path.write_text(json.dumps(documents, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def print_facts(console: Console, title: str, facts: Mapping[str, object]) -> None:
    console.print(title, style="bold")
    for name, value in facts.items():
        console.print(f"  {name}: {number(value)}", highlight=False, markup=False)


def print_figures(console: Console, figures: Sequence[Figure]) -> None:
    """Print the table, what bounds each missed figure, then checks and details of all."""
    table = Table(box=box.MARKDOWN)
    for column in ("figure", "value", "unit", "bar", "goal", "verdict"):
        right = column in ("value", "bar", "goal")
        table.add_column(column, justify="right" if right else "left")
    for figure in figures:
        sign = "" if figure.bar is None else _SIGNS[figure.bar.sense]
        given = (None, None) if figure.bar is None else (figure.bar.value, figure.bar.goal)
        bars = ["" if each is None else f"{sign} {number(each)}" for each in given]
        table.add_row(figure.name, number(figure.value), figure.unit, *bars, figure.verdict)
    console.print(table)
    bounds = {
        figure.name: ", ".join(figure.details["profile"][:BOUNDS])
        for figure in figures
        if figure.verdict == "MISSED" and "profile" in figure.details
    }
    if bounds:
        print_facts(console, "what bounds it", bounds)
    for figure in figures:
        checked = {each: "yes" if true else "NO" for each, true in figure.checks.items()}
        print_facts(console, figure.name, {**checked, **figure.details})
