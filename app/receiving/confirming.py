"""The background task that asks providers about events which do not count by themselves.

Each provider is asked in rounds of its own: one that is slow or down holds up no other.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from app.core.periodic import Rounds, SideBySide
from app.receiving.confirm import Confirmer, confirm_due

IDLE_S: Final = 1.0
"""Between two looks at what is due. A look costs one index lookup."""

BETWEEN_S: Final = 0.05
"""Rest for each question: 20 a second to one provider at most, whoever makes us ask."""


def confirming(confirmer: Confirmer) -> SideBySide:
    """Asks about due events until it is stopped."""
    return SideBySide(
        [
            Rounds(
                partial(confirm_due, confirmer, source),
                component=f"asking {source} back",
                rest=lambda questions: questions * BETWEEN_S if questions else IDLE_S,
            )
            for source in confirmer.askers
        ]
    )
