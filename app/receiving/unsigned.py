"""Limits of the receiver on requests that nobody signs."""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from itertools import islice
from time import monotonic
from typing import Final

from app.context.context import AppContext
from app.core.periodic import PeriodicTask, rest_when_idle
from app.providers.request import Incoming
from app.receiving.confirm import ASK_FOR
from app.receiving.confirmation_store import named_references, unasked
from app.receiving.refusals import Allowance, RejectionRate
from app.receiving.unread_values import whole_values
from reconcile.instants import MINUTE, Duration

MAX_BYTES_PER_MINUTE: Final = 2 * 1024 * 1024
"""Maximum bytes of unknown unsigned requests per minute."""

PER_REFERENCE: Final = 10
"""Maximum number of requests per minute with one reference."""

MAX_REFERENCES: Final = 100_000
"""Maximum number of remembered references, which take about 20 MiB."""

MAX_NAMING_BYTES: Final = 8 * 1024
MAX_NAMING_VALUES: Final = 200
"""Maximum number of a request's values compared with references."""

MAX_UNASKED: Final = 100_000
"""Maximum number of a source's events without any question."""

EVERY_S: Final = 1.0


NAMED_FOR: Final[Duration] = ASK_FOR
"""Maximum age of the references loaded at a start."""

LOOK_BACK: Final[Duration] = MINUTE
"""Overlap of two successive searches for references."""

LOOK_S: Final = 1.0
"""Seconds between two searches for references. A customer needs longer to type a PIN."""


class UnsignedAllowance:
    """One receiver's limits on unsigned requests."""

    def __init__(self, rate: RejectionRate, *, clock: Callable[[], float] = monotonic) -> None:
        self._rate, self._clock = rate, clock
        self._bytes = Allowance(MAX_BYTES_PER_MINUTE, clock())
        self._named: OrderedDict[tuple[str, str], Allowance | None] = OrderedDict()
        self._full: frozenset[str] = frozenset()
        self._dropped: dict[str, int] = {}
        self._noted: dict[str, float] = {}

    def name(self, references: Iterable[tuple[str, str]]) -> None:
        """Remember references of sessions and payments."""
        for each in references:
            self._named.setdefault(each, None)
        while len(self._named) > MAX_REFERENCES:
            self._named.popitem(last=False)

    def fill(self, sources: Iterable[str]) -> None:
        """Store which sources have too many waiting requests."""
        self._full = frozenset(sources)

    def takes(self, source: str, incoming: Incoming) -> bool:
        """Return whether to store a request. If so, use up its allowance."""
        now = self._clock()
        size = len(incoming.body) + len(incoming.url)
        size += sum(len(name) + len(value) for name, value in incoming.headers)
        if self._takes_named(source, incoming, now):
            return True
        kept = source not in self._full and self._rate.decide(incoming.address) == "kept"
        if kept and self._bytes.take(now, size):
            return True
        self._dropped[source] = self._dropped.get(source, 0) + 1
        return False

    def _takes_named(self, source: str, incoming: Incoming, now: float) -> bool:
        if len(incoming.body) > MAX_NAMING_BYTES or not self._named:
            return False
        for value in islice(whole_values(incoming.body, incoming.url), MAX_NAMING_VALUES):
            key = (source, value)
            if key in self._named:
                allowance = self._named[key]
                if allowance is None:
                    allowance = self._named[key] = Allowance(PER_REFERENCE, now)
                return allowance.take(now)
        return False

    def to_note(self, source: str) -> int:
        """Return a source's refused requests since the last log line."""
        now = self._clock()
        if now - self._noted.get(source, now - EVERY_S) < EVERY_S:
            return 0
        self._noted[source] = now
        return self._dropped.pop(source, 0)


def learning_names(context: AppContext, allowance: UnsignedAllowance) -> PeriodicTask:
    """Build the background task that updates an allowance's known references."""
    unsigned = [name for name, each in context.sources.items() if each.unsigned]
    back = [NAMED_FOR]

    async def look() -> int:
        since = context.clock.now() - back[0]
        async with context.database.reading() as connection:
            found = await named_references(connection, unsigned, since=since, limit=MAX_REFERENCES)
            full = [name for name in unsigned if await unasked(connection, name, over=MAX_UNASKED)]
        allowance.name(found)
        allowance.fill(full)
        back[0] = LOOK_BACK
        return 0

    return PeriodicTask(look, component="named references", rest=rest_when_idle(LOOK_S))
