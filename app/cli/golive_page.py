"""The go-live checklist as one page for printing: no scripts, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from reconcile.instants import Instant, format_instant

_WORDS: Final = {"passed": "✓ passed", "failed": "✗ failed", "to_sign": "☐ to sign"}

_STYLE: Final = """
body { font: 11pt/1.4 system-ui, sans-serif; max-width: 48rem; margin: 2rem auto; color: #111 }
table { border-collapse: collapse; width: 100% }
td, th { border-top: 1px solid #999; padding: .4rem .6rem .4rem 0; text-align: left;
  vertical-align: top; overflow-wrap: anywhere }
small { color: #444 }
@page { margin: 18mm }
"""


def page_of(rows: Sequence[Mapping[str, Any]], *, environment: str, at: Instant) -> str:
    """The list as HTML; `rows` as `Item.document` makes them."""
    complete = all(row["state"] == "passed" for row in rows)
    verdict = "Complete." if complete else "Not complete: no real money should move yet."
    lines = "\n".join(_line(row) for row in rows)
    return f"""<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>Going live: the checklist</title>
<style>{_STYLE}</style>
<h1>Going live: the checklist</h1>
<p>Environment {escape(environment)}, as of {format_instant(at)}. <strong>{verdict}</strong></p>
<table>
<tr><th>Item<th>State<th>Why
{lines}
</table>
</html>
"""


def _line(row: Mapping[str, Any]) -> str:
    signed = ""
    if row["by"] is not None:
        signed = f"<br><small>{escape(row['by'])}, {escape(row['at'])}</small>"
    said = f"<br>“{escape(row['note'])}”" if row["note"] else ""
    item = escape(row["item"].replace("_", " "))
    return f"<tr><td>{item}<td>{_WORDS[row['state']]}{signed}<td>{escape(row['sentence'])}{said}"
