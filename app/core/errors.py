"""Errors of our own, each with the exit code of the command line it ends in.

    TallyhookError
    ├── UsageError           2  the words of a command are off
    ├── ConfigurationError   3  settings, profiles, secrets
    ├── UnreachableError     4  the store or the provider does not answer
    │   ├── PortTaken           nor can anyone reach us
    │   ├── StoreUnavailable    for now: try again
    │   └── StorePoisoned       for good: a storage I/O error; this process must end
    │       └── StrangeSchema   the database has objects that no migration of ours makes
    └── NotFoundError        5  there is no such thing

Every message is for a person: one sentence that says what to do. None carries a secret, a body
or a phone number. Bad data is not an error but a verdict or a finding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal


class TallyhookError(Exception):
    """Something went wrong that a person can act on."""

    exit_code: ClassVar[int] = 1


class UsageError(TallyhookError):
    """A command was called with words that do not fit."""

    exit_code = 2


class ConfigurationError(TallyhookError):
    """The configuration is wrong; `problems` holds one sentence for each mistake."""

    exit_code = 3

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class UnreachableError(TallyhookError):
    """The store or the provider cannot be reached."""

    exit_code = 4


class PortTaken(UnreachableError):
    """A server of ours cannot listen at its configured address."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(
            f"cannot listen on {host} port {port}: is the address one of this machine's, "
            "and the port free?"
        )


NotStored = Literal[
    "disk", "database", "busy", "queue", "slow", "refused", "stopping", "no_room", "failed"
]
"""Why the store takes nothing: too little room on the disk; a database that does not answer or
cannot be opened; others that write; too much that waits; a write that takes too long; a database
that refuses what is written; a stop; and for good, an I/O error. `no_room`: too many long bodies
are on their way in, before the store is asked."""


class StoreUnavailable(UnreachableError):
    """The store cannot take this now; the same request may succeed later. `reason`: for figures
    and logs."""

    def __init__(self, sentence: str, *, reason: NotStored = "database") -> None:
        super().__init__(sentence)
        self.reason = reason


class StorePoisoned(UnreachableError):
    """The store failed in a way after which nothing more may be acknowledged."""

    reason: NotStored = "failed"


class StrangeSchema(StorePoisoned):
    """The database's schema is another than the migrations make; `found`: the first difference."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"{found}; nothing is served from it: if you made that yourself, undo it; else put "
            "back a backup from before with `tallyhook restore FILE --force`"
        )
        self.found = found


class DeliveryFailed(TallyhookError):
    """A report or an alarm did not reach where it goes. The message says why, and what to do."""


class NotFoundError(TallyhookError):
    """What was asked for is not here."""

    exit_code = 5
