"""Whether kept hashes and signed heads are those of the leaves beneath them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from app.core.text import counted
from app.evidence.checkpoint import Checkpoint, NotACheckpoint, note_holds, read_checkpoint
from app.evidence.keys import PublicKey
from app.sealing.log_store import Identity, SignedHead
from reconcile.instants import format_instant
from reconcile.transparency.merkle import Frontier, Hash, Node
from reconcile.transparency.merkle_tiles import Tail


class Tree:
    """Grows with the log's leaves, and is compared with what the log has kept and signed."""

    def __init__(self, known: Identity, *, kept: Checkpoint | None) -> None:
        """kept: a checkpoint that was kept elsewhere."""
        self._origin = known.origin
        self._keys = [PublicKey(bytes.fromhex(each)) for each in known.keys]
        self._kept = kept
        self._tail, self._frontier = Tail(0, {}), Frontier()
        self.sound = 0
        """Leaves of the largest checkpoint so far that is the head of its leaves."""
        self._wrong_heads = 0
        self.made: dict[Node, Hash] = {}
        """Hashes of complete tiles since `take_nodes` was called."""

    @property
    def size(self) -> int:
        """Leaves so far."""
        return self._frontier.size

    def append(self, leaf: Hash) -> None:
        """Add the next leaf's hash."""
        self._frontier.append(leaf)
        self.made.update(self._tail.append(leaf))

    def signed(self, note: str) -> bool:
        """Whether one of the log's keys signed a note."""
        return any(note_holds(note, name=self._origin, public=key) for key in self._keys)

    def wrong_nodes(self, stored: Mapping[Node, Hash]) -> Iterator[tuple[int, str]]:
        """Kept hashes that are not those of the new tiles: first leaf beneath, and a sentence."""
        for (level, place), found in self.made.items():
            if stored.get((level, place)) != found:
                first, end = place << level, (place + 1) << level
                yield (
                    first,
                    f"the hash kept over leaves {first} to {end - 1} is not theirs: it, or one of "
                    "them together with its row, was changed",
                )
        self.made.clear()

    def wrong_head(self, head: SignedHead) -> str | None:
        """Why a checkpoint of as many leaves as there are now does not fit; None where it does.

        Of several heads that do not fit, the first tells where the log was changed.
        """
        name = f"the checkpoint of {counted(head.size, 'leaf', 'leaves')}"
        try:
            said = read_checkpoint(head.note)
        except NotACheckpoint:
            return f"{name} is no signed note any more: it was changed"
        if not self.signed(head.note) or said.origin != self._origin:
            return f"{name} is not signed by a key of this log: it was changed"
        if (said.size, said.head) != (head.size, head.head):
            return f"{name} was signed with another size or head than it is kept with"
        if head.head == self._frontier.head():
            self.sound = head.size
            return None
        self._wrong_heads += 1
        if self._wrong_heads > 1:
            return None
        return (
            f"{name}, signed {format_instant(head.at)}, is not the head of these leaves: something "
            f"between leaves {self.sound} and {head.size - 1} was changed, added or put in "
            "another order after it was signed"
        )

    def wrong_keep(self) -> str | None:
        """Why the log of as many leaves as there are now is not the kept checkpoint's."""
        if self._kept is None or self._kept.size != self.size:
            return None
        if self._kept.head == self._frontier.head():
            return None
        return (
            f"the first {counted(self.size, 'leaf is', 'leaves are')} not as in the kept "
            "checkpoint: the log was written anew since"
        )
