"""Errors of Tallyhook, with the exit codes of the command line.

    TallyhookError
    ├── UsageError           2  wrong arguments of a command
    ├── ConfigurationError   3  settings, profiles, secrets
    ├── UnreachableError     4  the database or the provider does not answer
    │   ├── PortTaken           a server cannot listen on its address
    │   ├── StoreUnavailable    temporary failure: try again
    │   │   └── NotAllRead          an answer needs deliveries that are not read yet
    │   └── StorePoisoned       permanent failure, such as a disk I/O error: the process must end
    │       └── StrangeSchema   the database has objects that no migration creates
    ├── DeliveryFailed          a report or an alarm was not delivered
    ├── ChildStopped            a child process gave no result (app/core/child.py)
    └── NotFoundError        5  something does not exist

Every message tells a person what to do, and never contains a secret, a body or a phone number.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal


class TallyhookError(Exception):
    """Base class of all errors that a person can fix."""

    exit_code: ClassVar[int] = 1


class UsageError(TallyhookError):
    """Error for wrong arguments, or for a request that cannot be carried out as asked."""

    exit_code = 2


class ConfigurationError(TallyhookError):
    """Error for wrong settings, profiles or secrets. `problems` has one sentence for each
    mistake."""

    exit_code = 3

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class UnreachableError(TallyhookError):
    """Error for a database or provider that cannot be reached."""

    exit_code = 4


class PortTaken(UnreachableError):
    """Error for a configured address on which a server cannot listen."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(
            f"cannot listen on {host} port {port}: check that the address belongs to this "
            "machine, and that the port is free"
        )


NotStored = Literal[
    "disk", "database", "busy", "queue", "slow", "refused", "stopping", "no_room", "failed"
]
"""Reason why a delivery or another write cannot be stored.

disk      there is too little free space on the disk
database  the database does not answer or cannot be opened
busy      another process is writing to the database
queue     too many deliveries wait to be written
slow      a write takes too long
refused   the database rejects the content
stopping  the process is stopping
no_room   too many long bodies are arriving at once
failed    an I/O error occurred, and the process stores nothing more
"""


class StoreUnavailable(UnreachableError):
    """Error for a database that cannot be written to now, but perhaps later. `reason` is a code for
    metrics and logs."""

    def __init__(self, sentence: str, *, reason: NotStored = "database") -> None:
        super().__init__(sentence)
        self.reason = reason


class NotAllRead(StoreUnavailable):
    """Error for an answer that must wait, because accepted deliveries that it needs have not been
    read yet."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, reason="slow")


class StorePoisoned(UnreachableError):
    """Error for a permanent failure of the database. The process must not acknowledge any more
    deliveries."""

    reason: NotStored = "failed"


class StrangeSchema(StorePoisoned):
    """Error for a database schema that the migrations did not create. `found` describes the first
    difference."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"{found}; Tallyhook does not use such a database. If you made this change yourself, "
            "undo it. Otherwise restore an earlier backup with `tallyhook restore FILE --force`"
        )
        self.found = found


class DeliveryFailed(TallyhookError):
    """Error for a report or an alarm that could not be delivered."""


class NotFoundError(TallyhookError):
    """Error for something that does not exist.

    behind_s  age in seconds of the oldest unread delivery, which may contain it; 0 without one
    """

    exit_code = 5

    def __init__(self, sentence: str, *, behind_s: int = 0) -> None:
        super().__init__(sentence)
        self.behind_s = behind_s
