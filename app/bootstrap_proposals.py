"""Wiring of proposals: which acts may need a second person. A new kind is one line of
`proposals_of`; what it is stands in the room that owns the act."""

from __future__ import annotations

from collections.abc import Mapping

from app.access.proposals import Proposals
from app.finance.break_acts import acceptance_kind
from app.finance.close_period import closing_kind
from app.finance.match_rules import rules_kind
from app.providers.source import Source
from app.receiving.context import AppContext


def proposals_of(context: AppContext, *, sources: Mapping[str, Source]) -> Proposals:
    """The proposals of a database, with every kind that there is."""
    return Proposals(
        context,
        (
            acceptance_kind(context),
            rules_kind(context),
            closing_kind(context, sources=sources),
        ),
    )
