"""Imports an order book or a statement from a file: all of it, or nothing.

    1 permit     who asks may import
    2 read       every row becomes a staged row, or problems; the store is not touched
    3 look       for rows that cannot all be true, be they clear or not; where any problem is left
                 it ends here, unless the good rows shall be taken
    4 set aside  the other rows, into a file
    5 write      in key order, some thousand rows in a transaction, seen by nobody
    6 publish    in one short transaction, with the deed in the trail

Whoever is killed before the end has imported nothing; the next import undoes what was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final

import anyio.lowlevel

from app.access.operators import permitted
from app.core.errors import UsageError
from app.core.text import printable
from app.finance.book_references import Unfit, name_references, unfit_references
from app.finance.files.forms import Understanding
from app.finance.files.opening import digest_of, open_table
from app.finance.files.problems import Problem, Refused
from app.finance.files.rejects import refuse_to_replace, write_rejects
from app.finance.import_kinds import BOOK, Imported, Progress, Wanted
from app.finance.import_writing import MOST_ROWS, chunks, write_and_publish
from app.finance.staging_store import Staged
from app.receiving.context import Desk
from app.receiving.pace import Pace

SHOWN: Final = 5
"""Rows that are shown as they were understood."""


async def import_file(
    desk: Desk, wanted: Wanted, *, by: str | None, progress: Progress
) -> Imported:
    """Import it, or find out what an import would do. `progress` is told how far it is.

    Raises NotFoundError for a file that is not there, UsageError for who may not.
    """
    async with desk.store.reading() as connection:
        who = await permitted(connection, by=by, action=wanted.kind.action)
    if wanted.rejects is not None:
        refuse_to_replace(wanted.rejects)
    with closing(_Reading(wanted, progress)) as reading:
        await reading.read()
        done = reading.done
        if wanted.kind is BOOK:
            reading.leave_out(await unfit_references(desk, reading.staged))
        if wanted.dry_run:
            async with desk.store.reading() as connection:
                for rows in chunks(reading.staged, Pace(first=MOST_ROWS, most=MOST_ROWS)):
                    done.count(await wanted.kind.compare(connection, rows))
        elif not done.found or (wanted.rejects is not None and not done.refused):
            reading.set_aside()
            await write_and_publish(desk, wanted, reading.staged, done, who=who, progress=progress)
            if wanted.kind is BOOK and done.number is not None:
                unfit = await name_references(desk, reading.staged, number=done.number)
                reading.tell_unfit(unfit)
    done.problems.sort(key=lambda problem: problem.row)
    return done


class _Reading:
    """Steps 2 to 4: one file, its rows that are clear, and the problems of the others."""

    def __init__(self, wanted: Wanted, progress: Progress) -> None:
        self._wanted, self._progress = wanted, progress
        # A name on the disk is bytes: not always text that can be kept, or shown.
        self.done = Imported(file=printable(wanted.path.name))
        self.staged = Staged(("number", *wanted.form.STAGED), order=(*wanted.kind.order, "number"))
        self._problems = Staged(("row", "named", "sentence"), order=("row",))

    def close(self) -> None:
        """Forget the rows."""
        self.staged.close()
        self._problems.close()

    async def read(self) -> None:
        """Stage every row that is clear and fits the others."""
        try:
            self._sign()
            understanding = await self._read_rows()
            self._sign()
        except Refused as refused:
            self.done.refused = True
            self._note([refused.problem])
        except OSError as error:
            name = self._wanted.path.name
            raise UsageError(f"{name} cannot be read: {error.strerror}") from None
        else:
            self._look(understanding)

    def _sign(self) -> None:
        """Remember which content it is. Raises Refused where it became another one."""
        digest = digest_of(self._wanted.path)
        if self.done.sha256 not in ("", digest):
            raise Refused(1, "the file changed while it was read: import it again")
        self.done.sha256 = digest

    async def _read_rows(self) -> Understanding:
        wanted, done = self._wanted, self.done
        table = open_table(wanted.path, wanted.mapping, wanted.form.FIELDS)
        understanding = Understanding(table, wanted.form, wanted.mapping)
        done.passed_over = understanding.passed_over()
        for batch in table.batches():
            found = understanding.batch(batch)
            self.staged.add(found.rows)
            if wanted.kind.at_most == 1:
                self.staged.add(map(self._claim, found.unclear))
            self._note(found.problems)
            done.read += found.read
            done.rejected += found.read - len(found.rows)
            if wanted.dry_run:
                shown = found.rows[: SHOWN - len(done.rows)]
                done.rows += [wanted.form.shown(row) for row in shown]
            self._progress(done.read, None)
            await anyio.lowlevel.checkpoint()
        if not done.read:
            raise Refused(table.heading_row, "the file has a heading and no rows")
        return understanding

    def _claim(self, row: Sequence[Any]) -> Sequence[Any]:
        """What a row that is not clear speaks of. Once put right it may be the true one of two."""
        said = 1 + len(self._wanted.kind.identity)
        return (*row[:said], *(None,) * (len(row) - said))

    def _look(self, understanding: Understanding) -> None:
        """Find rows that cannot all be true; none of them is taken, for nobody knows which is."""
        kind, before = self._wanted.kind, None
        column = understanding.name_of(kind.names)
        for first, row in self.staged.crowded(kind.identity, at_most=kind.at_most):
            if first == row:
                before = row
                continue
            pairs = [(row, first)] if before is None else [(before, row), (row, first)]
            before = None
            self._note(
                [
                    Problem(row=one, column=column, sentence=kind.too_many(other))
                    for one, other in pairs
                ]
            )
        self.staged.drop_crowded(kind.identity, at_most=kind.at_most)
        if kind.at_most == 1:
            self.staged.drop_without(kind.names)
        self.done.rejected = self.done.read - self.staged.count()

    def leave_out(self, unfit: Sequence[Unfit]) -> None:
        """Take none of these rows: what they name pays another order."""
        if unfit:
            self.tell_unfit(unfit)
            self.staged.drop(number for number, _ in unfit)
            self.done.rejected = self.done.read - self.staged.count()

    def tell_unfit(self, unfit: Sequence[Unfit]) -> None:
        """Note why these rows, or what they name, are not taken."""
        self._note([Problem(row=row, column=None, sentence=said) for row, said in unfit])

    def _note(self, problems: Sequence[Problem]) -> None:
        self.done.note(problems)
        if self._wanted.rejects is not None:
            self._problems.add((each.row, each.column, each.sentence) for each in problems)

    def set_aside(self) -> None:
        """Write the rows that are not taken into a file of their own, if there are any."""
        wanted = self._wanted
        if wanted.rejects is None or not self.done.found:
            return
        table = open_table(wanted.path, wanted.mapping, wanted.form.FIELDS)
        problems = (
            Problem(row=row, column=column, sentence=sentence)
            for rows in self._problems.in_order()
            for row, column, sentence in rows
        )
        write_rejects(wanted.rejects, table, problems)
        self.done.rejects = printable(wanted.rejects.name)
