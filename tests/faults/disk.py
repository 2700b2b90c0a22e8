"""A folder on a disk with a volatile cache: what it may hold when the power goes.

What a sync has returned for is there. Of what was written since, a disk may have kept nothing, all,
any part in any order, or a piece of the last write. A file's name is kept when its folder is
synced; names appear and vanish in the order in which they were made and removed, as a file system
with a journal has it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.faults.trace import Call

SECTOR = 512
"""Bytes that a disk writes whole or not at all."""

KINDS = ("dropped", "kept", "random", "torn")
"""What became of the writes that no sync had covered."""

Image = dict[str, bytes]
"""A folder: each file's name and bytes."""


@dataclass(slots=True)
class File:
    """What is surely on the disk, what a reader would find, and the calls between the two."""

    durable: bytearray = field(default_factory=bytearray)
    current: bytearray = field(default_factory=bytearray)
    pending: list[Call] = field(default_factory=list)

    def change(self, call: Call) -> None:
        """A write or a truncation that no sync has covered yet."""
        _apply(self.current, call)
        self.pending.append(call)

    def sync(self) -> None:
        """All of it is on the disk now."""
        self.durable = bytearray(self.current)
        self.pending.clear()

    def after_cut(self, kind: str, chance: random.Random) -> bytes:
        """The bytes after a cut."""
        if kind == "kept" or not self.pending:
            return bytes(self.current)
        if kind == "dropped":
            return bytes(self.durable)
        found = bytearray(self.durable)
        for call in self._survivors(kind, chance):
            _apply(found, call)
        return bytes(found)

    def _survivors(self, kind: str, chance: random.Random) -> list[Call]:
        if kind == "random":
            return [call for call in self.pending if chance.random() < 0.5]
        *whole, last = self.pending
        if last.name != "write":
            return whole
        sectors = range(0, len(last.data), SECTOR) if len(last.data) > SECTOR else (0, 8, 16)
        return [*whole, Call("write", last.path, last.offset, last.data[: chance.choice(sectors)])]


def _apply(content: bytearray, call: Call) -> None:
    if call.name == "truncate":
        del content[call.offset :]
        content.extend(bytes(call.offset - len(content)))
        return
    if len(content) < call.offset:
        content.extend(bytes(call.offset - len(content)))
    content[call.offset : call.offset + len(call.data)] = call.data


class Disk:
    """The folder. Feed it every call in order; ask at any time what a cut would leave."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._names: dict[str, File] = {}
        self._synced_names: dict[str, File] = {}
        self._renamed: list[dict[str, File]] = []
        self.syncs = 0
        """How often anything was synced: while it stays, what is surely there stays."""

    def apply(self, call: Call) -> bool:
        """Take one call in. Returns whether it was one on this folder."""
        if call.path == self._folder:
            self._synced_names, self.syncs = dict(self._names), self.syncs + 1
            self._renamed.clear()
            return True
        folder, _, name = call.path.rpartition("/")
        if folder != self._folder:
            return False
        self._on_file(name, call)
        return True

    def _on_file(self, name: str, call: Call) -> None:
        if call.name == "unlink":
            self._name({each: file for each, file in self._names.items() if each != name})
            return
        if name not in self._names:
            self._name({**self._names, name: File()})
        if call.name == "sync":
            self._names[name].sync()
            self.syncs += 1
        else:
            self._names[name].change(call)

    def _name(self, names: dict[str, File]) -> None:
        self._names = names
        self._renamed.append(names)

    def after_cut(self, kind: str, chance: random.Random) -> Image:
        """The folder after a cut."""
        names = self._names_after(kind, chance)
        return {name: file.after_cut(kind, chance) for name, file in names.items()}

    def _names_after(self, kind: str, chance: random.Random) -> dict[str, File]:
        if kind in ("kept", "torn"):
            return self._names
        if kind == "dropped":
            return self._synced_names
        choices: Sequence[dict[str, File]] = [self._synced_names, *self._renamed]
        return chance.choice(choices)
