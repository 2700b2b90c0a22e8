"""Claims on inbox rows, so that no two reader processes read one row.

look   find free rows                              in a snapshot
claim  mark the rows in a separate transaction     then read them, outside of any transaction
...    append deletes the rows still claimed       inbox_store.take_out
back   release unread rows                         at a normal end
"""

from collections.abc import Sequence
from itertools import accumulate
from time import monotonic
from typing import Final, NamedTuple

from app.core.ids import new_salts
from app.core.process import has_ended, process_name
from app.database.statements import PlainConnection, statement
from app.receiving.inbox_store import SUSPECT_COLUMNS, Suspect, Unread, items_of, suspect_of

CLAIM_S: Final = 45.0
"""Seconds after which a claim expires."""

LOOKS_S: Final = 3.0
"""Maximum seconds between a reader's looks at the claims, without measuring their age anew."""

MOST_SEEN: Final = 1_000
"""Maximum number of claims that a reader remembers, the recently seen ones."""

MOST_CLAIMS: Final = 2
"""Number of expired claims after which a row's records are read one by one."""

HEADS: Final = 512
"""Maximum number of rows, or of suspects, that are listed at a time."""


class Head(NamedTuple):
    """Inbox row or single record, as listed for claiming."""

    seq: int
    records: int
    size: int
    taken_by: str


class Claimant:
    """Reader process that claims inbox rows. The process remembers which claims of other readers it
    has seen."""

    def __init__(self, *, alone: bool = False) -> None:
        """Start without claims.

        alone  whether no other process reads or holds claims
        """
        self.alone = alone
        self._name = f"{process_name()} {new_salts(1)[0].hex()} "
        self._claims = 0
        self._seen: dict[str, tuple[float, float]] = {}
        """Times at which each claim was first and last seen."""
        self._looked_at = 0.0

    @property
    def marks(self) -> str:
        """Return the SQL pattern that matches the claims of this reader."""
        return f"{self._name}%"

    def next_mark(self) -> str:
        self._claims += 1
        return f"{self._name}{self._claims}"

    def ran_out(self, head: Head) -> bool:
        """Return whether another reader's claim has expired. Pass only results of `free`."""
        return bool(head.taken_by) and not head.taken_by.startswith(self._name)

    def free(self, heads: Sequence[Head]) -> list[Head]:
        """Return the rows or records that this reader can claim."""
        now = monotonic()
        if now - self._looked_at > LOOKS_S:
            self._seen.clear()
        elif len(self._seen) > MOST_SEEN:
            seen = self._seen.items()
            self._seen = {mark: at for mark, at in seen if now - at[1] <= LOOKS_S}
        self._looked_at = now
        marks = dict.fromkeys(head.taken_by for head in heads)
        held = {mark for mark in marks if self._holds(mark, now)}
        return [head for head in heads if head.taken_by not in held]

    def _holds(self, mark: str, now: float) -> bool:
        if not mark or self.alone or mark.startswith(self._name):
            return False
        since, _ = self._seen.get(mark, (now, now))
        self._seen[mark] = since, now
        return now - since < CLAIM_S and not has_ended(mark.partition(" ")[0])


def heads_of_rows(connection: PlainConnection, *, after: int = 0) -> list[Head]:
    """Return the inbox rows above the number `after`, oldest first."""
    return [Head(*row) for row in connection.ask(_ROWS, (after, HEADS))]


_ROWS: Final = (
    "SELECT seq, count, size, coalesce(taken_by, '') FROM inbox WHERE seq > ? ORDER BY seq LIMIT ?"
)


def heads_of_suspects(connection: PlainConnection) -> list[Head]:
    return [Head(*row) for row in connection.ask(_SUSPECTS, (HEADS,))]


_SUSPECTS: Final = (
    "SELECT seq, 1, length(record), coalesce(taken_by, '') FROM suspects "
    "WHERE aside=0 ORDER BY seq LIMIT ?"
)


def claim_rows(
    connection: PlainConnection, claimant: Claimant, *, limit: int, most_bytes: int
) -> list[Unread]:
    """Claim and return the oldest free rows on PostgreSQL."""
    mark, after = claimant.next_mark(), 0
    while heads := heads_of_rows(connection, after=after):
        free = claimant.free(heads)
        records, size = accumulate(h.records for h in free), accumulate(h.size for h in free)
        wanted = [
            head
            for head, so_many, so_large in zip(free, records, size, strict=True)
            if head is free[0] or (so_many <= limit and so_large <= most_bytes)
        ]
        if not wanted:
            after = heads[-1].seq
            continue
        seen = [(head.seq, head.taken_by, int(claimant.ran_out(head))) for head in wanted]
        rows = connection.ask(_CLAIM, (mark, *map(list, zip(*seen, strict=True))))
        if rows:
            return [
                Unread(seq, count, at, bytes(found), items_of(bytes(found)), False, mark, tries)
                for seq, count, at, found, tries in sorted(rows)
            ]
        after = wanted[-1].seq  # another reader was faster
    return []


_CLAIM: Final = """
UPDATE inbox SET taken_by=?, tries=inbox.tries + free.ran_out FROM (
    SELECT inbox.seq, seen.ran_out FROM unnest(?::bigint[], ?::text[], ?::bigint[])
    AS seen (seq, mark, ran_out) JOIN inbox ON inbox.seq = seen.seq
    WHERE coalesce(inbox.taken_by, '') = seen.mark FOR UPDATE OF inbox SKIP LOCKED
) AS free WHERE inbox.seq = free.seq
RETURNING inbox.seq, inbox.count, inbox.received_at, inbox.records, inbox.tries
"""


def claim_suspect(connection: PlainConnection, claimant: Claimant, head: Head) -> Suspect | None:
    """Claim a single record, or return None if taken."""
    rows = connection.ask(
        _CLAIM_SUSPECT,
        (claimant.next_mark(), int(claimant.ran_out(head)), head.seq, head.taken_by),
    )
    return suspect_of(rows[0]) if rows else None


_CLAIM_SUSPECT: Final = statement(
    "UPDATE suspects SET taken_by=?, tries=tries + ? "
    "WHERE seq=? AND coalesce(taken_by, '')=? AND aside=0 RETURNING {columns}",
    columns=SUSPECT_COLUMNS,
)


def give_back(connection: PlainConnection, claimant: Claimant) -> None:
    """Release claimed rows that were not read."""
    for sql in _GIVE_BACK:
        connection.ask(sql, (claimant.marks,))


_GIVE_BACK: Final = (
    "UPDATE inbox SET taken_by=NULL WHERE taken_by LIKE ?",
    "UPDATE suspects SET taken_by=NULL WHERE taken_by LIKE ?",
)


def failed_alone(connection: PlainConnection, one: Suspect) -> None:
    """Count a single record's failure, and release the record."""
    connection.ask(
        "UPDATE suspects SET tries=tries + 1, taken_by=NULL WHERE seq=? AND taken_by=?",
        (one.seq, one.taken_by),
    )
