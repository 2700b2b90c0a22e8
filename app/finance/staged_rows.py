"""Sort and search many rows, in memory or on disk."""

from __future__ import annotations

import heapq
import pickle
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import IO, Any, Final

from app.core.errors import StoreUnavailable
from app.receiving.pace import Pace

Row = tuple[Any, ...]
Rows = list[Row]

IN_MEMORY: Final = 50_000

IN_BLOCK: Final = 500

AT_ONCE: Final = 4_000


class Staged:
    """Rows in a fixed order, on disk if there are many."""

    def __init__(self, columns: Sequence[str], *, order: Sequence[str]) -> None:
        self._columns, self._order = tuple(columns), tuple(order)
        self._key = self._places(order)
        self._waiting: Rows = []
        self._parts: list[list[tuple[int, int]]] = []
        """Positions of each sorted part's blocks in the file, and their lengths."""
        self._file: IO[bytes] | None = None
        self._count = 0

    def _places(self, names: Sequence[str]) -> itemgetter[Any]:
        return itemgetter(*map(self._columns.index, names))

    def add(self, rows: Iterable[Row]) -> None:
        """Add rows. Raise StoreUnavailable if the disk is full."""
        more = iter(rows)
        while part := list(islice(more, IN_MEMORY - len(self._waiting))):
            self._waiting += part
            self._count += len(part)
            if len(self._waiting) == IN_MEMORY:
                self._write()

    def _sort(self) -> None:
        # Sort by the last column first: if rows are mostly in order by one column already, that
        # costs a fraction of sorting by all.
        for name in reversed(self._order):
            self._waiting.sort(key=self._places([name]))

    def _write(self) -> None:
        self._sort()
        with _explained():
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115
            end, blocks = self._file.seek(0, 2), list[tuple[int, int]]()
            for start in range(0, len(self._waiting), IN_BLOCK):
                block = pickle.dumps(self._waiting[start : start + IN_BLOCK])
                self._file.write(block)
                blocks.append((end, len(block)))
                end += len(block)
            self._file.flush()
        self._parts.append(blocks)
        self._waiting = []

    def _part(self, blocks: Sequence[tuple[int, int]]) -> Iterator[Row]:
        assert self._file is not None
        for start, length in blocks:
            with _explained():
                self._file.seek(start)
                block = self._file.read(length)
            yield from pickle.loads(block)  # noqa: S301 - we wrote it, and nobody else has the file

    def _merged(self) -> Iterator[Row]:
        self._sort()
        if not self._parts:
            return iter(self._waiting)
        return heapq.merge(*map(self._part, self._parts), self._waiting, key=self._key)

    def in_order(self) -> Iterator[Rows]:
        return _batches(self._merged())

    def crowded(self, of: Sequence[str], *, at_most: int) -> Iterator[tuple[Any, Any]]:
        """Yield each row in groups above `at_most` rows, with the group's own first column. Rows
        with None are in no group."""
        crowd = Staged(("first", "row"), order=("first", "row"))
        with closing(crowd), closing(self._sorted_by(of)) as others:
            own = self if self._lies_by(of) else others
            alike, last, over, equal = own._places(of), None, False, list[Any]()
            for row in own._merged():
                key = alike(row)
                if key != last:
                    last, over, equal = key, False, [row[0]]
                elif over:
                    crowd.add([(equal[0], row[0])])
                else:
                    equal.append(row[0])
                    over = len(equal) > at_most
                    crowd.add([(equal[0], each) for each in equal] if over else ())
            for batch in crowd.in_order():
                yield from ((row[0], row[1]) for row in batch)

    def _lies_by(self, of: Sequence[str]) -> bool:
        return self._order == (*of, self._columns[0])

    def _sorted_by(self, of: Sequence[str]) -> Staged:
        found = Staged((self._columns[0], *of), order=(*of, self._columns[0]))
        if not self._lies_by(of):
            rows = map(self._places(found._columns), self._merged())
            found.add(row for row in rows if None not in row)
        return found

    def crowds(self, of: Sequence[str]) -> Iterator[Rows]:
        """Yield each group of rows with equal values in the columns `of`. The rows must be sorted
        by `of`."""
        alike, last, equal = self._places(of), None, Rows()
        for row in self._merged():
            key = alike(row)
            if key == last:
                equal.append(row)
                continue
            if len(equal) > 1:
                yield equal
            last, equal = key, [row]
        if len(equal) > 1:
            yield equal

    def negative(self, name: str) -> Iterator[Rows]:
        place = self._columns.index(name)
        yield from _batches(r for r in self._merged() if r[place] is not None and r[place] < 0)

    def having(self, name: str) -> Iterator[Rows]:
        place = self._columns.index(name)
        yield from _batches(row for row in self._merged() if row[place] is not None)

    def drop_crowded(self, of: Sequence[str], *, at_most: int) -> None:
        """Delete each group of more than `at_most` equal rows. The rows must be sorted by `of`."""

        def uncrowded() -> Iterator[Row]:
            for _, equal in groupby(self._merged(), key=self._places(of)):
                first = list(islice(equal, at_most + 1))
                if len(first) <= at_most:
                    yield from first

        self._keep(uncrowded())

    def drop_without(self, name: str) -> None:
        place = self._columns.index(name)
        self._keep(row for row in self._merged() if row[place] is not None)

    def drop(self, numbers: Iterable[int]) -> None:
        """Delete the rows with these numbers."""
        gone = set(numbers)
        if gone:
            self._keep(row for row in self._merged() if row[0] not in gone)

    def _keep(self, rows: Iterator[Row]) -> None:
        kept = Staged(self._columns, order=self._order)
        kept.add(rows)
        self.close()
        self._waiting, self._parts, self._file = kept._waiting, kept._parts, kept._file
        self._count = kept._count

    def count(self) -> int:
        return self._count

    def close(self) -> None:
        self._waiting, self._parts, self._count = [], [], 0
        if self._file is not None:
            self._file.close()


def _batches(rows: Iterable[Row]) -> Iterator[Rows]:
    more = iter(rows)
    while batch := list(islice(more, AT_ONCE)):
        yield batch


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(
            f"temporary files cannot be written to TMPDIR: {error.strerror or error}"
        ) from error


def chunks(staged: Staged, pace: Pace) -> Iterator[Rows]:
    """Yield rows without numbers, in batches. Rows with an equal first column stay together."""
    held: Rows = []
    for rows in staged.in_order():
        held += [row[1:] for row in rows]
        while end := _end(held, pace.size):
            yield held[:end]
            held = held[end:]
    while held:
        end = _end(held, pace.size) or len(held)
        yield held[:end]
        held = held[end:]


def _end(rows: Rows, size: int) -> int:
    if len(rows) <= size:
        return 0
    ends = chain(range(size, 0, -1), range(size + 1, len(rows)))
    return next((end for end in ends if rows[end - 1][0] != rows[end][0]), 0)
