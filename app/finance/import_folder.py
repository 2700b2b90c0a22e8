"""Watch the folder TALLYHOOK_IMPORT_FOLDER, and import its files in the service's name.

1 look    for files that no longer change
2 copy    the file, and work on the copy
3 dry     read the copy without importing; kind and source must match the folder
4 import  the copy if every row is clear, and move the file to `done`
5 task    leave an unclear file in place, and list the file for people

Links and special files are never opened.
"""

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Final

import anyio

from app.access.operators import SERVICE
from app.context.context import AppContext, Work
from app.core.document_of import document_of
from app.core.errors import NotFoundError, UnreachableError, UsageError
from app.core.logs import Repeating, log
from app.core.private_files import lock_folder
from app.core.text import counted, printable
from app.finance import import_store, imports
from app.finance.coverage_store import coverage_lines
from app.finance.files import presets
from app.finance.import_store import ImportTask, import_tasks, replace_import_tasks

LOOK_S: Final = 15.0
"""Seconds between two looks into the folders."""

MOST_BYTES: Final = 32 * 1024 * 1024
"""Maximum bytes of a file."""

MOST_FILES: Final = 200
"""Maximum number of examined files per folder and round."""

MOST_FOLDERS: Final = 100

MOST_TASKS: Final = 500

DONE: Final = "done"

KINDS: Final[Mapping[str, import_store.ImportKind]] = {"books": "book", "bank": "bank"}
"""Kind of import for folders that belong to no source."""

State = tuple[int, int, int]
"""State of a file: (size, time, inode)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """File in the import folder, with the problem if refused."""

    folder: str
    name: str
    state: State
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Result of trying to import one file."""

    number: int | None = None
    problem: str | None = None


# --- checking the folder --------------------------------------------------------------------------


class ImportFolder:
    """Folder whose files are imported."""

    def __init__(self, context: AppContext, folder: Path, take: Work) -> None:
        self._context, self._folder, self._take = context, folder, take
        self._seen: dict[tuple[str, str], tuple[State, str | None]] = {}
        self._complaints = Repeating()

    async def look(self) -> int:
        """Import all clear files, and return the number of imports."""
        with ExitStack() as stack:
            try:
                if (lock := lock_folder(self._folder)) is None:
                    return 0
                stack.callback(os.close, lock)
                found = await anyio.to_thread.run_sync(lambda: list(_found_in(self._folder)))
            except OSError as error:
                reason = error.strerror or type(error).__name__
                if times := self._complaints.times(reason):
                    log.warning("the import folder cannot be read", reason=reason, count=times)
                return 0
            return await self._take_all(found)

    async def _take_all(self, found: list[FoundFile]) -> int:
        before, self._seen = self._seen, {}
        taken, problems = 0, dict[tuple[str, str], str]()
        async with self._context.database.reading() as connection:
            tasks = await import_tasks(connection)
        stored = {(each.folder, each.file): each.problem for each in tasks}
        for file in found:
            place = (file.folder, file.name)
            state, problem = before.get(place, (None, None))
            if problem is not None and len(tasks) < MOST_TASKS:
                problem = stored.get((printable(file.folder), printable(file.name)))
            if file.problem is not None:
                problem = file.problem
            elif state != file.state:
                problem = None
            elif problem is None:
                try:
                    done = await self._take(
                        take_file, self._folder, folder=file.folder, name=file.name
                    )
                except UnreachableError as error:  # the next check may succeed
                    log.warning("a file could not be imported now", reason=str(error))
                    done = Taken()
                taken += done.number is not None
                problem = done.problem
            self._seen[place] = (file.state, problem)
            if problem is not None:
                problems[place] = problem
        await self._store(problems, tasks)
        return taken

    async def _store(
        self, problems: Mapping[tuple[str, str], str], kept: Sequence[ImportTask]
    ) -> None:
        known = {(each.folder, each.file, each.problem): each for each in kept}
        now = self._context.clock.now()
        tasks = []
        for (folder, name), problem in islice(problems.items(), MOST_TASKS):
            fresh = ImportTask(
                folder=printable(folder), file=printable(name), problem=problem, since=now
            )
            tasks.append(known.get((fresh.folder, fresh.file, problem), fresh))
        if {*tasks} != {*kept}:
            async with self._context.database.writing() as connection:
                await replace_import_tasks(connection, tasks)


async def import_task_documents(context: AppContext) -> list[import_store.ImportTaskDocument]:
    """Return the files that a person must look at."""
    async with context.database.reading() as connection:
        tasks = await import_tasks(connection)
    return [document_of(import_store.ImportTaskDocument, each) for each in tasks]


async def try_again(context: AppContext) -> None:
    """Retry every file with a task at the next look."""
    async with context.database.writing() as connection:
        await replace_import_tasks(connection, ())


def _found_in(root: Path) -> Iterator[FoundFile]:
    for place, folder in enumerate(_entries(root)):
        if not folder.is_dir(follow_symlinks=False):
            sentence = (
                "it is a link: put the folder itself here"
                if folder.is_symlink()
                else (
                    "it is not in a source's folder: move it to the folder of its source, to "
                    "books or to bank"
                )
            )
            yield FoundFile(folder="", name=folder.name, state=(0, 0, 0), problem=sentence)
            continue
        if place >= MOST_FOLDERS:
            yield FoundFile(
                folder="",
                name=folder.name,
                state=(0, 0, 0),
                problem=f"there are more than {MOST_FOLDERS} folders, so this one is not read",
            )
            return
        for number, file in enumerate(each for each in _entries(folder) if each.name != DONE):
            if number == MOST_FILES:
                sentence = f"more than {MOST_FILES} files are here, so the others are read later"
                yield FoundFile(
                    folder=folder.name, name=file.name, state=(0, 0, 0), problem=sentence
                )
                break
            found = file.stat(follow_symlinks=False)
            state = (found.st_size, found.st_mtime_ns, found.st_ino)
            problem = None
            if not stat.S_ISREG(found.st_mode):
                problem = "it is a link, a folder or a special file: put a regular file here"
            elif found.st_size > MOST_BYTES:
                problem = (
                    f"it is larger than {MOST_BYTES >> 20} MiB: cut it in parts, or import it on "
                    "the machine with `tallyhook import`"
                )
            yield FoundFile(folder=folder.name, name=file.name, state=state, problem=problem)


def _entries(folder: Path | os.DirEntry[str]) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(
            (each for each in entries if not each.name.startswith(".")),
            key=lambda each: each.name,
        )


# --- one file -------------------------------------------------------------------------------------


async def take_file(context: AppContext, root: Path, *, folder: str, name: str) -> Taken:
    """Import a clear file, and move it to DONE. Return the import's number, or the problem."""
    with ExitStack() as stack:
        try:
            inside = os.open(root / folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            stack.callback(os.close, inside)
            place = stack.enter_context(tempfile.TemporaryDirectory(prefix="tallyhook-import-"))
            copy, copied = Path(place) / name, _copy(inside, name, Path(place) / name)
        except FileNotFoundError:
            return Taken()  # somebody has removed the file
        except OSError as error:
            return Taken(problem=f"it cannot be read: {error.strerror}")
        try:
            number = await _imported(context, copy, folder=folder, sha256=copied.sha256)
        except (UsageError, NotFoundError) as error:
            return Taken(problem=str(error))
        try:
            _move(inside, name, copied)
        except OSError as error:
            return Taken(
                number=number,
                problem=f"it was imported as import {number}, but cannot be moved to "
                f"{DONE} ({error.strerror}): give the service write access to that folder, or "
                "move the file yourself",
            )
        return Taken(number=number)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copied:
    sha256: str
    state: State


def _copy(inside: int, name: str, to: Path) -> _Copied:
    with (
        open(
            os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=inside), "rb"
        ) as file,
        to.open("xb") as copy,
    ):
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise OSError(0, "it is not a regular file")
        digest, left = hashlib.sha256(), MOST_BYTES + 1
        while part := file.read(min(left, 1 << 20)):
            left -= len(part)
            digest.update(part)
            copy.write(part)
        if not left:
            raise OSError(0, f"it is larger than {MOST_BYTES >> 20} MiB")
    return _Copied(sha256=digest.hexdigest(), state=_state_of(found))


def _state_of(found: os.stat_result) -> State:
    return found.st_size, found.st_mtime_ns, found.st_ino


async def _imported(context: AppContext, path: Path, *, folder: str, sha256: str) -> int:
    request = imports.ImportRequest(path=path, sha256=sha256, actor=SERVICE)
    request, kind, source = await _identity(context, request, folder)
    async with context.database.reading() as connection:
        known = await import_store.import_of_file(connection, kind=kind, sha256=sha256)
        lines = await coverage_lines(connection, as_of=context.clock.now())
    if known is not None:
        took = {each.name for each in lines if each.of_import == known}
        if kind == "statement" and took and source not in took:
            raise UsageError(
                f"import {known} already read this file as a statement of "
                f"{', '.join(sorted(took))}. If the file belongs to {source}, withdraw that "
                "import; otherwise remove the file"
            )
        return known
    tried = await imports.import_kind(
        context, replace(request, dry_run=True), kind=kind, source=source
    )
    if tried.found:
        first = tried.problems[0]
        column = "" if first.column is None else f", column {first.column}"
        others = f", and {counted(tried.found - 1, 'more problem')}" if tried.found > 1 else ""
        good = "" if tried.refused else ", or import its good rows on the page Imports"
        raise UsageError(
            f"row {first.row:,}{column}: {first.sentence}{others}; correct the file{good}"
        )
    if tried.of_workbook:
        raise UsageError(
            f"{' '.join(tried.of_workbook)} Import it on the page Imports, or replace it with a "
            "workbook that has only one visible sheet and no hidden rows"
        )
    if tried.beside:
        raise UsageError(
            f"{' '.join(tried.said_beside())} Otherwise, import it on the page Imports"
        )
    done = await imports.import_kind(context, request, kind=kind, source=source)
    if done.number is None:
        raise UsageError(f"it was not imported: {done.problems[0].sentence}")
    return done.number


async def _identity(
    context: AppContext, request: imports.ImportRequest, folder: str
) -> tuple[imports.ImportRequest, import_store.ImportKind, str]:
    sources = context.settings.sources
    if folder not in sources and folder not in KINDS:
        raise UsageError(
            f"there is no source {printable(folder)[:40]!r}: rename the folder to a source's "
            "name, to books or to bank"
        )
    kind = KINDS.get(folder, "statement") if folder not in sources else "statement"
    found = await imports.identify(context, request, kind=None, source=None)
    if found.kind is None and kind in found.kinds:
        found = await imports.identify(context, request, kind=kind, source=None)
    request = found.reading(request)
    if found.kind != kind:
        is_what = "of no known kind" if found.kind is None else (
            presets.KIND_NAMES[found.kind]
        )  # fmt: skip
        raise UsageError(
            f"it is {is_what}, but this folder takes {presets.KIND_NAMES[kind]}: move it, or "
            "import it on the page Imports"
        )
    if kind != "statement":
        return request, kind, ""
    if folder not in found.sources or found.unsure:
        raise UsageError(
            f"it may not belong to {folder}: move it to the folder of its source, or import it on "
            f"the page Imports. {' '.join(found.because)}".rstrip()
        )
    return request, kind, folder


def _move(inside: int, name: str, copied: _Copied) -> None:
    with suppress(FileExistsError):
        os.mkdir(DONE, dir_fd=inside)
    done = os.open(DONE, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=inside)
    try:
        if _state_of(os.stat(name, dir_fd=inside, follow_symlinks=False)) != copied.state:
            return
        target = name
        with suppress(FileNotFoundError):
            os.stat(name, dir_fd=done, follow_symlinks=False)
            target = f"{Path(name).stem}.{copied.sha256[:8]}{Path(name).suffix}"
        os.rename(name, target, src_dir_fd=inside, dst_dir_fd=done)
    finally:
        os.close(done)
