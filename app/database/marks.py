"""Describe, for each column of text or bytes, its personal data and how an erasure treats it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Personal = Literal["personal", "possibly_personal", "not"]
"""Kind of a column: it holds personal data by design, only if somebody typed it in, or never."""

Erased = Literal["deleted", "emptied", "kept"]
"""Effect of an erasure on a column: the row is deleted, the column's personal part is emptied, or
the content is kept."""

Ground = Literal["", "accounts", "claims", "accountability"]
"""Legal ground on which an erasure keeps data. Empty if nothing personal is kept."""

GROUNDS: Final[Mapping[Ground, str]] = {
    "accounts": "books must be kept by law: GDPR Art. 17(3)(b)",
    "claims": "legal claims may rest on it: GDPR Art. 17(3)(e)",
    "accountability": "the shop must show what it did, and why: GDPR Art. 5(2), 17(3)(b)",
}
"""Wording of the legal grounds for keeping data (GDPR, article 17, as gdprhub.eu printed it on
2026-11-29)."""

MARK: Final = "mark"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Description of the personal data in one column or file."""

    personal: Personal
    what: str
    """The contents, in words."""
    erased: Erased
    because: str = ""
    """Reason why an erasure keeps the contents, if it does."""
    ground: Ground = ""
    """Legal ground for keeping the contents."""

    @property
    def erased_words(self) -> str:
        """Return the effect of an erasure on the contents, in words."""
        ground = f" ({self.ground})" if self.ground else ""
        return f"kept because {self.because}{ground}" if self.because else self.erased

    @property
    def why(self) -> str:
        """Return the reason why an erasure keeps the contents, with the legal ground."""
        return f"{self.because} ({GROUNDS[self.ground]})" if self.ground else self.because


def personal(what: str, *, erased: Erased = "kept", because: str = "", ground: Ground = "") -> Mark:
    """Return the description of a column that holds a customer's data by design."""
    return Mark(personal="personal", what=what, erased=erased, because=because, ground=ground)


def possibly_personal(
    what: str, *, erased: Erased = "kept", because: str = "", ground: Ground = ""
) -> Mark:
    """Return the description of a column into which somebody may have written a customer's data."""
    return Mark(
        personal="possibly_personal", what=what, erased=erased, because=because, ground=ground
    )


def not_personal(
    what: str, *, erased: Erased = "kept", because: str = "nothing personal is in it"
) -> Mark:
    """Return the description of a column that cannot hold a customer's data."""
    return Mark(personal="not", what=what, erased=erased, because=because)


_CODES: Final = "ids, codes and digests"
_REFERENCE: Final = "a reference, which may contain a phone number"
_STAFF_WORDS: Final = "text written by staff"
_PROVED: Final = "it proves a closed month"

ALARM_WORDS: Final = not_personal("Tallyhook's own text; deleted with the alarm")
ARRIVED: Final = personal("a delivery as it arrived", erased="emptied")
BANK_WORDS: Final = possibly_personal("the bank's text about the payer", erased="emptied")
CLOSED: Final = possibly_personal("references to orders", because=_PROVED, ground="accounts")
CODES: Final = not_personal(_CODES)
CODES_DELETED: Final = not_personal(_CODES, erased="deleted", because="")
COMMITMENT: Final = not_personal("means nothing without the key")
COSIGNATURES: Final = not_personal("hashes, signatures, and names of witnesses")
COUNTS: Final = not_personal("codes and counts")
CREDENTIALS: Final = not_personal("operators' credentials, none of customers")
DESTINATION: Final = not_personal("a digest and Tallyhook's own text")
FACTS: Final = not_personal("facts of the database")
HASHES: Final = not_personal("hashes")
IMPORT_WORDS: Final = possibly_personal(_STAFF_WORDS, because=_PROVED, ground="accounts")
KEYED_DIGESTS: Final = not_personal("keyed digests, which identify nobody without the key")
OWN_NOTES: Final = possibly_personal("an operator's own notes", erased="deleted")
PROBLEM: Final = not_personal("Tallyhook's own sentence, without text from the body")
PROBLEM_DELETED: Final = not_personal(PROBLEM.what, erased="deleted", because="")
PUBLIC_KEYS: Final = not_personal("the merchant's public keys")
REFERENCE: Final = possibly_personal(
    _REFERENCE, because="ledgers, books and proofs are looked up by it", ground="accounts"
)
REFERENCE_DELETED: Final = possibly_personal(_REFERENCE, erased="deleted")
REFERENCE_EMPTIED: Final = possibly_personal(_REFERENCE, erased="emptied")
REFUSED: Final = personal("a refused delivery as it arrived", erased="deleted")
RULES: Final = not_personal("the merchant's own rules")
SCHEDULE_WORDS: Final = not_personal("Tallyhook's own text and addresses from the settings")
SEALED: Final = not_personal("salted commitments, digests and dates, without text")
SET_ASIDE: Final = personal(
    "a delivery that could not be read",
    because="it may be about a payment; `deliveries poisoned --retry` reads and deletes it",
    ground="claims",
)
SIGNED_HASHES: Final = not_personal("hashes and signatures")
STAFF: Final = not_personal("names of staff and programs", because="it records who did what")
STAFF_ADDRESS: Final = not_personal(
    "mail addresses of staff", because="operators can remove their own address"
)
TRAIL_WORDS: Final = possibly_personal(
    _STAFF_WORDS,
    because="the trail permanently records who did what, and why",
    ground="accountability",
)
WHOSE_NUMBER: Final = personal("the owner of a phone number", erased="deleted")
WITNESSES: Final = not_personal("names of witnesses and codes")
