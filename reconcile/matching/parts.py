"""Find the statement line for each captured part."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from reconcile.matching.funds import Capture
from reconcile.matching.rows import StatementRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Parted:
    """Captured parts of a payment and statement lines, paired by amount."""

    pairs: tuple[tuple[Capture, StatementRow], ...]
    """Pairs of a part and a line with equal amounts."""
    captures: tuple[Capture, ...]
    """Parts without a line, in the order given."""
    lines: tuple[StatementRow, ...]
    """Lines without a part, in the order given."""
    adds_up: bool
    """True if `captures` and `lines` have equal sums."""


def are_parts(captures: Sequence[Capture]) -> bool:
    """Check whether these are several captures of one payment of one order."""
    return len(captures) > 1 and len({capture[:4] for capture in captures}) == 1


def parted(captures: Sequence[Capture], lines: Sequence[StatementRow]) -> Parted:
    """Pair each statement line with a part of equal amount."""
    by_sum: dict[tuple[str, int], list[StatementRow]] = defaultdict(list)
    for line in lines:
        by_sum[line.currency, line.gross].append(line)
    pairs: list[tuple[Capture, StatementRow]] = []
    for (currency, minor), alike in by_sum.items():
        of_sum = [each for each in captures if (each.currency, each.minor) == (currency, minor)]
        if len(alike) <= len(of_sum):
            pairs += zip(sorted(of_sum, key=lambda each: (each.at, each.part)), alike, strict=False)
    paired, done = {capture for capture, _ in pairs}, {line.line_id for _, line in pairs}
    left = [each for each in captures if each not in paired]
    over = [line for line in lines if line.line_id not in done]
    currencies = {each.currency for each in left} | {line.currency for line in over}
    sums_agree = sum([each.minor for each in left]) == sum([line.gross for line in over])
    adds_up = bool(over) and len(currencies) == 1 and sums_agree
    if adds_up and not left:
        return Parted(pairs=(), captures=tuple(captures), lines=tuple(lines), adds_up=True)
    return Parted(pairs=tuple(pairs), captures=tuple(left), lines=tuple(over), adds_up=adds_up)
