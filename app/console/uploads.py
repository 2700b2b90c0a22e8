"""Store uploaded files until they are imported or discarded.

A file is kept for an hour in a folder that only this process can open.
"""

import asyncio
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from app.core.clock import Clock
from app.core.errors import UnreachableError, UsageError
from app.core.ids import new_token
from app.core.jobs import Job
from app.core.private_files import lock_folder
from app.core.text import printable
from app.finance.file_identity import FileIdentity
from app.finance.files.mapping_draft import TablePreview
from app.finance.imports import Imported, ImportKind, ImportRequest
from reconcile.instants import HOUR, Duration, Instant

MAX_FILE_BYTES: Final = 32 * 1024 * 1024
"""Maximum bytes of an uploaded file: about 300,000 rows, twice its size on disk."""

MAX_FORM_BYTES: Final = MAX_FILE_BYTES + 64 * 1024
"""Maximum number of bytes of a form."""

READ_ON_BYTES: Final = 4 * MAX_FORM_BYTES
"""Maximum bytes of a refused form that are read."""

MOST_RECEIVED: Final = 4
"""Maximum number of forms that are received at a time."""

MOST_KEPT: Final = 8
"""Maximum number of stored files, 256 MiB in all."""

READ_AT_ONCE: Final = 2
"""Maximum number of files that are read at a time."""

RECEIVED_WITHIN_S: Final = 300.0
"""Maximum number of seconds for receiving a form."""

TURN_WITHIN_S: Final = 20.0
"""Maximum number of seconds that a form waits before it is received."""

KEPT_FOR: Final[Duration] = HOUR
"""Time for which an upload with customers' data is stored."""

MAX_FIELDS: Final = 20
MAX_FIELD_BYTES: Final = 4_096
MAX_NAME_BYTES: Final = 120
"""Maximum number of bytes of a file's name. File systems allow 255 bytes."""

PREFIX: Final = "tallyhook-uploads-"

_LAST: Final = b"--\r\n"


@dataclass(slots=True, kw_only=True)
class ReceivedFile:
    """Uploaded file on disk. Each file has a folder of its own."""

    folder: Path
    path: Path
    size: int
    sha256: str

    def drop(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(slots=True, kw_only=True)
class Upload:
    """Uploaded file, from its dry run to its import."""

    name: str
    file: ReceivedFile
    by: str
    at: Instant
    kind: ImportKind | None
    """Kind of import. None until recognized or chosen."""
    source: str | None
    """A statement's source. None until recognized or chosen."""
    mapping: str
    """Name of the column mapping. Empty for the usual column names."""
    preset: str
    """Name of the provider's export format. Empty until recognized."""
    request: ImportRequest
    job: Job | None = None
    """Background job of the dry run, and later of the import."""
    identity: FileIdentity | None = None
    """Kind, source and format that the content shows. None until examined."""
    sheets: Sequence[str] = ()
    """Names of the workbook's sheets that have content."""
    columns: TablePreview | None = None
    """Columns and first rows for a person who begins a mapping."""
    seen: Imported | None = None
    """Result of the dry run, or None."""
    done: Imported | None = None
    """Result of the import, or None."""

    @property
    def changes_file(self) -> Path:
        """Return the path of the file with all rows that the import would change."""
        return self.file.folder / "changes.csv"

    @property
    def busy(self) -> bool:
        return self.job is not None and self.job.ended is None


class Uploads:
    """Store of uploads, with a limit on their number and age."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[str, Upload] = {}
        self._folder: Path | None = None
        self._lock: int | None = None
        self._turns = asyncio.Semaphore(MOST_RECEIVED)
        self.reading = asyncio.Semaphore(READ_AT_ONCE)
        self.importing = asyncio.Lock()

    # --- receiving -------------------------------------------------------------------------------

    async def receive(self, request: Request) -> tuple[dict[str, str], list[ReceivedFile]]:
        """Return the fields and the files of a submitted form.

        Raises UsageError for a bad form, and UnreachableError for a full disk.
        """
        try:
            await self._turn(request)
            try:
                return await self._receive(request)
            finally:
                self._turns.release()
        except ClientDisconnect:
            raise UsageError("the form arrived incomplete: send it again") from None
        except TimeoutError:
            raise UsageError(
                f"the form did not arrive within {RECEIVED_WITHIN_S // 60:.0f} minutes: "
                "send it again over a faster connection, or split the file"
            ) from None
        except OSError as error:
            raise UnreachableError(
                "the disk for temporary files (TMPDIR) cannot take this file: free some space, "
                "and send it again"
            ) from error

    async def _turn(self, request: Request) -> None:
        try:
            async with asyncio.timeout(TURN_WITHIN_S):
                await self._turns.acquire()
        except TimeoutError:
            async with asyncio.timeout(RECEIVED_WITHIN_S):
                async for _ in _whole_body(request):
                    pass
            raise UsageError(
                f"{MOST_RECEIVED} files are being received: send your file again in a minute"
            ) from None

    async def _receive(self, request: Request) -> tuple[dict[str, str], list[ReceivedFile]]:
        body = _whole_body(request)
        parser = MultiPartParser(
            request.headers,
            body,
            max_files=MAX_FIELDS + MOST_KEPT,
            max_fields=MAX_FIELDS,
            max_part_size=MAX_FIELD_BYTES,
        )
        async with asyncio.timeout(RECEIVED_WITHIN_S):
            try:
                form = await parser.parse()
            except (MultiPartException, KeyError):  # KeyError: there is no content type
                with suppress(UsageError):
                    async for _ in body:
                        pass
                raise UsageError(
                    "this form is not from this console, or a field of it is longer than "
                    f"{MAX_FIELD_BYTES:,} bytes"
                ) from None
        try:
            return await asyncio.to_thread(_taken_from, form, self._place)
        finally:
            await form.close()

    def _place(self) -> Path:
        if self._folder is None or not self._folder.exists():
            self.close()
            _delete_left_behind()
            made = Path(tempfile.mkdtemp(prefix=f"new-{PREFIX}"))
            self._lock = lock_folder(made)
            # Other consoles see the folder only after it is locked.
            self._folder = made.rename(made.with_name(made.name.removeprefix("new-")))
        place = self._folder / new_token("")
        place.mkdir(mode=0o700)
        return place

    # --- keeping ---------------------------------------------------------------------------------

    def keep(self, upload: Upload) -> None:
        """Store an upload. Raises UsageError if the store is full."""
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

    def holds(self, file: ReceivedFile) -> bool:
        return any(each.file is file for each in self._kept.values())

    def of(self, name: str, *, by: str) -> Upload | None:
        """Return the operator's upload with this name, if any."""
        self._expire()
        found = self._kept.get(name)
        return found if found is not None and found.by == by else None

    def of_person(self, by: str) -> list[Upload]:
        """Return an operator's uploads, newest first."""
        self._expire()
        return [each for each in reversed(self._kept.values()) if each.by == by]

    def forget(self, upload: Upload) -> None:
        self._kept.pop(upload.name, None)
        upload.file.drop()

    def close(self) -> None:
        self._kept.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _expire(self) -> None:
        oldest = self._clock.now() - KEPT_FOR
        for each in list(self._kept.values()):
            if each.at < oldest and not each.busy:
                self.forget(each)


def _delete_left_behind() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(OSError):  # it belongs to another user, is a link, or is gone
            if folder.lstat().st_uid != os.getuid() or (lock := lock_folder(folder)) is None:
                continue
            shutil.rmtree(folder, ignore_errors=True)
            os.close(lock)


# --- what a form holds ----------------------------------------------------------------------------


async def _whole_body(request: Request) -> AsyncGenerator[bytes]:
    size, end = 0, b""
    async for part in request.stream():
        size, end = size + len(part), (end + part)[-len(_LAST) :]
        if size <= MAX_FORM_BYTES:
            yield part
        elif size > READ_ON_BYTES:
            break
    if size > MAX_FORM_BYTES:
        raise UsageError(
            f"the files together are larger than {MAX_FILE_BYTES >> 20} MiB: send fewer files, "
            "split a file, or import the files on the machine (tallyhook import)"
        )
    if not end.rstrip(b"\r\n").endswith(b"--"):
        raise UsageError("the form arrived incomplete: send it again")


def _taken_from(
    form: FormData, place: Callable[[], Path]
) -> tuple[dict[str, str], list[ReceivedFile]]:
    fields: dict[str, str] = {}
    files: list[ReceivedFile] = []
    try:
        for name, value in form.multi_items():
            if isinstance(value, str):
                if "\0" in value:
                    raise UsageError("this form is not from this console: open the page again")
                fields[name] = value
            elif value.size:
                if len(files) == MOST_KEPT:
                    raise UsageError(f"send at most {MOST_KEPT} files at a time")
                files.append(_copied(value, place()))
    except BaseException:
        for each in files:
            each.drop()
        raise
    return fields, files


def _copied(sent: UploadFile, folder: Path) -> ReceivedFile:
    if (size := sent.size or 0) > MAX_FILE_BYTES:
        raise UsageError(f"the file is larger than {MAX_FILE_BYTES >> 20} MiB")
    place = folder / "file"
    place.mkdir(mode=0o700)
    path = place / _file_name(sent.filename or "")
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b") as file:
        shutil.copyfileobj(sent.file, file)
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return ReceivedFile(folder=folder, path=path, size=size, sha256=digest)


def _file_name(sent: str) -> str:
    name = printable(re.split(r"[/\\]", sent)[-1]).lstrip(".")
    return name.encode()[:MAX_NAME_BYTES].decode(errors="ignore") or "file"


def mappings_in(folder: Path | None) -> dict[str, Path]:
    """Return the mapping files in a folder, by name."""
    if folder is None:
        return {}
    return {each.stem: each for each in sorted(folder.glob("*.toml")) if each.is_file()}
