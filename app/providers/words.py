"""What a provider's words mean: exact words first, then the longest prefix (`refund.*`)."""

from __future__ import annotations

from app.providers.sections import Claims
from reconcile.ledger.events import ClaimKind


class Words:
    """The claims of a profile. `otherwise`: what words that it does not name mean."""

    __slots__ = ("_exact", "_otherwise", "_prefixes")

    def __init__(self, claims: Claims, *, otherwise: ClaimKind = "unrecognized") -> None:
        self._otherwise = otherwise
        self._exact = {word: meaning for word, meaning in claims if not word.endswith("*")}
        prefixes = [(word[:-1], meaning) for word, meaning in claims if word.endswith("*")]
        self._prefixes = sorted(prefixes, key=lambda each: -len(each[0]))

    def meaning(self, word: str) -> ClaimKind:
        """What the word says of an attempt."""
        exact = self._exact.get(word)
        if exact is not None:
            return exact
        for prefix, meaning in self._prefixes:
            if word.startswith(prefix):
                return meaning
        return self._otherwise
