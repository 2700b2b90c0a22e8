"""Payments that were captured in several parts: which statement line is of which part.

Leaves out: what becomes of either. Parts of one payment and one amount are exchangeable: which line
is of which may be wrong, what is missing and what is too much never is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from reconcile.matching.funds import Capture
from reconcile.matching.rows import StatementRow
from reconcile.values import frozen


@frozen
class Parted:
    """pairs: of one amount each; and the parts and lines that are left, in the order given.

    adds_up  whether there are both, and together they are one sum
    """

    pairs: tuple[tuple[Capture, StatementRow], ...]
    captures: tuple[Capture, ...]
    lines: tuple[StatementRow, ...]
    adds_up: bool


def are_parts(captures: Sequence[Capture]) -> bool:
    """Whether these are several captures of one payment of one order."""
    return len(captures) > 1 and len({capture[:4] for capture in captures}) == 1


def parted(captures: Sequence[Capture], lines: Sequence[StatementRow]) -> Parted:
    """Each line with a part of its amount, the earliest first. Where there are more lines of one
    amount than parts, nobody can say which of them are meant, and none is paired. Lines that are
    of none, and add up to nothing, correct the others: then all of them are one sum."""
    pairs = _pairs(captures, lines)
    paired, done = {capture for capture, _ in pairs}, {line.line_id for _, line in pairs}
    left = [each for each in captures if each not in paired]
    over = [line for line in lines if line.line_id not in done]
    adds_up = bool(over) and _is_one_sum(left, over)
    if adds_up and not left:
        return Parted(pairs=(), captures=tuple(captures), lines=tuple(lines), adds_up=True)
    return Parted(pairs=pairs, captures=tuple(left), lines=tuple(over), adds_up=adds_up)


def _pairs(
    captures: Sequence[Capture], lines: Sequence[StatementRow]
) -> tuple[tuple[Capture, StatementRow], ...]:
    by_sum: dict[tuple[str, int], list[StatementRow]] = defaultdict(list)
    for line in lines:
        by_sum[line.currency, line.gross].append(line)
    pairs: list[tuple[Capture, StatementRow]] = []
    for (currency, minor), alike in by_sum.items():
        of_sum = [each for each in captures if (each.currency, each.minor) == (currency, minor)]
        if len(alike) <= len(of_sum):
            pairs += zip(sorted(of_sum, key=_by_date), alike, strict=False)
    return tuple(pairs)


def _is_one_sum(captures: Sequence[Capture], lines: Sequence[StatementRow]) -> bool:
    currencies = {each.currency for each in captures} | {line.currency for line in lines}
    captured = sum([each.minor for each in captures])
    return len(currencies) == 1 and captured == sum([line.gross for line in lines])


def _by_date(capture: Capture) -> tuple[int, str]:
    return capture.at, capture.part
