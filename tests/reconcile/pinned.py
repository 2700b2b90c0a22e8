"""Pins what an engine gives for evidence that stays as it is: one line for each case, with digests.

Tables and laws say what must be so; a pin says that nothing else has changed: no amount, date,
cite, word or order of any part. `TALLYHOOK_GOLDEN=write` writes a pin anew; before you keep that,
read what changed, before and after: `.venv/bin/python -m tests.reconcile.test_pinned NAME` prints
it, and `tests.reconcile.test_match_pinned` for matchings. `same_text` holds a whole text to the
file that a person has read, in the same way.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

WRITE: Final = os.environ.get("TALLYHOOK_GOLDEN") == "write"
FOLDER: Final = Path(__file__).parent.parent / "golden"
DIGITS: Final = 8
"""Of each digest: a change that is not meant has no interest in matching them."""

ANOTHER_RESULT: Final = """
Equal evidence comes to something else. Where that is meant, read what changed, then write it anew
with TALLYHOOK_GOLDEN=write; and once since the last release raise the form of what has changed, so
that orders are folded again and closings name their rules: of folds `FORM` in
reconcile/ledger/policy.py, of matchings and reports `MATCHING_FORM` in
app/finance/closed_periods.py."""


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def check(name: str, found: Sequence[str]) -> None:
    """Raise AssertionError with the lines that changed, and what to do about it."""
    path = FOLDER / f"pinned_{name}.txt"
    if WRITE:
        path.write_text("\n".join(found) + "\n")
    pinned = path.read_text().splitlines()
    changed = sorted(set(found) ^ set(pinned))
    assert not changed, "\n".join([*changed, ANOTHER_RESULT])
    assert list(found) == pinned


def same_text(name: str, text: str) -> None:
    """Raise AssertionError unless the text equals the golden file to the byte."""
    path = FOLDER / name
    if WRITE:
        path.write_text(text, encoding="utf-8")
    assert path.read_bytes().decode() == text
