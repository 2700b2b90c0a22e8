"""Combine similar findings, attempts and ids into one sentence where there are many.

Leaves out: the words of findings and reasons, which are in `vocabulary`. A ledger lists each
finding and attempt separately. Code that shows them to a reader calls `grouped` or
`grouped_reasons` first.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from reconcile.ledger.ledger import Attempt, Facts, FactValue, Finding, Reason
from reconcile.ledger.vocabulary import MANY

ONE_BY_ONE: Final = 3
"""Most findings of one code that get a sentence each."""

NAMED: Final = 8
"""Most ids that a sentence names. The JSON document has all of them."""

NAMED_CHARACTERS: Final = 240
"""Most characters of ids in a sentence. Keeps a row of a list below about 1 KB."""

ALIKE: Final = "alike"
"""Name of the fact that counts the combined findings or reasons."""


def some(values: Sequence[str], *, most: int = NAMED) -> str:
    """Join at most `most` texts, and only as many as fit into NAMED_CHARACTERS. If some texts are
    left out, append their number."""
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
    """Yield the items in groups. If more than ONE_BY_ONE items share a code, they form one group at
    the place of the first such item. Every other item is a group of its own."""
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
    """Combine the findings of each code that has more than ONE_BY_ONE findings."""
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
    """Return the reasons why attempts ended, as pairs of attempt references and a reason.

    Usually each pair has one attempt. But if more than ONE_BY_ONE attempts ended for reasons with
    the same code, these attempts share one pair.
    """
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

    For numbers and deadlines, keep the largest value. For other instants, keep the first value, and
    add the last value as `last_…`. Join up to ONE_BY_ONE texts. Omit amounts that differ.
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
