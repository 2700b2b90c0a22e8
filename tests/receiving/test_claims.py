"""Claims of readers on inbox rows: which rows are free, and when another reader's claim expires."""

from collections.abc import Sequence
from typing import Any

import pytest

from app.receiving import claim_store
from app.receiving.claim_store import (
    CLAIM_S,
    HEADS,
    LOOKS_S,
    Claimant,
    Head,
    claim_rows,
    claim_suspect,
    failed_alone,
    give_back,
    heads_of_rows,
    heads_of_suspects,
)
from app.receiving.framing import framed
from app.receiving.inbox_store import Suspect, Unread, next_suspects, rows_after, suspect
from reconcile.instants import Instant
from tests.receiving.test_inbox_rows import Plain, item, kept, plain

__all__ = ["plain"]


class Machine:
    """The clock of the machine, and the processes that have ended on it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        self.ended: set[str] = set()
        monkeypatch.setattr(claim_store, "monotonic", lambda: self.now)
        monkeypatch.setattr(claim_store, "has_ended", lambda name: name in self.ended)

    def free_after(self, claimant: Claimant, seconds: float, *marks: str) -> list[str]:
        """Return those of the rows with these marks that are free so much later."""
        self.now += seconds
        heads = [Head(seq, 1, 1, mark) for seq, mark in enumerate(marks, 1)]
        return [head.taken_by for head in claimant.free(heads)]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_rows_without_a_claim_or_with_one_of_ours_are_free_at_once(machine: Machine) -> None:
    """Each claim has a mark of its own, which tells whose it is."""
    claimant, other = Claimant(), Claimant()
    first, second = claimant.next_mark(), claimant.next_mark()
    assert first != second
    assert claimant.marks == f"{first.rpartition(' ')[0]} %"
    theirs = other.next_mark()
    assert machine.free_after(claimant, 0, "", first, theirs, second) == ["", first, second]
    alone = Claimant(alone=True)
    assert machine.free_after(alone, 0, "", theirs) == ["", theirs]
    ran_out = [claimant.ran_out(Head(1, 1, 1, mark)) for mark in ("", first, theirs)]
    assert ran_out == [False, False, True]


def test_a_claim_of_another_expires_once_it_was_seen_for_its_time(machine: Machine) -> None:
    """In looks that follow each other closely; after a longer pause the time begins again."""
    claimant = Claimant()
    assert machine.free_after(claimant, 0, "a 1") == []
    for _ in range(int(CLAIM_S / LOOKS_S) - 1):
        assert machine.free_after(claimant, LOOKS_S, "a 1") == []
    assert machine.free_after(claimant, LOOKS_S - 0.1, "a 1") == []
    assert machine.free_after(claimant, 0.1, "a 1", "b 1") == ["a 1"]
    assert machine.free_after(claimant, LOOKS_S + 0.1, "a 1") == []
    assert machine.free_after(claimant, LOOKS_S, "a 1") == []


def test_a_claim_of_a_process_that_has_ended_here_expires_at_once(machine: Machine) -> None:
    claimant = Claimant()
    machine.ended = {"host:1"}
    assert machine.free_after(claimant, 0, "host:1 ab 1", "host:2 host:1 1") == ["host:1 ab 1"]


def test_of_many_claims_those_that_were_seen_long_ago_are_forgotten(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them then has all of its time once more; those that are seen still do not."""
    monkeypatch.setattr(claim_store, "MOST_SEEN", 2)
    few, many = Claimant(), Claimant()
    for claimant, others in ((few, ["b 1"]), (many, ["b 1", "c 1"])):
        assert machine.free_after(claimant, 0, "a 1", *others) == []
        for _ in range(20):
            assert machine.free_after(claimant, 2, *others) == []
        assert machine.free_after(claimant, 2, "a 1", *others) == []
        assert machine.free_after(claimant, 3, *others, "a 1") == [
            *others, *(["a 1"] if claimant is few else [])
        ]  # fmt: skip


def test_rows_and_suspects_are_listed_with_their_claims(plain: Plain) -> None:
    """Oldest first, those that are set aside not among them."""
    sizes = kept(plain, 2, 1, 3)
    plain.ask("UPDATE inbox SET taken_by='a 1' WHERE seq=2")
    rows = [Head(1, 2, sizes[0], ""), Head(2, 1, sizes[1], "a 1"), Head(3, 3, sizes[2], "")]
    assert heads_of_rows(plain) == rows
    assert heads_of_rows(plain, after=1) == rows[1:]
    suspect(plain, rows_after(plain, 2, limit=9, most_bytes=10**9, in_file=False))
    plain.ask("UPDATE suspects SET aside=1 WHERE seq=1")
    plain.ask("UPDATE suspects SET taken_by='a 1' WHERE seq=3")
    size = len(framed([item(30)]))
    assert heads_of_suspects(plain) == [Head(2, 1, size, ""), Head(3, 1, size, "a 1")]


def test_a_suspect_is_claimed_and_given_back_by_its_reader_alone(plain: Plain) -> None:
    """An expired claim counts as a failed reading, a claim that is given back does not."""
    kept(plain, 1)
    suspect(plain, rows_after(plain, 0, limit=9, most_bytes=10**9, in_file=False))
    claimant, other = Claimant(), Claimant()
    (head,) = heads_of_suspects(plain)
    claimed = claim_suspect(plain, claimant, head)
    assert claimed is not None
    assert claimed == Suspect(1, 0, framed([item(10)]), item(10), [], claimed.taken_by)
    assert claim_suspect(plain, other, head) is None
    (head,) = heads_of_suspects(plain)
    ours = claim_suspect(plain, claimant, head)
    assert ours is not None
    assert ours.tries == 0
    failed_alone(plain, claimed)  # under an older claim
    (head,) = heads_of_suspects(plain)
    taken = claim_suspect(plain, other, head)
    assert taken is not None
    assert taken.tries == 1
    give_back(plain, claimant)
    assert [head.taken_by for head in heads_of_suspects(plain)] == [taken.taken_by]
    failed_alone(plain, taken)
    (left,) = next_suspects(plain, aside=False, limit=9)
    assert (left.tries, left.taken_by) == (2, None)
    plain.ask("INSERT INTO inbox (count, received_at, size, records, taken_by) "
              "VALUES (1, 5, 3, x'00', ?)", (other.next_mark(),))  # fmt: skip
    give_back(plain, other)
    assert [head.taken_by for head in heads_of_rows(plain)] == [""]


class Server:
    """A table of inbox rows on PostgreSQL, as far as claims ask for it."""

    dialect = "postgresql"
    spread = False

    def __init__(self, *heads: Head) -> None:
        self.heads = list(heads)
        self.faster: set[int] = set()
        self.seen: list[tuple[int, str, int]] = []

    def ask(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """List rows, or claim those that no other reader claimed meanwhile."""
        if sql.startswith("SELECT"):
            after, limit = values
            assert limit == HEADS
            return [tuple(head) for head in self.heads if head.seq > after][:2]
        mark, seqs, marks, tries = values
        self.seen += zip(seqs, marks, tries, strict=True)
        self.mark = mark
        return [(seq, 1, 5, b"\0", 2) for seq in sorted(seqs, reverse=True)
                if seq not in self.faster]  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "most_bytes", "rows"),
    [(2, 20, [1, 2]), (1, 20, [1]), (2, 19, [1]), (0, 0, [1]), (9, 99, [1, 2])],
)
def test_the_oldest_free_rows_are_claimed_up_to_their_bounds(
    machine: Machine, limit: int, most_bytes: int, rows: list[int]
) -> None:
    """The first of them in any case, whatever it holds."""
    server, claimant = Server(Head(1, 1, 10, ""), Head(2, 1, 10, "")), Claimant()
    found = claim_rows(server, claimant, limit=limit, most_bytes=most_bytes)
    assert found == [Unread(seq, 1, Instant(5), b"\0", None, False, server.mark, 2) for seq in rows]
    assert server.mark.startswith(claimant.marks.rstrip("%"))


def test_rows_that_others_hold_or_claim_faster_are_passed_over(machine: Machine) -> None:
    """A row whose claim has expired is claimed with one more try."""
    machine.ended = {"gone"}
    heads = [Head(1, 1, 10, "a 1"), Head(2, 1, 10, "b 1"), Head(3, 1, 10, ""),
             Head(4, 1, 10, "gone 1"), Head(5, 1, 10, "")]  # fmt: skip
    server, claimant = Server(*heads), Claimant()
    server.faster = {3, 4}
    found = claim_rows(server, claimant, limit=9, most_bytes=99)
    assert [row.seq for row in found] == [5]
    assert server.seen == [(3, "", 0), (4, "gone 1", 1), (5, "", 0)]
    assert claim_rows(Server(*heads[:2]), claimant, limit=9, most_bytes=99) == []
