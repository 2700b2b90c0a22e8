"""What other rules would change: two matchings of the same rows, compared.

Leaves out: running them. Each matching gives its decisions in the order of its keys, so the two
are compared as they come; only what differs is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from reconcile.match import Decision
from reconcile.values import frozen

Effect = Literal["newly_matched", "no_longer_matched", "new_break", "gone_break", "changed"]
"""newly_matched, no_longer_matched: a match that only the after (only the before) has.
new_break, gone_break: likewise a break. changed: the same identity with other money or facts."""


@frozen
class Change:
    """One difference between two matchings. `before` and `after`: what each says; one may be None,
    not both."""

    effect: Effect
    before: Decision | None
    after: Decision | None


def compare(before: Iterable[Decision], after: Iterable[Decision]) -> Iterator[Change]:
    """What the second matching says differently than the first, in the order of identities."""
    raise NotImplementedError
