"""The journal of erasures beside a database: begun with it, compared with it, carried out in it.

    1 fit       the journal at its place is this database's, and no older than the copy in it
    2 read      after a restore: what the backup brought unread, which may be of somebody it names
    3 find      whom it names of those who are in the database
    4 erase     each as if it were asked for again, as of the erasure: what came after it stays
    5 end       all lines are among those that were carried out here

After a restore all lines are carried out again, before anybody serves; otherwise those whose
erasure was not ended. Without the journal a restore stops, unless a person says why it may not:
then the copy that the backup brought is what is left of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

from app.access.operators import SERVICE, note_in_trail, permitted, who_may
from app.context.context import AppContext
from app.core.clock import SystemClock
from app.core.errors import ConfigurationError, NotFoundError
from app.core.masking import APART, CALLING_CODES
from app.database.engine import Connection
from app.evidence.seal import seal_unsealed
from app.orders.customers import checked_reason
from app.orders.set_aside import HOLDING
from app.privacy import erase_finding, erase_rules, erase_store, erasure_journal
from app.receiving.inbox import Inbox, inbox_of
from app.receiving.reader import Reader, ReaderContext
from reconcile.instants import Instant

REMEMBERED: Final = 1_000_000
"""Subjects that are remembered not to be in the journal: most of them stand in many places."""

MIN_DIGITS: Final = 8
MAX_DIGITS: Final = 15
"""Digits of a whole number (ITU-T E.164), as `providers.phones` reads them."""

_RUN: Final = re.compile(rf"\d(?:{APART}\d){{6,}}", re.ASCII)
_TRUNK: Final = re.compile(r"\(0\)")
_GROUP: Final = re.compile(r"\d+", re.ASCII)
_NAME: Final = re.compile(r"[\w-]+")


@dataclass(slots=True, kw_only=True)
class Erased:
    """Whom the journal names, each with the instant of the last erasure.

    phones   numbers that are in the clear
    digests  of numbers that are found by nothing else
    orders   references
    """

    phones: dict[str, Instant] = field(repr=False, default_factory=dict)
    digests: dict[bytes, Instant] = field(default_factory=dict)
    orders: dict[str, Instant] = field(default_factory=dict)


async def find_erased(
    connection: Connection,
    lines: Sequence[erasure_journal.JournalLine],
    key: erasure_journal.JournalKey,
    *,
    countries: Iterable[str],
    progress: Callable[[int], None],
) -> Erased:
    """Return whom of a journal's lines this database knows.

    countries  calling codes of the customers, for numbers written in the national way
    """
    wanted, codes = _Wanted(lines, key), sorted(set(countries))
    found = Erased()
    for select in (erase_store.READ, erase_store.WHOLE, erase_store.REFUSED):
        async for texts in erase_store.searched_texts(connection, select):
            _note_phones(found, wanted, (each.whole() for each in texts), codes)
            if select == erase_store.REFUSED:
                for each in texts:
                    _note_orders(found, wanted, _NAME.findall(each.whole()))
            progress(len(texts))
    async for some in erase_store.known_phones(connection):
        _note_phones(found, wanted, some, codes)
    async for references in erase_store.known_references(connection):
        _note_orders(found, wanted, references)
        progress(len(references))
    async for digests in erase_store.known_digests(connection):
        for digest in digests:
            at = wanted.at("phone_note", digest.hex())
            if at is not None:
                found.digests[digest] = at
    return found


def _note_phones(
    found: Erased, wanted: _Wanted, texts: Iterable[str], codes: Sequence[str]
) -> None:
    if not wanted.any("phone"):
        return
    for text in texts:
        for digits in numbers_in(text, codes):
            at = wanted.at("phone", digits)
            if at is not None:
                found.phones[digits] = at


def _note_orders(found: Erased, wanted: _Wanted, references: Iterable[str]) -> None:
    if not wanted.any("order"):
        return
    for reference in references:
        at = wanted.at("order", reference)
        if at is not None:
            found.orders[reference] = at


class _Wanted:
    """The journal's digests, by kind, with the last instant of each."""

    def __init__(
        self, lines: Iterable[erasure_journal.JournalLine], key: erasure_journal.JournalKey
    ) -> None:
        self._key = key
        self._last: dict[str, dict[str, Instant]] = {}
        self._seen: dict[str, set[str]] = {}
        for line in lines:
            of_kind = self._last.setdefault(line.kind, {})
            of_kind[line.digest] = max(line.at, of_kind.get(line.digest, line.at))

    def any(self, kind: erasure_journal.Kind) -> bool:
        """Return whether there is a line of this kind."""
        return kind in self._last

    def at(self, kind: erasure_journal.Kind, subject: str) -> Instant | None:
        """Return when a subject was last erased; None where it never was."""
        if kind not in self._last:
            return None
        strangers = self._seen.setdefault(kind, set())
        if subject in strangers:
            return None
        at = self._last[kind].get(self._key.digest(kind, subject))
        if at is None:
            if len(strangers) >= REMEMBERED:
                strangers.clear()
            strangers.add(subject)
        return at


def numbers_in(text: str, countries: Sequence[str]) -> Iterator[str]:
    """Yield everything in a text that may be a phone number, as E.164 digits: every row of groups
    of digits that is not too long, whole or behind 00, and behind one 0 with each of the
    countries."""
    runs = _RUN.findall(text)
    # A zero in brackets may be dialled within the country alone, as in +49 (0)171 1234567.
    for run in chain(runs, (_TRUNK.sub(" ", run) for run in runs if "(0)" in run)):
        groups = _GROUP.findall(run)
        for first in range(len(groups)):
            digits = ""
            for group in groups[first : first + MAX_DIGITS + 2]:
                digits += group
                if len(digits) > MAX_DIGITS + 2:
                    break
                yield from _readings(digits, countries)


def _readings(digits: str, countries: Sequence[str]) -> Iterator[str]:
    if digits.startswith("00"):
        whole = [digits[2:]]
    elif digits.startswith("0"):
        whole = [f"{code}{digits[1:]}" for code in countries]
    else:
        whole = [digits]
    for each in whole:
        if MIN_DIGITS <= len(each) <= MAX_DIGITS and not each.startswith("0"):
            yield each


REASON: Final = "erased before, as the journal of erasures says"

SUBJECT: Final = "the journal of erasures"
"""What the trail calls it."""


async def begin_journal(context: AppContext) -> None:
    """Make the journal, empty, with the database, or take up the one that is at its place.

    Raise ConfigurationError and UnreachableError where it can be neither.
    """
    path = context.settings.erasure_journal_path
    if path is None:
        return
    async with context.database.reading() as connection:
        if await erase_store.journal_name(connection) is not None:
            return
    journal = erasure_journal.make_journal(path, at=context.clock.now())
    # Also on a disk with little room: a start goes on there.
    async with context.database.writer.transaction() as connection:
        await _be_with(connection, journal)


async def _be_with(
    connection: Connection, journal: erasure_journal.ErasureJournal, *, instead: bool = False
) -> None:
    first = journal.lines[0]
    await erase_store.note_journal(connection, journal.name, instead=instead)
    await erase_store.note_carried_out(connection, journal.name, [(first.number, first.text)])


async def fitting_journal(context: AppContext) -> erasure_journal.ErasureJournal:
    """Return the journal of this database. Raise ConfigurationError where it is not at its place,
    with its key, and as this database knows it."""
    if context.settings.erasure_journal_path is None:
        raise erasure_journal.journal_problem(
            "is not set, and nothing is erased without a journal; on PostgreSQL name a file for "
            "it, on a disk that no restore of the database puts back"
        )
    await begin_journal(context)
    return await _fitting(context, context.settings.erasure_journal_path)


async def _fitting(context: AppContext, path: Path) -> erasure_journal.ErasureJournal:
    journal = erasure_journal.read_journal(path)
    if journal is None:
        raise erasure_journal.journal_problem(
            f"there is no journal of erasures at {path}; put the copies of it and of its key "
            f"({erasure_journal.key_path_of(path).name}) back"
        )
    async with context.database.reading() as connection:
        name = await erase_store.journal_name(connection)
        copy = await erase_store.carried_out(connection)
    if name not in (None, journal.name):
        raise erasure_journal.journal_problem(
            f"{path} is another database's journal of erasures; put this one's back"
        )
    if copy != [line.text for line in journal.lines[: len(copy)]]:
        raise erasure_journal.journal_problem(
            f"{path} lacks erasures that were carried out in this database: it is an older copy of "
            "the journal; put the newest back"
        )
    return journal


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalState:
    """What a look at the journal shows.

    path     where it lies; None: it has no place
    begun    whether this database is with one
    problem  why it cannot be used, and what to do
    pending  erasures that are not carried out in this database
    torn     whether its last line was cut short
    """

    path: Path | None
    begun: bool
    problem: str | None = None
    pending: int = 0
    torn: bool = False


async def journal_state(context: AppContext) -> JournalState:
    """Look at the journal, and change nothing."""
    path = context.settings.erasure_journal_path
    async with context.database.reading() as connection:
        begun = await erase_store.journal_name(connection) is not None
        known = len(await erase_store.carried_out(connection))
    if path is None:
        without = "is not set, and this database is with a journal of erasures; name its file"
        return JournalState(path=None, begun=begun, problem=without if begun else None)
    try:
        if not begun and erasure_journal.read_journal(path) is None:
            return JournalState(path=path, begun=False)
        journal = await _fitting(context, path)
    except ConfigurationError as error:
        return JournalState(path=path, begun=begun, problem=_sentence(error))
    pending = len(journal.lines) - max(known, 1)
    return JournalState(path=path, begun=begun, pending=pending, torn=journal.torn)


async def is_pending(context: AppContext, *, kind: erasure_journal.Kind, subject: str) -> bool:
    """Return whether the journal has this subject, in its normal form, in a line that is not
    carried out in this database. Raise ConfigurationError where the journal is not as it must
    be."""
    path = context.settings.erasure_journal_path
    async with context.database.reading() as connection:
        begun = await erase_store.journal_name(connection) is not None
        known = len(await erase_store.carried_out(connection))
    if path is None or not begun:
        return False
    journal = await _fitting(context, path)
    digest = journal.key.digest(kind, subject)
    return any((each.kind, each.digest) == (kind, digest) for each in journal.lines[known:])


@dataclass(slots=True, kw_only=True)
class Replayed:
    """What the journal's lines came to.

    lines     of the journal
    subjects  of them, who were in the database
    counts    what went, as `Erasure.counts`
    copied    whether they are those of the backup's copy; `unread`: that no key could read
    """

    lines: int = 0
    subjects: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    kept: list[erase_rules.KeptData] = field(default_factory=list)
    tidied: bool = True
    copied: bool = False
    unread: int = 0

    def document(self) -> dict[str, Any]:
        """Return it for JSON."""
        names = (
            "orders",
            "deliveries",
            "rejections",
            "session_requests",
            "book_lines",
            "bank_lines",
            "attachments",
            "reasons",
        )
        return {
            "lines": self.lines,
            "subjects": self.subjects,
            **{name: self.counts[name] for name in names},
            "kept": [{"what": each.what, "sentence": each.sentence} for each in self.kept],
            "from_copy": self.copied,
            "unread": self.unread,
        }


class ErasureReplay:
    """Erases again what some lines of the journal name."""

    def __init__(
        self, context: AppContext, *, progress: Callable[[int], None], restored: bool = False
    ) -> None:
        """restored: the database was put back, and nobody serves it. What a backup brought unread
        is read first, since erased customers may be found in it; what is not sealed is sealed
        before the first row is touched."""
        self.context = context
        self._progress = progress
        self._restored = restored
        # A number in the national way may be of every country where none is set.
        self._countries = context.countries or CALLING_CODES

    async def replay_all(self, journal: erasure_journal.ErasureJournal) -> Replayed:
        """Carry out a whole journal, in a database that was put back and that nobody serves."""
        if journal.erased and self._restored:
            environment = self.context.database.environment
            assert environment is not None, "an open database has one"
            reading = ReaderContext(
                self.context, inbox_of(self.context), self.context.sources, environment, HOLDING
            )
            await Reader(reading).read_brought()
        return await self.replay(journal.erased, journal.key)

    async def replay(
        self, lines: Sequence[erasure_journal.JournalLine], key: erasure_journal.JournalKey
    ) -> Replayed:
        """Find, and erase by the same rules as when it was asked for."""
        replayed = Replayed(lines=len(lines))
        if not lines:
            return replayed
        async with self.context.database.reading() as connection:
            found = await find_erased(
                connection, lines, key, countries=self._countries, progress=self._progress
            )
        finder = erase_finding.ErasureFinder
        steps: list[tuple[Instant, _Step]] = [
            (at, partial(finder.of_phone, digits=e)) for e, at in found.phones.items()
        ]
        steps += [(at, partial(finder.of_digest, digest=e)) for e, at in found.digests.items()]
        steps += [(at, partial(finder.of_order, order=e)) for e, at in found.orders.items()]
        for at, step in steps:
            await self._erase(step, at, replayed)
            self._progress(1)
        if replayed.subjects:
            replayed.tidied = await erase_finding.Erasing(self.context, SERVICE, REASON).tidy()
        return replayed

    async def _erase(self, step: _Step, at: Instant, replayed: Replayed) -> None:
        finding = erase_finding.ErasureFinder(self.context, self._progress, until=at)
        try:
            async with self.context.database.reading() as connection:
                erasure = await step(finding, connection)
        except NotFoundError:  # of this subject nothing is left that was there then
            return
        if self._restored and not replayed.subjects:
            await seal_unsealed(self.context)
        async with self.context.database.writing() as connection:
            await note_in_trail(
                connection,
                SERVICE,
                action="erased",
                subject=erasure.subject,
                at=self.context.clock.now(),
                reason=REASON,
                facts=erasure.counts(),
            )
        await erase_finding.Erasing(self.context, SERVICE, REASON, until=at).run(erasure)
        replayed.subjects += 1
        replayed.counts.update(erasure.counts())
        replayed.kept += erasure.kept


_Step = Callable[[erase_finding.ErasureFinder, Connection], Awaitable[erase_finding.Erasure]]


async def carry_out(
    again: ErasureReplay,
    journal: erasure_journal.ErasureJournal,
    *,
    done: Sequence[erasure_journal.JournalLine] = (),
) -> None:
    """Carry out what was not ended of the journal, but for `done`, which just was."""
    context, numbers = again.context, {line.number for line in done}
    async with context.database.reading() as connection:
        pending = journal.lines[len(await erase_store.carried_out(connection)) :]
    await again.replay([line for line in pending if line.number not in numbers], journal.key)
    await _note(context, journal, pending)


async def _note(
    context: AppContext,
    journal: erasure_journal.ErasureJournal,
    lines: Sequence[erasure_journal.JournalLine],
) -> None:
    async with context.database.writing() as connection:
        rows = [(line.number, line.text) for line in lines]
        await erase_store.note_carried_out(connection, journal.name, rows)


# --- after a restore ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Without:
    """A person's word that a restore goes on without the journal, and why."""

    reason: str
    by: str | None


async def replay_after_restore(again: ErasureReplay, *, without: Without | None) -> Replayed:
    """Carry out the whole journal in a database that was put back, before anybody serves it.

    Raise ConfigurationError where the journal is not at its place, unless `without` is said; then
    UsageError for who may not, and without a reason.
    """
    context = again.context
    path = context.settings.erasure_journal_path
    async with context.database.reading() as connection:
        if path is None and await erase_store.journal_name(connection) is None:
            return Replayed()  # PostgreSQL, and nobody was ever erased
    try:
        if path is None:
            raise erasure_journal.journal_problem(
                "is not set, and this database is with a journal; name its file"
            )
        journal = await _fitting(context, path)
    except ConfigurationError as error:
        if without is None:
            raise erasure_journal.journal_problem(f"{_sentence(error)}; {_OR_WITHOUT}") from error
        if path is None:
            raise
        return await _without(again, path, without)
    replayed = await again.replay_all(journal)
    async with context.database.writing() as connection:
        await _be_with(connection, journal)
    await _note(context, journal, journal.lines)
    return replayed


async def erase_in_copy(
    inbox: Inbox, *, without: Without | None, progress: Callable[[int], None]
) -> Replayed:
    """Carry the journal out in the copy of a backup, before it takes the database's place."""
    again = ErasureReplay(inbox.context(clock=SystemClock()), progress=progress, restored=True)
    return await replay_after_restore(again, without=without)


_OR_WITHOUT: Final = (
    "with --without-erasures and --reason the copy in the backup, which knows of no later ones, is "
    "used in its place"
)


def _sentence(error: ConfigurationError) -> str:
    return error.problems[0].partition(": ")[2]


async def _without(again: ErasureReplay, path: Path, without: Without) -> Replayed:
    """Begin the journal anew from the copy in the database; set aside what is at its place."""
    context = again.context
    action: Final = "restored_without_erasures"
    reason = checked_reason(without.reason, [], countries=context.countries)
    await who_may(context, by=without.by, action=action)
    async with context.database.reading() as connection:
        copy = await erase_store.carried_out(connection)
    now = context.clock.now()
    lines = []  # none where the key is not there, or is not theirs
    with suppress(ConfigurationError):
        if (key := erasure_journal.read_key(path)) is not None:
            lines = erasure_journal.journal_lines(copy, key)
    erasure_journal.set_aside(path, at=now)
    if lines:
        erasure_journal.write_again(path, lines)
    else:
        erasure_journal.set_aside(erasure_journal.key_path_of(path), at=now)
    journal = erasure_journal.make_journal(path, at=now)
    async with context.database.writing() as connection:
        who = await permitted(connection, by=without.by, action=action)
        await _be_with(connection, journal, instead=True)
        unread = 0 if lines else max(len(copy) - 1, 0)
        facts = {"lines": len(journal.erased), "unread": unread}
        await note_in_trail(
            connection, who, action=action, subject=SUBJECT, at=now, reason=reason, facts=facts
        )
    replayed = await again.replay_all(journal)
    replayed.copied, replayed.unread = True, unread
    return replayed
