"""Marks on columns of text or bytes: whether they hold a customer's data, and what an erasure does.

`app/privacy/places.py` lists them, with the files beside the database. Leaves out: how an erasure
is done.
"""

from dataclasses import dataclass
from typing import Final, Literal

Personal = Literal["personal", "possibly_personal", "not"]
"""Whether a column holds a customer's number, name or address: by design, where somebody wrote it
there, or never."""

Erased = Literal["deleted", "emptied", "kept"]
"""What an erasure does: delete the row, empty the personal part of the column, or nothing."""

MARK: Final = "mark"
"""Key of the mark in a column's `info`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A column's or file's personal data.

    what     the contents, in words
    because  why an erasure keeps them; empty where it does not
    """

    personal: Personal
    what: str
    erased: Erased
    because: str = ""

    @property
    def erased_words(self) -> str:
        """The effect of an erasure, in words."""
        return f"kept because {self.because}" if self.because else self.erased


def personal(what: str, *, erased: Erased = "kept", because: str = "") -> Mark:
    """Mark a column that holds a customer's data by design."""
    return Mark(personal="personal", what=what, erased=erased, because=because)


def possibly_personal(what: str, *, erased: Erased = "kept", because: str = "") -> Mark:
    """Mark a column into which somebody may have written a customer's data."""
    return Mark(personal="possibly_personal", what=what, erased=erased, because=because)


def not_personal(
    what: str, *, erased: Erased = "kept", because: str = "nothing personal is in it"
) -> Mark:
    """Mark a column that cannot hold a customer's data."""
    return Mark(personal="not", what=what, erased=erased, because=because)


_CODES: Final = "ids, codes and digests"
_REFERENCE: Final = "a reference, which somebody may have made of a number"
_STAFF_WORDS: Final = "words of a person who works here"
_PROVED: Final = "a closed month is proved by it"

ALARM_WORDS: Final = not_personal("words of ours; it goes with the alarm")
ARRIVED: Final = personal("what arrived, as it came", erased="emptied")
BANK_WORDS: Final = possibly_personal("what the bank states of who paid", erased="emptied")
CLOSED: Final = possibly_personal("holds references", because=_PROVED)
CODES: Final = not_personal(_CODES)
CODES_DELETED: Final = not_personal(_CODES, erased="deleted", because="")
COMMITMENT: Final = not_personal("says nothing without the key")
COSIGNATURES: Final = not_personal("hashes, signatures, and names of witnesses")
COUNTS: Final = not_personal("codes and counts")
CREDENTIALS: Final = not_personal("of operators, and no customers")
DESTINATION: Final = not_personal("a digest, and words of ours")
FACTS: Final = not_personal("facts of the database")
HASHES: Final = not_personal("hashes")
IMPORT_WORDS: Final = possibly_personal(_STAFF_WORDS, because=_PROVED)
KEYED_DIGESTS: Final = not_personal("keyed digests: nobody is learned without the key")
OWN_NOTES: Final = possibly_personal(
    "what an operator keeps for themselves", because="it is theirs, who can take it away"
)
PROBLEM: Final = not_personal("a sentence of ours without text of the body")
PROBLEM_DELETED: Final = not_personal(PROBLEM.what, erased="deleted", because="")
PUBLIC_KEYS: Final = not_personal("the merchant's public keys")
REFERENCE: Final = possibly_personal(
    _REFERENCE, because="ledgers, books and proofs are found by it"
)
REFERENCE_DELETED: Final = possibly_personal(_REFERENCE, erased="deleted")
REFERENCE_EMPTIED: Final = possibly_personal(_REFERENCE, erased="emptied")
REFUSED: Final = personal("what was refused, as it came", erased="deleted")
RULES: Final = not_personal("the merchant's own rules")
SCHEDULE_WORDS: Final = not_personal("words of ours, and addresses of the settings")
SEALED: Final = not_personal("salted commitments, digests and dates: no words")
SET_ASIDE: Final = personal(
    "what arrived and could not be read",
    because="it may be about a payment: `deliveries poisoned --retry` has it read, and it goes "
    "then",
)
SIGNED_HASHES: Final = not_personal("hashes and signatures")
STAFF: Final = not_personal(
    "names people who work here, and programs", because="it says who did what"
)
STAFF_ADDRESS: Final = not_personal(
    "mail addresses of people who work here", because="it is theirs, who can take it away"
)
TRAIL_WORDS: Final = possibly_personal(
    _STAFF_WORDS, because="the trail says for ever who did what, and why"
)
WHOSE_NUMBER: Final = personal("whose number it is", erased="deleted")
WITNESSES: Final = not_personal("names of witnesses, and codes")
