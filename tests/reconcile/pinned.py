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
"""Hex digits kept of each digest. They suffice, as nobody tries to forge a match."""

ANOTHER_RESULT: Final = """
Where that is meant, read each line, then write the pin anew with TALLYHOOK_GOLDEN=write. For
changed lines also raise a form, so that orders are folded again and closings name their rules: of
folds `FORM` in reconcile/ledger/policy.py, which says when, of matchings and reports
`MATCHING_FORM` in app/finance/closed_periods.py."""


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def check(name: str, found: Sequence[str]) -> None:
    """Raise AssertionError with the cases that are new, gone or changed, and what to do."""
    path = FOLDER / f"pinned_{name}.txt"
    if WRITE:
        path.write_text("\n".join(found) + "\n")
    pinned = path.read_text().splitlines()
    was, now = (dict(line.rpartition(" | ")[::2] for line in lines) for lines in (pinned, found))
    said = [
        f"{word} in {path.name}: {case}"
        for word, cases in (
            ("new", now.keys() - was.keys()),
            ("gone", was.keys() - now.keys()),
            ("changed", {case for case in now.keys() & was.keys() if now[case] != was[case]}),
        )
        for case in sorted(cases)
    ]
    assert not said, "\n".join([*said, ANOTHER_RESULT])
    assert list(found) == pinned


def same_text(name: str, text: str) -> None:
    """Raise AssertionError unless the text equals the golden file to the byte."""
    path = FOLDER / name
    if WRITE:
        path.write_text(text, encoding="utf-8")
    assert path.read_bytes().decode() == text
