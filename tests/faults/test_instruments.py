"""The instruments themselves: a blind checker, or a disk that forgets nothing, would make every
fault look harmless."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.api.driving import driving, event
from tests.faults.check import HALVES, look
from tests.faults.disk import Disk
from tests.faults.trace import Call, events

HALVED = {
    "a delivery without its event": "DELETE FROM events",
    "an event without its delivery": "DELETE FROM deliveries",
    "an order with neither mark nor ledger": "DELETE FROM order_due",
    "an event whose payment has no link": "DELETE FROM links",
}


@pytest.mark.parametrize("name", HALVES)
async def test_a_half_applied_event_is_seen(tmp_path: Path, name: str) -> None:
    async with driving(tmp_path, with_worker=False) as driver:
        await driver.send(event("e1"))
    assert look(tmp_path / "t.db").halves == ()
    with closing(sqlite3.connect(tmp_path / "t.db")) as database, database:
        database.execute(HALVED[name])
    assert look(tmp_path / "t.db").halves == (name,)


async def test_damage_and_loss_are_seen(tmp_path: Path) -> None:
    """An overwritten page is corrupt; a missing id is lost."""
    async with driving(tmp_path, with_worker=False) as driver:
        kept = (await driver.send(event("e1"))).json()["delivery"]
    path = tmp_path / "t.db"
    assert look(path).lost([kept, "dlv_other"]) == {"dlv_other"}
    path.write_bytes(path.read_bytes()[:8_192])
    assert look(path).corrupt != ()


def test_what_a_cut_leaves() -> None:
    """Synced data stays; of the rest nothing, all, some, or a piece of the last write."""
    disk = Disk("/d")
    disk.apply(Call("write", "/d/f", 0, b"a" * 1_024))
    assert disk.after_cut("dropped", random.Random(0)) == {}
    disk.apply(Call("sync", "/d/f"))
    disk.apply(Call("sync", "/d"))
    disk.apply(Call("write", "/d/f", 1_024, b"b" * 1_024))
    disk.apply(Call("write", "/d/f", 2_048, b"c" * 1_024))
    found = {
        kind: {disk.after_cut(kind, random.Random(seed))["f"] for seed in range(40)}
        for kind in ("dropped", "kept", "random", "torn")
    }
    a, b, c = b"a" * 1_024, b"b" * 1_024, b"c" * 1_024
    assert found["dropped"] == {a}
    assert found["kept"] == {a + b + c}
    assert found["random"] == {a, a + b, a + bytes(1_024) + c, a + b + c}
    assert found["torn"] == {a + b, a + b + c[:512]}


def test_a_name_is_kept_when_its_folder_is_synced() -> None:
    """Until then a removed file comes back, and a new one vanishes."""
    disk, chance = Disk("/d"), random.Random(0)
    disk.apply(Call("write", "/d/old", 0, b"o"))
    disk.apply(Call("sync", "/d/old"))
    disk.apply(Call("sync", "/d"))
    disk.apply(Call("unlink", "/d/old"))
    disk.apply(Call("write", "/d/new", 0, b"n"))
    disk.apply(Call("sync", "/d/new"))
    assert disk.after_cut("dropped", chance) == {"old": b"o"}
    assert disk.after_cut("kept", chance) == {"new": b"n"}
    disk.apply(Call("sync", "/d"))
    assert disk.after_cut("dropped", chance) == {"new": b"n"}


def test_a_recording_that_ends_in_the_midst_of_a_call(tmp_path: Path) -> None:
    """A write counts from its beginning, a sync only once it has returned."""
    path = "".join(f"\\x{byte:02x}" for byte in b"/d/f")
    lines = [
        rf'7 pwrite64(5<{path}>, "\x61", 1, 16) = 1',
        f"7 fdatasync(5<{path}> <unfinished ...>",
        "7 <... fdatasync resumed>) = 0",
        rf'7 pwrite64(5<{path}>, "\x62", 1, 17 <detached ...>',
        f"7 fdatasync(5<{path}>) = ?",
        f"7 fdatasync(5<{path}> <detached ...>",
        "8  ???( <unfinished ...>",
        "8 <... ??? resumed>) = ?",
    ]
    (tmp_path / "trace").write_text("\n".join(lines) + "\n")
    assert list(events(tmp_path / "trace")) == [
        Call("write", "/d/f", 16, b"a"),
        Call("sync", "/d/f"),
        Call("write", "/d/f", 17, b"b"),
    ]
