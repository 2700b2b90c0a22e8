"""Uploads: a file that somebody sent, kept from its dry run until it is imported or given up.

1 receive   the form's bytes go to a file as they come; too many are read to their end and refused
2 part      the file among the form's fields gets a place of its own, with its digest
3 keep      at most MOST_KEPT files for an hour; one more takes the place of its sender's oldest,
            else of the oldest
4 forget    after the import, after an hour, and with the console

The folder is this process's own (0700), under TMPDIR. A console that was killed leaves it behind:
the next one deletes every such folder that no living console has locked.
"""

import asyncio
import fcntl
import hashlib
import mmap
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from starlette.requests import ClientDisconnect, Request

from app.core.clock import Clock
from app.core.errors import UnreachableError, UsageError
from app.core.ids import new_token
from app.core.jobs import Job
from app.core.text import printable
from app.finance.imports import Imported, ImportKind, ImportRequest
from reconcile.instants import HOUR, Duration, Instant

MAX_FILE_BYTES: Final = 32 * 1024 * 1024
"""Bytes of a file that is sent by a page: 300,000 rows. It is held twice while it is received; what
is larger is imported by command, which reads it where it is."""

MAX_FORM_BYTES: Final = MAX_FILE_BYTES + 64 * 1024
"""The same with the form around it."""

READ_ON_BYTES: Final = 4 * MAX_FORM_BYTES
"""A form that is too long is read up to here and thrown away: a browser that is hung up on while it
sends shows no answer."""

MOST_RECEIVED: Final = 4
"""Forms that are received at a time; others wait for their turn, and are not read meanwhile."""

MOST_KEPT: Final = 8
"""Files at a time, 256 MiB at most."""

RECEIVED_WITHIN_S: Final = 300.0
"""Seconds for a form to come: 32 MiB by a line of one megabit a second. Who sends nothing more must
not hold a turn."""

TURN_WITHIN_S: Final = 20.0
"""Seconds that a form waits for its turn."""

KEPT_FOR: Final[Duration] = HOUR
"""Long enough to ask somebody about a row; files hold customers' data."""

MAX_FIELDS: Final = 20
MAX_FIELD_BYTES: Final = 4_096
MAX_HEAD_BYTES: Final = 4_096
MAX_NAME_BYTES: Final = 120
"""Of a file's name: it stands in listings, and on a disk whose names have 255 bytes at most."""

PREFIX: Final = "tallyhook-uploads-"

_BOUNDARY: Final = re.compile(
    r'multipart/form-data;.*\bboundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))'
)
_NAME: Final = re.compile(rb'\bname="([^"]*)"', re.IGNORECASE)
_FILE_NAME: Final = re.compile(rb'\bfilename="([^"]*)"', re.IGNORECASE)


@dataclass(slots=True, kw_only=True)
class ReceivedUpload:
    """A file as it came: where it is, whose name it has, and its digest."""

    folder: Path
    path: Path
    size: int
    sha256: str

    def drop(self) -> None:
        """Delete it."""
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(slots=True, kw_only=True)
class Upload:
    """A file that waits for its import.

    kind, source  what it is, and of a statement whose
    mapping       the name of the mapping; empty: the usual names
    preset        the export that it is said to be; empty: what it looks like
    job           the dry run, then the import
    seen          what the dry run found; None before its end
    done          what became of the import; None before its end
    """

    name: str
    file: ReceivedUpload
    by: str
    at: Instant
    kind: ImportKind
    source: str
    mapping: str
    preset: str
    request: ImportRequest
    job: Job | None = None
    seen: Imported | None = None
    done: Imported | None = None

    @property
    def busy(self) -> bool:
        """Whether somebody reads it now."""
        return self.job is not None and self.job.ended is None


class Uploads:
    """The bounded place for uploads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[str, Upload] = {}
        self._folder: Path | None = None
        self._lock: BinaryIO | None = None
        self._turns = asyncio.Semaphore(MOST_RECEIVED)

    # --- receiving -------------------------------------------------------------------------------

    async def receive(self, request: Request) -> tuple[dict[str, str], ReceivedUpload | None]:
        """The fields of a form, and its file, where one was chosen. Raises UsageError for what is
        no such form, for one that is too long or too slow, and where it does not get its turn;
        UnreachableError for a disk that is full."""
        try:
            await self._turn(request)
            try:
                return await self._receive(request)
            finally:
                self._turns.release()
        except ClientDisconnect:
            raise UsageError("the form did not come whole: send it again") from None
        except TimeoutError:
            raise UsageError(
                f"the form did not come in time, which is {RECEIVED_WITHIN_S // 60:.0f} minutes: "
                "send it again by a better line, or cut the file in parts"
            ) from None
        except OSError as error:
            raise UnreachableError(
                "the disk for temporary files (TMPDIR) cannot take this file: have room made, and "
                "send it again"
            ) from error

    async def _turn(self, request: Request) -> None:
        """Wait for a turn. Raises UsageError where none comes."""
        try:
            async with asyncio.timeout(TURN_WITHIN_S):
                await self._turns.acquire()
        except TimeoutError:
            await _passed_by(request)
            raise UsageError(
                f"{MOST_RECEIVED} files are being received: send it again in a minute"
            ) from None

    async def _receive(self, request: Request) -> tuple[dict[str, str], ReceivedUpload | None]:
        found = _BOUNDARY.match(request.headers.get("content-type", ""))
        if found is None:
            raise UsageError("this is no form of this console")
        folder = self._place()
        body = folder / "body"
        try:
            async with asyncio.timeout(RECEIVED_WITHIN_S):
                await _to_file(request, body)
            boundary = (found[1] or found[2]).encode("latin-1")
            fields, file = await asyncio.to_thread(_parted, body, boundary, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        body.unlink()
        if file is None:
            folder.rmdir()
        return fields, file

    def _place(self) -> Path:
        """A new folder for one form."""
        if self._folder is None or not self._folder.exists():
            self.close()
            _delete_left_behind()
            self._folder = Path(tempfile.mkdtemp(prefix=PREFIX))
            made = self._folder / "lock.new"
            self._lock = made.open("wb")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            made.rename(self._folder / "lock")  # seen by others once it is locked
        place = self._folder / new_token("")
        place.mkdir(mode=0o700)
        return place

    # --- keeping ---------------------------------------------------------------------------------

    def keep(self, upload: Upload) -> None:
        """Keep it. Raises UsageError where as many as may be are being read."""
        self._expire()
        while len(self._kept) >= MOST_KEPT:
            idle = [each for each in self._kept.values() if not each.busy]
            own = [each for each in idle if each.by == upload.by]
            oldest = next(iter(own or idle), None)
            if oldest is None:
                upload.file.drop()
                raise UsageError(
                    f"{MOST_KEPT} files are being read: wait a minute, and send this one again"
                )
            self.forget(oldest)
        self._kept[upload.name] = upload

    def holds(self, file: ReceivedUpload) -> bool:
        """Whether this file is one of those that are kept."""
        return any(each.file is file for each in self._kept.values())

    def of(self, name: str, *, by: str) -> Upload | None:
        """An upload of this person; None where there is none, or no longer."""
        self._expire()
        found = self._kept.get(name)
        return found if found is not None and found.by == by else None

    def of_person(self, by: str) -> list[Upload]:
        """All of this person that are kept, the newest first."""
        self._expire()
        return [each for each in reversed(self._kept.values()) if each.by == by]

    def forget(self, upload: Upload) -> None:
        """Delete it."""
        self._kept.pop(upload.name, None)
        upload.file.drop()

    def close(self) -> None:
        """Delete all of them."""
        self._kept.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _expire(self) -> None:
        oldest = self._clock.now() - KEPT_FOR
        for each in list(self._kept.values()):
            if each.at < oldest and not each.busy:
                self.forget(each)


def _delete_left_behind() -> None:
    """The folders of consoles that were killed: nobody holds their locks."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            with _lock_in(folder) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:  # another console's, another user's, or gone
            continue


def _lock_in(folder: Path) -> BinaryIO:
    """The lock of a folder of this user's. Raises OSError where it is none: anybody can make a
    folder or a link of this name, and a pipe in it that is waited for."""
    _must(stat.S_ISDIR, folder.lstat())
    opened = os.open(folder / "lock", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        _must(stat.S_ISREG, os.fstat(opened))
    except OSError:
        os.close(opened)
        raise
    return open(opened, "rb")


def _must(be: Callable[[int], bool], found: os.stat_result) -> None:
    if not be(found.st_mode) or found.st_uid != os.getuid():
        raise PermissionError("not of this console's user")


# --- parting a form (RFC 7578) ------------------------------------------------------------------


async def _to_file(request: Request, path: Path) -> None:
    """The body as it comes. Raises UsageError for one that is too long."""
    size = 0
    with path.open("xb") as file:
        async for part in request.stream():
            size += len(part)
            if size <= MAX_FORM_BYTES:
                file.write(part)
            elif size > READ_ON_BYTES:
                break
    if size > MAX_FORM_BYTES:
        raise UsageError(
            f"the file is larger than {MAX_FILE_BYTES >> 20} MiB: cut it in parts, or import it on "
            "the machine (tallyhook statement import, records import or bank import)"
        )


async def _passed_by(request: Request) -> None:
    """Read the body and throw it away."""
    size = 0
    async with asyncio.timeout(RECEIVED_WITHIN_S):
        async for part in request.stream():
            size += len(part)
            if size > READ_ON_BYTES:
                break


def _parted(
    body: Path, boundary: bytes, folder: Path
) -> tuple[dict[str, str], ReceivedUpload | None]:
    fields: dict[str, str] = {}
    file: ReceivedUpload | None = None
    if not body.stat().st_size:
        raise UsageError("this is no form of this console")
    with body.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for number, (head, start, end) in enumerate(_parts(data, boundary)):
            name = _NAME.search(head)
            if name is None or number == MAX_FIELDS:
                raise UsageError("this is no form of this console")
            sent = _FILE_NAME.search(head)
            if sent is None:
                fields[_text(name[1])] = _text(data[start : min(end, start + MAX_FIELD_BYTES + 1)])
            elif file is None and end > start:
                file = _apart(data, start, end, folder=folder, name=_file_name(sent[1]))
    return fields, file


def _parts(data: mmap.mmap, boundary: bytes) -> Iterator[tuple[bytes, int, int]]:
    """(headers, where the content begins, where it ends) of each part."""
    mark = b"--" + boundary
    at = len(mark)
    if data[:at] != mark:
        raise UsageError("this is no form of this console")
    while data[at : at + 2] != b"--":
        begins = data.find(b"\r\n\r\n", at, at + MAX_HEAD_BYTES)
        ends = -1 if begins < 0 else data.find(b"\r\n" + mark, begins + 4)
        if ends < 0:
            raise UsageError("the form did not come whole: send it again")
        yield data[at:begins], begins + 4, ends
        at = ends + 2 + len(mark)


def _text(value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise UsageError("this is no form of this console") from None
    if "\0" in text:
        raise UsageError("this is no form of this console")
    if len(value) > MAX_FIELD_BYTES:
        raise UsageError(f"a field of the form is longer than {MAX_FIELD_BYTES:,} bytes")
    return text


def _file_name(sent: bytes) -> str:
    """The file's name without its folder, as the disk and a listing can have it."""
    name = printable(re.split(r"[/\\]", sent.decode(errors="replace"))[-1]).lstrip(".")
    return name.encode()[:MAX_NAME_BYTES].decode(errors="ignore") or "file"


def _apart(data: mmap.mmap, start: int, end: int, *, folder: Path, name: str) -> ReceivedUpload:
    if end - start > MAX_FILE_BYTES:
        raise UsageError(f"the file is larger than {MAX_FILE_BYTES >> 20} MiB")
    place = folder / "file"
    place.mkdir(mode=0o700)
    content = memoryview(data)[start:end]
    try:
        path = place / name
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        digest = hashlib.sha256(content).hexdigest()
    finally:
        content.release()
    return ReceivedUpload(folder=folder, path=path, size=end - start, sha256=digest)


def mappings_in(folder: Path | None) -> dict[str, Path]:
    """The mappings of a folder by name: its files that end in .toml."""
    if folder is None:
        return {}
    return {each.stem: each for each in sorted(folder.glob("*.toml")) if each.is_file()}
