"""The words for every break: one sentence, and what to do next, from its code and facts alone.

Leaves out: what a break rests on; the cites stand beside the sentence.
"""

from __future__ import annotations

from reconcile.breaks import Break, Candidate


def break_sentence(found: Break) -> str:
    """What differs, as one sentence with its full stop."""
    raise NotImplementedError


def next_step(found: Break) -> str:
    """What a person should do about it, as one sentence with its full stop."""
    raise NotImplementedError


def apart_words(candidate: Candidate) -> str:
    """The one field that keeps a near miss apart: `amount 100 times larger: minor units?`."""
    raise NotImplementedError
