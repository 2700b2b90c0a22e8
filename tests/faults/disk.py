"""A folder on a disk with a volatile cache: its possible contents after a power cut.

Synced data is there. Of what was written since, a disk may have kept nothing, all, any part in any
order, or a piece of the last write. A file's name is kept once its folder is synced; names appear
and vanish in order, as on a file system with a journal.
"""

import random
from dataclasses import dataclass, field

from tests.faults.trace import Call

SECTOR = 512
"""Bytes that a disk writes atomically."""

KINDS = ("dropped", "kept", "random", "torn")
"""Fates of unsynced writes."""

Image = dict[str, bytes]
"""A folder: bytes by file name."""


@dataclass(slots=True)
class File:
    """A file: its bytes surely on the disk, its bytes for a reader, and the calls between the
    two."""

    durable: bytearray = field(default_factory=bytearray)
    current: bytearray = field(default_factory=bytearray)
    pending: list[Call] = field(default_factory=list)

    def change(self, call: Call) -> None:
        """Add a write or a truncation that no sync has covered yet."""
        _apply(self.current, call)
        self.pending.append(call)

    def sync(self) -> None:
        self.durable = bytearray(self.current)
        self.pending.clear()

    def after_cut(self, kind: str, chance: random.Random) -> bytes:
        """Return the bytes after a cut."""
        if kind == "kept" or not self.pending:
            return bytes(self.current)
        if kind == "dropped":
            return bytes(self.durable)
        if kind == "random":
            survivors = [call for call in self.pending if chance.random() < 0.5]
        else:
            *survivors, last = self.pending
            if last.name == "write":
                size = len(last.data)
                torn = chance.choice(range(0, size, SECTOR) if size > SECTOR else (0, 8, 16))
                survivors.append(Call("write", last.path, last.offset, last.data[:torn]))
        found = bytearray(self.durable)
        for call in survivors:
            _apply(found, call)
        return bytes(found)


def _apply(content: bytearray, call: Call) -> None:
    if call.name == "truncate":
        del content[call.offset :]
        content.extend(bytes(call.offset - len(content)))
        return
    if len(content) < call.offset:
        content.extend(bytes(call.offset - len(content)))
    content[call.offset : call.offset + len(call.data)] = call.data


class Disk:
    """The folder: apply every call in order, and ask at any time what a cut would leave."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._names: dict[str, File] = {}
        self._synced_names: dict[str, File] = {}
        self._renamed: list[dict[str, File]] = []
        self.syncs = 0
        """Number of syncs: without a further one, the surely synced state stays."""

    def apply(self, call: Call) -> bool:
        """Apply one call; return whether it was on this folder."""
        if call.path == self._folder:
            self._synced_names, self.syncs = dict(self._names), self.syncs + 1
            self._renamed.clear()
            return True
        folder, _, name = call.path.rpartition("/")
        if folder != self._folder:
            return False
        if call.name == "unlink":
            self._name({each: file for each, file in self._names.items() if each != name})
            return True
        if name not in self._names:
            self._name({**self._names, name: File()})
        if call.name == "sync":
            self._names[name].sync()
            self.syncs += 1
        else:
            self._names[name].change(call)
        return True

    def _name(self, names: dict[str, File]) -> None:
        self._names = names
        self._renamed.append(names)

    def after_cut(self, kind: str, chance: random.Random) -> Image:
        """Return the folder's files after a cut."""
        if kind == "random":
            names = chance.choice([self._synced_names, *self._renamed])
        else:
            names = self._synced_names if kind == "dropped" else self._names
        return {name: file.after_cut(kind, chance) for name, file in names.items()}
