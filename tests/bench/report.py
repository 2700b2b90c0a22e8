"""Figures, their bars, and the two forms they are shown in: a table and a JSON file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from rich import box
from rich.console import Console
from rich.table import Table

Sense = Literal["at least", "at most"]
_SIGNS: Mapping[Sense, str] = {"at least": "≥", "at most": "≤"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured value beside its bar.

    bar      what the value must reach; None where nothing is promised
    checks   what must be true for the value to mean anything, each a sentence and whether it is
    details  what else was seen, by name
    """

    name: str
    value: float
    unit: str
    bar: float | None = None
    sense: Sense = "at least"
    checks: Mapping[str, bool] = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """The bar is met and every check is true. A speed of wrong answers holds nothing."""
        return self._meets_bar() and all(self.checks.values())

    def _meets_bar(self) -> bool:
        if self.bar is None:
            return True
        return self.value >= self.bar if self.sense == "at least" else self.value <= self.bar

    def document(self) -> dict[str, Any]:
        """The figure as JSON values."""
        details = dict(self.details)
        if self.bar is not None:
            details["bar_means"] = self.sense
        if self.checks:
            details["checks"] = dict(self.checks)
        return {
            "name": self.name,
            "value": self.value,
            "unit": self.unit,
            "bar": self.bar,
            "holds": self.holds,
            "details": details,
        }

    def bar_text(self) -> str:
        """`≥ 0.45`, or nothing."""
        return "" if self.bar is None else f"{_SIGNS[self.sense]} {number(self.bar)}"


def number(value: object) -> str:
    """A number with as many digits as a reader can use; anything else as it is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,.0f}" if isinstance(value, int) or abs(value) >= 1000 else f"{value:,.3g}"


def write_json(path: Path, figures: Sequence[Figure]) -> None:
    """The list of all figures, as the interface has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    documents = [figure.document() for figure in figures]
    path.write_text(json.dumps(documents, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def print_facts(console: Console, title: str, facts: Mapping[str, object]) -> None:
    """Names and values under a title: the machine, the settings."""
    console.print(title, style="bold")
    for name, value in facts.items():
        console.print(f"  {name}: {number(value)}", highlight=False, markup=False)


def print_figures(console: Console, figures: Sequence[Figure]) -> None:
    """The table, then below it what each figure rests on: correctness beside speed."""
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("figure", "value", "unit", "bar", "holds"):
        table.add_column(column, justify="right" if column in ("value", "bar") else "left")
    for figure in figures:
        value, bar = number(figure.value), figure.bar_text()
        table.add_row(figure.name, value, figure.unit, bar, "yes" if figure.holds else "NO")
    console.print(table)
    for figure in figures:
        checked = {sentence: _word(true) for sentence, true in figure.checks.items()}
        print_facts(console, figure.name, {**checked, **figure.details})


def _word(true: bool) -> str:
    return "yes" if true else "NO"
