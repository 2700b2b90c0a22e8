"""Journal of erasures, which lists the ids of emptied rows and orders.

NUMBER INSTANT KIND RULE IDS CHECK

An id that a person chose, such as an order's reference, is replaced by a keyed digest.
"""

import fcntl
import hmac
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, Literal, NamedTuple

from app.core.errors import ConfigurationError, UnreachableError
from app.core.ids import new_secret
from app.core.private_files import read_private, sync_folder, write_all, write_new
from reconcile.instants import Instant, format_instant, parse_instant

VARIABLE: Final = "TALLYHOOK_ERASURE_JOURNAL"
"""Setting with the path of the journal's file."""

MAX_LINE_BYTES: Final = 4_096
"""Maximum bytes of a line with its end, which fits in one disk block."""

MAX_IDS: Final = 100
"""Maximum number of ids in a journal line."""

Kind = Literal[
    "journal",
    "deliveries",
    "unreadable",
    "wholes",
    "reasons",
    "orders",
    "attachments",
    "rejections",
    "book_lines",
    "bank_lines",
    "recipients",
    "bookmarks",
    "kept_orders",
    "kept_deliveries",
    "kept_wholes",
    "kept_attachments",
    "kept_bank_lines",
]
"""Kinds of rows that the ids of a line name.

journal      no rows; line 0 gives the journal its random name
deliveries   deliveries that had been read
unreadable   deliveries that could not be read
wholes       deliveries with their own data in an emptied request body
reasons      deliveries whose event lost its reason
orders       orders, as digests
attachments  attached files
rejections   refused deliveries
book_lines   versions of lines of an order book, as digests
bank_lines   versions of bank lines, as digests, with a code for the emptied texts
recipients   phone notes on recipients of payments, as digests
bookmarks    operators' bookmarks, as digests

A kind that begins with `kept_` lists restricted data: digest, reason's code and end.
"""

Rule = Literal["begun", "asked"]

_KEY: Final = "a key of a journal of erasures"
_KEY_CHARS: Final = 64
_CHECK_CHARS: Final = 32
_DIGEST_CHARS: Final = 32
_MAX_IDS_CHARS: Final = 3_900
_LINE: Final = re.compile(
    r"(?P<number>[0-9]{1,12}) (?P<at>[0-9TZ:.-]{20,27}) (?P<kind>[a-z_]{1,20}) "
    r"(?P<rule>[a-z_]{1,20}) (?P<ids>[0-9A-Za-z_,/-]{1,3900}) (?P<check>[0-9a-f]{32})",
    re.ASCII,
)


class JournalLine(NamedTuple):
    """Line of the journal of erasures. Its `text` is the line without its end."""

    number: int
    at: Instant
    kind: str
    rule: str
    ids: tuple[str, ...]
    check: str
    text: str


class JournalKey:
    """Secret key for the digests and checks of the journal. Its repr does not show the key."""

    __slots__ = ("_begun", "_key")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._begun = hmac.new(key, digestmod="sha256")  # a restore makes millions of digests

    def __repr__(self) -> str:
        return "JournalKey()"

    def digest(self, kind: Kind, key: str) -> str:
        """Return the journal's digest of a key or reference."""
        code = self._begun.copy()
        code.update(f"subject\n{kind}\n{key}".encode())
        return code.hexdigest()[:_DIGEST_CHARS]

    def line(self, before: str, *, number: int, at: Instant, kind: Kind, rule: Rule,
             ids: Sequence[str]) -> JournalLine:  # fmt: skip
        """Build the journal's next line.

        before  check of the previous line
        """
        text = f"{number} {format_instant(at)} {kind} {rule} {','.join(ids)}"
        check = self.check(before, text)
        return JournalLine(number, at, kind, rule, tuple(ids), check, f"{text} {check}")

    def check(self, before: str, text: str) -> str:
        """Return the check of a line's text.

        before  check of the previous line
        """
        code = hmac.digest(self._key, f"line\n{before}\n{text}".encode(), "sha256")
        return code.hex()[:_CHECK_CHARS]


class ErasureJournal:
    """Journal of erasures with checked lines."""

    def __init__(
        self, path: Path, key: JournalKey, lines: list[JournalLine], *, torn: bool
    ) -> None:
        self.path = path
        self.key = key
        self.lines = lines
        self.torn = torn

    @property
    def name(self) -> str:
        """Return the name that identifies this journal."""
        return self.lines[0].check

    @property
    def erased(self) -> Sequence[JournalLine]:
        return self.lines[1:]

    def append(self, emptied: Mapping[Kind, Sequence[str]], *, at: Instant) -> list[JournalLine]:
        """Append the ids of the rows to erase, and sync.

        Raise UnreachableError for a failed write, and ConfigurationError for a changed file.
        """
        with _locked(self.path) as file:
            lines, whole, _ = _read(file, self.key)
            if lines[: len(self.lines)] != self.lines:
                raise journal_problem(f"{self.path} was replaced in the meantime; erase again")
            new: list[JournalLine] = []
            for kind, ids in emptied.items():
                for part in _portions(ids):
                    last = (lines + new)[-1]
                    number = last.number + 1
                    new.append(
                        self.key.line(
                            last.check, number=number, at=at, kind=kind, rule="asked", ids=part
                        )
                    )
            file.truncate(whole)  # an erasure whose line is torn was never begun
            file.seek(whole)
            write_all(file.fileno(), b"".join(f"{line.text}\n".encode() for line in new))
            os.fsync(file.fileno())
        self.lines = lines + new
        return new


def _portions(ids: Iterable[str]) -> Iterator[list[str]]:
    part: list[str] = []
    chars = 0
    for each in ids:
        if part and (len(part) == MAX_IDS or chars + len(each) + 1 > _MAX_IDS_CHARS):
            yield part
            part, chars = [], 0
        part.append(each)
        chars += len(each) + 1
    if part:
        yield part


@contextmanager
def _locked(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise UnreachableError(
            f"the journal of erasures {path} cannot be written: {reason}; nothing was erased"
        ) from error


def key_path_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.key")


def journal_problem(sentence: str) -> ConfigurationError:
    """Return an error about the journal. It names the setting with the journal's path."""
    return ConfigurationError([f"{VARIABLE}: {sentence}"])


def read_key(path: Path) -> JournalKey | None:
    """Read a journal's key. Raise ConfigurationError if damaged."""
    name = key_path_of(path)
    content = read_private(name, variable=VARIABLE, what=_KEY, most=_KEY_CHARS + 2)  # a line end
    if content is None:
        return None
    text = content.strip().decode("ascii", "replace")
    if not re.fullmatch(rf"[0-9a-f]{{{_KEY_CHARS}}}", text):
        raise journal_problem(
            f"{name} is not 64 hex digits; put the copy of the journal's key back"
        )
    return JournalKey(bytes.fromhex(text))


def read_journal(path: Path) -> ErasureJournal | None:
    """Read the journal at a path. Return None if journal and key are missing.

    Raise ConfigurationError for a missing, changed or publicly readable file.
    """
    key = read_key(path)
    if read_private(path, variable=VARIABLE, what="a journal of erasures", most=0) is None:
        if key is None:
            return None
        raise journal_problem(
            f"there is no journal of erasures at {path}, only its key; put the journal's copy back"
        )
    if key is None:
        raise journal_problem(
            f"the key {key_path_of(path)} of the journal of erasures is missing; put its copy "
            "back: no other key can read the journal"
        )
    with path.open("rb") as file:
        lines, _, torn = _read(file, key)
    return ErasureJournal(path, key, lines, torn=torn)


def make_journal(path: Path, *, at: Instant) -> ErasureJournal:
    """Return the journal at a path, and make a missing journal.

    Raise UnreachableError for a failed write, and the errors of `read_journal`.
    """
    key = read_key(path)
    try:
        if key is None and not path.exists():
            _new(key_path_of(path), new_secret().hex().encode() + b"\n")
            key = read_key(path)
        if key is not None:
            name = new_secret().hex()
            first = key.line("", number=0, at=at, kind="journal", rule="begun", ids=[name])
            _new(path, f"{first.text}\n".encode())
    except OSError as error:
        raise UnreachableError(
            f"the journal of erasures cannot be created in {path.parent}: "
            f"{error.strerror or type(error).__name__}; let this user write there, or name "
            f"another place in {VARIABLE}"
        ) from None
    journal = read_journal(path)
    assert journal is not None, "it was just made"
    return journal


def _new(path: Path, content: bytes) -> None:
    with suppress(FileExistsError):  # another process was first; use its journal
        write_new(path, content)


def write_again(path: Path, lines: Sequence[JournalLine]) -> None:
    """Write a journal from its lines. Raise FileExistsError if present."""
    write_new(path, b"".join(f"{line.text}\n".encode() for line in lines))


def set_aside(path: Path, *, at: Instant) -> Path | None:
    """Rename the file at a path. Return the new name."""
    aside = path.with_name(f"{path.name}.aside-{at}")
    try:
        path.rename(aside)
    except FileNotFoundError:
        return None
    sync_folder(path.parent)
    return aside


def journal_lines(texts: Iterable[str], key: JournalKey) -> list[JournalLine]:
    """Parse the lines of a journal. Raise ConfigurationError if a line was changed."""
    lines: list[JournalLine] = []
    for text in texts:
        line = _line(text, lines[-1].check if lines else "", key)
        if line is None or line.number != len(lines):
            raise _changed(len(lines))
        lines.append(line)
    return lines


def _read(file: BinaryIO, key: JournalKey) -> tuple[list[JournalLine], int, bool]:
    lines: list[JournalLine] = []
    whole = 0
    raws = file.read().splitlines(keepends=True)
    for place, raw in enumerate(raws):
        text = raw.removesuffix(b"\n").decode("ascii", "replace")
        line = _line(text, lines[-1].check if lines else "", key)
        if line is None or not raw.endswith(b"\n"):
            # The disk may have the end of a line without its beginning, which then reads as zeros.
            unfinished = not raw.endswith(b"\n") or b"\0" in raw
            if lines and place == len(raws) - 1 and unfinished and len(raw) <= MAX_LINE_BYTES:
                return lines, whole, True
            raise _changed(place)
        if line.number != place:
            raise _changed(place)
        lines.append(line)
        whole += len(raw)
    if not lines:
        raise journal_problem("names an empty file; put the copy of the journal of erasures back")
    return lines, whole, False


def _line(text: str, before: str, key: JournalKey) -> JournalLine | None:
    found = _LINE.fullmatch(text)
    if found is None:
        return None
    check = found["check"]
    expected = key.check(before, text.rpartition(" ")[0])
    if not hmac.compare_digest(expected, check):
        return None
    at, ids = parse_instant(found["at"]), tuple(found["ids"].split(","))
    return JournalLine(int(found["number"]), at, found["kind"], found["rule"], ids, check, text)


def _changed(number: int) -> ConfigurationError:
    return journal_problem(
        f"line {number + 1} of the journal of erasures was changed, or was written with another "
        "key; put the copies of the journal and of its key back"
    )
