"""Wiring of proposals: which acts may need a second person. A new kind is one line of
`proposals_of`; what it is stands in the room that owns the act."""

from __future__ import annotations

from app.access.proposals import ProposalKind, Proposals
from app.bootstrap_privacy import sealer
from app.bootstrap_sources import compile_sources
from app.config.settings import Settings
from app.finance.break_acts import acceptance_kind
from app.finance.close_period import closing_kind
from app.finance.match_rules import rules_kind
from app.finance.withdraw_import import withdrawal_kind
from app.privacy.erase import erasure_kind
from app.privacy.erase_finding import ErasureRules
from app.receiving.context import AppContext


def proposals_of(context: AppContext, settings: Settings) -> Proposals:
    """The proposals of a database, with every kind that there is. Raises ConfigurationError for a
    wrong source."""
    return Proposals(
        context,
        (
            acceptance_kind(context),
            rules_kind(context),
            closing_kind(context, sources=compile_sources(settings)),
            erasing_kind(context, settings),
            withdrawal_kind(context),
        ),
    )


def erasing_kind(context: AppContext, settings: Settings) -> ProposalKind:
    """Of erasures, which the command proposes, too."""
    return erasure_kind(
        context,
        sources=compile_sources(settings),
        rules=ErasureRules.of_days(settings.retention_minimum_days),
        seal=sealer(context, settings),
    )
