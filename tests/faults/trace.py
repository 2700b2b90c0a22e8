"""A trace by strace: a service's writes and syncs of files, and its acknowledgements.

It comes from `strace -f -y -xx`: one call a line, every string in hexadecimal, the file of each
descriptor in angle brackets. A call interrupted by another thread takes two lines.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SYNCS = ("fdatasync", "fsync")
RECORDED = ("pwrite64", "write", "writev", "sendto", "sendmsg", "ftruncate", "unlink", *SYNCS)

_LINE = re.compile(r"(\d+) +(?:<\.\.\. )?(\w+|\?{3})(?: resumed>|\()(.*)", re.DOTALL)
_DESCRIPTOR = re.compile(r"(\d+)<([^>]*)>")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')
_DELIVERY = re.compile(rb'"delivery": "(dlv_\w+)"')
_WITHOUT_RESULT = ("<unfinished ...>", "<detached ...>")
"""End of a line whose call was interrupted by another thread or the end of the process."""
_KILLED = "(errno "
"""Result of a call that was killed as strace looked."""
_UNKNOWN = "???"
"""Name of a call whose thread was killed before strace saw it."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call on a file: `write` with offset and data, `truncate`, `sync`, `unlink`."""

    name: str
    path: str
    offset: int = 0
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Told:
    """The beginning of an answer that acknowledges a delivery."""

    delivery: str


def recorder(trace: Path) -> list[str]:
    """Return the words in front of a command whose calls are recorded."""
    names = ",".join(RECORDED)
    options = ["-f", "-y", "-xx", "-qq", "--seccomp-bpf", "-s", "2000000", "-e", "signal=none"]
    return ["strace", *options, "-e", f"trace={names}", "-o", str(trace)]


def events(trace: Path) -> Iterator[Call | Told]:
    """Yield calls and acknowledgements in order: a write from its beginning, a sync from its
    return.

    One connection writes, so nothing is written to a file while it is being synced.
    """
    begun: dict[str, Call] = {}
    # strace explains errors in the language of the machine.
    with trace.open(encoding="ascii", errors="replace") as lines:
        for line in lines:
            match = _LINE.match(line)
            assert match is not None, line[:200]
            thread, name, rest = match.groups()
            if name == _UNKNOWN:
                continue
            if name in SYNCS:
                yield from _synced(begun, thread, rest)
            elif "resumed>" not in line[: match.start(3)]:
                yield from _called(name, rest)


def _synced(begun: dict[str, Call], thread: str, rest: str) -> Iterator[Call]:
    found = _DESCRIPTOR.match(rest)
    if found is not None:
        begun[thread] = Call("sync", _hex(found[2]).decode())
    if rest.rstrip().endswith("= ?") or _KILLED in rest:  # the process was killed meanwhile
        begun.pop(thread)
    elif not rest.rstrip().endswith(_WITHOUT_RESULT):
        assert rest.rstrip().endswith("= 0"), rest
        yield begun.pop(thread)


def _called(name: str, rest: str) -> Iterator[Call | Told]:
    if name == "unlink":
        yield Call("unlink", _hex(next(_texts(rest))).decode())
        return
    found = _DESCRIPTOR.match(rest)
    assert found is not None, rest[:200]
    path = _hex(found[2])
    if name in ("pwrite64", "ftruncate"):
        rest = rest[found.end() :]
        numbers = re.split("[)<]", rest, maxsplit=1)[0]
        if name == "ftruncate":
            yield Call("truncate", path.decode(), int(numbers.strip(", ")))
        else:
            data, offset = _hex(next(_texts(rest))), int(numbers.rpartition(",")[2])
            yield Call("write", path.decode(), offset, data)
    elif path.startswith((b"socket:", b"TCP:")):
        for delivery in _DELIVERY.findall(b"".join(map(_hex, _texts(rest)))):
            yield Told(delivery.decode())


def _texts(rest: str) -> Iterator[str]:
    for match in _TEXT.finditer(rest):
        assert match[2] is None, "strace cut a string off"
        yield match[1]


def _hex(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))
