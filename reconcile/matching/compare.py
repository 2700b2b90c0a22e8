"""What other rules would change: two matchings of the same rows, compared.

Leaves out: running them. The two are read side by side and what both say is forgotten at once, so
memory grows with what differs and with how far apart the two tell the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Literal

from reconcile.matching.judge import Decision, Match
from reconcile.money import Money
from reconcile.values import frozen

Effect = Literal["newly_matched", "no_longer_matched", "new_break", "gone_break", "changed"]
"""newly_matched, no_longer_matched: a match that only the after (only the before) has.
new_break, gone_break: likewise a break. changed: the same identity with other money, since, facts,
cites or candidates. Plain matches are not told, so one that begins to break shows as new_break
alone, and one that ceases to as gone_break alone."""


@frozen
class Change:
    """One difference between two matchings. `before` and `after`: what each says; one may be None,
    not both."""

    effect: Effect
    before: Decision | None
    after: Decision | None

    @property
    def identity(self) -> str:
        """That of the match or break."""
        return self._told.identity

    @property
    def money(self) -> Money:
        """What is matched or at stake, as the after says, else as the before did."""
        return self._told.money

    @property
    def _told(self) -> Decision:
        told = self.before if self.after is None else self.after
        assert told is not None
        return told


def compare(before: Iterable[Decision], after: Iterable[Decision]) -> Iterator[Change]:
    """What the second matching says differently: what changed first, as it is met, then what only
    one of them says, in the order of identities."""
    olds: dict[str, Decision] = {}
    news: dict[str, Decision] = {}
    for old, new in zip_longest(before, after):
        if old is not None:
            yield from _met(old, own=olds, others=news, new=False)
        if new is not None:
            yield from _met(new, own=news, others=olds, new=True)
    yield from (_alone(told, new=False) for _, told in sorted(olds.items()))
    yield from (_alone(told, new=True) for _, told in sorted(news.items()))


def _met(
    told: Decision, *, own: dict[str, Decision], others: dict[str, Decision], new: bool
) -> Iterator[Change]:
    other = others.pop(told.identity, None)
    if other is None:
        own[told.identity] = told
    elif other != told:
        before, after = (other, told) if new else (told, other)
        yield Change(effect="changed", before=before, after=after)


def _alone(told: Decision, *, new: bool) -> Change:
    if new:
        effect: Effect = "newly_matched" if isinstance(told, Match) else "new_break"
        return Change(effect=effect, before=None, after=told)
    effect = "no_longer_matched" if isinstance(told, Match) else "gone_break"
    return Change(effect=effect, before=told, after=None)
