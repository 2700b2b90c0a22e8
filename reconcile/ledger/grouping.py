"""Combine many similar findings, attempts or ids into one sentence."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from reconcile.ledger.ledger import Attempt, Facts, FactValue, Finding, Reason
from reconcile.ledger.vocabulary import MANY

ONE_BY_ONE: Final = 3
"""Maximum number of findings with one code that get a sentence each."""

NAMED: Final = 8
"""Maximum number of ids that a sentence names. The JSON document has all ids."""

NAMED_CHARACTERS: Final = 240
"""Maximum number of characters for the ids in a sentence."""

ALIKE: Final = "alike"


def some(values: Sequence[str], *, most: int = NAMED) -> str:
    """Join the first texts, and append how many are missing."""
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
    """Combine findings with equal codes if there are more than ONE_BY_ONE of them."""
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
    """Combine attempts that ended for similar reasons."""
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
    """Merge the facts of several findings, so that each name has one value.

    Different amounts are left out.
    """
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
