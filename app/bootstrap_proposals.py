"""Wiring of proposals: which acts may need a second person. A new kind is one line of
`proposals_of`; what it is stands in the room that owns the act."""

from __future__ import annotations

from collections.abc import Mapping

from app.access.proposals import ProposalKind, Proposals
from app.bootstrap_privacy import sealer
from app.bootstrap_sources import compile_sources
from app.config.settings import Settings
from app.finance.break_acts import acceptance_kind
from app.finance.close_period import closing_kind
from app.finance.match_rules import rules_kind
from app.finance.withdraw_import import withdrawal_kind
from app.orders.unmask_many import unmasking_kind
from app.privacy.erase import erasure_kind
from app.privacy.erase_rules import ErasureRules
from app.providers.source import Source
from app.receiving.context import AppContext


def proposals_of(
    context: AppContext, settings: Settings, *, sources: Mapping[str, Source] | None = None
) -> Proposals:
    """The proposals of a database, with every kind that there is.

    sources  as `compile_sources` gives them; None: they are compiled here. Raises
             ConfigurationError for a wrong one
    """
    found = compile_sources(settings) if sources is None else sources
    return Proposals(
        context,
        (
            acceptance_kind(context),
            rules_kind(context),
            closing_kind(context, sources=found),
            erasing_kind(context, settings, sources=found),
            withdrawal_kind(context),
            unmasking_kind(context),
        ),
    )


def erasing_kind(
    context: AppContext, settings: Settings, *, sources: Mapping[str, Source]
) -> ProposalKind:
    """Of erasures, which the command proposes, too."""
    return erasure_kind(
        context,
        sources=sources,
        rules=ErasureRules.of_days(settings.retention_minimum_days),
        seal=sealer(context, settings),
    )
