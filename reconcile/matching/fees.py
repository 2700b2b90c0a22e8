"""Suggest fee rules that explain the fees of statement lines."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Final, NamedTuple

from reconcile.matching.rules import ExpectedFee

LEAST: Final = 3
"""Minimum number of lines that a fee rule must explain."""

GRIDS: Final = (1_000, 500, 100)
"""Precisions of a fee's percentage, in parts per million, the roughest first."""

MOST_VALUES: Final = 300
"""Maximum number of values of a detail for fee rules."""


SAMPLE: Final = 2_000
"""Maximum number of lines from which fee rules are derived."""


class FeeLine(NamedTuple):
    """Payment in a statement with its fee: gross and fee in minor units, and details as JSON."""

    source: str
    currency: str
    gross: int
    fee: int
    details: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestedFee:
    """Suggested fee rule, with the evidence for it."""

    rule: ExpectedFee
    lines: int
    """Number of lines to which the rule applies, because no earlier rule does."""
    exact: int
    """Number of these lines whose fee the rule explains exactly."""


Group = list[FeeLine]
Tariff = tuple[int, int]
"""Percentage in parts per million, and a fixed part in minor units."""


def suggested_fees(lines: Iterable[FeeLine]) -> list[SuggestedFee]:
    """Return suggested fee rules for each source and currency, the general rule last."""
    groups: dict[tuple[str, str], Group] = defaultdict(list)
    for line in lines:
        groups[line.source, line.currency].append(line)
    found: list[SuggestedFee] = []
    for (source, currency), group in sorted(groups.items()):
        rules = [
            ExpectedFee(source=source, currency=currency, per_million=p, fixed=f, where=where)
            for where, (p, f) in _rules_of(group[:: -(-len(group) // SAMPLE)])
        ]
        first = Counter[ExpectedFee]()
        exact = Counter[ExpectedFee]()
        for line in group:
            rule = next((each for each in rules if each.fits(line.details)), None)
            if rule is not None:
                first[rule] += 1
                exact[rule] += line.fee == rule.of(line.gross)
        found += [
            SuggestedFee(rule=rule, lines=first[rule], exact=exact[rule])
            for rule in rules
            if first[rule]
        ]
    return found


Where = tuple[tuple[str, tuple[str, ...]], ...]


def _rules_of(lines: Group) -> list[tuple[Where, Tariff]]:
    stated = [json.loads(line.details) if line.details else {} for line in lines]
    values = {name: {each.get(name, "") for each in stated} for each in stated for name in each}
    names = sorted(name for name, found in values.items() if 1 < len(found) <= MOST_VALUES)
    best: tuple[int, tuple[str, ...], dict[tuple[str, ...], tuple[int, Tariff]]] = (0, (), {})
    for count in range(len(names) + 1):
        for chosen in combinations(names, count):
            groups: dict[tuple[str, ...], Group] = defaultdict(list)
            for line, details in zip(lines, stated, strict=True):
                groups[tuple([details.get(name, "") for name in chosen])].append(line)
            found = [(key, _tariff(group)) for key, group in groups.items()]
            fitted = {key: each for key, each in found if each is not None}
            explained = sum(exact for exact, _ in fitted.values())
            if explained > best[0]:
                best = explained, chosen, fitted
        if best[0] == len(lines):
            break
    _, chosen, tariffs = best
    weights = Counter[Tariff]()
    for exact, tariff in tariffs.values():
        weights[tariff] += exact
    # The general tariff explains most lines of groups that are too small for a tariff of their own.
    sets = [_together(chosen, tariffs, each) for each, _ in weights.most_common(MOST_GENERAL)]
    return max(sets, key=lambda rules: _explained(rules, lines), default=[])


def _explained(rules: list[tuple[Where, Tariff]], lines: Group) -> int:
    made = [
        ExpectedFee(source="", currency="", per_million=p, fixed=f, where=where)
        for where, (p, f) in rules
    ]
    first = [next(each for each in made if each.fits(line.details)) for line in lines]
    return sum(line.fee == rule.of(line.gross) for line, rule in zip(lines, first, strict=True))


MOST_GENERAL: Final = 5
"""Maximum number of tariffs tried as the general rule."""


def _together(
    names: tuple[str, ...],
    tariffs: dict[tuple[str, ...], tuple[int, Tariff]],
    general: Tariff,
) -> list[tuple[Where, Tariff]]:
    joined: dict[tuple[tuple[str, ...], Tariff], list[str]] = defaultdict(list)
    for key, (_, tariff) in sorted(tariffs.items()):
        if tariff != general:
            joined[key[:-1], tariff].append(key[-1])
    special: list[tuple[Where, Tariff]] = [
        (tuple(zip(names, [*((each,) for each in before), tuple(last)], strict=True)), tariff)
        for (before, tariff), last in joined.items()
    ]
    return [*special, ((), general)]


def _tariff(lines: Group) -> tuple[int, Tariff] | None:
    points = sorted((line.gross, line.fee) for line in lines)
    pairs = zip(points, points[len(points) // 2 :], strict=False)
    slopes = sorted(
        Fraction(high[1] - low[1], high[0] - low[0]) for low, high in pairs if high[0] > low[0]
    )
    found: list[tuple[int, Tariff]] = []
    for per_million in _near(slopes) if slopes else ():
        rule = ExpectedFee(source="", currency="", per_million=per_million)
        rest = Counter(fee - rule.of(gross) for gross, fee in points)
        fixed, exact = min(rest.items(), key=lambda each: (-each[1], abs(each[0])))
        found.append((exact, (per_million, fixed)))
    best = max(found, key=lambda each: each[0], default=None)
    return best if best and best[0] >= LEAST and best[1][1] >= 0 else None


def _near(slopes: Sequence[Fraction]) -> Iterator[int]:
    for grid in GRIDS:
        steps = [round(slope * (1_000_000 // grid)) for slope in slopes]
        middle = steps[len(steps) // 2]
        near = [middle - 1, middle, middle + 1]
        near += [step for step, _ in Counter(steps).most_common(3)]
        for step in dict.fromkeys(near):
            if 0 <= step * grid <= 1_000_000:
                yield step * grid
