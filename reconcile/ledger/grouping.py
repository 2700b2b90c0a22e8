"""Many that are alike, told as one: findings of one code, attempts that ended alike, ids.

Leaves out: the words of findings and reasons, which `vocabulary` has. A ledger itself has each
finding and attempt by itself; who tells it to a reader calls `grouped` or `grouped_reasons` first.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from reconcile.ledger.ledger import Attempt, Facts, FactValue, Finding, Reason
from reconcile.ledger.vocabulary import MANY

ONE_BY_ONE: Final = 3
"""Findings of one code that are told one by one: so few sentences can be read."""

NAMED: Final = 8
"""Ids that a sentence names; the JSON document has all of them."""

NAMED_CHARACTERS: Final = 240
"""Characters of the ids that a sentence names, so that a row of a list has at most about 1 KB."""

ALIKE: Final = "alike"
"""Fact of a finding or reason that stands for several: how many they are."""


def some(values: Sequence[str], *, most: int = NAMED) -> str:
    """Join texts, and write how many more there are than `most`, or than fit NAMED_CHARACTERS."""
    shown: list[str] = []
    left = NAMED_CHARACTERS
    for each in values[:most]:
        left -= len(each)
        if shown and left < 0:
            break
        shown.append(each)
    more = len(values) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


Each = TypeVar("Each")


def _alike(each: Sequence[Each], code: Callable[[Each], str]) -> Iterator[list[Each]]:
    """Yield items one by one; of more than ONE_BY_ONE items with one code, yield all together in
    the place of the first."""
    by_code: dict[str, list[Each]] = {}
    for one in each:
        by_code.setdefault(code(one), []).append(one)
    for one in each:
        same = by_code[code(one)]
        if len(same) > ONE_BY_ONE:
            by_code[code(one)] = []
            yield same
        elif same:
            yield [one]


def grouped(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Join the findings of a code where there are more than ONE_BY_ONE."""
    found: list[Finding] = []
    for same in _alike(findings, lambda each: each.code):
        first = same[0]
        if len(same) > 1:
            facts = joined([each.facts for each in same]) if first.code in MANY else first.facts
            cites = tuple(dict.fromkeys([cite for each in same for cite in each.cites]))
            first = Finding(code=first.code, cites=cites, facts=((ALIKE, len(same)), *facts))
        found.append(first)
    return tuple(found)


def grouped_reasons(attempts: Sequence[Attempt]) -> list[tuple[list[str], Reason]]:
    """Return references of attempts and why they ended so: one each, or all that ended alike where
    they are more than ONE_BY_ONE."""
    found: list[tuple[list[str], Reason]] = []
    for same in _alike(attempts, lambda each: each.reason.code):
        reason = same[0].reason
        if len(same) > 1:
            cites = tuple(dict.fromkeys([cite for each in same for cite in each.reason.cites]))
            facts = joined([each.reason.facts for each in same])
            reason = Reason(code=reason.code, cites=cites, facts=facts)
        found.append(([each.reference for each in same], reason))
    return found


def joined(each: Sequence[Facts]) -> Facts:
    """Return joint facts of several findings, by name: the largest number or deadline; the first of
    other instants and, as `last_…`, the last; some texts. Differing amounts are left out."""
    values: dict[str, dict[FactValue, None]] = {}
    for facts in each:
        for name, value in facts:
            values.setdefault(name, {})[value] = None
    found: dict[str, FactValue] = {}
    for name, distinct in values.items():
        known = [value for value in distinct if value is not None]
        numbers = [value for value in known if isinstance(value, int)]
        if known and len(numbers) == len(known):
            dated = name.endswith("_at") and name != "deadline_at"
            found[name] = min(numbers) if dated else max(numbers)
            if dated:
                found[f"last_{name}"] = max(numbers)
        elif len(distinct) == 1:
            found[name] = next(iter(distinct))
        elif all(isinstance(value, str) for value in known):
            found[name] = some([str(value) for value in known], most=ONE_BY_ONE)
    return tuple(found.items())
