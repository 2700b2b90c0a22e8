"""A start, call by call, before anybody is listened to: the page cache that an error may have
spoiled is dropped, and the log's content is on the disk."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faults.injecting import DATABASE, INBOX, INBOX_LOG, LOG, base, copied
from tests.faults.plants import KEEPS_CACHED_LOG, UNGUARDED, script
from tests.faults.service import needs_strace, starting
from tests.faults.trace import SYNCS

pytestmark = [needs_strace, pytest.mark.slow]

DROPPING = "fadvise64"
READING = ("pread64", "read")
WRITING = ("pwrite64", "write")
FOLDER = "its folder"
LISTENING = ("listen", "")

_CALL = re.compile(r"(\d+) +(\w+)\((?:\d+<([^>]*)>)?(.*)")
_RETURN = re.compile(r"(\d+) +<\.\.\. (\w+) resumed>")

Step = tuple[str, str]
"""An act (`drop`, `read`, `write` or `sync`) and its file; or LISTENING."""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database whose log is still to be folded."""
    return base(tmp_path_factory.mktemp("killed") / "base", killed=True)


def started(source: Path, folder: Path, *plants: str) -> list[Step]:
    """Start a service on a copy until it serves; return its steps on the database."""
    copied(source, folder)
    assert (folder / LOG).stat().st_size > 0
    trace = folder / "calls"
    names = ",".join((DROPPING, *READING, *WRITING, *SYNCS, "listen"))
    under = ["strace", "-f", "-y", "-qq", "--seccomp-bpf", "-e", "signal=none"]
    under += ["-e", f"trace={names}", "-o", str(trace)]
    with starting(folder, script=script(*plants), under=under) as process:
        process.wait_until_ready()
        return steps(trace.read_text().splitlines(), folder)


def steps(lines: Sequence[str], folder: Path) -> list[Step]:
    """Return the steps of a trace on the database: a read and a write from their beginning, a drop
    and a sync once they have returned."""
    files = {str(folder / name): name for name in (DATABASE, LOG, INBOX, INBOX_LOG)}
    files[str(folder)] = FOLDER
    found: list[Step] = []
    begun: dict[str, Step] = {}
    for line in lines:
        if (returned := _RETURN.match(line)) is not None:
            if returned[1] in begun:
                found.append(begun.pop(returned[1]))
        elif (called := _CALL.match(line)) is not None:
            step = _step(called[2], files.get(called[3], ""), called[4])
            if step is None:
                continue
            if step[0] in ("drop", "sync") and line.endswith("<unfinished ...>"):
                begun[called[1]] = step
            else:
                found.append(step)
    return found


def _step(name: str, file: str, rest: str) -> Step | None:
    if name == "listen":
        return LISTENING
    if not file:
        return None
    if name == DROPPING:
        # All of the file: from its beginning, whatever its length.
        return ("drop", file) if rest.startswith(", 0, 0, POSIX_FADV_DONTNEED") else None
    kinds = {"read": READING, "write": WRITING, "sync": SYNCS}
    return next((kind, file) for kind, names in kinds.items() if name in names)


def wrong(found: list[Step]) -> list[str]:
    """Return sentences about steps that are missing before the first listener, or too late."""
    assert LISTENING in found
    before = found[: found.index(LISTENING)]
    sentences = []
    for file, log in ((DATABASE, LOG), (INBOX, INBOX_LOG)):
        dropped = before[: before.index(("read", file))]
        sentences += [
            f"{each} is read as the page cache shows it"
            for each in (file, log)
            if ("drop", each) not in dropped
        ]
        writes = [number for number, step in enumerate(before) if step == ("write", file)]
        first, last = (writes[0], writes[-1]) if writes else (len(before), 0)
        if not writes:
            sentences.append(f"{log} is not folded")
        if ("sync", log) not in before[:first]:
            sentences.append(f"{log} is not synced before it is folded")
        synced = before[last:]
        if ("sync", file) not in synced:
            sentences.append(f"{file} is not synced")
        # SQLite syncs the folder too, but before it has checkpointed the log.
        elif ("sync", FOLDER) not in synced[synced.index(("sync", file)) :]:
            sentences.append(f"{FOLDER} is not synced")
    return sentences


def test_nobody_is_listened_to_before_the_disk_is_certain(killed: Path, tmp_path: Path) -> None:
    """For database and inbox: file and log are dropped from the page cache before either is read;
    the log is synced before it is folded, the file afterwards, and then the folder."""
    found = started(killed, tmp_path / "case")
    assert wrong(found) == []


@pytest.mark.soak
def test_a_log_that_is_read_from_the_page_cache_is_caught(killed: Path, tmp_path: Path) -> None:
    """An error leaves the log ahead of the disk most often."""
    found = started(killed, tmp_path / "case", KEEPS_CACHED_LOG)
    assert wrong(found) == [f"{log} is read as the page cache shows it" for log in (LOG, INBOX_LOG)]


@pytest.mark.soak
def test_a_start_without_its_guard_is_caught(killed: Path, tmp_path: Path) -> None:
    assert wrong(started(killed, tmp_path / "case", UNGUARDED)) == [
        sentence
        for file, log in ((DATABASE, LOG), (INBOX, INBOX_LOG))
        for sentence in (
            f"{file} is read as the page cache shows it",
            f"{log} is read as the page cache shows it",
            f"{log} is not folded",
            f"{log} is not synced before it is folded",
            f"{file} is not synced",
        )
    ]
