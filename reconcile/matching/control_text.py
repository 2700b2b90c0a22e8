"""Control totals as text, to be kept with their run and read again."""

from __future__ import annotations

import json
from dataclasses import asdict

from reconcile.matching.control import BreakTotal, Control, ControlLine, Read


def control_text(control: Control) -> str:
    """As JSON that `control_in` reads again."""
    return json.dumps(asdict(control), separators=(",", ":"))


def control_in(text: str) -> Control:
    """The totals that `control_text` wrote."""
    given = json.loads(text)
    return Control(
        as_of=given["as_of"],
        lines=tuple(ControlLine(**each) for each in given["lines"]),
        read=tuple(Read(**each) for each in given["read"]),
        breaks=tuple(BreakTotal(**each) for each in given["breaks"]),
        unsearched=given["unsearched"],
    )
