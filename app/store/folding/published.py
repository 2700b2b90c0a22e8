"""One published revision, as the outcome feed and the shop's notifications show it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from reconcile.instants import Instant

PUBLISHED_COLUMNS: Final = (
    "seq",
    "order_key",
    "at",
    "outcome",
    "fulfillable",
    "before_outcome",
    "before_fulfillable",
    "because",
)
"""The columns of `revisions` that make one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """One revision as the feed shows it. `seq` is its place in publishing order, from 1."""

    seq: int
    order: str
    at: Instant
    outcome: str
    fulfillable: bool
    before_outcome: str | None
    before_fulfillable: bool | None
    because: tuple[str, ...]


def published_of(row: Sequence[Any]) -> Published:
    """The revision in a row of PUBLISHED_COLUMNS."""
    return Published(
        seq=row[0],
        order=row[1],
        at=row[2],
        outcome=row[3],
        fulfillable=bool(row[4]),
        before_outcome=row[5],
        before_fulfillable=None if row[6] is None else bool(row[6]),
        because=tuple(json.loads(row[7])),
    )
